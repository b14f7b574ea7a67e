/* Forges and reads datagrams of UDP, and ICMP errors about them. */
#include "tests/net/datagrams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/frames.h"
#include "tests/net/peer.h"

#define ADDR4(last)                                                            \
	{                                                                      \
		.family = 4, .prefix_len = 32, .ip = { 10, 0, 0, last }        \
	}
#define ADDR6(last)                                                            \
	{                                                                      \
		.family = 6, .prefix_len = 128, .ip = { 0xfd, [15] = last }    \
	}

const struct net_addr udp_us4 = ADDR4(1), udp_peer4 = ADDR4(2);
const struct net_addr udp_us6 = ADDR6(1), udp_peer6 = ADDR6(2);

struct net_addr udp_at(struct net_addr addr, unsigned port)
{
	addr.port = (uint16_t)port;
	return addr;
}

int udp_setup(void **state)
{
	struct net_opts opts;
	uint8_t frame[9216];
	int err;

	fake_now_ns = INT64_C(1000000000);
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	if (err == 0)
		run_rounds(2);
	while (fake_sent(frame, sizeof(frame)))
		;
	return err;
}

/* ---- to the stack ---- */

static void sum_l4(uint8_t *ip, uint8_t *l4, unsigned len, unsigned at,
		   uint8_t proto)
{
	bool v6 = ip[0] >> 4 == 6;
	uint64_t sum = 0;
	uint16_t folded;

	memset(l4 + at, 0, 2);
	if (proto != 1)
		sum = glue_sum_pseudo(ip + (v6 ? 8 : 12), v6 ? 16 : 4, proto,
				      len);
	folded = (uint16_t)~glue_sum_fold(glue_sum_add(sum, l4, len));
	if (proto == 17 && folded == 0)
		folded = 0xffff; /* 0: there is none */
	memcpy(l4 + at, &folded, 2);
}

static unsigned put_ip(uint8_t *ip, const struct net_addr *from,
		       const struct net_addr *to, uint8_t proto, unsigned len,
		       unsigned options)
{
	uint16_t sum;

	if (from->family == 6) {
		ip[0] = 0x60;
		put16(ip + 4, len);
		ip[6] = proto;
		ip[7] = 64;
		memcpy(ip + 8, from->ip, 16);
		memcpy(ip + 24, to->ip, 16);
		return 40;
	}
	ip[0] = (uint8_t)(0x45 + options / 4);
	put16(ip + 2, 20 + options + len);
	ip[8] = 64;
	ip[9] = proto;
	memcpy(ip + 12, from->ip, 4);
	memcpy(ip + 16, to->ip, 4);
	memset(ip + 20, 1, options); /* no operation */
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 20 + options));
	memcpy(ip + 10, &sum, 2);
	return 20 + options;
}

static void sum_partially(const uint8_t *ip, uint8_t *udp, unsigned len)
{
	bool v6 = ip[0] >> 4 == 6;
	uint16_t sum = glue_sum_fold(
		glue_sum_pseudo(ip + (v6 ? 8 : 12), v6 ? 16 : 4, 17, len));

	memcpy(udp + 6, &sum, 2);
}

bool datagram_send(const struct datagram *d)
{
	uint8_t frame[9216] = {0}, *ip = frame + 14, *udp;
	unsigned len = 8 + d->len;

	frame_ethernet(frame, d->from.family == 6 ? 0x86dd : 0x0800);
	if (d->to_all)
		memset(frame, 0xff, 6);
	else if (d->to_group)
		frame[0] |= 1;
	udp = ip + put_ip(ip, &d->from, &d->to, 17, len, d->options);
	put16(udp, d->from.port);
	put16(udp + 2, d->to.port);
	put16(udp + 4, d->udp_len ? d->udp_len : len);
	memcpy(udp + 8, d->data, d->len);
	if (!d->no_sum)
		sum_l4(ip, udp, len, 6, 17);
	if (d->bad_sum)
		udp[6] ^= 0x55;
	if (!d->partial_sum)
		return fake_receive_wire(frame, (unsigned)(udp - frame) + len);
	sum_partially(ip, udp, len);
	fake_receive(frame, (unsigned)(udp - frame) + len,
		     (d->from.family == 6 ? GLUE_FRAME_IP6 : GLUE_FRAME_IP4) |
			     GLUE_FRAME_UDP | GLUE_FRAME_CSUM_OK,
		     (uint16_t)(udp - frame));
	return true;
}

bool datagram_say(struct net_addr from, struct net_addr to, const char *text)
{
	struct datagram d = {
		.from = from, .to = to, .len = (unsigned)strlen(text)};

	memcpy(d.data, text, d.len);
	return datagram_send(&d);
}

void datagram_send_error(const struct datagram *quoted, unsigned type,
			 unsigned code, unsigned mtu)
{
	bool v6 = quoted->from.family == 6;
	uint8_t frame[1500] = {0}, *ip = frame + 14, *icmp;
	unsigned quote = (v6 ? 40 : 20) + 8, len = 8 + quote;

	frame_ethernet(frame, v6 ? 0x86dd : 0x0800);
	icmp = ip + put_ip(ip, v6 ? &udp_peer6 : &udp_peer4, &quoted->from,
			   v6 ? 58 : 1, len, 0);
	icmp[0] = (uint8_t)type;
	icmp[1] = (uint8_t)code;
	if (v6)
		put32(icmp + 4, mtu);
	else
		put16(icmp + 6, mtu);
	memcpy(icmp + 8, quoted->frame, quote);
	sum_l4(ip, icmp, len, 2, v6 ? 58 : 1);
	fake_receive_wire(frame, (unsigned)(icmp - frame) + len);
	run_rounds(1);
}

/* ---- from the stack ---- */

static void answer_solicitation(const uint8_t *request)
{
	uint8_t frame[86] = {0}, *ip = frame + 14, *nd = ip + 40;
	struct net_addr to = udp_us6;

	if (memcmp(request + 8, udp_peer6.ip, 16) != 0)
		return;
	frame_ethernet(frame, 0x86dd);
	put_ip(ip, &udp_peer6, &to, 58, 32, 0);
	ip[7] = 255;
	nd[0] = 136;
	nd[4] = 0x60;
	memcpy(nd + 8, udp_peer6.ip, 16);
	nd[24] = 2;
	nd[25] = 1;
	memcpy(nd + 26, fake_peer_mac, 6);
	sum_l4(ip, nd, 32, 2, 58);
	fake_receive_wire(frame, sizeof(frame));
}

static void read_addr(struct net_addr *addr, bool v6, const uint8_t *ip)
{
	*addr = (struct net_addr){.family = v6 ? 6 : 4,
				  .prefix_len = v6 ? 128 : 32};
	memcpy(addr->ip, ip, v6 ? 16 : 4);
}

static bool read_ip(struct datagram *out, const uint8_t *ip, unsigned len)
{
	bool v6 = ip[0] >> 4 == 6;
	unsigned header = v6 ? 40 : (ip[0] & 15) * 4u;
	unsigned proto = v6 ? ip[6] : ip[9];
	const uint8_t *l4 = ip + header;

	memset(out, 0, sizeof(*out));
	read_addr(&out->from, v6, ip + (v6 ? 8 : 12));
	read_addr(&out->to, v6, ip + (v6 ? 24 : 16));
	memcpy(out->frame, ip, len);
	out->df = !v6 && get16(ip + 6) & 0x4000;
	out->ttl = v6 ? ip[7] : ip[8];
	out->tos = v6 ? (uint8_t)(get16(ip) >> 4) : ip[1];
	if (proto == 17) {
		out->from.port = (uint16_t)get16(l4);
		out->to.port = (uint16_t)get16(l4 + 2);
		out->udp_len = get16(l4 + 4);
		out->len = len - header - 8;
		memcpy(out->data, l4 + 8, out->len);
		return true;
	}
	if (v6 && l4[0] == 135)
		answer_solicitation(l4);
	if (proto == (v6 ? 58 : 1) && (v6 ? l4[0] < 128 : l4[0] == 3)) {
		out->icmp_type = l4[0];
		out->icmp_code = l4[1];
		return true;
	}
	return false;
}

bool datagram_next(struct datagram *out)
{
	uint8_t frame[9216];

	for (unsigned i = 0; i < 20; i++) {
		unsigned len = fake_sent(frame, sizeof(frame));

		if (!len) {
			run_rounds(1);
			continue;
		}
		if (get16(frame + 12) == 0x0806)
			frame_answer_arp(frame);
		else if (read_ip(out, frame + 14, len - 14))
			return true;
	}
	return false;
}
