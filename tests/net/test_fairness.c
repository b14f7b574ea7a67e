/*
 * Fairness of a connection of the stack and a model of a kernel's sender
 * (rival.h) at a bottleneck. Shares are means over several seeds, of the second
 * half of the time, since one run is not significant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/net/bottleneck.h"
#include "tests/net/fake_glue.h"

#define MS	INT64_C(1000000)
#define FOREVER ((size_t)1 << 40)
#define RATE	12.5e6 /* 100 Mbit/s */
#define HALF_MS 6000u
#define SEEDS	4u

static struct rival rival;

static struct bottleneck path_of(unsigned rtt_ms, double bdps)
{
	return (struct bottleneck){.rate = RATE,
				   .delay_ns = rtt_ms * MS,
				   .queue = bdps * RATE * rtt_ms / 1000,
				   .rival = &rival};
}

static void connect_with(struct bottleneck *path, const char *cc, size_t bytes,
			 enum rival_kind kind, unsigned seed)
{
	path->seed = seed;
	assert_int_equal(net_listener_set_cc(listener, cc), 0);
	path->rival = NULL; /* both begin at the same time */
	bottleneck_connect(path, bytes);
	path->rival = &rival;
	rival_begin(&rival, kind, seed, fake_now_ns);
}

static void abort_conn(void)
{
	net_abort(ours);
	run_rounds(2);
	while (peer_next(&(struct segment){0}))
		;
}

/* Returns our share of the bytes of both. */
static double share_of_rival(const char *cc, enum rival_kind kind,
			     unsigned rtt_ms, double bdps)
{
	double sum = 0;

	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct bottleneck path = path_of(rtt_ms, bdps);
		uint64_t before, rivals;
		double has, rival_has;

		connect_with(&path, cc, FOREVER, kind, seed);
		bottleneck_run(&path, HALF_MS);
		before = path.delivered;
		rivals = rival.delivered;
		bottleneck_run(&path, HALF_MS);
		has = (double)(path.delivered - before);
		rival_has = (double)(rival.delivered - rivals) * RIVAL_BYTES;
		assert_true(has + rival_has > 0.9 * RATE * HALF_MS / 1000);
		sum += has / (has + rival_has);
		abort_conn();
	}
	printf("# %s, %u ms, %g BDP: %.3f\n", cc, rtt_ms, bdps, sum / SEEDS);
	return sum / SEEDS;
}

/* Checks the model itself: alone it fills the path. */
static void test_rival_alone_fills_the_path(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct bottleneck path = path_of(10, 2);
		uint64_t before;

		connect_with(&path, "cubic", 0, i ? RIVAL_CUBIC : RIVAL_BBR1,
			     1);
		bottleneck_run(&path, 2000);
		before = rival.delivered;
		bottleneck_run(&path, 4000);
		assert_true((double)(rival.delivered - before) * RIVAL_BYTES >
			    0.93 * RATE * 4);
		abort_conn();
	}
}

static void test_cubic_shares_with_cubic(void **state)
{
	static const struct {
		unsigned rtt_ms;
		double bdps;
	} paths[] = {{10, 0.5}, {50, 0.5}};

	for (unsigned i = 0; i < 2; i++) {
		double local_has = share_of_rival(
			"cubic", RIVAL_CUBIC, paths[i].rtt_ms, paths[i].bdps);

		assert_true(local_has > 0.4 && local_has < 0.6);
	}
}

/* A queue of two products holds version 1's standing queue: nothing is lost. */
static void test_bbr_shares_a_deep_queue_with_version_1(void **state)
{
	double local_has = share_of_rival("bbr", RIVAL_BBR1, 10, 2);

	assert_true(local_has > 0.35 && local_has < 0.65);
}

/*
 * Version 1 ignores loss, and the queue is too short for its standing queue:
 * version 3 yields. Since it yields only to more than 2 % loss, it keeps more
 * than the share of 0.13 that the draft's rule, any loss, would leave.
 */
static void test_bbr_is_not_starved_by_version_1(void **state)
{
	assert_true(share_of_rival("bbr", RIVAL_BBR1, 10, 0.5) > 0.15);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_rival_alone_fills_the_path),
		T(test_cubic_shares_with_cubic),
		T(test_bbr_shares_a_deep_queue_with_version_1),
		T(test_bbr_is_not_starved_by_version_1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
