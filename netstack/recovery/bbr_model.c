/*
 * BBR's model of a path (draft-ietf-ccwg-bbr-06 5.5): how fast it delivers, how
 * long it is, how much it takes before it loses.
 */
#include "netstack/recovery/bbr.h"

#define RTT_WINDOW_US  NET_MS(10000) /* MinRTTFilterLen */
#define PROBE_RTT_US   NET_MS(5000)  /* ProbeRTTInterval */
#define HEADROOM       0.15
#define STILL_GROWS    1.25
#define FULL_BW_ROUNDS 3u

/* ---- beginnings ---- */

void net_bbr_reset_full_bw(struct net_bbr *bbr)
{
	bbr->full_bw = 0;
	bbr->full_bw_count = 0;
	bbr->full_bw_now = false;
}

void net_bbr_reset_congestion(struct net_bbr *bbr)
{
	bbr->loss_in_round = false;
	bbr->bw_latest = bbr->inflight_latest = 0;
}

void net_bbr_reset_short_term(struct net_bbr *bbr)
{
	bbr->bw_short = bbr->inflight_short = BBR_INFINITE;
}

void net_bbr_start_round(struct net_bbr *bbr)
{
	bbr->next_round_delivered = bbr->rate.delivered;
}

void net_bbr_model_begin(struct net_bbr *bbr, uint32_t srtt_us)
{
	uint32_t now_us = net_now_us();

	bbr->min_rtt_us = bbr->probe_rtt_us = srtt_us;
	bbr->min_rtt_stamp_us = bbr->probe_rtt_stamp_us = now_us;
	bbr->extra_start_us = bbr->cycle_us = now_us;
	bbr->inflight_long = BBR_INFINITE;
	net_bbr_reset_congestion(bbr);
	net_bbr_reset_short_term(bbr);
	net_bbr_reset_full_bw(bbr);
}

/* ---- volumes, 5.6.4.2 ---- */

double net_bbr_bdp(const struct net_bbr *bbr, double gain)
{
	return gain * bbr->bw * bbr->min_rtt_us * 1024 / 1e9;
}

/* SetSendQuantum() and QuantizationBudget() */
static double quantize_inflight(const struct net_bbr *bbr, double bytes)
{
	double quantum = bbr->pacing_rate / 1000, mss = bbr->mss;

	quantum = LWIP_MAX(LWIP_MIN(quantum, 65536.0), 2 * mss);
	bytes = LWIP_MAX(bytes, 3 * quantum);
	bytes = LWIP_MAX(bytes, BBR_MIN_SEGS * mss);
	return bbr->state == BBR_UP ? bytes + 2 * mss : bytes;
}

double net_bbr_inflight(const struct net_bbr *bbr, double bw)
{
	return quantize_inflight(bbr, bw * bbr->min_rtt_us * 1024 / 1e9);
}

double net_bbr_max_inflight(const struct net_bbr *bbr)
{
	double extra = LWIP_MAX(bbr->extra_acked[0], bbr->extra_acked[1]);

	return quantize_inflight(bbr, net_bbr_bdp(bbr, bbr->cwnd_gain) + extra);
}

double net_bbr_with_headroom(const struct net_bbr *bbr)
{
	double headroom = HEADROOM * bbr->inflight_long, mss = bbr->mss, left;

	if (bbr->inflight_long >= BBR_INFINITE)
		return BBR_INFINITE;
	left = bbr->inflight_long - LWIP_MAX(headroom, mss);
	return LWIP_MAX(left, BBR_MIN_SEGS * mss);
}

/*
 * 5.5.10.2 has 2 % alone: of fewer than 50 segments a single one is more, so
 * losses by chance would end every probe of a short path.
 */
bool net_bbr_is_too_much(const struct net_bbr *bbr, double lost, double of)
{
	if (!bbr->sack)
		return lost > 0;
	return lost > of * BBR_THRESH && lost > (BBR_LEAST_LOST - 1) * bbr->mss;
}

bool net_bbr_too_high(const struct net_bbr *bbr)
{
	return net_bbr_is_too_much(bbr, (double)bbr->rs.lost,
				   bbr->rs.in_flight);
}

/* ---- bandwidth ---- */

/* 5.5.1 */
static void update_round(struct net_bbr *bbr)
{
	bbr->round_start = bbr->rs.has_mark &&
			   bbr->rs.prior_delivered >= bbr->next_round_delivered;
	if (!bbr->round_start)
		return;
	net_bbr_start_round(bbr);
	bbr->round_count++;
	bbr->rounds_since_probe++;
}

/* 5.5.5; samples that the application limits count if they are larger. */
static void update_max_bw(struct net_bbr *bbr)
{
	double rate = bbr->rs.rate;

	if (rate <= 0 || (bbr->rs.app_limited && rate < bbr->max_bw))
		return;
	bbr->bw_cycle[0] = LWIP_MAX(bbr->bw_cycle[0], rate);
	bbr->max_bw = LWIP_MAX(bbr->bw_cycle[0], bbr->bw_cycle[1]);
}

/* 5.5.6; a cycle without a sample leaves the one before. */
void net_bbr_advance_max_bw(struct net_bbr *bbr)
{
	if (bbr->bw_cycle[0] <= 0)
		return;
	bbr->bw_cycle[1] = bbr->bw_cycle[0];
	bbr->bw_cycle[0] = 0;
}

/* 5.3.1.2 */
static void check_full_bw(struct net_bbr *bbr)
{
	if (bbr->full_bw_now || !bbr->round_start || bbr->rs.app_limited ||
	    bbr->rs.rate <= 0)
		return;
	if (bbr->rs.rate >= bbr->full_bw * STILL_GROWS) {
		net_bbr_reset_full_bw(bbr);
		bbr->full_bw = bbr->rs.rate;
		return;
	}
	bbr->full_bw_now = ++bbr->full_bw_count >= FULL_BW_ROUNDS;
	bbr->full_bw_reached |= bbr->full_bw_now;
}

/* ---- aggregation, 5.5.9 ---- */

/* Keeps the most of this spell and of the one before, `rounds` rounds each. */
static void remember_extra(struct net_bbr *bbr, double extra)
{
	unsigned rounds = bbr->full_bw_reached ? BBR_RTT_ROUNDS / 2 : 1;

	if (bbr->round_count - bbr->extra_round >= rounds) {
		bbr->extra_round = bbr->round_count;
		bbr->extra_acked[1] =
			bbr->full_bw_reached ? bbr->extra_acked[0] : 0;
		bbr->extra_acked[0] = 0;
	}
	bbr->extra_acked[0] = LWIP_MAX(bbr->extra_acked[0], extra);
}

static void update_aggregation(struct net_bbr *bbr, double cwnd)
{
	uint32_t passed_us = net_now_us() - bbr->extra_start_us;
	double expected = bbr->bw * passed_us * 1024 / 1e9, extra;

	if (bbr->extra_delivered <= expected) {
		bbr->extra_delivered = expected = 0;
		bbr->extra_start_us = net_now_us();
	}
	bbr->extra_delivered += (double)bbr->rs.acked;
	extra = bbr->extra_delivered - expected;
	remember_extra(bbr, LWIP_MIN(extra, cwnd));
}

/* ---- loss, 5.5.10.3 ---- */

static void latest_signals(struct net_bbr *bbr)
{
	double delivered = (double)bbr->rs.delivered;

	bbr->loss_round_start = false;
	bbr->bw_latest = LWIP_MAX(bbr->bw_latest, bbr->rs.rate);
	bbr->inflight_latest = LWIP_MAX(bbr->inflight_latest, delivered);
	if (!bbr->rs.has_mark ||
	    bbr->rs.prior_delivered < bbr->loss_round_delivered)
		return;
	bbr->loss_round_delivered = bbr->rate.delivered;
	bbr->loss_round_start = true;
}

static void begin_judging(struct net_bbr *bbr)
{
	bbr->judged_delivered = bbr->rate.delivered;
	bbr->judged_lost = bbr->rate.lost;
}

/* Was too much lost in this round, or in several if they are small? */
static bool lost_too_much(struct net_bbr *bbr)
{
	double lost = (double)(bbr->rate.lost - bbr->judged_lost);
	double of =
		lost + (double)(bbr->rate.delivered - bbr->judged_delivered);
	double least = BBR_LOSS_SEGS * bbr->mss;
	bool too_much = net_bbr_is_too_much(bbr, lost, LWIP_MAX(of, least));

	if (too_much || of >= least)
		begin_judging(bbr);
	return too_much;
}

/*
 * After a round that has lost too much without probing, lowers the bounds
 * towards the delivered rate. In the draft, any loss is too much. The delivered
 * rate is lower than the paced rate by the loss, so a path that loses 1 % by
 * chance would lower the rate by 1 or 2 % each round, for the sixty rounds
 * until the next probe.
 */
static void adapt_lower_bounds(struct net_bbr *bbr, double cwnd)
{
	bool probing = bbr->state == BBR_STARTUP || bbr->state == BBR_REFILL ||
		       bbr->state == BBR_UP;
	double bw, inflight;

	if (probing) {
		begin_judging(bbr);
		return;
	}
	if (!lost_too_much(bbr) || !bbr->loss_in_round)
		return;
	bw = bbr->bw_short >= BBR_INFINITE ? bbr->max_bw : bbr->bw_short;
	inflight = bbr->inflight_short >= BBR_INFINITE ? cwnd
						       : bbr->inflight_short;
	bbr->bw_short = LWIP_MAX(bbr->bw_latest, BBR_BETA * bw);
	bbr->inflight_short =
		LWIP_MAX(bbr->inflight_latest, BBR_BETA * inflight);
}

/* ---- updating the whole model ---- */

void net_bbr_model_before(struct net_bbr *bbr, double cwnd)
{
	latest_signals(bbr);
	update_round(bbr);
	update_max_bw(bbr);
	if (bbr->loss_round_start) {
		adapt_lower_bounds(bbr, cwnd);
		bbr->loss_in_round = false;
	}
	update_aggregation(bbr, cwnd);
	check_full_bw(bbr);
}

void net_bbr_model_after(struct net_bbr *bbr)
{
	if (bbr->loss_round_start) {
		bbr->bw_latest = bbr->rs.rate;
		bbr->inflight_latest = (double)bbr->rs.delivered;
	}
	bbr->bw = LWIP_MIN(bbr->max_bw, bbr->bw_short);
}

/* 5.3.4.3 */
void net_bbr_update_min_rtt(struct net_bbr *bbr, const struct net_ack *ack)
{
	uint32_t now_us = net_now_us(), rtt_us = LWIP_MAX(ack->rtt_us, 1);
	bool expired = now_us - bbr->min_rtt_stamp_us > RTT_WINDOW_US;

	bbr->probe_rtt_expired =
		now_us - bbr->probe_rtt_stamp_us > PROBE_RTT_US;
	if (ack->has_rtt &&
	    (bbr->probe_rtt_us == 0 || rtt_us < bbr->probe_rtt_us ||
	     bbr->probe_rtt_expired)) {
		bbr->probe_rtt_us = rtt_us;
		bbr->probe_rtt_stamp_us = now_us;
	}
	if (bbr->min_rtt_us == 0 || bbr->probe_rtt_us < bbr->min_rtt_us ||
	    expired) {
		bbr->min_rtt_us = bbr->probe_rtt_us;
		bbr->min_rtt_stamp_us = bbr->probe_rtt_stamp_us;
	}
}
