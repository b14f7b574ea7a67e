/*
 * coronet-dns: zones that are refused when they are loaded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dns_zone.h"

static void test_wrong_zone_is_refused_with_its_reason(void **state)
{
	static const char head[] = "@ 9 IN SOA a. b. 1 2 3 4 5\n@ 9 IN NS a.\n";
	static const struct {
		const char *text, *reason;
	} wrong[] = {
		{"www 9 IN A 192.0.2.300\n", "line 3: "},
		{"www.example.net. 9 IN A 192.0.2.3\n",
		 "line 3: www.example.net. is outside the zone"},
		{"a 9 IN CNAME b\na 9 IN A 192.0.2.3\n",
		 "a.example.com. has a CNAME and other records"},
		{"a 9 IN CNAME b\na 9 IN CNAME c\n",
		 "a.example.com. has more than one CNAME"},
		{"a 9 IN DNAME b\n", "DNAME is not supported"},
		{"*.a 9 IN NS b\n", "a wildcard cannot be a delegation"},
		{"a 9 IN SOA a. b. 1 2 3 4 5\n", "SOA below the zone's apex"},
		{"@ 9 IN SOA a. b. 2 2 3 4 5\n", "more than one SOA"},
		{"a 9 CH A 192.0.2.1\n", "only class IN"},
		{"$INCLUDE other\n", "line 3: $INCLUDE is not supported"},
	};
	char text[300], error[ZONE_ERROR_MAX];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "%s%s", head, wrong[i].text);
		error[0] = 0;
		assert_null(dns_zone_from("example.com", text, strlen(text),
					  error));
		if (!strstr(error, wrong[i].reason))
			fail_msg("'%s' lacks '%s'", error, wrong[i].reason);
	}
	assert_null(dns_zone_from("a..b", head, strlen(head), error));
	assert_non_null(strstr(error, "not a domain name"));
	assert_null(dns_zone_from("example.com", "@ 9 IN NS a.\n", 13, error));
	assert_non_null(strstr(error, "no SOA"));
	assert_null(dns_zone_from("example.com", head, 27, error));
	assert_non_null(strstr(error, "no NS"));
}

static void test_zone_that_cannot_be_read_is_refused(void **state)
{
	FILE *folder = fopen("/tmp", "r");
	char error[ZONE_ERROR_MAX];

	assert_non_null(folder);
	assert_null(zone_load("example.com", folder, error));
	assert_non_null(strstr(error, "Is a directory"));
	fclose(folder);
}

static void test_set_that_exceeds_a_message_is_refused(void **state)
{
	size_t len = 200000, used;
	char *big = malloc(len), error[ZONE_ERROR_MAX];

	used = (size_t)sprintf(big,
			       "@ 9 IN SOA a. b. 1 2 3 4 5\n@ 9 IN NS a.\n");
	for (unsigned i = 0; i < 4200; i++)
		used += (size_t)sprintf(big + used, "big 9 IN A 10.0.%u.%u\n",
					i / 256, i % 256);
	assert_null(dns_zone_from("example.com", big, used, error));
	/* At 16 bytes a record, without reading the rest. */
	assert_string_equal(error, "line 4065: big.example.com. has more "
				   "records than an answer holds");
	free(big);
}

/*
 * Sets that are given with addresses: the records count although the addresses
 * may be left out. Each name takes more than 40 bytes.
 */
static void test_set_of_names_that_exceeds_a_message_is_refused(void **state)
{
	static const char *const types[] = {"NS", "MX 1", "SRV 1 1 1"};
	size_t len = 400000, used;
	char *big = malloc(len), error[ZONE_ERROR_MAX];

	for (unsigned t = 0; t < 3; t++) {
		used = (size_t)sprintf(
			big, "@ 9 IN SOA a. b. 1 2 3 4 5\n@ 9 IN NS a.\n");
		for (unsigned i = 0; i < 1700; i++)
			used += (size_t)sprintf(
				big + used, "big 9 IN %s a%039u.example.com.\n",
				types[t], i);
		error[0] = 0;
		assert_null(dns_zone_from("example.com", big, used, error));
		assert_non_null(
			strstr(error, "big.example.com. has more records"));
	}
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_zone_is_refused_with_its_reason),
		cmocka_unit_test(test_zone_that_cannot_be_read_is_refused),
		cmocka_unit_test(test_set_that_exceeds_a_message_is_refused),
		cmocka_unit_test(
			test_set_of_names_that_exceeds_a_message_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
