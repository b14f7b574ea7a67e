/*
 * coronet: TCP from coroutines, over DPDK and lwIP.
 *
 * A stack belongs to a shard, and so do its listeners and connections. Every
 * call on them is made from that shard's thread, unless it says otherwise: from
 * another it ends the process with a sentence that names the call. With one
 * shard that is the thread which opened the stack (coronet/net_stack.h).
 *
 * "Blocks" means: the calling coroutine waits, the thread goes on with the
 * others. A blocking call needs a coroutine (-EPERM outside one) and, besides
 * the errors it names, can return
 *   -ECANCELED  coro_cancel() was called on the coroutine, or the stack stops
 *   -ETIMEDOUT  the coroutine's deadline, or the connection's own, has passed
 * Calls on a connection can return
 *   -EBADF      it is NULL, or was closed: by another coroutine while this one
 *               was blocked in it, or before. Its memory is used again, so that
 *               to call on with a closed one is wrong even so.
 *   -ECANCELED  net_cancel() was called on the connection
 *   -EBUSY      another coroutine is blocked reading from (or writing to) it:
 *               one reader and one writer at a time
 *   -ENOBUFS    memory was short (net_opts.memory_bytes) and it was among the
 *               greediest: it has been reset
 * Calls return 0 or a count, or a negative errno.
 *
 * Coroutines have shared stacks by default: nothing a connection, another
 * coroutine or a timer keeps may point into one (see coronet/coro.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <coronet/coro.h>
#include <coronet/net_stack.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- listening ---- */

struct net_conn;
struct net_listener;

/*
 * Runs in a coroutine of its own; returning closes the connection, unless the
 * handler has done so itself.
 */
typedef void (*net_handler)(struct net_conn *conn, void *arg);

/*
 * Listens. addr: family 0 means every address of the stack, IPv4 and IPv6;
 * 0.0.0.0 means those of IPv4, :: those of IPv6.
 * backlog: connections half open or not yet accepted; 0: 4096.
 * A port of 0: one that is free is chosen, from 16384 on; net_listener_addr()
 * tells. A listener of an address goes before one of every address on its port.
 * Returns 0, -EADDRINUSE (the same address and port, every address beside all
 * of a family, or no port is left), -EADDRNOTAVAIL (not this stack's), -EINVAL
 * (NULL), -ECANCELED (the stack stops), -ENOMEM. *out is owned by the caller.
 */
int net_listen(struct net_stack *stack, const struct net_addr *addr,
	       unsigned backlog, struct net_listener **out);

/* Where it listens, the port that was chosen included. */
struct net_addr net_listener_addr(const struct net_listener *listener);

/*
 * Limits of a listener, each 0 for its default. Listeners of one port count
 * their clients together, those of other shards too: the limits are the
 * program's, and hold exactly whichever shards the clients belong to. Give the
 * listeners of all shards the same. A client counts from the end of its
 * handshake until its handler has returned (or its owner has let go of it) and
 * TCP has delivered what was queued; TIME_WAIT does not count. A source is an
 * IPv4 address or an IPv6 /64.
 */
struct net_limits {
	unsigned clients; /* in all; default: --max-conns alone */
	/* default: half of --max-conns, 1024 at least */
	unsigned clients_per_source;
	/*
	 * beyond it SYN cookies; default: half the backlog, times the shards,
	 * 64 at least
	 */
	unsigned half_open_per_source;
};

/*
 * Sets the limits of a listener, from now on: clients that are there already
 * stay. A SYN beyond a limit of clients is dropped and counted
 * (net_stats.clients_refused), so a client that tries again, as every TCP does,
 * gets in when there is room. Returns 0, -EBADF or -EINVAL for NULL.
 */
int net_listener_limit(struct net_listener *listener,
		       const struct net_limits *limits);

/*
 * The congestion control of the listener's connections from now on, in place of
 * net_opts.cc: net_set_cc() names them. Returns 0, -EBADF (NULL), -EINVAL
 * (NULL, or there is none of that name).
 */
int net_listener_set_cc(struct net_listener *listener, const char *name);

/* How many clients the listener's port has now, on all shards. */
unsigned net_listener_clients(const struct net_listener *listener);

/*
 * Blocks until a connection is there; *out is owned by the caller.
 * -EINVAL when the listener has been closed meanwhile, -EBUSY when another
 * coroutine is blocked in it, -EBADF for NULL.
 */
int net_accept(struct net_listener *listener, struct net_conn **out);

/*
 * Takes no new clients from now on: a SYN is answered with RST, and so are ACKs
 * of SYN cookies. Those whose handshake has begun still come, to net_accept()
 * or the handler. Does not block. Returns how many of them there are, half open
 * or not yet accepted, so that whoever ends a service in good order calls it
 * until that is 0, or for as long as a handshake may take; -EBADF for NULL.
 */
int net_listener_drain(struct net_listener *listener);

/*
 * Connections not accepted yet are reset; listener is gone. After
 * net_stack_run() has returned a listener no longer listens, but is still to be
 * closed; net_stack_close() closes those that are left. NULL is ignored.
 */
void net_listener_close(struct net_listener *listener);

/*
 * Gives every connection of the listener a coroutine running handler(conn,
 * arg) from now on. Does not block. Returns 0, -EBADF or -EINVAL for NULL.
 */
int net_listener_serve(struct net_listener *listener, net_handler handler,
		       void *arg);

#define NET_NAME_MAX 48 /* bytes of a name, NUL included */

/*
 * What its handler is called wherever a connection or a coroutine of it is
 * shown, in place of the function's own name; cut at NET_NAME_MAX. Returns 0,
 * -EBADF or -EINVAL for NULL.
 */
int net_listener_set_name(struct net_listener *listener, const char *name);

/*
 * The whole of a simple server: listens at addr on every shard, announces
 * "listening on ..." on stdout once, serves, runs the program until it is
 * stopped, closes the listeners and the stack. handler runs on the shard that
 * its connection belongs to; arg is shared by all shards. Not from a coroutine.
 * Returns 0, or what net_listen() returned, said on stderr.
 */
int net_serve(struct net_stack *stack, const struct net_addr *addr,
	      net_handler handler, void *arg);

/*
 * net_serve() with limits (NULL: none but the defaults), as
 * net_listener_limit() takes them: of all shards together.
 */
int net_serve_limited(struct net_stack *stack, const struct net_addr *addr,
		      const struct net_limits *limits, net_handler handler,
		      void *arg);

/* ---- connections ---- */

/* Zero means the default. */
struct net_dial_opts {
	struct net_addr source; /* family 0: chosen; port 0: chosen */
	unsigned timeout_ms;	/* 0: lwIP's own, about 30 s */
};

/*
 * Connects to addr; opts may be NULL. Blocks. *out is owned by the caller.
 * -ECONNREFUSED (the peer said no), -EHOSTUNREACH (no route, or nobody
 * answers for the address), -ETIMEDOUT, -EADDRNOTAVAIL (source not ours, or
 * no port left: then for 50 ms, as looking takes long), -EADDRINUSE (source
 * port taken), -EINVAL (NULL, or no address or port), -ENOMEM.
 */
int net_dial(struct net_stack *stack, const struct net_addr *addr,
	     const struct net_dial_opts *opts, struct net_conn **out);

/*
 * Where a connection to addr would come from, without port, as net_dial()
 * chooses it; source may be NULL. Returns 0, -EHOSTUNREACH (no interface and no
 * gateway leads there), -EINVAL (NULL, or no address).
 */
int net_route(struct net_stack *stack, const struct net_addr *addr,
	      struct net_addr *source);

/* Whether an address is one of the stack's own; NULL or none: it is not. */
bool net_is_local(struct net_stack *stack, const struct net_addr *addr);

/* Views a connection may have out; net_recv_view() says -ENOBUFS beyond. */
#define NET_VIEWS_MAX 256

/*
 * Received bytes where the NIC put them. Owned by the caller until
 * net_view_release() or net_send_view(), or until its handler returns; without
 * a handler, until the connection is closed. What has not been released by then
 * is reclaimed, counted (net_stats.views_reclaimed) and logged. The struct
 * itself may lie on a coroutine's stack, the bytes never do.
 */
struct net_view {
	const void *data;
	size_t len;
	void *owner; /* private */
};

/*
 * Blocks until bytes are there. Returns how many (the next piece in order),
 * 0 when the peer has finished sending, -ECONNRESET, -ENOTCONN (shut down for
 * reading here), -ENOBUFS (NET_VIEWS_MAX are out; nothing is lost). The window
 * opens again as soon as bytes are taken.
 */
long net_recv_view(struct net_conn *conn, struct net_view *view);

/*
 * What net_recv_view() is made of, not to be called by itself. It is inlined
 * where it is called: an idle connection waits in it, and keeps what lies on
 * its stack. So nothing of ours does but the handler's own frame.
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
 * Gives the bytes back and empties *view; an empty one is ignored. A copy of a
 * view that has been released, sent or reclaimed is recognised, logged and
 * counted (net_stats.view_misuses), and harms nobody.
 */
void net_view_release(struct net_conn *conn, struct net_view *view);

/* Copies at most len bytes. Blocks until there is one. As net_recv_view(). */
long net_recv(struct net_conn *conn, void *buf, size_t len);

/*
 * As net_recv(), but the bytes stay to be received, and the window is not
 * opened by them.
 */
long net_peek(struct net_conn *conn, void *buf, size_t len);

/* Blocks until len bytes or the end: returns less than len only at the end. */
long net_recv_full(struct net_conn *conn, void *buf, size_t len);

#define NET_DELIM_MAX	   64		/* bytes of a delimiter */
#define NET_RECV_UNTIL_MAX (128 * 1024) /* bytes before it, itself included */

/*
 * Blocks until the delimiter has come and copies the bytes up to it and itself,
 * at most len; what comes after it stays for the next call. Returns how many,
 * 0 when the peer has finished sending and nothing is left, or
 *   -EMSGSIZE  the first len bytes hold no delimiter; or NET_RECV_UNTIL_MAX do,
 *              or as many as the window takes (64 KiB where the peer does not
 *              scale it, RFC 7323): it opens only when bytes are read
 *   -ENODATA   the peer has finished sending, and what is left holds none
 *   -EINVAL    the delimiter is empty, longer than NET_DELIM_MAX or than len
 * and the errors of net_recv(). With any error nothing is lost: what has come
 * can still be read by any call.
 */
long net_recv_until(struct net_conn *conn, void *buf, size_t len,
		    const void *delim, size_t delim_len);

#define NET_IOV_MAX 1024 /* vectors a call takes; more: -EINVAL */

/*
 * As net_recv(), into several buffers, one after the other; empty ones are
 * skipped. -EINVAL also if their sum is beyond LONG_MAX.
 */
long net_recvv(struct net_conn *conn, const struct iovec *iov, unsigned n);

/*
 * Queues bytes for sending (copied). Blocks while the send buffer is full.
 * Returns how many were taken, at least one; -EPIPE after net_shutdown(), or
 * when the connection is closed; -ECONNRESET; -ENOMEM.
 */
long net_send(struct net_conn *conn, const void *buf, size_t len);

/*
 * Blocks until net_send() would take something without blocking: how many
 * bytes at most, or an error as net_send() gives it.
 */
long net_writable(struct net_conn *conn);

/*
 * All of them: returns len or an error, which does not tell how many bytes
 * went before it.
 */
long net_send_all(struct net_conn *conn, const void *buf, size_t len);

/* As net_send() and net_send_all(), from several buffers: net_recvv(). */
long net_sendv(struct net_conn *conn, const struct iovec *iov, unsigned n);
long net_sendv_all(struct net_conn *conn, const struct iovec *iov, unsigned n);

/*
 * Takes a buffer back: called once for each that was given away, on the
 * stack's thread and in no coroutine's place. It may free memory and make
 * coroutines ready; it must not block.
 */
typedef void (*net_release)(void *arg);

/*
 * Queues bytes for sending without copying them: the buffer is the stack's
 * until release(arg) gives it back. That is exactly once, whatever this call
 * returns but -EINVAL (no release, no data): when the peer has acknowledged
 * every byte and no frame on its way out refers to one, or when the connection
 * has ended otherwise, or after an error when what was queued has left. It is
 * never before this call returns, unless -ENOMEM is all there was to do. Until
 * then the bytes must not change, since they may be sent again, and they must
 * not lie on a coroutine's stack: on a shared one the process ends with a
 * sentence that says so.
 *
 * Blocks while the send buffer is full. Returns len, or an error as net_send()
 * gives it: the first bytes may then have been queued.
 *
 * Links that hand addresses to a device or another process (vhost, pci,
 * af_xdp) get a copy, made when a segment goes out.
 */
long net_send_owned(struct net_conn *conn, const void *data, size_t len,
		    net_release release, void *arg);

/*
 * Sends a view and releases it, whatever comes. Returns its length or an error
 * as net_send() gives it. A large view is sent from where it was received, as
 * long as such views hold few of the port's frames, and copied otherwise.
 * -EINVAL: the view is not out any more (see net_view_release()).
 */
long net_send_view(struct net_conn *conn, struct net_view *view);

enum net_shut { NET_SHUT_RD = 1, NET_SHUT_WR = 2, NET_SHUT_RDWR = 3 };

/*
 * Ends one direction or both: WR sends FIN after what is queued, RD discards
 * what comes. A call blocked in that direction returns. 0, -ENOTCONN (the
 * connection is over), -EINVAL (how).
 */
int net_shutdown(struct net_conn *conn, enum net_shut how);

/*
 * Closes gracefully: what is queued is still delivered, FIN follows, and lwIP
 * goes on trying for as long as TCP does (minutes, if the peer is silent). If
 * bytes have arrived that nobody has read, the peer gets RST instead (RFC 2525
 * 2.17). Does not block; conn is gone. Other coroutines blocked in it: -EBADF.
 * NULL is ignored, as is a connection closed already.
 */
void net_close(struct net_conn *conn);

/*
 * Closes gracefully and blocks until the peer has acknowledged everything, the
 * FIN too, or the deadline (absolute, net_now_ns; CORO_FOREVER: none but the
 * coroutine's) has passed. Bytes the peer sends meanwhile, or had sent, are
 * thrown away: a RST for them could destroy what it has yet to read. Returns
 *   0             the peer's TCP has it all (its application: who knows)
 *   -ETIMEDOUT    it has not; it was sent a RST. Also when TCP itself gave up
 *   -ECONNRESET   the peer sent a RST first
 *   -ECONNABORTED another coroutine called net_abort() meanwhile
 *   -ECANCELED    of the coroutine, net_cancel(), or the stack stops: no longer
 *                 waited for; delivery goes on as after net_close()
 * and conn is gone, whichever it is; but it is not for
 *   -EPERM        outside a coroutine
 *   -EBUSY        another coroutine is blocked writing to it
 *   -EBADF        there is none
 */
int net_close_wait(struct net_conn *conn, int64_t deadline_ns);

/*
 * Whether the peers of all connections that were closed have acknowledged what
 * was written and the FIN; a peer that has yet to close does not count. For a
 * program that is about to end: until then nothing of its stack is left to
 * deliver what is queued. A walk over connections that are closed and not yet
 * gone. NULL: true.
 */
bool net_stack_delivered(const struct net_stack *stack);

/* Sends RST; conn is gone. NULL or closed: ignored. Blocked calls: -EBADF. */
void net_abort(struct net_conn *conn);

/*
 * Makes every call blocked on the connection return -ECANCELED now, and those
 * made later at once, even if there are bytes to read. Its owner still closes
 * it, in any way; net_close_wait() after a cancel waits as ever. From any
 * coroutine, timer or wake-up of the thread. Returns 0, -EBADF.
 */
int net_cancel(struct net_conn *conn);

/* ---- waiting for several things ---- */

#define NET_POLL_MAX 512 /* items a net_poll() takes */

/*
 * What an item waits for, and what it is told. A condition lasts until it is
 * dealt with: asking again reports it again (level-triggered).
 */
enum net_poll_events {
	/* net_recv() would not block: bytes, the end, an error. A listener:
	 * net_accept() would not. A channel: it can be received from. */
	NET_READABLE = 1,
	/* net_send() would not block. A channel: it can be sent to. */
	NET_WRITABLE = 2,
	/* The peer has finished sending. A channel: it is closed. */
	NET_PEER_CLOSED = 4,
	/* Told whether asked or not: */
	NET_FAILED = 8, /* the connection is over: reset, timed out,
			   cancelled, or closed both ways */
	NET_GONE = 16,	/* closed by another coroutine: don't use it again */
};

struct coro_chan;

/* One of conn, listener and chan, or none: such an item is never ready. */
struct net_poll_item {
	struct net_conn *conn;
	struct net_listener *listener;
	struct coro_chan *chan; /* coronet/coro_chan.h */
	unsigned events;	/* enum net_poll_events, 0: the told ones */
	unsigned revents;	/* out: what is so now */
};

/*
 * Blocks until at least one item is ready or the deadline (absolute,
 * net_now_ns; CORO_FOREVER: none) has passed; a deadline that has passed makes
 * it look and return, from anywhere on the thread. The array may lie on the
 * coroutine's stack. Any number of coroutines may poll one object, beside one
 * that is blocked in it. Takes nothing: a coroutine that was told may find that
 * another one was faster, and block. Returns how many items have revents, 0 at
 * the deadline, -ETIMEDOUT at the coroutine's own, -ECANCELED, -EPERM, -EINVAL
 * (more than NET_POLL_MAX items, two objects in one, unknown events), -ENOMEM.
 */
int net_poll(struct net_poll_item *items, unsigned n, int64_t deadline_ns);

/* Which of these events a connection has now, as net_poll() tells them;
 * NET_FAILED and NET_GONE (NULL: the latter) whether asked for or not. */
unsigned net_ready(const struct net_conn *conn, unsigned events);

/* ---- waiting for the kernel ---- */

/*
 * Block the calling coroutine, and not its thread, until a descriptor of the
 * kernel's is ready: a pipe, an eventfd, a Unix socket, inotify. Arguments,
 * result and errors are those of coro_fd_wait() (coronet/coro_io.h), with
 * deadline_ns by net_now_ns(), or CORO_FOREVER; -ECANCELED once the stack
 * stops, too.
 */
int net_fd_wait(int fd, int events, int64_t deadline_ns);

/*
 * Block the calling coroutine, and not its thread, while fn(arg) runs on one of
 * a few threads for such functions: reading files, fsync(2), getaddrinfo(3), a
 * database in a library. fn may call nothing of this header but what any thread
 * may. Result, limits and errors are those of coro_offload_until()
 * (coronet/coro_io.h); a stack that stops waits for what has begun.
 */
int net_offload(coro_fn fn, void *arg, void **result, int64_t deadline_ns);

/*
 * Absolute times (net_now_ns) after which reads, or writes, return
 * -ETIMEDOUT; CORO_FOREVER takes them away. A call that is blocked already
 * keeps the one it began with. Without memory for the first, -ENOMEM is what
 * the connection fails with.
 */
void net_set_read_deadline(struct net_conn *conn, int64_t deadline_ns);
void net_set_write_deadline(struct net_conn *conn, int64_t deadline_ns);

/* TCP_NODELAY, on by default. */
void net_set_nodelay(struct net_conn *conn, bool on);

/*
 * The congestion control of a connection, at any time in its life:
 *   "cubic"  RFC 9438, with HyStart++ (RFC 9406)
 *   "reno"   RFC 5681, with HyStart++
 *   "bbr"    BBR version 3, draft-ietf-ccwg-bbr-06
 * Returns 0, -EBADF, -EINVAL (NULL, or there is none of that name), -ENOTCONN
 * (it is over).
 */
int net_set_cc(struct net_conn *conn, const char *name);

/*
 * Lets a connection send no more than so many bytes a second, TCP's payload,
 * what is sent again included; UINT64_MAX or 0: as many as its congestion
 * control lets it, which is how it begins. Kept to one part in a thousand,
 * rounded down. At once leave what a millisecond allows, or two segments; a
 * probe for a lost tail may come on top. Returns 0, -EBADF, -ENOTCONN (it is
 * over).
 */
int net_set_pacing_rate(struct net_conn *conn, uint64_t bytes_per_s);

/*
 * Keepalive probes: idle and interval in seconds, 1 to 1,000,000, count 1 to
 * 255, and all of it, idle + count * interval, at most 4,294,967 s (49 days);
 * idle 0 turns them off. 0, -EINVAL, -ENOTCONN (it is over), -EBADF.
 */
int net_set_keepalive(struct net_conn *conn, unsigned idle_s,
		      unsigned interval_s, unsigned count);

/*
 * How many ms something may wait for the peer before the connection is given
 * up: the user timeout of RFC 5482 for this side alone, with the meaning of
 * Linux's TCP_USER_TIMEOUT. That is data, or FIN, from the first time that it
 * had to be sent again; what a shut window holds back, from when that was found
 * and though the peer answers; and with keepalive a peer that has been asked
 * and has said nothing for so long, however often. Calls return -ETIMEDOUT
 * then. A connection that its owner has closed keeps it. 0, which is how it
 * begins: TCP's own bounds. To a timer's grain, 20 ms or so.
 * The first for a connection takes 128 bytes. Returns 0, -EBADF, -EINVAL (more
 * than 2,000,000,000), -ENOTCONN (it is over), -ENOMEM.
 */
int net_set_user_timeout(struct net_conn *conn, unsigned ms);

/*
 * A connection without a coroutine, for programs that are all small steps, such
 * as load generators. fn is called from the loop after each segment and each
 * timer that concerned the connection, whatever they changed, outside any
 * coroutine. Calls on the connection that would block return -EAGAIN;
 * net_recv_view() until it does, or returns 0 or another error, is how bytes,
 * the peer's end and a failure are learnt. fn may close or abort the
 * connection.
 */
struct net_watch {
	void (*fn)(struct net_conn *conn, struct net_watch *watch);
};

/*
 * watch is borrowed until the connection is closed or another, or NULL (none),
 * takes its place; no coroutine may be blocked on the connection. What has
 * arrived before is not told: look once after this call.
 */
void net_set_watch(struct net_conn *conn, struct net_watch *watch);

/* RFC 9293 3.3.2 */
enum net_tcp_state {
	NET_TCP_CLOSED, /* over: nothing of it is left but this handle */
	NET_TCP_LISTEN,
	NET_TCP_SYN_SENT,
	NET_TCP_SYN_RCVD,
	NET_TCP_ESTABLISHED,
	NET_TCP_FIN_WAIT_1,
	NET_TCP_FIN_WAIT_2,
	NET_TCP_CLOSE_WAIT,
	NET_TCP_CLOSING,
	NET_TCP_LAST_ACK,
	NET_TCP_TIME_WAIT,
};

/* Bits of net_tcp_info.absent: what a connection cannot tell, and is 0. */
enum net_info_absent {
	NET_INFO_NO_COUNTS = 1, /* it does not count, see net_conn_stats */
	NET_INFO_NO_RTT = 2,	/* nothing has been measured yet */
	NET_INFO_NO_RATE = 4,	/* only BBR takes samples, while data moves */
	NET_INFO_NO_RCV = 8,   /* rcv_space: no round trip of reading is over */
	NET_INFO_NO_PATH = 16, /* over, or without a route: pmtu, advmss */
};

/*
 * What getsockopt(TCP_INFO) tells on Linux: its names less "tcpi_", its
 * meanings and units (segments, bytes, microseconds; ms for last_*). Where
 * Linux differs from what its name says, so does this; where we differ:
 *
 * - Counts (marked *) begin with the connection, for those that count. Linux
 *   counts a SYN in bytes_acked and delivered, and a FIN in bytes_acked and
 *   bytes_received, which this does not; its segs_in and segs_out have the
 *   handshake.
 * - sacked, lost, retrans and ca_state are of segments under way now, and
 *   exact. CWR is no state of ours.
 * - snd_mss, rcv_mss and advmss are bytes of data: what timestamps take of a
 *   segment is left out, as on Linux.
 * - reordering is always 3: later segments are told by time (RFC 8985).
 * - delivered assumes that no segment under way was cut for a smaller MTU.
 * - busy_time, rwnd_limited and sndbuf_limited are told by what holds the next
 *   segment back at the end of a round. delivered_ce counts bytes, in segments.
 * - rcv_rtt is min_rtt, which the receive window goes by; rcv_space begins with
 *   the first round trip in which something was read, and is told (*) until
 *   the window has its largest size.
 * - last_ack_recv is when anything was received, to 40 ms. last_ack_sent is 0,
 *   as on Linux, which does not know it either; so is fackets.
 */
struct net_tcp_info {
	unsigned absent; /* bits of enum net_info_absent */
	/* 1 ESTABLISHED, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT,
	 * CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, 11 CLOSING: Linux's numbers */
	uint8_t state;
	uint8_t ca_state;    /* 0 open, 1 disorder, 3 recovery, 4 loss */
	uint8_t retransmits; /* timeouts since the last progress */
	uint8_t probes;	     /* of a window or keepalive, not answered */
	uint8_t backoff;     /* doublings of the timer that runs */
	uint8_t options;     /* 1 timestamps, 2 SACK, 4 window scale */
	uint8_t snd_wscale, rcv_wscale;
	bool delivery_rate_app_limited;
	uint32_t rto, ato;	   /* us, the latter of delayed ACKs */
	uint32_t snd_mss, rcv_mss; /* the latter: longest received * */
	uint32_t unacked, sacked, lost, retrans, fackets; /* segments */
	uint32_t last_data_sent, last_ack_sent;		  /* ms ago * */
	uint32_t last_data_recv, last_ack_recv;
	uint32_t pmtu, rcv_ssthresh;   /* bytes; the latter: as grown so far */
	uint32_t rtt, rttvar, min_rtt; /* us; the last: of all samples */
	uint32_t snd_ssthresh;	       /* segments; 0x7fffffff: none yet */
	uint32_t snd_cwnd;	       /* segments, rounded down */
	uint32_t advmss, reordering, rcv_rtt, rcv_space;
	uint32_t total_retrans, total_rto;     /* segments, timeouts * */
	uint64_t pacing_rate, max_pacing_rate; /* B/s; UINT64_MAX: no limit */
	uint64_t bytes_acked, bytes_received;  /* * */
	uint64_t bytes_sent, bytes_retrans;    /* * data, resent or not */
	uint32_t segs_out, segs_in;	       /* * ACKs and all */
	uint32_t data_segs_out, data_segs_in;  /* * with data alone */
	uint32_t notsent_bytes;		       /* queued behind snd_nxt */
	uint64_t delivery_rate;		       /* B/s, of the last sample */
	uint64_t busy_time, rwnd_limited, sndbuf_limited; /* us * */
	uint32_t delivered, delivered_ce;		  /* segments * */
	/* * ACKs that told of what came twice, while something was under way */
	uint32_t dsack_dups;
	uint32_t reord_seen;	   /* * ACKs that told of another order */
	uint32_t rcv_ooopack;	   /* * segments that came before their turn */
	uint32_t snd_wnd, rcv_wnd; /* bytes: the peer's, what it was told */
};

/*
 * After the end: as it was then. What must be counted (below the line, and
 * marked in net_tcp_info) costs 128 bytes a connection: those count that began
 * while fewer than net_opts.counted_conns did; for the others it is 0.
 */
struct net_conn_stats {
	enum net_tcp_state state;
	uint32_t mss;		    /* bytes we send in a segment */
	uint32_t rtt_us, rttvar_us; /* RFC 6298; 0: not measured yet */
	uint32_t rto_us;	    /* retransmission timeout now */
	uint32_t cwnd, ssthresh;    /* congestion control, bytes */
	uint32_t snd_wnd, rcv_wnd;  /* what the peer takes, what we take */
	uint32_t unread;	    /* bytes received, not read */
	uint32_t unsent, unacked;   /* bytes queued, bytes in flight */
	const char *cc;		    /* its congestion control; static */
	uint64_t pacing_rate;	    /* bytes a second now; 0: not paced */
	bool ecn;		    /* both sides use it, RFC 3168 */
	/* ---- */
	bool counted;		     /* it counts */
	uint64_t rx_bytes, tx_bytes; /* in order; sent, each byte once */
	uint32_t rx_segs, tx_segs;   /* modulo 2^32, ACKs and all */
	uint32_t retransmits;	     /* segments sent again, for any reason */
	uint16_t rtos;		     /* timeouts; this and those below stop */
	uint16_t dup_acks;	     /* counting at 65,535 */
	uint16_t out_of_order;	     /* segments that came before their turn */
	struct net_tcp_info info;    /* the same and more, in Linux's words */
};

/*
 * Fills *out from what is there. That walks the segments under way: it takes
 * less than a microsecond for a hundred of them. 0, -EBADF.
 */
int net_conn_stats(const struct net_conn *conn, struct net_conn_stats *out);

/*
 * Names a connection for whoever looks at it: coronet-ctl, the coroutines'
 * dump, the watchdog. Copied, and cut at NET_NAME_MAX; control characters
 * become '?'. NULL takes the name away. Connections without one are called by
 * their handler. One with a name costs 64 bytes more. 0, -EBADF, -ENOMEM.
 */
int net_conn_set_name(struct net_conn *conn, const char *name);

/* What it was named, NULL: nothing. Valid until it is renamed or closed. */
const char *net_conn_name(const struct net_conn *conn);

/* Also of one that is over; family 0 for NULL. */
struct net_addr net_local_addr(const struct net_conn *conn);
struct net_addr net_peer_addr(const struct net_conn *conn);
struct net_stack *net_conn_stack(const struct net_conn *conn);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
