/*
 * The kernel's descriptors in a coroutine.
 *
 * A program that has set O_NONBLOCK wants EAGAIN and gets it from the kernel.
 * Otherwise the coroutine waits until the descriptor is ready, and the call is
 * made then. Files on disks are always ready: their calls go straight to the
 * kernel and may block the thread while the disk works, which only
 * net_offload() avoids. Passing each read from the page cache to another thread
 * would cost more than it saves.
 *
 * Data for a descriptor other than a socket is written in pieces of PIPE_BUF
 * bytes, which a writable pipe accepts without blocking.
 */
#include "netstack/sockets/whole.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/poll.h>
#include <sys/stat.h>

/* Also true if the kernel refuses a call at once, as on a pipe's wrong end. */
static bool is_nonblocking(int fd, int events)
{
	int flags = net_real()->fcntl(fd, F_GETFL);
	int not_open_for = events & POLLOUT ? O_RDONLY : O_WRONLY;

	return flags < 0 || flags & O_NONBLOCK ||
	       (flags & O_ACCMODE) == not_open_for;
}

/* Returns a numeric option of SOL_SOCKET; below 0: it is no socket. */
static int option_of(int fd, int name)
{
	int value = 0, saved = errno;
	socklen_t len = sizeof(value);

	if (net_real()->getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0)
		value = -1;
	errno = saved;
	return value;
}

/* SO_RCVTIMEO or SO_SNDTIMEO of a kernel's socket, ns; below 0: none. */
static int64_t timeout_of(int fd, int events)
{
	struct timeval tv = {0};
	socklen_t len = sizeof(tv);
	int name = events & POLLOUT ? SO_SNDTIMEO : SO_RCVTIMEO;
	int saved = errno;
	int64_t ns = -1;

	if (net_real()->getsockopt(fd, SOL_SOCKET, name, &tv, &len) == 0 &&
	    (tv.tv_sec || tv.tv_usec))
		ns = tv.tv_sec * INT64_C(1000000000) + tv.tv_usec * 1000;
	errno = saved;
	return ns;
}

/* Waits until it is ready, whatever its flags. */
static long wait_ready(int fd, int events)
{
	struct pollfd p = {.fd = fd, .events = (short)events};
	int saved = errno, err;
	int64_t deadline;

	if (net_real()->poll(&p, 1, 0) > 0)
		return 0;
	deadline = net_deadline_in(timeout_of(fd, events));
	err = net_fd_wait(fd, events, deadline);
	errno = saved;
	if (err == -ETIMEDOUT && net_has_passed(deadline))
		return -EAGAIN;
	/* The call itself reports other errors better. */
	return err == -ETIMEDOUT || err == -ECANCELED || err == -EINTR ||
			       err == -ENOMEM
		       ? err
		       : 0;
}

long net_kernel_wait(int fd, int events)
{
	if (!net_in_coroutine() || is_nonblocking(fd, events))
		return 0;
	return wait_ready(fd, events);
}

long net_kernel_wait_socket(int fd, int events)
{
	if (!net_in_coroutine() || option_of(fd, SO_TYPE) < 0)
		return 0;
	return net_kernel_wait(fd, events);
}

long net_kernel_wait_accept(int fd)
{
	if (!net_in_coroutine() || option_of(fd, SO_ACCEPTCONN) != 1)
		return 0;
	return net_kernel_wait(fd, POLLIN);
}

ssize_t net_kernel_recv(int fd, void *buf, size_t len, int flags)
{
	ssize_t n, done = 0;

	if (flags & (MSG_DONTWAIT | MSG_ERRQUEUE) || !net_in_coroutine() ||
	    is_nonblocking(fd, POLLIN) || option_of(fd, SO_TYPE) < 0)
		return net_real()->recv(fd, buf, len, flags);
	do {
		long err = wait_ready(fd, POLLIN);

		if (err < 0)
			return done ? done : net_result(err);
		n = net_real()->recv(fd, (char *)buf + done, len - (size_t)done,
				     flags & ~MSG_WAITALL);
		if (n <= 0)
			return done ? done : n;
		done += n;
	} while (flags & MSG_WAITALL && !(flags & MSG_PEEK) &&
		 (size_t)done < len);
	return done;
}

/* ---- writing ---- */

/* Sends all of a buffer; if the kernel has no room, waits and tries again. */
static ssize_t send_remaining(int fd, const char *at, size_t len, int flags)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = net_real()->send(fd, at + done, len - done,
					     flags | MSG_DONTWAIT);
		long err;

		if (n >= 0) {
			done += (size_t)n;
			continue;
		}
		if (errno != EAGAIN)
			return done ? (ssize_t)done : -1;
		err = wait_ready(fd, POLLOUT);
		if (err < 0)
			return done ? (ssize_t)done : net_result(err);
	}
	return (ssize_t)done;
}

static bool is_stream(int fd)
{
	return option_of(fd, SO_TYPE) == SOCK_STREAM;
}

/* The first bytes have gone: sends those behind them. */
static ssize_t send_behind(int fd, const struct msghdr *msg, size_t first,
			   int flags)
{
	size_t done = first, skip = first;

	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		const struct iovec *iov = &msg->msg_iov[i];
		size_t over = skip < iov->iov_len ? skip : iov->iov_len;
		ssize_t n;

		skip -= over;
		if (over == iov->iov_len)
			continue;
		n = send_remaining(fd, (const char *)iov->iov_base + over,
				   iov->iov_len - over, flags);
		if (n > 0)
			done += (size_t)n;
		if (n < (ssize_t)(iov->iov_len - over))
			break;
	}
	return (ssize_t)done;
}

/* Sends to a socket, and waits for room. */
static ssize_t send_waiting(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n;

	while ((n = net_real()->sendmsg(fd, msg, flags | MSG_DONTWAIT)) < 0 &&
	       errno == EAGAIN) {
		long err = wait_ready(fd, POLLOUT);

		if (err < 0)
			return net_result(err);
	}
	return n <= 0 || !is_stream(fd)
		       ? n
		       : send_behind(fd, msg, (size_t)n, flags);
}

ssize_t net_kernel_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (flags & MSG_DONTWAIT || !net_in_coroutine() ||
	    is_nonblocking(fd, POLLOUT))
		return net_real()->sendmsg(fd, msg, flags);
	return send_waiting(fd, msg, flags);
}

static ssize_t write_pieces(int fd, const char *at, size_t len)
{
	size_t done = 0;

	do {
		size_t part = len - done < PIPE_BUF ? len - done : PIPE_BUF;
		long err = wait_ready(fd, POLLOUT);
		ssize_t n;

		if (err < 0)
			return done ? (ssize_t)done : net_result(err);
		n = net_real()->write(fd, at + done, part);
		if (n < 0)
			return done ? (ssize_t)done : n;
		done += (size_t)n;
		if ((size_t)n < part)
			break;
	} while (done < len);
	return (ssize_t)done;
}

/* Returns true if the kernel can be called at once, whatever it does. */
static bool writes_straight(int fd, mode_t *mode)
{
	struct stat st;

	if (!net_in_coroutine() || is_nonblocking(fd, POLLOUT) ||
	    fstat(fd, &st) < 0)
		return true;
	*mode = st.st_mode;
	return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ||
	       S_ISBLK(st.st_mode);
}

ssize_t net_kernel_write(int fd, const void *buf, size_t len)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	mode_t mode;

	if (writes_straight(fd, &mode))
		return net_real()->write(fd, buf, len);
	return S_ISSOCK(mode) ? send_waiting(fd, &msg, 0)
			      : write_pieces(fd, buf, len);
}

ssize_t net_kernel_writev(int fd, const struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov,
			     .msg_iovlen = (size_t)n};
	ssize_t done = 0;
	mode_t mode;

	if (n < 0 || n > IOV_MAX || writes_straight(fd, &mode))
		return net_real()->writev(fd, iov, n);
	if (S_ISSOCK(mode))
		return send_waiting(fd, &msg, 0);
	for (int i = 0; i < n; i++) {
		ssize_t part = iov[i].iov_len
				       ? write_pieces(fd, iov[i].iov_base,
						      iov[i].iov_len)
				       : 0;

		if (part < 0)
			return done ? done : part;
		done += part;
		if ((size_t)part < iov[i].iov_len)
			break;
	}
	return done;
}

ssize_t net_kernel_sendfile(int out, int in, off_t *offset, size_t count)
{
	mode_t mode;

	if (writes_straight(out, &mode))
		return net_real()->sendfile(out, in, offset, count);
	return net_result(net_sock_sendfile(NULL, out, in, offset, count));
}

/* ---- connecting ---- */

int net_kernel_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	int flags, err = 0, rc;
	socklen_t err_len = sizeof(err);
	long waited;

	if (!net_in_coroutine() || is_nonblocking(fd, POLLOUT))
		return net_real()->connect(fd, sa, len);
	flags = net_real()->fcntl(fd, F_GETFL);
	net_real()->fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	rc = net_real()->connect(fd, sa, len);
	err = rc < 0 ? errno : 0;
	net_real()->fcntl(fd, F_SETFL, flags);
	if (rc == 0 || err != EINPROGRESS)
		return err ? (int)net_result(-err) : rc;
	waited = wait_ready(fd, POLLOUT);
	if (waited < 0)
		return (int)net_result(waited == -EAGAIN ? -EINPROGRESS
							 : waited);
	if (net_real()->getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_len) <
	    0)
		return -1;
	return (int)net_result(-err);
}
