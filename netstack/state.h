/*
 * The state of a shard: its connections, listeners, links, and the one struct
 * that holds them all. Every folder of netstack/ may include this, and what it
 * includes.
 *
 * struct net_conn holds lwIP's tcp_pcb as its first member, so the two
 * addresses are one. It lives while its pcb lives in lwIP, somebody owns the
 * handle, a handler runs on it, or a coroutine still waits on it;
 * net_conn_put() frees it after the last.
 */
#pragma once

#include <assert.h>

#include <coronet/net.h>

#include "lwip/opt.h"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "lwip/tcp.h"
#include "lwip/priv/tcp_priv.h"

#include "dpdk_glue/glue.h"

/* Optional state of a connection, allocated when it is first needed. */
struct net_conn_ext {
	int64_t read_deadline, write_deadline;
	struct net_poll_node *pollers; /* that wait for it, too */
	/* what net_conn_stats() tells and lwIP does not know */
	uint64_t rx_bytes, tx_acked;
	uint32_t rx_segs, tx_segs, retransmits;
	uint32_t challenged_ms;
	uint16_t rtos, dup_acks, out_of_order; /* these stop at 65,535 */
	uint16_t full_mss : 14;		       /* before its path took less */
	uint16_t counted : 1;		       /* from its beginning */
	uint16_t has_user_timeout : 1; /* it is a net_conn_user_timeout */
};
static_assert(sizeof(struct net_conn_ext) <= 64, "a cache line");

/* What a connection with something queued or under way waits for. */
enum net_phase {
	NET_PHASE_BUSY,	  /* the path, or the congestion window */
	NET_PHASE_RWND,	  /* the peer's window */
	NET_PHASE_SNDBUF, /* room in the send buffer; all of it is under way */
	NET_N_PHASES
};

/* That of a connection that counts: from its beginning to its end. */
struct net_counted {
	struct net_conn_ext ext;    /* first */
	int64_t sent_ns, recv_ns;   /* the last data */
	uint32_t data_out, data_in; /* segments */
	int64_t phase_ns;	    /* when its phase began */
	int64_t idle_ns;	    /* when it ended: it is idle; or 0 */
	uint64_t busy_ns;	    /* in NET_PHASE_BUSY before */
	uint8_t phase;		    /* an enum net_phase */
	uint16_t rcv_mss;
	uint32_t began; /* in units of 2^24 ns */
	/* ---- what an echo does not touch ---- */
	uint64_t rwnd_ns, sndbuf_ns; /* in those phases before */
	uint64_t bytes_retrans;
	uint32_t data_retrans; /* segments */
	uint32_t dsacks, reordered, out_of_order;
	uint32_t delivered_ce; /* segments */
	uint32_t rcv_space;    /* the most that was read in a round trip */
};
static_assert(offsetof(struct net_counted, rwnd_ns) <= 128, "two cache lines");
static_assert(sizeof(struct net_counted) <= 176, "with a user timeout, three");

/* That of a connection with a user timeout: conn/user_timeout.c. */
struct net_conn_user_timeout {
	struct net_counted all; /* first; the rest of it, if it counts */
	uint32_t timeout_ms;	/* 0: none any more */
	uint32_t since_ms;	/* when what waits began to, if it does */
};
static_assert(sizeof(struct net_conn_user_timeout) <= 192, "three cache lines");

/* That of a connection that has needed none. */
extern const struct net_conn_ext net_conn_no_ext;

/* What its writer waits for; memory, even after a call that may not block. */
enum net_wants {
	NET_WANTS_NOTHING,
	NET_WANTS_ROOM,	   /* in the send buffer */
	NET_WANTS_SEGMENT, /* there, for a whole segment */
	NET_WANTS_MEMORY,  /* it was refused; an ACK may free some */
};

struct net_conn {
	struct tcp_pcb pcb; /* first: conn and pcb share their address */

	union {
		struct net_conn *link_next;    /* accept queue */
		struct net_recovery *recovery; /* while repairing */
	};
	union {
		struct net_listener *listener; /* until it is accepted */
		struct net_watch *watch;       /* borrowed, while watched */
		struct net_conn *orphan_next;
	};
	/* expires_ns is CORO_FOREVER while it is not armed: a line less. */
	struct coro_timer timer;

	/* the hot line behind the pcb's, from timer.expires_ns on */
	uint16_t rx_off;  /* bytes of the first unread already copied out */
	int16_t err;	  /* why it ended: negative errno, 0: it has not */
	uint8_t waiters;  /* blocked in a call on it: reader, writer */
	uint8_t shard;	  /* that it belongs to, and NET_SHARD_TRACED */
	uint16_t n_views; /* in a handler's hands: conn/view.c */
	union {
		struct {
			bool owned : 1;	    /* somebody holds the handle */
			bool cancelled : 1; /* net_cancel() */
			bool lingering : 1; /* net_close_wait() waits */
			bool pcb_live : 1;  /* lwIP holds the pcb */
			bool wr_shut : 1;   /* FIN queued */
			bool rd_shut : 1;   /* received bytes are discarded */
			bool eof : 1;	    /* the peer sent FIN */
			bool watched : 1;   /* watch is told, no coroutine waits
					     */
		};
		uint8_t gate; /* the same: what every call tests first */
	};
	bool orphaned : 1;	/* in the list of orphans */
	uint8_t counted_as : 2; /* enum net_counted_as */
	bool hashed : 1;
	bool in_output : 1;	 /* in the stack's output queue */
	bool pending : 1;	 /* counted in its listener's backlog */
	bool connecting : 1;	 /* net_dial() waits */
	bool served : 1;	 /* its handler has not returned */
	uint8_t wants : 2;	 /* enum net_wants */
	bool challenged : 1;	 /* at challenged_ms, RFC 5961 */
	bool over : 1;		 /* in TIME_WAIT */
	bool ticking : 1;	 /* lwIP's tick is due at last_timer */
	bool repairing : 1;	 /* it has a block: recovery/ */
	bool probed : 1;	 /* a probe for a lost tail is out */
	bool attached : 1;	 /* lwIP's events are for its owner */
	uint8_t probe_shift : 3; /* the next one waits so longer */
	bool caught_up : 1;	 /* its reader has, since pcb.rcv_mark */
	bool told : 1;	/* it has a name (conn/names.c), or its ID was told */
	uint8_t cc : 2; /* its controller: recovery/cc.c */
	bool paced : 1; /* pcb.rate_cap is set */
	int32_t unacked_last; /* lwip/ends.c; so is pcb.unsent_near */
	union {
		struct pbuf *rx_tail; /* last unread; its next is the first */
		struct net_conn *orphan_prev; /* nothing is received then */
	};
	struct coro *reader, *writer;
	/* 8 and 4 times what it is, 1,024 ns */
	uint32_t srtt_us; /* 0: no sample yet */
	uint32_t rttvar_us;
	const struct net_conn_ext *ext; /* never NULL */
};
/* Of gate: a call may go on, and may write, too. */
#define NET_GATE_CALL	    0x07
#define NET_GATE_CALL_OPEN  0x01 /* owned alone */
#define NET_GATE_WRITE	    0x1f
#define NET_GATE_WRITE_OPEN 0x09 /* and pcb_live */

/* A million of them: what one does not always need goes elsewhere. */
#define NET_CONN_LINES 5u
static_assert(sizeof(struct net_conn) == NET_CONN_LINES * 64, "each counts");

/*
 * In net_conn.shard, so that what every call checks first finds it: the
 * connection has a ring of the sock trace (conn/trace.h).
 */
#define NET_SHARD_TRACED 0x80u
static_assert(NET_MAX_SHARDS <= NET_SHARD_TRACED, "the bit is no shard's");

/*
 * Of these the fourth is cold: an echo touches the others. A field that is
 * added or moved must not push another one over a line's end.
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
	ip_addr_t ip; /* the same, for the hash */
	struct net_listener *next, **pprev;
	struct net_listener *hash_next; /* while not stopped */
	unsigned backlog, pending;
	unsigned queued;	      /* of those pending: established */
	struct net_conn *head, *tail; /* established, not accepted */
	struct coro *acceptor;
	struct net_poll_node *pollers;
	net_handler handler;
	void *handler_arg;
	char handler_name[120];
	bool named;		  /* net_listener_set_name() */
	struct net_limits limits; /* as given: 0 is a default */
	int64_t cookie_due_ns;	  /* tcp/syn_limit.c: when one may be sent */
	int64_t shed_until_ns;	  /* and none before is looked at */
	uint8_t cc;		  /* its connections' controller */
	bool stopped;		  /* takes no more connections */
	bool draining;		  /* but those whose handshake has begun */
	bool closed;		  /* its owner has let go */
	unsigned refs; /* coroutines about to use it, beside `pending` */
};

/* A queue of connections that have something to send: tcp/output.c. */
struct net_output {
	struct net_conn **ring; /* NULL: not needed yet */
	uint32_t mask, head, tail;
};

struct net_port {
	struct glue_port *glue;
	unsigned frames_in;	 /* received and not freed */
	unsigned frames_to_hold; /* of those, before what comes is copied */
	unsigned n_netifs;
	struct netif *netif0; /* IPv6 lives here, and ARP for strangers */
	bool has_ip6;	      /* an address of it was given */
	struct net_exception *exception; /* link/exception.c; or NULL */
	struct net_output waiting;	 /* for the port to take frames again */
};

/*
 * An answer of ARP, kept for a second so that output does not search: with the
 * headers of what a connection of the interface's address sends there.
 */
struct net_neighbour {
	int64_t expires_ns;
	struct netif *netif;
	uint32_t ip;	    /* network byte order; 0: empty */
	uint8_t header[34]; /* Ethernet's and IPv4's */
};
static_assert(sizeof(struct net_neighbour) <= 64, "a cache line");

#define NET_NEIGHBOURS 1024

/* A neighbour that is being asked for, of which there are so many at most. */
struct net_asked {
	uint32_t ip;
	int64_t until_ns;
};
#define NET_ASKED 128u

/* A destination whose neighbour was known, or might be asked for. */
struct net_asked6 {
	ip6_addr_t ip;
	int64_t until_ns;
	/* whose MAC its packets go to; NULL: lwIP has to be asked each time */
	struct nd6_neighbor_cache_entry *entry;
	uint8_t mac[6]; /* the entry's; with another it is somebody else's */
};
#define NET_ASKED6 256u

/* What a destination takes (recovery/path.c). */
struct net_path {
	ip_addr_t ip;
	uint16_t mtu;	 /* bytes of IP packet; 0: the place is empty */
	uint8_t cuts;	 /* how often it was lowered while it was known */
	uint8_t guesses; /* how often it had to be guessed */
	int64_t until_ns;
};
#define NET_PATHS 1024u

/* Ports chosen by the stack. */
#define NET_PORT_FIRST 16384u
#define NET_PORT_COUNT (65536u - NET_PORT_FIRST)
/* Beside a kernel of the same address, whose own begin there (ip(7)). */
#define NET_PORT_KERNEL 32768u

/* Where net_dial() found no port left, and until when it believes that. */
struct net_no_port {
	ip_addr_t local, remote;
	u16_t remote_port;
	int64_t until_ns;
};
#define NET_NO_PORT_SLOTS 16u

/* Clients of one source at one port (conn/clients.c). */
struct net_source_key {
	uint64_t prefix; /* an IPv4 address, or the first half of an IPv6 one */
	uint16_t port;
	uint8_t family; /* 4 or 6; 0: none */
};

/*
 * Ends of connections that somebody was told the ID of, by their hash: which of
 * several of the same addresses and ports an ID means (control/id.c).
 */
#define NET_TURNS 1024u

/* Packets for our own addresses, on their way back: link/loop.c. */
#define NET_LOOP_PKTS 1024u
struct net_loop {
	struct pbuf **ring;
	uint32_t head, tail;
	bool receiving; /* the packet at hand comes from here */
};

/* The tables of a shard. */
struct net_tables {
	struct netif netifs[NET_MAX_ADDRS + NET_MAX_LINKS];
	struct net_neighbour neighbours[NET_NEIGHBOURS];
	struct net_asked asked[NET_ASKED];
	struct net_asked6 asked6[NET_ASKED6];
	struct net_path paths[NET_PATHS];
	struct net_no_port no_port[NET_NO_PORT_SLOTS];
	uint32_t turns[NET_TURNS];
	struct pbuf *looped[NET_LOOP_PKTS];
};

/* By timeouts so far; the last for answers that the port had no room for. */
#define NET_HALF_OPEN_UNSENT 5
#define NET_HALF_OPEN_QUEUES 6

/* One for each shard that is open. */
struct net_stack {
	struct net_tables *tables; /* owned; the pointers below are into it */
	const struct net_arena *arena; /* mem/slab.c */
	struct coro_sched *sched;
	struct net_port ports[NET_MAX_LINKS];
	unsigned n_ports;
	struct netif *netifs;
	unsigned n_netifs;
	ip4_addr_t gateway4;
	ip6_addr_t gateway6;
	bool has_gateway6;
	bool adaptive;
	bool woken;	  /* the kernel wakes a sleep for frames */
	bool woken_early; /* and has done so just now */
	bool listening_said;
	unsigned shard, n_shards;
	bool draining;
	int64_t drain_until_ns;
	int64_t now_ns;
	int64_t next_tick_ns; /* when tcp_ticks moves on */
	int64_t clock_ns;     /* of the round before */
	int64_t paused_ns;    /* that the clock of TCP's timers left out */
	uint32_t now_us;      /* of this round, in units of 1,024 ns; wraps */
	int64_t next_100ms_ns, next_1s_ns, next_stats_ns, stats_ns;
	unsigned empty_rounds;
	int64_t next_yield_ns;
	uint64_t lwip_ticks; /* calls of lwIP's timers for a connection */
	uint8_t timer_ctr;   /* lwIP counts its timer calls, and marks pcbs */
	unsigned mtu;

	struct net_conn **buckets;
	uint32_t bucket_mask;
	uint64_t hash_key[2];
	unsigned n_conns, max_conns;
	unsigned n_counted, max_counted; /* connections with statistics */
	unsigned ooseq_held;		 /* pbufs of data out of order */
	unsigned ooseq_frames;		 /* those of them that are frames */
	struct net_time_wait {		 /* tcp/time_wait.c */
		struct net_wait **buckets;
		uint32_t bucket_mask;
		unsigned n; /* at most max_conns */
		struct net_wait_block *oldest, *newest;
		struct coro_timer timer;
	} time_wait;
	struct net_orphans {
		struct net_conn *oldest, *newest;
		unsigned n;
	} orphans;
	unsigned half_open;	/* beside n_conns: both are max_conns at most */
	struct net_half_opens { /* tcp/half_open.c */
		uint32_t *buckets;
		uint32_t bucket_mask;
		struct net_half_open_queue {
			uint32_t oldest, newest;
		} queues[NET_HALF_OPEN_QUEUES];
		struct coro_timer timer;
	} half_opens;
	unsigned ooseq_most; /* frames; while memory is short, pieces */
	/* of the budget: what each connection may have now, in bytes */
	uint32_t snd_most, rcv_most;
	uint32_t rmem_max; /* a receive window at most: conn/rcv_wnd.c */
	uint32_t wmem_max; /* a send buffer: recovery/cwnd.c */
	uint8_t rcv_scale;
	uint64_t half_open_bytes; /* of half-open connections at most */
	bool memory_full;	  /* no more connections */
	int64_t next_budget_ns;
	struct net_output output;
	struct net_listener *listeners;
	struct net_listener **listeners_hashed; /* conn/listeners.c; owned */
	struct net_poller *pollers;   /* every net_poll() that waits */
	struct net_conn_name **names; /* conn/names.c; NULL: none yet */
	uint32_t names_mask;
	struct net_traces *traces; /* conn/trace.c; NULL: nobody is traced */
	struct net_no_port *no_port;
	struct net_extbufs {
		struct net_extbuf *out,
			*returned;	    /* the latter to be released */
		struct net_extbuf *writing; /* tcp_write() is called for */
	} extbufs;

	uint32_t challenged_ms; /* tcp/check.c */
	uint8_t ending;		/* enum net_end: why lwIP is to free a pcb */
	/* of the segment that is being received */
	uint32_t rx_hash; /* net_demux_hash() of it */
	uint8_t rx_flags;
	bool rx_has_mss;   /* a handshake's: the option is there */
	bool isn_fixed;	   /* net_isn() gives isn */
	bool rx_keep_cwnd; /* lwIP's growth of it is undone: rx_cwnd */
	uint32_t isn, rx_cwnd;

	int64_t shed_until_ns; /* the latest of any listener */
	struct net_stats stats;
	uint64_t opened_kib; /* of memory, when the stack had opened */
	struct net_neighbour *neighbours;
	struct net_asked *asked;
	struct net_asked6 *asked6;
	unsigned arp_known; /* entries, when last counted and since */
	int64_t arp_counted_ns;
	int64_t error_due_ns; /* when one more ICMP error may be sent */
	int64_t share_due_ns; /* when one more neighbour may be passed on */
	struct net_path *paths;
	bool paths_used; /* there has been one */
	bool predicts;	 /* tcp/predict.c */
	bool pmtud_off;
	bool timestamps_off;
	uint8_t ecn;	   /* enum net_ecn */
	bool shares_ports; /* with a kernel of the same addresses */
	bool is_broken;	   /* an assertion of lwIP has failed */
	/*
	 * Whether the kernel gets a segment that is no connection's; borrowed.
	 * NULL: there is no exception path.
	 */
	bool (*kernel_takes)(struct pbuf *p);
	struct net_loop loop;
	uint8_t cc;	    /* of new connections: recovery/cc.c */
	unsigned n_sources; /* its entries in the table of clients */
	/* counted for the segment that is being received; not held yet */
	struct net_source_key admitted;
	struct net_conn *in_lwip; /* lwIP is called for it; or NULL */
	struct net_conn *broken;  /* the assertion was about it; or NULL */
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

/* Counts a time in a histogram; the unit of TCP's clock is its first bucket. */
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

/* A shard's part of what all n of them may have. */
static inline unsigned net_part_of(unsigned all, unsigned n, unsigned shard)
{
	return all / n + (shard < all % n);
}

/* How many ports there are for the stack to choose from. */
static inline unsigned net_port_count(void)
{
	return net_here()->shares_ports ? NET_PORT_KERNEL - NET_PORT_FIRST
					: NET_PORT_COUNT;
}

#define NET_TICK_NS (TCP_SLOW_INTERVAL * INT64_C(1000000))

/*
 * Whether one more of something may be done now: one each each_ns, and after a
 * pause burst_ns' worth of them. *due_ns, 0 at first, belongs to that thing.
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
