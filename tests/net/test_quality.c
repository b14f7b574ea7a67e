/*
 * Robustness: unpredictable numbers, bounded memory for data out of order,
 * timers, initial windows.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u

static void read_all(struct net_conn *conn, void *arg)
{
	long n;

	while ((n = net_recv(conn, got, sizeof(got))) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
	ended++;
}

static void send_forever(struct net_conn *conn, void *arg)
{
	static const uint8_t block[4096];

	while (net_send(conn, block, sizeof(block)) > 0)
		;
	ended++;
}

static struct net_conn *found;

static void remember(struct net_conn *conn)
{
	found = conn;
}

static struct net_conn *only_conn(void)
{
	found = NULL;
	net_for_each_conn(remember);
	assert_non_null(found);
	return found;
}

static void swallow(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

static void listen_with_backlog(unsigned backlog)
{
	net_listener_close(listener);
	assert_int_equal(
		net_listen(stack, &net_addr_any(7), backlog, &listener), 0);
}

/* ---- numbers ---- */

static uint16_t id_for(unsigned host)
{
	ip4_addr_t dest;

	IP4_ADDR(&dest, 10, 0, host >> 8, host & 255);
	return lwip_ntohs(net_ip_id(&dest));
}

static void test_ip_id_repeats_only_after_all_others(void **state)
{
	static bool seen[65536];

	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < 65536; i++) {
		uint16_t id = id_for(2);

		assert_false(seen[id]);
		seen[id] = true;
	}
}

static void
test_ip_id_of_one_destination_does_not_depend_on_others(void **state)
{
	unsigned apart = 0;

	for (unsigned host = 3; host < 67; host++) {
		uint16_t before = id_for(2);

		for (unsigned i = 0; i < 7; i++)
			id_for(host);
		apart += (uint16_t)(id_for(2) - before) == 1;
	}
	assert_in_range(apart, 56, 64); /* of 1024 counters few are shared */
}

static void test_numbers_begin_at_random(void **state)
{
	struct peer peer = {.port = 4000, .stack_port = 7, .snd = 9};
	unsigned ids = 0, isns = 0;
	uint16_t id = 0;
	uint32_t isn = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct segment s;

		peer.snd = 9;
		peer_send(&peer, PEER_SYN, NULL, 0);
		assert_true(peer_next(&s));
		ids += s.ip_id != id;
		isns += s.seq != isn;
		id = s.ip_id;
		isn = s.seq;
		net_stack_close(stack); /* the clock restarts as well */
		assert_int_equal(peer_listen(state), 0);
	}
	assert_in_range(ids, 2, 4);
	assert_in_range(isns, 3, 4);
}

static uint32_t isn_for(uint16_t port)
{
	struct peer peer = {.port = port, .stack_port = 7, .snd = 9};
	struct segment s;

	peer_send(&peer, PEER_SYN, NULL, 0);
	expect(&s, PEER_SYN | PEER_ACK, ANY, peer.snd, 0);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->n_conns, 0);
	return s.seq;
}

/* RFC 6528 3: the same addresses get higher numbers, a tick every 4 us. */
static void test_isn_grows_with_the_clock(void **state)
{
	uint32_t first = isn_for(4000);

	fake_now_ns += 4000000;
	assert_int_equal(isn_for(4000) - first, 1000);
}

static void test_isns_of_different_ports_are_unrelated(void **state)
{
	uint32_t base = isn_for(4000);
	unsigned near = 0;

	for (uint16_t port = 4001; port < 4033; port++)
		near += isn_for(port) - base + 0x100000 < 0x200000;
	assert_in_range(near, 0, 2); /* each by chance one in 2048 */
}

/* ---- out of order ---- */

/* Pieces of len bytes with a hole before each. */
static void send_islands(const struct peer *peer, unsigned n, unsigned len)
{
	static const uint8_t data[1000];

	for (unsigned i = 0; i < n; i++) {
		struct peer island = *peer;

		island.snd += 1 + i * (len + 1);
		peer_send(&island, PEER_ACK, data, len);
		run_rounds(1);
		swallow();
	}
}

static void test_bytes_out_of_order_hold_no_frames(void **state)
{
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	send_islands(&peer, 200, 1);
	assert_int_equal(net_here()->ooseq_held, 200);
	assert_int_equal(fake_frames_out, 0);
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
	tcp_abort(&only_conn()->pcb);
	assert_int_equal(net_here()->ooseq_held, 0);
}

static void test_frames_out_of_order_have_a_common_budget(void **state)
{
	unsigned budget = FAKE_MAX_FRAMES / 4;
	struct peer peer, honest, hole;

	listen_with_backlog(100);
	serve(read_all);
	peer_connect(&honest, 999, 7, NEAR_WRAP);
	for (uint16_t i = 0; i < 60; i++) {
		peer_connect(&peer, (uint16_t)(1000 + i), 7, NEAR_WRAP);
		if (i == 0)
			hole = peer;
		send_islands(&peer, 60, 600);
	}
	assert_int_equal(net_here()->ooseq_frames, budget);
	assert_in_range(fake_frames_out, budget, budget + 8);
	assert_int_equal(net_here()->ooseq_held, 60 * 60); /* copies */
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
	/* An honest connection without losses is not affected. */
	peer_send(&honest, PEER_ACK, "in order", 8);
	run_rounds(2);
	assert_int_equal(got_len, 8);
	/* A filled hole releases its share. */
	peer_send(&hole, PEER_ACK, "x", 1);
	run_rounds(2);
	assert_int_equal(got_len, 8 + 601);
	assert_int_equal(net_here()->ooseq_frames, budget - 1);
	swallow();
}

static void test_while_memory_is_short_few_pieces_are_kept(void **state)
{
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	for (unsigned i = 0; i < 60; i++) {
		struct peer next = peer;

		next.snd += 1000 * i;
		net_here()->rcv_limit = 65535;
		send_islands(&next, 1, 600);
	}
	assert_int_equal(net_here()->ooseq_held, 16);
	assert_int_equal(net_here()->stats.ooseq_drops, 44);
	swallow();
}

static void test_no_connection_takes_the_whole_budget(void **state)
{
	struct peer peer, island;

	serve(read_all);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	send_islands(&peer, 300, 1);
	assert_int_equal(net_here()->ooseq_held, 256);
	assert_int_equal(net_here()->stats.ooseq_drops, 44);
	island = peer;
	island.snd += 1000;
	peer_send(&island, PEER_ACK, "y", 1);
	/* the hole is still reported */
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
}

/* ---- timers ---- */

static void test_second_segment_is_acknowledged_at_once(void **state)
{
	static const uint8_t data[1000];
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	peer_send(&peer, PEER_ACK, data, sizeof(data));
	peer_expect_nothing();
	run_ms(30);
	peer_expect_nothing();
	run_ms(15);
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	peer_send(&peer, PEER_ACK, data, sizeof(data));
	peer_send(&peer, PEER_ACK, data, sizeof(data));
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	run_ms(100);
	peer_expect_nothing();
	assert_false(coro_timer_armed(&only_conn()->timer));
}

static void test_keepalive_delays_no_other_timer(void **state)
{
	struct peer peer;

	serve(echo_handler);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	net_set_keepalive(only_conn(), 60, 1, 3);
	run_ms(100);
	peer_send(&peer, PEER_ACK | PEER_PSH, "lost", 4);
	expect(NULL, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
	run_ms(1200);
	/* again, long before the keepalive */
	expect(NULL, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
}

static void test_rto_floor_is_at_most_200_ms(void **state)
{
	unsigned ms = 0;
	struct segment s;
	struct peer peer;

	serve(echo_handler);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	for (unsigned i = 0; i < 60; i++) {
		peer_send(&peer, PEER_ACK | PEER_PSH, "ping", 4);
		expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
		peer.rcv += 4;
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_ms(1);
	}
	peer_send(&peer, PEER_ACK | PEER_PSH, "lost", 4);
	assert_true(peer_next(&s));
	do {
		run_ms(1);
		assert_in_range(++ms, 1, 200);
	} while (!peer_next(&s));
	check_segment(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
	assert_in_range(ms, 5, 200); /* a probe, at the earliest */
}

/* ---- windows ---- */

static unsigned first_flight(uint16_t port, uint16_t mss)
{
	const uint8_t options[] = {
		2, 4, (uint8_t)(mss >> 8), (uint8_t)mss, 1, 3, 3, 7};
	struct segment s, syn = {.src = port,
				 .dst = 7,
				 .seq = 5,
				 .flags = PEER_SYN,
				 .wnd = 65535,
				 .options = options,
				 .options_len = sizeof(options),
				 .data = (const uint8_t *)""};
	struct peer peer = {.port = port, .stack_port = 7, .snd = 6};
	unsigned bytes = 0;

	peer.wnd = 65535;
	peer_send_raw(&syn);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	while (peer_next(&s)) {
		bytes += s.len;
		assert_in_range(s.len, 0, mss);
	}
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	return bytes;
}

/* RFC 6928: min(10 * MSS, max(2 * MSS, 14600)). */
static void test_ten_segments_leave_at_first(void **state)
{
	serve(send_forever);
	assert_int_equal(first_flight(1000, 1460), 14600);
	assert_int_equal(first_flight(1001, 536), 5360);
	assert_int_equal(first_flight(1002, 1000), 10000);
}

static int jumbo_listen(void **state)
{
	struct net_opts opts;

	fake_now_ns = 1000000000;
	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 64;
	opts.mtu = 9000;
	opts.poll = NET_POLL_BUSY;
	return net_stack_open(&opts, &stack) ||
	       net_listen(stack, &net_addr_any(7), 8, &listener);
}

static void test_two_jumbo_segments_leave_at_first(void **state)
{
	serve(send_forever);
	assert_int_equal(first_flight(1000, 8960), 17920);
	assert_int_equal(first_flight(1001, 4000), 3 * 4000);
}

static void test_windows_are_not_scaled_without_the_option(void **state)
{
	unsigned bytes = 0;
	struct segment s;
	struct peer peer;

	serve(send_forever);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	while (peer_next(&s)) {
		bytes += s.len;
		assert_int_equal(s.wnd, 65535);
	}
	assert_int_equal(bytes, 5360); /* no MSS named: 536 */
	peer.rcv += bytes;
	peer.wnd = 700;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (bytes = 0; peer_next(&s);)
		bytes += s.len;
	assert_in_range(bytes, 536, 700);
}

static void send_twice(struct net_conn *conn, void *arg)
{
	static const uint8_t block[4000];

	net_send(conn, block, sizeof(block));
	coro_sleep_ns(100000000);
	net_send(conn, block, sizeof(block));
	coro_sleep_ns(INT64_C(3600000000000));
}

static void test_window_that_opens_a_little_breaks_no_segment(void **state)
{
	struct segment s;
	struct peer peer = {.port = 1000, .stack_port = 7, .snd = NEAR_WRAP};
	unsigned bytes = 0;

	serve(send_twice);
	peer_send(&peer, PEER_SYN, NULL, 0); /* its window is 0 */
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(50);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len; /* probes */
	peer.wnd = 100;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(100);
	while (peer_next(&s)) {
		assert_in_range(s.len, 0, 100);
		peer.rcv = s.seq + s.len;
	}
	peer.wnd = 65535;
	for (unsigned i = 0; i < 40; i++) {
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_ms(5);
		while (peer_next(&s)) {
			assert_in_range(s.len, 0, 536);
			bytes += s.len;
			peer.rcv = s.seq + s.len;
		}
	}
	assert_in_range(bytes, 7000, 8000);
}

/* ---- IPv6 ---- */

static void send_segment6(uint16_t port, uint8_t flags, uint32_t seq,
			  uint32_t ack, const uint8_t *options, unsigned len)
{
	uint8_t frame[14 + 40 + 20 + 40] = {0}, *ip = frame + 14;
	uint8_t *tcp = ip + 40;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	frame[12] = 0x86;
	frame[13] = 0xdd;
	ip[0] = 0x60;
	ip[5] = (uint8_t)(20 + len);
	ip[6] = 6;
	ip[7] = 64;
	ip[8] = 0xfe;
	ip[9] = 0x80;
	ip[23] = 2;
	memcpy(ip + 24, netif_ip6_addr(&net_here()->netifs[0], 0)->addr, 16);
	tcp[0] = (uint8_t)(port >> 8);
	tcp[1] = (uint8_t)port;
	tcp[3] = 7;
	put32(tcp + 4, seq);
	put32(tcp + 8, ack);
	tcp[12] = (uint8_t)((20 + len) / 4 << 4);
	tcp[13] = flags;
	tcp[14] = 0xff;
	if (len)
		memcpy(tcp + 20, options, len);
	fake_receive(frame, 14 + 40 + 20 + len,
		     GLUE_FRAME_IP6 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK, 54);
	run_rounds(2);
}

/*
 * The peer's MAC address is not known yet, so that the answer does not leave.
 */
static void open_peer6(uint16_t port, const uint8_t *options, unsigned len)
{
	ip_addr_t local, remote;

	ip_addr_copy_from_ip6(local,
			      *netif_ip6_addr(&net_here()->netifs[0], 0));
	IP_ADDR6_HOST(&remote, 0xfe800000, 0, 0, 2);
	send_segment6(port, PEER_SYN, 5, 0, options, len);
	send_segment6(port, PEER_ACK, 6, net_isn(&local, 7, &remote, port) + 1,
		      NULL, 0);
	assert_int_equal(net_here()->n_conns, 1);
}

static void test_absent_mss_over_ipv6_is_1220(void **state)
{
	static const uint8_t mss[] = {2, 4, 2, 24}; /* 536, on purpose */

	serve(echo_views);
	open_peer6(1000, NULL, 0);
	assert_int_equal(only_conn()->pcb.mss, 1220);
	tcp_abort(&only_conn()->pcb);
	run_rounds(2);
	open_peer6(1001, mss, 4);
	assert_int_equal(only_conn()->pcb.mss, 536);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_ip_id_repeats_only_after_all_others),
		T(test_ip_id_of_one_destination_does_not_depend_on_others),
		T(test_numbers_begin_at_random),
		T(test_isn_grows_with_the_clock),
		T(test_isns_of_different_ports_are_unrelated),
		T(test_bytes_out_of_order_hold_no_frames),
		T(test_frames_out_of_order_have_a_common_budget),
		T(test_while_memory_is_short_few_pieces_are_kept),
		T(test_no_connection_takes_the_whole_budget),
		T(test_second_segment_is_acknowledged_at_once),
		T(test_keepalive_delays_no_other_timer),
		T(test_rto_floor_is_at_most_200_ms),
		T(test_ten_segments_leave_at_first),
		cmocka_unit_test_setup_teardown(
			test_two_jumbo_segments_leave_at_first, jumbo_listen,
			peer_teardown),
		T(test_windows_are_not_scaled_without_the_option),
		T(test_window_that_opens_a_little_breaks_no_segment),
		cmocka_unit_test_setup_teardown(
			test_absent_mss_over_ipv6_is_1220, peer_listen6,
			peer_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
