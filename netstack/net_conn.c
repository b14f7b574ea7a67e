/*
 * Connections: their life, reading, writing, closing.
 *
 * lwIP's one event function records what happened and makes coroutines ready;
 * everything else runs in the coroutine that asked for it.
 */
#include "netstack/net_priv.h"

#include <errno.h>
#include <string.h>

/* ---- life ---- */

void *net_conn_alloc(void)
{
	struct net_conn *conn = net_conn_slab_alloc();

	if (!conn)
		return NULL;
	memset(conn, 0, sizeof(*conn));
	conn->pcb_live = true;
	conn->read_deadline = CORO_FOREVER;
	conn->write_deadline = CORO_FOREVER;
	net_timer_init(conn);
	net_the.n_conns++;
	return conn;
}

void net_conn_drop_received(struct net_conn *conn)
{
	while (conn->rx_head) {
		struct pbuf *p = conn->rx_head;

		conn->rx_head = p->next;
		p->next = NULL;
		p->tot_len = p->len;
		pbuf_free(p);
	}
	conn->rx_tail = NULL;
}

/* Frees the memory once nobody is left: lwIP, an owner, a waiter. */
void net_conn_put(struct net_conn *conn)
{
	if (conn->pcb_live || conn->owned || conn->waiters || conn->in_output)
		return;
	net_conn_drop_received(conn);
	net_conn_slab_free(conn);
}

/* lwIP has freed the pcb, on whatever path. */
void net_conn_pcb_freed(struct net_conn *conn)
{
	if (conn->hashed)
		net_the.stats.closed++;
	net_demux_remove(conn);
	coro_timer_cancel(net_the.sched, &conn->timer);
	if (conn->pending)
		net_listener_forget(conn);
	conn->pcb_live = false;
	net_the.n_conns--;
	if (!conn->err)
		conn->err = conn->eof ? -EPIPE : -ECONNABORTED;
	net_wake(conn->reader);
	net_wake(conn->writer);
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

/*
 * A small piece that has to wait behind others would pin a whole mbuf: it is
 * copied into memory of its own size.
 */
static struct pbuf *compact(struct pbuf *p)
{
	struct pbuf *copy;

	if (p->tot_len > 512)
		return p;
	copy = pbuf_alloc(PBUF_RAW, p->tot_len, PBUF_RAM);
	if (!copy)
		return p;
	pbuf_copy_partial(p, copy->payload, p->tot_len, 0);
	pbuf_free(p);
	return copy;
}

/*
 * Appends a chain, each pbuf on its own. Where lwIP trimmed what had come
 * before, empty pbufs lead the chain: a reader would take one for the end.
 */
static void queue_received(struct net_conn *conn, struct pbuf *p)
{
	struct pbuf *next;

	if (conn->rx_head)
		p = compact(p);
	for (; p; p = next) {
		next = p->next;
		p->next = NULL;
		if (p->len == 0) {
			p->tot_len = 0;
			pbuf_free(p);
			continue;
		}
		if (conn->rx_tail)
			conn->rx_tail->next = p;
		else
			conn->rx_head = p;
		conn->rx_tail = p;
	}
}

static void recved(struct net_conn *conn, unsigned len)
{
	while (len) {
		u16_t part = (u16_t)LWIP_MIN(len, 0xffff);

		tcp_recved(&conn->pcb, part);
		len -= part;
	}
}

static err_t on_recv(struct net_conn *conn, struct pbuf *p)
{
	if (!p) {
		if (conn) {
			conn->eof = true;
			net_wake(conn->reader);
		}
		return ERR_OK;
	}
	if (!conn || conn->rd_shut) {
		if (conn)
			recved(conn, p->tot_len);
		pbuf_free(p);
		return ERR_OK;
	}
	queue_received(conn, p);
	net_wake(conn->reader);
	return ERR_OK;
}

/* lwIP's events. arg is the connection, NULL once its owner has closed it. */
err_t lwip_tcp_event(void *arg, struct tcp_pcb *pcb, enum lwip_event event,
		     struct pbuf *p, u16_t size, err_t err)
{
	struct net_conn *conn = arg;

	switch (event) {
	case LWIP_EVENT_ACCEPT:
		return pcb ? net_listener_established(net_conn_of(pcb))
			   : ERR_OK;
	case LWIP_EVENT_RECV:
		return on_recv(conn, p);
	case LWIP_EVENT_SENT:
		if (conn)
			net_wake(conn->writer);
		break;
	case LWIP_EVENT_CONNECTED:
		if (conn) {
			conn->connecting = false;
			net_wake(conn->writer);
		}
		break;
	case LWIP_EVENT_ERR:
		if (conn) {
			conn->err = (int16_t)error_of(conn, err);
			net_wake(conn->reader);
			net_wake(conn->writer);
		}
		break;
	case LWIP_EVENT_POLL:
		break;
	}
	return ERR_OK;
}

/* ---- waiting ---- */

int net_conn_wait(struct net_conn *conn, struct coro **slot,
		  int64_t deadline_ns)
{
	struct coro *self = coro_self();
	int err;

	if (!self)
		return -EPERM;
	if (*slot)
		return -EBUSY;
	if (net_the.draining)
		return -ECANCELED;
	*slot = self;
	conn->waiters++;
	err = deadline_ns == CORO_FOREVER ? coro_park()
					  : coro_park_until(deadline_ns);
	conn->waiters--;
	*slot = NULL;
	if (net_the.draining && err == 0)
		return -ECANCELED;
	if (conn->owned)
		return err;
	net_conn_put(conn); /* closed by another coroutine meanwhile */
	return -EBADF;
}

/* Makes every call blocked on it return, with err. */
void net_conn_kill(struct net_conn *conn, int err)
{
	if (!conn->err)
		conn->err = (int16_t)err;
	net_wake(conn->reader);
	net_wake(conn->writer);
}

/* ---- output ---- */

void net_conn_queue_output(struct net_conn *conn)
{
	if (conn->in_output)
		return;
	conn->in_output = true;
	conn->link_next = net_the.output_list;
	net_the.output_list = conn;
}

/* One tcp_output() for each connection written to since the last round. */
void net_output_all(void)
{
	struct net_conn *conn = net_the.output_list;

	net_the.output_list = NULL;
	while (conn) {
		struct net_conn *next = conn->link_next;

		conn->in_output = false;
		if (conn->pcb_live) {
			tcp_output(&conn->pcb);
			net_timer_check(conn);
		} else {
			net_conn_put(conn);
		}
		conn = next;
	}
}

/* ---- reading ---- */

static void take_head(struct net_conn *conn)
{
	struct pbuf *p = conn->rx_head;

	conn->rx_head = p->next;
	if (!conn->rx_head)
		conn->rx_tail = NULL;
	p->next = NULL;
	p->tot_len = p->len;
	conn->rx_off = 0;
}

/* Blocks until there is something to take: 1, 0 at the end, or an error. */
static int wait_readable(struct net_conn *conn)
{
	while (!conn->rx_head) {
		int err;

		if (conn->rd_shut)
			return -ENOTCONN;
		if (conn->eof)
			return 0;
		if (conn->err)
			return conn->err;
		err = net_conn_wait(conn, &conn->reader, conn->read_deadline);
		if (err < 0)
			return err;
	}
	return 1;
}

long net_recv_view(struct net_conn *conn, struct net_view *view)
{
	struct pbuf *p;
	int ready = wait_readable(conn);

	if (ready <= 0)
		return ready;
	p = conn->rx_head;
	view->data = (const uint8_t *)p->payload + conn->rx_off;
	view->len = p->len - conn->rx_off;
	view->owner = p;
	take_head(conn);
	if (conn->pcb_live)
		recved(conn, (unsigned)view->len);
	return (long)view->len;
}

void net_view_release(struct net_conn *conn, struct net_view *view)
{
	if (view->owner)
		pbuf_free(view->owner);
	*view = (struct net_view){0};
}

long net_recv(struct net_conn *conn, void *buf, size_t len)
{
	size_t done = 0;
	int ready;

	if (len == 0)
		return 0;
	ready = wait_readable(conn);
	if (ready <= 0)
		return ready;
	while (conn->rx_head && done < len) {
		struct pbuf *p = conn->rx_head;
		size_t part = p->len - conn->rx_off;

		if (part > len - done)
			part = len - done;
		memcpy((uint8_t *)buf + done,
		       (const uint8_t *)p->payload + conn->rx_off, part);
		done += part;
		conn->rx_off += (uint32_t)part;
		if (conn->rx_off == p->len) {
			take_head(conn);
			pbuf_free(p);
		}
	}
	if (conn->pcb_live)
		recved(conn, (unsigned)done);
	return (long)done;
}

long net_recv_full(struct net_conn *conn, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		long n = net_recv(conn, (uint8_t *)buf + done, len - done);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (long)done;
}

/* ---- writing ---- */

static int writable_error(const struct net_conn *conn)
{
	if (conn->err)
		return conn->err;
	if (!conn->pcb_live || conn->wr_shut)
		return -EPIPE;
	return 0;
}

/* Nothing in flight would ever make room: the memory itself is short. */
static bool stuck(const struct tcp_pcb *pcb)
{
	return !pcb->unacked && !pcb->unsent;
}

/* Room in the send buffer, in bytes and in pbufs. */
static size_t room(const struct tcp_pcb *pcb)
{
	if (pcb->snd_queuelen >= TCP_SND_QUEUELEN - 64)
		return 0;
	return LWIP_MIN(pcb->snd_buf, 0xffffu);
}

long net_writable(struct net_conn *conn)
{
	for (;;) {
		int err = writable_error(conn);
		size_t n;

		if (err < 0)
			return err;
		n = room(&conn->pcb);
		if (n)
			return (long)n;
		net_conn_queue_output(conn);
		err = net_conn_wait(conn, &conn->writer, conn->write_deadline);
		if (err < 0)
			return err;
	}
}

long net_send(struct net_conn *conn, const void *buf, size_t len)
{
	if (len == 0)
		return writable_error(conn);
	for (;;) {
		long n = net_writable(conn);
		err_t err;

		if (n < 0)
			return n;
		if ((size_t)n > len)
			n = (long)len;
		err = tcp_write(&conn->pcb, buf, (u16_t)n,
				TCP_WRITE_FLAG_COPY);
		if (err == ERR_OK) {
			net_conn_queue_output(conn);
			return n;
		}
		if (err != ERR_MEM)
			return -EPIPE;
		if (stuck(&conn->pcb))
			return -ENOMEM;
		net_conn_queue_output(conn);
		n = net_conn_wait(conn, &conn->writer, conn->write_deadline);
		if (n < 0)
			return n;
	}
}

long net_send_all(struct net_conn *conn, const void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		long n = net_send(conn, (const uint8_t *)buf + done,
				  len - done);

		if (n < 0)
			return n;
		done += (size_t)n;
	}
	return (long)done;
}

long net_send_view(struct net_conn *conn, struct net_view *view)
{
	long n = net_send_all(conn, view->data, view->len);

	net_view_release(conn, view);
	return n;
}

/* ---- the end ---- */

int net_shutdown(struct net_conn *conn, enum net_shut how)
{
	if (!conn->pcb_live)
		return -ENOTCONN;
	if ((how & NET_SHUT_RD) && !conn->rd_shut) {
		unsigned unread = 0;

		conn->rd_shut = true;
		for (struct pbuf *p = conn->rx_head; p; p = p->next)
			unread += p->len;
		unread -= conn->rx_off;
		conn->rx_off = 0;
		net_conn_drop_received(conn);
		recved(conn, unread);
		net_wake(conn->reader);
	}
	if ((how & NET_SHUT_WR) && !conn->wr_shut) {
		if (tcp_shutdown(&conn->pcb, 0, 1) != ERR_OK)
			return -ENOTCONN;
		conn->wr_shut = true;
		net_wake(conn->writer);
		net_conn_queue_output(conn);
		net_window_drain();
	}
	return 0;
}

/* The owner lets go; the pcb may live on to say goodbye. */
static void disown(struct net_conn *conn)
{
	conn->owned = false;
	net_wake(conn->reader);
	net_wake(conn->writer);
	net_conn_put(conn);
}

void net_close(struct net_conn *conn)
{
	if (conn->pcb_live) {
		conn->pcb.callback_arg = NULL;
		tcp_close(&conn->pcb); /* if memory is short: TF_CLOSEPEND */
		net_window_drain();
	}
	if (conn->pcb_live)
		net_timer_check(conn);
	disown(conn);
}

void net_abort(struct net_conn *conn)
{
	if (conn->pcb_live) {
		conn->pcb.callback_arg = NULL;
		tcp_abort(&conn->pcb);
	}
	disown(conn);
}

/* ---- properties ---- */

void net_set_read_deadline(struct net_conn *conn, int64_t deadline_ns)
{
	conn->read_deadline = deadline_ns;
}

void net_set_write_deadline(struct net_conn *conn, int64_t deadline_ns)
{
	conn->write_deadline = deadline_ns;
}

void net_set_nodelay(struct net_conn *conn, bool on)
{
	if (on)
		tcp_nagle_disable(&conn->pcb);
	else
		tcp_nagle_enable(&conn->pcb);
}

int net_set_keepalive(struct net_conn *conn, unsigned idle_s,
		      unsigned interval_s, unsigned count)
{
	if (!conn->pcb_live)
		return -ENOTCONN;
	if (idle_s == 0) {
		ip_reset_option(&conn->pcb, SOF_KEEPALIVE);
		return 0;
	}
	if (idle_s > 1000000 || interval_s == 0 || interval_s > 1000000 ||
	    count == 0 || count > 255)
		return -EINVAL;
	conn->pcb.keep_idle = idle_s * 1000;
	conn->pcb.keep_intvl = interval_s * 1000;
	conn->pcb.keep_cnt = count;
	ip_set_option(&conn->pcb, SOF_KEEPALIVE);
	net_timer_check(conn);
	return 0;
}

struct net_addr net_local_addr(const struct net_conn *conn)
{
	struct net_addr addr;

	net_addr_from_lwip(&conn->pcb.local_ip, conn->pcb.local_port, &addr);
	return addr;
}

struct net_addr net_peer_addr(const struct net_conn *conn)
{
	struct net_addr addr;

	net_addr_from_lwip(&conn->pcb.remote_ip, conn->pcb.remote_port, &addr);
	return addr;
}

struct net_stack *net_conn_stack(const struct net_conn *conn)
{
	return &net_the;
}
