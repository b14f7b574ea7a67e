/*
 * coronet: TCP from coroutines, over DPDK and lwIP. UDP: coronet/net_udp.h.
 *
 * Threads: a stack belongs to a shard, and so do its listeners and connections.
 * Unless its comment says otherwise, a call is made from that shard's thread,
 * inside a coroutine or outside. With one shard that is the thread which opened
 * the stack (coronet/net_stack.h). A call from another thread ends the process
 * with a message that names the call.
 *
 * Pointers: unless a comment says otherwise, a pointer that is passed in is
 * borrowed until the call returns, and an `out` pointer is written only on
 * success.
 *
 * "Blocks" means that the calling coroutine waits while the thread goes on with
 * the others. A blocking call needs a coroutine and, besides the errors that
 * its comment names, can return
 *   -EPERM      it was called outside a coroutine and would have to wait
 *   -ECANCELED  coro_cancel() was called on the coroutine, or the stack stops
 *   -ETIMEDOUT  a deadline has passed: the coroutine's (coro_deadline_set()) or
 *               the connection's (net_set_read_deadline(),
 *               net_set_write_deadline())
 *   -ENOMEM     the coroutine's stack could not be saved
 * A call on a connection can return
 *   -EBADF      the connection is NULL or closed: before the call, or by
 *               another coroutine while this one was blocked. The memory of a
 *               closed connection is reused, so a program must not rely on this
 *               error for one that was closed before the call.
 *   -ECANCELED  net_cancel() was called on the connection
 *   -EBUSY      another coroutine is blocked reading from it (for calls that
 *               read) or writing to it (for calls that write): at most one
 *               reader and one writer at a time
 *   -EAGAIN     it has a watch (net_set_watch()) and the call would block
 * A call that reads, writes or waits for a connection that has failed returns
 * why it failed. Reading calls first return the bytes that came before it,
 * except where the connection was reset for want of memory or by an operator.
 *   -ECONNRESET    the peer sent RST
 *   -ETIMEDOUT     the peer did not answer: retransmissions (RFC 9293 3.8.3),
 *                  keepalive probes or the user timeout gave up
 *   -ECONNABORTED  an operator or a failed assertion reset it; the stack closed
 *   -ENOBUFS       the stack reset it, because memory was short
 *                  (net_opts.memory_bytes) and it held more than most others
 *   -ENOMEM        a deadline could not be stored (net_set_read_deadline())
 *
 * Calls return 0 or a count, or a negative errno.
 *
 * Coroutines have shared stacks by default: no pointer that a connection,
 * another coroutine or a timer keeps may point into one (see coronet/coro.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <coronet/coro.h>
#include <coronet/net_info.h>
#include <coronet/net_stack.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- listening ---- */

struct net_conn;
struct net_listener;
struct net_tls;

/*
 * Serves one connection, in a coroutine of its own. conn is the handler's until
 * it returns, which closes conn (net_close()) unless the handler has done so.
 * arg is what was given to net_listener_serve() or net_serve().
 */
typedef void (*net_handler)(struct net_conn *conn, void *arg);

/*
 * Listens at addr. Does not block. Family 0 means every address of the stack,
 * IPv4 and IPv6; 0.0.0.0 means every IPv4 address, :: every IPv6 address. Port
 * 0 lets the stack choose a free port from 16384 on, which net_listener_addr()
 * returns. A listener at one address takes precedence over a listener at every
 * address of the same port.
 * backlog: connections, half open or not yet accepted; 0 means 4096.
 * *out is owned by the caller, who gives it to net_listener_close().
 *
 * Returns 0 or
 *   -EADDRINUSE     a listener of this shard has this address and port; one of
 *                   the two is for every address and the other for every
 *                   address of a family; or no port is free
 *   -EADDRNOTAVAIL  the address is not the stack's
 *   -EINVAL         a pointer is NULL
 *   -ECANCELED      the stack stops
 *   -ENOMEM         no memory for the listener
 */
int net_listen(struct net_stack *stack, const struct net_addr *addr,
	       unsigned backlog, struct net_listener **out);

/* The listener's address and port, also a chosen one; 0 for NULL. */
struct net_addr net_listener_addr(const struct net_listener *listener);

/*
 * Limits of a listener; 0 means the default. Listeners of one port count their
 * clients together, on all shards: a limit is the whole program's, and is exact
 * however the clients spread over the shards. Give the listeners of all shards
 * the same limits. A client counts from the end of its handshake until its
 * handler has returned (or its owner has closed it) and TCP has delivered the
 * data queued for it; TIME_WAIT does not count. A source is an IPv4 address or
 * an IPv6 /64.
 */
struct net_limits {
	unsigned clients; /* of all sources; default: only --max-conns */
	/* Default: half of --max-conns, at least 1024. */
	unsigned clients_per_source;
	/*
	 * Above this number, SYNs are answered with cookies. Default: half the
	 * backlog times the number of shards, at least 64.
	 */
	unsigned half_open_per_source;
};

/*
 * Sets the limits of a listener from now on; *limits is copied. Clients that
 * are connected already stay. A SYN beyond a limit of clients is dropped and
 * counted (net_stats.clients_refused): the client's TCP sends it again, and is
 * admitted once there is room. Returns 0, -EBADF (listener is NULL) or -EINVAL
 * (limits is NULL).
 */
int net_listener_limit(struct net_listener *listener,
		       const struct net_limits *limits);

/*
 * Sets the congestion control of connections that the listener accepts from now
 * on, in place of net_opts.cc. name: see net_set_cc(). Returns 0, -EBADF
 * (listener is NULL) or -EINVAL (name is NULL or unknown).
 */
int net_listener_set_cc(struct net_listener *listener, const char *name);

/*
 * Returns how many clients the listener's port has now, on all shards, as
 * struct net_limits counts them; 0 for NULL.
 */
unsigned net_listener_clients(const struct net_listener *listener);

/*
 * Blocks until there is a connection. *out is owned by the caller, who closes
 * it (net_close(), net_close_wait() or net_abort()). Returns 0 or
 *   -EINVAL  out is NULL, or the listener was closed while the call was blocked
 *   -EBUSY   another coroutine is blocked in net_accept() on this listener
 *   -EPERM   called outside a coroutine, even if there is a connection
 *   -EBADF   listener is NULL
 */
int net_accept(struct net_listener *listener, struct net_conn **out);

/*
 * Accepts no new clients from now on: SYNs and the ACKs of SYN cookies are
 * answered with RST. Connections whose handshake has begun still reach
 * net_accept() or the handler. Does not block. Returns how many connections are
 * half open or not yet accepted, so an orderly shutdown calls this until it
 * returns 0, or for as long as a handshake may take; -EBADF if listener is
 * NULL.
 */
int net_listener_drain(struct net_listener *listener);

/*
 * Closes and frees the listener, and resets connections that have not been
 * accepted. Does not block. When net_stack_run() has returned, listeners no
 * longer listen but must still be closed; net_stack_close() closes those that
 * are left. NULL is ignored.
 */
void net_listener_close(struct net_listener *listener);

/*
 * From now on runs handler(conn, arg) in a new coroutine for each connection of
 * the listener, including those that wait to be accepted. If there is no memory
 * for the coroutine of a connection, that connection is reset. Does not block.
 * arg: borrowed until the last of these handlers has returned. Returns 0,
 * -EBADF (listener is NULL) or -EINVAL (handler is NULL).
 */
int net_listener_serve(struct net_listener *listener, net_handler handler,
		       void *arg);

#define NET_NAME_MAX 48 /* bytes of a name, NUL included */

/*
 * Sets the name of the listener's handler, shown with its connections and their
 * coroutines in place of the function's name. Copied, and cut to NET_NAME_MAX
 * bytes with the NUL. Returns 0, -EBADF (listener is NULL) or -EINVAL (name is
 * NULL).
 */
int net_listener_set_name(struct net_listener *listener, const char *name);

/*
 * Does all that a simple server needs: listens at addr on every shard with the
 * default backlog, prints "listening on ..." to stdout once, serves, runs the
 * program until it is stopped (net_stack_run()), closes the listeners and the
 * stack. It takes the stack over: the stack is closed whatever it returns.
 * handler runs on the shard that its connection belongs to. arg is shared by
 * all shards and borrowed until the call returns. Called by the thread that
 * opened the stack, before net_stack_run(), outside coroutines. Returns 0, or
 * with a message on stderr an error of net_listen() or net_listener_serve(), or
 * -EAGAIN (a shard's queue is full: net_post()).
 */
int net_serve(struct net_stack *stack, const struct net_addr *addr,
	      net_handler handler, void *arg);

/*
 * Like net_serve(), with limits as in net_listener_limit(), which hold for all
 * shards together. NULL: the defaults.
 */
int net_serve_limited(struct net_stack *stack, const struct net_addr *addr,
		      const struct net_limits *limits, net_handler handler,
		      void *arg);

/* ---- connections ---- */

/*
 * Zero means the default. The SYN is repeated after 1, 2, 4, 8 and 16 seconds
 * and then every 32 (RFC 6298 5.5), until timeout_ms have passed. With several
 * shards, a source port that the caller chooses can be used on one shard only
 * (-EADDRNOTAVAIL).
 */
struct net_dial_opts {
	struct net_addr source; /* family 0, port 0: the stack chooses */
	unsigned timeout_ms;	/* for the handshakes; 0: 30,000 */
	/* Receives the source address before the call blocks for the handshake;
	 * valid until net_dial() returns. NULL: not wanted. */
	struct net_addr *local;
	struct net_tls *tls;  /* coronet/net_tls.h; NULL: plaintext */
	const char *tls_name; /* the server's; NULL: its address */
};

/*
 * Connects to addr. Blocks until the handshake is done. opts may be NULL. *out
 * is owned by the caller, who closes it (net_close(), net_close_wait() or
 * net_abort()). An address of the stack's own, of any link, is reached without
 * a frame: both ends are on the shard that dials, so that shard must listen.
 * Returns 0 or
 *   -ECONNREFUSED   the peer answered with RST
 *   -EHOSTUNREACH   no route, also between a loopback address and another one;
 *                   or the next hop does not answer ARP or neighbour discovery
 *   -ETIMEDOUT      the handshake did not complete in time
 *   -EADDRNOTAVAIL  opts->source is not the stack's or of the other family;
 *                   segments to its port would arrive at another shard; or no
 *                   port is left (the result is cached for 50 ms)
 *   -EADDRINUSE     the port of opts->source is taken, or it is addr itself
 *   -EINVAL         a pointer is NULL, or addr has no address or no port
 *   -ENOMEM         no memory for a connection
 *   -ENOBUFS, -ECONNABORTED
 *                   as for a connection that has failed (see above)
 */
int net_dial(struct net_stack *stack, const struct net_addr *addr,
	     const struct net_dial_opts *opts, struct net_conn **out);

/*
 * Finds the source address that net_dial() would use to reach addr. Stores it
 * in *source, with port 0; source may be NULL. Does not block. Returns 0,
 * -EHOSTUNREACH (no interface and no gateway leads there) or -EINVAL (stack or
 * addr is NULL, or addr has no address).
 */
int net_route(struct net_stack *stack, const struct net_addr *addr,
	      struct net_addr *source);

/*
 * Returns whether an address is one of the stack's own; its port does not
 * matter. False for NULL and for "any address".
 */
bool net_is_local(struct net_stack *stack, const struct net_addr *addr);

/* Limit of the unreleased views of a connection (net_recv_view()). */
#define NET_VIEWS_MAX 256

/*
 * Received bytes, in the memory that the NIC wrote them to. A view that
 * net_recv_view() has filled is owned by the caller until net_view_release() or
 * net_send_view(), or until its handler returns; without a handler, until the
 * connection is closed. A view that has not been released by then is reclaimed,
 * counted (net_stats.views_reclaimed) and logged. The struct itself may lie on
 * a coroutine's stack; the bytes never do.
 */
struct net_view {
	const void *data;
	size_t len;
	void *owner; /* private */
};

/*
 * Blocks until there are bytes, and fills *view with the next piece in order.
 * This opens the receive window. Returns the length of the piece, 0 when the
 * peer has finished sending, or
 *   -ENOTCONN  net_shutdown() has shut the connection for reading
 *   -ENOBUFS   the connection has NET_VIEWS_MAX unreleased views, or there is
 *              no memory for another: the bytes can be read later
 * or why the connection has failed. *view is written only if the result is
 * positive.
 */
long net_recv_view(struct net_conn *conn, struct net_view *view);

/*
 * The parts of net_recv_view(): private, not to be called directly. The inline
 * function below keeps the frame of net_recv_view() off the stack of a
 * coroutine that waits here, as every idle connection does.
 */
#define NET_VIEW_WAIT (-1000000)
long net_view_take(struct net_conn *conn, struct net_view *view);
int net_view_wait(struct net_conn *conn);
long net_view_woken(struct net_conn *conn, struct net_view *view, int err);

extern inline __attribute__((gnu_inline)) long
net_recv_view(struct net_conn *conn, struct net_view *view)
{
	long n = net_view_take(conn, view);

	while (__builtin_expect(n == NET_VIEW_WAIT, 0))
		n = net_view_woken(conn, view, net_view_wait(conn));
	return n;
}

/*
 * Returns a view's bytes to the stack and empties *view; an empty view is
 * ignored. A copy of a view that has been released, sent or reclaimed is
 * recognised, logged, counted (net_stats.view_misuses), and otherwise ignored.
 * Does not block.
 */
void net_view_release(struct net_conn *conn, struct net_view *view);

/*
 * Blocks until there are bytes, and copies at most len of them to buf. Returns
 * how many, 0 when the peer has finished sending or len is 0, or
 *   -ENOTCONN  net_shutdown() has shut the connection for reading
 *   -EINVAL    buf is NULL
 * or why the connection has failed. Reading opens the receive window.
 */
long net_recv(struct net_conn *conn, void *buf, size_t len);

/*
 * Like net_recv(), but leaves the bytes to be read again, and the receive
 * window as it is.
 */
long net_peek(struct net_conn *conn, void *buf, size_t len);

/*
 * Like net_recv(), but blocks until it has len bytes or the peer has finished
 * sending: it returns less than len only then. After an error it is unknown how
 * many bytes were copied to buf.
 */
long net_recv_full(struct net_conn *conn, void *buf, size_t len);

#define NET_DELIM_MAX	   64		/* bytes of a delimiter */
#define NET_RECV_UNTIL_MAX (128 * 1024) /* with the delimiter */

/*
 * Blocks until the delimiter (delim_len bytes at delim) has come, and copies
 * the bytes up to and including it to buf, which has room for len. Later bytes
 * stay for the next call. Returns how many were copied, 0 when the peer has
 * finished sending and nothing is left, or
 *   -EMSGSIZE  there is no delimiter in the first len bytes, nor in the first
 *              NET_RECV_UNTIL_MAX bytes, nor in a full receive window, which
 *              opens only when bytes are read (64 KiB if the peer does not use
 *              window scaling, RFC 7323)
 *   -ENODATA   the peer has finished sending, and the remaining bytes hold no
 *              delimiter
 *   -ENOTCONN  net_shutdown() has shut the connection for reading
 *   -EINVAL    buf or delim is NULL, or the delimiter is empty, or longer than
 *              NET_DELIM_MAX or len
 * or why the connection has failed. Except with -ENOTCONN, an error leaves the
 * bytes that have come to be read by any call.
 */
long net_recv_until(struct net_conn *conn, void *buf, size_t len,
		    const void *delim, size_t delim_len);

#define NET_IOV_MAX 1024 /* buffers per call; more: -EINVAL */

/*
 * Like net_recv(), into n buffers, one after the other; empty ones are skipped.
 * Returns -EINVAL also if n is above NET_IOV_MAX, iov or the base of a nonempty
 * buffer is NULL, or the lengths add up to more than LONG_MAX.
 */
long net_recvv(struct net_conn *conn, const struct iovec *iov, unsigned n);

/*
 * Copies bytes to the send queue. Blocks while the send buffer is full. Returns
 * how many of the len bytes were queued, at least one (0 if len is 0), or
 *   -EPIPE   net_shutdown() has shut the connection for writing, or it has been
 *            closed in both directions
 *   -EINVAL  buf is NULL
 *   -ENOMEM  there is no memory, and nothing in flight whose acknowledgement
 *            would free some
 * or why the connection has failed.
 */
long net_send(struct net_conn *conn, const void *buf, size_t len);

/*
 * Blocks until net_send() would queue a byte without blocking. Returns the room
 * in the send buffer in bytes, or an error of net_send().
 */
long net_writable(struct net_conn *conn);

/*
 * Like net_send(), but blocks until all len bytes are queued. Returns len, or
 * an error of net_send(), after which it is unknown how many bytes were queued.
 */
long net_send_all(struct net_conn *conn, const void *buf, size_t len);

/*
 * Like net_send() and net_send_all(), from n buffers, one after the other, with
 * the same limits and -EINVAL as net_recvv().
 */
long net_sendv(struct net_conn *conn, const struct iovec *iov, unsigned n);
long net_sendv_all(struct net_conn *conn, const struct iovec *iov, unsigned n);

/*
 * Takes back a buffer that was given to net_send_owned(): called once for each,
 * on the shard's thread. It may free memory and make coroutines ready; it must
 * not block.
 */
typedef void (*net_release)(void *arg);

/*
 * Queues len bytes at data for sending without copying them: the stack owns the
 * buffer until it calls release(arg). Blocks while the send buffer is full.
 * Returns len or an error of net_send(), after which the first bytes may have
 * been queued.
 *
 * release is called exactly once, also if the call fails, except with -EINVAL
 * (release is NULL, or data is NULL and len is not 0), when the buffer stays
 * the caller's. It is called when the peer has acknowledged every byte and no
 * frame on its way out refers to one, or when the connection has ended; after
 * an error, when the bytes that were queued have left. It is not called before
 * this call returns, except with -ENOMEM if nothing was queued. Until then the
 * bytes must not change, since they may be sent again, and they must not lie on
 * a shared stack: that ends the process with a message.
 *
 * Links that pass addresses to a device or another process (vhost, pci, af_xdp)
 * get a copy, made when a segment goes out.
 */
long net_send_owned(struct net_conn *conn, const void *data, size_t len,
		    net_release release, void *arg);

/*
 * Sends all bytes of a view and releases it, also if it fails; *view is empty
 * then. Blocks while the send buffer is full. A large view is sent from where
 * it was received as long as such views hold few of the port's frames, and
 * copied otherwise. Returns its length, -EINVAL (the view was released before,
 * see net_view_release()) or an error of net_send_all().
 */
long net_send_view(struct net_conn *conn, struct net_view *view);

enum net_shut { NET_SHUT_RD = 1, NET_SHUT_WR = 2, NET_SHUT_RDWR = 3 };

/*
 * Shuts one direction or both. NET_SHUT_WR sends FIN after the queued bytes;
 * NET_SHUT_RD discards received bytes, and those that arrive later. Does not
 * block. A call that is blocked in that direction returns -ENOTCONN (reading)
 * or -EPIPE (writing). Returns 0, -ENOTCONN (the connection has ended), -EINVAL
 * (how is none of these) or -EBADF.
 */
int net_shutdown(struct net_conn *conn, enum net_shut how);

/*
 * Closes a connection and takes conn back from its owner. Does not block: TCP
 * goes on to deliver the queued bytes, sends FIN after them, and retransmits
 * until it gives up (minutes, if the peer is silent). If there are received
 * bytes that nobody has read, the peer gets RST instead (RFC 2525 2.17). Other
 * coroutines that are blocked on conn get -EBADF. NULL and a connection that
 * has been closed are ignored.
 */
void net_close(struct net_conn *conn);

/*
 * Closes a connection and blocks until the peer has acknowledged everything,
 * including the FIN, or the deadline has passed. deadline_ns: absolute, as in
 * net_now_ns(); CORO_FOREVER: only the coroutine's own deadline. Bytes that the
 * peer sends or has sent are discarded, since a RST for them could destroy data
 * that it has yet to read. With each of these results, conn is closed and no
 * longer the caller's:
 *   0              the peer's TCP has received everything (its application need
 *                  not have read it)
 *   -ETIMEDOUT     the deadline passed (the peer was sent RST) or TCP gave up
 *   -ECONNRESET    the peer sent RST first
 *   -ECONNABORTED  another coroutine called net_abort(), or an operator reset
 *                  the connection
 *   -ENOBUFS, -ENOMEM
 *                  memory was short; the peer was sent RST
 *   -ECANCELED     coro_cancel(), net_cancel(), or the stack stops: the call no
 *                  longer waits; delivery goes on as after net_close()
 * With these, the caller still owns conn:
 *   -EPERM         called outside a coroutine
 *   -EBUSY         another coroutine is blocked writing to it
 *   -EBADF         conn is NULL or closed
 */
int net_close_wait(struct net_conn *conn, int64_t deadline_ns);

/*
 * Returns whether the peers of all closed connections of this shard have
 * acknowledged the written data and the FIN; a peer that has yet to close does
 * not count. A program calls this before it ends, since ending earlier loses
 * queued data. Walks over the connections that are closed but not yet gone.
 * NULL: true.
 */
bool net_stack_delivered(const struct net_stack *stack);

/*
 * Sends RST and takes conn back from its owner. Does not block. Other
 * coroutines that are blocked on conn get -EBADF. NULL and a connection that
 * has been closed are ignored.
 */
void net_abort(struct net_conn *conn);

/*
 * Makes every call that is blocked on the connection return -ECANCELED now, and
 * every later call that reads or writes at once, even if there are bytes to
 * read. The owner still closes the connection, in any way; net_close_wait()
 * after a cancel waits as usual. May be called from any coroutine, timer or
 * wake-up of the shard's thread; does not block. Returns 0 or -EBADF.
 */
int net_cancel(struct net_conn *conn);

/* ---- waiting for several things ---- */

#define NET_POLL_MAX 512 /* items of a net_poll() */

/*
 * The events of an item: those that it waits for, and those that are reported.
 * An event is reported by every call for as long as its condition holds
 * (level-triggered).
 */
enum net_poll_events {
	/* net_recv() would not block: bytes, the end, an error. A listener:
	 * net_accept() would not. A channel: it can be received from. UDP:
	 * net_udp_ready() explains the events. */
	NET_READABLE = 1,
	/* net_send() would not block. A channel: it can be sent to. */
	NET_WRITABLE = 2,
	/* The peer has finished sending. A channel: it is closed. */
	NET_PEER_CLOSED = 4,
	/* Reported whether asked for or not: */
	NET_FAILED = 8, /* the connection is over: reset, timed out,
			   cancelled, or closed in both directions */
	NET_GONE = 16,	/* closed by another coroutine: don't use it again */
};

struct coro_chan;
struct net_udp;
/* One of conn, listener, chan, udp (borrowed); with none it is never ready. */
struct net_poll_item {
	struct net_conn *conn;
	struct net_listener *listener;
	struct coro_chan *chan; /* coronet/coro_chan.h */
	struct net_udp *udp;	/* coronet/net_udp.h */
	unsigned events;  /* enum net_poll_events; 0: NET_FAILED, NET_GONE */
	unsigned revents; /* out: the events that hold now */
};

/*
 * Blocks until at least one of n items is ready or the deadline has passed.
 * deadline_ns: absolute, as in net_now_ns(); CORO_FOREVER: none. With a
 * deadline that has passed, the call checks the items and returns at once, also
 * outside a coroutine. The array may lie on the coroutine's stack. Any number
 * of coroutines may poll one object, beside one that is blocked in a call on
 * it. An event is no reservation: another coroutine may take the bytes first,
 * and the call that follows then blocks. Returns how many items have revents, 0
 * at the deadline, or
 *   -ETIMEDOUT  the coroutine's own deadline has passed
 *   -EINVAL     more than NET_POLL_MAX items, items is NULL, an item with two
 *               objects or with unknown events
 *   -ENOMEM     no memory to wait with
 */
int net_poll(struct net_poll_item *items, unsigned n, int64_t deadline_ns);

/*
 * Returns which of the given events a connection has now, as net_poll() reports
 * them. NET_FAILED and NET_GONE are reported whether asked for or not, the
 * latter also for NULL. Does not block.
 */
unsigned net_ready(const struct net_conn *conn, unsigned events);

/* ---- waiting for the kernel ---- */

/*
 * Blocks until a file descriptor of the kernel's is ready: a pipe, an eventfd,
 * a Unix socket, inotify. Arguments, result and errors are those of
 * coro_fd_wait() (coronet/coro_io.h), with deadline_ns absolute, as in
 * net_now_ns(), or CORO_FOREVER. Returns -ECANCELED also once the stack stops.
 */
int net_fd_wait(int fd, int events, int64_t deadline_ns);

/*
 * Blocks while fn(arg) runs on one of a few threads that may block: for reading
 * files, fsync(2), getaddrinfo(3), or a database library. fn may call only
 * those functions of this header that any thread may call. arg: borrowed; not
 * on a shared stack. Result, limits and errors are those of
 * coro_offload_until() (coronet/coro_io.h), with deadline_ns absolute, as in
 * net_now_ns(), or CORO_FOREVER. A stack that stops waits for functions that
 * have begun.
 */
int net_offload(coro_fn fn, void *arg, void **result, int64_t deadline_ns);

/*
 * Sets the time after which calls that read, or write, return -ETIMEDOUT if
 * they would block: absolute, in ns, as in net_now_ns(); CORO_FOREVER removes
 * it. A call that is already blocked keeps the deadline that it began with. If
 * the first deadline of a connection cannot be stored, the connection fails
 * with -ENOMEM. NULL is ignored.
 */
void net_set_read_deadline(struct net_conn *conn, int64_t deadline_ns);
void net_set_write_deadline(struct net_conn *conn, int64_t deadline_ns);

/*
 * Sets TCP_NODELAY, which is on by default. Off: Nagle's algorithm (RFC 9293
 * 3.7.4) holds small segments back. NULL is ignored.
 */
void net_set_nodelay(struct net_conn *conn, bool on);

/*
 * Sets the congestion control of a connection, at any time in its life:
 *   "cubic"  RFC 9438, with HyStart++ (RFC 9406)
 *   "reno"   RFC 5681, with HyStart++
 *   "bbr"    BBR version 3, draft-ietf-ccwg-bbr-06
 * Returns 0, -EBADF, -EINVAL (name is NULL or unknown) or -ENOTCONN (the
 * connection has ended).
 */
int net_set_cc(struct net_conn *conn, const char *name);

/*
 * Limits the rate at which a connection sends: bytes of TCP payload per second,
 * retransmissions included; 0, or 2^42 and more (UINT64_MAX): no limit but its
 * congestion control, which is the default. The limit is kept to one part in a
 * thousand, rounded down. A burst is at most a millisecond's worth or two
 * segments, whichever is more; a tail loss probe may exceed it. Returns 0,
 * -EBADF or -ENOTCONN (the connection has ended).
 */
int net_set_pacing_rate(struct net_conn *conn, uint64_t bytes_per_s);

/*
 * Sets keepalive probes (RFC 9293 3.8.4): the first after idle_s seconds
 * without a segment, then one every interval_s seconds, until count of them
 * have not been answered. idle_s and interval_s: 1 to 1,000,000; count: 1 to
 * 255; idle_s + count * interval_s: at most 4,294,967 (49 days). If idle_s is
 * 0, probes are off and the other two are ignored. net_close() ends them.
 * Returns 0, -EINVAL, -EBADF or -ENOTCONN (the connection has ended).
 */
int net_set_keepalive(struct net_conn *conn, unsigned idle_s,
		      unsigned interval_s, unsigned count);

/*
 * Sets for how many ms the connection waits for its peer before it is given up
 * and calls return -ETIMEDOUT: the user timeout of RFC 5482 for this side only,
 * with the meaning of Linux's TCP_USER_TIMEOUT. It bounds
 * - the time that data or a FIN goes unacknowledged, from its first
 *   retransmission on, however often it was sent again;
 * - the time that a zero window holds data back, from when the stack noticed
 *   it, even if the peer answers the probes;
 * - with keepalive, the time that a peer is silent, however many probes were
 *   sent; but the last probe has its interval to be answered in.
 * Data that waits when the first timeout is set counts from that call. 0, the
 * default: TCP's own bounds, which apply as well after net_close(). Accurate to
 * about 20 ms. The first timeout of a connection takes 192 bytes. Returns 0,
 * -EBADF, -EINVAL (ms > 2,000,000,000), -ENOTCONN (it has ended) or -ENOMEM.
 */
int net_set_user_timeout(struct net_conn *conn, unsigned ms);

/*
 * A callback in place of a coroutine, for programs with little work per
 * segment, such as load generators. fn is called on the shard's thread, outside
 * any coroutine, after each segment and each timer of the connection, whether
 * or not anything changed. Calls on the connection that would block return
 * -EAGAIN. To take bytes, the peer's FIN or a failure, fn calls net_recv_view()
 * until it returns -EAGAIN, 0 or another error. fn may close the connection.
 */
struct net_watch {
	void (*fn)(struct net_conn *conn, struct net_watch *watch);
	uint32_t received; /* the stack's; changes with bytes and the FIN */
};

/*
 * Sets the connection's watch; NULL removes it. watch: borrowed until the
 * connection is closed or its watch is replaced or removed; on a shared stack
 * it ends the process with a message. No coroutine may be blocked on the
 * connection. fn is not called for earlier events: check the connection once
 * after this call. A conn of NULL is ignored.
 */
void net_set_watch(struct net_conn *conn, struct net_watch *watch);

/*
 * Return the local and the peer's address and port, also of a connection that
 * has ended but is not closed; family 0 for NULL.
 */
struct net_addr net_local_addr(const struct net_conn *conn);
struct net_addr net_peer_addr(const struct net_conn *conn);

/* Returns the stack that the connection belongs to, the calling thread's. */
struct net_stack *net_conn_stack(const struct net_conn *conn);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
