/*
 * The cost of an ACK: blocks that mark nothing do not walk all segments in
 * flight, and blocks that mark something still reach them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define UNDER_WAY 180u /* segments, more than NET_SACK_STEPS */
static_assert(UNDER_WAY > NET_SACK_STEPS + 40, "a walk is cut short");

static void discard_frames(void)
{
	static uint8_t frame[9216];

	run_rounds(2);
	while (fake_sent(frame, sizeof(frame)))
		;
}

/* Returns the n-th segment in flight after the oldest, or NULL. */
static struct tcp_seg *under_way(unsigned n)
{
	struct tcp_seg *seg = ours->pcb.unacked;

	while (seg && n--)
		seg = seg->next;
	return seg;
}

/*
 * Runs until UNDER_WAY segments and a few more are in flight: they are paced.
 */
static void fill_the_window(void)
{
	repair_connect(true, STREAM);
	ours->pcb.cwnd = 200 * MSS;
	for (unsigned ms = 0; !under_way(UNDER_WAY); ms++) {
		assert_true(ms < RTT_MS);
		net_conn_queue_output(ours);
		run_ms(1);
		discard_frames();
	}
}

static void ack_block(unsigned from, unsigned to)
{
	const uint32_t edges[] = {net_seg_begin(under_way(from)),
				  net_seg_end(under_way(to))};

	ack_raw(ours->pcb.lastack, 1, edges);
}

static unsigned count_sacked(void)
{
	unsigned n = 0;

	for (struct tcp_seg *s = ours->pcb.unacked; s; s = s->next)
		n += (net_seg_of(s)->state & NET_SEG_SACKED) != 0;
	return n;
}

static void test_sack_blocks_that_mark_nothing_are_cheap(void **state)
{
	uint32_t edges[8], end;

	fill_the_window();
	end = ours->pcb.snd_nxt;

	for (unsigned i = 0; i < 50; i++) {
		for (unsigned k = 0; k < 4; k++) {
			edges[2 * k] = end - MSS * k - i % 7 - 2;
			edges[2 * k + 1] = edges[2 * k] + 1;
		}
		ack_raw(ours->pcb.lastack, 4, edges);
		assert_true(ours->has_recovery);
		assert_true(ours->recovery->sack_steps <= NET_SACK_STEPS);
		assert_int_equal(count_sacked(), 0);
	}
}

/* A walk to a repeated block continues where the last one stopped. */
static void test_long_sack_walk_continues_with_the_next_ack(void **state)
{
	unsigned acks = 0;

	fill_the_window();
	while (count_sacked() < 3) {
		assert_true(acks++ < UNDER_WAY / NET_SACK_STEPS + 1);
		ack_block(UNDER_WAY - 4, UNDER_WAY - 2);
		assert_true(ours->recovery->sack_steps <= NET_SACK_STEPS);
	}
	assert_true(acks > 1); /* it was interrupted */
	assert_int_equal(ours->recovery->sacked_segs, 3);
}

/* A block that grows and shrinks in turn marks nothing the second time. */
static void test_alternating_sack_blocks_are_cheap(void **state)
{
	fill_the_window();
	for (unsigned i = 0; i < 50; i++) {
		ack_block(1, i % 2 ? 160 : 1);
		assert_true(ours->recovery->sack_steps <= NET_SACK_STEPS);
	}
	assert_int_equal(count_sacked(), 160);
}

static void ack_two_blocks(unsigned first, unsigned second)
{
	const uint32_t edges[] = {net_seg_begin(under_way(first)),
				  net_seg_end(under_way(first)),
				  net_seg_begin(under_way(second)),
				  net_seg_end(under_way(second))};

	ack_raw(ours->pcb.lastack, 2, edges);
	assert_true(ours->recovery->sack_steps <= NET_SACK_STEPS);
}

static bool is_sacked(unsigned n)
{
	return net_seg_of(under_way(n))->state & NET_SEG_SACKED;
}

/* The newest block differs each time, and is too far away for a walk. */
static void test_newest_sack_block_leaves_steps_for_the_others(void **state)
{
	fill_the_window();
	for (unsigned i = 1; i < 10; i++) {
		ack_two_blocks(UNDER_WAY - i, 3 * i);
		assert_true(is_sacked(3 * i));
	}
}

/* Blocks with new left edges each time: each walk continues the last one. */
static void test_sack_walks_continue_for_new_blocks(void **state)
{
	unsigned marked = 0;

	fill_the_window();
	ack_block(UNDER_WAY, UNDER_WAY); /* the highest: others are below */
	for (unsigned i = 0; i < 8; i++) {
		ack_block(UNDER_WAY - 40 + 3 * i, UNDER_WAY - 40 + 3 * i);
		marked += is_sacked(UNDER_WAY - 40 + 3 * i);
	}
	assert_true(marked >= 7);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_sack_blocks_that_mark_nothing_are_cheap),
		T(test_long_sack_walk_continues_with_the_next_ack),
		T(test_alternating_sack_blocks_are_cheap),
		T(test_newest_sack_block_leaves_steps_for_the_others),
		T(test_sack_walks_continue_for_new_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
