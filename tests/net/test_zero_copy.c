/*
 * Zero-copy sends: ownership of buffers, their return, and delivery of their
 * bytes. The clock stands still unless a test moves it.
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

#define NEAR_WRAP 0xfffff800u /* sequence numbers wrap within the test */
#define MSS	  536u	      /* the MSS without the option */
#define LEN	  (6 * MSS)

static uint8_t bytes[65536];
static uint8_t arrived[65536];
static unsigned released, short_segments;
static size_t give, give_at_first; /* bytes to donate; in two buffers if
				      give_at_first is not 0 */
static size_t copied;		   /* bytes copied before that */
static int64_t deadline_ns;
static bool closes, aborts;

static int lend_setup(void **state)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	released = short_segments = 0;
	give = LEN;
	give_at_first = copied = 0;
	deadline_ns = CORO_FOREVER;
	closes = aborts = false;
	fake_lends = true;
	return peer_listen(state);
}

/* A returned buffer may be reused at once: wipes it. */
static void count_release(void *arg)
{
	released++;
	memset(arg, 0xee, 1);
}

/* Donates `bytes` once the peer has sent a request. */
static void give_handler(struct net_conn *conn, void *arg)
{
	net_recv(conn, got, 1);
	net_set_write_deadline(conn, deadline_ns);
	if (copied)
		net_send_all(conn, bytes, copied);
	if (give_at_first)
		net_send_owned(conn, bytes, give_at_first, count_release,
			       bytes);
	result = net_send_owned(conn, bytes + copied + give_at_first,
				give - copied - give_at_first, count_release,
				bytes + copied + give_at_first);
	if (aborts)
		coro_sleep_ns(1000000);
	ended++;
	if (!closes && !aborts)
		net_recv(conn, got, 1);
}

static void open_stream(struct peer *peer)
{
	serve(give_handler);
	peer_connect(peer, 1000, 7, NEAR_WRAP);
	peer_send(peer, PEER_ACK | PEER_PSH, "?", 1);
}

/* Takes all segments; bytes in order are in `arrived`. */
static unsigned take_all(struct peer *peer, uint32_t first)
{
	unsigned pieces = 0;
	struct segment s;

	while (peer_next(&s)) {
		memcpy(arrived + (s.seq - first), s.data, s.len);
		if (s.seq == peer->rcv)
			peer->rcv += s.len;
		if (s.len)
			pieces = fake_sent_pieces;
		short_segments += s.len && s.len < MSS;
	}
	return pieces;
}

static void send_ack(struct peer *peer, uint32_t upto)
{
	struct peer now = *peer;

	now.rcv = upto;
	peer_send(&now, PEER_ACK, NULL, 0);
	run_rounds(2);
}

static void test_lent_bytes_are_referenced_until_acknowledged(void **state)
{
	struct peer peer;
	uint32_t first;

	open_stream(&peer);
	first = peer.rcv;
	assert_int_equal(take_all(&peer, first), 2);
	assert_int_equal(result, LEN);
	assert_int_equal(peer.rcv, first + LEN);
	assert_memory_equal(arrived, bytes, LEN);
	send_ack(&peer, first + LEN - 1);
	assert_int_equal(released, 0);
	send_ack(&peer, first + LEN);
	assert_int_equal(released, 1);
	run_ms(300);
	assert_int_equal(released, 1);
}

/*
 * The room is less than a segment and stays available, which must not wake the
 * sender.
 */
static void test_blocked_zero_copy_sender_does_not_spin(void **state)
{
	struct peer peer;
	uint32_t first;

	give = sizeof(bytes);
	open_stream(&peer);
	first = peer.rcv;
	take_all(&peer, first);
	run_rounds(2);
	assert_int_equal(ended, 0);
	assert_true(net_here()->n_conns == 1);
	stack->empty_rounds = 0;
	run_rounds(10);
	assert_in_range(stack->empty_rounds, 9, 10);
	for (unsigned i = 0; i < 200 && peer.rcv != first + give; i++) {
		send_ack(&peer, peer.rcv);
		take_all(&peer, first);
	}
	assert_int_equal(result, give);
	assert_memory_equal(arrived, bytes, give);
	assert_int_equal(short_segments, 1); /* the last */
}

static void test_port_without_external_buffers_gets_a_copy(void **state)
{
	struct peer peer;
	uint32_t first;

	fake_lends = false;
	open_stream(&peer);
	first = peer.rcv;
	assert_int_equal(take_all(&peer, first), 1);
	assert_memory_equal(arrived, bytes, LEN);
	assert_int_equal(released, 0);
	send_ack(&peer, first + LEN);
	assert_int_equal(released, 1);
}

static void test_a_frame_still_queued_keeps_the_bytes(void **state)
{
	struct peer peer;
	uint32_t first;

	open_stream(&peer);
	first = peer.rcv;
	run_rounds(3);
	send_ack(&peer, first + LEN); /* the frames are still in the port */
	assert_int_equal(released, 0);
	take_all(&peer, first);
	assert_memory_equal(arrived + 1, bytes + 1, LEN - 1);
	run_rounds(1);
	assert_int_equal(released, 1);
	assert_int_equal(arrived[0], 0); /* before it was wiped */
}

static void test_retransmission_has_the_same_bytes(void **state)
{
	struct peer peer;
	uint32_t first;

	open_stream(&peer);
	first = peer.rcv;
	take_all(&peer, first);
	send_ack(&peer, first + MSS);
	memset(arrived, 0, sizeof(arrived));
	peer.rcv = first + MSS;
	run_ms(3000);
	assert_int_equal(take_all(&peer, first), 2);
	while (peer.rcv != first + LEN) {
		uint32_t before = peer.rcv;

		send_ack(&peer, peer.rcv);
		run_ms(3000);
		take_all(&peer, first);
		assert_true(peer.rcv != before);
	}
	assert_memory_equal(arrived + MSS, bytes + MSS, LEN - MSS);
	assert_int_equal(released, 0);
	send_ack(&peer, first + LEN);
	assert_int_equal(released, 1);
}

static void
test_buffer_larger_than_the_room_is_sent_piece_by_piece(void **state)
{
	struct peer peer;
	uint32_t first;

	give = 60001;
	open_stream(&peer);
	first = peer.rcv;
	take_all(&peer, first);
	assert_int_equal(ended, 0); /* parked */
	while (peer.rcv != first + give) {
		assert_int_equal(released, 0);
		send_ack(&peer, peer.rcv);
		take_all(&peer, first);
	}
	assert_int_equal(result, give);
	assert_memory_equal(arrived, bytes, give);
	assert_int_equal(short_segments, 1);
	assert_int_equal(released, 0);
	send_ack(&peer, peer.rcv);
	assert_int_equal(released, 1);
}

static void test_reset_returns_a_partially_queued_buffer(void **state)
{
	struct peer peer;

	give = 60000;
	open_stream(&peer);
	take_all(&peer, peer.rcv);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(released, 1);
}

static void
test_deadline_returns_the_buffer_once_its_bytes_have_left(void **state)
{
	struct peer peer;
	uint32_t first;

	give = 60000;
	deadline_ns = fake_now_ns + 20000000;
	open_stream(&peer);
	first = peer.rcv;
	take_all(&peer, first);
	run_ms(30);
	assert_int_equal(result, -ETIMEDOUT);
	while (released == 0) {
		uint32_t before = peer.rcv;

		send_ack(&peer, peer.rcv);
		run_ms(15); /* it is paced */
		take_all(&peer, first);
		assert_true(released || peer.rcv != before);
	}
	assert_true(peer.rcv - first < give);
	assert_int_equal(released, 1);
}

static void test_close_still_delivers(void **state)
{
	struct peer peer;
	uint32_t first;

	closes = true;
	open_stream(&peer);
	first = peer.rcv;
	take_all(&peer, first);
	assert_memory_equal(arrived, bytes, LEN);
	assert_int_equal(released, 0);
	peer.rcv = first + LEN + 1;
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(2);
	assert_int_equal(released, 1);
}

static struct net_conn *the_conn;

static void remember(struct net_conn *conn)
{
	the_conn = conn;
}

static void test_abort_returns_the_buffer(void **state)
{
	struct peer peer;

	aborts = true;
	open_stream(&peer);
	take_all(&peer, peer.rcv);
	assert_int_equal(released, 0);
	net_for_each_conn(remember);
	tcp_abort(&the_conn->pcb);
	run_rounds(2);
	assert_int_equal(released, 1);
	run_ms(5);
	assert_int_equal(ended, 1);
}

static void test_closing_stack_returns_the_buffer(void **state)
{
	struct peer peer;

	give = 60000;
	open_stream(&peer);
	run_rounds(5); /* parked, and frames still in the port */
	assert_int_equal(ended, 0);
	assert_int_equal(released, 0);
	assert_int_equal(peer_teardown(state), 0);
	assert_int_equal(released, 1);
	assert_int_equal(peer_setup(state), 0);
}

static void test_adjacent_buffers_are_returned_separately(void **state)
{
	struct peer peer;
	uint32_t first;

	give_at_first = 2 * MSS + 100;
	give = give_at_first + 300; /* fills up the first's last segment */
	open_stream(&peer);
	first = peer.rcv;
	take_all(&peer, first);
	assert_memory_equal(arrived, bytes, give);
	assert_int_equal(short_segments, 1);
	send_ack(&peer, first + (uint32_t)give - 1);
	assert_int_equal(released, 0);
	send_ack(&peer, first + (uint32_t)give);
	assert_int_equal(released, 2);
}

#define LONG   (40 * MSS + 100)
#define PIECES 8u
#define PIECE  30u

/* Donates adjacent pieces while a walk of the queue would end at its head. */
static void give_behind_a_queue(struct net_conn *conn, void *arg)
{
	struct tcp_seg *head, *next;
	uint8_t *at = bytes + LONG;

	net_recv(conn, got, 1);
	net_send_owned(conn, bytes, LONG, count_release, bytes);
	net_send_owned(conn, at, PIECE, count_release, at);
	head = conn->pcb.unsent;
	next = head->next;
	head->next = NULL;
	for (unsigned i = 0; i < PIECES; i++) {
		at += PIECE;
		net_send_owned(conn, at, PIECE, count_release, at);
	}
	result = head->next == NULL;
	head->next = next;
	ended++;
	net_recv(conn, got, 1);
}

static void test_lent_piece_costs_no_walk_of_the_queue(void **state)
{
	const unsigned len = LONG + (1 + PIECES) * PIECE;
	struct peer peer;
	uint32_t first;

	serve(give_behind_a_queue);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	peer_send(&peer, PEER_ACK | PEER_PSH, "?", 1);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_true(result);
	assert_int_equal(released, 0); /* none was taken for part of another */
	first = peer.rcv;
	for (unsigned i = 0; i < 100 && peer.rcv != first + len; i++) {
		take_all(&peer, first);
		if (peer.rcv == first + len)
			assert_memory_equal(arrived, bytes, len);
		send_ack(&peer, peer.rcv);
		run_ms(50);
	}
	assert_int_equal(peer.rcv, first + len);
	assert_int_equal(released, 2 + PIECES);
}

/* Headers and copied bytes may be longer than a frame's first segment. */
static void
test_copied_bytes_before_lent_ones_take_several_segments(void **state)
{
	struct peer peer;
	uint32_t first;

	fake_tx_segment_bytes = 64;
	copied = 20;
	open_stream(&peer);
	first = peer.rcv;
	assert_int_equal(take_all(&peer, first), 2);
	assert_int_equal(peer.rcv, first + LEN);
	assert_memory_equal(arrived, bytes, LEN);
	send_ack(&peer, first + LEN);
	assert_int_equal(released, 1);
}

static void test_small_buffer_is_copied(void **state)
{
	struct peer peer;
	uint32_t first;

	give = 300;
	open_stream(&peer);
	first = peer.rcv;
	assert_int_equal(take_all(&peer, first), 1);
	assert_memory_equal(arrived, bytes, give);
	assert_int_equal(released, 0);
	send_ack(&peer, peer.rcv);
	assert_int_equal(released, 1);
}

static void test_zero_copy_send_is_retried_when_frames_run_out(void **state)
{
	struct peer peer;
	uint32_t first;

	open_stream(&peer);
	first = peer.rcv;
	fake_tx_budget = 1; /* the headers' frame, and no more */
	run_rounds(3);
	peer_expect_nothing();
	fake_tx_budget = -1;
	take_all(&peer, first);
	assert_memory_equal(arrived, bytes, LEN);
	send_ack(&peer, peer.rcv);
	assert_int_equal(released, 1);
}

static void give_nothing(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_send_owned(conn, NULL, 1, count_release, bytes),
			 -EINVAL);
	assert_int_equal(net_send_owned(conn, bytes, 1, NULL, NULL), -EINVAL);
	assert_int_equal(net_send_owned(conn, bytes, 0, count_release, bytes),
			 0);
	assert_int_equal(released, 0);
	ended++;
}

static void test_empty_and_invalid_buffers_are_handled(void **state)
{
	struct peer peer;

	serve(give_nothing);
	peer_connect(&peer, 1000, 7, 5);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(released, 1);
}

/* ---- views ---- */

static void echo_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		if (net_send_view(conn, &view) < 0)
			break;
}

static void test_view_is_sent_without_a_copy(void **state)
{
	struct peer peer;
	uint32_t first;

	serve(echo_handler);
	peer_connect(&peer, 1000, 7, 5);
	first = peer.rcv;
	peer_send(&peer, PEER_ACK, bytes, 4 * MSS);
	assert_int_equal(take_all(&peer, first), 2);
	assert_memory_equal(arrived, bytes, 4 * MSS);
	assert_int_equal(net_here()->ports[0].frames_in, 1);
	assert_int_equal(fake_frames_out, 1);
	send_ack(&peer, first + 4 * MSS);
	assert_int_equal(net_here()->ports[0].frames_in, 0);
	assert_int_equal(fake_frames_out, 0);
}

static void test_views_hold_a_bounded_number_of_frames(void **state)
{
	struct peer peer, silent; /* which acknowledges nothing */
	uint32_t first;

	fake_frames_spare = 2;
	run_rounds(16);
	serve(echo_handler);
	peer_connect(&peer, 1000, 7, 5);
	first = peer.rcv;
	silent = peer;
	for (unsigned i = 0; i < 2; i++) {
		peer_send(&silent, PEER_ACK, bytes + i * MSS * 4, MSS * 4);
		take_all(&peer, first);
	}
	assert_int_equal(net_here()->ports[0].frames_in, 1);
	assert_int_equal(fake_frames_out, 1);
	assert_int_equal(peer.rcv, first + 8 * MSS);
	assert_memory_equal(arrived, bytes, 8 * MSS);
	send_ack(&silent, first + 8 * MSS);
	assert_int_equal(fake_frames_out, 0);
}

static void test_small_views_are_copied(void **state)
{
	struct peer peer;
	uint32_t first;

	serve(echo_handler);
	peer_connect(&peer, 1000, 7, 5);
	first = peer.rcv;
	peer_send(&peer, PEER_ACK, bytes, 1460);
	take_all(&peer, first);
	assert_memory_equal(arrived, bytes, 1460);
	assert_int_equal(fake_frames_out, 0);
}

#define lending(test)                                                          \
	cmocka_unit_test_setup_teardown(test, lend_setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		lending(test_lent_bytes_are_referenced_until_acknowledged),
		lending(test_blocked_zero_copy_sender_does_not_spin),
		lending(test_port_without_external_buffers_gets_a_copy),
		lending(test_a_frame_still_queued_keeps_the_bytes),
		lending(test_retransmission_has_the_same_bytes),
		lending(test_buffer_larger_than_the_room_is_sent_piece_by_piece),
		lending(test_reset_returns_a_partially_queued_buffer),
		lending(test_deadline_returns_the_buffer_once_its_bytes_have_left),
		lending(test_close_still_delivers),
		lending(test_abort_returns_the_buffer),
		lending(test_closing_stack_returns_the_buffer),
		lending(test_copied_bytes_before_lent_ones_take_several_segments),
		lending(test_adjacent_buffers_are_returned_separately),
		lending(test_lent_piece_costs_no_walk_of_the_queue),
		lending(test_small_buffer_is_copied),
		lending(test_zero_copy_send_is_retried_when_frames_run_out),
		lending(test_empty_and_invalid_buffers_are_handled),
		lending(test_view_is_sent_without_a_copy),
		lending(test_views_hold_a_bounded_number_of_frames),
		lending(test_small_views_are_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
