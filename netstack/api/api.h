/* Code that the public calls share; all of it is for the shard's own thread. */
#pragma once

#include <errno.h>

#include "netstack/conn/end.h"
#include "netstack/conn/tls.h"
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
		return net_call_end(net_trace_call_end(&traced_, call));       \
	} while (0)
/*
 * The same for a call that is another one on a connection with TLS, which has
 * no hot path.
 */
#define NET_CALL_COLD(conn, name, bytes, plain, secure)                        \
	NET_CALL_TRACED(conn, name, bytes, net_is_tls(conn) ? secure : plain)
/* For the body of a call; the public function checks the thread first. */
#define NET_HOT static inline __attribute__((always_inline))

/* ---- recv.c, send.c ---- */
/* The sum of all buffers' bytes, or -EINVAL (too many, or one is NULL). */
long net_iov_bytes(const struct iovec *iov, unsigned n);
/*
 * What a call that reads finds: 1 (unread bytes), 0 (the peer's FIN after all
 * bytes), -ENOTCONN (shut for reading), another error (why the connection has
 * ended) or NET_VIEW_WAIT (nothing yet). All readers call it, so that they
 * check in this order.
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
/* Begins a call that writes: returns 0, or the error of that call. */
int net_send_enter(const struct net_conn *conn);
/* net_send() or (all) net_send_all() on a connection with TLS. */
long net_send_tls(struct net_conn *conn, const void *buf, size_t len, bool all);
/* net_send_all() without the check of the calling thread. */
long net_send_every(struct net_conn *conn, const void *buf, size_t len);
/*
 * Blocks the writer once. Returns 0 when there may be room (or memory, after
 * net_send_refused()), or an error of net_conn_wait() or net_send_enter().
 */
int net_send_wait(struct net_conn *conn, enum net_wants wants);
/* Called after bytes were queued: resets `wants` and queues the output. */
static inline void net_send_queued_some(struct net_conn *conn)
{
	if (unlikely(conn->wants != NET_WANTS_NOTHING))
		conn->wants = NET_WANTS_NOTHING;
	net_conn_queue_output(conn);
}

/* Called without memory: returns 0 if an ACK may free some, else -ENOMEM. */
long net_send_refused(struct net_conn *conn);
/*
 * Returns whether the oldest unacknowledged data lies in frames of an empty
 * pool.
 */
bool net_send_lends_frames(const struct net_conn *conn);

/* ---- close.c ---- */
/*
 * Resets a connection that its owner did not close, unless it has ended, and
 * discards its received data. The handle stays valid. Calls on it then fail
 * with err, and none reports the peer's FIN as a clean end, even if it had
 * arrived. why: the reason in the log and in traces.
 */
void net_conn_discard(struct net_conn *conn, int err, enum net_end why);
/* net_conn_discard() for an operator, with -ECONNABORTED. */
void net_conn_drop(struct net_conn *conn);

/* ---- conn_stats.c ---- */
/* net_conn_stats() of any connection, at a bounded cost. */
void net_conn_fill_stats(const struct net_conn *conn,
			 struct net_conn_stats *out);

/* ---- dial.c ---- */
/* When a dial that begins now has taken too long. */
int64_t net_dial_deadline(const struct net_dial_opts *opts);
/*
 * Does TLS's handshake on a connection that was dialed. Blocks. Returns 0, or
 * an error of net_dial(), and conn is closed then.
 */
int net_dial_tls(struct net_conn *conn, struct net_tls *tls, const char *name,
		 int64_t deadline_ns);
/*
 * Chooses the local address: `source`, or that of the route if `source` is NULL
 * or has no family. Returns 0, -EADDRNOTAVAIL or -EHOSTUNREACH.
 */
int net_source_choose(const struct net_addr *source, const ip_addr_t *remote,
		      ip_addr_t *local);
/*
 * net_flow_is_here(): whether packets between two ports arrive at this shard;
 * fold: net_flow_fold() of their addresses.
 */
uint16_t net_flow_fold(const ip_addr_t *local, const ip_addr_t *remote);
bool net_flow_is_here(uint16_t fold, uint16_t port, uint16_t remote_port);
/*
 * Returns the next free port to a destination, in an order of its own (RFC
 * 6056), whose packets arrive at this shard; 0: none. is_free looks in a hash
 * table, so it takes constant time.
 */
typedef bool (*net_port_is_free)(const ip_addr_t *local, uint16_t port,
				 const ip_addr_t *remote, uint16_t remote_port);
uint16_t net_port_choose(const ip_addr_t *local, const ip_addr_t *remote,
			 uint16_t remote_port, net_port_is_free is_free);

/* ---- shard/shards.c ---- */
/* net_serve_limited(); tls: a server's, or NULL. */
int net_serve_with(struct net_stack *stack, const struct net_addr *addr,
		   const struct net_limits *limits, struct net_tls *tls,
		   net_handler handler, void *arg);

/* ---- udp.c ---- */
#define NET_CHECK_UDP(udp)                                                     \
	do {                                                                   \
		if (unlikely(!net_here()->sched ||                             \
			     ((udp) && (udp)->shard != net_here()->shard)))    \
			net_die_foreign(__func__);                             \
	} while (0)
/* Begins a call on a socket: returns 0, -EBADF (closed) or -ECANCELED. */
static inline int net_udp_enter(const struct net_udp *udp)
{
	if (!udp || !udp->owned)
		return -EBADF;
	return udp->cancelled ? -ECANCELED : 0;
}
/* Returns and clears the error that ICMP has reported, for one call. */
static inline int net_udp_take_error(struct net_udp *udp)
{
	int err = udp->err;

	udp->err = 0;
	return err;
}
/* The result of a call whose wait on a socket has ended with err. */
int net_udp_wait_result(const struct net_udp *udp, int err);
/* The same for a counted waiter, which ends; may free the socket. */
int net_udp_waited(struct net_udp *udp, int err);
/*
 * Checks a peer's address and converts it to lwIP's form. Returns 0, -EINVAL,
 * -EACCES or -EHOSTUNREACH.
 */
int net_udp_read_peer(const struct net_addr *peer, ip_addr_t *remote);

/* ---- listen.c ---- */
/* Returns whether an address is the stack's, or means all of them. */
bool net_addr_is_own(const struct net_addr *addr);
/* Like net_addr_to_lwip(), with the zone of a link-local address. */
void net_addr_read(const struct net_addr *addr, ip_addr_t *ip);
/* Stops listening and resets connections that were not accepted. */
void net_listener_stop(struct net_listener *listener);
