/*
 * Reading, writing and closing.
 *
 * While a call waits, only the caller's own arguments are kept: they may lie on
 * a shared stack, and only their coroutine reads them.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/polling.h"
#include "netstack/sockets/whole.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#define SENDFILE_BYTES 65536u
#define PEEK_BYTES     (1u << 20) /* of several buffers */
#define SCRATCH	       (1u << 20) /* bytes that are discarded at once */
#define SCRATCHES      2048u /* times that, in one call: 2 GiB as on Linux */
#define SEND_BYTES     (1u << 20) /* that are looked at, and sent, at once */

/* ---- reading ---- */

static long not_connected(struct net_sock *sock)
{
	int err = sock->err;

	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	if (sock->state == NET_SOCK_CONNECTING)
		return -EAGAIN;
	sock->err = 0;
	return err ? -err : -ENOTCONN;
}

/* Returns an error of the connection once; then the stream has ended. */
static long recv_error(struct net_sock *sock, long err)
{
	if (err == -EBADF || err == -EINVAL || err == -EPERM || err == -EFAULT)
		return err;
	if (sock->err_reported || err == -ENOTCONN || err == -EPIPE)
		return 0;
	sock->err_reported = true;
	return err;
}

/*
 * Is memory there for what can be read now? A program may name more than it
 * has, as long as no bytes come for it.
 */
static bool is_reachable(struct net_sock *sock, const struct iovec *iov,
			 size_t n, size_t skip)
{
	struct net_conn_stats stats;
	size_t room = 0;

	if (likely(!net_whole.on))
		return true;
	for (size_t i = 0; i < n; i++) {
		char *at = iov[i].iov_base;
		size_t len = iov[i].iov_len, over = skip < len ? skip : len;
		size_t there = net_reachable(at + over, len - over, true);

		skip -= over;
		room += there;
		if (there < len - over)
			return net_conn_stats(sock->conn, &stats) == 0 &&
			       stats.unread <= room;
	}
	return true;
}

/* One call fills several buffers, since a second one gives the same bytes. */
static long peek_now(struct net_sock *sock, const struct iovec *iov, size_t n,
		     size_t total)
{
	size_t room = total < PEEK_BYTES ? total : PEEK_BYTES;
	uint8_t *all;
	long got, at = 0;

	if (n == 1)
		return net_peek(sock->conn, iov[0].iov_base, iov[0].iov_len);
	all = malloc(room);
	if (!all)
		return -ENOMEM;
	got = net_peek(sock->conn, all, room);
	for (size_t i = 0; i < n && at < got; i++) {
		size_t part = (size_t)(got - at);

		part = part < iov[i].iov_len ? part : iov[i].iov_len;
		if (part)
			memcpy(iov[i].iov_base, all + at, part);
		at += (long)part;
	}
	free(all);
	return got;
}

static bool has_fin(struct net_sock *sock)
{
	return net_ready(sock->conn, NET_PEER_CLOSED) != 0;
}

/* Is the stream reset, or ended in both directions? */
static bool is_over(struct net_sock *sock)
{
	return (sock->wr_shut && has_fin(sock)) ||
	       net_ready(sock->conn, 0) & (NET_FAILED | NET_GONE);
}

/* True if nothing more will come. */
static bool has_ended(struct net_sock *sock)
{
	return sock->rd_shut || has_fin(sock);
}

/* Takes what is there now: bytes, 0 at the end, -EAGAIN. */
static long recv_now(struct net_sock *sock, const struct iovec *iov, size_t n,
		     size_t skip)
{
	long done = 0;

	for (size_t i = 0; i < n; i++) {
		uint8_t *at = iov[i].iov_base;
		size_t left = iov[i].iov_len, over = skip < left ? skip : left;
		long got;

		skip -= over;
		left -= over;
		if (left == 0)
			continue;
		got = net_recv(sock->conn, at + over, left);
		if (got <= 0)
			return done ? done : got;
		done += got;
		if ((size_t)got < left)
			break;
	}
	return done;
}

static size_t total_of(const struct iovec *iov, size_t n)
{
	size_t total = 0;

	for (size_t i = 0; i < n; i++)
		if (__builtin_add_overflow(total, iov[i].iov_len, &total))
			return SIZE_MAX;
	return total;
}

static long recv_all(struct net_sock *sock, const struct iovec *iov, size_t n,
		     int flags, size_t total)
{
	bool peek = flags & MSG_PEEK;
	size_t enough = flags & MSG_WAITALL || total < sock->opts.recv_low
				? total
				: sock->opts.recv_low;
	int64_t until = 0;
	size_t done = 0;

	for (;;) {
		long got = !is_reachable(sock, iov, n, peek ? 0 : done)
				   ? -EFAULT
			   : peek ? peek_now(sock, iov, n, total)
				  : recv_now(sock, iov, n, done);

		if (got > 0) {
			done = peek ? (size_t)got : done + (size_t)got;
			if (done >= enough || (peek && has_ended(sock)))
				return (long)done;
			if (!peek) /* the end may be there already */
				continue;
			got = -EAGAIN;
		}
		if (got == -EAGAIN && sock->rd_shut)
			return (long)done;
		if (got != -EAGAIN)
			return done ? (long)done : recv_error(sock, got);
		if (sock->nonblock || flags & MSG_DONTWAIT)
			return done ? (long)done : got;
		got = net_sock_wait(sock, &sock->readable,
				    sock->opts.recv_timeout_ns, &until);
		if (got < 0)
			return done && got != -EBADF ? (long)done : got;
	}
}

/*
 * MSG_TRUNC: the bytes are discarded. With MSG_WAITALL all of them count, so
 * that many buffers are needed, which are the same memory.
 */
static long recv_nothing(struct net_sock *sock, int flags, size_t total)
{
	size_t part = total < SCRATCH ? total : SCRATCH;
	bool all = (flags & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL;
	size_t n = all ? (total - 1) / SCRATCH + 1 : 1;
	struct iovec *iov;
	long got;

	n = n < SCRATCHES ? n : SCRATCHES;
	total = total < n * SCRATCH ? total : n * SCRATCH;
	iov = malloc(n * sizeof(*iov) + part);
	if (!iov)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		iov[i] = (struct iovec){iov + n, part};
	iov[n - 1].iov_len = total - (n - 1) * SCRATCH;
	got = recv_all(sock, iov, n, flags, total);
	free(iov);
	return got;
}

long net_sock_recv(struct net_sock *sock, const struct iovec *iov, size_t n,
		   int flags)
{
	size_t total;

	if (sock->dgram)
		return net_dgram_recv(sock, iov, n, flags);
	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return flags & MSG_OOB ? -EINVAL : -EAGAIN;
	if (sock->state != NET_SOCK_CONNECTED) {
		int64_t until = 0;

		while (sock->state == NET_SOCK_CONNECTING && !sock->nonblock &&
		       !(flags & MSG_DONTWAIT)) {
			long err = net_sock_wait(sock, &sock->writable,
						 sock->opts.recv_timeout_ns,
						 &until);

			if (err < 0)
				return err;
		}
		if (sock->state != NET_SOCK_CONNECTED)
			return not_connected(sock);
	}
	if (!net_can_read(iov, n * sizeof(*iov)))
		return -EFAULT;
	total = total_of(iov, n);
	if (total > SSIZE_MAX)
		return -EINVAL;
	if (total && flags & MSG_TRUNC)
		return recv_nothing(sock, flags, total);
	return total ? recv_all(sock, iov, n, flags, total) : 0;
}

/* read(): the common case. */
long net_sock_read(struct net_sock *sock, void *buf, size_t len)
{
	struct iovec iov = {buf, len};
	int64_t until = 0;

	if (sock->state != NET_SOCK_CONNECTED || len == 0 ||
	    sock->opts.recv_low > 1)
		return sock->dgram && len == 0
			       ? 0
			       : net_sock_recv(sock, &iov, 1, 0);
	for (;;) {
		long n = is_reachable(sock, &iov, 1, 0)
				 ? net_recv(sock->conn, buf, len)
				 : -EFAULT;

		if (n >= 0)
			return n;
		if (n != -EAGAIN)
			return recv_error(sock, n);
		if (sock->rd_shut)
			return 0;
		if (sock->nonblock)
			return n;
		n = net_sock_wait(sock, &sock->readable,
				  sock->opts.recv_timeout_ns, &until);
		if (n < 0)
			return n;
	}
}

/* ---- writing ---- */

static long send_error(struct net_sock *sock, long err, int flags)
{
	if (err == -EBADF || err == -EINVAL || err == -EPERM || err == -EFAULT)
		return err;
	if (!sock->err_reported && err != -EPIPE && err != -ENOTCONN) {
		sock->err_reported = true;
		return err;
	}
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	return -EPIPE;
}

/* Sends one buffer: how many bytes, all unless it may not wait, or an error. */
static long send_buffer(struct net_sock *sock, const uint8_t *at, size_t len,
			int flags, int64_t *until)
{
	size_t done = 0;

	while (done < len) {
		size_t part = len - done < SEND_BYTES ? len - done : SEND_BYTES;
		long n = net_can_read(at + done, part)
				 ? net_send(sock->conn, at + done, part)
				 : -EFAULT;

		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n == -EAGAIN) {
			sock->no_space = true;
			if (sock->nonblock || flags & MSG_DONTWAIT)
				return done ? (long)done : n;
			n = net_sock_wait(sock, &sock->writable,
					  sock->opts.send_timeout_ns, until);
			if (n == 0)
				continue;
			if (n == -EPIPE) /* disconnected: no signal */
				n = not_connected(sock);
			/* With -EBADF the socket has been freed. */
			if (n == -EBADF || !sock->conn || n == -EAGAIN)
				return done ? (long)done : n;
		}
		return done ? (long)done : send_error(sock, n, flags);
	}
	return (long)done;
}

static long send_all(struct net_sock *sock, const struct iovec *iov, size_t n,
		     int flags)
{
	int64_t until = 0;
	long done = 0;

	for (size_t i = 0; i < n; i++) {
		long part;

		if (iov[i].iov_len == 0)
			continue;
		part = send_buffer(sock, iov[i].iov_base, iov[i].iov_len, flags,
				   &until);
		if (part < 0)
			return done ? done : part;
		done += part;
		if ((size_t)part < iov[i].iov_len)
			break;
	}
	return done;
}

long net_sock_send(struct net_sock *sock, const struct iovec *iov, size_t n,
		   int flags)
{
	int64_t until = 0;

	if (sock->dgram)
		return net_dgram_send(sock, iov, n, flags);
	if (flags & (MSG_OOB | MSG_FASTOPEN))
		return -EOPNOTSUPP;
	while (sock->state == NET_SOCK_CONNECTING && !sock->nonblock &&
	       !(flags & MSG_DONTWAIT)) {
		long err = net_sock_wait(sock, &sock->writable,
					 sock->opts.send_timeout_ns, &until);

		if (err < 0)
			return err;
	}
	if (sock->state != NET_SOCK_CONNECTED) {
		long err = not_connected(sock);

		return err == -ENOTCONN ? send_error(sock, err, flags) : err;
	}
	if (sock->wr_shut)
		return send_error(sock, -EPIPE, flags);
	if (n > IOV_MAX)
		return -EINVAL;
	if (!net_can_read(iov, n * sizeof(*iov)))
		return -EFAULT;
	if (total_of(iov, n) > SSIZE_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n && n > 1; i++)
		if (!net_can_read(iov[i].iov_base, iov[i].iov_len))
			return -EFAULT;
	return send_all(sock, iov, n, flags);
}

/* Sends the rest of a buffer that does not fit at once. */
__attribute__((noinline)) static long
write_remaining(struct net_sock *sock, const uint8_t *buf, size_t len, long n)
{
	struct iovec iov = {(void *)buf, len};
	int64_t until = 0;
	long rest;

	if (n <= 0)
		return net_sock_send(sock, &iov, 1, 0);
	rest = send_buffer(sock, buf + n, len - (size_t)n, 0, &until);
	return rest < 0 ? n : n + rest;
}

/* write(): the common case. */
long net_sock_write(struct net_sock *sock, const void *buf, size_t len)
{
	long n = 0;

	if (likely(sock->state == NET_SOCK_CONNECTED) && len <= SEND_BYTES &&
	    net_can_read(buf, len))
		n = net_send(sock->conn, buf, len);
	if (likely(n == (long)len && n > 0))
		return n;
	return write_remaining(sock, buf, len, n);
}

/* ---- sendfile ---- */

static long send_part(struct net_sock *sock, int out, const void *buf,
		      size_t len)
{
	struct iovec iov = {(void *)buf, len};

	if (sock)
		return net_sock_send(sock, &iov, 1, 0);
	len = (size_t)net_kernel_write(out, buf, len);
	return (long)len < 0 ? -errno : (long)len;
}

/* sock is the stack's socket that `out` is, or NULL: it is the kernel's. */
long net_sock_sendfile(struct net_sock *sock, int out, int in, off_t *offset,
		       size_t count)
{
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	uint8_t *buf = at < 0 ? NULL : malloc(SENDFILE_BYTES);
	long done = 0, err = 0;

	if (at < 0)
		return offset || errno == ESPIPE ? -EINVAL : -errno;
	if (!buf)
		return -ENOMEM;
	while ((size_t)done < count) {
		size_t part = count - (size_t)done;
		ssize_t n = pread(in, buf,
				  part < SENDFILE_BYTES ? part : SENDFILE_BYTES,
				  at + done);

		if (n <= 0) {
			err = n < 0 ? -errno : 0;
			break;
		}
		err = send_part(sock, out, buf, (size_t)n);
		if (err < 0)
			break;
		done += err;
		if (err < n)
			break;
	}
	free(buf);
	if (done && offset)
		*offset = at + done;
	else if (done)
		lseek(in, at + done, SEEK_SET);
	return done ? done : err < 0 ? err : 0;
}

/* ---- closing ---- */

/*
 * As on Linux, after SHUT_RD the program still reads received bytes, and those
 * that arrive later; where it would wait, it reads the end of the stream.
 */
long net_sock_shutdown(struct net_sock *sock, int how)
{
	long err = 0;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	if (sock->dgram)
		return net_dgram_shutdown(sock, how);
	if (sock->state == NET_SOCK_LISTENING) {
		if (how == SHUT_WR)
			return 0;
		net_sock_unlisten(sock);
		sock->state = NET_SOCK_BOUND;
	} else if (sock->state == NET_SOCK_CONNECTED) {
		if (is_over(sock))
			return -ENOTCONN;
		sock->rd_shut |= how != SHUT_WR;
		sock->wr_shut |= how != SHUT_RD;
		if (how != SHUT_RD)
			err = net_shutdown(sock->conn, NET_SHUT_WR);
	} else if (sock->state == NET_SOCK_CONNECTING) {
		return net_sock_abort_connect(sock);
	} else {
		return -ENOTCONN;
	}
	net_sock_notify(sock, net_sock_events(sock));
	return err;
}

static void leave_nodes(struct net_sock *sock)
{
	while (sock->nodes) {
		struct net_sock_node *node = sock->nodes;

		net_node_remove(node);
		if (net_epoll_is_node(node))
			net_epoll_node_gone(node);
		else
			node->fn(node, POLLNVAL);
	}
}

void net_sock_close(struct net_sock *sock)
{
	struct net_conn *conn = sock->conn;
	bool listening = sock->state == NET_SOCK_LISTENING;

	if (sock->state == NET_SOCK_CLOSED)
		return;
	sock->state = NET_SOCK_CLOSED;
	sock->conn = NULL;
	if (listening)
		net_sock_unlisten(sock);
	if (sock->dgram)
		net_dgram_close(sock);
	if (sock->helper)
		coro_cancel(sock->helper);
	if (conn && sock->opts.linger.on && sock->opts.linger.seconds == 0)
		net_abort(conn);
	else
		net_close(conn);
	net_waitq_wake(&sock->readable);
	net_waitq_wake(&sock->writable);
	leave_nodes(sock);
}

/* Runs in a coroutine of its own, since close() may be called outside one. */
static void *close_slowly(void *arg)
{
	struct net_sock *sock = arg;
	struct net_conn *conn = sock->conn;

	sock->conn = NULL;
	net_close_wait(conn, CORO_FOREVER);
	sock->helper = NULL;
	net_waitq_wake(&sock->writable);
	net_sock_put(sock);
	return NULL;
}

/* As on Linux, O_NONBLOCK does not matter. */
bool net_sock_linger(struct net_sock *sock)
{
	const struct coro_attr attr = {.name = "close"};
	struct net_conn *conn = sock->conn;

	if (sock->fds > 1 || sock->state != NET_SOCK_CONNECTED ||
	    !sock->opts.linger.on || sock->opts.linger.seconds == 0 ||
	    !net_may_wait())
		return false;
	sock->conn = NULL;
	net_sock_close(sock);
	if (coro_spawn(coro_sched_self(), &attr, close_slowly, sock,
		       &sock->helper) < 0) {
		net_close(conn);
		return false;
	}
	coro_detach(sock->helper);
	net_set_watch(conn, NULL);
	sock->conn = conn;
	net_sock_hold(sock); /* for the coroutine */
	net_sock_hold(sock);
	return true;
}

void net_sock_await_close(struct net_sock *sock)
{
	int64_t ns = sock->opts.linger.seconds * INT64_C(1000000000);
	int64_t until = net_deadline_in(ns);
	int err = 0;

	net_unrestartable(true);
	while (sock->helper && err == 0)
		err = net_waitq_wait(&sock->writable, until);
	net_unrestartable(false);
	if (sock->helper)
		coro_cancel(sock->helper); /* the stack closes it alone */
	net_sock_put(sock);
}

long net_sock_name(struct net_sock *sock, bool peer, struct sockaddr *sa,
		   socklen_t *len)
{
	struct net_addr addr;

	if (!net_can_write_name(sa, len))
		return -EFAULT;
	if (sock->dgram)
		return net_dgram_name(sock, peer, sa, len);
	if (!peer && sock->state == NET_SOCK_BOUND && sock->local.family &&
	    sock->local.port == 0)
		net_sock_choose_port(sock);
	addr = sock->local;
	if (peer && (sock->state != NET_SOCK_CONNECTED || is_over(sock)))
		return -ENOTCONN;
	if (sock->state == NET_SOCK_CONNECTING)
		addr = sock->dials_from;
	if (sock->state == NET_SOCK_CONNECTED)
		addr = peer ? net_peer_addr(sock->conn)
			    : net_local_addr(sock->conn);
	return net_addr_to_sockaddr(&addr, sock->v6, sa, len);
}
