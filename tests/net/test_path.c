/*
 * A path that takes less than the link: routers that say so, that lie, and that
 * say nothing. The peer sits behind a router of a given MTU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"
#include "netstack/net_path.h"
#include "tests/net/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"

#define STREAM	 100000u
#define HOLD_ALL 65000u /* bytes under way before the first ACK */

static const uint8_t stack_ip4[4] = {10, 0, 0, 1}, far_ip4[4] = {10, 0, 0, 2};
static const uint8_t stack_ip6[16] = {0xfd, [15] = 1};
static const uint8_t far_ip6[16] = {0xfd, [15] = 2};

/* The other end, and the router before it. */
static struct {
	bool v6, silent; /* silent: what is too long just vanishes */
	bool deaf;	 /* sends no ACK */
	bool lies;	 /* its messages quote what never was */
	unsigned mtu;	 /* of its link; 0: as ours */
	unsigned says;	 /* the MTU it names, if not its own */
	uint16_t port;
	uint16_t wnd;
	unsigned wscale;
	uint32_t snd, rcv;
	uint8_t *map;	/* a byte a byte of the stream: 1 when it is here */
	uint8_t *times; /* how often each came */
	bool sack;
	uint32_t base; /* the stream's first */
	unsigned largest, too_long, messages, segments;
	uint8_t sent_flags;
	bool fin, df;
	unsigned fin_at;
} far;

static size_t to_send;
static bool then_close;
static struct net_conn *ours;

static uint8_t stream_byte(size_t at)
{
	return (uint8_t)(at * 13 + at / 255);
}

/* ---- the stack ---- */

static void send_stream(struct net_conn *conn, void *arg)
{
	static uint8_t data[STREAM];

	for (size_t i = 0; i < to_send; i++)
		data[i] = stream_byte(i);
	ours = conn;
	result = net_send_all(conn, data, to_send);
	if (!then_close)
		coro_sleep_ns(INT64_C(36000000000000));
	ended++;
}

static bool give_back;

static void released(void *arg)
{
	give_back = true;
}

static void send_lent(struct net_conn *conn, void *arg)
{
	static uint8_t data[STREAM];

	for (size_t i = 0; i < to_send; i++)
		data[i] = stream_byte(i);
	ours = conn;
	result = net_send_owned(conn, data, to_send, released, NULL);
	coro_sleep_ns(INT64_C(36000000000000));
	ended++;
}

static bool pmtud_off;

static int setup(void **state)
{
	struct nd6_neighbor_cache_entry *entry = &neighbor_cache[0];
	struct net_opts opts;
	int err;

	fake_now_ns = 1000000000;
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	net_addr_parse_prefix("fd00::1/64", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.pmtud_off = pmtud_off;
	opts.poll = NET_POLL_BUSY;
	err = net_stack_open(&opts, &stack);
	if (err == 0)
		err = net_listen(stack, &net_addr_any(7), 8, &listener);
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->next_hop_address.addr, far_ip6, 16);
	entry->netif = &net_the.netifs[0];
	memcpy(entry->lladdr, fake_peer_mac, 6);
	entry->state = ND6_REACHABLE;
	entry->counter.reachable_time = 2000000000;
	memset(&far, 0, sizeof(far));
	far.map = calloc(1, STREAM);
	far.times = calloc(1, STREAM);
	far.port = 1000;
	far.wnd = 65535;
	ended = 0;
	ours = NULL;
	then_close = give_back = false;
	to_send = STREAM;
	return err;
}

static int teardown(void **state)
{
	free(far.map);
	free(far.times);
	net_mem_fail_after(0);
	return peer_teardown(state);
}

/* ---- frames of the other end ---- */

static unsigned ip_bytes(void)
{
	return far.v6 ? 40 : 20;
}

/* An IP packet to the stack; returns where its payload goes. */
static uint8_t *ip_header(uint8_t *frame, unsigned proto, unsigned payload)
{
	uint8_t *ip = frame + 14;

	memset(frame, 0, 14 + ip_bytes());
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	if (far.v6) {
		put16(frame + 12, 0x86dd);
		ip[0] = 0x60;
		put16(ip + 4, payload);
		ip[6] = (uint8_t)proto;
		ip[7] = 64;
		memcpy(ip + 8, far_ip6, 16);
		memcpy(ip + 24, stack_ip6, 16);
	} else {
		put16(frame + 12, 0x0800);
		ip[0] = 0x45;
		put16(ip + 2, 20 + payload);
		ip[8] = 64;
		ip[9] = (uint8_t)proto;
		memcpy(ip + 12, far_ip4, 4);
		memcpy(ip + 16, stack_ip4, 4);
	}
	return ip + ip_bytes();
}

/* As it comes from the wire, its checksums filled in. */
static void deliver(uint8_t *frame, unsigned proto, unsigned sum_at,
		    unsigned payload)
{
	uint8_t *ip = frame + 14, *l4 = ip + ip_bytes();
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
	assert_true(fake_receive_wire(frame, 14 + ip_bytes() + payload));
}

static void say(uint8_t flags, unsigned mss)
{
	uint8_t frame[128];
	unsigned options = mss ? 8 : 0;
	uint8_t *tcp = ip_header(frame, 6, 20 + options);

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
	deliver(frame, 6, 16, 20 + options);
}

/* The router's message about a packet of ours. */
static void complain(const uint8_t *packet, unsigned mtu)
{
	uint8_t frame[14 + 40 + 8 + 64];
	unsigned quoted = ip_bytes() + 20, payload = 8 + quoted;
	uint8_t *icmp = ip_header(frame, far.v6 ? 58 : 1, payload);

	memset(icmp, 0, 8);
	icmp[0] = far.v6 ? 2 : 3;
	icmp[1] = far.v6 ? 0 : 4;
	if (far.v6)
		put32(icmp + 4, mtu);
	else
		put16(icmp + 6, mtu);
	memcpy(icmp + 8, packet, quoted);
	if (far.lies) /* a number that was acknowledged, or never sent */
		icmp[8 + ip_bytes() + 4] ^= 0x80;
	deliver(frame, far.v6 ? 58 : 1, 2, payload);
	far.messages++;
}

/* ---- what the stack sends ---- */

static void take_data(const uint8_t *tcp, unsigned header, unsigned len)
{
	uint32_t at = get32(tcp + 4) - far.base;

	for (unsigned i = 0; i < len; i++) {
		assert_true(at + i < STREAM);
		assert_int_equal(tcp[header + i], stream_byte(at + i));
		far.map[at + i] = 1;
		far.times[at + i]++;
	}
	if (tcp[13] & PEER_FIN) {
		assert_int_equal(at + len, to_send); /* and never before */
		far.fin = true;
		far.fin_at = at + len;
	}
	while (far.rcv - far.base < STREAM && far.map[far.rcv - far.base])
		far.rcv++;
	if (far.fin && far.rcv - far.base == far.fin_at)
		far.rcv++;
	far.segments += len > 0;
}

/* False: it was not TCP, or did not get through. */
static bool forward(const uint8_t *frame)
{
	const uint8_t *ip = frame + 14, *tcp = ip + ip_bytes();
	unsigned len = far.v6 ? 40 + get16(ip + 4) : get16(ip + 2);

	if (get16(frame + 12) != (far.v6 ? 0x86ddu : 0x0800u) ||
	    ip[far.v6 ? 6 : 9] != 6 || get16(tcp + 2) != far.port)
		return false;
	far.df = !far.v6 && ip[6] & 0x40;
	if (far.mtu && len > far.mtu) {
		far.too_long++;
		if (!far.silent)
			complain(ip, far.says ? far.says : far.mtu);
		return false;
	}
	if (len > far.largest)
		far.largest = len;
	far.sent_flags = tcp[13];
	if (tcp[13] & PEER_SYN) {
		far.rcv = far.base = get32(tcp + 4) + 1;
		return true;
	}
	take_data(tcp, (tcp[12] >> 4) * 4u,
		  len - ip_bytes() - (tcp[12] >> 4) * 4u);
	return true;
}

static void answer_arp(const uint8_t *request)
{
	uint8_t frame[42];

	if (request[21] != 1)
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

/* One millisecond of everybody. */
static void pass_ms(void)
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
		say(PEER_ACK, 0);
}

static void connect_to(uint16_t port, unsigned mss)
{
	far.port = port;
	far.snd = 99;
	far.base = far.largest = 0;
	far.fin = false;
	memset(far.map, 0, STREAM);
	say(PEER_SYN, mss);
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
	say(PEER_ACK, 0);
}

static unsigned full_mss(void)
{
	return 1500 - ip_bytes() - 20;
}

/* Milliseconds until all is there. */
static unsigned download(unsigned limit_ms)
{
	for (unsigned ms = 0; ms < limit_ms; ms++) {
		if (far.rcv - far.base >= to_send)
			return ms;
		pass_ms();
	}
	fail_msg("%u of %zu bytes after %u ms (send: %ld)", far.rcv - far.base,
		 to_send, limit_ms, result);
	return limit_ms;
}

/* ---- what routers say ---- */

static void lowers_at_once(bool v6, unsigned mtu)
{
	far.v6 = v6;
	far.mtu = mtu;
	serve(send_stream);
	connect_to(1000, full_mss());
	assert_in_range(download(1000), 0, 100);
	assert_int_equal(far.largest, mtu);
	assert_true(far.messages > 0);
	assert_int_equal(ours->pcb.mss, mtu - ip_bytes() - 20);
	assert_int_equal(net_the.stats.path_mtu_lowered, 1);
	pass_ms();
	assert_int_equal(ours->pcb.snd_queuelen, 0); /* each pbuf was counted */
	/* Of one flight each was too long; nothing was after it. */
	assert_in_range(far.too_long, 1, 10);
}

static void test_too_big_lowers_a_living_connection(void **state)
{
	lowers_at_once(true, 1280);
}

static void test_needs_fragments_lowers_a_living_connection(void **state)
{
	lowers_at_once(false, 1000);
}

/* A router that was there before RFC 1191 names no MTU. */
static void test_without_an_mtu_the_plateaus_are_tried(void **state)
{
	far.mtu = 1100;
	serve(send_stream);
	connect_to(1000, full_mss());
	/* 65536 is read as none: two bytes of it */
	far.says = 1u << 16;
	download(1000);
	assert_int_equal(far.largest, 1006);
}

static void test_what_is_impossible_is_raised_to_the_floor(void **state)
{
	static const unsigned mtus[] = {40, 61, 68, 0xffffffff};

	for (unsigned i = 0; i < 3; i++) {
		memset(net_the.paths, 0, sizeof(net_the.paths));
		far.v6 = true;
		far.mtu = 1280;
		far.says = mtus[i];
		serve(send_stream);
		connect_to((uint16_t)(1000 + i), full_mss());
		download(1000);
		assert_int_equal(ours->pcb.mss, 1220);
		assert_int_equal(far.largest, 1280);
	}
	far.v6 = false;
	far.mtu = 552;
	far.says = 68;
	connect_to(1010, full_mss());
	download(1000);
	assert_int_equal(ours->pcb.mss, 512);
	assert_int_equal(far.largest, 552);
}

static void test_what_quotes_nothing_under_way_is_refused(void **state)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		far.v6 = v6;
		far.mtu = 0;
		serve(send_stream);
		connect_to((uint16_t)(1000 + v6), full_mss());
		far.deaf = true;
		far.lies = true;
		far.mtu = 1400;
		far.says = 1280;
		pass_ms();
		pass_ms();
		assert_true(far.messages > 0);
		assert_int_equal(net_the.stats.path_mtu_refused, far.messages);
		assert_int_equal(ours->pcb.mss, full_mss());
		assert_int_equal(net_path_mtu(&ours->pcb.remote_ip), 0);
		far.lies = far.deaf = false;
		far.mtu = 0;
		download(5000);
		assert_int_equal(far.largest, 1500);
	}
}

/* Strangers, the right numbers on the wrong port, and packets that fit. */
static void test_only_a_living_connection_is_meant(void **state)
{
	uint8_t packet[64] = {0x45, [8] = 64, [9] = 6};

	serve(send_stream);
	connect_to(1000, full_mss());
	far.deaf = true;
	pass_ms();
	put16(packet + 2, 1500);
	memcpy(packet + 12, stack_ip4, 4);
	memcpy(packet + 16, far_ip4, 4);
	put16(packet + 20, 7);
	put16(packet + 22, 1001);
	put32(packet + 24, far.base);
	complain(packet, 1000);
	put16(packet + 22, 1000);
	put16(packet + 20, 8);
	complain(packet, 1000);
	put16(packet + 20, 7);
	put32(packet + 24, ours->pcb.snd_nxt);
	complain(packet, 1000);
	put32(packet + 24, far.base - 1);
	complain(packet, 1000);
	put32(packet + 24, far.base);
	complain(packet, 1500); /* this one would have fitted */
	packet[9] = 17;
	complain(packet, 1000);
	packet[9] = 6;
	packet[6] = 1; /* a fragment, whose ports these are not */
	complain(packet, 1000);
	run_ms(1);
	assert_int_equal(net_the.stats.path_mtu_refused, 7);
	assert_int_equal(ours->pcb.mss, full_mss());
	packet[6] = 0;
	complain(packet, 1000);
	run_ms(1);
	assert_int_equal(ours->pcb.mss, 960);
}

/* Somebody who sees the segments lowers it byte by byte: soon to the floor. */
static void test_small_steps_end_at_the_floor(void **state)
{
	uint8_t packet[64] = {0x45, [8] = 64, [9] = 6};
	unsigned steps = 0;

	serve(send_stream);
	connect_to(1000, full_mss());
	far.deaf = true;
	pass_ms();
	put16(packet + 2, 1500);
	memcpy(packet + 12, stack_ip4, 4);
	memcpy(packet + 16, far_ip4, 4);
	put16(packet + 20, 7);
	put16(packet + 22, 1000);
	put32(packet + 24, far.base);
	while (ours->pcb.mss > 512) {
		unsigned was = ours->pcb.mss;

		complain(packet, was + 40 - 1);
		run_ms(1);
		assert_true(ours->pcb.mss < was);
		steps++;
	}
	assert_in_range(steps, 2, 10);
}

static void test_new_connections_begin_with_it(void **state)
{
	far.mtu = 1300;
	serve(send_stream);
	connect_to(1000, full_mss());
	download(1000);
	far.messages = far.too_long = 0;
	connect_to(1001, full_mss());
	download(1000);
	assert_int_equal(far.too_long, 0);
	assert_int_equal(far.largest, 1300);
	far.v6 = true; /* the same machine for us, another for the cache */
	far.mtu = 0;
	connect_to(1002, full_mss());
	download(1000);
	assert_int_equal(far.largest, 1500);
}

static void test_it_is_forgotten_after_ten_minutes(void **state)
{
	struct net_conn *first;

	far.mtu = 1300;
	serve(send_stream);
	connect_to(1000, full_mss());
	download(1000);
	first = ours;
	assert_int_equal(first->pcb.mss, 1260);
	fake_now_ns += INT64_C(599000000000);
	net_path_review(first);
	assert_int_equal(first->pcb.mss, 1260);
	fake_now_ns += INT64_C(2000000000);
	run_ms(1);
	far.mtu = 0;
	net_conn_queue_output(first); /* it has something to send */
	run_ms(1);
	assert_int_equal(first->pcb.mss, full_mss());
	connect_to(1001, full_mss());
	download(1000);
	assert_int_equal(far.largest, 1500);
}

/* A peer's own MSS is never exceeded, the path's grown old or not. */
static void test_the_peers_mss_stays_the_bound(void **state)
{
	far.mtu = 1000;
	serve(send_stream);
	connect_to(1000, 1200);
	download(1000);
	assert_int_equal(ours->pcb.mss, 960);
	fake_now_ns += INT64_C(700000000000);
	run_ms(1);
	net_path_review(ours);
	assert_int_equal(ours->pcb.mss, 1200);
}

static void test_many_destinations_do_not_grow_the_cache(void **state)
{
	ip_addr_t ip = IPADDR4_INIT_BYTES(10, 0, 0, 2);
	unsigned known = 0;

	far.mtu = 1300;
	serve(send_stream);
	connect_to(1000, full_mss());
	download(1000);
	assert_int_equal(net_path_mtu(&ip), 1300);
	for (unsigned i = 0; i < NET_PATHS; i++)
		known += net_the.paths[i].mtu != 0;
	assert_int_equal(known, 1);
}

static void test_df_is_set_until_the_floor(void **state)
{
	serve(send_stream);
	connect_to(1000, full_mss());
	assert_true(far.df);
	far.mtu = 552;
	far.says = 400;
	download(1000);
	assert_false(far.df); /* a router may cut up what is so short */
}

static int setup_off(void **state)
{
	int err;

	pmtud_off = true;
	err = setup(state);
	pmtud_off = false;
	return err;
}

static void test_pmtud_off_believes_nobody_and_lets_routers_cut(void **state)
{
	serve(send_stream);
	connect_to(1000, full_mss());
	assert_false(far.df);
	far.mtu = 1400;
	for (unsigned i = 0; i < 3000; i++)
		pass_ms();
	assert_true(far.messages > 0);
	assert_int_equal(ours->pcb.mss, full_mss());
	assert_int_equal(net_the.stats.path_mtu_guessed, 0);
}

/* ---- what is cut up ---- */

static void test_fin_stays_on_the_last_piece(void **state)
{
	far.mtu = 700;
	to_send = 5 * full_mss();
	then_close = true;
	serve(send_stream);
	far.deaf = true;
	connect_to(1000, full_mss());
	pass_ms(); /* all of it, the FIN as well, was too long */
	far.deaf = false;
	download(2000);
	for (unsigned i = 0; i < 500 && !far.fin; i++)
		pass_ms();
	assert_true(far.fin);
	assert_int_equal(far.fin_at, to_send);
	assert_int_equal(far.largest, 700);
}

static void test_lent_memory_is_cut_and_given_back(void **state)
{
	fake_lends = true;
	far.mtu = 800;
	serve(send_lent);
	connect_to(1000, full_mss());
	download(2000);
	for (unsigned i = 0; i < 100 && !give_back; i++)
		pass_ms();
	assert_true(give_back);
	assert_int_equal(far.largest, 800);
}

#define COPIED (20 * 1460 + 100u) /* the last segment has room */
#define LENT   2000u
#define GUARD  500u

static uint8_t lent[2][LENT + GUARD];

static void send_both_kinds(struct net_conn *conn, void *arg)
{
	static uint8_t data[COPIED];

	for (size_t i = 0; i < COPIED; i++)
		data[i] = stream_byte(i);
	ours = conn;
	net_set_nodelay(conn, false); /* lwIP then leaves room */
	net_send_all(conn, data, COPIED);
	coro_sleep_ns(5000000); /* the path says what it takes */
	memset(lent, 0xa5, sizeof(lent));
	for (unsigned k = 0; k < 2; k++) {
		for (size_t i = 0; i < LENT; i++)
			lent[k][i] = stream_byte(COPIED + k * LENT + i);
		net_send_owned(conn, lent[k], LENT, released, NULL);
	}
	coro_sleep_ns(INT64_C(36000000000000));
}

/* lwIP's idea of room in the last segment is not kept beyond it. */
static void test_what_is_lent_is_not_written_to(void **state)
{
	far.mtu = 800;
	to_send = COPIED + 2 * LENT;
	serve(send_both_kinds);
	far.deaf = true;
	connect_to(1000, full_mss());
	for (unsigned i = 0; i < 20; i++)
		pass_ms();
	assert_int_equal(ours->pcb.mss, 760);
	far.deaf = false;
	download(3000);
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < GUARD; i++)
			assert_int_equal(lent[k][LENT + i], 0xa5);
}

/* What the peer has said it holds is not sent again. */
static void test_it_works_while_a_repair_runs(void **state)
{
	far.mtu = 0;
	serve(send_stream);
	connect_to(1000, full_mss());
	for (unsigned i = 0; i < 3; i++)
		pass_ms();
	far.mtu = 1200;
	download(3000);
	assert_in_range(ours->pcb.mss, 512, 1160);
}

/* An ACK that says it holds some segments beyond. */
static void say_sack(uint32_t left, uint32_t right)
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

static void test_what_the_peer_holds_is_not_sent_again(void **state)
{
	uint8_t packet[64] = {0x45, [8] = 64, [9] = 6};
	unsigned mss = full_mss();

	far.sack = far.deaf = true;
	to_send = 10 * mss;
	serve(send_stream);
	connect_to(1000, mss);
	pass_ms();
	assert_int_equal(far.segments, 10);
	say_sack(far.base + 4 * mss, far.base + 6 * mss);
	put16(packet + 2, 1500);
	memcpy(packet + 12, stack_ip4, 4);
	memcpy(packet + 16, far_ip4, 4);
	put16(packet + 20, 7);
	put16(packet + 22, 1000);
	put32(packet + 24, far.base);
	complain(packet, 1000);
	for (unsigned i = 0; i < 5; i++)
		pass_ms();
	for (unsigned i = 0; i < to_send; i++)
		assert_int_equal(far.times[i] > 1, i < 4 * mss || i >= 6 * mss);
}

static void send_slowly(struct net_conn *conn, void *arg)
{
	uint8_t piece[300];

	ours = conn;
	net_set_nodelay(conn, false); /* segments are made with room to grow */
	for (size_t at = 0; at < to_send; at += sizeof(piece)) {
		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = stream_byte(at + i);
		result = net_send_all(conn, piece, sizeof(piece));
		coro_sleep_ns(1000000);
	}
	coro_sleep_ns(INT64_C(36000000000000));
	ended++;
}

static unsigned waiting(void)
{
	return ours ? ours->pcb.snd_lbb - ours->pcb.snd_nxt : 0;
}

/* What is cut has no room at its end: the next bytes get memory of their own.
 */
static void test_small_writes_go_on_behind_pieces(void **state)
{
	to_send = 30000;
	far.wnd = 3000;
	far.deaf = true;
	serve(send_slowly);
	connect_to(1000, full_mss());
	/* What is beyond the window waits, in a segment and most of another. */
	for (unsigned i = 0; i < 300 && waiting() < full_mss() + 800; i++)
		pass_ms();
	assert_int_equal(ours->pcb.unsent->len, full_mss());
	far.mtu = 600;
	far.wnd = 2000; /* of the two the first may go, and is too long */
	say(PEER_ACK, 0);
	for (unsigned i = 0; i < 20; i++)
		pass_ms();
	far.deaf = false;
	far.wnd = 3000;
	say(PEER_ACK, 0);
	download(20000);
	assert_true(far.too_long > 0);
	assert_int_equal(ours->pcb.mss, 560);
}

/* Whichever allocation fails while it cuts: it is done in the end. */
static void test_short_memory_delays_and_loses_nothing(void **state)
{
	for (unsigned n = 1; n <= 24; n++) {
		memset(net_the.paths, 0, sizeof(net_the.paths));
		memset(&far.mtu, 0, sizeof(far.mtu));
		serve(send_stream);
		connect_to((uint16_t)(1000 + n), full_mss());
		for (unsigned i = 0; i < 2; i++)
			pass_ms();
		far.deaf = true;
		far.mtu = 1000;
		pass_ms();
		far.deaf = false;
		net_mem_fail_after(n);
		pass_ms();
		net_mem_fail_after(0);
		download(20000);
	}
}

/* ---- when routers say nothing ---- */

static void finds_black_hole(bool v6, unsigned mtu, unsigned guess,
			     unsigned limit_ms)
{
	far.v6 = v6;
	far.mtu = mtu;
	far.silent = true;
	serve(send_stream);
	connect_to(1000, full_mss());
	assert_in_range(download(limit_ms), 500, limit_ms);
	assert_int_equal(far.largest, guess);
	assert_true(net_the.stats.path_mtu_guessed > 0);
	far.too_long = 0;
	connect_to(1001, full_mss());
	download(1000);
	assert_int_equal(far.too_long, 0);
}

static void test_a_silent_path_is_found_out6(void **state)
{
	finds_black_hole(true, 1300, 1280, 5000);
}

static void test_a_silent_path_is_found_out4(void **state)
{
	finds_black_hole(false, 1400, 1280, 5000);
}

static void test_a_narrow_silent_path_takes_more_steps(void **state)
{
	finds_black_hole(false, 1000, 576, 10000);
}

/* A peer that is away is no black hole: what was guessed does not last. */
static void test_a_guess_lasts_a_minute(void **state)
{
	ip_addr_t ip = IPADDR4_INIT_BYTES(10, 0, 0, 2);

	far.mtu = 1300;
	far.silent = true;
	serve(send_stream);
	connect_to(1000, full_mss());
	download(5000);
	assert_int_equal(net_path_mtu(&ip), 1280);
	fake_now_ns += INT64_C(61000000000);
	run_ms(1);
	assert_int_equal(net_path_mtu(&ip), 0);
	far.mtu = 0;
	connect_to(1001, full_mss());
	download(1000);
	assert_int_equal(far.largest, 1500);
}

/* Small segments that vanish say nothing of the path. */
static void test_small_segments_are_not_cut(void **state)
{
	far.mtu = 500;
	far.silent = true;
	to_send = 500;
	serve(send_stream);
	connect_to(1000, full_mss());
	for (unsigned i = 0; i < 5000; i++)
		pass_ms();
	assert_int_equal(ours->pcb.mss, full_mss());
	assert_int_equal(net_the.stats.path_mtu_guessed, 0);
	far.mtu = 0;
	download(10000);
}

/* ---- the floor under every MSS ---- */

static void test_no_handshake_gives_less_than_the_floor(void **state)
{
	serve(send_stream);
	to_send = 2000;
	for (unsigned mss = 1; mss < 300; mss += 37) {
		connect_to((uint16_t)(1000 + mss), mss);
		download(1000);
		assert_in_range(ours->pcb.mss, NET_MSS_FLOOR, 1460);
	}
	ours->pcb.mss = 1; /* whatever else may have decided */
	net_path_settle(ours);
	assert_int_equal(ours->pcb.mss, NET_MSS_FLOOR);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_too_big_lowers_a_living_connection),
		T(test_needs_fragments_lowers_a_living_connection),
		T(test_without_an_mtu_the_plateaus_are_tried),
		T(test_what_is_impossible_is_raised_to_the_floor),
		T(test_what_quotes_nothing_under_way_is_refused),
		T(test_only_a_living_connection_is_meant),
		T(test_small_steps_end_at_the_floor),
		T(test_new_connections_begin_with_it),
		T(test_it_is_forgotten_after_ten_minutes),
		T(test_the_peers_mss_stays_the_bound),
		T(test_many_destinations_do_not_grow_the_cache),
		T(test_df_is_set_until_the_floor),
		cmocka_unit_test_setup_teardown(
			test_pmtud_off_believes_nobody_and_lets_routers_cut,
			setup_off, teardown),
		T(test_fin_stays_on_the_last_piece),
		T(test_lent_memory_is_cut_and_given_back),
		T(test_what_is_lent_is_not_written_to),
		T(test_it_works_while_a_repair_runs),
		T(test_what_the_peer_holds_is_not_sent_again),
		T(test_small_writes_go_on_behind_pieces),
		T(test_short_memory_delays_and_loses_nothing),
		T(test_a_silent_path_is_found_out6),
		T(test_a_silent_path_is_found_out4),
		T(test_a_narrow_silent_path_takes_more_steps),
		T(test_a_guess_lasts_a_minute),
		T(test_small_segments_are_not_cut),
		T(test_no_handshake_gives_less_than_the_floor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
