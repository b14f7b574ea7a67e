/*
 * Reno (RFC 5681): one segment more per round trip, half the window for a loss.
 * The scoreboard decides which segments are lost, and PRR what is sent during a
 * repair, where RFC 6582 uses partial ACKs.
 */
#include "netstack/recovery/recovery_priv.h"

static bool begin_reno(struct net_conn *conn)
{
	net_recovery_of(conn)->reno_acked = 0;
	return true;
}

static void on_loss(struct net_conn *conn)
{
	net_recovery_of(conn)->reno_acked = 0;
	net_cwnd_cut(conn, net_recovery_of(conn)->cwnd / 2);
}

/* RFC 5681 3.1, with bytes counted as RFC 3465 2.1 does. */
static void avoid_congestion(struct net_conn *conn, uint32_t acked)
{
	struct net_recovery *rec = net_recovery_of(conn);

	rec->reno_acked += acked;
	if (rec->reno_acked < rec->cwnd)
		return;
	rec->reno_acked -= rec->cwnd;
	rec->cwnd += conn->pcb.mss;
}

static void on_ack(struct net_conn *conn, const struct net_ack *ack)
{
	net_cwnd_on_ack(conn, ack, avoid_congestion);
}

const struct net_cc net_cc_reno = {
	.name = "reno",
	.burst = 10,
	.flow_burst = 4,
	.buffer = 2,
	.begin = begin_reno,
	.on_loss = on_loss,
	.on_ecn = net_cwnd_on_ecn,
	.on_ack = on_ack,
	.on_recovered = net_cwnd_on_recovered,
	.on_undo = net_cwnd_on_undo,
	.on_idle = net_cwnd_on_idle,
	.pacing_rate = net_cwnd_pacing_rate,
};
