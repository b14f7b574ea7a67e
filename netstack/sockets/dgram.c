/*
 * UDP sockets: whether the kernel or the stack has one, bind(), connect(),
 * events, closing.
 *
 * The stack's socket is opened when it is needed first: by bind(), connect() or
 * a datagram that is sent. A connected one is closed and opened again at its
 * port in order to be connected to another peer, or to none.
 */
#include "netstack/sockets/dgram.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>

#define READABLE (POLLIN | POLLRDNORM)
#define WRITABLE (POLLOUT | POLLWRNORM)
#define DISCARD	 9u /* stands for the peer's port 0 */

/* ---- kernel or stack ---- */

bool net_dgram_is_fresh(int fd, bool *v6)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	int type = 0, protocol = 0, saved = errno;
	bool fresh;

	fresh = net_real()->getsockname(fd, (struct sockaddr *)&sa, &len) == 0;
	*v6 = sa.ss_family == AF_INET6;
	/* Both families have the port at the same place. */
	fresh = fresh && (*v6 || sa.ss_family == AF_INET) &&
		((struct sockaddr_in *)&sa)->sin_port == 0;
	len = sizeof(type);
	fresh = fresh &&
		net_real()->getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ==
			0 &&
		type == SOCK_DGRAM;
	len = sizeof(protocol);
	fresh = fresh &&
		net_real()->getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol,
				       &len) == 0 &&
		protocol == IPPROTO_UDP;
	errno = saved;
	return fresh;
}

bool net_dgram_may_leave(const struct net_sock *sock, const struct net_addr *to)
{
	const struct net_dgram *d = sock->dgram;

	return !d->has_passed && !d->connected && net_addr_is_any(&d->at) &&
	       !net_ours_to_connect(to);
}

/* ---- opening ---- */

/* Notifies waiters of room to send only if there was none before. */
static void on_news(struct net_udp *udp, struct net_udp_watch *watch)
{
	struct net_dgram *d = (struct net_dgram *)watch;
	unsigned events = net_dgram_events(d->sock);

	if (!d->lacks_room)
		events &= ~(unsigned)WRITABLE;
	if (events & WRITABLE)
		d->lacks_room = false;
	net_sock_notify(d->sock, events);
}

int net_dgram_new(struct net_sock *sock, int fd)
{
	struct net_dgram *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->watch.fn = on_news;
	d->sock = sock;
	d->at.family = !sock->v6 ? 4 : sock->v6_only ? 6 : 0;
	sock->dgram = d;
	sock->state = NET_SOCK_DGRAM;
	net_dgram_opts_load(sock, fd);
	return 0;
}

static void close_udp(struct net_dgram *d)
{
	net_udp_close(d->udp);
	d->udp = NULL;
	d->connected = false;
}

/* Opens the stack's socket at d->at, in place of one that is open. */
static int open_udp(struct net_sock *sock)
{
	struct net_dgram *d = sock->dgram;
	struct net_udp_opts opts = net_dgram_udp_opts(sock, d->at.family);
	int err;

	close_udp(d);
	if (net_sockets_here()->stopping)
		return -ECANCELED;
	err = net_udp_open(net_stack_here(), &d->at, &opts, &d->udp);
	if (err < 0)
		return err;
	d->at.port = net_udp_local_addr(d->udp).port;
	net_udp_set_watch(d->udp, &d->watch);
	return 0;
}

int net_dgram_open(struct net_sock *sock)
{
	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	return sock->dgram->udp ? 0 : open_udp(sock);
}

/* ---- bind ---- */

long net_dgram_bind(struct net_sock *sock, const struct net_addr *addr)
{
	struct net_dgram *d = sock->dgram;
	struct net_addr was = d->at;
	int err;

	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	if (d->udp)
		return -EINVAL;
	if (sock->v6_only && addr->family == 4)
		return -EINVAL;
	d->at = *addr;
	if (net_addr_is_any(addr) && sock->v6 && !sock->v6_only &&
	    addr->family == 6)
		d->at.family = 0;
	err = open_udp(sock);
	if (err < 0) {
		d->at = was;
		return err;
	}
	d->bound = true;
	d->port_given = addr->port != 0;
	/* Kept in case the socket is later handed over to the kernel. */
	sock->local = *addr;
	sock->local.port = d->at.port;
	return 0;
}

/* ---- connect ---- */

/* Connects, from the port that the socket has if it has one: peers may know it.
 */
static int connect_from(struct net_sock *sock, const struct net_addr *peer)
{
	struct net_dgram *d = sock->dgram;
	bool had_port = d->at.port != 0;
	int err = open_udp(sock);

	if (err == 0)
		err = net_udp_connect(d->udp, peer);
	if (err == -EADDRNOTAVAIL && had_port && !d->port_given) {
		/* The answers would arrive at another shard. */
		d->at.port = 0;
		err = open_udp(sock);
		if (err == 0)
			err = net_udp_connect(d->udp, peer);
	}
	return err;
}

long net_dgram_connect(struct net_sock *sock, const struct sockaddr *sa,
		       const struct net_addr *to)
{
	struct net_dgram *d = sock->dgram;
	struct net_addr peer = *to;
	int err;

	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	if ((to->family == 6 && !sock->v6) ||
	    (sa->sa_family == AF_INET && sock->v6_only))
		return -EAFNOSUPPORT;
	if (!net_ours_to_connect(to) || (to->family == 4 && sock->v6_only))
		return -ENETUNREACH;
	if (to->port == 0)
		peer.port = DISCARD;
	err = connect_from(sock, &peer);
	if (err < 0)
		return err == -EHOSTUNREACH ? -ENETUNREACH : err;
	d->at.port = net_udp_local_addr(d->udp).port;
	d->connected = true;
	d->to_port_0 = to->port == 0;
	sock->remote = *to;
	return 0;
}

long net_dgram_disconnect(struct net_sock *sock)
{
	struct net_dgram *d = sock->dgram;

	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	if (!d->port_given)
		d->at.port = 0;
	if (d->bound)
		return open_udp(sock);
	close_udp(d);
	return 0;
}

/* ---- shutting down and closing ---- */

long net_dgram_shutdown(struct net_sock *sock, int how)
{
	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	if (sock->state == NET_SOCK_CLOSED)
		return -EBADF;
	sock->rd_shut |= how != SHUT_WR;
	sock->wr_shut |= how != SHUT_RD;
	net_sock_notify(sock, net_dgram_events(sock));
	/* As on Linux, an unconnected socket is shut down nevertheless. */
	return sock->dgram->connected ? 0 : -ENOTCONN;
}

void net_dgram_close(struct net_sock *sock)
{
	close_udp(sock->dgram);
}

long net_dgram_name(struct net_sock *sock, bool peer, struct sockaddr *sa,
		    socklen_t *len)
{
	const struct net_dgram *d = sock->dgram;
	struct net_addr addr = d->at;

	if (peer && !d->connected)
		return -ENOTCONN;
	if (peer)
		addr = sock->remote;
	else if (d->connected)
		addr = net_udp_local_addr(d->udp);
	return net_addr_to_sockaddr(&addr, sock->v6, sa, len);
}

unsigned net_dgram_events(struct net_sock *sock)
{
	const struct net_dgram *d = sock->dgram;
	struct net_datagram first;
	unsigned events = 0;

	if (!d->udp || net_udp_ready(d->udp, NET_WRITABLE) & NET_WRITABLE)
		events |= WRITABLE;
	if (d->udp && net_udp_peek(d->udp, &first) == 0)
		events |= READABLE;
	if (d->udp && net_udp_error(d->udp, false) < 0)
		events |= POLLERR;
	if (sock->rd_shut)
		events |= READABLE | POLLRDHUP;
	if (sock->rd_shut && sock->wr_shut)
		events |= POLLHUP;
	return events;
}
