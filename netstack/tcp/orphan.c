/*
 * Orphans: connections that their owner has closed before they ended: data is
 * yet to be delivered, or a FIN to be acknowledged or received. A silent peer
 * could make each last for minutes, so at most a quarter of the connections may
 * be orphans; one more resets the oldest. So does a new connection that finds
 * no control block.
 */
#include "netstack/conn/end.h"
#include "netstack/tcp/tcp.h"

#undef net_orphans
NET_SHARD_VAR struct net_orphan_list net_orphans;
#define net_orphans NET_SHARD(net_orphans)

static unsigned max_orphans(void)
{
	return LWIP_MAX(net_here()->max_conns / 4, 16u);
}

static void append_orphan(struct net_conn *conn)
{
	struct net_orphan_list *list = &net_orphans;

	conn->orphaned = true;
	conn->orphan_next = NULL;
	conn->orphan_prev = list->newest;
	if (list->newest)
		list->newest->orphan_next = conn;
	else
		list->oldest = conn;
	list->newest = conn;
	list->n++;
}

void net_orphan_leave(struct net_conn *conn)
{
	struct net_orphan_list *list = &net_orphans;

	if (!conn->orphaned)
		return;
	conn->orphaned = false;
	if (conn->orphan_prev)
		conn->orphan_prev->orphan_next = conn->orphan_next;
	else
		list->oldest = conn->orphan_next;
	if (conn->orphan_next)
		conn->orphan_next->orphan_prev = conn->orphan_prev;
	else
		list->newest = conn->orphan_prev;
	conn->orphan_next = conn->orphan_prev = NULL;
	list->n--;
}

void net_orphan_enter(struct net_conn *conn)
{
	if (conn->orphaned || conn->in_time_wait)
		return;
	net_rxq_clear(conn); /* nobody reads it any more */
	append_orphan(conn);
	if (net_orphans.n > max_orphans())
		net_orphan_recycle();
}

bool net_orphan_recycle(void)
{
	struct net_conn *oldest = net_orphans.oldest;

	if (!oldest)
		return false;
	net_here()->stats.orphans_recycled++;
	net_conn_reset(oldest, NET_END_ORPHAN); /* which unlinks it */
	return true;
}

/* A half-open connection will need a control block, so it counts as one. */
bool net_orphan_make_room(void)
{
	unsigned n = net_here()->n_conns + net_here()->half_open;

	return n < net_here()->max_conns || net_orphan_recycle();
}

bool net_orphans_delivered(void)
{
	for (struct net_conn *c = net_orphans.newest; c; c = c->orphan_prev)
		if (c->pcb.state != FIN_WAIT_2)
			return false;
	return true;
}
