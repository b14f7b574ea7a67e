/*
 * Proportional rate reduction (RFC 6937): how much may leave for an ACK while
 * a loss is being repaired, so that the window has come down to ssthresh when
 * the repair ends.
 */
#include "netstack/recovery/recovery_priv.h"

void net_prr_begin(struct net_recovery *rec, uint32_t flight)
{
	rec->flight = flight ? flight : 1;
	rec->prr_delivered = rec->prr_out = 0;
}

void net_prr_on_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t pipe = net_recovery_pipe(conn, ack->una);
	uint32_t ssthresh = conn->pcb.ssthresh, mss = conn->pcb.mss;
	int64_t send;

	rec->prr_delivered += ack->delivered;
	if (pipe > ssthresh) {
		send = ((int64_t)rec->prr_delivered * ssthresh + rec->flight -
			1) / rec->flight -
		       rec->prr_out;
	} else {
		send = (int64_t)rec->prr_delivered - rec->prr_out;
		if (send < ack->delivered)
			send = ack->delivered;
		send += mss;
		if (send > (int64_t)ssthresh - pipe)
			send = (int64_t)ssthresh - pipe;
	}
	if (send < mss && rec->prr_out == 0)
		send = mss; /* the fast retransmit itself */
	rec->cwnd = pipe + (send > 0 ? (uint32_t)send : 0);
	if (rec->cwnd < mss)
		rec->cwnd = mss;
}
