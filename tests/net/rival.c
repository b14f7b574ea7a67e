/* A model of a competing sender on the path of a bottleneck. */
#include "tests/net/rival.h"

#include <math.h>
#include <string.h>

#define SECOND	  1e9
#define MS	  INT64_C(1000000)
#define HIGH_GAIN 2.885
#define LEAST	  4.0
#define BETA	  0.7
#define C	  0.4

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double smaller(double a, double b)
{
	return a < b ? a : b;
}

static unsigned draw_below(struct rival *r, unsigned below)
{
	r->seed = r->seed * UINT64_C(6364136223846793005) +
		  UINT64_C(1442695040888963407);
	return (unsigned)((r->seed >> 33) % below);
}

static double in_flight(const struct rival *r)
{
	return (double)(r->next - r->oldest);
}

void rival_begin(struct rival *r, enum rival_kind kind, unsigned seed,
		 int64_t now_ns)
{
	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->seed = seed;
	r->cwnd = 10;
	r->ssthresh = 1e18;
	r->first_ns = r->delivered_ns = now_ns;
}

bool rival_may_send(const struct rival *r, int64_t now_ns)
{
	return in_flight(r) + 1 <= r->cwnd && r->send_at_ns <= now_ns;
}

uint64_t rival_send(struct rival *r, int64_t now_ns)
{
	if (r->next == r->oldest)
		r->first_ns = r->delivered_ns = now_ns;
	r->flight[r->next % RIVAL_FLIGHT] = (struct rival_packet){
		now_ns, r->first_ns, r->delivered_ns, r->delivered};
	if (r->pacing > 0) {
		if (r->send_at_ns < now_ns - MS)
			r->send_at_ns = now_ns - MS;
		r->send_at_ns += (int64_t)(SECOND / r->pacing);
	}
	return r->next++;
}

/* ---- BBR, version 1 ---- */

static double bandwidth(const struct rival *r)
{
	double most = 0;

	for (unsigned i = 0; i < 10; i++)
		most = larger(most, r->bbr.most[i]);
	return most;
}

static double product(const struct rival *r, double gain)
{
	return gain * bandwidth(r) * (double)r->min_rtt_ns / SECOND;
}

/* Returns the target window: the product, and three times the burst. */
static double target(const struct rival *r, double gain)
{
	double burst = r->pacing / 1024;

	return product(r, gain) + 3 * smaller(larger(burst, 2), 64);
}

static void check_full(struct rival *r)
{
	double bw = bandwidth(r);

	if (r->bbr.filled)
		return;
	if (bw >= 1.25 * r->bbr.full) {
		r->bbr.full = bw;
		r->bbr.plateau = 0;
	} else if (++r->bbr.plateau >= 3) {
		r->bbr.filled = true;
	}
}

static void begin_cycle(struct rival *r, int64_t now_ns)
{
	r->bbr.state = CYCLE;
	r->bbr.phase = (2 + draw_below(r, 7)) % 8; /* any but the second */
	r->bbr.phase_ns = now_ns;
}

static void end_cycle(struct rival *r, unsigned lost, int64_t now_ns)
{
	bool long_enough = now_ns - r->bbr.phase_ns > r->min_rtt_ns, next;

	if (r->bbr.phase == 0)
		next = long_enough && (lost || in_flight(r) >= target(r, 1.25));
	else if (r->bbr.phase == 1)
		next = long_enough || in_flight(r) <= target(r, 1);
	else
		next = long_enough;
	if (next) {
		r->bbr.phase = (r->bbr.phase + 1) % 8;
		r->bbr.phase_ns = now_ns;
	}
}

/* Tracks the shortest round trip of ten seconds, then drains the queue. */
static void probe_rtt(struct rival *r, bool expired, int64_t now_ns)
{
	if (r->bbr.state != SHORT && expired) {
		r->bbr.state = SHORT;
		r->bbr.prior_cwnd = larger(r->bbr.prior_cwnd, r->cwnd);
		r->bbr.done_ns = 0;
	}
	if (r->bbr.state != SHORT)
		return;
	if (r->bbr.done_ns == 0) {
		if (in_flight(r) <= LEAST)
			r->bbr.done_ns = now_ns + 200 * MS + r->min_rtt_ns;
	} else if (now_ns > r->bbr.done_ns) {
		r->min_rtt_at_ns = now_ns;
		r->cwnd = larger(r->cwnd, r->bbr.prior_cwnd);
		if (r->bbr.filled)
			begin_cycle(r, now_ns);
		else
			r->bbr.state = UP_FAST;
	}
}

static void bbr_window(struct rival *r, unsigned lost, bool round)
{
	double gain = r->bbr.filled ? 2 : HIGH_GAIN, to = target(r, gain);

	if (lost) {
		r->cwnd = larger(r->cwnd - lost, 1);
		if (!r->recovers) {
			r->bbr.prior_cwnd = r->bbr.state == SHORT
						    ? r->bbr.prior_cwnd
						    : r->cwnd + lost;
			r->bbr.conserves = true;
			r->cwnd = in_flight(r) + 1;
		}
	} else if (round) {
		r->bbr.conserves = false;
	}
	if (r->bbr.conserves)
		r->cwnd = larger(r->cwnd, in_flight(r) + 1);
	else if (r->bbr.filled)
		r->cwnd = smaller(r->cwnd + 1, to);
	else if (r->cwnd < to || r->delivered < 10)
		r->cwnd++;
	r->cwnd = larger(r->cwnd, LEAST);
	if (r->bbr.state == SHORT)
		r->cwnd = smaller(r->cwnd, LEAST);
}

static double bbr_gain(const struct rival *r)
{
	switch (r->bbr.state) {
	case UP_FAST:
		return HIGH_GAIN;
	case DRAIN:
		return 1 / HIGH_GAIN;
	case CYCLE:
		return r->bbr.phase == 0 ? 1.25 : r->bbr.phase == 1 ? 0.75 : 1;
	case SHORT:
		break;
	}
	return 1;
}

static void bbr_on_ack(struct rival *r, double rate, unsigned lost, bool round,
		       bool expired, int64_t now_ns)
{
	double *most = &r->bbr.most[r->round % 10], pacing;

	if (round)
		*most = 0;
	*most = larger(*most, rate);
	if (round)
		check_full(r);
	if (r->bbr.state == CYCLE)
		end_cycle(r, lost, now_ns);
	if (r->bbr.state == UP_FAST && r->bbr.filled)
		r->bbr.state = DRAIN;
	if (r->bbr.state == DRAIN && in_flight(r) <= target(r, 1))
		begin_cycle(r, now_ns);
	probe_rtt(r, expired, now_ns);
	pacing = 0.99 * bbr_gain(r) * bandwidth(r);
	if (r->bbr.filled || pacing > r->pacing)
		r->pacing = pacing;
	bbr_window(r, lost, round);
}

static void bbr_recovered(struct rival *r)
{
	r->cwnd = larger(r->cwnd, r->bbr.prior_cwnd);
	r->bbr.conserves = false;
}

/* ---- CUBIC ---- */

static void cubic_lost(struct rival *r)
{
	r->cubic.w_max =
		r->cwnd < r->cubic.w_max ? r->cwnd * (1 + BETA) / 2 : r->cwnd;
	r->cwnd = r->ssthresh = larger(BETA * r->cwnd, 2);
	r->cubic.epoch_ns = 0;
}

/* Slow start ends at a long train of ACKs or at growing round trips. */
static void hystart(struct rival *r, uint64_t number, int64_t rtt_ns,
		    int64_t now_ns)
{
	int64_t by_ns = r->min_rtt_ns / 8;

	if (number >= r->cubic.round_to) {
		r->cubic.round_to = r->next;
		r->cubic.round_ns = r->cubic.train_ns = now_ns;
		r->cubic.samples = 0;
		r->cubic.round_rtt_ns = INT64_MAX;
	}
	if (r->cwnd < 16)
		return;
	if (now_ns - r->cubic.train_ns <= 2 * MS) {
		r->cubic.train_ns = now_ns;
		if (now_ns - r->cubic.round_ns > r->min_rtt_ns / 2)
			r->ssthresh = r->cwnd;
	}
	if (rtt_ns < r->cubic.round_rtt_ns)
		r->cubic.round_rtt_ns = rtt_ns;
	by_ns = by_ns < 4 * MS ? 4 * MS : by_ns > 16 * MS ? 16 * MS : by_ns;
	if (++r->cubic.samples >= 8 &&
	    r->cubic.round_rtt_ns > r->min_rtt_ns + by_ns)
		r->ssthresh = r->cwnd;
}

static double cubic_curve(const struct rival *r, double s)
{
	double t = s - r->cubic.k, w_max = larger(r->cubic.w_max, 1);

	return C * t * t * t + w_max;
}

static void cubic_on_ack(struct rival *r, uint64_t number, int64_t rtt_ns,
			 int64_t now_ns)
{
	double t, to;

	r->cubic.srtt_ns =
		r->cubic.srtt_ns ? (7 * r->cubic.srtt_ns + rtt_ns) / 8 : rtt_ns;
	if (r->recovers || in_flight(r) + 2 < r->cwnd / 2)
		return;
	if (r->cwnd < r->ssthresh) {
		hystart(r, number, rtt_ns, now_ns);
		r->cwnd++;
		return;
	}
	if (r->cubic.epoch_ns == 0) {
		r->cubic.epoch_ns = now_ns;
		r->cubic.w_est = r->cwnd;
		if (r->cubic.w_max < r->cwnd)
			r->cubic.w_max = r->cwnd;
		r->cubic.k = cbrt((r->cubic.w_max - r->cwnd) / C);
	}
	t = (double)(now_ns - r->cubic.epoch_ns) / SECOND;
	r->cubic.w_est += 3 * (1 - BETA) / (1 + BETA) / r->cwnd;
	to = cubic_curve(r, t + (double)r->min_rtt_ns / SECOND);
	to = smaller(to, 1.5 * r->cwnd);
	if (to > r->cwnd)
		r->cwnd += (to - r->cwnd) / r->cwnd;
	r->cwnd = larger(r->cwnd, r->cubic.w_est);
}

/* ---- both ---- */

static double sample(const struct rival *r, const struct rival_packet *p,
		     int64_t now_ns)
{
	int64_t send_ns = p->sent_ns - p->first_ns;
	int64_t ack_ns = now_ns - p->delivered_ns;
	int64_t ns = send_ns > ack_ns ? send_ns : ack_ns;

	if (ns < r->min_rtt_ns)
		return 0;
	return (double)(r->delivered - p->delivered) * SECOND / (double)ns;
}

void rival_acked(struct rival *r, uint64_t number, int64_t now_ns)
{
	struct rival_packet p = r->flight[number % RIVAL_FLIGHT];
	unsigned lost = (unsigned)(number - r->oldest);
	int64_t rtt_ns = now_ns - p.sent_ns;
	bool round, expired;
	double rate;

	r->oldest = number + 1;
	r->lost += lost;
	r->delivered++;
	r->delivered_ns = now_ns;
	expired = now_ns - r->min_rtt_at_ns > 10000 * MS;
	if (r->min_rtt_ns == 0 || rtt_ns <= r->min_rtt_ns || expired) {
		r->min_rtt_ns = rtt_ns;
		r->min_rtt_at_ns = now_ns;
	}
	rate = sample(r, &p, now_ns);
	r->first_ns = p.sent_ns;
	round = p.delivered >= r->round_ends;
	if (round) {
		r->round_ends = r->delivered;
		r->round++;
	}
	if (r->recovers && number >= r->recovers_to) {
		r->recovers = false;
		if (r->kind == RIVAL_BBR1)
			bbr_recovered(r);
	}
	if (r->kind == RIVAL_BBR1)
		bbr_on_ack(r, rate, lost, round, expired, now_ns);
	else if (lost && !r->recovers)
		cubic_lost(r);
	else
		cubic_on_ack(r, number, rtt_ns, now_ns);
	if (lost && !r->recovers) {
		r->recovers = true;
		r->recovers_to = r->next;
	}
}
