/*
 * Hooks of the calls that read and write messages, with their addresses.
 */
#include "netstack/sockets/sockets_priv.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/poll.h>

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

NET_HOOK ssize_t recvfrom(int fd, void *buf, size_t len, int flags,
			  __SOCKADDR_ARG sa, socklen_t *sa_len)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);
	long err;

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(recvfrom, fd, (long)buf, (long)len, flags,
				      (long)sa.__sockaddr__, (long)sa_len);
	if (whose) {
		if (whose > 0 && sa.__sockaddr__ && sa_len)
			*sa_len = 0; /* a stream's bytes come without */
		return recv_one(sock, whose, buf, len, flags);
	}
	err = flags & (MSG_DONTWAIT | MSG_ERRQUEUE)
		      ? 0
		      : net_kernel_wait_socket(fd, POLLIN);
	return err < 0 ? net_result(err)
		       : net_real()->recvfrom(fd, buf, len, flags,
					      sa.__sockaddr__, sa_len);
}

static long check_msg(const struct msghdr *msg)
{
	if (!net_can_read(msg, sizeof(*msg)))
		return -EFAULT;
	return msg->msg_iovlen > IOV_MAX ? -EMSGSIZE : 0;
}

NET_HOOK ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);
	long n;

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(recvmsg, fd, (long)msg, flags);
	if (whose) {
		n = whose < 0 ? whose : check_msg(msg);
		if (n == 0)
			n = net_read_done(net_sock_recv(
				sock, msg->msg_iov, msg->msg_iovlen, flags));
		if (n >= 0) {
			msg->msg_namelen = 0;
			msg->msg_controllen = 0;
			msg->msg_flags = 0;
		}
		return net_result(n);
	}
	n = flags & (MSG_DONTWAIT | MSG_ERRQUEUE)
		    ? 0
		    : net_kernel_wait_socket(fd, POLLIN);
	if (n < 0)
		return net_result(n);
	n = net_real()->recvmsg(fd, msg, flags);
	if (n >= 0 && net_fds)
		net_fd_fresh_from(msg);
	return n;
}

/* One by one, since a message of a stream has no end of its own. */
static int recv_each(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned done = 0;

	for (; done < n; done++) {
		ssize_t len = recvmsg(fd, &msgs[done].msg_hdr,
				      flags & ~MSG_WAITFORONE);

		if (len < 0)
			return done ? (int)done : -1;
		msgs[done].msg_len = (unsigned)len;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (len == 0)
			return (int)done + 1;
	}
	return (int)done;
}

NET_HOOK int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags,
		      struct timespec *timeout)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock), taken;
	long err;

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(recvmmsg, fd, (long)msgs, n, flags,
					   (long)timeout);
	if (whose)
		return whose < 0 ? (int)net_result(whose)
				 : recv_each(fd, msgs, n, flags);
	err = flags & (MSG_DONTWAIT | MSG_ERRQUEUE)
		      ? 0
		      : net_kernel_wait_socket(fd, POLLIN);
	if (err < 0)
		return (int)net_result(err);
	taken = net_real()->recvmmsg(fd, msgs, n, flags, timeout);
	for (int i = 0; net_fds && i < taken; i++)
		net_fd_fresh_from(&msgs[i].msg_hdr);
	return taken;
}

NET_HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room,
				int flags, __SOCKADDR_ARG sa,
				socklen_t *sa_len);
NET_HOOK ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room,
				int flags, __SOCKADDR_ARG sa, socklen_t *sa_len)
{
	if (len > room)
		__chk_fail();
	return recvfrom(fd, buf, len, flags, sa, sa_len);
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

NET_HOOK ssize_t sendto(int fd, const void *buf, size_t len, int flags,
			__CONST_SOCKADDR_ARG sa, socklen_t sa_len)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_name = (void *)sa.__sockaddr__,
			     .msg_namelen = sa_len,
			     .msg_iov = &iov,
			     .msg_iovlen = 1};
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose && sa.__sockaddr__ && !net_can_read(sa.__sockaddr__, sa_len))
		return net_result(-EFAULT);
	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(send, fd, (long)buf, (long)len, flags);
	if (whose)
		return send_one(sock, whose, buf, len, flags);
	if (!net_in_coroutine())
		return net_real()->sendto(fd, buf, len, flags, sa.__sockaddr__,
					  sa_len);
	return net_kernel_sendmsg(fd, &msg, flags);
}

/*
 * A socket of the stack cannot be handed to another process: what would arrive
 * there is the kernel's socket that holds its number.
 */
static bool hands_over_own(const struct msghdr *msg)
{
	struct msghdr head = *msg;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&head); c;
	     c = CMSG_NXTHDR(&head, c)) {
		const int *fds = (const int *)(void *)CMSG_DATA(c);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); n;
		     n--)
			if (net_sockets_ours(fds[n - 1])) {
				net_log_seldom(
					"coronet: sendmsg(): a socket of the "
					"stack (%d) cannot be handed to "
					"another process; the call fails with "
					"EOPNOTSUPP",
					fds[n - 1]);
				return true;
			}
	}
	return false;
}

NET_HOOK ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);
	long n;

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(sendmsg, fd, (long)msg, flags);
	if (whose) {
		n = whose < 0 ? whose : check_msg(msg);
		return net_result(n < 0 ? n
					: net_done(net_sock_send(
						  sock, msg->msg_iov,
						  msg->msg_iovlen, flags)));
	}
	if (msg->msg_controllen && net_fds && hands_over_own(msg))
		return net_result(-EOPNOTSUPP);
	return net_kernel_sendmsg(fd, msg, flags);
}

NET_HOOK int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned done = 0;

	if (!net_fds || !net_sockets_ours(fd)) {
		for (unsigned i = 0; net_fds && i < n; i++)
			if (msgs[i].msg_hdr.msg_controllen &&
			    hands_over_own(&msgs[i].msg_hdr))
				return (int)net_result(-EOPNOTSUPP);
		return net_real()->sendmmsg(fd, msgs, n, flags);
	}
	for (; done < n; done++) {
		ssize_t len = sendmsg(fd, &msgs[done].msg_hdr, flags);

		if (len < 0)
			break;
		msgs[done].msg_len = (unsigned)len;
	}
	return done || n == 0 ? (int)done : -1;
}
