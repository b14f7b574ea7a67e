/*
 * The other side of the SLAAC client in test_slaac.c, its only user: what the
 * client sends is noted, and routers and hosts speak. The clock moves in steps
 * of 100 ms.
 */
#pragma once

#include "netstack/link/leased.h"
#include "tests/net/leases.h"
#include "tests/net/ra_bytes.h"

static const uint8_t none6[16];
static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
static const uint8_t router1[16] = {0xfe, 0x80, [15] = 1};
static const uint8_t router2[16] = {0xfe, 0x80, [15] = 2};

/* ---- frames from the client ---- */

struct heard {
	unsigned probes, solicitations, announcements, reports, discovers;
	unsigned answers;	/* to solicitations of neighbours */
	uint8_t probed[16];	/* by the last probe */
	uint8_t asked_from[16]; /* by the last solicitation of routers */
	unsigned asked_len;	/* its bytes of ICMPv6 */
	uint8_t reported[16];	/* by the last report of MLD */
	int64_t asked_ns;
};

static struct heard heard;

static void hear_ip6(const uint8_t *ip)
{
	const uint8_t *icmp = ip + 40;

	if (ip[6] == 0 && icmp[8] == 131) { /* behind a router alert */
		heard.reports++;
		memcpy(heard.reported, icmp + 8 + 8, 16);
	}
	if (ip[6] != 58)
		return;
	if (icmp[0] == 135 && memcmp(ip + 8, none6, 16) == 0) {
		heard.probes++;
		memcpy(heard.probed, icmp + 8, 16);
		assert_int_equal(ip[7], 255);
		assert_memory_equal(ip + 24, "\xff\2\0\0\0\0\0\0\0\0\0\1\xff",
				    13);
		assert_memory_equal(ip + 24 + 13, icmp + 8 + 13, 3);
	} else if (icmp[0] == 133) {
		heard.solicitations++;
		heard.asked_ns = fake_now_ns;
		heard.asked_len = get16(ip + 4);
		memcpy(heard.asked_from, ip + 8, 16);
		assert_int_equal(ip[7], 255);
	} else if (icmp[0] == 136) {
		heard.answers += icmp[4] >> 6 & 1;
		heard.announcements += !(icmp[4] >> 6 & 1);
	}
}

static void hear(void)
{
	static uint8_t frame[9216];

	while (fake_sent(frame, sizeof(frame)))
		if (get16(frame + 12) == 0x86dd)
			hear_ip6(frame + 14);
		else if (get16(frame + 12) == 0x0800 && frame[23] == 17)
			heard.discovers++;
}

static void pass_ms(int64_t ms)
{
	for (; ms > 0; ms -= 100) {
		fake_now_ns += 100 * INT64_C(1000000);
		run_rounds(1);
		hear();
	}
}

/* Waits for the next probe, 100 seconds at most. */
static void await_probe(void)
{
	unsigned before = heard.probes;

	for (unsigned i = 0; i < 1000 && heard.probes == before; i++)
		pass_ms(100);
	assert_int_equal(heard.probes, before + 1);
}

/* The same for a solicitation, two hours at most. */
static void await_solicitation(void)
{
	unsigned before = heard.solicitations;

	for (unsigned i = 0; i < 72000 && heard.solicitations == before; i++)
		pass_ms(100);
	assert_int_equal(heard.solicitations, before + 1);
}

/* ---- frames from routers and hosts ---- */

/* Fills in the checksum of an ICMPv6 message (RFC 4443 2.3). */
static void put_sum(uint8_t *ip, unsigned len)
{
	uint32_t sum = 58 + len;

	for (unsigned i = 8; i < 40; i += 2) /* both addresses */
		sum += get16(ip + i);
	for (unsigned i = 0; i < len; i += 2)
		sum += get16(ip + 40 + i);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(ip + 42, ~(sum + (sum >> 16)) & 0xffff);
}

static void receive_icmp6(const uint8_t src[16], const uint8_t dest[16],
			  const uint8_t mac[6], const uint8_t *message,
			  unsigned len)
{
	static uint8_t frame[2048];
	uint8_t *ip = frame + 14;

	memset(frame, 0, sizeof(frame));
	frame_ethernet(frame, 0x86dd);
	if (dest[0] == 0xff) {
		memcpy(frame, "\x33\x33", 2);
		memcpy(frame + 2, dest + 12, 4);
	}
	memcpy(frame + 6, mac, 6);
	ip[0] = 0x60;
	put16(ip + 4, len);
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, src, 16);
	memcpy(ip + 24, dest, 16);
	memcpy(ip + 40, message, len);
	put_sum(ip, len);
	fake_receive(frame, 54 + len, 0, 0);
	run_rounds(1);
	hear();
}

static void advertise(const struct ra_bytes *b, const uint8_t router[16])
{
	receive_icmp6(router, all_nodes, fake_peer_mac, b->data, b->len);
}

/* One prefix with both flags, from router1 with a lifetime of 1,800 seconds. */
static void advertise_prefix(const uint8_t *prefix, uint32_t valid_s,
			     uint32_t preferred_s)
{
	struct ra_bytes b;

	ra_begin(&b, 1800, 0);
	ra_prefix(&b, prefix, 64, 0xc0, valid_s, preferred_s);
	advertise(&b, router1);
}

/* Another host answers for an address. */
static void claim(const uint8_t target[16], const uint8_t mac[6])
{
	uint8_t icmp[32] = {136, [4] = 0x20};

	memcpy(icmp + 8, target, 16);
	icmp[24] = 2;
	icmp[25] = 1;
	memcpy(icmp + 26, mac, 6);
	receive_icmp6(target, all_nodes, mac, icmp, 32);
}

/* A solicitation; from no address it is a probe. */
static void solicit(const uint8_t src[16], const uint8_t target[16],
		    const uint8_t mac[6])
{
	uint8_t icmp[32] = {135};
	uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff};

	memcpy(icmp + 8, target, 16);
	memcpy(group + 13, target + 13, 3);
	icmp[24] = 1;
	icmp[25] = 1;
	memcpy(icmp + 26, mac, 6);
	receive_icmp6(src, group, mac, icmp, src[0] ? 32 : 24);
}

/* ---- the stack ---- */

static void init_opts(void)
{
	init_lease_opts(6);
	memset(&heard, 0, sizeof(heard));
}

static int setup(void **state)
{
	init_opts();
	return net_stack_open(&opts, &stack);
}

/* The stack's active address in a /64, or NULL. */
static const struct net_ifaddr *addr_in(const uint8_t *prefix)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *addr = &net_here()->addrs[i];

		if (addr->active && IP_IS_V6(&addr->ip) &&
		    memcmp(ip_2_ip6(&addr->ip)->addr, prefix, 8) == 0)
			return addr;
	}
	return NULL;
}

static const uint8_t *bytes_of(const struct net_ifaddr *addr)
{
	assert_non_null(addr);
	return (const void *)ip_2_ip6(&addr->ip)->addr;
}

static int64_t seconds_left(const struct net_ifaddr *addr)
{
	int64_t left_s = -2;

	assert_non_null(addr);
	assert_true(net_slaac_lease_of(net_here()->ports, &addr->ip, &left_s));
	return left_s;
}

/* Passes until the link-local address is in use and routers are solicited. */
static void come_up(void)
{
	await_probe();
	await_solicitation();
}

/* Until the address of PREFIX is in use. */
static void come_up_with(uint32_t valid_s, uint32_t preferred_s)
{
	come_up();
	advertise_prefix(PREFIX, valid_s, preferred_s);
	await_probe();
	pass_ms(1100);
	assert_non_null(addr_in(PREFIX));
}
