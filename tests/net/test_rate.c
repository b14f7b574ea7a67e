/*
 * Delivery rate samples against traces computed by hand: the test reports sent
 * and delivered segments to a connection's recovery state, and sets the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/bbr.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

static struct net_rate *rate;
static struct net_rate_sample rs;

/*
 * Sets up a connection with a round trip of 20 ms and nothing in flight, at 1
 * s.
 */
static void begin_rate(void)
{
	repair_connect(true, 0);
	ours->cc = (unsigned)net_cc_number("bbr") & 3;
	net_here()->now_us = NET_MS(1000);
	assert_true(net_recovery_begin(ours));
	rate = net_rate_of(ours);
	assert_non_null(rate);
	ours->pcb.min_rtt_us = NET_MS(20);
	ours->srtt_us = NET_MS(20) << 3;
}

static void end_rate(void)
{
	ours->pcb.snd_nxt = ours->pcb.lastack;
	net_recovery_free(ours);
}

static void advance_to_ms(uint32_t ms)
{
	net_here()->now_us = NET_MS(ms);
}

static void mark_sent(unsigned segs)
{
	ours->pcb.snd_nxt += segs * MSS;
	net_rate_sent(ours, segs * MSS);
}

/* Reports the delivery, in order, of segments sent at that time. */
static void arrived(unsigned segs, uint32_t sent_ms)
{
	struct net_ack ack = {.acked = segs * MSS,
			      .delivered = segs * MSS,
			      .has_newest = true,
			      .newest_us = NET_MS(sent_ms)};

	ours->pcb.lastack += segs * MSS;
	ack.una = ours->pcb.lastack;
	net_rate_sample(ours, &ack, &rs);
}

#define IN_RATE(low, high)                                                     \
	assert_in_range((uint64_t)rs.rate, (uint64_t)(low), (uint64_t)(high))

/* Ten segments leave at once and arrive after 20 ms: 500 kB/s. */
static void test_rate_of_a_flight_is_bytes_per_round_trip(void **state)
{
	begin_rate();
	mark_sent(10);
	advance_to_ms(1020);
	arrived(10, 1000);
	IN_RATE(499000, 501000);
	assert_int_equal(rs.delivered, 10 * MSS);
	assert_int_equal(rs.prior_delivered, 0);
	assert_int_equal(rs.in_flight, 10 * MSS);
	assert_false(rs.app_limited);
	end_rate();
}

/*
 * Five at 1000 ms, five at 1010. The first five arrive at 1020: 250 kB/s. The
 * others at 1030: since they left nothing had arrived before, so that all ten
 * count, over 30 ms.
 */
static void test_interval_starts_at_the_previous_delivery(void **state)
{
	begin_rate();
	mark_sent(5);
	advance_to_ms(1010);
	mark_sent(5);
	advance_to_ms(1020);
	arrived(5, 1000);
	IN_RATE(249500, 250500);
	advance_to_ms(1030);
	arrived(5, 1010);
	IN_RATE(332000, 334500);
	end_rate();
}

/*
 * Two leave at 1000 ms and the ACK of the first is late, at 1050. One more
 * leaves at 1051, and both are acknowledged at 1071: two segments in the 51 ms
 * that sending took, not in the 21 since the late ACK.
 */
static void test_compressed_acks_do_not_raise_the_rate(void **state)
{
	begin_rate();
	mark_sent(2);
	advance_to_ms(1050);
	arrived(1, 1000);
	advance_to_ms(1051);
	mark_sent(1);
	advance_to_ms(1071);
	arrived(2, 1051);
	IN_RATE(39000, 39500);
	end_rate();
}

/* An app-limited sample counts for the bandwidth only if it is higher. */
static void test_app_limited_samples_only_raise_the_bandwidth(void **state)
{
	struct net_bbr *bbr;

	begin_rate();
	bbr = ours->recovery->bbr;
	bbr->bw_cycle[1] = bbr->max_bw = 500000;
	bbr->rs = (struct net_rate_sample){.rate = 400000, .app_limited = true};
	net_bbr_model_before(bbr, 10 * MSS);
	assert_true(bbr->bw_cycle[0] == 0);
	bbr->rs.rate = 600000;
	net_bbr_model_before(bbr, 10 * MSS);
	assert_true(bbr->max_bw == 600000);
	bbr->rs = (struct net_rate_sample){.rate = 550000};
	net_bbr_advance_max_bw(bbr);
	net_bbr_advance_max_bw(bbr); /* a cycle without a sample is none */
	net_bbr_model_before(bbr, 10 * MSS);
	assert_true(bbr->max_bw == 600000);
	net_bbr_advance_max_bw(bbr);
	net_bbr_model_before(bbr, 10 * MSS);
	assert_true(bbr->max_bw == 550000); /* of the last two cycles */
	end_rate();
}

static void test_interval_below_a_round_trip_is_no_sample(void **state)
{
	begin_rate();
	mark_sent(10);
	advance_to_ms(1012);
	arrived(10, 1000);
	assert_true(rs.rate == 0);
	assert_true(rs.has_mark);
	assert_int_equal(rate->delivered, 10 * MSS);
	end_rate();
}

/* Samples are marked app-limited until all of those segments have arrived. */
static void test_app_limited_samples_are_marked(void **state)
{
	begin_rate();
	mark_sent(4);
	net_rate_app_limited(ours); /* 4 of a window of 10 */
	advance_to_ms(1010);
	mark_sent(2);
	advance_to_ms(1020);
	arrived(4, 1000);
	assert_false(rs.app_limited); /* those left before */
	advance_to_ms(1030);
	arrived(2, 1010);
	assert_true(rs.app_limited);
	assert_int_equal(rate->app_limited_to, 0); /* four have arrived */
	mark_sent(10);
	advance_to_ms(1050);
	arrived(10, 1030);
	assert_false(rs.app_limited);
	end_rate();
}

static void test_full_window_is_not_app_limited(void **state)
{
	begin_rate();
	mark_sent(10);
	net_rate_app_limited(ours);
	assert_int_equal(rate->app_limited_to, 0);
	end_rate();
}

/* The silence before a flight is not part of its interval. */
static void test_a_pause_does_not_count(void **state)
{
	begin_rate();
	mark_sent(10);
	advance_to_ms(1020);
	arrived(10, 1000);
	advance_to_ms(3000);
	mark_sent(10);
	advance_to_ms(3020);
	arrived(10, 3000);
	IN_RATE(499000, 501000);
	end_rate();
}

static void test_sample_reports_losses_since_the_segment_left(void **state)
{
	begin_rate();
	mark_sent(10);
	rate->lost += 3 * MSS;
	advance_to_ms(1010);
	mark_sent(5);
	advance_to_ms(1020);
	arrived(1, 1000);
	assert_int_equal(rs.lost, 3 * MSS);
	advance_to_ms(1030);
	arrived(1, 1010);
	assert_int_equal(rs.lost, 0);
	assert_int_equal(rs.in_flight, 15 * MSS);
	end_rate();
}

/* Thirty-two marks a round trip, for four of them: older ones expire. */
static void test_marks_are_bounded(void **state)
{
	begin_rate();
	for (unsigned us = 0; us < NET_MS(200); us += 20) {
		net_here()->now_us = NET_MS(1000) + us;
		mark_sent(1);
	}
	assert_int_equal(rate->n, NET_RATE_MARKS);
	assert_null(net_rate_mark_at(rate, NET_MS(1000)));
	assert_non_null(net_rate_mark_at(rate, NET_MS(1121)));
	for (unsigned ms = 1121; ms < 1200; ms++) {
		const struct net_rate_mark *mark =
			net_rate_mark_at(rate, NET_MS(ms));

		assert_true(NET_MS(ms) - mark->sent_us <= NET_MS(20) / 32 + 40);
	}
	end_rate();
}

/* The clock wraps after 73 minutes, and cannot compare beyond half of that. */
static void test_marks_expire_in_a_long_pause(void **state)
{
	begin_rate();
	for (uint32_t ms = 1000; ms < 1050; ms += 10) {
		advance_to_ms(ms);
		mark_sent(1);
	}
	advance_to_ms(1060);
	arrived(5, 1040);
	advance_to_ms(60 * 60000);
	mark_sent(10);
	advance_to_ms(60 * 60000 + 20);
	arrived(10, 60 * 60000);
	assert_true(rs.has_mark);
	IN_RATE(499000, 501000);
	end_rate();
}

static void test_probe_rtt_ends_in_a_long_pause(void **state)
{
	struct net_bbr *bbr;

	begin_rate();
	bbr = net_bbr_of(ours);
	bbr->state = BBR_PROBE_RTT;
	bbr->probe_rtt_timed = true;
	bbr->probe_rtt_done_us = NET_MS(1100);
	rate->app_limited_to = 1;
	net_recovery_of(ours)->cc->on_restart(ours);
	assert_int_equal(bbr->state, BBR_PROBE_RTT);
	advance_to_ms(1000 + 40 * 60000);
	net_recovery_of(ours)->cc->on_restart(ours);
	assert_int_not_equal(bbr->state, BBR_PROBE_RTT);
	end_rate();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_rate_of_a_flight_is_bytes_per_round_trip),
		T(test_interval_starts_at_the_previous_delivery),
		T(test_compressed_acks_do_not_raise_the_rate),
		T(test_app_limited_samples_only_raise_the_bandwidth),
		T(test_interval_below_a_round_trip_is_no_sample),
		T(test_app_limited_samples_are_marked),
		T(test_full_window_is_not_app_limited),
		T(test_a_pause_does_not_count),
		T(test_sample_reports_losses_since_the_segment_left),
		T(test_marks_are_bounded),
		T(test_marks_expire_in_a_long_pause),
		T(test_probe_rtt_ends_in_a_long_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
