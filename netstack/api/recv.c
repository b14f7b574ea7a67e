/*
 * Reading from a connection.
 */
#include "netstack/api/api.h"
#include "netstack/api/search.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

bool net_conn_readable(const struct net_conn *conn)
{
	return net_conn_read_state(conn) != NET_VIEW_WAIT;
}

/* Waits as conn's reader: 0, or why the call cannot go on. */
static int wait_for_bytes(struct net_conn *conn)
{
	int err = net_conn_wait(conn, &conn->reader, conn->ext->read_deadline);

	net_call_end(err);
	return err < 0 ? err : net_conn_enter(conn, NULL);
}

/* Blocks until there is something to take: 1, 0 at the end, or an error. */
static inline int wait_readable(struct net_conn *conn)
{
	int err = net_conn_enter(conn, conn ? conn->reader : NULL);
	long state;

	if (err < 0)
		return err;
	while ((state = net_conn_read_state(conn)) == NET_VIEW_WAIT) {
		err = wait_for_bytes(conn);
		if (err < 0)
			return err;
	}
	return (int)state;
}

/*
 * Called if the connection holds many views. A further one must not hold a
 * frame, and beyond a bound there is none.
 */
cold static int spare_frame(struct net_conn *conn)
{
	struct pbuf *p = net_rxq_head(conn), *copy;

	if (conn->n_views >= NET_VIEWS_MAX)
		return -ENOBUFS;
	if (!net_is_frame(p))
		return 0;
	copy = pbuf_alloc(PBUF_RAW, p->len, PBUF_RAM);
	if (!copy)
		return -ENOBUFS;
	memcpy(copy->payload, p->payload, p->len);
	net_rxq_replace_first(conn, copy);
	return 0;
}

static inline long take_first(struct net_conn *conn, struct net_view *view)
{
	unsigned off = conn->rx_off;
	struct pbuf *p = net_rxq_take(conn);

	net_view_out(conn, p, view);
	view->data = (const uint8_t *)p->payload + off;
	view->len = p->len - off;
	if (!conn->pcb_live)
		return (long)view->len;
	return net_conn_recved(conn, (unsigned)view->len);
}

__attribute__((noinline)) static long take_carefully(struct net_conn *conn,
						     struct net_view *view)
{
	int err = 0;

	if (conn->n_views >= NET_VIEWS_FRAMES)
		err = spare_frame(conn);
	if (err == 0 && !net_view_free && !net_view_new_slot())
		err = -ENOBUFS;
	return err < 0 ? err : take_first(conn, view);
}

/* Not inlined: its callers are a test and a jump, without a stack frame. */
__attribute__((noinline)) static long take_received(struct net_conn *conn,
						    struct net_view *view)
{
	if (unlikely(conn->n_views >= NET_VIEWS_FRAMES || !net_view_free))
		return take_carefully(conn, view);
	return take_first(conn, view);
}

/* Takes a view. Returns its length, why there is none, or NET_VIEW_WAIT. */
static inline long take_view(struct net_conn *conn, struct net_view *view)
{
	long state = net_conn_read_state(conn);

	return state == 1 ? take_received(conn, view) : state;
}

/* Waits inside, which takes a stack frame. */
cold static long view_traced(struct net_conn *conn, struct net_view *view)
{
	long n = take_view(conn, view);

	while (n == NET_VIEW_WAIT)
		n = net_view_woken(conn, view, net_view_wait(conn));
	return n;
}

cold static long view_cold(struct net_conn *conn, struct net_view *view)
{
	int err = net_conn_enter(conn, conn->reader);

	NET_CALL_COLD(conn, "net_recv_view", 0,
		      err < 0 ? err : view_traced(conn, view),
		      net_tls_calls(conn)->recv_view(conn, view));
}

/*
 * Idle connections with TLS are parked below this: neither it nor its caller
 * has a stack frame then.
 */
cold static long refuse_view(struct net_conn *conn, struct net_view *view)
{
	if (net_here()->sched && conn &&
	    conn->shard == (net_here()->shard | NET_SHARD_TLS))
		return net_tls_calls(conn)->recv_view(conn, view);
	if (net_here()->sched && conn &&
	    (conn->shard & (NET_SHARD_TRACED | NET_SHARD_TLS)))
		return view_cold(conn, view);
	NET_CHECK_CONN_IN(conn, "net_recv_view");
	return net_conn_refusal(conn);
}

__attribute__((noinline)) long net_view_take(struct net_conn *conn,
					     struct net_view *view)
{
	if (unlikely(!conn || !net_here()->sched ||
		     conn->shard != net_here()->shard || conn->reader ||
		     (conn->gate & NET_GATE_CALL) != NET_GATE_CALL_OPEN))
		return refuse_view(conn, view);
	return take_view(conn, view);
}

__attribute__((noinline)) static int begin_wait(struct net_conn *conn)
{
	return net_conn_wait_begin(conn, &conn->reader);
}

/*
 * Idle connections are parked in here, a million of them, and each keeps what
 * lies on its stack between its beginning and here. Both calls are the last
 * thing this does, so it has no frame then. NET_VIEW_WAIT is added to an error
 * of the wait's beginning, to distinguish it from one of its end.
 */
__attribute__((noinline)) int net_view_wait(struct net_conn *conn)
{
	int err = begin_wait(conn);

	if (unlikely(err < 0))
		return err + NET_VIEW_WAIT;
	return coro_park_in_call(conn->ext->read_deadline);
}

cold static long woken_otherwise(struct net_conn *conn, struct net_view *view,
				 int err)
{
	if (err < NET_VIEW_WAIT) /* it did not wait */
		return err - NET_VIEW_WAIT;
	err = net_conn_wait_end(conn, &conn->reader, err);
	net_call_end(err);
	if (err == 0)
		err = net_conn_enter(conn, NULL);
	return err < 0 ? err : take_view(conn, view);
}

__attribute__((noinline)) long net_view_woken(struct net_conn *conn,
					      struct net_view *view, int err)
{
	if (unlikely(err != 0 || net_here()->draining ||
		     (conn->gate & NET_GATE_CALL) != NET_GATE_CALL_OPEN))
		return woken_otherwise(conn, view, err);
	conn->waiters--;
	conn->reader = NULL;
	return take_view(conn, view);
}

/* For callers that do not inline net_view_take(). */
long net_recv_view(struct net_conn *conn, struct net_view *view)
{
	long n = net_view_take(conn, view);

	while (n == NET_VIEW_WAIT)
		n = net_view_woken(conn, view, net_view_wait(conn));
	return n;
}

void net_view_release(struct net_conn *conn, struct net_view *view)
{
	struct pbuf *p;

	NET_CHECK_CONN(conn);
	p = view->owner ? net_view_back(view) : NULL;
	if (p)
		net_pbuf_free(p);
	*view = (struct net_view){0};
}

/* Copies what is there, at most len bytes. */
static size_t copy_bytes(struct net_conn *conn, void *buf, size_t len)
{
	size_t done = 0;

	while (conn->rx_tail && done < len) {
		struct pbuf *p = net_rxq_head(conn);
		size_t part = p->len - conn->rx_off;

		if (part > len - done)
			part = len - done;
		memcpy((uint8_t *)buf + done,
		       (const uint8_t *)p->payload + conn->rx_off, part);
		done += part;
		conn->rx_off = (uint16_t)(conn->rx_off + part);
		if (conn->rx_off == p->len)
			pbuf_free(net_rxq_take(conn));
	}
	return done;
}

/* Opens the window by what was taken. */
static long open_window(struct net_conn *conn, size_t len)
{
	if (conn->pcb_live)
		net_conn_recved(conn, (unsigned)len);
	return (long)len;
}

NET_HOT long receive_data(struct net_conn *conn, void *buf, size_t len)
{
	int ready;

	if (len == 0)
		return 0;
	if (!buf)
		return -EINVAL;
	ready = wait_readable(conn);
	if (ready <= 0)
		return ready;
	return open_window(conn, copy_bytes(conn, buf, len));
}

cold static long receive_tls(struct net_conn *conn, void *buf, size_t len)
{
	const struct iovec iov = {.iov_base = buf, .iov_len = len};

	if (len == 0)
		return 0;
	if (!buf)
		return -EINVAL;
	return net_tls_calls(conn)->recvv(conn, &iov, 1,
					  (long)LWIP_MIN(len, LONG_MAX));
}

cold static long receive_traced(struct net_conn *conn, void *buf, size_t len)
{
	NET_CALL_COLD(conn, "net_recv", len, receive_data(conn, buf, len),
		      receive_tls(conn, buf, len));
}

long net_recv(struct net_conn *conn, void *buf, size_t len)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return receive_traced(conn, buf, len);
	return receive_data(conn, buf, len);
}

long net_peek(struct net_conn *conn, void *buf, size_t len)
{
	int ready;

	NET_CHECK_CONN(conn);
	if (len == 0)
		return 0;
	if (!buf)
		return -EINVAL;
	if (net_is_tls(conn))
		return net_tls_calls(conn)->peek(conn, buf, len);
	ready = wait_readable(conn);
	if (ready <= 0)
		return ready;
	return (long)net_rxq_look(conn->rx_tail, conn->rx_off, buf, len);
}

static long receive_vectors(struct net_conn *conn, const struct iovec *iov,
			    unsigned n, long total)
{
	size_t done = 0;
	int ready;

	if (total <= 0)
		return total;
	ready = wait_readable(conn);
	if (ready <= 0)
		return ready;
	for (unsigned i = 0; i < n && conn->rx_tail; i++)
		done += copy_bytes(conn, iov[i].iov_base, iov[i].iov_len);
	return open_window(conn, done);
}

cold static long receive_vectors_traced(struct net_conn *conn,
					const struct iovec *iov, unsigned n,
					long total)
{
	NET_CALL_COLD(
		conn, "net_recvv", total < 0 ? 0 : (size_t)total,
		receive_vectors(conn, iov, n, total),
		total <= 0 ? total
			   : net_tls_calls(conn)->recvv(conn, iov, n, total));
}

long net_recvv(struct net_conn *conn, const struct iovec *iov, unsigned n)
{
	long total = net_iov_bytes(iov, n);

	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return receive_vectors_traced(conn, iov, n, total);
	return receive_vectors(conn, iov, n, total);
}

static long receive_full(struct net_conn *conn, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		long n = receive_data(conn, (uint8_t *)buf + done, len - done);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (long)done;
}

cold static long receive_full_tls(struct net_conn *conn, void *buf, size_t len)
{
	if (len && !buf)
		return -EINVAL;
	return len ? net_tls_calls(conn)->recv_full(conn, buf, len) : 0;
}

cold static long receive_full_traced(struct net_conn *conn, void *buf,
				     size_t len)
{
	NET_CALL_COLD(conn, "net_recv_full", len, receive_full(conn, buf, len),
		      receive_full_tls(conn, buf, len));
}

long net_recv_full(struct net_conn *conn, void *buf, size_t len)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return receive_full_traced(conn, buf, len);
	return receive_full(conn, buf, len);
}

/* ---- up to a delimiter ---- */

/*
 * Looks at what has come since the last time, at most up to `limit` bytes from
 * the start. Each call walks from the first piece: while the reader waits,
 * pieces may be copied elsewhere or discarded.
 */
static bool search_received(struct search *s, const struct net_conn *conn,
			    size_t limit)
{
	const struct pbuf *p = net_rxq_head(conn);
	size_t begin = 0,
	       off = conn->rx_off; /* of p: before its unread bytes */

	for (; p && s->seen < limit; p = net_rxq_next(conn, p), off = 0) {
		size_t end = begin + p->len - off;

		if (end > s->seen) {
			size_t skip = off + s->seen - begin;
			size_t len = LWIP_MIN(end, limit) - s->seen;

			if (search_bytes(s, (const uint8_t *)p->payload + skip,
					 len))
				return true;
		}
		begin = end;
	}
	return false;
}

/* Waits for more than has been seen: 1, or why none comes. */
static int wait_more(struct net_conn *conn)
{
	long state = net_conn_read_state(conn);
	int err;

	if (state == 1 && conn->eof) /* bytes, but no delimiter in them */
		return -ENODATA;
	if (state == 1)
		state = conn->err ? conn->err : NET_VIEW_WAIT;
	if (state != NET_VIEW_WAIT)
		return (int)state;
	err = wait_for_bytes(conn);
	if (err == 0 && conn->rd_shut) /* what was seen has been discarded */
		err = -ENOTCONN;
	return err < 0 ? err : 1;
}

static long receive_until(struct net_conn *conn, void *buf, size_t len,
			  const void *delim, size_t delim_len)
{
	size_t limit = LWIP_MIN(len, NET_RECV_UNTIL_MAX);
	int ready = net_conn_enter(conn, conn ? conn->reader : NULL);
	struct search s;

	if (ready < 0)
		return ready;
	ready = search_init(&s, buf, len, delim, delim_len);
	if (ready < 0)
		return ready;
	while (!search_received(&s, conn, limit)) {
		if (s.seen == limit || net_rcv_wnd_is_full(conn))
			return -EMSGSIZE;
		ready = wait_more(conn);
		if (ready <= 0)
			return ready;
	}
	return open_window(conn, copy_bytes(conn, buf, s.seen));
}

cold static long receive_until_traced(struct net_conn *conn, void *buf,
				      size_t len, const void *delim,
				      size_t delim_len)
{
	NET_CALL_COLD(conn, "net_recv_until", len,
		      receive_until(conn, buf, len, delim, delim_len),
		      net_tls_calls(conn)->recv_until(conn, buf, len, delim,
						      delim_len));
}

long net_recv_until(struct net_conn *conn, void *buf, size_t len,
		    const void *delim, size_t delim_len)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return receive_until_traced(conn, buf, len, delim, delim_len);
	return receive_until(conn, buf, len, delim, delim_len);
}
