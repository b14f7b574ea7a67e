/*
 * The end of a connection without lwIP: the peer's FIN, ours and its ACK; and
 * segments that follow one of these in the same burst. test-net-random --differ
 * compares the result with lwIP's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u
#define MUCH	  1000u /* bytes of a segment that may follow in a run */

static struct peer peer;
static const uint8_t bytes[MUCH];

static void collect(struct net_conn *conn, void *arg)
{
	long n;

	while ((n = net_recv(conn, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

static int open_conn(void **state)
{
	int err = peer_listen(state);

	got_len = 0;
	serve(collect);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	peer_expect_nothing();
	return err;
}

/* Forgets the flags that net_tcp_input() records of each segment it sees. */
static void watch_lwip(void)
{
	net_here()->rx_flags = 0xff;
}

static bool lwip_has_seen_one(void)
{
	return net_here()->rx_flags != 0xff;
}

static uint8_t fin_state; /* enum net_seg_state of the segment in flight */

static void note_fin(struct net_conn *conn)
{
	fin_state = net_seg_of(conn->pcb.unacked)->state;
}

/* The peer closes, and the stack then closes, too. */
static void reach_last_ack(void)
{
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	expect(NULL, PEER_FIN | PEER_ACK, peer.rcv, peer.snd, 0);
	peer.rcv++;
}

static void test_end_of_an_idle_connection_bypasses_lwip(void **state)
{
	watch_lwip();
	reach_last_ack();
	assert_int_equal(result, 0);
	net_for_each_conn(note_fin);
	assert_int_equal(fin_state, NET_SEG_SENT | NET_SEG_WHOLE);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
	assert_false(lwip_has_seen_one());
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_orphans.n, 0);
	peer_expect_nothing();
}

static void test_fin_that_is_lost_is_sent_again(void **state)
{
	reach_last_ack();
	assert_int_equal(peer_wait(2000).flags, PEER_FIN | PEER_ACK);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_fin_leaves_once_the_port_has_room(void **state)
{
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	fake_tx_budget = 0;
	run_rounds(3);
	assert_int_equal(ended, 1);
	fake_tx_budget = -1;
	expect(NULL, PEER_FIN | PEER_ACK, peer.rcv, peer.snd, 0);
}

static void test_fin_with_data_is_left_to_lwip(void **state)
{
	watch_lwip();
	peer_send(&peer, PEER_FIN | PEER_ACK, bytes, MUCH);
	run_rounds(3);
	assert_true(lwip_has_seen_one());
	assert_int_equal(got_len, MUCH);
	assert_int_equal(result, 0);
}

/* The segments of a burst that are as long as these are taken as a run. */
static void test_data_behind_a_fin_is_not_read(void **state)
{
	peer_send(&peer, PEER_ACK, bytes, MUCH);
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	peer_send(&peer, PEER_ACK, bytes, MUCH);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_int_equal(got_len, MUCH);
}

static void test_data_right_behind_a_fin_is_not_read(void **state)
{
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	peer_send(&peer, PEER_ACK, bytes, MUCH);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_int_equal(got_len, 0);
}

static void test_data_behind_the_last_ack_is_reset(void **state)
{
	reach_last_ack();
	peer_send(&peer, PEER_ACK, NULL, 0);
	peer_send(&peer, PEER_ACK, bytes, MUCH);
	expect(NULL, PEER_RST, peer.rcv, ANY, 0);
	assert_int_equal(net_here()->n_conns, 0);
}

/* ---- an owner that goes on behind the peer's FIN ---- */

static bool may_answer, may_close;

static void answer_late(struct net_conn *conn, void *arg)
{
	result = net_recv(conn, got, 1);
	while (!may_answer)
		coro_yield();
	assert_int_equal(net_send_all(conn, "late", 4), 4);
	while (!may_close)
		coro_yield();
	ended++;
}

static void test_owner_may_answer_behind_the_fin(void **state)
{
	may_answer = may_close = false;
	serve(answer_late);
	peer_connect(&peer, 1001, 7, NEAR_WRAP);
	peer_send(&peer, PEER_FIN | PEER_ACK, NULL, 0);
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(result, 0);
	may_answer = true;
	expect(NULL, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 4);
	peer.rcv += 4;
	peer_send(&peer, PEER_ACK, NULL, 0);
	may_close = true;
	expect(NULL, PEER_FIN | PEER_ACK, peer.rcv, peer.snd, 0);
	peer_expect_nothing();
	assert_int_equal(ended, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_conn, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_end_of_an_idle_connection_bypasses_lwip),
		T(test_fin_that_is_lost_is_sent_again),
		T(test_fin_leaves_once_the_port_has_room),
		T(test_fin_with_data_is_left_to_lwip),
		T(test_data_behind_a_fin_is_not_read),
		T(test_data_right_behind_a_fin_is_not_read),
		T(test_data_behind_the_last_ack_is_reset),
		T(test_owner_may_answer_behind_the_fin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
