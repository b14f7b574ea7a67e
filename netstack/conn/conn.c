/*
 * Connections: their life, what lwIP tells of them, waiting.
 *
 * lwIP's one event function records what happened and makes coroutines ready;
 * everything else runs in the coroutine that asked for it.
 */
#include "netstack/recovery/path.h"

#include <errno.h>
#include <string.h>

/* ---- life ---- */

const struct net_conn_more net_conn_nothing = {.read_deadline = CORO_FOREVER,
					       .write_deadline = CORO_FOREVER};

struct net_conn_more *net_conn_more(struct net_conn *conn)
{
	struct net_conn_more *more = (struct net_conn_more *)conn->more;

	if (more != &net_conn_nothing)
		return more;
	more = net_mem_malloc(sizeof(*more));
	if (!more)
		return NULL;
	*more = net_conn_nothing;
	conn->more = more;
	return more;
}

/* Before anything has passed: without memory it is not counted. */
static void begin_counting(struct net_conn *conn)
{
	struct net_conn_more *more = net_conn_more(conn);

	if (!more)
		return;
	more->counted = true;
	net_the.n_counted++;
}

void *net_conn_alloc(void)
{
	struct net_conn *conn = net_conn_slab_alloc();

	if (!conn)
		return NULL;
	memset(conn, 0, sizeof(*conn));
	conn->pcb_live = true;
	conn->more = &net_conn_nothing;
	if (net_the.n_counted < net_the.max_counted)
		begin_counting(conn);
	net_timer_init(conn);
	net_the.n_conns++;
	return conn;
}

/* Frees the memory once nobody is left: lwIP, an owner, a waiter. */
void net_conn_put(struct net_conn *conn)
{
	net_client_check(conn);
	if (conn->pcb_live || conn->owned || conn->waiters || conn->in_output ||
	    conn->more->pollers || conn->served)
		return;
	net_rxq_clear(conn);
	net_the.n_counted -= conn->more->counted;
	if (conn->more != &net_conn_nothing)
		net_mem_free(net_conn_more(conn));
	net_conn_slab_free(conn);
}

/*
 * Why lwIP has freed the pcb where it does not say: it tells nobody of one in
 * SYN_RCVD, and a dialed one gets there when the peer dials, too.
 */
static int untold_error(const struct net_conn *conn)
{
	if (conn->connecting &&
	    (u32_t)(tcp_ticks - conn->pcb.tmr) >
		    TCP_SYN_RCVD_TIMEOUT / TCP_SLOW_INTERVAL)
		return -ETIMEDOUT;
	if (conn->connecting)
		return -ECONNREFUSED;
	return conn->eof ? -EPIPE : -ECONNABORTED;
}

/* lwIP has freed the pcb, on whatever path. */
void net_conn_pcb_freed(struct net_conn *conn)
{
	if (conn->hashed)
		net_the.stats.closed++;
	net_demux_remove(conn);
	coro_timer_cancel(net_the.sched, &conn->timer);
	net_half_open_ends(conn);
	net_rec_free(conn);
	if (conn->pending)
		net_listener_forget(conn);
	net_time_wait_leave(conn);
	net_orphan_leave(conn);
	conn->pcb_live = false;
	net_ooseq_count(conn);
	net_the.n_conns--;
	if (!conn->err)
		conn->err = (int16_t)untold_error(conn);
	net_conn_wake_all(conn);
	net_conn_put(conn);
}

/* ---- what lwIP tells ---- */

static int error_of(const struct net_conn *conn, err_t err)
{
	switch (err) {
	case ERR_RST:
		net_the.stats.reset++;
		return conn->connecting ? -ECONNREFUSED : -ECONNRESET;
	case ERR_ABRT:
		net_the.stats.timed_out++;
		return -ETIMEDOUT;
	case ERR_CLSD:
		return -EPIPE;
	default:
		return -EIO;
	}
}

static void open_window(struct tcp_pcb *pcb, unsigned len)
{
	while (len) {
		u16_t part = (u16_t)LWIP_MIN(len, 0xffff);

		tcp_recved(pcb, part);
		len -= part;
	}
}

/*
 * How many of len bytes that have been read the window opens by. While memory
 * is short that is less: what has been announced stays announced, and the rest
 * is made up for when the queue is empty and memory is there again.
 */
static unsigned window_step(const struct net_conn *conn, unsigned len)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	u32_t most = LWIP_MIN(net_the.rcv_most, TCP_WND_MAX(pcb));
	u32_t room = most > pcb->rcv_wnd ? most - pcb->rcv_wnd : 0;

	if (!conn->rx_tail && !pcb->refused_data)
		return room;
	return LWIP_MIN(len, room);
}

/*
 * Cold: memory is short, or was. lwIP tells the peer when the window has opened
 * by a quarter of the largest one, which a small one never does: RFC 1122
 * 4.2.3.3 has half of it.
 */
__attribute__((noinline)) static void open_carefully(struct net_conn *conn,
						     unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u32_t edge;

	open_window(pcb, window_step(conn, len));
	edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	if (net_the.rcv_most < TCP_WND && pcb->state >= ESTABLISHED &&
	    (s32_t)(edge - pcb->rcv_ann_right_edge) >=
		    (s32_t)(net_the.rcv_most / 2))
		tcp_ack_now(pcb);
}

__attribute__((noinline)) static void open_slowly(struct net_conn *conn,
						  unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (net_the.rcv_most < TCP_WND ||
	    (!conn->rx_tail && pcb->rcv_wnd + len < TCP_WND_MAX(pcb)))
		open_carefully(conn, len);
	else
		open_window(pcb, len);
	if (pcb->flags & TF_ACK_NOW) /* the port had no room for it */
		net_conn_queue_output(conn);
}

/*
 * Mostly memory suffices, nothing else is unread, and the window's edge has
 * moved by less than a segment: then the peer is not told, and what is
 * announced stays as lwIP settled it when the bytes came (RFC 9293 3.8.6.2.2).
 */
long net_conn_recved(struct net_conn *conn, unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u32_t wnd = pcb->rcv_wnd + len;
	u32_t step = pcb->rcv_nxt + wnd - pcb->rcv_ann_right_edge;

	if (__builtin_expect(step < pcb->mss && wnd == TCP_WND_MAX(pcb) &&
				     net_the.rcv_most >= TCP_WND &&
				     !(pcb->flags & TF_ACK_NOW),
			     1))
		pcb->rcv_wnd = wnd;
	else
		open_slowly(conn, len);
	return (long)len;
}

static err_t on_recv(struct net_conn *conn, struct pbuf *p)
{
	if (!p) {
		if (conn) {
			conn->eof = true;
			net_conn_wake_reader(conn);
		}
		return ERR_OK;
	}
	if (!conn || conn->rd_shut) {
		if (conn)
			net_conn_recved(conn, p->tot_len);
		pbuf_free(p);
		return ERR_OK;
	}
	net_count_bytes(conn, p->tot_len, 0);
	net_rxq_append(conn, p);
	net_conn_wake_reader(conn);
	return ERR_OK;
}

static void dialed(struct net_conn *conn)
{
	conn->connecting = false;
	net_wake(conn->writer);
}

/* lwIP's events. arg is the connection, NULL once its owner has closed it. */
err_t lwip_tcp_event(void *arg, struct tcp_pcb *pcb, enum lwip_event event,
		     struct pbuf *p, u16_t size, err_t err)
{
	struct net_conn *conn = arg;

	switch (event) {
	case LWIP_EVENT_ACCEPT:
		if (!pcb)
			return ERR_OK;
		if (!net_conn_of(pcb)->connecting)
			return net_listener_established(net_conn_of(pcb));
		dialed(conn); /* and dialed by the peer */
		break;
	case LWIP_EVENT_RECV:
		return on_recv(conn, p);
	case LWIP_EVENT_SENT:
		net_rec_acked(net_conn_of(pcb));
		if (!conn)
			break;
		net_count_bytes(conn, 0, size);
		net_conn_wake_writer(conn);
		break;
	case LWIP_EVENT_CONNECTED:
		if (conn)
			dialed(conn);
		break;
	case LWIP_EVENT_ERR:
		if (conn) {
			conn->err = (int16_t)error_of(conn, err);
			net_conn_wake_all(conn);
		}
		break;
	case LWIP_EVENT_POLL:
		break;
	}
	return ERR_OK;
}

/* ---- waiting ---- */

__attribute__((cold)) int net_conn_refusal(const struct net_conn *conn)
{
	if (!conn || !conn->owned || conn->lingering)
		return -EBADF;
	return conn->cancelled ? -ECANCELED : -EBUSY;
}

int net_conn_wait_begin(struct net_conn *conn, struct coro **slot)
{
	struct coro *self = coro_self();

	if (conn->watched)
		return -EAGAIN;
	if (!self)
		return -EPERM;
	if (*slot)
		return -EBUSY;
	if (net_the.draining)
		return -ECANCELED;
	*slot = self;
	conn->waiters++;
	return 0;
}

int net_conn_wait_end(struct net_conn *conn, struct coro **slot, int err)
{
	conn->waiters--;
	*slot = NULL;
	if (net_the.draining && err == 0)
		return -ECANCELED;
	if (conn->owned)
		return err;
	net_conn_put(conn); /* closed by another coroutine meanwhile */
	return -EBADF;
}

int net_conn_wait(struct net_conn *conn, struct coro **slot,
		  int64_t deadline_ns)
{
	int err = net_conn_wait_begin(conn, slot);

	if (err < 0)
		return err;
	err = deadline_ns == CORO_FOREVER ? coro_park()
					  : coro_park_until(deadline_ns);
	return net_conn_wait_end(conn, slot, err);
}

/* Makes every call blocked on it return, with err. */
void net_conn_kill(struct net_conn *conn, int err)
{
	if (!conn->err)
		conn->err = (int16_t)err;
	net_conn_wake_all(conn);
}

/* ---- output ---- */

void net_conn_queue_output(struct net_conn *conn)
{
	if (conn->in_output)
		return;
	conn->in_output = true;
	conn->output_next = NULL;
	if (net_the.output_tail)
		net_the.output_tail->output_next = conn;
	else
		net_the.output_head = conn;
	net_the.output_tail = conn;
}

/*
 * tcp_in.c is built to call this in place of tcp_output(): what a burst of
 * segments acknowledges or asks for is sent once, not once a segment. The ACK
 * of RFC 5681 4.2 is so delayed by no more than the rest of the round. What a
 * handshake says is said at once.
 */
err_t net_tcp_output(struct tcp_pcb *pcb)
{
	if (pcb->state < ESTABLISHED)
		return tcp_output(pcb);
	if (pcb->unsent || (pcb->flags & TF_ACK_NOW))
		net_conn_queue_output(net_conn_of(pcb));
	return ERR_OK;
}

static inline void output_now(struct net_conn *conn)
{
	err_t err;

	net_rec_before_output(conn);
	if (__builtin_expect(conn->pcb.flags & NET_TF_PATH, 0))
		net_path_review(conn);
	err = tcp_output(&conn->pcb);
	/* Nagle's algorithm holds the segment that the ACK would go with. */
	if (err == ERR_OK && (conn->pcb.flags & TF_ACK_NOW))
		err = tcp_send_empty_ack(&conn->pcb);
	if (err == ERR_MEM || err == ERR_BUF)
		net_conn_queue_output(conn); /* the port, or memory, is short */
	net_send_went_out(conn);
}

void net_conn_output_now(struct net_conn *conn)
{
	output_now(conn);
}

static void output(struct net_conn *conn)
{
	if (!conn->pcb_live) {
		net_conn_put(conn);
		return;
	}
	output_now(conn);
	net_timer_check(conn);
}

/*
 * One tcp_output() for each connection that has something to send since the
 * last round, in the order in which they had it. While no port takes more the
 * others keep their places.
 */
void net_output_all(void)
{
	struct net_conn *last = net_the.output_tail, *conn = NULL;

	while (conn != last && !net_eth_busy()) {
		conn = net_the.output_head;
		net_the.output_head = conn->output_next;
		if (!net_the.output_head)
			net_the.output_tail = NULL;
		conn->in_output = false;
		output(conn);
	}
}
