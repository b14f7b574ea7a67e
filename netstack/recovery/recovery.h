/*
 * Decides what is sent and when: loss recovery, congestion control, round-trip
 * times, the persist timer, the path MTU.
 *
 * Times in units of 1,024 ns are uint32_t with the suffix _us, and wrap; they
 * are compared as sequence numbers are, and never across an idle period. All
 * calls act on the shard of the calling thread.
 */
#pragma once

#include <string.h>
#include <sys/queue.h>

#include "netstack/conn/conn.h"
#include "netstack/lwip/lwip.h"

/* Bytes: a smaller MSS is a peer's attack or error. */
#define NET_MSS_FLOOR 216u

/* A bit of pcb->flags that lwIP does not use: the path has lowered the MSS. */
#define NET_TF_PATH 0x8000u

#define NET_FINE_NS INT64_C(5000000) /* granularity of per-packet timers */

/* ---- segments ---- */

/* The state of a segment; each is a bit. */
enum net_seg_state {
	NET_SEG_SENT = 1,   /* at least once */
	NET_SEG_RESENT = 2, /* sent more than once: no RTT sample (Karn) */
	NET_SEG_SACKED = 4,
	NET_SEG_LOST = 8,     /* on `lost`, to be resent */
	NET_SEG_RETRIED = 16, /* on `resent`, in flight again */
	NET_SEG_WHOLE = 32,   /* its pbuf is in the same object, and in use */
	NET_SEG_GONE = 64,    /* the segment is freed, but its pbuf is not */
	NET_SEG_BEHIND = 128, /* new data left before it in the same us */
};

/* lwIP's segment, as mem/slab.c hands it out: one cache line. */
struct net_seg {
	struct tcp_seg seg; /* first */
	uint32_t sent_us;   /* when it was last sent */
	/* used in the oldest segment in flight: */
	uint32_t base_us;	   /* when the last progress was made */
	uint32_t last_us;	   /* when new data was last sent */
	uint16_t span;		   /* bytes in flight then, / 256 */
	uint8_t state;		   /* enum net_seg_state */
	TAILQ_ENTRY(net_seg) link; /* lost or resent */
};
_Static_assert(sizeof(struct net_seg) <= 64, "one cache line a segment");

static inline struct net_seg *net_seg_of(struct tcp_seg *seg)
{
	return (struct net_seg *)(void *)seg;
}

/*
 * A segment that netstack/ makes is one object of memory: the segment, its
 * first pbuf, room for headers, and copied data (lwip/seg.c).
 */
struct net_whole_seg {
	struct net_seg seg;
	struct pbuf_custom pbuf;
	uint8_t room[LWIP_MEM_ALIGN_SIZE(PBUF_TRANSPORT)];
	uint8_t data[];
};
_Static_assert(offsetof(struct net_whole_seg, room) % MEM_ALIGNMENT == 0,
	       "the TCP header is aligned");

/* TCP's own clock: it leaves out time in which the process did not run. */
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

/*
 * Returns whether tcp_output(), as edits.py changes it, sends the head of
 * `unsent`.
 */
static inline bool net_head_fits(const struct tcp_pcb *pcb)
{
	uint32_t at = net_seg_begin(pcb->unsent) - pcb->lastack;

	return at + pcb->unsent->len <= pcb->cwnd &&
	       at + TCP_TCPLEN(pcb->unsent) <= pcb->snd_wnd;
}

/* Converts a time in us (1,024 ns) to the stack's clock, ns. */
static inline int64_t net_us_to_ns(uint32_t us)
{
	return net_here()->now_ns +
	       (int64_t)(int32_t)(us - net_now_us()) * 1024;
}

static inline bool net_us_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* ---- timestamps, RFC 7323: outgoing segments ---- */

/* The timestamp clock, 2^20 ns per tick: RFC 7323 5.4 asks for 1 ms to 1 s. */
static inline uint32_t net_ts_now(void)
{
	return (uint32_t)(net_here()->now_ns >> 20);
}

/* Bytes that timestamps take in each segment, in addition to the MSS. */
static inline unsigned net_ts_bytes(const struct tcp_pcb *pcb)
{
	return pcb->flags & NET_TF_TS ? NET_TS_BYTES : 0;
}

/* Writes NET_TS_BYTES of options; opts need not be aligned. */
static inline void net_ts_write(void *opts, uint32_t value, uint32_t echo)
{
	uint32_t words[] = {PP_HTONL(0x0101080a), lwip_htonl(value),
			    lwip_htonl(echo)};

	memcpy(opts, words, sizeof(words));
}
_Static_assert(NET_TS_BYTES == 3 * sizeof(uint32_t), "two NOPs, the option");

/* Updates the option of a segment that leaves now, possibly again. */
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

/* Sets whether the next segment is ECN-capable, as new data is. */
static inline void net_ecn_set_ect(struct tcp_pcb *pcb, bool ect)
{
	pcb->tos = (uint8_t)((pcb->tos & ~NET_ECN_FIELD) |
			     (ect ? NET_ECN_ECT0 : 0));
}

/*
 * Returns whether outgoing segments carry no ECN signal other than ECT(0) on
 * new data.
 */
static inline bool net_ecn_is_quiet(const struct tcp_pcb *pcb)
{
	return !(pcb->flags & (NET_TF_ECE | NET_TF_CWR));
}

/* Before lwIP dials: makes the SYN offer ECN, if net_opts.ecn requests it. */
void net_ecn_offer(struct tcp_pcb *pcb);
/* Returns whether a SYN offers ECN and net_opts.ecn accepts it. */
bool net_ecn_offered(const struct tcp_hdr *syn);
/* Enables ECN for a new connection whose SYN-ACK accepted it. */
void net_ecn_accept(struct tcp_pcb *pcb);
/*
 * Called for a connection in SYN_SENT, before lwIP sees a segment for it:
 * disables ECN if the peer's SYN-ACK has not accepted it.
 */
void net_ecn_answered(struct tcp_pcb *pcb, const struct tcp_hdr *hdr);
/*
 * Sets the ECN flags of a segment that leaves, on a connection with ECN. hdr:
 * its header.
 */
void net_ecn_segment_out(struct net_conn *conn, const struct pbuf *p,
			 struct tcp_hdr *hdr);
/* Sets the ECN flags of a segment that is resent. */
void net_ecn_resend(struct tcp_pcb *pcb, struct tcp_hdr *hdr);
/*
 * Called for an acceptable segment, on a connection with ECN. data: it has
 * data; ce: a router has marked it.
 */
void net_ecn_input(struct net_conn *conn, const struct tcp_hdr *hdr, bool data,
		   bool ce);

/* ---- send.c ---- */
/* The port that sends a connection's segments; NULL: there is no route. */
struct net_port *net_conn_port(const struct net_conn *conn);
/*
 * Sends what the windows and pacing allow, at once. If the port has no room or
 * memory is short, the next output phase continues.
 */
void net_conn_output_now(struct net_conn *conn);
/* In the output phase: resends lost segments if there are any, then sends. */
void net_recovery_output(struct net_conn *conn);
/*
 * Used around calls in which lwIP would send by itself: a connection that has
 * recovery state, or is to get it for pacing, sends in the output phase, where
 * it is paced. net_cwnd_shut() returns the window, which net_cwnd_open()
 * restores; the connection may have ended in between.
 */
uint32_t net_cwnd_shut(struct net_conn *conn);
void net_cwnd_open(struct net_conn *conn, uint32_t window);

/*
 * Defined in tcp/predict_out.c: sends ordinary segments from the head of
 * `unsent`, or the pending ACK. Returns false if tcp_output() may have more to
 * do.
 */
bool net_predict_output(struct net_conn *conn);

/* ---- rtt.c ---- */
/* Updates srtt, rttvar and the minimum RTT with a sample. */
void net_rtt_sample(struct net_conn *conn, uint32_t rtt_us);

/* ---- cwnd.c ---- */
/* Sets the initial window of an established connection (RFC 6928). */
void net_cwnd_begin(struct tcp_pcb *pcb);
/*
 * Called after lwIP has processed an ACK, on a connection without recovery
 * state: grows cwnd in slow start. lastack, cwnd: the pcb's before the ACK.
 */
void net_cwnd_slow_start(struct tcp_pcb *pcb, uint32_t lastack, uint32_t cwnd);

/* ---- cc.c ---- */
/* A controller's number by its name; -1: there is none. */
int net_cc_number(const char *name);
const char *net_cc_name(const struct net_conn *conn);
const char *net_cc_title(unsigned number); /* static */
/* Changes the connection's controller. */
void net_cc_choose(struct net_conn *conn, unsigned number);

/* ---- pacing.c ---- */
/*
 * Limits the rate to bytes_per_s, which is stored with a precision of one part
 * in a thousand; 0: no limit.
 */
void net_pacing_set_cap(struct net_conn *conn, uint64_t bytes_per_s);
/* Returns whether data that the windows allow waits for the pacing timer. */
bool net_pacing_holds(const struct net_conn *conn);

/* ---- persist.c ---- */
/*
 * Called when the connection's link has its carrier back. Segments that were
 * lost without a carrier say nothing about the path, so the backoff of the next
 * timeout and the next probe ends: they do not wait up to a minute. The caller
 * then arms the timer. The user timeout goes on.
 */
void net_persist_carrier_returned(struct tcp_pcb *pcb);
/*
 * Called when the peer's window has grown from `was` after a timeout: if it was
 * shut for what is in flight, and no longer is, the backoff ends.
 */
void net_persist_window_opened(struct tcp_pcb *pcb, uint32_t was);
/* Returns when the persist timer is due, ns; CORO_FOREVER: it is not needed. */
int64_t net_persist_due_ns(struct net_conn *conn);
/*
 * Runs the persist timer if it is due. Returns whether the connection must be
 * given up.
 */
bool net_persist_timeout(struct net_conn *conn);

/* ---- recovery.c ---- */
/* Called by net_segment_out() for a segment that leaves: notes its time. */
void net_recovery_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p);
/*
 * Called by net_segment_in() before lwIP processes a segment. hdr: in host byte
 * order; optlen: bytes of its options; p begins with the data.
 */
void net_recovery_input(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
			unsigned optlen, const struct pbuf *p);
/* An ACK up to `una` acknowledges new data, without recovery state. */
void net_recovery_advance(struct net_conn *conn, uint32_t una);
/* Called when lwIP has processed an ACK, before it sends. */
void net_recovery_acked(struct net_conn *conn);
/* Called after lwIP has processed a segment; there is recovery state. */
void net_recovery_after_input(struct net_conn *conn);
/*
 * The peer has resent a segment that ends at sequence number `end`, with the
 * ACK `ack`. If that shows that our last ACK and its data were lost, sends a
 * probe.
 */
void net_recovery_asked_again(struct net_conn *conn, uint32_t end,
			      uint32_t ack);
void net_recovery_free(struct net_conn *conn); /* its state, if any */
/*
 * Returns when the next of its timers is due, ns; CORO_FOREVER: none is armed.
 */
int64_t net_recovery_due_ns(const struct net_conn *conn);
/* Runs the timers that are due. Returns whether to give up the connection. */
bool net_recovery_timeout(struct net_conn *conn);

struct net_recovery_info {
	uint64_t srtt_ns, rttvar_ns; /* 0: no sample yet */
	uint64_t rto_ns;
	uint32_t cwnd_bytes, ssthresh_bytes;
	uint32_t retransmits; /* segments, since the connection began */
	uint64_t pacing_rate; /* bytes a second; 0: it is not paced */
};
void net_recovery_info(const struct net_conn *conn,
		       struct net_recovery_info *out);

/* ---- info.c ---- */
/*
 * Fills the sender's part of *out, which is zeroed. Returns how many data
 * segments are in flight that the peer is not known to have.
 */
unsigned net_recovery_fill_info(const struct net_conn *conn,
				struct net_tcp_info *out);

/* ---- path.c ---- */

/* Allocates this shard's table of path MTUs. Returns 0 or -ENOMEM. */
int net_path_init(void);
void net_path_fini(void);

/* The path MTU of a destination in bytes; 0: unknown. */
unsigned net_path_mtu(const ip_addr_t *ip);

/*
 * Stores the path MTU (bytes) that a router has credibly reported for a
 * destination. Returns the MTU to use now: at least 552 for IPv4, 1,280 for
 * IPv6.
 */
unsigned net_path_note(const ip_addr_t *remote, unsigned mtu);

/*
 * Returns whether packets of TCP and UDP to an IPv4 destination are sent with
 * DF.
 */
bool net_path_df(const ip4_addr_t *dest);

/*
 * Called after each segment of a handshake, whichever side began it: raises the
 * MSS to at least NET_MSS_FLOOR. Once the connection is established, subtracts
 * the bytes of options, so that pcb->mss is bytes of data, and applies the path
 * MTU.
 */
void net_path_settle(struct net_conn *conn);

/*
 * Called before output, for a connection with NET_TF_PATH: restores its MSS if
 * the entry of its path has expired.
 */
void net_path_review(struct net_conn *conn);

/*
 * A router has credibly reported that packets of a connection may have at most
 * mtu bytes: lowers the MSS and resends segments that were too long. The
 * connection is on lwIP's list (net_pcb_show()).
 */
void net_path_too_big(struct net_conn *conn, unsigned mtu);

/* ---- trace.c: windows and states in the connection trace ---- */
/* Records changes of a connection, if it is traced. */
void net_trace_settle(struct net_conn *conn);
/* Records them at the end of an application's call. Returns `result`. */
long net_trace_call_end(const struct net_trace_call *call, long result);
