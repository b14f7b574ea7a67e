/*
 * Half-open connections: the record of a SYN, and segments that do not complete
 * the handshake. The listener at port 7 has a backlog of 8.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/opening.h"

#define SECOND_NS INT64_C(1000000000)
#define MIB	  (UINT64_C(1) << 20)

/* ---- memory ---- */

static int listen_for_many(void **state)
{
	struct net_opts opts;

	fake_now_ns = SECOND_NS;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/8", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 2200000;
	opts.poll = NET_POLL_BUSY;
	ended = 0;
	if (net_stack_open(&opts, &stack) < 0 ||
	    net_listen(stack, &net_addr_any(7), 1100000, &listener) < 0)
		return -1;
	pbuf_free(pbuf_alloc(PBUF_LINK, 28, PBUF_RAM)); /* takes a chunk */
	return net_listener_limit(
		listener, &(struct net_limits){.half_open_per_source = 1u << 20,
					       .clients_per_source = 1u << 20});
}

/* Sends SYNs from 16 addresses, which nobody answers for. */
static void flood_syns(unsigned n)
{
	uint8_t from[4] = {10, 1, 0, 0};

	for (unsigned i = 0; i < n; i++) {
		from[3] = (uint8_t)(i % 16);
		peer_send_raw(&(struct segment){.src = (uint16_t)(1 + i / 16),
						.dst = 7,
						.seq = 99,
						.flags = PEER_SYN,
						.wnd = 65535,
						.options = (const uint8_t *)"",
						.data = (const uint8_t *)"",
						.from = from});
		if (i % 32 == 31)
			run_rounds(1);
		if (i % 1024 == 1023)
			discard_frames();
	}
	discard_frames();
}

static void test_half_open_record_is_a_cache_line(void **state)
{
	uint64_t before = net_mem_bytes(), bytes;

	flood_syns(200000);
	assert_int_equal(net_here()->half_open, 200000);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_here()->stats.cookies_sent, 0);
	bytes = net_mem_bytes() - before;
	assert_in_range(bytes, 200000 * 64, 200000 * 64 + MIB);
	net_half_open_reset_all();
	discard_frames();
	assert_int_equal(net_here()->half_open, 0);
	assert_in_range(net_mem_bytes(), before, before + MIB);
}

static void test_half_open_records_use_a_sixteenth_of_the_memory(void **state)
{
	uint64_t budget = net_mem_bytes() + net_budget_elsewhere() + 16 * MIB;

	net_budget_set(budget);
	flood_syns(40000);
	assert_in_range(net_here()->half_open, MIB / 64, budget / 16 / 64 + 1);
	assert_true(net_here()->stats.cookies_sent > 0);
	assert_int_equal(net_here()->stats.memory_refused, 0);
	assert_false(net_here()->memory_full);
	net_half_open_reset_all();
}

static void test_syn_without_memory_gets_a_cookie(void **state)
{
	net_mem_fail_after(2); /* the first is its source's */
	open_handshake();
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_here()->stats.cookies_sent, 1);
	assert_int_equal(net_client_entries, 0);
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->stats.cookies_accepted, 1);
}

/* Uses fewer buckets, so that chains are long; completes in another order. */
/*
 * The ACK with the cookie is late; the repeated SYN has found room meanwhile.
 */
static void test_earlier_cookie_is_accepted(void **state)
{
	struct peer first;

	serve(echo_views);
	net_mem_fail_after(2);
	open_handshake();
	assert_int_equal(net_here()->stats.cookies_sent, 1);
	first = peer;
	open_handshake();
	assert_int_equal(net_here()->half_open, 1);
	assert_true(peer.rcv != first.rcv);
	peer = first;
	peer_send(&peer, PEER_ACK, "x", 1);
	expect(NULL, PEER_ACK | PEER_PSH, first.rcv, peer.snd, 1);
	assert_int_equal(net_here()->stats.cookies_accepted, 1);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_here()->n_conns, 1);
	assert_int_equal(listener->pending, 0);
}

static void test_records_are_found_in_long_chains(void **state)
{
	static uint32_t rcv[4000];
	struct segment s;

	net_listener_limit(listener,
			   &(struct net_limits){.half_open_per_source = 5000});
	serve(echo_views);
	for (unsigned i = 0; i < 4000; i++) {
		peer = (struct peer){.port = (uint16_t)(1000 + i),
				     .stack_port = 7,
				     .snd = i,
				     .wnd = 65535};
		peer_send(&peer, PEER_SYN, NULL, 0);
		assert_true(peer_next(&s));
		rcv[i] = s.seq + 1;
	}
	assert_int_equal(net_here()->half_open, 4000);
	for (unsigned k = 0; k < 4000; k++) {
		unsigned i = k * 1237 % 4000;

		peer = (struct peer){.port = (uint16_t)(1000 + i),
				     .stack_port = 7,
				     .snd = i + 1,
				     .rcv = rcv[i],
				     .wnd = 65535};
		peer_send(&peer, PEER_ACK, "x", 1);
		expect(&s, PEER_ACK | PEER_PSH, rcv[i], peer.snd, 1);
		assert_int_equal(s.dst, peer.port);
	}
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_here()->n_conns, 4000);
	assert_int_equal(listener->pending, 0);
}

/* Two listeners have a record of the same client port, in the same bucket. */
static void test_records_of_a_bucket_are_distinguished(void **state)
{
	uint32_t mask = net_half_opens.bucket_mask, rcv[2];
	struct peer to[2] = {{1000, 7, 5, 0, 65535}, {1000, 8, 500, 0, 65535}};
	struct net_listener *other;
	struct segment s;

	net_half_opens.bucket_mask = 0;
	assert_int_equal(net_listen(stack, &net_addr_any(8), 8, &other), 0);
	net_listener_serve(other, echo_views, NULL);
	serve(echo_views);
	for (unsigned i = 0; i < 2; i++) {
		peer_send(&to[i], PEER_SYN, NULL, 0);
		expect(&s, PEER_SYN | PEER_ACK, ANY, to[i].snd, 0);
		assert_int_equal(s.src, to[i].stack_port);
		rcv[i] = s.seq + 1;
	}
	for (unsigned i = 0; i < 2; i++) {
		to[i].rcv = rcv[i];
		peer_send(&to[i], PEER_ACK, "x", 1);
		expect(&s, PEER_ACK | PEER_PSH, rcv[i], to[i].snd, 1);
		assert_int_equal(s.src, to[i].stack_port);
	}
	net_listener_close(other);
	net_half_opens.bucket_mask = mask;
}

/* Each record reserves a control block, which a dial must not take. */
static void *dial_peer(void *arg)
{
	struct net_addr to;
	struct net_conn *conn;

	assert_int_equal(net_addr_parse("10.0.0.2:80", 0, &to), 0);
	result = net_dial(stack, &to, NULL, &conn);
	return NULL;
}

static void test_half_open_records_count_as_connections(void **state)
{
	struct segment s;

	net_here()->max_conns = 3;
	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	peer_connect(&peer, 1001, 7, 5);
	peer.port = 1002;
	send_segment(PEER_SYN, 5, 0, "");
	assert_true(peer_next(&s));
	net_spawn(stack, "dial", dial_peer, NULL);
	run_rounds(2);
	assert_int_equal(result, -ENOMEM);
	peer.port = 1003;
	send_segment(PEER_SYN, 5, 0, "");
	peer_expect_nothing();
	assert_int_equal(net_here()->half_open, 1);
	peer.port = 1002;
	send_segment(PEER_ACK, 6, s.seq + 1, "");
	run_rounds(2);
	assert_int_equal(net_here()->n_conns, 3);
}

/* ---- time ---- */

static void test_syn_ack_is_sent_four_times_more(void **state)
{
	static const unsigned after_ms[] = {1000, 3000, 7000, 15000};
	struct segment first = open_handshake(), s;
	unsigned sent = 0;

	for (unsigned ms = 1; ms < 19990; ms++) {
		run_ms(1);
		while (peer_next(&s)) {
			assert_in_range(ms, after_ms[sent],
					after_ms[sent] + 10);
			check_segment(&s, PEER_SYN | PEER_ACK, first.seq, 0,
				      ANY);
			assert_int_equal(s.wnd, 65535);
			assert_int_equal(s.options_len, 12);
			sent++;
		}
	}
	assert_int_equal(sent, 4);
	expect_half_open();
	run_ms(40);
	expect_gone();
	peer_expect_nothing();
	serve(echo_views);
	peer_send(&peer, PEER_ACK, NULL, 0); /* too late */
	expect(&s, PEER_RST, peer.rcv, 0, 0);
}

static void test_repeated_syn_is_answered_and_restarts_the_timer(void **state)
{
	struct segment first = open_handshake(), s;

	run_ms(900);
	send_segment(PEER_SYN, NEAR_WRAP, 0, "");
	expect(&s, PEER_SYN | PEER_ACK, first.seq, 0, 0);
	run_ms(900);
	peer_expect_nothing();
	run_ms(150);
	expect(&s, PEER_SYN | PEER_ACK, first.seq, 0, 0);
	expect_half_open();
}

/*
 * The first, the last and a middle record are removed; the others are still
 * answered.
 */
static void test_removed_record_leaves_the_others(void **state)
{
	static const uint16_t leaves[] = {1000, 1002, 1005};
	struct segment s;
	unsigned sum = 0;

	for (peer.port = 1000; peer.port < 1006; peer.port++) {
		send_segment(PEER_SYN, 5, 0, "");
		assert_true(peer_next(&s));
	}
	for (unsigned i = 0; i < 3; i++) {
		peer.port = leaves[i];
		send_segment(PEER_RST, 6, 0, "");
		run_rounds(1);
	}
	peer.port = 1006;
	send_segment(PEER_SYN, 5, 0, "");
	assert_true(peer_next(&s));
	assert_int_equal(net_here()->half_open, 4);
	run_ms(1010);
	while (peer_next(&s))
		sum += s.dst;
	assert_int_equal(sum, 1001 + 1003 + 1004 + 1006);
	run_ms(20000);
	discard_frames();
	expect_gone();
}

static void test_syn_acks_resent_in_a_round_are_bounded(void **state)
{
	unsigned n, sent = 0;

	net_listener_limit(listener,
			   &(struct net_limits){.half_open_per_source = 5000});
	serve(echo_views);
	peer_connect(&peer, 999, 7, 5); /* so that its address is known */
	for (uint16_t i = 0; i < 1000; i++) {
		peer.port = (uint16_t)(1000 + i);
		send_segment(PEER_SYN, 5, 0, "");
		run_rounds(1);
		discard_frames();
	}
	run_ms(998);
	discard_frames();
	fake_now_ns += SECOND_NS;
	for (unsigned rounds = 0; rounds < 10; rounds++) {
		run_rounds(1);
		for (n = 0; fake_sent(got, sizeof(got));)
			n += get16(got + 12) == 0x0800;
		assert_in_range(n, 0, 256);
		sent += n;
	}
	assert_int_equal(sent, 1000);
}

/* An answer that could not leave does not count as one of four. */
static void test_busy_port_does_not_count_as_an_answer(void **state)
{
	struct segment s;
	unsigned sent = 0;

	serve(echo_views);
	peer_connect(&peer, 999, 7, 5); /* so that its address is known */
	peer.port = 1000;
	fake_tx_budget = 0;
	send_segment(PEER_SYN, NEAR_WRAP, 0, "");
	run_ms(3000);
	fake_tx_budget = -1;
	s = peer_wait(10);
	peer.snd = 0;
	peer.rcv = s.seq + 1;
	run_ms(14000);
	while (peer_next(&s))
		sent++;
	assert_int_equal(sent, 3);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(find_conn(1000));
}

static void test_syn_ack_without_memory_is_retried_soon(void **state)
{
	serve(echo_views);
	peer_connect(&peer, 999, 7, 5); /* so that its address is known */
	net_mem_fail_after(2);		/* the first is the record */
	peer.port = 1000;
	send_segment(PEER_SYN, NEAR_WRAP, 0, "");
	run_rounds(1);
	net_mem_fail_after(0);
	peer_expect_nothing();
	assert_int_equal(net_here()->half_open, 1);
	assert_int_equal(peer_wait(10).flags, PEER_SYN | PEER_ACK);
}

/* ---- segments that do not end the handshake ---- */

static void test_a_reset_must_have_the_next_number(void **state)
{
	static const uint32_t outside[] = {-1u, 262144, 0x80000000u};
	struct segment first = open_handshake(), s;

	for (unsigned i = 0; i < 3; i++)
		send_segment(PEER_RST, peer.snd + outside[i], 0, "");
	peer_expect_nothing();
	assert_int_equal(net_here()->stats.rx_unacceptable, 3);
	send_segment(PEER_RST, peer.snd + 1, 0, "");
	expect(&s, PEER_ACK, first.seq + 1, peer.snd, 0);
	assert_int_equal(s.wnd, 65535 >> net_here()->rcv_scale);
	send_segment(PEER_RST, peer.snd + 262143, 0, "");
	send_segment(PEER_SYN, peer.snd + 5, 0, "");
	peer_expect_nothing(); /* one challenge until it is answered again */
	assert_int_equal(net_here()->stats.challenge_acks, 1);
	run_ms(1010);
	assert_true(peer_next(&s));
	send_segment(PEER_SYN | PEER_ACK, peer.snd, peer.rcv, "");
	expect(&s, PEER_ACK, first.seq + 1, peer.snd, 0);
	expect_half_open();
	send_segment(PEER_RST | PEER_ACK, peer.snd, peer.rcv, "");
	run_rounds(2);
	expect_gone();
}

static void test_window_without_scaling_is_smaller(void **state)
{
	struct segment s;

	peer_open(&peer, NEAR_WRAP, all_options, 4);
	send_segment(PEER_ACK, peer.snd + 65536, peer.rcv, "");
	expect(&s, PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(s.wnd, 65535);
	send_segment(PEER_RST, peer.snd + 65535, 0, "");
	peer_expect_nothing();
	serve(echo_views);
	send_segment(PEER_ACK, peer.snd + 65535, peer.rcv, "");
	run_rounds(2);
	assert_non_null(find_conn(1000));
}

static void test_a_wrong_ack_is_reset_and_changes_nothing(void **state)
{
	static const uint32_t wrong[] = {-1u, 1, 0x80000000u};

	open_handshake();
	for (unsigned i = 0; i < 3; i++) {
		send_segment(PEER_ACK, peer.snd, peer.rcv + wrong[i], "data");
		expect(NULL, PEER_RST, peer.rcv + wrong[i], 0, 0);
	}
	send_segment(PEER_ACK, peer.snd - 2, peer.rcv,
		     "x"); /* old: gets a challenge */
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	send_segment(0, peer.snd, 0, "data");
	send_segment(PEER_FIN, peer.snd, 0, "");
	peer_expect_nothing();
	assert_int_equal(net_here()->stats.rx_unacceptable, 3);
	expect_half_open();
}

/* ---- IPv6 ---- */

/* fd00::2 and fd01::2 are in the neighbour cache. */
static int listen6(void **state)
{
	int err = peer_listen6(state);

	for (unsigned i = 0; i < 2 && err == 0; i++) {
		struct nd6_neighbor_cache_entry *entry = &neighbor_cache[i];
		uint8_t ip[16] = {0xfd, (uint8_t)i, [15] = 2};

		memset(entry, 0, sizeof(*entry));
		memcpy(entry->next_hop_address.addr, ip, 16);
		entry->netif = &net_here()->netifs[0];
		memcpy(entry->lladdr, fake_peer_mac, 6);
		entry->state = ND6_REACHABLE;
		entry->counter.reachable_time = 3600000;
	}
	return err;
}

static void send_segment6(uint8_t net, uint8_t flags, uint32_t seq,
			  uint32_t ack, const char *data)
{
	uint8_t frame[14 + 40 + 32 + 64] = {0}, *ip = frame + 14;
	unsigned header = flags & PEER_SYN ? 32 : 20;
	size_t len = strlen(data);
	uint8_t *tcp = ip + 40;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, 0x86dd);
	ip[0] = 0x60;
	ip[5] = (uint8_t)(header + len);
	ip[6] = 6;
	ip[7] = 64;
	ip[8] = ip[24] = 0xfd;
	ip[9] = ip[25] = net;
	ip[23] = 2;
	ip[39] = 1;
	put16(tcp, 1000);
	put16(tcp + 2, 7);
	put32(tcp + 4, seq);
	put32(tcp + 8, ack);
	tcp[12] = (uint8_t)(header / 4 << 4);
	tcp[13] = flags;
	put16(tcp + 14, 500);
	memcpy(tcp + 20, all_options, header - 20);
	memcpy(tcp + header, data, len);
	fake_receive(frame, 54 + header + (unsigned)len,
		     GLUE_FRAME_IP6 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK, 54);
}

/* Returns the IPv6 packet of the next sent segment, or NULL. */
static const uint8_t *next_segment6(void)
{
	static uint8_t frame[9216];

	run_rounds(2);
	while (fake_sent(frame, sizeof(frame)))
		if (frame[12] == 0x86 && frame[14 + 6] == 6)
			return frame + 14;
	return NULL;
}

static void expect6(uint8_t net, uint8_t flags, uint32_t seq, uint32_t ack)
{
	const uint8_t *ip = next_segment6();

	assert_non_null(ip);
	assert_int_equal(ip[9], net);
	assert_int_equal(ip[25], net);
	assert_int_equal(ip[40 + 13], flags);
	assert_int_equal(get32(ip + 40 + 4), seq);
	assert_int_equal(get32(ip + 40 + 8), ack);
}

/* The same ports, to two addresses of ours. */
static void test_ipv6_record_is_a_cache_line(void **state)
{
	uint32_t rcv[2];

	serve(echo_views);
	for (uint8_t net = 0; net < 2; net++) {
		const uint8_t *ip;

		send_segment6(net, PEER_SYN, NEAR_WRAP, 0, "");
		ip = next_segment6();
		assert_non_null(ip);
		assert_int_equal(ip[9], net);
		assert_int_equal(ip[40 + 13], PEER_SYN | PEER_ACK);
		assert_int_equal(get32(ip + 48), 0);
		assert_int_equal(get16(ip + 40 + 22), 1440);
		rcv[net] = get32(ip + 44) + 1;
	}
	assert_int_equal(net_here()->half_open, 2);
	send_segment6(0, PEER_RST, 1, 0, "");
	expect6(0, PEER_ACK, rcv[0], 0);
	run_ms(1010);
	for (uint8_t net = 0; net < 2; net++)
		expect6(net, PEER_SYN | PEER_ACK, rcv[net] - 1, 0);
	send_segment6(1, PEER_ACK, 0, rcv[1], "six");
	expect6(1, PEER_ACK | PEER_PSH, rcv[1], 3);
	send_segment6(0, PEER_RST, 0, 0, "");
	run_rounds(2);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(net_here()->n_conns, 1);
	assert_int_equal(net_client_entries, 1);
	assert_null(next_segment6());
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)
#define MANY(name, setup)                                                      \
	cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MANY(test_half_open_record_is_a_cache_line, listen_for_many),
		MANY(test_half_open_records_use_a_sixteenth_of_the_memory,
		     listen_for_many),
		T(test_syn_without_memory_gets_a_cookie),
		T(test_earlier_cookie_is_accepted),
		MANY(test_records_are_found_in_long_chains, peer_listen_many),
		T(test_records_of_a_bucket_are_distinguished),
		T(test_half_open_records_count_as_connections),
		T(test_syn_ack_is_sent_four_times_more),
		T(test_repeated_syn_is_answered_and_restarts_the_timer),
		T(test_removed_record_leaves_the_others),
		MANY(test_syn_acks_resent_in_a_round_are_bounded,
		     peer_listen_many),
		T(test_busy_port_does_not_count_as_an_answer),
		T(test_syn_ack_without_memory_is_retried_soon),
		T(test_a_reset_must_have_the_next_number),
		T(test_window_without_scaling_is_smaller),
		T(test_a_wrong_ack_is_reset_and_changes_nothing),
		MANY(test_ipv6_record_is_a_cache_line, listen6),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
