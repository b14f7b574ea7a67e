/*
 * Senders of datagrams that wait for room on a port: a list for each port, in
 * the order in which they began to wait. While the port accepts no frames they
 * cost nothing: no timer, and no question to the port.
 *
 * The output phase asks each port once a round. When a port accepts frames, the
 * coroutines at the head of its list are woken. Each keeps its place until it
 * has sent or given up, so that one which finds the room taken by others, by
 * connections for example, is the first again in the next round. A socket with
 * a watch has nothing that shows whether it sent, so it leaves the list when it
 * is notified, and only one is notified in a round: if several were, the later
 * ones could find the room taken each time, and starve.
 *
 * A waiter's memory is its owner's, who removes it before freeing it.
 */
#include "netstack/conn/conn.h"

/* Coroutines of a port that are woken in a round: not all for one frame. */
#define WOKEN_MAX 8u

void net_room_init(void)
{
	for (unsigned i = 0; i < NET_MAX_LINKS; i++)
		TAILQ_INIT(&net_here()->ports[i].senders);
}

void net_room_wait(struct net_room_wait *wait, struct net_port *port)
{
	if (wait->port == port)
		return;
	net_room_leave(wait);
	wait->port = port;
	TAILQ_INSERT_TAIL(&port->senders, wait, link);
}

void net_room_leave(struct net_room_wait *wait)
{
	if (wait->port)
		TAILQ_REMOVE(&wait->port->senders, wait, link);
	wait->port = NULL;
}

void net_room_wake(struct net_room_wait *wait)
{
	struct coro *co = wait->co;

	wait->co = NULL; /* not woken twice */
	net_wake(co);
}

__attribute__((noinline)) void net_room_resume_senders(struct net_port *port)
{
	struct net_room_wait *wait = TAILQ_FIRST(&port->senders);

	if (wait->notify) {
		net_room_leave(wait);
		wait->notify(wait);
		return;
	}
	for (unsigned n = 0; wait && !wait->notify && n < WOKEN_MAX; n++) {
		net_room_wake(wait);
		wait = TAILQ_NEXT(wait, link);
	}
}
