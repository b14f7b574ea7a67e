/*
 * What a connection holds, whatever state TCP is in: its memory, waiters,
 * received bytes, views, room to send, counters; and the listeners and clients
 * it counts among.
 */
#pragma once

#include <coronet/coro_chan.h>

#include "netstack/conn/end.h"
#include "netstack/conn/trace.h"
#include "netstack/mem/mem.h"

/* ---- conn.c ---- */
/* Its own net_conn_ext, made now if need be; NULL: no memory. */
struct net_conn_ext *net_conn_ext(struct net_conn *conn);

/* What bounds its wait for the peer, NULL: nothing does. */
static inline struct net_conn_user_timeout *
net_conn_user_timeout(const struct net_conn *conn)
{
	const struct net_conn_ext *ext = conn->ext;

	return ext->has_user_timeout
		       ? (struct net_conn_user_timeout *)(uintptr_t)ext
		       : NULL;
}

/* ---- user_timeout.c ---- */
/* 0: without end. 0 or -ENOMEM. */
int net_conn_set_user_timeout(struct net_conn *conn, uint32_t timeout_ms);

/* ---- conn.c ---- */
void net_conn_put(struct net_conn *conn);
/* In this round's output phase, or the next that the port has room in. */
void net_conn_queue_output(struct net_conn *conn);
int net_conn_wait(struct net_conn *conn, struct coro **slot,
		  int64_t deadline_ns);
/* Its two halves, before and after the coroutine parks. */
int net_conn_wait_begin(struct net_conn *conn, struct coro **slot);
int net_conn_wait_end(struct net_conn *conn, struct coro **slot, int err);
void net_conn_kill(struct net_conn *conn, int err);
/* Fires by then, or before; CORO_FOREVER asks for nothing. */
void net_timer_by(struct net_conn *conn, int64_t due_ns);

/* Tells who watches; not while lwIP has the connection in its hands. */
static inline void net_conn_tell(struct net_conn *conn)
{
	if (conn->watched)
		conn->watch->fn(conn, conn->watch);
}

static inline uint32_t *net_turn_of(uint32_t hash)
{
	return &net_here()->tables->turns[hash >> 22];
}
static_assert(NET_TURNS == 1u << 10, "net_turn_of() keeps ten bits");

/* ---- names.c ---- */
void net_names_fini(void);
void net_name_forget(struct net_conn *conn); /* of one that may have a name */
/* NULL: none. Of any shard; safe in a signal handler. */
const char *net_name_in(const struct net_stack *stack,
			const struct net_conn *conn);

/* ---- wake.c ---- */
/* One thing that a net_poll() waits for. */
struct net_poll_node {
	struct net_poll_node *next, **pprev; /* pprev NULL: in no list */
	struct net_poller *poller;
	struct net_conn *conn; /* what it hangs on, if it is one */
	struct net_listener *listener;
	struct coro_chan_watch watch;
	unsigned events;
};

struct net_poller {
	struct net_poller *next, **pprev;
	struct coro *co;
	bool woken;
	unsigned n;
	struct net_poll_node nodes[];
};

void net_poller_wake(struct net_poller *poller);
/* Wakes the pollers of a list that wait for one of these events. */
void net_poll_wake(struct net_poll_node *nodes, unsigned events);
/* Wakes them all: the stack stops. */
void net_poll_wake_all(void);

/* Wakes whoever waits in a slot. */
static inline void net_wake(struct coro *co)
{
	if (co)
		coro_unpark(co);
}

/* Something may have become readable, or writable; or nothing ever will. */
static inline void net_conn_wake_reader(struct net_conn *conn)
{
	net_wake(conn->reader);
	if (__builtin_expect(conn->ext->pollers != NULL, 0))
		net_poll_wake(conn->ext->pollers,
			      NET_READABLE | NET_PEER_CLOSED);
}

static inline void net_conn_wake_writer(struct net_conn *conn)
{
	net_wake(conn->writer);
	if (__builtin_expect(conn->ext->pollers != NULL, 0)) {
		conn->wants = NET_WANTS_NOTHING; /* who polls does not block */
		net_poll_wake(conn->ext->pollers, NET_WRITABLE);
	}
}

static inline void net_conn_wake_all(struct net_conn *conn)
{
	net_wake(conn->reader);
	net_wake(conn->writer);
	if (__builtin_expect(conn->ext->pollers != NULL, 0))
		net_poll_wake(conn->ext->pollers, ~0u);
}

/*
 * Whether a call may go on: 0, -EBADF (no connection, or one that was closed),
 * -ECANCELED, -EBUSY (another coroutine is blocked in the slot).
 */
int net_conn_refusal(const struct net_conn *conn);

static inline int net_conn_enter(const struct net_conn *conn,
				 const struct coro *slot)
{
	if (__builtin_expect(conn && !slot &&
				     (conn->gate & NET_GATE_CALL) ==
					     NET_GATE_CALL_OPEN,
			     1))
		return 0;
	return net_conn_refusal(conn);
}

/* ---- rxq.c ---- */
bool net_rxq_copy_segment(struct pbuf **p);
/*
 * Copies a small piece behind what is in tail. Returns what is to be linked
 * behind tail, NULL: nothing. Owns p.
 */
struct pbuf *net_rxq_pack(struct pbuf *tail, struct pbuf *p);
void net_rxq_append_slowly(struct net_conn *conn, struct pbuf *p);

/* Whether a segment with data may be kept in the frame it came in. */
static inline bool net_rxq_has_room(const struct pbuf *p)
{
	const struct net_port *port;

	if (!net_is_frame(p))
		return true;
	port = net_frame_port(p);
	return port->frames_in <= port->frames_to_hold;
}

/*
 * Before lwIP sees a segment with data: whether it may be kept; *p may be a
 * copy then.
 */
static inline bool net_rxq_admit(struct pbuf **p)
{
	return __builtin_expect(net_rxq_has_room(*p), 1) ||
	       net_rxq_copy_segment(p);
}

/* Owns p, which may be a chain. */
static inline void net_rxq_append(struct net_conn *conn, struct pbuf *p)
{
	if (__builtin_expect(conn->rx_tail || p->next || !p->len, 0)) {
		net_rxq_append_slowly(conn, p);
		return;
	}
	p->next = p;
	p->tot_len = p->len;
	conn->rx_tail = p;
}

void net_rxq_replace_first(struct net_conn *conn, struct pbuf *copy);
/* Copies what lies in frames into memory, as far as there is memory. */
void net_rxq_copy_frames(struct net_conn *conn);
unsigned net_rxq_frames(const struct net_conn *conn); /* walks */
void net_rxq_clear(struct net_conn *conn);
unsigned net_rxq_bytes(const struct net_conn *conn); /* unread; walks */

/*
 * Bytes that were written and are not acknowledged. A FIN on the last segment
 * of data is not counted by snd_lbb, but is by lastack when it has arrived.
 */
static inline u32_t net_send_queued(const struct tcp_pcb *pcb)
{
	u32_t numbers = pcb->snd_lbb - pcb->lastack;

	return (int32_t)numbers < 0 ? 0 : numbers;
}

static inline struct pbuf *net_rxq_head(const struct net_conn *conn)
{
	return conn->rx_tail ? conn->rx_tail->next : NULL;
}

static inline struct pbuf *net_rxq_next(const struct net_conn *conn,
					const struct pbuf *p)
{
	return p == conn->rx_tail ? NULL : p->next;
}

/* The first, of at least one; owned by the caller. */
static inline struct pbuf *net_rxq_take(struct net_conn *conn)
{
	struct pbuf *tail = conn->rx_tail, *p = tail->next;

	if (p == tail)
		conn->rx_tail = NULL;
	else
		tail->next = p->next;
	p->next = NULL;
	conn->rx_off = 0;
	return p;
}

/* ---- rcv_wnd.c ---- */
#define NET_RMEM_MAX (UINT64_C(6) << 20) /* default of --rmem-max */
#define NET_WMEM_MAX (UINT32_C(4) << 20) /* default of --wmem-max */
/* How far windows may grow, in bytes; so the shift they are announced with. */
void net_rcv_wnd_init(uint64_t rmem_max);

/* A connection's window when nothing is unread. */
static inline uint32_t net_rcv_max(const struct tcp_pcb *pcb)
{
	return pcb->rcv_max ? pcb->rcv_max : TCP_WND_MAX(pcb);
}

/* The window opens by what has been read. Returns len. */
long net_conn_recved(struct net_conn *conn, unsigned len);
/* So many bytes are held out of order now. */
void net_rcv_wnd_held(struct net_conn *conn, uint32_t bytes);

/* ---- snd_buf.c ---- */
/* Bytes that can be queued now. */
size_t net_send_room(const struct net_conn *conn);
/* There is room again, if the port took something. */
void net_send_went_out(struct net_conn *conn);

/* ---- view.c ---- */
#define NET_VIEWS_FRAMES 32u /* of a connection; more are copied */

int net_view_init(void);
void net_view_fini(void);
void net_views_free(void); /* frees what is out */

#define NET_VIEW_SLOTS (1u << 20) /* views of all connections */

struct net_view_slot {
	struct pbuf *p;
	struct net_conn *conn;
	uint32_t next;	 /* free one: bytes from the first */
	uint32_t serial; /* odd: the view is out */
	uint64_t unused; /* two slots a cache line */
};
static_assert(sizeof(struct net_view_slot) == 32, "a power of two");

/* The shard's. */
extern NET_SHARD_VAR struct net_view_slot *net_view_slots
	__attribute__((visibility("hidden")));
#define net_view_slots NET_SHARD(net_view_slots)
/* Bytes from the first slot; 0: none. */
extern NET_SHARD_VAR uint32_t net_view_free
	__attribute__((visibility("hidden")));
#define net_view_free NET_SHARD(net_view_free)

bool net_view_new_slot(void); /* false: as many are out as may be */
struct pbuf *net_view_misused(void);

static inline struct net_view_slot *net_view_slot_at(uint32_t offset)
{
	return (void *)((char *)net_view_slots + offset);
}

/* Gives view->owner for p, which it owns from then on; a slot is free. */
static inline void net_view_out(struct net_conn *conn, struct pbuf *p,
				struct net_view *view)
{
	uint32_t offset = net_view_free;
	struct net_view_slot *slot = net_view_slot_at(offset);

	net_view_free = slot->next;
	slot->p = p;
	slot->conn = conn;
	slot->serial++;
	conn->n_views++;
	view->owner = (void *)((uintptr_t)slot->serial << 32 | offset);
}

static inline struct pbuf *net_view_free_slot(struct net_view_slot *slot,
					      uint32_t offset)
{
	slot->conn->n_views--;
	slot->serial++;
	slot->next = net_view_free;
	net_view_free = offset;
	return slot->p;
}

/*
 * What a view refers to, owned again; NULL: it is not out (said and counted).
 * Whatever the owner is, the slot read lies in the table.
 */
static inline struct pbuf *net_view_back(const struct net_view *view)
{
	uint32_t offset = (uint32_t)(uintptr_t)view->owner &
			  (NET_VIEW_SLOTS - 1) * sizeof(struct net_view_slot);
	uint32_t serial = (uint32_t)((uintptr_t)view->owner >> 32);
	struct net_view_slot *slot = net_view_slot_at(offset);

	if (__builtin_expect(slot->serial != serial || !(serial & 1), 0))
		return net_view_misused();
	return net_view_free_slot(slot, offset);
}

void net_views_reclaim(struct net_conn *conn);

/* ---- counts.c ---- */
/* The sums of a connection, NULL: it has none. */
static inline struct net_conn_ext *net_counts(const struct net_conn *conn)
{
	struct net_conn_ext *ext = (struct net_conn_ext *)conn->ext;

	return ext->counted ? ext : NULL;
}

/* What else such a connection counts. */
static inline struct net_counted *net_counted_of(struct net_conn_ext *counts)
{
	return (struct net_counted *)(void *)counts;
}

/* Data has come, in a segment of so many bytes, or has left. */
static inline void net_count_data_in(struct net_counted *counted, unsigned len)
{
	counted->data_in++;
	counted->recv_ns = net_here()->now_ns;
	if (len > counted->rcv_mss)
		counted->rcv_mss = (uint16_t)len;
}

static inline void net_count_data_out(struct net_counted *counted)
{
	counted->data_out++;
	counted->sent_ns = net_here()->now_ns;
}

/*
 * What it waits for (enum net_phase), after something that may have changed
 * that. Of one that counts; what most segments do is below.
 */
void net_phase_settle(struct net_conn *conn);
void net_phase_set(struct net_counted *counted, enum net_phase phase);
/* It was idle; within a round that is no time, and its phase goes on. */
static inline void net_phase_wake(struct net_counted *counted)
{
	int64_t now_ns = net_here()->now_ns;

	if (counted->idle_ns != now_ns) {
		counted->busy_ns +=
			(uint64_t)(counted->idle_ns - counted->phase_ns);
		counted->phase_ns = now_ns;
	}
	counted->idle_ns = 0;
}
void net_phase_tell(const struct net_conn *conn, struct net_tcp_info *out);
static inline void net_count_phase(struct net_conn *conn)
{
	if (net_counts(conn))
		net_phase_settle(conn);
}

/* Data leaves; what else is queued, and held back, is seen afterwards. */
static inline void net_phase_out(struct net_counted *counted)
{
	if (counted->idle_ns)
		net_phase_wake(counted);
	else if (counted->phase != NET_PHASE_BUSY)
		net_phase_set(counted, NET_PHASE_BUSY);
}

/* All is acknowledged. */
static inline void net_phase_idle(struct net_counted *counted)
{
	if (counted->phase != NET_PHASE_BUSY)
		net_phase_set(counted, NET_PHASE_BUSY);
	if (!counted->idle_ns)
		counted->idle_ns = net_here()->now_ns;
}

/* A segment for a connection, before lwIP takes it; in network byte order. */
void net_count_in(struct net_conn *conn, const struct pbuf *p);
/* One that leaves: what net_segment_out() sees. */
void net_count_out(struct net_conn *conn, const struct pbuf *p);

/*
 * The same where there is nothing to look for: a segment in order that is no
 * duplicate ACK, with its bytes and those it retires; one that is no
 * retransmission.
 */
static inline void net_count_expected(struct net_conn *conn, unsigned rx,
				      unsigned acked)
{
	struct net_conn_ext *counts = net_counts(conn);

	if (!counts)
		return;
	counts->rx_segs++;
	counts->rx_bytes += rx;
	counts->tx_acked += acked;
	if (acked && !conn->pcb.unacked && !conn->pcb.unsent)
		net_phase_idle(net_counted_of(counts));
	if (rx)
		net_count_data_in(net_counted_of(counts), rx);
}

static inline void net_count_sent(struct net_conn *conn, unsigned len)
{
	struct net_conn_ext *counts = net_counts(conn);

	if (!counts)
		return;
	counts->tx_segs++;
	if (len) {
		net_count_data_out(net_counted_of(counts));
		net_phase_out(net_counted_of(counts));
	}
}

/* Bytes that came in order, bytes acknowledged; a timeout of lwIP's. */
void net_count_bytes(struct net_conn *conn, unsigned rx, unsigned acked);
void net_count_rto(struct net_conn *conn);
/* An ACK told that something came twice, or in another order. */
void net_count_odd_ack(struct net_conn *conn, bool dsack, bool reordered);
/* An ACK with ECN-Echo has told of so many bytes that have arrived. */
void net_count_marked(struct net_conn *conn, uint32_t delivered);
/* So much has been read in a round trip. */
void net_count_space(struct net_conn *conn, uint32_t bytes);

/* ---- listeners.c ---- */
int net_listeners_init(void);
void net_listeners_fini(void);
struct net_listener *net_listener_find(const ip_addr_t *ip, u16_t port);
/* Of any shard, from any thread that may see it. */
struct net_listener *net_listener_find_in(const struct net_stack *stack,
					  const ip_addr_t *ip, u16_t port);
/* Of that very address, NULL: of every one. */
struct net_listener *net_listener_find_exact(const ip_addr_t *ip, u16_t port);
void net_listener_hash(struct net_listener *listener);
void net_listener_unhash(struct net_listener *listener);
void net_listener_forget(struct net_conn *conn);
void net_listener_put(struct net_listener *listener);

/* ---- clients.c ---- */
enum net_counted_as {
	NET_COUNTED_NOT,
	NET_COUNTED_HALF_OPEN,
	NET_COUNTED_CLIENT
};

enum net_admission {
	NET_ADMIT,
	NET_ADMIT_COOKIE, /* nothing may be kept before the handshake ends */
	NET_ADMIT_NOT
};

/* What a segment that may open a connection asks for. */
enum net_asks {
	NET_ASKS,	      /* a SYN: a half-open connection */
	NET_ASKS_COOKIE,      /* a SYN there is no room for: a cookie at best */
	NET_ASKS_WITH_COOKIE, /* an ACK that brings one back */
};

/*
 * The program's table, before its first shard opens and after its last has
 * closed: connections at most, of all shards. Returns 0, -ENOMEM, -EIO.
 */
int net_clients_open(unsigned n_shards, unsigned max_conns);
void net_clients_close(void);
/* This shard closes: gives back what it has counted. */
void net_clients_leave(void);
/* The limits in force, defaults filled in. */
void net_listener_limits(const struct net_listener *listener,
			 struct net_limits *out);
/*
 * Whether a segment from ip may open a connection to the listener. If it may,
 * that one is counted already: net_clients_hold() makes it the half-open
 * connection's, and says whether there is one; net_client_half_open() makes it
 * the connection's; and net_clients_unadmit() takes it back if none has come of
 * it. Without memory for an entry the connection is not counted.
 */
enum net_admission net_clients_admit(const struct net_listener *listener,
				     const ip_addr_t *ip, enum net_asks asks);
void net_clients_unadmit(void);
bool net_clients_hold(void);
/* What is held is the segment's again: of a client from ip to our port. */
void net_clients_resume(const ip_addr_t *ip, u16_t port);
void net_client_half_open(struct net_conn *conn);
void net_client_established(struct net_conn *conn);
void net_client_forget(struct net_conn *conn); /* one that is counted */

/*
 * A client counts for as long as somebody holds it here, or lwIP does to say
 * more than TIME_WAIT has to.
 */
static inline void net_client_check(struct net_conn *conn)
{
	if (conn->counted_as && !conn->owned && !conn->served &&
	    (!conn->pcb_live || conn->over))
		net_client_forget(conn);
}

/* ---- addr.c ---- */
/* The address without its port; returns buf of NET_ADDR_TEXT_MAX bytes. */
char *net_ip_format(const struct net_addr *addr, char *buf);
void net_addr_to_lwip(const struct net_addr *addr, ip_addr_t *out);
void net_addr_from_lwip(const ip_addr_t *ip, u16_t port, struct net_addr *out);

/* ---- recognize.c ---- */
/* Of the handler that serves the connection; safe in a signal handler. */
const char *net_handler_name(const struct net_conn *conn);
/* Whether a word of a coroutine's stack is the connection it serves: coro's
 * recogniser, which says so in text. */
bool net_conn_recognize(uintptr_t word, char *text, size_t len);
/* The connection that it recognised last on this thread; the caller's to set.
 */
extern _Thread_local const struct net_conn *net_recognized
	__attribute__((visibility("hidden")));
