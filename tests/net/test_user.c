/*
 * The value of --user, and what is refused before a link is opened.
 */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/net_user.h>

#include "netstack/program/privileges.h"

#define NO_ID "54321" /* of no user and no group of this machine */

static char expected[256];

static struct net_user parse(const char *text)
{
	struct net_user user = {0};

	assert_int_equal(
		net_user_parse(text, &user, expected, sizeof(expected)), 0);
	return user;
}

static void refuse(const char *text, const char *why)
{
	struct net_user user = {.uid = 7};

	assert_int_equal(
		net_user_parse(text, &user, expected, sizeof(expected)),
		-EINVAL);
	assert_non_null(strstr(expected, why));
	assert_int_equal(user.uid, 7);
}

static void test_name_has_its_main_group(void **state)
{
	const struct passwd nobody = *getpwnam("nobody");
	struct net_user user = parse("nobody");

	assert_int_equal(user.uid, nobody.pw_uid);
	assert_int_equal(user.gid, nobody.pw_gid);
	assert_string_equal(user.name, "nobody");
}

static void test_group_by_name_or_number(void **state)
{
	gid_t daemons = getgrnam("daemon")->gr_gid;

	assert_int_equal(parse("nobody:daemon").gid, daemons);
	assert_int_equal(parse("nobody:" NO_ID).gid, 54321);
}

static void test_number_of_a_user_with_a_name(void **state)
{
	const struct passwd nobody = *getpwnam("nobody");
	struct net_user user;
	char text[16];

	snprintf(text, sizeof(text), "%u", nobody.pw_uid);
	user = parse(text);
	assert_string_equal(user.name, "nobody");
	assert_int_equal(user.gid, nobody.pw_gid);
}

static void test_number_without_a_name_needs_a_group(void **state)
{
	struct net_user user = parse(NO_ID ":12345");

	assert_int_equal(user.uid, 54321);
	assert_int_equal(user.gid, 12345);
	assert_string_equal(user.name, "");
	refuse(NO_ID, NO_ID ":" NO_ID);
}

static void test_wrong_values_are_refused(void **state)
{
	refuse("", "a user of this machine");
	refuse(":nogroup", "a user of this machine");
	refuse("no-such-user", "a user of this machine");
	refuse("/nonexistent/%", "a user of this machine");
	refuse("-1", "a user of this machine");
	refuse("4294967295:1", "a user of this machine");
	refuse("99999999999:1", "a user of this machine");
	refuse("nobody:", "a group of this machine");
	refuse("nobody:no-such-group", "a group of this machine");
	refuse("nobody:4294967295", "a group of this machine");
	refuse("nobody:daemon:daemon", "a group of this machine");
}

static void test_root_is_refused(void **state)
{
	refuse("root", "other than root");
	refuse("0", "other than root");
	refuse("nobody:root", "other than root");
	refuse("nobody:0", "other than root");
}

static void test_long_name_is_refused(void **state)
{
	char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	refuse(text, "a user of this machine");
}

static void test_another_dpdk_process_excludes_it(void **state)
{
	struct net_opts opts;

	net_opts_init(&opts);
	opts.user = "nobody";
	opts.check = true;
	assert_int_equal(net_privileges_check(&opts), 0);
	opts.dpdk_prefix = "x";
	assert_int_equal(net_privileges_check(&opts), -EINVAL);
	assert_non_null(strstr(opts.error, "--dpdk-prefix"));
}

static void test_nothing_is_given_up_without_the_options(void **state)
{
	struct net_opts opts;
	uid_t uid = 1;
	gid_t gid = 1;

	net_opts_init(&opts);
	assert_int_equal(net_privileges_check(&opts), 0);
	net_privileges_ids(&uid, &gid);
	assert_int_equal(uid, 0);
	assert_int_equal(net_user_files_begin(&opts), 0);
	net_user_files_end();
	assert_int_equal(net_privileges_drop(&opts), 0);
}

/* setfsuid() returns the ID before, and does not change it to -1. */
static void test_files_are_the_users_for_a_while(void **state)
{
	gid_t before[64], now[64];
	struct net_opts opts;
	int n = getgroups(64, before);

	net_opts_init(&opts);
	opts.user = "nobody";
	if (geteuid() != 0 || net_user_files_begin(&opts) < 0)
		skip(); /* not root, or that of a user namespace */
	assert_int_equal(setfsuid((uid_t)-1), getpwnam("nobody")->pw_uid);
	assert_int_equal(setfsgid((gid_t)-1), getpwnam("nobody")->pw_gid);
	net_user_files_end();
	assert_int_equal(setfsuid((uid_t)-1), 0);
	assert_int_equal(setfsgid((gid_t)-1), 0);
	assert_int_equal(getgroups(64, now), n);
	assert_memory_equal(now, before, (size_t)n * sizeof(*now));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_has_its_main_group),
		cmocka_unit_test(test_group_by_name_or_number),
		cmocka_unit_test(test_number_of_a_user_with_a_name),
		cmocka_unit_test(test_number_without_a_name_needs_a_group),
		cmocka_unit_test(test_wrong_values_are_refused),
		cmocka_unit_test(test_root_is_refused),
		cmocka_unit_test(test_long_name_is_refused),
		cmocka_unit_test(test_another_dpdk_process_excludes_it),
		cmocka_unit_test(test_nothing_is_given_up_without_the_options),
		cmocka_unit_test(test_files_are_the_users_for_a_while),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
