/*
 * What the public calls share.
 */
#pragma once

#include <errno.h>

#include "netstack/conn/end.h"
#include "netstack/link/link.h"
#include "netstack/program/program.h"

/*
 * The body of a call of a connection that NET_CONN_IS_ODD() has found: another
 * thread's, where it ends the program, or traced, where the sock trace is told
 * of the call and of its result.
 */
#define NET_CALL_TRACED(conn, name, bytes, call)                               \
	do {                                                                   \
		struct net_trace_call traced_;                                 \
		NET_CHECK_CONN_IN(conn, name);                                 \
		net_trace_call(conn, name, bytes, &traced_);                   \
		return net_trace_call_end(&traced_, call);                     \
	} while (0)
#define NET_COLD __attribute__((cold, noinline)) static
/* The call itself, which the function of that name is but for the check. */
#define NET_HOT static inline __attribute__((always_inline))

/* ---- recv.c, send.c ---- */
/* Bytes of all vectors; -EINVAL: too many, none where there are bytes. */
long net_iov_bytes(const struct iovec *iov, unsigned n);
/*
 * What a call that reads finds: 1, bytes to take; 0, the peer's FIN behind all
 * of them; -ENOTCONN, reading is shut; why the connection has ended; or
 * NET_VIEW_WAIT, nothing yet. All readers ask this, in this order.
 */
static inline long net_conn_read_state(const struct net_conn *conn)
{
	if (conn->rx_tail)
		return 1;
	if (conn->rd_shut)
		return -ENOTCONN;
	if (conn->eof)
		return 0;
	return conn->err ? conn->err : NET_VIEW_WAIT;
}
bool net_conn_readable(const struct net_conn *conn);
bool net_conn_writable(const struct net_conn *conn);
/* What every call that writes begins with: 0 or why it cannot. */
int net_send_enter(const struct net_conn *conn);
/* net_send_all(), once it is certain that this is the stack's thread. */
long net_send_every(struct net_conn *conn, const void *buf, size_t len);
/* Blocks once: 0 when there may be room, or memory if it was refused, now. */
int net_send_wait(struct net_conn *conn, enum net_wants wants);
/* There was memory, and the output phase has something to send. */
static inline void net_send_queued_some(struct net_conn *conn)
{
	if (__builtin_expect(conn->wants != NET_WANTS_NOTHING, 0))
		conn->wants = NET_WANTS_NOTHING;
	net_conn_queue_output(conn);
}

/* There was no memory: 0 if an ACK may free some, else -ENOMEM. */
long net_send_refused(struct net_conn *conn);
/* Whether what the peer has yet to acknowledge lies in received frames. */
bool net_send_lends_frames(const struct net_conn *conn);

/* ---- close.c ---- */
/*
 * Resets a connection for somebody who is not its owner, and discards what it
 * has received. The handle stays. Calls on it fail with err from now on; none
 * reports the peer's FIN as a clean end, even if that had come. why is what
 * the log and traces give as the reason.
 */
void net_conn_discard(struct net_conn *conn, int err, enum net_end why);
/* The same for an operator: -ECONNABORTED. */
void net_conn_drop(struct net_conn *conn);

/* ---- conn_stats.c ---- */
/* net_conn_stats() of any connection, at a bounded cost. */
void net_conn_tell_stats(const struct net_conn *conn,
			 struct net_conn_stats *out);

/* ---- listen.c ---- */
err_t net_listener_established(struct net_conn *conn);
void net_listener_stop(struct net_listener *listener);
