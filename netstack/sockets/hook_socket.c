/*
 * Hooks of socket() to close(), and of the calls that copy and change
 * descriptors.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/poll.h>

#define WHOSE(fd, sock) net_fd_sock(fd, sock, __func__)

NET_HOOK int socket(int domain, int type, int protocol)
{
	return net_fd_fresh(net_real()->socket(domain, type, protocol));
}

/* Returns 1 if the socket is the stack's, perhaps from now on, 0 if it is the
 * kernel's, or a negative errno. */
static int whose_address(int fd, const struct sockaddr *sa, socklen_t len,
			 bool to_bind, struct net_sock **sock,
			 struct net_addr *addr)
{
	int whose = net_fd_sock(fd, sock, to_bind ? "bind" : "connect");

	if (whose < 0)
		return whose;
	if (!whose && !net_may_wait())
		return 0;
	if (len > sizeof(struct sockaddr_storage))
		return whose ? -EINVAL : 0;
	if (!net_can_read(sa, len))
		return -EFAULT;
	if (net_addr_from_sockaddr(sa, len, addr) < 0)
		return whose ? net_addr_from_sockaddr(sa, len, addr) : 0;
	return whose ? whose : net_sock_adopt(fd, addr, to_bind, sock);
}

/* A socket may become the stack's in the call: the baton is needed to decide.
 */
static bool address_needs_baton(int fd, const struct sockaddr *sa,
				socklen_t len)
{
	struct net_addr addr;
	bool v6;

	return net_fd_needs_baton(fd) ||
	       (net_needs_baton() &&
		net_addr_from_sockaddr(sa, len, &addr) == 0 &&
		(net_sock_is_fresh(fd) || net_dgram_is_fresh(fd, &v6)));
}

/* Refuses a socket that a child binds: the server went to the background. */
static void look_at_child(int fd, const struct sockaddr *sa, socklen_t len)
{
	struct net_addr addr;

	if (net_whole.on && net_addr_from_sockaddr(sa, len, &addr) == 0 &&
	    (net_addr_is_any(&addr) || net_is_local(net_whole.stack, &addr)) &&
	    net_sock_is_fresh(fd))
		net_whole.refuse_child("bind");
}

NET_HOOK int bind(int fd, __CONST_SOCKADDR_ARG sa, socklen_t len)
{
	struct net_sock *sock;
	struct net_addr addr;
	int whose;

	if (address_needs_baton(fd, sa.__sockaddr__, len))
		return (int)NET_WITH_BATON(bind, fd, (long)sa.__sockaddr__,
					   len);
	if (net_is_child())
		look_at_child(fd, sa.__sockaddr__, len);
	whose = whose_address(fd, sa.__sockaddr__, len, true, &sock, &addr);
	if (whose == 0) {
		if (net_whole.late)
			net_whole.late->prepare_bind(fd);
		return net_real()->bind(fd, sa.__sockaddr__, len);
	}
	if (whose < 0)
		return (int)net_result(whose);
	return (int)net_result(net_sock_bind(sock, sa.__sockaddr__, len));
}

/*
 * Returns whether a socket bound to any address connects to one of the
 * kernel's: it is the kernel's after all, and is bound there.
 */
static bool is_kernels_after_all(const struct net_sock *sock,
				 const struct net_addr *addr)
{
	if (sock->dgram)
		return net_dgram_may_leave(sock, addr);
	return sock->state == NET_SOCK_BOUND && sock->local.family &&
	       net_addr_is_any(&sock->local) && !net_ours_to_connect(addr);
}

/* Connects by the kernel, without the baton, so that no other thread waits. */
static int connect_kernel(int fd, const struct sockaddr *sa, socklen_t len)
{
	int rc, saved;

	if (!net_calling())
		return net_kernel_connect(fd, sa, len);
	net_whole_step_out();
	rc = net_real()->connect(fd, sa, len);
	saved = errno;
	net_whole_step_in();
	errno = saved;
	return rc;
}

NET_HOOK int connect(int fd, __CONST_SOCKADDR_ARG sa, socklen_t len)
{
	struct net_sock *sock;
	struct net_addr addr;
	int whose;

	if (address_needs_baton(fd, sa.__sockaddr__, len))
		return (int)NET_WITH_BATON(connect, fd, (long)sa.__sockaddr__,
					   len);
	whose = whose_address(fd, sa.__sockaddr__, len, false, &sock, &addr);
	if (whose == -EAFNOSUPPORT && sa.__sockaddr__->sa_family == AF_UNSPEC &&
	    net_fd_sock(fd, &sock, "connect") > 0)
		return (int)net_result(net_done(net_sock_disconnect(sock)));
	if (whose < 0)
		return (int)net_result(whose);
	if (whose && is_kernels_after_all(sock, &addr)) {
		whose = net_sock_release(fd, sock);
		if (whose < 0)
			return (int)net_result(whose);
	}
	if (whose == 0)
		return connect_kernel(fd, sa.__sockaddr__, len);
	return (int)net_result(
		net_done(net_sock_connect(sock, sa.__sockaddr__, len, &addr)));
}

NET_HOOK int __connect(int fd, __CONST_SOCKADDR_ARG sa, socklen_t len);
NET_HOOK int __connect(int fd, __CONST_SOCKADDR_ARG sa, socklen_t len)
{
	return connect(fd, sa, len);
}

NET_HOOK int listen(int fd, int backlog)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(listen, fd, backlog);
	if (whose == 0)
		return net_real()->listen(fd, backlog);
	return (int)net_result(whose < 0 ? whose
					 : net_sock_listen(sock, backlog));
}

NET_HOOK int accept4(int fd, __SOCKADDR_ARG sa, socklen_t *len, int flags)
{
	struct net_sock *sock;
	int whose;
	long err;

	net_await_clients(fd);
	whose = WHOSE(fd, &sock);
	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(accept4, fd, (long)sa.__sockaddr__,
					   (long)len, flags);
	if (whose == 0) {
		err = net_kernel_wait_accept(fd);
		return err < 0 ? (int)net_result(err)
			       : net_fd_fresh(net_real()->accept4(
					 fd, sa.__sockaddr__, len, flags));
	}
	return (int)net_result(
		whose < 0 ? whose
			  : net_read_done(net_sock_accept(sock, sa.__sockaddr__,
							  len, flags)));
}

NET_HOOK int accept(int fd, __SOCKADDR_ARG sa, socklen_t *len)
{
	return accept4(fd, sa, len, 0);
}

NET_HOOK int shutdown(int fd, int how)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(shutdown, fd, how);
	if (whose == 0)
		return net_real()->shutdown(fd, how);
	return (int)net_result(
		whose < 0 ? whose : net_done(net_sock_shutdown(sock, how)));
}

/* ---- descriptors ---- */

int net_fd_let_go(int fd, struct net_sock **lingers)
{
	struct net_sock *sock;
	int whose, err;

	*lingers = NULL;
	if (net_whole_keeps(fd))
		return -EBADF;
	whose = net_is_child() ? 0 : net_fd_sock(fd, &sock, "close");
	if (whose > 0 && net_fd_shares_memory())
		return 0; /* the socket remains its parent's */
	if (whose > 0 && net_sock_linger(sock))
		*lingers = sock;
	err = net_fd_forget(fd, "close");
	return err < 0 ? err : whose > 0;
}

void net_fd_gone(struct net_sock *lingers)
{
	if (lingers)
		net_sock_await_close(lingers);
	else
		net_done(0);
}

NET_HOOK int close(int fd)
{
	struct net_sock *lingers;
	int whose, rc, saved;

	if (net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(close, fd);
	if (!net_fds)
		return net_real()->close(fd);
	whose = net_fd_let_go(fd, &lingers);
	if (whose < 0)
		return (int)net_result(whose);
	rc = net_real()->close(fd);
	saved = errno;
	if (whose > 0) /* the number is closed before others run */
		net_fd_gone(lingers);
	errno = saved;
	return rc;
}

NET_HOOK int __close(int fd);
NET_HOOK int __close(int fd)
{
	return close(fd);
}

/*
 * Closes a range except for descriptors that the stack keeps. The kernel closes
 * what lies between those and the stack's sockets: the range may end far above
 * the last open number.
 */
static int close_each(unsigned first, unsigned last)
{
	unsigned end = net_fds_until(last);

	for (unsigned fd = first; fd < end; fd++) {
		if (!net_fds[fd].owner && !net_fds[fd].reserved)
			continue;
		if (fd > first)
			net_real()->close_range(first, fd - 1, 0);
		first = fd + 1;
		if (net_fds[fd].owner)
			close((int)fd);
		else if (!net_whole_keeps((int)fd))
			net_real()->close((int)fd);
	}
	return first <= last ? net_real()->close_range(first, last, 0) : 0;
}

NET_HOOK int close_range(unsigned first, unsigned last, int flags)
{
	int err;

	if (flags & (int)CLOSE_RANGE_CLOEXEC) /* the stack's have it */
		return net_real()->close_range(first, last, flags);
	if (net_needs_baton())
		return (int)NET_WITH_BATON(close_range, first, last, flags);
	if (net_whole_keeps_any(first, last))
		return close_each(first, last);
	err = net_fd_forget_range(first, last, "close_range");
	return err < 0 ? (int)net_result(err)
		       : net_real()->close_range(first, last, flags);
}

NET_HOOK void closefrom(int first)
{
	if (net_whole_keeps_any(first < 0 ? 0 : (unsigned)first, ~0u))
		close_each(first < 0 ? 0 : (unsigned)first, ~0u);
	else if (net_fd_forget_range(first < 0 ? 0 : (unsigned)first, ~0u,
				     "closefrom") == 0)
		net_real()->closefrom(first);
}

NET_HOOK int dup(int fd)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock), to;

	if (net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(dup, fd);
	if (whose < 0 && !net_is_child())
		return (int)net_result(whose);
	to = net_real()->dup(fd);
	if (to >= 0)
		net_fd_copy(fd, net_fd_fresh(to));
	return to;
}

/* Replaces the socket that `to` was, once the kernel has copied fd to it. */
static int track_dup(int fd, int to, int rc)
{
	if (rc < 0 || fd == to)
		return rc;
	net_fd_fresh(to);
	net_fd_copy(fd, to);
	return rc;
}

/* Returns whether dup2() is allowed: neither socket may be another thread's. */
static int may_copy(int fd, int to)
{
	struct net_sock *sock;
	int whose = net_fd_sock(fd, &sock, "dup2");

	if (fd != to && net_whole_keeps(to))
		return -EBUSY;
	if (whose >= 0)
		whose = net_fd_sock(to, &sock, "close");
	return net_is_child() || whose >= 0 ? 0 : whose;
}

NET_HOOK int dup2(int fd, int to)
{
	int err;

	if (net_fd_needs_baton(fd) || net_fd_needs_baton(to))
		return (int)NET_WITH_BATON(dup2, fd, to);
	err = may_copy(fd, to);
	return err < 0 ? (int)net_result(err)
		       : track_dup(fd, to, net_real()->dup2(fd, to));
}

NET_HOOK int __dup2(int fd, int to);
NET_HOOK int __dup2(int fd, int to)
{
	return dup2(fd, to);
}

NET_HOOK int dup3(int fd, int to, int flags)
{
	int err;

	if (net_fd_needs_baton(fd) || net_fd_needs_baton(to))
		return (int)NET_WITH_BATON(dup3, fd, to, flags);
	err = may_copy(fd, to);
	return err < 0 ? (int)net_result(err)
		       : track_dup(fd, to, net_real()->dup3(fd, to, flags));
}

static long fcntl_with_baton(long fd, long cmd, long arg)
{
	return fcntl((int)fd, (int)cmd, arg);
}

static long ioctl_with_baton(long fd, long request, long arg)
{
	return ioctl((int)fd, (unsigned long)request, arg);
}

/* The kernel's socket that holds the number keeps the flags, too. */
static int call_fcntl(int fd, int cmd, void *arg,
		      int (*call)(int fd, int cmd, ...))
{
	struct net_sock *sock;
	int whose, rc;

	if (net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(fcntl_with_baton, fd, cmd,
					   (long)arg);
	whose = net_fd_sock(fd, &sock, "fcntl");
	if (whose < 0 && !net_is_child())
		return (int)net_result(whose);
	rc = call(fd, cmd, arg);
	if (rc < 0)
		return rc;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		net_fd_copy(fd, net_fd_fresh(rc));
	else if (cmd == F_SETFL && whose > 0)
		sock->nonblock = (int)(intptr_t)arg & O_NONBLOCK;
	return rc;
}

#define ARGUMENT(last)                                                         \
	va_list ap;                                                            \
	void *arg;                                                             \
                                                                               \
	va_start(ap, last);                                                    \
	arg = va_arg(ap, void *);                                              \
	va_end(ap)

NET_HOOK int fcntl(int fd, int cmd, ...)
{
	ARGUMENT(cmd);
	return call_fcntl(fd, cmd, arg, net_real()->fcntl);
}

NET_HOOK int fcntl64(int fd, int cmd, ...)
{
	ARGUMENT(cmd);
	return call_fcntl(fd, cmd, arg, net_real()->fcntl64);
}

NET_HOOK int __fcntl(int fd, int cmd, ...);
NET_HOOK int __fcntl(int fd, int cmd, ...)
{
	ARGUMENT(cmd);
	return call_fcntl(fd, cmd, arg, net_real()->fcntl);
}

NET_HOOK int ioctl(int fd, unsigned long request, ...)
{
	struct net_sock *sock;
	int whose, rc;
	long result;

	ARGUMENT(request);
	if (net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(ioctl_with_baton, fd, (long)request,
					   (long)arg);
	whose = WHOSE(fd, &sock);
	if (whose < 0 && !net_is_child())
		return (int)net_result(whose);
	if (whose > 0 && net_sock_ioctl(sock, request, arg, &result))
		return (int)net_result(result);
	if (whose > 0 && request == FIONBIO && !net_can_read(arg, sizeof(int)))
		return (int)net_result(-EFAULT);
	rc = net_real()->ioctl(fd, request, arg);
	if (rc == 0 && whose > 0 && request == FIONBIO)
		sock->nonblock = *(const int *)arg;
	return rc;
}

/* ---- names and options ---- */

NET_HOOK int getsockname(int fd, __SOCKADDR_ARG sa, socklen_t *len)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(getsockname, fd,
					   (long)sa.__sockaddr__, (long)len);
	if (whose == 0)
		return net_real()->getsockname(fd, sa.__sockaddr__, len);
	return (int)net_result(
		whose < 0 ? whose
			  : net_sock_name(sock, false, sa.__sockaddr__, len));
}

NET_HOOK int getpeername(int fd, __SOCKADDR_ARG sa, socklen_t *len)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(getpeername, fd,
					   (long)sa.__sockaddr__, (long)len);
	if (whose == 0)
		return net_real()->getpeername(fd, sa.__sockaddr__, len);
	return (int)net_result(
		whose < 0 ? whose
			  : net_sock_name(sock, true, sa.__sockaddr__, len));
}

NET_HOOK int getsockopt(int fd, int level, int name, void *value,
			socklen_t *len)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(getsockopt, fd, level, name,
					   (long)value, (long)len);
	if (whose == 0)
		return net_real()->getsockopt(fd, level, name, value, len);
	return (int)net_result(
		whose < 0 ? whose
			  : net_sock_getopt(sock, fd, level, name, value, len));
}

NET_HOOK int setsockopt(int fd, int level, int name, const void *value,
			socklen_t len)
{
	struct net_sock *sock;
	int whose = WHOSE(fd, &sock);

	if (whose < 0 && net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(setsockopt, fd, level, name,
					   (long)value, len);
	if (whose == 0)
		return net_real()->setsockopt(fd, level, name, value, len);
	return (int)net_result(
		whose < 0 ? whose
			  : net_sock_setopt(sock, fd, level, name, value, len));
}
