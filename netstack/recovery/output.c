/*
 * The output of one connection: the steps before lwIP sends, and those after
 * the port has refused a frame.
 */
#include "netstack/recovery/recovery_priv.h"

static inline void send_what_fits(struct net_conn *conn)
{
	err_t err;

	if (net_here()->predicts && net_predict_output(conn))
		return;
	err = net_lwip_output(conn);
	/* Nagle's algorithm holds the segment that the ACK would go with. */
	if (err == ERR_OK && (conn->pcb.flags & TF_ACK_NOW))
		err = tcp_send_empty_ack(&conn->pcb);
	if (err == ERR_MEM || err == ERR_BUF)
		net_conn_queue_output(conn); /* the port, or memory, is short */
}

void net_send_what_fits(struct net_conn *conn)
{
	send_what_fits(conn);
}

/* Cold: for a traced connection, or one whose path takes less than agreed. */
__attribute__((noinline)) static void look_over(struct net_conn *conn)
{
	if (conn->pcb.flags & NET_TF_PATH)
		net_path_review(conn);
	if (net_traced(conn))
		net_trace_settle(conn);
}

struct net_port *net_conn_port(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct netif *netif = ip_route(&pcb->local_ip, &pcb->remote_ip);

	return netif ? netif->state : NULL;
}

void net_conn_output_now(struct net_conn *conn)
{
	net_recovery_before_output(conn);
	if (__builtin_expect(conn->pcb.flags & (NET_TF_PATH | NET_TF_TRACED),
			     0))
		look_over(conn);
	if (__builtin_expect(conn->has_recovery, 0))
		net_send_new(conn);
	else
		send_what_fits(conn);
	net_send_went_out(conn);
}
