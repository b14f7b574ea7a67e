/*
 * The state of a shard: its connections, listeners, links, and the one struct
 * that holds them all. Every folder of netstack/ may include this, and what it
 * includes.
 *
 * struct net_conn holds lwIP's tcp_pcb as its first member, so both have the
 * same address. net_conn_put() frees the connection once nobody holds it any
 * more: lwIP, its owner, its handler, waiters, net_poll() or the output queue.
 */
#pragma once

#include <assert.h>
#include <sys/queue.h>

#include <coronet/net.h>

#include "lwip/opt.h"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "lwip/tcp.h"
#include "lwip/priv/tcp_priv.h"

#include "dpdk_glue/glue.h"
#include "dpdk_glue/hint.h"

/* A function that is not inlined, and laid out apart from the hot ones. */
#define cold __attribute__((cold, noinline))

/* Optional state of a connection, allocated when it is first needed. */
struct net_conn_ext {
	int64_t read_deadline, write_deadline; /* ns; CORO_FOREVER: none */
	struct net_poll_node *pollers;	       /* net_poll() calls that wait */
	/* values of net_conn_stats() that lwIP does not keep */
	uint64_t rx_bytes, tx_acked;
	uint32_t rx_segs, tx_segs, retransmits;
	uint32_t challenged_ms; /* the last challenge ACK, if `challenged` */
	uint16_t rtos, dup_acks, out_of_order; /* these stop at 65,535 */
	uint16_t full_mss : 14;	       /* MSS before the path lowered it */
	uint16_t has_counters : 1;     /* it is part of a net_counted */
	uint16_t has_user_timeout : 1; /* of a net_conn_user_timeout */
};
static_assert(sizeof(struct net_conn_ext) <= 64, "a cache line");

/* What a connection waits for while data is queued or in flight. */
enum net_phase {
	NET_PHASE_BUSY,	  /* the path, or the congestion window */
	NET_PHASE_RWND,	  /* the peer's window */
	NET_PHASE_SNDBUF, /* room in the send buffer; all data is in flight */
	NET_N_PHASES
};

/* The net_conn_ext of a connection that has counters, since it began. */
struct net_counted {
	struct net_conn_ext ext;    /* first */
	int64_t sent_ns, recv_ns;   /* when data last left, arrived */
	uint32_t data_out, data_in; /* segments */
	int64_t phase_ns;	    /* when its phase began */
	int64_t idle_ns;	    /* when it became idle; 0: it is not */
	uint64_t busy_ns;	    /* in earlier phases NET_PHASE_BUSY */
	uint8_t phase;		    /* an enum net_phase */
	uint16_t rcv_mss;
	uint32_t began; /* in units of 2^24 ns */
	/* ---- fields that an echo does not touch ---- */
	uint64_t rwnd_ns, sndbuf_ns; /* in earlier phases of these kinds */
	uint64_t bytes_retrans;
	uint32_t data_retrans; /* segments */
	uint32_t dsacks, reordered, out_of_order;
	uint32_t delivered_ce; /* segments */
	uint32_t rcv_space;    /* the most bytes read in a round trip */
};
static_assert(offsetof(struct net_counted, rwnd_ns) <= 128, "two cache lines");
static_assert(sizeof(struct net_counted) <= 176, "with a user timeout, three");

/* The net_conn_ext of a connection with a user timeout: conn/user_timeout.c. */
struct net_conn_user_timeout {
	struct net_counted all; /* first; without counters only ext is used */
	uint32_t timeout_ms;	/* 0: it was removed */
	uint32_t since_ms;	/* when it began to wait for the peer */
	uint32_t since_ack;	/* pcb.lastack then */
	bool since_in_flight;	/* was data in flight then? */
	uint32_t silent_ms;	/* when the peer was heard before keepalives */
	uint32_t probed_ms;	/* when the last keepalive was sent */
};
static_assert(sizeof(struct net_conn_user_timeout) <= 192, "three cache lines");

/* The constant net_conn_ext of connections that have none of their own. */
extern const struct net_conn_ext net_conn_no_ext;

/* What the writer waits for. NET_WANTS_MEMORY stays set even if none waits. */
enum net_wants {
	NET_WANTS_NOTHING,
	NET_WANTS_ROOM,	   /* in the send buffer */
	NET_WANTS_SEGMENT, /* for a segment, or a record (NET_RECORD_ROOM) */
	NET_WANTS_MEMORY,  /* an allocation failed; an ACK may free memory */
};

struct net_conn {
	struct tcp_pcb pcb; /* first: conn and pcb share their address */

	union {
		struct net_conn *link_next;    /* accept queue */
		struct net_recovery *recovery; /* if `has_recovery` */
	};
	union {
		struct net_listener *listener; /* until it is accepted */
		struct net_watch *watch;       /* borrowed, while watched */
		struct net_conn *orphan_next;
	};
	/* While the timer is not armed, expires_ns is CORO_FOREVER, so that
	 * checking it touches one cache line. */
	struct coro_timer timer;

	/* the last hot line, which begins with timer.expires_ns */
	uint16_t rx_off;  /* bytes of the first unread pbuf that were read */
	int16_t err;	  /* negative errno: why it ended; 0: it has not */
	uint8_t waiters;  /* coroutines blocked in a call on it */
	uint8_t shard;	  /* its shard, NET_SHARD_TRACED, NET_SHARD_TLS */
	uint16_t n_views; /* views not yet released: conn/view.c */
	union {
		struct {
			bool owned : 1;	    /* the handle is held */
			bool cancelled : 1; /* net_cancel() */
			bool lingering : 1; /* net_close_wait() waits */
			bool pcb_live : 1;  /* lwIP holds the pcb */
			bool wr_shut : 1;   /* FIN queued */
			bool rd_shut : 1;   /* received bytes are discarded */
			bool eof : 1;	    /* the peer sent FIN */
			bool watched : 1;   /* by watch->fn, not a coroutine */
		};
		uint8_t gate; /* the same bits: every call tests them first */
	};
	bool orphaned : 1;	 /* in the list of orphans */
	uint8_t counted_as : 2;	 /* enum net_counted_as */
	bool hashed : 1;	 /* in the table of tcp/demux.c */
	bool in_output : 1;	 /* in the stack's output queue */
	bool pending : 1;	 /* counted in its listener's backlog */
	bool connecting : 1;	 /* net_dial() waits */
	bool served : 1;	 /* its handler has not returned */
	uint8_t wants : 2;	 /* enum net_wants */
	bool challenged : 1;	 /* challenged_ms is valid (RFC 5961) */
	bool in_time_wait : 1;	 /* it has reached that state */
	bool ticking : 1;	 /* lwIP's tick is due at pcb.tick_at */
	bool has_recovery : 1;	 /* it has recovery state: recovery/ */
	bool probed : 1;	 /* a probe for a lost tail is out */
	bool attached : 1;	 /* its owner gets lwIP's events */
	uint8_t probe_shift : 3; /* doublings of the next probe's wait */
	bool caught_up : 1;	 /* little was unread once after pcb.rcv_mark */
	bool announced : 1;   /* its ID was shown, or it has a name: names.c */
	uint8_t cc : 2;	      /* its controller: recovery/cc.c */
	bool paced : 1;	      /* pcb.rate_cap is set */
	int32_t unacked_last; /* where the last of `unacked` is: lwip/ends.c */
	union {
		struct pbuf *rx_tail; /* last unread; its next is the first */
		struct net_conn *orphan_prev; /* nothing is received then */
	};
	struct coro *reader, *writer;
	/* srtt times 8 and rttvar times 4, in units of 1,024 ns */
	uint32_t srtt_us; /* 0: no sample yet */
	uint32_t rttvar_us;
	const struct net_conn_ext *ext; /* never NULL */
};
/*
 * Bits of gate that a call tests, and their value if it may go on; and the same
 * for a call that writes.
 */
#define NET_GATE_CALL	    0x07
#define NET_GATE_CALL_OPEN  0x01 /* owned alone */
#define NET_GATE_WRITE	    0x1f
#define NET_GATE_WRITE_OPEN 0x09 /* and pcb_live */

/* A shard may have a million: state that few of them need lies elsewhere. */
#define NET_CONN_LINES 5u
static_assert(sizeof(struct net_conn) == NET_CONN_LINES * 64, "each counts");

/*
 * A bit of net_conn.shard: the connection has a ring of the connection trace
 * (conn/trace.h). Every call checks that field first, and so reads the bit.
 */
#define NET_SHARD_TRACED 0x80u
/* Another one: it has TLS, and its ext is a net_conn_tls (conn/tls.h). */
#define NET_SHARD_TLS	 0x40u
#define NET_SHARD_NUMBER 0x3fu /* the shard */
static_assert(NET_MAX_SHARDS <= NET_SHARD_NUMBER + 1,
	      "the bits are no shard's");

/*
 * An echo touches all cache lines of a connection but the fourth. A field that
 * is added or moved must not push another one over a line's end.
 */
#define NET_CONN_COLD_LINE 3u
#define NET_CONN_AT(field, offset)                                             \
	static_assert(offsetof(struct net_conn, field) == (offset), "its "     \
								    "line")
NET_CONN_AT(pcb.remote_port, 54); /* demux.c compares both ports at once */
NET_CONN_AT(pcb.hash_next, 56);
NET_CONN_AT(pcb.nrtx, 65);
NET_CONN_AT(pcb.flags, 66);
NET_CONN_AT(pcb.cwnd, 124);
NET_CONN_AT(pcb.ssthresh, 128);
NET_CONN_AT(pcb.ts_offset, 188);
NET_CONN_AT(pcb.next, 192);
NET_CONN_AT(timer.entry, 248);
NET_CONN_AT(timer.expires_ns, 256);
NET_CONN_AT(ext, 312);

struct net_listener {
	struct net_addr addr;
	ip_addr_t ip; /* the address of addr, for the hash */
	struct net_listener *next, **pprev;
	struct net_listener *hash_next; /* while not stopped */
	unsigned backlog, pending;
	unsigned queued;	      /* pending and established */
	struct net_conn *head, *tail; /* established, not accepted */
	struct coro *acceptor;
	struct net_poll_node *pollers;
	net_handler handler;
	void *handler_arg;
	char handler_name[120];
	bool named;		  /* net_listener_set_name() */
	struct net_limits limits; /* as given; 0: the default */
	int64_t cookie_due_ns;	  /* next cookie: tcp/syn_limit.c */
	int64_t shed_until_ns;	  /* until then SYNs are dropped unread */
	uint8_t cc;		  /* its connections' controller */
	bool stopped;		  /* takes no more connections */
	bool draining;		  /* takes only handshakes that have begun */
	bool closed;		  /* by net_listener_close() */
	unsigned refs;	     /* coroutines about to use it, beside `pending` */
	struct net_tls *tls; /* borrowed; NULL: plaintext */
};

/* A queue of connections that have something to send: conn/output_queue.c. */
struct net_output {
	struct net_conn **ring; /* NULL: none was needed yet */
	uint32_t mask, head, tail;
};

/* An address of the stack: link/addrs.c. */
struct net_ifaddr {
	ip_addr_t ip; /* IPv6: with its zone */
	uint8_t prefix_len;
	bool active;	     /* the stack uses it */
	bool duplicate;	     /* not active: another host has it */
	bool deprecated;     /* RFC 4862 5.5.4: no source if there is another */
	uint8_t to_announce; /* announcements; duplicate: shards to notify */
	struct netif *netif; /* IPv4, active: its own; else the link's first */
	int64_t due_ns;	     /* the next announcement */
	int64_t probed_ns;   /* until then a conflict withdraws it */
	int64_t defended_ns; /* before that, a conflict is not answered */
	int64_t removed_ns;  /* when it became inactive, less paused_ns */
};
/* The user's addresses, and a link-local one for each link. */
#define NET_IFADDRS (NET_MAX_ADDRS + NET_MAX_LINKS)

/*
 * A network beyond a gateway: link/route.c. The entry is in use while its link
 * (without one: any link) has an address whose network contains the gateway.
 */
struct net_route_entry {
	ip_addr_t to, via;
	ip_addr_t source;      /* if has_source */
	uint8_t prefix_len;    /* of `to` */
	bool has_source;       /* an address of the same link */
	bool on_link;	       /* the gateway may be outside every network of
				  the link; via zero: there is no gateway */
	struct net_port *port; /* NULL: any, and on_link is not set */
};
/* The user's routes, and a default gateway of each IP version. */
#define NET_ROUTES (NET_MAX_ROUTES + 2u)

/* A sender of datagrams that waits for room on a port: conn/room.c. */
struct net_room_wait {
	TAILQ_ENTRY(net_room_wait) link;
	struct net_port *port; /* whose list it is in; NULL: none */
	struct coro *co;       /* parked; NULL: none, or woken already */
	void (*notify)(struct net_room_wait *wait); /* NULL: wake co */
};
TAILQ_HEAD(net_room_list, net_room_wait);

struct net_port {
	struct glue_port *glue;
	unsigned frames_in;	 /* received and not freed */
	unsigned frames_to_hold; /* beyond that, data is copied */
	struct netif *netif0;	 /* its first, which has all of IPv6 */
	bool has_ip6;		 /* the user gave an IPv6 address */
	bool no_carrier;	 /* as shard/carrier.c last saw */
	uint64_t empty_pools;	 /* shard/frames.c: glue_port_empty_pools() */
	struct net_exception *exception; /* link/exception.c; or NULL */
	struct net_output waiting;    /* connections, until it accepts frames */
	struct net_room_list senders; /* of datagrams, until then */
};

/* Packets to the stack's own addresses, to be received: link/loop.c. */
#define NET_LOOP_PKTS 1024u
struct net_loop {
	struct pbuf **ring;
	uint32_t head, tail;
	bool receiving; /* the current packet comes from here */
};

/* One for each shard that is open. */
struct net_stack {
	struct net_tables *tables;     /* owned; shard/stack.c */
	const struct net_arena *arena; /* mem/slab.c */
	struct coro_sched *sched;
	struct net_port ports[NET_MAX_LINKS];
	unsigned n_ports;
	struct netif *netifs;
	unsigned n_netifs;
	struct net_ifaddr *addrs; /* including removed ones */
	unsigned n_addrs;
	bool addrs_removed; /* an address was removed since the stack opened */
	bool checks_dest6;  /* look up the destination of IPv6 frames: one of
			       the addresses is removed or loopback */
	bool addr_returned; /* its connections may send again */
	bool dad_off;	    /* address conflicts are not detected */
	struct net_route_entry *routes;
	unsigned n_routes, n_leased_routes; /* the last are of leases */
	/* by index in the options before the last change: the operator had
	   removed the route, and the change ended it */
	bool routes_removed[NET_ROUTES];
	bool adaptive;
	bool woken; /* the kernel ends a sleep when frames arrive */
	unsigned shard, n_shards;
	bool draining;
	int64_t now_ns;
	int64_t next_tick_ns; /* when tcp_ticks moves on */
	int64_t clock_ns;     /* now_ns of the previous round */
	int64_t paused_ns;    /* all time left out by the clock of TCP */
	uint32_t now_us;      /* of this round, in units of 1,024 ns; wraps */
	int64_t next_100ms_ns, next_1s_ns, next_stats_ns, stats_ns;
	unsigned empty_rounds;
	unsigned mtu;

	struct net_conn **buckets;
	uint32_t bucket_mask;
	uint64_t hash_key[2];
	unsigned n_conns, max_conns;
	unsigned n_counted, max_counted; /* connections with statistics */
	unsigned ooseq_held;		 /* pbufs of data out of order */
	unsigned ooseq_frames;		 /* of these pbufs: frames */
	unsigned half_open; /* not in n_conns; they share max_conns */
	unsigned ooseq_max; /* limit of ooseq_frames; if memory is short, also
			       of ooseq_held */
	/* what the budget allows each connection now, in bytes */
	uint32_t snd_max, rcv_limit;
	uint32_t rmem_max; /* limit of a receive window: conn/rcv_wnd.c */
	uint32_t wmem_max; /* limit of a send buffer: recovery/cwnd.c */
	uint8_t rcv_scale;
	uint64_t half_open_bytes; /* limit for half-open connections */
	bool memory_full;	  /* new connections are refused */
	int64_t next_budget_ns;
	struct net_output output;
	struct net_listener *listeners;
	struct net_listener **listeners_hashed; /* conn/listeners.c; owned */
	struct net_poller *pollers;    /* every net_poll() that waits */
	const struct net_names *names; /* conn/names.c; NULL: none yet */
	struct net_traces *traces;     /* conn/trace.c; NULL: no tracing */

	uint8_t ending; /* enum net_end: why lwIP will free a pcb */
	/* about the segment that is being received */
	uint32_t rx_hash; /* net_demux_hash() of it */
	uint8_t rx_flags;
	bool rx_has_mss;   /* in a handshake: it has the MSS option */
	bool rx_ce;	   /* a router has marked it (ECN) */
	bool isn_fixed;	   /* net_isn() returns isn */
	bool rx_keep_cwnd; /* restore rx_cwnd after lwIP's change of cwnd */
	uint32_t isn, rx_cwnd;

	int64_t shed_until_ns; /* the latest of any listener */
	struct net_stats stats;
	struct net_neighbour *neighbours; /* NET_NEIGHBOURS of them */
	bool paths_used; /* the table of recovery/path.c has had an entry */
	bool predicts;	 /* tcp/predict.c */
	bool pmtud_off;
	bool timestamps_off;
	uint8_t ecn;	   /* enum net_ecn */
	bool shares_ports; /* the kernel has the same addresses */
	bool any_broken;   /* an assertion of lwIP has failed */
	/*
	 * Returns whether a segment that belongs to no connection goes to the
	 * kernel; p is borrowed. NULL: there is no exception path.
	 */
	bool (*kernel_takes)(struct pbuf *p);
	struct net_loop loop;
	uint8_t cc;			/* of new connections: recovery/cc.c */
	struct net_conn *in_lwip;	/* lwIP works on it; or NULL */
	struct net_conn_tls *tls_conns; /* conn/tls.h: sessions of TLS */
};

/* The shard that this thread runs; all zero while it runs none. */
extern _Thread_local struct net_stack *net_shard_here
	__attribute__((visibility("hidden")));

static inline struct net_stack *net_here(void)
{
	return net_shard_here;
}

static inline struct net_conn *net_conn_of(struct tcp_pcb *pcb)
{
	return (struct net_conn *)(void *)pcb;
}

/* Counts a time: bucket 0 is below 1,024 ns, and the upper bounds double. */
static inline void net_hist_add(struct net_hist *hist, uint64_t ns)
{
	unsigned at = 64 - (unsigned)__builtin_clzll(ns >> 10 | 1);

	at = ns >> 10 ? at : 0;
	hist->buckets[LWIP_MIN(at, NET_HIST_BUCKETS - 1)]++;
	hist->sum_ns += ns;
}

static inline uint32_t net_now_ms(void)
{
	return (uint32_t)(net_here()->now_ns / 1000000);
}

/* One shard's part of a limit that n shards share; the parts add up to it. */
static inline unsigned net_part_of(unsigned all, unsigned n, unsigned shard)
{
	return all / n + (shard < all % n);
}

#define NET_TICK_NS (TCP_SLOW_INTERVAL * INT64_C(1000000))

/*
 * A rate limit: returns whether one more event may happen now. It allows one
 * per each_ns, and after a pause as many as fit into burst_ns. *due_ns, 0 at
 * first, is the state of this limit.
 */
static inline bool net_rate_take(int64_t *due_ns, int64_t now_ns,
				 int64_t each_ns, int64_t burst_ns)
{
	if (*due_ns < now_ns - burst_ns)
		*due_ns = now_ns - burst_ns;
	if (*due_ns > now_ns)
		return false;
	*due_ns += each_ns;
	return true;
}
