/* A run's phases, counters and report, on a fake clock. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "apps/load/report.h"
#include "tests/apps/in_child.h"

#define MS INT64_C(1000000)
#define S  OPT_NS_PER_S
#define T0 (INT64_C(123456789) * MS)

/* cmocka's own range assertions change their names between versions. */
static void assert_between(int64_t value, int64_t min, int64_t max)
{
	assert_true(value >= min && value <= max);
}

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
		.warmup_ns = 1 * S,
		.timeout_ns = 5 * S,
	};
	busy_ns = 0;
	load_stats_start(&stats, &opts, "test-load", T0);
	return 0;
}

static int64_t answer_busy(void *arg)
{
	assert_ptr_equal(arg, &busy_ns);
	return busy_ns;
}

static void open_both(int64_t now_ns)
{
	load_stats_opened(&stats, 10);
	load_stats_opened(&stats, 20);
	assert_true(load_stats_tick(&stats, now_ns));
}

/* Opens at T0 + 1 s, so that measuring is from T0 + 2 s to T0 + 6 s. */
static void run_until(int64_t now_ns)
{
	open_both(T0 + 1 * S);
	assert_true(load_stats_tick(&stats, T0 + 2 * S));
	assert_int_equal(stats.phase, LOAD_MEASURING);
	load_stats_tick(&stats, now_ns);
}

static void test_phases_follow_connections_and_clock(void **state)
{
	assert_true(load_stats_tick(&stats, T0));
	assert_int_equal(stats.phase, LOAD_OPENING);
	load_stats_opened(&stats, 10);
	assert_true(load_stats_tick(&stats, T0 + 900 * MS));
	assert_int_equal(stats.phase, LOAD_OPENING);
	load_stats_opened(&stats, 10);
	assert_true(load_stats_tick(&stats, T0 + 1 * S));
	assert_int_equal(stats.phase, LOAD_WARMUP);
	assert_true(load_stats_tick(&stats, T0 + 2 * S - 1));
	assert_int_equal(stats.phase, LOAD_WARMUP);
	assert_true(load_stats_tick(&stats, T0 + 2 * S));
	assert_int_equal(stats.phase, LOAD_MEASURING);
	assert_true(load_stats_tick(&stats, T0 + 6 * S - 1));
	assert_false(load_stats_tick(&stats, T0 + 6 * S));
	assert_int_equal(stats.phase, LOAD_DONE);
	assert_false(load_stats_tick(&stats, T0 + 7 * S));
	assert_int_equal(stats.measured_to_ns - stats.measured_from_ns, 4 * S);
}

static void test_only_the_measured_requests_are_in_the_result(void **state)
{
	load_stats_request(&stats, 1 * MS);
	open_both(T0 + 1 * S);
	load_stats_request(&stats, 2 * MS);
	load_stats_tick(&stats, T0 + 2 * S);
	load_stats_request(&stats, 3 * MS);
	load_stats_request(&stats, 4 * MS);
	assert_false(load_stats_tick(&stats, T0 + 6 * S));
	load_stats_request(&stats, 5 * MS);
	assert_int_equal(stats.total.count, 2);
	assert_int_equal(stats.total_bytes, 200);
	assert_int_equal(stats.total.min, 3 * MS);
	assert_int_equal(stats.total.max, 4 * MS);
}

static void test_intervals_add_up_to_the_total(void **state)
{
	int64_t now_ns;

	opts.interval_ns = 1 * S;
	load_stats_start(&stats, &opts, "test-load", T0);
	open_both(T0);
	load_stats_tick(&stats, T0 + 1 * S);
	for (now_ns = T0 + 1 * S; load_stats_tick(&stats, now_ns);
	     now_ns += 10 * MS)
		load_stats_request(&stats, 1 * MS);
	assert_int_equal(stats.total.count, 400);
	assert_int_equal(stats.total_bytes, 40000);
}

static int tick_for_progress(void *arg)
{
	load_stats_request(&stats, 2 * MS);
	load_stats_request(&stats, 2 * MS);
	load_stats_error(&stats, LOAD_RESET);
	load_stats_tick(&stats, T0 + 3 * S - 1);
	load_stats_tick(&stats, T0 + 3 * S);
	return 0;
}

static void test_progress_is_one_line_an_interval(void **state)
{
	struct in_child run;

	opts.interval_ns = 1 * S;
	load_stats_start(&stats, &opts, "test-load", T0);
	open_both(T0 + 1);
	stats.tty = false;
	run = in_child_run(tick_for_progress, NULL);
	/* It took three seconds to get there. */
	assert_string_equal(run.err,
			    "   3 s  1 req/s  2 conns  1 errors  p99 2.00 ms "
			    "(warm-up)\n");
	assert_string_equal(run.out, "");
}

static void test_errors_are_never_forgotten(void **state)
{
	load_stats_error(&stats, LOAD_REFUSED);
	load_stats_opened(&stats, 10);
	assert_true(load_stats_tick(&stats, T0 + 1 * S));
	assert_int_equal(stats.phase, LOAD_WARMUP);
	load_stats_error(&stats, LOAD_RESET);
	load_stats_closed(&stats);
	load_stats_tick(&stats, T0 + 2 * S);
	load_stats_error(&stats, LOAD_VERIFY);
	load_stats_tick(&stats, T0 + 6 * S);
	/* The end closes open connections, which is no error. */
	load_stats_error(&stats, LOAD_RESET);
	assert_int_equal(stats.errors[LOAD_REFUSED], 1);
	assert_int_equal(stats.errors[LOAD_RESET], 1);
	assert_int_equal(stats.errors[LOAD_VERIFY], 1);
	assert_int_equal(stats.error_count, 3);
}

static void test_nothing_opened_ends_the_run_at_once(void **state)
{
	load_stats_error(&stats, LOAD_REFUSED);
	assert_true(load_stats_tick(&stats, T0 + 1));
	load_stats_error(&stats, LOAD_REFUSED);
	assert_false(load_stats_tick(&stats, T0 + 2));
}

static void test_opening_phase_is_bounded(void **state)
{
	opts.ramp_ns = 2 * S;
	load_stats_start(&stats, &opts, "test-load", T0);
	load_stats_opened(&stats, 10);
	load_stats_tick(&stats, T0 + 7 * S - 1);
	assert_int_equal(stats.phase, LOAD_OPENING);
	load_stats_tick(&stats, T0 + 7 * S);
	assert_int_equal(stats.phase, LOAD_WARMUP);
}

static void test_ramp_opens_evenly(void **state)
{
	opts.conns = 1000;
	opts.ramp_ns = 10 * S;
	load_stats_start(&stats, &opts, "test-load", T0);
	assert_int_equal(load_stats_may_open(&stats, T0), 1);
	assert_int_equal(load_stats_may_open(&stats, T0 + 5 * S), 501);
	assert_int_equal(load_stats_may_open(&stats, T0 + 10 * S), 1000);
	opts.ramp_ns = 0;
	assert_int_equal(load_stats_may_open(&stats, T0), 1000);
}

static void test_idle_reports_its_connects(void **state)
{
	opts.mode = LOAD_IDLE;
	open_both(T0 + 1 * S);
	load_stats_tick(&stats, T0 + 2 * S);
	load_stats_tick(&stats, T0 + 6 * S);
	assert_int_equal(stats.total.count, 2);
	assert_int_equal(stats.total.max, 20);
}

static void test_interrupt_keeps_the_measurements(void **state)
{
	run_until(T0 + 3 * S);
	load_stats_request(&stats, 1 * MS);
	load_stats_interrupt(&stats, T0 + 4 * S);
	assert_false(load_stats_tick(&stats, T0 + 4 * S));
	assert_true(stats.interrupted);
	assert_int_equal(stats.measured_to_ns - stats.measured_from_ns, 2 * S);
	assert_int_equal(stats.total.count, 1);
}

static void test_busy_share_covers_the_measured_time(void **state)
{
	assert_true(load_stats_busy_share(&stats) < 0);
	load_stats_set_busy(&stats, answer_busy, &busy_ns);
	busy_ns = 5 * S;
	run_until(T0 + 2 * S);
	busy_ns = 8 * S;
	load_stats_tick(&stats, T0 + 6 * S);
	busy_ns = 9 * S;
	assert_true(load_stats_busy_share(&stats) == 0.75);
}

static void test_errno_becomes_a_kind(void **state)
{
	assert_int_equal(load_error_of(-ECONNREFUSED), LOAD_REFUSED);
	assert_int_equal(load_error_of(-EHOSTUNREACH), LOAD_UNREACHABLE);
	assert_int_equal(load_error_of(-EADDRNOTAVAIL), LOAD_NO_PORT);
	assert_int_equal(load_error_of(-ETIMEDOUT), LOAD_TIMEOUT);
	assert_int_equal(load_error_of(-ECONNRESET), LOAD_RESET);
	assert_int_equal(load_error_of(-EPIPE), LOAD_RESET);
	assert_int_equal(load_error_of(-EMFILE), LOAD_OTHER);
}

/* 1,000/s over 4 connections: a request a millisecond, in turn. */
static void test_pace_is_one_even_stream(void **state)
{
	struct load_pace pace[4];
	uint32_t i;

	opts.conns = 4;
	opts.rate = 1000;
	load_stats_start(&stats, &opts, "test-load", T0);
	for (i = 0; i < 4; i++)
		load_pace_start(&pace[i], &stats, i, T0);
	for (i = 0; i < 40; i++) {
		assert_between(load_pace_due(&pace[i % 4]), T0 + i * MS - 1,
			       T0 + i * MS + 1);
		load_pace_sent(&pace[i % 4]);
	}
}

static void test_pace_of_a_late_connection_starts_now(void **state)
{
	struct load_pace pace;

	opts.conns = 4;
	opts.rate = 1000;
	load_stats_start(&stats, &opts, "test-load", T0);
	load_pace_start(&pace, &stats, 1, T0 + 6 * MS);
	assert_between(load_pace_due(&pace), T0 + 9 * MS - 1, T0 + 9 * MS + 1);
}

static cJSON *report(void)
{
	char *text = load_report_json(&stats);
	cJSON *root;

	assert_non_null(text);
	root = cJSON_Parse(text);
	free(text);
	assert_non_null(root);
	return root;
}

static double number(const cJSON *from, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);

	if (!cJSON_IsNumber(item))
		fail_msg("'%s' is no number", key);
	return item->valuedouble;
}

static void assert_text(const cJSON *from, const char *key, const char *text)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);

	assert_true(cJSON_IsString(item));
	assert_string_equal(item->valuestring, text);
}

static void measure_a_thousand(void)
{
	int i;

	load_stats_set_busy(&stats, answer_busy, &busy_ns);
	run_until(T0 + 3 * S);
	for (i = 1; i <= 1000; i++)
		load_stats_request(&stats, i * 1000);
	load_stats_error(&stats, LOAD_TIMEOUT);
	busy_ns = 3 * S;
	load_stats_tick(&stats, T0 + 6 * S);
}

static void test_json_has_every_key(void **state)
{
	static const char *const kinds[] = {"refused", "unreachable", "no_port",
					    "timeout", "reset",	      "closed",
					    "verify",  "other"};
	const cJSON *errors, *latency;
	cJSON *root;
	size_t i;

	measure_a_thousand();
	root = report();
	assert_text(root, "tool", "test-load");
	assert_text(root, "version", opts_version());
	assert_text(root, "mode", "echo");
	assert_text(root, "target", "10.9.0.1:7777");
	assert_true(number(root, "conns") == 2);
	assert_true(number(root, "size") == 100);
	assert_true(number(root, "rate") == 0);
	assert_true(number(root, "seconds") == 4);
	assert_true(number(root, "opened") == 2);
	assert_true(number(root, "open_at_end") == 2);
	assert_true(number(root, "opened_per_s") == 2); /* within one second */
	assert_true(number(root, "resident_kib") > 0);
	assert_true(number(root, "huge_kib") >= 0);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "answered_before")));
	assert_true(number(root, "requests") == 1000);
	assert_true(number(root, "requests_per_s") == 250);
	assert_true(number(root, "bytes") == 100000);
	assert_true(number(root, "bytes_per_s") == 25000);
	assert_true(number(root, "generator_busy") == 0.75);
	assert_true(
		cJSON_IsFalse(cJSON_GetObjectItem(root, "generator_limited")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "refused")));
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(root, "interrupted")));
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(root, "verify")));
	errors = cJSON_GetObjectItem(root, "errors");
	assert_true(number(errors, "total") == 1);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		assert_true(number(errors, kinds[i]) ==
			    (strcmp(kinds[i], "timeout") == 0));
	latency = cJSON_GetObjectItem(root, "latency_us");
	assert_true(number(latency, "samples") == 1000);
	assert_true(number(latency, "mean") == 500.5);
	assert_true(number(latency, "min") == 1);
	assert_true(number(latency, "max") == 1000);
	assert_between((int)number(latency, "p50"), 498, 502);
	assert_between((int)number(latency, "p90"), 897, 903);
	assert_between((int)number(latency, "p99"), 986, 994);
	assert_between((int)number(latency, "p999"), 995, 1000);
	assert_between((int)number(latency, "p9999"), 1000, 1000);
	cJSON_Delete(root);
}

static void test_json_has_null_for_unknown_values(void **state)
{
	const cJSON *latency;
	cJSON *root;

	run_until(T0 + 6 * S);
	root = report();
	latency = cJSON_GetObjectItem(root, "latency_us");
	assert_true(number(latency, "samples") == 0);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(latency, "p99")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(latency, "min")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "generator_busy")));
	assert_true(
		cJSON_IsNull(cJSON_GetObjectItem(root, "generator_limited")));
	cJSON_Delete(root);
}

static int print_report(void *arg)
{
	return load_report(&stats);
}

static void test_text_has_rate_latency_errors_and_load(void **state)
{
	struct in_child run;

	measure_a_thousand();
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 1);
	assert_non_null(
		strstr(run.out, "1,000, 250/s, 25.0 kB/s in each direction"));
	assert_non_null(strstr(run.out, "max 1.00 ms"));
	assert_non_null(strstr(run.out, "1 timeout\n"));
	assert_non_null(strstr(run.out, "busy 75 % of one core\n"));
	assert_string_equal(run.err, "");
}

static void test_idle_fails_unless_each_answers_afterwards(void **state)
{
	struct in_child run;

	opts.mode = LOAD_IDLE;
	run_until(T0 + 3 * S);
	load_stats_tick(&stats, T0 + 6 * S);
	stats.asked_after = true;
	stats.answered_before = 2;
	stats.answered_after = 1;
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.out, "2 opened, 2/s, 2 open at the end"));
	assert_non_null(strstr(run.out, "2 before, 1 after"));
	assert_non_null(strstr(run.out, "MiB resident"));
	stats.answered_after = 2;
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 0);
}

static void test_json_to_stdout_is_the_only_output(void **state)
{
	struct in_child run;
	cJSON *root;

	opts.json = stdout;
	run_until(T0 + 3 * S);
	load_stats_request(&stats, 1000);
	load_stats_tick(&stats, T0 + 6 * S);
	run = in_child_run(print_report, NULL);
	assert_int_equal(run.status, 0);
	root = cJSON_Parse(run.out);
	assert_non_null(root);
	cJSON_Delete(root);
}

static void test_json_that_cannot_be_written_is_a_failure(void **state)
{
	struct in_child run;

	opts.json = fopen("/dev/full", "w");
	assert_non_null(opts.json);
	run_until(T0 + 3 * S);
	load_stats_request(&stats, 1000);
	load_stats_tick(&stats, T0 + 6 * S);
	run = in_child_run(print_report, NULL);
	fclose(opts.json);
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.err, "cannot write the JSON"));
}

static void test_a_run_without_an_answer_is_a_failure(void **state)
{
	run_until(T0 + 6 * S);
	assert_int_equal(in_child_run(print_report, NULL).status, 1);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_phases_follow_connections_and_clock),
		TEST(test_only_the_measured_requests_are_in_the_result),
		TEST(test_intervals_add_up_to_the_total),
		TEST(test_progress_is_one_line_an_interval),
		TEST(test_errors_are_never_forgotten),
		TEST(test_nothing_opened_ends_the_run_at_once),
		TEST(test_opening_phase_is_bounded),
		TEST(test_ramp_opens_evenly),
		TEST(test_idle_reports_its_connects),
		TEST(test_interrupt_keeps_the_measurements),
		TEST(test_busy_share_covers_the_measured_time),
		TEST(test_errno_becomes_a_kind),
		TEST(test_pace_is_one_even_stream),
		TEST(test_pace_of_a_late_connection_starts_now),
		TEST(test_json_has_every_key),
		TEST(test_json_has_null_for_unknown_values),
		TEST(test_text_has_rate_latency_errors_and_load),
		TEST(test_idle_fails_unless_each_answers_afterwards),
		TEST(test_json_to_stdout_is_the_only_output),
		TEST(test_json_that_cannot_be_written_is_a_failure),
		TEST(test_a_run_without_an_answer_is_a_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
