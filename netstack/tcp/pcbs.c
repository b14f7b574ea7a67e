/*
 * Takes pcbs off lwIP's lists after lwIP has worked on a connection.
 */
#include "netstack/tcp/tcp.h"

/* Adopts a pcb that is new on a list of lwIP's: net_dial() made it. */
static void adopt_pcb(struct net_conn *conn)
{
	if (conn->hashed)
		return;
	net_demux_insert(conn);
	if (conn->pcb.unsent) /* its first segment: the port had no room */
		net_conn_queue_output(conn);
}

static void take_back(struct tcp_pcb *pcb)
{
	struct net_conn *conn = net_conn_of(pcb);

	adopt_pcb(conn);
	if (pcb->state == TIME_WAIT)
		net_ooseq_clear(conn);
	if (pcb->state != TIME_WAIT || !net_time_wait_check(conn))
		net_timer_check(conn);
}

void net_pcbs_take_back(void)
{
	struct tcp_pcb *pcb;

	while ((pcb = net_pcb_take()))
		take_back(pcb);
}

void net_pcbs_take_back_open(struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (__builtin_expect(tcp_active_pcbs != pcb || pcb->next || tcp_tw_pcbs,
			     0)) {
		net_pcbs_take_back();
		return;
	}
	tcp_active_pcbs = NULL;
	net_timer_check(conn);
}
