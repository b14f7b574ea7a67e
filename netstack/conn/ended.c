/*
 * Connections that have ended and still have unread bytes, until their owner
 * lets go of them. No segment finds them, so they are not in the hash table,
 * but their bytes use memory and frames.
 *
 * The list is linked by fields that only a connection with a pcb in use needs:
 * pcb.hash_next and pcb.ended_prev. link_next is not free: the connection may
 * still wait to be accepted.
 */
#include "netstack/conn/ended.h"

#include <string.h>

#include "netstack/conn/conn.h"

static NET_SHARD_VAR struct {
	struct net_conn *first;
	struct net_conn *at[NET_ENDED_SWEEPS]; /* the next one of a sweep */
} list;
#define list NET_SHARD(list)

static struct net_conn *get_prev_ended(const struct net_conn *conn)
{
	return conn->pcb.ended_prev ? net_conn_of(conn->pcb.ended_prev) : NULL;
}

void net_ended_enter(struct net_conn *conn)
{
	conn->pcb.ended_prev = NULL;
	if (!conn->rx_tail)
		return;
	conn->pcb.hash_next = list.first;
	if (list.first)
		list.first->pcb.ended_prev = &conn->pcb;
	list.first = conn;
}

void net_ended_leave(struct net_conn *conn)
{
	struct net_conn *prev = get_prev_ended(conn), *next;

	if (list.first != conn && !prev)
		return; /* it had no unread bytes */
	next = conn->pcb.hash_next;
	for (unsigned i = 0; i < NET_ENDED_SWEEPS; i++)
		if (list.at[i] == conn)
			list.at[i] = next;
	if (next)
		next->pcb.ended_prev = conn->pcb.ended_prev;
	if (prev)
		prev->pcb.hash_next = next;
	else
		list.first = next;
	conn->pcb.ended_prev = NULL;
}

void net_ended_begin(enum net_ended_sweep sweep)
{
	list.at[sweep] = list.first;
}

struct net_conn *net_ended_next(enum net_ended_sweep sweep)
{
	struct net_conn *conn = list.at[sweep];

	if (conn)
		list.at[sweep] = conn->pcb.hash_next;
	return conn;
}

void net_ended_fini(void)
{
	memset(&list, 0, sizeof(list));
}
