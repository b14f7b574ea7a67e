/*
 * A stack whose address the network gives, and what its clients make of that:
 * for dhcp_server.h and slaac_router.h.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/link/link.h"
#include "tests/net/fake_glue.h"
#include "tests/net/frames.h"
#include "tests/net/peer.h"

#define NS_PER_S INT64_C(1000000000)

static const uint8_t other_mac[6] = {2, 0, 0, 0, 0, 9};

static struct net_opts opts;

/* Family 4: by DHCP, 6: by SLAAC. */
static inline void init_lease_opts(uint8_t family)
{
	fake_now_ns = NS_PER_S;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	opts.addrs[opts.n_addrs++] = (struct net_addr){.family = family};
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
}

static inline int teardown(void **state)
{
	fake_no_carrier = false;
	return peer_teardown(state);
}

static inline ip_addr_t ip_of(const char *text)
{
	struct net_addr addr;
	ip_addr_t ip;

	assert_int_equal(net_addr_parse(text, 0, &addr), 0);
	net_addr_to_lwip(&addr, &ip);
	return ip;
}

/* The neighbour of a destination, "" without a route. */
static inline const char *hop_of(const char *text)
{
	static char out[NET_ADDR_TEXT_MAX];
	ip_addr_t ip = ip_of(text);
	struct net_addr addr;
	struct net_hop hop;

	out[0] = '\0';
	if (net_route_find(NULL, &ip, &hop) == 0) {
		net_addr_from_lwip(&hop.ip, 0, &addr);
		net_ip_format(&addr, out);
	}
	return out;
}

static inline unsigned refused(void)
{
	return (unsigned)net_here()->stats.rx_refused;
}
