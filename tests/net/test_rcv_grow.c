/*
 * Growth of the receive window: a sender that fills it within a round trip gets
 * a larger one, up to --rmem-max.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/mem/mem.h"
#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define FIRST_WND (256u << 10)
#define RTT_MS	  20u
#define SEG	  1400u

static const uint8_t zeros[SEG];
static struct peer peer;
static struct net_conn *conn;
static unsigned rtt_ms; /* of the handshake, and of trips behind it */
static unsigned scale;
static uint32_t edge; /* of the window, as the peer knows it */
static bool reads;    /* the handler reads; false: it waits */
static uint64_t had;  /* bytes read */

static void read_all(struct net_conn *c, void *arg)
{
	static uint8_t room[1 << 20];
	long n;

	conn = c;
	while (!reads)
		coro_sleep_ns(5000000);
	while ((n = net_recv(c, room, sizeof(room))) > 0) {
		had += (uint64_t)n;
		while (!reads)
			coro_sleep_ns(5000000);
	}
	ended++;
}

/* Never reads the last byte that is there. */
static void read_all_but_one(struct net_conn *c, void *arg)
{
	static uint8_t room[1 << 20];
	unsigned there = 0;

	conn = c;
	while (!c->eof && c->pcb_live) {
		coro_sleep_ns(100000);
		there = c->rx_tail ? net_rxq_bytes(c) : 0;
		if (there > 1)
			had += (uint64_t)net_recv(
				c, room, LWIP_MIN(there - 1, sizeof(room)));
	}
	ended++;
}

static void take_acks(void)
{
	struct segment s;

	while (peer_next(&s))
		if (s.flags & PEER_ACK)
			edge = s.ack + ((uint32_t)s.wnd << scale);
}

/*
 * Does a handshake of rtt_ms with a client that offers window scaling, or not.
 */
static void connect_to(net_handler handler, bool scaling)
{
	static const uint8_t options[] = {2, 4, 5, 120, 3, 3, 7, 1};
	struct segment s;

	conn = NULL;
	had = 0;
	reads = true;
	serve(handler);
	s = peer_open(&peer, 99, options, scaling ? 8 : 4);
	assert_int_equal(s.options_len, scaling ? 8 : 4);
	scale = scaling ? s.options[7] : 0;
	edge = 100 + s.wnd;
	run_ms(rtt_ms);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(conn);
}

static void connect_with(bool scaling)
{
	connect_to(read_all, scaling);
}

/*
 * Runs a round trip in which the peer sends up to `most` bytes, as the window
 * allows.
 */
static void send_for_a_trip(uint32_t most)
{
	uint32_t now = edge, sent = 0;

	while (sent < most && (int32_t)(now - peer.snd) > 0) {
		uint32_t len =
			LWIP_MIN(LWIP_MIN(SEG, most - sent), now - peer.snd);

		peer_send(&peer, PEER_ACK, zeros, len);
		sent += len;
		if (sent % (20 * SEG) == 0)
			run_rounds(1);
		take_acks();
	}
	run_ms(rtt_ms);
	take_acks();
}

static uint32_t window(void)
{
	return net_rcv_max(&conn->pcb);
}

static void test_window_grows_for_a_sender_that_fills_it(void **state)
{
	unsigned trips = 0;

	connect_with(true);
	assert_int_equal(scale, 7);
	assert_int_equal(window(), FIRST_WND);
	while (window() < 6u << 20 && trips++ < 30)
		send_for_a_trip(UINT32_MAX);
	assert_in_range(trips, 5, 8);
	assert_int_equal(window(), 6u << 20); /* and no further */
	for (unsigned i = 0; i < 3; i++)
		send_for_a_trip(UINT32_MAX);
	assert_int_equal(window(), 6u << 20);
	assert_in_range(edge - peer.snd, (6u << 20) - 128, 6u << 20);
	assert_int_equal(had, peer.snd - 100);
}

static void
test_a_reader_that_is_always_behind_does_not_hold_it_up(void **state)
{
	struct segment s;

	connect_to(read_all_but_one, true);
	for (unsigned i = 0; i < 12; i++)
		send_for_a_trip(UINT32_MAX);
	assert_int_equal(window(), 6u << 20);
	assert_in_range(edge - peer.snd, 5u << 20, 6u << 20);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_ms(5);
	while (peer_next(&s))
		;
}

/* Reads as fast as the bytes arrive, but leaves `lag` bytes unread. */
static uint32_t lag;

static void read_late(struct net_conn *c, void *arg)
{
	static uint8_t room[1 << 20];
	unsigned there = 0;

	conn = c;
	while (!c->eof && c->pcb_live) {
		coro_sleep_ns(100000);
		there = c->rx_tail ? net_rxq_bytes(c) : 0;
		if (there > lag)
			had += (uint64_t)net_recv(
				c, room, LWIP_MIN(there - lag, sizeof(room)));
	}
	ended++;
}

static uint32_t window_of_a_late_reader(uint32_t unread)
{
	struct segment s;
	uint32_t found;

	lag = 0;
	connect_to(read_late, true);
	send_for_a_trip(2 * SEG); /* has kept up so far */
	lag = unread;
	for (unsigned i = 0; i < 20; i++)
		send_for_a_trip(UINT32_MAX);
	assert_true(had > 10 * FIRST_WND);
	found = window();
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_ms(5);
	while (peer_next(&s))
		;
	return found;
}

/* A larger window would only make its queue longer. */
static void test_window_does_not_grow_for_a_slow_reader(void **state)
{
	assert_int_equal(window_of_a_late_reader(FIRST_WND / 3), FIRST_WND);
}

static void test_window_grows_for_a_slightly_late_reader(void **state)
{
	assert_int_equal(window_of_a_late_reader(FIRST_WND / 16), 6u << 20);
}

/*
 * A segment of each round trip is lost and arrives two round trips later, after
 * loss detection: a third of the window is read in each.
 */
static void test_window_grows_despite_some_losses(void **state)
{
	uint32_t lost[3], next;
	unsigned trips = 0;

	connect_with(true);
	while (window() < 6u << 20 && trips < 60) {
		if (trips >= 2) {
			next = peer.snd;
			peer.snd = lost[(trips - 2) % 3];
			peer_send(&peer, PEER_ACK, zeros, SEG);
			peer.snd = next;
		}
		lost[trips++ % 3] = peer.snd;
		peer.snd += SEG;
		send_for_a_trip(window() / 3 - SEG);
	}
	assert_in_range(trips, 5, 20);
	assert_int_equal(had, lost[(trips - 2) % 3] - 100);
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
}

/* Sends `most` bytes behind a hole of one segment. */
static void send_behind_a_hole(uint32_t most)
{
	peer.snd += SEG;
	send_for_a_trip(most);
}

static void test_bytes_behind_a_hole_grow_the_window_at_once(void **state)
{
	connect_with(true);
	send_for_a_trip(4 * SEG); /* the window is scaled from here on */
	send_behind_a_hole(FIRST_WND / 8 * 3 - SEG);
	assert_int_equal(window(), FIRST_WND);
	send_for_a_trip(2 * SEG);
	assert_int_equal(window(), 2 * FIRST_WND);
	assert_in_range(edge - peer.snd, FIRST_WND, 2 * FIRST_WND);
	assert_int_equal(had, 4 * SEG);
	for (unsigned i = 0; i < 4; i++)
		send_for_a_trip(UINT32_MAX);
	assert_int_equal(window(), 6u << 20); /* and no further */
	assert_int_equal(had, 4 * SEG);
}

/* Single bytes, far apart, count no more than their number. */
static void test_few_bytes_behind_a_hole_do_not_grow_the_window(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 100; i++) {
		peer.snd += SEG;
		send_for_a_trip(1);
	}
	assert_int_equal(window(), FIRST_WND);
}

static void
test_hole_before_a_slow_reader_does_not_grow_the_window(void **state)
{
	connect_with(true);
	send_for_a_trip(4 * SEG);
	reads = false;
	send_for_a_trip(FIRST_WND / 4 + 2 * SEG); /* it reads once more */
	send_behind_a_hole(FIRST_WND / 2);
	assert_int_equal(window(), FIRST_WND);
	reads = true;
	run_ms(50);
	send_for_a_trip(SEG);
	assert_int_equal(window(), 2 * FIRST_WND);
}

/* A connection from a cookie has no RTT sample. */
static void test_window_grows_without_an_rtt_sample(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 4; i++) {
		conn->srtt_us = 0;
		send_for_a_trip(UINT32_MAX);
	}
	assert_in_range(window(), 2 * FIRST_WND, 6u << 20);
}

static void
test_window_does_not_grow_for_a_slow_sender_without_an_rtt(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 60; i++) {
		conn->srtt_us = 0;
		send_for_a_trip(20000);
		run_ms(280); /* a window's worth takes four seconds */
	}
	assert_int_equal(window(), FIRST_WND);
}

static void test_window_does_not_grow_for_a_slower_sender(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 40; i++)
		send_for_a_trip(FIRST_WND / 8 * 3 - 2 * SEG);
	assert_int_equal(window(), FIRST_WND);
	for (unsigned i = 0; i < 40; i++)
		send_for_a_trip(FIRST_WND / 8 * 3 + 4 * SEG);
	assert_int_equal(window(), 2 * FIRST_WND);
}

static void test_unread_bytes_do_not_grow_the_window(void **state)
{
	connect_with(true);
	reads = false;
	send_for_a_trip(1); /* the waiting reader reads no more after that */
	for (unsigned i = 0; i < 20; i++)
		send_for_a_trip(UINT32_MAX);
	assert_int_equal(window(), FIRST_WND);
	assert_in_range(peer.snd - 100, FIRST_WND - 128, FIRST_WND + 1);
	/* Reading all at once does not prove a fast reader: it took long. */
	run_ms(3000);
	reads = true;
	run_ms(20);
	take_acks();
	assert_int_equal(had, peer.snd - 100);
	assert_int_equal(window(), FIRST_WND);
}

static void test_idle_time_does_not_grow_the_window(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 20; i++) {
		send_for_a_trip(150000);
		run_ms(3000);
	}
	assert_int_equal(window(), FIRST_WND);
}

static void test_window_without_scaling_does_not_grow(void **state)
{
	connect_with(false);
	for (unsigned i = 0; i < 20; i++)
		send_for_a_trip(UINT32_MAX);
	assert_int_equal(window(), 65535);
	assert_in_range(edge - peer.snd, 65000, 65535);
}

static void test_window_does_not_grow_while_memory_is_short(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 20; i++) {
		net_here()->rcv_limit = FIRST_WND / 2;
		send_for_a_trip(UINT32_MAX);
	}
	assert_int_equal(window(), FIRST_WND);
	assert_in_range(edge - peer.snd, 1, FIRST_WND / 2);
	net_here()->rcv_limit = FIRST_WND;
	for (unsigned i = 0; i < 5; i++)
		send_for_a_trip(UINT32_MAX);
	assert_in_range(window(), 2 * FIRST_WND, 6u << 20);
}

/* A window that opens as memory becomes free is not data that was read. */
static void test_window_does_not_grow_as_memory_comes_back(void **state)
{
	connect_with(true);
	for (unsigned i = 0; i < 3; i++)
		send_for_a_trip(10 * SEG);
	for (unsigned i = 0; i < 10; i++) {
		net_here()->rcv_limit = FIRST_WND / 4;
		send_for_a_trip(10 * SEG);
	}
	net_here()->rcv_limit = FIRST_WND;
	for (unsigned i = 0; i < 10; i++)
		send_for_a_trip(10 * SEG);
	assert_int_equal(window(), FIRST_WND);
	assert_int_equal(conn->pcb.rcv_wnd, FIRST_WND);
}

/*
 * A connection with a grown window closes like any other: with a FIN, or a RST
 * if bytes are unread.
 */
static void close_it(struct net_conn *c, void *arg)
{
	read_all(c, arg);
}

static void test_connection_with_a_grown_window_closes_with_a_fin(void **state)
{
	struct segment s;

	connect_with(true);
	serve(close_it);
	for (unsigned i = 0; i < 8; i++)
		send_for_a_trip(UINT32_MAX);
	assert_true(window() > FIRST_WND);
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	assert_true(peer_next(&s));
	while (!(s.flags & (PEER_FIN | PEER_RST)))
		assert_true(peer_next(&s));
	assert_int_equal(s.flags & (PEER_FIN | PEER_RST), PEER_FIN);
	assert_int_equal(ended, 1);
}

static void
test_connection_with_a_grown_window_resets_if_bytes_are_unread(void **state)
{
	struct segment s;

	connect_with(true);
	for (unsigned i = 0; i < 8; i++)
		send_for_a_trip(UINT32_MAX);
	assert_true(window() > FIRST_WND);
	reads = false;
	run_ms(10);
	/* So many bytes that its window looks like one that never grew. */
	send_for_a_trip(window() - FIRST_WND);
	send_for_a_trip(window() - FIRST_WND -
			(peer.snd - 100 - (uint32_t)had));
	net_close(conn);
	s = peer_wait(10);
	while (!(s.flags & (PEER_FIN | PEER_RST)))
		s = peer_wait(10);
	assert_true(s.flags & PEER_RST);
	reads = true;
	run_ms(20);
	while (peer_next(&s))
		;
}

/* ---- the least round trip ---- */

#define MS_US(ms) ((ms)*1000000u >> 10) /* in units of srtt_us / 8 */

/* A satellite or transoceanic path needs all of --rmem-max. */
static void test_window_reaches_its_maximum_on_a_long_path(void **state)
{
	unsigned trips = 0;

	rtt_ms = 100;
	connect_with(true);
	while (window() < 6u << 20 && trips++ < 30)
		send_for_a_trip(UINT32_MAX);
	assert_in_range(trips, 5, 8);
}

/*
 * For a sender in slow start, paced over half of each round trip, the window
 * doubles before it is needed, up to the maximum. The sender knows the window
 * as it was announced a round trip ago.
 */
static void test_window_does_not_limit_slow_start_on_a_long_path(void **state)
{
	uint32_t known[100];

	rtt_ms = 100;
	connect_with(true);
	for (unsigned ms = 0; ms < rtt_ms; ms++)
		known[ms] = edge;
	for (uint32_t cwnd = 10 * SEG; cwnd < 6u << 20; cwnd *= 2) {
		uint32_t sent = 0;

		for (unsigned ms = 0; ms < rtt_ms; ms++) {
			while (sent < cwnd && sent < cwnd / 50 * (ms + 1)) {
				assert_in_range(known[ms] - peer.snd, SEG,
						6u << 20);
				peer_send(&peer, PEER_ACK, zeros, SEG);
				sent += SEG;
			}
			run_ms(1);
			take_acks();
			known[ms] = edge;
		}
		assert_true(sent >= cwnd);
	}
}

/*
 * A bottleneck of FIRST_WND in 20 ms on a path of 1 ms: the surplus of the
 * window waits in the queue, which adds to each RTT sample. A larger window
 * would only lengthen the queue.
 */
static void test_self_induced_queue_does_not_grow_the_window(void **state)
{
	rtt_ms = 1;
	connect_with(true);
	for (unsigned i = 0; i < 1000; i++) {
		net_rtt_sample(conn, MS_US(20) * (window() / FIRST_WND));
		send_for_a_trip(FIRST_WND / 20);
	}
	assert_in_range(conn->srtt_us >> 3, MS_US(15), MS_US(21));
	assert_int_equal(window(), FIRST_WND);
}

/*
 * The handshake took 200 ms, as with address resolution; the path takes 5 ms.
 * Windows that arrive faster reveal the shorter round trip.
 */
static void test_slow_handshake_does_not_count_as_a_long_path(void **state)
{
	rtt_ms = 200;
	connect_with(true);
	assert_in_range(conn->pcb.min_rtt_us, MS_US(200), MS_US(210));
	rtt_ms = 5;
	for (unsigned i = 0; i < 200; i++)
		send_for_a_trip(FIRST_WND);
	assert_in_range(conn->pcb.min_rtt_us, MS_US(5), MS_US(12));
	assert_in_range(window(), FIRST_WND, 4 * FIRST_WND);
}

/*
 * Bytes that arrive within a part of a round trip do not lower the estimate,
 * however many they are.
 */
static void test_full_windows_do_not_lower_the_min_rtt(void **state)
{
	rtt_ms = 50;
	connect_with(true);
	for (unsigned i = 0; i < 10; i++) {
		send_for_a_trip(20 * SEG);
		assert_in_range(conn->pcb.min_rtt_us, MS_US(49), MS_US(52));
	}
	while (window() < 6u << 20) {
		send_for_a_trip(UINT32_MAX);
		assert_in_range(conn->pcb.min_rtt_us, MS_US(49), MS_US(52));
	}
}

static int open_usual(void **state)
{
	rtt_ms = RTT_MS;
	return peer_listen(state);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_usual, peer_teardown)
	const struct CMUnitTest tests[] = {
		T(test_window_grows_for_a_sender_that_fills_it),
		T(test_a_reader_that_is_always_behind_does_not_hold_it_up),
		T(test_window_does_not_grow_for_a_slow_reader),
		T(test_window_grows_for_a_slightly_late_reader),
		T(test_window_grows_despite_some_losses),
		T(test_bytes_behind_a_hole_grow_the_window_at_once),
		T(test_few_bytes_behind_a_hole_do_not_grow_the_window),
		T(test_hole_before_a_slow_reader_does_not_grow_the_window),
		T(test_window_grows_without_an_rtt_sample),
		T(test_window_does_not_grow_for_a_slow_sender_without_an_rtt),
		T(test_window_does_not_grow_for_a_slower_sender),
		T(test_unread_bytes_do_not_grow_the_window),
		T(test_idle_time_does_not_grow_the_window),
		T(test_window_without_scaling_does_not_grow),
		T(test_window_does_not_grow_while_memory_is_short),
		T(test_window_does_not_grow_as_memory_comes_back),
		T(test_connection_with_a_grown_window_closes_with_a_fin),
		T(test_connection_with_a_grown_window_resets_if_bytes_are_unread),
		T(test_window_reaches_its_maximum_on_a_long_path),
		T(test_window_does_not_limit_slow_start_on_a_long_path),
		T(test_self_induced_queue_does_not_grow_the_window),
		T(test_slow_handshake_does_not_count_as_a_long_path),
		T(test_full_windows_do_not_lower_the_min_rtt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
