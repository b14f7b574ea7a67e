/*
 * Routes: which neighbour packets go to, which address they come from, and
 * which routes are refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <coronet/net_udp.h>

#include "netstack/link/link.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/routes.h"

#include "lwip/etharp.h"

static void test_longest_prefix_decides(void **state)
{
	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_add("172.16.0.0/12 via 10.0.0.253");
	route_add("172.16.5.0/24 via 10.0.0.252");
	route_add("172.16.5.9/32 via 10.1.0.251");
	route_open_stack();
	route_expect("172.16.6.1", "10.0.0.1", "10.0.0.253");
	route_expect("172.16.5.1", "10.0.0.1", "10.0.0.252");
	route_expect("172.16.5.9", "10.1.0.1", "10.1.0.251");
	route_expect("8.8.8.8", "10.0.0.1", "10.0.0.254");
	route_expect("10.0.9.9", "10.0.0.1", "10.0.9.9");
	route_expect("10.1.9.9", "10.1.0.1", "10.1.9.9");
}

static unsigned frames_of(unsigned ethertype)
{
	uint8_t frame[9216];
	unsigned n = 0;

	while (fake_sent(frame, sizeof(frame)))
		n += get16(frame + 12) == ethertype;
	return n;
}

/* Clouds give a host a /32, and a router that is in no network. */
static void test_gateway_beside_the_networks_is_on_its_link(void **state)
{
	route_opts.n_addrs = 0;
	route_add_addr("10.7.0.5/32", 0);
	route_add_addr("10.1.0.1/16", 1);
	route_add("default via 10.7.0.1 dev 1");
	route_open_stack();
	route_expect("8.8.8.8", "10.7.0.5", "10.7.0.1");
	route_expect("10.1.9.9", "10.1.0.1", "10.1.9.9");
	/* Its answer is believed, and the SYNs that have waited leave. */
	route_dial_from(NULL, "8.8.8.8");
	route_drop_sent();
	route_hear_arp(fake_peer_mac, "10.7.0.1", "10.7.0.5");
	assert_int_equal(frames_of(0x0800), 2);
}

static void
test_gateway_of_the_only_link_may_be_beside_its_network(void **state)
{
	route_opts.n_links = 1;
	route_opts.n_addrs = 0;
	route_add_addr("10.7.0.5/32", 0);
	net_addr_parse("10.7.0.1", 0, &route_opts.gateway4);
	route_open_stack();
	route_expect("8.8.8.8", "10.7.0.5", "10.7.0.1");
}

static void test_longest_prefix_decides6(void **state)
{
	net_addr_parse("fd01::254", 0, &route_opts.gateway6);
	route_add("2001:db8:1::/48 via 2001:db8::253");
	route_add("2001:db8:1:5::/64 via fe80::252 dev 2");
	route_open_stack();
	route_expect("[2001:db8:1:6::1]", "2001:db8::1", "2001:db8::253");
	route_expect("[2001:db8:1:5::1]", "fd01::1", "fe80::252");
	route_expect("[2001:db9::1]", "fd01::1", "fd01::254");
	route_expect("[2001:db8::9]", "2001:db8::1", "2001:db8::9");
}

/* The prefix of --addr is that of its network, not always 64 bits. */
static void test_prefix_of_an_address_is_its_network6(void **state)
{
	route_open_stack();
	route_expect("[fd00:0:0:7::9]", "fd00::1", "fd00:0:0:7::9");
	assert_int_equal(route_dial_from(NULL, "[fd00:0:1::9]"), -EHOSTUNREACH);
}

static void test_route_inside_an_own_network_is_used(void **state)
{
	route_add("10.0.9.0/24 via 10.0.0.251");
	route_add("fd00::900/120 via fd00::251");
	route_open_stack();
	route_expect("10.0.9.9", "10.0.0.1", "10.0.0.251");
	route_expect("10.0.8.9", "10.0.0.1", "10.0.8.9");
	route_expect("[fd00::901]", "fd00::1", "fd00::251");
	route_expect("[fd00::801]", "fd00::1", "fd00::801");
}

static void test_first_of_equal_routes_is_used(void **state)
{
	route_add("default via 10.0.0.253");
	route_add("0.0.0.0/0 via 10.0.0.252");
	net_addr_parse("10.0.0.254", 0, &route_opts.gateway4);
	route_open_stack();
	route_expect("8.8.8.8", "10.0.0.1", "10.0.0.253");
}

static void test_source_is_of_the_neighbours_network(void **state)
{
	net_addr_parse("10.0.4.254", 0, &route_opts.gateway4);
	route_open_stack();
	route_expect("10.0.4.9", "10.0.4.1", "10.0.4.9");
	route_expect("10.0.5.9", "10.0.0.1", "10.0.5.9");
	route_expect("8.8.8.8", "10.0.4.1", "10.0.4.254");
}

static void test_source_of_a_route_overrides(void **state)
{
	route_add("192.0.2.0/24 via 10.0.0.253 src 10.0.4.1");
	route_add("2001:db8:2::/48 via fd00::253 dev 1 src fd00::1");
	route_open_stack();
	route_expect("192.0.2.9", "10.0.4.1", "10.0.0.253");
	route_expect("[2001:db8:2::9]", "fd00::1", "fd00::253");
}

/* RFC 6724 5, rules 2 and 8. */
static void
test_source_has_the_scope_and_prefix_of_the_destination(void **state)
{
	net_addr_parse("fe80::254", 0, &route_opts.gateway6);
	route_open_stack();
	route_expect("[2001:db8:7::9]", "2001:db8::1", "fe80::254");
	run_ms(2000); /* then the gateway is asked for again */
	route_expect("[fd00:1::9]", "fd00::1", "fe80::254");
}

static void test_given_source_sends_through_its_own_link(void **state)
{
	struct net_addr from, hop;

	route_add("192.0.2.0/24 via 10.0.0.253");
	route_open_stack();
	assert_int_equal(route_dial_from("10.1.0.1", "192.0.2.9"),
			 -EHOSTUNREACH);
	assert_int_equal(route_dial_from("10.2.0.1", "192.0.2.9"),
			 -EADDRNOTAVAIL);
	route_dial_from("10.0.4.1", "192.0.2.9");
	route_read_question(&from, &hop);
	route_expect_addr("10.0.4.1", &from);
	route_expect_addr("10.0.0.253", &hop);
	assert_int_equal(route_dial_from(NULL, "198.51.100.1"), -EHOSTUNREACH);
}

/* Each link has a gateway of its own to one and the same destination. */
static void test_gateway_is_of_the_sources_link(void **state)
{
	struct net_addr from, hop;

	route_add("default via fd00::254 dev 1");
	route_add("default via fd01::254 dev 2");
	route_open_stack();
	route_dial_from("fd00::1", "2001:db9::9");
	route_read_question(&from, &hop);
	route_expect_addr("fd00::254", &hop);
	route_drop_sent();
	route_dial_from("fd01::1", "2001:db9::9");
	route_read_question(&from, &hop);
	route_expect_addr("fd01::254", &hop);
}

/* The source of the next IPv4 packet that was sent. */
static void expect_source(const char *text)
{
	struct net_addr source = {.family = 4};
	uint8_t frame[9216];

	do
		assert_true(fake_sent(frame, sizeof(frame)));
	while (get16(frame + 12) != 0x0800);
	memcpy(source.ip, frame + 26, 4);
	route_expect_addr(text, &source);
	route_drop_sent();
}

/* Another address of ours has just used the fast path to the same neighbour. */
static void test_source_of_datagrams_does_not_follow_a_connection(void **state)
{
	struct net_addr any = {0}, to;
	struct net_udp *udp;

	route_open_stack();
	net_addr_parse("10.0.0.99", 5000, &to);
	assert_int_equal(net_udp_open(stack, &any, NULL, &udp), 0);
	assert_int_equal(net_udp_send(udp, &to, "a", 1), 1);
	run_rounds(2);
	route_hear_arp(fake_peer_mac, "10.0.0.99", "10.0.0.1");
	expect_source("10.0.0.1");
	route_dial_from("10.0.4.1", "10.0.0.99");
	route_hear_arp(fake_peer_mac, "10.0.0.99", "10.0.4.1");
	route_dial_from("10.0.4.1", "10.0.0.99");
	expect_source("10.0.4.1");
	assert_int_equal(net_udp_send(udp, &to, "b", 1), 1);
	run_rounds(2);
	expect_source("10.0.0.1");
}

/* ---- neighbours of several addresses ---- */

static const uint8_t *mac_for(unsigned netif)
{
	const ip4_addr_t addr = {PP_HTONL(0x0a000463)};
	const ip4_addr_t *found;
	struct eth_addr *mac;

	return etharp_find_addr(&net_here()->netifs[netif], &addr, &mac,
				&found) >= 0
		       ? mac->addr
		       : NULL;
}

static void test_announced_mac_is_learnt_for_every_address(void **state)
{
	static const uint8_t moved[6] = {2, 0, 0, 0, 0, 9};

	route_open_stack();
	route_hear_arp(fake_peer_mac, "10.0.4.99", "10.0.0.1");
	route_hear_arp(fake_peer_mac, "10.0.4.99", "10.0.4.1");
	assert_memory_equal(mac_for(0), fake_peer_mac, 6);
	assert_memory_equal(mac_for(1), fake_peer_mac, 6);
	route_hear_arp(moved, "10.0.4.99", "10.0.4.99");
	assert_memory_equal(mac_for(0), moved, 6);
	assert_memory_equal(mac_for(1), moved, 6);
}

/* ---- routes that are refused ---- */

static void expect_refused(const char *route, const char *reason)
{
	route_opts.n_routes = 0;
	route_add(route);
	assert_int_equal(net_stack_open(&route_opts, &stack), -EINVAL);
	if (!strstr(route_opts.error, reason))
		fail_msg("%s", route_opts.error);
}

static void test_unusable_routes_are_refused(void **state)
{
	expect_refused("192.0.2.0/24 via 10.2.0.1",
		       "--route '192.0.2.0/24 via 10.2.0.1': 10.2.0.1: not in "
		       "a network of any --addr");
	expect_refused("192.0.2.0/24 via 10.1.0.9 dev 1",
		       "not in a network of that link");
	expect_refused("192.0.2.0/24 via 10.1.0.9 dev 3",
		       "dev exceeds the number of links");
	expect_refused("192.0.2.0/24 via 10.0.0.9 src 10.1.0.1",
		       "10.1.0.1: src is not an --addr of the gateway's link");
	expect_refused("192.0.2.0/24 via 10.0.0.9 src 10.0.0.2",
		       "src is not an --addr");
	expect_refused("2001:db8::/32 via fe80::9", "add dev LINK");
}

static void expect_wrong(const char *text, const char *reason)
{
	struct net_route_opts route = {.link = 77};
	char error[200] = "";

	assert_int_equal(net_route_parse(text, &route, error, sizeof(error)),
			 -EINVAL);
	if (!strstr(error, reason))
		fail_msg("%s: %s", text, error);
	assert_int_equal(route.link, 77);
}

static void test_wrong_routes_are_explained(void **state)
{
	char text[300] = "";

	expect_wrong("", "'': expected a network");
	expect_wrong("10.0.0.0", "'10.0.0.0': expected a network");
	expect_wrong("10.0.0.1/8 via 10.9.0.1",
		     "whose bits after the prefix are 0");
	expect_wrong("[fd00::]/0 via fd00::1", "expected a network");
	expect_wrong("10.0.0.0/8", "'': expected via GATEWAY");
	expect_wrong("10.0.0.0/8 dev 1", "'dev': expected via GATEWAY");
	expect_wrong("10.0.0.0/8 via", "via '': expected the address");
	expect_wrong("10.0.0.0/8 via 224.0.0.1", "via '224.0.0.1'");
	expect_wrong("10.0.0.0/8 via 10.9.0.1:80", "via '10.9.0.1:80'");
	expect_wrong("10.0.0.0/8 via fd00::1", "the network's IP version");
	expect_wrong("default via 10.9.0.1 dev", "dev '': expected");
	expect_wrong("default via 10.9.0.1 dev 9", "from 1 to 8");
	expect_wrong("default via 10.9.0.1 dev 1 dev 1", "'dev': expected");
	expect_wrong("default via 10.9.0.1 src fd00::1", "src 'fd00::1'");
	expect_wrong("default via 10.9.0.1 metric 1", "'metric': expected");
	memset(text, ' ', sizeof(text) - 1);
	expect_wrong(text, "at most 255 characters");
}

static void test_routes_are_read(void **state)
{
	struct net_route_opts route;
	char error[200];

	assert_int_equal(net_route_parse("10.0.0.0/8  via\t10.9.0.254 src "
					 "10.9.0.1 dev 2",
					 &route, error, sizeof(error)),
			 0);
	assert_int_equal(route.to.prefix_len, 8);
	route_expect_addr("10.0.0.0", &route.to);
	route_expect_addr("10.9.0.254", &route.via);
	route_expect_addr("10.9.0.1", &route.source);
	assert_int_equal(route.link, 2);
	assert_int_equal(net_route_parse("default via fe80::1", &route, error,
					 sizeof(error)),
			 0);
	assert_int_equal(route.to.family, 6);
	assert_int_equal(route.to.prefix_len, 0);
	assert_int_equal(route.link, 0);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, route_setup, peer_teardown)
#define P(name) cmocka_unit_test_setup(name, route_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_longest_prefix_decides),
		T(test_longest_prefix_decides6),
		T(test_gateway_beside_the_networks_is_on_its_link),
		T(test_gateway_of_the_only_link_may_be_beside_its_network),
		T(test_prefix_of_an_address_is_its_network6),
		T(test_route_inside_an_own_network_is_used),
		T(test_first_of_equal_routes_is_used),
		T(test_source_is_of_the_neighbours_network),
		T(test_source_of_a_route_overrides),
		T(test_source_has_the_scope_and_prefix_of_the_destination),
		T(test_given_source_sends_through_its_own_link),
		T(test_gateway_is_of_the_sources_link),
		T(test_source_of_datagrams_does_not_follow_a_connection),
		T(test_announced_mac_is_learnt_for_every_address),
		P(test_unusable_routes_are_refused),
		P(test_wrong_routes_are_explained),
		P(test_routes_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
