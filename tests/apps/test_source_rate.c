/* The limit of events per second of a source: connections, answers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "apps/common/source_rate.h"

#define S INT64_C(1000000000)

static struct source_rate *rate;

/* The secret decides which sources are neighbours, so it is always the same. */
static void make_rate(unsigned bytes4, unsigned bytes6)
{
	rate = source_rate_new(bytes4, bytes6);
	assert_non_null(rate);
	rate->secret = 0x123456789abcdef;
}

static int tear_down(void **state)
{
	free(rate);
	rate = NULL;
	return 0;
}

/* How many of n events at one time are within 10 per second. */
static unsigned count_within(uint8_t family, const uint8_t *ip, unsigned n,
			     int64_t now_ns)
{
	unsigned within = 0;

	while (n-- > 0)
		within += source_rate_over(rate, family, ip, 10, now_ns) == 0;
	return within;
}

static void test_source_has_a_second_at_once_and_then_its_rate(void **state)
{
	const uint8_t a[4] = {10, 9, 0, 1}, b[4] = {10, 9, 0, 2};
	int64_t now_ns = 1000 * S;
	unsigned n = 0;

	make_rate(4, 8);
	assert_int_equal(count_within(4, a, 20, now_ns), 10);
	assert_int_equal(count_within(4, b, 1, now_ns), 1);
	now_ns += S / 10;
	assert_int_equal(count_within(4, a, 2, now_ns), 1);
	for (; now_ns < 1011 * S + S / 10; now_ns += S / 100)
		n += count_within(4, a, 1, now_ns);
	assert_in_range(n, 108, 112);
	assert_int_equal(count_within(4, a, 99, 1020 * S), 10);
}

static void test_prefix_of_an_address_is_the_source(void **state)
{
	uint8_t four[4] = {10, 0, 0, 1}, six[16] = {0x20, 1, 0xd, 0xb8};

	make_rate(3, 7);
	assert_int_equal(count_within(4, four, 25, S), 10);
	four[3] = 200;
	assert_int_equal(count_within(4, four, 5, S), 0);
	four[2] = 1;
	assert_int_equal(count_within(4, four, 25, S), 10);
	assert_int_equal(count_within(6, six, 25, S), 10);
	six[7] = six[15] = 1;
	assert_int_equal(count_within(6, six, 25, S), 0);
	six[6] = 1;
	assert_int_equal(count_within(6, six, 25, S), 10);
}

static void test_same_bytes_of_another_family_are_another_source(void **s)
{
	const uint8_t ip[16] = {10, 0, 0, 1};

	make_rate(4, 8);
	assert_int_equal(count_within(4, ip, 20, S), 10);
	assert_int_equal(count_within(6, ip, 20, S), 10);
}

static void test_events_beyond_the_rate_are_numbered(void **state)
{
	const uint8_t ip[4] = {10, 0, 0, 1};

	make_rate(4, 8);
	assert_int_equal(count_within(4, ip, 10, S), 10);
	for (uint32_t i = 1; i <= 5; i++)
		assert_int_equal(source_rate_over(rate, 4, ip, 10, S), i);
	assert_int_equal(source_rate_over(rate, 4, ip, 10, 2 * S), 0);
	assert_int_equal(count_within(4, ip, 9, 2 * S), 9);
	assert_int_equal(source_rate_over(rate, 4, ip, 10, 2 * S), 6);
}

static void test_flood_of_sources_delays_a_busy_source_briefly(void **state)
{
	const uint8_t busy[4] = {10, 9, 0, 1};
	unsigned n = 0;

	make_rate(4, 8);
	/* A million others within a second; the one asks a thousand times. */
	for (uint32_t i = 0; i < 1000000; i++) {
		int64_t now_ns = 1000 * S + i * 1000;
		uint32_t ip = 0x0b000000 + i;

		assert_int_equal(source_rate_over(rate, 4, &ip, 10, now_ns), 0);
		if (i % 1000 == 0)
			n += count_within(4, busy, 1, now_ns);
	}
	assert_in_range(n, 10, 25);
}

static void test_flood_of_sources_does_not_free_a_limited_one(void **state)
{
	const uint8_t victim[4] = {192, 0, 2, 1};

	make_rate(3, 7);
	count_within(4, victim, 100, S);
	for (unsigned i = 0; i < 500000; i++) {
		const uint8_t ip[4] = {(uint8_t)(10 + i / 65536),
				       (uint8_t)(i / 256), (uint8_t)i, 1};

		count_within(4, ip, 1, S);
		assert_int_equal(count_within(4, victim, 1, S), 0);
	}
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

static void test_bucket_has_its_burst_and_fills_evenly(void **state)
{
	_Atomic int64_t full_ns = 0;
	int64_t now_ns = 1000 * S;

	for (int i = 0; i < 5; i++)
		assert_int_equal(rate_bucket_take(&full_ns, 2, 5, now_ns), 0);
	assert_int_equal(rate_bucket_take(&full_ns, 2, 5, now_ns), S / 2);
	now_ns += S / 4;
	assert_int_equal(rate_bucket_take(&full_ns, 2, 5, now_ns), S / 4);
	now_ns += S / 4;
	assert_int_equal(rate_bucket_take(&full_ns, 2, 5, now_ns), 0);
	assert_int_equal(rate_bucket_take(&full_ns, 2, 5, now_ns), S / 2);
	/* After a long time it has the burst and no more. */
	now_ns += 1000 * S;
	for (int i = 0; i < 5; i++)
		assert_int_equal(rate_bucket_take(&full_ns, 2, 5, now_ns), 0);
	assert_true(rate_bucket_take(&full_ns, 2, 5, now_ns) > 0);
}

/* A million tokens that were used at one a second do not last for 11 days. */
static void test_change_of_the_limit_counts_at_once(void **state)
{
	_Atomic int64_t full_ns = 0;
	int64_t now_ns = 1000 * S;

	for (int i = 0; i < 1000; i++)
		assert_int_equal(rate_bucket_take(&full_ns, 1, 1000000, now_ns),
				 0);
	assert_int_equal(rate_bucket_take(&full_ns, 10, 1, now_ns), S / 10);
	now_ns += S / 10;
	assert_int_equal(rate_bucket_take(&full_ns, 10, 1, now_ns), 0);
	assert_true(rate_bucket_take(&full_ns, 10, 1, now_ns) > 0);
	assert_int_equal(rate_bucket_take(&full_ns, 10, 3, now_ns), 0);
}

static _Atomic int64_t shared_full_ns;
static pthread_barrier_t together;

static void *take_shared(void *arg)
{
	uintptr_t n = 0;

	pthread_barrier_wait(&together);
	for (int i = 0; i < 800000; i++)
		n += rate_bucket_take(&shared_full_ns, 1000, 1000000, S) == 0;
	return (void *)n;
}

static void test_threads_share_one_bucket_exactly(void **state)
{
	pthread_t threads[4];
	uintptr_t sum = 0;

	pthread_barrier_init(&together, NULL, 4);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, take_shared, NULL);
	for (int i = 0; i < 4; i++) {
		void *n;

		pthread_join(threads[i], &n);
		sum += (uintptr_t)n;
	}
	pthread_barrier_destroy(&together);
	assert_int_equal(sum, 1000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_source_has_a_second_at_once_and_then_its_rate),
		TEST(test_prefix_of_an_address_is_the_source),
		TEST(test_same_bytes_of_another_family_are_another_source),
		TEST(test_events_beyond_the_rate_are_numbered),
		TEST(test_flood_of_sources_delays_a_busy_source_briefly),
		TEST(test_flood_of_sources_does_not_free_a_limited_one),
		TEST(test_bucket_has_its_burst_and_fills_evenly),
		TEST(test_change_of_the_limit_counts_at_once),
		TEST(test_threads_share_one_bucket_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
