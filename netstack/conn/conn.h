/*
 * What a connection has in every state of TCP: memory, waiters, received bytes,
 * views, room to send, counters; and the listeners and clients that it is
 * counted with. Every call acts on the shard of the calling thread, unless its
 * comment says otherwise. Times in ns are those of the stack's clock.
 */
#pragma once

#include <coronet/coro_chan.h>

#include "netstack/conn/call_end.h"
#include "netstack/conn/end.h"
#include "netstack/conn/trace.h"
#include "netstack/mem/mem.h"
#include "netstack/shard_var.h"

/* ---- conn.c ---- */
/*
 * Returns the connection's own net_conn_ext, which it allocates if necessary;
 * NULL: no memory.
 */
struct net_conn_ext *net_conn_ext(struct net_conn *conn);

/* Its user timeout; NULL: it never had one. */
static inline struct net_conn_user_timeout *
net_conn_user_timeout(const struct net_conn *conn)
{
	const struct net_conn_ext *ext = conn->ext;

	return ext->has_user_timeout
		       ? (struct net_conn_user_timeout *)(uintptr_t)ext
		       : NULL;
}

/* ---- user_timeout.c ---- */
/* Sets the user timeout; timeout_ms 0: none. Returns 0 or -ENOMEM. */
int net_conn_set_user_timeout(struct net_conn *conn, uint32_t timeout_ms);
/* Sets the times in a net_conn_user_timeout that is new. */
void net_user_timeout_init(struct net_conn *conn);
/*
 * Returns whether a user timeout is set. It replaces the limit of keepalive
 * probes.
 */
bool net_user_timeout_is_set(const struct net_conn *conn);
/*
 * Starts the user timeout, if there is one: from now on the connection waits
 * for its peer without progress. It goes on if it waited for the same before.
 */
void net_user_timeout_begin(struct net_conn *conn);
/* Notes that a keepalive probe was sent, which pcb.keep_cnt_sent counts. */
void net_user_timeout_probed(struct net_conn *conn);
/*
 * Returns when the connection is given up, ns; CORO_FOREVER: it does not wait,
 * or has no user timeout.
 */
int64_t net_user_timeout_due_ns(const struct net_conn *conn);
/*
 * Returns whether the user timeout has passed. If so, the connection's counters
 * are set such that lwIP's next tick ends it.
 */
bool net_user_timeout_gives_up(struct net_conn *conn);

/* ---- conn.c ---- */
/* Frees a connection that nobody holds any more (state.h). */
void net_conn_put(struct net_conn *conn);
/*
 * Parks the calling coroutine in *slot, the connection's reader or writer.
 * Returns 0 once woken, -EAGAIN (the connection has a watch), -EPERM (outside a
 * coroutine), -EBUSY (the slot is taken), -ECANCELED, -ETIMEDOUT, -EBADF (it
 * was closed meanwhile and may be freed) or -EOWNERDEAD (call_end.h).
 */
int net_conn_wait(struct net_conn *conn, struct coro **slot,
		  int64_t deadline_ns);
/* The two halves of net_conn_wait(), before and after the coroutine parks. */
int net_conn_wait_begin(struct net_conn *conn, struct coro **slot);
int net_conn_wait_end(struct net_conn *conn, struct coro **slot, int err);
/* Sets err, a negative errno, unless one is set; wakes all blocked calls. */
void net_conn_kill(struct net_conn *conn, int err);
/* Makes the timer fire at due_ns or before; CORO_FOREVER changes nothing. */
void net_timer_by(struct net_conn *conn, int64_t due_ns);

/* Calls the watch, if there is one; not while lwIP works on the connection. */
static inline void net_conn_notify(struct net_conn *conn)
{
	if (!conn->watched)
		return;
	conn->watch->received = conn->pcb.rcv_nxt;
	conn->watch->fn(conn, conn->watch);
}

/*
 * How many connections whose ID was shown have ended, by their hash. It
 * distinguishes connections that used the same addresses and ports in turn
 * (control/id.c).
 */
#define NET_TURNS 1024u
extern NET_SHARD_VAR uint32_t net_turns[NET_TURNS]
	__attribute__((visibility("hidden")));
#define net_turns NET_SHARD(net_turns)

/* The counter of NET_TURNS for connections with this net_demux_hash(). */
static inline uint32_t *net_turn_of(uint32_t hash)
{
	return &net_turns[hash >> 22];
}
static_assert(NET_TURNS == 1u << 10, "net_turn_of() keeps ten bits");

/* ---- output_queue.c ---- */
int net_output_init(unsigned max_conns); /* 0 or -ENOMEM */
void net_output_fini(void);
/* Returns whether the queue has room for one more connection. */
bool net_output_has_room(void);
/*
 * Queues the connection for this round's output phase, or for the next in which
 * the port has room.
 */
void net_conn_queue_output(struct net_conn *conn);
/*
 * Queues a connection that was removed from the shard's queue for its port,
 * which accepts no frames. Returns false without memory.
 */
bool net_output_wait(struct net_conn *conn, struct net_port *port);

/* Removes the first connection of a queue that is not empty. */
static inline struct net_conn *net_output_pop(struct net_output *queue)
{
	return queue->ring[queue->head++ & queue->mask];
}

/* Makes an empty queue begin at the start of its ring again. */
static inline void net_output_rewind(struct net_output *queue)
{
	if (queue->head == queue->tail)
		queue->head = queue->tail = 0;
}

/* ---- room.c ---- */
void net_room_init(void);
/* Adds a waiter to the end of a port's list, unless it is in it already. */
void net_room_wait(struct net_room_wait *wait, struct net_port *port);
/* Removes a waiter from the list that it is in, if any. */
void net_room_leave(struct net_room_wait *wait);
/* Wakes the waiter's coroutine, if it is parked. */
void net_room_wake(struct net_room_wait *wait);
/*
 * Notifies the first waiter of a list that is not empty, or wakes a bounded
 * number of coroutines at its head.
 */
void net_room_resume_senders(struct net_port *port);

/* ---- names.c ---- */
void net_names_fini(void);
void net_name_forget(struct net_conn *conn); /* if it has a name */
/*
 * The name of a connection of any shard; NULL: none. Safe in a signal handler.
 */
const char *net_name_in(const struct net_stack *stack,
			const struct net_conn *conn);

/* ---- conn.c: waking ---- */
/* One thing that a net_poll() waits for. */
struct net_poll_node {
	struct net_poll_node *next, **pprev; /* pprev NULL: in no list */
	struct net_poller *poller;
	struct net_conn *conn; /* NULL: it is not a connection */
	struct net_listener *listener;
	struct net_udp *udp;
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
/* Wakes all pollers, when the stack stops. */
void net_poll_wake_all(void);

/* Wakes the coroutine that waits in a slot. */
static inline void net_wake(struct coro *co)
{
	if (co)
		coro_unpark(co);
}

/*
 * Wake the reader, the writer or all, and the net_poll() calls that wait for
 * it: the connection may have become readable or writable, or has ended.
 */
static inline void net_conn_wake_reader(struct net_conn *conn)
{
	net_wake(conn->reader);
	if (unlikely(conn->ext->pollers))
		net_poll_wake(conn->ext->pollers,
			      NET_READABLE | NET_PEER_CLOSED);
}

static inline void net_conn_wake_writer(struct net_conn *conn)
{
	net_wake(conn->writer);
	if (unlikely(conn->ext->pollers)) {
		conn->wants = NET_WANTS_NOTHING; /* a poller does not block */
		net_poll_wake(conn->ext->pollers, NET_WRITABLE);
	}
}

static inline void net_conn_wake_all(struct net_conn *conn)
{
	net_wake(conn->reader);
	net_wake(conn->writer);
	if (unlikely(conn->ext->pollers))
		net_poll_wake(conn->ext->pollers, ~0u);
}

/*
 * Why a call on the connection may not go on: -EBADF (NULL or closed),
 * -ECANCELED, -EBUSY (another coroutine is blocked in the slot); 0: it may.
 */
int net_conn_refusal(const struct net_conn *conn);

/* Begins a call that may block in a slot: returns 0 or net_conn_refusal(). */
static inline int net_conn_enter(const struct net_conn *conn,
				 const struct coro *slot)
{
	if (likely(conn && !slot &&
		   (conn->gate & NET_GATE_CALL) == NET_GATE_CALL_OPEN))
		return 0;
	return net_conn_refusal(conn);
}

/* ---- rxq.c: the queue of received, unread data ---- */
/* Replaces *p by a copy. Returns false without memory, and keeps *p. */
bool net_rxq_copy_segment(struct pbuf **p);
/*
 * Copies a small piece behind the data in tail. Returns the pbuf that the
 * caller links behind tail: a new one for what did not fit, or p without
 * memory; NULL: none. Owns p.
 */
struct pbuf *net_rxq_pack(struct pbuf *tail, struct pbuf *p);
/* net_rxq_append() for the general case. Owns p. */
void net_rxq_append_slowly(struct net_conn *conn, struct pbuf *p);

/* Returns whether a segment may stay in its frame (or is in none). */
static inline bool net_rxq_has_room(const struct pbuf *p)
{
	const struct net_port *port;

	if (!net_is_frame(p))
		return true;
	port = net_frame_port(p);
	return port->frames_in <= port->frames_to_hold;
}

/*
 * Before lwIP sees a segment with data: returns whether there is memory to keep
 * it. May replace *p by a copy.
 */
static inline bool net_rxq_admit(struct pbuf **p)
{
	return likely(net_rxq_has_room(*p)) || net_rxq_copy_segment(p);
}

/* Appends received data for the reader. Owns p, which may be a chain. */
static inline void net_rxq_append(struct net_conn *conn, struct pbuf *p)
{
	if (unlikely(conn->rx_tail || p->next || !p->len)) {
		net_rxq_append_slowly(conn, p);
		return;
	}
	p->next = p;
	p->tot_len = p->len;
	conn->rx_tail = p;
}

/* Replaces the first unread pbuf, which is freed. Owns copy. */
void net_rxq_replace_first(struct net_conn *conn, struct pbuf *copy);
/* Copies data that lies in frames into memory, as far as there is memory. */
void net_rxq_copy_frames(struct net_conn *conn);
/* Frames of empty pools among the unread data; walks the queue. */
unsigned net_rxq_frames(const struct net_conn *conn);
void net_rxq_clear(struct net_conn *conn);	     /* frees all of it */
unsigned net_rxq_bytes(const struct net_conn *conn); /* walks the queue */
/*
 * Copies at most len bytes of the queue that ends at tail (NULL: it is empty),
 * from byte `from` of its first pbuf on, and leaves them there. Returns how
 * many.
 */
size_t net_rxq_look(const struct pbuf *tail, size_t from, void *buf,
		    size_t len);

/*
 * Bytes that were written and are not acknowledged yet. snd_lbb does not count
 * a FIN on the last segment of data; lastack does once it is acknowledged.
 */
static inline uint32_t net_send_queued(const struct tcp_pcb *pcb)
{
	uint32_t numbers = pcb->snd_lbb - pcb->lastack;

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

/* Removes the first pbuf of a queue that is not empty. The caller owns it. */
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
/* Sets the limit of receive windows in bytes, and the window scale for it. */
void net_rcv_wnd_init(uint64_t rmem_max);

/* A connection's window when nothing is unread. */
static inline uint32_t net_rcv_max(const struct tcp_pcb *pcb)
{
	return pcb->rcv_max ? pcb->rcv_max : TCP_WND_MAX(pcb);
}

/* Opens the window after len bytes were read. Returns len. */
long net_conn_recved(struct net_conn *conn, unsigned len);
/* Doubles the window if many bytes are held out of order: `bytes` of them. */
void net_rcv_wnd_held(struct net_conn *conn, uint32_t bytes);
/*
 * Returns whether the peer can send no whole segment until something is read. A
 * reader calls this before it waits for more than the unread bytes: if the
 * window has room that the peer does not know of, an ACK is queued that
 * announces it.
 */
bool net_rcv_wnd_is_full(struct net_conn *conn);

/* ---- snd_buf.c ---- */
#define NET_RECORD_ROOM 1408u /* that a record of TLS is worth */
/* Bytes that can be queued now; 0: a writer waits for room. */
size_t net_send_room(const struct net_conn *conn);
/* After the port has taken frames: wakes the writer if there is room again. */
void net_send_went_out(struct net_conn *conn);

/* ---- view.c ---- */
#define NET_VIEWS_FRAMES 32u /* per connection; more views are copied */

int net_view_init(void); /* 0 or -ENOMEM */
void net_view_fini(void);
void net_views_free(void); /* frees all unreleased views */
/*
 * Calls visit() for the unreleased views in the next n slots. *next is 0 at
 * first; between two calls views may be taken and released. Returns false when
 * these were the last slots.
 */
bool net_views_visit(uint32_t *next, unsigned n,
		     void (*visit)(const struct net_conn *conn,
				   const struct pbuf *p));

#define NET_VIEW_SLOTS (1u << 20) /* views of all connections */

struct net_view_slot {
	struct pbuf *p;
	struct net_conn *conn;
	uint32_t next;	 /* next free slot: bytes from the first */
	uint32_t serial; /* odd: the view is unreleased */
	uint64_t unused; /* two slots a cache line */
};
static_assert(sizeof(struct net_view_slot) == 32, "a power of two");

/* The shard's table of views. */
extern NET_SHARD_VAR struct net_view_slot *net_view_slots
	__attribute__((visibility("hidden")));
#define net_view_slots NET_SHARD(net_view_slots)
/* The first free slot, in bytes from the table's start; 0: none. */
extern NET_SHARD_VAR uint32_t net_view_free
	__attribute__((visibility("hidden")));
#define net_view_free NET_SHARD(net_view_free)

bool net_view_new_slot(void); /* false: all slots are in use */
/* Counts and logs the release of a view that was not held. Returns NULL. */
struct pbuf *net_view_misused(void);

static inline struct net_view_slot *net_view_slot_at(uint32_t offset)
{
	return (void *)((char *)net_view_slots + offset);
}

/* Sets view->owner to a slot that owns p; there must be a free slot. */
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

/* Frees a slot. Returns its pbuf, owned by the caller. */
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
 * Ends a view and returns its pbuf, owned by the caller; NULL: the view was not
 * held, which is logged and counted. Any value of view->owner is safe: the slot
 * that is read lies in the table.
 */
static inline struct pbuf *net_view_back(const struct net_view *view)
{
	uint32_t offset = (uint32_t)(uintptr_t)view->owner &
			  (NET_VIEW_SLOTS - 1) * sizeof(struct net_view_slot);
	uint32_t serial = (uint32_t)((uintptr_t)view->owner >> 32);
	struct net_view_slot *slot = net_view_slot_at(offset);

	if (unlikely(slot->serial != serial || !(serial & 1)))
		return net_view_misused();
	return net_view_free_slot(slot, offset);
}

/* Frees the views of a connection that were never released, and logs them. */
void net_views_reclaim(struct net_conn *conn);

/* ---- counts.c ---- */
/* The counters of a connection; NULL: it has none. */
static inline struct net_conn_ext *net_counts(const struct net_conn *conn)
{
	struct net_conn_ext *ext = (struct net_conn_ext *)conn->ext;

	return ext->has_counters ? ext : NULL;
}

/* The further counters of such a connection. */
static inline struct net_counted *net_counted_of(struct net_conn_ext *counts)
{
	return (struct net_counted *)(void *)counts;
}

/* Count a segment with data (len bytes of it) that came in, or that left. */
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
 * Updates the phase (enum net_phase) of a connection with counters, after an
 * event that may have changed it. Most segments use net_phase_out() and
 * net_phase_idle() instead.
 */
void net_phase_settle(struct net_conn *conn);
void net_phase_set(struct net_counted *counted, enum net_phase phase);
/* Ends an idle time; unless it began in this round, it was not busy. */
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
/* Sets the times of the phases in *out, of a connection with counters. */
void net_phase_fill_info(const struct net_conn *conn, struct net_tcp_info *out);
static inline void net_count_phase(struct net_conn *conn)
{
	if (net_counts(conn))
		net_phase_settle(conn);
}

/* Data leaves: BUSY. A later net_phase_settle() accounts for queued data. */
static inline void net_phase_out(struct net_counted *counted)
{
	if (counted->idle_ns)
		net_phase_wake(counted);
	else if (counted->phase != NET_PHASE_BUSY)
		net_phase_set(counted, NET_PHASE_BUSY);
}

/* All data is acknowledged. */
static inline void net_phase_idle(struct net_counted *counted)
{
	if (counted->phase != NET_PHASE_BUSY)
		net_phase_set(counted, NET_PHASE_BUSY);
	if (!counted->idle_ns)
		counted->idle_ns = net_here()->now_ns;
}

/*
 * Counts a segment that came in, before lwIP processes it. p begins with the
 * TCP header, in network byte order.
 */
void net_count_in(struct net_conn *conn, const struct pbuf *p);
/* Counts a segment that leaves, as net_segment_out() sees it. */
void net_count_out(struct net_conn *conn, const struct pbuf *p);

/*
 * Faster variants for ordinary segments. net_count_expected(): a segment in
 * order, no duplicate ACK, with rx bytes of data, that acknowledges `acked`
 * bytes. net_count_sent(): a segment of len bytes that is no retransmission.
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

/* Counts bytes received in order, and bytes acknowledged. */
void net_count_bytes(struct net_conn *conn, unsigned rx, unsigned acked);
/* Counts a retransmission timeout, also for the shard, and logs the event. */
void net_count_rto(struct net_conn *conn);
/* Counts an ACK that reported a duplicate, or reordering. */
void net_count_odd_ack(struct net_conn *conn, bool dsack, bool reordered);
/* Counts, as segments, the bytes that an ACK with ECN-Echo delivered. */
void net_count_marked(struct net_conn *conn, uint32_t delivered);
/* Notes how many bytes were read in a round trip. */
void net_count_space(struct net_conn *conn, uint32_t bytes);

/* ---- listeners.c ---- */
int net_listeners_init(void); /* 0 or -ENOMEM */
void net_listeners_fini(void);
/*
 * The listener of this address, else of every address, else of every address
 * of its family; NULL: none. net_listener_find_in() does this on any shard,
 * from any thread that may read that shard.
 */
struct net_listener *net_listener_find(const ip_addr_t *ip, uint16_t port);
struct net_listener *net_listener_find_in(const struct net_stack *stack,
					  const ip_addr_t *ip, uint16_t port);
/* The listener at exactly this address; ip NULL: at every address. */
struct net_listener *net_listener_find_exact(const ip_addr_t *ip,
					     uint16_t port);
void net_listener_hash(struct net_listener *listener);
void net_listener_unhash(struct net_listener *listener);
/* Removes a pending connection from its listener's backlog count. */
void net_listener_forget(struct net_conn *conn);
/* Frees a closed listener once nothing points at it. */
void net_listener_put(struct net_listener *listener);

/* ---- clients.c ---- */
enum net_counted_as {
	NET_COUNTED_NOT,
	NET_COUNTED_HALF_OPEN,
	NET_COUNTED_CLIENT
};

enum net_admission {
	NET_ADMIT,
	NET_ADMIT_COOKIE, /* keep no state before the handshake ends */
	NET_ADMIT_NOT
};

/* What a segment that may open a connection requests. */
enum net_asks {
	NET_ASKS,	      /* a SYN: a half-open connection */
	NET_ASKS_COOKIE,      /* a SYN without room for it: a cookie at best */
	NET_ASKS_WITH_COOKIE, /* an ACK that returns a cookie */
};

/*
 * Open and close the program's table of clients, before its first shard opens
 * and after its last has closed. max_conns: the sum of all shards. Returns 0,
 * -ENOMEM or -EIO (no random numbers).
 */
int net_clients_open(unsigned n_shards, unsigned max_conns);
void net_clients_close(void);
/* Removes the counts of this shard, when it closes. */
void net_clients_leave(void);

/* A hash of the source of an address, with a random key. */
unsigned net_clients_hash(const ip_addr_t *ip);

/* This shard's entries in the table of clients. */
extern NET_SHARD_VAR unsigned net_client_entries
	__attribute__((visibility("hidden")));
#define net_client_entries NET_SHARD(net_client_entries)

/* The limits in force, defaults filled in. */
void net_listener_limits(const struct net_listener *listener,
			 struct net_limits *out);
/*
 * Returns whether a segment from ip may open a connection to the listener. With
 * NET_ADMIT the client is counted at once, in the shard's variable `admitted`.
 * One of three calls must follow: net_clients_hold() passes the count to a
 * half-open connection and returns whether there is one; net_client_half_open()
 * passes it to a connection; net_clients_unadmit() removes it if no connection
 * was made. Without memory for an entry the client is not counted.
 */
enum net_admission net_clients_admit(const struct net_listener *listener,
				     const ip_addr_t *ip, enum net_asks asks);
void net_clients_unadmit(void);
bool net_clients_hold(void);
/*
 * Moves the count of a half-open connection back to `admitted`: that of a
 * client with this address, at this port of ours.
 */
void net_clients_resume(const ip_addr_t *ip, uint16_t port);
void net_client_half_open(struct net_conn *conn);
void net_client_established(struct net_conn *conn);
void net_client_forget(struct net_conn *conn); /* which is counted */

/*
 * Stops counting a client once its handle is closed, its handler has returned,
 * and it has reached TIME_WAIT or lwIP has freed its pcb.
 */
static inline void net_client_check(struct net_conn *conn)
{
	if (conn->counted_as && !conn->owned && !conn->served &&
	    (!conn->pcb_live || conn->in_time_wait))
		net_client_forget(conn);
}

/* ---- addr.c ---- */
/* The address without its port; returns buf of NET_ADDR_TEXT_MAX bytes. */
char *net_ip_format(const struct net_addr *addr, char *buf);
void net_addr_to_lwip(const struct net_addr *addr, ip_addr_t *out);
void net_addr_from_lwip(const ip_addr_t *ip, uint16_t port,
			struct net_addr *out);

/* ---- names.c: the connection that a coroutine serves ---- */
/*
 * The name of the handler that serves the connection. Safe in a signal handler.
 */
const char *net_handler_name(const struct net_conn *conn);
/*
 * For coro's stack scanner: returns whether a word of a coroutine's stack is
 * the address of a connection in use, and describes that connection in text.
 */
bool net_conn_recognize(uintptr_t word, char *text, size_t len);
/*
 * The connection that net_conn_recognize() has found last on this thread; its
 * reader resets it to NULL.
 */
extern _Thread_local const struct net_conn *net_recognized
	__attribute__((visibility("hidden")));
