/*
 * Writing to a connection.
 */
#include "netstack/net_priv.h"

#include <errno.h>

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
		err = tcp_write(&conn->pcb, buf, (u16_t)n, TCP_WRITE_FLAG_COPY);
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
		long n =
			net_send(conn, (const uint8_t *)buf + done, len - done);

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
