/*
 * Components of the log: levels, patterns of rte_log's types, and errors for
 * wrong words.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpdk_glue/glue.h"
#include "netstack/program/log.h"
#include "tests/net/fake_glue.h"

static int ends[2];
static char text[1 << 16];
static char err[300];

static int set_up(void **state)
{
	if (pipe2(ends, O_NONBLOCK))
		return -1;
	net_log_set_fd(ends[1]);
	err[0] = '\0';
	return net_log_open() ||
	       net_log_set_levels("notice", true, err, sizeof(err));
}

static int tear_down(void **state)
{
	net_log_close();
	net_log_set_fd(STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static const char *log_lines(void)
{
	ssize_t n;

	while (net_log_waiting())
		usleep(1000);
	n = read(ends[0], text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static int set_levels(const char *levels)
{
	return net_log_set_levels(levels, true, err, sizeof(err));
}

static struct level {
	const char *type;
	unsigned level, n;
} found;

static void find_type(const char *type, unsigned level, void *arg)
{
	if (strcmp(type, found.type) == 0) {
		found.level = level;
		found.n++;
	}
}

/* Returns a type's level from rte_log's list, which has it once. */
static unsigned level_of(const char *type)
{
	found = (struct level){.type = type};
	glue_log_types(find_type, NULL);
	assert_int_equal(found.n, 1);
	return found.level;
}

static void test_components_are_rte_log_types(void **state)
{
	static const char *const types[] = {
		"coronet.program", "coronet.api",     "coronet.conn",
		"coronet.listen",  "coronet.dial",    "coronet.recovery",
		"coronet.neigh",   "coronet.link",    "coronet.memory",
		"coronet.control", "coronet.capture", "coronet.stats",
		"coronet.watchdog"};

	assert_int_equal(sizeof(types) / sizeof(types[0]), NET_COMPONENTS);
	for (unsigned i = 0; i < NET_COMPONENTS; i++)
		assert_int_equal(level_of(types[i]), NET_LOG_NOTICE);
}

static void test_level_passes_its_own_and_more_severe_lines(void **state)
{
	for (unsigned at = 1; at <= 8; at++) {
		char number[] = {(char)('0' + at), '\0'};

		assert_int_equal(set_levels(number), 0);
		for (unsigned level = 1; level <= 8; level++) {
			assert_int_equal(net_log_on(NET_COMPONENT_CONN, level),
					 level <= at);
			net_log_at(level, "line");
			assert_string_equal(log_lines(),
					    level <= at ? "line\n" : "");
		}
	}
	net_log_at(0, "none");
	net_log_at(9, "none");
	assert_string_equal(log_lines(), "");
}

static void test_log_calls_have_levels(void **state)
{
	static struct net_log_limit limit;

	assert_int_equal(set_levels("coronet.program=warning"), 0);
	net_log("a notice");
	net_log_limited(&limit, "a warning");
	assert_string_equal(log_lines(), "a warning\n");
	assert_int_equal(set_levels("coronet.program=error"), 0);
	fake_now_ns += 2000000000;
	net_log_limited(&limit, "a warning");
	assert_string_equal(log_lines(), "");
	/* A suppressed line does not count as lost. */
	assert_int_equal(set_levels("coronet.program=warning"), 0);
	net_log_limited(&limit, "a warning");
	assert_string_equal(log_lines(), "a warning\n");
	assert_int_equal(set_levels("coronet.memory=error"), 0);
	net_log_seldom_of(NET_COMPONENT_MEMORY, "short");
	net_log_of(NET_COMPONENT_MEMORY, NET_LOG_ERROR, "shorter");
	assert_string_equal(log_lines(), "shorter\n");
	/* A program's last line does not depend on levels. */
	assert_int_equal(set_levels("emergency"), 0);
	net_log_line(NET_LOG_CRITICAL, "the end");
	assert_string_equal(log_lines(), "the end\n");
}

static void test_patterns_set_matching_components(void **state)
{
	assert_int_equal(set_levels("coronet.[cd]*=debug,lib.eal=error"), 0);
	assert_int_equal(level_of("coronet.conn"), NET_LOG_DEBUG);
	assert_int_equal(level_of("coronet.dial"), NET_LOG_DEBUG);
	assert_int_equal(level_of("coronet.listen"), NET_LOG_NOTICE);
	assert_int_equal(level_of("lib.eal"), NET_LOG_ERROR);
	/*
	 * A level without a component applies to all of ours, and none of
	 * DPDK's; in order.
	 */
	assert_int_equal(set_levels("info,coronet.conn=warning"), 0);
	assert_int_equal(level_of("coronet.listen"), NET_LOG_INFO);
	assert_int_equal(level_of("coronet.conn"), NET_LOG_WARNING);
	assert_int_equal(level_of("lib.eal"), NET_LOG_ERROR);
	assert_true(net_log_on(NET_COMPONENT_LISTEN, NET_LOG_INFO));
	assert_false(net_log_on(NET_COMPONENT_CONN, NET_LOG_NOTICE));
	assert_int_equal(set_levels("*=notice"), 0);
	assert_int_equal(level_of("lib.eal"), NET_LOG_NOTICE);
	assert_int_equal(level_of("coronet.conn"), NET_LOG_NOTICE);
}

static void test_wrong_levels_are_refused(void **state)
{
	static const struct wrong {
		const char *text, *says;
	} all[] = {
		{"", "'': expected [COMPONENT=]LEVEL"},
		{"loud", "'loud': expected"},
		{"0", "'0': expected"},
		{"9", "'9': expected"},
		{"10", "'10': expected"},
		{"Debug", "'Debug': expected"},
		{"coronet.conn", "'coronet.conn': expected"},
		{"coronet.conn=", "'coronet.conn=': expected"},
		{"=debug", "'=debug': expected"},
		{"coronet.conn=debug,", "'': expected"},
		{"coronet.conn=debug,x=loud", "'x=loud': expected"},
		{"coronet.conn:debug", "'coronet.conn:debug': expected"},
		{"0123456789012345678901234567890123456789012345678901234567890"
		 "123=debug",
		 "expected"},
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_int_equal(
			net_log_check_levels(all[i].text, err, sizeof(err)),
			-EINVAL);
		assert_int_equal(set_levels(all[i].text), -EINVAL);
		if (!strstr(err, all[i].says))
			fail_msg("'%s' says: %s", all[i].text, err);
		assert_int_equal(level_of("coronet.conn"), NET_LOG_NOTICE);
	}
	assert_int_equal(net_log_check_levels("none=debug", err, sizeof(err)),
			 0);
	assert_int_equal(set_levels("none=debug"), -ENOENT);
	assert_string_equal(err,
			    "'none': there is no such component; "
			    "'coronet-ctl log.level' lists the components");
	assert_int_equal(set_levels("coronet.conn=info,none=debug"), -ENOENT);
	assert_int_equal(level_of("coronet.conn"), NET_LOG_NOTICE);
	/* DPDK's drivers are unknown before EAL has started. */
	assert_int_equal(
		net_log_set_levels("none=debug", false, err, sizeof(err)), 0);
}

static void test_program_has_its_own_component(void **state)
{
	static const char *const wrong[] = {"",
					    "mine",
					    "coronet.",
					    "coronet.*",
					    "coronet.a=b",
					    "coronet.a b",
					    "coronet."
					    "0123456789012345678901234567890123"
					    "456789012345678901234567890"};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(net_log_name(wrong[i]), -EINVAL);
	assert_int_equal(net_log_name(NULL), -EINVAL);
	assert_int_equal(net_log_name("coronet.mine"), 0);
	assert_int_equal(set_levels("coronet.mine=error"), 0);
	net_log("unwanted");
	assert_string_equal(log_lines(), "");
	assert_int_equal(set_levels("coronet.mine=notice"), 0);
	net_log("wanted");
	assert_string_equal(log_lines(), "wanted\n");
}

int main(void)
{
#define CASE(test_) cmocka_unit_test_setup_teardown(test_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(test_components_are_rte_log_types),
		CASE(test_level_passes_its_own_and_more_severe_lines),
		CASE(test_log_calls_have_levels),
		CASE(test_patterns_set_matching_components),
		CASE(test_wrong_levels_are_refused),
		CASE(test_program_has_its_own_component),
	};

	return cmocka_run_group_tests_name("log_level", tests, NULL, NULL);
}
