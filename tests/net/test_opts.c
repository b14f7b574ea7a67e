/*
 * The common command line: valid options, "--", and the configuration file.
 * (Errors end the program: tests/integration/test_bad_input.py.)
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <argp.h>

#include <coronet/net.h>
#include <coronet/net_reload.h>

#include "netstack/program/capture.h"
#include "tests/apps/in_child.h"

static struct net_opts opts;
static char path[] = "/tmp/coronet-opts-XXXXXX";

static int parse_options(int argc, char **argv)
{
	net_opts_init(&opts);
	return net_parse_args(NULL, argc, argv, &opts, NULL);
}

static void test_every_option_has_a_default(void **state)
{
	char *argv[] = {"x", NULL};

	assert_int_equal(parse_options(1, argv), 0);
	assert_int_equal(opts.mtu, 1500);
	assert_int_equal(opts.n_lcores, 0);
	assert_int_equal(opts.n_links, 0);
	assert_int_equal(opts.poll, NET_POLL_AUTO);
}

static void test_address_applies_to_the_preceding_link(void **state)
{
	char *argv[] = {"x",	  "--addr=10.7.0.1/16", "--link=tap:t0",
			"--addr", "10.8.0.1/16",	"--link=tap:t1",
			"--addr", "10.9.0.1/16",	"--addr=fd00::1/64",
			NULL};

	assert_int_equal(parse_options(9, argv), 0);
	assert_int_equal(opts.n_links, 2);
	assert_int_equal(opts.addr_links[0], 0);
	assert_int_equal(opts.addr_links[1], 0);
	assert_int_equal(opts.addr_links[2], 1);
	assert_int_equal(opts.addr_links[3], 1);
}

static void test_dhcp_leases_once_for_each_link(void **state)
{
	char *argv[] = {"x",
			"--link=tap:t0",
			"--addr=dhcp",
			"--link=tap:t1",
			"--addr=10.9.0.1/16",
			"--addr=dhcp",
			NULL};

	assert_int_equal(parse_options(6, argv), 0);
	assert_int_equal(opts.n_addrs, 3);
	assert_int_equal(opts.addr_links[0], 0);
	assert_int_equal(opts.addrs[0].family, 4);
	assert_int_equal(opts.addrs[0].prefix_len, 0);
	assert_int_equal(opts.addrs[1].prefix_len, 16);
	assert_int_equal(opts.addr_links[2], 1);
	assert_int_equal(opts.addrs[2].prefix_len, 0);
}

static void test_auto_stands_beside_dhcp_on_each_link(void **state)
{
	char *argv[] = {"x",	       "--link=tap:t0", "--addr=dhcp",
			"--addr=auto", "--link=tap:t1", "--addr=auto",
			NULL};

	assert_int_equal(parse_options(6, argv), 0);
	assert_int_equal(opts.n_addrs, 3);
	assert_int_equal(opts.addrs[0].family, 4);
	assert_int_equal(opts.addrs[1].family, 6);
	assert_int_equal(opts.addrs[1].prefix_len, 0);
	assert_int_equal(opts.addr_links[1], 0);
	assert_int_equal(opts.addrs[2].family, 6);
	assert_int_equal(opts.addr_links[2], 1);
}

static void test_options_are_parsed(void **state)
{
	char *argv[] = {"x",
			"--link",
			"tap:t0",
			"--addr",
			"10.9.0.1/16",
			"--addr=fd00::1/64",
			"--mtu",
			"9000",
			"--lcore=1",
			"--poll",
			"busy",
			"--stats=0.5",
			"--huge",
			"off",
			"--gateway=10.9.0.254",
			"--max-conns",
			"1000",
			"--counted-conns=7",
			"--trace-conns=5",
			"--memory",
			"256M",
			"--watchdog=250",
			"--rmem-max",
			"16M",
			"--cc=bbr",
			"--wmem-max",
			"8M",
			"--control=/run/c",
			"--metrics=[::1]:9464",
			"--log-level=coronet.conn=info,error",
			"--log-to=journal",
			NULL};

	assert_int_equal(parse_options(31, argv), 0);
	assert_string_equal(opts.control, "/run/c");
	assert_int_equal(opts.metrics.family, 6);
	assert_int_equal(opts.metrics.port, 9464);
	assert_string_equal(opts.log_level, "coronet.conn=info,error");
	assert_string_equal(opts.log_to, "journal");
	assert_string_equal(opts.cc, "bbr");
	assert_int_equal(opts.watchdog_ms, 250);
	assert_int_equal(opts.n_links, 1);
	assert_string_equal(opts.links[0], "tap:t0");
	assert_int_equal(opts.n_addrs, 2);
	assert_int_equal(opts.addrs[1].family, 6);
	assert_int_equal(opts.mtu, 9000);
	assert_int_equal(opts.n_lcores, 1);
	assert_int_equal(opts.lcores[0], 1);
	assert_int_equal(opts.poll, NET_POLL_BUSY);
	assert_true(opts.stats_s == 0.5);
	assert_true(opts.huge_off);
	assert_int_equal(opts.gateway4.family, 4);
	assert_int_equal(opts.max_conns, 1000);
	assert_int_equal(opts.counted_conns, 7);
	assert_int_equal(opts.trace_conns, 5);
	assert_int_equal(opts.memory_bytes, 256 << 20);
	assert_int_equal(opts.rmem_max, 16 << 20);
	assert_int_equal(opts.wmem_max, 8 << 20);
}

static void test_options_are_set_by_name(void **state)
{
	net_opts_init(&opts);
	assert_int_equal(net_opts_set(&opts, "mtu", "9000"), 0);
	assert_int_equal(opts.mtu, 9000);
	assert_int_equal(net_opts_set(&opts, "gateway", "10.9.0.254"), 0);
	assert_int_equal(opts.gateway4.family, 4);
	assert_int_equal(net_opts_set(&opts, "port", "80"), -ENOENT);
	assert_string_equal(opts.error, "");
	assert_int_equal(net_opts_set(&opts, "gateway", "224.0.0.1"), -EINVAL);
	assert_string_equal(opts.error,
			    "--gateway '224.0.0.1': expected the address of a "
			    "host, for example --gateway 10.9.0.254 or "
			    "--gateway fd00::fe");
	assert_int_equal(net_opts_set(&opts, "route", NULL), -EINVAL);
	assert_non_null(strstr(opts.error, "--route ''"));
}

static int capture_of(const char *text, struct net_capture *out)
{
	static char copy[128], error[256];
	int err;

	strcpy(copy, text);
	err = net_capture_parse(copy, out, error, sizeof(error));
	assert_true(err == 0 || error[0]);
	error[0] = '\0';
	return err;
}

static void test_capture_options_are_parsed(void **state)
{
	static const char *const wrong[] = {
		"",	      ",packets=1",  "a,packets=0",
		"a,packets=", "a,packets",   "a,packets=1x",
		"a,bytes=1",  "a,bytes=1T",  "a,bytes=1KK",
		"a,snap=0",   "a,snap=9217", "a,b=1",
		"a,",
	};
	struct net_capture capture;

	assert_int_equal(capture_of("/tmp/a", &capture), 0);
	assert_string_equal(capture.path, "/tmp/a");
	assert_null(capture.filter);
	assert_int_equal(capture.max_bytes, 0);
	assert_int_equal(capture_of("a,packets=7,bytes=3M,snap=64,"
				    "filter=port 1,bytes=2",
				    &capture),
			 0);
	assert_string_equal(capture.path, "a");
	assert_string_equal(capture.filter, "port 1,bytes=2");
	assert_int_equal(capture.max_packets, 7);
	assert_int_equal(capture.max_bytes, 3 << 20);
	assert_int_equal(capture.snap_bytes, 64);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(capture_of(wrong[i], &capture), -EINVAL);
}

static void test_exception_applies_to_the_preceding_link(void **state)
{
	char *argv[] = {"x",	       "--link=tap:t0", "--link=tap:t1",
			"--exception", "tap:k1,tcp=22", NULL};

	assert_int_equal(parse_options(5, argv), 0);
	assert_null(opts.exceptions[0]);
	assert_string_equal(opts.exceptions[1], "tap:k1,tcp=22");
}

static void test_words_after_two_dashes_are_left_for_eal(void **state)
{
	char *argv[] = {"x", "--mtu=1400", "--", "--log-level=8", "-v", NULL};

	assert_int_equal(parse_options(5, argv), 0);
	assert_int_equal(opts.mtu, 1400);
	assert_int_equal(opts.watchdog_ms, 1000); /* by default */
	assert_int_equal(opts.n_eal_args, 2);
	assert_string_equal(opts.eal_args[0], "--log-level=8");
}

static void test_lcore_ranges_are_parsed(void **state)
{
	char *argv[] = {"x", "--lcore=9", "--lcores=2-5,8", "--shards=3", NULL};
	char *one[] = {"x", "--lcores=2-5,8", "--lcore=9", NULL};
	static const int cpus[] = {2, 3, 4, 5, 8};

	assert_int_equal(parse_options(4, argv), 0);
	assert_int_equal(opts.shards, 3);
	assert_int_equal(opts.n_lcores, 5);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(opts.lcores[i], cpus[i]);
	assert_int_equal(parse_options(3, one), 0);
	assert_int_equal(opts.n_lcores, 1);
	assert_int_equal(opts.lcores[0], 9);
}

static int parse_lcores(void *text)
{
	char option[128];
	char *argv[] = {"x", option, NULL};

	snprintf(option, sizeof(option), "--lcores=%s", (char *)text);
	return parse_options(2, argv) == 0 ? 0 : 3;
}

static void test_wrong_lcores_are_named(void **state)
{
	static const char *const bad[][2] = {
		{"", "numbers and ranges of them"},
		{"1,", "numbers and ranges of them"},
		{",1", "numbers and ranges of them"},
		{"1-", "numbers and ranges of them"},
		{"-1", "numbers and ranges of them"},
		{"1 2", "numbers and ranges of them"},
		{"1x", "numbers and ranges of them"},
		{"1-2-3", "numbers and ranges of them"},
		{"5-2", "ranges that begin with the smaller number"},
		{"1-3,2", "CPU 2 is named twice"},
		{"1024", "numbers from 0 to 1023"},
		{"0-99999999999999999999", "numbers from 0 to 1023"},
		{"99999999999999999999", "numbers from 0 to 1023"},
		{"0-64", "at most 64 CPUs"},
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct in_child child =
			in_child_run(parse_lcores, (void *)bad[i][0]);

		assert_int_equal(child.status, 2);
		assert_non_null(strstr(child.err, bad[i][1]));
		assert_non_null(strstr(child.err, bad[i][0]));
	}
}

static int parse_memory(void *text)
{
	char option[64];
	char *argv[] = {"x", option, NULL};

	snprintf(option, sizeof(option), "--memory=%s", (char *)text);
	return parse_options(2, argv) == 0 ? 0 : 3;
}

static void test_size_needs_a_unit_and_a_valid_value(void **state)
{
	static const char *const good[] = {"1M", "1024K", "2G", "65536G"};
	static const char *const bad[] = {"",
					  "256",
					  "M",
					  "0M",
					  "-1M",
					  "1023K",
					  "1.5G",
					  "256MB",
					  "256m",
					  " 256M",
					  "99999999G",
					  "1T",
					  "99999999999999999999G"};

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(
			in_child_run(parse_memory, (void *)good[i]).status, 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct in_child child =
			in_child_run(parse_memory, (void *)bad[i]);

		assert_int_equal(child.status, 2);
		assert_non_null(strstr(child.err,
				       "a size from 1M to 65536G, for example "
				       "--memory 256M"));
	}
}

static int write_config(const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	return fclose(f);
}

static void test_configuration_file_is_read_in_option_order(void **state)
{
	char *argv[] = {"x", "--mtu=1400", "--config", path, "--lcore=0", NULL};

	write_config("# the lab\n\nlink = memif:/tmp/a,role=server\n"
		     "  mtu=2000   # later wins\nlcore = 1\n");
	assert_int_equal(parse_options(5, argv), 0);
	assert_string_equal(opts.links[0], "memif:/tmp/a,role=server");
	assert_int_equal(opts.mtu, 2000);
	assert_int_equal(opts.n_lcores, 1);
	assert_int_equal(opts.lcores[0], 0);
}

static void test_broken_configuration_names_file_and_line(void **state)
{
	char *argv[] = {"x", "--config", path, NULL};

	write_config("mtu = 1500\nthis is no option\n");
	assert_int_equal(parse_options(3, argv), -EINVAL);
	assert_non_null(strstr(opts.error, path));
	assert_non_null(strstr(opts.error, "line 2"));
	assert_non_null(strstr(opts.error, "this is no option"));
}

/* A program with options of its own, among them one without a value. */
static struct own {
	struct net_opts net;
	const char *root;
	unsigned loud;
} own;

static const struct argp_option inner_options[] = {
	{"root", 1, "PATH", 0, "", 0},
	{"loud", 2, NULL, 0, "", 0},
	{0},
};

static error_t parse_inner(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 1:
		if (*arg != '/') {
			fprintf(stderr, "%s--root\n",
				net_config_place(state, "root"));
			exit(2);
		}
		own.root = arg;
		return 0;
	case 2:
		own.loud++;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_outer(int key, char *arg, struct argp_state *state)
{
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	state->child_inputs[1] = &own.net;
	return 0;
}

static int parse_own(int argc, char **argv)
{
	static const struct argp inner = {.options = inner_options,
					  .parser = parse_inner};
	static const struct argp_child children[] = {
		{&inner, 0, NULL, 0}, {&net_argp, 0, NULL, 0}, {0}};
	static const struct argp outer = {.parser = parse_outer,
					  .children = children};

	own = (struct own){0};
	net_opts_init(&own.net);
	return net_parse_args(&outer, argc, argv, &own.net, &own);
}

static int parse_config(const char *text)
{
	char *argv[] = {"x", "--config", path, NULL};

	write_config(text);
	return parse_own(3, argv);
}

static int parse_config_status(void *text)
{
	return parse_config(text) == 0 ? 0 : 3;
}

static void test_every_option_may_be_in_a_file(void **state)
{
	assert_int_equal(parse_config("root = /srv\nmtu = 1400\nloud\n"), 0);
	assert_string_equal(own.root, "/srv");
	assert_int_equal(own.net.mtu, 1400);
	assert_int_equal(own.loud, 1);
}

static void test_switches_are_on_or_off(void **state)
{
	assert_int_equal(parse_config("loud = yes\nloud=on\nloud = true\n"
				      "loud = 1 # indeed\n"),
			 0);
	assert_int_equal(own.loud, 4);
	assert_int_equal(parse_config("loud = no\nloud=off\nloud = false\n"
				      "loud = 0\n"),
			 0);
	assert_int_equal(own.loud, 0);
	assert_int_equal(parse_config("\nloud = maybe\n"), -EINVAL);
	assert_non_null(strstr(own.net.error, "line 2"));
	assert_non_null(strstr(own.net.error, "maybe"));
	assert_int_equal(parse_config("loud =\n"), -EINVAL);
}

static void test_only_a_blank_makes_a_hash_a_comment(void **state)
{
	assert_int_equal(parse_config("root = /a#b # a comment\n"
				      "#root = /c\n \t # root = /d\n"),
			 0);
	assert_string_equal(own.root, "/a#b");
	assert_int_equal(parse_config("loud # = off\n"), 0);
	assert_int_equal(own.loud, 1);
	assert_int_equal(parse_config("root=/a\t#b\n"), 0);
	assert_string_equal(own.root, "/a");
}

static void test_quoted_value_may_have_blanks(void **state)
{
	assert_int_equal(parse_config("root = \"/a #b = 'c' \"  # x\n"), 0);
	assert_string_equal(own.root, "/a #b = 'c' ");
	assert_int_equal(parse_config("root = /a\"b\n"), 0);
	assert_string_equal(own.root, "/a\"b");
	assert_int_equal(parse_config("mtu = 1400\nroot = \"/a\n"), -EINVAL);
	assert_non_null(strstr(own.net.error, "line 2"));
	assert_int_equal(parse_config("root = \"/a\" b\n"), -EINVAL);
}

static void test_unknown_option_names_file_and_line(void **state)
{
	static const char *const texts[] = {
		"mtu = 1400\n\nnosuch = 1\n", "#\n\nnosuch\n",
		"\n\nnosuch # mtu = 1\n",
		/* argp accepts a unique prefix of a name; a file does not. */
		"\n\nnosuch=\nmtu = 1\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(parse_config(texts[i]), -EINVAL);
		assert_non_null(strstr(own.net.error, path));
		assert_non_null(strstr(own.net.error, "line 3"));
		assert_non_null(strstr(own.net.error, "'nosuch'"));
	}
	assert_int_equal(parse_config("roo = /a\n"), -EINVAL);
	assert_int_equal(parse_config("--root = /a\n"), -EINVAL);
	assert_int_equal(parse_config("config = /a\n"), -EINVAL);
	assert_int_equal(parse_config("help\n"), -EINVAL);
	assert_int_equal(parse_config("root\n"), -EINVAL);
	assert_non_null(strstr(own.net.error, "root = PATH"));
	assert_int_equal(parse_config("no\x1b[2Jsuch\n"), -EINVAL);
	assert_null(strchr(own.net.error, '\x1b'));
}

static void test_wrong_value_names_file_and_line(void **state)
{
	struct in_child child;
	char place[64];

	child = in_child_run(parse_config_status, "\nmtu = 1\nroot = /a\n");
	assert_int_equal(child.status, 2);
	snprintf(place, sizeof(place), "--config '%s', line 2: --mtu", path);
	assert_non_null(strstr(child.err, place));
	child = in_child_run(parse_config_status, "\nmtu = 1400\nroot = a\n");
	assert_int_equal(child.status, 2);
	snprintf(place, sizeof(place), "--config '%s', line 3: --root", path);
	assert_non_null(strstr(child.err, place));
}

static int parse_words_after_config(void *unused)
{
	char *argv[] = {"x", "--config", path, "stray", "--root=b", NULL};

	return parse_own(5, argv);
}

static void test_error_in_a_command_line_word_names_no_line(void **state)
{
	struct in_child child;

	write_config("root = /a\n");
	child = in_child_run(parse_words_after_config, NULL);
	assert_int_equal(child.status, 2);
	assert_non_null(strstr(child.err, "--root"));
	assert_null(strstr(child.err, "--config"));
}

static void test_too_many_options_are_an_error(void **state)
{
	char *argv[] = {"x", "--config", path, NULL};
	FILE *f = fopen(path, "w");

	for (int i = 0; i < 600; i++)
		fputs("mtu = 1400\n", f);
	fclose(f);
	assert_int_equal(parse_options(3, argv), -EINVAL);
	assert_non_null(strstr(opts.error, "line 512"));
}

static void test_missing_configuration_is_an_error(void **state)
{
	char *argv[] = {"x", "--config=/nowhere/at/all", NULL};

	assert_int_equal(parse_options(2, argv), -EINVAL);
	assert_non_null(strstr(opts.error, "/nowhere/at/all"));
}

static void test_stack_without_link_or_address_is_refused(void **state)
{
	struct net_stack *stack;

	net_opts_init(&opts);
	assert_int_equal(net_stack_open(&opts, &stack), -EINVAL);
	assert_non_null(strstr(opts.error, "--link"));
	opts.links[opts.n_links++] = "ring:r";
	assert_int_equal(net_stack_open(&opts, &stack), -EINVAL);
	assert_non_null(strstr(opts.error, "--addr"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_option_has_a_default),
		cmocka_unit_test(test_address_applies_to_the_preceding_link),
		cmocka_unit_test(test_dhcp_leases_once_for_each_link),
		cmocka_unit_test(test_auto_stands_beside_dhcp_on_each_link),
		cmocka_unit_test(test_options_are_parsed),
		cmocka_unit_test(test_options_are_set_by_name),
		cmocka_unit_test(test_capture_options_are_parsed),
		cmocka_unit_test(test_exception_applies_to_the_preceding_link),
		cmocka_unit_test(test_size_needs_a_unit_and_a_valid_value),
		cmocka_unit_test(test_words_after_two_dashes_are_left_for_eal),
		cmocka_unit_test(
			test_configuration_file_is_read_in_option_order),
		cmocka_unit_test(test_broken_configuration_names_file_and_line),
		cmocka_unit_test(test_every_option_may_be_in_a_file),
		cmocka_unit_test(test_switches_are_on_or_off),
		cmocka_unit_test(test_only_a_blank_makes_a_hash_a_comment),
		cmocka_unit_test(test_quoted_value_may_have_blanks),
		cmocka_unit_test(test_unknown_option_names_file_and_line),
		cmocka_unit_test(test_wrong_value_names_file_and_line),
		cmocka_unit_test(
			test_error_in_a_command_line_word_names_no_line),
		cmocka_unit_test(test_too_many_options_are_an_error),
		cmocka_unit_test(test_missing_configuration_is_an_error),
		cmocka_unit_test(test_lcore_ranges_are_parsed),
		cmocka_unit_test(test_wrong_lcores_are_named),
		cmocka_unit_test(test_stack_without_link_or_address_is_refused),
	};
	int fd = mkstemp(path), failed;

	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
