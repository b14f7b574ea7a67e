/*
 * The parts of a load run's threads make up the run: every connection and every
 * request of the open loop belongs to one part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "apps/load/load_part.h"

#define S  OPT_NS_PER_S
#define T0 (INT64_C(1234567) * S)

static const uint32_t conns_of[] = {1, 2, 3, 7, 61, 64, 1000, 10000000};
#define CASES (sizeof(conns_of) / sizeof(conns_of[0]))

static struct load_opts opts;
static struct load_stats stats;

static void start_part(uint32_t conns)
{
	opts = (struct load_opts){
		.conns = conns, .rate = 1000, .ramp_ns = 10 * S};
	load_stats_start(&stats, &opts, "test-load", T0);
}

static void test_each_connection_belongs_to_one_part(void **state)
{
	for (size_t i = 0; i < CASES; i++)
		for (unsigned threads = 1; threads <= 256; threads++) {
			unsigned n;
			uint32_t next = 0;

			start_part(conns_of[i]);
			n = load_parts(&opts, threads);
			assert_in_range(n, 1, threads);
			for (unsigned k = 0; k < n; k++) {
				struct load_part part =
					load_part_of(&opts, k, n);

				assert_int_equal(part.first, next);
				assert_in_range(part.count, conns_of[i] / n,
						(conns_of[i] + n - 1) / n);
				assert_true(part.count > 0);
				next += part.count;
			}
			assert_int_equal(next, conns_of[i]);
		}
}

/* In order of time, each request is the next of exactly one part. */
static void test_parts_together_send_the_request_stream(void **state)
{
	enum { N = 4, REQUESTS = 1000 };
	struct load_part parts[N];
	uint64_t turns[N] = {0};

	start_part(61);
	for (unsigned k = 0; k < N; k++)
		parts[k] = load_part_of(&opts, k, N);
	for (uint64_t i = 0; i < REQUESTS; i++) {
		int64_t due_ns = load_turn_due(&stats, i);
		unsigned takers = 0;

		for (unsigned k = 0; k < N; k++) {
			if (load_part_due(&parts[k], &stats, turns[k]) !=
			    due_ns)
				continue;
			/* the same connection as of the run */
			assert_int_equal(parts[k].first +
						 turns[k] % parts[k].count,
					 i % opts.conns);
			turns[k]++;
			takers++;
		}
		assert_int_equal(takers, 1);
	}
}

static void test_skipped_turns_are_those_that_were_due(void **state)
{
	enum { N = 3 };

	start_part(61);
	for (unsigned k = 0; k < N; k++) {
		struct load_part part = load_part_of(&opts, k, N);

		for (int64_t ms = 0; ms < 500; ms++) {
			int64_t now_ns = T0 + ms * S / 1000;
			uint64_t turn =
				load_part_turn_at(&part, &stats, now_ns);

			assert_true(load_part_due(&part, &stats, turn) >=
				    now_ns);
			assert_true(turn == 0 ||
				    load_part_due(&part, &stats, turn - 1) <
					    now_ns + 3);
		}
	}
}

static void test_parts_together_follow_the_ramp(void **state)
{
	enum { N = 3 };

	start_part(61);
	for (int64_t now_ns = T0; now_ns <= T0 + 10 * S; now_ns += S / 10) {
		uint32_t all = load_stats_may_open(&stats, now_ns), sum = 0;

		for (unsigned k = 0; k < N; k++) {
			struct load_part part = load_part_of(&opts, k, N);
			uint32_t may =
				load_part_may_open(&part, &stats, now_ns);

			assert_in_range(may, 1, part.count);
			sum += may;
		}
		assert_in_range(sum, all, all + N - 1);
	}
	assert_int_equal(load_stats_may_open(&stats, T0 + 10 * S), 61);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_connection_belongs_to_one_part),
		cmocka_unit_test(test_parts_together_send_the_request_stream),
		cmocka_unit_test(test_skipped_turns_are_those_that_were_due),
		cmocka_unit_test(test_parts_together_follow_the_ramp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
