/*
 * Hooks of the calls that read and write messages, with their addresses.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/poll.h>

#define WHOSE(fd, sock) net_fd_sock(fd, sock, __func__)

void __chk_fail(void) __attribute__((noreturn)); /* the C library's */

/* ---- reading ---- */

static long recv_from(struct net_sock *sock, struct iovec *iov, int flags,
		      struct sockaddr *sa, socklen_t *sa_len)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};
	long n;

	if (!sock->dgram) {
		if (sa && sa_len)
			*sa_len = 0; /* a stream's bytes come without */
		return net_sock_recv(sock, iov, 1, flags);
	}
	if (sa) {
		if (!sa_len || !net_can_write(sa_len, sizeof(*sa_len)))
			return -EFAULT;
		msg.msg_name = sa;
		msg.msg_namelen = *sa_len;
	}
	n = net_dgram_recvmsg(sock, &msg, flags);
	if (n >= 0 && sa)
		*sa_len = msg.msg_namelen;
	return n;
}

NET_HOOK ssize_t recvfrom(int fd, void *buf, size_t len, int flags,
			  __SOCKADDR_ARG sa, socklen_t *sa_len)
{
	struct iovec iov = {buf, len};
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);
	long err;

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(recvfrom, fd, (long)buf, (long)len, flags,
				      (long)sa.__sockaddr__, (long)sa_len);
	if (net_fd_is_lost(whose))
		whose = -EBADF;
	if (whose)
		return net_result(
			whose < 0 ? whose
				  : net_read_done(recv_from(sock, &iov, flags,
							    sa.__sockaddr__,
							    sa_len)));
	err = flags & (MSG_DONTWAIT | MSG_ERRQUEUE)
		      ? 0
		      : net_kernel_wait_socket(fd, POLLIN);
	return err < 0 ? net_result(err)
		       : net_real()->recvfrom(fd, buf, len, flags,
					      sa.__sockaddr__, sa_len);
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

static long check_msg(const struct msghdr *msg)
{
	if (!net_can_read(msg, sizeof(*msg)))
		return -EFAULT;
	return msg->msg_iovlen > IOV_MAX ? -EMSGSIZE : 0;
}

static long recv_msg(struct net_sock *sock, struct msghdr *msg, int flags)
{
	long n = check_msg(msg);

	if (n < 0)
		return n;
	if (sock->dgram)
		return net_dgram_recvmsg(sock, msg, flags);
	n = net_sock_recv(sock, msg->msg_iov, msg->msg_iovlen, flags);
	if (n >= 0) {
		msg->msg_namelen = 0;
		msg->msg_controllen = 0;
		msg->msg_flags = 0;
	}
	return n;
}

NET_HOOK ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);
	long n;

	if (whose < 0 && net_fd_needs_baton(fd))
		return NET_WITH_BATON(recvmsg, fd, (long)msg, flags);
	if (net_fd_is_lost(whose))
		whose = -EBADF;
	if (whose)
		return net_result(
			whose < 0 ? whose
				  : net_read_done(recv_msg(sock, msg, flags)));
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

/* Receives messages one by one, since a stream does not delimit them. */
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
	if (net_fd_is_lost(whose))
		whose = -EBADF;
	if (whose > 0 && sock->dgram)
		return (int)net_result(net_read_done(
			net_dgram_recvmmsg(sock, msgs, n, flags, timeout)));
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

/* ---- writing ---- */

static bool read_name(const void *name, socklen_t len, struct net_addr *out)
{
	return name && len <= sizeof(struct sockaddr_storage) &&
	       net_can_read(name, len) &&
	       net_addr_from_sockaddr(name, len, out) == 0;
}

/*
 * Returns whether a socket that sends to an address is the stack's (1) or the
 * kernel's (0); the address decides for a UDP socket that is still undecided.
 */
static int whose_to(int fd, const void *name, socklen_t len, const char *call,
		    struct net_sock **sock)
{
	int whose = net_fd_sock(fd, sock, call);
	struct net_addr to;
	bool v6;

	if (likely(!name) || whose < 0)
		return whose;
	if (whose)
		return (*sock)->dgram && !(*sock)->dgram->has_passed &&
				       read_name(name, len, &to) &&
				       net_dgram_may_leave(*sock, &to)
			       ? net_sock_release(fd, *sock)
			       : 1;
	if (!net_may_wait() || !read_name(name, len, &to) ||
	    !net_ours_to_connect(&to) || !net_dgram_is_fresh(fd, &v6))
		return 0;
	return net_sock_adopt(fd, &to, false, sock);
}

/* A UDP socket may become the stack's in the call. */
static bool send_needs_baton(int fd, const void *name, socklen_t len)
{
	struct net_addr to;
	bool v6;

	return net_fd_needs_baton(fd) ||
	       (name && net_needs_baton() && read_name(name, len, &to) &&
		net_dgram_is_fresh(fd, &v6));
}

static long send_msg(struct net_sock *sock, const struct msghdr *msg, int flags)
{
	return sock->dgram ? net_dgram_sendmsg(sock, msg, flags)
			   : net_sock_send(sock, msg->msg_iov, msg->msg_iovlen,
					   flags);
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
	int whose;

	if (send_needs_baton(fd, msg.msg_name, sa_len))
		return NET_WITH_BATON(sendto, fd, (long)buf, (long)len, flags,
				      (long)sa.__sockaddr__, sa_len);
	whose = whose_to(fd, msg.msg_name, sa_len, "sendto", &sock);
	if (whose > 0 && msg.msg_name && !net_can_read(msg.msg_name, sa_len))
		whose = -EFAULT;
	if (whose)
		return net_result(
			whose < 0 ? whose
				  : net_done(send_msg(sock, &msg, flags)));
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

/* Returns the address in a message, or NULL if the message is not readable. */
static const void *name_of(const struct msghdr *msg, socklen_t *len)
{
	*len = 0;
	if (!msg || !net_fds || !net_can_read(msg, sizeof(*msg)))
		return NULL;
	*len = msg->msg_namelen;
	return msg->msg_name;
}

NET_HOOK ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct net_sock *sock;
	socklen_t len;
	const void *name = name_of(msg, &len);
	int whose;
	long n;

	if (send_needs_baton(fd, name, len))
		return NET_WITH_BATON(sendmsg, fd, (long)msg, flags);
	whose = whose_to(fd, name, len, "sendmsg", &sock);
	if (whose) {
		n = whose < 0 ? whose : check_msg(msg);
		return net_result(n < 0 ? n
					: net_done(send_msg(sock, msg, flags)));
	}
	if (msg->msg_controllen && net_fds && hands_over_own(msg))
		return net_result(-EOPNOTSUPP);
	return net_kernel_sendmsg(fd, msg, flags);
}

static int send_each(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned done = 0;

	for (; done < n; done++) {
		ssize_t len = sendmsg(fd, &msgs[done].msg_hdr, flags);

		if (len < 0)
			break;
		msgs[done].msg_len = (unsigned)len;
	}
	return done || n == 0 ? (int)done : -1;
}

NET_HOOK int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	struct net_sock *sock;
	socklen_t len = 0;
	const void *name = n ? name_of(&msgs[0].msg_hdr, &len) : NULL;
	int whose;

	if (send_needs_baton(fd, name, len))
		return (int)NET_WITH_BATON(sendmmsg, fd, (long)msgs, n, flags);
	whose = whose_to(fd, name, len, "sendmmsg", &sock);
	if (whose > 0 && sock->dgram)
		return (int)net_result(
			net_done(net_dgram_sendmmsg(sock, msgs, n, flags)));
	if (whose)
		return whose < 0 ? (int)net_result(whose)
				 : send_each(fd, msgs, n, flags);
	for (unsigned i = 0; net_fds && i < n; i++)
		if (msgs[i].msg_hdr.msg_controllen &&
		    hands_over_own(&msgs[i].msg_hdr))
			return (int)net_result(-EOPNOTSUPP);
	return net_real()->sendmmsg(fd, msgs, n, flags);
}
