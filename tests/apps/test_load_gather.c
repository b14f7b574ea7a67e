/*
 * A load run of several threads reports the same as one thread. No threads are
 * started: the test changes each one's counters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/load/load_stats.h"

#define MS	  INT64_C(1000000)
#define S	  OPT_NS_PER_S
#define T0	  (INT64_C(123456789) * MS)
#define FOLLOWERS 3

static struct load_opts opts;
static struct load_stats leader, followers[FOLLOWERS], alone;

static int64_t clock_ns;	   /* when the leader ticks */
static int64_t late_ns[FOLLOWERS]; /* delay of a follower's answer */

static void gather_all(struct load_stats *stats)
{
	for (int i = 0; i < FOLLOWERS; i++)
		load_stats_gather(stats, &followers[i], clock_ns + late_ns[i]);
}

/*
 * Starts the same run twice: with one thread, and with a leader and followers.
 */
static void start_parts(enum load_mode mode)
{
	opts = (struct load_opts){
		.target_text = "10.9.0.1:7777",
		.mode = mode,
		.conns = FOLLOWERS + 1,
		.size = 100,
		.duration_ns = 4 * S,
		.warmup_ns = 1 * S,
		.timeout_ns = 5 * S,
	};
	clock_ns = T0;
	memset(late_ns, 0, sizeof(late_ns));
	load_stats_start(&alone, &opts, "test-load", T0);
	load_stats_start(&leader, &opts, "test-load", T0);
	leader.gather = gather_all;
	for (int i = 0; i < FOLLOWERS; i++)
		load_stats_follow(&followers[i], &leader);
}

/* Thread i; 0 is the leader's. */
static struct load_stats *stats_of(int i)
{
	return i ? &followers[i - 1] : &leader;
}

static void open_all(void)
{
	for (int i = 0; i <= FOLLOWERS; i++) {
		load_stats_opened(stats_of(i), 10 + i);
		load_stats_opened(&alone, 10 + i);
	}
}

/*
 * Gives the threads different work: the first is the fastest and has the most.
 */
static void count_requests(int64_t now_ns)
{
	for (int i = 0; i <= FOLLOWERS; i++)
		for (int k = 0; k < 1000 >> (3 * i); k++) {
			int64_t took_ns = (MS << (2 * i)) + k * 1000;

			load_stats_request(stats_of(i), took_ns);
			load_stats_request(&alone, took_ns);
			load_stats_sent(stats_of(i), now_ns, 0, now_ns + k);
			load_stats_sent(&alone, now_ns, 0, now_ns + k);
		}
	load_stats_error(stats_of(FOLLOWERS), LOAD_RESET);
	load_stats_error(&alone, LOAD_RESET);
}

static bool gather_tick(int64_t now_ns)
{
	bool goes_on = load_stats_tick(&alone, now_ns);

	clock_ns = now_ns;
	gather_all(&leader); /* as a leader does while connections open */
	assert_int_equal(load_stats_tick(&leader, now_ns), goes_on);
	for (int i = 0; i <= FOLLOWERS; i++)
		assert_int_equal(stats_of(i)->phase, alone.phase);
	return goes_on;
}

static void assert_same_hist(const struct hist *a, const struct hist *b)
{
	assert_memory_equal(a, b, sizeof(*a));
	for (int i = 0; i <= 1000; i++)
		assert_int_equal(hist_percentile(a, i / 10.0),
				 hist_percentile(b, i / 10.0));
}

static void test_several_threads_report_as_one(void **state)
{
	start_parts(LOAD_ECHO);
	assert_true(gather_tick(T0));
	count_requests(
		T0); /* while opening: not in the result, but for the error */
	open_all();
	assert_true(gather_tick(T0 + 1 * S));
	assert_int_equal(leader.phase, LOAD_WARMUP);
	count_requests(T0 + 1 * S);
	assert_true(gather_tick(T0 + 2 * S));
	assert_int_equal(leader.phase, LOAD_MEASURING);
	for (int i = 0; i < 3; i++)
		count_requests(T0 + 3 * S);
	load_stats_closed(stats_of(2));
	load_stats_closed(&alone);
	assert_false(gather_tick(T0 + 6 * S));
	count_requests(T0 + 6 * S); /* too late */
	gather_all(&leader);

	assert_same_hist(&leader.total, &alone.total);
	assert_same_hist(&leader.late, &alone.late);
	assert_int_equal(leader.total.count, 3 * (1000 + 125 + 15 + 1));
	assert_int_equal(leader.total_bytes, alone.total_bytes);
	assert_int_equal(leader.opened, FOLLOWERS + 1);
	assert_int_equal(leader.open, FOLLOWERS);
	assert_int_equal(leader.error_count, 5);
	assert_memory_equal(leader.errors, alone.errors, sizeof(alone.errors));
}

/* The mean of the threads' medians is 21 ms, of their p99.99 as much. */
static void test_percentiles_are_not_averaged(void **state)
{
	start_parts(LOAD_ECHO);
	open_all();
	gather_tick(T0 + 1 * S);
	gather_tick(T0 + 2 * S);
	count_requests(T0 + 3 * S);
	gather_tick(T0 + 6 * S);
	assert_in_range(hist_percentile(&leader.total, 50), 1 * MS, 2 * MS);
	assert_in_range(hist_percentile(&leader.total, 99.99), 64 * MS,
			65 * MS);
}

static void test_idle_reports_connects_and_second_echoes(void **state)
{
	start_parts(LOAD_IDLE);
	open_all();
	for (int i = 0; i <= FOLLOWERS; i++)
		stats_of(i)->answered_before++;
	gather_tick(T0 + 1 * S);
	gather_tick(T0 + 2 * S);
	assert_false(gather_tick(T0 + 6 * S));
	assert_same_hist(&leader.total, &alone.total);
	assert_int_equal(leader.total.count, FOLLOWERS + 1);
	for (int i = 0; i <= FOLLOWERS; i++)
		stats_of(i)->answered_after++; /* the run is over */
	gather_all(&leader);
	gather_all(&leader);
	assert_int_equal(leader.answered_before, FOLLOWERS + 1);
	assert_int_equal(leader.answered_after, FOLLOWERS + 1);
}

static void test_interrupted_run_is_interrupted_for_all(void **state)
{
	start_parts(LOAD_ECHO);
	open_all();
	gather_tick(T0 + 1 * S);
	gather_tick(T0 + 2 * S);
	count_requests(T0 + 3 * S);
	load_stats_interrupt(&alone, T0 + 3 * S);
	clock_ns = T0 + 3 * S;
	load_stats_interrupt(&leader, clock_ns);
	assert_same_hist(&leader.total, &alone.total);
	for (int i = 0; i <= FOLLOWERS; i++) {
		assert_int_equal(stats_of(i)->phase, LOAD_DONE);
		assert_true(stats_of(i)->interrupted);
	}
}

/* A follower is notified a moment after the leader has ended the run. */
static void gather_late(struct load_stats *stats)
{
	if (stats->phase == LOAD_DONE) {
		load_stats_request(stats_of(1), MS);
		load_stats_error(stats_of(1), LOAD_RESET);
	}
	gather_all(stats);
}

static void test_events_after_the_end_are_not_counted(void **state)
{
	start_parts(LOAD_ECHO);
	leader.gather = gather_late;
	open_all();
	gather_tick(T0 + 1 * S);
	gather_tick(T0 + 2 * S);
	count_requests(T0 + 3 * S);
	gather_tick(T0 + 6 * S);
	assert_same_hist(&leader.total, &alone.total);
	assert_int_equal(leader.error_count, 1);
}

/* Events that a thread counts before it answers belong to the measured time. */
static void test_time_ends_when_the_threads_answer(void **state)
{
	start_parts(LOAD_ECHO);
	open_all();
	gather_tick(T0 + 1 * S);
	for (int i = 0; i < FOLLOWERS; i++)
		late_ns[i] = (i + 1) * 10 * MS;
	clock_ns = T0 + 2 * S;
	assert_true(load_stats_tick(&leader, clock_ns));
	assert_int_equal(leader.phase, LOAD_MEASURING);
	assert_int_equal(leader.measured_from_ns, T0 + 2 * S + 20 * MS);
	for (int i = 0; i < FOLLOWERS; i++)
		late_ns[i] = (i + 1) * 100 * MS;
	clock_ns = T0 + 7 * S;
	assert_false(load_stats_tick(&leader, clock_ns));
	assert_int_equal(leader.measured_to_ns, T0 + 7 * S + 200 * MS);
}

static int64_t busy_of(void *arg)
{
	return *(int64_t *)arg;
}

static void test_busiest_thread_is_the_limit(void **state)
{
	int64_t times[FOLLOWERS + 1] = {0};

	start_parts(LOAD_ECHO);
	for (int i = 0; i <= FOLLOWERS; i++)
		load_stats_set_busy(stats_of(i), busy_of, &times[i]);
	open_all();
	times[1] = 1 * S; /* opening is not reported */
	gather_tick(T0 + 1 * S);
	times[1] += 1 * S; /* nor is warming up */
	gather_tick(T0 + 2 * S);
	times[0] = 1 * S;
	times[1] += 1 * S;
	times[2] = 399 * S / 100;
	assert_false(gather_tick(T0 + 6 * S));
	assert_in_range(load_stats_busy_share(&leader) * 1000, 997, 998);
	assert_int_equal(load_stats_limit(&leader), LOAD_LIMIT_BUSY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_several_threads_report_as_one),
		cmocka_unit_test(test_percentiles_are_not_averaged),
		cmocka_unit_test(test_idle_reports_connects_and_second_echoes),
		cmocka_unit_test(test_interrupted_run_is_interrupted_for_all),
		cmocka_unit_test(test_events_after_the_end_are_not_counted),
		cmocka_unit_test(test_time_ends_when_the_threads_answer),
		cmocka_unit_test(test_busiest_thread_is_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
