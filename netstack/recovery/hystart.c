/*
 * HyStart++ (RFC 9406): slow start ends when round trips grow longer, before a
 * full queue has lost a window of data. Longer round trips may only be jitter,
 * so five rounds of conservative slow start follow first, and slow start
 * resumes if the round trip falls.
 *
 * The connection is paced, so that the window grows by everything that is
 * acknowledged (4.2: L is infinite).
 *
 * A round trip shows a queue one round after the queue began, and by then the
 * window has grown fourfold since the path was full: queues of two
 * bandwidth-delay products overflow. So slow start also ends by the train of
 * ACKs (Ha and Rhee, "Taming the elephants", 2011), as in Linux: data that is
 * sent at two windows per round trip is acknowledged within half of one, unless
 * a bottleneck spreads the ACKs. When ACKs have come without a pause for as
 * long as a round trip takes, the path is full.
 */
#include "netstack/recovery/recovery_priv.h"

#define THRESH_MIN_US NET_MS(4)
#define THRESH_MAX_US NET_MS(16)
#define RTT_DIVISOR   8u
#define RTT_SAMPLES   8u
#define CSS_DIVISOR   4u
#define CSS_ROUNDS    5u
#define PAUSE_MAX_US  NET_MS(4) /* within a train; Linux: 2 ms */
#define PAUSE_DIVISOR 4u	/* of the round trip, if that is less */

static void begin_round(struct net_hystart *hs, const struct tcp_pcb *pcb)
{
	hs->end = pcb->snd_nxt;
	hs->last_us = hs->least_us;
	hs->least_us = 0;
	hs->samples = 0;
	hs->begun_us = hs->acked_us = net_now_us();
	hs->begun = hs->train = true;
}

static void sample_rtt(struct net_hystart *hs, uint32_t rtt_us)
{
	if (rtt_us == 0)
		rtt_us = 1;
	if (hs->least_us == 0 || rtt_us < hs->least_us)
		hs->least_us = rtt_us;
	hs->samples += hs->samples < RTT_SAMPLES;
}

/* Returns how much longer than in the last round a round trip has to be. */
static uint32_t threshold_us(const struct net_hystart *hs)
{
	uint32_t us = hs->last_us / RTT_DIVISOR;

	return LWIP_MIN(LWIP_MAX(us, THRESH_MIN_US), THRESH_MAX_US);
}

static void judge_round(struct net_hystart *hs)
{
	if (hs->samples < RTT_SAMPLES || hs->last_us == 0)
		return;
	if (hs->conservative) {
		hs->conservative = hs->least_us >= hs->base_us;
	} else if (hs->least_us >= hs->last_us + threshold_us(hs)) {
		hs->conservative = true;
		hs->base_us = hs->least_us;
		hs->rounds = 0;
	}
}

/* Have ACKs of this round come for a round trip, without a pause? */
static bool fills_path(struct net_hystart *hs, uint32_t min_rtt_us)
{
	uint32_t now_us = net_now_us(), pause_us = now_us - hs->acked_us;

	hs->acked_us = now_us;
	if (pause_us > LWIP_MIN(min_rtt_us / PAUSE_DIVISOR, PAUSE_MAX_US))
		hs->train = false;
	return hs->train && now_us - hs->begun_us >= min_rtt_us;
}

uint32_t net_hystart_on_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_hystart *hs = &rec->hystart;
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t grows;

	if (pcb->ssthresh < UINT32_C(1) << 30)
		return ack->acked; /* 4.2: the first slow start alone */
	if (!hs->begun)
		begin_round(hs, pcb);
	if (ack->has_rtt)
		sample_rtt(hs, ack->rtt_us);
	judge_round(hs);
	grows = hs->conservative ? ack->acked / CSS_DIVISOR : ack->acked;
	if (TCP_SEQ_LT(ack->una, hs->end)) {
		if (fills_path(hs, rec->min_rtt_us))
			pcb->ssthresh = rec->cwnd;
		return grows;
	}
	if (hs->conservative && ++hs->rounds >= CSS_ROUNDS)
		pcb->ssthresh = rec->cwnd;
	begin_round(hs, pcb);
	return grows;
}
