/*
 * Addresses as text.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <coronet/net.h>

static char text[NET_ADDR_TEXT_MAX];

static void round_trip(const char *from, const char *to)
{
	struct net_addr addr;

	assert_int_equal(net_addr_parse(from, 80, &addr), 0);
	assert_string_equal(net_addr_format(&addr, text, sizeof(text)), to);
}

static void test_addresses_are_read_and_written(void **state)
{
	round_trip("10.9.0.1:7777", "10.9.0.1:7777");
	round_trip("10.9.0.1", "10.9.0.1:80");
	round_trip("[fd00::1]:65535", "[fd00::1]:65535");
	round_trip("[fd00::1]", "[fd00::1]:80");
	round_trip("fd00::1", "[fd00::1]:80");
	net_addr_format(&net_addr_any(5), text, sizeof(text));
	assert_string_equal(text, "*:5");
}

static void test_wrong_addresses_are_refused(void **state)
{
	static const char *const wrong[] = {"",
					    "10.9.0",
					    "10.9.0.256:1",
					    "10.9.0.1:0",
					    "10.9.0.1:65536",
					    "10.9.0.1:",
					    "10.9.0.1:x",
					    "[fd00::1",
					    "[10.9.0.1]:1",
					    "host:80",
					    "10.9.0.1:+1",
					    "fd00::1::2",
					    "[fd00::1]80",
					    "10.9.0.1: 1"};
	struct net_addr addr = {.port = 4242};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (net_addr_parse(wrong[i], 80, &addr) != -EINVAL)
			fail_msg("'%s' was taken", wrong[i]);
	assert_int_equal(net_addr_parse("10.9.0.1", -1, &addr), -EINVAL);
	assert_int_equal(addr.port, 4242);
}

static void test_only_valid_prefixes_are_parsed(void **state)
{
	static const char *const wrong[] = {
		"10.9.0.1",  "10.9.0.1/0", "10.9.0.1/33", "fd00::1/129",
		"10.9.0.1/", "/16",	   "10.9.0.1/1x", "10.9.0.1/-1"};
	struct net_addr addr;

	assert_int_equal(net_addr_parse_prefix("10.9.0.1/16", &addr), 0);
	assert_int_equal(addr.family, 4);
	assert_int_equal(addr.prefix_len, 16);
	assert_int_equal(net_addr_parse_prefix("fd00::1/64", &addr), 0);
	assert_int_equal(addr.family, 6);
	assert_int_equal(addr.prefix_len, 64);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (net_addr_parse_prefix(wrong[i], &addr) != -EINVAL)
			fail_msg("'%s' was taken", wrong[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses_are_read_and_written),
		cmocka_unit_test(test_wrong_addresses_are_refused),
		cmocka_unit_test(test_only_valid_prefixes_are_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
