/*
 * Explicit congestion notification, RFC 3168: agreement, ECN-capable segments,
 * echoes of marks, and their effect. Segments have 1,000 bytes and the initial
 * window is ten of them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "netstack/tcp/tcp.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/far.h"
#include "tests/net/repair.h"

#define ASKS	(PEER_SYN | PEER_ECE | PEER_CWR)
#define AGREES	(PEER_SYN | PEER_ACK | PEER_ECE)
#define ECT0	2
#define CE	3
#define BACKLOG 8

/* MSS 1,000, SACK, a timestamp of 77. */
static const uint8_t options[20] = {2, 4, MSS >> 8, MSS & 255, 4, 2, 1,
				    1, 8, 10,	    0,	       0, 0, 77,
				    0, 0, 0,	    0,	       1, 1};
#define PLAIN 8 /* length of the options without a timestamp */

static uint8_t data[100000];

static void *send_and_read(struct net_conn *conn)
{
	struct net_view view;

	ours = conn;
	if (to_send)
		net_send_all(conn, data, to_send);
	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
	return NULL;
}

static void feed_handler(struct net_conn *conn, void *arg)
{
	send_and_read(conn);
}

static struct segment syn_of(uint16_t port, uint8_t flags, unsigned opts)
{
	return (struct segment){.src = port,
				.dst = 7,
				.seq = 99,
				.flags = flags,
				.wnd = 65535,
				.options = options,
				.options_len = opts,
				.data = (const uint8_t *)""};
}

static struct segment next_segment(void)
{
	struct segment s;

	assert_true(peer_next(&s));
	return s;
}

/* Sends a SYN with these flags; returns the answer's flags. */
static uint8_t open_with(uint8_t flags)
{
	struct segment s = syn_of(1000, flags, PLAIN);

	peer_send_raw(&s);
	s = next_segment();
	assert_int_equal(s.tos, 0);
	peer = (struct peer){1000, 7, 100, s.seq + 1, 65535};
	base = s.seq + 1;
	return s.flags;
}

/* Completes the handshake an RTT later; so many bytes follow. */
static void connect_with(uint8_t flags, size_t bytes)
{
	to_send = bytes;
	serve(feed_handler);
	open_with(flags);
	run_ms(RTT_MS);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(ours);
}

static void send_marked(uint8_t flags, uint8_t tos, unsigned acked,
			const char *text)
{
	struct segment s = {.src = peer.port,
			    .dst = 7,
			    .seq = peer.snd,
			    .ack = base + acked * MSS,
			    .flags = flags | PEER_ACK,
			    .wnd = 65535,
			    .options = (const uint8_t *)"",
			    .data = (const uint8_t *)text,
			    .len = (unsigned)strlen(text),
			    .tos = tos};

	peer.snd += s.len;
	peer_send_raw(&s);
	run_rounds(2);
}

/* Expects a segment with new data, with or without CWR; returns its number. */
static unsigned expect_new(bool cwr)
{
	struct segment s = next_segment();

	assert_int_equal(s.len, MSS);
	assert_int_equal(s.tos, ECT0);
	assert_int_equal(s.flags & (PEER_ECE | PEER_CWR), cwr ? PEER_CWR : 0);
	return (s.seq - base) / MSS;
}

static void expect_all_new(unsigned n)
{
	while (n--)
		expect_new(false);
	peer_expect_nothing();
}

static bool agreed(void)
{
	struct net_conn_stats stats;

	assert_int_equal(net_conn_stats(ours, &stats), 0);
	assert_int_equal(stats.ecn, net_here()->stats.ecn_conns != 0);
	return stats.ecn;
}

static int set_up(void **state)
{
	int err = peer_listen(state);

	to_send = 0;
	ours = NULL;
	return err;
}

static int set_up_on(void **state)
{
	int err = set_up(state);

	net_here()->ecn = NET_ECN_ON;
	return err;
}

/* ---- agreement as a listener ---- */

static void test_ecn_setup_syn_is_answered(void **state)
{
	struct segment s;

	to_send = 5;
	serve(feed_handler);
	assert_int_equal(open_with(ASKS), AGREES);
	peer_send(&peer, PEER_ACK, NULL, 0);
	s = next_segment();
	check_segment(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 5);
	assert_int_equal(s.tos, ECT0);
	assert_true(agreed());
	peer.rcv += 5;
	base += 5;
	send_marked(0, 0, 0, "data");
	send_marked(0, 0, 0, "more");
	s = next_segment();
	check_segment(&s, PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(s.tos, 0); /* an ACK is not ECN-capable */
}

static void test_plain_syn_gets_no_ecn(void **state)
{
	static const uint8_t none[] = {0, PEER_ECE, PEER_CWR};
	struct segment s;

	to_send = 5;
	serve(feed_handler);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(open_with(PEER_SYN | none[i]),
				 PEER_SYN | PEER_ACK);
		peer_send(&peer, PEER_ACK, NULL, 0);
		s = next_segment();
		assert_int_equal(s.len, 5);
		assert_int_equal(s.tos, 0);
		assert_false(agreed());
		send_marked(PEER_ECE, CE, 0,
			    "x"); /* ignored without an agreement */
		s = peer_wait(100);
		assert_int_equal(s.flags & (PEER_ECE | PEER_CWR), 0);
		peer_send(&peer, PEER_RST, NULL, 0);
		run_rounds(2);
	}
}

static void test_ecn_off_answers_without_ecn(void **state)
{
	net_here()->ecn = NET_ECN_OFF;
	assert_int_equal(open_with(ASKS), PEER_SYN | PEER_ACK);
}

/* 6.1.1.1: without an answer the client falls back to a plain SYN. */
static void test_retransmitted_plain_syn_disables_ecn(void **state)
{
	struct segment s;

	to_send = 5;
	serve(feed_handler);
	assert_int_equal(open_with(ASKS), AGREES);
	assert_int_equal(open_with(ASKS), AGREES);
	assert_int_equal(open_with(PEER_SYN), PEER_SYN | PEER_ACK);
	assert_int_equal(open_with(ASKS), PEER_SYN | PEER_ACK);
	peer_send(&peer, PEER_ACK, NULL, 0);
	s = next_segment();
	assert_int_equal(s.tos, 0);
	assert_false(agreed());
}

/* ---- SYN cookies ---- */

static void flood_syns(void)
{
	struct segment s;

	for (unsigned i = 0; i < BACKLOG; i++) {
		s = syn_of((uint16_t)(10000 + i), PEER_SYN, 0);
		peer_send_raw(&s);
		next_segment();
	}
}

static void test_cookie_with_a_timestamp_keeps_ecn(void **state)
{
	for (unsigned asks = 0; asks < 2; asks++) {
		uint8_t echo[12] = {1, 1, 8, 10, 0, 0, 0, 78};
		struct segment s;

		to_send = 5;
		serve(feed_handler);
		flood_syns();
		fake_now_ns += asks << 20; /* both of two adjacent ticks */
		run_rounds(1);
		s = syn_of((uint16_t)(1000 + asks), asks ? ASKS : PEER_SYN,
			   sizeof(options));
		peer_send_raw(&s);
		s = next_segment();
		assert_int_equal(s.flags, asks ? AGREES : PEER_SYN | PEER_ACK);
		assert_memory_equal(s.options + s.options_len - 12, echo, 4);
		memcpy(echo + 8, s.options + s.options_len - 8, 4);
		s = (struct segment){.src = (uint16_t)(1000 + asks),
				     .dst = 7,
				     .seq = 100,
				     .ack = s.seq + 1,
				     .flags = PEER_ACK,
				     .wnd = 65535,
				     .options = echo,
				     .options_len = 12,
				     .data = (const uint8_t *)""};
		peer_send_raw(&s);
		s = next_segment();
		assert_int_equal(s.len, 5);
		assert_int_equal(s.tos, asks ? ECT0 : 0);
		assert_int_equal(agreed(), asks);
		/* Not older than the cookie's timestamp, or PAWS drops it. */
		assert_true((int32_t)(get32(s.options + 4) - get32(echo + 8)) >=
			    0);
	}
	assert_int_equal(net_here()->stats.cookies_accepted, 2);
}

static void test_cookie_without_timestamps_has_no_ecn(void **state)
{
	struct segment s;

	flood_syns();
	s = syn_of(1000, ASKS, PLAIN);
	peer_send_raw(&s);
	s = next_segment();
	assert_int_equal(net_here()->stats.cookies_sent, 1);
	assert_int_equal(s.flags, PEER_SYN | PEER_ACK);
}

/* ---- agreement as a client ---- */

static void *dial_and_feed(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &conn);
	if (result == 0)
		send_and_read(conn);
	return NULL;
}

static struct segment expect_dialed(uint8_t flags)
{
	struct segment s;

	to_send = 5;
	net_spawn(stack, "dial", dial_and_feed, NULL);
	s = next_segment();
	assert_int_equal(s.flags, flags);
	assert_int_equal(s.tos, 0);
	peer = (struct peer){80, s.src, 500, s.seq + 1, 65535};
	return s;
}

/* Answers with these flags; returns whether data then leaves with ECT(0). */
static bool answer(uint8_t flags)
{
	struct segment s = syn_of(peer.port, flags, PLAIN);

	s.dst = peer.stack_port;
	s.seq = peer.snd - 1;
	s.ack = peer.rcv;
	peer_send_raw(&s);
	do
		s = next_segment();
	while (s.len == 0);
	assert_int_equal(s.len, 5);
	assert_int_equal(s.flags & (PEER_ECE | PEER_CWR), 0);
	assert_int_equal(agreed(), s.tos == ECT0);
	return s.tos == ECT0;
}

static void test_ecn_accept_dials_without_ecn(void **state)
{
	expect_dialed(PEER_SYN);
	assert_false(answer(AGREES)); /* without a request */
}

static void test_ecn_on_dials_with_ecn(void **state)
{
	expect_dialed(ASKS);
	assert_true(answer(AGREES));
}

static void test_peer_without_ecn_disables_ecn(void **state)
{
	expect_dialed(ASKS);
	assert_false(answer(PEER_SYN | PEER_ACK));
}

/* 6.1.1: an old peer echoes the reserved bits. */
static void test_peer_that_echoes_reserved_bits_disables_ecn(void **state)
{
	expect_dialed(ASKS);
	assert_false(answer(ASKS | PEER_ACK));
}

/* 6.1.1.1 */
static void test_retransmitted_syn_asks_for_no_ecn(void **state)
{
	struct segment s;

	expect_dialed(ASKS);
	s = peer_wait(1500);
	assert_int_equal(s.flags, PEER_SYN);
	assert_false(answer(AGREES)); /* to the first */
}

static void test_crossing_syns_disable_ecn(void **state)
{
	struct segment s = expect_dialed(ASKS);

	s = syn_of(80, ASKS, PLAIN);
	s.dst = peer.stack_port;
	peer_send_raw(&s);
	s = next_segment();
	assert_int_equal(s.flags, PEER_SYN | PEER_ACK);
}

/* ---- a mark is echoed, 6.1.3 ---- */

static void test_a_mark_is_echoed_until_cwr(void **state)
{
	struct segment s;

	connect_with(ASKS, 0);
	send_marked(0, ECT0, 0, "a");
	send_marked(0, CE, 0, "b");
	assert_int_equal(next_segment().flags, PEER_ACK | PEER_ECE);
	send_marked(0, ECT0, 0, "c");
	send_marked(0, ECT0, 0, "d");
	s = next_segment();
	assert_int_equal(s.flags, PEER_ACK | PEER_ECE);
	assert_int_equal(s.tos, 0);
	net_send(ours, "x", 1); /* on data as well */
	s = next_segment();
	check_segment(&s, PEER_ACK | PEER_PSH | PEER_ECE, peer.rcv, peer.snd,
		      1);
	assert_int_equal(s.tos, ECT0);
	base++;
	peer.rcv++;
	send_marked(PEER_CWR, ECT0, 0, "e"); /* is acknowledged at once */
	assert_int_equal(next_segment().flags, PEER_ACK);
	assert_int_equal(net_here()->stats.rx_ce, 1);
	/* A segment with CWR may be marked itself. */
	send_marked(PEER_CWR, CE, 0, "f");
	assert_int_equal(next_segment().flags, PEER_ACK | PEER_ECE);
	assert_int_equal(net_here()->stats.rx_ce, 2);
}

/* No frame may be held, so that data is copied and its frame freed. */
static void test_cwr_in_a_frame_that_is_copied_ends_the_echo(void **state)
{
	connect_with(ASKS, 0);
	fake_frames_spare = 0;
	run_rounds(16);
	send_marked(0, ECT0, 0, "a");
	send_marked(0, CE, 0, "b");
	assert_int_equal(next_segment().flags, PEER_ACK | PEER_ECE);
	send_marked(PEER_CWR, ECT0, 0, "c");
	assert_int_equal(next_segment().flags, PEER_ACK);
}

/* 6.1.5: marks outside the window and on bare ACKs are ignored. */
static void test_marks_outside_the_window_are_not_echoed(void **state)
{
	connect_with(ASKS, 0);
	send_marked(0, 0, 0, "ab");
	assert_true(peer_wait(100).flags == PEER_ACK);
	peer.snd -= 2;
	send_marked(0, CE, 0, "ab");
	assert_int_equal(next_segment().flags, PEER_ACK);
	send_marked(0, CE, 0, "");
	send_marked(0, 0, 0, "cd");
	assert_int_equal(peer_wait(100).flags, PEER_ACK);
	assert_int_equal(net_here()->stats.rx_ce, 0);
}

static void test_mark_on_data_out_of_order_is_echoed(void **state)
{
	struct segment s;

	connect_with(ASKS, 0);
	peer.snd += 10;
	send_marked(0, CE, 0, "later");
	s = next_segment();
	assert_int_equal(s.flags, PEER_ACK | PEER_ECE);
	assert_true(s.options_len > 0); /* with its SACK block */
}

/* ---- header prediction ---- */

/*
 * Returns whether a segment bypasses net_tcp_input(), which records the flags.
 */
static bool is_predicted(uint8_t flags, uint8_t tos)
{
	net_here()->rx_flags = 0xff;
	send_marked(flags, tos, 0, "x");
	return net_here()->rx_flags == 0xff;
}

static void test_unmarked_segments_are_predicted(void **state)
{
	connect_with(ASKS, 0);
	assert_true(is_predicted(0, ECT0));
	assert_true(is_predicted(0, 1));
	assert_true(is_predicted(0, 0));
	assert_false(is_predicted(0, CE));
	assert_true(is_predicted(0, ECT0));
	assert_false(is_predicted(PEER_CWR, ECT0));
	assert_false(is_predicted(PEER_ECE, ECT0));
	assert_true(is_predicted(0, ECT0));
}

/* One of several full segments in a burst has a mark. */
static void test_a_mark_within_a_burst_is_seen(void **state)
{
	struct segment s;

	connect_with(ASKS, 0);
	for (unsigned i = 0; i < 3; i++) {
		s = (struct segment){.src = 1000,
				     .dst = 7,
				     .seq = peer.snd + i * MSS,
				     .ack = base,
				     .flags = PEER_ACK,
				     .wnd = 65535,
				     .options = options,
				     .data = data,
				     .len = MSS,
				     .tos = i == 1 ? CE : ECT0};
		peer_send_raw(&s);
	}
	run_rounds(2);
	assert_int_equal(net_here()->stats.rx_ce, 1);
	do
		s = next_segment();
	while (s.ack != peer.snd + 3 * MSS);
	assert_int_equal(s.flags, PEER_ACK | PEER_ECE);
}

/* ---- an echo cuts the window, 6.1.2 ---- */

/*
 * CUBIC reduces ten segments to seven: five are in flight, so two may leave,
 * the first with CWR. Another echo of the same mark has no effect; one in the
 * next window reduces seven to 4.9.
 */
static void test_an_echo_cuts_once_a_window(void **state)
{
	connect_with(ASKS, 40 * MSS);
	expect_all_new(10);
	run_ms(RTT_MS);
	send_marked(PEER_ECE, 0, 5, "");
	assert_int_equal(ours->recovery->cwnd, 7 * MSS);
	assert_int_equal(ours->pcb.ssthresh, 7 * MSS);
	assert_int_equal(expect_new(true), 10);
	assert_int_equal(expect_new(false), 11);
	peer_expect_nothing();
	send_marked(PEER_ECE, 0, 10,
		    ""); /* all of the window, but not the CWR */
	assert_int_equal(ours->recovery->cwnd, 7 * MSS);
	run_ms(RTT_MS); /* they are paced */
	expect_all_new(5);
	assert_int_equal(net_here()->stats.ecn_cuts, 1);
	send_marked(PEER_ECE, 0, 11, ""); /* another mark */
	assert_int_equal(ours->recovery->cwnd, 4900);
	assert_int_equal(net_here()->stats.ecn_cuts, 2);
	peer_expect_nothing();
	send_marked(0, 0, 15, "");
	assert_int_equal(expect_new(true), 17);
}

static void test_reno_halves_its_window(void **state)
{
	net_listener_set_cc(listener, "reno");
	connect_with(ASKS, 40 * MSS);
	expect_all_new(10);
	run_ms(RTT_MS);
	send_marked(PEER_ECE, 0, 6, "");
	assert_int_equal(ours->recovery->cwnd, 5 * MSS);
	assert_int_equal(expect_new(true), 10);
	peer_expect_nothing();
}

static void test_bbr_treats_an_echo_as_a_round_with_a_loss(void **state)
{
	net_listener_set_cc(listener, "bbr");
	connect_with(ASKS, 100 * MSS);
	expect_all_new(10);
	run_ms(RTT_MS);
	send_marked(PEER_ECE, 0, 5, "");
	assert_int_equal(net_here()->stats.ecn_cuts, 1);
	assert_true(ours->pcb.flags & NET_TF_CWR || expect_new(true) == 10);
}

static void test_echo_without_ecn_cuts_nothing(void **state)
{
	connect_with(PEER_SYN, 40 * MSS);
	while (peer_next(&(struct segment){0}))
		;
	run_ms(RTT_MS);
	send_marked(PEER_ECE, 0, 10, "");
	assert_int_equal(net_here()->stats.ecn_cuts, 0);
	assert_int_equal(next_segment().flags & PEER_CWR, 0);
}

/*
 * 6.1.2 and 6.1.5: a loss reduces the window and sets CWR on the next new data;
 * a retransmission has neither ECT nor CWR, and an echo in that window has no
 * effect. 0.7 of 10,000 is 7,000.
 */
static void test_loss_and_echo_cut_the_window_once(void **state)
{
	struct segment s;

	connect_with(ASKS, 40 * MSS);
	expect_all_new(10);
	run_ms(RTT_MS);
	ACK_SACK(0, 1, 5);
	s = next_segment();
	assert_int_equal(s.seq, base);
	assert_int_equal(s.tos, 0);
	assert_int_equal(s.flags & (PEER_ECE | PEER_CWR), 0);
	assert_int_equal(ours->pcb.ssthresh, 7 * MSS);
	while (peer_next(&s))
		;
	send_marked(PEER_ECE, 0, 10, "");
	assert_int_equal(ours->pcb.ssthresh, 7 * MSS);
	assert_int_equal(net_here()->stats.ecn_cuts, 0);
}

static void test_failed_allocation_is_survived(void **state)
{
	connect_with(ASKS, 40 * MSS);
	expect_all_new(10);
	run_ms(RTT_MS);
	net_mem_fail_after(1);
	send_marked(PEER_ECE, 0, 5, "");
	net_mem_fail_after(0);
	assert_false(ours->has_recovery);
	assert_int_equal(ours->pcb.ssthresh, 5 * MSS);
	assert_int_equal(net_here()->stats.ecn_cuts, 1);
}

/* ---- IPv6: the traffic class ---- */

static int set_up6(void **state)
{
	int err = far_setup(state);

	far.v6 = true;
	return err;
}

static void test_ecn_uses_the_ipv6_traffic_class(void **state)
{
	far_to_send = 3000;
	far.asks = PEER_ECE | PEER_CWR;
	serve(far_feed);
	far_connect(1000, 1000);
	run_rounds(1);
	assert_int_equal(net_here()->stats.ecn_conns, 1);
	far_download(1000);
	assert_int_equal(far.got_tos, ECT0);
	far.tos = CE;
	far_say_data("x");
	run_rounds(2);
	run_ms(100);
	far_pass_ms();
	assert_int_equal(net_here()->stats.rx_ce, 1);
	assert_int_equal(far.got_flags, PEER_ACK | PEER_ECE);
	assert_int_equal(far.got_tos, 0);
}

#define T(test)	 cmocka_unit_test_setup_teardown(test, set_up, peer_teardown)
#define ON(test) cmocka_unit_test_setup_teardown(test, set_up_on, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_ecn_setup_syn_is_answered),
		T(test_plain_syn_gets_no_ecn),
		T(test_ecn_off_answers_without_ecn),
		T(test_retransmitted_plain_syn_disables_ecn),
		T(test_cookie_with_a_timestamp_keeps_ecn),
		T(test_cookie_without_timestamps_has_no_ecn),
		T(test_ecn_accept_dials_without_ecn),
		ON(test_ecn_on_dials_with_ecn),
		ON(test_peer_without_ecn_disables_ecn),
		ON(test_peer_that_echoes_reserved_bits_disables_ecn),
		ON(test_retransmitted_syn_asks_for_no_ecn),
		ON(test_crossing_syns_disable_ecn),
		T(test_a_mark_is_echoed_until_cwr),
		T(test_cwr_in_a_frame_that_is_copied_ends_the_echo),
		T(test_marks_outside_the_window_are_not_echoed),
		T(test_mark_on_data_out_of_order_is_echoed),
		T(test_unmarked_segments_are_predicted),
		T(test_a_mark_within_a_burst_is_seen),
		T(test_an_echo_cuts_once_a_window),
		T(test_reno_halves_its_window),
		T(test_bbr_treats_an_echo_as_a_round_with_a_loss),
		T(test_echo_without_ecn_cuts_nothing),
		T(test_loss_and_echo_cut_the_window_once),
		T(test_failed_allocation_is_survived),
		cmocka_unit_test_setup_teardown(
			test_ecn_uses_the_ipv6_traffic_class, set_up6,
			far_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
