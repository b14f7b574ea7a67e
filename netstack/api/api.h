/* Code that the public calls share. */
#pragma once

#include <errno.h>

#include "netstack/conn/end.h"
#include "netstack/link/link.h"
#include "netstack/program/program.h"

/*
 * The body of a call on a connection for which NET_CONN_IS_FOREIGN_OR_TRACED()
 * is true. If the connection belongs to another thread, it ends the program; if
 * it is traced, the connection trace records the call and its result.
 */
#define NET_CALL_TRACED(conn, name, bytes, call)                               \
	do {                                                                   \
		struct net_trace_call traced_;                                 \
		NET_CHECK_CONN_IN(conn, name);                                 \
		net_trace_call(conn, name, bytes, &traced_);                   \
		return net_trace_call_end(&traced_, call);                     \
	} while (0)
/* The call without the check; the public function adds the check. */
#define NET_HOT static inline __attribute__((always_inline))

/* ---- recv.c, send.c ---- */
/* Bytes of all buffers, or -EINVAL: too many, or a nonempty one is NULL. */
long net_iov_bytes(const struct iovec *iov, unsigned n);
/*
 * Returns what a call that reads finds: 1: bytes to read; 0: the peer's FIN,
 * after all bytes; -ENOTCONN: shut for reading; another error: why the
 * connection has ended; NET_VIEW_WAIT: nothing yet. All readers use it, so that
 * they check in this order.
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
/* Every call that writes begins with this: 0, or the error that it returns. */
int net_send_enter(const struct net_conn *conn);
/* net_send_all() without the check of the thread. */
long net_send_every(struct net_conn *conn, const void *buf, size_t len);
/*
 * Blocks once. Returns 0 when there may be room (or memory, if that was
 * refused), or an error of blocking calls.
 */
int net_send_wait(struct net_conn *conn, enum net_wants wants);
/* Bytes were queued: clears what the writer wanted, and queues the output. */
static inline void net_send_queued_some(struct net_conn *conn)
{
	if (unlikely(conn->wants != NET_WANTS_NOTHING))
		conn->wants = NET_WANTS_NOTHING;
	net_conn_queue_output(conn);
}

/* There was no memory: returns 0 if an ACK may free some, otherwise -ENOMEM. */
long net_send_refused(struct net_conn *conn);
/* Whether unacknowledged data lies in received frames. */
bool net_send_lends_frames(const struct net_conn *conn);

/* ---- close.c ---- */
/*
 * Resets a connection on behalf of others than its owner, unless it has ended,
 * and discards its received data. The handle stays. Calls on it fail with err
 * from now on; none reports the peer's FIN as a clean end, even if that had
 * come. why: the reason that the log and traces report.
 */
void net_conn_discard(struct net_conn *conn, int err, enum net_end why);
/* The same for an operator: -ECONNABORTED. */
void net_conn_drop(struct net_conn *conn);

/* ---- conn_stats.c ---- */
/* net_conn_stats() of any connection, at a bounded cost. */
void net_conn_fill_stats(const struct net_conn *conn,
			 struct net_conn_stats *out);

/* ---- dial.c ---- */
/*
 * Finds the address to send from: that of source, or if that is NULL or of no
 * family, the route's. Returns 0, -EADDRNOTAVAIL or -EHOSTUNREACH.
 */
int net_source_choose(const struct net_addr *source, const ip_addr_t *remote,
		      ip_addr_t *local);
/*
 * Whether packets between two ports arrive at this shard; fold: that of their
 * addresses.
 */
uint16_t net_flow_fold(const ip_addr_t *local, const ip_addr_t *remote);
bool net_flow_is_here(uint16_t fold, uint16_t port, uint16_t remote_port);

/* ---- udp.c ---- */
#define NET_CHECK_UDP(udp)                                                     \
	do {                                                                   \
		if (unlikely(!net_here()->sched ||                             \
			     ((udp) && (udp)->shard != net_here()->shard)))    \
			net_die_foreign(__func__);                             \
	} while (0)
/* Why a call on a socket may not go on: -EBADF, -ECANCELED; 0: it may. */
static inline int net_udp_enter(const struct net_udp *udp)
{
	if (!udp || !udp->owned)
		return -EBADF;
	return udp->cancelled ? -ECANCELED : 0;
}
/* Takes the error that ICMP has reported, which one call returns. */
static inline int net_udp_take_error(struct net_udp *udp)
{
	int err = udp->err;

	udp->err = 0;
	return err;
}
/* What a call returns after its coroutine has waited on a socket. */
int net_udp_wait_result(const struct net_udp *udp, int err);
/* The same; the coroutine, which was counted as a waiter, no longer waits. */
int net_udp_waited(struct net_udp *udp, int err);
/*
 * Checks and reads the address of a peer. Returns 0, -EINVAL, -EACCES or
 * -EHOSTUNREACH.
 */
int net_udp_read_peer(const struct net_addr *peer, ip_addr_t *remote);

/* ---- listen.c ---- */
/* Whether an address is the stack's, or means all of them. */
bool net_addr_is_own(const struct net_addr *addr);
/* Like net_addr_to_lwip(), with the zone of a link-local address. */
void net_addr_read(const struct net_addr *addr, ip_addr_t *ip);
void net_listener_stop(struct net_listener *listener);
