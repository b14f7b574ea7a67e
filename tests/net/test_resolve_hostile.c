/*
 * net_resolve(): forged, damaged and boundless responses.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/resolve/resolve_priv.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/name_server.h"
#include "tests/net/peer.h"

static struct lookup a;
static struct query q;
static struct response r;

static void pass_s(unsigned s)
{
	for (unsigned i = 0; i < s * 10; i++) {
		fake_now_ns += 100000000;
		run_rounds(1);
	}
}

static void send_wrong(unsigned what)
{
	struct datagram d = {.from = q.d.to, .to = q.d.from};

	response_begin(&r, &q, 0);
	response_add4(&r, 9, "10.6.6.6");
	switch (what) {
	case 0: /* another ID */
		put16(r.data, q.id ^ 1);
		break;
	case 1: /* another question */
		r.data[13] ^= 1;
		break;
	case 2:
		d.from.port = 54;
		break;
	case 3:
		d.from.ip[3] = 9;
		break;
	case 4: /* nothing, which c-ares takes for an error */
		r.len = 0;
		break;
	case 5: /* no header */
		r.len = 11;
		break;
	case 6: /* longer than any answer over UDP */
		r.len = 4200;
		break;
	}
	d.len = r.len;
	memcpy(d.data, r.data, r.len);
	datagram_send(&d);
	run_rounds(2);
}

static void test_forged_responses_are_ignored(void **state)
{
	struct query repeated;

	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	for (unsigned what = 0; what < 7; what++) {
		send_wrong(what);
		assert_false(a.ended);
	}
	assert_false(query_next(&repeated)); /* the server did not fail */
	response_begin(&r, &q, 0);
	response_add4(&r, 9, "10.1.0.1");
	response_send(&q, &r);
	lookup_check(&a, 1);
	lookup_check_addr(&a, 0, "10.1.0.1");
}

/* Can c-ares do this? 1.18, which Debian 12 has, cannot. */
#ifdef ARES_OPT_UDP_MAX_QUERIES
static void answer(struct lookup *lookup, const struct query *query)
{
	response_begin(&r, query, 0);
	response_add4(&r, 9, "10.1.0.1");
	response_send(query, &r);
	lookup_check(lookup, 1);
}

static void test_each_query_has_a_port_of_its_own(void **state)
{
	static struct query other;
	static struct lookup b;

	lookup_begin(&a, "a.test", 4);
	lookup_begin(&b, "b.test", 4);
	assert_true(query_next(&q));
	assert_true(query_next(&other));
	assert_int_not_equal(q.d.from.port, other.d.from.port);
	answer(&a, &q);
	answer(&b, &other);
}
#endif

static void test_flood_of_forged_responses_does_not_hide_the_answer(void **s)
{
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	for (unsigned i = 0; i < 2000; i++)
		send_wrong(i % 2);
	assert_false(a.ended);
	response_begin(&r, &q, 0);
	response_add4(&r, 9, "10.1.0.1");
	response_send(&q, &r);
	lookup_check(&a, 1);
}

static void test_number_of_addresses_is_bounded(void **state)
{
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	response_begin(&r, &q, 0);
	for (unsigned i = 0; i < 60; i++)
		response_add4(&r, 9, "10.1.0.1");
	response_send(&q, &r);
	lookup_check(&a, (int)NET_RESOLVE_ADDRS);
}

static void test_names_that_point_to_themselves_are_refused(void **state)
{
	static const uint8_t loop[] = {0xc0, 0x18};

	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	response_begin(&r, &q, 0);
	response_add(&r, DNS_CNAME, 9, loop, sizeof(loop));
	put16(r.data + 12 + q.question_len, 0xc000 + 12 + q.question_len);
	response_send(&q, &r);
	if (!a.ended) /* later versions of c-ares wait for a better one */
		pass_s(20);
	assert_true(a.ended);
	assert_true(a.result == -EAGAIN || a.result == -ETIMEDOUT);
}

static void test_alias_of_itself_is_no_address(void **state)
{
	static const uint8_t self[] = {0xc0, 12};

	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	response_begin(&r, &q, 0);
	for (unsigned i = 0; i < 20; i++)
		response_add(&r, DNS_CNAME, 9, self, sizeof(self));
	response_send(&q, &r);
	lookup_check(&a, -ENODATA);
}

/* Cuts and damages a response at each byte; the answer is never invented. */
static void test_damaged_responses_are_survived(void **state)
{
	char name[32];

	for (unsigned i = 0; i < 160; i++) {
		unsigned at;

		snprintf(name, sizeof(name), "n%u.test", i);
		lookup_begin(&a, name, i & 1 ? 4 : 6);
		assert_true(query_next(&q));
		response_begin(&r, &q, i % 3 ? 0 : DNS_NXDOMAIN);
		if (i & 1)
			response_add4(&r, 9, "10.1.0.1");
		else
			response_add6(&r, 9, "fd01::1");
		response_add_soa(&r, 60, 60);
		at = i / 2 % r.len;
		if (i < 80)
			r.len = at < 13 ? 13 : at;
		else
			r.data[at] ^= 0xff;
		response_send(&q, &r);
		if (!a.ended)
			pass_s(20);
		assert_true(a.ended);
		assert_true(a.result < 0 || a.result == 1);
		for (unsigned len = 0; len <= r.len; len++)
			assert_in_range(net_negative_ttl_s(r.data, len), 0,
					NEGATIVE_TTL_MAX_S);
		while (query_next(&q)) /* repeated ones */
			;
		pass_s(20);
	}
}

static void test_unknown_code_is_a_failure(void **state)
{
	lookup_begin(&a, "a.test", 4);
	for (unsigned i = 0; i < 4 && query_next(&q); i++) {
		response_begin(&r, &q, 9);
		response_add4(&r, 9, "10.6.6.6");
		response_send(&q, &r);
	}
	lookup_check(&a, -EAGAIN);
}

static void test_soa_among_the_answers_does_not_count(void **state)
{
	static const uint8_t soa[22] = {[21] = 60};

	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	response_begin(&r, &q, DNS_NXDOMAIN);
	response_add(&r, DNS_SOA, 60, soa, sizeof(soa));
	assert_int_equal(net_negative_ttl_s(r.data, r.len), 0);
	response_add_soa(&r, 50, 40);
	assert_int_equal(net_negative_ttl_s(r.data, r.len), 40);
}

static void test_ttls_are_bounded(void **state)
{
	static const uint32_t sent[] = {UINT32_MAX, 0x80000000, 0x7fffffff, 5};
	static const unsigned kept[] = {0, 0, TTL_MAX_S, 5};
	char name[32];

	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "t%u.test", i);
		lookup_begin(&a, name, 4);
		assert_true(query_next(&q));
		response_begin(&r, &q, 0);
		response_add4(&r, sent[i], "10.1.0.1");
		response_send(&q, &r);
		lookup_check(&a, 1);
		/* RFC 2181 8: it counts as 0, which c-ares 1.34 does not see */
		if (sent[i] > INT32_MAX && a.ttl_s == TTL_MAX_S)
			continue;
		assert_int_equal(a.ttl_s, kept[i]);
	}
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, names_setup, names_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_forged_responses_are_ignored),
#ifdef ARES_OPT_UDP_MAX_QUERIES
		TEST(test_each_query_has_a_port_of_its_own),
#endif
		TEST(test_flood_of_forged_responses_does_not_hide_the_answer),
		TEST(test_number_of_addresses_is_bounded),
		TEST(test_names_that_point_to_themselves_are_refused),
		TEST(test_alias_of_itself_is_no_address),
		TEST(test_damaged_responses_are_survived),
		TEST(test_unknown_code_is_a_failure),
		TEST(test_soa_among_the_answers_does_not_count),
		TEST(test_ttls_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
