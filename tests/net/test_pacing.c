/*
 * Pacing: in any interval no more leaves than the rate allows plus a burst, and
 * the rate is used. Connections that are not paced.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/link/link.h"
#include "netstack/recovery/recovery_priv.h"
#include "tests/net/bottleneck.h"
#include "tests/net/fake_glue.h"

#define NS_MS	INT64_C(1000000)
#define FOREVER ((size_t)1 << 40)
#define MOST	40000u

static struct {
	int64_t at_ns;
	unsigned bytes;
} log_of[MOST];
static unsigned logged;

static void note_sent(int64_t at_ns, unsigned bytes)
{
	if (logged && log_of[logged - 1].at_ns == at_ns) {
		log_of[logged - 1].bytes += bytes;
		return;
	}
	assert_true(logged < MOST);
	log_of[logged].at_ns = at_ns;
	log_of[logged++].bytes = bytes;
}

/* Checks that every interval between two segments obeys rate and burst. */
static void expect_rate(double rate, double burst)
{
	for (unsigned i = 0; i < logged; i++) {
		double sum = 0;

		for (unsigned k = i; k < logged; k++) {
			double s = (double)(log_of[k].at_ns - log_of[i].at_ns);

			sum += log_of[k].bytes;
			if (sum > rate * s / 1e9 + burst + 1)
				fail_msg("%.0f bytes in %.3f ms", sum, s / 1e6);
		}
	}
}

static unsigned most_at_once(void)
{
	unsigned most = 0;

	for (unsigned i = 0; i < logged; i++)
		if (log_of[i].bytes > most)
			most = log_of[i].bytes;
	return most;
}

/*
 * The same without a log: a bucket that leaks at the rate never holds more than
 * a burst if and only if every interval obeys rate and burst.
 */
static struct {
	double rate, burst, level, most;
	int64_t at_ns;
} bucket;

static void fill_bucket(int64_t at_ns, unsigned bytes)
{
	double s = (double)(at_ns - bucket.at_ns) / 1e9;

	bucket.level -= bucket.rate * s;
	if (bucket.level < 0)
		bucket.level = 0;
	bucket.level += bytes;
	bucket.at_ns = at_ns;
	if (bucket.level > bucket.most)
		bucket.most = bucket.level;
	if (bucket.level > bucket.burst + 1)
		fail_msg("%.0f bytes more than %.0f a second, of %.0f",
			 bucket.level, bucket.rate, bucket.burst);
}

static struct net_conn_stats conn_stats(void)
{
	struct net_conn_stats out;

	assert_int_equal(net_conn_stats(ours, &out), 0);
	return out;
}

static int set_up(void **state)
{
	logged = 0;
	bottleneck_sees = note_sent;
	return peer_listen(state);
}

static int tear_down(void **state)
{
	bottleneck_sees = NULL;
	return peer_teardown(state);
}

static void let_go(void)
{
	net_abort(ours);
	run_rounds(2);
	while (peer_next(&(struct segment){0}))
		;
}

static void cap_is_kept_and_used(double cap, unsigned per_mille)
{
	struct bottleneck path = {.rate = 1e8,
				  .delay_ns = 10 * NS_MS,
				  .queue = 1e6,
				  .per_mille = per_mille};
	double quantum = cap / 1000 > 2.0 * MSS ? cap / 1000 : 2.0 * MSS;

	bottleneck_connect(&path, 0);
	assert_int_equal(net_set_pacing_rate(ours, (uint64_t)cap), 0);
	let_go();
	logged = 0;
	bottleneck_connect(&path, FOREVER);
	bottleneck_run(&path, 1);
	assert_int_equal(net_set_pacing_rate(ours, (uint64_t)cap), 0);
	bottleneck_run(&path, 500); /* the window grows meanwhile */
	logged = 0;
	path.sent = 0;
	bottleneck_run(&path, 2000);
	expect_rate(cap, quantum);
	assert_true((double)path.sent > 0.97 * 2 * cap);
	assert_true(conn_stats().pacing_rate <= (uint64_t)cap);
	assert_true((double)conn_stats().pacing_rate >= 0.999 * cap);
	let_go();
}

static void test_pacing_cap_is_kept_and_used(void **state)
{
	cap_is_kept_and_used(1000000, 0);
}

static void test_small_pacing_cap_is_kept_and_used(void **state)
{
	cap_is_kept_and_used(20000, 0); /* a segment each 50 ms */
}

static void test_pacing_cap_is_kept_during_recovery(void **state)
{
	struct bottleneck path = {.rate = 1e8,
				  .delay_ns = 10 * NS_MS,
				  .queue = 1e6,
				  .per_mille = 20};

	bottleneck_connect(&path, FOREVER);
	assert_int_equal(net_set_pacing_rate(ours, 500000), 0);
	bottleneck_run(&path, 100);
	logged = 0;
	bottleneck_run(&path, 3000);
	assert_true(path.dropped > 10000);
	/* A tail loss probe may add to that. */
	expect_rate(500000, 4.0 * MSS);
	let_go();
}

static uint64_t random_state = 1;

static unsigned draw_between(unsigned from, unsigned to)
{
	random_state = random_state * UINT64_C(6364136223846793005) +
		       UINT64_C(1442695040888963407);
	return from + (unsigned)((random_state >> 33) % (to - from + 1));
}

/*
 * Random rates, segments, round trips, queues and controllers, a stack that is
 * late by up to 30 ms, and losses, after which a probe may add a segment.
 */
static void test_no_interval_has_more_than_its_rate_and_a_burst(void **state)
{
	static const char *const controllers[] = {"cubic", "reno", "bbr"};

	for (unsigned life = 0; life < 48; life++) {
		double cap = draw_between(5, 1000), quantum;
		struct bottleneck path = {
			.rate = 1e8,
			.delay_ns = draw_between(1, 100) * NS_MS,
			.queue = draw_between(20, 4000) * 1000,
			.per_mille = life % 2 ? draw_between(1, 30) : 0,
			.mss = draw_between(536, 1460),
			.late_ms = life % 4 < 2 ? draw_between(1, 30) : 0};

		for (unsigned i = draw_between(0, 2); i > 0; i--)
			cap *= 10; /* 5 KB to 100 MB a second */
		cap *= 1000;
		bottleneck_sees = NULL;
		net_listener_set_cc(listener, controllers[draw_between(0, 2)]);
		bottleneck_connect(&path, 0);
		assert_int_equal(net_set_pacing_rate(ours, (uint64_t)cap), 0);
		quantum = cap / 1000 > 2.0 * path.mss ? cap / 1000
						      : 2.0 * path.mss;
		bucket.rate = cap;
		bucket.burst = quantum + (path.per_mille ? 2.0 * path.mss : 0);
		bucket.level = bucket.most = 0;
		bucket.at_ns = fake_now_ns;
		bottleneck_sees = fill_bucket;
		for (unsigned ms = 0; ms < 1500; ms += 5) {
			static uint8_t data[65535];

			if (draw_between(0, 9)) /* it pauses in some cases */
				net_send(ours, data, draw_between(1, 65535));
			bottleneck_run(&path, 5);
		}
		assert_true(path.sent > 0);
		assert_true(bucket.most >= path.mss); /* bursts are used */
		let_go();
	}
}

/*
 * A tail loss probe is one segment, however large the window is; while paced
 * segments wait there is no probe.
 */
static void test_tail_loss_probe_obeys_pacing(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 5 * NS_MS, .queue = 1e6};

	bottleneck_connect(&path, FOREVER);
	bottleneck_run(&path, 200);
	assert_true(conn_stats().cwnd > 100 * MSS);
	net_set_pacing_rate(ours, 20000);
	bottleneck_run(&path, 500);
	logged = 0;
	path.per_mille = 1000; /* no ACK comes any more */
	bottleneck_run(&path, 300);
	expect_rate(20000, 4.0 * MSS);
	let_go();
}

/* lwIP sends by itself on a close. */
static void test_close_obeys_pacing(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 5 * NS_MS, .queue = 1e6};
	static uint8_t data[30 * MSS];

	bottleneck_connect(&path, 300 * MSS);
	bottleneck_run(&path, 200);
	assert_int_equal(path.delivered, 300 * MSS);
	net_set_pacing_rate(ours, 20000);
	logged = 0;
	for (unsigned i = 0; i < sizeof(data); i += MSS)
		net_send(ours, data, MSS);
	bottleneck_run(&path, 1);
	net_shutdown(ours, NET_SHUT_WR);
	bottleneck_run(&path, 300);
	net_close(ours);
	bottleneck_run(&path, 1500);
	assert_int_equal(path.delivered, 330 * MSS);
	/* The FIN is not acknowledged: it is resent once. */
	expect_rate(20000, 3.0 * MSS);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
}

static void test_pacing_cap_holds_for_small_writes(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 2 * NS_MS, .queue = 1e6};
	static uint8_t data[500];

	bottleneck_connect(&path, 0);
	net_set_pacing_rate(ours, 10000);
	for (unsigned i = 0; i < 400; i++) { /* twice what it may send */
		net_send(ours, data, 100);
		bottleneck_run(&path, 5);
	}
	expect_rate(10000, 2.0 * MSS);
	assert_true(path.sent > 19000);
	let_go();
}

static void test_paced_segments_leave_when_the_cap_is_removed(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 10 * NS_MS, .queue = 1e6};

	bottleneck_connect(&path, 9 * MSS);
	bottleneck_run(&path, 100);
	net_set_pacing_rate(ours, 1000);
	for (unsigned i = 0; i < 8; i++)
		net_send(ours, (uint8_t[MSS]){0}, MSS);
	bottleneck_run(&path, 900);
	assert_int_equal(path.delivered, 11 * MSS);
	assert_int_equal(ours->pcb.persist_steps, 0); /* no shut window */
	net_set_pacing_rate(ours, UINT64_MAX);
	bottleneck_run(&path, 30);
	assert_int_equal(path.delivered, 17 * MSS);
	let_go();
}

/* Its recovery state is freed once the pacing debt is paid off, not before. */
static void test_idle_capped_connection_has_no_recovery_state(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 10 * NS_MS, .queue = 1e6};

	bottleneck_connect(&path, 0);
	net_set_pacing_rate(ours, 1000);
	net_send(ours, (uint8_t[MSS]){0}, MSS);
	net_send(ours, (uint8_t[MSS]){0}, MSS);
	bottleneck_run(&path, 1500);
	assert_int_equal(path.delivered, 2 * MSS);
	assert_true(ours->has_recovery); /* two seconds' worth of the rate has
					    left */
	bottleneck_run(&path, 1000);
	assert_false(ours->has_recovery);
	assert_false(coro_timer_armed(&ours->timer));
	let_go();
}

static void test_slow_start_is_paced_at_twice_the_window(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 40 * NS_MS, .queue = 4e6};

	bottleneck_connect(&path, FOREVER);
	bottleneck_run(&path, 250);
	assert_true(ours->has_recovery);
	assert_true(conn_stats().cwnd > 300 * MSS);
	assert_int_equal((int)(conn_stats().pacing_rate * 40 / 1000 * 10 /
			       conn_stats().cwnd),
			 19); /* the RTT is a little more than 40 ms */
	/*
	 * Each step of a quarter of a millisecond sends its share, not a
	 * window.
	 */
	assert_true(most_at_once() < conn_stats().pacing_rate / 1000);
	let_go();
}

static void test_short_round_trips_are_not_paced(void **state)
{
	struct bottleneck path = {
		.rate = 1e9, .delay_ns = NS_MS / 2, .queue = 4e6};

	bottleneck_connect(&path, FOREVER);
	bottleneck_run(&path, 20);
	assert_true(conn_stats().cwnd > 64 * MSS);
	assert_false(ours->has_recovery);
	assert_int_equal(conn_stats().pacing_rate, 0);
	let_go();
}

static void test_small_exchanges_are_not_paced(void **state)
{
	struct bottleneck path = {
		.rate = 1e8, .delay_ns = 10 * NS_MS, .queue = 4e6};

	bottleneck_connect(&path, 0);
	for (unsigned i = 0; i < 50; i++) {
		net_send(ours, (uint8_t[64]){0}, 64);
		bottleneck_run(&path, 11);
		assert_false(ours->has_recovery);
	}
	let_go();
}

static void test_pacing_calls_refuse_invalid_arguments(void **state)
{
	assert_int_equal(net_set_pacing_rate(NULL, 1), -EBADF);
	assert_int_equal(net_set_cc(NULL, "cubic"), -EBADF);
	assert_int_equal(net_listener_set_cc(NULL, "cubic"), -EBADF);
	assert_int_equal(net_listener_set_cc(listener, NULL), -EINVAL);
	assert_int_equal(net_listener_set_cc(listener, "vegas"), -EINVAL);
	repair_connect(true, 0);
	assert_int_equal(net_set_cc(ours, "vegas"), -EINVAL);
	assert_int_equal(net_set_cc(ours, NULL), -EINVAL);
	assert_int_equal(net_set_cc(ours, "reno"), 0);
	assert_string_equal(conn_stats().cc, "reno");
	peer_send(&peer, PEER_RST, NULL, 0);
	net_link_rx();
	assert_int_equal(net_set_cc(ours, "reno"), -ENOTCONN);
	assert_int_equal(net_set_pacing_rate(ours, 1), -ENOTCONN);
	run_rounds(2);
}

/*
 * Sets up a window of 20 segments that does not grow soon, and queues segs
 * segments.
 */
static void fill_window(unsigned segs)
{
	static const uint8_t data[MSS];

	repair_connect(true, 0);
	assert_int_equal(net_set_cc(ours, "reno"), 0);
	ours->pcb.cwnd = ours->pcb.ssthresh = 20 * MSS;
	assert_true(net_recovery_begin(ours));
	for (unsigned i = 0; i < segs; i++)
		assert_int_equal(net_send(ours, data, MSS), MSS);
	run_ms(2 * RTT_MS);
}

#define CAP 100000u /* bytes a second */

static void send_capped(struct net_conn *conn, void *arg)
{
	static const uint8_t data[20 * MSS];

	ours = conn;
	assert_int_equal(net_set_pacing_rate(conn, CAP), 0);
	net_send_all(conn, data, sizeof(data));
	ended++;
}

/* The stack has repeated its SYN, so that the handshake has measured none. */
static void test_pacing_cap_holds_before_the_first_round_trip(void **state)
{
	struct segment s;
	unsigned sent = 0;

	serve(send_capped);
	peer_open(&peer, 99, (const uint8_t *)"\2\4\3\350", 4);
	run_ms(1500);
	assert_true(peer_next(&s));
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned ms = 0; ms < 50; ms++) {
		run_ms(1);
		while (peer_next(&s))
			sent += s.len;
	}
	assert_int_equal(ours->srtt_us, 0);
	assert_in_range(sent, CAP / 20, CAP / 20 + 3 * MSS);
	net_abort(ours);
	run_rounds(2);
}

static unsigned sent_now(void)
{
	struct segment s;
	unsigned n = 0;

	while (peer_next(&s))
		n += s.len != 0;
	return n;
}

/* Returns the window after two simultaneous ACKs. */
static uint32_t window_after(unsigned segs)
{
	uint32_t window;

	fill_window(segs);
	segs = segs < 20 ? segs : 20;
	ACK(segs - 4);
	ACK(segs);
	window = ours->recovery->cwnd;
	let_go();
	return window;
}

/*
 * Pacing sends little between the ACKs, so that the second one finds the window
 * not in use. It was in use when the acknowledged segments left.
 */
static void test_full_window_grows_while_pacing_refills_it(void **state)
{
	assert_int_equal(window_after(24), 21 * MSS);
	assert_int_equal(window_after(16), 20 * MSS);
}

/*
 * 1.2 windows a round trip are 1.2 segments a millisecond. An ACK of twelve
 * segments lets four leave at once; a late thread then sends the five or six
 * that pacing would have allowed meanwhile.
 */
static void test_ack_of_many_segments_causes_no_burst(void **state)
{
	fill_window(32);
	assert_int_equal(sent_now(), 20);
	ACK(12);
	assert_int_equal(sent_now(), 4);
	fake_now_ns += 5 * NS_MS;
	run_rounds(1);
	assert_in_range(sent_now(), 5, 6);
	run_ms(10);
	assert_in_range(sent_now(), 2, 3);
	let_go();
}

/*
 * With nothing in flight a burst of ten may leave, so a short answer leaves at
 * once.
 */
static void test_a_burst_may_leave_after_a_pause(void **state)
{
	static const uint8_t data[12 * MSS];

	fill_window(20);
	assert_int_equal(sent_now(), 20);
	ACK(20);
	assert_int_equal(net_send(ours, data, sizeof(data)), sizeof(data));
	run_rounds(1);
	assert_int_equal(sent_now(), 10);
	let_go();
}

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_pacing_cap_is_kept_and_used),
		T(test_small_pacing_cap_is_kept_and_used),
		T(test_pacing_cap_is_kept_during_recovery),
		T(test_no_interval_has_more_than_its_rate_and_a_burst),
		T(test_tail_loss_probe_obeys_pacing),
		T(test_close_obeys_pacing),
		T(test_pacing_cap_holds_for_small_writes),
		T(test_pacing_cap_holds_before_the_first_round_trip),
		T(test_paced_segments_leave_when_the_cap_is_removed),
		T(test_idle_capped_connection_has_no_recovery_state),
		T(test_slow_start_is_paced_at_twice_the_window),
		T(test_short_round_trips_are_not_paced),
		T(test_small_exchanges_are_not_paced),
		T(test_pacing_calls_refuse_invalid_arguments),
		T(test_full_window_grows_while_pacing_refills_it),
		T(test_ack_of_many_segments_causes_no_burst),
		T(test_a_burst_may_leave_after_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
