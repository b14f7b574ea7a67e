/* Routes that change while the stack runs: by commands, and by options. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <coronet/net_reload.h>

#include "netstack/control/control_priv.h"
#include "netstack/link/dhcp.h"
#include "netstack/link/link.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/routes.h"

/* ---- changes by the operator ---- */

static int change(int (*fn)(const struct net_route_opts *), const char *text)
{
	struct net_route_opts route;
	char error[200];

	if (net_route_parse(text, &route, error, sizeof(error)) < 0)
		fail_msg("%s: %s", text, error);
	return fn(&route);
}

static void test_added_route_is_used_until_it_is_removed(void **state)
{
	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	net_addr_parse("fd00::254", 0, &route_opts.gateway6);
	route_add("198.51.100.0/24 via 10.0.0.252");
	route_open_stack();
	route_expect("192.0.2.9", "10.0.0.1", "10.0.0.254");
	route_expect("[fd99::9]", "fd00::1", "fd00::254");
	assert_int_equal(
		change(net_route_add, "192.0.2.0/24 via 10.1.0.253 dev 2"), 0);
	assert_int_equal(change(net_route_add, "fd99::/16 via 2001:db8::253"),
			 0);
	route_expect("192.0.2.9", "10.1.0.1", "10.1.0.253");
	route_expect("[fd99::9]", "2001:db8::1", "2001:db8::253");
	route_expect("198.51.100.9", "10.0.0.1", "10.0.0.252");
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.1.0.253"), 0);
	assert_int_equal(
		change(net_route_remove, "fd99::/16 via 2001:db8::253 dev 1"),
		0);
	route_expect_hop("192.0.2.9", "10.0.0.254");
	route_expect_hop("[fd99::9]", "fd00::254");
	route_expect_hop("198.51.100.9", "10.0.0.252");
}

/* The gateway of a connection's packets changes with the next packet. */
static void expect_redirect(int (*redirect)(void))
{
	static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 8},
					   {2, 0, 0, 0, 0, 9}};
	uint8_t frame[9216];

	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_open_stack();
	route_hear_arp(macs[0], "10.0.0.254", "10.0.0.1");
	route_hear_arp(macs[1], "10.0.0.253", "10.0.0.1");
	route_dial_from(NULL, "192.0.2.9");
	assert_true(fake_sent(frame, sizeof(frame)));
	assert_memory_equal(frame, macs[0], 6);
	assert_int_equal(redirect(), 0);
	route_dial_from(NULL, "192.0.2.9");
	assert_true(fake_sent(frame, sizeof(frame)));
	assert_memory_equal(frame, macs[1], 6);
}

static int add_route(void)
{
	return change(net_route_add, "192.0.2.0/24 via 10.0.0.253");
}

static void test_changed_route_redirects_at_once(void **state)
{
	expect_redirect(add_route);
}

static void test_added_route_comes_before_those_of_leases(void **state)
{
	const struct net_dhcp_route leased = {
		.to = PP_HTONL(0xc0000200), .via = PP_HTONL(0x0a0000c8), 24};

	route_open_stack();
	net_routes_lease(net_here()->ports, &leased, 1);
	route_expect_hop("192.0.2.9", "10.0.0.200");
	assert_int_equal(change(net_route_add, "192.0.2.0/24 via 10.0.0.201"),
			 0);
	route_expect_hop("192.0.2.9", "10.0.0.201");
	net_routes_lease(net_here()->ports, &leased, 1); /* it is renewed */
	route_expect_hop("192.0.2.9", "10.0.0.201");
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.0.0.200"),
		-ESRCH);
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.0.0.201"), 0);
	route_expect_hop("192.0.2.9", "10.0.0.200");
	net_routes_lease(net_here()->ports, NULL, 0);
	assert_int_equal(route_dial_from(NULL, "192.0.2.9"), -EHOSTUNREACH);
}

static void test_wrong_changes_are_refused(void **state)
{
	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_open_stack();
	assert_int_equal(change(net_route_add, "192.0.2.0/24 via 10.2.0.1"),
			 -ENETUNREACH);
	assert_int_equal(
		change(net_route_add, "192.0.2.0/24 via 10.0.0.9 dev 3"),
		-ENODEV);
	assert_int_equal(change(net_route_add, "2001:db8::/32 via fe80::9"),
			 -ENOTUNIQ);
	assert_int_equal(
		change(net_route_add, "192.0.2.0/24 via 10.0.0.9 src 10.1.0.1"),
		-EADDRNOTAVAIL);
	assert_int_equal(change(net_route_add, "default via 10.0.0.254"),
			 -EEXIST);
	assert_int_equal(
		change(net_route_add, "192.0.2.0/24 via 10.0.0.9 src 10.0.4.1"),
		0);
	assert_int_equal(change(net_route_remove,
				"192.0.2.0/24 via 10.0.0.9 src 10.0.0.1"),
			 -ESRCH);
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.0.0.9 dev 2"),
		-ESRCH);
	assert_int_equal(change(net_route_remove, "192.0.2.0/25 via 10.0.0.9"),
			 -ESRCH);
	assert_int_equal(change(net_route_remove, "default via 10.0.0.254"), 0);
}

static void test_routes_are_bounded(void **state)
{
	char text[60];
	unsigned n = 0;
	int err = 0;

	route_open_stack();
	for (; err == 0 && n < 2 * NET_ROUTES; n++) {
		snprintf(text, sizeof(text), "172.16.%u.0/24 via 10.0.0.9", n);
		err = change(net_route_add, text);
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(net_here()->n_routes, NET_ROUTES);
	assert_int_equal(n, NET_ROUTES + 1);
}

static void expect_answer(const char *request, const char *part)
{
	char *answer = asked_text(0, request, NULL);

	if (!strstr(answer, part))
		fail_msg("%s: %s", request, answer);
	free(answer);
}

static void test_commands_change_routes(void **state)
{
	route_open_stack();
	net_ask_open(1);
	expect_answer("/coronet/route.add,192.0.2.0/24 via 10.0.0.9 dev 1",
		      "\"added\":\"192.0.2.0/24 via 10.0.0.9\"");
	expect_answer("/coronet/routes", "192.0.2.0/24");
	expect_answer("/coronet/route.add,192.0.2.0/24 via 10.0.0.9",
		      "192.0.2.0/24 via 10.0.0.9: the stack has this route");
	expect_answer("/coronet/route.del,192.0.2.0/24 via 10.0.0.9",
		      "\"removed\"");
	expect_answer("/coronet/route.del,192.0.2.0/24 via 10.0.0.9",
		      "there is no such route");
	expect_answer("/coronet/route.add,192.0.2.0/24", "expected via");
	expect_answer("/coronet/route.add", "expected a network");
	/* There is no shard 1, so shard 0 is not asked. */
	net_ask_open(2);
	expect_answer("/coronet/route.add,192.0.2.0/24 via 10.0.0.9",
		      "shard 1");
	assert_int_equal(net_here()->n_routes, 0);
}

/* ---- options that are read again ---- */

static struct net_opts changed;

static void set_routes(const char *const *texts)
{
	changed = route_opts;
	changed.n_routes = 0;
	changed.gateway4 = changed.gateway6 = (struct net_addr){0};
	for (; *texts; texts++)
		if (net_opts_set(&changed,
				 strchr(*texts, ' ') ? "route" : "gateway",
				 *texts) < 0)
			fail_msg("%s", changed.error);
}

/* Replaces the options' routes; gateways are texts without a blank. */
#define REPLACE(...)                                                           \
	(set_routes((const char *const[]){__VA_ARGS__, NULL}), replace_routes())

static int replace_routes(void)
{
	int err = net_routes_replace(&route_opts, &changed);

	if (err == 0)
		route_opts = changed;
	return err;
}

static void test_changed_options_replace_routes_in_their_order(void **state)
{
	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	net_addr_parse("fd00::254", 0, &route_opts.gateway6);
	route_add("192.0.2.0/24 via 10.0.0.252");
	route_add("198.51.100.0/24 via 10.1.0.252");
	route_open_stack();
	assert_int_equal(REPLACE("192.0.2.0/24 via 10.0.0.253 src 10.0.4.1",
				 "192.0.2.0/24 via 10.0.0.252", "10.1.0.254",
				 "2001:db8:9::/48 via fe80::9 dev 2"),
			 0);
	route_expect("192.0.2.9", "10.0.4.1", "10.0.0.253");
	route_expect_hop("198.51.100.9", "10.1.0.254");
	route_expect_hop("8.8.8.8", "10.1.0.254");
	route_expect_hop("2001:db8:9::9", "fe80::9");
	route_expect_no_hop("2001:db8:8::9");
	assert_int_equal(REPLACE("192.0.2.0/24 via 10.0.0.252",
				 "192.0.2.0/24 via 10.0.0.253 src 10.0.4.1"),
			 0);
	route_expect_hop("192.0.2.9", "10.0.0.252");
	assert_int_equal(REPLACE("192.0.2.0/24 via 10.0.0.253"), 0);
	route_expect("192.0.2.9", "10.0.0.1", "10.0.0.253");
	route_expect_no_hop("8.8.8.8");
	assert_int_equal(net_here()->n_routes, 1);
}

static int replace_gateway(void)
{
	return REPLACE("10.0.0.253");
}

static void test_changed_options_redirect_at_once(void **state)
{
	expect_redirect(replace_gateway);
}

static void test_changed_options_leave_the_routes_of_others(void **state)
{
	const struct net_dhcp_route leased = {
		.to = PP_HTONL(0xc0000200), .via = PP_HTONL(0x0a0000c8), 24};

	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_add("198.51.100.0/24 via 10.0.0.252");
	route_open_stack();
	net_routes_lease(net_here()->ports, &leased, 1);
	assert_int_equal(change(net_route_add, "203.0.113.0/24 via 10.1.0.7"),
			 0);
	assert_int_equal(
		change(net_route_remove, "198.51.100.0/24 via 10.0.0.252"), 0);
	/* Both sets of options have the removed one. */
	assert_int_equal(
		REPLACE("198.51.100.0/24 via 10.0.0.252", "10.0.0.253"), 0);
	route_expect_hop("198.51.100.9", "10.0.0.253");
	route_expect_hop("203.0.113.9", "10.1.0.7");
	route_expect_hop("192.0.2.9", "10.0.0.200");
	/* The one that was added is now of the options, and ends with them. */
	assert_int_equal(REPLACE("203.0.113.0/24 via 10.1.0.7",
				 "192.0.2.0/24 via 10.0.0.201"),
			 0);
	route_expect_hop("203.0.113.9", "10.1.0.7");
	route_expect_hop("192.0.2.9", "10.0.0.201");
	assert_int_equal(net_here()->n_routes, 3);
	assert_int_equal(REPLACE("198.51.100.0/24 via 10.0.0.252"), 0);
	route_expect_hop("198.51.100.9", "10.0.0.252");
	route_expect_no_hop("203.0.113.9");
	route_expect_hop("192.0.2.9", "10.0.0.200");
	net_routes_lease(net_here()->ports, NULL, 0);
	route_expect_no_hop("192.0.2.9");
	assert_int_equal(net_here()->n_routes, 1);
}

static void test_refused_options_change_nothing(void **state)
{
	char text[60];

	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_add("192.0.2.0/24 via 10.0.4.9");
	route_add("198.51.100.0/24 via 10.1.0.9 dev 2");
	route_open_stack();
	assert_int_equal(REPLACE("203.0.113.0/24 via 10.0.0.9",
				 "203.0.113.0/24 via 10.2.0.9"),
			 -EINVAL);
	assert_non_null(strstr(changed.error,
			       "--route '203.0.113.0/24 via 10.2.0.9': "
			       "10.2.0.9: not in a network of any --addr"));
	assert_int_equal(net_here()->n_routes, 3);
	route_expect_hop("192.0.2.9", "10.0.4.9");
	route_expect_hop("203.0.113.9", "10.0.0.254");
	for (unsigned i = net_here()->n_routes; i < NET_ROUTES; i++) {
		snprintf(text, sizeof(text), "172.16.%u.0/24 via 10.0.0.9", i);
		assert_int_equal(change(net_route_add, text), 0);
	}
	changed = route_opts;
	changed.routes[changed.n_routes++] = route_opts.routes[0];
	changed.routes[2].to.ip[2] = 3;
	assert_int_equal(replace_routes(), -ENOSPC);
	assert_non_null(strstr(changed.error, "no room"));
	assert_int_equal(net_here()->n_routes, NET_ROUTES);
	route_expect_hop("192.0.2.9", "10.0.4.9");
	route_expect_hop("172.16.65.9", "10.0.0.9");
}

static void test_change_that_is_taken_back_leaves_what_was(void **state)
{
	struct net_opts before;

	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_add("192.0.2.0/24 via 10.0.0.252");
	route_add("198.51.100.0/24 via 10.0.0.252");
	route_add("203.0.113.0/24 via 10.0.0.252");
	route_open_stack();
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.0.0.252"), 0);
	assert_int_equal(
		change(net_route_remove, "203.0.113.0/24 via 10.0.0.252"), 0);
	assert_int_equal(change(net_route_add, "192.0.2.0/25 via 10.1.0.7"), 0);
	before = route_opts;
	assert_int_equal(REPLACE("203.0.113.0/24 via 10.0.0.252",
				 "8.8.0.0/16 via 10.0.0.250", "10.0.0.253"),
			 0);
	route_expect_hop("203.0.113.9", "10.0.0.253");
	route_expect_hop("8.8.8.8", "10.0.0.250");
	assert_int_equal(net_routes_restore(&before, &changed), 0);
	route_expect_hop("8.8.8.8", "10.0.0.254");
	route_expect_hop("192.0.2.9", "10.1.0.7");
	route_expect_hop("192.0.2.129", "10.0.0.254");
	route_expect_hop("203.0.113.9", "10.0.0.254");
	route_expect_hop("198.51.100.9", "10.0.0.252");
	assert_int_equal(net_here()->n_routes, 3);
}

/* A route whose gateway's address was removed meanwhile is not refused. */
static void test_unchanged_route_may_be_unusable_now(void **state)
{
	struct net_addr addr;

	net_addr_parse_prefix("10.0.4.1/24", &addr);
	route_opts.n_addrs = 0;
	route_add_addr("10.0.4.1/24", 0);
	route_add_addr("10.9.0.1/16", 0);
	route_add_addr("10.1.0.1/16", 1);
	route_add("192.0.2.0/24 via 10.0.4.9 dev 1");
	route_add("203.0.113.0/24 via 10.0.4.9");
	route_open_stack();
	assert_int_equal(net_ifaddr_remove(net_here()->ports, &addr), 0);
	route_expect_no_hop("192.0.2.9");
	assert_int_equal(REPLACE("192.0.2.0/24 via 10.0.4.9 dev 1",
				 "203.0.113.0/24 via 10.0.4.9",
				 "198.51.100.0/24 via 10.1.0.9"),
			 0);
	route_expect_no_hop("192.0.2.9");
	route_expect_hop("198.51.100.9", "10.1.0.9");
	assert_int_equal(net_ifaddr_add(net_here()->ports, &addr), 0);
	route_expect_hop("192.0.2.9", "10.0.4.9");
	route_expect_hop("203.0.113.9", "10.0.4.9");
}

static struct {
	int result;
	_Atomic bool done;
} rereading;

static void *change_routes(void *arg)
{
	rereading.result = net_routes_change(&route_opts, &changed);
	atomic_store(&rereading.done, true);
	return NULL;
}

/* Runs the shard while another thread changes its routes. */
static int reread(void)
{
	pthread_t thread;

	atomic_store(&rereading.done, false);
	pthread_create(&thread, NULL, change_routes, NULL);
	while (!atomic_load(&rereading.done))
		run_rounds(1);
	pthread_join(thread, NULL);
	return rereading.result;
}

static void test_threads_change_the_routes_of_all_shards(void **state)
{
	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_add("192.0.2.0/24 via 10.0.0.252");
	route_open_stack();
	set_routes((const char *const[]){"192.0.2.0/24 via 10.0.0.252",
					 "10.0.0.254", NULL});
	assert_int_equal(reread(), 0);
	set_routes((const char *const[]){"10.0.0.254", NULL});
	net_ask_shut();
	assert_int_equal(reread(), -EAGAIN);
	assert_non_null(strstr(changed.error, "ending"));
	net_ask_open(1);
	assert_int_equal(reread(), 1);
	route_expect_hop("192.0.2.9", "10.0.0.254");
	route_opts = changed;
	set_routes((const char *const[]){"192.0.2.0/24 via 10.9.0.252", NULL});
	assert_int_equal(reread(), -EINVAL);
	assert_non_null(strstr(changed.error, "10.9.0.252: not in a network"));
	/* There is no shard 1, so shard 0 is not asked. */
	net_ask_open(2);
	set_routes((const char *const[]){"10.0.0.253", NULL});
	assert_int_equal(reread(), -EINVAL);
	assert_non_null(strstr(changed.error, "there is no shard 1"));
	route_expect_hop("8.8.8.8", "10.0.0.254");
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, route_setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_added_route_is_used_until_it_is_removed),
		T(test_changed_route_redirects_at_once),
		T(test_added_route_comes_before_those_of_leases),
		T(test_wrong_changes_are_refused),
		T(test_routes_are_bounded),
		T(test_commands_change_routes),
		T(test_changed_options_replace_routes_in_their_order),
		T(test_changed_options_redirect_at_once),
		T(test_changed_options_leave_the_routes_of_others),
		T(test_refused_options_change_nothing),
		T(test_change_that_is_taken_back_leaves_what_was),
		T(test_unchanged_route_may_be_unusable_now),
		T(test_threads_change_the_routes_of_all_shards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
