/*
 * Sends memory that the stack owns until it is acknowledged, without a copy.
 */
#include "netstack/api/api.h"

#include "netstack/lwip/ends.h"

#include <errno.h>

/*
 * tcp_write() extends a reference if the next bytes follow it in memory. They
 * may be of another buffer, which would then be released early.
 */
static bool follows_another(struct tcp_pcb *pcb, const struct net_extbuf *ext,
			    const void *data)
{
	const struct pbuf *p;

	if (!pcb->unsent)
		return false;
	for (p = net_unsent_last(pcb)->p; p->next; p = p->next)
		;
	return p->type_internal == (uint8_t)PBUF_ROM &&
	       net_extbuf_of(p) != ext &&
	       (const uint8_t *)p->payload + p->len == data;
}

/* Queues at most n bytes. Returns how many, 0 or a negative errno. */
static long queue_piece(struct net_conn *conn, struct net_extbuf *ext,
			const void *data, size_t n)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint8_t flags = 0;
	err_t err;

	if (follows_another(pcb, ext, data)) {
		flags = TCP_WRITE_FLAG_COPY;
		n = 1;
	}
	net_extbuf_set_writing(flags ? NULL : ext);
	err = flags ? ERR_INPROGRESS
		    : net_predict_refer(conn, data, (uint16_t)n);
	if (err == ERR_INPROGRESS)
		err = net_lwip_write(conn, data, (uint16_t)n, flags);
	net_extbuf_set_writing(NULL);
	if (err == ERR_OK) {
		net_send_queued_some(conn);
		return (long)n;
	}
	return err == ERR_MEM ? net_send_refused(conn) : -EPIPE;
}

/* Whole segments while there are any: the rest waits for room of its own. */
static size_t piece_of(const struct net_conn *conn, size_t left)
{
	size_t n = net_send_room(conn);

	if (n >= left)
		return left;
	return n - n % conn->pcb.mss;
}

static long queue_all(struct net_conn *conn, struct net_extbuf *ext,
		      const uint8_t *data, size_t len)
{
	size_t done = 0;
	int err = net_send_enter(conn);

	while (err == 0 && done < len) {
		size_t n = piece_of(conn, len - done);
		long queued = 0;

		if (n)
			queued = queue_piece(conn, ext, data + done, n);
		if (queued < 0)
			return queued;
		done += (size_t)queued;
		if (queued == 0) /* room for less is always there */
			err = net_send_wait(conn, NET_WANTS_SEGMENT);
	}
	return err < 0 ? err : (long)len;
}

/* With TLS the data is encrypted into a copy, so the buffer goes back at once.
 */
static inline long lend_buffer(struct net_conn *conn, const void *data,
			       size_t len, net_release release, void *arg,
			       bool has_tls)
{
	struct net_extbuf *ext;
	long n;

	if (!release || (!data && len))
		return -EINVAL;
	net_check_shared(data, "net_send_owned: the buffer");
	ext = net_extbuf_open(release, arg);
	if (!ext) {
		release(arg);
		return -ENOMEM;
	}
	n = has_tls ? net_send_tls(conn, data, len, true)
		    : queue_all(conn, ext, data, len);
	net_extbuf_put(ext);
	return n;
}

static long send_owned(struct net_conn *conn, const void *data, size_t len,
		       net_release release, void *arg)
{
	return lend_buffer(conn, data, len, release, arg, false);
}

cold static long owned_traced(struct net_conn *conn, const void *data,
			      size_t len, net_release release, void *arg)
{
	NET_CALL_COLD(conn, "net_send_owned", len,
		      send_owned(conn, data, len, release, arg),
		      lend_buffer(conn, data, len, release, arg, true));
}

long net_send_owned(struct net_conn *conn, const void *data, size_t len,
		    net_release release, void *arg)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return owned_traced(conn, data, len, release, arg);
	return net_call_end(send_owned(conn, data, len, release, arg));
}

/*
 * A view below this many bytes is copied: its frame is then free at once, and
 * warm when the next one comes.
 */
#define VIEW_LENT_MIN 2048

static void release_view(void *owner)
{
	pbuf_free(owner);
}

bool net_send_lends_frames(const struct net_conn *conn)
{
	const struct tcp_seg *seg =
		conn->pcb.unacked ? conn->pcb.unacked : conn->pcb.unsent;
	const struct net_extbuf *ext =
		seg && seg->p->next ? net_extbuf_of(seg->p->next) : NULL;
	const struct pbuf *owner =
		ext ? net_extbuf_arg(ext, release_view) : NULL;

	return owner && net_is_scarce_frame(owner);
}

/*
 * Frames that wait for the peer's acknowledgement are not there to receive
 * into: while half of those that may be held are, views are copied.
 */
static bool may_lend(const struct pbuf *p)
{
	const struct net_port *port;

	if (!net_link_takes_extbufs())
		return false;
	if (!net_is_frame(p))
		return true;
	port = net_frame_port(p);
	return port->frames_in <= port->frames_to_hold / 2;
}

__attribute__((noinline)) static long
send_large(struct net_conn *conn, const void *data, size_t len, struct pbuf *p)
{
	struct net_extbuf *ext =
		may_lend(p) ? net_extbuf_open(release_view, p) : NULL;
	long n;

	if (ext) {
		n = queue_all(conn, ext, data, len);
		net_extbuf_put(ext);
	} else {
		n = net_send_every(conn, data, len);
		pbuf_free(p);
	}
	return n;
}

NET_HOT long send_view(struct net_conn *conn, struct net_view *view)
{
	const void *data = view->data;
	size_t len = view->len;
	struct pbuf *p = NULL;
	long n;

	if (view->owner) {
		p = net_view_back(view);
		*view = (struct net_view){0};
		if (!p)
			return -EINVAL;
		if (len >= VIEW_LENT_MIN)
			return send_large(conn, data, len, p);
	} else {
		*view = (struct net_view){0};
	}
	n = net_send_every(conn, data, len);
	if (p)
		net_pbuf_free(p);
	return n;
}

cold static long send_view_tls(struct net_conn *conn, struct net_view *view)
{
	const void *data = view->data;
	size_t len = view->len;
	struct pbuf *p = NULL;
	long n;

	if (view->owner) {
		p = net_view_back(view);
		*view = (struct net_view){0};
		if (!p)
			return -EINVAL;
	} else {
		*view = (struct net_view){0};
	}
	n = net_send_tls(conn, data, len, true);
	if (p)
		net_pbuf_free(p);
	return n;
}

cold static long view_traced(struct net_conn *conn, struct net_view *view)
{
	NET_CALL_COLD(conn, "net_send_view", view->len, send_view(conn, view),
		      send_view_tls(conn, view));
}

/*
 * Not inlined: link-time optimization would inline it into a program's handler,
 * whose larger frame would stay while it waits, idle.
 */
__attribute__((noinline)) long net_send_view(struct net_conn *conn,
					     struct net_view *view)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return view_traced(conn, view);
	return net_call_end(send_view(conn, view));
}
