/*
 * Data out of order: held ranges, and their report to the peer (SACK, RFC 2018;
 * D-SACK, RFC 2883).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/ahead.h"
#include "tests/net/fake_glue.h"

/* ---- SACK blocks ---- */

static void test_newest_sack_block_is_first_of_four(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	ahead_put(3000, 3100, 0);
	SACKS(0, 3000, 3100, 1000, 1100);
	ahead_put(2000, 2100, 0);
	SACKS(0, 2000, 2100, 3000, 3100, 1000, 1100);
	ahead_put(5000, 5100, 0);
	SACKS(0, 5000, 5100, 2000, 2100, 3000, 3100, 1000, 1100);
	ahead_put(7000, 7100, 0);
	SACKS(0, 7000, 7100, 5000, 5100, 2000, 2100, 3000, 3100);
	/*
	 * A range that grows becomes the newest; ranges that meet become one.
	 */
	ahead_put(2100, 2200, 0);
	SACKS(0, 2000, 2200, 7000, 7100, 5000, 5100, 3000, 3100);
	ahead_put(2200, 3000, 0);
	SACKS(0, 2000, 3100, 7000, 7100, 5000, 5100);
}

static void test_without_sack_a_hole_draws_plain_acks(void **state)
{
	ahead_connect(ahead_read_all, false);
	ahead_put(1000, 1100, 0);
	SACKS(0);
	ahead_put(1000, 1100, 0);
	SACKS(0);
	ahead_put(0, 1000, 0);
	ahead_expect_read(1100);
	SACKS(1100);
	ahead_expect_held(0);
}

static void test_sack_blocks_disappear_as_holes_are_filled(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	ahead_put(3000, 3100, 0);
	SACKS(0, 3000, 3100, 1000, 1100);
	ahead_put(0, 500, 0);
	SACKS(500, 3000, 3100, 1000, 1100);
	ahead_put(500, 1000, 0);
	SACKS(1100, 3000, 3100);
	ahead_expect_read(1100);
	ahead_put(1100, 3000, 0);
	ahead_expect_read(3100);
	SACKS(3100);
	ahead_expect_held(0);
}

/* The connection was closed, and its peer does not close. */
static void test_data_out_of_order_does_not_prolong_fin_wait_2(void **state)
{
	struct segment s;

	ahead_connect(ahead_read_nothing, true);
	do {
		assert_true(peer_next(&s));
	} while (!(s.flags & PEER_FIN));
	ahead_peer.rcv = s.seq + 1;
	peer_send(&ahead_peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->n_conns, 1);
	for (unsigned i = 0; i < 5; i++) {
		ahead_put(1000, 1100, 0);
		ahead_drain();
		run_ms(5000);
	}
	assert_int_equal(net_here()->n_conns, 0);
}

static void echo_handler(struct net_conn *c, void *arg)
{
	ahead_conn = c;
	echo_views(c, arg);
}

static void discard(struct net_conn *c, void *arg)
{
	struct net_view view;
	long n;

	ahead_conn = c;
	while ((n = net_recv_view(c, &view)) > 0) {
		got_len += (size_t)n;
		net_view_release(c, &view);
	}
	result = n;
	ended++;
}

/*
 * An overflowing queue loses every second segment: a window's worth of ranges
 * must fit. Segments have 512 bytes, the least length that counts as full.
 */
static void test_every_second_segment_of_a_window_may_be_lost(void **state)
{
	const uint32_t wnd = 3u << 20, ranges = wnd / 1024;
	unsigned failed = 0;

	ahead_connect(discard, true);
	ahead_conn->pcb.mss = 512;
	ahead_conn->pcb.rcv_max = ahead_conn->pcb.rcv_wnd = wnd;
	for (uint32_t i = 0; i < ranges; i++) {
		/* More room needs several allocations: each fails in turn. */
		while (i == 1024 && failed < 3) {
			net_mem_fail_after(++failed);
			ahead_put(i * 1024 + 512, i * 1024 + 1024, 0);
			run_rounds(1);
			net_mem_fail_after(0);
			assert_int_equal(net_here()->ooseq_held, i);
			ahead_drain();
		}
		ahead_put(i * 1024 + 512, i * 1024 + 1024, 0);
		ahead_drain();
	}
	assert_int_equal(net_here()->ooseq_held, ranges);
	assert_int_equal(net_here()->stats.ooseq_drops, failed);
	for (uint32_t i = 0; i < ranges; i++) {
		ahead_put(i * 1024, i * 1024 + 512, 0);
		ahead_drain();
	}
	run_rounds(2);
	assert_int_equal(got_len, wnd);
	ahead_expect_held(0);
}

/* Ranges of single bytes are limited to the number of full segments. */
static void test_ranges_of_single_bytes_are_bounded(void **state)
{
	ahead_connect(discard, true);
	for (uint32_t i = 0; i < 300; i++) {
		ahead_put(2 * i + 1, 2 * i + 2, 0);
		ahead_drain();
	}
	assert_int_equal(net_here()->ooseq_held, 256);
	assert_int_equal(net_here()->stats.ooseq_drops, 44);
}

/*
 * Pieces in any order, with overlaps: both sides of the ring move like one
 * array.
 */
static void test_pieces_in_any_order_make_the_stream(void **state)
{
	uint32_t random = 1, pieces = 400;
	uint16_t order[400];

	ahead_connect(ahead_read_all, true);
	for (unsigned turn = 0; turn < 8; turn++) {
		for (unsigned i = 0; i < pieces; i++)
			order[i] = (uint16_t)i;
		for (unsigned i = pieces - 1; i > 0; i--) {
			unsigned k;
			uint16_t was = order[i];

			random = random * 1103515245u + 12345;
			k = (random >> 8) % (i + 1);
			order[i] = order[k];
			order[k] = was;
		}
		for (unsigned i = 0; i < pieces; i++) {
			uint32_t at = turn * pieces * 20 + order[i] * 20u;

			ahead_put(at,
				  at + 20 + (order[i] + 1u < pieces) * (i % 3),
				  0);
			ahead_drain();
		}
		run_rounds(2);
		ahead_expect_read((turn + 1) * pieces * 20);
		ahead_expect_held(0);
	}
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
}

/*
 * An ACK on a data segment has no room for the blocks, so they get an ACK of
 * their own.
 */
static void test_sack_blocks_are_sent_while_data_is_sent(void **state)
{
	struct segment s;

	ahead_connect(echo_handler, true);
	ahead_put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	ahead_put(0, 500, 0);
	SACKS(500, 1000, 1100);
	expect(&s, ANY, ANY, ANY, 500);
	assert_int_equal(s.options_len, 0);
}

static void stream_out(struct net_conn *c, void *arg)
{
	static const uint8_t data[60000];

	ahead_conn = c;
	while (net_send_all(c, data, sizeof(data)) >= 0)
		;
	ended++;
}

/*
 * Takes the sent segments: counts those with data, and ACKs that report a
 * range.
 */
static void take_both(uint32_t left, uint32_t right, unsigned *data,
		      unsigned *reported)
{
	struct segment s;

	while (peer_next(&s)) {
		uint32_t said[2];

		if (s.len) {
			ahead_peer.rcv = s.seq + s.len;
			++*data;
			continue;
		}
		assert_true(s.options_len >= 12);
		memcpy(said, s.options + 4, 8);
		*reported += lwip_ntohl(said[0]) - FIRST == left &&
			     lwip_ntohl(said[1]) - FIRST == right;
	}
}

/*
 * Both ends send: each segment out of order acknowledges our data, so that more
 * leaves at once, and is still reported by an ACK of its own in the same round.
 * So is a segment that fills a part of the hole.
 */
static void test_outgoing_stream_does_not_delay_sack_blocks(void **state)
{
	unsigned data = 0, reported = 0;

	ahead_connect(stream_out, true);
	take_both(0, 0, &data, &reported);
	assert_true(data > 5);
	for (uint32_t i = 0; i < 40; i++) {
		data = reported = 0;
		ahead_put(i * 200 + 100, i * 200 + 200, 0);
		take_both(i * 200 + 100, i * 200 + 200, &data, &reported);
		assert_true(data > 0);
		assert_int_equal(reported, 1);
	}
	data = reported = 0;
	ahead_put(0, 100, 0); /* the newest of the remaining ones is first */
	take_both(39 * 200 + 100, 39 * 200 + 200, &data, &reported);
	assert_true(data > 0 && reported == 1);
	peer_send(&ahead_peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
}

static void test_duplicate_data_is_reported_by_dsack(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1500, 0);
	SACKS(0, 1000, 1500);
	ahead_put(3000, 3100, 0);
	SACKS(0, 3000, 3100, 1000, 1500);
	/* A duplicate within a held range: RFC 2883 4.2. */
	ahead_put(1200, 1300, 0);
	SACKS(0, 1200, 1300, 1000, 1500, 3000, 3100);
	ahead_put(0, 1000, 0);
	SACKS(1500, 3000, 3100);
	/* A duplicate below the ACK number: 4.1. */
	ahead_put(0, 1000, 0);
	SACKS(1500, 0, 1000, 3000, 3100);
	/* It is reported once. */
	ahead_put(5000, 5001, 0);
	SACKS(1500, 5000, 5001, 3000, 3100);
	ahead_expect_held(2);
}

static void test_duplicate_is_reported_by_dsack_without_held_data(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(0, 100, 0);
	ahead_expect_read(100);
	ahead_put(0, 100, 0);
	SACKS(100, 0, 100);
	ahead_expect_held(0);
}

/* ---- held ranges ---- */

static void test_overlaps_are_kept_once(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1600, 0);
	ahead_put(2000, 2600, 0);
	ahead_put(3000, 3600, 0);
	ahead_expect_held(3);
	ahead_put(1500, 2100,
		  0); /* over the end of one and the beginning of next */
	ahead_put(1900, 3700, 0); /* over whole ones */
	ahead_put(900, 1700, 0);  /* from before one into it */
	ahead_put(0, 901, 0);
	ahead_expect_read(3700);
	ahead_expect_held(0);
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
}

/* A window of single bytes costs about a byte each, not a pbuf each. */
static void test_small_pieces_that_follow_are_packed(void **state)
{
	struct segment s;

	ahead_connect(ahead_read_all, true);
	for (uint32_t at = 1; at <= 4000; at++) {
		ahead_put(at, at + 1, 0);
		run_rounds(1);
		while (peer_next(&s))
			;
	}
	assert_in_range(net_here()->ooseq_held, 1, 10);
	assert_int_equal(fake_frames_out, 0);
	ahead_put(0, 1, 0);
	ahead_expect_read(4001);
	ahead_expect_held(0);
}

static void test_bytes_beyond_the_window_are_not_kept(void **state)
{
	struct tcp_pcb *pcb;
	uint32_t edge;

	ahead_connect(ahead_read_all, true);
	pcb = &ahead_conn->pcb;
	edge = pcb->rcv_wnd;
	ahead_put(edge - 100, edge + 500, PEER_FIN);
	SACKS(0, edge - 100, edge);
	ahead_expect_held(1);
	/*
	 * The FIN was beyond the window, too: a FIN at another number does not
	 * conflict.
	 */
	ahead_put(1000, 1100, PEER_FIN);
	SACKS(0, 1000, 1100, edge - 100, edge);
	ahead_put(0, 1000, 0);
	ahead_expect_read(1100);
	assert_int_equal(ended, 1);
}

static void hold_conn(struct net_conn *c, void *arg)
{
	ahead_conn = c;
	coro_sleep_ns(1000000000);
}

static void read_no_more(struct net_conn *c, void *arg)
{
	ahead_conn = c;
	assert_int_equal(net_shutdown(c, NET_SHUT_RD), 0);
	coro_sleep_ns(1000000000);
}

/*
 * After a shutdown of reading, bytes are discarded and the window stays open.
 */
static void test_discarded_bytes_leave_the_window_open(void **state)
{
	uint32_t wnd;

	ahead_connect(read_no_more, true);
	wnd = ahead_conn->pcb.rcv_wnd;
	ahead_put(1000, 2000, 0);
	ahead_put(0, 1000, 0);
	ahead_expect_held(0);
	assert_int_equal(ahead_conn->pcb.rcv_nxt - FIRST, 2000);
	assert_int_equal(ahead_conn->pcb.rcv_wnd, wnd);
	assert_null(ahead_conn->rx_tail);
	run_ms(1100);
}

/* Delivered but unread bytes reduce the window. */
static void test_unread_bytes_reduce_the_window(void **state)
{
	uint32_t wnd, edge;

	ahead_connect(hold_conn, true);
	wnd = ahead_conn->pcb.rcv_wnd;
	edge = ahead_conn->pcb.rcv_ann_right_edge;
	ahead_put(1000, 2000, 0);
	ahead_put(3000, 4000, 0);
	ahead_put(0, 1000, 0);
	ahead_expect_held(1);
	assert_int_equal(ahead_conn->pcb.rcv_nxt - FIRST, 2000);
	assert_int_equal(ahead_conn->pcb.rcv_wnd, wnd - 2000);
	assert_int_equal(ahead_conn->pcb.rcv_ann_right_edge, edge);
	run_ms(1100);
}

static void test_bytes_at_a_shut_window_are_not_kept(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_conn->pcb.rcv_wnd = 0;
	ahead_put(1, 101, 0);
	SACKS(0);
	ahead_expect_held(0);
}

int main(void)
{
#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, ahead_teardown)
	const struct CMUnitTest tests[] = {
		T(test_newest_sack_block_is_first_of_four),
		T(test_without_sack_a_hole_draws_plain_acks),
		T(test_sack_blocks_disappear_as_holes_are_filled),
		T(test_data_out_of_order_does_not_prolong_fin_wait_2),
		T(test_every_second_segment_of_a_window_may_be_lost),
		T(test_ranges_of_single_bytes_are_bounded),
		T(test_pieces_in_any_order_make_the_stream),
		T(test_sack_blocks_are_sent_while_data_is_sent),
		T(test_outgoing_stream_does_not_delay_sack_blocks),
		T(test_duplicate_data_is_reported_by_dsack),
		T(test_duplicate_is_reported_by_dsack_without_held_data),
		T(test_overlaps_are_kept_once),
		T(test_small_pieces_that_follow_are_packed),
		T(test_bytes_beyond_the_window_are_not_kept),
		T(test_discarded_bytes_leave_the_window_open),
		T(test_unread_bytes_reduce_the_window),
		T(test_bytes_at_a_shut_window_are_not_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
