/*
 * net_resolve(): what it asks, and what it keeps. Hostile responses:
 * test_resolve_hostile.c.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "netstack/mem/mem.h"
#include "netstack/resolve/resolve_priv.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/name_server.h"
#include "tests/net/peer.h"

#define MANY 300u

static struct lookup a, b, many[MANY];
static struct query q, q2;
static struct response r;
static bool servers_refused;

/* Stands for that of c-ares, whose prototype depends on the version. */
int set_servers(ares_channel channel,
		const void *nodes) __asm__("ares_set_servers_ports");

__attribute__((visibility("default"))) int set_servers(ares_channel channel,
						       const void *nodes)
{
	int (*real)(ares_channel, const void *) =
		dlsym(RTLD_NEXT, "ares_set_servers_ports");

	return servers_refused ? ARES_ENOMEM : real(channel, nodes);
}

/* Answers the next query, for this name and type, with an address. */
static void answer4(const char *name, uint32_t ttl_s, const char *address)
{
	assert_true(query_next(&q));
	assert_string_equal(q.name, name);
	assert_int_equal(q.type, DNS_A);
	response_begin(&r, &q, 0);
	response_add4(&r, ttl_s, address);
	response_send(&q, &r);
}

/* Answers it with an error; soa: it may be cached for a minute. */
static void answer_error(const char *name, unsigned code, bool soa)
{
	assert_true(query_next(&q));
	assert_string_equal(q.name, name);
	response_begin(&r, &q, code);
	if (soa)
		response_add_soa(&r, 60, 60);
	response_send(&q, &r);
}

/* Answers queries with an error until the stack asks no more. */
static unsigned fail_queries(unsigned code)
{
	unsigned n = 0;

	while (query_next(&q)) {
		response_begin(&r, &q, code);
		response_send(&q, &r);
		n++;
	}
	return n;
}

static void pass_s(unsigned s)
{
	for (unsigned i = 0; i < s * 10; i++) {
		fake_now_ns += 100000000;
		run_rounds(1);
	}
}

/* ---- names and answers ---- */

static void test_address_is_returned_without_a_query(void **state)
{
	struct net_resolve_opts opts = {.port = 80, .family = 6};
	struct net_addr addr;

	assert_int_equal(net_resolve(stack, "10.0.0.9", NULL, &addr, 1), 1);
	assert_int_equal(addr.family, 4);
	assert_int_equal(addr.port, 0);
	assert_int_equal(net_resolve(stack, "fd00::9", &opts, &addr, 1), 1);
	assert_int_equal(addr.family, 6);
	assert_int_equal(addr.port, 80);
	assert_int_equal(net_resolve(stack, "10.0.0.9", &opts, &addr, 1),
			 -ENODATA);
	assert_false(query_next(&q));
}

static void test_both_families_are_asked_for_and_ip6_comes_first(void **state)
{
	lookup_begin(&a, "WWW.Example.com", 0);
	assert_true(query_next(&q));
	assert_true(query_next(&q2));
	assert_int_equal(q.type + q2.type, DNS_A + DNS_AAAA);
	for (unsigned i = 0; i < 2; i++) {
		const struct query *query = i ? &q : &q2;

		assert_string_equal(query->name, "www.example.com");
		response_begin(&r, query, 0);
		if (query->type == DNS_A)
			response_add4(&r, 300, "10.1.0.1");
		else
			response_add6(&r, 200, "fd01::1");
		response_send(query, &r);
		assert_int_equal(a.ended, i);
	}
	lookup_check(&a, 2);
	lookup_check_addr(&a, 0, "fd01::1");
	lookup_check_addr(&a, 1, "10.1.0.1");
	assert_int_equal(a.ttl_s, 200);
}

static void test_answer_is_kept_for_its_ttl(void **state)
{
	lookup_begin(&a, "a.test", 4);
	answer4("a.test", 30, "10.1.0.1");
	lookup_check(&a, 1);
	pass_s(29);
	lookup_begin(&a, "A.TEST.", 4);
	lookup_check(&a, 1);
	assert_true(a.ttl_s <= 1);
	assert_false(query_next(&q));
	pass_s(2);
	lookup_begin(&a, "a.test", 4);
	answer4("a.test", 30, "10.1.0.2");
	lookup_check(&a, 1);
	lookup_check_addr(&a, 0, "10.1.0.2");
}

static void test_ttl_of_an_alias_counts_as_well(void **state)
{
	static const uint8_t alias[] = "\1b\4test"; /* NUL: the root */
	uint8_t record[32] = {0};

	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	response_begin(&r, &q, 0);
	response_add(&r, DNS_CNAME, 7, alias, sizeof(alias));
	memcpy(record, alias, sizeof(alias));
	put16(record + 8, DNS_A);
	put16(record + 10, 1);
	put32(record + 12, 100);
	put16(record + 16, 4);
	put32(record + 18, 0x0a010003);
	put16(r.data + 6, 2);
	memcpy(r.data + r.len, record, 22);
	r.len += 22;
	response_send(&q, &r);
	lookup_check(&a, 1);
	lookup_check_addr(&a, 0, "10.1.0.3");
	assert_int_equal(a.ttl_s, 7);
}

static void test_lookups_of_one_name_share_a_query(void **state)
{
	for (unsigned i = 0; i < MANY; i++)
		lookup_begin(&many[i], "a.test", 4);
	answer4("a.test", 0, "10.1.0.1");
	assert_false(query_next(&q));
	for (unsigned i = 0; i < MANY; i++)
		lookup_check(&many[i], 1);
}

static void test_missing_name_is_cached_as_its_soa_permits(void **state)
{
	lookup_begin(&a, "no.test", 4);
	answer_error("no.test", DNS_NXDOMAIN, true);
	lookup_check(&a, -ENOENT);
	pass_s(59);
	lookup_begin(&a, "no.test", 4);
	lookup_check(&a, -ENOENT);
	pass_s(2);
	lookup_begin(&a, "no.test", 4);
	answer4("no.test", 1, "10.1.0.1");
	lookup_check(&a, 1);
}

static void test_missing_name_without_soa_is_not_cached(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		lookup_begin(&a, "no.test", 4);
		answer_error("no.test", DNS_NXDOMAIN, false);
		lookup_check(&a, -ENOENT);
	}
}

static void test_name_without_addresses_is_reported(void **state)
{
	lookup_begin(&a, "mail.test", 4);
	answer_error("mail.test", 0, true);
	lookup_check(&a, -ENODATA);
	lookup_begin(&a, "mail.test", 4);
	lookup_check(&a, -ENODATA);
}

static void test_wrong_names_and_arguments_are_refused(void **state)
{
	static const char *const wrong[] = {"",
					    ".",
					    "a..b",
					    ".a",
					    "a b",
					    "a/b",
					    "a\\046b",
					    "a%1",
					    "0123456789012345678901234567890123"
					    "456789012345678901234567890123"};
	struct net_resolve_opts opts = {.family = 5};
	char longest[300];
	struct net_addr addr;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(net_resolve(stack, wrong[i], NULL, &addr, 1),
				 -EINVAL);
	for (unsigned i = 0; i < sizeof(longest) - 1; i++)
		longest[i] = i % 2 ? '.' : 'a';
	longest[255] = '\0'; /* 254 characters, and the dot at the end */
	assert_int_equal(net_resolve(stack, longest, NULL, &addr, 1), -EINVAL);
	assert_int_equal(net_resolve(stack, "a", &opts, &addr, 1), -EINVAL);
	assert_int_equal(net_resolve(stack, "a", NULL, &addr, 0), -EINVAL);
	assert_int_equal(net_resolve(stack, NULL, NULL, &addr, 1), -EINVAL);
	assert_int_equal(net_resolve(stack, "a", NULL, &addr, 1), -EPERM);
	assert_int_equal(net_resolve(stack, "localhost", NULL, &addr, 1),
			 -ENOENT);
}

/* ---- files ---- */

static void test_hosts_come_before_servers(void **state)
{
	struct net_addr addrs[3];
	unsigned ttl_s = 0;
	struct net_resolve_opts opts = {.ttl_s = &ttl_s};

	write_hosts("# a comment\n10.2.0.1 other\n"
		    "10.2.0.2\tBox.lan box # and another\nfd02::2 box\r\n"
		    "nonsense box\n::1");
	assert_int_equal(net_resolve(stack, "box", &opts, addrs, 3), 2);
	assert_int_equal(ttl_s, UINT_MAX);
	assert_int_equal(addrs[0].family, 6);
	assert_int_equal(addrs[1].ip[3], 2);
	assert_int_equal(net_resolve(stack, "box.LAN", NULL, addrs, 3), 1);
	assert_int_equal(net_resolve(stack, "comment", NULL, addrs, 3), -EPERM);
	write_hosts("10.2.0.7 box\n");
	pass_s(2);
	assert_int_equal(net_resolve(stack, "box", NULL, addrs, 3), 1);
	assert_int_equal(addrs[0].ip[3], 7);
	assert_false(query_next(&q));
}

static void test_search_list_completes_short_names(void **state)
{
	write_resolv_conf("nameserver 10.0.0.2\nsearch one.test Two.test\n"
			  "options rotate ndots:2\n");
	pass_s(2);
	lookup_begin(&a, "a.b", 4);
	answer_error("a.b.one.test", DNS_NXDOMAIN, true);
	answer_error("a.b.two.test", 0, true);
	answer_error("a.b", DNS_NXDOMAIN, true);
	lookup_check(&a, -ENODATA);
	lookup_begin(&a, "a.b.c", 4);
	answer4("a.b.c", 1, "10.1.0.1");
	lookup_check(&a, 1);
	lookup_begin(&a, "short.", 4);
	answer4("short", 1, "10.1.0.1");
	lookup_check(&a, 1);
}

static void test_changed_resolv_conf_is_followed(void **state)
{
	lookup_begin(&a, "a.test", 4);
	answer4("a.test", 1, "10.1.0.1");
	assert_int_equal(q.d.to.family, 4);
	write_resolv_conf("nameserver fd00::2\n");
	pass_s(2);
	lookup_begin(&a, "a.test", 4);
	answer4("a.test", 1, "10.1.0.2");
	assert_int_equal(q.d.to.family, 6);
	lookup_check(&a, 1);
}

/* The server that was asked is silent; a later call finds the new one. */
static void test_open_queries_are_repeated_to_new_servers(void **state)
{
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	assert_int_equal(q.d.to.family, 4);
	write_resolv_conf("nameserver fd00::2\n");
	pass_s(1);
	lookup_begin(&b, "b.test", 4);
	for (unsigned i = 0; i < 2; i++) {
		answer4(i ? "b.test" : "a.test", 5, "10.1.0.1");
		assert_int_equal(q.d.to.family, 6);
	}
	lookup_check(&a, 1);
	lookup_check(&b, 1);
	assert_false(query_next(&q));
}

static void test_queries_stay_if_the_servers_do(void **state)
{
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q2));
	write_resolv_conf("# again\nnameserver 10.0.0.2\n");
	pass_s(1);
	lookup_begin(&b, "b.test", 4);
	answer4("b.test", 5, "10.1.0.1");
	response_begin(&r, &q2, 0);
	response_add4(&r, 5, "10.1.0.2");
	response_send(&q2, &r);
	lookup_check(&a, 1);
	lookup_check(&b, 1);
}

static void test_open_queries_fail_if_no_server_is_left(void **state)
{
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	write_resolv_conf("nameserver 127.0.0.1\n");
	pass_s(1);
	lookup_begin(&b, "b.test", 4);
	run_rounds(2);
	lookup_check(&a, -EHOSTUNREACH);
	lookup_check(&b, -EHOSTUNREACH);
}

static void test_servers_at_loopback_addresses_are_ignored(void **state)
{
	write_resolv_conf("nameserver 127.0.0.53\nnameserver ::1\n");
	lookup_begin(&a, "a.test", 4);
	lookup_check(&a, -EHOSTUNREACH);
}

/* ---- servers that fail ---- */

static void test_servers_that_could_not_be_set_are_set_later(void **state)
{
	servers_refused = true;
	lookup_begin(&a, "a.test", 4);
	lookup_check(&a, -ENOMEM);
	servers_refused = false;
	lookup_begin(&a, "a.test", 4);
	answer4("a.test", 1, "10.1.0.1");
	lookup_check(&a, 1);
}

static void test_second_server_answers_for_a_silent_one(void **state)
{
	write_resolv_conf("nameserver 10.0.0.2\nnameserver fd00::2\n");
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	assert_int_equal(q.d.to.family, 4);
	pass_s(3);
	answer4("a.test", 5, "10.1.0.1");
	assert_int_equal(q.d.to.family, 6);
	lookup_check(&a, 1);
}

static void test_silent_servers_are_asked_twice(void **state)
{
	lookup_begin(&a, "a.test", 4);
	assert_true(query_next(&q));
	pass_s(1);
	assert_false(a.ended);
	pass_s(10);
	lookup_check(&a, -ETIMEDOUT);
	assert_true(query_next(&q)); /* the second try */
	assert_false(query_next(&q));
}

static void test_call_times_out_and_its_query_fills_the_cache(void **state)
{
	lookup_begin_for(&a, "a.test", 4, 500);
	assert_true(query_next(&q));
	pass_s(1);
	lookup_check(&a, -ETIMEDOUT);
	response_begin(&r, &q, 0);
	response_add4(&r, 100, "10.1.0.1");
	response_send(&q, &r);
	lookup_begin(&a, "a.test", 4);
	lookup_check(&a, 1);
}

static void test_failure_of_all_servers_is_cached_for_a_second(void **state)
{
	lookup_begin(&a, "a.test", 4);
	assert_int_equal(fail_queries(DNS_SERVFAIL), 2);
	lookup_check(&a, -EAGAIN);
	lookup_begin(&a, "a.test", 4);
	lookup_check(&a, -EAGAIN);
	assert_false(query_next(&q));
	pass_s(2);
	lookup_begin(&a, "a.test", 4);
	assert_int_equal(fail_queries(DNS_REFUSED), 2);
	lookup_check(&a, -EAGAIN);
}

static void test_server_without_a_socket_is_reported(void **state)
{
	lookup_begin(&a, "a.test", 4);
	for (unsigned i = 0; i < 2 && query_next(&q); i++)
		datagram_send_error(&q.d, 3, 3, 0);
	run_rounds(3);
	lookup_check(&a, -EAGAIN);
}

static void test_addresses_of_one_family_are_enough(void **state)
{
	lookup_begin(&a, "a.test", 0);
	while (query_next(&q)) {
		response_begin(&r, &q, q.type == DNS_A ? 0 : DNS_SERVFAIL);
		if (q.type == DNS_A)
			response_add4(&r, 9, "10.1.0.1");
		response_send(&q, &r);
	}
	lookup_check(&a, 1);
}

static void test_answer_is_used_if_the_other_family_times_out(void **state)
{
	lookup_begin_for(&a, "a.test", 0, 500);
	lookup_begin_for(&b, "b.test", 0, 500);
	for (unsigned i = 0; i < 4; i++) {
		assert_true(query_next(&q));
		if (q.type != (q.name[0] == 'a' ? DNS_A : DNS_AAAA))
			continue;
		response_begin(&r, &q, 0);
		if (q.type == DNS_A)
			response_add4(&r, 9, "10.1.0.1");
		else
			response_add6(&r, 9, "fd01::1");
		response_send(&q, &r);
	}
	pass_s(1);
	lookup_check(&a, 1);
	lookup_check_addr(&a, 0, "10.1.0.1");
	lookup_check(&b, 1);
	lookup_check_addr(&b, 0, "fd01::1");
}

static void test_removed_address_takes_its_family_along(void **state)
{
	names_remove_addr("fd00::1/64"); /* a link-local one stays */
	lookup_begin(&a, "a.test", 0);
	answer4("a.test", 9, "10.1.0.1");
	assert_false(query_next(&q));
	lookup_check(&a, 1);
}

static void test_stack_without_an_address_finds_files_and_numbers(void **s)
{
	struct net_addr addr;

	names_remove_addr("10.0.0.1/24");
	names_remove_addr("fd00::1/64");
	write_hosts("10.2.0.1 box\n");
	assert_int_equal(net_resolve(stack, "box", NULL, &addr, 1), 1);
	assert_int_equal(net_resolve(stack, "fd00::9", NULL, &addr, 1), 1);
	lookup_begin(&a, "a.test", 0);
	lookup_check(&a, -EADDRNOTAVAIL);
}

/* ---- bounds ---- */

static void test_cache_has_a_bound_and_keeps_what_is_used(void **state)
{
	char name[32];

	lookup_begin(&a, "kept.test", 4);
	answer4("kept.test", 1000, "10.1.0.1");
	for (unsigned i = 0; i < NET_RESOLVE_NAMES + 100; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		lookup_begin(&a, name, 4);
		answer4(name, 1000, "10.1.0.1");
		lookup_check(&a, 1);
		lookup_begin(&a, "kept.test", 4);
		lookup_check(&a, 1);
	}
	lookup_begin(&a, "n0.test", 4);
	answer4("n0.test", 1000, "10.1.0.1");
}

static void test_open_query_outlives_a_full_cache(void **state)
{
	struct query slow;
	char name[32];

	lookup_begin(&b, "slow.test", 4);
	assert_true(query_next(&slow));
	for (unsigned i = 0; i < NET_RESOLVE_NAMES + 10; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		lookup_begin(&a, name, 4);
		answer4(name, 1000, "10.1.0.1");
	}
	response_begin(&r, &slow, 0);
	response_add4(&r, 9, "10.1.0.7");
	response_send(&slow, &r);
	lookup_check(&b, 1);
	lookup_check_addr(&b, 0, "10.1.0.7");
}

static void test_number_of_queries_has_a_bound(void **state)
{
	static char text[MANY][16];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(text[i], sizeof(text[i]), "n%u.test", i);
		lookup_begin(&many[i], text[i], 4);
		assert_int_equal(many[i].ended, i >= NET_RESOLVE_QUERIES);
	}
	lookup_check(&many[MANY - 1], -ENOBUFS);
	for (unsigned i = 0; i < NET_RESOLVE_QUERIES; i++) {
		assert_true(query_next(&q));
		response_begin(&r, &q, 0);
		response_add4(&r, 9, "10.1.0.1");
		response_send(&q, &r);
	}
	for (unsigned i = 0; i < NET_RESOLVE_QUERIES; i++)
		lookup_check(&many[i], 1);
}

static void test_last_query_is_used_if_the_other_family_has_none(void **state)
{
	static char text[NET_RESOLVE_QUERIES][16];

	for (unsigned i = 0; i < NET_RESOLVE_QUERIES - 1; i++) {
		snprintf(text[i], sizeof(text[i]), "n%u.test", i);
		lookup_begin(&many[i], text[i], 4);
		assert_true(query_next(&q));
	}
	lookup_begin(&a, "a.test", 0);
	assert_true(query_next(&q));
	assert_int_equal(q.type, DNS_AAAA);
	response_begin(&r, &q, 0);
	response_add6(&r, 9, "fd01::1");
	response_send(&q, &r);
	lookup_check(&a, 1);
}

static void test_lookups_without_memory_fail_cleanly(void **state)
{
	for (unsigned i = 1; i < 8; i++) {
		net_mem_fail_after(i);
		lookup_begin(&a, "a.test", 4);
		net_mem_fail_after(0);
		if (a.ended)
			assert_true(a.result == -ENOMEM || a.result == -EAGAIN);
		pass_s(15);
		while (query_next(&q))
			;
		assert_true(a.ended);
	}
	lookup_begin(&a, "a.test", 4);
	answer4("a.test", 1, "10.1.0.1");
	lookup_check(&a, 1);
}

static void test_cancelled_lookup_leaves_the_query(void **state)
{
	lookup_begin(&a, "a.test", 4);
	lookup_begin(&b, "a.test", 4);
	stack->draining = true;
	net_poll_wake_all();
	run_rounds(3);
	stack->draining = false;
	lookup_check(&a, -ECANCELED);
	lookup_check(&b, -ECANCELED);
}

static void test_draining_stack_asks_for_no_further_form_of_a_name(void **state)
{
	struct datagram d;

	write_resolv_conf("nameserver 10.0.0.2\nsearch one.test two.test\n");
	lookup_begin(&a, "a", 4);
	assert_true(query_next(&q));
	response_begin(&r, &q, DNS_NXDOMAIN);
	d = (struct datagram){.from = q.d.to, .to = q.d.from, .len = r.len};
	memcpy(d.data, r.data, r.len);
	datagram_send(&d);
	run_rounds(1);
	assert_false(a.ended); /* it has the answer, and has not run */
	stack->draining = true;
	net_resolve_stop();
	run_rounds(2);
	lookup_check(&a, -ECANCELED);
}

static void test_draining_stack_opens_no_channel(void **state)
{
	struct net_resolver *resolver;

	stack->draining = true;
	lookup_begin(&a, "a.test", 4);
	lookup_check(&a, -ECANCELED);
	assert_int_equal(net_resolver_get(&resolver), 0);
	assert_false(resolver->has_channel);
}

static void test_stack_closes_while_names_are_asked_for(void **state)
{
	for (unsigned i = 0; i < 20; i++)
		lookup_begin(&many[i], i & 1 ? "a.test" : "b.test", 0);
	assert_true(query_next(&q));
	/* The teardown closes the stack. */
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, names_setup, names_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_address_is_returned_without_a_query),
		TEST(test_both_families_are_asked_for_and_ip6_comes_first),
		TEST(test_answer_is_kept_for_its_ttl),
		TEST(test_ttl_of_an_alias_counts_as_well),
		TEST(test_lookups_of_one_name_share_a_query),
		TEST(test_missing_name_is_cached_as_its_soa_permits),
		TEST(test_missing_name_without_soa_is_not_cached),
		TEST(test_name_without_addresses_is_reported),
		TEST(test_wrong_names_and_arguments_are_refused),
		TEST(test_hosts_come_before_servers),
		TEST(test_search_list_completes_short_names),
		TEST(test_changed_resolv_conf_is_followed),
		TEST(test_open_queries_are_repeated_to_new_servers),
		TEST(test_queries_stay_if_the_servers_do),
		TEST(test_open_queries_fail_if_no_server_is_left),
		TEST(test_servers_at_loopback_addresses_are_ignored),
		TEST(test_servers_that_could_not_be_set_are_set_later),
		TEST(test_second_server_answers_for_a_silent_one),
		TEST(test_silent_servers_are_asked_twice),
		TEST(test_call_times_out_and_its_query_fills_the_cache),
		TEST(test_failure_of_all_servers_is_cached_for_a_second),
		TEST(test_server_without_a_socket_is_reported),
		TEST(test_addresses_of_one_family_are_enough),
		TEST(test_answer_is_used_if_the_other_family_times_out),
		TEST(test_removed_address_takes_its_family_along),
		TEST(test_stack_without_an_address_finds_files_and_numbers),
		TEST(test_cache_has_a_bound_and_keeps_what_is_used),
		TEST(test_open_query_outlives_a_full_cache),
		TEST(test_number_of_queries_has_a_bound),
		TEST(test_last_query_is_used_if_the_other_family_has_none),
		TEST(test_lookups_without_memory_fail_cleanly),
		TEST(test_cancelled_lookup_leaves_the_query),
		TEST(test_draining_stack_asks_for_no_further_form_of_a_name),
		TEST(test_draining_stack_opens_no_channel),
		TEST(test_stack_closes_while_names_are_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
