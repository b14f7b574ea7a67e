/*
 * The common command line: what is taken, "--", and the configuration file.
 * (What is refused ends the program: tests/integration/test_bad_input.py.)
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

#include <coronet/net.h>

static struct net_opts opts;
static char path[] = "/tmp/coronet-opts-XXXXXX";

static int parse(int argc, char **argv)
{
	net_opts_init(&opts);
	return net_parse_args(NULL, argc, argv, &opts, NULL);
}

static void test_everything_has_a_default(void **state)
{
	char *argv[] = {"x", NULL};

	assert_int_equal(parse(1, argv), 0);
	assert_int_equal(opts.mtu, 1500);
	assert_int_equal(opts.lcore, -1);
	assert_int_equal(opts.n_links, 0);
	assert_int_equal(opts.poll, NET_POLL_AUTO);
}

static void test_an_address_is_on_the_link_before_it(void **state)
{
	char *argv[] = {"x",	  "--addr=10.7.0.1/16", "--link=tap:t0",
			"--addr", "10.8.0.1/16",	"--link=tap:t1",
			"--addr", "10.9.0.1/16",	"--addr=fd00::1/64",
			NULL};

	assert_int_equal(parse(9, argv), 0);
	assert_int_equal(opts.n_links, 2);
	assert_int_equal(opts.addr_links[0], 0);
	assert_int_equal(opts.addr_links[1], 0);
	assert_int_equal(opts.addr_links[2], 1);
	assert_int_equal(opts.addr_links[3], 1);
}

static void test_options_are_taken(void **state)
{
	char *argv[] = {"x",	       "--link",      "tap:t0",
			"--addr",      "10.9.0.1/16", "--addr=fd00::1/64",
			"--mtu",       "9000",	      "--lcore=1",
			"--poll",      "busy",	      "--stats=0.5",
			"--huge",      "off",	      "--gateway=10.9.0.254",
			"--max-conns", "1000",	      "--counted-conns=7",
			NULL};

	assert_int_equal(parse(18, argv), 0);
	assert_int_equal(opts.n_links, 1);
	assert_string_equal(opts.links[0], "tap:t0");
	assert_int_equal(opts.n_addrs, 2);
	assert_int_equal(opts.addrs[1].family, 6);
	assert_int_equal(opts.mtu, 9000);
	assert_int_equal(opts.lcore, 1);
	assert_int_equal(opts.poll, NET_POLL_BUSY);
	assert_true(opts.stats_s == 0.5);
	assert_true(opts.huge_off);
	assert_int_equal(opts.gateway4.family, 4);
	assert_int_equal(opts.max_conns, 1000);
	assert_int_equal(opts.counted_conns, 7);
}

static void test_words_after_two_dashes_are_left_for_eal(void **state)
{
	char *argv[] = {"x", "--mtu=1400", "--", "--log-level=8", "-v", NULL};

	assert_int_equal(parse(5, argv), 0);
	assert_int_equal(opts.mtu, 1400);
	assert_int_equal(opts.n_eal_args, 2);
	assert_string_equal(opts.eal_args[0], "--log-level=8");
}

static int write_config(const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	return fclose(f);
}

static void test_configuration_file_is_read_in_place(void **state)
{
	char *argv[] = {"x", "--mtu=1400", "--config", path, "--lcore=0", NULL};

	write_config("# the lab\n\nlink = memif:/tmp/a,role=server\n"
		     "  mtu=2000   # later wins\nlcore = 1\n");
	assert_int_equal(parse(5, argv), 0);
	assert_string_equal(opts.links[0], "memif:/tmp/a,role=server");
	assert_int_equal(opts.mtu, 2000);
	assert_int_equal(opts.lcore, 0);
}

static void test_broken_configuration_names_file_and_line(void **state)
{
	char *argv[] = {"x", "--config", path, NULL};

	write_config("mtu = 1500\nthis is no option\n");
	assert_int_equal(parse(3, argv), -EINVAL);
	assert_non_null(strstr(opts.error, path));
	assert_non_null(strstr(opts.error, "line 2"));
	assert_non_null(strstr(opts.error, "this is no option"));
}

static void test_missing_configuration_is_an_error(void **state)
{
	char *argv[] = {"x", "--config=/nowhere/at/all", NULL};

	assert_int_equal(parse(2, argv), -EINVAL);
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
		cmocka_unit_test(test_everything_has_a_default),
		cmocka_unit_test(test_an_address_is_on_the_link_before_it),
		cmocka_unit_test(test_options_are_taken),
		cmocka_unit_test(test_words_after_two_dashes_are_left_for_eal),
		cmocka_unit_test(test_configuration_file_is_read_in_place),
		cmocka_unit_test(test_broken_configuration_names_file_and_line),
		cmocka_unit_test(test_missing_configuration_is_an_error),
		cmocka_unit_test(test_stack_without_link_or_address_is_refused),
	};
	int fd = mkstemp(path), failed;

	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
