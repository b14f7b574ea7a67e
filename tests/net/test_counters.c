/* The table of counters, and what is made from it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/counters.h"
#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define N_SHARDS 3u

static void cover(uint8_t *covered, const struct net_counter *counter)
{
	assert_true(counter->at + counter->bytes <= sizeof(struct net_stats));
	for (size_t i = 0; i < counter->bytes; i++)
		covered[counter->at + i]++;
}

static void test_each_member_of_net_stats_has_one_entry(void **state)
{
	uint8_t covered[sizeof(struct net_stats)] = {0};

	for (unsigned i = 0; i < net_n_metric_families; i++)
		for (unsigned k = 0; k < net_metric_families[i].n; k++)
			cover(covered, &net_metric_families[i].counters[k]);
	for (size_t at = 0; at < sizeof(covered); at++)
		assert_int_equal(covered[at], 1);
}

static void test_values_are_unsigned_or_64_bits_or_histograms(void **state)
{
	for (unsigned i = 0; i < net_n_metric_families; i++) {
		const struct net_metric_family *family =
			&net_metric_families[i];

		assert_true(family->n > 0);
		for (unsigned k = 0; k < family->n; k++) {
			const struct net_counter *c = &family->counters[k];

			assert_int_equal(!c->label, !family->label);
			if (family->type == NET_HISTOGRAM)
				assert_int_equal(c->bytes,
						 sizeof(struct net_hist));
			else
				assert_true(c->bytes == sizeof(uint64_t) ||
					    c->bytes == sizeof(unsigned));
			if (c->port_at)
				assert_int_equal(c->bytes, sizeof(uint64_t));
		}
	}
}

static void test_all_but_values_of_the_program_are_summed_up(void **state)
{
	struct net_stats shards[N_SHARDS] = {0}, all;

	for (unsigned i = 0; i < N_SHARDS; i++) {
		shards[i].rx_frames = UINT64_C(1) << (i + 33);
		shards[i].rtt.buckets[5] = i + 1;
		shards[i].round.sum_ns = 10;
		shards[i].busy_ns = 1000;
		shards[i].conns = 1u << (i + 20);
		shards[i].frames = i;
		shards[i].memory_max_bytes = UINT64_C(5) << 32;
		shards[i].log_dropped = 7;
	}
	net_stats_sum(&all, shards, N_SHARDS);
	assert_int_equal(all.rx_frames, UINT64_C(7) << 33);
	assert_int_equal(all.rtt.buckets[5], 6);
	assert_int_equal(all.round.sum_ns, 30);
	assert_int_equal(all.busy_ns, 3000);
	assert_int_equal(all.conns, 7u << 20);
	assert_int_equal(all.half_open, 0);
	assert_int_equal(all.frames, 3);
	assert_int_equal(all.memory_max_bytes, UINT64_C(15) << 32);
	assert_int_equal(all.log_dropped, 7);
}

static void test_counters_of_ports_are_those_of_the_shard(void **state)
{
	const struct glue_port_stats port = {
		.rx_frames = 1,
		.rx_bytes = 2,
		.rx_bad_frame = 3,
		.rx_bad_csum = 4,
		.rx_refused = 5,
		.rx_other_vlan = 6,
		.rx_missed = 7,
		.rx_handed_over = 8,
		.rx_hand_over_full = 9,
		.rx_taken_over = 10,
		.tx_frames = 11,
		.tx_bytes = 12,
		.tx_no_frame = 13,
		.tx_dropped = 14,
	};
	struct net_stats stats;

	fake_port_stats = port;
	net_stack_stats(stack, &stats);
	fake_port_stats = (struct glue_port_stats){0};
	assert_int_equal(stats.rx_frames, 1);
	assert_int_equal(stats.rx_bytes, 2);
	assert_int_equal(stats.rx_bad_frame, 3);
	assert_int_equal(stats.rx_bad_csum, 4);
	assert_int_equal(stats.rx_refused, 5);
	assert_int_equal(stats.rx_other_vlan, 6);
	assert_int_equal(stats.rx_missed, 7);
	assert_int_equal(stats.handed_over, 8);
	assert_int_equal(stats.rx_hand_over_full, 9);
	assert_int_equal(stats.taken_over, 10);
	assert_int_equal(stats.tx_frames, 11);
	assert_int_equal(stats.tx_bytes, 12);
	assert_int_equal(stats.tx_no_frame, 13);
	assert_int_equal(stats.tx_dropped, 14);
	assert_int_equal(stats.no_memory, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_member_of_net_stats_has_one_entry),
		cmocka_unit_test(
			test_values_are_unsigned_or_64_bits_or_histograms),
		cmocka_unit_test(
			test_all_but_values_of_the_program_are_summed_up),
		cmocka_unit_test_setup_teardown(
			test_counters_of_ports_are_those_of_the_shard,
			peer_listen, peer_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
