/*
 * coronet-dns: the limit of answers to a source.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "apps/dns/rate.h"

#define S INT64_C(1000000000)

static struct net_addr source4(unsigned a, unsigned b, unsigned c, unsigned d)
{
	return (struct net_addr){
		.family = 4,
		.ip = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d}};
}

static unsigned count_sent(struct dns_rate *rate, struct net_addr peer,
			   unsigned n, int64_t now_ns)
{
	unsigned sent = 0;

	for (unsigned i = 0; i < n; i++)
		sent += dns_rate_check(rate, &peer, now_ns) == DNS_RATE_SEND;
	return sent;
}

static void test_each_source_has_a_rate_of_its_own(void **state)
{
	struct dns_rate rate;
	struct net_addr six = {.family = 6, .ip = {0x20, 1, 0xd, 0xb8}};

	assert_int_equal(dns_rate_init(&rate, 10, 0, 42), 0);
	assert_int_equal(count_sent(&rate, source4(10, 0, 0, 1), 25, S), 10);
	assert_int_equal(count_sent(&rate, source4(10, 0, 0, 200), 5, S), 0);
	assert_int_equal(count_sent(&rate, source4(10, 0, 1, 1), 25, S), 10);
	assert_int_equal(count_sent(&rate, source4(10, 0, 0, 1), 9, S * 3 / 2),
			 5);
	assert_int_equal(count_sent(&rate, source4(10, 0, 0, 1), 99, 9 * S),
			 10);
	assert_int_equal(count_sent(&rate, six, 25, S), 10);
	six.ip[7] = 1; /* the same /56 */
	assert_int_equal(count_sent(&rate, six, 25, S), 0);
	six.ip[6] = 1;
	assert_int_equal(count_sent(&rate, six, 25, S), 10);
	dns_rate_fini(&rate);
}

static void test_every_second_answer_beyond_the_limit_slips(void **state)
{
	struct net_addr peer = source4(10, 0, 0, 1);
	unsigned n[3] = {0};
	struct dns_rate rate;

	assert_int_equal(dns_rate_init(&rate, 10, 2, 42), 0);
	for (unsigned i = 0; i < 30; i++)
		n[dns_rate_check(&rate, &peer, S)]++;
	assert_int_equal(n[DNS_RATE_SEND], 10);
	assert_int_equal(n[DNS_RATE_SLIP], 10);
	assert_int_equal(n[DNS_RATE_DROP], 10);
	dns_rate_fini(&rate);
}

static void test_many_sources_do_not_free_a_limited_one(void **state)
{
	struct net_addr victim = source4(192, 0, 2, 1);
	struct dns_rate rate;
	unsigned sent = 0;

	assert_int_equal(dns_rate_init(&rate, 10, 0, 42), 0);
	count_sent(&rate, victim, 100, S);
	for (unsigned i = 0; i < 500000; i++) {
		count_sent(&rate, source4(10 + i / 65536, i / 256, i, 1), 1, S);
		sent += count_sent(&rate, victim, 1, S);
	}
	assert_int_equal(sent, 0);
	dns_rate_fini(&rate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_source_has_a_rate_of_its_own),
		cmocka_unit_test(
			test_every_second_answer_beyond_the_limit_slips),
		cmocka_unit_test(test_many_sources_do_not_free_a_limited_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
