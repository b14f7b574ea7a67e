/*
 * Hooks of the calls that read and write bytes.
 */
#include "netstack/sockets/whole.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/poll.h>
#include <sys/sendfile.h>
#include <unistd.h>

#define WHOSE(fd, sock) net_fd_sock(fd, sock, __func__)

void __chk_fail(void) __attribute__((noreturn)); /* the C library's */

/* ---- reading ---- */

static ssize_t recv_one(struct net_sock *sock, int whose, void *buf, size_t len,
			int flags)
{
	struct iovec iov = {buf, len};

	return net_result(
		whose < 0 ? whose
			  : net_read_done(net_sock_recv(sock, &iov, 1, flags)));
}

__attribute__((noinline)) static ssize_t read_further(int fd, void *buf,
						      size_t len)
{
	struct net_sock *sock;
	long err;

	if (net_fd_needs_baton(fd))
		return NET_WITH_BATON(read, fd, (long)buf, (long)len);
	err = net_fd_sock(fd, &sock, "read");
	if (net_fd_is_lost((int)err))
		err = -EBADF;
	if (err < 0)
		return net_result(err);
	err = net_kernel_wait(fd, POLLIN);
	return err < 0 ? net_result(err) : net_real()->read(fd, buf, len);
}

NET_HOOK ssize_t read(int fd, void *buf, size_t len)
{
	struct net_sock *sock = net_fd_own(fd);

	if (unlikely(!sock))
		return read_further(fd, buf, len);
	return net_result(net_read_done(net_sock_read(sock, buf, len)));
}

/*
 * Returns whether the buffers of readv() or writev() hold no bytes. Linux
 * returns 0 then without asking the socket, so no datagram is received or sent.
 */
static bool has_no_bytes(const struct iovec *iov, int n)
{
	int i = 0;

	if (n < 0 || n > IOV_MAX ||
	    !net_can_read(iov, (size_t)n * sizeof(*iov)))
		return false;
	while (i < n && iov[i].iov_len == 0)
		i++;
	return i == n;
}

NET_HOOK ssize_t readv(int fd, const struct iovec *iov, int n)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);
	long err;

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(readv, fd, (long)iov, n);
	if (net_fd_is_lost(whose))
		whose = -EBADF;
	if (whose > 0 && has_no_bytes(iov, n))
		return 0;
	if (whose)
		return net_result(whose < 0 ? whose
				  : n < 0 || n > IOV_MAX
					  ? -EINVAL
					  : net_read_done(net_sock_recv(
						    sock, iov, (size_t)n, 0)));
	err = net_kernel_wait(fd, POLLIN);
	return err < 0 ? net_result(err) : net_real()->readv(fd, iov, n);
}

NET_HOOK ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(recv, fd, (long)buf, (long)len, flags);
	if (net_fd_is_lost(whose))
		whose = -EBADF;
	if (whose)
		return recv_one(sock, whose, buf, len, flags);
	return net_kernel_recv(fd, buf, len, flags);
}

NET_HOOK ssize_t __read(int fd, void *buf, size_t len);
NET_HOOK ssize_t __read(int fd, void *buf, size_t len)
{
	return read(fd, buf, len);
}

NET_HOOK ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);
NET_HOOK ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	if (len > room)
		__chk_fail();
	return read(fd, buf, len);
}

NET_HOOK ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room,
			    int flags);
NET_HOOK ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room,
			    int flags)
{
	if (len > room)
		__chk_fail();
	return recv(fd, buf, len, flags);
}

/* ---- writing ---- */

static ssize_t send_one(struct net_sock *sock, int whose, const void *buf,
			size_t len, int flags)
{
	struct iovec iov = {(void *)buf, len};

	return net_result(
		whose < 0 ? whose
			  : net_done(net_sock_send(sock, &iov, 1, flags)));
}

__attribute__((noinline)) static ssize_t write_further(int fd, const void *buf,
						       size_t len)
{
	struct net_sock *sock;
	int whose;

	if (net_fd_needs_baton(fd))
		return NET_WITH_BATON(write, fd, (long)buf, (long)len);
	whose = net_fd_sock(fd, &sock, "write");
	if (whose < 0)
		return net_result(whose);
	return net_kernel_write(fd, buf, len);
}

NET_HOOK ssize_t write(int fd, const void *buf, size_t len)
{
	struct net_sock *sock = net_fd_own(fd);

	if (unlikely(!sock))
		return write_further(fd, buf, len);
	return net_result(net_done(net_sock_write(sock, buf, len)));
}

NET_HOOK ssize_t __write(int fd, const void *buf, size_t len);
NET_HOOK ssize_t __write(int fd, const void *buf, size_t len)
{
	return write(fd, buf, len);
}

NET_HOOK ssize_t writev(int fd, const struct iovec *iov, int n)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(writev, fd, (long)iov, n);
	if (whose > 0 && has_no_bytes(iov, n))
		return 0;
	if (whose)
		return net_result(whose < 0 ? whose
				  : n < 0   ? -EINVAL
					    : net_done(net_sock_send(
						      sock, iov, (size_t)n, 0)));
	return net_kernel_writev(fd, iov, n);
}

NET_HOOK ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(send, fd, (long)buf, (long)len, flags);
	if (whose)
		return send_one(sock, whose, buf, len, flags);
	if (!net_in_coroutine())
		return net_real()->send(fd, buf, len, flags);
	return net_kernel_sendmsg(fd, &msg, flags);
}

NET_HOOK ssize_t __send(int fd, const void *buf, size_t len, int flags);
NET_HOOK ssize_t __send(int fd, const void *buf, size_t len, int flags)
{
	return send(fd, buf, len, flags);
}

/* ---- sendfile ---- */

NET_HOOK ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	struct net_sock *sock;
	int whose = net_fd_sock(in, &sock, "sendfile");

	if (net_fd_needs_baton(out) || net_fd_needs_baton(in))
		return NET_WITH_BATON(sendfile, out, in, (long)offset,
				      (long)count);
	if (whose)
		return net_result(whose < 0 ? whose : -EINVAL);
	whose = WHOSE(out, &sock);
	if (whose == 0)
		return net_kernel_sendfile(out, in, offset, count);
	return net_result(whose < 0 ? whose
				    : net_done(net_sock_sendfile(
					      sock, out, in, offset, count)));
}

NET_HOOK ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	return sendfile(out, in, offset, count);
}
