/*
 * The queues of connections that have something to send: the shard's, and one
 * of each port that accepts no more frames.
 *
 * A queue is an array that is filled from its beginning whenever it is empty:
 * its first lines stay in the cache, and a connection needs no link. It has
 * room for every live connection, and for those that ended while they were
 * queued: net_output_has_room() is called before a connection is made.
 */
#include "netstack/conn/conn.h"

#include <errno.h>

static int open_queue(struct net_output *queue, unsigned max_conns)
{
	queue->ring =
		(void *)net_mem_map_table(2 * max_conns + 1, &queue->mask);
	return queue->ring ? 0 : -ENOMEM;
}

static void close_queue(struct net_output *queue)
{
	net_mem_unmap_table(queue->ring, queue->mask);
	*queue = (struct net_output){0};
}

static uint32_t queue_length(const struct net_output *queue)
{
	return queue->tail - queue->head;
}

static void append_conn(struct net_output *queue, struct net_conn *conn)
{
	queue->ring[queue->tail++ & queue->mask] = conn;
}

int net_output_init(unsigned max_conns)
{
	net_room_init();
	return open_queue(&net_here()->output, max_conns);
}

void net_output_fini(void)
{
	close_queue(&net_here()->output);
	for (unsigned i = 0; i < NET_MAX_LINKS; i++)
		close_queue(&net_here()->ports[i].waiting);
}

/*
 * Does the queue have an entry for each live connection, for each that is
 * queued, and for one more? Only a new connection makes the sum of the living
 * and of the dead that are queued grow.
 */
bool net_output_has_room(void)
{
	uint64_t n = net_here()->n_conns;

	n += queue_length(&net_here()->output);
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		n += queue_length(&net_here()->ports[i].waiting);
	return n <= net_here()->output.mask;
}

__attribute__((noinline)) void net_conn_queue_output(struct net_conn *conn)
{
	if (conn->in_output)
		return;
	conn->in_output = true;
	append_conn(&net_here()->output, conn);
}

bool net_output_wait(struct net_conn *conn, struct net_port *port)
{
	struct net_output *waiting = &port->waiting;

	if (!waiting->ring && open_queue(waiting, net_here()->max_conns) < 0)
		return false;
	append_conn(waiting, conn);
	return true;
}
