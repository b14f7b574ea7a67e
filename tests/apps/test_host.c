/* Hosts in options: what is an address, what is a name, and what is neither. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "apps/common/host.h"

static struct opt_endpoint end;
static char name[HOST_BYTES];

static void test_address_and_port_are_read(void **state)
{
	assert_int_equal(host_parse("10.9.0.1:80", &end, name), 0);
	assert_string_equal(name, "");
	assert_string_equal(end.host, "10.9.0.1");
	assert_int_equal(end.port, 80);
	assert_int_equal(host_parse("[fd00::1]:65535", &end, name), 0);
	assert_string_equal(name, "");
	assert_string_equal(end.host, "fd00::1");
}

static void test_name_and_port_are_read(void **state)
{
	static const char *const names[] = {"a", "a.b.", "x-1.example",
					    "my_server", "1.2.3.4a"};
	char text[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "%s:7", names[i]);
		assert_int_equal(host_parse(text, &end, name), 0);
		assert_string_equal(name, names[i]);
		assert_int_equal(end.port, 7);
		assert_int_equal(end.addr_len, 0);
	}
}

static void test_neither_address_nor_name_is_refused(void **state)
{
	static const char *const wrong[] = {
		"",	      ":7",    "a",	    "a:",	 "a:0",
		"a:65536",    "a:7x",  ".:7",	    ".a:7",	 "a..b:7",
		"-a:7",	      "a-:7",  "a-.b:7",    "a b:7",	 "a/b:7",
		"1.2.3:7",    "a.1:7", "0.0.0.0:7", "fd00::1:7", "[a]:7",
		"224.0.0.1:7"};
	char longest[HOST_BYTES + 2];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (host_parse(wrong[i], &end, name) != -EINVAL)
			fail_msg("'%s' was taken", wrong[i]);
	for (unsigned i = 0; i < HOST_BYTES - 1; i++)
		longest[i] = i % 2 ? '.' : 'a';
	strcpy(longest + HOST_BYTES - 1, ":7"); /* of 253 characters */
	assert_int_equal(host_parse(longest, &end, name), 0);
	strcpy(longest + HOST_BYTES - 2, "aa:");
	assert_int_equal(host_parse(longest, &end, name), -EINVAL);
	memset(longest, 'a', 64); /* a label of 64 */
	strcpy(longest + 64, ":7");
	assert_int_equal(host_parse(longest, &end, name), -EINVAL);
	strcpy(longest + 63, ":7");
	assert_int_equal(host_parse(longest, &end, name), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_and_port_are_read),
		cmocka_unit_test(test_name_and_port_are_read),
		cmocka_unit_test(test_neither_address_nor_name_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
