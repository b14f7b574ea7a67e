/* The report of a load tool that was itself the bottleneck. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "apps/load/report.h"
#include "tests/apps/in_child.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S  OPT_NS_PER_S
#define T0 (INT64_C(123456789) * MS)

static struct load_stats stats;
static struct load_opts opts;
static int64_t busy_ns;

static int set_up(void **state)
{
	opts = (struct load_opts){
		.target_text = "10.9.0.1:7777",
		.mode = LOAD_ECHO,
		.conns = 2,
		.size = 100,
		.duration_ns = 4 * S,
		.timeout_ns = 5 * S,
	};
	return 0;
}

static int64_t answer_busy(void *arg)
{
	return busy_ns;
}

/* Opens connections for a second, of which the tool is busy for `opening`. */
static void open_both(double opening)
{
	busy_ns = 77 * S;
	load_stats_start(&stats, &opts, "test-load", T0);
	load_stats_set_busy(&stats, answer_busy, NULL);
	load_stats_opened(&stats, 10 * MS);
	load_stats_opened(&stats, 20 * MS);
	busy_ns += (int64_t)(opening * S);
	assert_true(load_stats_tick(&stats, T0 + 1 * S));
}

/*
 * Measures a thousand answers in four seconds, of which the tool is busy for
 * `measuring`.
 */
static void measure(double measuring)
{
	int i;

	open_both(1);
	for (i = 1; i <= 1000; i++) {
		load_stats_request(&stats, i * US);
		load_stats_bytes(&stats, opts.mode == LOAD_BULK ? 100 : 0);
	}
	busy_ns += (int64_t)(measuring * 4 * S);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(stats.phase, LOAD_DONE);
}

static int print_report(void *arg)
{
	return load_report(&stats);
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no '%s' in:\n%s", part, text);
}

static void assert_lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("'%s' in:\n%s", part, text);
}

static cJSON *parsed_report(void)
{
	char *text = load_report_json(&stats);
	cJSON *root;

	assert_non_null(text);
	root = cJSON_Parse(text);
	free(text);
	assert_non_null(root);
	return root;
}

static const cJSON *member_of(const cJSON *from, const char *key)
{
	const cJSON *found = cJSON_GetObjectItemCaseSensitive(from, key);

	if (!found)
		fail_msg("no '%s'", key);
	return found;
}

static void test_a_busy_generator_is_limited(void **state)
{
	measure(0.969);
	assert_false(load_stats_is_limited(&stats));
	assert_int_equal(in_child_run(print_report, NULL).status, 0);
	measure(0.971);
	assert_true(load_stats_is_limited(&stats));
	assert_int_equal(in_child_run(print_report, NULL).status,
			 LOAD_EXIT_REFUSED);
}

/* Busy time before and after the measurement is not reported. */
static void test_only_the_measured_time_counts(void **state)
{
	open_both(1);
	load_stats_request(&stats, 1 * US);
	load_stats_tick(&stats, T0 + 5 * S);
	busy_ns += 100 * S;
	assert_true(load_stats_busy_share(&stats) == 0);
	assert_int_equal(in_child_run(print_report, NULL).status, 0);
}

static void test_unknown_busy_share_does_not_limit(void **state)
{
	load_stats_start(&stats, &opts, "test-load", T0);
	load_stats_opened(&stats, 10 * MS);
	load_stats_opened(&stats, 10 * MS);
	load_stats_tick(&stats, T0 + 1 * S);
	load_stats_request(&stats, 1 * US);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(in_child_run(print_report, NULL).status, 0);
}

static void test_limited_text_has_a_reason_and_a_remedy_only(void **state)
{
	struct in_child run;

	measure(0.99);
	run = in_child_run(print_report, NULL);
	assert_has(run.out, "  no report   the generator was itself the limit: "
			    "busy 99 % of one core (limit 97 %)\n");
	assert_has(run.out, "fewer --conns, a --rate below 200, a core of its "
			    "own or a second generator; --report-limited");
	assert_has(run.out, "errors      none\n");
	assert_lacks(run.out, "latency");
	assert_lacks(run.out, "requests");
	assert_lacks(run.out, "250");
	assert_string_equal(run.err, "");
}

static void test_only_applicable_remedies_are_suggested(void **state)
{
	struct in_child run;

	opts.conns = 1;
	opts.mode = LOAD_BULK;
	measure(0.99);
	run = in_child_run(print_report, NULL);
	assert_lacks(run.out, "fewer --conns");
	assert_lacks(run.out, "--rate");
	assert_has(run.out, "try a larger --size, a core of its own");
}

static void test_limited_json_has_a_reason_and_nulls(void **state)
{
	static const char *const figures[] = {"requests", "requests_per_s",
					      "bytes", "bytes_per_s",
					      "opened_per_s"};
	static const char *const latencies[] = {"samples", "mean", "min",
						"max",	   "p50",  "p90",
						"p99",	   "p999", "p9999"};
	cJSON *root;
	size_t i;

	measure(1);
	root = parsed_report();
	assert_string_equal(member_of(root, "refused")->valuestring,
			    "the generator was itself the limit: busy 100 % of "
			    "one core (limit 97 %)");
	assert_true(member_of(root, "generator_busy")->valuedouble == 1);
	assert_true(cJSON_IsTrue(member_of(root, "generator_limited")));
	for (i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		assert_true(cJSON_IsNull(member_of(root, figures[i])));
	for (i = 0; i < sizeof(latencies) / sizeof(latencies[0]); i++)
		assert_true(cJSON_IsNull(member_of(
			member_of(root, "latency_us"), latencies[i])));
	assert_true(
		member_of(member_of(root, "errors"), "total")->valuedouble ==
		0);
	assert_true(member_of(root, "opened")->valuedouble == 2);
	cJSON_Delete(root);
}

static void test_report_limited_reports_lower_bounds(void **state)
{
	struct in_child run;
	cJSON *root;

	opts.report_limited = true;
	measure(0.99);
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 0);
	assert_has(run.out, "requests    1,000, at least 250/s, at least 25.0 "
			    "kB/s in each direction\n");
	assert_has(run.out, "max 1.00 ms\n");
	assert_has(run.out, "busy 99 % of one core: it was itself the limit");
	assert_lacks(run.out, "no report");
	root = parsed_report();
	assert_true(cJSON_IsNull(member_of(root, "refused")));
	assert_true(member_of(root, "requests_per_s")->valuedouble == 250);
	assert_true(cJSON_IsTrue(member_of(root, "generator_limited")));
	cJSON_Delete(root);
}

static void test_report_limited_marks_no_unlimited_rate(void **state)
{
	opts.report_limited = true;
	measure(0.5);
	assert_lacks(in_child_run(print_report, NULL).out, "at least");
}

/* Errors are reported, and decide the exit status. */
static void test_errors_are_reported_when_figures_are_not(void **state)
{
	struct in_child run;

	measure(0.99);
	stats.errors[LOAD_RESET] = stats.error_count = 3;
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 1);
	assert_has(run.out, "errors      3 reset\n");
	assert_has(run.out, "no report");
}

/*
 * The rate and latencies of idle mode are those of the opening; its counts are
 * the result.
 */
static void test_idle_keeps_its_counts(void **state)
{
	struct in_child run;

	opts.mode = LOAD_IDLE;
	measure(0);
	assert_true(load_stats_busy_share(&stats) == 1);
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 0);
	assert_has(run.out, "no report");
	assert_has(run.out, "try a longer --ramp, a core");
	assert_has(run.out, "connections 2 opened, 2 open at the end\n");
	assert_lacks(run.out, "p99");
	opts.report_limited = true;
	assert_has(in_child_run(print_report, NULL).out,
		   "2 opened, at least 2/s, 2 open at the end\n");
}

static void test_idle_mode_is_limited_only_while_opening(void **state)
{
	opts.mode = LOAD_IDLE;
	open_both(0.25);
	busy_ns += 4 * S;
	load_stats_tick(&stats, T0 + 5 * S);
	assert_true(load_stats_busy_share(&stats) == 0.25);
	assert_has(in_child_run(print_report, NULL).out,
		   "2 opened, 2/s, 2 open at the end\n");
}

static int tick_for_progress(void *arg)
{
	load_stats_request(&stats, 2 * MS);
	busy_ns += *(const int64_t *)arg;
	load_stats_tick(&stats, T0 + 2 * S);
	return 0;
}

static void test_progress_marks_a_limited_interval(void **state)
{
	int64_t much = 98 * S / 100, little = 90 * S / 100;

	opts.interval_ns = 1 * S;
	open_both(1);
	stats.tty = false;
	assert_string_equal(in_child_run(tick_for_progress, &much).err,
			    "   2 s  1 req/s  2 conns  0 errors  p99 2.00 ms  "
			    "generator 98 % busy\n");
	assert_string_equal(in_child_run(tick_for_progress, &little).err,
			    "   2 s  1 req/s  2 conns  0 errors  p99 2.00 "
			    "ms\n");
}

/*
 * Sends `count` requests of the open loop, each late_ns after it could have
 * been sent, and answered 100 us after its scheduled time.
 */
static void send_late(int count, int64_t late_ns)
{
	for (int i = 0; i < count; i++) {
		int64_t due_ns = T0 + 2 * S + i * MS;

		load_stats_sent(&stats, due_ns, due_ns - 1, due_ns + late_ns);
		load_stats_request(&stats, 100 * US);
	}
}

static void test_a_generator_late_by_itself_is_limited(void **state)
{
	struct in_child run;
	cJSON *root;

	opts.rate = 1000;
	open_both(0);
	send_late(1000, 60 * US);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(load_stats_limit(&stats), LOAD_LIMIT_LATE);
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, LOAD_EXIT_REFUSED);
	assert_has(run.out, "its own delays were 60 % of the latency (limit "
			    "50 %)\n");
	assert_lacks(run.out, "p99");
	root = parsed_report();
	assert_has(member_of(root, "refused")->valuestring,
		   "its own delays were");
	assert_true(member_of(member_of(root, "late_us"), "p99")->valuedouble ==
		    60);
	assert_true(cJSON_IsNull(member_of(root, "requests_per_s")));
	cJSON_Delete(root);
}

/* Lateness of half of the requests is reported, and of one in a hundred. */
static void test_lateness_counts_at_the_median_and_at_p99(void **state)
{
	opts.rate = 1000;
	open_both(0);
	send_late(980, 1 * US);
	send_late(20, 60 * US);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(load_stats_limit(&stats), LOAD_LIMIT_LATE);
	open_both(0);
	send_late(995, 1 * US);
	send_late(5, 60 * US);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(load_stats_limit(&stats), LOAD_NOT_LIMITED);
	open_both(0);
	send_late(400, 1 * US);
	send_late(600, 60 * US);
	for (int i = 0; i < 20; i++)
		load_stats_request(&stats, 1 * S);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(load_stats_limit(&stats), LOAD_LIMIT_LATE);
}

static void test_a_little_late_is_reported(void **state)
{
	struct in_child run;

	opts.rate = 1000;
	open_both(0);
	send_late(1000, 40 * US);
	load_stats_tick(&stats, T0 + 5 * S);
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 0);
	assert_has(run.out, "busy 0 % of one core, late by itself p50 40.0 us, "
			    "p99 40.0 us\n");
}

/* A request that waits for the previous answer waits for the server. */
static void test_delay_of_the_server_is_not_lateness(void **state)
{
	opts.rate = 1000;
	open_both(0);
	load_stats_sent(&stats, T0 + 2 * S, T0 + 3 * S, T0 + 3 * S + 5 * US);
	load_stats_request(&stats, 1 * S);
	load_stats_tick(&stats, T0 + 5 * S);
	assert_int_equal(stats.late.max, 5 * US);
	assert_int_equal(load_stats_limit(&stats), LOAD_NOT_LIMITED);
}

static void test_lateness_before_measuring_is_ignored(void **state)
{
	opts.warmup_ns = 1 * S;
	open_both(0);
	send_late(10, 60 * US);
	load_stats_tick(&stats, T0 + 2 * S);
	send_late(3, 1 * US);
	load_stats_tick(&stats, T0 + 6 * S);
	assert_int_equal(stats.late.count, 3);
	assert_int_equal(stats.late.max, 1 * US);
}

static void test_the_closed_loop_is_never_late(void **state)
{
	cJSON *root;

	measure(0.5);
	assert_true(load_stats_late_share(&stats) == 0);
	root = parsed_report();
	assert_true(cJSON_IsNull(member_of(member_of(root, "late_us"), "p50")));
	cJSON_Delete(root);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_busy_generator_is_limited),
		TEST(test_only_the_measured_time_counts),
		TEST(test_unknown_busy_share_does_not_limit),
		TEST(test_limited_text_has_a_reason_and_a_remedy_only),
		TEST(test_only_applicable_remedies_are_suggested),
		TEST(test_limited_json_has_a_reason_and_nulls),
		TEST(test_report_limited_reports_lower_bounds),
		TEST(test_report_limited_marks_no_unlimited_rate),
		TEST(test_errors_are_reported_when_figures_are_not),
		TEST(test_idle_keeps_its_counts),
		TEST(test_idle_mode_is_limited_only_while_opening),
		TEST(test_progress_marks_a_limited_interval),
		TEST(test_a_generator_late_by_itself_is_limited),
		TEST(test_lateness_counts_at_the_median_and_at_p99),
		TEST(test_a_little_late_is_reported),
		TEST(test_delay_of_the_server_is_not_lateness),
		TEST(test_lateness_before_measuring_is_ignored),
		TEST(test_the_closed_loop_is_never_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
