/*
 * Reading plaintext.
 *
 * Each record becomes a pbuf of its length in a queue of the session, which a
 * view takes over and other calls copy from. Records are decrypted when a call
 * needs them, so the bytes that a slow reader leaves behind shut the window.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>
#include <string.h>

#include "netstack/api/search.h"

/*
 * Records in a row without data: tickets, KeyUpdate. Each costs computing and
 * brings the reader nothing.
 */
#define BARE_MAX 16u

/* Bytes of a pbuf that takes 16 KiB with its header. */
#define PLAIN_MAX (16384 - (int)LWIP_MEM_ALIGN_SIZE(sizeof(struct pbuf)))

/* ---- the queue of plaintext ---- */

/*
 * Exchanges the queues of received bytes and of plaintext, so that what conn/
 * does for the one serves the other. Undone by a second call, before anything
 * else happens.
 */
static void swap_queues(struct net_tls_session *s)
{
	struct net_conn *conn = s->base.conn;
	struct pbuf *tail = conn->rx_tail;
	uint16_t off = conn->rx_off;

	conn->rx_tail = s->rx_tail;
	conn->rx_off = s->rx_off;
	s->rx_tail = tail;
	s->rx_off = off;
}

void net_tls_clear_plain(struct net_tls_session *s)
{
	while (s->rx_tail) {
		swap_queues(s);
		pbuf_free(net_rxq_take(s->base.conn));
		swap_queues(s);
	}
}

static void append_plain(struct net_tls_session *s, struct pbuf *p)
{
	swap_queues(s);
	net_rxq_append_slowly(s->base.conn, p);
	swap_queues(s);
}

static struct pbuf *take_plain(struct net_tls_session *s)
{
	struct pbuf *p;

	swap_queues(s);
	p = net_rxq_take(s->base.conn);
	swap_queues(s);
	return p;
}

static unsigned plain_bytes(struct net_tls_session *s)
{
	unsigned bytes;

	swap_queues(s);
	bytes = net_rxq_bytes(s->base.conn);
	swap_queues(s);
	return bytes;
}

static size_t copy_plain(struct net_tls_session *s, uint8_t *buf, size_t len)
{
	size_t done = 0;

	while (s->rx_tail && done < len) {
		struct pbuf *p = s->rx_tail->next;
		size_t part =
			LWIP_MIN((size_t)(p->len - s->rx_off), len - done);

		memcpy(buf + done, (const uint8_t *)p->payload + s->rx_off,
		       part);
		done += part;
		s->rx_off = (uint16_t)(s->rx_off + part);
		if (s->rx_off == p->len)
			pbuf_free(take_plain(s));
	}
	return done;
}

/* ---- decrypting ---- */

/*
 * A record's plaintext is there: appends it, or as much as fits into a slab of
 * 16 KiB. Returns 1 or -ENOMEM.
 */
static long append_record(struct net_tls_session *s)
{
	int len = LWIP_MIN(SSL_pending(s->ssl), PLAIN_MAX);
	struct pbuf *p =
		len > 0 ? pbuf_alloc(PBUF_RAW, (uint16_t)len, PBUF_RAM) : NULL;

	if (!p)
		return -ENOMEM;
	if (SSL_read(s->ssl, p->payload, len) != len) {
		pbuf_free(p);
		return net_tls_fail(s, NULL);
	}
	s->bare = 0;
	append_plain(s, p);
	return 1;
}

/* No byte has come that OpenSSL could use. */
static long starved_state(struct net_tls_session *s)
{
	struct net_conn *conn = s->base.conn;

	if (conn->eof)
		return net_tls_fail(s, "the peer closed without close_notify");
	return conn->err ? conn->err : NET_VIEW_WAIT;
}

/*
 * Decrypts until there is one more record of data: 1, 0 (close_notify), an
 * error, or NET_VIEW_WAIT. Out of line: no frame of OpenSSL is on the stack
 * when the caller waits.
 */
__attribute__((noinline)) static long decrypt_record(struct net_tls_session *s)
{
	for (;;) {
		uint8_t byte;
		int result;

		if (!s->base.conn->rx_tail && !SSL_has_pending(s->ssl))
			return starved_state(s);
		net_tls_begin(s);
		result = SSL_peek(s->ssl, &byte, 1);
		if (result > 0)
			return append_record(s);
		switch (SSL_get_error(s->ssl, result)) {
		case SSL_ERROR_ZERO_RETURN:
			s->is_ended = true;
			return 0;
		case SSL_ERROR_WANT_READ:
			if (s->is_starved)
				return starved_state(s);
			if (++s->bare > BARE_MAX)
				return net_tls_fail(
					s, "too many records without data");
			/* a ticket leaves a buffer for an answer behind */
			SSL_free_buffers(s->ssl);
			break;
		default:
			return net_tls_fail(s, NULL);
		}
	}
}

/* Decrypts one record more: as decrypt_record(), or why it cannot. */
static long next_record(struct net_tls_session *s)
{
	long state;

	if (s->base.conn->rd_shut)
		return -ENOTCONN;
	if (s->err)
		return s->err;
	if (s->is_ended)
		return 0;
	if (!s->ssl)
		return s->base.conn->err ? s->base.conn->err : -ENOTCONN;
	if (!s->is_established)
		return -ENOTCONN;
	state = decrypt_record(s);
	if (unlikely(s->out)) /* a warning, such as no_renegotiation */
		net_tls_flush(s);
	net_tls_charge_open(s);
	return state;
}

long net_tls_read_state(struct net_tls_session *s)
{
	return s->rx_tail ? 1 : next_record(s);
}

/* ---- waiting ---- */

/* Waits as conn's reader: 0, or why the call cannot go on. */
static int wait_for_record(struct net_conn *conn)
{
	int err = net_conn_wait(conn, &conn->reader, conn->ext->read_deadline);

	net_call_end(err);
	return err < 0 ? err : net_conn_enter(conn, NULL);
}

/* Blocks until there is plaintext: 1, 0 at the end, or an error. */
static long wait_readable(struct net_conn *conn)
{
	int err = net_conn_enter(conn, conn->reader);
	long state;

	if (err < 0)
		return err;
	while ((state = net_tls_read_state(net_tls_of(conn))) ==
	       NET_VIEW_WAIT) {
		err = wait_for_record(conn);
		if (err < 0)
			return err;
	}
	return state;
}

/* ---- the calls ---- */

long net_tls_recvv(struct net_conn *conn, const struct iovec *iov, unsigned n,
		   long total)
{
	struct net_tls_session *s = net_tls_of(conn);
	long ready = wait_readable(conn);
	size_t done = 0;

	if (ready <= 0)
		return ready;
	for (unsigned i = 0; i < n && s->rx_tail; i++)
		done += copy_plain(s, iov[i].iov_base, iov[i].iov_len);
	return (long)done;
}

long net_tls_recv_full(struct net_conn *conn, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		struct iovec rest = {.iov_base = (uint8_t *)buf + done,
				     .iov_len = len - done};
		long n = net_tls_recvv(conn, &rest, 1, (long)rest.iov_len);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (long)done;
}

long net_tls_peek(struct net_conn *conn, void *buf, size_t len)
{
	struct net_tls_session *s = net_tls_of(conn);
	long state = wait_readable(conn);

	if (state <= 0)
		return state;
	while (state == 1 && plain_bytes(s) < LWIP_MIN(len, NET_RECV_UNTIL_MAX))
		state = next_record(s);
	return (long)net_rxq_look(s->rx_tail, s->rx_off, buf, len);
}

/* Not inlined: it has a frame, and its caller waits. */
__attribute__((noinline)) static long take_view(struct net_conn *conn,
						struct net_view *view)
{
	struct net_tls_session *s = net_tls_of(conn);
	long state = net_tls_read_state(s);
	unsigned off;
	struct pbuf *p;

	if (state != 1)
		return state == -ENOMEM && !s->err ? -ENOBUFS : state;
	if (conn->n_views >= NET_VIEWS_MAX ||
	    (!net_view_free && !net_view_new_slot()))
		return -ENOBUFS;
	off = s->rx_off;
	p = take_plain(s);
	s->rx_off = 0;
	net_view_out(conn, p, view);
	view->data = (const uint8_t *)p->payload + off;
	view->len = p->len - off;
	return (long)view->len;
}

/* Idle connections are parked in here. */
long net_tls_recv_view(struct net_conn *conn, struct net_view *view)
{
	long n = net_conn_enter(conn, conn->reader);

	while (n == 0 && (n = take_view(conn, view)) == NET_VIEW_WAIT)
		n = wait_for_record(conn);
	return n;
}

/* ---- up to a delimiter ---- */

/* Looks at the plaintext that no search has seen yet, up to limit. */
static bool search_plain(struct search *search, const struct net_tls_session *s,
			 size_t limit)
{
	uint8_t piece[512];
	size_t n;

	while (search->seen < limit) {
		n = net_rxq_look(s->rx_tail, s->rx_off + search->seen, piece,
				 LWIP_MIN(sizeof(piece), limit - search->seen));
		if (n == 0)
			return false;
		if (search_bytes(search, piece, n))
			return true;
	}
	return false;
}

/* Waits for one more record: 1, or why none comes. */
static int wait_more(struct net_conn *conn)
{
	long state;

	while ((state = next_record(net_tls_of(conn))) == NET_VIEW_WAIT) {
		int err = wait_for_record(conn);

		if (err < 0)
			return err;
	}
	if (state == 0 && net_tls_of(conn)->rx_tail)
		return -ENODATA; /* bytes, but no delimiter in them */
	return (int)state;
}

long net_tls_recv_until(struct net_conn *conn, void *buf, size_t len,
			const void *delim, size_t delim_len)
{
	size_t limit = LWIP_MIN(len, NET_RECV_UNTIL_MAX);
	long ready = net_conn_enter(conn, conn->reader);
	struct search search;

	if (ready < 0)
		return ready;
	ready = search_init(&search, buf, len, delim, delim_len);
	if (ready < 0)
		return ready;
	while (!search_plain(&search, net_tls_of(conn), limit)) {
		if (search.seen == limit)
			return -EMSGSIZE;
		ready = wait_more(conn);
		if (ready <= 0)
			return ready;
	}
	return (long)copy_plain(net_tls_of(conn), buf, search.seen);
}
