/*
 * The monotonic clock jumps, as after a machine or virtual machine was
 * suspended: expired timers fire late, once, and nothing is lost.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "coronet/coro.h"
#include "netstack/recovery/recovery.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define S    INT64_C(1000000000)
#define HOUR (3600 * S)

/* Counts the segments sent in so many rounds on a still clock. */
static unsigned sent_in(unsigned rounds)
{
	struct segment s;
	unsigned n = 0;

	run_rounds(rounds);
	while (peer_next(&s))
		n++;
	return n;
}

static void jump_clock(int64_t ns)
{
	fake_now_ns += ns;
}

/*
 * The jump of an hour causes neither a burst of retransmissions nor an hour's
 * back-off.
 */
static void test_bytes_in_flight_are_resent_in_time(void **state)
{
	unsigned sent[8];

	repair_connect(true, 3 * MSS);
	assert_int_equal(take_sent(sent, 8), 3);
	for (unsigned i = 0; i < 4; i++) {
		unsigned ms = 0;

		jump_clock(HOUR / 4 * (i + 1));
		for (; sent_in(50) == 0; ms++)
			run_ms(1);
		assert_in_range(ms, 0, 400u << i);
		assert_int_equal(sent_in(50), 0);
		assert_int_equal(ended, 0);
	}
	run_ms(10);
	ACK(3);
	run_rounds(4);
	assert_null(ours->pcb.unacked);
	assert_int_equal(ended, 0);
}

/* An ACK that waited while the process was stopped is no RTT sample. */
static void test_pause_is_not_a_round_trip_sample(void **state)
{
	unsigned sent[8];
	struct net_recovery_info info;

	repair_connect(true, 3 * MSS);
	assert_int_equal(take_sent(sent, 8), 3);
	jump_clock(30 * S);
	ACK(3);
	net_recovery_info(ours, &info);
	assert_true(info.rto_ns < 5 * S);
}

/* The peer was paused too: its window is still closed, then open. */
static void test_shut_window_is_probed_once(void **state)
{
	unsigned sent[16];

	repair_connect(true, 8 * MSS);
	take_sent(sent, 16);
	peer.wnd = 0;
	ACK(8);
	net_send(ours, "x", 1);
	run_rounds(2);
	for (unsigned i = 0; i < 3; i++) {
		jump_clock(HOUR);
		assert_in_range(sent_in(50), 0, 2);
		assert_int_equal(ended, 0);
	}
	peer.wnd = 65535;
	ACK(8);
	assert_in_range(sent_in(10), 1, 2);
}

static void test_idle_connection_stays(void **state)
{
	repair_connect(true, 0);
	for (unsigned i = 0; i < 5; i++) {
		jump_clock(24 * HOUR);
		assert_int_equal(sent_in(50), 0);
	}
	peer_send(&peer, PEER_ACK, "still here", 10);
	run_ms(100);
	assert_int_equal(ended, 0);
	assert_int_equal(net_here()->n_conns, 1);
}

/* The peer had no chance to answer: it is probed, not given up. */
static void test_keepalive_probes_before_it_gives_up(void **state)
{
	repair_connect(true, 0);
	assert_int_equal(net_set_keepalive(ours, 10, 1, 3), 0);
	run_rounds(4);
	jump_clock(HOUR);
	assert_int_equal(sent_in(50), 1);
	assert_int_equal(ended, 0);
	ACK(0);
	run_ms(500);
	assert_int_equal(ended, 0);
	/* A peer that is gone is still detected. */
	for (unsigned i = 0; i < 40 && ended == 0; i++) {
		run_ms(500);
		while (peer_next(&(struct segment){0}))
			;
	}
	assert_int_equal(ended, 1);
}

static unsigned woken;

static void *sleep_ten_seconds(void *arg)
{
	int64_t begin = net_now_ns(stack);

	assert_int_equal(coro_sleep_ns(10 * S), 0);
	assert_true(net_now_ns(stack) - begin >= 10 * S);
	woken++;
	return NULL;
}

static void test_sleepers_wake_once(void **state)
{
	woken = 0;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(
			net_spawn(stack, "sleeper", sleep_ten_seconds, NULL),
			0);
	run_rounds(4);
	assert_int_equal(woken, 0);
	jump_clock(HOUR);
	run_rounds(8);
	assert_int_equal(woken, 100);
}

static void read_for_ten_seconds(struct net_conn *conn, void *arg)
{
	struct net_view view;

	net_set_read_deadline(conn, net_now_ns(stack) + 10 * S);
	result = net_recv_view(conn, &view);
	ended++;
}

/* The answer that waits in the port is read before the deadline is checked. */
static void test_deadline_passes_once(void **state)
{
	struct peer other;

	serve(read_for_ten_seconds);
	peer_connect(&other, 1000, 7, 5000);
	run_rounds(4);
	jump_clock(HOUR);
	run_rounds(8);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ETIMEDOUT);
}

static void close_at_once(struct net_conn *conn, void *arg)
{
	ended++;
}

static void test_time_wait_ends(void **state)
{
	struct peer other;

	serve(close_at_once);
	peer_connect(&other, 1000, 7, 5000);
	reach_time_wait(&other);
	jump_clock(HOUR);
	assert_int_equal(sent_in(8), 0);
	assert_int_equal(net_here()->n_conns, 0);
}

/* An unanswered SYN-ACK is sent again, once. */
static void test_syn_ack_is_sent_once_more(void **state)
{
	struct segment syn = {.src = 1000,
			      .dst = 7,
			      .seq = 99,
			      .flags = PEER_SYN,
			      .wnd = 65535,
			      .options = (const uint8_t *)"",
			      .data = (const uint8_t *)""};

	serve(close_at_once);
	peer_send_raw(&syn);
	assert_int_equal(sent_in(4), 1);
	jump_clock(HOUR);
	assert_in_range(sent_in(50), 0, 1);
}

/* The clock of lwIP is 32 bits of milliseconds: 49.7 days. */
static void test_clock_may_jump_beyond_32_bits_of_milliseconds(void **state)
{
	unsigned sent[8];

	repair_connect(true, 3 * MSS);
	take_sent(sent, 8);
	jump_clock(50 * 24 * HOUR);
	assert_in_range(sent_in(50), 1, 2);
	ACK(3);
	run_rounds(4);
	assert_null(ours->pcb.unacked);
	assert_int_equal(ended, 0);
	jump_clock(25 * 24 * HOUR);
	peer_send(&peer, PEER_ACK, "still here", 10);
	assert_in_range(sent_in(50), 0, 1);
	run_ms(100);
	assert_int_equal(ended, 0);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_bytes_in_flight_are_resent_in_time),
		T(test_pause_is_not_a_round_trip_sample),
		T(test_shut_window_is_probed_once),
		T(test_idle_connection_stays),
		T(test_keepalive_probes_before_it_gives_up),
		T(test_sleepers_wake_once),
		T(test_deadline_passes_once),
		T(test_time_wait_ends),
		T(test_syn_ack_is_sent_once_more),
		T(test_clock_may_jump_beyond_32_bits_of_milliseconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
