/*
 * The output phase: every connection that has something to send, in order.
 *
 * A port that accepts no more frames, because its peer does not read them, must
 * not cost the other ports anything. Connections that send by it wait in the
 * port's own queue. Each round serves as many of them as the port has room for:
 * a port that accepts a few frames at a time costs no more than those.
 */
#include "netstack/tcp/tcp.h"

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

/* If the connection's port is busy, queues it there; false if it is not. */
static bool wait_for_port(struct net_conn *conn, uint32_t busy)
{
	struct net_port *port = conn->pcb_live ? net_conn_port(conn) : NULL;

	return port && busy & (UINT32_C(1) << (port - net_here()->ports)) &&
	       net_output_wait(conn, port);
}

/* ---- the phase ---- */

/* Has the close sent all there is, an ACK that was due included? */
static bool has_sent_all(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return !pcb->unsent && !conn->has_recovery && !conn->wants &&
	       !conn->ext->pollers &&
	       !(pcb->flags & (TF_ACK_NOW | TF_NAGLEMEMERR | TF_CLOSEPEND |
			       NET_TF_TRACED | NET_TF_PATH));
}

static void send_and_count(struct net_conn *conn)
{
	net_recovery_output(conn);
	if (conn->pcb.unsent || conn->wants)
		net_count_phase(conn);
}

/* Of a connection that one of the sides has closed, or both. */
__attribute__((noinline)) static void output_closing(struct net_conn *conn)
{
	if (!has_sent_all(conn))
		send_and_count(conn);
	if (conn->pcb.state != TIME_WAIT || !net_time_wait_check(conn))
		net_timer_check(conn);
}

static void output_conn(struct net_conn *conn)
{
	if (!conn->pcb_live) {
		net_conn_put(conn);
		return;
	}
	if (unlikely(conn->pcb.state > ESTABLISHED)) {
		output_closing(conn);
		return;
	}
	send_and_count(conn);
	net_timer_check(conn);
}

/*
 * Calls tcp_output() once for each connection that was queued when the round
 * began, in their order, until all the given ports are busy; the rest keep
 * their places. Returns the ports that are busy.
 */
static inline uint32_t output_queue(struct net_output *queue, uint32_t ports,
				    uint32_t busy)
{
	uint32_t last = queue->tail;

	while (queue->head != last &&
	       ((busy = busy_ports(busy)) & ports) != ports) {
		struct net_conn *conn = net_output_pop(queue);

		if (unlikely(busy != 0) && wait_for_port(conn, busy))
			continue;
		conn->in_output = false;
		output_conn(conn);
	}
	net_output_rewind(queue);
	return busy;
}

/* Serves what has waited for a port that accepts frames again. */
__attribute__((noinline)) static uint32_t serve_waiting(unsigned i,
							uint32_t busy)
{
	struct net_port *port = &net_here()->ports[i];

	if (!TAILQ_EMPTY(&port->senders))
		net_room_resume_senders(port);
	return output_queue(&port->waiting, UINT32_C(1) << i, busy);
}

/*
 * Calls tcp_output() once for each connection that has something to send since
 * the last round, in the order in which they had it. While no port takes more
 * they keep their places.
 */
void net_output_all(void)
{
	uint32_t busy = busy_ports(0);

	for (unsigned i = 0; i < net_here()->n_ports; i++) {
		const struct net_port *port = &net_here()->ports[i];

		if (!(busy & (UINT32_C(1) << i)) &&
		    unlikely(port->waiting.head != port->waiting.tail ||
			     !TAILQ_EMPTY(&port->senders)))
			busy = serve_waiting(i, busy);
	}
	output_queue(&net_here()->output, all_ports(), busy);
}
