/*
 * Private to recovery/: what is kept of each connection that has lost segments,
 * and what its files offer each other.
 *
 * lwIP's queues stay lwIP's: a segment is sent again from where it lies in
 * `unacked`, and lwIP's own retransmission never comes to act, since its timer
 * is held at zero and its count of duplicate ACKs below three.
 */
#pragma once

#include "netstack/recovery/cc.h"
#include "netstack/recovery/recovery.h"

#include "lwip/prot/tcp.h"

TAILQ_HEAD(net_seg_list, net_seg);

enum net_recovery_state {
	NET_RECOVERY_OPEN,     /* nothing is known to be lost */
	NET_RECOVERY_RECOVERY, /* repairing what SACK or duplicate ACKs told */
	NET_RECOVERY_LOSS,     /* repairing after a timeout */
};

/* A stretch of sequence numbers that the peer has said it holds. */
struct net_sack_range {
	uint32_t left, right;
};

/* One already walked: a block that only grew is walked from there. */
struct net_sack_seen {
	uint32_t left, end;   /* end: of the last segment walked over */
	struct net_seg *last; /* valid while `end` is not acknowledged */
};

#define NET_SACK_BLOCKS 4

/* Over segments that an ACK's blocks do not mark anew. */
#define NET_SACK_STEPS 128u

/* F-RTO, RFC 5682: what a timeout waits for. */
enum net_frto {
	NET_FRTO_OFF,
	NET_FRTO_FIRST,	 /* an ACK of what was sent again, or of more */
	NET_FRTO_SECOND, /* and another, while what is new leaves */
};

/* What CUBIC keeps, RFC 9438, in segments and seconds. */
struct net_cubic {
	double w_max, w_est, k, origin;
	double part; /* of a byte of window, grown by and not counted yet */
	uint32_t epoch_us;
	bool in_epoch;
};

/*
 * Recovery state: only connections that have lost something, fill a long path
 * or are paced have it.
 */
struct net_recovery {
	struct net_seg_list lost, resent;
	enum net_recovery_state state;
	uint32_t cwnd; /* of bytes under way, where lwIP's is a span */
	const struct net_cc *cc;
	uint32_t sacked_bytes; /* without SACK: one MSS a duplicate ACK */
	uint32_t lost_bytes;   /* on `lost` */
	uint32_t sacked_segs;
	uint32_t recover;     /* snd_nxt when the repair began */
	uint32_t high_sacked; /* end of the highest segment sacked */
	struct net_seg *high; /* that segment, or NULL */
	struct net_seg *scan; /* the last one judged, or NULL: begin again */
	struct net_sack_seen seen[NET_SACK_BLOCKS];
	unsigned sack_steps; /* of the last ACK, of NET_SACK_STEPS */
	uint32_t snd_seen;   /* snd_nxt when we last looked */
	uint32_t event_us;   /* when the last repair began */
	bool at_once;	     /* the next one sent again waits for no pace */

	/* RACK, RFC 8985: of what was sent last among what has arrived */
	uint32_t rack_sent_us, rack_end, rack_rtt_us, min_rtt_us;
	uint32_t reorder_due_us;
	bool rack_known, reorder_armed, reordered;
	bool rack_resent;      /* it was sent more than once */
	uint32_t new_us;       /* when what was new was last sent */
	uint8_t reorder_steps; /* of a quarter of the least RTT */
	uint8_t dupacks;       /* without SACK */
	bool has_repaired;     /* without SACK: `repaired` counts */
	uint32_t repaired;     /* snd_nxt when a repair was acknowledged last */

	/* TLP */
	bool probe_resent;
	uint32_t probe_end, probe_us; /* snd_nxt and time after it */

	/* PRR, RFC 6937 */
	uint32_t flight, prr_delivered, prr_out;

	struct net_hystart hystart;
	struct net_pacing pacing;
	union { /* what the controller keeps */
		struct net_cubic cubic;
		uint32_t reno_acked; /* bytes, since the window last grew */
		struct net_bbr *bbr;
	};

	/* ECN: what is told up to here is of the last cut; if ecn_waits */
	uint32_t ecn_end;
	bool ecn_waits;

	bool harmed; /* it has lost something, or congestion was signalled */
	/* What to go back to when it turns out that nothing was lost. */
	uint32_t undo_cwnd, undo_ssthresh, undo_left;
	uint32_t undo_ts; /* our timestamp of the first sent again, if has */
	bool undo_has_ts;
	uint8_t frto;	   /* enum net_frto */
	bool cwnd_limited; /* since the controller last asked */
	/* What was under way up to here filled the window; if was_full. */
	bool was_full;
	uint32_t full_end;
};

/* What one ACK has told, and what it was told in. */
struct net_ack {
	uint32_t una;	       /* everything before is acknowledged */
	struct tcp_seg *first; /* of `unacked`, not acknowledged; or NULL */
	uint32_t acked;	       /* bytes of that, anew */
	uint32_t delivered;    /* the same and what is sacked anew */
	uint32_t fack;	       /* high_sacked before */
	uint32_t rtt_us;       /* of what was sent last, if has_rtt */
	bool has_rtt;
	uint32_t newest_us; /* when the newest that arrived was sent, if any */
	bool has_newest;
	uint32_t since_us; /* the last progress before */
	uint32_t span;	   /* bytes under way when the newest left */
	bool limited;	   /* the congestion window was in use */
	bool dsack;	   /* something has arrived twice */
	bool reordered;	   /* or later than what was sent after it */
	uint32_t echo;	   /* TSecr, if has_echo */
	bool has_echo;
	bool first_copy; /* of what was under way at a timeout, one arrived */
	bool ece;	 /* ECN-Echo, of a connection that has ECN */
	bool duplicate;
	unsigned n_ranges;
	struct net_sack_range ranges[NET_SACK_BLOCKS];
};

/* NULL: no recovery state. */
static inline struct net_recovery *net_recovery_of(const struct net_conn *conn)
{
	return conn->repairing ? conn->recovery : NULL;
}

/* Whether the oldest segment under way ends beyond the peer's window. */
static inline bool net_window_shut(const struct tcp_pcb *pcb)
{
	return net_seg_end(pcb->unacked) - pcb->lastack > pcb->snd_wnd;
}

/* Bytes from the oldest not acknowledged to the newest sent. */
static inline uint32_t net_recovery_span(const struct tcp_pcb *pcb)
{
	return pcb->snd_nxt - pcb->lastack;
}

/* Bytes under way, RFC 6675's pipe; una may be ahead of lwIP's lastack. */
static inline uint32_t net_recovery_pipe(const struct net_conn *conn,
					 uint32_t una)
{
	uint32_t span = conn->pcb.snd_nxt - una;
	uint32_t gone = net_recovery_of(conn)->sacked_bytes +
			net_recovery_of(conn)->lost_bytes;

	return span > gone ? span - gone : 0;
}

/* ---- rtt.c ---- */

#define NET_MS(n)    ((uint32_t)((n)*INT64_C(1000000) >> 10))
#define NET_PROBE_US (NET_FINE_NS >> 10) /* no probe comes sooner */

/*
 * Far below every timer's floor an eighth of the samples is plenty: RFC 6298 3
 * asks for one a round trip, and these feed statistics alone.
 */
static inline bool net_rtt_is_wanted(const struct net_conn *conn,
				     uint32_t rtt_us)
{
	return rtt_us >= NET_PROBE_US / 8 || conn->srtt_us >= NET_PROBE_US ||
	       conn->srtt_us == 0 || net_now_us() % 8 == 0;
}

/* The RTO after this many doublings, at most a minute. */
uint32_t net_rtt_backed_off_us(const struct net_conn *conn, unsigned doublings);

static inline uint32_t net_rtt_rto_us(const struct net_conn *conn)
{
	return net_rtt_backed_off_us(conn, conn->pcb.nrtx);
}

/* Only while something is under way. */
uint32_t net_rtt_probe_us(const struct net_conn *conn);

/* Of an ACK that tells no round trip otherwise. */
void net_rtt_by_echo(const struct net_conn *conn, struct net_ack *ack);

/* ---- persist.c ---- */

/* Whether a retransmission timeout is one too many; counts it if not. */
bool net_persist_gives_up(struct tcp_pcb *pcb);

/* ---- sack.c: the scoreboard ---- */

/* Reads the timestamp that a header echoes, of a connection that has them. */
void net_sack_parse_echo(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			 unsigned optlen, struct net_ack *ack);
/* Reads the SACK option of a header whose ACK is ack->una. */
void net_sack_parse(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		    unsigned optlen, struct net_ack *ack);
/* Notes the segments that ack->una covers, before lwIP frees them. */
void net_sack_take_acked(struct net_conn *conn, struct net_ack *ack);
/* Marks what ack->ranges cover. */
void net_sack_mark(struct net_conn *conn, struct net_ack *ack);
/* A segment is acknowledged and about to be freed by lwIP. */
void net_sack_forget(struct net_recovery *rec, struct net_seg *seg,
		     struct net_ack *ack);
/* Puts on `lost` what must be lost by now; arms reorder_due_us. */
void net_sack_detect(struct net_conn *conn, const struct net_ack *ack);
void net_sack_lose(struct net_recovery *rec, struct net_seg *seg);
/* The same, and it tells of congestion. */
void net_sack_lose_congested(struct net_recovery *rec, struct net_seg *seg);
/* After a timeout: all that is not sacked is lost. */
void net_sack_lose_all(struct net_conn *conn);
/* A segment goes, for its pieces: nothing refers to it any more. */
void net_sack_replace(struct net_recovery *rec, struct net_seg *seg);
/* The same for a peer without SACK, which duplicate ACKs tell of. */
void net_sack_count_duplicates(struct net_conn *conn, struct net_ack *ack);
/* What is lost and has not left again is under way after all. */
void net_sack_find_all(struct net_recovery *rec);
/* A segment of `unacked` was sent again just now. */
void net_sack_resent(struct net_recovery *rec, struct net_seg *seg);

/* ---- ecn.c ---- */

/* Whether a segment from the peer tells of congestion. */
static inline bool net_ecn_is_echo(const struct tcp_pcb *pcb,
				   const struct tcp_hdr *hdr)
{
	return (hdr->_hdrlen_rsvd_flags & PP_HTONS(TCP_ECE)) &&
	       (pcb->flags & NET_TF_ECN);
}

/* An ACK of a connection with recovery state, after its controller has seen it.
 */
void net_ecn_ack(struct net_conn *conn, const struct net_ack *ack);
/* The same of one for which there was no memory. */
void net_ecn_ack_without_memory(struct net_conn *conn);
/* The window was cut, for whatever reason. */
void net_ecn_cut(struct net_conn *conn);
/* Nothing had been lost, so it was not. */
void net_ecn_uncut(struct net_conn *conn);

/* ---- spurious.c: repairs of what had not been lost ---- */

/* Before the window is cut. */
void net_undo_begin(struct net_conn *conn);
/* What is repaired was lost for sure. */
void net_undo_never(struct net_conn *conn);
/* A segment has left again. */
void net_undo_resent(struct net_conn *conn);
/* The peer tells of a duplicate. */
void net_undo_duplicate(struct net_conn *conn);
/* An ACK of a connection with recovery state, when what it covers is marked. */
void net_undo_ack(struct net_conn *conn, const struct net_ack *ack);
/* A timeout; what is lost is marked. */
void net_frto_begin(struct net_conn *conn);

/* ---- cwnd.c: how much may be under way ---- */

/* Room to write for a window of so many bytes. */
void net_cwnd_grow_buffer(struct net_conn *conn, uint32_t cwnd);

/* Before what was written goes out: after an idle spell a smaller window. */
void net_recovery_restart(struct net_conn *conn);

/* ---- cc.c ---- */

#define NET_CC_BULK 16u /* segments: a larger window fills its path */

/* Before a connection without recovery state sends: it may need some. */
void net_cc_engage(struct net_conn *conn);

static inline void net_recovery_before_output(struct net_conn *conn)
{
	if (!conn->pcb.unacked && conn->pcb.unsent &&
	    tcp_ticks - conn->pcb.tmr > 5)
		net_recovery_restart(conn);
	if (__builtin_expect(conn->pcb.cwnd > NET_CC_BULK * conn->pcb.mss ||
				     conn->paced,
			     0) &&
	    !conn->repairing)
		net_cc_engage(conn);
}

/* ---- output.c ---- */
/* By the windows, whatever lies in `unsent`, or the ACK that is due. */
void net_send_what_fits(struct net_conn *conn);

/* ---- send.c: of connections with recovery state, but the first ---- */

#define NET_CWND_SHUT 1u /* a congestion window nothing fits into */

/*
 * Sends a segment of `unacked` again, as it lies there. False: not now, since
 * a driver still holds it or there was no memory.
 */
bool net_send_again(struct net_conn *conn, struct net_seg *seg);
/* The same, and notes that it was. */
bool net_send_resend(struct net_conn *conn, struct net_seg *seg);
/* What lwIP has sent by itself since we last looked. */
void net_send_account(struct net_conn *conn);
/* What is lost, as far as the windows and its pace go; then what is new. */
void net_send_repair(struct net_conn *conn);
/* What is new. */
void net_send_new(struct net_conn *conn);

/* ---- recovery.c ---- */

/* Makes the block if there is none. False: no memory. */
bool net_recovery_begin(struct net_conn *conn);
/*
 * Sends again what is on `lost` since a router refused it. That tells of no
 * congestion: the window stays (RFC 8201 5.4).
 */
void net_recovery_resume_cut(struct net_conn *conn);

/* ---- path.c ---- */

/*
 * A retransmission timeout, before anything is sent again: lowers the MSS when
 * the path seems to swallow long packets.
 */
void net_path_timed_out(struct net_conn *conn);

/* ---- recut.c ---- */

/* Cuts what is longer than mss bytes. False: no memory, nothing is lost. */
bool net_recut_unsent(struct net_conn *conn, unsigned mss);
/* And marks it lost; what the peer holds already stays as it is. */
void net_recut_unacked(struct net_conn *conn, unsigned mss);
