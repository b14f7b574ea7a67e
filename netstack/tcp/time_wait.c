/*
 * Connections in TIME_WAIT, oldest first. When control blocks run short the
 * oldest gives its own up: a server that closes first never runs out of them.
 * lwIP's tcp_kill_timewait() would search its list, which is empty.
 */
#include "netstack/tcp/tcp.h"

void net_time_wait_enter(struct net_conn *conn)
{
	struct net_time_wait *list = &net_here()->time_wait;

	if (conn->waiting)
		return;
	net_recovery_free(conn); /* there is nothing left to repair */
	net_orphan_leave(conn);
	conn->waiting = true;
	conn->wait_next = NULL;
	conn->wait_prev = list->newest;
	if (list->newest)
		list->newest->wait_next = conn;
	else
		list->oldest = conn;
	list->newest = conn;
	list->n++;
	net_client_check(conn);
}

void net_time_wait_leave(struct net_conn *conn)
{
	struct net_time_wait *list = &net_here()->time_wait;

	if (!conn->waiting)
		return;
	conn->waiting = false;
	list->n--;
	if (conn->wait_prev)
		conn->wait_prev->wait_next = conn->wait_next;
	else
		list->oldest = conn->wait_next;
	if (conn->wait_next)
		conn->wait_next->wait_prev = conn->wait_prev;
	else
		list->newest = conn->wait_prev;
	conn->wait_next = conn->wait_prev = NULL;
}

bool net_time_wait_recycle(void)
{
	struct net_conn *oldest = net_here()->time_wait.oldest;

	if (!oldest)
		return false;
	net_here()->stats.time_wait_recycled++;
	tcp_abort(&oldest->pcb); /* of TIME_WAIT: sends nothing */
	return true;
}
