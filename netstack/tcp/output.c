/*
 * The output phase: every connection that has something to send, in order.
 *
 * A queue is an array that is filled from its beginning whenever it is empty:
 * its first lines stay in the cache, and a connection needs no link. It has
 * room for every live connection, and for those that ended while they were
 * queued: net_output_has_room() is called before a connection is made.
 *
 * A port that accepts no more frames, because its peer does not read them, must
 * not cost the other ports anything. Connections that send by it wait in the
 * port's own queue, and return to the shard's queue when it accepts frames
 * again.
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

static void close_queue(struct net_output *queue)
{
	net_mem_unmap_table(queue->ring, queue->mask);
	*queue = (struct net_output){0};
}

void net_output_fini(void)
{
	close_queue(&net_here()->output);
	for (unsigned i = 0; i < NET_MAX_LINKS; i++)
		close_queue(&net_here()->ports[i].waiting);
}

static uint32_t length(const struct net_output *queue)
{
	return queue->tail - queue->head;
}

/*
 * Does the queue have an entry for each live connection, for each that is
 * queued, and for one more? Only a new connection makes the sum of the living
 * and of the dead that are queued grow.
 */
bool net_output_has_room(void)
{
	uint64_t n = net_here()->n_conns;

	n += length(&net_here()->output);
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		n += length(&net_here()->ports[i].waiting);
	return n <= net_here()->output.mask;
}

/* ---- ports that take no frames ---- */

static_assert(NET_MAX_LINKS <= 32, "a bit a port");

/*
 * A bit for each port that is so far behind that sending has to wait. Those
 * that were found busy before are not asked again: each question to a busy
 * port tries to send.
 */
static inline uint32_t busy_ports(uint32_t busy)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (!(busy & (UINT32_C(1) << i)) &&
		    glue_tx_busy(net_here()->ports[i].glue))
			busy |= UINT32_C(1) << i;
	return busy;
}

static uint32_t all_ports(void)
{
	return (uint32_t)((UINT64_C(1) << net_here()->n_ports) - 1);
}

/* Queues connections again that waited for a port. */
static void take_back(struct net_output *waiting)
{
	struct net_output *queue = &net_here()->output;

	while (waiting->head != waiting->tail)
		queue->ring[queue->tail++ & queue->mask] =
			waiting->ring[waiting->head++ & waiting->mask];
	waiting->head = waiting->tail = 0;
}

/* If the connection's port is busy, queues it there; false if it is not. */
static bool wait_for_port(struct net_conn *conn, uint32_t busy)
{
	struct net_port *port = conn->pcb_live ? net_conn_port(conn) : NULL;
	struct net_output *waiting;

	if (!port || !(busy & (UINT32_C(1) << (port - net_here()->ports))))
		return false;
	waiting = &port->waiting;
	if (!waiting->ring)
		waiting->ring = (void *)net_mem_map_table(
			2 * net_here()->max_conns + 1, &waiting->mask);
	if (!waiting->ring)
		return false;
	waiting->ring[waiting->tail++ & waiting->mask] = conn;
	return true;
}

/* ---- the phase ---- */

static void output(struct net_conn *conn)
{
	if (!conn->pcb_live) {
		net_conn_put(conn);
		return;
	}
	net_recovery_output(conn);
	if (conn->pcb.unsent || conn->wants)
		net_count_phase(conn);
	if (conn->pcb.state != TIME_WAIT || !net_time_wait_check(conn))
		net_timer_check(conn);
}

/*
 * Calls tcp_output() once for each connection that has something to send since
 * the last round, in the order in which they had it. While no port takes more
 * they keep their places.
 */
void net_output_all(void)
{
	struct net_output *queue = &net_here()->output;
	uint32_t busy = busy_ports(0), last;

	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (!(busy & (UINT32_C(1) << i)))
			take_back(&net_here()->ports[i].waiting);
	last = queue->tail;
	while (queue->head != last &&
	       (busy = busy_ports(busy)) != all_ports()) {
		struct net_conn *conn =
			queue->ring[queue->head++ & queue->mask];

		if (__builtin_expect(busy != 0, 0) && wait_for_port(conn, busy))
			continue;
		conn->in_output = false;
		output(conn);
	}
	if (queue->head == queue->tail)
		queue->head = queue->tail = 0;
}
