/*
 * Waiting: the one place where a call may block.
 */
#include "netstack/sockets/whole.h"

int net_waitq_wait(struct net_waitq *waitq, int64_t deadline_ns)
{
	int err;

	if (net_calling())
		return net_whole_wait(waitq, deadline_ns);
	if (net_sockets_here()->stopping)
		return -ECANCELED;
	waitq->waiters++;
	err = coro_sem_wait_until(&waitq->sem, deadline_ns);
	if (err < 0)
		waitq->waiters -= waitq->waiters != 0;
	return net_sockets_here()->stopping ? -ECANCELED : err;
}

/* A coroutine's time stands still until the next round, a thread's does not. */
static int64_t now_ns(void)
{
	return net_calling() ? coro_sched_clock(net_whole.sched)
			     : coro_sched_now(coro_sched_self());
}

int64_t net_deadline_in(int64_t ns)
{
	int64_t now = now_ns();

	return ns < 0 || ns > CORO_FOREVER - now ? CORO_FOREVER : now + ns;
}

bool net_has_passed(int64_t deadline_ns)
{
	return now_ns() >= deadline_ns;
}

int64_t net_time_left(int64_t deadline_ns)
{
	int64_t left_ns = deadline_ns - now_ns();

	if (deadline_ns == CORO_FOREVER)
		return -1;
	return left_ns > 0 ? left_ns : 0;
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
	sleeper->next = net_sockets_here()->sleepers;
	sleeper->pprev = &net_sockets_here()->sleepers;
	if (sleeper->next)
		sleeper->next->pprev = &sleeper->next;
	net_sockets_here()->sleepers = sleeper;
}

void net_sleeper_remove(struct net_sleeper *sleeper)
{
	*sleeper->pprev = sleeper->next;
	if (sleeper->next)
		sleeper->next->pprev = sleeper->pprev;
}
