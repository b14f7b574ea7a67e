/*
 * The events of a socket, as poll() reports them, and notification of waiters.
 */
#include "netstack/sockets/dgram.h"

#include <sys/poll.h>

#define READABLE (POLLIN | POLLRDNORM)
#define WRITABLE (POLLOUT | POLLWRNORM)
#define LOW_MAX	 32768u /* bytes */

/*
 * SO_RCVLOWAT. If a small window has room for no more, which happens while
 * memory is short, less is enough, as for the kernel: no more can come.
 */
static bool has_enough(const struct net_sock *sock)
{
	struct net_conn_stats stats;

	return likely(sock->opts.recv_low <= 1) ||
	       net_conn_stats(sock->conn, &stats) < 0 ||
	       stats.unread >= sock->opts.recv_low || stats.unread >= LOW_MAX ||
	       stats.rcv_wnd < LOW_MAX;
}

static unsigned conn_events(struct net_sock *sock)
{
	unsigned ready = net_ready(sock->conn, NET_READABLE | NET_WRITABLE |
						       NET_PEER_CLOSED);
	unsigned events = 0;

	if (ready & NET_PEER_CLOSED ||
	    (ready & NET_READABLE && has_enough(sock)))
		events |= READABLE;
	if (ready & NET_WRITABLE)
		events |= WRITABLE;
	else
		sock->no_space = true;
	if (ready & NET_PEER_CLOSED)
		events |= POLLRDHUP;
	if (sock->wr_shut && (sock->rd_shut || ready & NET_PEER_CLOSED))
		events |= POLLHUP;
	if (ready & (NET_FAILED | NET_GONE)) {
		events |= READABLE | WRITABLE | POLLHUP | POLLRDHUP;
		if (!sock->err_reported &&
		    !(sock->wr_shut && ready & NET_PEER_CLOSED))
			events |= POLLERR;
	}
	if (sock->rd_shut)
		events |= READABLE | POLLRDHUP;
	return events;
}

unsigned net_sock_events(struct net_sock *sock)
{
	switch ((enum net_sock_state)sock->state) {
	case NET_SOCK_BOUND:
		return WRITABLE | POLLHUP | (sock->err ? POLLERR : 0);
	case NET_SOCK_CONNECTING:
		return 0;
	case NET_SOCK_CONNECTED:
		return conn_events(sock);
	case NET_SOCK_FAILED:
		return READABLE | WRITABLE | POLLHUP | POLLRDHUP |
		       (sock->err ? POLLERR : 0);
	case NET_SOCK_LISTENING:
		return sock->lst->n ? READABLE : 0;
	case NET_SOCK_DGRAM:
		return net_dgram_events(sock);
	case NET_SOCK_CLOSED:
		return POLLNVAL;
	}
	return 0;
}

void net_sock_notify(struct net_sock *sock, unsigned events)
{
	struct net_sock_node *next;

	if (events & (READABLE | POLLERR | POLLHUP | POLLNVAL))
		net_waitq_wake(&sock->readable);
	if (events & (WRITABLE | POLLERR | POLLHUP | POLLNVAL))
		net_waitq_wake(&sock->writable);
	for (struct net_sock_node *node = sock->nodes; node; node = next) {
		unsigned its =
			events & (node->events | POLLERR | POLLHUP | POLLNVAL);

		next = node->next;
		if (its)
			node->fn(node, its);
	}
}

/*
 * Called after each segment and timer of the connection. Room to write is news
 * only if there was none before: it is there most of the time. Unread bytes are
 * news when they come, and not again with each ACK (EPOLLET).
 */
void net_sock_changed(struct net_conn *conn, struct net_watch *watch)
{
	struct net_sock *sock = (struct net_sock *)watch;
	bool no_space = sock->no_space;
	bool has_more = sock->received != watch->received;
	unsigned events;

	sock->received = watch->received;
	if (!net_waitq_is_used(&sock->writable) && !sock->nodes) {
		/* Most of the time there is one reader, or nobody. */
		if (net_waitq_is_used(&sock->readable) &&
		    net_ready(conn, NET_READABLE))
			net_waitq_wake(&sock->readable);
		return;
	}
	sock->no_space = false;
	events = conn_events(sock);
	if (!no_space && !(events & POLLHUP))
		events &= ~(unsigned)WRITABLE;
	if (!has_more && !(events & POLLHUP))
		events &= ~(unsigned)(READABLE | POLLRDHUP);
	if (events)
		net_sock_notify(sock, events);
}
