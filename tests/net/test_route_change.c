/* Routes that change while the stack runs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "netstack/link/dhcp.h"
#include "netstack/link/link.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/routes.h"

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
static void test_changed_route_redirects_at_once(void **state)
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
	assert_int_equal(change(net_route_add, "192.0.2.0/24 via 10.0.0.253"),
			 0);
	route_dial_from(NULL, "192.0.2.9");
	assert_true(fake_sent(frame, sizeof(frame)));
	assert_memory_equal(frame, macs[1], 6);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
