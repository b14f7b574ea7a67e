/*
 * Data that comes before its turn: what is kept, what the peer is told of it
 * (SACK, RFC 2018; D-SACK, RFC 2883), and what becomes of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u
#define FIRST	  (NEAR_WRAP + 1)

static struct peer peer;
static struct net_conn *conn;

static uint8_t byte_at(uint32_t at)
{
	return (uint8_t)(at * 7 + (at >> 8));
}

static void read_all(struct net_conn *c, void *arg)
{
	long n;

	conn = c;
	while ((n = net_recv(c, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

static void read_nothing(struct net_conn *c, void *arg)
{
	conn = c;
	net_close(c);
}

/* A connection of a peer that takes SACK, or not. */
static void connect_with(net_handler handler, bool sack)
{
	static const uint8_t options[] = {2, 4, 5, 180, 3, 3, 4, 1, 4, 2, 1, 1};

	serve(handler);
	conn = NULL;
	peer_open(&peer, NEAR_WRAP, options, sack ? 12 : 8);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(conn);
}

/* Bytes [from, to) of the stream. */
static void put(uint32_t from, uint32_t to, uint8_t flags)
{
	static uint8_t data[2048];
	struct peer at = peer;

	assert_true(to - from <= sizeof(data));
	for (uint32_t i = from; i < to; i++)
		data[i - from] = byte_at(i);
	at.snd = FIRST + from;
	peer_send(&at, PEER_ACK | flags, data, to - from);
}

/* The ACK that is sent now: of `ack` bytes, with these blocks; -1 ends them. */
static void expect_sacks(uint32_t ack, ...)
{
	const uint8_t *at;
	struct segment s;
	unsigned n = 0;
	va_list blocks;
	int left;

	assert_true(peer_next(&s));
	assert_int_equal(s.flags & ~PEER_PSH, PEER_ACK);
	assert_int_equal(s.ack - FIRST, ack);
	at = s.options + 4;
	va_start(blocks, ack);
	while ((left = va_arg(blocks, int)) >= 0) {
		int right = va_arg(blocks, int);
		uint32_t said[2];

		n++;
		assert_true(s.options_len >= 4 + n * 8);
		memcpy(said, at, 8);
		at += 8;
		assert_int_equal(lwip_ntohl(said[0]) - FIRST, left);
		assert_int_equal(lwip_ntohl(said[1]) - FIRST, right);
	}
	va_end(blocks);
	assert_int_equal(s.options_len, n ? 4 + n * 8 : 0);
	if (n) {
		assert_int_equal(s.options[2], 5);
		assert_int_equal(s.options[3], 2 + n * 8);
	}
}
#define SACKS(ack, ...) expect_sacks(ack, ##__VA_ARGS__, -1)

static void expect_read(uint32_t len)
{
	run_rounds(2);
	assert_int_equal(got_len, len);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(got[i], byte_at(i));
}

static void expect_held(unsigned pieces)
{
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, pieces);
	assert_int_equal(conn->pcb.rcv_sacks != NULL, pieces != 0);
}

/* ---- what is told ---- */

static void test_newest_block_goes_first_and_four_are_told(void **state)
{
	connect_with(read_all, true);
	put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	put(3000, 3100, 0);
	SACKS(0, 3000, 3100, 1000, 1100);
	put(2000, 2100, 0);
	SACKS(0, 2000, 2100, 3000, 3100, 1000, 1100);
	put(5000, 5100, 0);
	SACKS(0, 5000, 5100, 2000, 2100, 3000, 3100, 1000, 1100);
	put(7000, 7100, 0);
	SACKS(0, 7000, 7100, 5000, 5100, 2000, 2100, 3000, 3100);
	/* One that grows is the newest; one that meets another is one. */
	put(2100, 2200, 0);
	SACKS(0, 2000, 2200, 7000, 7100, 5000, 5100, 3000, 3100);
	put(2200, 3000, 0);
	SACKS(0, 2000, 3100, 7000, 7100, 5000, 5100);
}

static void test_without_sack_a_hole_draws_plain_acks(void **state)
{
	connect_with(read_all, false);
	put(1000, 1100, 0);
	SACKS(0);
	put(1000, 1100, 0);
	SACKS(0);
	put(0, 1000, 0);
	expect_read(1100);
	SACKS(1100);
	expect_held(0);
}

static void test_blocks_go_as_holes_are_filled(void **state)
{
	connect_with(read_all, true);
	put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	put(3000, 3100, 0);
	SACKS(0, 3000, 3100, 1000, 1100);
	put(0, 500, 0);
	SACKS(500, 3000, 3100, 1000, 1100);
	put(500, 1000, 0);
	SACKS(1100, 3000, 3100);
	expect_read(1100);
	put(1100, 3000, 0);
	expect_read(3100);
	SACKS(3100);
	expect_held(0);
}

static void echo(struct net_conn *c, void *arg)
{
	conn = c;
	echo_views(c, arg);
}

static void discard(struct net_conn *c, void *arg)
{
	struct net_view view;
	long n;

	conn = c;
	while ((n = net_recv_view(c, &view)) > 0) {
		got_len += (size_t)n;
		net_view_release(c, &view);
	}
	result = n;
	ended++;
}

static void drain(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

/*
 * A queue that overflows loses each second segment: a window has room for so
 * many ranges. Segments of the least length that counts as full, 512 bytes.
 */
static void test_each_second_segment_of_a_window_may_be_missing(void **state)
{
	const uint32_t wnd = 3u << 20, ranges = wnd / 1024;
	unsigned failed = 0;

	connect_with(discard, true);
	conn->pcb.mss = 512;
	conn->pcb.rcv_max = conn->pcb.rcv_wnd = wnd;
	for (uint32_t i = 0; i < ranges; i++) {
		/* Room for more is in several pieces: each fails in turn. */
		while (i == 1024 && failed < 3) {
			net_mem_fail_after(++failed);
			put(i * 1024 + 512, i * 1024 + 1024, 0);
			run_rounds(1);
			net_mem_fail_after(0);
			assert_int_equal(net_here()->ooseq_held, i);
			drain();
		}
		put(i * 1024 + 512, i * 1024 + 1024, 0);
		drain();
	}
	assert_int_equal(net_here()->ooseq_held, ranges);
	assert_int_equal(net_here()->stats.ooseq_drops, failed);
	for (uint32_t i = 0; i < ranges; i++) {
		put(i * 1024, i * 1024 + 512, 0);
		drain();
	}
	run_rounds(2);
	assert_int_equal(got_len, wnd);
	expect_held(0);
}

/* Single bytes are another matter: they are as many as full segments. */
static void test_a_window_of_single_bytes_makes_no_more_ranges(void **state)
{
	connect_with(discard, true);
	for (uint32_t i = 0; i < 300; i++) {
		put(2 * i + 1, 2 * i + 2, 0);
		drain();
	}
	assert_int_equal(net_here()->ooseq_held, 256);
	assert_int_equal(net_here()->stats.ooseq_drops, 44);
}

/* In any order, with overlaps: the ring's two sides move as one array's. */
static void test_pieces_in_any_order_make_the_stream(void **state)
{
	uint32_t random = 1, pieces = 400;
	uint16_t order[400];

	connect_with(read_all, true);
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

			put(at, at + 20 + (order[i] + 1u < pieces) * (i % 3),
			    0);
			drain();
		}
		run_rounds(2);
		expect_read((turn + 1) * pieces * 20);
		expect_held(0);
	}
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
}

/* An ACK that goes out with data has no room for them. */
static void test_blocks_are_told_beside_data(void **state)
{
	struct segment s;

	connect_with(echo, true);
	put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	put(0, 500, 0);
	SACKS(500, 1000, 1100);
	assert_true(peer_next(&s));
	assert_int_equal(s.len, 500);
	assert_int_equal(s.options_len, 0);
}

static void stream_out(struct net_conn *c, void *arg)
{
	static const uint8_t data[60000];

	conn = c;
	while (net_send_all(c, data, sizeof(data)) >= 0)
		;
	ended++;
}

/* Takes what is sent now: whether data is, and an ACK that tells a range. */
static void take_both(uint32_t left, uint32_t right, unsigned *data,
		      unsigned *told)
{
	struct segment s;

	while (peer_next(&s)) {
		uint32_t said[2];

		if (s.len) {
			peer.rcv = s.seq + s.len;
			++*data;
			continue;
		}
		assert_true(s.options_len >= 12);
		memcpy(said, s.options + 4, 8);
		*told += lwip_ntohl(said[0]) - FIRST == left &&
			 lwip_ntohl(said[1]) - FIRST == right;
	}
}

/*
 * Both ends send: each segment out of order acknowledges what has come, so that
 * data leaves at once, and is told by an ACK of its own in the same round all
 * the same. So is what fills a part of the hole.
 */
static void test_a_stream_the_other_way_does_not_delay_blocks(void **state)
{
	unsigned data = 0, told = 0;

	connect_with(stream_out, true);
	take_both(0, 0, &data, &told);
	assert_true(data > 5);
	for (uint32_t i = 0; i < 40; i++) {
		data = told = 0;
		put(i * 200 + 100, i * 200 + 200, 0);
		take_both(i * 200 + 100, i * 200 + 200, &data, &told);
		assert_true(data > 0);
		assert_int_equal(told, 1);
	}
	data = told = 0;
	put(0, 100, 0); /* the newest of those that remain is told first */
	take_both(39 * 200 + 100, 39 * 200 + 200, &data, &told);
	assert_true(data > 0 && told == 1);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
}

static void test_what_comes_twice_is_told(void **state)
{
	connect_with(read_all, true);
	put(1000, 1500, 0);
	SACKS(0, 1000, 1500);
	put(3000, 3100, 0);
	SACKS(0, 3000, 3100, 1000, 1500);
	/* In a block that is held: RFC 2883 4.2. */
	put(1200, 1300, 0);
	SACKS(0, 1200, 1300, 1000, 1500, 3000, 3100);
	put(0, 1000, 0);
	SACKS(1500, 3000, 3100);
	/* Before what is acknowledged: 4.1. */
	put(0, 1000, 0);
	SACKS(1500, 0, 1000, 3000, 3100);
	/* It is told once. */
	put(5000, 5001, 0);
	SACKS(1500, 5000, 5001, 3000, 3100);
	expect_held(2);
}

static void test_what_comes_twice_is_told_when_nothing_is_held(void **state)
{
	connect_with(read_all, true);
	put(0, 100, 0);
	expect_read(100);
	put(0, 100, 0);
	SACKS(100, 0, 100);
	expect_held(0);
}

/* ---- what is kept ---- */

static void test_overlaps_are_kept_once(void **state)
{
	connect_with(read_all, true);
	put(1000, 1600, 0);
	put(2000, 2600, 0);
	put(3000, 3600, 0);
	expect_held(3);
	put(1500, 2100, 0); /* over the end of one and the beginning of next */
	put(1900, 3700, 0); /* over whole ones */
	put(900, 1700, 0);  /* from before one into it */
	put(0, 901, 0);
	expect_read(3700);
	expect_held(0);
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
}

/* A window of single bytes costs about a byte each, not a pbuf each. */
static void test_small_pieces_that_follow_are_packed(void **state)
{
	struct segment s;

	connect_with(read_all, true);
	for (uint32_t at = 1; at <= 4000; at++) {
		put(at, at + 1, 0);
		run_rounds(1);
		while (peer_next(&s))
			;
	}
	assert_in_range(net_here()->ooseq_held, 1, 10);
	assert_int_equal(fake_frames_out, 0);
	put(0, 1, 0);
	expect_read(4001);
	expect_held(0);
}

static void test_bytes_behind_the_window_are_not_kept(void **state)
{
	struct tcp_pcb *pcb;
	uint32_t edge;

	connect_with(read_all, true);
	pcb = &conn->pcb;
	edge = pcb->rcv_wnd;
	put(edge - 100, edge + 500, PEER_FIN);
	SACKS(0, edge - 100, edge);
	expect_held(1);
	/* The FIN was behind it, too: another place is no contradiction. */
	put(1000, 1100, PEER_FIN);
	SACKS(0, 1000, 1100, edge - 100, edge);
	put(0, 1000, 0);
	expect_read(1100);
	assert_int_equal(ended, 1);
}

static void stay(struct net_conn *c, void *arg)
{
	conn = c;
	coro_sleep_ns(1000000000);
}

static void read_no_more(struct net_conn *c, void *arg)
{
	conn = c;
	assert_int_equal(net_shutdown(c, NET_SHUT_RD), 0);
	coro_sleep_ns(1000000000);
}

/* Where reading was shut down, bytes are gone and the window is open. */
static void test_bytes_for_nobody_leave_the_window_open(void **state)
{
	uint32_t wnd;

	connect_with(read_no_more, true);
	wnd = conn->pcb.rcv_wnd;
	put(1000, 2000, 0);
	put(0, 1000, 0);
	expect_held(0);
	assert_int_equal(conn->pcb.rcv_nxt - FIRST, 2000);
	assert_int_equal(conn->pcb.rcv_wnd, wnd);
	assert_null(conn->rx_tail);
	run_ms(1100);
}

/* What has been handed over and is not read takes its part of the window. */
static void test_the_window_is_taken_by_what_is_unread(void **state)
{
	uint32_t wnd, edge;

	connect_with(stay, true);
	wnd = conn->pcb.rcv_wnd;
	edge = conn->pcb.rcv_ann_right_edge;
	put(1000, 2000, 0);
	put(3000, 4000, 0);
	put(0, 1000, 0);
	expect_held(1);
	assert_int_equal(conn->pcb.rcv_nxt - FIRST, 2000);
	assert_int_equal(conn->pcb.rcv_wnd, wnd - 2000);
	assert_int_equal(conn->pcb.rcv_ann_right_edge, edge);
	run_ms(1100);
}

static void test_bytes_at_a_shut_window_are_not_kept(void **state)
{
	connect_with(read_all, true);
	conn->pcb.rcv_wnd = 0;
	put(1, 101, 0);
	SACKS(0);
	expect_held(0);
}

/* ---- FIN ---- */

static void test_fin_ahead_ends_the_stream_when_the_hole_is_filled(void **state)
{
	connect_with(read_all, true);
	put(1000, 1100, PEER_FIN);
	SACKS(0, 1000, 1100);
	assert_int_equal(ended, 0);
	put(0, 1000, 0);
	expect_read(1100);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_null(conn->pcb.rcv_sacks);
}

static void test_fin_ahead_without_data(void **state)
{
	connect_with(read_all, true);
	put(1000, 1000, PEER_FIN);
	SACKS(0);
	put(0, 400, 0);
	SACKS(400);
	assert_int_equal(ended, 0);
	put(400, 1000, 0);
	expect_read(1000);
	assert_int_equal(ended, 1);
}

/* A FIN at one number is not taken back by one at another. */
static void test_second_fin_elsewhere_counts_for_nothing(void **state)
{
	connect_with(read_all, true);
	put(1000, 1100, PEER_FIN);
	put(500, 600, PEER_FIN);
	put(0, 500, 0);
	expect_read(600);
	assert_int_equal(ended, 0);
	put(600, 1000, 0);
	expect_read(1100);
	assert_int_equal(ended, 1);
}

/* Who first says that it ends, and then goes on, has not ended there. */
static void test_data_over_a_fin_ahead_counts(void **state)
{
	connect_with(read_all, true);
	put(500, 600, PEER_FIN);
	put(0, 700, 0);
	expect_read(700);
	assert_int_equal(ended, 0);
	put(700, 800, PEER_FIN);
	expect_read(800);
	assert_int_equal(ended, 1);
}

/* Does not close at once. */
static void read_and_stay(struct net_conn *c, void *arg)
{
	read_all(c, arg);
	coro_sleep_ns(1000000000);
}

static void test_data_behind_a_fin_goes(void **state)
{
	connect_with(read_and_stay, true);
	put(1000, 1100, 0);
	put(2000, 2100, 0);
	put(0, 500, PEER_FIN);
	expect_read(500);
	assert_int_equal(ended, 1);
	assert_int_equal(net_here()->ooseq_held, 0);
	assert_int_equal(conn->pcb.state, CLOSE_WAIT);
	put(1000, 1100, 0); /* nor is it taken afterwards */
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, 0);
	run_ms(1100);
}

/* ---- what else the segment says ---- */

static void send_much(struct net_conn *c, void *arg)
{
	static const uint8_t block[20000];

	conn = c;
	result = net_send_all(c, block, sizeof(block));
	read_all(c, arg);
}

static void test_ack_and_window_of_data_ahead_count(void **state)
{
	struct peer at;
	struct segment s;

	connect_with(send_much, true);
	while (peer_next(&s))
		;
	at = peer;
	at.snd = FIRST + 1000;
	at.rcv = peer.rcv + 3000;
	at.wnd = 777;
	peer_send(&at, PEER_ACK, "ahead", 5);
	run_rounds(1);
	assert_int_equal(conn->pcb.lastack, peer.rcv + 3000);
	assert_int_equal(conn->pcb.snd_wnd, 777u << 4);
	expect_held(1);
}

static void test_window_alone_of_data_ahead_counts(void **state)
{
	struct peer at;
	struct segment s;

	connect_with(send_much, true);
	while (peer_next(&s))
		;
	at = peer;
	at.snd = FIRST + 1000;
	at.wnd = 888;
	peer_send(&at, PEER_ACK, "ahead", 5);
	run_rounds(1);
	assert_int_equal(conn->pcb.lastack, peer.rcv);
	assert_int_equal(conn->pcb.snd_wnd, 888u << 4);
	expect_held(1);
}

/* Both ways something is lost: what the peer holds comes with its data. */
static void test_sack_blocks_of_data_ahead_count(void **state)
{
	uint32_t options[3] = {lwip_htonl(0x0101050a)};
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .flags = PEER_ACK,
			    .wnd = 65535,
			    .options = (const uint8_t *)options,
			    .options_len = 12,
			    .data = (const uint8_t *)"ahead",
			    .len = 5};
	struct segment sent;

	connect_with(send_much, true);
	while (peer_next(&sent))
		;
	s.seq = FIRST + 1000;
	s.ack = peer.rcv;
	options[1] = lwip_htonl(peer.rcv + 1460);
	options[2] = lwip_htonl(peer.rcv + 3 * 1460);
	peer_send_raw(&s);
	run_rounds(1);
	assert_true(conn->repairing);
	expect_held(1);
}

/* A handshake's last ACK is lost, and so is the first data behind it. */
static void test_data_ahead_ends_a_handshake(void **state)
{
	struct segment s;

	serve(read_all);
	conn = NULL;
	peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = 65535};
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	put(1000, 1100, 0);
	run_rounds(2);
	assert_non_null(conn);
	expect_held(1);
	put(0, 1000, 0);
	expect_read(1100);
}

/* Keepalive and its count of probes: whoever sends is there. */
static void test_data_ahead_is_a_sign_of_life(void **state)
{
	connect_with(read_all, true);
	run_ms(3000);
	conn->pcb.keep_cnt_sent = 3;
	conn->pcb.persist_probe = 3;
	put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	assert_int_equal(conn->pcb.tmr, tcp_ticks);
	assert_int_equal(conn->pcb.keep_cnt_sent, 0);
	assert_int_equal(conn->pcb.persist_probe, 0);
}

/* RFC 5681 2: a segment with data is no duplicate ACK. */
static void test_data_ahead_is_no_duplicate_ack(void **state)
{
	struct segment s;

	connect_with(send_much, false);
	while (peer_next(&s))
		;
	for (uint32_t i = 0; i < 6; i++)
		put(1000 + i * 600, 1500 + i * 600, 0);
	run_rounds(2);
	assert_false(conn->repairing);
	assert_int_equal(conn->pcb.dupacks, 0);
	assert_int_equal(conn->pcb.nrtx, 0);
}

/* ---- ends ---- */

static void test_after_close_data_ahead_is_not_kept(void **state)
{
	connect_with(read_nothing, true);
	put(1000, 1100, 0);
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, 0);
}

static void test_reset_frees_what_is_held(void **state)
{
	struct peer reset;
	struct segment s;

	connect_with(read_all, true);
	for (uint32_t i = 1; i < 200; i++)
		put(i * 1000, i * 1000 + 600, 0);
	while (peer_next(&s))
		;
	assert_int_equal(net_here()->ooseq_held, 199);
	assert_int_equal(fake_frames_out, 199);
	reset = peer;
	peer_send(&reset, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, 0);
	assert_int_equal(fake_frames_out, 0);
}

/* Each allocation in turn fails: then nothing is kept, and nothing is lost. */
static void test_without_memory_it_is_as_if_it_had_not_come(void **state)
{
	struct segment s;

	connect_with(read_all, true);
	for (unsigned fail = 1; fail < 6; fail++) {
		net_mem_fail_after(fail);
		put(1000, 1100, 0);
		put(3000, 3100, PEER_FIN);
		net_mem_fail_after(0);
		while (peer_next(&s))
			;
	}
	put(0, 1000, 0);
	put(1000, 2000, 0);
	put(2000, 3000, 0);
	put(3000, 3100, PEER_FIN);
	expect_read(3100);
	assert_int_equal(ended, 1);
}

static int teardown(void **state)
{
	struct segment s;

	while (peer_next(&s))
		;
	return peer_teardown(state);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, peer_listen, teardown)
	const struct CMUnitTest tests[] = {
		T(test_newest_block_goes_first_and_four_are_told),
		T(test_without_sack_a_hole_draws_plain_acks),
		T(test_blocks_go_as_holes_are_filled),
		T(test_each_second_segment_of_a_window_may_be_missing),
		T(test_a_window_of_single_bytes_makes_no_more_ranges),
		T(test_pieces_in_any_order_make_the_stream),
		T(test_blocks_are_told_beside_data),
		T(test_a_stream_the_other_way_does_not_delay_blocks),
		T(test_what_comes_twice_is_told),
		T(test_what_comes_twice_is_told_when_nothing_is_held),
		T(test_overlaps_are_kept_once),
		T(test_small_pieces_that_follow_are_packed),
		T(test_bytes_behind_the_window_are_not_kept),
		T(test_bytes_for_nobody_leave_the_window_open),
		T(test_the_window_is_taken_by_what_is_unread),
		T(test_bytes_at_a_shut_window_are_not_kept),
		T(test_fin_ahead_ends_the_stream_when_the_hole_is_filled),
		T(test_fin_ahead_without_data),
		T(test_second_fin_elsewhere_counts_for_nothing),
		T(test_data_over_a_fin_ahead_counts),
		T(test_data_behind_a_fin_goes),
		T(test_ack_and_window_of_data_ahead_count),
		T(test_window_alone_of_data_ahead_counts),
		T(test_sack_blocks_of_data_ahead_count),
		T(test_data_ahead_ends_a_handshake),
		T(test_data_ahead_is_a_sign_of_life),
		T(test_data_ahead_is_no_duplicate_ack),
		T(test_after_close_data_ahead_is_not_kept),
		T(test_reset_frees_what_is_held),
		T(test_without_memory_it_is_as_if_it_had_not_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
