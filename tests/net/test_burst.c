/*
 * Segments of one connection in one burst are processed together: the reader is
 * woken once, one ACK answers all, and the segment that ends such a run is
 * handled. test-net-random --differ compares the result with lwIP's.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "tests/net/fake_glue.h"
#include "tests/net/stamped.h"

#define NEAR_WRAP 0xfffff000u
#define SEG	  1000u

static struct peer peer;
static struct net_conn *last; /* the connection of the latest handler */
static bool looks;	      /* the handler reads; false: it waits */
static unsigned reads;	      /* calls that have returned bytes */
static uint8_t bytes[64 * SEG];

static void collect(struct net_conn *conn, void *arg)
{
	uint8_t room[sizeof(got)];
	long n;

	last = conn;
	while (!looks)
		coro_sleep_ns(1000000);
	while ((n = net_recv(conn, room, sizeof(room))) > 0) {
		memcpy(got + got_len, room, (size_t)n);
		got_len += (size_t)n;
		reads++;
	}
	result = n;
	ended++;
}

static int open_listener(void **state)
{
	int err = peer_listen(state);

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	looks = true;
	reads = 0;
	got_len = 0;
	serve(collect);
	return err;
}

static int open_all(void **state)
{
	int err = open_listener(state);

	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	peer_expect_nothing();
	return err;
}

/* Sends the stream's next segments, all in the burst of the next round. */
static void send_data(unsigned segments)
{
	size_t at = got_len;

	while (segments--) {
		peer_send(&peer, PEER_ACK, bytes + at, SEG);
		at += SEG;
	}
}

static void expect_read(unsigned segments)
{
	assert_int_equal(got_len, segments * SEG);
	assert_memory_equal(got, bytes, got_len);
}

static void expect_ack(uint32_t ack)
{
	expect(NULL, PEER_ACK, peer.rcv, ack, 0);
	peer_expect_nothing();
}

static void expect_data(unsigned len)
{
	expect(NULL, ANY, peer.rcv, peer.snd, len);
	peer.rcv += len;
}

static void test_a_burst_is_one_read_and_one_ack(void **state)
{
	send_data(GLUE_BURST);
	run_rounds(1);
	assert_int_equal(reads, 1);
	expect_read(GLUE_BURST);
	expect_ack(peer.snd);
	assert_int_equal(last->pcb.rcv_wnd, net_rcv_max(&last->pcb));
}

/* The ACK does not wait for a reader, nor for a timer. */
static void test_a_burst_that_nobody_reads_is_acknowledged(void **state)
{
	looks = false;
	peer_connect(&peer, 1001, 7, NEAR_WRAP);
	peer_expect_nothing();
	send_data(4);
	run_rounds(1);
	expect_ack(peer.snd);
	assert_int_equal(net_rxq_bytes(last), 4 * SEG);
	assert_int_equal(last->pcb.rcv_ann_wnd, 65535 - 4 * SEG);
	looks = true;
	run_ms(5);
	expect_read(4);
}

/* RFC 9293 3.8.6.3: every second segment; a single one may wait. */
static void test_a_single_segment_is_acknowledged_later(void **state)
{
	send_data(1);
	run_rounds(2);
	expect_read(1);
	peer_expect_nothing();
	send_data(2);
	run_rounds(1);
	expect_ack(peer.snd);
}

static void test_an_odd_segment_is_acknowledged_with_the_others(void **state)
{
	send_data(5);
	run_rounds(1);
	expect_read(5);
	expect_ack(peer.snd);
	assert_false(last->pcb.flags & (TF_ACK_DELAY | TF_ACK_NOW));
}

/* A bare ACK wakes no reader; the data behind it must. */
static void test_data_behind_an_ack_wakes_the_reader(void **state)
{
	assert_int_equal(net_send(last, "hello", 5), 5);
	run_rounds(1);
	expect_data(5);
	peer_send(&peer, PEER_ACK, NULL, 0);
	send_data(1);
	run_rounds(1);
	assert_int_equal(reads, 1);
	expect_read(1);
}

static void test_a_gap_ends_a_run(void **state)
{
	struct segment s;

	send_data(2);
	peer.snd += SEG; /* lost */
	peer_send(&peer, PEER_ACK, bytes + 3 * SEG, SEG);
	peer_send(&peer, PEER_ACK, bytes + 4 * SEG, SEG);
	run_rounds(1);
	expect_read(2);
	while (peer_next(&s))
		assert_int_equal(s.ack, (uint32_t)(peer.snd - 3 * SEG));
	peer.snd -= 3 * SEG;
	peer_send(&peer, PEER_ACK, bytes + 2 * SEG, SEG);
	run_rounds(2);
	expect_read(5);
	expect(&s, PEER_ACK, peer.rcv, peer.snd + 2 * SEG, 0);
}

static void test_retransmitted_segment_ends_a_run(void **state)
{
	send_data(3);
	peer.snd -= SEG;
	peer_send(&peer, PEER_ACK, bytes + 2 * SEG, SEG);
	peer_send(&peer, PEER_ACK, bytes + 3 * SEG, SEG);
	run_rounds(1);
	expect_read(4);
	/* at once: RFC 9293 3.10.7.4 */
	expect(NULL, PEER_ACK, peer.rcv, peer.snd - SEG, 0);
	peer_expect_nothing(); /* the last one is alone behind that */
}

static void test_fin_behind_a_run_is_handled(void **state)
{
	send_data(4);
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	run_rounds(2);
	expect_read(4);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

static void test_reset_behind_a_run_is_handled(void **state)
{
	send_data(4);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	send_data(1); /* without a connection */
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNRESET);
}

static void test_two_connections_in_turn(void **state)
{
	struct peer other;
	struct net_conn *first = last;

	peer_connect(&other, 1001, 7, NEAR_WRAP);
	peer_expect_nothing();
	for (unsigned i = 0; i < 4; i++) {
		peer_send(&peer, PEER_ACK, bytes, SEG);
		peer_send(&peer, PEER_ACK, bytes, SEG);
		peer_send(&other, PEER_ACK, bytes, SEG);
	}
	run_rounds(1);
	assert_int_equal(first->pcb.rcv_nxt, peer.snd);
	assert_int_equal(last->pcb.rcv_nxt, other.snd);
	assert_int_equal(got_len, 12 * SEG);
	assert_int_equal(reads, 2);
}

/* Segments with the same ports and numbers from another address are no run. */
static void test_another_address_is_another_connection(void **state)
{
	static const uint8_t stranger[4] = {10, 0, 0, 9};
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .ack = peer.rcv,
			    .flags = PEER_ACK,
			    .wnd = 65535,
			    .options = (const uint8_t *)"",
			    .data = bytes + 40 * SEG,
			    .len = SEG,
			    .from = stranger};

	send_data(1);
	s.seq = peer.snd;
	peer_send_raw(&s);
	run_rounds(1);
	expect_read(1);
	assert_int_equal(last->pcb.rcv_nxt, peer.snd);
}

/* A run ends at the window's edge. */
static void test_run_ends_at_the_window_edge(void **state)
{
	uint32_t before = peer.snd;

	last->pcb.rcv_wnd = last->pcb.rcv_ann_wnd = 3 * SEG + 10;
	last->pcb.rcv_ann_right_edge = last->pcb.rcv_nxt + 3 * SEG + 10;
	send_data(5);
	run_rounds(1);
	assert_int_equal(last->pcb.rcv_nxt, before + 3 * SEG + 10);
	assert_int_equal(got_len, 3 * SEG + 10);
	assert_memory_equal(got, bytes, got_len);
}

/* The window of each segment in a run is used (RFC 9293 3.10.7.4). */
static void test_last_window_of_a_run_is_used(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		peer.wnd = (uint16_t)(1000 * i);
		peer_send(&peer, PEER_ACK, bytes + i * SEG, SEG);
	}
	run_rounds(1);
	assert_int_equal(last->pcb.snd_wnd, 3000);
	assert_int_equal(last->pcb.snd_wl1, peer.snd - SEG);
}

static void test_ack_within_a_burst_is_handled(void **state)
{
	assert_int_equal(net_send(last, "hello", 5), 5);
	run_rounds(1);
	expect_data(5);
	peer.rcv -= 5;
	send_data(2);
	peer.rcv += 5;
	peer_send(&peer, PEER_ACK, bytes + 2 * SEG, SEG);
	peer_send(&peer, PEER_ACK, bytes + 3 * SEG, SEG);
	run_rounds(1);
	expect_read(4);
	assert_int_equal(last->pcb.lastack, peer.rcv);
	assert_null(last->pcb.unacked);
}

/* ---- timestamps ---- */

#define LONG   "a segment long enough to be taken behind another one's head"
#define LONGER LONG LONG LONG LONG LONG LONG LONG LONG LONG LONG LONG LONG LONG

/* RFC 7323 4.3: an ACK for several segments echoes the earliest timestamp. */
static void test_run_echoes_its_earliest_timestamp(void **state)
{
	uint32_t first;

	stamped_connect();
	first = ++stamp;
	for (unsigned i = 0; i < 4; i++, stamp++)
		stamped_send(PEER_ACK | PEER_PSH, LONGER);
	run_rounds(1);
	expect_stamped(PEER_ACK, first);
	assert_int_equal(last->pcb.rcv_nxt, stamped.snd);
}

/* A bare ACK gets no answer: the timestamp of the data behind it is echoed. */
static void test_the_timestamp_behind_an_ack_is_echoed(void **state)
{
	stamped_connect();
	assert_int_equal(net_send(last, "hello", 5), 5);
	run_rounds(1);
	expect_stamped(PEER_ACK | PEER_PSH, last->pcb.ts_recent);
	stamped.rcv += 5;
	stamped_send(PEER_ACK, "");
	stamp += 5;
	stamped_send(PEER_ACK, LONGER);
	stamped_send(PEER_ACK, LONGER);
	run_rounds(1);
	expect_stamped(PEER_ACK, stamp);
}

/* PAWS holds within a run: RFC 7323 5.3 R1. */
static void test_an_old_timestamp_ends_a_run(void **state)
{
	stamped_connect();
	stamped_send(PEER_ACK, LONGER);
	stamped_send_at(stamped.snd, PEER_ACK, LONGER, stamp - 10);
	run_rounds(1);
	assert_int_equal(last->pcb.rcv_nxt, stamped.snd);
}

#define CASE(name)                                                             \
	cmocka_unit_test_setup_teardown(name, open_all, peer_teardown)
#define STAMPED(name)                                                          \
	cmocka_unit_test_setup_teardown(name, open_listener, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_a_burst_is_one_read_and_one_ack),
		CASE(test_a_burst_that_nobody_reads_is_acknowledged),
		CASE(test_a_single_segment_is_acknowledged_later),
		CASE(test_an_odd_segment_is_acknowledged_with_the_others),
		CASE(test_data_behind_an_ack_wakes_the_reader),
		CASE(test_a_gap_ends_a_run),
		CASE(test_retransmitted_segment_ends_a_run),
		CASE(test_fin_behind_a_run_is_handled),
		CASE(test_reset_behind_a_run_is_handled),
		CASE(test_two_connections_in_turn),
		CASE(test_another_address_is_another_connection),
		CASE(test_run_ends_at_the_window_edge),
		CASE(test_last_window_of_a_run_is_used),
		CASE(test_ack_within_a_burst_is_handled),
		STAMPED(test_run_echoes_its_earliest_timestamp),
		STAMPED(test_the_timestamp_behind_an_ack_is_echoed),
		STAMPED(test_an_old_timestamp_ends_a_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
