/* The histogram: its error bound and edge cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "apps/load/hist.h"

static struct hist hist, other;

static int set_up(void **state)
{
	hist_reset(&hist);
	hist_reset(&other);
	return 0;
}

static void assert_near(int64_t found, int64_t expected, double percent)
{
	double error = (double)(found - expected) / (double)expected * 100;

	if (error > percent || error < -percent)
		fail_msg("%jd is %.3f %% off %jd", (intmax_t)found, error,
			 (intmax_t)expected);
}

static void test_empty_gives_zeros(void **state)
{
	assert_int_equal(hist_percentile(&hist, 99), 0);
	assert_true(hist_mean(&hist) == 0);
}

static void test_buckets_follow_each_other_without_a_gap(void **state)
{
	uint32_t last = hist_index(0), next;
	uint64_t value;

	assert_int_equal(last, 0);
	for (value = 1; value < 1u << 20; value++) {
		next = hist_index(value);
		assert_true(next >= last && next <= last + 1);
		last = next;
	}
	for (value = 1u << 20; value < HIST_MAX; value *= 2) {
		next = hist_index(value);
		assert_int_equal(hist_index(value - 1), next - 1);
	}
	assert_int_equal(hist_index(HIST_MAX), HIST_BUCKETS - 1);
}

static void test_any_value_is_within_half_a_percent(void **state)
{
	double value;

	for (value = 1; value < (double)HIST_MAX; value *= 1.0037) {
		hist_reset(&hist);
		/* The ends are exact: the one in the middle shows its bucket.
		 */
		hist_record(&hist, 0);
		hist_record(&hist, (int64_t)value);
		hist_record(&hist, HIST_MAX);
		assert_near(hist_percentile(&hist, 50), (int64_t)value, 0.4);
	}
}

static void test_small_values_are_exact(void **state)
{
	int64_t value;

	for (value = 1; value < 2 * HIST_SUB; value++) {
		hist_reset(&hist);
		hist_record(&hist, 0);
		hist_record(&hist, value);
		hist_record(&hist, 100000);
		assert_int_equal(hist_percentile(&hist, 50), value);
	}
}

static void test_percentiles_are_right_for_an_even_distribution(void **state)
{
	int64_t value;

	for (value = 1; value <= 1000000; value++)
		hist_record(&hist, value);
	assert_int_equal(hist.count, 1000000);
	assert_int_equal(hist_percentile(&hist, 0), 1);
	assert_near(hist_percentile(&hist, 50), 500000, 0.4);
	assert_near(hist_percentile(&hist, 90), 900000, 0.4);
	assert_near(hist_percentile(&hist, 99), 990000, 0.4);
	assert_near(hist_percentile(&hist, 99.99), 999900, 0.4);
	assert_int_equal(hist_percentile(&hist, 100), 1000000);
	assert_true(hist_mean(&hist) == 500000.5);
}

/* Only the last of a thousand values is large, so p99.9 is the small one. */
static void test_percentile_has_the_exact_rank(void **state)
{
	int i;

	for (i = 0; i < 999; i++)
		hist_record(&hist, 10);
	hist_record(&hist, 1000);
	assert_int_equal(hist_percentile(&hist, 99.9), 10);
	assert_int_equal(hist_percentile(&hist, 99.91), 1000);
}

static void test_merged_histograms_equal_one(void **state)
{
	static struct hist all;
	int64_t value;

	hist_reset(&all);
	for (value = 3; value < 3000000; value += value / 7 + 1) {
		hist_record(value % 2 ? &hist : &other, value);
		hist_record(&all, value);
	}
	hist_merge(&hist, &other);
	assert_memory_equal(&hist, &all, sizeof(all));
	hist_reset(&other);
	hist_merge(&hist, &other);
	assert_memory_equal(&hist, &all, sizeof(all));
}

static void test_values_out_of_range_are_clamped(void **state)
{
	hist_record(&hist, -5);
	hist_record(&hist, INT64_MAX / 4);
	hist_record(&hist, INT64_MAX / 4 + 1);
	assert_int_equal(hist.count, 3);
	assert_int_equal(hist.min, 0);
	assert_int_equal(hist.max, INT64_MAX / 4 + 1);
	assert_int_equal(hist.buckets[HIST_BUCKETS - 1], 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_empty_gives_zeros, set_up),
		cmocka_unit_test_setup(
			test_buckets_follow_each_other_without_a_gap, set_up),
		cmocka_unit_test_setup(test_any_value_is_within_half_a_percent,
				       set_up),
		cmocka_unit_test_setup(test_small_values_are_exact, set_up),
		cmocka_unit_test_setup(
			test_percentiles_are_right_for_an_even_distribution,
			set_up),
		cmocka_unit_test_setup(test_percentile_has_the_exact_rank,
				       set_up),
		cmocka_unit_test_setup(test_merged_histograms_equal_one,
				       set_up),
		cmocka_unit_test_setup(test_values_out_of_range_are_clamped,
				       set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
