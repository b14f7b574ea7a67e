/*
 * Multicast groups: what is announced by IGMP and MLD, and which messages are
 * believed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/udp/udp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/groups.h"
#include "tests/net/peer.h"

#define PEER udp_at(udp_peer4, 4000)

static struct net_udp *udp, *other;

static int setup(void **state)
{
	udp = other = NULL;
	return group_setup(state);
}

static void test_join_is_reported_twice_and_the_end_once(void **state)
{
	struct net_addr routers = {.ip = {224, 0, 0, 2}};
	struct net_addr routers6 = {.ip = {0xff, 2, [15] = 2}};

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, group6);
	run_rounds(1);
	message_expect(1, REPORT, group4, group4);
	run_ms(1000);
	message_expect(1, REPORT, group4, group4);
	group_settle();
	assert_int_equal(net_udp_leave(udp, &group4, NULL, NULL), 0);
	run_rounds(1);
	message_expect(1, LEAVE, group4, routers);
	assert_int_equal(net_udp_leave(udp, &group6, NULL, NULL), 0);
	run_rounds(1);
	message_expect(1, DONE6, group6, routers6);
	group_say(PEER, group4, "late");
	assert_false(group_receives(udp, ""));
}

static void test_group_is_reported_for_its_first_and_last_member(void **state)
{
	struct net_udp_opts shared = {.shared = true};
	struct net_addr routers6 = {.ip = {0xff, 2, [15] = 2}};

	udp = group_socket(&shared);
	group_join(udp, group6);
	run_rounds(1);
	message_expect(1, REPORT6, group6, group6);
	group_settle();
	other = udp;
	udp = group_socket(&shared);
	group_join(udp, group6);
	run_ms(1000);
	message_expect(0, REPORT6, group6, group6);
	net_udp_close(udp);
	run_rounds(1);
	message_expect(0, DONE6, group6, group6);
	net_udp_close(other);
	run_rounds(1);
	message_expect(1, DONE6, group6, routers6);
}

static void test_query_is_answered_within_its_time(void **state)
{
	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, group6);
	group_settle();
	message_query4(udp_peer4, 20);
	run_ms(2100);
	message_expect(1, REPORT, group4, group4);
	message_query4((struct net_addr){0}, 20); /* from a switch */
	run_ms(2100);
	message_expect(1, REPORT, group4, group4);
	message_query6(router6, 2000);
	run_ms(2100);
	message_expect(1, REPORT6, group6, group6);
	run_ms(5000);
	message_expect(0, REPORT6, group6, group6);
}

/* When a query is answered, in units of 100 ms. */
static unsigned delay_of_answer(void)
{
	struct net_addr to;

	message_query4(udp_peer4, 50);
	for (unsigned i = 0; i < 51; i++) {
		run_ms(100);
		if (message_count(REPORT, &group4, &to))
			return i;
	}
	fail();
	return 0;
}

static void test_answers_are_delayed_at_random(void **state)
{
	unsigned first, n = 0;

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_settle();
	first = delay_of_answer();
	for (unsigned i = 0; i < 20; i++)
		n += delay_of_answer() != first;
	assert_true(n > 0);
}

static void test_another_hosts_report_is_enough(void **state)
{
	struct message report = {
		.type = REPORT, .from = udp_peer4, .to = group4};
	struct message report6 = {
		.type = REPORT6, .from = router6, .to = group6};

	report.group = group4;
	report6.group = group6;
	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, group6);
	group_settle();
	message_query4(udp_peer4, 100);
	message_query6(router6, 10000);
	message_send(&report);
	message_send(&report6);
	run_ms(11000);
	message_expect(0, REPORT, group4, group4);
	message_query6(router6, 10000);
	message_send(&report6);
	run_ms(11000);
	message_expect(0, REPORT6, group6, group6);
	/* and that host may still be a member */
	assert_int_equal(net_udp_leave(udp, &group4, NULL, NULL), 0);
	run_rounds(1);
	message_expect(0, LEAVE, group4, group4);
}

static void test_query_of_a_group_is_answered_for_that_group(void **state)
{
	struct message query = {.type = QUERY,
				.from = udp_peer4,
				.to = group4,
				.max_response = 10};
	struct net_addr second = group4;

	second.ip[3]++;
	query.group = group4;
	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, second);
	group_settle();
	message_send(&query);
	query.group = query.to = second;
	query.group.ip[3] = query.to.ip[3] = 77; /* joined by nobody */
	message_send(&query);
	run_ms(1100);
	message_expect(1, REPORT, group4, group4);
	message_send(&query);
	run_ms(1100);
	message_expect(0, REPORT, second, second);
}

static void test_flood_of_queries_does_not_multiply_reports(void **state)
{
	struct net_addr to;

	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, group6);
	group_settle();
	for (unsigned i = 0; i < 100; i++) {
		message_query4(udp_peer4, 1);
		message_query6(router6, 100);
		run_ms(10);
	}
	assert_in_range(message_count(REPORT, &group4, &to), 1, 11);
}

static void test_groups_are_announced_when_the_carrier_is_back(void **state)
{
	udp = group_socket(NULL);
	group_join(udp, group4);
	group_join(udp, group6);
	group_settle();
	fake_no_carrier = true;
	run_ms(1000);
	message_expect(0, REPORT, group4, group4);
	fake_no_carrier = false;
	run_ms(1000);
	message_expect(1, REPORT, group4, group4);
	fake_no_carrier = true;
	run_ms(1000);
	fake_no_carrier = false;
	run_ms(1000);
	message_expect(1, REPORT6, group6, group6);
}

static void test_strangers_and_floods_are_not_answered(void **state)
{
	struct net_addr far = udp_peer4;
	/* From 0.0.0.0, as only a switch's query may be. */
	struct message report = {.type = REPORT, .to = group4};
	uint64_t refused;

	report.group = group4;
	udp = group_socket(NULL);
	group_join(udp, group4);
	group_settle();
	refused = net_here()->stats.rx_refused;
	far.ip[0] = 11;
	message_query4(far, 10);
	message_query4(udp_us4, 10);
	message_send(&report);
	run_ms(1100);
	message_expect(0, REPORT, group4, group4);
	assert_int_equal(net_here()->stats.rx_refused, refused + 3);
	refused++;
	for (unsigned i = 0; i < 150; i++)
		message_query4(udp_peer4, 10);
	assert_int_equal(net_here()->stats.rx_refused, refused + 2 + 49);
	run_ms(1100);
	message_expect(1, REPORT, group4, group4);
}

static void test_groups_of_all_hosts_are_not_reported(void **state)
{
	udp = group_socket(NULL);
	group_join(udp, all_hosts);
	group_join(udp, all_nodes);
	run_ms(1000);
	message_expect(0, REPORT, all_hosts, all_hosts);
	group_join(udp,
		   (struct net_addr){.family = 6, .ip = {0xff, 1, [15] = 9}});
	run_ms(1000);
	message_expect(0, REPORT6, all_nodes, all_nodes);
	group_say(PEER, udp_at(all_hosts, 53), "here");
	assert_true(group_receives(udp, "here"));
}

/* ---- several shards ---- */

static _Atomic unsigned joined, asked, answered;

/* Runs the calling shard for a millisecond; counts its reports of group4. */
static unsigned run_shard(void)
{
	struct net_addr to;

	fake_now_ns += 1000000;
	coro_yield();
	return message_count(REPORT, &group4, &to);
}

/* Shard 0 receives the query. The members are on the others. */
static void ask_shards(struct net_stack *here)
{
	stack = here;
	while (joined < 2)
		run_shard();
	message_queue(&(struct message){.type = QUERY,
					.from = udp_peer4,
					.to = all_hosts,
					.max_response = 10});
	asked = 1;
	while (answered < 2)
		assert_int_equal(run_shard(), 0);
	net_stack_stop(here);
}

static void answer_query(struct net_stack *here)
{
	struct net_addr any = {.port = 53};
	struct net_udp *member;
	unsigned n = 0;

	assert_int_equal(net_udp_open(here, &any, NULL, &member), 0);
	assert_int_equal(net_udp_join(member, &group4, NULL, NULL), 0);
	while (n < 2)
		n += run_shard();
	joined++;
	while (!asked || n < 3)
		n += run_shard();
	answered++;
	assert_int_equal(net_udp_leave(member, &group4, NULL, NULL), 0);
}

static int start_shard(struct net_stack *here, void *arg)
{
	if (net_stack_shard(here) == 0)
		ask_shards(here);
	else
		answer_query(here);
	return 0;
}

static void test_each_shard_answers_for_its_own_groups(void **state)
{
	struct net_opts opts;

	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:fake";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_ADAPTIVE;
	opts.memory_bytes = UINT64_C(1) << 30;
	opts.shards = 3;
	assert_int_equal(net_run(&opts, start_shard, NULL), 0);
	assert_int_equal(answered, 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, group_teardown)
	const struct CMUnitTest tests[] = {
		T(test_join_is_reported_twice_and_the_end_once),
		T(test_group_is_reported_for_its_first_and_last_member),
		T(test_query_is_answered_within_its_time),
		T(test_answers_are_delayed_at_random),
		T(test_another_hosts_report_is_enough),
		T(test_query_of_a_group_is_answered_for_that_group),
		T(test_flood_of_queries_does_not_multiply_reports),
		T(test_groups_are_announced_when_the_carrier_is_back),
		T(test_strangers_and_floods_are_not_answered),
		T(test_groups_of_all_hosts_are_not_reported),
		cmocka_unit_test(test_each_shard_answers_for_its_own_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
