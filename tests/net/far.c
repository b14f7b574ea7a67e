/* A far end behind a router whose link has a smaller MTU than ours. */
#include "tests/net/far.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/mem/mem.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"

#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"

struct far far;
size_t far_to_send;
struct net_conn *far_conn;

static const uint8_t stack_ip4[4] = {10, 0, 0, 1}, far_ip4[4] = {10, 0, 0, 2};
static const uint8_t stack_ip6[16] = {0xfd, [15] = 1};
static const uint8_t far_ip6[16] = {0xfd, [15] = 2};

/* ---- the stack ---- */

static uint8_t stream_byte(size_t at)
{
	return (uint8_t)(at * 13 + at / 255);
}

void far_fill(uint8_t *data, size_t len, size_t at)
{
	for (size_t i = 0; i < len; i++)
		data[i] = stream_byte(at + i);
}

void far_feed(struct net_conn *conn, void *arg)
{
	static uint8_t data[FAR_STREAM];

	far_fill(data, far_to_send, 0);
	far_conn = conn;
	result = net_send_all(conn, data, far_to_send);
	coro_sleep_ns(INT64_C(36000000000000));
	ended++;
}

static int open_stack(bool pmtud_off)
{
	struct net_opts opts;
	int err;

	fake_now_ns = 1000000000;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.pmtud_off = pmtud_off;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), 8, &listener);
	return err;
}

/* Puts the far end's MAC address into the stack's neighbour cache. */
static void fill_neighbour_cache(void)
{
	struct nd6_neighbor_cache_entry *entry = &neighbor_cache[0];

	memset(entry, 0, sizeof(*entry));
	memcpy(entry->next_hop_address.addr, far_ip6, 16);
	entry->netif = &net_here()->netifs[0];
	memcpy(entry->lladdr, fake_peer_mac, 6);
	entry->state = ND6_REACHABLE;
	entry->counter.reachable_time = 2000000000;
}

static int set_up(bool pmtud_off)
{
	int err = open_stack(pmtud_off);

	fill_neighbour_cache();
	memset(&far, 0, sizeof(far));
	far.map = calloc(1, FAR_STREAM);
	far.times = calloc(1, FAR_STREAM);
	far.port = 1000;
	far.wnd = 65535;
	ended = 0;
	far_conn = NULL;
	far_to_send = FAR_STREAM;
	return err;
}

int far_setup(void **state)
{
	return set_up(false);
}

int far_setup_pmtud_off(void **state)
{
	return set_up(true);
}

int far_teardown(void **state)
{
	free(far.map);
	free(far.times);
	net_mem_fail_after(0);
	return peer_teardown(state);
}

/* ---- packets to the stack ---- */

unsigned far_ip_bytes(void)
{
	return far.v6 ? 40 : 20;
}

/* Begins an IP packet to the stack; returns where its payload goes. */
static uint8_t *ip_header(uint8_t *frame, unsigned proto, unsigned payload)
{
	uint8_t *ip = frame + 14;

	memset(frame, 0, 14 + far_ip_bytes());
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	if (far.v6) {
		put16(frame + 12, 0x86dd);
		ip[0] = (uint8_t)(0x60 | far.tos >> 4);
		ip[1] = (uint8_t)(far.tos << 4);
		put16(ip + 4, payload);
		ip[6] = (uint8_t)proto;
		ip[7] = 64;
		memcpy(ip + 8, far_ip6, 16);
		memcpy(ip + 24, stack_ip6, 16);
	} else {
		put16(frame + 12, 0x0800);
		ip[0] = 0x45;
		ip[1] = far.tos;
		put16(ip + 2, 20 + payload);
		ip[8] = 64;
		ip[9] = (uint8_t)proto;
		memcpy(ip + 12, far_ip4, 4);
		memcpy(ip + 16, stack_ip4, 4);
	}
	return ip + far_ip_bytes();
}

/* Fills in the checksums and passes the frame to the stack. */
static void deliver(uint8_t *frame, unsigned proto, unsigned sum_at,
		    unsigned payload)
{
	uint8_t *ip = frame + 14, *l4 = ip + far_ip_bytes();
	uint64_t sum = 0;
	uint16_t value;

	if (!far.v6) {
		value = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 20));
		memcpy(ip + 10, &value, 2);
	}
	if (proto != 1)
		sum = glue_sum_pseudo(ip + (far.v6 ? 8 : 12), far.v6 ? 16 : 4,
				      (uint8_t)proto, payload);
	value = (uint16_t)~glue_sum_fold(glue_sum_add(sum, l4, payload));
	memcpy(l4 + sum_at, &value, 2);
	assert_true(fake_receive_wire(frame, 14 + far_ip_bytes() + payload));
}

static void send_far_segment(uint8_t flags, unsigned mss, const char *text)
{
	uint8_t frame[128];
	unsigned options = mss ? 8 : 0, len = (unsigned)strlen(text);
	uint8_t *tcp = ip_header(frame, 6, 20 + options + len);

	memset(tcp, 0, 28);
	put16(tcp, far.port);
	put16(tcp + 2, 7);
	put32(tcp + 4, far.snd);
	put32(tcp + 8, far.rcv);
	tcp[12] = (uint8_t)((20 + options) / 4 << 4);
	tcp[13] = flags;
	put16(tcp + 14, far.wnd);
	if (mss) {
		memcpy(tcp + 20,
		       far.sack ? "\2\4\0\0\1\1\4\2" : "\2\4\0\0\1\3\3\0", 8);
		put16(tcp + 22, mss);
	}
	memcpy(tcp + 20 + options, text, len);
	deliver(frame, 6, 16, 20 + options + len);
	far.snd += len;
}

void far_say(uint8_t flags, unsigned mss)
{
	send_far_segment(flags, mss, "");
}

void far_say_data(const char *text)
{
	send_far_segment(PEER_ACK, 0, text);
}

void far_say_sack(uint32_t left, uint32_t right)
{
	uint8_t frame[128];
	uint8_t *tcp = ip_header(frame, 6, 32);

	memset(tcp, 0, 32);
	put16(tcp, far.port);
	put16(tcp + 2, 7);
	put32(tcp + 4, far.snd);
	put32(tcp + 8, far.base);
	tcp[12] = 0x80;
	tcp[13] = PEER_ACK;
	put16(tcp + 14, far.wnd);
	memcpy(tcp + 20, "\1\1\5\12", 4);
	put32(tcp + 24, left);
	put32(tcp + 28, right);
	deliver(frame, 6, 16, 32);
	run_ms(1);
}

void far_complain(const uint8_t *packet, unsigned mtu)
{
	uint8_t frame[14 + 40 + 8 + 64];
	unsigned quoted = far_ip_bytes() + 20, payload = 8 + quoted;
	uint8_t *icmp = ip_header(frame, far.v6 ? 58 : 1, payload);

	memset(icmp, 0, 8);
	icmp[0] = far.v6 ? 2 : 3;
	icmp[1] = far.v6 ? 0 : 4;
	if (far.v6)
		put32(icmp + 4, mtu);
	else
		put16(icmp + 6, mtu);
	memcpy(icmp + 8, packet, quoted);
	if (far.lies) /* a sequence number far outside the flight */
		icmp[8 + far_ip_bytes() + 4] ^= 0x80;
	deliver(frame, far.v6 ? 58 : 1, 2, payload);
	far.messages++;
}

void far_quote(uint8_t packet[40])
{
	memset(packet, 0, 40);
	packet[0] = 0x45;
	put16(packet + 2, 1500);
	packet[8] = 64;
	packet[9] = 6;
	memcpy(packet + 12, stack_ip4, 4);
	memcpy(packet + 16, far_ip4, 4);
	put16(packet + 20, 7);
	put16(packet + 22, 1000);
	put32(packet + 24, far.base);
}

/* ---- packets from the stack ---- */

static void take_data(const uint8_t *tcp, unsigned header, unsigned len)
{
	uint32_t at = get32(tcp + 4) - far.base;

	for (unsigned i = 0; i < len; i++) {
		assert_true(at + i < FAR_STREAM);
		assert_int_equal(tcp[header + i], stream_byte(at + i));
		far.map[at + i] = 1;
		far.times[at + i]++;
	}
	if (tcp[13] & PEER_FIN) {
		assert_int_equal(at + len, far_to_send); /* the very end */
		far.fin = true;
		far.fin_at = at + len;
	}
	while (far.rcv - far.base < FAR_STREAM && far.map[far.rcv - far.base])
		far.rcv++;
	if (far.fin && far.rcv - far.base == far.fin_at)
		far.rcv++;
	far.segments += len > 0;
}

/* The router; returns false if it drops the packet or the packet is not of the
 * connection. */
static bool forward(const uint8_t *frame)
{
	const uint8_t *ip = frame + 14, *tcp = ip + far_ip_bytes();
	unsigned len = far.v6 ? 40 + get16(ip + 4) : get16(ip + 2);

	if (get16(frame + 12) != (far.v6 ? 0x86ddu : 0x0800u) ||
	    ip[far.v6 ? 6 : 9] != 6 || get16(tcp + 2) != far.port)
		return false;
	far.df = !far.v6 && ip[6] & 0x40;
	far.got_tos = far.v6 ? (uint8_t)(ip[0] << 4 | ip[1] >> 4) : ip[1];
	far.got_flags = tcp[13];
	if (far.mtu && len > far.mtu) {
		far.too_long++;
		if (!far.silent)
			far_complain(ip, far.says ? far.says : far.mtu);
		return false;
	}
	if (len > far.largest)
		far.largest = len;
	if (tcp[13] & PEER_SYN) {
		far.rcv = far.base = get32(tcp + 4) + 1;
		return true;
	}
	take_data(tcp, (tcp[12] >> 4) * 4u,
		  len - far_ip_bytes() - (tcp[12] >> 4) * 4u);
	return true;
}

/* Every address is the far host's, except the stack's. */
static void answer_arp(const uint8_t *request)
{
	uint8_t frame[42];

	if (request[21] != 1 || memcmp(request + 38, stack_ip4, 4) == 0)
		return;
	memcpy(frame, request, sizeof(frame));
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	frame[21] = 2;
	memcpy(frame + 22, fake_peer_mac, 6);
	memcpy(frame + 28, request + 38, 4);
	memcpy(frame + 32, fake_mac, 6);
	memcpy(frame + 38, request + 28, 4);
	fake_receive_wire(frame, sizeof(frame));
}

void far_pass_ms(void)
{
	static uint8_t frame[9216];
	bool any = false;

	run_ms(1);
	while (fake_sent(frame, sizeof(frame))) {
		if (get16(frame + 12) == 0x0806)
			answer_arp(frame);
		any |= forward(frame);
	}
	if (any && !far.deaf && far.base)
		far_say(PEER_ACK, 0);
}

void far_connect(uint16_t port, unsigned mss)
{
	far.port = port;
	far.snd = 99;
	far.base = far.largest = 0;
	far.fin = false;
	memset(far.map, 0, FAR_STREAM);
	far_say(PEER_SYN | far.asks, mss);
	for (unsigned i = 0; i < 10 && !far.base; i++) {
		uint8_t frame[2048];

		run_ms(1);
		while (fake_sent(frame, sizeof(frame))) {
			if (get16(frame + 12) == 0x0806)
				answer_arp(frame);
			forward(frame);
		}
	}
	assert_true(far.base);
	far.snd++;
	far_say(PEER_ACK, 0);
}

unsigned far_full_mss(void)
{
	return 1500 - far_ip_bytes() - 20;
}

unsigned far_download(unsigned limit_ms)
{
	for (unsigned ms = 0; ms < limit_ms; ms++) {
		if (far.rcv - far.base >= far_to_send)
			return ms;
		far_pass_ms();
	}
	fail_msg("%u of %zu bytes after %u ms (send: %ld)", far.rcv - far.base,
		 far_to_send, limit_ms, result);
	return limit_ms;
}
