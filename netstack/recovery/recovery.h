/*
 * What leaves and when: loss recovery, congestion control, round trips, the
 * persist timer, the path's MTU.
 *
 * Times are uint32_t in units of 1,024 ns, called us here, and wrap; they are
 * compared as sequence numbers are, and never across an idle spell.
 */
#pragma once

#include <string.h>
#include <sys/queue.h>

#include "netstack/conn/conn.h"
#include "netstack/lwip/lwip.h"

/* Bytes: a smaller MSS is a peer's attack or error. */
#define NET_MSS_FLOOR 216u

/* In pcb->flags, where lwIP has no flag: its MSS is less than agreed. */
#define NET_TF_PATH 0x8000u

#define NET_FINE_NS INT64_C(5000000) /* timers of a packet are no finer */

/* ---- segments ---- */

/* How a segment fares; each is a bit. */
enum net_seg_state {
	NET_SEG_SENT = 1, /* at least once */
	NET_SEG_RESENT =
		2, /* more than once: its ACK measures nothing (Karn) */
	NET_SEG_SACKED = 4,
	NET_SEG_LOST = 8,     /* on `lost`, to be sent again */
	NET_SEG_RETRIED = 16, /* on `resent`, under way again */
	NET_SEG_WHOLE = 32,   /* its pbuf is in the same object, and in use */
	NET_SEG_GONE = 64,    /* freed, but its pbuf is not */
	NET_SEG_BEHIND = 128, /* and sent after what was new at that time */
};

/* lwIP's segment, as mem/slab.c hands it out: one cache line. */
struct net_seg {
	struct tcp_seg seg; /* first */
	uint32_t sent_us;   /* the last time */
	uint32_t base_us;   /* of the oldest: the last progress */
	uint32_t last_us;   /* of the oldest: when any was sent first */
	uint16_t span;	    /* of the oldest: bytes under way then, / 256 */
	uint8_t state;	    /* enum net_seg_state */
	TAILQ_ENTRY(net_seg) link; /* lost or resent */
};
_Static_assert(sizeof(struct net_seg) <= 64, "one cache line a segment");

static inline struct net_seg *net_seg_of(struct tcp_seg *seg)
{
	return (struct net_seg *)(void *)seg;
}

/*
 * A segment that we make is one object of memory: the segment, its first pbuf,
 * room for headers and what it copies (lwip/seg.c).
 */
struct net_whole_seg {
	struct net_seg seg;
	struct pbuf_custom pbuf;
	uint8_t room[LWIP_MEM_ALIGN_SIZE(PBUF_TRANSPORT)];
	uint8_t data[];
};
_Static_assert(offsetof(struct net_whole_seg, room) % MEM_ALIGNMENT == 0,
	       "the TCP header is aligned");

/* TCP's own clock: it leaves out what the process did not run. */
static inline uint32_t net_now_us(void)
{
	return net_here()->now_us;
}

static inline uint32_t net_seg_begin(const struct tcp_seg *seg)
{
	return lwip_ntohl(seg->tcphdr->seqno);
}

static inline uint32_t net_seg_end(const struct tcp_seg *seg)
{
	return net_seg_begin(seg) + TCP_TCPLEN(seg);
}

/* Whether tcp_output() would send the head of `unsent`, as it is edited. */
static inline bool net_head_fits(const struct tcp_pcb *pcb)
{
	uint32_t at = net_seg_begin(pcb->unsent) - pcb->lastack;

	return at + pcb->unsent->len <= pcb->cwnd &&
	       at + TCP_TCPLEN(pcb->unsent) <= pcb->snd_wnd;
}

/* Such a time on the stack's clock, ns. */
static inline int64_t net_us_to_ns(uint32_t us)
{
	return net_here()->now_ns +
	       (int64_t)(int32_t)(us - net_now_us()) * 1024;
}

static inline bool net_us_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* ---- timestamps, RFC 7323: what leaves ---- */

/* Our clock of them, of 2^20 ns a tick: RFC 7323 5.4 wants 1 ms to 1 s. */
static inline uint32_t net_ts_now(void)
{
	return (uint32_t)(net_here()->now_ns >> 20);
}

/* What they take of each segment, beside its MSS. */
static inline unsigned net_ts_bytes(const struct tcp_pcb *pcb)
{
	return pcb->flags & NET_TF_TS ? NET_TS_BYTES : 0;
}

/* NET_TS_BYTES of options, at any address. */
static inline void net_ts_write(void *opts, uint32_t value, uint32_t echo)
{
	uint32_t words[] = {PP_HTONL(0x0101080a), lwip_htonl(value),
			    lwip_htonl(echo)};

	memcpy(opts, words, sizeof(words));
}
_Static_assert(NET_TS_BYTES == 3 * sizeof(uint32_t), "two NOPs, the option");

/* Of a segment that leaves now, maybe again: its option is written anew. */
static inline void net_ts_refresh(const struct tcp_pcb *pcb, void *opts)
{
	const struct net_conn *conn = (const void *)pcb;

	if (pcb->flags & NET_TF_TS)
		net_ts_write(opts, net_ts_now() + conn->pcb.ts_offset,
			     conn->pcb.ts_recent);
}

/* ---- ecn.c: explicit congestion notification, RFC 3168 ---- */

#define NET_ECN_FIELD 3u /* of IPv4's TOS, of IPv6's traffic class */
#define NET_ECN_ECT0  2u
#define NET_ECN_CE    3u

/* Of the segment that leaves next: whether it is ECN-capable, as new data is */
static inline void net_ecn_set_ect(struct tcp_pcb *pcb, bool ect)
{
	pcb->tos =
		(u8_t)((pcb->tos & ~NET_ECN_FIELD) | (ect ? NET_ECN_ECT0 : 0));
}

/* Whether what leaves says nothing of ECN but, if it is new data, ECT(0). */
static inline bool net_ecn_is_quiet(const struct tcp_pcb *pcb)
{
	return !(pcb->flags & (NET_TF_ECE | NET_TF_CWR));
}

/* Before lwIP dials: the SYN offers it, if we are to ask. */
void net_ecn_offer(struct tcp_pcb *pcb);
/* Whether a SYN offers what we may accept. */
bool net_ecn_offered(const struct tcp_hdr *syn);
/* Of a new connection whose SYN we have answered so. */
void net_ecn_accept(struct tcp_pcb *pcb);
/* Of a connection in SYN_SENT, before lwIP sees a segment for it. */
void net_ecn_answered(struct tcp_pcb *pcb, const struct tcp_hdr *hdr);
/* Of a connection that has agreed on it: a segment leaves; hdr is its own. */
void net_ecn_segment_out(struct net_conn *conn, const struct pbuf *p,
			 struct tcp_hdr *hdr);
/* The same for a segment that leaves again. */
void net_ecn_resend(struct tcp_pcb *pcb, struct tcp_hdr *hdr);
/*
 * A segment has been found acceptable; data: it has some; ce: a router has
 * marked it.
 */
void net_ecn_input(struct net_conn *conn, const struct tcp_hdr *hdr, bool data,
		   bool ce);

/* ---- output.c ---- */
/* The port that a connection's segments leave by; NULL: there is no route. */
struct net_port *net_conn_port(const struct net_conn *conn);
/* At once, and again in the next output phase if the port has no room. */
void net_conn_output_now(struct net_conn *conn);
/* The same in the output phase, where a full port has kept a repair waiting. */
void net_recovery_output(struct net_conn *conn);

/* ---- rtt.c ---- */
void net_rtt_sample(struct net_conn *conn, uint32_t rtt_us);

/* ---- slow_start.c ---- */
/* A connection is established. */
void net_cwnd_begin(struct tcp_pcb *pcb);
/* lwIP has taken an ACK of a connection that has lost nothing; before it. */
void net_cwnd_slow_start(struct tcp_pcb *pcb, uint32_t lastack, uint32_t cwnd);

/* ---- cc.c ---- */
/* A controller's number by its name; -1: there is none. */
int net_cc_number(const char *name);
const char *net_cc_name(const struct net_conn *conn);
const char *net_cc_title(unsigned number); /* static */
/* From now on it is this one's. */
void net_cc_choose(struct net_conn *conn, unsigned number);

/* ---- send.c ---- */
/*
 * Around calls in which lwIP sends by itself: a connection with recovery state
 * sends in the output phase, which paces it. net_cwnd_shut() returns the window
 * for the second call; the connection may have ended in between.
 */
uint32_t net_cwnd_shut(struct net_conn *conn);
void net_cwnd_open(struct net_conn *conn, uint32_t window);

/* ---- pacing.c ---- */
/* At most so many bytes a second, to one in a thousand; 0: any. */
void net_pacing_set_cap(struct net_conn *conn, uint64_t bytes_per_s);
/* Whether what could leave by the windows waits for its time. */
bool net_pacing_holds(const struct net_conn *conn);

/* ---- user_timeout.c ---- */
/* What waits for the peer, and makes no progress, begins to now. */
void net_user_timeout_begin(struct net_conn *conn);
/* When it is given up, ns; CORO_FOREVER: nothing waits, or without end. */
int64_t net_user_timeout_due_ns(const struct net_conn *conn);
/* Whether that is now; lwIP's tick ends it then. */
bool net_user_timeout_gives_up(struct net_conn *conn);

/* ---- persist.c ---- */
/* A segment has opened the window after a timeout. */
void net_persist_window_opened(struct tcp_pcb *pcb);
/* When the persist timer is due, ns; CORO_FOREVER: it is not wanted. */
int64_t net_persist_due_ns(struct net_conn *conn);
/* Does its work if it is due. Returns whether the peer must be given up. */
bool net_persist_timeout(struct net_conn *conn);

/* ---- recovery.c ---- */
/* A segment leaves: what net_segment_out() sees. */
void net_recovery_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p);
/* A segment before lwIP processes it: what net_segment_in() sees. */
void net_recovery_input(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			unsigned optlen, const struct pbuf *p);
/* The ACK `una`, of something new; of a connection without recovery state. */
void net_recovery_advance(struct net_conn *conn, uint32_t una);
/* lwIP has taken an ACK, and will send next. */
void net_recovery_acked(struct net_conn *conn);
/* lwIP has done with a segment; only for a connection with recovery
 * state. */
void net_recovery_after_input(struct net_conn *conn);
/* A segment up to `end` came that is old, with an ACK that is not newer. */
void net_recovery_asked_again(struct net_conn *conn, uint32_t end,
			      uint32_t ack);
void net_recovery_free(struct net_conn *conn);
/* When something has to be done without an ACK, ns; CORO_FOREVER: never. */
int64_t net_recovery_due_ns(const struct net_conn *conn);
/* Does it if it is due. Returns whether the connection must be given up. */
bool net_recovery_timeout(struct net_conn *conn);

struct net_recovery_info {
	uint64_t srtt_ns, rttvar_ns; /* 0: no sample yet */
	uint64_t rto_ns;
	uint32_t cwnd_bytes, ssthresh_bytes;
	uint32_t retransmits; /* segments, over its life */
	uint64_t pacing_rate; /* bytes a second; 0: it is not paced */
};
void net_recovery_info(const struct net_conn *conn,
		       struct net_recovery_info *out);

/* ---- info.c ---- */
/*
 * The part of *out, zeros so far, that is about what leaves. Returns the
 * segments of data under way that the peer is not known to hold.
 */
unsigned net_recovery_tell(const struct net_conn *conn,
			   struct net_tcp_info *out);

/* ---- path.c ---- */

/* Bytes of IP packet that a destination takes; 0: nothing is known. */
unsigned net_path_mtu(const ip_addr_t *ip);

/* Whether IPv4 TCP to it is sent with DF. */
bool net_path_df(const ip4_addr_t *dest);

/*
 * Decides the MSS: after each segment of a handshake, whichever side began it.
 * Never below NET_MSS_FLOOR, and no more than the path is known to take. Once
 * the connection is established, options take their part of it: what is left
 * in pcb->mss are bytes of data.
 */
void net_path_settle(struct net_conn *conn);

/* Before output, of a connection with NET_TF_PATH. */
void net_path_review(struct net_conn *conn);

/*
 * A router has said, credibly, that it takes no more than mtu bytes of packet
 * on the way of a connection that lwIP is shown; what was too long is sent
 * again.
 */
void net_path_too_big(struct net_conn *conn, unsigned mtu);

/* ---- trace.c: what the sock trace tells of windows and states ---- */
/* Looks at a traced connection, and writes down what has changed. */
void net_trace_settle(struct net_conn *conn);
/* The same at the end of a call of the application's. Returns the result. */
long net_trace_call_end(const struct net_trace_call *call, long result);
