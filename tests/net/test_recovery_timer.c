/*
 * Recovery by timers: the tail loss probe, the retransmission timeout and its
 * back-off, and the RTT estimate behind them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define MS INT64_C(1000000)

static struct net_recovery_info recovery_info(void)
{
	struct net_recovery_info out;

	net_recovery_info(ours, &out);
	return out;
}

/* Milliseconds until the stack sends data; fails after `most`. */
static unsigned ms_until_sent(unsigned *number, unsigned most)
{
	for (unsigned ms = 1; ms <= most; ms++) {
		run_ms(1);
		if (take_sent(number, 1) == 1)
			return ms;
	}
	fail_msg("nothing was sent within %u ms", most);
	return 0;
}

static void test_handshake_gives_the_first_rtt(void **state)
{
	repair_connect(true, 0);
	assert_in_range(recovery_info().srtt_ns, RTT_MS * MS - MS,
			RTT_MS * MS + MS);
	assert_in_range(recovery_info().rttvar_ns, RTT_MS * MS / 2 - MS,
			RTT_MS * MS / 2 + MS);
	assert_true(recovery_info().ssthresh_bytes >
		    4 << 20); /* slow start at will */
}

static void test_rtt_follows_the_path(void **state)
{
	unsigned sent[1];

	repair_connect(true, 0);
	for (unsigned i = 0; i < 60; i++) {
		net_send(ours, "x", 1);
		run_rounds(2);
		while (peer_next(&(struct segment){0}))
			;
		run_ms(7);
		ack_raw(ours->pcb.snd_nxt, 0, NULL);
	}
	assert_in_range(recovery_info().srtt_ns, 6 * MS, 8 * MS);
	assert_int_equal(take_sent(sent, 1), 0);
}

static void test_a_lost_tail_is_probed_after_two_rtt(void **state)
{
	unsigned sent[8];

	repair_connect(true, 3 * MSS);
	assert_int_equal(take_sent(sent, 8), 3);
	run_ms(2 * RTT_MS - 2);
	peer_expect_nothing();
	run_ms(4);
	EXPECT_SENT(2);
}

/* The tail was late: the window was not reduced, so nothing is undone. */
static void test_spurious_probe_does_not_end_slow_start(void **state)
{
	repair_connect(true, 3 * MSS);
	EXPECT_SENT(0, 1, 2);
	run_ms(2 * RTT_MS + 2);
	EXPECT_SENT(2);
	ACK_SACK(3, 2, 3); /* both have come */
	assert_true(recovery_info().ssthresh_bytes > 4 << 20);
	assert_int_equal(recovery_info().cwnd_bytes, 10 * MSS);
	assert_int_equal(net_here()->stats.cuts_undone, 0);
}

/*
 * Computed by hand, in ms: SRTT 20 and RTTVAR 10, then two samples of 520 make
 * that 82.5 and 132.5, and 137.2 and 208.75. Their sum, with RTTVAR twice, is
 * 555; RFC 8985 waits 2 * 137.2 + 200 = 474, whatever the peer's ACKs took
 * before.
 */
static void test_probe_timeout_does_not_exceed_rfc_8985(void **state)
{
	unsigned sent[1];

	for (unsigned shift = 0; shift <= 6; shift += 6) {
		repair_connect(true, 0);
		net_rtt_sample(ours, NET_MS(520));
		net_rtt_sample(ours, NET_MS(520));
		ours->probe_shift = shift & 7;
		assert_int_equal(net_send(ours, "", 1), 1);
		run_rounds(2);
		EXPECT_SENT(0);
		assert_in_range(ms_until_sent(sent, 1000), 473, 480);
		net_abort(ours);
		run_rounds(2);
		while (peer_next(&(struct segment){0}))
			;
	}
}

static void test_probe_detects_the_loss_of_several_segments(void **state)
{
	unsigned sent[8];

	repair_connect(true, 3 * MSS);
	assert_int_equal(take_sent(sent, 8), 3);
	assert_in_range(ms_until_sent(sent, 100), 38, 42);
	assert_int_equal(sent[0], 2);
	run_ms(RTT_MS);
	ACK_SACK(0, 2, 3);
	EXPECT_SENT(0, 1);
	ACK(3);
	assert_int_equal(recovery_info().retransmits, 3);
}

static void test_probe_sends_new_data_if_there_is_any(void **state)
{
	unsigned sent[16];

	repair_connect(true, 12 * MSS);
	assert_int_equal(take_sent(sent, 16), 10);
	assert_in_range(ms_until_sent(sent, 100), 38, 42);
	assert_int_equal(sent[0], 10);
	assert_int_equal(recovery_info().retransmits, 0);
}

/* The peer repeats its request, since the answer was lost. */
static void test_repeated_request_triggers_a_probe_at_once(void **state)
{
	struct segment again = {.src = 1000,
				.dst = 7,
				.flags = PEER_ACK,
				.wnd = 65535,
				.options = (const uint8_t *)"",
				.data = (const uint8_t *)"ask",
				.len = 3};
	unsigned sent[8];

	repair_connect(true, 2 * MSS);
	peer_send(&peer, PEER_ACK, "ask", 3);
	run_rounds(2);
	assert_int_equal(take_sent(sent, 8), 2);
	again.seq = peer.snd - 3;
	again.ack = base;
	run_ms(RTT_MS - 5);
	peer_send_raw(&again); /* the answer may be in flight */
	assert_int_equal(take_sent(sent, 8), 0);
	run_ms(6);
	peer_send_raw(&again);
	EXPECT_SENT(1);
	peer_send_raw(&again);
	assert_int_equal(take_sent(sent, 8), 0); /* once is enough */
}

static void test_one_probe_then_the_timeout(void **state)
{
	unsigned sent[8];

	repair_connect(true, 3 * MSS);
	assert_int_equal(take_sent(sent, 8), 3);
	ms_until_sent(sent, 100);
	assert_int_equal(sent[0], 2);
	/* SRTT and 120 ms at least, from the probe on; then from the start. */
	assert_in_range(ms_until_sent(sent, 1000), RTT_MS + 118, RTT_MS + 125);
	assert_int_equal(sent[0], 0);
}

static void test_lwip_retransmission_timer_never_fires(void **state)
{
	unsigned sent[16];

	repair_connect(true, 20 * MSS); /* unsent data keeps lwIP ticking */
	take_sent(sent, 16);
	ours->pcb.rto = 2;
	run_ms(5 * RTT_MS); /* ticks enough, and none of our timeouts */
	assert_non_null(ours->pcb.unacked);
	assert_false(ours->pcb.flags & TF_RTO);
	assert_int_equal(recovery_info().retransmits, 0);
}

static void test_timeouts_back_off_to_a_minute(void **state)
{
	unsigned sent[8], last = 0, ms;

	repair_connect(true, 1);
	take_sent(sent, 8);
	ms_until_sent(sent, 100);
	last = ms_until_sent(sent, 1000);
	for (unsigned i = 1; i < 11; i++) {
		ms = ms_until_sent(sent, 70000);
		assert_in_range(ms, last * 2 < 60000 ? last * 2 - 30 : 59000,
				last * 2 < 60000 ? last * 2 + 30 : 61000);
		last = ms;
	}
	assert_int_equal(ended, 0);
}

static void test_a_silent_peer_is_given_up(void **state)
{
	unsigned sent[8];

	repair_connect(true, 1);
	take_sent(sent, 8);
	for (unsigned i = 0; i < 500000 && ended == 0; i++) {
		fake_now_ns += 2 * MS;
		net_stack_round(stack);
		while (peer_next(&(struct segment){0}))
			;
	}
	assert_int_equal(ended, 1);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_timeout_resends_only_unsacked_segments(void **state)
{
	unsigned sent[16], seen[10] = {0};

	repair_connect(true, 10 * MSS);
	take_sent(sent, 16);
	ACK_SACK(0, 4, 6);
	run_ms(400); /* and all that follows is lost */
	while (take_sent(sent, 16))
		run_ms(1);
	for (unsigned una = 0; una < 10;) {
		unsigned n;

		run_ms(RTT_MS);
		ACK_SACK(una, 4, 6);
		n = take_sent(sent, 16);
		for (unsigned i = 0; i < n; i++)
			seen[sent[i]]++;
		una++;
		if (una == 4)
			una = 6;
	}
	assert_int_equal(seen[4] + seen[5], 0);
	assert_true(seen[9] > 0);
}

static void test_after_a_timeout_the_window_is_one_segment(void **state)
{
	unsigned sent[16];

	repair_connect(true, 10 * MSS);
	take_sent(sent, 16);
	ms_until_sent(sent, 100);
	ms_until_sent(sent, 1000);
	assert_int_equal(sent[0], 0);
	assert_int_equal(recovery_info().cwnd_bytes, MSS);
	assert_int_equal(recovery_info().ssthresh_bytes, 7 * MSS);
	run_ms(RTT_MS);
	ACK(1);
	EXPECT_SENT(1, 2); /* slow start */
}

static void test_retransmissions_give_no_rtt_sample(void **state)
{
	struct net_recovery_info was;
	unsigned sent[8];

	repair_connect(true, 1);
	take_sent(sent, 8);
	was = recovery_info();
	ms_until_sent(sent, 100);
	run_ms(90);
	ack_raw(base + 1, 0, NULL);
	assert_int_equal(recovery_info().srtt_ns, was.srtt_ns);
	assert_int_equal(recovery_info().rttvar_ns, was.rttvar_ns);
}

static void test_spurious_probe_lengthens_the_probe_timeout(void **state)
{
	unsigned sent[8];

	repair_connect(true, 1);
	take_sent(sent, 8);
	assert_in_range(ms_until_sent(sent, 100), 38, 42);
	const uint32_t dsack[] = {base, base + 1};

	ack_raw(base + 1, 1, dsack); /* it was late, not lost */
	base++;
	net_send(ours, &(uint8_t){stream_byte(0)}, 1);
	run_rounds(2);
	take_sent(sent, 8);
	run_ms(4 * RTT_MS - 3);
	peer_expect_nothing();
	assert_in_range(ms_until_sent(sent, 100), 1, 10);
}

/* Each answer comes after the probe timeout, and no D-SACK reports it. */
static void test_delayed_acks_lengthen_the_probe_timeout(void **state)
{
	unsigned sent[8], probes = 0;

	repair_connect(true, 0);
	for (unsigned i = 0; i < 30; i++) {
		base = ours->pcb.snd_nxt;
		net_send(ours, &(uint8_t){stream_byte(0)}, 1);
		run_rounds(2);
		take_sent(sent, 8);
		run_ms(110);
		probes = take_sent(sent, 8);
		ack_raw(base + 1, 0, NULL);
	}
	assert_int_equal(probes, 0);
	assert_in_range(recovery_info().srtt_ns, 90 * MS, 120 * MS);
}

static void test_a_full_pool_delays_a_resend_but_loses_none(void **state)
{
	unsigned sent[8];

	repair_connect(true, 1);
	take_sent(sent, 8);
	fake_tx_budget = 0;
	run_ms(300);
	fake_tx_budget = -1;
	assert_in_range(ms_until_sent(sent, 1000), 1, 7);
	ack_raw(base + 1, 0, NULL);
	assert_null(ours->pcb.unacked);
}

static void test_an_idle_connection_starts_small_again(void **state)
{
	repair_connect(true, 0);
	ours->pcb.cwnd = 100 * MSS;
	run_ms(2000);
	net_send(ours, "x", 1);
	run_rounds(2);
	assert_int_equal(ours->pcb.cwnd, 10 * MSS);
	while (peer_next(&(struct segment){0}))
		;
	ack_raw(base + 1, 0, NULL);
}

static void test_idle_connection_has_no_armed_timer(void **state)
{
	unsigned sent[8];

	repair_connect(true, 3 * MSS);
	take_sent(sent, 8);
	run_ms(RTT_MS);
	ACK(3);
	run_ms(100);
	assert_false(coro_timer_armed(&ours->timer));
	assert_false(ours->has_recovery); /* and no recovery state was needed */
}

static void test_recovery_state_is_freed_after_acks_without_loss(void **state)
{
	unsigned sent[8];

	repair_connect(true, 1);
	take_sent(sent, 8);
	ms_until_sent(sent, 100);
	assert_true(ours->has_recovery);
	ack_raw(base + 1, 0, NULL);
	for (unsigned i = 0; i < 3; i++) {
		run_ms(600);
		net_send(ours, "x", 1);
		run_rounds(2);
		while (peer_next(&(struct segment){0}))
			;
		ack_raw(ours->pcb.snd_nxt, 0, NULL);
	}
	assert_false(ours->has_recovery);
	assert_int_equal(recovery_info().retransmits, 1);
}

static void test_recovery_state_is_freed_on_an_idle_connection(void **state)
{
	unsigned sent[8];

	repair_connect(true, 1);
	take_sent(sent, 8);
	ms_until_sent(sent, 100);
	ms_until_sent(sent, 1000); /* a timeout: a loss, and a window of one */
	assert_true(ours->has_recovery);
	ack_raw(ours->pcb.snd_nxt, 0, NULL);
	run_ms(300);
	assert_true(ours->has_recovery);
	run_ms(1000);
	assert_false(ours->has_recovery);
	assert_false(coro_timer_armed(&ours->timer));
}

/*
 * Every second flight loses its head and the duplicate ACKs: later segments
 * wait at the peer until the timeout has filled the hole. That wait must not be
 * an RTT sample, or the timeout would grow without bound.
 */
static void lose_every_second_head(bool sack)
{
	unsigned sent[64], n, next = 0;

	repair_connect(sack, 200 * MSS);
	peer.wnd =
		10 * MSS >> 4; /* each flight leaves at once: none is paced */
	for (unsigned flight = 0; flight < 16; flight++) {
		n = take_sent(sent, 64);
		for (unsigned k = 0; k < n; k++)
			if (sent[k] >= next)
				next = sent[k] + 1;
		for (unsigned resent = 0; flight % 2 && resent < 2;) {
			run_ms(1);
			n = take_sent(sent, 64);
			resent += n > 0; /* the probe, then the timeout */
			for (unsigned k = 0; k < n; k++)
				if (sent[k] >= next)
					next = sent[k] + 1;
		}
		run_ms(RTT_MS);
		ACK(next);
		assert_in_range(recovery_info().srtt_ns, RTT_MS * MS / 2,
				RTT_MS * MS * 3 / 2);
		assert_in_range(recovery_info().rto_ns, RTT_MS * MS, 200 * MS);
	}
}

static void test_wait_for_a_repair_is_no_rtt_sample(void **state)
{
	lose_every_second_head(NO_SACK);
}

static void test_wait_for_a_repair_is_no_rtt_sample_with_sack(void **state)
{
	lose_every_second_head(true);
}

/* Counts the retransmissions while every allocation fails for ms. */
static unsigned resent_without_memory(unsigned ms)
{
	unsigned sent[8], n = 0;

	for (unsigned i = 0; i < ms; i++) {
		net_mem_fail_after(1);
		run_ms(1);
		n += take_sent(sent, 8);
	}
	net_mem_fail_after(0);
	return n;
}

/* A peer without SACK may acknowledge data behind a hole in pieces. */
static void test_data_behind_a_repair_gives_no_rtt_sample(void **state)
{
	unsigned sent[64], ms = 0;

	repair_connect(NO_SACK, 60 * MSS);
	take_sent(sent, 64);
	run_ms(RTT_MS);
	ACK(1);
	for (; ms < 30000; ms++) { /* 1 is lost, as are its repairs */
		run_ms(1);
		take_sent(sent, 64);
	}
	while (!take_sent(sent, 64) && ms++ < 120000)
		run_ms(1);
	run_ms(RTT_MS);
	ACK(2);
	ACK(6);
	assert_in_range(ours->srtt_us >> 3, NET_MS(RTT_MS - 2),
			NET_MS(2 * RTT_MS));
}

/* With SACK too: the ACKs of what arrived are lost in an outage. */
static void test_data_sacked_after_a_timeout_gives_no_rtt_sample(void **state)
{
	unsigned sent[64], ms = 0;

	repair_connect(true, 60 * MSS);
	take_sent(sent, 64);
	run_ms(RTT_MS);
	ACK(1);
	for (; ms < 30000; ms++) { /* 1 and 5 are lost, as is every ACK */
		run_ms(1);
		take_sent(sent, 64);
	}
	while (!take_sent(sent, 64) && ms++ < 120000)
		run_ms(1);
	run_ms(RTT_MS);
	ACK_SACK(5, 6, 11);
	assert_in_range(ours->srtt_us >> 3, NET_MS(RTT_MS - 2),
			NET_MS(2 * RTT_MS));
}

/* The same, while there is no memory to note that a repair was acknowledged. */
static void
test_data_behind_a_repair_without_memory_gives_no_rtt_sample(void **state)
{
	unsigned sent[64];

	repair_connect(NO_SACK, 60 * MSS);
	take_sent(sent, 64);
	run_ms(RTT_MS);
	ACK(1);
	take_sent(sent, 64);
	assert_in_range(resent_without_memory(3000), 2, 8); /* 1 is lost */
	assert_false(ours->has_recovery);
	ACK(2);
	ACK(6);
	assert_in_range(ours->srtt_us >> 3, NET_MS(RTT_MS - 2),
			NET_MS(2 * RTT_MS));
}

/* The retransmission of a timeout is not delayed by pacing. */
static void test_timeout_is_not_paced(void **state)
{
	static uint8_t data[2 * MSS];
	unsigned sent[8], n = 0, ms = 0;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = stream_byte(i);
	repair_connect(NO_SACK, 0);
	assert_int_equal(net_set_pacing_rate(ours, MSS), 0); /* a second each */
	assert_int_equal(net_send(ours, data, sizeof(data)), sizeof(data));
	for (; net_here()->stats.resent_rto == 0 && ms < 2000; ms++) {
		run_ms(1);
		n += take_sent(sent, 8);
	}
	assert_in_range(ms, 100, 400);
	assert_true(n > 2);
	ACK(2);
}

/*
 * The segment's copy is made at once, so segments in flight must not be
 * requeued: a later recovery would wait for them forever.
 */
static void test_a_timeout_without_memory_does_not_stall(void **state)
{
	unsigned sent[8];

	repair_connect(true, 5 * MSS);
	assert_int_equal(take_sent(sent, 8), 5);
	assert_int_equal(resent_without_memory(200), 1);
	assert_in_range(ms_until_sent(sent, 400), 50, 400);
	assert_int_equal(sent[0], 0);
	ACK(1);
	EXPECT_SENT(1, 2);
	ACK(5);
	assert_int_equal(result, 5 * MSS);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_handshake_gives_the_first_rtt),
		T(test_rtt_follows_the_path),
		T(test_a_lost_tail_is_probed_after_two_rtt),
		T(test_spurious_probe_does_not_end_slow_start),
		T(test_probe_timeout_does_not_exceed_rfc_8985),
		T(test_probe_detects_the_loss_of_several_segments),
		T(test_probe_sends_new_data_if_there_is_any),
		T(test_repeated_request_triggers_a_probe_at_once),
		T(test_one_probe_then_the_timeout),
		T(test_lwip_retransmission_timer_never_fires),
		T(test_timeouts_back_off_to_a_minute),
		T(test_a_silent_peer_is_given_up),
		T(test_timeout_resends_only_unsacked_segments),
		T(test_after_a_timeout_the_window_is_one_segment),
		T(test_retransmissions_give_no_rtt_sample),
		T(test_wait_for_a_repair_is_no_rtt_sample),
		T(test_wait_for_a_repair_is_no_rtt_sample_with_sack),
		T(test_data_behind_a_repair_gives_no_rtt_sample),
		T(test_data_sacked_after_a_timeout_gives_no_rtt_sample),
		T(test_data_behind_a_repair_without_memory_gives_no_rtt_sample),
		T(test_timeout_is_not_paced),
		T(test_a_timeout_without_memory_does_not_stall),
		T(test_spurious_probe_lengthens_the_probe_timeout),
		T(test_delayed_acks_lengthen_the_probe_timeout),
		T(test_a_full_pool_delays_a_resend_but_loses_none),
		T(test_an_idle_connection_starts_small_again),
		T(test_idle_connection_has_no_armed_timer),
		T(test_recovery_state_is_freed_after_acks_without_loss),
		T(test_recovery_state_is_freed_on_an_idle_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
