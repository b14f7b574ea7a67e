/*
 * BBR, version 3 (draft-ietf-ccwg-bbr-06): sends at the rate at which the path
 * delivers, and keeps about as much data in flight as the path holds, by
 * probing for more (5.3.3) and for a shorter round trip (5.3.4) from time to
 * time. Loss is a sign of congestion if more than 2 % of the data in flight is
 * lost, and at least three segments; the draft has this limit only for probes,
 * and without the three segments (bbr_model.c says why).
 *
 * The draft says nothing of ECN. Here a round with an echo of a mark (RFC 3168)
 * is treated like a round with a loss, and in a probe for more, or for two
 * rounds of Startup, like a round with too many losses. During a repair the
 * model alone decides how much is sent, without PRR.
 */
#include "netstack/recovery/bbr.h"

#include <string.h>

#define STARTUP_PACING	2.77
#define DRAIN_PACING	0.5
#define CWND_GAIN	2.0
#define UP_CWND_GAIN	2.25
#define PROBE_RTT_GAIN	0.5
#define PACING_MARGIN	0.99
#define PROBE_RTT_FOR	NET_MS(200)
#define PROBE_WAIT_US	NET_MS(2000) /* and as much as half of it more */
#define MAX_RENO_ROUNDS 63.0
#define DRAIN_ROUNDS	3u
#define STARTUP_RANGES	6u /* lost in a round: its queue is full */
#define MAX_UP_ROUNDS	30u

static const double pacing_gains[] = {
	[BBR_STARTUP] = STARTUP_PACING,
	[BBR_DRAIN] = DRAIN_PACING,
	[BBR_DOWN] = 0.90,
	[BBR_CRUISE] = 1.0,
	[BBR_REFILL] = 1.0,
	[BBR_UP] = 1.25,
	[BBR_PROBE_RTT] = 1.0,
};

static void set_state(struct net_bbr *bbr, enum net_bbr_state state)
{
	bbr->state = state;
	bbr->pacing_gain = pacing_gains[state];
	bbr->cwnd_gain = state == BBR_UP	  ? UP_CWND_GAIN
			 : state == BBR_PROBE_RTT ? PROBE_RTT_GAIN
						  : CWND_GAIN;
}

/* 5.6.2; until the pipe has been full the rate only rises. */
static void set_pacing_rate(struct net_bbr *bbr, double gain)
{
	double rate = gain * bbr->bw * PACING_MARGIN;

	if (rate > 0 && (bbr->full_bw_reached || rate > bbr->pacing_rate))
		bbr->pacing_rate = rate;
}

/* ---- the window that was, 5.6.4.4 ---- */

static void save_cwnd(struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;
	double cwnd = rec->cwnd;

	if (rec->state != NET_RECOVERY_OPEN || bbr->state == BBR_PROBE_RTT)
		cwnd = LWIP_MAX(cwnd, bbr->prior_cwnd);
	bbr->prior_cwnd = cwnd;
}

static void restore_cwnd(struct net_recovery *rec)
{
	if (rec->cwnd < rec->bbr->prior_cwnd)
		rec->cwnd = (uint32_t)rec->bbr->prior_cwnd;
}

/* ---- ProbeBW, 5.3.3.9 ---- */

static double target_inflight(const struct net_recovery *rec)
{
	double bdp = net_bbr_bdp(rec->bbr, 1.0), cwnd = rec->cwnd;

	return LWIP_MIN(bdp, cwnd);
}

static void start_down(struct net_bbr *bbr)
{
	uint32_t random = net_random();

	net_bbr_reset_congestion(bbr);
	bbr->up_acked_per_inc = BBR_INFINITE;
	bbr->rounds_since_probe = random & 1;
	bbr->probe_wait_us =
		PROBE_WAIT_US + (random >> 1) % (PROBE_WAIT_US / 2);
	bbr->cycle_us = net_now_us();
	bbr->acks = BBR_ACKS_STOPPING;
	net_bbr_start_round(bbr);
	set_state(bbr, BBR_DOWN);
}

static void start_refill(struct net_bbr *bbr)
{
	net_bbr_reset_short_term(bbr);
	bbr->up_rounds = 0;
	bbr->up_acked = 0;
	bbr->prev_precautionary = false;
	bbr->acks = BBR_ACKS_REFILLING;
	net_bbr_start_round(bbr);
	set_state(bbr, BBR_REFILL);
}

static void raise_slope(const struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;
	double per = (double)rec->cwnd / (UINT64_C(1) << bbr->up_rounds);

	bbr->up_rounds = LWIP_MIN(bbr->up_rounds + 1, MAX_UP_ROUNDS);
	bbr->up_acked_per_inc = LWIP_MAX(per, (double)bbr->mss);
}

static void start_up(const struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;

	bbr->acks = BBR_ACKS_STARTING;
	net_bbr_start_round(bbr);
	net_bbr_reset_full_bw(bbr);
	bbr->full_bw = bbr->rs.rate;
	set_state(bbr, BBR_UP);
	raise_slope(rec);
}

static bool time_to_probe(struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;
	double rounds = target_inflight(rec) / bbr->mss;

	rounds = LWIP_MIN(rounds, MAX_RENO_ROUNDS);
	if (net_now_us() - bbr->cycle_us <= bbr->probe_wait_us &&
	    bbr->rounds_since_probe < rounds)
		return false;
	start_refill(bbr);
	return true;
}

static bool time_to_cruise(const struct net_bbr *bbr)
{
	return bbr->pipe <= net_bbr_with_headroom(bbr) &&
	       bbr->pipe <= net_bbr_inflight(bbr, bbr->max_bw);
}

static bool at_inflight_long(const struct net_recovery *rec)
{
	return rec->bbr->cwnd_limited && rec->cwnd >= rec->bbr->inflight_long;
}

static bool time_to_go_down(const struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;

	if (bbr->prev_too_high && bbr->pipe >= bbr->inflight_long) {
		bbr->prev_precautionary = true;
		return true;
	}
	if (at_inflight_long(rec)) {
		net_bbr_reset_full_bw(bbr);
		bbr->full_bw = bbr->rs.rate;
		return false;
	}
	return bbr->full_bw_now;
}

static void probe_upward(const struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;
	uint64_t n;

	if (!at_inflight_long(rec))
		return;
	bbr->up_acked += (double)bbr->rs.acked;
	if (bbr->up_acked >= bbr->up_acked_per_inc) {
		n = (uint64_t)(bbr->up_acked / bbr->up_acked_per_inc);
		bbr->up_acked -= (double)n * bbr->up_acked_per_inc;
		bbr->inflight_long += (double)n * bbr->mss;
	}
	if (bbr->round_start)
		raise_slope(rec);
}

/* AdaptLongTermModel(); returns whether it has decided a state. */
static bool adapt_long_term(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;

	if (bbr->acks == BBR_ACKS_STARTING && bbr->round_start)
		bbr->acks = BBR_ACKS_FEEDBACK;
	if (bbr->acks == BBR_ACKS_STOPPING && bbr->round_start) {
		bbr->probe_sample = false;
		bbr->acks = BBR_ACKS_INIT;
		if (net_bbr_probes_bw(bbr) && !bbr->rs.app_limited)
			net_bbr_advance_max_bw(bbr);
		if (net_bbr_probes_bw(bbr) && bbr->prev_precautionary &&
		    !bbr->prev_too_high) {
			start_refill(bbr);
			return true;
		}
	}
	if (net_bbr_too_high(bbr) || bbr->inflight_long >= BBR_INFINITE)
		return false;
	if (bbr->rs.in_flight > bbr->inflight_long)
		bbr->inflight_long = bbr->rs.in_flight;
	if (bbr->state == BBR_UP)
		probe_upward(rec);
	return false;
}

static void update_cycle(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;

	if (!bbr->full_bw_reached || adapt_long_term(conn))
		return;
	switch (bbr->state) {
	case BBR_DOWN:
		if (!time_to_probe(rec) && time_to_cruise(bbr))
			set_state(bbr, BBR_CRUISE);
		break;
	case BBR_CRUISE:
		time_to_probe(rec);
		break;
	case BBR_REFILL:
		if (bbr->round_start) {
			bbr->probe_sample = true;
			start_up(rec);
		}
		break;
	case BBR_UP:
		if (time_to_go_down(rec)) {
			bbr->prev_too_high = false;
			start_down(bbr);
		}
		break;
	case BBR_STARTUP:
	case BBR_DRAIN:
	case BBR_PROBE_RTT:
		break;
	}
}

/* ---- Startup and Drain, 5.3.1, 5.3.2 ---- */

/*
 * Has a round lost more than a path that loses 2 % does by chance: three
 * standard deviations more, with SACK? A queue that Startup has filled loses
 * half of what comes.
 */
static bool lost_beyond_chance(const struct net_bbr *bbr)
{
	double expected = BBR_THRESH * bbr->rs.in_flight;
	double beyond = (double)bbr->rs.lost - expected;

	return net_bbr_too_high(bbr) &&
	       (!bbr->sack || beyond * beyond > 9 * expected * bbr->mss);
}

/* 5.3.1.3; a peer without SACK reports one loss a round trip. */
static void check_startup_loss(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;
	double bdp = net_bbr_bdp(bbr, 1.0);

	if (!bbr->loss_round_start)
		return;
	if (!bbr->full_bw_reached && rec->state == NET_RECOVERY_RECOVERY &&
	    bbr->lost_ranges >= (bbr->sack ? STARTUP_RANGES : 1) &&
	    lost_beyond_chance(bbr)) {
		bbr->undo_state = BBR_STARTUP;
		bbr->full_bw_reached = true;
		bbr->inflight_long = LWIP_MAX(bdp, bbr->inflight_latest);
	}
	bbr->lost_ranges = 0;
}

static void check_startup_and_drain(struct net_conn *conn)
{
	struct net_bbr *bbr = net_bbr_of(conn);

	check_startup_loss(conn);
	if (bbr->state == BBR_STARTUP && bbr->full_bw_reached) {
		set_state(bbr, BBR_DRAIN);
		bbr->drain_round = bbr->round_count;
	}
	if (bbr->state == BBR_DRAIN &&
	    (bbr->pipe <= net_bbr_inflight(bbr, bbr->bw) ||
	     bbr->round_count > bbr->drain_round + DRAIN_ROUNDS))
		start_down(bbr);
}

/* ---- ProbeRTT, 5.3.4 ---- */

static double probe_rtt_cwnd(const struct net_bbr *bbr)
{
	double cwnd = net_bbr_bdp(bbr, PROBE_RTT_GAIN);

	return LWIP_MAX(cwnd, (double)(BBR_MIN_SEGS * bbr->mss));
}

static void check_probe_rtt_done(struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;

	/* The clock wraps: after a pause of an hour the end may look far away.
	 */
	if (!bbr->probe_rtt_timed ||
	    bbr->probe_rtt_done_us - net_now_us() <= PROBE_RTT_FOR)
		return;
	bbr->probe_rtt_stamp_us = net_now_us();
	restore_cwnd(rec);
	net_bbr_reset_short_term(bbr);
	if (bbr->full_bw_reached) {
		start_down(bbr);
		set_state(bbr, BBR_CRUISE);
	} else {
		set_state(bbr, BBR_STARTUP);
	}
}

static void handle_probe_rtt(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;

	/* Low rates are caused by this state itself. */
	bbr->rate.app_limited_to =
		bbr->rate.delivered + (uint64_t)bbr->pipe + 1;
	if (!bbr->probe_rtt_timed && bbr->pipe <= probe_rtt_cwnd(bbr)) {
		bbr->probe_rtt_timed = true;
		bbr->probe_rtt_done_us = net_now_us() + PROBE_RTT_FOR;
		bbr->probe_rtt_round_done = false;
		net_bbr_start_round(bbr);
	} else if (bbr->probe_rtt_timed) {
		bbr->probe_rtt_round_done |= bbr->round_start;
		if (bbr->probe_rtt_round_done)
			check_probe_rtt_done(rec);
	}
}

static void check_probe_rtt(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;

	if (bbr->state != BBR_PROBE_RTT && bbr->probe_rtt_expired &&
	    !bbr->idle_restart) {
		save_cwnd(rec);
		set_state(bbr, BBR_PROBE_RTT);
		bbr->probe_rtt_timed = false;
		bbr->acks = BBR_ACKS_STOPPING;
		net_bbr_start_round(bbr);
	}
	if (bbr->state == BBR_PROBE_RTT)
		handle_probe_rtt(conn);
	if (bbr->rs.acked)
		bbr->idle_restart = false;
}

/* ---- the window, 5.6.4.6 ---- */

static double cap_of(const struct net_bbr *bbr)
{
	double cap = BBR_INFINITE, least = BBR_MIN_SEGS * bbr->mss;

	if (bbr->state == BBR_PROBE_RTT || bbr->state == BBR_CRUISE)
		cap = net_bbr_with_headroom(bbr);
	else if (net_bbr_probes_bw(bbr))
		cap = bbr->inflight_long;
	cap = LWIP_MIN(cap, bbr->inflight_short);
	return LWIP_MAX(cap, least);
}

static void set_cwnd(const struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;
	double most = net_bbr_max_inflight(bbr), cwnd = rec->cwnd;
	double acked = (double)bbr->rs.acked, cap;

	if (bbr->full_bw_reached)
		cwnd = LWIP_MIN(cwnd + acked, most);
	else if (cwnd < most || bbr->rate.delivered < 10u * bbr->mss)
		cwnd += acked;
	cwnd = LWIP_MAX(cwnd, (double)(BBR_MIN_SEGS * bbr->mss));
	if (bbr->state == BBR_PROBE_RTT) {
		cap = probe_rtt_cwnd(bbr);
		cwnd = LWIP_MIN(cwnd, cap);
	}
	cap = cap_of(bbr);
	cwnd = LWIP_MIN(cwnd, cap);
	rec->cwnd = (uint32_t)LWIP_MIN(cwnd, 1e9);
}

/* ---- the table ---- */

static bool begin_bbr(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = net_mem_calloc(1, sizeof(*bbr));
	double srtt_us = conn->srtt_us >> 3;

	if (!bbr)
		return false;
	rec->bbr = bbr;
	bbr->mss = conn->pcb.mss;
	bbr->sack = conn->pcb.flags & TF_SACK;
	net_rate_begin(&bbr->rate);
	net_bbr_model_begin(bbr, conn->srtt_us >> 3);
	bbr->undo_state = BBR_PROBE_RTT; /* none */
	set_state(bbr, BBR_STARTUP);
	if (srtt_us <= 0)
		srtt_us = NET_MS(1);
	bbr->pacing_rate = STARTUP_PACING * rec->cwnd * 1e9 / 1024 / srtt_us;
	return true;
}

static void end_bbr(struct net_conn *conn)
{
	net_mem_free(net_bbr_of(conn));
}

/* UpdateOnACK(), 5.2.3 */
static void on_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;

	bbr->mss = conn->pcb.mss;
	bbr->sack = conn->pcb.flags & TF_SACK;
	bbr->pipe = net_recovery_pipe(conn, ack->una);
	net_rate_sample(conn, ack, &bbr->rs);
	if (bbr->rs.acked == 0)
		return;
	bbr->rs.newly_lost = bbr->rate.lost - bbr->lost_before;
	bbr->lost_before = bbr->rate.lost;
	bbr->cwnd_limited |= rec->cwnd_limited;
	net_bbr_model_before(bbr, rec->cwnd);
	check_startup_and_drain(conn);
	update_cycle(conn);
	net_bbr_update_min_rtt(bbr, ack);
	check_probe_rtt(conn);
	net_bbr_model_after(bbr);
	set_pacing_rate(bbr, bbr->pacing_gain);
	set_cwnd(conn);
	if (bbr->round_start)
		bbr->cwnd_limited = rec->cwnd_limited = false;
}

/* SaveStateUponLoss(), 5.5.11.1 */
static void save_state(struct net_recovery *rec)
{
	struct net_bbr *bbr = rec->bbr;

	save_cwnd(rec);
	bbr->undo_state = BBR_PROBE_RTT;
	bbr->undo_bw_short = bbr->bw_short;
	bbr->undo_inflight_short = bbr->inflight_short;
	bbr->undo_inflight_long = bbr->inflight_long;
}

/* 5.5.10.2, for a single segment: bytes in flight when losses reached 2 %. */
static double inflight_at_loss(const struct net_rate_sample *rs, double size)
{
	double in_flight = rs->in_flight - size;
	double lost = (double)rs->lost - size;

	return in_flight + (BBR_THRESH * in_flight - lost) / (1.0 - BBR_THRESH);
}

/* Takes in_flight bytes to have been too many. */
static void inflight_too_high(struct net_recovery *rec, double in_flight)
{
	struct net_bbr *bbr = rec->bbr;
	double least = target_inflight(rec) * BBR_BETA;

	bbr->prev_too_high = true;
	bbr->probe_sample = false;
	if (!bbr->rs.app_limited)
		bbr->inflight_long = LWIP_MAX(in_flight, least);
	if (bbr->state == BBR_UP) {
		start_down(bbr);
		bbr->undo_state = BBR_UP;
	}
}

/*
 * Called once for the marks in a window. How much of that window was marked is
 * not known: the bytes in flight when the newest segment was sent are too many
 * for a probe, and the second round of Startup in a row with a mark ends
 * Startup, as in Linux's BBR version 3.
 */
static void on_ecn(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;
	double bdp = net_bbr_bdp(bbr, 1.0);

	if (!bbr->loss_in_round)
		bbr->loss_round_delivered = bbr->rate.delivered;
	bbr->loss_in_round = true;
	if (bbr->state == BBR_STARTUP && !bbr->full_bw_reached &&
	    bbr->ecn_round + 2 >= bbr->round_count && bbr->ecn_round) {
		bbr->full_bw_reached = true;
		bbr->inflight_long = LWIP_MAX(bdp, bbr->inflight_latest);
	}
	bbr->ecn_round = bbr->round_count;
	if (bbr->probe_sample && bbr->rs.has_mark)
		inflight_too_high(rec, bbr->rs.in_flight);
}

/* HandleLostPacket() */
static void on_lost(struct net_recovery *rec, const struct net_seg *seg)
{
	struct net_bbr *bbr = rec->bbr;
	uint32_t size = TCP_TCPLEN(&seg->seg);
	const struct net_rate_mark *mark =
		net_rate_mark_at(&bbr->rate, seg->sent_us);

	bbr->rate.lost += size;
	bbr->lost_ranges += net_seg_begin(&seg->seg) != bbr->lost_end;
	bbr->lost_end = net_seg_end(&seg->seg);
	if (!bbr->loss_in_round) {
		bbr->loss_round_delivered = bbr->rate.delivered;
		save_state(rec);
	}
	bbr->loss_in_round = true;
	if (!bbr->probe_sample || !mark)
		return;
	bbr->rs.in_flight = mark->in_flight;
	bbr->rs.lost = bbr->rate.lost - mark->lost;
	bbr->rs.app_limited = mark->app_limited;
	if (net_bbr_too_high(bbr))
		inflight_too_high(rec, inflight_at_loss(&bbr->rs, size));
}

/* OnEnterFastRecovery() and OnEnterRTO(), 5.6.4.4 */
static void on_loss(struct net_conn *conn)
{
	save_state(net_recovery_of(conn));
}

static void on_recovered(struct net_conn *conn)
{
	restore_cwnd(net_recovery_of(conn));
}

/* HandleSpuriousLossDetection(), 5.5.11.2 */
static void on_undo(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;
	enum net_bbr_state was = bbr->undo_state;

	restore_cwnd(rec);
	bbr->loss_in_round = false;
	net_bbr_reset_full_bw(bbr);
	bbr->bw_short = LWIP_MAX(bbr->bw_short, bbr->undo_bw_short);
	bbr->inflight_short =
		LWIP_MAX(bbr->inflight_short, bbr->undo_inflight_short);
	bbr->inflight_long =
		LWIP_MAX(bbr->inflight_long, bbr->undo_inflight_long);
	bbr->undo_state = BBR_PROBE_RTT;
	if (was == BBR_STARTUP && bbr->state != BBR_STARTUP) {
		bbr->full_bw_reached = false;
		if (bbr->state != BBR_PROBE_RTT)
			set_state(bbr, BBR_STARTUP);
	} else if (was == BBR_UP && bbr->state != BBR_UP &&
		   bbr->state != BBR_PROBE_RTT) {
		start_refill(bbr);
	}
}

/* 5.4: the window stays, and what is sent is paced at the path's own rate. */
static void on_idle(struct net_conn *conn, uint32_t timeouts)
{
}

static void on_restart(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_bbr *bbr = rec->bbr;

	if (!bbr->rate.app_limited_to)
		return;
	bbr->idle_restart = true;
	bbr->extra_start_us = net_now_us();
	bbr->extra_delivered = 0;
	if (net_bbr_probes_bw(bbr))
		set_pacing_rate(bbr, 1.0);
	else if (bbr->state == BBR_PROBE_RTT)
		check_probe_rtt_done(rec);
}

static double pacing_rate(const struct net_conn *conn)
{
	return net_bbr_of(conn)->pacing_rate;
}

const struct net_cc net_cc_bbr = {
	.name = "bbr",
	.burst = 2,
	.flow_burst = 2,
	.buffer = 3, /* it goes on sending while it repairs */
	.models = true,
	.begin = begin_bbr,
	.end = end_bbr,
	.on_loss = on_loss,
	.on_lost = on_lost,
	.on_ecn = on_ecn,
	.on_ack = on_ack,
	.on_recovered = on_recovered,
	.on_undo = on_undo,
	.on_idle = on_idle,
	.on_restart = on_restart,
	.pacing_rate = pacing_rate,
};
