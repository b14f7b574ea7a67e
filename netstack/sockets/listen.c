/*
 * listen() and accept().
 *
 * A coroutine accepts clients from the stack's listener, as many as the queue
 * here holds, so that accept() and poll() need not wait in net_accept(). The
 * rest of the backlog stays with the stack, and with it its bounds.
 */
#include "netstack/sockets/whole.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>

/* A port, and the sockets that share it by SO_REUSEPORT. */
struct net_sock_port {
	struct net_listener *listener; /* NULL: it is closed */
	TAILQ_HEAD(, net_sock_listener) socks;
	struct net_waitq room;
	bool runs; /* its coroutine, which frees it */
};

static struct net_sock_listener *with_room(const struct net_sock_port *port)
{
	struct net_sock_listener *lst;

	TAILQ_FOREACH(lst, &port->socks, link)
	if (lst->n < NET_SOCK_QUEUE)
		return lst;
	return NULL;
}

static void queue_client(struct net_sock_port *port, struct net_conn *conn)
{
	struct net_sock_listener *lst = with_room(port);

	if (!lst) {
		net_abort(conn);
		return;
	}
	/* The sockets of a port get clients in turns. */
	TAILQ_REMOVE(&port->socks, lst, link);
	TAILQ_INSERT_TAIL(&port->socks, lst, link);
	lst->queue[(lst->head + lst->n++) % NET_SOCK_QUEUE] = conn;
	net_sock_notify(lst->sock, POLLIN | POLLRDNORM);
}

static void *take_clients(void *arg)
{
	struct net_sock_port *port = arg;
	struct net_conn *conn;
	int err = 0;

	while (err == 0 && port->listener) {
		if (!with_room(port)) {
			err = net_waitq_wait(&port->room, CORO_FOREVER);
			continue;
		}
		err = net_accept(port->listener, &conn);
		if (err == 0)
			queue_client(port, conn);
	}
	if (err == -EINVAL)
		port->listener = NULL; /* closed together with the stack */
	port->runs = false;
	if (TAILQ_EMPTY(&port->socks))
		free(port);
	return NULL;
}

static void join_port(struct net_sock *sock, struct net_sock_port *port)
{
	sock->lst->sock = sock;
	sock->lst->port = port;
	TAILQ_INSERT_HEAD(&port->socks, sock->lst, link);
	sock->state = NET_SOCK_LISTENING;
}

static void leave_port(struct net_sock_listener *lst)
{
	struct net_sock_port *port = lst->port;

	lst->port = NULL;
	TAILQ_REMOVE(&port->socks, lst, link);
	net_waitq_wake(&port->room);
	if (!TAILQ_EMPTY(&port->socks))
		return;
	net_listener_close(port->listener);
	port->listener = NULL;
	if (!port->runs)
		free(port);
}

void net_sock_port_gone(struct net_sock *sock)
{
	if (!sock->lst || !sock->lst->port)
		return;
	sock->lst->port->listener = NULL;
	sock->lst->port->runs = false;
}

void net_sock_port_wake(struct net_sock *sock)
{
	if (sock->lst && sock->lst->port)
		net_waitq_wake(&sock->lst->port->room);
}

static struct net_addr listen_addr(const struct net_sock *sock)
{
	struct net_addr addr = sock->local;

	if (net_addr_is_any(&addr) && sock->v6 && !sock->v6_only)
		addr.family = 0;
	return addr;
}

/*
 * The program asks for the port that bind() has left open. The stack chooses a
 * free one; no client can come before it is listened to again.
 */
void net_sock_choose_port(struct net_sock *sock)
{
	struct net_addr addr = listen_addr(sock);
	struct net_listener *listener;

	if (!net_may_wait() ||
	    net_listen(net_stack_here(), &addr, 1, &listener) < 0)
		return;
	sock->local.port = net_listener_addr(listener).port;
	net_listener_close(listener);
}

/* Returns whether two listening sockets would accept the same clients. */
static bool listeners_overlap(const struct net_sock *a,
			      const struct net_sock *b)
{
	struct net_addr x = listen_addr(a), y = listen_addr(b);

	if (x.port != y.port || (x.family && y.family && x.family != y.family))
		return false;
	return net_addr_is_any(&x) || net_addr_is_any(&y) ||
	       memcmp(x.ip, y.ip, x.family == 4 ? 4 : 16) == 0;
}

static bool may_share(const struct net_sock *a, const struct net_sock *b)
{
	struct net_addr x = listen_addr(a), y = listen_addr(b);

	return a->opts.reuse_port && b->opts.reuse_port && x.port == y.port &&
	       x.family == y.family && memcmp(x.ip, y.ip, sizeof(x.ip)) == 0;
}

bool net_sock_port_in_use(const struct net_sock *sock)
{
	for (struct net_sock *s = net_sockets_here()->socks; s; s = s->next)
		if (s->state == NET_SOCK_LISTENING &&
		    listeners_overlap(s, sock) && !may_share(s, sock))
			return true;
	return false;
}

static struct net_sock_port *port_of_others(const struct net_sock *sock)
{
	for (struct net_sock *s = net_sockets_here()->socks; s; s = s->next)
		if (s->state == NET_SOCK_LISTENING && may_share(s, sock))
			return s->lst->port;
	return NULL;
}

static long begin_listen(struct net_sock *sock, unsigned backlog)
{
	struct net_addr addr = listen_addr(sock);
	struct net_sock_port *port = calloc(1, sizeof(*port));
	int err;

	if (!port)
		return -ENOMEM;
	TAILQ_INIT(&port->socks);
	err = net_listen(net_stack_here(), &addr, backlog, &port->listener);
	if (err == 0)
		err = net_spawn(net_stack_here(), "accept", take_clients, port);
	if (err < 0) {
		net_listener_close(port->listener);
		free(port);
		return err;
	}
	port->runs = true;
	sock->local.port = net_listener_addr(port->listener).port;
	join_port(sock, port);
	return 0;
}

long net_sock_listen(struct net_sock *sock, int backlog)
{
	struct net_sock_port *port;

	if (sock->dgram)
		return -EOPNOTSUPP;
	if (sock->state == NET_SOCK_LISTENING)
		return 0; /* the backlog stays what it was */
	if (sock->state != NET_SOCK_BOUND || !sock->local.family)
		return -EINVAL;
	if (net_sockets_here()->stopping)
		return -ECANCELED;
	if (!sock->lst)
		sock->lst = calloc(1, sizeof(*sock->lst));
	if (!sock->lst)
		return -ENOMEM;
	port = port_of_others(sock);
	if (!port)
		return begin_listen(sock, backlog > 0 ? (unsigned)backlog : 1);
	join_port(sock, port);
	return 0;
}

void net_sock_unlisten(struct net_sock *sock)
{
	struct net_sock_listener *lst = sock->lst;

	leave_port(lst);
	for (; lst->n; lst->n--)
		net_abort(lst->queue[lst->head++ % NET_SOCK_QUEUE]);
}

int net_sock_listener_set_cc(struct net_sock *sock, const char *name)
{
	return net_listener_set_cc(sock->lst->port->listener, name);
}

/* ---- accept ---- */

static int accept_one(struct net_sock *sock, int flags)
{
	struct net_sock_listener *lst = sock->lst;
	int fd = net_real()->socket(sock->v6 ? AF_INET6 : AF_INET,
				    SOCK_STREAM | flags, 0);
	struct net_sock *client;
	int err;

	if (fd < 0)
		return -errno;
	client = net_sock_new();
	err = client ? 0 : -ENOMEM;
	if (client) {
		client->v6 = sock->v6;
		client->nonblock = flags & SOCK_NONBLOCK;
		client->opts = sock->opts;
		client->reported = true;
		net_sock_hold(client);
		err = net_fd_set_sock(fd, client);
		net_sock_put(client);
	}
	if (err < 0) {
		net_real()->close(fd);
		return err;
	}
	net_sock_attach(client, lst->queue[lst->head % NET_SOCK_QUEUE]);
	lst->head++;
	lst->n--;
	net_sock_port_wake(sock);
	return fd;
}

long net_sock_accept(struct net_sock *sock, struct sockaddr *sa, socklen_t *len,
		     int flags)
{
	struct net_addr peer;
	int64_t until = 0;
	long fd;

	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return -EINVAL;
	if (sock->dgram)
		return -EOPNOTSUPP;
	for (;;) {
		long err;

		if (sock->state != NET_SOCK_LISTENING)
			return -EINVAL;
		if (sock->lst->n)
			break;
		if (sock->nonblock)
			return -EAGAIN;
		err = net_sock_wait(sock, &sock->readable,
				    sock->opts.recv_timeout_ns, &until);
		if (err < 0)
			return err;
	}
	fd = accept_one(sock, flags);
	if (fd >= 0 && net_can_write_name(sa, len)) {
		/* getpeername() fails if the client has reset already. */
		peer = net_peer_addr(net_fds[fd].sock->conn);
		net_addr_to_sockaddr(&peer, sock->v6, sa, len);
	}
	return fd;
}
