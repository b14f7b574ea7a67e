/*
 * The other side of the DHCP client in test_dhcp.c, its only user: what the
 * client sends is noted, and a server and hosts answer. The clock moves in
 * steps of 100 ms.
 */
#pragma once

#include "tests/net/dhcp_bytes.h"
#include "tests/net/leases.h"

/* ---- frames from the client ---- */

struct sent {
	unsigned type;
	uint32_t xid;
	uint8_t ciaddr[4], wanted[4], server[4]; /* zero: not there */
	uint8_t from[4], to[4];			 /* of IP */
	bool broadcast;				 /* of Ethernet */
	int64_t ns;
};

static struct sent sent[64];
static unsigned n_sent;

static void see_options(struct sent *s, const uint8_t *at, const uint8_t *end)
{
	for (; at < end && *at != 255; at += 2 + at[1])
		if (*at == 53)
			s->type = at[2];
		else if (*at == 50)
			memcpy(s->wanted, at + 2, 4);
		else if (*at == 54)
			memcpy(s->server, at + 2, 4);
}

static void see_dhcp(const uint8_t *frame, unsigned len)
{
	const uint8_t *ip = frame + 14, *msg = ip + 28;
	struct sent s = {.broadcast = frame[0] == 0xff, .ns = fake_now_ns};

	assert_int_equal(len, 14 + 28 + 300);
	assert_int_equal(get16(ip + 2), 28 + 300);
	assert_int_equal(get16(ip + 24), 8 + 300);
	assert_int_equal(msg[0], 1);
	assert_memory_equal(msg + 28, fake_mac, 6);
	s.xid = get32(msg + 4);
	memcpy(s.ciaddr, msg + 12, 4);
	memcpy(s.from, ip + 12, 4);
	memcpy(s.to, ip + 16, 4);
	see_options(&s, msg + 240, msg + 300);
	if (n_sent < 64)
		sent[n_sent++] = s;
}

static void answer_arp(const uint8_t *frame);

static void look_at_lease(void)
{
	static uint8_t frame[9216];
	unsigned len;

	while ((len = fake_sent(frame, sizeof(frame))))
		if (get16(frame + 12) == 0x0806)
			answer_arp(frame);
		else if (frame[23] == 17 && get16(frame + 14 + 22) == 67)
			see_dhcp(frame, len);
}

static void pass_ms(int64_t ms)
{
	for (; ms > 0; ms -= 100) {
		fake_now_ns += 100 * INT64_C(1000000);
		run_rounds(1);
		look_at_lease();
	}
}

/* Waits for the next message; the time it took in seconds. */
static struct sent *next_sent(unsigned type)
{
	unsigned before = n_sent;

	for (unsigned i = 0; i < 100000 && n_sent == before; i++)
		pass_ms(100);
	assert_int_equal(n_sent, before + 1);
	assert_int_equal(sent[before].type, type);
	return &sent[before];
}

/* ---- frames from servers and hosts ---- */

static void receive_arp(unsigned op, const uint8_t mac[6], const char sender[4],
			const uint8_t target[4])
{
	uint8_t frame[42] = {0}, *arp = frame + 14;

	frame_ethernet(frame, 0x0806);
	memcpy(frame + 6, mac, 6);
	memcpy(arp, "\0\1\10\0\6\4", 6);
	put16(arp + 6, op);
	memcpy(arp + 8, mac, 6);
	memcpy(arp + 14, sender, 4);
	memcpy(arp + 24, target, 4);
	fake_receive(frame, sizeof(frame), 0, 0);
	run_rounds(1);
}

/* The server's host answers for 10.0.0.1. */
static void answer_arp(const uint8_t *frame)
{
	if (get16(frame + 20) == 1 && memcmp(frame + 38, stack_ip, 4) == 0)
		receive_arp(2, fake_peer_mac, "\12\0\0\1", frame + 28);
}

/* An answer of the server 10.0.0.1, which leases 10.0.0.5 for 600 seconds. */
struct reply {
	unsigned type;
	const char *ip, *server, *mask; /* NULL: as above, /24 */
	uint32_t lease_s;		/* 0: 600 */
	uint32_t xid_xor;
	bool no_lease, broadcast, foreign;
	const char *more; /* options */
	unsigned more_len;
};

static void receive_bytes(const struct dhcp_bytes *b, bool broadcast)
{
	static uint8_t frame[2048];
	uint8_t *ip = frame + 14, *udp = ip + 20;

	memset(frame, 0, sizeof(frame));
	frame_ethernet(frame, 0x0800);
	if (broadcast)
		memset(frame, 0xff, 6);
	ip[0] = 0x45;
	put16(ip + 2, 28 + b->len);
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, "\12\0\0\1", 4);
	memcpy(ip + 16, broadcast ? "\xff\xff\xff\xff" : "\12\0\0\5", 4);
	put16(udp, 67);
	put16(udp + 2, 68);
	put16(udp + 4, 8 + b->len);
	memcpy(udp + 8, b->data, b->len);
	fake_receive(frame, 14 + 28 + b->len, 0, 0);
	run_rounds(1);
	look_at_lease();
}

static void receive_reply(struct reply r)
{
	const struct sent *s = &sent[n_sent - 1];
	struct dhcp_bytes b;

	dhcp_begin(&b, s->xid ^ r.xid_xor, r.foreign ? other_mac : fake_mac,
		   r.ip ? r.ip : "\12\0\0\5");
	dhcp_add(&b, 53, (const char[]){(char)r.type}, 1);
	dhcp_add(&b, 54, r.server ? r.server : "\12\0\0\1", 4);
	dhcp_add(&b, 1, r.mask ? r.mask : "\xff\xff\xff\0", 4);
	if (!r.no_lease)
		dhcp_add32(&b, 51, r.lease_s ? r.lease_s : 600);
	if (r.more_len) {
		memcpy(b.data + b.len, r.more, r.more_len);
		b.len += r.more_len;
	}
	dhcp_end(&b);
	receive_bytes(&b, r.broadcast);
}

#define REPLY(...) receive_reply((struct reply){__VA_ARGS__})

/* ---- the stack ---- */

static void init_opts(void)
{
	init_lease_opts(4);
	n_sent = 0;
}

static int setup(void **state)
{
	init_opts();
	return net_stack_open(&opts, &stack);
}

static bool stack_has(const char *text)
{
	struct net_addr addr;

	net_addr_parse(text, 0, &addr);
	return net_is_local(stack, &addr);
}

static void bind_lease(uint32_t lease_s, const char *more, unsigned more_len)
{
	next_sent(NET_DHCP_DISCOVER);
	REPLY(.type = NET_DHCP_OFFER, .lease_s = lease_s);
	assert_int_equal(sent[n_sent - 1].type, NET_DHCP_REQUEST);
	REPLY(.type = NET_DHCP_ACK, .lease_s = lease_s, .more = more,
	      .more_len = more_len);
	assert_true(stack_has("10.0.0.5"));
	pass_ms(1500); /* no other host has it */
	n_sent = 0;
}

/* Waits until a lease of a minute has ended. */
static void await_end(void)
{
	for (unsigned i = 0; i < 1000 && stack_has("10.0.0.5"); i++)
		pass_ms(100);
	assert_false(stack_has("10.0.0.5"));
}

static void assert_secs(int64_t from_ns, int64_t to_ns, double least,
			double most)
{
	double s = (double)(to_ns - from_ns) / 1e9;

	assert_true(s >= least - 0.2 && s <= most + 0.2);
}
