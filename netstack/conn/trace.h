/*
 * The connection trace: the last events of a connection, segment by segment and
 * call by call, in a ring.
 *
 * Few connections have a ring: up to --trace-conns of them at a time
 * (coronet-ctl can change that number), and those that a client watches. Such a
 * connection has NET_TF_TRACED in its pcb's flags, which header prediction does
 * not expect, so that all of its segments take the slow path, where the hooks
 * are. It also has NET_SHARD_TRACED in `shard`, the first field that every
 * public call checks, which leads to a cold path. Both fields are checked
 * anyway, so a connection without a ring costs nothing.
 *
 * Rings belong to a shard and to its thread. A ring that is watched outlives
 * its connection until all of it was reported or another connection needs the
 * ring.
 */
#pragma once

#include "netstack/lwip/hooks.h"
#include "netstack/state.h"

struct tcp_hdr;

#define NET_TRACE_EVENTS  64u /* of a ring; older ones are overwritten */
#define NET_TRACE_WATCHES 4u  /* at a time, per program */
#define NET_TRACE_EXTRA	  16u /* a shard's rings beyond --trace-conns */
#define NET_TRACE_MAX	  100000u

enum net_trace_kind {
	NET_TRACE_BEGIN,   /* what: accepted, dialed, or older than the ring */
	NET_TRACE_IN,	   /* a segment arrived. what: out of order, refused */
	NET_TRACE_OUT,	   /* a segment left. what: why it was resent */
	NET_TRACE_CWND,	   /* cwnd or ssthresh changed. what: why */
	NET_TRACE_SND_WND, /* the peer's window closes or opens */
	NET_TRACE_RCV_WND, /* our window closes, opens, or its limit grows */
	NET_TRACE_TIMER,   /* a timer fired. what: its name */
	NET_TRACE_STATE,   /* TCP's state changed. what: NULL */
	NET_TRACE_CALL,	   /* a call begins. what: the function */
	NET_TRACE_DONE,	   /* the call returns */
	NET_TRACE_END,	   /* the connection ends. what: why; n: the error */
};

struct net_trace_event {
	int64_t ns;	  /* the stack's clock at that round */
	const char *what; /* static text or NULL */
	uint8_t kind;	  /* enum net_trace_kind */
	uint8_t flags;	  /* of a segment: TCP's */
	uint8_t sacks;	  /* SACK blocks in it */
	union {
		/* Segments, and cwnd at that time. Numbers as on the wire. */
		struct {
			uint32_t seq, ack, wnd, len, cwnd;
		} seg;
		/* Windows and states: bytes, or enum tcp_state. Timers: `now`
		 * counts consecutive timeouts. */
		struct {
			uint32_t was, now, ssthresh;
		} value;
		/* Calls: the bytes requested, then the result. */
		struct {
			int64_t n, waited_ns;
			char coro[24];
		} call;
	};
};
static_assert(sizeof(struct net_trace_event) == 64, "a cache line");

/* The values recorded last; a difference becomes an event. */
struct net_trace_seen {
	uint32_t cwnd, ssthresh, rcv_max;
	uint8_t state;
	bool snd_shut, rcv_shut;
};

struct net_trace {
	struct net_trace *next, **pprev; /* in the order they began */
	struct net_trace *hash_next;
	struct net_conn *conn;	    /* NULL: it has ended */
	const struct net_conn *was; /* its address, also after the end */
	uint64_t serial;	    /* unique among the rings of this shard */
	uint64_t n;		    /* events so far */
	uint64_t
		reported[NET_TRACE_WATCHES]; /* events reported to each watch */
	uint8_t watches;		     /* watches that want it, by bits */
	bool extra;			     /* not one of --trace-conns */
	bool has_iss, has_irs;
	uint32_t iss, irs; /* relative numbers count from here */
	struct net_addr local, peer;
	uint32_t hash, turn, ref; /* the connection's ID */
	uint32_t cwnd;		  /* the present value */
	struct net_trace_seen seen;
	const char *cwnd_why, *resent_why; /* of the next event */
	uint64_t last_in;		   /* number of the last NET_TRACE_IN */
	struct net_trace_event events[NET_TRACE_EVENTS];
};
static_assert(sizeof(struct net_trace) <= 4608, "a class of slabs");

/* Returns whether a watch wants a connection; filter: that of the watch. */
typedef bool (*net_trace_wants)(const void *filter,
				const struct net_conn *conn);
#define NET_TRACE_FILTER_MAX 192u

struct net_trace_watch {
	net_trace_wants wants; /* NULL: the watch is unused */
	uint64_t missed;       /* events of rings that were reused */
	uint64_t without;      /* connections that got no ring */
	struct net_trace *at;  /* next ring to report; NULL: the first */
	_Alignas(16) char filter[NET_TRACE_FILTER_MAX];
};

/* The trace state of a shard. */
struct net_traces {
	unsigned most;		 /* --trace-conns: this shard's part */
	unsigned room;		 /* the largest value of `most` so far */
	unsigned n_own, n_extra; /* rings within --trace-conns, and others */
	unsigned n_ended;	 /* of all rings: of ended connections */
	uint64_t serial;
	struct net_trace *first, **last;
	struct net_trace **buckets;
	uint32_t mask;
	struct net_trace_watch watches[NET_TRACE_WATCHES];
};

/* ---- trace.c: rings ---- */
/*
 * Gives rings to connections that begin from now on, to at most n at a time; 0:
 * none. Rings beyond that number are freed with their connections. Returns 0,
 * or -ENOMEM: nothing has changed.
 */
int net_traces_keep(unsigned n);
void net_traces_close(void); /* frees every ring */
/* Called when a connection begins: gives it a ring if it is to have one. */
void net_trace_born(struct net_conn *conn, uint32_t hash, const char *how);
/*
 * Called when nothing refers to the connection any more: frees its ring, or
 * keeps the ring until it was reported.
 */
void net_trace_gone(struct net_conn *conn);
/* The ring of a connection; NULL: none. */
struct net_trace *net_trace_of(const struct net_conn *conn);

/* Starts watch w, below NET_TRACE_WATCHES. Returns 0 or -ENOMEM. */
int net_trace_watch(unsigned w, net_trace_wants wants, const void *filter,
		    size_t filter_len);
void net_trace_unwatch(unsigned w);
/* Gives a ring to a connection that exists already, if watch w wants it. */
void net_trace_look(unsigned w, struct net_conn *conn, uint32_t hash);
/*
 * Frees the ring of an ended connection, once it was reported to every watch
 * that wants it.
 */
void net_trace_release(struct net_trace *trace);

/* ---- trace_event.c: events ---- */
static inline bool net_traced(const struct net_conn *conn)
{
	return unlikely(conn->pcb.flags & NET_TF_TRACED);
}

/* All calls below are for a connection that is traced; texts are static. */

/* Adds an event with its time and kind; NULL: the connection has no ring. */
struct net_trace_event *net_trace_add(struct net_conn *conn,
				      enum net_trace_kind kind,
				      const char *what);
/* Records a segment that arrives; its header is in network byte order. */
void net_trace_in(struct net_conn *conn, const struct pbuf *p);
/* Adds to the last NET_TRACE_IN how the segment was treated. */
void net_trace_in_was(struct net_conn *conn, const char *what);
/* Records a segment that leaves; its header is in network byte order. */
void net_trace_out(struct net_conn *conn, const struct tcp_hdr *hdr,
		   unsigned len, const char *resent);
void net_trace_timer(struct net_conn *conn, const char *which, unsigned times);
/* Sets the reason of the next change of the congestion window. */
void net_trace_cwnd_why(struct net_conn *conn, const char *why);
/* Sets the reason of the next retransmission, if recovery does not find one. */
void net_trace_resent_why(struct net_conn *conn, const char *why);
const char *net_trace_resent(struct net_conn *conn);
/* Called when lwIP has freed the pcb, while net_here()->ending is still set. */
void net_trace_ended(struct net_conn *conn);

/* A call of the application, until it returns; on the stack of the call. */
struct net_trace_call {
	const struct net_conn *conn; /* may be freed before the call returns */
	uint64_t serial;	     /* 0: there is no ring */
	const char *name;
	int64_t began_ns;
};
void net_trace_call(struct net_conn *conn, const char *name, size_t bytes,
		    struct net_trace_call *call);
/* Records that net_poll() begins to wait for a connection, or returns. */
void net_trace_poll(struct net_conn *conn, enum net_trace_kind kind,
		    int result);
/* The ring of a call's connection, if it still exists; NULL otherwise. */
struct net_trace *net_trace_of_call(const struct net_trace_call *call);
/* Records the end of the call. Returns `result`. */
long net_trace_return(const struct net_trace_call *call, long result);
