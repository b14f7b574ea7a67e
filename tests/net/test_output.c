/*
 * Output of segments: once per burst, in order, and only as fast as the port
 * accepts them.
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

#define NEAR_WRAP 0xfffffe00u /* sequence numbers wrap within the test */
#define MSS	  536u	      /* the MSS without the option */

static struct net_conn *the_conn;

static void remember(struct net_conn *conn)
{
	the_conn = conn;
}

static void read_on(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0) {
		got_len += view.len;
		net_view_release(conn, &view);
	}
	ended++;
}

static void test_a_burst_is_acknowledged_once(void **state)
{
	static const uint8_t block[1000];
	struct peer peer;

	serve(read_on);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	for (unsigned i = 0; i < 20; i++)
		peer_send(&peer, PEER_ACK, block, sizeof(block));
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	peer_expect_nothing();
	assert_int_equal(got_len, 20000);
}

/* ---- flushes within a round ---- */

/* Frames to each peer at a round's first flush and at its second. */
static unsigned at_flush[2][2], n_flushes;

static void note_flush(void)
{
	uint8_t frame[2048];

	assert_in_range(n_flushes, 0, 1);
	while (fake_sent(frame, sizeof(frame)))
		at_flush[n_flushes][frame[37] == (uint8_t)1001]++;
	n_flushes++;
}

/*
 * Segments of a round's coroutines leave before its timers run; then the
 * timers' segments leave.
 */
static void test_answer_leaves_before_timers_run(void **state)
{
	struct peer late, asks;

	serve(echo_views);
	peer_connect(&late, 1000, 7, NEAR_WRAP);
	peer_connect(&asks, 1001, 7, NEAR_WRAP);
	peer_send(&late, PEER_ACK, "never acknowledged", 18);
	expect(NULL, PEER_ACK | PEER_PSH, late.rcv, late.snd, 18);
	memset(at_flush, 0, sizeof(at_flush));
	fake_on_flush = note_flush;
	for (unsigned i = 0; i < 2000 && !at_flush[1][0]; i++) {
		peer_send(&asks, PEER_ACK, "hello", 5);
		asks.rcv += 5;
		n_flushes = 0;
		run_ms(1);
	}
	fake_on_flush = NULL;
	assert_int_equal(at_flush[0][0], 0);
	assert_int_equal(at_flush[1][0], 1);
	assert_true(at_flush[0][1] > 0);
	assert_int_equal(at_flush[1][1], 0);
}

static size_t to_send;
static long taken[2]; /* by connections from ports 1000 and 1001 */

/* Once asked, sends to_send bytes and waits for the end. */
static void send_when_asked(struct net_conn *conn, void *arg)
{
	static const uint8_t block[1000];
	long *mine = &taken[net_peer_addr(conn).port - 1000];
	size_t left = to_send;

	*mine = 0;
	net_recv(conn, got, 1);
	while (left) {
		long n = net_send(conn, block, left < 1000 ? left : 1000);

		if (n < 0)
			break;
		*mine += n;
		left -= (size_t)n;
	}
	net_recv(conn, got, 1);
	ended++;
}

static void send_request(struct peer *peer)
{
	peer_send(peer, PEER_ACK | PEER_PSH, "?", 1);
}

static void test_a_full_port_loses_nothing(void **state)
{
	struct segment s;
	struct peer peer;

	to_send = 8 * MSS;
	serve(send_when_asked);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	fake_tx_budget = 0;
	send_request(&peer);
	run_rounds(3);
	peer_expect_nothing();
	assert_int_equal(taken[0], to_send);
	for (uint32_t at = 0; at < to_send; at += s.len) {
		fake_tx_budget = 1;
		expect(&s, ANY, peer.rcv + at, peer.snd, ANY);
	}
	fake_tx_budget = -1;
	peer_expect_nothing();
}

static void test_a_full_port_is_shared(void **state)
{
	struct peer peers[2];
	unsigned sent[2] = {0};
	struct segment s;

	to_send = 8 * MSS;
	serve(send_when_asked);
	peer_connect(&peers[0], 1000, 7, 5);
	peer_connect(&peers[1], 1001, 7, 5);
	fake_tx_budget = 0;
	send_request(&peers[0]);
	send_request(&peers[1]);
	run_rounds(3);
	for (unsigned i = 0; i < 8; i++) {
		fake_tx_budget = 1;
		assert_true(peer_next(&s));
		sent[s.dst - 1000]++;
	}
	assert_int_equal(sent[0], 4);
	assert_int_equal(sent[1], 4);
	fake_tx_budget = -1;
}

static void test_unsent_bytes_are_bounded(void **state)
{
	struct segment s;
	struct peer peer;
	uint32_t first;

	to_send = 200000;
	serve(send_when_asked);
	peer_connect(&peer, 1000, 7, 5);
	first = peer.rcv;
	send_request(&peer);
	run_rounds(50);
	while (peer_next(&s))
		peer.rcv += s.len;
	assert_int_equal(peer.rcv, first + 10 * MSS); /* RFC 6928 */
	assert_int_equal(taken[0], 10 * MSS + 32768);
	/* Each acknowledged window makes room for another. */
	while (peer.rcv - first < to_send) {
		uint32_t before = peer.rcv;

		peer_send(&peer, PEER_ACK, NULL, 0);
		while (peer_next(&s))
			if (s.seq == peer.rcv)
				peer.rcv += s.len;
		assert_true(peer.rcv != before);
	}
	assert_int_equal(taken[0], to_send);
}

/* Appending to lwIP's queues does not walk them: lwip/ends.c. */
static void test_ends_of_queues_are_remembered(void **state)
{
	struct segment s;
	struct peer peer;
	struct tcp_pcb *pcb;
	unsigned n = 1;

	to_send = 200000;
	serve(send_when_asked);
	peer_connect(&peer, 1000, 7, 5);
	send_request(&peer);
	run_rounds(50);
	while (peer_next(&s))
		;
	net_for_each_conn(remember);
	pcb = &the_conn->pcb;
	assert_true(the_conn->unacked_last != 0);
	assert_true(pcb->unsent_near != 0);
	for (struct tcp_seg *seg = pcb->unacked; seg->next; seg = seg->next)
		n++;
	assert_int_equal(n, 10);
	assert_int_equal(net_seg_end(net_unacked_last(pcb)), pcb->snd_nxt);
	assert_int_equal(net_seg_end(net_unsent_last(pcb)), pcb->snd_lbb);
}

static void test_closed_window_leaves_the_full_send_buffer(void **state)
{
	struct segment s;
	struct peer peer;
	uint32_t first;

	to_send = 600000;
	serve(send_when_asked);
	peer_connect(&peer, 1000, 7, 5);
	first = peer.rcv;
	send_request(&peer);
	while (peer_next(&s))
		peer.rcv += s.len;
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(20);
	peer_expect_nothing();
	assert_int_equal(taken[0], peer.rcv - first + TCP_SND_BUF);
}

static void test_slow_start_counts_acknowledged_bytes(void **state)
{
	struct segment s;
	struct peer peer;
	uint32_t before;

	to_send = 10 * MSS;
	serve(send_when_asked);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	send_request(&peer);
	while (peer_next(&s))
		;
	net_for_each_conn(remember);
	before = the_conn->pcb.cwnd;
	peer.rcv += 5 * MSS;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
	assert_int_equal(the_conn->pcb.cwnd, before + 5 * MSS);
	peer.rcv += 2 * MSS;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
	assert_int_equal(the_conn->pcb.cwnd, before + 7 * MSS);
	the_conn->pcb.ssthresh = the_conn->pcb.cwnd;
	peer.rcv += 3 * MSS;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
	assert_int_equal(the_conn->pcb.cwnd, before + 7 * MSS);
}

/* ---- the output queue ---- */

#define LIVING 8u

/*
 * Opens a connection with data to send; returns NULL if there is no more room.
 */
static struct net_conn *begin_queued(void)
{
	struct tcp_pcb *pcb = tcp_new();

	if (!pcb)
		return NULL;
	net_conn_queue_output(net_conn_of(pcb));
	return net_conn_of(pcb);
}

static uint32_t queued(void)
{
	return net_here()->output.tail - net_here()->output.head;
}

/*
 * While no port accepts frames, connections that end keep their entries in the
 * queue: new connections are refused before live ones could find no room.
 */
static void test_ended_connections_do_not_overflow_the_queue(void **state)
{
	uint32_t slots = net_here()->output.mask + 1, ended_queued = 0;
	struct net_conn *living[LIVING], *conn;

	fake_tx_budget = 0;
	for (unsigned turn = 0; turn < 3; turn++) {
		uint64_t bytes = net_mem_bytes();

		for (unsigned i = 0; i < LIVING; i++)
			living[i] = net_conn_of(tcp_new());
		for (ended_queued = 0; ended_queued < 2 * slots;
		     ended_queued++) {
			conn = begin_queued();
			if (!conn)
				break;
			assert_int_equal(queued(), ended_queued + 1);
			tcp_abort(&conn->pcb);
			assert_int_equal(net_here()->n_conns, LIVING);
		}
		assert_int_equal(ended_queued, slots - LIVING);
		for (unsigned i = 0; i < LIVING; i++)
			net_conn_queue_output(living[i]);
		assert_int_equal(queued(), slots);
		/* Each living connection still has its own entry. */
		for (unsigned i = 0; i < LIVING; i++)
			assert_ptr_equal(
				net_here()->output.ring[ended_queued + i],
				living[i]);
		net_output_all();
		assert_int_equal(queued(), slots);
		fake_tx_budget = -1;
		net_output_all();
		fake_tx_budget = 0;
		assert_int_equal(queued(), 0);
		for (unsigned i = 0; i < LIVING; i++) {
			assert_false(living[i]->in_output);
			tcp_abort(&living[i]->pcb);
		}
		assert_int_equal(net_here()->n_conns, 0);
		/* Ended connections are freed, once each. */
		if (turn > 0)
			assert_int_equal(net_mem_bytes(), bytes);
	}
	fake_tx_budget = -1;
}

#define listening(test)                                                        \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		listening(test_a_burst_is_acknowledged_once),
		listening(test_answer_leaves_before_timers_run),
		listening(test_a_full_port_loses_nothing),
		listening(test_a_full_port_is_shared),
		listening(test_unsent_bytes_are_bounded),
		listening(test_ends_of_queues_are_remembered),
		listening(test_closed_window_leaves_the_full_send_buffer),
		listening(test_slow_start_counts_acknowledged_bytes),
		listening(test_ended_connections_do_not_overflow_the_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
