/*
 * Congestion control over a path with a bottleneck: what BBR makes of it, and
 * what the controllers that are told by loss do.
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

static struct bottleneck usual(double bdps)
{
	return (struct bottleneck){
		.rate = RATE, .delay_ns = 40 * MS, .queue = bdps * BDP};
}

static struct net_conn_stats stats(void)
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
	assert_string_equal(stats().cc, cc);
}

static void end(void)
{
	net_abort(ours);
	run_rounds(2);
	while (peer_next(&(struct segment){0}))
		;
}

static void test_bbr_finds_the_rate_and_the_round_trip(void **state)
{
	struct bottleneck path = usual(4);
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
	end();
}

static void test_bbr_fills_the_path_and_keeps_the_queue_short(void **state)
{
	struct bottleneck path = usual(10);
	double share;

	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 3000);
	path.longest = 0;
	share = goodput(&path, 12000);
	printf("# goodput %.3f, longest queue %.0f, lost %llu\n", share,
	       path.longest, (unsigned long long)path.dropped);
	assert_true(share > 0.93);
	assert_true(path.longest < 1.3 * BDP);
	assert_int_equal(path.dropped, 0);
	end();
}

/* Every state is gone through in some seconds. */
static void test_bbr_cycles(void **state)
{
	struct bottleneck path = usual(4);
	unsigned seen = 0;

	connect_with(&path, "bbr", FOREVER);
	for (unsigned i = 0; i < 1200; i++) {
		bottleneck_run(&path, 10);
		if (ours->repairing)
			seen |= 1u << ours->recovery->bbr->state;
	}
	assert_int_equal(seen, (1u << (BBR_PROBE_RTT + 1)) - 1);
	end();
}

static void test_bbr_bears_random_loss_and_cubic_does_not(void **state)
{
	struct bottleneck path = usual(4), other = usual(4);
	double bbr, cubic;

	path.per_mille = other.per_mille = 10;
	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 2000);
	bbr = goodput(&path, 10000);
	end();
	connect_with(&other, "cubic", FOREVER);
	bottleneck_run(&other, 2000);
	cubic = goodput(&other, 10000);
	end();
	printf("# at 1 %%: bbr %.3f, cubic %.3f\n", bbr, cubic);
	assert_true(bbr > 0.8);
	assert_true(cubic < 0.6);
}

/*
 * In bursts of ACKs new segments and those sent again leave at one time, in
 * either order: none is lost but those that are.
 */
static void test_what_arrives_is_not_taken_for_lost(void **state)
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
	end();
}

static void test_bbr_lets_a_shallow_queue_overflow_little(void **state)
{
	struct bottleneck path = usual(0.3);
	double share;

	connect_with(&path, "bbr", FOREVER);
	bottleneck_run(&path, 3000);
	path.sent = path.dropped = 0;
	share = goodput(&path, 10000);
	printf("# shallow: goodput %.3f, lost %.4f\n", share,
	       (double)path.dropped / (double)path.sent);
	assert_true(share > 0.8);
	assert_true((double)path.dropped < 0.03 * (double)path.sent);
	end();
}

/*
 * A tenth of the rate, written each 10 ms: the estimate neither follows it
 * down nor, when ACKs bunch, goes up.
 */
static void
test_an_application_that_limits_itself_changes_no_estimate(void **state)
{
	static uint8_t data[1250];
	struct bottleneck path = usual(4);
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
	end();
}

/* At rest for a second: neither block nor timer; then it begins anew. */
static void test_the_model_goes_after_a_second_of_rest(void **state)
{
	struct bottleneck path = usual(4);
	uint64_t memory;

	connect_with(&path, "bbr", 500000);
	memory = net_mem_live_bytes();
	bottleneck_run(&path, 1000);
	assert_int_equal(path.delivered, 500000);
	assert_true(ours->repairing);
	bottleneck_run(&path, 1500);
	assert_false(ours->repairing);
	assert_false(coro_timer_armed(&ours->timer));
	assert_true(net_mem_live_bytes() <= memory);
	net_send_all(ours, (uint8_t[MSS]){0}, MSS);
	bottleneck_run(&path, 100);
	assert_int_equal(path.delivered, 501000);
	end();
}

/* Within that second it goes on at the rate that it knows. */
static void test_after_a_short_pause_the_rate_is_known(void **state)
{
	struct bottleneck path = usual(4);
	static uint8_t data[30000];

	connect_with(&path, "bbr", 500000);
	bottleneck_run(&path, 1100);
	assert_int_equal(path.delivered, 500000);
	bottleneck_run(&path, 300);
	assert_true(ours->repairing);
	path.longest = 0;
	for (unsigned i = 0; i < 30000; i += MSS)
		net_send(ours, data, MSS);
	bottleneck_run(&path, 100);
	assert_int_equal(path.delivered, 530000);
	assert_true(path.longest < 6 * MSS); /* it is paced from the start */
	end();
}

static void test_cubic_fills_the_path(void **state)
{
	struct bottleneck path = usual(1);
	double share;

	connect_with(&path, "cubic", FOREVER);
	bottleneck_run(&path, 3000);
	share = goodput(&path, 10000);
	printf("# cubic: goodput %.3f, lost %llu\n", share,
	       (unsigned long long)path.dropped);
	assert_true(share > 0.95);
	end();
}

static void test_reno_fills_the_path(void **state)
{
	struct bottleneck path = usual(1);
	double share;

	connect_with(&path, "reno", FOREVER);
	bottleneck_run(&path, 3000);
	share = goodput(&path, 10000);
	printf("# reno: goodput %.3f, lost %llu\n", share,
	       (unsigned long long)path.dropped);
	assert_true(share > 0.95);
	end();
}

/*
 * HyStart++ ends slow start before ten BDPs of queue are full: when it has seen
 * the round trip grow, the window does by a quarter a round, for five rounds.
 */
static void test_slow_start_ends_before_the_queue_is_full(void **state)
{
	struct bottleneck path = usual(10);

	connect_with(&path, "cubic", FOREVER);
	bottleneck_run(&path, 2000);
	printf("# slow start: longest %.0f, lost %llu, ssthresh %u\n",
	       path.longest, (unsigned long long)path.dropped,
	       stats().ssthresh);
	assert_int_equal(path.dropped, 0);
	assert_true(stats().ssthresh < 8 * BDP);
	end();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_bbr_finds_the_rate_and_the_round_trip),
		T(test_bbr_fills_the_path_and_keeps_the_queue_short),
		T(test_bbr_cycles),
		T(test_bbr_bears_random_loss_and_cubic_does_not),
		T(test_what_arrives_is_not_taken_for_lost),
		T(test_bbr_lets_a_shallow_queue_overflow_little),
		T(test_an_application_that_limits_itself_changes_no_estimate),
		T(test_the_model_goes_after_a_second_of_rest),
		T(test_after_a_short_pause_the_rate_is_known),
		T(test_cubic_fills_the_path),
		T(test_reno_fills_the_path),
		T(test_slow_start_ends_before_the_queue_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
