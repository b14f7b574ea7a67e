/*
 * The output phase: every connection that has something to send, in order.
 */
#include "netstack/tcp/tcp.h"

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
	struct net_conn *last = net_here()->output_tail, *conn = NULL;

	while (conn != last && !ports_are_busy()) {
		conn = net_here()->output_head;
		net_here()->output_head = conn->output_next;
		if (!net_here()->output_head)
			net_here()->output_tail = NULL;
		conn->in_output = false;
		output(conn);
	}
}
