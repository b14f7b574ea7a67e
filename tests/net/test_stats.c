/* Statistics of a connection. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u

static struct peer peer;
static struct net_conn *conn;

static void *accept_body(void *arg)
{
	assert_int_equal(net_accept(listener, &conn), 0);
	return NULL;
}

static void connect_peer(void)
{
	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	run_rounds(2);
	assert_non_null(conn);
}

static struct net_conn_stats conn_stats(void)
{
	struct net_conn_stats s;

	memset(&s, 0xff, sizeof(s));
	assert_int_equal(net_conn_stats(conn, &s), 0);
	return s;
}

static void test_new_connection_reports_the_agreed_options(void **state)
{
	struct net_conn_stats s;

	connect_peer();
	s = conn_stats();
	assert_int_equal(s.state, NET_TCP_ESTABLISHED);
	assert_int_equal(s.mss, 536); /* the peer named none: RFC 9293 3.7.1 */
	assert_int_equal(s.snd_wnd, 65535);
	assert_int_equal(s.rcv_wnd, 65535);
	assert_int_equal(s.cwnd, 5360);
	assert_true(s.ssthresh >= s.cwnd);
	assert_int_equal(s.rx_segs, 1); /* the SYN came before there was one */
	assert_int_equal(s.tx_segs, 1);
	assert_int_equal(s.rx_bytes + s.tx_bytes + s.unread, 0);
	assert_int_equal(s.unsent + s.unacked + s.retransmits, 0);
	assert_int_equal(s.rtos + s.dup_acks + s.out_of_order, 0);
	assert_in_range(s.rto_us, 1000, 3000000);
	net_abort(conn);
}

static void test_bytes_are_counted_at_each_step(void **state)
{
	struct segment seg;

	connect_peer();
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello", 5);
	run_rounds(2);
	assert_int_equal(conn_stats().rx_bytes, 5);
	assert_int_equal(conn_stats().unread, 5);
	assert_int_equal(net_recv(conn, got, 3), 3);
	assert_int_equal(conn_stats().unread, 2);
	assert_int_equal(net_recv(conn, got, 3), 2);
	assert_int_equal(conn_stats().unread, 0);

	assert_int_equal(net_send_all(conn, "answer", 6), 6);
	assert_int_equal(conn_stats().unsent, 6);
	assert_int_equal(conn_stats().tx_bytes, 0);
	assert_true(peer_next(&seg));
	assert_int_equal(conn_stats().unsent, 0);
	assert_int_equal(conn_stats().unacked, 6);
	assert_int_equal(conn_stats().tx_bytes, 6);
	peer.rcv += 6;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(conn_stats().unacked, 0);
	assert_int_equal(conn_stats().tx_bytes, 6);
	assert_int_equal(conn_stats().rx_segs, 3);
	net_abort(conn);
}

static void test_fin_is_not_counted_as_a_byte(void **state)
{
	struct segment seg;

	connect_peer();
	assert_int_equal(net_send_all(conn, "bye", 3), 3);
	assert_int_equal(net_shutdown(conn, NET_SHUT_WR), 0);
	while (peer_next(&seg))
		peer.rcv = seg.seq + seg.len + !!(seg.flags & PEER_FIN);
	assert_int_equal(conn_stats().state, NET_TCP_FIN_WAIT_1);
	assert_int_equal(conn_stats().tx_bytes, 3);
	assert_int_equal(conn_stats().unsent, 0);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(conn_stats().state, NET_TCP_FIN_WAIT_2);
	assert_int_equal(conn_stats().unsent, 0);
	assert_int_equal(conn_stats().tx_bytes, 3);
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(2);
	assert_int_equal(conn_stats().state, NET_TCP_TIME_WAIT);
	assert_int_equal(conn_stats().info.state, 6); /* Linux's number */
	assert_int_equal(conn_stats().info.delivered, 1);
	assert_int_equal(conn_stats().rx_bytes, 0);
	net_close(conn);
}

static void test_timeouts_and_retransmissions_are_counted(void **state)
{
	struct segment seg;

	connect_peer();
	assert_int_equal(net_send_all(conn, "lost", 4), 4);
	assert_true(peer_next(&seg));
	assert_int_equal(conn_stats().retransmits, 0);
	run_ms(1200);
	expect(&seg, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
	assert_in_range(conn_stats().retransmits, 1, 5);
	assert_in_range(conn_stats().rtos, 1, 4);
	assert_int_equal(conn_stats().tx_bytes, 4);
	net_abort(conn);
}

static void test_three_duplicate_acks_cause_one_retransmission(void **state)
{
	static const uint8_t block[536 * 5];
	struct segment seg;

	connect_peer();
	assert_int_equal(net_send_all(conn, block, sizeof(block)),
			 sizeof(block));
	while (peer_next(&seg))
		;
	for (unsigned i = 0; i < 3; i++) {
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_rounds(1);
	}
	expect(&seg, PEER_ACK, peer.rcv, peer.snd, 536);
	assert_int_equal(conn_stats().dup_acks, 3);
	assert_int_equal(conn_stats().retransmits, 1);
	assert_int_equal(conn_stats().rtos, 0);
	net_abort(conn);
}

static void test_segments_out_of_order_are_counted(void **state)
{
	connect_peer();
	peer.snd += 4;
	peer_send(&peer, PEER_ACK, "more", 4);
	run_rounds(2);
	assert_int_equal(conn_stats().out_of_order, 1);
	assert_int_equal(conn_stats().rx_bytes, 0);
	peer.snd -= 8;
	peer_send(&peer, PEER_ACK, "some", 4);
	run_rounds(2);
	assert_int_equal(conn_stats().out_of_order, 1);
	assert_int_equal(conn_stats().rx_bytes, 8);
	net_abort(conn);
}

static void test_round_trip_time_is_measured(void **state)
{
	struct segment seg;

	connect_peer();
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(net_send_all(conn, "x", 1), 1);
		assert_true(peer_next(&seg));
		run_ms(100);
		peer.rcv = seg.seq + 1;
		while (peer_next(&seg))
			; /* a probe, while answers come this late */
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_rounds(2);
	}
	assert_in_range(conn_stats().rtt_us, 60000, 140000);
	assert_true(conn_stats().rttvar_us < 80000);
	assert_true(conn_stats().rto_us > conn_stats().rtt_us);
	net_abort(conn);
}

static void test_window_probes_are_no_retransmissions(void **state)
{
	struct segment seg;
	unsigned probes = 0;

	connect_peer();
	peer_send(&peer, PEER_ACK, "x", 1);
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, "y", 1); /* a later number: a later window */
	run_rounds(2);
	assert_int_equal(net_send_all(conn, "wait", 4), 4);
	for (unsigned i = 0; i < 30; i++) {
		run_ms(100);
		while (peer_next(&seg))
			probes++;
	}
	assert_true(probes >= 2);
	assert_int_equal(conn_stats().retransmits, 0);
	assert_int_equal(conn_stats().snd_wnd, 0);
	net_abort(conn);
}

static void test_counters_remain_after_the_end(void **state)
{
	connect_peer();
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello", 5);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	assert_int_equal(conn_stats().state, NET_TCP_CLOSED);
	assert_int_equal(conn_stats().rx_bytes, 5);
	assert_int_equal(conn_stats().unsent + conn_stats().unacked, 0);
	assert_int_equal(conn_stats().info.state, 7); /* Linux's number */
	assert_true(conn_stats().info.bytes_received == 5);
	assert_true(conn_stats().info.absent & NET_INFO_NO_PATH);
	assert_int_equal(conn_stats().info.unacked + conn_stats().info.pmtu, 0);
	net_close(conn);
}

static void test_times_stop_at_the_end(void **state)
{
	uint64_t busy;

	connect_peer();
	assert_int_equal(net_send_all(conn, "wait", 4), 4);
	run_ms(10);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	busy = conn_stats().info.busy_time;
	assert_in_range(busy, 9000, 13000);
	run_ms(50);
	assert_true(conn_stats().info.busy_time == busy);
	net_close(conn);
}

static void test_connections_beyond_the_limit_are_not_counted(void **state)
{
	struct segment seg;

	net_here()->max_counted = 0;
	connect_peer();
	peer_send(&peer, PEER_ACK | PEER_PSH, "hello", 5);
	run_rounds(2);
	net_set_read_deadline(conn, CORO_FOREVER); /* has memory of its own */
	assert_false(conn_stats().counted);
	assert_int_equal(conn_stats().rx_bytes + conn_stats().rx_segs, 0);
	assert_int_equal(conn_stats().unread, 5);
	net_abort(conn);
	while (peer_next(&seg))
		;
	conn = NULL;
	net_here()->max_counted = 1;
	connect_peer();
	assert_true(conn_stats().counted);
	assert_int_equal(net_here()->n_counted, 1);
	net_abort(conn);
	assert_int_equal(net_here()->n_counted, 0);
}

static void test_stats_of_a_closed_handle_are_ebadf(void **state)
{
	struct net_conn_stats s;

	connect_peer();
	assert_int_equal(net_conn_stats(NULL, &s), -EBADF);
	net_close(conn);
	assert_int_equal(net_conn_stats(conn, &s), -EBADF);
}

static int setup(void **state)
{
	conn = NULL;
	return peer_listen(state);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_new_connection_reports_the_agreed_options),
		T(test_bytes_are_counted_at_each_step),
		T(test_fin_is_not_counted_as_a_byte),
		T(test_timeouts_and_retransmissions_are_counted),
		T(test_three_duplicate_acks_cause_one_retransmission),
		T(test_segments_out_of_order_are_counted),
		T(test_round_trip_time_is_measured),
		T(test_window_probes_are_no_retransmissions),
		T(test_counters_remain_after_the_end),
		T(test_times_stop_at_the_end),
		T(test_connections_beyond_the_limit_are_not_counted),
		T(test_stats_of_a_closed_handle_are_ebadf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
