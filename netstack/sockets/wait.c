/*
 * Waiting: the one place where a call may block.
 */
#include "netstack/sockets/sockets_priv.h"

int net_waitq_wait(struct net_waitq *waitq, int64_t deadline_ns)
{
	int err;

	if (net_sockets_tls.stopping)
		return net_whole_cancelled();
	if (net_whole.unrestartable && net_handled())
		return -EINTR;
	do {
		waitq->waiters++;
		err = coro_sem_wait_until(&waitq->sem, deadline_ns);
		if (err < 0)
			waitq->waiters -= waitq->waiters != 0;
		if (net_whole.ending || net_sockets_tls.stopping)
			return net_whole_cancelled();
	} while (err == -ECANCELED && (err = net_whole_cancelled()) == 0);
	return err;
}

int net_kernel_fd_wait(int fd, int events, int64_t deadline_ns)
{
	int err;

	do
		err = net_fd_wait(fd, events, deadline_ns);
	while (err == -ECANCELED && (err = net_whole_cancelled()) == 0);
	return err;
}

int64_t net_deadline_in(int64_t ns)
{
	int64_t now = coro_sched_now(coro_sched_self());

	return ns < 0 || ns > CORO_FOREVER - now ? CORO_FOREVER : now + ns;
}

/* ---- lists ---- */

void net_node_add(struct net_sock_node **list, struct net_sock_node *node)
{
	node->next = *list;
	node->pprev = list;
	if (node->next)
		node->next->pprev = &node->next;
	*list = node;
}

void net_node_remove(struct net_sock_node *node)
{
	if (!node->pprev)
		return;
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
	node->pprev = NULL;
}

void net_sleeper_add(struct net_sleeper *sleeper)
{
	sleeper->next = net_sockets_tls.sleepers;
	sleeper->pprev = &net_sockets_tls.sleepers;
	if (sleeper->next)
		sleeper->next->pprev = &sleeper->next;
	net_sockets_tls.sleepers = sleeper;
}

void net_sleeper_remove(struct net_sleeper *sleeper)
{
	*sleeper->pprev = sleeper->next;
	if (sleeper->next)
		sleeper->next->pprev = sleeper->pprev;
}
