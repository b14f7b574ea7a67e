/*
 * The output phase: every connection that has something to send, in order.
 *
 * The queue is an array, which begins anew whenever it is empty: its first
 * lines stay in the cache, and a connection needs no link. It has room for
 * every connection that lives, and for those that ended while they were queued:
 * net_output_has_room() is asked before there is one more.
 */
#include "netstack/tcp/tcp.h"

#include <errno.h>

int net_output_init(unsigned max_conns)
{
	struct net_output *queue = &net_here()->output;

	queue->ring =
		(void *)net_mem_map_table(2 * max_conns + 1, &queue->mask);
	return queue->ring ? 0 : -ENOMEM;
}

void net_output_fini(void)
{
	net_mem_unmap_table(net_here()->output.ring, net_here()->output.mask);
	net_here()->output.ring = NULL;
}

/*
 * Those that live, those that are queued, and one more find a place each. Only
 * a new connection makes the sum of the living and of the dead that are queued
 * grow.
 */
bool net_output_has_room(void)
{
	const struct net_output *queue = &net_here()->output;

	return (uint64_t)net_here()->n_conns + (queue->tail - queue->head) <=
	       queue->mask;
}

/* Whether every port is so far behind that sending has to wait. */
static bool ports_are_busy(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (!glue_tx_busy(net_here()->ports[i].glue))
			return false;
	return true;
}

static void output(struct net_conn *conn)
{
	if (!conn->pcb_live) {
		net_conn_put(conn);
		return;
	}
	net_conn_output_now(conn);
	if (conn->pcb.unsent || conn->wants_room)
		net_count_phase(conn);
	if (conn->pcb.state != TIME_WAIT || !net_time_wait_check(conn))
		net_timer_check(conn);
}

/*
 * One tcp_output() for each connection that has something to send since the
 * last round, in the order in which they had it. While no port takes more the
 * others keep their places.
 */
void net_output_all(void)
{
	struct net_output *queue = &net_here()->output;
	uint32_t last = queue->tail;

	while (queue->head != last && !ports_are_busy()) {
		struct net_conn *conn =
			queue->ring[queue->head++ & queue->mask];

		conn->in_output = false;
		output(conn);
	}
	if (queue->head == queue->tail)
		queue->head = queue->tail = 0;
}
