/*
 * Clients are counted by source.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/proxy/sources.h"

static struct sources sources;

static struct source_key key_of(const char *text)
{
	struct sockaddr_storage addr = {0};
	struct sockaddr_in *in = (void *)&addr;
	struct sockaddr_in6 *in6 = (void *)&addr;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		addr.ss_family = AF_INET;
	} else {
		addr.ss_family = AF_INET6;
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
	}
	return source_key_of(&addr);
}

static void test_each_source_is_counted_apart(void **state)
{
	assert_int_equal(sources_add(&sources, key_of("10.0.0.1")), 0);
	assert_int_equal(sources_add(&sources, key_of("10.0.0.1")), 0);
	assert_int_equal(sources_add(&sources, key_of("10.0.0.2")), 0);
	assert_int_equal(sources_count(&sources, key_of("10.0.0.1")), 2);
	assert_int_equal(sources_count(&sources, key_of("10.0.0.2")), 1);
	assert_int_equal(sources_count(&sources, key_of("10.0.0.3")), 0);
	sources_remove(&sources, key_of("10.0.0.1"));
	sources_remove(&sources, key_of("10.0.0.2"));
	assert_int_equal(sources_count(&sources, key_of("10.0.0.1")), 1);
	assert_int_equal(sources_count(&sources, key_of("10.0.0.2")), 0);
	sources_remove(&sources, key_of("10.0.0.1"));
}

static void test_source_is_an_address_or_a_prefix(void **state)
{
	assert_int_equal(sources_add(&sources, key_of("fd00:1:2:3::1")), 0);
	assert_int_equal(sources_count(&sources, key_of("fd00:1:2:3:4::5")), 1);
	assert_int_equal(sources_count(&sources, key_of("fd00:1:2:4::1")), 0);
	assert_int_equal(sources_add(&sources, key_of("::ffff:10.0.0.1")), 0);
	assert_int_equal(sources_count(&sources, key_of("10.0.0.1")), 1);
	assert_int_equal(sources_count(&sources, key_of("::ffff:10.0.0.2")), 0);
	sources_remove(&sources, key_of("fd00:1:2:3::2"));
	sources_remove(&sources, key_of("10.0.0.1"));
}

static void test_entry_is_freed_with_its_last_client(void **state)
{
	struct source_key many = {.family = 4};

	for (many.prefix = 0; many.prefix < 20000; many.prefix++)
		assert_int_equal(sources_add(&sources, many), 0);
	for (many.prefix = 0; many.prefix < 20000; many.prefix++)
		sources_remove(&sources, many);
	for (unsigned i = 0; i < SOURCES_BUCKETS; i++)
		assert_null(sources.buckets[i]);
}

static void test_unknown_source_is_not_counted(void **state)
{
	struct source_key none = {0};

	assert_int_equal(sources_add(&sources, none), 0);
	assert_int_equal(sources_count(&sources, none), 0);
	sources_remove(&sources, none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_source_is_counted_apart),
		cmocka_unit_test(test_source_is_an_address_or_a_prefix),
		cmocka_unit_test(test_entry_is_freed_with_its_last_client),
		cmocka_unit_test(test_unknown_source_is_not_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
