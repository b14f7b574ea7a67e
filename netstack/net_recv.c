/*
 * Reading from a connection.
 */
#include "netstack/net_priv.h"

#include <errno.h>
#include <string.h>

static void take_head(struct net_conn *conn)
{
	struct pbuf *p = conn->rx_head;

	net_the.frames_held -= net_is_frame(p);
	conn->rx_head = p->next;
	if (!conn->rx_head)
		conn->rx_tail = NULL;
	p->next = NULL;
	p->tot_len = p->len;
	conn->rx_off = 0;
}

bool net_conn_readable(const struct net_conn *conn)
{
	return conn->rx_head || conn->rd_shut || conn->eof || conn->err;
}

/* Blocks until there is something to take: 1, 0 at the end, or an error. */
static int wait_readable(struct net_conn *conn)
{
	int err = net_conn_enter(conn, conn ? conn->reader : NULL);

	if (err < 0)
		return err;
	while (!conn->rx_head) {
		if (conn->rd_shut)
			return -ENOTCONN;
		if (conn->eof)
			return 0;
		if (conn->err)
			return conn->err;
		err = net_conn_wait(conn, &conn->reader, conn->read_deadline);
		if (err == 0)
			err = net_conn_enter(conn, NULL);
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
		net_conn_recved(conn, (unsigned)view->len);
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
		net_conn_recved(conn, (unsigned)done);
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
