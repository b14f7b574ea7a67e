/* Parsing of wire's command line, and the errors for wrong values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "apps/common/opts.h"
#include "tests/apps/in_child.h"
#include "tests/apps/words.h"
#include "tests/wire/opts.h"

#define LINKS "--link tap:wa --link tap:wb "
#define MS    1000000

static struct wire_opts opts;

static void parse_words(const char *sentence)
{
	static struct words words;

	words_split(&words, "wire", sentence);
	wire_opts_parse(words.argc, words.argv, &opts);
}

static int parse_in_child(void *words)
{
	parse_words(words);
	return 0;
}

/* One line on stderr that says so, nothing on stdout, exit status 2. */
static void refuses(const char *words, const char *says)
{
	struct in_child run = in_child_run(parse_in_child, (void *)words);
	char *end = strchr(run.err, '\n');

	if (run.status != OPT_EXIT_USAGE)
		fail_msg("'%s' ended with %d", words, run.status);
	if (!end || end[1] != '\0' || run.out[0] != '\0')
		fail_msg("'%s' printed '%s' and '%s'", words, run.err, run.out);
	if (!strstr(run.err, says))
		fail_msg("'%s' does not say '%s': %s", words, says, run.err);
}

static void test_defaults_impair_nothing(void **state)
{
	parse_words(LINKS);
	for (int end = 0; end < WIRE_ENDS; end++) {
		const struct wire_conf *conf = &opts.conf[end];

		assert_int_equal(conf->loss, 0);
		assert_int_equal(conf->duplicate, 0);
		assert_int_equal(conf->corrupt, 0);
		assert_int_equal(conf->reorder, 0);
		assert_int_equal(conf->delay_ns, 0);
		assert_int_equal(conf->jitter_ns, 0);
		assert_int_equal(conf->rate_bps, 0);
		assert_int_equal(conf->mtu, 0);
		assert_false(conf->send_too_big);
		assert_true(conf->down_ns == WIRE_NEVER);
	}
	assert_int_equal(opts.seed, 1);
	assert_int_equal(opts.run_ns, 0);
	assert_int_equal(opts.lcore, -1);
	assert_null(opts.json);
	assert_false(opts.control);
	assert_string_equal(opts.links[WIRE_A].name, "wa");
	assert_string_equal(opts.links[WIRE_B].name, "wb");
}

static void test_impairments_apply_to_both_directions(void **state)
{
	parse_words(LINKS "--loss 1 --delay 10 --jitter 0.5 --reorder 100 "
			  "--reorder-by 2.5 --duplicate 0 --corrupt 0.001 "
			  "--rate 0.5 --queue 64 --down-at 1.5 --up-at 2 "
			  "--path-mtu 1000 --too-big report --mark 30000B");
	for (int end = 0; end < WIRE_ENDS; end++) {
		const struct wire_conf *conf = &opts.conf[end];

		assert_true(conf->loss == WIRE_SURE / 100);
		assert_int_equal(conf->delay_ns, 10 * MS);
		assert_int_equal(conf->jitter_ns, MS / 2);
		assert_true(conf->reorder == WIRE_SURE);
		assert_int_equal(conf->reorder_by_ns, 5 * MS / 2);
		assert_int_equal(conf->duplicate, 0);
		assert_true(conf->corrupt == WIRE_SURE / 100000);
		assert_int_equal(conf->rate_bps, 500000);
		assert_int_equal(conf->queue_pkts, 64);
		assert_int_equal(conf->queue_bytes, 0);
		assert_int_equal(conf->down_ns, 1500 * MS);
		assert_int_equal(conf->up_ns, 2000 * MS);
		assert_int_equal(conf->mark_pkts, 0);
		assert_int_equal(conf->mark_bytes, 30000);
		assert_int_equal(conf->mtu, 1000);
		assert_true(conf->send_too_big);
	}
}

static void test_one_direction_may_differ(void **state)
{
	/* Even if the general option comes later. */
	parse_words(LINKS "--a-to-b loss=2,delay=0 --loss 1 --delay 10 "
			  "--b-to-a rate=100,queue=64000B");
	assert_true(opts.conf[WIRE_A].loss == WIRE_SURE / 50);
	assert_true(opts.conf[WIRE_B].loss == WIRE_SURE / 100);
	assert_int_equal(opts.conf[WIRE_A].delay_ns, 0);
	assert_int_equal(opts.conf[WIRE_B].delay_ns, 10 * MS);
	assert_int_equal(opts.conf[WIRE_A].rate_bps, 0);
	assert_int_equal(opts.conf[WIRE_B].rate_bps, 100000000);
	assert_int_equal(opts.conf[WIRE_B].queue_pkts, 0);
	assert_int_equal(opts.conf[WIRE_B].queue_bytes, 64000);
}

static void test_last_queue_limit_counts(void **state)
{
	parse_words(LINKS "--queue 64000B --queue 64");
	assert_int_equal(opts.conf[WIRE_A].queue_pkts, 64);
	assert_int_equal(opts.conf[WIRE_A].queue_bytes, 0);
	parse_words(LINKS "--queue 64 --queue 64000B");
	assert_int_equal(opts.conf[WIRE_A].queue_pkts, 0);
	assert_int_equal(opts.conf[WIRE_A].queue_bytes, 64000);
}

static void test_other_options_are_parsed(void **state)
{
	parse_words(LINKS
		    "--seed 18446744073709551615 --hold 100 --mtu 9000 "
		    "--seconds 2.5 --lcore 1 --poll busy --huge off --control");
	assert_true(opts.seed == UINT64_MAX);
	assert_int_equal(opts.hold_pkts, 100);
	assert_int_equal(opts.mtu, 9000);
	assert_int_equal(opts.run_ns, 2500 * (int64_t)MS);
	assert_int_equal(opts.lcore, 1);
	assert_false(opts.adaptive);
	assert_true(opts.huge_off);
	assert_true(opts.control);
	parse_words(LINKS "--poll adaptive --huge auto");
	assert_true(opts.adaptive);
	assert_false(opts.huge_off);
}

static void test_links_are_two_and_different(void **state)
{
	refuses("", "--link is missing");
	refuses("--link tap:wa", "a second --link is missing");
	refuses(LINKS "--link tap:wc", "'tap:wc'");
	refuses("--link tap:wa --link tap:wa", "'tap:wa'");
	refuses("--link tap:wa --link nosuch:x", "'nosuch:x'");
	refuses("--beside-b tap:wc --link tap:wa", "a second --link is");
	refuses(LINKS "--beside-a tap:wb", "--beside-a 'tap:wb'");
	refuses(LINKS "--beside-b nosuch:x", "'nosuch:x'");
	refuses("--link memif:/e,role=boss --link tap:wa", "role is 'boss'");
}

static void test_links_may_share_an_end(void **state)
{
	static const enum wire_end ends[] = {WIRE_A, WIRE_A, WIRE_B,
					     WIRE_B, WIRE_B, WIRE_A};

	parse_words("--beside-a tap:w0 --link tap:w1 --beside-b tap:w2 "
		    "--link tap:w3 --beside-b tap:w4 --beside-a tap:w5");
	assert_int_equal(opts.n_links, 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(opts.end_of[i], ends[i]);
	assert_string_equal(opts.link_texts[WIRE_A], "tap:w1");
	assert_string_equal(opts.link_texts[WIRE_B], "tap:w3");
	assert_string_equal(opts.links[4].name, "w4");
	refuses(LINKS "--beside-a tap:w1 --beside-a tap:w2 --beside-a tap:w3 "
		      "--beside-a tap:w4 --beside-a tap:w5 --beside-a tap:w6 "
		      "--beside-a tap:w7",
		"--beside-a 'tap:w7': expected 8 links");
}

static void test_every_wrong_value_is_refused_in_one_line(void **state)
{
	static const char *const wrong[][2] = {
		{"--loss", "101"},
		{"--loss", "-1"},
		{"--loss", "x"},
		{"--loss", "1%"},
		{"--duplicate", "1e1"},
		{"--corrupt", "nan"},
		{"--reorder", "100.1"},
		{"--delay", "-1"},
		{"--delay", "10ms"},
		{"--delay", "60001"},
		{"--jitter", "x"},
		{"--reorder-by", "x"},
		{"--rate", "0.0001"},
		{"--rate", "fast"},
		{"--rate", "400001"},
		{"--queue", "0"},
		{"--queue", "x"},
		{"--queue", "B"},
		{"--queue", "0B"},
		{"--queue", "10KB"},
		{"--queue", "1000001"},
		{"--queue", "99999999999999999999B"},
		{"--queue", "999999999999999999999999999999B"},
		{"--path-mtu", "67"},
		{"--path-mtu", "9001"},
		{"--path-mtu", "1500B"},
		{"--too-big", "ignore"},
		{"--down-at", "soon"},
		{"--up-at", "-1"},
		{"--seed", "-1"},
		{"--seed", "18446744073709551616"},
		{"--hold", "0"},
		{"--hold", "1000001"},
		{"--mtu", "575"},
		{"--mtu", "9001"},
		{"--seconds", "0"},
		{"--seconds", "x"},
		{"--json", "/"},
		{"--json", "/nonexistent/x.json"},
		{"--lcore", "x"},
		{"--lcore", "1024"},
		{"--poll", "BUSY"},
		{"--huge", "on"},
	};
	char words[256], says[128];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(words, sizeof(words), LINKS "%s %s", wrong[i][0],
			 wrong[i][1]);
		snprintf(says, sizeof(says), "%s '%s': expected ", wrong[i][0],
			 wrong[i][1]);
		refuses(words, says);
		refuses(words, ", for example --");
	}
}

static void test_wrong_overrides_are_refused_in_one_line(void **state)
{
	refuses(LINKS "--a-to-b loss=x",
		"--a-to-b 'loss=x': expected loss= with percent");
	refuses(LINKS "--b-to-a delay=1,loss=101",
		"--b-to-a 'delay=1,loss=101': expected loss= with");
	refuses(LINKS "--a-to-b loss",
		"--a-to-b 'loss': expected one of the keys loss=");
	refuses(LINKS "--a-to-b color=red", "--a-to-b 'color=red'");
	refuses(LINKS "--a-to-b=", "--a-to-b ''");
	refuses(LINKS "--a-to-b los=1", "'los=1'");
	refuses(LINKS "--a-to-b queue=", "'queue='");
}

static void test_link_comes_up_after_it_went_down(void **state)
{
	refuses(LINKS "--up-at 2", "--up-at '2'");
	refuses(LINKS "--down-at 2 --up-at 2", "--up-at '2'");
	refuses(LINKS "--down-at 2 --up-at 3 --a-to-b up-at=1", "--up-at '1'");
}

static void test_unknown_words_are_refused_in_one_line(void **state)
{
	refuses(LINKS "--nosuch", "nosuch");
	refuses(LINKS "stray", "'stray'");
	refuses(LINKS "--loss", "--loss");
	refuses(LINKS "-Z", "Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults_impair_nothing),
		cmocka_unit_test(test_impairments_apply_to_both_directions),
		cmocka_unit_test(test_one_direction_may_differ),
		cmocka_unit_test(test_last_queue_limit_counts),
		cmocka_unit_test(test_other_options_are_parsed),
		cmocka_unit_test(test_links_are_two_and_different),
		cmocka_unit_test(test_links_may_share_an_end),
		cmocka_unit_test(test_every_wrong_value_is_refused_in_one_line),
		cmocka_unit_test(test_wrong_overrides_are_refused_in_one_line),
		cmocka_unit_test(test_link_comes_up_after_it_went_down),
		cmocka_unit_test(test_unknown_words_are_refused_in_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
