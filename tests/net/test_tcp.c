/*
 * TCP as a peer sees it, segment by segment, and as a coroutine sees it, call
 * by call. The clock stands still unless a test moves it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u /* sequence numbers wrap within the test */

static void test_data_is_echoed_and_acknowledged(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello, coronet", 14);
	/* piggybacked: no segment of its own */
	expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 14);
	assert_memory_equal(s.data, "hello, coronet", 14);
	peer.rcv += s.len;
	peer_send(&peer, PEER_ACK, NULL, 0);
	peer_expect_nothing();
}

static void test_syn_ack_offers_mss_wscale_and_sack(void **state)
{
	static const uint8_t options[] = {2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 1, 1};
	struct segment syn = {.src = 1000,
			      .dst = 7,
			      .seq = 1,
			      .flags = PEER_SYN,
			      .wnd = 65535,
			      .options = options,
			      .options_len = sizeof(options),
			      .data = (const uint8_t *)""};
	bool mss = false, wscale = false, sack = false;
	struct segment s;

	peer_send_raw(&syn);
	assert_true(peer_next(&s));
	for (unsigned i = 0; i < s.options_len;) {
		const uint8_t *opt = s.options + i;

		mss |= opt[0] == 2 && opt[2] == 5 && opt[3] == 180;
		wscale |= opt[0] == 3 && opt[2] == net_here()->rcv_scale;
		sack |= opt[0] == 4;
		i += opt[0] < 2 ? 1 : opt[1];
	}
	assert_true(mss);
	assert_true(wscale);
	assert_true(sack);
}

static void test_fin_ends_reading_and_close_answers_with_fin(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	assert_true(peer_next(&s));
	if (!(s.flags & PEER_FIN))
		assert_true(peer_next(&s));
	assert_int_equal(result, 0);
	assert_int_equal(ended, 1);
	check_segment(&s, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	peer.rcv++;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_data_with_fin_is_delivered_before_the_end(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH | PEER_FIN, "last words", 10);
	assert_true(peer_next(&s));
	while (s.len == 0)
		assert_true(peer_next(&s));
	assert_memory_equal(s.data, "last words", 10);
	assert_int_equal(result, 0);
}

static void test_rst_is_econnreset(void **state)
{
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(net_here()->n_conns, 0);
	peer_expect_nothing();
}

static void test_segment_to_a_closed_port_draws_rst(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 9, .snd = 5};

	peer_send(&peer, PEER_SYN, NULL, 0);
	expect(NULL, PEER_RST | PEER_ACK, 0, peer.snd, 0);
}

static void send_forever(struct net_conn *conn, void *arg)
{
	static const uint8_t block[4096];

	do
		result = net_send(conn, block, sizeof(block));
	while (result > 0);
	ended++;
}

static void test_full_send_buffer_parks_the_sender(void **state)
{
	struct segment s;
	struct peer peer;

	serve(send_forever);
	peer_connect(&peer, 1000, 7, 5);
	run_rounds(20);
	assert_int_equal(ended, 0);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	/* everything acknowledged: room again, and the sender goes on */
	peer_send(&peer, PEER_ACK, NULL, 0);
	assert_true(peer_next(&s));
	assert_true(s.len > 0);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(ended, 1);
}

static struct tcp_pcb *only_pcb;

static void remember_pcb(struct net_conn *conn)
{
	only_pcb = &conn->pcb;
}

static void test_window_of_65536_keeps_the_persist_timer(void **state)
{
	struct segment s;
	struct peer peer;

	serve(send_forever);
	peer_connect(&peer, 1000, 7, 5);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	while (peer_next(&s))
		;
	net_for_each_conn(remember_pcb);
	assert_true(only_pcb->persist_on > 0);
	/* The window is open, but the next segment does not fit cwnd. */
	only_pcb->snd_wnd = 65536;
	only_pcb->cwnd = 1;
	run_ms(500);
	assert_true(peer_next(&s));
	assert_true(s.len > 1);
}

static void test_closed_window_is_probed(void **state)
{
	struct segment s;
	struct peer peer;

	serve(send_forever);
	peer_connect(&peer, 1000, 7, 5);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	while (peer_next(&s))
		;
	run_ms(500);
	/* requests an answer */
	expect(&s, PEER_ACK, peer.rcv - 1, peer.snd, 0);
	while (peer_next(&s))
		;
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	assert_true(peer_next(&s));
	assert_true(s.len > 1);
}

static void read_nothing(struct net_conn *conn, void *arg)
{
	coro_sleep_ns(INT64_C(3600000000000));
	result = net_recv(conn, got, sizeof(got));
	ended++;
}

static void test_slow_reader_closes_the_window(void **state)
{
	static const uint8_t block[1400];
	uint32_t edge = 0;
	struct segment s;
	struct peer peer;

	serve(read_nothing);
	peer_connect(&peer, 1000, 7, 5); /* no scaling: at most 65535 */
	for (unsigned i = 0; i < 46; i++) {
		peer_send(&peer, PEER_ACK, block, sizeof(block));
		while (peer_next(&s))
			edge = s.ack + s.wnd;
	}
	run_ms(100);
	while (peer_next(&s))
		edge = s.ack + s.wnd;
	assert_int_equal(edge, 6 + 65535); /* the edge never moved */
	assert_int_equal(net_here()->n_conns, 1);
}

static void test_lost_answer_is_sent_again(void **state)
{
	struct segment first;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	assert_true(peer_next(&first));
	run_ms(3);
	peer_expect_nothing();
	run_ms(7);
	expect(NULL, PEER_ACK | PEER_PSH, first.seq, peer.snd, 1);
}

static void test_silent_peer_ends_in_etimedout(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	run_rounds(4);
	for (unsigned i = 0; i < 50000 && ended == 0; i++) {
		fake_now_ns += NET_TICK_NS;
		while (peer_next(&s))
			;
	}
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ETIMEDOUT);
	assert_int_equal(net_here()->n_conns, 0);
}

static void read_all(struct net_conn *conn, void *arg)
{
	long n;

	while ((n = net_recv(conn, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

static void test_ack_of_unanswered_data_is_delayed(void **state)
{
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH, "abc", 3);
	peer_expect_nothing();
	run_ms(45);
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
}

static void test_segments_out_of_order_are_reordered(void **state)
{
	struct segment s;
	struct peer peer, later;

	serve(read_all);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	later = peer;
	later.snd += 10;
	peer_send(&later, PEER_ACK, "KLMNOPQRST", 10);
	later.snd += 10;
	peer_send(&later, PEER_ACK, "efghijklmn", 10);
	run_rounds(2);
	assert_int_equal(got_len, 0);
	peer_send(&peer, PEER_ACK, "ABCDEFGHIJ", 10);
	run_rounds(3);
	assert_int_equal(got_len, 20);
	assert_memory_equal(got, "ABCDEFGHIJKLMNOPQRST", 20);
	peer.snd += 10;
	peer_send(&peer, PEER_ACK, "UVWXYZabcd", 10);
	run_rounds(3);
	assert_int_equal(got_len, 40);
	assert_memory_equal(got, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmn",
			    40);
	while (peer_next(&s))
		;
}

static void test_time_wait_ends(void **state)
{
	struct segment s;
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	while (peer_next(&s))
		if (s.flags & PEER_FIN)
			peer.rcv = s.seq + 1;
	assert_int_equal(net_here()->n_conns, 1); /* LAST_ACK */
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->n_conns, 0);
}

static void close_at_once(struct net_conn *conn, void *arg)
{
	ended++;
}

static void test_active_close_passes_time_wait(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, 5);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	peer.rcv++;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_time_waits.n, 1);
	run_ms(2 * TCP_MSL + 200);
	assert_int_equal(net_time_waits.n, 0);
}

static void
test_overlap_in_segmented_frames_does_not_end_the_stream(void **state)
{
	static const uint8_t data[150];
	unsigned back = 0;
	struct segment s;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	fake_segment_bytes = 54 + 60; /* 60 bytes of data in the first */
	peer_send(&peer, PEER_ACK, data, 100);
	run_rounds(3);
	peer.snd -= 100;
	peer_send(&peer, PEER_ACK, data, 150);
	while (peer_next(&s))
		back += s.len;
	assert_int_equal(ended, 0);
	assert_int_equal(back, 150);
}

static void test_newer_syn_reopens_time_wait_and_an_older_does_not(void **state)
{
	struct segment s;
	struct peer peer, again;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, 5);
	reach_time_wait(&peer);
	again = (struct peer){
		.port = 1000, .stack_port = 7, .snd = peer.snd - 3, .wnd = 9};
	peer_send(&again, PEER_SYN, NULL, 0);
	while (peer_next(&s))
		assert_false(s.flags & PEER_SYN);
	peer_connect(&again, 1000, 7, peer.snd + 1000);
	assert_int_equal(net_here()->stats.accepted, 2);
}

static void test_backlog_bounds_half_open_connections(void **state)
{
	struct segment s;
	unsigned answered = 0;

	for (uint16_t i = 0; i < 12; i++) {
		struct peer peer = {.port = (uint16_t)(2000 + i),
				    .stack_port = 7,
				    .snd = 9};

		peer_send(&peer, PEER_SYN, NULL, 0);
		run_rounds(1);
	}
	while (peer_next(&s))
		answered += s.flags == (PEER_SYN | PEER_ACK);
	assert_int_equal(answered, 12);
	assert_int_equal(net_here()->stats.cookies_sent, 4);
	assert_int_equal(net_here()->half_open, 8);
}

/* ---- malformed segments and exhausted pools ---- */

static void test_broken_options_never_reach_lwip(void **state)
{
	static const uint8_t bad[][4] = {{2, 0, 0, 0},	 {2, 1, 5, 180},
					 {3, 200, 0, 0}, {2, 8, 1, 1},
					 {1, 1, 1, 2},	 {3, 4, 1, 1}};
	struct peer peer;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct segment syn = {.src = (uint16_t)(3000 + i),
				      .dst = 7,
				      .flags = PEER_SYN,
				      .options = bad[i],
				      .options_len = 4,
				      .data = (const uint8_t *)""};

		peer_send_raw(&syn);
		peer_expect_nothing();
	}
	assert_int_equal(net_here()->stats.rx_bad_frame,
			 sizeof(bad) / sizeof(bad[0]));
	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
}

static void test_segments_with_impossible_flags_are_dropped(void **state)
{
	struct peer peer = {.port = 3000, .stack_port = 7};

	peer_send(&peer, PEER_SYN | PEER_FIN, NULL, 0);
	peer_expect_nothing();
	peer_send(&peer, PEER_SYN | PEER_RST, NULL, 0);
	peer_expect_nothing();
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_exhausted_tx_pool_recovers(void **state)
{
	struct segment s;
	struct peer peer;

	serve(echo_views);
	peer_connect(&peer, 1000, 7, 5);
	fake_tx_budget = 0;
	peer_send(&peer, PEER_ACK | PEER_PSH, "later", 5);
	peer_expect_nothing();
	fake_tx_budget = -1;
	run_ms(1500);
	assert_true(peer_next(&s));
	while (s.len == 0)
		assert_true(peer_next(&s));
	assert_memory_equal(s.data, "later", 5);
}

static void test_small_unread_pieces_do_not_pin_frames(void **state)
{
	struct segment s;
	struct peer peer;

	serve(read_nothing);
	peer_connect(&peer, 1000, 7, 5);
	for (unsigned i = 0; i < 500; i++) {
		peer_send(&peer, PEER_ACK, "y", 1);
		run_rounds(1);
		while (peer_next(&s))
			;
	}
	assert_true(fake_frames_out <= 2);
}

static void test_slow_readers_leave_frames_for_others(void **state)
{
	static const uint8_t block[1000];
	struct segment s;
	struct peer peer;

	net_listener_close(listener);
	assert_int_equal(net_listen(stack, &net_addr_any(7), 100, &listener),
			 0);
	serve(read_nothing);
	for (uint16_t i = 0; i < 40; i++) {
		peer_connect(&peer, (uint16_t)(2000 + i), 7, 5);
		for (unsigned k = 0; k < 60; k++) {
			peer_send(&peer, PEER_ACK, block, sizeof(block));
			while (peer_next(&s))
				;
		}
	}
	assert_true(fake_frames_out <= FAKE_MAX_FRAMES / 2 + GLUE_BURST);
	assert_int_equal(net_here()->n_conns, 40);
}

static void test_initial_sequence_numbers_do_not_repeat(void **state)
{
	struct segment a, b;
	struct peer peer = {.port = 4000, .stack_port = 7, .snd = 9};

	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&a));
	peer = (struct peer){.port = 4001, .stack_port = 7, .snd = 9};
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&b));
	assert_true(a.seq != b.seq);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_data_is_echoed_and_acknowledged),
		T(test_syn_ack_offers_mss_wscale_and_sack),
		T(test_fin_ends_reading_and_close_answers_with_fin),
		T(test_data_with_fin_is_delivered_before_the_end),
		T(test_rst_is_econnreset),
		T(test_segment_to_a_closed_port_draws_rst),
		T(test_full_send_buffer_parks_the_sender),
		T(test_window_of_65536_keeps_the_persist_timer),
		T(test_closed_window_is_probed),
		T(test_slow_reader_closes_the_window),
		T(test_lost_answer_is_sent_again),
		T(test_silent_peer_ends_in_etimedout),
		T(test_ack_of_unanswered_data_is_delayed),
		T(test_segments_out_of_order_are_reordered),
		T(test_overlap_in_segmented_frames_does_not_end_the_stream),
		T(test_time_wait_ends),
		T(test_active_close_passes_time_wait),
		T(test_newer_syn_reopens_time_wait_and_an_older_does_not),
		T(test_backlog_bounds_half_open_connections),
		T(test_broken_options_never_reach_lwip),
		T(test_segments_with_impossible_flags_are_dropped),
		T(test_exhausted_tx_pool_recovers),
		T(test_small_unread_pieces_do_not_pin_frames),
		T(test_slow_readers_leave_frames_for_others),
		T(test_initial_sequence_numbers_do_not_repeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
