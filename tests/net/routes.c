/* A stack with two links and six addresses, for tests of routes. */
#include "tests/net/routes.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/link/link.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

struct net_opts route_opts;

void route_add_addr(const char *text, unsigned link)
{
	route_opts.addr_links[route_opts.n_addrs] = (uint8_t)link;
	assert_int_equal(net_addr_parse_prefix(
				 text, &route_opts.addrs[route_opts.n_addrs]),
			 0);
	route_opts.n_addrs++;
}

void route_add(const char *text)
{
	char error[200] = "";

	if (net_route_parse(text, &route_opts.routes[route_opts.n_routes++],
			    error, sizeof(error)) < 0)
		fail_msg("%s: %s", text, error);
}

int route_setup(void **state)
{
	fake_now_ns = 1000000000;
	peer_opts_init(&route_opts);
	route_opts.links[route_opts.n_links++] = "ring:a";
	route_opts.links[route_opts.n_links++] = "ring:b";
	route_add_addr("10.0.0.1/16", 0);
	route_add_addr("10.0.4.1/24", 0);
	route_add_addr("fd00::1/48", 0);
	route_add_addr("2001:db8::1/64", 0);
	route_add_addr("10.1.0.1/16", 1);
	route_add_addr("fd01::1/64", 1);
	route_opts.max_conns = 64;
	route_opts.poll = NET_POLL_BUSY;
	return 0;
}

void route_drop_sent(void)
{
	uint8_t frame[9216];

	while (fake_sent(frame, sizeof(frame)))
		;
}

void route_open_stack(void)
{
	if (net_stack_open(&route_opts, &stack) < 0)
		fail_msg("%s", route_opts.error);
	route_drop_sent();
}

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

void route_read_question(struct net_addr *from, struct net_addr *hop)
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

void route_expect_addr(const char *text, const struct net_addr *addr)
{
	struct net_addr expected;

	assert_int_equal(net_addr_parse(text, 0, &expected), 0);
	if (expected.family != addr->family ||
	    memcmp(expected.ip, addr->ip, 16) != 0)
		fail_msg("expected %s", text);
}

int route_dial_from(const char *source, const char *to)
{
	static struct attempt attempt;

	attempt = (struct attempt){.opts.timeout_ms = 5};
	assert_int_equal(net_addr_parse(to, 80, &attempt.to), 0);
	if (source)
		assert_int_equal(
			net_addr_parse(source, 0, &attempt.opts.source), 0);
	route_drop_sent();
	net_spawn(stack, "dial", dial_peer, &attempt);
	run_ms(10);
	return attempt.result;
}

void route_expect(const char *to, const char *from, const char *hop)
{
	struct net_addr source, asked_from, neighbour, addr;

	assert_int_equal(net_addr_parse(to, 80, &addr), 0);
	assert_int_equal(net_route(stack, &addr, &source), 0);
	route_expect_addr(from, &source);
	route_dial_from(NULL, to);
	route_read_question(&asked_from, &neighbour);
	route_expect_addr(hop, &neighbour);
	if (addr.family == 4)
		route_expect_addr(from, &asked_from);
}

void route_hear_arp(const uint8_t mac[6], const char *sender,
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

void route_expect_hop(const char *to, const char *hop)
{
	struct net_addr addr;
	struct net_hop found;
	ip_addr_t ip;

	assert_int_equal(net_addr_parse(to, 80, &addr), 0);
	net_addr_to_lwip(&addr, &ip);
	assert_int_equal(net_route_find(NULL, &ip, &found), 0);
	net_addr_from_lwip(&found.ip, 0, &addr);
	route_expect_addr(hop, &addr);
}

void route_expect_no_hop(const char *to)
{
	struct net_addr addr;
	struct net_hop found;
	ip_addr_t ip;

	assert_int_equal(net_addr_parse(to, 80, &addr), 0);
	net_addr_to_lwip(&addr, &ip);
	assert_int_equal(net_route_find(NULL, &ip, &found), -EHOSTUNREACH);
}
