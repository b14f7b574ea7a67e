/*
 * Routes: which neighbour packets go to, which address they come from, and
 * which routes are refused.
 */
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
#include "tests/bytes.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#include "lwip/etharp.h"

static struct net_opts opts;

static void add_addr(const char *text, unsigned link)
{
	opts.addr_links[opts.n_addrs] = (uint8_t)link;
	assert_int_equal(net_addr_parse_prefix(text, &opts.addrs[opts.n_addrs]),
			 0);
	opts.n_addrs++;
}

static void add_route(const char *text)
{
	char error[200] = "";

	if (net_route_parse(text, &opts.routes[opts.n_routes++], error,
			    sizeof(error)) < 0)
		fail_msg("%s: %s", text, error);
}

/* Two addresses on the first link, one of each family on the second. */
static int setup(void **state)
{
	fake_now_ns = 1000000000;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:a";
	opts.links[opts.n_links++] = "ring:b";
	add_addr("10.0.0.1/16", 0);
	add_addr("10.0.4.1/24", 0);
	add_addr("fd00::1/48", 0);
	add_addr("2001:db8::1/64", 0);
	add_addr("10.1.0.1/16", 1);
	add_addr("fd01::1/64", 1);
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
	return 0;
}

static void drop_sent(void)
{
	uint8_t frame[9216];

	while (fake_sent(frame, sizeof(frame)))
		;
}

static void open_stack(void)
{
	if (net_stack_open(&opts, &stack) < 0)
		fail_msg("%s", opts.error);
	drop_sent();
}

/* ---- routes of connections ---- */

struct attempt {
	struct net_addr to;
	struct net_dial_opts opts;
	int result;
};

static void *dial_peer(void *arg)
{
	struct attempt *attempt = arg;
	struct net_conn *conn;

	attempt->result = net_dial(stack, &attempt->to, &attempt->opts, &conn);
	return NULL;
}

/* The source and the neighbour of the first question that was sent. */
static void read_question(struct net_addr *from, struct net_addr *hop)
{
	uint8_t frame[9216];

	while (fake_sent(frame, sizeof(frame))) {
		bool arp = get16(frame + 12) == 0x0806;

		if (!arp && (get16(frame + 12) != 0x86dd || frame[54] != 135))
			continue;
		*from = (struct net_addr){.family = arp ? 4 : 6};
		*hop = *from;
		memcpy(from->ip, frame + (arp ? 28 : 22), arp ? 4 : 16);
		memcpy(hop->ip, frame + (arp ? 38 : 62), arp ? 4 : 16);
		return;
	}
	fail_msg("no neighbour was asked for");
}

static void expect_addr(const char *text, const struct net_addr *addr)
{
	struct net_addr expected;

	assert_int_equal(net_addr_parse(text, 0, &expected), 0);
	if (expected.family != addr->family ||
	    memcmp(expected.ip, addr->ip, 16) != 0)
		fail_msg("expected %s", text);
}

static int dial_from(const char *source, const char *to)
{
	static struct attempt attempt;

	attempt = (struct attempt){.opts.timeout_ms = 5};
	assert_int_equal(net_addr_parse(to, 80, &attempt.to), 0);
	if (source)
		assert_int_equal(
			net_addr_parse(source, 0, &attempt.opts.source), 0);
	drop_sent();
	net_spawn(stack, "dial", dial_peer, &attempt);
	run_ms(10);
	return attempt.result;
}

/* A dial comes from `from`, and its SYN waits for the neighbour `hop`. */
static void expect_route(const char *to, const char *from, const char *hop)
{
	struct net_addr source, asked_from, neighbour, addr;

	assert_int_equal(net_addr_parse(to, 80, &addr), 0);
	assert_int_equal(net_route(stack, &addr, &source), 0);
	expect_addr(from, &source);
	dial_from(NULL, to);
	read_question(&asked_from, &neighbour);
	expect_addr(hop, &neighbour);
	if (addr.family == 4)
		expect_addr(from, &asked_from);
}

static void test_longest_prefix_decides(void **state)
{
	net_addr_parse("10.0.0.254", 0, &opts.gateway4);
	add_route("172.16.0.0/12 via 10.0.0.253");
	add_route("172.16.5.0/24 via 10.0.0.252");
	add_route("172.16.5.9/32 via 10.1.0.251");
	open_stack();
	expect_route("172.16.6.1", "10.0.0.1", "10.0.0.253");
	expect_route("172.16.5.1", "10.0.0.1", "10.0.0.252");
	expect_route("172.16.5.9", "10.1.0.1", "10.1.0.251");
	expect_route("8.8.8.8", "10.0.0.1", "10.0.0.254");
	expect_route("10.0.9.9", "10.0.0.1", "10.0.9.9");
	expect_route("10.1.9.9", "10.1.0.1", "10.1.9.9");
}

static void say_arp(const uint8_t mac[6], const char *sender,
		    const char *target)
{
	uint8_t frame[42] = {0}, *arp = frame + 14;
	struct net_addr addr;

	memset(frame, 0xff, 6);
	memcpy(frame + 6, mac, 6);
	memcpy(frame + 12, "\10\6\0\1\10\0\6\4\0\1", 10);
	memcpy(arp + 8, mac, 6);
	net_addr_parse(sender, 0, &addr);
	memcpy(arp + 14, addr.ip, 4);
	net_addr_parse(target, 0, &addr);
	memcpy(arp + 24, addr.ip, 4);
	fake_receive_wire(frame, sizeof(frame));
	run_rounds(1);
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
	opts.n_addrs = 0;
	add_addr("10.7.0.5/32", 0);
	add_addr("10.1.0.1/16", 1);
	add_route("default via 10.7.0.1 dev 1");
	open_stack();
	expect_route("8.8.8.8", "10.7.0.5", "10.7.0.1");
	expect_route("10.1.9.9", "10.1.0.1", "10.1.9.9");
	/* Its answer is believed, and the SYNs that have waited leave. */
	dial_from(NULL, "8.8.8.8");
	drop_sent();
	say_arp(fake_peer_mac, "10.7.0.1", "10.7.0.5");
	assert_int_equal(frames_of(0x0800), 2);
}

static void
test_gateway_of_the_only_link_may_be_beside_its_network(void **state)
{
	opts.n_links = 1;
	opts.n_addrs = 0;
	add_addr("10.7.0.5/32", 0);
	net_addr_parse("10.7.0.1", 0, &opts.gateway4);
	open_stack();
	expect_route("8.8.8.8", "10.7.0.5", "10.7.0.1");
}

static void test_longest_prefix_decides6(void **state)
{
	net_addr_parse("fd01::254", 0, &opts.gateway6);
	add_route("2001:db8:1::/48 via 2001:db8::253");
	add_route("2001:db8:1:5::/64 via fe80::252 dev 2");
	open_stack();
	expect_route("[2001:db8:1:6::1]", "2001:db8::1", "2001:db8::253");
	expect_route("[2001:db8:1:5::1]", "fd01::1", "fe80::252");
	expect_route("[2001:db9::1]", "fd01::1", "fd01::254");
	expect_route("[2001:db8::9]", "2001:db8::1", "2001:db8::9");
}

/* The prefix of --addr is that of its network, not always 64 bits. */
static void test_prefix_of_an_address_is_its_network6(void **state)
{
	open_stack();
	expect_route("[fd00:0:0:7::9]", "fd00::1", "fd00:0:0:7::9");
	assert_int_equal(dial_from(NULL, "[fd00:0:1::9]"), -EHOSTUNREACH);
}

static void test_route_inside_an_own_network_is_used(void **state)
{
	add_route("10.0.9.0/24 via 10.0.0.251");
	add_route("fd00::900/120 via fd00::251");
	open_stack();
	expect_route("10.0.9.9", "10.0.0.1", "10.0.0.251");
	expect_route("10.0.8.9", "10.0.0.1", "10.0.8.9");
	expect_route("[fd00::901]", "fd00::1", "fd00::251");
	expect_route("[fd00::801]", "fd00::1", "fd00::801");
}

static void test_first_of_equal_routes_is_used(void **state)
{
	add_route("default via 10.0.0.253");
	add_route("0.0.0.0/0 via 10.0.0.252");
	net_addr_parse("10.0.0.254", 0, &opts.gateway4);
	open_stack();
	expect_route("8.8.8.8", "10.0.0.1", "10.0.0.253");
}

static void test_source_is_of_the_neighbours_network(void **state)
{
	net_addr_parse("10.0.4.254", 0, &opts.gateway4);
	open_stack();
	expect_route("10.0.4.9", "10.0.4.1", "10.0.4.9");
	expect_route("10.0.5.9", "10.0.0.1", "10.0.5.9");
	expect_route("8.8.8.8", "10.0.4.1", "10.0.4.254");
}

static void test_source_of_a_route_overrides(void **state)
{
	add_route("192.0.2.0/24 via 10.0.0.253 src 10.0.4.1");
	add_route("2001:db8:2::/48 via fd00::253 dev 1 src fd00::1");
	open_stack();
	expect_route("192.0.2.9", "10.0.4.1", "10.0.0.253");
	expect_route("[2001:db8:2::9]", "fd00::1", "fd00::253");
}

/* RFC 6724 5, rules 2 and 8. */
static void
test_source_has_the_scope_and_prefix_of_the_destination(void **state)
{
	net_addr_parse("fe80::254", 0, &opts.gateway6);
	open_stack();
	expect_route("[2001:db8:7::9]", "2001:db8::1", "fe80::254");
	run_ms(2000); /* then the gateway is asked for again */
	expect_route("[fd00:1::9]", "fd00::1", "fe80::254");
}

static void test_given_source_sends_through_its_own_link(void **state)
{
	struct net_addr from, hop;

	add_route("192.0.2.0/24 via 10.0.0.253");
	open_stack();
	assert_int_equal(dial_from("10.1.0.1", "192.0.2.9"), -EHOSTUNREACH);
	assert_int_equal(dial_from("10.2.0.1", "192.0.2.9"), -EADDRNOTAVAIL);
	dial_from("10.0.4.1", "192.0.2.9");
	read_question(&from, &hop);
	expect_addr("10.0.4.1", &from);
	expect_addr("10.0.0.253", &hop);
	assert_int_equal(dial_from(NULL, "198.51.100.1"), -EHOSTUNREACH);
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

	open_stack();
	say_arp(fake_peer_mac, "10.0.4.99", "10.0.0.1");
	say_arp(fake_peer_mac, "10.0.4.99", "10.0.4.1");
	assert_memory_equal(mac_for(0), fake_peer_mac, 6);
	assert_memory_equal(mac_for(1), fake_peer_mac, 6);
	say_arp(moved, "10.0.4.99", "10.0.4.99");
	assert_memory_equal(mac_for(0), moved, 6);
	assert_memory_equal(mac_for(1), moved, 6);
}

/* ---- routes that change ---- */

static int change(int (*fn)(const struct net_route_opts *), const char *text)
{
	struct net_route_opts route;
	char error[200];

	if (net_route_parse(text, &route, error, sizeof(error)) < 0)
		fail_msg("%s: %s", text, error);
	return fn(&route);
}

/* Looks up the neighbour of a destination, without a packet. */
static void expect_hop(const char *to, const char *hop)
{
	struct net_addr addr;
	struct net_hop found;
	ip_addr_t ip;

	assert_int_equal(net_addr_parse(to, 80, &addr), 0);
	net_addr_to_lwip(&addr, &ip);
	assert_int_equal(net_route_find(NULL, &ip, &found), 0);
	net_addr_from_lwip(&found.ip, 0, &addr);
	expect_addr(hop, &addr);
}

static void test_added_route_is_used_until_it_is_removed(void **state)
{
	net_addr_parse("10.0.0.254", 0, &opts.gateway4);
	net_addr_parse("fd00::254", 0, &opts.gateway6);
	add_route("198.51.100.0/24 via 10.0.0.252");
	open_stack();
	expect_route("192.0.2.9", "10.0.0.1", "10.0.0.254");
	expect_route("[fd99::9]", "fd00::1", "fd00::254");
	assert_int_equal(
		change(net_route_add, "192.0.2.0/24 via 10.1.0.253 dev 2"), 0);
	assert_int_equal(change(net_route_add, "fd99::/16 via 2001:db8::253"),
			 0);
	expect_route("192.0.2.9", "10.1.0.1", "10.1.0.253");
	expect_route("[fd99::9]", "2001:db8::1", "2001:db8::253");
	expect_route("198.51.100.9", "10.0.0.1", "10.0.0.252");
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.1.0.253"), 0);
	assert_int_equal(
		change(net_route_remove, "fd99::/16 via 2001:db8::253 dev 1"),
		0);
	expect_hop("192.0.2.9", "10.0.0.254");
	expect_hop("[fd99::9]", "fd00::254");
	expect_hop("198.51.100.9", "10.0.0.252");
}

/* The gateway of a connection's packets changes with the next packet. */
static void test_changed_route_redirects_at_once(void **state)
{
	static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 8},
					   {2, 0, 0, 0, 0, 9}};
	uint8_t frame[9216];

	net_addr_parse("10.0.0.254", 0, &opts.gateway4);
	open_stack();
	say_arp(macs[0], "10.0.0.254", "10.0.0.1");
	say_arp(macs[1], "10.0.0.253", "10.0.0.1");
	dial_from(NULL, "192.0.2.9");
	assert_true(fake_sent(frame, sizeof(frame)));
	assert_memory_equal(frame, macs[0], 6);
	assert_int_equal(change(net_route_add, "192.0.2.0/24 via 10.0.0.253"),
			 0);
	dial_from(NULL, "192.0.2.9");
	assert_true(fake_sent(frame, sizeof(frame)));
	assert_memory_equal(frame, macs[1], 6);
}

static void test_added_route_comes_before_those_of_leases(void **state)
{
	const struct net_dhcp_route leased = {
		.to = PP_HTONL(0xc0000200), .via = PP_HTONL(0x0a0000c8), 24};

	open_stack();
	net_routes_lease(net_here()->ports, &leased, 1);
	expect_hop("192.0.2.9", "10.0.0.200");
	assert_int_equal(change(net_route_add, "192.0.2.0/24 via 10.0.0.201"),
			 0);
	expect_hop("192.0.2.9", "10.0.0.201");
	net_routes_lease(net_here()->ports, &leased, 1); /* it is renewed */
	expect_hop("192.0.2.9", "10.0.0.201");
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.0.0.200"),
		-ESRCH);
	assert_int_equal(
		change(net_route_remove, "192.0.2.0/24 via 10.0.0.201"), 0);
	expect_hop("192.0.2.9", "10.0.0.200");
	net_routes_lease(net_here()->ports, NULL, 0);
	assert_int_equal(dial_from(NULL, "192.0.2.9"), -EHOSTUNREACH);
}

static void test_wrong_changes_are_refused(void **state)
{
	net_addr_parse("10.0.0.254", 0, &opts.gateway4);
	open_stack();
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

	open_stack();
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
	open_stack();
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

/* ---- routes that are refused ---- */

static void expect_refused(const char *route, const char *reason)
{
	opts.n_routes = 0;
	add_route(route);
	assert_int_equal(net_stack_open(&opts, &stack), -EINVAL);
	if (!strstr(opts.error, reason))
		fail_msg("%s", opts.error);
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
	expect_addr("10.0.0.0", &route.to);
	expect_addr("10.9.0.254", &route.via);
	expect_addr("10.9.0.1", &route.source);
	assert_int_equal(route.link, 2);
	assert_int_equal(net_route_parse("default via fe80::1", &route, error,
					 sizeof(error)),
			 0);
	assert_int_equal(route.to.family, 6);
	assert_int_equal(route.to.prefix_len, 0);
	assert_int_equal(route.link, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)
#define P(name) cmocka_unit_test_setup(name, setup)

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
		T(test_announced_mac_is_learnt_for_every_address),
		T(test_added_route_is_used_until_it_is_removed),
		T(test_changed_route_redirects_at_once),
		T(test_added_route_comes_before_those_of_leases),
		T(test_wrong_changes_are_refused),
		T(test_routes_are_bounded),
		T(test_commands_change_routes),
		P(test_unusable_routes_are_refused),
		P(test_wrong_routes_are_explained),
		P(test_routes_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
