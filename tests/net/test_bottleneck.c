/*
 * Congestion control over a path with a bottleneck: BBR, and the controllers
 * that react to loss.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/bbr.h"
#include "tests/net/bottleneck.h"
#include "tests/net/fake_glue.h"

#define MS	INT64_C(1000000)
#define FOREVER ((size_t)1 << 40)

/* 10 Mbit/s over 40 ms: a product of 50 segments. */
#define RATE 1250000.0
#define BDP  50000.0

static struct bottleneck usual_path(double bdps)
{
	return (struct bottleneck){
		.rate = RATE, .delay_ns = 40 * MS, .queue = bdps * BDP};
}

static struct net_conn_stats conn_stats(void)
{
	struct net_conn_stats out;

	assert_int_equal(net_conn_stats(ours, &out), 0);
	return out;
}

static double goodput(struct bottleneck *path, unsigned ms)
{
	uint64_t before = path->delivered;

	bottleneck_run(path, ms);
	return (double)(path->delivered - before) * 1000 / ms / RATE;
}

static void connect_with(struct bottleneck *path, const char *cc, size_t bytes)
{
	assert_int_equal(net_listener_set_cc(listener, cc), 0);
	bottleneck_connect(path, bytes);
	assert_string_equal(conn_stats().cc, cc);
}

static void abort_conn(void)
{
	net_abort(ours);
	run_rounds(2);
	while (peer_next(&(struct segment){0}))
		;
}

static void test_bbr_finds_the_rate_and_the_round_trip(void **state)
{
	struct bottleneck path = usual_path(4);
	const struct net_bbr *bbr;
	double bw;

	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 2000);
	bbr = ours->recovery->bbr;
	bw = bbr->max_bw;
	printf("# bw %.0f, min rtt %u, state %u, longest %.0f, lost %llu\n", bw,
	       bbr->min_rtt_us, bbr->state, path.longest,
	       (unsigned long long)path.dropped);
	assert_true(bbr->full_bw_reached);
	assert_true(bw > 0.95 * RATE && bw < 1.1 * RATE);
	assert_in_range(bbr->min_rtt_us, NET_MS(40), NET_MS(44));
	assert_false(conn_stats().info.absent & NET_INFO_NO_RATE);
	assert_in_range(conn_stats().info.delivery_rate, (uint64_t)(0.9 * RATE),
			(uint64_t)(1.1 * RATE));
	assert_false(conn_stats().info.delivery_rate_app_limited);
	abort_conn();
}

static void test_bbr_fills_the_path_and_keeps_the_queue_short(void **state)
{
	struct bottleneck path = usual_path(10);
	double share;

	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 3000);
	path.longest = 0;
	share = goodput(&path, 12000);
	printf("# goodput %.3f, longest queue %.0f, lost %llu\n", share,
	       path.longest, (unsigned long long)path.dropped);
	assert_true(share > 0.92);
	assert_true(path.longest < 1.3 * BDP);
	assert_int_equal(path.dropped, 0);
	abort_conn();
}

/* BBR passes through every state within some seconds. */
static void test_bbr_passes_through_every_state(void **state)
{
	struct bottleneck path = usual_path(4);
	unsigned seen = 0;

	connect_with(&path, "bbr", FOREVER);
	for (unsigned i = 0; i < 1200; i++) {
		bottleneck_run(&path, 10);
		if (ours->has_recovery)
			seen |= 1u << ours->recovery->bbr->state;
	}
	assert_int_equal(seen, (1u << (BBR_PROBE_RTT + 1)) - 1);
	abort_conn();
}

static void
test_bbr_keeps_its_rate_under_random_loss_and_cubic_does_not(void **state)
{
	struct bottleneck path = usual_path(4), other = usual_path(4);
	double bbr, cubic;

	path.per_mille = other.per_mille = 10;
	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 2000);
	bbr = goodput(&path, 10000);
	abort_conn();
	connect_with(&other, "cubic", FOREVER);
	bottleneck_run(&other, 2000);
	cubic = goodput(&other, 10000);
	abort_conn();
	printf("# at 1 %%: bbr %.3f, cubic %.3f\n", bbr, cubic);
	assert_true(bbr > 0.8);
	assert_true(cubic < 0.6);
}

static double bbr_at(double mbit, unsigned rtt_ms, double bdps,
		     unsigned per_mille)
{
	double rate = mbit * 125000, bdp = rate * rtt_ms / 1000;
	struct bottleneck path = {.rate = rate,
				  .delay_ns = rtt_ms * MS,
				  .queue = bdps * bdp,
				  .per_mille = per_mille};
	double share;

	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 1000);
	share = goodput(&path, 4000) * RATE / rate;
	printf("# %g Mbit/s, %u ms, %g BDP, %u per mille: %.3f\n", mbit, rtt_ms,
	       bdps, per_mille, share);
	abort_conn();
	return share;
}

/*
 * Several random losses in one round of Startup, as for one seed of eight at 1
 * % loss, although no queue has been full.
 */
static void test_random_losses_do_not_end_startup(void **state)
{
	static const unsigned seeds[] = {1, 13};

	for (unsigned i = 0; i < 2; i++) {
		struct bottleneck path = {.rate = 12.5e6,
					  .delay_ns = 100 * MS,
					  .queue = 2.5e6,
					  .per_mille = 10,
					  .seed = seeds[i]};
		double share;

		connect_with(&path, "bbr", FOREVER);
		bottleneck_run(&path, 1000);
		share = goodput(&path, 2500) * RATE / path.rate;
		printf("# seed %u: %.3f\n", path.seed, share);
		assert_true(share > 0.88);
		abort_conn();
	}
}

/* Rounds of 12 to 600 segments, each with losses: BBR keeps its rate. */
static void test_random_loss_of_one_percent_costs_bbr_little(void **state)
{
	assert_true(bbr_at(10, 10, 0.5, 10) > 0.92);
	assert_true(bbr_at(10, 10, 2, 10) > 0.92);
	assert_true(bbr_at(100, 10, 0.5, 10) > 0.92);
	assert_true(bbr_at(100, 10, 2, 10) > 0.92);
	assert_true(bbr_at(100, 50, 2, 10) > 0.88);
}

/*
 * A path that holds 1,700 segments and a queue of 3,400, with losses in every
 * round: no ACK covers only segments that were sent once, and the peer has no
 * timestamps. Sacked segments show that the queue doubles the round trip.
 */
static void test_sacked_segments_measure_the_round_trip(void **state)
{
	struct bottleneck path = {.rate = 12.5e6,
				  .delay_ns = 200 * MS,
				  .queue = 5e6,
				  .per_mille = 10,
				  .scale = 12};
	struct net_conn_stats stats;

	net_here()->wmem_max = 32 << 20;
	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 3500);
	stats = conn_stats();
	printf("# srtt %u us, %u timeouts\n", stats.info.rtt, stats.rtos);
	assert_in_range(stats.info.rtt, 300000, 600000);
	assert_int_equal(stats.rtos, 0);
	abort_conn();
}

/*
 * Data behind a segment that was lost twice fills two windows, and a third one
 * can still be written. CUBIC sends less during recovery.
 */
static void test_bbr_send_buffer_holds_three_windows(void **state)
{
	static const struct {
		const char *cc;
		unsigned windows;
	} cases[] = {{"bbr", 3}, {"cubic", 2}};

	for (unsigned i = 0; i < 2; i++) {
		struct bottleneck path = {.rate = 80 * RATE,
					  .delay_ns = 10 * MS,
					  .queue = 20 * BDP};
		uint32_t cwnd = 0, has;

		connect_with(&path, cases[i].cc, FOREVER);
		while (cwnd < 400000) {
			bottleneck_run(&path, 1);
			cwnd = conn_stats().cwnd;
		}
		has = ours->pcb.snd_buf +
		      (ours->pcb.snd_lbb - ours->pcb.lastack);
		assert_in_range(has, cases[i].windows * (cwnd - 20000),
				cases[i].windows * cwnd);
		abort_conn();
	}
}

/* A product of 8 MB: 4 MiB of buffer are half of it, 32 are enough. */
static void test_a_long_path_needs_a_larger_buffer(void **state)
{
	const struct bottleneck path = {
		.rate = 40e6, .delay_ns = 200 * MS, .queue = 64e6};
	double share[2];

	for (unsigned i = 0; i < 2; i++) {
		struct bottleneck p = path;

		net_here()->wmem_max = i ? 32 << 20 : 4 << 20;
		connect_with(&p, "cubic", FOREVER);
		bottleneck_run(&p, 3000);
		share[i] = goodput(&p, 1000) * RATE / p.rate;
		abort_conn();
	}
	printf("# 4 MiB: %.3f, 32 MiB: %.3f\n", share[0], share[1]);
	assert_true(share[0] < 0.6);
	assert_true(share[1] > 0.95);
}

/* Three segments, and more than 2 % of the data in flight. */
static void
test_bbr_loss_threshold_is_three_segments_and_two_percent(void **state)
{
	struct net_bbr bbr = {.mss = 1000, .sack = true};

	assert_false(net_bbr_is_too_much(&bbr, 2000, 10000));
	assert_true(net_bbr_is_too_much(&bbr, 3000, 10000));
	assert_true(net_bbr_is_too_much(&bbr, 3000, 149000));
	assert_false(net_bbr_is_too_much(&bbr, 3000, 150000));
	assert_false(net_bbr_is_too_much(&bbr, 0, 0));
	bbr.sack = false; /* only one loss per round trip is reported */
	assert_true(net_bbr_is_too_much(&bbr, 1000, 150000));
	assert_false(net_bbr_is_too_much(&bbr, 0, 150000));
}

/* Loss of five times the random bound: the rate follows the delivery rate. */
static void test_bbr_reduces_its_rate_at_five_percent_loss(void **state)
{
	struct bottleneck path = usual_path(4);
	bool gave_way = false;

	path.per_mille = 50;
	connect_with(&path, "bbr", FOREVER);
	for (unsigned i = 0; i < 300; i++) {
		const struct net_bbr *bbr;

		bottleneck_run(&path, 10);
		if (!ours->has_recovery)
			continue;
		bbr = ours->recovery->bbr;
		gave_way |= bbr->full_bw_reached && bbr->state == BBR_CRUISE &&
			    bbr->bw_short < 0.97 * bbr->max_bw;
	}
	assert_true(gave_way);
	abort_conn();
}

/*
 * In bursts of ACKs new segments and retransmissions leave at the same time, in
 * either order; only lost ones are marked lost.
 */
static void test_only_lost_segments_are_marked_lost(void **state)
{
	struct bottleneck path = {.rate = 20 * RATE,
				  .delay_ns = 20 * MS,
				  .queue = 20 * BDP,
				  .per_mille = 10};

	connect_with(&path, "bbr", FOREVER);
	for (unsigned i = 0; i < 20; i++) {
		bottleneck_run(&path, 50);
		assert_true(ours->recovery->bbr->rate.lost <= path.dropped);
	}
	assert_true(path.dropped > 100000);
	abort_conn();
}

static void test_bbr_loses_little_to_a_shallow_queue(void **state)
{
	struct bottleneck path = usual_path(0.3);
	double share;

	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 3000);
	path.sent = path.dropped = 0;
	share = goodput(&path, 10000);
	printf("# shallow: goodput %.3f, lost %.4f\n", share,
	       (double)path.dropped / (double)path.sent);
	assert_true(share > 0.8);
	assert_true((double)path.dropped < 0.03 * (double)path.sent);
	abort_conn();
}

/*
 * A tenth of the rate, written each 10 ms: the estimate does not follow it
 * down, and bunched ACKs do not raise it.
 */
static void
test_an_application_that_limits_itself_changes_no_estimate(void **state)
{
	static uint8_t data[1250];
	struct bottleneck path = usual_path(4);
	double before;

	connect_with(&path, "bbr", 2000000);
	bottleneck_run(&path, 2500);
	assert_int_equal(path.delivered, 2000000);
	before = ours->recovery->bbr->max_bw;
	assert_true(before > 0.9 * RATE && before < 1.1 * RATE);
	for (unsigned i = 0; i < 400; i++) {
		net_send(ours, data, sizeof(data));
		bottleneck_run(&path, 10);
		assert_true(ours->recovery->bbr->max_bw < 1.1 * RATE);
	}
	assert_true(ours->recovery->bbr->max_bw > 0.7 * before);
	abort_conn();
}

/*
 * A connection idle for a second has no recovery state and no timer; then the
 * model restarts.
 */
static void test_idle_connection_frees_its_model_after_a_second(void **state)
{
	struct bottleneck path = usual_path(4);
	uint64_t memory;

	connect_with(&path, "bbr", 500000);
	memory = net_mem_live_bytes();
	bottleneck_run(&path, 1000);
	assert_int_equal(path.delivered, 500000);
	assert_true(ours->has_recovery);
	bottleneck_run(&path, 1500);
	assert_false(ours->has_recovery);
	assert_false(coro_timer_armed(&ours->timer));
	assert_true(net_mem_live_bytes() <= memory);
	net_send_all(ours, (uint8_t[MSS]){0}, MSS);
	bottleneck_run(&path, 100);
	assert_int_equal(path.delivered, 501000);
	abort_conn();
}

/* Within that second it continues at the known rate. */
static void test_rate_is_kept_over_a_short_pause(void **state)
{
	struct bottleneck path = usual_path(4);
	static uint8_t data[30000];

	connect_with(&path, "bbr", 500000);
	bottleneck_run(&path, 1100);
	assert_int_equal(path.delivered, 500000);
	bottleneck_run(&path, 300);
	assert_true(ours->has_recovery);
	path.longest = 0;
	for (unsigned i = 0; i < 30000; i += MSS)
		net_send(ours, data, MSS);
	bottleneck_run(&path, 100);
	assert_int_equal(path.delivered, 530000);
	assert_true(path.longest < 6 * MSS); /* it is paced from the start */
	abort_conn();
}

static void test_cubic_fills_the_path(void **state)
{
	struct bottleneck path = usual_path(1);
	double share;

	connect_with(&path, "cubic", FOREVER);
	bottleneck_run(&path, 3000);
	share = goodput(&path, 10000);
	printf("# cubic: goodput %.3f, lost %llu\n", share,
	       (unsigned long long)path.dropped);
	assert_true(share > 0.95);
	abort_conn();
}

static void test_reno_fills_the_path(void **state)
{
	struct bottleneck path = usual_path(1);
	double share;

	connect_with(&path, "reno", FOREVER);
	bottleneck_run(&path, 3000);
	share = goodput(&path, 10000);
	printf("# reno: goodput %.3f, lost %llu\n", share,
	       (unsigned long long)path.dropped);
	assert_true(share > 0.95);
	abort_conn();
}

/*
 * HyStart++ ends slow start before ten BDPs of queue are full: once the round
 * trip has grown, the window grows by a quarter a round, for five rounds.
 */
static void test_slow_start_ends_before_the_queue_is_full(void **state)
{
	struct bottleneck path = usual_path(10);

	connect_with(&path, "cubic", FOREVER);
	bottleneck_run(&path, 2000);
	printf("# slow start: longest %.0f, lost %llu, ssthresh %u\n",
	       path.longest, (unsigned long long)path.dropped,
	       conn_stats().ssthresh);
	assert_int_equal(path.dropped, 0);
	assert_true(conn_stats().ssthresh < 8 * BDP);
	abort_conn();
}

/*
 * 1 Gbit/s over 100 ms with a queue of twice the product. While the ACKs of a
 * round arrive over a whole round trip, slow start has at most three products
 * in flight, which fit. Growing round trips show a round later.
 */
static void test_slow_start_does_not_overflow_a_long_path(void **state)
{
	struct bottleneck path = {.rate = 125e6,
				  .delay_ns = 100 * MS,
				  .queue = 25e6,
				  .scale = 14};
	double share;

	net_here()->wmem_max = 64 << 20;
	connect_with(&path, "cubic", FOREVER);
	bottleneck_run(&path, 1500);
	assert_in_range(conn_stats().ssthresh, 12500000, 37500000);
	share = goodput(&path, 2000) * RATE / path.rate;
	printf("# 1 Gbit/s, 100 ms: %.3f, longest queue %.0f, lost %llu\n",
	       share, path.longest, (unsigned long long)path.dropped);
	assert_int_equal(path.dropped, 0);
	assert_true(share > 0.98);
	abort_conn();
}

/*
 * Half a window per round trip is no ACK train, however long slow start takes.
 */
static void test_slow_start_goes_on_while_the_path_has_room(void **state)
{
	struct bottleneck path = {.rate = 125e6,
				  .delay_ns = 100 * MS,
				  .queue = 25e6,
				  .scale = 14};

	net_here()->wmem_max = 64 << 20;
	connect_with(&path, "cubic", FOREVER);
	while (conn_stats().cwnd < 12500000) {
		assert_int_equal(conn_stats().ssthresh, 1 << 30);
		bottleneck_run(&path, 10);
	}
	assert_true(path.longest < 12.5e6 / 2);
	abort_conn();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_bbr_finds_the_rate_and_the_round_trip),
		T(test_bbr_fills_the_path_and_keeps_the_queue_short),
		T(test_bbr_passes_through_every_state),
		T(test_bbr_keeps_its_rate_under_random_loss_and_cubic_does_not),
		T(test_random_loss_of_one_percent_costs_bbr_little),
		T(test_random_losses_do_not_end_startup),
		T(test_sacked_segments_measure_the_round_trip),
		T(test_bbr_send_buffer_holds_three_windows),
		T(test_a_long_path_needs_a_larger_buffer),
		T(test_bbr_loss_threshold_is_three_segments_and_two_percent),
		T(test_bbr_reduces_its_rate_at_five_percent_loss),
		T(test_only_lost_segments_are_marked_lost),
		T(test_bbr_loses_little_to_a_shallow_queue),
		T(test_an_application_that_limits_itself_changes_no_estimate),
		T(test_idle_connection_frees_its_model_after_a_second),
		T(test_rate_is_kept_over_a_short_pause),
		T(test_cubic_fills_the_path),
		T(test_reno_fills_the_path),
		T(test_slow_start_ends_before_the_queue_is_full),
		T(test_slow_start_does_not_overflow_a_long_path),
		T(test_slow_start_goes_on_while_the_path_has_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
