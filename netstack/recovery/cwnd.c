/*
 * The congestion window: code that the loss-based controllers (CUBIC, Reno)
 * share, proportional rate reduction during a repair, the window after an idle
 * period with any controller, and the window of a connection without recovery
 * state.
 */
#include "netstack/recovery/recovery_priv.h"

#define CWND_MAX (UINT32_C(1) << 30)

/* Windows within a round trip, as Linux paces. */
#define SLOW_START_GAIN 2.0
#define AVOIDANCE_GAIN	1.2

/* ---- proportional rate reduction, RFC 6937 ---- */

void net_prr_begin(struct net_recovery *rec, uint32_t flight)
{
	rec->flight = flight ? flight : 1;
	rec->prr_delivered = rec->prr_out = 0;
}

/*
 * Limits what may leave for an ACK while a loss is being repaired, so that the
 * window has come down to ssthresh when the repair ends.
 */
static void reduce_rate(struct net_conn *conn, const struct net_ack *ack)
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

/* ---- loss-based controllers ---- */

void net_cwnd_cut(struct net_conn *conn, uint32_t ssthresh)
{
	conn->pcb.ssthresh = LWIP_MAX(ssthresh, 2u * conn->pcb.mss);
}

void net_cwnd_on_ack(struct net_conn *conn, const struct net_ack *ack,
		     void (*avoid)(struct net_conn *conn, uint32_t acked))
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t ssthresh = conn->pcb.ssthresh, more;

	if (rec->state == NET_RECOVERY_RECOVERY) {
		reduce_rate(conn, ack);
		return;
	}
	if (ack->acked == 0 || !ack->limited || ack->ece)
		return;
	if (rec->cwnd < ssthresh) {
		more = net_hystart_on_ack(conn, ack);
		rec->cwnd += LWIP_MIN(more, ssthresh - rec->cwnd);
		return;
	}
	if (rec->cwnd < CWND_MAX)
		avoid(conn, ack->acked);
}

void net_cwnd_on_ecn(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	rec->cc->on_loss(conn);
	rec->cwnd = LWIP_MIN(rec->cwnd, conn->pcb.ssthresh);
}

void net_cwnd_on_recovered(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->state != NET_RECOVERY_LOSS)
		rec->cwnd = conn->pcb.ssthresh;
}

void net_cwnd_on_undo(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->cwnd < rec->undo_cwnd)
		rec->cwnd = rec->undo_cwnd;
	conn->pcb.ssthresh = rec->undo_ssthresh;
}

double net_cwnd_pacing_rate(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);
	double gain = rec->cwnd < conn->pcb.ssthresh / 2 ? SLOW_START_GAIN
							 : AVOIDANCE_GAIN;

	if (conn->srtt_us >> 3 == 0)
		return 0;
	return gain * rec->cwnd * 8e9 / 1024 / conn->srtt_us;
}

/* ---- without recovery state ---- */

/*
 * RFC 6928: ten segments of initial window, but no more than 14600 bytes where
 * two are less. lwIP sets its own smaller one when the handshake ends.
 */
void net_cwnd_begin(struct tcp_pcb *pcb)
{
	uint32_t window =
		LWIP_MIN(10u * pcb->mss, LWIP_MAX(2u * pcb->mss, 14600u));

	if (pcb->cwnd < window)
		pcb->cwnd = window;
}

/*
 * lwIP's slow start grows by two segments an ACK, however many it covers. Our
 * own receiver, like a kernel's behind GRO, acknowledges a whole burst at
 * once: RFC 9406 4.2 counts up to eight.
 */
void net_cwnd_slow_start(struct tcp_pcb *pcb, uint32_t lastack, uint32_t cwnd)
{
	uint32_t acked = pcb->lastack - lastack;

	if (acked <= 2u * pcb->mss || pcb->cwnd != cwnd + 2u * pcb->mss)
		return; /* not in slow start, or not held back */
	pcb->cwnd = cwnd + LWIP_MIN(acked, 8u * pcb->mss);
}

/* ---- after an idle period ---- */

/*
 * After an idle period RFC 5681 4.1 restarts from the initial window. Here, as
 * in Linux, the window halves for each RTO that has passed, down to the initial
 * window, and slow start leads back to three quarters of the former window.
 */
static uint32_t decay_cwnd(struct tcp_pcb *pcb, uint32_t cwnd,
			   uint32_t timeouts)
{
	uint32_t least = LWIP_MIN(10u * pcb->mss, cwnd);

	if (pcb->ssthresh < cwnd / 4 * 3)
		pcb->ssthresh = cwnd / 4 * 3;
	cwnd >>= LWIP_MIN(timeouts, 31);
	return LWIP_MAX(cwnd, least);
}

void net_cwnd_on_idle(struct net_conn *conn, uint32_t timeouts)
{
	struct net_recovery *rec = net_recovery_of(conn);

	rec->cwnd = decay_cwnd(&conn->pcb, rec->cwnd, timeouts);
}

void net_recovery_restart(struct net_conn *conn)
{
	uint64_t idle_us =
		(tcp_ticks - conn->pcb.tmr) * (uint64_t)(NET_TICK_NS >> 10);
	uint64_t timeouts = idle_us / net_rtt_rto_us(conn);
	uint32_t n = (uint32_t)LWIP_MIN(timeouts, UINT32_MAX);

	if (n == 0)
		return;
	if (net_traced(conn))
		net_trace_cwnd_why(conn, "idle");
	if (!conn->has_recovery) {
		conn->pcb.cwnd = decay_cwnd(&conn->pcb, conn->pcb.cwnd, n);
		return;
	}
	conn->recovery->cc->on_idle(conn, n);
	conn->pcb.cwnd = conn->recovery->cwnd;
}

/*
 * The send buffer follows the congestion window, as a kernel's does: two of
 * them, so that one can be written while the other is in flight. BBR has three,
 * since its window counts only what is in flight: after a segment that is lost
 * twice, up to two windows of later data wait for it here. lwIP's snd_buf is
 * the remaining room.
 */
void net_cwnd_grow_buffer(struct net_conn *conn, uint32_t cwnd)
{
	struct tcp_pcb *pcb = &conn->pcb;
	unsigned windows = conn->has_recovery ? conn->recovery->cc->buffer : 2;
	uint64_t want = LWIP_MIN((uint64_t)windows * cwnd,
				 (uint64_t)net_here()->wmem_max);
	uint32_t has = pcb->snd_buf + (pcb->snd_lbb - pcb->lastack);

	if (has < want)
		pcb->snd_buf += (uint32_t)want - has;
}
