/* Rates, times and order of a wire's impairments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/wire/model.h"

#define MANY	 1000000
#define MAX_PKTS 4096
#define MS	 INT64_C(1000000)
#define PERCENT	 (WIRE_SURE / 100)
#define FRAME	 1514
#define SEED	 7

static struct wire_conf conf;
static struct wire_path *path;
static struct wire_fate fates[WIRE_COPIES];

static int setup(void **state)
{
	wire_conf_init(&conf);
	path = NULL;
	return 0;
}

static int teardown(void **state)
{
	wire_path_close(path);
	return 0;
}

static void open_path(uint64_t seed, unsigned number)
{
	wire_path_close(path);
	assert_int_equal(wire_path_open(&conf, seed, number, MAX_PKTS, &path),
			 0);
}

static const struct wire_stats *model_stats(void)
{
	return wire_path_stats(path);
}

/* Offers frames 1 us apart; returns the number of copies that leave. */
static unsigned offer_many(unsigned count)
{
	unsigned left = 0;

	for (unsigned i = 0; i < count; i++)
		left += wire_path_offer(path, i * 1000, FRAME, fates);
	return left;
}

static void assert_near(uint64_t value, uint64_t expected, uint64_t bound)
{
	assert_in_range(value, expected - bound, expected + bound);
}

static void test_default_settings_change_nothing(void **state)
{
	open_path(SEED, 0);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(wire_path_offer(path, i, FRAME, fates), 1);
		assert_int_equal(fates[0].leaves_ns, i);
		assert_int_equal(fates[0].flip, WIRE_INTACT);
	}
	assert_int_equal(model_stats()->in_frames, 1000);
	assert_int_equal(model_stats()->in_bytes, 1000 * FRAME);
}

/* Four standard deviations of a binomial are the bound. */
static void test_loss_has_the_configured_rate(void **state)
{
	static const struct {
		uint64_t odds, expected, bound;
	} cases[] = {
		{WIRE_SURE / 1000, 1000, 127},
		{PERCENT, 10000, 398},
		{30 * PERCENT, 300000, 1834},
	};

	for (unsigned i = 0; i < 3; i++)
		for (uint64_t seed = 1; seed <= 5; seed++) {
			unsigned left;

			conf.loss = cases[i].odds;
			open_path(seed, 0);
			left = offer_many(MANY);
			assert_int_equal(left + model_stats()->lost, MANY);
			assert_near(model_stats()->lost, cases[i].expected,
				    cases[i].bound);
		}
}

static void test_losses_do_not_depend_on_each_other(void **state)
{
	unsigned pairs = 0;
	bool before = false;

	conf.loss = 10 * PERCENT;
	open_path(SEED, 0);
	for (unsigned i = 0; i < MANY; i++) {
		bool lost = !wire_path_offer(path, i, FRAME, fates);

		pairs += lost && before;
		before = lost;
	}
	assert_near(pairs, MANY / 100, 400);
}

static void test_impairments_are_independent(void **state)
{
	unsigned both = 0;

	conf.corrupt = 10 * PERCENT;
	conf.reorder = 10 * PERCENT;
	conf.reorder_by_ns = MS;
	open_path(SEED, 0);
	for (unsigned i = 0; i < MANY; i++) {
		wire_path_offer(path, i, FRAME, fates);
		both += fates[0].flip != WIRE_INTACT &&
			fates[0].leaves_ns >= i + MS;
	}
	assert_near(both, MANY / 100, 400);
}

static void test_loss_of_100_percent_drops_every_frame(void **state)
{
	conf.loss = WIRE_SURE;
	open_path(SEED, 0);
	assert_int_equal(offer_many(10000), 0);
	conf.loss = 0;
	conf.duplicate = WIRE_SURE;
	conf.corrupt = WIRE_SURE;
	open_path(SEED, 0);
	assert_int_equal(offer_many(10000), 20000);
	assert_int_equal(model_stats()->corrupted, 20000);
}

static void test_duplicates_have_the_configured_rate(void **state)
{
	unsigned left;

	conf.duplicate = 2 * PERCENT;
	open_path(SEED, 0);
	left = offer_many(MANY);
	assert_int_equal(left, MANY + model_stats()->duplicated);
	assert_near(model_stats()->duplicated, 20000, 560);
}

static void test_corruption_flips_any_bit_behind_the_header(void **state)
{
	unsigned hits[64 * 8] = {0};

	conf.corrupt = 50 * PERCENT;
	open_path(SEED, 0);
	for (unsigned i = 0; i < MANY; i++) {
		wire_path_offer(path, i, 64, fates);
		if (fates[0].flip != WIRE_INTACT)
			hits[fates[0].flip]++;
	}
	assert_near(model_stats()->corrupted, MANY / 2, 2000);
	for (unsigned bit = 0; bit < WIRE_ETH_BYTES * 8; bit++)
		assert_int_equal(hits[bit], 0);
	for (unsigned bit = WIRE_ETH_BYTES * 8; bit < 64 * 8; bit++)
		assert_near(hits[bit], MANY / 2 / (50 * 8), 180);
}

static void test_frames_too_short_for_a_header_are_corrupted_too(void **state)
{
	conf.corrupt = WIRE_SURE;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 1000; i++) {
		wire_path_offer(path, i, 3, fates);
		assert_in_range(fates[0].flip, 0, 23);
		wire_path_offer(path, i, 0, fates);
		assert_int_equal(fates[0].flip, WIRE_INTACT);
	}
}

static void test_delay_is_exact(void **state)
{
	conf.delay_ns = 10 * MS;
	open_path(SEED, 0);
	for (int64_t now = 0; now < 100; now++) {
		wire_path_offer(path, now, FRAME, fates);
		assert_int_equal(fates[0].leaves_ns, now + 10 * MS);
	}
}

static void test_jitter_is_even_and_within_its_bounds(void **state)
{
	int64_t sum = 0;

	conf.delay_ns = 10 * MS;
	conf.jitter_ns = 4 * MS;
	open_path(SEED, 0);
	for (int64_t i = 0; i < 10000; i++) {
		int64_t now = i * 5 * MS; /* too far apart to wait */

		wire_path_offer(path, now, FRAME, fates);
		assert_in_range(fates[0].leaves_ns - now, 10 * MS, 14 * MS);
		sum += fates[0].leaves_ns - now;
	}
	assert_near((uint64_t)(sum / 10000), 12 * MS, MS / 20);
}

static void test_jitter_does_not_reorder(void **state)
{
	int64_t last = 0;

	conf.delay_ns = MS;
	conf.jitter_ns = 50 * MS;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 100000; i++) {
		wire_path_offer(path, i * 1000, FRAME, fates);
		assert_true(fates[0].leaves_ns >= last);
		last = fates[0].leaves_ns;
	}
}

static void test_reordered_frames_are_held_back(void **state)
{
	unsigned late = 0;

	conf.delay_ns = 10 * MS;
	conf.reorder = 5 * PERCENT;
	conf.reorder_by_ns = 3 * MS;
	open_path(SEED, 0);
	for (int64_t i = 0; i < MANY; i++) {
		int64_t delay;

		wire_path_offer(path, i, FRAME, fates);
		delay = fates[0].leaves_ns - i;
		if (delay == 13 * MS)
			late++;
		else
			assert_int_equal(delay, 10 * MS);
	}
	assert_int_equal(late, model_stats()->reordered);
	assert_near(late, 50000, 872);
}

static void test_rate_is_exact(void **state)
{
	static const uint64_t rates[] = {1000, 999999937, 1000000000,
					 UINT64_C(40000000000)};

	for (unsigned r = 0; r < 4; r++) {
		uint64_t bits = 0;

		conf.rate_bps = rates[r];
		open_path(SEED, 0);
		for (unsigned i = 0; i < MAX_PKTS; i++) {
			unsigned bytes = 60 + i * 7 % 1455;

			bits += bytes * 8;
			assert_int_equal(wire_path_offer(path, 0, bytes, fates),
					 1);
			assert_int_equal(fates[0].leaves_ns,
					 (int64_t)((unsigned __int128)bits *
						   1000000000 / rates[r]));
		}
	}
}

static void test_idle_link_saves_no_burst(void **state)
{
	conf.rate_bps = 8000000; /* a byte a us */
	open_path(SEED, 0);
	wire_path_offer(path, 0, 1000, fates);
	assert_int_equal(fates[0].leaves_ns, MS);
	wire_path_offer(path, 100 * MS, 1000, fates);
	assert_int_equal(fates[0].leaves_ns, 101 * MS);
	wire_path_offer(path, 100 * MS, 1000, fates);
	assert_int_equal(fates[0].leaves_ns, 102 * MS);
}

static void test_full_queue_drops_new_frames(void **state)
{
	conf.rate_bps = 8000000;
	conf.queue_pkts = 100;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 150; i++)
		assert_int_equal(wire_path_offer(path, 0, 1000, fates),
				 i < 100);
	assert_int_equal(model_stats()->queue_dropped, 50);
	/* One frame leaves each ms, which makes room for one. */
	assert_int_equal(wire_path_offer(path, MS - 1, 1000, fates), 0);
	assert_int_equal(wire_path_offer(path, MS, 1000, fates), 1);
	assert_int_equal(fates[0].leaves_ns, 101 * MS);
	assert_int_equal(wire_path_offer(path, MS, 1000, fates), 0);
	for (unsigned i = 0; i < 150; i++)
		assert_int_equal(wire_path_offer(path, 51 * MS, 1000, fates),
				 i < 50);
}

static void test_queue_may_be_counted_in_bytes(void **state)
{
	conf.rate_bps = 8000000;
	conf.queue_bytes = 2500;
	open_path(SEED, 0);
	assert_int_equal(wire_path_offer(path, 0, 1000, fates), 1);
	assert_int_equal(wire_path_offer(path, 0, 1000, fates), 1);
	assert_int_equal(wire_path_offer(path, 0, 501, fates), 0);
	assert_int_equal(wire_path_offer(path, 0, 500, fates), 1);
	assert_int_equal(wire_path_offer(path, 0, 1, fates), 0);
	assert_int_equal(wire_path_offer(path, MS, 1000, fates), 1);
	assert_int_equal(model_stats()->queue_dropped, 2);
}

static void test_queue_without_limit_is_bounded_by_max_pkts(void **state)
{
	conf.rate_bps = 1000;
	open_path(SEED, 0);
	assert_int_equal(offer_many(MAX_PKTS + 10), MAX_PKTS);
	assert_int_equal(model_stats()->queue_dropped, 10);
}

static void ask_for_everything(void)
{
	conf.loss = 3 * PERCENT;
	conf.duplicate = 2 * PERCENT;
	conf.corrupt = PERCENT;
	conf.reorder = 4 * PERCENT;
	conf.reorder_by_ns = MS;
	conf.delay_ns = 5 * MS;
	conf.jitter_ns = MS;
	conf.rate_bps = 12000000000;
	conf.queue_pkts = 20;
	conf.down_ns = 20 * MS;
	conf.up_ns = 30 * MS;
}

/* A hash of the fates of 100,000 frames. */
static uint64_t fingerprint(uint64_t seed, unsigned number)
{
	uint64_t hash = 0;

	open_path(seed, number);
	for (unsigned i = 0; i < 100000; i++) {
		unsigned n = wire_path_offer(path, i * 1000, FRAME, fates);

		hash = hash * 31 + n;
		for (unsigned k = 0; k < n; k++)
			hash = (hash * 31 + (uint64_t)fates[k].leaves_ns) * 31 +
			       fates[k].flip;
	}
	return hash;
}

/* 1,514 bytes at 12.112 Mbit/s take a ms; a burst of ten comes at once. */
static void test_long_queue_marks_frames(void **state)
{
	conf.rate_bps = 12112000;
	conf.mark_pkts = 4;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(wire_path_offer(path, 0, FRAME, fates), 1);
		assert_int_equal(fates[0].mark, i >= 4);
	}
	/* Seven have left: three are ahead of it. */
	assert_int_equal(wire_path_offer(path, 7 * MS, FRAME, fates), 1);
	assert_false(fates[0].mark);
	assert_int_equal(wire_path_offer(path, 7 * MS, FRAME, fates), 1);
	assert_true(fates[0].mark);
}

static void test_queue_of_many_bytes_marks_frames(void **state)
{
	conf.rate_bps = 12112000;
	conf.mark_bytes = 2 * FRAME;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 4; i++) {
		wire_path_offer(path, 0, FRAME, fates);
		assert_int_equal(fates[0].mark, i >= 2);
	}
}

static void test_same_seed_gives_the_same_result(void **state)
{
	uint64_t first;

	ask_for_everything();
	first = fingerprint(1, 0);
	assert_true(fingerprint(1, 0) == first);
	assert_false(fingerprint(2, 0) == first);
	assert_false(fingerprint(1, 1) == first);
	assert_false(fingerprint(0, 0) == first);
}

static void test_other_settings_lose_the_same_frames(void **state)
{
	static bool lost[10000];

	conf.loss = 5 * PERCENT;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 10000; i++)
		lost[i] = !wire_path_offer(path, i, FRAME, fates);
	conf.delay_ns = MS;
	conf.jitter_ns = MS;
	conf.duplicate = 50 * PERCENT;
	conf.corrupt = 50 * PERCENT;
	conf.reorder = 50 * PERCENT;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 10000; i++)
		assert_int_equal(!wire_path_offer(path, i, FRAME, fates),
				 lost[i]);
}

static void test_link_down_drops_arriving_and_leaving_frames(void **state)
{
	conf.delay_ns = 2 * MS;
	conf.down_ns = 10 * MS;
	conf.up_ns = 20 * MS;
	open_path(SEED, 0);
	assert_int_equal(wire_path_offer(path, 8 * MS - 1, 60, fates), 1);
	assert_int_equal(wire_path_offer(path, 8 * MS, 60, fates), 0);
	assert_int_equal(wire_path_offer(path, 10 * MS, 60, fates), 0);
	assert_int_equal(wire_path_offer(path, 20 * MS - 1, 60, fates), 0);
	assert_int_equal(model_stats()->down, 3);
	assert_int_equal(wire_path_offer(path, 20 * MS, 60, fates), 1);
	assert_int_equal(fates[0].leaves_ns, 22 * MS);
}

static void test_link_may_stay_down(void **state)
{
	conf.down_ns = 5;
	open_path(SEED, 0);
	assert_int_equal(wire_path_offer(path, 4, 60, fates), 1);
	assert_int_equal(wire_path_offer(path, 1000000 * MS, 60, fates), 0);
}

static void test_packets_over_the_mtu_do_not_pass(void **state)
{
	conf.mtu = 1000;
	open_path(SEED, 0);
	assert_int_equal(wire_path_offer(path, 0, 1015, fates), 0);
	assert_int_equal(wire_path_offer(path, 0, 1014, fates), 1);
	assert_int_equal(model_stats()->too_big, 1);
	assert_int_equal(model_stats()->in_frames, 2);
}

static void test_packets_over_the_mtu_draw_no_random_numbers(void **state)
{
	static bool lost[1000];

	conf.loss = 20 * PERCENT;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 1000; i++)
		lost[i] = !wire_path_offer(path, i, 60, fates);
	conf.mtu = 1000;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 1000; i++) {
		wire_path_offer(path, i, FRAME, fates);
		assert_int_equal(!wire_path_offer(path, i, 60, fates), lost[i]);
	}
}

static void test_path_changes_while_it_runs(void **state)
{
	open_path(SEED, 0);
	assert_int_equal(wire_path_offer(path, 0, FRAME, fates), 1);
	conf.mtu = 576;
	wire_path_change(path, &conf);
	assert_int_equal(wire_path_offer(path, 1, FRAME, fates), 0);
	assert_int_equal(wire_path_conf(path)->mtu, 576);
	conf.mtu = 0;
	conf.loss = WIRE_SURE;
	wire_path_change(path, &conf);
	assert_int_equal(wire_path_offer(path, 2, FRAME, fates), 0);
	assert_int_equal(model_stats()->too_big, 1);
	assert_int_equal(model_stats()->lost, 1);
	assert_int_equal(model_stats()->in_frames, 3);
}

static void test_frame_with_shorter_delay_overtakes(void **state)
{
	conf.delay_ns = 50 * MS;
	open_path(SEED, 0);
	wire_path_offer(path, 0, FRAME, fates);
	assert_int_equal(fates[0].leaves_ns, 50 * MS);
	conf.delay_ns = 5 * MS;
	wire_path_change(path, &conf);
	wire_path_offer(path, MS, FRAME, fates);
	assert_int_equal(fates[0].leaves_ns, 6 * MS);
	/* Any other change keeps the order. */
	conf.jitter_ns = 1;
	wire_path_change(path, &conf);
	conf.delay_ns = 5 * MS;
	conf.jitter_ns = 0;
	wire_path_change(path, &conf);
	wire_path_offer(path, MS, FRAME, fates);
	assert_int_equal(fates[0].leaves_ns, 6 * MS);
}

static void test_change_of_rate_keeps_the_order(void **state)
{
	conf.rate_bps = 1000000;
	conf.queue_pkts = 10;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 5; i++)
		wire_path_offer(path, 0, 125, fates); /* 1 ms each */
	assert_int_equal(fates[0].leaves_ns, 5 * MS);
	conf.rate_bps = 0;
	wire_path_change(path, &conf);
	wire_path_offer(path, 0, 125, fates);
	assert_int_equal(fates[0].leaves_ns, 5 * MS);
}

/* Queued frames leave as scheduled; new frames leave after them. */
static void test_another_rate_counts_from_the_next_frame_on(void **state)
{
	conf.rate_bps = 7000000;
	conf.queue_pkts = 10;
	open_path(SEED, 0);
	for (unsigned i = 0; i < 7; i++)
		wire_path_offer(path, 0, 125, fates);
	assert_int_equal(fates[0].leaves_ns, MS);
	conf.rate_bps = 100000;
	wire_path_change(path, &conf);
	for (unsigned i = 1; i <= 3; i++) {
		wire_path_offer(path, 0, 125, fates);
		assert_int_equal(fates[0].leaves_ns, MS + i * 10 * MS);
	}
	assert_int_equal(wire_path_offer(path, 0, 125, fates), 0);
	assert_int_equal(model_stats()->queue_dropped, 1);
	/* There is room once the first seven have left, and not before. */
	assert_int_equal(wire_path_offer(path, MS, 125, fates), 1);
	assert_int_equal(fates[0].leaves_ns, MS + 40 * MS);
}

/* 1/7 of a ns, kept in 1/7000000, is not 1000 in 1/1000. */
static void test_another_rate_begins_without_a_fraction(void **state)
{
	conf.rate_bps = 7000000;
	open_path(SEED, 0);
	wire_path_offer(path, 0, 125, fates);
	assert_int_equal(fates[0].leaves_ns, 142857);
	conf.rate_bps = 1000;
	wire_path_change(path, &conf);
	wire_path_offer(path, 0, 125, fates);
	assert_int_equal(fates[0].leaves_ns, 142857 + 1000 * MS);
}

static void test_every_frame_is_accounted_for(void **state)
{
	const struct wire_stats *s;
	unsigned left;

	ask_for_everything();
	open_path(SEED, 0);
	left = offer_many(100000);
	s = model_stats();
	assert_int_equal(s->in_frames, 100000);
	assert_int_equal(s->in_frames + s->duplicated,
			 left + s->lost + s->down + s->queue_dropped +
				 s->too_big);
	assert_true(s->lost && s->down && s->queue_dropped && s->duplicated &&
		    s->reordered && s->corrupted);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_default_settings_change_nothing),
		TEST(test_loss_has_the_configured_rate),
		TEST(test_losses_do_not_depend_on_each_other),
		TEST(test_impairments_are_independent),
		TEST(test_loss_of_100_percent_drops_every_frame),
		TEST(test_duplicates_have_the_configured_rate),
		TEST(test_corruption_flips_any_bit_behind_the_header),
		TEST(test_frames_too_short_for_a_header_are_corrupted_too),
		TEST(test_delay_is_exact),
		TEST(test_jitter_is_even_and_within_its_bounds),
		TEST(test_jitter_does_not_reorder),
		TEST(test_reordered_frames_are_held_back),
		TEST(test_rate_is_exact),
		TEST(test_idle_link_saves_no_burst),
		TEST(test_full_queue_drops_new_frames),
		TEST(test_queue_may_be_counted_in_bytes),
		TEST(test_queue_without_limit_is_bounded_by_max_pkts),
		TEST(test_long_queue_marks_frames),
		TEST(test_queue_of_many_bytes_marks_frames),
		TEST(test_same_seed_gives_the_same_result),
		TEST(test_other_settings_lose_the_same_frames),
		TEST(test_link_down_drops_arriving_and_leaving_frames),
		TEST(test_link_may_stay_down),
		TEST(test_packets_over_the_mtu_do_not_pass),
		TEST(test_packets_over_the_mtu_draw_no_random_numbers),
		TEST(test_path_changes_while_it_runs),
		TEST(test_frame_with_shorter_delay_overtakes),
		TEST(test_change_of_rate_keeps_the_order),
		TEST(test_another_rate_counts_from_the_next_frame_on),
		TEST(test_another_rate_begins_without_a_fraction),
		TEST(test_every_frame_is_accounted_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
