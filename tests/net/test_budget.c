/*
 * The memory budget: windows and buffers shrink, the largest connections are
 * reset, others continue, and all memory is returned.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/short_memory.h"

#define MIB	   (UINT64_C(1) << 20)
#define NEAR_WRAP  0xffffff00u
#define PEERS	   600u
#define FLOOR	   8192u
#define GREEDY_LEN (300 * 1024)

static bool go;

static int listen_many(void **state)
{
	go = false;
	n_ballast = 0;
	return peer_listen_many(state);
}

static uint64_t used_bytes(void)
{
	struct net_stats stats;

	net_stack_stats(stack, &stats);
	return stats.memory_bytes;
}

static uint64_t taken_bytes(void)
{
	return net_mem_bytes() + net_budget_elsewhere();
}

static uint64_t eighths_of_all(unsigned n)
{
	struct net_stats stats;

	net_stack_stats(stack, &stats);
	return stats.memory_max_bytes / 8 * n;
}

/* Allocates memory until exactly so many eighths of the budget are used. */
static void fill_to(unsigned eighths)
{
	while (used_bytes() + NET_MEM_CHUNK_BYTES < eighths_of_all(eighths))
		take_ballast();
}

/* Allocates more than seven eighths. */
static void fill_up(void)
{
	while (!net_here()->memory_full)
		take_ballast();
}

static void forget_sent(void)
{
	static uint8_t frame[9216];

	while (fake_sent(frame, sizeof(frame)))
		;
}

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

/* Sends without end to a peer that asks with 'G', and echoes other bytes. */
static void pour_handler(struct net_conn *conn, void *arg)
{
	static uint8_t block[65536];
	char what = 0;

	if (net_recv(conn, &what, 1) != 1)
		return;
	if (what != 'G') {
		net_send(conn, &what, 1);
		echo_handler(conn, arg);
		return;
	}
	while (net_send(conn, block, sizeof(block)) > 0)
		;
	ended++;
}

/* Takes the next segment to one port; discards others. */
static bool next_to(uint16_t port, struct segment *s)
{
	while (peer_next(s))
		if (s->dst == port)
			return true;
	return false;
}

/* Repeats the SYN without an answer, as TCP does. */
static void connect_client(struct peer *peer, uint16_t port)
{
	struct segment s = {0};

	for (unsigned i = 0; i < 20 && s.dst != port; i++) {
		*peer = (struct peer){.port = port,
				      .stack_port = 7,
				      .snd = NEAR_WRAP,
				      .wnd = 65535};
		peer_send(peer, PEER_SYN, NULL, 0);
		if (!next_to(port, &s))
			run_ms(10);
	}
	assert_int_equal(s.dst, port);
	peer->rcv = s.seq + 1;
	peer_send(peer, PEER_ACK, NULL, 0);
}

static void expect_echo(uint16_t port)
{
	struct segment s = {0};
	struct peer peer;

	connect_client(&peer, port);
	peer_send(&peer, PEER_ACK, "e", 1);
	do
		assert_true(next_to(port, &s));
	while (s.len == 0);
	assert_int_equal(s.len, 1);
	peer_send(&peer, PEER_ACK | PEER_RST, NULL, 0);
	run_rounds(2);
}

/* ---- buffers ---- */

static void test_peers_that_do_not_read_stay_within_the_budget(void **state)
{
	uint64_t max = taken_bytes() + 24 * MIB, most = 0;
	struct peer peer;

	net_budget_set(max);
	serve(pour_handler);
	for (unsigned i = 0; i < PEERS; i++) {
		connect_client(&peer, (uint16_t)(2000 + i));
		peer_send(&peer, PEER_ACK, "G", 1);
		run_ms(1);
		forget_sent();
		most = taken_bytes() > most ? taken_bytes() : most;
		if (i % 100 == 99)
			expect_echo((uint16_t)(10000 + i));
	}
	assert_true(most > max / 2);
	assert_true(most <= max);
	assert_int_equal(stack->stats.accepted, PEERS + PEERS / 100);
	for (unsigned i = 0; i < PEERS; i++) {
		struct segment rst = {.src = (uint16_t)(2000 + i),
				      .dst = 7,
				      .seq = NEAR_WRAP + 2,
				      .flags = PEER_RST,
				      .options = (const uint8_t *)"",
				      .data = (const uint8_t *)""};

		peer_send_raw(&rst);
		run_ms(1);
		forget_sent();
	}
	run_ms(20);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(ended, PEERS);
	assert_int_equal(net_here()->snd_max, TCP_SND_BUF);
	assert_true(used_bytes() < max / 4);
}

static void test_send_buffer_shrinks_with_the_free_memory(void **state)
{
	uint32_t whole = net_here()->snd_max;

	assert_int_equal(whole, TCP_SND_BUF);
	net_budget_set(taken_bytes() + 32 * MIB);
	fill_to(4);
	run_ms(2);
	assert_in_range(net_here()->snd_max, whole / 2, whole);
	fill_to(6);
	run_ms(2);
	assert_in_range(net_here()->snd_max, whole / 8, whole / 2);
	fill_to(7);
	run_ms(2);
	assert_int_equal(net_here()->snd_max, FLOOR);
	free_ballast();
	run_ms(2);
	assert_int_equal(net_here()->snd_max, whole);
}

/* The number of a connection's segments is bounded like its bytes. */
static void pour_bytes(struct net_conn *conn, void *arg)
{
	net_set_write_deadline(conn, net_here()->now_ns + 50000000);
	conn->pcb.cwnd = 1 << 20; /* each byte leaves at once */
	while (net_send(conn, "x", 1) == 1) {
		got_len++;
		coro_yield();
	}
	while (!go)
		coro_yield();
}

static void test_one_byte_segments_use_bounded_memory(void **state)
{
	uint64_t before;
	struct peer peer;

	serve(pour_bytes);
	before = net_mem_live_bytes();
	peer_connect(&peer, 2000, 7, NEAR_WRAP);
	for (unsigned i = 0; i < 9000; i++) {
		run_rounds(1);
		forget_sent();
	}
	assert_true(got_len > 100);
	assert_true(net_mem_live_bytes() - before < 1024 * 1024);
	go = true;
}

/* ---- windows ---- */

static size_t may_read;

static void read_some(struct net_conn *conn, void *arg)
{
	static uint8_t buf[65536];
	long n = 1;

	while (n > 0) {
		while (!may_read && !go)
			coro_yield();
		n = net_recv(conn, buf, go ? sizeof(buf) : may_read);
		may_read -= n > 0 && !go ? (size_t)n : 0;
	}
	result = n;
	ended++;
}

static uint32_t edge; /* the right edge of the announced window */
static uint32_t window;

/* Reads the stack's segments: no announced window may be taken back. */
static void check_windows(struct peer *peer)
{
	struct segment s;

	while (peer_next(&s)) {
		assert_int_equal(s.flags & PEER_RST, 0);
		window = s.wnd;
		assert_true((int32_t)(s.ack + window - edge) >= 0);
		edge = s.ack + window;
		if (s.flags & PEER_FIN)
			peer->rcv = s.seq + s.len + 1;
	}
}

static void send_some(struct peer *peer, unsigned n)
{
	static const uint8_t data[1000];

	for (unsigned i = 0; i < n; i++) {
		if ((int32_t)(edge - peer->snd) < (int32_t)sizeof(data))
			break;
		peer_send(peer, PEER_ACK, data, sizeof(data));
		run_ms(45); /* past the delayed ACK */
		check_windows(peer);
	}
}

static void connect_reader(struct peer *peer)
{
	serve(read_some);
	may_read = 0;
	peer_connect(peer, 2000, 7, NEAR_WRAP);
	edge = peer->snd;
	window = 0;
	send_some(peer, 1);
	edge = peer->snd;
	peer_send(peer, PEER_ACK, "x", 1);
	run_ms(45);
	check_windows(peer);
}

static void test_windows_shrink_without_moving_the_edge_back(void **state)
{
	struct peer peer;

	connect_reader(&peer);
	assert_true(window > 60000);
	net_budget_set(taken_bytes() + 32 * MIB);
	fill_to(7);
	run_ms(2);
	for (unsigned i = 0; i < 30; i++) {
		send_some(&peer, 10);
		may_read = 100000;
		run_ms(45);
		check_windows(&peer);
	}
	/* All is read, but the window stays at its share. */
	assert_in_range(window, 1000, FLOOR);
	free_ballast();
	for (unsigned i = 0; i < 30 && window < 60000; i++) {
		send_some(&peer, 1);
		may_read = 100000;
		run_ms(45);
		check_windows(&peer);
	}
	assert_true(window > 60000);
	go = true;
}

static void test_small_window_opens_again_after_a_read(void **state)
{
	struct peer peer;

	connect_reader(&peer);
	net_budget_set(taken_bytes() + 32 * MIB);
	fill_to(7);
	run_ms(2);
	may_read = 100000;
	for (unsigned i = 0; i < 30; i++)
		send_some(&peer, 10);
	may_read = 0;
	send_some(&peer, 100); /* until it is shut */
	assert_true(window < 1000);
	may_read = 100000;
	run_ms(1);
	check_windows(&peer); /* an update, at once */
	assert_true(window >= FLOOR / 2);
	go = true;
}

static void close_it(struct net_conn *conn, void *arg)
{
	read_some(conn, arg);
}

static void test_close_with_a_small_window_sends_a_fin(void **state)
{
	struct peer peer;

	connect_reader(&peer);
	net_budget_set(taken_bytes() + 32 * MIB);
	fill_to(7);
	run_ms(2);
	for (unsigned i = 0; i < 10; i++) {
		may_read = 100000;
		send_some(&peer, 10);
	}
	serve(close_it);
	assert_true(window <= FLOOR);
	go = true;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_ms(2);
	check_windows(&peer); /* fails at a RST */
	assert_int_equal(result, 0);
	assert_int_equal(ended, 1);
}

/* ---- resets ---- */

static struct net_conn *greedy;

static void pour_and_note(struct net_conn *conn, void *arg)
{
	static uint8_t block[GREEDY_LEN];

	greedy = conn;
	result = net_send_all(conn, block, sizeof(block));
	ended++;
}

static void test_largest_connection_is_reset_and_the_others_live(void **state)
{
	struct peer modest[10], rich;
	struct segment s;
	bool rst = false;

	serve(echo_handler);
	for (unsigned i = 0; i < 10; i++) {
		peer_connect(&modest[i], (uint16_t)(2000 + i), 7, NEAR_WRAP);
		peer_send(&modest[i], PEER_ACK, "hello", 5);
		run_ms(1);
		while (peer_next(&s))
			modest[i].rcv = s.seq + s.len;
		peer_send(&modest[i], PEER_ACK, NULL, 0);
	}
	serve(pour_and_note);
	peer_connect(&rich, 3000, 7, NEAR_WRAP);
	for (unsigned i = 0; i < 1500; i++) { /* it acknowledges nothing */
		run_ms(1);
		forget_sent();
	}
	assert_int_equal(ended, 0);
	net_budget_set(taken_bytes() + 16 * MIB);
	fill_up();
	for (unsigned i = 0; i < 50 && !ended; i++) {
		run_ms(1);
		while (peer_next(&s))
			rst |= s.dst == 3000 && (s.flags & PEER_RST);
	}
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ENOBUFS);
	assert_true(rst || (peer_next(&s) && (s.flags & PEER_RST)));
	assert_int_equal(stack->stats.memory_resets, 1);
	assert_int_equal(net_here()->n_conns, 10);
	free_ballast();
	run_ms(5);
	peer_send(&modest[3], PEER_ACK, "again", 5);
	expect(&s, PEER_ACK | PEER_PSH, ANY, modest[3].snd, 5);
	assert_int_equal(s.dst, 2003);
}

static void never_read(struct net_conn *conn, void *arg)
{
	while (!go)
		coro_yield();
	result = net_recv(conn, got, 1);
	ended++;
}

static void test_connection_with_unread_bytes_is_reset(void **state)
{
	static uint8_t data[512];
	struct peer peer;

	serve(never_read);
	peer_connect(&peer, 2000, 7, NEAR_WRAP);
	for (unsigned i = 0; i < 100; i++) {
		peer_send(&peer, PEER_ACK, data, sizeof(data));
		run_ms(1);
		forget_sent();
	}
	net_budget_set(taken_bytes() + 16 * MIB);
	fill_up();
	run_ms(50);
	assert_int_equal(stack->stats.memory_resets, 1);
	assert_int_equal(net_here()->n_conns, 0);
	go = true;
	run_rounds(2);
	assert_int_equal(result, -ENOBUFS);
}

static void test_idle_connection_is_not_reset(void **state)
{
	struct peer peer;

	serve(echo_handler);
	peer_connect(&peer, 2000, 7, NEAR_WRAP);
	peer_send(&peer, PEER_ACK, "hello", 5);
	run_ms(1);
	forget_sent();
	peer.rcv += 5;
	peer_send(&peer, PEER_ACK, NULL, 0);
	net_budget_set(taken_bytes() + 16 * MIB);
	fill_up();
	run_ms(100);
	assert_int_equal(stack->stats.memory_resets, 0);
	assert_int_equal(net_here()->n_conns, 1);
}

/* Each connection holds a byte that its handler does not read. */
static void test_many_small_connections_are_reset_for_room(void **state)
{
	struct peer peer;

	serve(never_read);
	for (unsigned i = 0; i < 500; i++) {
		connect_client(&peer, (uint16_t)(2000 + i));
		peer_send(&peer, PEER_ACK, "x", 1);
		run_ms(1);
		forget_sent();
	}
	assert_int_equal(net_here()->n_conns, 500);
	net_budget_set(taken_bytes() + 16 * MIB);
	fill_up();
	run_ms(50);
	assert_true(stack->stats.memory_resets > 0);
	go = true;
	free_ballast();
}

static void *park_reader(void *arg)
{
	while (!go)
		coro_yield();
	return NULL;
}

static void test_memory_of_many_coroutines_is_returned(void **state)
{
	uint64_t before = net_budget_elsewhere();
	unsigned n = 0;

	net_budget_set(taken_bytes() + 16 * MIB);
	while (n < 200000 && net_spawn(stack, "one", park_reader, NULL) == 0)
		n++;
	assert_in_range(net_budget_elsewhere() - before, 8 * MIB, 13 * MIB);
	assert_in_range(n, 30000, 150000);
	go = true;
	run_rounds(5);
	run_ms(3);
	assert_false(net_here()->memory_full);
	assert_int_equal(net_here()->snd_max, TCP_SND_BUF);
	serve(echo_handler);
	expect_echo(2000);
	/* The coroutines' memory stays allocated: others share the rest. */
	while (net_here()->snd_max == TCP_SND_BUF)
		take_ballast();
	free_ballast();
}

static void test_no_connection_is_accepted_without_memory(void **state)
{
	struct peer peer = {
		.port = 2000, .stack_port = 7, .snd = 99, .wnd = 65535};

	serve(echo_handler);
	net_budget_set(taken_bytes() + 16 * MIB);
	fill_up();
	peer_send(&peer, PEER_SYN, NULL, 0);
	peer_expect_nothing();
	assert_int_equal(stack->stats.memory_refused, 1);
	free_ballast();
	run_ms(2);
	expect_echo(2000);
}

/* An object in each chunk keeps the chunk; new objects use the holes. */
static void test_new_objects_fill_the_holes_between_old_ones(void **state)
{
	static void *objects[64 * 1024];
	unsigned n = 0, step = NET_MEM_CHUNK_BYTES / 4096;

	serve(echo_handler);
	net_budget_set(taken_bytes() + 16 * MIB);
	while (!net_here()->memory_full) {
		objects[n] = net_mem_malloc(2000);
		assert_non_null(objects[n++]);
	}
	for (unsigned i = 0; i < n; i++)
		if (i % step) {
			net_mem_free(objects[i]);
			objects[i] = NULL;
		}
	run_ms(2);
	assert_true(used_bytes() > eighths_of_all(7) - NET_MEM_CHUNK_BYTES);
	assert_false(net_here()->memory_full);
	expect_echo(2000);
	assert_int_equal(stack->stats.memory_resets, 0);
	while (n--)
		if (objects[n])
			net_mem_free(objects[n]);
}

/* ---- opening ---- */

static void test_too_little_memory_is_refused_with_the_needed_size(void **state)
{
	struct net_opts opts;
	struct net_stack *out;

	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.memory_bytes = 2 * MIB;
	assert_int_equal(net_stack_open(&opts, &out), -ENOMEM);
	assert_non_null(strstr(opts.error, "--memory 2M: too little"));
	assert_non_null(strstr(opts.error, "M or more"));
	opts.memory_bytes = 1 << 30;
	opts.memory_bytes *= 64;
	assert_int_equal(net_stack_open(&opts, &out), 0);
	net_stack_close(out);
}

static void test_budget_has_a_default(void **state)
{
	struct net_stats stats;

	net_stack_stats(stack, &stats);
	assert_true(stats.memory_max_bytes >= 16 * MIB);
	assert_true(stats.memory_max_bytes < UINT64_C(1) << 46);
	assert_true(stats.memory_bytes < stats.memory_max_bytes);
}

static void read_all(struct net_conn *conn, void *arg)
{
	while (net_recv(conn, got, sizeof(got)) > 0)
		;
}

/*
 * The largest scale counts in units of 16 KiB. A peer that obeys the window
 * keeps sending while memory is short, without a probe.
 */
static void test_large_scale_leaves_a_window_when_memory_is_short(void **state)
{
	static const uint8_t options[] = {2, 4, 5, 120, 3, 3, 7, 1};
	static const uint8_t zeros[1000];
	unsigned idle_ms = 0;
	struct segment s;
	struct peer peer;

	net_budget_set(taken_bytes() + 16 * MIB);
	net_rcv_wnd_init(UINT64_C(1) << 30); /* --rmem-max 1G */
	assert_int_equal(net_here()->rcv_scale, 14);
	serve(read_all);
	memset(&peer, 0, sizeof(peer));
	peer.port = 1000;
	peer.wnd = 65535;
	s = peer_open(&peer, 99, options, sizeof(options));
	edge = s.ack + s.wnd;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	fill_to(7);
	net_budget_changed();
	assert_in_range(net_here()->rcv_limit, FLOOR, 65534);
	while (peer.snd - 100 < 1000000 && idle_ms < 10000) {
		if ((int32_t)(edge - peer.snd) >= 1000)
			peer_send(&peer, PEER_ACK, zeros, sizeof(zeros));
		else
			idle_ms++;
		run_ms(1);
		while (peer_next(&s))
			if ((int32_t)(s.ack + (s.wnd << 14) - edge) > 0)
				edge = s.ack + (s.wnd << 14);
	}
	free_ballast();
	assert_true(idle_ms < 10000);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_peers_that_do_not_read_stay_within_the_budget),
		T(test_send_buffer_shrinks_with_the_free_memory),
		T(test_one_byte_segments_use_bounded_memory),
		T(test_large_scale_leaves_a_window_when_memory_is_short),
		T(test_windows_shrink_without_moving_the_edge_back),
		T(test_small_window_opens_again_after_a_read),
		T(test_close_with_a_small_window_sends_a_fin),
		T(test_largest_connection_is_reset_and_the_others_live),
		T(test_connection_with_unread_bytes_is_reset),
		T(test_memory_of_many_coroutines_is_returned),
		T(test_many_small_connections_are_reset_for_room),
		T(test_idle_connection_is_not_reset),
		T(test_no_connection_is_accepted_without_memory),
		T(test_new_objects_fill_the_holes_between_old_ones),
		cmocka_unit_test(
			test_too_little_memory_is_refused_with_the_needed_size),
		T(test_budget_has_a_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
