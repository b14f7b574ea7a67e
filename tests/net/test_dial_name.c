/*
 * net_dial_name(): the order and the times of attempts (RFC 8305).
 *
 * Servers of these names are the stack's own addresses, 10.0.0.1 and fd00::1,
 * so that TCP needs no script; nobody is at fd00::98 and fd00::99.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/resolve/resolve.h"
#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/name_server.h"
#include "tests/net/peer.h"

static struct dialed {
	const char *name;
	struct net_dial_opts opts;
	struct net_conn *conn;
	int result;
	bool ended;
} dialed;
static struct net_listener *listener4, *listener6;
static struct query queries[2]; /* AAAA, A */
static struct response r;

static int setup(void **state)
{
	memset(&dialed, 0, sizeof(dialed));
	listener4 = listener6 = NULL;
	return names_setup(state);
}

static void listen_at(struct net_addr addr, struct net_listener **out)
{
	addr.port = 80;
	assert_int_equal(net_listen(stack, &addr, 0, out), 0);
}

static void *dial_peer(void *arg)
{
	struct net_conn *conn = NULL;

	dialed.result =
		net_dial_name(stack, dialed.name, 80, &dialed.opts, &conn);
	dialed.conn = conn;
	dialed.ended = true;
	return NULL;
}

/* Begins to dial, and takes both queries. */
static void dial_begin(const char *name, unsigned timeout_ms)
{
	struct query q;

	dialed.name = name;
	dialed.opts.timeout_ms = timeout_ms;
	assert_int_equal(net_spawn(stack, "dial", dial_peer, NULL), 0);
	run_rounds(2);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(query_next(&q));
		queries[q.type == DNS_A] = q;
	}
}

static void answer4(const char *address)
{
	response_begin(&r, &queries[1], 0);
	if (address)
		response_add4(&r, 60, address);
	response_send(&queries[1], &r);
}

static void answer6(const char *first, const char *second)
{
	response_begin(&r, &queries[0], 0);
	if (first)
		response_add6(&r, 60, first);
	if (second)
		response_add6(&r, 60, second);
	response_send(&queries[0], &r);
}

/* Closes the connection; nothing of the attempts is left. */
static void check_dialed(unsigned family)
{
	run_rounds(30); /* handshakes take rounds, and no time */
	assert_true(dialed.ended);
	assert_int_equal(dialed.result, 0);
	assert_int_equal(net_peer_addr(dialed.conn).family, family);
	net_abort(dialed.conn);
	net_listener_close(listener4);
	net_listener_close(listener6);
	run_ms(3);
	assert_int_equal(stack->n_conns, 0);
}

static void test_ip6_is_preferred_if_it_answers_within_50_ms(void **state)
{
	listen_at(udp_us4, &listener4);
	listen_at(udp_us6, &listener6);
	dial_begin("a.test", 0);
	answer4("10.0.0.1");
	run_ms(45);
	assert_false(dialed.ended);
	answer6("fd00::1", NULL);
	run_ms(3);
	check_dialed(6);
}

static void test_ip4_does_not_wait_longer_for_ip6_than_50_ms(void **state)
{
	listen_at(udp_us4, &listener4);
	dial_begin("a.test", 0);
	answer4("10.0.0.1");
	run_ms(48);
	assert_false(dialed.ended);
	run_ms(6);
	check_dialed(4);
}

static void test_ip4_is_dialed_at_once_if_there_is_no_ip6_address(void **state)
{
	listen_at(udp_us4, &listener4);
	dial_begin("a.test", 0);
	answer6(NULL, NULL);
	answer4("10.0.0.1");
	run_ms(3);
	check_dialed(4);
}

static void test_silent_address_delays_the_next_by_250_ms(void **state)
{
	listen_at(udp_us4, &listener4);
	dial_begin("a.test", 0);
	answer6("fd00::99", NULL);
	answer4("10.0.0.1");
	run_ms(245);
	assert_false(dialed.ended);
	run_ms(10);
	check_dialed(4);
}

static void test_refused_address_does_not_delay_the_next(void **state)
{
	listen_at(udp_us4, &listener4);
	dial_begin("a.test", 0);
	answer6("fd00::1", NULL);
	answer4("10.0.0.1");
	run_ms(5);
	check_dialed(4);
}

static void test_families_take_turns(void **state)
{
	listen_at(udp_us4, &listener4);
	dial_begin("a.test", 0);
	answer6("fd00::98", "fd00::99");
	answer4("10.0.0.1");
	run_ms(260);
	check_dialed(4);
}

static void test_late_address_of_the_other_family_is_dialed_as_well(void **s)
{
	listen_at(udp_us4, &listener4);
	dial_begin("a.test", 0);
	answer6("fd00::98", NULL);
	run_ms(1000);
	assert_false(dialed.ended);
	answer4("10.0.0.1");
	run_ms(3);
	check_dialed(4);
}

static void test_refusal_by_all_addresses_is_reported(void **state)
{
	dial_begin("a.test", 0);
	answer6("fd00::1", NULL);
	answer4("10.0.0.1");
	run_rounds(30);
	assert_true(dialed.ended);
	assert_int_equal(dialed.result, -ECONNREFUSED);
}

static void test_missing_name_is_reported(void **state)
{
	dial_begin("a.test", 0);
	for (unsigned i = 0; i < 2; i++) {
		response_begin(&r, &queries[i], DNS_NXDOMAIN);
		response_send(&queries[i], &r);
	}
	run_ms(1);
	assert_true(dialed.ended);
	assert_int_equal(dialed.result, -ENOENT);
}

static void test_timeout_bounds_the_whole_call(void **state)
{
	dial_begin("a.test", 600);
	answer6("fd00::98", "fd00::99");
	run_ms(595);
	assert_false(dialed.ended);
	run_ms(10);
	assert_true(dialed.ended);
	assert_int_equal(dialed.result, -ETIMEDOUT);
	assert_int_equal(stack->n_conns, 0);
}

static void test_source_limits_the_family(void **state)
{
	struct query q;

	listen_at(udp_us4, &listener4);
	dialed.name = "a.test";
	dialed.opts.source = udp_us4;
	assert_int_equal(net_spawn(stack, "dial", dial_peer, NULL), 0);
	run_rounds(2);
	assert_true(query_next(&q));
	assert_int_equal(q.type, DNS_A);
	assert_false(query_next(&queries[0]));
	queries[1] = q;
	answer4("10.0.0.1");
	run_ms(3);
	check_dialed(4);
}

static void test_address_is_dialed_without_a_query(void **state)
{
	listen_at(udp_us6, &listener6);
	dialed.name = "fd00::1";
	assert_int_equal(net_spawn(stack, "dial", dial_peer, NULL), 0);
	run_ms(3);
	check_dialed(6);
}

static void test_stack_without_an_address_dials_no_name(void **state)
{
	static const char *const names[] = {"a.test", "10.0.0.9", "fd00::9"};

	names_remove_addr("10.0.0.1/24");
	names_remove_addr("fd00::1/64");
	for (unsigned i = 0; i < 3; i++) {
		dialed.name = names[i];
		dialed.ended = false;
		assert_int_equal(net_spawn(stack, "dial", dial_peer, NULL), 0);
		run_rounds(4);
		assert_true(dialed.ended);
		assert_int_equal(dialed.result, -EADDRNOTAVAIL);
	}
}

static void test_wrong_arguments_are_refused(void **state)
{
	struct net_dial_opts opts = {.source.port = 7};
	struct net_conn *conn;
	char longest[300];

	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(net_dial_name(stack, NULL, 80, NULL, &conn), -EINVAL);
	assert_int_equal(net_dial_name(stack, "a", 0, NULL, &conn), -EINVAL);
	assert_int_equal(net_dial_name(stack, "a", 80, &opts, &conn), -EINVAL);
	opts.source = (struct net_addr){.family = 5};
	assert_int_equal(net_dial_name(stack, "a", 80, &opts, &conn), -EINVAL);
	assert_int_equal(net_dial_name(stack, longest, 80, NULL, &conn),
			 -EINVAL);
	assert_int_equal(net_dial_name(stack, "a", 80, NULL, &conn), -EPERM);
	dialed.name = "a b";
	assert_int_equal(net_spawn(stack, "dial", dial_peer, NULL), 0);
	run_rounds(4);
	assert_int_equal(dialed.result, -EINVAL);
}

static void test_stack_closes_while_a_name_is_dialed(void **state)
{
	dial_begin("a.test", 0);
	answer6("fd00::98", "fd00::99");
	run_ms(300);
	assert_false(dialed.ended);
	/* The teardown closes the stack. */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, names_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ip6_is_preferred_if_it_answers_within_50_ms),
		TEST(test_ip4_does_not_wait_longer_for_ip6_than_50_ms),
		TEST(test_ip4_is_dialed_at_once_if_there_is_no_ip6_address),
		TEST(test_silent_address_delays_the_next_by_250_ms),
		TEST(test_refused_address_does_not_delay_the_next),
		TEST(test_families_take_turns),
		TEST(test_late_address_of_the_other_family_is_dialed_as_well),
		TEST(test_refusal_by_all_addresses_is_reported),
		TEST(test_missing_name_is_reported),
		TEST(test_timeout_bounds_the_whole_call),
		TEST(test_source_limits_the_family),
		TEST(test_address_is_dialed_without_a_query),
		TEST(test_stack_without_an_address_dials_no_name),
		TEST(test_wrong_arguments_are_refused),
		TEST(test_stack_closes_while_a_name_is_dialed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
