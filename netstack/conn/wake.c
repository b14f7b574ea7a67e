/*
 * Waking those that wait in net_poll().
 */
#include "netstack/conn/conn.h"

void net_poller_wake(struct net_poller *poller)
{
	if (poller->woken)
		return;
	poller->woken = true;
	coro_unpark(poller->co);
}

void net_poll_wake(struct net_poll_node *nodes, unsigned events)
{
	for (; nodes; nodes = nodes->next)
		if (nodes->events & events)
			net_poller_wake(nodes->poller);
}

void net_poll_wake_all(void)
{
	for (struct net_poller *p = net_here()->pollers; p; p = p->next)
		net_poller_wake(p);
}
