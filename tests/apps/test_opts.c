/*
 * Options: valid ones are parsed, and every wrong value is refused with one
 * line that names it and gives an example, and exit status 2.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "apps/load/load_opts.h"
#include "tests/apps/in_child.h"
#include "tests/apps/words.h"

#define TARGET "--target 10.9.0.1:7777 "

static struct load_opts opts;

/* Parses a command line of words: 0 or argp's error. */
static int parse_words(const char *sentence)
{
	static struct words words;

	words_split(&words, "tool", sentence);
	return argp_parse(&load_opts_argp, words.argc, words.argv, 0, NULL,
			  &opts);
}

static int parse_in_child(void *words)
{
	return parse_words(words) ? OPT_EXIT_USAGE : 0;
}

static void test_options_not_given_have_their_defaults(void **state)
{
	assert_int_equal(parse_words(TARGET), 0);
	assert_int_equal(opts.mode, LOAD_ECHO);
	assert_int_equal(opts.conns, 64);
	assert_int_equal(opts.size, 64);
	assert_int_equal(opts.rate, 0);
	assert_int_equal(opts.duration_ns, 5 * OPT_NS_PER_S);
	assert_int_equal(opts.warmup_ns, 0);
	assert_int_equal(opts.ramp_ns, 0);
	assert_int_equal(opts.timeout_ns, 5 * OPT_NS_PER_S);
	assert_int_equal(opts.interval_ns, OPT_NS_PER_S);
	assert_false(opts.verify);
	assert_false(opts.report_limited);
	assert_null(opts.json);
	assert_int_equal(parse_words(TARGET "--mode bulk"), 0);
	assert_int_equal(opts.size, 16384);
}

static void test_target_may_be_a_name(void **state)
{
	assert_int_equal(parse_words("--target server-1.example:9"), 0);
	assert_string_equal(opts.target_host, "server-1.example");
	assert_int_equal(opts.target.port, 9);
	assert_int_equal(parse_words("--target a:9 --target 10.9.0.1:9"), 0);
	assert_string_equal(opts.target_host, "");
}

static void test_every_option_is_parsed(void **state)
{
	assert_int_equal(parse_words("--target [::1]:9 --mode cps --conns 7 "
				     "--size=1000 --seconds 2.5 --warmup 0.5 "
				     "--rate 12345"),
			 0);
	assert_int_equal(opts.mode, LOAD_CPS);
	assert_string_equal(opts.target_text, "[::1]:9");
	assert_int_equal(opts.target.port, 9);
	assert_int_equal(opts.conns, 7);
	assert_int_equal(opts.size, 1000);
	assert_int_equal(opts.duration_ns, 2500000000);
	assert_int_equal(opts.warmup_ns, 500000000);
	assert_int_equal(opts.rate, 12345);
	assert_int_equal(parse_words(TARGET "--mode idle --ramp 3 --timeout 1 "
					    "--interval 0 --verify "
					    "--report-limited"),
			 0);
	assert_int_equal(opts.mode, LOAD_IDLE);
	assert_int_equal(opts.ramp_ns, 3 * OPT_NS_PER_S);
	assert_int_equal(opts.timeout_ns, OPT_NS_PER_S);
	assert_int_equal(opts.interval_ns, 0);
	assert_true(opts.verify);
	assert_true(opts.report_limited);
}

static void test_json_takes_a_file_or_stdout(void **state)
{
	static const char *const to_stdout[] = {
		TARGET "--json", "--json " TARGET, TARGET "--json -",
		"--json - " TARGET};
	static const char *const to_file[] = {
		"--json %s " TARGET, TARGET "--json %s", TARGET "--json=%s"};
	char path[] = "/tmp/coronet-test-XXXXXX", words[200];
	struct stat file;
	size_t i;

	for (i = 0; i < 4; i++) {
		assert_int_equal(parse_words(to_stdout[i]), 0);
		assert_ptr_equal(opts.json, stdout);
	}
	close(mkstemp(path));
	for (i = 0; i < 3; i++) {
		unlink(path);
		snprintf(words, sizeof(words), to_file[i], path);
		assert_int_equal(parse_words(words), 0);
		assert_non_null(opts.json);
		assert_ptr_not_equal(opts.json, stdout);
		fclose(opts.json);
		assert_int_equal(stat(path, &file), 0);
	}
	unlink(path);
}

/* One line on stderr, nothing on stdout, exit status 2. */
static void assert_refused(const char *words, const char *value)
{
	struct in_child run = in_child_run(parse_in_child, (void *)words);
	char *end = strchr(run.err, '\n');

	if (run.status != OPT_EXIT_USAGE)
		fail_msg("'%s' ended with %d", words, run.status);
	if (!end || end[1] != '\0' || run.out[0] != '\0')
		fail_msg("'%s' printed '%s' and '%s'", words, run.err, run.out);
	if (!strstr(run.err, value))
		fail_msg("'%s' is not named in: %s", value, run.err);
}

static void test_every_wrong_value_is_refused_in_one_line(void **state)
{
	static const struct {
		const char *option;
		const char *value;
	} wrong[] = {
		{"--target", "10.9.0.1"},
		{"--target", "no/where:7"},
		{"--target", "10.9.0.1:0"},
		{"--mode", "Echo"},
		{"--mode", "flood"},
		{"--conns", "0"},
		{"--conns", "-1"},
		{"--conns", "many"},
		{"--conns", "10000001"},
		{"--size", "0"},
		{"--size", "64k"},
		{"--size", "16777217"},
		{"--seconds", "0"},
		{"--seconds", "0.001"},
		{"--seconds", "soon"},
		{"--seconds", "86401"},
		{"--warmup", "-0.5"},
		{"--warmup", "x"},
		{"--rate", "fast"},
		{"--rate", "1000000001"},
		{"--ramp", "1m"},
		{"--ramp", "-1"},
		{"--timeout", "0"},
		{"--timeout", "x"},
		{"--interval", "x"},
		{"--interval", "86401"},
		{"--json", "/nowhere/file"},
		{"--json", "/tmp"},
	};
	char words[200], value[80];
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(words, sizeof(words), TARGET "%s %s", wrong[i].option,
			 wrong[i].value);
		snprintf(value, sizeof(value), "%s '%s': expected ",
			 wrong[i].option, wrong[i].value);
		assert_refused(words, value);
		assert_refused(words, ", for example --");
	}
}

static void test_conflicting_options_are_refused(void **state)
{
	assert_refused("--conns 5", "--target is missing");
	assert_refused(TARGET "--mode idle --rate 5", "--rate '5'");
	assert_refused(TARGET "--rate 5 --mode bulk", "--rate '5'");
}

static void test_unknown_words_are_refused_in_one_line(void **state)
{
	assert_refused(TARGET "--fast", "--fast");
	assert_refused(TARGET "-x", "x");
	assert_refused(TARGET "--conns", "--conns");
	assert_refused(TARGET "--verify=1", "--verify");
	assert_refused(TARGET "--report-limited=1", "--report-limited");
	assert_refused(TARGET "--s 5", "--s");
	assert_refused(TARGET "extra", "'extra'");
	assert_refused("extra", "'extra'");
	assert_refused(TARGET "-- extra", "'extra'");
	assert_refused(TARGET "--json - extra", "'extra'");
}

static void test_a_value_cannot_break_the_line(void **state)
{
	assert_refused(TARGET "--conns 5\n6\033[2J", "--conns '5?6?[2J'");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_not_given_have_their_defaults),
		cmocka_unit_test(test_target_may_be_a_name),
		cmocka_unit_test(test_every_option_is_parsed),
		cmocka_unit_test(test_json_takes_a_file_or_stdout),
		cmocka_unit_test(test_every_wrong_value_is_refused_in_one_line),
		cmocka_unit_test(test_conflicting_options_are_refused),
		cmocka_unit_test(test_unknown_words_are_refused_in_one_line),
		cmocka_unit_test(test_a_value_cannot_break_the_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
