/*
 * bind() and connect(), which decide whether a socket is the stack's.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/polling.h"
#include "netstack/sockets/whole.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

/* ---- kernel or stack ---- */

static int int_option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return net_real()->getsockopt(fd, level, name, &value, &len) < 0
		       ? -1
		       : value;
}

/* A TCP socket that the kernel has not begun to use. */
static bool is_fresh_tcp(int fd, bool *v6)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int domain = int_option(fd, SOL_SOCKET, SO_DOMAIN);

	*v6 = domain == AF_INET6;
	return (domain == AF_INET || domain == AF_INET6) &&
	       int_option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
	       int_option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP &&
	       int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0 &&
	       net_real()->getpeername(fd, (struct sockaddr *)&peer, &len) < 0;
}

bool net_sock_is_fresh(int fd)
{
	int saved = errno;
	bool v6, fresh = is_fresh_tcp(fd, &v6);

	errno = saved;
	return fresh;
}

static int adopt_fd(int fd, bool v6, bool dgram, struct net_sock **out)
{
	int flags = net_real()->fcntl(fd, F_GETFL), err = net_sockets_open();
	struct net_sock *sock;

	if (err < 0)
		return err;
	sock = net_sock_new();
	if (!sock)
		return -ENOMEM;
	sock->v6 = v6;
	sock->v6_only = v6 && int_option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1;
	sock->nonblock = flags >= 0 && flags & O_NONBLOCK;
	net_sock_opts_load(sock, fd);
	net_sock_hold(sock);
	if (dgram)
		err = net_dgram_new(sock, fd);
	if (err == 0)
		err = net_fd_set_sock(fd, sock);
	net_sock_put(sock); /* gone, if it has no descriptor */
	if (err < 0)
		return err;
	net_epoll_adopt(fd, sock);
	*out = sock;
	return 1;
}

int net_sock_adopt(int fd, const struct net_addr *addr, bool to_bind,
		   struct net_sock **out)
{
	int saved = errno, err = 0;
	bool v6;

	if (!net_may_wait() ||
	    !(to_bind ? net_ours_to_bind(addr) : net_ours_to_connect(addr)))
		return 0;
	if (net_dgram_is_fresh(fd, &v6))
		err = adopt_fd(fd, v6, true, out);
	else if (is_fresh_tcp(fd, &v6))
		err = adopt_fd(fd, v6, false, out);
	errno = saved;
	return err;
}

int net_sock_release(int fd, struct net_sock *sock)
{
	bool port_given = !sock->dgram || sock->dgram->port_given;
	bool bound = !sock->dgram || sock->dgram->bound;
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	struct net_addr addr = sock->local;
	int err;

	net_addr_to_sockaddr(&addr, sock->v6, (struct sockaddr *)&local, &len);
	net_epoll_release(fd, sock);
	net_fd_forget(fd, "connect");
	if (!bound)
		return 0;
	err = net_real()->bind(fd, (struct sockaddr *)&local, len);
	if (err < 0 && errno == EADDRINUSE && !port_given) {
		/* The stack's choice is taken there: the kernel chooses. */
		((struct sockaddr_in *)&local)->sin_port = 0;
		err = net_real()->bind(fd, (struct sockaddr *)&local, len);
	}
	return err < 0 ? -errno : 0;
}

/* Replaces the socket at fd by a new one, which no other process shares. */
static int replace_kernel_socket(int fd, bool v6, int flags)
{
	int cloexec =
		net_real()->fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0;
	int made = net_real()->socket(v6 ? AF_INET6 : AF_INET,
				      SOCK_STREAM | flags, 0);
	int err;

	if (made < 0)
		return -errno;
	err = net_real()->dup3(made, fd, cloexec) < 0 ? -errno : 0;
	net_real()->close(made);
	return err;
}

/* Returns the backlog that listen() has set (tcp(7), TCP_INFO). */
static int backlog_of(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	net_real()->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	return (int)info.tcpi_sacked;
}

int net_sock_adopt_listener(int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	struct net_addr addr;
	struct net_sock *sock;
	int backlog, err;

	if (int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1 ||
	    int_option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP ||
	    net_real()->getsockname(fd, (struct sockaddr *)&sa, &len) < 0 ||
	    net_addr_from_sockaddr((struct sockaddr *)&sa, len, &addr) < 0 ||
	    !net_ours_to_bind(&addr))
		return 1;
	backlog = backlog_of(fd);
	err = adopt_fd(fd, sa.ss_family == AF_INET6, false, &sock);
	if (err < 0)
		return err;
	sock->local = addr;
	err = replace_kernel_socket(fd, sock->v6,
				    sock->nonblock ? SOCK_NONBLOCK : 0);
	return err < 0 ? err : (int)net_sock_listen(sock, backlog);
}

long net_sock_bind(struct net_sock *sock, const struct sockaddr *sa,
		   socklen_t len)
{
	struct net_addr addr;
	int err = net_addr_from_sockaddr(sa, len, &addr);

	if (err < 0)
		return err;
	if (sock->dgram && (sa->sa_family == AF_INET6) == sock->v6)
		return net_dgram_bind(sock, &addr);
	if (!sock->dgram &&
	    (sock->state != NET_SOCK_BOUND || sock->local.family))
		return -EINVAL;
	if ((sa->sa_family == AF_INET6) != sock->v6)
		return -EAFNOSUPPORT;
	sock->local = addr;
	if (addr.port && net_sock_port_in_use(sock)) {
		sock->local = (struct net_addr){0};
		return -EADDRINUSE;
	}
	return 0;
}

/* ---- connecting ---- */

long net_sock_wait(struct net_sock *sock, struct net_waitq *waitq,
		   int64_t timeout_ns, int64_t *until)
{
	unsigned disconnects = sock->disconnects;
	long err;

	if (*until == 0)
		*until = timeout_ns < 0 ? CORO_FOREVER
					: net_deadline_in(timeout_ns);
	net_sock_hold(sock);
	net_unrestartable(timeout_ns >= 0);
	err = net_waitq_wait(waitq, *until);
	net_unrestartable(false);
	if (err == -ETIMEDOUT && net_has_passed(*until))
		err = -EAGAIN;
	if (sock->state == NET_SOCK_CLOSED)
		err = -EBADF;
	else if (sock->disconnects != disconnects)
		err = -EPIPE;
	net_sock_put(sock);
	return err;
}

void net_sock_attach(struct net_sock *sock, struct net_conn *conn)
{
	sock->conn = conn;
	sock->state = NET_SOCK_CONNECTED;
	net_set_watch(conn, &sock->watch);
	sock->received = sock->watch.received;
	net_sock_opts_apply(sock);
}

/* Dials in a coroutine of its own, so that connect() need not wait for it. */
static void *dial_conn(void *arg)
{
	struct net_sock *sock = arg;
	struct net_addr to = sock->remote;
	struct net_dial_opts opts = {.source = sock->local,
				     .local = &sock->dials_from};
	struct net_conn *conn = NULL;
	int err;

	if (opts.source.family && net_addr_is_any(&opts.source))
		opts.source.family = 0;
	err = net_dial(net_sockets_here()->stack, &to, &opts, &conn);
	sock->helper = NULL;
	if (sock->state == NET_SOCK_CLOSED) {
		net_abort(conn);
	} else if (sock->aborts) {
		net_abort(conn);
		sock->state = NET_SOCK_BOUND;
		sock->err = ECONNRESET;
	} else if (err == 0) {
		net_sock_attach(sock, conn);
	} else {
		sock->state = NET_SOCK_FAILED;
		sock->err = -err;
	}
	sock->aborts = false;
	net_sock_notify(sock, net_sock_events(sock));
	net_sock_put(sock);
	return NULL;
}

static long start_connect(struct net_sock *sock, const struct net_addr *to)
{
	const struct coro_attr attr = {.name = "connect"};
	int err;

	if (net_sockets_here()->stopping)
		return -ECANCELED;
	if (to->port == 0)
		return -ECONNREFUSED;
	if (to->family == 6 && !sock->v6)
		return -EAFNOSUPPORT;
	if (!net_ours_to_connect(to) || (to->family == 4 && sock->v6_only))
		return -ENETUNREACH;
	sock->remote = *to;
	sock->dials_from = (struct net_addr){0};
	net_sock_hold(sock);
	err = coro_spawn(coro_sched_self(), &attr, dial_conn, sock,
			 &sock->helper);
	if (err < 0) {
		sock->uses--;
		return err;
	}
	coro_detach(sock->helper); /* it reports its own end */
	sock->err = 0;
	sock->state = NET_SOCK_CONNECTING;
	return 0;
}

/* Returns what connect() reports, once, of a handshake that is over. */
static long report_outcome(struct net_sock *sock)
{
	int err = sock->err;

	if (sock->state == NET_SOCK_CONNECTED) {
		sock->reported = true;
		return 0;
	}
	if (sock->state == NET_SOCK_FAILED)
		sock->state = NET_SOCK_BOUND; /* it may be tried again */
	sock->err = 0;
	return err ? -err : -ECONNABORTED;
}

static long check_family(const struct net_sock *sock, const struct sockaddr *sa,
			 socklen_t len)
{
	if (sock->v6 && sa->sa_family == AF_INET)
		return len < offsetof(struct sockaddr_in6, sin6_scope_id)
			       ? -EINVAL
			       : -EAFNOSUPPORT;
	return 0;
}

long net_sock_connect(struct net_sock *sock, const struct sockaddr *sa,
		      socklen_t len, const struct net_addr *to)
{
	int64_t until = 0;
	long err;

	switch ((enum net_sock_state)sock->state) {
	case NET_SOCK_DGRAM:
		return net_dgram_connect(sock, sa, to);
	case NET_SOCK_LISTENING:
		return -EISCONN;
	case NET_SOCK_CLOSED:
		return -EBADF;
	case NET_SOCK_CONNECTED:
		return sock->reported ? -EISCONN : report_outcome(sock);
	case NET_SOCK_CONNECTING:
		if (sock->nonblock)
			return -EALREADY;
		break;
	case NET_SOCK_FAILED:
		if (sock->err)
			return report_outcome(sock);
		__attribute__((fallthrough)); /* SO_ERROR has reported it */
	case NET_SOCK_BOUND:
		err = check_family(sock, sa, len);
		if (err == 0)
			err = start_connect(sock, to);
		if (err < 0)
			return err;
		if (sock->nonblock)
			return -EINPROGRESS;
	}
	while (sock->state == NET_SOCK_CONNECTING) {
		err = net_sock_wait(sock, &sock->writable,
				    sock->opts.send_timeout_ns, &until);
		if (err < 0)
			return err == -EAGAIN ? -EINPROGRESS : err;
	}
	return report_outcome(sock);
}

long net_sock_abort_connect(struct net_sock *sock)
{
	int64_t until = 0;
	long err;

	sock->aborts = true;
	coro_cancel(sock->helper);
	do {
		err = net_sock_wait(sock, &sock->writable, -1, &until);
		if (err == -EBADF) /* the socket has been freed */
			return err;
	} while (sock->aborts && (err == 0 || err == -EINTR || err == -EPIPE));
	return sock->aborts ? err : 0;
}

long net_sock_disconnect(struct net_sock *sock)
{
	bool resets = sock->state == NET_SOCK_CONNECTED ||
		      sock->state == NET_SOCK_CONNECTING;
	long err = 0;

	if (sock->dgram)
		return net_dgram_disconnect(sock);
	if (sock->state == NET_SOCK_LISTENING)
		net_sock_unlisten(sock);
	sock->disconnects += resets;
	if (sock->state == NET_SOCK_CONNECTING)
		err = net_sock_abort_connect(sock);
	if (err < 0)
		return err;
	sock->err = resets ? ECONNRESET : 0;
	net_abort(sock->conn);
	sock->conn = NULL;
	sock->state = NET_SOCK_BOUND;
	sock->reported = sock->err_reported = sock->rd_shut = sock->wr_shut =
		false;
	net_sock_notify(sock, net_sock_events(sock));
	return 0;
}
