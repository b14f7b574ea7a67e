/*
 * Ends of a connection with TLS, its events, and the table of its calls.
 */
#include "netstack/tls/tls_priv.h"

#include <errno.h>

#define NOTIFY_BYTES 256u /* a close_notify has fewer */

/* Sends close_notify. Returns 0, or -ENOMEM: TCP has not taken it. */
__attribute__((noinline)) static int say_end(struct net_tls_session *s)
{
	long state;

	if (!s->ssl || !s->is_established || s->base.conn->wr_shut ||
	    !s->base.conn->pcb_live)
		return 0;
	if (!s->has_said_end && !s->err) {
		if (!net_tls_add_chunk(s, NOTIFY_BYTES))
			return -ENOMEM;
		net_tls_begin(s);
		SSL_shutdown(s->ssl);
		ERR_clear_error();
		s->has_said_end = true;
	}
	state = net_tls_flush(s);
	return state == 0 || state == -ENOMEM ? -ENOMEM : 0;
}

int net_tls_shut(struct net_conn *conn, enum net_shut how)
{
	struct net_tls_session *s = net_tls_of(conn);
	int err = 0;

	if (how < NET_SHUT_RD || how > NET_SHUT_RDWR)
		return 0; /* which is refused */
	if (how & NET_SHUT_WR)
		err = say_end(s);
	if (err == 0 && (how & NET_SHUT_RD))
		net_tls_clear_plain(s);
	return err;
}

/*
 * RFC 2525 2.17: returns whether data has come that nobody has read. Tickets
 * and a close_notify that arrived meanwhile are no reason for a RST, which
 * could destroy our own data on its way.
 */
static bool has_unread(struct net_tls_session *s)
{
	return !s->base.conn->rd_shut && net_tls_read_state(s) == 1;
}

enum net_end net_tls_close(struct net_conn *conn)
{
	struct net_tls_session *s = net_tls_of(conn);
	bool unread = conn->pcb_live && has_unread(s);
	bool stuck = say_end(s) < 0;

	if (s->err || s->is_ended)
		net_tls_refuse_input(conn);
	net_tls_forget(conn);
	if (unread)
		return NET_END_UNREAD;
	return stuck ? NET_END_MEMORY : NET_END_NONE;
}

/* A call that writes would return an error, or bytes. */
static bool is_writable(struct net_tls_session *s)
{
	long state = net_tls_flush(s);

	return state < 0 || (state == 1 && net_tls_room(s, 1));
}

unsigned net_tls_events(const struct net_conn *conn, unsigned wanted)
{
	struct net_tls_session *s = net_tls_of(conn);
	long state = net_tls_read_state(s);
	unsigned events = state == NET_VIEW_WAIT ? 0 : NET_READABLE;

	if (conn->err || s->err)
		events |= NET_FAILED;
	if (s->is_ended || conn->eof)
		events |= NET_PEER_CLOSED;
	if (wanted & NET_WRITABLE) {
		bool over = conn->err || s->err || !conn->pcb_live ||
			    conn->wr_shut || s->has_said_end || !s->ssl;

		if (over || is_writable(s))
			events |= NET_WRITABLE;
	}
	return events;
}

const struct net_tls_calls net_tls_table = {
	.accept = net_tls_do_accept,
	.connect = net_tls_do_connect,
	.recvv = net_tls_recvv,
	.recv_full = net_tls_recv_full,
	.recv_until = net_tls_recv_until,
	.recv_view = net_tls_recv_view,
	.peek = net_tls_peek,
	.sendv = net_tls_sendv,
	.writable = net_tls_writable,
	.shut = net_tls_shut,
	.close = net_tls_close,
	.events = net_tls_events,
	.forget = net_tls_forget,
};
