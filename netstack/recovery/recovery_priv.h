/*
 * Private to recovery/: the recovery state of a connection, and functions that
 * the files of recovery/ share.
 *
 * The queues remain lwIP's: a lost segment stays in `unacked` and is resent
 * from there. lwIP's own retransmission never runs, because its timer is kept
 * at zero and its count of duplicate ACKs below three.
 */
#pragma once

#include "netstack/recovery/cc.h"
#include "netstack/recovery/recovery.h"

#include "lwip/prot/tcp.h"

TAILQ_HEAD(net_seg_list, net_seg);

enum net_recovery_state {
	NET_RECOVERY_OPEN,     /* nothing is known to be lost */
	NET_RECOVERY_RECOVERY, /* repairing a loss that ACKs have shown */
	NET_RECOVERY_LOSS,     /* repairing after a timeout */
};

/* A range of sequence numbers that the peer has reported as received. */
struct net_sack_range {
	uint32_t left, right;
};

/* A SACK block that was walked: if it only grew, the walk begins at its end. */
struct net_sack_seen {
	uint32_t left, end;   /* end: of the last segment walked over */
	struct net_seg *last; /* valid while `end` is not acknowledged */
};

#define NET_SACK_BLOCKS 4

/* Limit of an ACK's walk over segments that are marked already. */
#define NET_SACK_STEPS 128u

/* F-RTO, RFC 5682: the ACK that is awaited after a timeout. */
enum net_frto {
	NET_FRTO_OFF,
	NET_FRTO_FIRST,	 /* an ACK of the resent segment, or of more */
	NET_FRTO_SECOND, /* a second ACK, while new data leaves */
};

/* The state of CUBIC, RFC 9438, in segments and seconds. */
struct net_cubic {
	double w_max, w_est, k, origin;
	double part; /* fraction of a byte by which the window has grown */
	uint32_t epoch_us;
	bool in_epoch;
};

/*
 * Recovery state. Only connections that have lost something, fill a long path
 * or are paced have it.
 */
struct net_recovery {
	struct net_seg_list lost, resent;
	enum net_recovery_state state;
	uint32_t cwnd; /* limit of bytes in flight; lwIP's limits the span */
	const struct net_cc *cc;
	uint32_t sacked_bytes; /* without SACK: one MSS per duplicate ACK */
	uint32_t lost_bytes;   /* on `lost` */
	uint32_t sacked_segs;
	uint32_t recover;     /* snd_nxt when the repair began */
	uint32_t high_sacked; /* end of the highest segment sacked */
	struct net_seg *high; /* that segment, or NULL */
	struct net_seg *scan; /* last one that RACK passed; NULL: start over */
	struct net_sack_seen seen[NET_SACK_BLOCKS];
	unsigned sack_steps; /* of the last ACK, at most NET_SACK_STEPS */
	uint32_t snd_seen;   /* snd_nxt at the last net_send_account() */
	uint32_t event_us;   /* when the last repair began */
	bool at_once;	     /* the next resent segment is not paced */

	/* RACK, RFC 8985: the delivered segment that was sent last */
	uint32_t rack_sent_us, rack_end, rack_rtt_us, min_rtt_us;
	uint32_t reorder_due_us;
	bool rack_known, reorder_armed, reordered;
	bool rack_resent;      /* the delivered segment was resent */
	uint32_t new_us;       /* when new data was last sent */
	uint8_t reorder_steps; /* in quarters of the minimum RTT */
	uint8_t dupacks;       /* without SACK */
	bool has_repaired;     /* `repaired` is valid */
	uint32_t repaired; /* snd_nxt at the last timeout or, without SACK, when
			      the last repair was acknowledged */

	/* tail loss probe, RFC 8985 7 */
	bool probe_resent; /* the probe was a resent segment, not new data */
	uint32_t probe_end, probe_us; /* snd_nxt and time after the probe */

	/* PRR, RFC 6937 */
	uint32_t flight, prr_delivered, prr_out;

	struct net_hystart hystart;
	struct net_pacing pacing;
	union { /* state of the controller */
		struct net_cubic cubic;
		uint32_t reno_acked; /* bytes, since the window last grew */
		struct net_bbr *bbr;
	};

	/* ECN: if ecn_waits, echoes up to ecn_end belong to the last cut */
	uint32_t ecn_end;
	bool ecn_waits;

	bool harmed; /* a segment was lost, or congestion was signalled */
	/* The values to restore if nothing was lost after all. */
	uint32_t undo_cwnd, undo_ssthresh, undo_left;
	uint32_t undo_ts; /* our timestamp of the first resent segment */
	bool undo_has_ts;
	uint8_t frto;	   /* enum net_frto */
	bool cwnd_limited; /* since the controller last read it */
	/* If was_full, the data in flight up to full_end filled the window. */
	bool was_full;
	uint32_t full_end;
};

/* The contents of one ACK, and the state in which it arrived. */
struct net_ack {
	uint32_t una;	       /* its acknowledgement number */
	struct tcp_seg *first; /* first unacknowledged segment, or NULL */
	uint32_t acked;	       /* bytes newly acknowledged */
	uint32_t delivered;    /* bytes newly acknowledged or sacked */
	uint32_t fack;	       /* high_sacked before this ACK */
	uint32_t rtt_us;       /* of the segment sent last, if has_rtt */
	bool has_rtt;
	bool rtt_by_sack;   /* rtt_us is that of a sacked segment */
	uint32_t newest_us; /* send time of the newest that arrived */
	bool has_newest;
	uint32_t since_us; /* the last progress before this ACK */
	uint32_t span;	   /* bytes in flight when the newest left */
	bool limited;	   /* the congestion window was fully used */
	bool dsack;	   /* it reports a segment that arrived twice */
	bool reordered;	   /* a segment arrived after one sent later */
	uint32_t echo;	   /* TSecr, if has_echo */
	bool has_echo;
	bool first_copy; /* the original of a segment in repair arrived */
	bool ece;	 /* ECN-Echo, on a connection with ECN */
	bool duplicate;
	unsigned n_ranges;
	struct net_sack_range ranges[NET_SACK_BLOCKS];
};

/* The recovery state of a connection; NULL: it has none. */
static inline struct net_recovery *net_recovery_of(const struct net_conn *conn)
{
	return conn->has_recovery ? conn->recovery : NULL;
}

/*
 * Returns whether the oldest segment in flight ends beyond the peer's window,
 * or beyond one of wnd bytes.
 */
static inline bool net_window_shut_at(const struct tcp_pcb *pcb, uint32_t wnd)
{
	return net_seg_end(pcb->unacked) - pcb->lastack > wnd;
}

static inline bool net_window_shut(const struct tcp_pcb *pcb)
{
	return net_window_shut_at(pcb, pcb->snd_wnd);
}

/* Sequence numbers from the oldest unacknowledged to the newest sent one. */
static inline uint32_t net_recovery_span(const struct tcp_pcb *pcb)
{
	return pcb->snd_nxt - pcb->lastack;
}

/* Bytes in flight, RFC 6675's pipe; una may be ahead of lwIP's lastack. */
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
#define NET_PROBE_US (NET_FINE_NS >> 10) /* minimum wait for a probe */

/*
 * Returns whether an RTT sample is used. Far below the timers' lower bound one
 * in eight suffices: RFC 6298 3 requires one per round trip, and these only
 * feed statistics.
 */
static inline bool net_rtt_is_wanted(const struct net_conn *conn,
				     uint32_t rtt_us)
{
	return rtt_us >= NET_PROBE_US / 8 || conn->srtt_us >= NET_PROBE_US ||
	       conn->srtt_us == 0 || net_now_us() % 8 == 0;
}

/* The RTO after this number of doublings, at most a minute. */
uint32_t net_rtt_backed_off_us(const struct net_conn *conn, unsigned doublings);

static inline uint32_t net_rtt_rto_us(const struct net_conn *conn)
{
	return net_rtt_backed_off_us(conn, conn->pcb.nrtx);
}

/* The time until a tail loss probe; only while data is in flight. */
uint32_t net_rtt_probe_us(const struct net_conn *conn);

/* Measures the RTT from the timestamp of an ACK that gives no other sample. */
void net_rtt_by_echo(const struct net_conn *conn, struct net_ack *ack);

/* ---- persist.c ---- */

/*
 * Returns whether a retransmission timeout is the last: give the connection up.
 */
bool net_persist_gives_up(struct tcp_pcb *pcb);

/* ---- sack.c: the scoreboard ---- */

/* Reads the timestamp that a header echoes, on a connection with timestamps. */
void net_sack_parse_echo(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			 unsigned optlen, struct net_ack *ack);
/* Reads the SACK option of a header whose ACK is ack->una. */
void net_sack_parse(const struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		    unsigned optlen, struct net_ack *ack);
/* Notes the segments that ack->una covers, before lwIP frees them. */
void net_sack_take_acked(struct net_conn *conn, struct net_ack *ack);
/* Marks the segments that ack->ranges cover. */
void net_sack_mark(struct net_conn *conn, struct net_ack *ack);
/* Called for an acknowledged segment, before lwIP frees it. */
void net_sack_forget(struct net_recovery *rec, struct net_seg *seg,
		     struct net_ack *ack);
/* Moves segments that RACK deems lost to `lost`; arms reorder_due_us. */
void net_sack_detect(struct net_conn *conn, const struct net_ack *ack);
/* Moves a segment to `lost`. */
void net_sack_lose(struct net_recovery *rec, struct net_seg *seg);
/* net_sack_lose() for a loss that indicates congestion. */
void net_sack_lose_congested(struct net_recovery *rec, struct net_seg *seg);
/* After a timeout: marks all segments that are not sacked as lost. */
void net_sack_lose_all(struct net_conn *conn);
/* Removes all references to a segment that is replaced by its pieces. */
void net_sack_replace(struct net_recovery *rec, struct net_seg *seg);
/*
 * The counterpart of net_sack_mark() for a peer without SACK: counts duplicate
 * ACKs.
 */
void net_sack_count_duplicates(struct net_conn *conn, struct net_ack *ack);
/* Empties `lost`: its segments were not lost, and are in flight. */
void net_sack_find_all(struct net_recovery *rec);
/* Records that a segment of `unacked` was just resent. */
void net_sack_resent(struct net_recovery *rec, struct net_seg *seg);

/* ---- ecn.c ---- */

/* Returns whether a segment from the peer has ECN-Echo. */
static inline bool net_ecn_is_echo(const struct tcp_pcb *pcb,
				   const struct tcp_hdr *hdr)
{
	return (hdr->_hdrlen_rsvd_flags & PP_HTONS(TCP_ECE)) &&
	       (pcb->flags & NET_TF_ECN);
}

/*
 * Called for each ACK after the controller has seen it: cuts the window for an
 * ECN-Echo, once a round trip. There is recovery state.
 */
void net_ecn_ack(struct net_conn *conn, const struct net_ack *ack);
/* Cuts the window for an ECN-Echo if there is no memory for recovery state. */
void net_ecn_ack_without_memory(struct net_conn *conn);
/* Called when the window was cut, for a loss or a mark: sends CWR. */
void net_ecn_cut(struct net_conn *conn);
/* Called when that cut was undone, since nothing had been lost. */
void net_ecn_uncut(struct net_conn *conn);

/* ---- spurious.c: repairs of segments that were not lost ---- */

/* Saves the values to restore, before the window is cut. */
void net_undo_begin(struct net_conn *conn);
/* Prevents an undo by timestamps: the segments were certainly lost. */
void net_undo_never(struct net_conn *conn);
/* Called when a segment was resent. */
void net_undo_resent(struct net_conn *conn);
/*
 * Called when the peer has reported a duplicate (D-SACK): undoes the cut once
 * all resent segments were duplicates.
 */
void net_undo_duplicate(struct net_conn *conn);
/*
 * Called for each ACK after its segments were marked: undoes the cut if it
 * shows that nothing was lost. There is recovery state.
 */
void net_undo_ack(struct net_conn *conn, const struct net_ack *ack);
/* Starts F-RTO after a timeout, once the lost segments are marked. */
void net_frto_begin(struct net_conn *conn);

/* ---- cwnd.c: how much may be in flight ---- */

/* Grows the send buffer for a congestion window of cwnd bytes. */
void net_cwnd_grow_buffer(struct net_conn *conn, uint32_t cwnd);

/* Called before data is sent: reduces the window after an idle period. */
void net_recovery_restart(struct net_conn *conn);

/* ---- cc.c ---- */

#define NET_CC_BULK 16u /* segments: a larger window fills a long path */

/*
 * Called before a connection without recovery state sends: creates the state if
 * the connection is paced or fills a long path.
 */
void net_cc_engage(struct net_conn *conn);

static inline void net_recovery_before_output(struct net_conn *conn)
{
	if (!conn->pcb.unacked && conn->pcb.unsent &&
	    tcp_ticks - conn->pcb.tmr > 5)
		net_recovery_restart(conn);
	if (unlikely(conn->pcb.cwnd > NET_CC_BULK * conn->pcb.mss ||
		     conn->paced) &&
	    !conn->has_recovery)
		net_cc_engage(conn);
}

/* ---- send.c: all but net_send_again() need recovery state ---- */

#define NET_CWND_SHUT 1u /* a congestion window that no segment fits into */

/*
 * Resends a segment of `unacked` as it is. Returns false if that is not
 * possible now: a driver still holds it, or there was no memory.
 */
bool net_send_again(struct net_conn *conn, struct net_seg *seg);
/* net_send_again(), and records that the segment was resent. */
bool net_send_resend(struct net_conn *conn, struct net_seg *seg);
/* Accounts for what lwIP has sent by itself since the last call. */
void net_send_account(struct net_conn *conn);
/* Sends lost segments, as far as windows and pacing allow, then new data. */
void net_send_repair(struct net_conn *conn);
/* Sends new data, as far as windows and pacing allow. */
void net_send_new(struct net_conn *conn);

/* ---- recovery.c ---- */

/* Creates the recovery state if there is none. Returns false without memory. */
bool net_recovery_begin(struct net_conn *conn);
/*
 * Resends the segments on `lost` that a router refused as too big. This
 * indicates no congestion, so the window stays as it is (RFC 8201 5.4).
 */
void net_recovery_resume_cut(struct net_conn *conn);

/* ---- path.c ---- */

/* The path MTU of a destination. */
struct net_path {
	ip_addr_t ip;
	uint16_t mtu;	 /* bytes of IP packet; 0: the entry is unused */
	uint8_t cuts;	 /* times that it was lowered while it was known */
	uint8_t guesses; /* times that it had to be guessed */
	int64_t until_ns;
};
#define NET_PATHS 1024u

/* The table; tests look into it. Owned. */
extern NET_SHARD_VAR struct net_path *net_paths
	__attribute__((visibility("hidden")));
#define net_paths NET_SHARD(net_paths)

/*
 * Called at a retransmission timeout, before anything is resent: lowers the MSS
 * if the path seems to drop long packets.
 */
void net_path_timed_out(struct net_conn *conn);

/* ---- recut.c ---- */

/*
 * Cuts segments of `unsent` that are longer than mss bytes. Returns false
 * without memory, after which some may still be longer.
 */
bool net_recut_unsent(struct net_conn *conn, unsigned mss);
/*
 * Cuts segments of `unacked` that are longer than mss bytes and marks them
 * lost, except those that were sacked. Stops without memory.
 */
void net_recut_unacked(struct net_conn *conn, unsigned mss);
