/*
 * The sock trace: what happens to one connection, segment by segment and call
 * by call, in a ring of its last events.
 *
 * Few connections have a ring: the first --trace-conns that are open at a time,
 * or as many as were asked for since, and those that somebody watches. Such a
 * connection has NET_TF_TRACED in its pcb's flags, which header prediction
 * takes for unusual, so that all of its segments go the long way, where the
 * hooks are; and NET_SHARD_TRACED in `shard`, so that the first thing every
 * public call looks at sends it to a cold path. Both are looked at anyway: a
 * connection without a ring pays nothing.
 *
 * Rings belong to a shard and to its thread. A ring that somebody watches
 * outlives its connection until all of it is told or another connection needs
 * the place.
 */
#pragma once

#include "netstack/lwip/hooks.h"
#include "netstack/state.h"

struct tcp_hdr;

#define NET_TRACE_EVENTS  64u /* of a ring; older ones are overwritten */
#define NET_TRACE_WATCHES 4u  /* at a time, of a program */
#define NET_TRACE_EXTRA	  16u /* rings of a shard beside --trace-conns' */
#define NET_TRACE_MAX	  100000u

enum net_trace_kind {
	NET_TRACE_BEGIN,   /* what: accepted, dialed, or found in the midst */
	NET_TRACE_IN,	   /* a segment. what: out of order, refused */
	NET_TRACE_OUT,	   /* what: why it was sent again */
	NET_TRACE_CWND,	   /* the window or ssthresh. what: why */
	NET_TRACE_SND_WND, /* the peer's window shuts or opens */
	NET_TRACE_RCV_WND, /* ours shuts, opens, or may grow further */
	NET_TRACE_TIMER,   /* what: which has fired */
	NET_TRACE_STATE,   /* TCP's. what: none */
	NET_TRACE_CALL,	   /* the application calls. what: which function */
	NET_TRACE_DONE,	   /* and it returns */
	NET_TRACE_END,	   /* what: why; the error in n */
};

struct net_trace_event {
	int64_t ns;	  /* of the stack's clock: that of the round */
	const char *what; /* static; NULL: nothing to say */
	uint8_t kind;	  /* enum net_trace_kind */
	uint8_t flags;	  /* of a segment: TCP's */
	uint8_t sacks;	  /* SACK blocks in it */
	union {
		/* Of segments: cwnd as it was then. Numbers as on the wire. */
		struct {
			uint32_t seq, ack, wnd, len, cwnd;
		} seg;
		/* Of windows and states: bytes, or enum tcp_state; of timers,
		   in now: how often in a row. */
		struct {
			uint32_t was, now, ssthresh;
		} value;
		/* Of calls: bytes asked for, then the result. */
		struct {
			int64_t n, waited_ns;
			char coro[24];
		} call;
	};
};
static_assert(sizeof(struct net_trace_event) == 64, "a cache line");

/* What was told last: a difference is an event. */
struct net_trace_seen {
	uint32_t cwnd, ssthresh, rcv_max;
	uint8_t state;
	bool snd_shut, rcv_shut;
};

struct net_trace {
	struct net_trace *next, **pprev; /* in the order they began */
	struct net_trace *hash_next;
	struct net_conn *conn; /* NULL: it has ended */
	const struct net_conn *was;
	uint64_t serial; /* of rings of this shard: no two have the same */
	uint64_t n;	 /* events so far */
	uint64_t told[NET_TRACE_WATCHES]; /* of those, to each watch */
	uint8_t watches;		  /* which want it, a bit each */
	bool extra;			  /* beside --trace-conns */
	bool has_iss, has_irs;
	uint32_t iss, irs; /* relative numbers count from here */
	struct net_addr local, peer;
	uint32_t hash, turn, ref; /* the connection's ID */
	uint32_t cwnd;		  /* as it is, told or not */
	struct net_trace_seen seen;
	const char *cwnd_why, *resent_why; /* of what comes next */
	uint64_t last_in;		   /* number of that event */
	struct net_trace_event events[NET_TRACE_EVENTS];
};
static_assert(sizeof(struct net_trace) <= 4608, "a class of slabs");

/* Whether a connection is one that the watch wants; filter: as it was given. */
typedef bool (*net_trace_wants)(const void *filter,
				const struct net_conn *conn);
#define NET_TRACE_FILTER_MAX 192u

struct net_trace_watch {
	net_trace_wants wants; /* NULL: nobody watches */
	uint64_t missed;       /* events of rings that had to give way */
	uint64_t without;      /* connections that got no ring */
	struct net_trace *at;  /* where telling goes on; NULL: the first */
	_Alignas(16) char filter[NET_TRACE_FILTER_MAX];
};

/* Of a shard. */
struct net_traces {
	unsigned most;		 /* --trace-conns: this shard's part */
	unsigned room;		 /* the largest it has been */
	unsigned n_own, n_extra; /* rings there are */
	unsigned n_ended;	 /* of both: their connection has */
	uint64_t serial;
	struct net_trace *first, **last;
	struct net_trace **buckets;
	uint32_t mask;
	struct net_trace_watch watches[NET_TRACE_WATCHES];
};

/* ---- trace.c: rings ---- */
/*
 * For the first n connections at a time that begin from now on; 0: none. Rings
 * there are beyond that go with their connections. Returns 0, or -ENOMEM:
 * nothing has changed.
 */
int net_traces_keep(unsigned n);
void net_traces_close(void); /* every ring is freed */
/* A connection is about to begin, and may get a ring. */
void net_trace_born(struct net_conn *conn, uint32_t hash, const char *how);
/* Nobody is left that holds it: its ring goes, or waits to be told. */
void net_trace_gone(struct net_conn *conn);
/* NULL: it has none. */
struct net_trace *net_trace_of(const struct net_conn *conn);

/* From now on watch w, of NET_TRACE_WATCHES, is told. 0, or -ENOMEM. */
int net_trace_watch(unsigned w, net_trace_wants wants, const void *filter,
		    size_t filter_len);
void net_trace_unwatch(unsigned w);
/* Of a connection that was there before: it gets a ring if w wants it. */
void net_trace_look(unsigned w, struct net_conn *conn, uint32_t hash);
/* All of an ended ring that any watch wants is told: frees it. */
void net_trace_release(struct net_trace *trace);

/* ---- trace_event.c: what is written into them ---- */
static inline bool net_traced(const struct net_conn *conn)
{
	return __builtin_expect(conn->pcb.flags & NET_TF_TRACED, 0);
}

/* All below: of a connection that is traced; texts are static. */

/* The next event, with its time and kind; NULL: it has no ring. */
struct net_trace_event *net_trace_add(struct net_conn *conn,
				      enum net_trace_kind kind,
				      const char *what);
/* A TCP segment comes in, with its header; in network byte order. */
void net_trace_in(struct net_conn *conn, const struct pbuf *p);
/* What became of the last one. */
void net_trace_in_was(struct net_conn *conn, const char *what);
/* One leaves: seq and so on of the header in network byte order. */
void net_trace_out(struct net_conn *conn, const struct tcp_hdr *hdr,
		   unsigned len, const char *resent);
void net_trace_timer(struct net_conn *conn, const char *which, unsigned times);
/* Why the next change of the congestion window will be. */
void net_trace_cwnd_why(struct net_conn *conn, const char *why);
/* Why what is sent again next is, if not for what recovery finds. */
void net_trace_resent_why(struct net_conn *conn, const char *why);
const char *net_trace_resent(struct net_conn *conn);
/* lwIP has freed the pcb; net_here()->ending still says why. */
void net_trace_ended(struct net_conn *conn);

/* A call of the application, until it returns; on its stack. */
struct net_trace_call {
	const struct net_conn *conn; /* which may be gone by then */
	uint64_t serial;	     /* 0: there is no ring */
	const char *name;
	int64_t began_ns;
};
void net_trace_call(struct net_conn *conn, const char *name, size_t bytes,
		    struct net_trace_call *call);
/* net_poll() begins to wait for it and others, or ends. */
void net_trace_poll(struct net_conn *conn, enum net_trace_kind kind,
		    int result);
/* The ring of a call that has one still; NULL. */
struct net_trace *net_trace_of_call(const struct net_trace_call *call);
/* Returns the result. */
long net_trace_return(const struct net_trace_call *call, long result);
