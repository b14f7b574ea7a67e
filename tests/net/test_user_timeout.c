/*
 * net_set_user_timeout(): a peer that vanishes, one that keeps its window
 * closed, one that is silent with keepalive; and connections that it does not
 * end. The round trip takes 20 ms, so that the first timeout comes after about
 * 140.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define TIMEOUT_MS 3000u

static long read_result;

static void read_to_end(struct net_conn *conn, void *arg)
{
	struct net_view view;

	ours = conn;
	while ((read_result = net_recv_view(conn, &view)) > 0)
		net_view_release(conn, &view);
	ended++;
}

static int set_up(void **state)
{
	int err = peer_listen(state);

	read_result = 12345;
	ended = 0;
	ours = NULL;
	return err;
}

static void connect_with(unsigned timeout_ms, uint16_t wnd)
{
	serve(read_to_end);
	peer_open(&peer, 99, (const uint8_t *)"\2\4\3\350", 4);
	run_ms(RTT_MS);
	peer.wnd = wnd;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(ours);
	assert_int_equal(net_set_user_timeout(ours, timeout_ms), 0);
}

static void swallow(void)
{
	while (peer_next(&(struct segment){0}))
		;
}

/* Runs until the connection ends; calls `answer` each 100 ms. */
static unsigned run_until_ended(unsigned most_ms, void (*answer)(void))
{
	unsigned ms = 0;

	for (; ms < most_ms && !ended; ms++) {
		run_ms(1);
		swallow();
		if (answer && ms % 100 == 0)
			answer();
	}
	return ms;
}

static void ack_all(void)
{
	peer.rcv = ours->pcb.snd_nxt;
	peer_send(&peer, PEER_ACK, NULL, 0);
}

static void say_shut(void)
{
	peer_send(&peer, PEER_ACK, NULL, 0);
}

static void send_more(void)
{
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
}

/* ---- waiting for an ACK ---- */

#define HALF_HOUR_MS 1800000u

static void test_user_timeout_gives_up_a_vanished_peer(void **state)
{
	unsigned ms;

	connect_with(TIMEOUT_MS, 65535);
	net_send(ours, "hello", 5);
	ms = run_until_ended(60000, NULL);
	assert_int_equal(read_result, -ETIMEDOUT);
	assert_in_range(ms, TIMEOUT_MS + 100, TIMEOUT_MS + 300);
	assert_int_equal(net_here()->stats.timed_out, 1);
}

/* The peer sends data, but acknowledges nothing. */
static void test_data_of_the_peer_does_not_reset_the_user_timeout(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	net_send(ours, "hello", 5);
	assert_in_range(run_until_ended(60000, send_more), TIMEOUT_MS + 100,
			TIMEOUT_MS + 300);
	assert_int_equal(read_result, -ETIMEDOUT);
}

static void change_window(void)
{
	peer.wnd ^= 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
}

static void
test_window_of_the_peer_does_not_reset_the_user_timeout(void **state)
{
	connect_with(TIMEOUT_MS, 1000);
	net_send(ours, "hello", 5);
	assert_in_range(run_until_ended(60000, change_window), TIMEOUT_MS + 100,
			TIMEOUT_MS + 300);
	assert_int_equal(read_result, -ETIMEDOUT);
}

/* Data is lost and resent repeatedly, but finally acknowledged. */
static void test_progress_restarts_the_user_timeout(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	for (unsigned i = 0; i < 10; i++) {
		net_send(ours, "hello", 5);
		run_until_ended(1500, NULL);
		ack_all();
		run_rounds(2);
		swallow();
	}
	assert_int_equal(ended, 0);
}

/* TCP's own bound would be five to eight minutes. */
static void test_user_timeout_may_be_longer_than_tcps_own_bound(void **state)
{
	unsigned ms;

	connect_with(HALF_HOUR_MS, 65535);
	net_send(ours, "hello", 5);
	ms = run_until_ended(2 * HALF_HOUR_MS, NULL);
	assert_int_equal(read_result, -ETIMEDOUT);
	assert_in_range(ms, HALF_HOUR_MS + 100, HALF_HOUR_MS + 300);
}

static void
test_user_timeout_of_an_orphan_is_no_longer_than_tcps_own(void **state)
{
	connect_with(HALF_HOUR_MS, 65535);
	net_send(ours, "hello", 5);
	run_ms(100);
	assert_int_equal(net_cancel(ours), 0);
	run_until_ended(1000, NULL);
	assert_int_equal(net_here()->n_conns, 1);
	for (unsigned ms = 0; ms < HALF_HOUR_MS / 3; ms += 100) {
		run_ms(100);
		swallow();
	}
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_connection_without_a_user_timeout_lasts_longer(void **state)
{
	connect_with(0, 65535);
	net_send(ours, "hello", 5);
	assert_int_equal(run_until_ended(60000, NULL), 60000);
	assert_int_equal(ended, 0);
}

static void test_an_idle_connection_is_not_given_up(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	net_send(ours, "hello", 5);
	run_ms(RTT_MS);
	ack_all();
	run_until_ended(60000, NULL);
	assert_int_equal(ended, 0);
	assert_false(coro_timer_armed(&ours->timer));
}

/* The first answer is in flight: no retransmission was needed. */
static void test_short_user_timeout_waits_for_the_first_ack(void **state)
{
	connect_with(10, 65535);
	net_send(ours, "hello", 5);
	run_ms(RTT_MS);
	ack_all();
	run_ms(1000);
	assert_int_equal(ended, 0);
}

static void test_user_timeout_may_be_removed(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	net_send(ours, "hello", 5);
	run_until_ended(1000, NULL);
	assert_int_equal(net_set_user_timeout(ours, 0), 0);
	run_until_ended(20000, NULL);
	assert_int_equal(ended, 0);
	/* Set again after it has waited for longer: the connection ends. */
	assert_int_equal(net_set_user_timeout(ours, TIMEOUT_MS), 0);
	run_ms(30);
	assert_int_equal(read_result, -ETIMEDOUT);
}

/* The first user timeout of a connection cannot know when the wait began. */
static void test_first_user_timeout_counts_from_the_call(void **state)
{
	run_ms(2 * TIMEOUT_MS); /* the clock is not near 0 */
	connect_with(0, 65535);
	net_send(ours, "hello", 5);
	run_until_ended(1000, NULL);
	assert_int_equal(net_set_user_timeout(ours, TIMEOUT_MS), 0);
	assert_in_range(run_until_ended(60000, NULL), TIMEOUT_MS - 10,
			TIMEOUT_MS + 300);
	assert_int_equal(read_result, -ETIMEDOUT);
}

/* ---- a closed window ---- */

static void
test_first_user_timeout_of_a_closed_window_counts_from_the_call(void **state)
{
	run_ms(2 * TIMEOUT_MS);
	connect_with(0, 0);
	net_send(ours, "hello", 5);
	run_until_ended(1000, say_shut);
	assert_int_equal(net_set_user_timeout(ours, TIMEOUT_MS), 0);
	assert_in_range(run_until_ended(60000, say_shut), TIMEOUT_MS - 10,
			TIMEOUT_MS + 300);
	assert_int_equal(read_result, -ETIMEDOUT);
}

static void
test_user_timeout_ends_a_connection_with_a_closed_window(void **state)
{
	unsigned ms;

	connect_with(TIMEOUT_MS, 0);
	net_send(ours, "hello", 5);
	ms = run_until_ended(60000, say_shut);
	assert_int_equal(read_result, -ETIMEDOUT);
	assert_in_range(ms, TIMEOUT_MS - 10, TIMEOUT_MS + 300);
}

static void test_closed_window_is_probed_without_a_user_timeout(void **state)
{
	connect_with(0, 0);
	net_send(ours, "hello", 5);
	run_until_ended(60000, say_shut);
	assert_int_equal(ended, 0);
}

static void test_opening_window_restarts_the_user_timeout(void **state)
{
	connect_with(TIMEOUT_MS, 0);
	net_send(ours, "hello", 5);
	run_until_ended(2000, say_shut);
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	swallow();
	ack_all();
	run_until_ended(10000, NULL);
	assert_int_equal(ended, 0);
}

/* It opens for a byte, which is not acknowledged, and shuts again. */
static void test_alternating_window_does_not_reset_the_user_timeout(void **st)
{
	connect_with(TIMEOUT_MS, 0);
	net_send(ours, "hello", 5);
	assert_in_range(run_until_ended(60000, change_window), TIMEOUT_MS - 10,
			2 * TIMEOUT_MS + 500);
	assert_int_equal(read_result, -ETIMEDOUT);
}

/* When it opens, the first transmission is lost. */
static void test_data_after_a_closed_window_has_the_whole_timeout(void **state)
{
	connect_with(TIMEOUT_MS, 0);
	net_send(ours, "hello", 5);
	run_until_ended(TIMEOUT_MS - 100, say_shut);
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_until_ended(TIMEOUT_MS - 500, NULL);
	ack_all();
	run_until_ended(10000, NULL);
	assert_int_equal(ended, 0);
}

/* ---- keepalive ---- */

static void test_user_timeout_replaces_the_keepalive_count(void **state)
{
	unsigned ms;

	connect_with(10000, 65535);
	assert_int_equal(net_set_keepalive(ours, 1, 1, 2), 0);
	ms = run_until_ended(60000, NULL);
	assert_int_equal(read_result, -ETIMEDOUT);
	assert_in_range(ms, 9900, 10300); /* two probes would be 3 s */
}

static void test_user_timeout_ends_before_many_keepalive_probes(void **state)
{
	unsigned ms;

	connect_with(TIMEOUT_MS, 65535);
	assert_int_equal(net_set_keepalive(ours, 1, 1, 100), 0);
	ms = run_until_ended(60000, NULL);
	assert_int_equal(read_result, -ETIMEDOUT);
	assert_in_range(ms, TIMEOUT_MS - 100, TIMEOUT_MS + 300);
}

static void test_peer_that_answers_probes_is_not_timed_out(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	assert_int_equal(net_set_keepalive(ours, 1, 1, 2), 0);
	run_until_ended(60000, say_shut);
	assert_int_equal(ended, 0);
}

/* Answers a keepalive probe half a second after it was sent. */
static void test_user_timeout_below_the_idle_time_awaits_answers(void **state)
{
	unsigned wait_ms = 0, answered = 0;

	connect_with(TIMEOUT_MS, 65535);
	assert_int_equal(net_set_keepalive(ours, 10, 5, 3), 0);
	for (unsigned ms = 0; ms < 60000 && !ended; ms++) {
		run_ms(1);
		if (peer_next(&(struct segment){0}))
			wait_ms = 500;
		if (wait_ms && --wait_ms == 0) {
			say_shut();
			answered++;
		}
	}
	assert_int_equal(ended, 0);
	assert_in_range(answered, 5, 6);
}

/* As on Linux: when the next probe would be due. */
static void test_user_timeout_below_the_idle_time_ends_a_silent_peer(void **st)
{
	connect_with(TIMEOUT_MS, 65535);
	assert_int_equal(net_set_keepalive(ours, 10, 5, 3), 0);
	assert_in_range(run_until_ended(60000, NULL), 14900, 15300);
	assert_int_equal(read_result, -ETIMEDOUT);
}

/* The peer that was not asked before has an interval in which to answer. */
static void test_keepalive_set_late_asks_before_it_gives_up(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	run_until_ended(30000, NULL);
	assert_int_equal(net_set_keepalive(ours, 10, 5, 3), 0);
	assert_in_range(run_until_ended(60000, NULL), 4900, 5300);
	assert_int_equal(read_result, -ETIMEDOUT);
}

static void test_pause_of_the_process_is_not_silence_of_the_peer(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	assert_int_equal(net_set_keepalive(ours, 10, 5, 3), 0);
	run_until_ended(10500, NULL); /* a probe was sent */
	assert_int_equal(ours->pcb.keep_cnt_sent, 1);
	fake_now_ns += INT64_C(1000000000) * 3600;
	run_rounds(2);
	assert_true(peer_next(&(struct segment){0}));
	say_shut();
	run_until_ended(9000, NULL);
	assert_int_equal(ended, 0);
}

static void test_user_timeout_outlasts_255_keepalive_probes(void **state)
{
	unsigned ms, probes = 0;

	connect_with(400000, 65535);
	assert_int_equal(net_set_keepalive(ours, 1, 1, 1), 0);
	for (ms = 0; ms < 600000 && !ended; ms++) {
		run_ms(1);
		while (peer_next(&(struct segment){0}))
			probes++;
	}
	assert_int_equal(read_result, -ETIMEDOUT);
	assert_in_range(ms, 399900, 401300);
	assert_in_range(probes, 398, 402);
}

/* ---- the call ---- */

static void test_invalid_user_timeouts_are_refused(void **state)
{
	connect_with(TIMEOUT_MS, 65535);
	assert_int_equal(net_set_user_timeout(NULL, 1), -EBADF);
	assert_int_equal(net_set_user_timeout(ours, 2000000001u), -EINVAL);
	assert_int_equal(net_set_user_timeout(ours, 2000000000u), 0);
	net_send(ours, "hello", 5);
	run_until_ended(30000, NULL);
	assert_int_equal(ended, 0);
}

static void test_failed_allocation_is_survived(void **state)
{
	connect_with(0, 65535);
	net_mem_fail_after(1);
	assert_int_equal(net_set_user_timeout(ours, 1), -ENOMEM);
	net_mem_fail_after(0);
	assert_int_equal(net_set_user_timeout(ours, 1), 0);
}

static void *poll_it(void *arg)
{
	struct net_poll_item item = {.conn = ours, .events = NET_WRITABLE << 9};

	item.events = 0;
	result = net_poll(&item, 1, CORO_FOREVER);
	got_len = item.revents;
	return NULL;
}

/* A poller is queued on an object that the call replaces by a larger one. */
static void test_user_timeout_may_be_set_during_a_poll(void **state)
{
	connect_with(0, 65535);
	assert_true(net_spawn(stack, "poll", poll_it, NULL) == 0);
	run_rounds(2);
	assert_int_equal(net_set_user_timeout(ours, TIMEOUT_MS), 0);
	net_send(ours, "hello", 5);
	run_until_ended(60000, NULL);
	run_rounds(2);
	assert_int_equal(result, 1);
	assert_true(got_len & (NET_FAILED | NET_GONE));
}

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_user_timeout_gives_up_a_vanished_peer),
		T(test_data_of_the_peer_does_not_reset_the_user_timeout),
		T(test_window_of_the_peer_does_not_reset_the_user_timeout),
		T(test_progress_restarts_the_user_timeout),
		T(test_user_timeout_may_be_longer_than_tcps_own_bound),
		T(test_user_timeout_of_an_orphan_is_no_longer_than_tcps_own),
		T(test_connection_without_a_user_timeout_lasts_longer),
		T(test_an_idle_connection_is_not_given_up),
		T(test_short_user_timeout_waits_for_the_first_ack),
		T(test_user_timeout_may_be_removed),
		T(test_first_user_timeout_counts_from_the_call),
		T(test_first_user_timeout_of_a_closed_window_counts_from_the_call),
		T(test_user_timeout_ends_a_connection_with_a_closed_window),
		T(test_closed_window_is_probed_without_a_user_timeout),
		T(test_opening_window_restarts_the_user_timeout),
		T(test_alternating_window_does_not_reset_the_user_timeout),
		T(test_data_after_a_closed_window_has_the_whole_timeout),
		T(test_user_timeout_replaces_the_keepalive_count),
		T(test_user_timeout_ends_before_many_keepalive_probes),
		T(test_peer_that_answers_probes_is_not_timed_out),
		T(test_user_timeout_below_the_idle_time_awaits_answers),
		T(test_user_timeout_below_the_idle_time_ends_a_silent_peer),
		T(test_keepalive_set_late_asks_before_it_gives_up),
		T(test_pause_of_the_process_is_not_silence_of_the_peer),
		T(test_user_timeout_outlasts_255_keepalive_probes),
		T(test_invalid_user_timeouts_are_refused),
		T(test_failed_allocation_is_survived),
		T(test_user_timeout_may_be_set_during_a_poll),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
