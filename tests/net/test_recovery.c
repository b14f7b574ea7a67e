/* Retransmissions that a peer's ACKs and SACK blocks cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define WINDOW 10u /* segments of the initial window */

/* Queues `bytes` of a stream, of which the first window is in flight. */
static void begin_stream(bool sack, size_t bytes)
{
	unsigned sent[WINDOW];

	repair_connect(sack, bytes);
	assert_int_equal(take_sent(sent, WINDOW), WINDOW);
	run_ms(RTT_MS);
}

static struct net_recovery_info recovery_info(void)
{
	struct net_recovery_info out;

	net_recovery_info(ours, &out);
	return out;
}

static void test_three_sacked_segments_resend_only_the_first(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 1, 2);
	ACK_SACK(0, 1, 3);
	peer_expect_nothing();
	ACK_SACK(0, 1, 4);
	EXPECT_SENT(0);
	assert_int_equal(recovery_info().retransmits, 1);
}

static void test_retransmission_is_sent_once(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 1, 4);
	EXPECT_SENT(0);
	for (unsigned i = 5; i <= WINDOW; i++) {
		ACK_SACK(0, 1, i);
		peer_expect_nothing();
	}
	ACK(WINDOW);
	peer_expect_nothing();
	assert_int_equal(recovery_info().retransmits, 1);
}

static void test_only_holes_are_resent(void **state)
{
	unsigned sent[WINDOW], n;

	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 8, 9, 5, 7, 2, 4);
	n = take_sent(sent, WINDOW);
	ACK_SACK(1, 8, 9, 5, 7, 2, 4);
	n += take_sent(sent + n, WINDOW - n);
	ACK_SACK(4, 8, 9, 5, 7);
	n += take_sent(sent + n, WINDOW - n);
	assert_int_equal(n, 4);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(sent[i], ((unsigned[]){0, 1, 4, 7})[i]);
	ACK_SACK(7, 8, 9);
	peer_expect_nothing(); /* 9 may still be in flight */
	ACK_SACK(9, 8, 9);
	assert_int_equal(recovery_info().retransmits, 4);
}

static void test_a_retransmission_carries_the_newest_ack(void **state)
{
	struct segment s;

	begin_stream(true, WINDOW * MSS);
	peer_send(&peer, PEER_ACK, "abc", 3);
	ACK_SACK(0, 1, 4);
	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	check_segment(&s, ANY, base, peer.snd, MSS);
}

static void test_a_lost_retransmission_is_found_without_a_timeout(void **state)
{
	begin_stream(true, 2 * WINDOW * MSS);
	ACK_SACK(0, 1, 5);
	EXPECT_SENT(0, 10);
	run_ms(RTT_MS);
	ACK_SACK(0, 1, 10);
	while (peer_next(&(struct segment){0}))
		;
	run_ms(RTT_MS);
	ACK_SACK(0, 1, 11); /* 10 left after 0 did for the second time */
	run_ms(RTT_MS / 4);
	ACK_SACK(0, 1, 12);
	assert_int_equal(recovery_info().retransmits, 2);
}

static void test_retransmissions_are_marked_lost_in_sending_order(void **state)
{
	begin_stream(true, 2 * WINDOW * MSS);
	ACK_SACK(0, 1, 5);
	EXPECT_SENT(0, 10);
	run_ms(RTT_MS / 2);
	ACK_SACK(0, 1, 5, 6, 10); /* and 5 is lost */
	while (peer_next(&(struct segment){0}))
		;
	assert_int_equal(recovery_info().retransmits, 2);
	run_ms(RTT_MS / 2);
	ACK_SACK(0, 6, 11, 1, 5); /* 10 left after 0 did, before 5 did */
	run_ms(1);
	assert_int_equal(recovery_info().retransmits, 3);
}

static void test_a_segment_the_driver_holds_is_resent_later(void **state)
{
	struct pbuf *held;

	begin_stream(true, WINDOW * MSS);
	held = ours->pcb.unacked->p;
	pbuf_ref(held);
	ACK_SACK(0, 1, 5);
	peer_expect_nothing();
	pbuf_free(held);
	ACK_SACK(0, 1, 6);
	EXPECT_SENT(0);
}

static void test_late_acked_segments_are_not_resent(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 9, 10); /* 0 to 8 are late, not lost */
	run_ms(RTT_MS);	    /* now they are */
	ACK(WINDOW);
	while (peer_next(&(struct segment){0}))
		;
	run_ms(1000);
	peer_expect_nothing();
	assert_null(ours->pcb.unacked);
}

static void test_late_segments_are_lost_after_a_quarter_rtt(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 1, 2);
	run_ms(RTT_MS / 4 - 1);
	peer_expect_nothing();
	run_ms(3);
	EXPECT_SENT(0);
}

static void test_reordering_widens_the_window(void **state)
{
	begin_stream(true, 2 * WINDOW * MSS);
	ACK_SACK(0, 1, 3);
	ACK(3); /* 0 was only late */
	while (peer_next(&(struct segment){0}))
		;
	ACK_SACK(3, 4, 8); /* four have overtaken 3, which waits now */
	assert_int_equal(recovery_info().retransmits, 0);
	run_ms(RTT_MS);
	assert_int_equal(recovery_info().retransmits, 1);
}

/* ---- false SACK blocks ---- */

static void test_hostile_blocks_change_nothing(void **state)
{
	const uint32_t far = UINT32_C(1) << 31;

	begin_stream(true, WINDOW * MSS);
	const uint32_t lies[][2] = {
		{base + 4000, base + 1000},   /* inverted */
		{base + 1000, base + 1000},   /* empty */
		{base + 9000, base + 10001},  /* beyond what was sent */
		{base + 20000, base + 30000}, /* all of it beyond */
		{base - 4000, base + 4000},   /* from before the ACK */
		{base + far, base + far + 4000},  {base - far, base + 4000},
		{base + 1000, base + 1000 + far},
	};

	for (unsigned k = 0; k < 4; k++)
		for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
			ack_raw(base, 1, lies[i]);
	run_ms(RTT_MS / 2);
	peer_expect_nothing();
	assert_int_equal(recovery_info().retransmits, 0);
	assert_false(ours->has_recovery); /* none was accepted as a block */
}

static void test_partially_sacked_segment_is_not_marked(void **state)
{
	begin_stream(true, WINDOW * MSS);
	const uint32_t halves[] = {base + 1500, base + 4500};

	ack_raw(base, 1, halves); /* 2 and 3 whole */
	run_ms(1);
	peer_expect_nothing(); /* two are too few to be sure */
	ACK_SACK(0, 2, 5);
	EXPECT_SENT(0, 1);
}

static void test_dsack_is_no_loss(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK(5);
	for (unsigned i = 0; i < 5; i++)
		ACK_SACK(5, 2, 3);
	run_ms(RTT_MS / 2);
	peer_expect_nothing();
	assert_int_equal(recovery_info().retransmits, 0);
}

static void test_overlapping_blocks_count_once(void **state)
{
	uint32_t before;

	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 4, 7, 5, 8, 4, 8, 6, 9);
	before = recovery_info().retransmits;
	assert_true(before >= 1 && before <= 4);
	for (unsigned i = 0; i < 20; i++)
		ACK_SACK(0, 4, 7, 5, 8, 4, 8, 6, 9);
	assert_true(recovery_info().retransmits <=
		    4); /* 0 to 3 at most, once each */
	ACK(WINDOW);
	assert_null(ours->pcb.unacked);
}

static void test_malformed_option_lengths_are_survived(void **state)
{
	static const uint8_t lengths[] = {2, 3, 9, 11, 12, 34};
	uint8_t options[36];
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .flags = PEER_ACK,
			    .wnd = 65535,
			    .options = options,
			    .options_len = 36,
			    .data = (const uint8_t *)""};

	begin_stream(true, WINDOW * MSS);
	s.seq = peer.snd;
	s.ack = base;
	for (unsigned i = 0; i < sizeof(lengths); i++) {
		memset(options, 1, sizeof(options));
		options[0] = 5;
		options[1] = lengths[i];
		peer_send_raw(&s);
		run_rounds(1);
	}
	peer_expect_nothing();
	assert_int_equal(recovery_info().retransmits, 0);
}

static void test_reneging_is_survived(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK_SACK(0, 1, WINDOW);
	EXPECT_SENT(0);
	ACK(1); /* and 1 to 9 have been discarded */
	for (unsigned ms = 0; ms < 3000 && peer.rcv != base + WINDOW * MSS;
	     ms++) {
		struct segment s;

		run_ms(1);
		while (peer_next(&s))
			if (s.len && s.seq == base + 1000 && peer.rcv == base) {
				peer.rcv = base + WINDOW * MSS;
				ACK(WINDOW);
			}
	}
	assert_int_equal(peer.rcv, base + WINDOW * MSS);
}

/* ---- a peer without SACK ---- */

static void test_third_duplicate_ack_resends_the_first(void **state)
{
	begin_stream(NO_SACK, WINDOW * MSS);
	ACK(0);
	ACK(0);
	peer_expect_nothing();
	ACK(0);
	EXPECT_SENT(0);
	ACK(0);
	ACK(0);
	peer_expect_nothing();
}

static void test_progress_resets_the_duplicate_count(void **state)
{
	begin_stream(NO_SACK, WINDOW * MSS);
	ACK(0);
	ACK(0);
	ACK(2);
	ACK(2);
	ACK(2);
	peer_expect_nothing();
	ACK(2);
	EXPECT_SENT(2);
}

static void test_partial_ack_resends_the_next(void **state)
{
	begin_stream(NO_SACK, WINDOW * MSS);
	for (unsigned i = 0; i < 6; i++)
		ACK(0);
	EXPECT_SENT(0);
	ACK(4); /* RFC 6582: 4 is missing too */
	EXPECT_SENT(4);
	ACK(WINDOW);
	peer_expect_nothing();
	assert_int_equal(recovery_info().retransmits, 2);
}

static void test_sack_blocks_without_agreement_are_ignored(void **state)
{
	begin_stream(NO_SACK, WINDOW * MSS);
	ACK_SACK(0, 1, 9);
	ACK_SACK(0, 1, 10);
	run_ms(2);
	peer_expect_nothing();
}

/* ---- the window ---- */

static void test_loss_reduces_the_window_by_three_tenths(void **state)
{
	uint32_t before;

	begin_stream(true, STREAM);
	before = recovery_info().cwnd_bytes;
	assert_int_equal(before, WINDOW * MSS);
	ACK_SACK(0, 1, 4);
	while (peer_next(&(struct segment){0}))
		;
	assert_int_equal(recovery_info().ssthresh_bytes, WINDOW * MSS * 7 / 10);
	for (unsigned i = 5; i <= WINDOW; i++)
		ACK_SACK(0, 1, i);
	run_ms(RTT_MS);
	ack_raw(ours->pcb.snd_nxt, 0, NULL);
	assert_in_range(recovery_info().cwnd_bytes, WINDOW * MSS * 7 / 10,
			WINDOW * MSS * 9 / 10);
}

static void test_recovery_sends_no_burst(void **state)
{
	unsigned sent[64], n = 0;

	begin_stream(true, STREAM);
	for (unsigned i = 4; i <= WINDOW; i++) {
		unsigned now;

		ACK_SACK(0, 1, i);
		now = take_sent(sent, 64);
		assert_true(now <= 2);
		n += now;
	}
	/* PRR: about seven tenths of what has arrived. */
	assert_in_range(n, 5, 8);
}

static void test_dsack_undoes_the_reduction(void **state)
{
	uint32_t before;

	begin_stream(true, STREAM);
	before = recovery_info().cwnd_bytes;
	ACK_SACK(0, 1, 4);
	while (peer_next(&(struct segment){0}))
		;
	assert_true(recovery_info().ssthresh_bytes < before);
	ACK_SACK(4, 0, 1); /* 0 has come twice: it was never lost */
	assert_true(recovery_info().cwnd_bytes >= before);
	assert_true(recovery_info().ssthresh_bytes >= before);
}

static void test_unused_window_does_not_grow(void **state)
{
	begin_stream(true, WINDOW * MSS);
	ACK(WINDOW);
	assert_in_range(recovery_info().cwnd_bytes, WINDOW * MSS,
			2 * WINDOW * MSS);
	for (unsigned i = 0; i < 100; i++) {
		ours->pcb.cwnd = 50 * MSS;
		net_send(ours, "x", 1);
		run_rounds(2);
		ack_raw(ours->pcb.snd_nxt, 0, NULL);
		assert_int_equal(ours->pcb.cwnd, 50 * MSS);
	}
}

/* Each request is acknowledged at once, and the flow still grows. */
static void test_the_send_buffer_follows_the_window(void **state)
{
	static uint8_t block[TCP_SND_BUF];
	uint32_t has = TCP_SND_BUF;

	repair_connect(true, 0);
	ours->pcb.snd_wnd = ours->pcb.snd_wnd_max = 1 << 20;
	ours->pcb.cwnd = TCP_SND_BUF;
	for (unsigned i = 0; i < 4; i++) {
		net_send(ours, block, 15000); /* so few are not paced */
		run_rounds(3);
		while (peer_next(&(struct segment){0}))
			;
		ours->pcb.cwnd = 1 << 20;
		ack_raw(ours->pcb.snd_nxt, 0, NULL);
		assert_true(ours->pcb.snd_buf >= has);
		has = ours->pcb.snd_buf;
	}
	assert_int_equal(has, 2 << 20);
	ours->pcb.cwnd = 1 << 28;
	net_send(ours, block, 3000);
	run_rounds(3);
	while (peer_next(&(struct segment){0}))
		;
	ack_raw(ours->pcb.snd_nxt, 0, NULL);
	assert_int_equal(ours->pcb.snd_buf, 4 << 20); /* and no further */
}

/* ---- all of it at once ---- */

static uint32_t chance;

static bool one_in(uint32_t n)
{
	chance = chance * 1664525 + 1013904223;
	return (chance >> 8) % n == 0;
}

static uint8_t have[STREAM / MSS + 1];

/* Acknowledges like a receiver with SACK: the newest block first. */
static void acknowledge(unsigned newest, bool sack)
{
	unsigned edges[8], n = 0, una = 0;

	while (have[una])
		una++;
	for (unsigned at = newest; sack && n < 4; at = STREAM / MSS) {
		unsigned from = n ? una : newest, to;

		if (n) { /* any others, from the lowest */
			from = edges[1] > una ? edges[1] : una;
			while (from < STREAM / MSS && !have[from])
				from++;
			if (from == STREAM / MSS || n == 2)
				break;
		}
		if (from < una || !have[from])
			break;
		while (from > una && have[from - 1])
			from--;
		for (to = from; have[to]; to++)
			;
		edges[2 * n] = from;
		edges[2 * n + 1] = to;
		n++;
		if (at == STREAM / MSS)
			break;
	}
	ack_to(una, n, edges);
}

static void run_lossy(bool sack, uint32_t seed)
{
	unsigned late[64], n_late = 0, missing = STREAM / MSS;

	chance = seed;
	memset(have, 0, sizeof(have));
	repair_connect(sack, STREAM);
	for (unsigned ms = 0; ms < 200000 && missing; ms++) {
		unsigned sent[512], n = take_sent(sent, 512);

		for (unsigned i = 0; i < n; i++) {
			if (one_in(12))
				continue;
			if (one_in(20) && n_late < 64) {
				late[n_late++] = sent[i];
				continue;
			}
			missing -= !have[sent[i]];
			have[sent[i]] = 1;
			if (!one_in(12))
				acknowledge(sent[i], sack);
		}
		if (n_late && one_in(3)) {
			missing -= !have[late[--n_late]];
			have[late[n_late]] = 1;
			acknowledge(late[n_late], sack);
		}
		run_ms(1);
	}
	assert_int_equal(missing, 0);
	ACK(STREAM / MSS);
	run_ms(50);
	assert_null(ours->pcb.unacked);
	assert_null(ours->pcb.unsent);
	assert_int_equal(result, STREAM);
}

static void test_a_stream_survives_loss_and_reordering(void **state)
{
	run_lossy(true, 1);
}

static void test_a_stream_survives_loss_without_sack(void **state)
{
	run_lossy(NO_SACK, 2);
}

static void test_a_stream_survives_another_seed(void **state)
{
	run_lossy(true, 77);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_three_sacked_segments_resend_only_the_first),
		T(test_retransmission_is_sent_once),
		T(test_only_holes_are_resent),
		T(test_a_retransmission_carries_the_newest_ack),
		T(test_a_lost_retransmission_is_found_without_a_timeout),
		T(test_retransmissions_are_marked_lost_in_sending_order),
		T(test_a_segment_the_driver_holds_is_resent_later),
		T(test_late_acked_segments_are_not_resent),
		T(test_late_segments_are_lost_after_a_quarter_rtt),
		T(test_reordering_widens_the_window),
		T(test_hostile_blocks_change_nothing),
		T(test_partially_sacked_segment_is_not_marked),
		T(test_dsack_is_no_loss),
		T(test_overlapping_blocks_count_once),
		T(test_malformed_option_lengths_are_survived),
		T(test_reneging_is_survived),
		T(test_third_duplicate_ack_resends_the_first),
		T(test_progress_resets_the_duplicate_count),
		T(test_partial_ack_resends_the_next),
		T(test_sack_blocks_without_agreement_are_ignored),
		T(test_loss_reduces_the_window_by_three_tenths),
		T(test_recovery_sends_no_burst),
		T(test_dsack_undoes_the_reduction),
		T(test_unused_window_does_not_grow),
		T(test_the_send_buffer_follows_the_window),
		T(test_a_stream_survives_loss_and_reordering),
		T(test_a_stream_survives_loss_without_sack),
		T(test_a_stream_survives_another_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
