/*
 * The user timeout: how long a connection waits for its peer before it is given
 * up, as Linux's TCP_USER_TIMEOUT. For data in flight the wait begins with its
 * first retransmission; for data that a closed window holds back, when that is
 * noticed, even if the peer answers each probe. Without a user timeout TCP's
 * own bounds apply: twelve timeouts, and a peer that answers probes is never
 * given up.
 *
 * tcp/timer.c applies it to keepalive, whose probes lwIP sends.
 */
#include "netstack/recovery/recovery_priv.h"

/* Leaves out time in which the process did not run; wraps after 49 days. */
static uint32_t now_ms(void)
{
	return (uint32_t)((net_here()->now_ns - net_here()->paused_ns) /
			  1000000);
}

void net_user_timeout_begin(struct net_conn *conn)
{
	struct net_conn_user_timeout *timeout = net_conn_user_timeout(conn);

	if (timeout)
		timeout->since_ms = now_ms();
}

static bool is_waiting(const struct tcp_pcb *pcb)
{
	if (pcb->state < ESTABLISHED)
		return false;
	return pcb->unacked ? pcb->nrtx != 0 : pcb->unsent && pcb->persist_cnt;
}

int64_t net_user_timeout_due_ns(const struct net_conn *conn)
{
	const struct net_conn_user_timeout *timeout =
		net_conn_user_timeout(conn);
	int32_t left_ms;

	if (!timeout || !timeout->timeout_ms || !is_waiting(&conn->pcb))
		return CORO_FOREVER;
	left_ms = (int32_t)(timeout->since_ms + timeout->timeout_ms - now_ms());
	return net_here()->now_ns + left_ms * INT64_C(1000000);
}

bool net_user_timeout_gives_up(struct net_conn *conn)
{
	if (net_user_timeout_due_ns(conn) > net_here()->now_ns)
		return false;
	conn->pcb.nrtx = TCP_MAXRTX; /* lwIP's reason to give up */
	return true;
}
