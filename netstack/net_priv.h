/*
 * Private to netstack/: what its files offer each other, file by file. The
 * types they share are in net_state_priv.h.
 */
#pragma once

#include "netstack/net_state_priv.h"

/* The one stack of the process. */
extern struct net_stack net_the;

/* ---- mem/slab.c: slabs for lwIP and for connections ---- */
int net_mem_init(void);
void net_mem_fini(void);
/*
 * For tests: the n-th allocation from now fails, 1 being the next; 0: none.
 * Every object netstack/ and lwIP allocate counts, frames and what coro/ keeps
 * apart.
 */
void net_mem_fail_after(unsigned n);

#define NET_MEM_CHUNK_BYTES (256u << 10)
unsigned net_mem_size(const void *mem); /* bytes that are the object's */
/* Bytes of chunks that hold objects, and of those objects. The second walks. */
uint64_t net_mem_bytes(void);
uint64_t net_mem_live_bytes(void);
/* What net_mem_bytes() and net_budget_elsewhere() may come to together. */
void net_mem_set_max(uint64_t bytes);
/* Gives a free chunk's pages back; false: few are free. A system call. */
bool net_mem_trim(void);
void *net_conn_slab_alloc(void);
void net_conn_slab_free(void *mem);
/* Is that the address of a connection's memory, in use or not? */
bool net_mem_is_conn(const void *mem);

/* ---- conn/conn.c ---- */
static inline struct net_conn *net_conn_of(struct tcp_pcb *pcb)
{
	return (struct net_conn *)(void *)pcb;
}

/* memp's side of a pcb's life. */
void *net_conn_alloc(void);
void net_conn_pcb_freed(struct net_conn *conn);

/* Its own net_conn_more, made now if need be; NULL: no memory. */
struct net_conn_more *net_conn_more(struct net_conn *conn);

void net_conn_put(struct net_conn *conn);
/* The window opens by what has been read. Returns len. */
long net_conn_recved(struct net_conn *conn, unsigned len);

/* Whether a received pbuf still lies in the frame it came in. */
static inline bool net_is_frame(const struct pbuf *p)
{
	return p->flags & PBUF_FLAG_IS_CUSTOM;
}

/* The port it came from, to which it returns. */
static inline struct net_port *net_frame_port(const struct pbuf *frame)
{
	return (struct net_port *)(uintptr_t)((
		const uint64_t *)(const void *)frame)[4];
}

/* pbuf_free() of what is mostly one frame that nobody else holds. */
static inline void net_pbuf_free(struct pbuf *p)
{
	if (__builtin_expect(p->ref == 1 && !p->next && net_is_frame(p), 1))
		((struct pbuf_custom *)(void *)p)->custom_free_function(p);
	else
		pbuf_free(p);
}

/* ---- conn/rxq.c ---- */
bool net_rxq_copy_segment(struct pbuf **p);
void net_rxq_append_slowly(struct net_conn *conn, struct pbuf *p);

/*
 * Before lwIP sees a segment with data: whether it may be kept; *p may be a
 * copy then.
 */
static inline bool net_rxq_admit(struct pbuf **p)
{
	const struct net_port *port;

	if (!net_is_frame(*p))
		return true;
	port = net_frame_port(*p);
	return __builtin_expect(port->frames_in <= port->frames_to_hold, 1) ||
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
void net_rxq_clear(struct net_conn *conn);
unsigned net_rxq_bytes(const struct net_conn *conn); /* unread; walks */

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

/* ---- program/diagnose.c ---- */
void net_diagnose_open(void);
void net_diagnose_close(void);
/* "serve+0x10 in coronet-httpd+0x1a2b": what there is a symbol for, and what
 * addr2line takes. Writes it to text and returns it. */
const char *net_code_name(uintptr_t code, char *text, size_t len);
/* Of the handler that serves the connection; safe in a signal handler. */
const char *net_handler_name(const struct net_conn *conn);

/* Is this the stack's thread? */
extern __thread bool net_here
	__attribute__((visibility("hidden"), tls_model("initial-exec")));
void net_die_foreign(const char *call);
void net_die_shared(const char *what);

/* Every public call that works on the stack begins with this. */
#define NET_CHECK_THREAD()                                                     \
	do {                                                                   \
		if (__builtin_expect(!net_here, 0))                            \
			net_die_foreign(__func__);                             \
	} while (0)

/* Nothing that the stack keeps a pointer to may lie on a shared stack. */
static inline void net_check_shared(const void *p, const char *what)
{
	if (__builtin_expect(coro_on_shared_stack(p), 0))
		net_die_shared(what);
}

/* ---- program/watchdog.c ---- */
/* Before DPDK pins this thread. */
void net_watchdog_prepare(void);
/* Names coroutines that hold the loop for so long; 0: none. Returns 0, -errno.
 */
int net_watchdog_start(struct net_stack *stack, unsigned limit_ms);
void net_watchdog_stop(void);
unsigned net_watchdog_looks(void); /* for tests: how often it has looked */

/* ---- conn/view.c ---- */
#define NET_VIEWS_FRAMES 32u /* of a connection; more are copied */

int net_view_init(void);
void net_view_fini(void);
void net_views_end(void); /* frees what is out */

#define NET_VIEW_SLOTS (1u << 20) /* views of all connections */

struct net_view_slot {
	struct pbuf *p;
	struct net_conn *conn;
	uint32_t next;	 /* free one: bytes from the first */
	uint32_t serial; /* odd: the view is out */
	uint64_t unused; /* two slots a cache line */
};
static_assert(sizeof(struct net_view_slot) == 32, "a power of two");

extern struct net_view_slot *net_view_slots;
extern uint32_t net_view_free; /* bytes from the first slot; 0: none */

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

/* In this round's output phase, or the next that the port has room in. */
void net_conn_queue_output(struct net_conn *conn);
/* At once, and again in the next output phase if the port has no room. */
void net_conn_output_now(struct net_conn *conn);
void net_output_all(void);
/* What lwIP calls where receiving a segment makes it want to send. */
err_t net_tcp_output(struct tcp_pcb *pcb);
int net_conn_wait(struct net_conn *conn, struct coro **slot,
		  int64_t deadline_ns);
/* Its two halves, before and after the coroutine parks. */
int net_conn_wait_begin(struct net_conn *conn, struct coro **slot);
int net_conn_wait_end(struct net_conn *conn, struct coro **slot, int err);
void net_conn_kill(struct net_conn *conn, int err);

/* Tells who watches; not while lwIP has the connection in its hands. */
static inline void net_conn_tell(struct net_conn *conn)
{
	if (conn->watched)
		conn->watch->fn(conn, conn->watch);
}

/* ---- api/recv.c, api/send.c ---- */
/* Bytes of all vectors; -EINVAL: too many, none where there are bytes. */
long net_iov_bytes(const struct iovec *iov, unsigned n);
bool net_conn_readable(const struct net_conn *conn);
bool net_conn_writable(const struct net_conn *conn);

/* ---- api/poll.c ---- */
/* Wakes the pollers of a list that wait for one of these events. */
void net_poll_wake(struct net_poll_node *nodes, unsigned events);
/* Wakes them all: the stack stops. */
void net_poll_wake_all(void);

/* ---- api/conn_stats.c ---- */
/* The sums of a connection, NULL: it has none. */
static inline struct net_conn_more *net_counts(const struct net_conn *conn)
{
	struct net_conn_more *more = (struct net_conn_more *)conn->more;

	return more->counted ? more : NULL;
}

/* A segment for a connection, before lwIP takes it; in network byte order. */
void net_count_in(struct net_conn *conn, const struct pbuf *p);
/* One that leaves: what net_segment_out() sees. */
void net_count_out(struct net_conn *conn, const struct pbuf *p);
/* Bytes that came in order, bytes acknowledged; a timeout of lwIP's. */
void net_count_bytes(struct net_conn *conn, unsigned rx, unsigned acked);
void net_count_rto(struct net_conn *conn);

/* ---- api/send.c ---- */
/* What every call that writes begins with: 0 or why it cannot. */
int net_send_enter(const struct net_conn *conn);
/* net_send_all(), once it is certain that this is the stack's thread. */
long net_send_every(struct net_conn *conn, const void *buf, size_t len);
/* Bytes that can be queued now. */
size_t net_send_room(const struct net_conn *conn);
/* Blocks once: 0 when there may be room now. */
int net_send_wait_room(struct net_conn *conn);
/* There is room again, if the port took something. */
void net_send_went_out(struct net_conn *conn);

/* ---- mem/zero_copy.c ---- */
#define NET_LEND_MIN	   512 /* bytes; below, a copy costs less */
#define NET_LOAN_PBUF_SIZE 32  /* bytes of a MEMP_PBUF */
/* memp has made, or is about to take back, a pbuf that refers to memory. */
void net_loan_pbuf_made(void *mem);
void net_loan_pbuf_freed(void *mem);
/* Whether what follows p's headers can go out without a copy; does so. */
bool net_loan_is(const struct pbuf *p);
bool net_loan_attach(struct glue_port *port, struct glue_frame *frame,
		     const struct pbuf *p);
/* Releases what is back; at the end, everything. */
void net_loans_run(void);
void net_loans_end(void);

/* ---- tcp/demux.c ---- */
int net_demux_init(unsigned max_conns);
void net_demux_fini(void);
struct net_conn *net_demux_find(const ip_addr_t *local, u16_t local_port,
				const ip_addr_t *remote, u16_t remote_port);
void net_demux_remove(struct net_conn *conn);
/* Pulls what the frames of a burst, GLUE_BURST at most, belong to. */
void net_demux_prefetch(struct glue_frame *const *frames, unsigned n);
/* Takes back what lwIP put on its lists, and hashes what is new there. */
void net_window_drain(void);
void net_for_each_conn(void (*fn)(struct net_conn *conn));
void net_tcp_input(struct pbuf *p, struct netif *inp);

/* A half-open connection is no longer that. */
static inline void net_half_open_ends(struct net_conn *conn)
{
	net_the.half_open -= conn->half_open;
	conn->half_open = false;
}

/* Bytes: a smaller MSS is a peer's attack or error. */
#define NET_MSS_FLOOR 216u

/* ---- tcp/check.c: p begins with the TCP header, as it came ---- */
bool net_check_header(const struct pbuf *p);
/*
 * Whether lwIP may have it, or what it has been copied to; if not, it has been
 * answered where it must be.
 */
bool net_check_conn(struct net_conn *conn, struct pbuf **p);
/* The same for the segment that brought a cookie back. */
bool net_check_cookie(struct net_conn *conn, struct pbuf **p);
bool net_check_stranger(struct pbuf *p); /* of no connection */

#define NET_OPT_END	0
#define NET_OPT_NOP	1
#define NET_OPT_MSS	2
#define NET_OPT_WSCALE	3
#define NET_OPT_SACK_OK 4

/* An option of a header that has been checked; NULL: it has none of the kind */
const uint8_t *net_tcp_option(const struct tcp_hdr *tcp, uint8_t kind);

/* ---- tcp/time_wait.c ---- */
void net_time_wait_enter(struct net_conn *conn);
void net_time_wait_leave(struct net_conn *conn);
bool net_time_wait_recycle(void); /* false: there is none */

/* ---- tcp/orphan.c ---- */
/* Its owner has let go of a living connection, not in TIME_WAIT. */
void net_orphan_enter(struct net_conn *conn);
void net_orphan_leave(struct net_conn *conn);
bool net_orphan_recycle(void); /* ends the oldest; false: there is none */

/* ---- tcp/ooseq.c ---- */
/*
 * Whether a segment with len bytes ahead of its time may be kept; *p may be
 * another one then. If not, it has been answered and is to be dropped.
 */
bool net_ooseq_admit(struct net_conn *conn, struct pbuf **p, unsigned len);
void net_ooseq_count(struct net_conn *conn); /* after the queue has changed */

/* ---- tcp/cookie.c ---- */
enum net_cookie { NET_COOKIE_NONE, NET_COOKIE_NO_ROOM, NET_COOKIE_TAKEN };

void net_cookie_init(void);
bool net_cookie_hot(void);
/* Answers the SYN that is being received. */
void net_cookie_send(const struct pbuf *p);
/*
 * Of the ACK that is being received, its listener shown to lwIP: whether it
 * bears a cookie, and the half-open connection it is for.
 */
enum net_cookie net_cookie_take(struct pbuf *p, struct netif *inp,
				struct net_conn **out);

/* ---- tcp/ephemeral.c: a search for a free port ---- */
struct net_ephemeral {
	uint32_t offset;
	uint32_t *counter;
};

void net_ephemeral_init(void);
/* For a connection from local to a destination; for a listener. */
struct net_ephemeral net_ephemeral_dial(const ip_addr_t *local,
					const ip_addr_t *remote,
					u16_t remote_port);
struct net_ephemeral net_ephemeral_listen(void);
/* The next to try; NET_PORT_COUNT calls give each port once. */
u16_t net_ephemeral_next(struct net_ephemeral *search);

/* ---- api/dial.c ---- */
/*
 * Of a connection in SYN_SENT: whether the segment, with its options checked,
 * is the SYN of a peer that dials us at the same time; answers it then.
 */
bool net_dial_crossed(struct net_conn *conn, const struct tcp_hdr *tcp);

/* ---- tcp/reply.c ---- */
struct net_reply {
	const struct tcp_pcb *pcb; /* whose TTL it gets; NULL: nobody's */
	const ip_addr_t *from, *to;
	u16_t from_port, to_port;
	u32_t seq, ack;
	u8_t flags;
	u16_t wnd;
	uint8_t options[16];
	u8_t options_len; /* a multiple of 4 */
};

void net_reply_send(const struct net_reply *reply);

/* What tcp.c and tcp_in.c call for tcp_rst() and tcp_rst_netif(). */
void net_rst_abort(const struct tcp_pcb *pcb, u32_t seq, u32_t ack,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   u16_t local_port, u16_t remote_port);
void net_rst_reply(const struct tcp_pcb *pcb, u32_t seg_ack, u32_t seg_end,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   u16_t local_port, u16_t remote_port);
void net_rst_netif(struct netif *netif, u32_t seg_ack, u32_t seg_end,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   u16_t local_port, u16_t remote_port);

/* ---- tcp/timer.c ---- */
#define NET_TICK_NS (TCP_SLOW_INTERVAL * INT64_C(1000000))
#define NET_FINE_NS INT64_C(5000000) /* timers of a packet are no finer */
void net_timer_init(struct net_conn *conn);
void net_timer_check(struct net_conn *conn); /* arm if there is a reason */
/* Fires by then, or before; CORO_FOREVER asks for nothing. */
void net_timer_by(struct net_conn *conn, int64_t due_ns);
void net_timers_run(void);
void net_timers_set_clock(void);

/* ---- recovery/persist.c ---- */
/* A segment has opened the window after a timeout. */
void net_persist_window_opened(struct tcp_pcb *pcb);

/* ---- recovery/recovery.c ---- */
struct net_rec_info {
	uint64_t srtt_ns, rttvar_ns; /* 0: no sample yet */
	uint64_t rto_ns;
	uint32_t cwnd_bytes, ssthresh_bytes;
	uint32_t retransmits; /* segments, over its life */
};

/* What net_segment_in() hands on before lwIP processes a segment. */
void net_rec_segment_out(const struct tcp_pcb *pcb, const struct pbuf *p);
void net_rec_input(struct tcp_pcb *pcb, const struct tcp_hdr *hdr,
		   unsigned optlen, const struct pbuf *p);
/* lwIP has taken an ACK, and will send next. */
void net_rec_acked(struct net_conn *conn);
/* lwIP has done with a segment; only for a connection with a block. */
void net_rec_after_input(struct net_conn *conn);
/* A segment up to `end` came that is old, with an ACK that is not newer. */
void net_rec_asked_again(struct net_conn *conn, uint32_t end, uint32_t ack);
void net_rec_restart(struct net_conn *conn);
void net_rec_free(struct net_conn *conn);
void net_rec_info(const struct net_conn *conn, struct net_rec_info *out);

/* Before what was written goes out: after an idle spell a small window. */
static inline void net_rec_before_output(struct net_conn *conn)
{
	if (!conn->pcb.unacked && tcp_ticks - conn->pcb.tmr > 5)
		net_rec_restart(conn);
}

/* ---- api/listen.c ---- */
struct net_listener *net_listener_find(const ip_addr_t *ip, u16_t port);
err_t net_listener_established(struct net_conn *conn);
void net_listener_forget(struct net_conn *conn);
void net_listener_stop(struct net_listener *listener);
void net_listener_put(struct net_listener *listener);

/* ---- shard/budget.c ---- */
/* When all that a stack needs is there; -ENOMEM: --memory is too little. */
int net_budget_open(struct net_opts *opts);
void net_budget_fini(void);
/* The program is set up: what it took meanwhile is its own. */
void net_budget_start(void);
/* What slabs and coroutines may take together; 0: no bound. */
void net_budget_set(uint64_t bytes);
void net_budget_tick(void); /* when next_budget_ns has come */
void net_budget_stats(struct net_stats *out);
/* Bytes that count beside the slabs': those of coroutines. */
uint64_t net_budget_elsewhere(void);
/* The slabs have taken or given back a chunk. */
void net_budget_changed(void);

/* ---- conn/clients.c ---- */
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

/* The limits in force, defaults filled in. */
void net_listener_limits(const struct net_listener *listener,
			 struct net_limits *out);
/* Whether a SYN from ip may open a connection to the listener. */
enum net_admission net_clients_admit(const struct net_listener *listener,
				     const ip_addr_t *ip);
void net_client_half_open(struct net_conn *conn);
void net_client_established(struct net_conn *conn);
void net_client_ends(struct net_conn *conn); /* one that is counted */
void net_clients_fini(void);

/*
 * A client counts for as long as somebody holds it here, or lwIP does to say
 * more than TIME_WAIT has to.
 */
static inline void net_client_check(struct net_conn *conn)
{
	if (conn->counted_as && !conn->owned && !conn->served &&
	    (!conn->pcb_live || conn->waiting))
		net_client_ends(conn);
}

/* ---- link/eth.c ---- */
int net_eth_open(struct net_opts *opts);
void net_eth_close(void);
unsigned net_eth_rx(void);
void net_eth_tx(void);
/* Whether every port takes memory that is lent. */
bool net_eth_lends(void);
/* Whether every port is so far behind that sending has to wait. */
bool net_eth_busy(void);
/* Sends a packet of IPv4 to a neighbour. */
err_t net_eth_send(struct netif *netif, struct pbuf *p, const uint8_t *mac);

/* ---- link/neighbour.c ---- */
/* lwIP's output functions of every interface. */
err_t net_neighbour_output4(struct netif *netif, struct pbuf *p,
			    const ip4_addr_t *dest);
err_t net_neighbour_output6(struct netif *netif, struct pbuf *p,
			    const ip6_addr_t *dest);
/*
 * An ARP packet, a neighbour's solicitation or advertisement: answers what must
 * be answered. Whether lwIP may see it (ARP: on which interface), or it is to
 * be freed.
 */
bool net_neighbour_arp(const struct net_port *port, struct glue_frame *frame,
		       struct netif **out);
bool net_neighbour_nd(const struct net_port *port,
		      const struct glue_frame *frame);
/* Before nd6_tmr(): no packet is to wait for a neighbour that has asked us. */
void net_neighbour_probe(void);
/* Whether the neighbour for an address has answered. */
bool net_neighbour_reachable(const ip_addr_t *ip);

/* ---- conn/addr.c ---- */
void net_addr_to_lwip(const struct net_addr *addr, ip_addr_t *out);
void net_addr_from_lwip(const ip_addr_t *ip, u16_t port, struct net_addr *out);

/* ---- shard/stack.c ---- */
/* One turn of the loop: rx, run, output, timers, tx, idle. */
void net_stack_round(struct net_stack *stack);

/* ---- shard/stats.c ---- */
void net_stats_start(struct net_stack *stack);
uint64_t net_resident_kib(void); /* hugepages included; reads a file */
void net_stats_say(struct net_stack *stack);

/* ---- tcp/random.c ---- */
int net_isn_init(void);
u16_t net_ip_id(const ip4_addr_t *dest);

static inline uint32_t net_now_ms(void)
{
	return (uint32_t)(net_the.now_ns / 1000000);
}

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
	if (__builtin_expect(conn->more->pollers != NULL, 0))
		net_poll_wake(conn->more->pollers,
			      NET_READABLE | NET_PEER_CLOSED);
}

static inline void net_conn_wake_writer(struct net_conn *conn)
{
	net_wake(conn->writer);
	if (__builtin_expect(conn->more->pollers != NULL, 0))
		net_poll_wake(conn->more->pollers, NET_WRITABLE);
}

static inline void net_conn_wake_all(struct net_conn *conn)
{
	net_wake(conn->reader);
	net_wake(conn->writer);
	if (__builtin_expect(conn->more->pollers != NULL, 0))
		net_poll_wake(conn->more->pollers, ~0u);
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
