/*
 * Congestion controllers, each alone, against traces computed by hand: the test
 * reports ACKs and losses to a connection's recovery state, and sets the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/bbr.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

static struct net_recovery *rec;

/* Sets up an idle connection with this controller and window. */
static void begin_round(const char *cc, unsigned segs)
{
	repair_connect(true, 0);
	net_cc_choose(ours, (unsigned)net_cc_number(cc));
	ours->pcb.cwnd = segs * MSS;
	assert_true(net_recovery_begin(ours));
	rec = ours->recovery;
	ours->pcb.snd_nxt += 8 * MSS; /* a round is in flight */
	assert_string_equal(rec->cc->name, cc);
}

static void end_round(void)
{
	ours->pcb.snd_nxt = ours->pcb.lastack;
	net_recovery_free(ours);
}

static void advance_to_ms(uint32_t ms)
{
	net_here()->now_us = NET_MS(ms);
}

/* Reports an ACK of so many segments while the window is in use. */
static void ack_segments(unsigned segs, unsigned rtt_ms)
{
	struct net_ack ack = {.una = ours->pcb.lastack,
			      .acked = segs * MSS,
			      .delivered = segs * MSS,
			      .limited = true,
			      .has_rtt = rtt_ms != 0,
			      .rtt_us = NET_MS(rtt_ms)};

	rec->cc->on_ack(ours, &ack);
}

static void lose_segment(void)
{
	rec->undo_cwnd = rec->cwnd;
	rec->undo_ssthresh = ours->pcb.ssthresh;
	rec->cc->on_loss(ours);
	rec->state = NET_RECOVERY_RECOVERY;
	rec->cc->on_recovered(ours);
	rec->state = NET_RECOVERY_OPEN;
}

/* ---- Reno ---- */

/*
 * RFC 5681 3.1: the window halves at a loss, then grows by a segment per
 * window.
 */
static void test_reno_halves_and_adds_a_segment_a_window(void **state)
{
	begin_round("reno", 20);
	ours->pcb.ssthresh = 20 * MSS;
	lose_segment();
	assert_int_equal(rec->cwnd, 10 * MSS);
	assert_int_equal(ours->pcb.ssthresh, 10 * MSS);
	for (unsigned i = 0; i < 9; i++)
		ack_segments(1, 0);
	assert_int_equal(rec->cwnd, 10 * MSS);
	ack_segments(1, 0);
	assert_int_equal(rec->cwnd, 11 * MSS);
	for (unsigned i = 0; i < 5; i++)
		ack_segments(2, 0);
	assert_int_equal(rec->cwnd, 11 * MSS);
	ack_segments(1, 0);
	assert_int_equal(rec->cwnd, 12 * MSS);
	end_round();
}

static void test_no_window_is_cut_below_two_segments(void **state)
{
	static const char *const names[] = {"reno", "cubic"};

	for (unsigned i = 0; i < 2; i++) {
		begin_round(names[i], 2);
		lose_segment();
		assert_int_equal(ours->pcb.ssthresh, 2 * MSS);
		assert_int_equal(rec->cwnd, 2 * MSS);
		end_round();
		peer_teardown(state);
		peer_listen(state);
	}
}

static void test_an_undone_cut_leaves_the_window_as_it_was(void **state)
{
	static const char *const names[] = {"reno", "cubic"};

	for (unsigned i = 0; i < 2; i++) {
		begin_round(names[i], 40);
		lose_segment();
		rec->cc->on_undo(ours);
		assert_int_equal(rec->cwnd, 40 * MSS);
		assert_int_equal(ours->pcb.ssthresh, 1u << 30);
		end_round();
		peer_teardown(state);
		peer_listen(state);
	}
}

/* ---- CUBIC ---- */

/*
 * RFC 9438 4.2 with W_max = 100 segments: 70 remain, K is the cube root of 30 /
 * 0.4, 4.217 s. At K the window is W_max again, and 0.4 segments beyond it a
 * second later. SRTT is 0, since the curve does not depend on the round trip.
 */
static void test_cubic_reaches_w_max_after_k_seconds(void **state)
{
	begin_round("cubic", 100);
	ours->pcb.ssthresh = 100 * MSS;
	ours->srtt_us = 0;
	advance_to_ms(1000);
	lose_segment();
	assert_int_equal(rec->cwnd, 70 * MSS);
	for (unsigned ms = 0; ms <= 4217; ms += 17) {
		advance_to_ms(1000 + ms);
		rec->cubic.w_est = 0; /* disables the Reno-friendly region */
		ack_segments(20, 0);
	}
	assert_in_range(rec->cubic.k * 1000, 4216, 4218);
	assert_in_range(rec->cwnd, 9980 * MSS / 100, 10001 * MSS / 100);
	for (unsigned ms = 4217; ms <= 5217; ms += 17) {
		advance_to_ms(1000 + ms);
		rec->cubic.w_est = 0;
		ack_segments(20, 0);
	}
	assert_in_range(rec->cwnd, 10020 * MSS / 100, 10041 * MSS / 100);
	end_round();
}

/*
 * 30,000 segments, each acknowledged by itself: an ACK adds less than a byte,
 * and less than a float of that magnitude can represent. A window a second
 * follows the curve by W' = 0.4 t^3 - W, which is 1.125 segments after two: 0.4
 * (t^3 - 3 t^2 + 6 t - 6 + 6 e^-t).
 */
static void test_cubic_grows_a_large_window(void **state)
{
	uint32_t before = 0;

	begin_round("cubic", 30000);
	ours->pcb.ssthresh = 30000 * MSS;
	ours->srtt_us = 0;
	for (unsigned i = 0; i <= 60000; i++) {
		advance_to_ms(1000 + i / 30);
		rec->cubic.w_est = 0;
		ack_segments(1, 0);
		if (i == 0)
			before = rec->cwnd;
	}
	assert_in_range(rec->cwnd - before, 1115, 1130);
	end_round();
}

/*
 * 4.3: growth of 0.529 segments per window, if that is more than the curve's.
 */
static void test_cubic_is_no_slower_than_reno(void **state)
{
	begin_round("cubic", 10);
	ours->pcb.ssthresh = 10 * MSS;
	advance_to_ms(1000);
	lose_segment();
	assert_int_equal(rec->cwnd, 7 * MSS);
	for (unsigned i = 0; i < 7; i++)
		ack_segments(1, 0); /* at one time: the curve does not grow */
	assert_in_range(rec->cwnd, 7500, 7530);
	end_round();
}

/* 4.7: a flow that loses before it reaches W_max leaves more to others. */
static void test_cubic_converges_fast(void **state)
{
	begin_round("cubic", 100);
	lose_segment();
	assert_in_range(rec->cubic.w_max * 100, 9999, 10001);
	lose_segment();
	assert_in_range(rec->cubic.w_max * 100, 5949, 5951); /* 70 * 0.85 */
	assert_int_equal(rec->cwnd, 49 * MSS);
	end_round();
}

/* 5.8: the curve does not grow while the application is the limit. */
static void test_cubic_waits_while_its_window_is_not_used(void **state)
{
	struct net_ack ack = {.acked = MSS, .since_us = NET_MS(1000)};

	begin_round("cubic", 100);
	ours->pcb.ssthresh = 100 * MSS;
	advance_to_ms(1000);
	lose_segment();
	ack_segments(1, 0);
	advance_to_ms(9000);
	ack.una = ours->pcb.lastack;
	rec->cc->on_ack(ours, &ack);
	assert_int_equal(rec->cubic.epoch_us, NET_MS(9000));
	assert_in_range(rec->cwnd, 70 * MSS, 70 * MSS + MSS);
	end_round();
}

/* ---- slow start, HyStart++ ---- */

/* Runs n rounds of eight ACKs of a segment each, with this round trip. */
static void rounds(unsigned n, unsigned rtt_ms)
{
	while (n--) {
		for (unsigned i = 0; i < 7; i++)
			ack_segments(1, rtt_ms);
		ours->pcb.snd_nxt += 8 * MSS; /* a round later it is acked */
		ours->pcb.lastack = rec->hystart.end;
		ack_segments(1, rtt_ms);
	}
}

static void test_slow_start_doubles_while_the_round_trip_stays(void **state)
{
	begin_round("cubic", 10);
	rounds(5, 20);
	assert_int_equal(rec->cwnd, 50 * MSS);
	rounds(3, 23); /* less than 4 ms more: jitter */
	assert_int_equal(rec->cwnd, 74 * MSS);
	assert_false(rec->hystart.conservative);
	assert_int_equal(ours->pcb.ssthresh, 1u << 30);
	end_round();
}

/*
 * RFC 9406 4.2: 20 ms and then 24 is a delay that has grown by the least
 * threshold. From the eighth sample on the window grows by a quarter, for five
 * rounds; then slow start is over.
 */
static void test_slow_start_ends_when_round_trips_grow(void **state)
{
	begin_round("reno", 10);
	rounds(3, 20);
	assert_int_equal(rec->cwnd, 34 * MSS);
	rounds(1, 24);
	assert_true(rec->hystart.conservative);
	assert_int_equal(rec->cwnd, 41 * MSS + MSS / 4);
	rounds(3, 24);
	assert_int_equal(ours->pcb.ssthresh, 1u << 30);
	assert_int_equal(rec->cwnd, 47 * MSS + MSS / 4);
	rounds(1, 24);
	assert_int_equal(rec->cwnd, 49 * MSS + MSS / 4);
	assert_in_range(ours->pcb.ssthresh, 49 * MSS, 49 * MSS + MSS / 4);
	end_round();
}

/* An eighth of 80 ms is 10; of 400 ms it would be 50, and 16 is the most. */
static void
test_hystart_threshold_is_an_eighth_of_the_rtt_within_bounds(void **state)
{
	begin_round("cubic", 10);
	rounds(2, 80);
	rounds(1, 89);
	assert_false(rec->hystart.conservative);
	rounds(1, 101);
	assert_true(rec->hystart.conservative);
	end_round();
	peer_teardown(state);
	peer_listen(state);
	begin_round("cubic", 10);
	rounds(2, 400);
	rounds(1, 417);
	assert_true(rec->hystart.conservative);
	end_round();
}

static void test_slow_start_resumes_after_jitter(void **state)
{
	begin_round("cubic", 10);
	rounds(2, 20);
	rounds(2, 30);
	assert_true(rec->hystart.conservative);
	rounds(1, 25); /* less than when it began */
	assert_false(rec->hystart.conservative);
	rounds(4, 25);
	assert_int_equal(ours->pcb.ssthresh, 1u << 30);
	end_round();
}

/* Fewer than eight samples are not enough. */
static void test_few_samples_end_no_slow_start(void **state)
{
	begin_round("cubic", 10);
	rounds(2, 20);
	for (unsigned round = 0; round < 8; round++) {
		for (unsigned i = 0; i < 6; i++)
			ack_segments(1, 60 + 20 * round);
		ours->pcb.snd_nxt += 8 * MSS;
		ours->pcb.lastack = rec->hystart.end;
		ack_segments(1, 60 + 20 * round);
		assert_false(rec->hystart.conservative);
	}
	end_round();
}

/* After a loss slow start continues to ssthresh, even if round trips grow. */
static void test_hystart_applies_to_the_first_slow_start_only(void **state)
{
	begin_round("cubic", 10);
	ours->pcb.ssthresh = 1000 * MSS;
	rounds(2, 20);
	rounds(6, 200);
	assert_int_equal(rec->cwnd, 74 * MSS);
	assert_int_equal(ours->pcb.ssthresh, 1000 * MSS);
	end_round();
}

/* ---- the window after a pause ---- */

static void test_window_halves_for_each_idle_rto(void **state)
{
	begin_round("cubic", 100);
	ours->pcb.ssthresh = 50 * MSS;
	rec->cc->on_idle(ours, 1);
	assert_int_equal(rec->cwnd, 50 * MSS);
	assert_int_equal(ours->pcb.ssthresh, 75 * MSS);
	rec->cc->on_idle(ours, 2);
	assert_int_equal(rec->cwnd, 12500);
	rec->cc->on_idle(ours, 40);
	assert_int_equal(rec->cwnd, 10 * MSS);
	assert_int_equal(ours->pcb.ssthresh, 75 * MSS);
	rec->cwnd = 3 * MSS; /* a window below the initial one stays */
	rec->cc->on_idle(ours, 5);
	assert_int_equal(rec->cwnd, 3 * MSS);
	end_round();
}

/*
 * The curve does not advance during the pause: it starts at 70 segments, one
 * second in, not 60.
 */
static void test_cubic_curve_restarts_after_a_pause(void **state)
{
	begin_round("cubic", 100);
	ours->pcb.ssthresh = 100 * MSS;
	advance_to_ms(1000);
	lose_segment();
	ack_segments(1, 0);
	advance_to_ms(61000);
	rec->cc->on_idle(ours, 1);
	rec->cwnd = 70 * MSS;
	ack_segments(1, 0);
	assert_int_equal(rec->cubic.epoch_us, NET_MS(61000));
	assert_in_range(rec->cwnd, 70 * MSS, 70 * MSS + MSS);
	end_round();
}

/* ---- pacing rates ---- */

/* 40 segments in 20 ms are 2 MB/s: twice that below half of ssthresh. */
static void test_loss_based_pacing_rate_follows_the_window(void **state)
{
	begin_round("cubic", 40);
	ours->srtt_us = NET_MS(20) << 3;
	ours->pcb.ssthresh = 100 * MSS;
	assert_in_range(net_pacing_rate(ours), 3999000, 4001500);
	ours->pcb.ssthresh = 80 * MSS;
	assert_in_range(net_pacing_rate(ours), 2399000, 2401000);
	net_pacing_set_cap(ours, 1000000);
	assert_in_range(net_pacing_rate(ours), 999000, 1000000);
	net_pacing_set_cap(ours, 0);
	assert_in_range(net_pacing_rate(ours), 2399000, 2401000);
	end_round();
}

static void test_rate_cap_is_accurate_to_a_thousandth(void **state)
{
	begin_round("cubic", 40);
	ours->srtt_us = 0; /* no rate but the cap */
	for (double cap = 1; cap < 4e12; cap *= 1.37) {
		uint64_t whole = (uint64_t)cap;

		net_pacing_set_cap(ours, whole);
		assert_true(net_pacing_rate(ours) <= (double)whole);
		assert_true(net_pacing_rate(ours) >= (double)whole * 0.999);
	}
	net_pacing_set_cap(ours, UINT64_MAX);
	assert_true(net_pacing_rate(ours) == 0);
	end_round();
}

/* ---- choosing ---- */

static void test_controller_may_change_with_segments_in_flight(void **state)
{
	unsigned sent[64];

	repair_connect(true, 60 * MSS);
	take_sent(sent, 64);
	run_ms(RTT_MS);
	ACK(10);
	take_sent(sent, 64);
	net_cc_choose(ours, (unsigned)net_cc_number("bbr"));
	run_ms(RTT_MS);
	take_sent(sent, 64);
	ACK(20);
	assert_true(ours->has_recovery);
	assert_string_equal(ours->recovery->cc->name, "bbr");
	net_cc_choose(ours, (unsigned)net_cc_number("reno"));
	assert_string_equal(ours->recovery->cc->name, "reno");
	take_sent(sent, 64);
	run_ms(RTT_MS);
	take_sent(sent, 64);
	ACK(60);
	assert_int_equal(result, 60 * MSS);
}

/* Without memory for BBR's model the connection uses CUBIC. */
static void test_bbr_without_memory_falls_back_to_cubic(void **state)
{
	repair_connect(true, 0);
	net_cc_choose(ours, (unsigned)net_cc_number("bbr"));
	net_mem_fail_after(2);
	assert_true(net_recovery_begin(ours));
	net_mem_fail_after(0);
	assert_string_equal(ours->recovery->cc->name, "cubic");
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_reno_halves_and_adds_a_segment_a_window),
		T(test_no_window_is_cut_below_two_segments),
		T(test_an_undone_cut_leaves_the_window_as_it_was),
		T(test_cubic_reaches_w_max_after_k_seconds),
		T(test_cubic_grows_a_large_window),
		T(test_cubic_is_no_slower_than_reno),
		T(test_cubic_converges_fast),
		T(test_cubic_waits_while_its_window_is_not_used),
		T(test_slow_start_doubles_while_the_round_trip_stays),
		T(test_slow_start_ends_when_round_trips_grow),
		T(test_hystart_threshold_is_an_eighth_of_the_rtt_within_bounds),
		T(test_slow_start_resumes_after_jitter),
		T(test_few_samples_end_no_slow_start),
		T(test_hystart_applies_to_the_first_slow_start_only),
		T(test_window_halves_for_each_idle_rto),
		T(test_cubic_curve_restarts_after_a_pause),
		T(test_loss_based_pacing_rate_follows_the_window),
		T(test_rate_cap_is_accurate_to_a_thousandth),
		T(test_controller_may_change_with_segments_in_flight),
		T(test_bbr_without_memory_falls_back_to_cubic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
