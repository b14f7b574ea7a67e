/*
 * The array of ranges behind data out of order, with as many ranges as a
 * connection may have: it is like a plain array, and cheap in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/ranges.h"
#include "tests/net/ahead.h"
#include "tests/net/fake_glue.h"

#define WINDOW (32u << 20) /* allows NET_RANGES_MAX ranges */

static uint32_t model[NET_RANGES_MAX], n_model;
static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)random_state * n >> 32);
}

static void connect_wide(net_handler handler)
{
	ahead_connect(handler, true);
	ahead_conn->pcb.mss = 512;
	ahead_conn->pcb.rcv_max = ahead_conn->pcb.rcv_wnd = WINDOW;
	n_model = 0;
}

/* Inserts a range and names it by its number. */
static void insert(unsigned at, uint32_t name)
{
	struct net_ooseq *q = net_ranges_make_room(ahead_conn);

	assert_non_null(q);
	net_ranges_insert(q, at, name);
	memmove(model + at + 1, model + at,
		(n_model++ - at) * sizeof(model[0]));
	model[at] = name;
}

static void take_out(unsigned at, unsigned n)
{
	net_ranges_remove(net_ooseq_of(ahead_conn), at, n);
	n_model -= n;
	memmove(model + at, model + at + n, (n_model - at) * sizeof(model[0]));
}

static void check_model(void)
{
	struct net_ooseq *q = net_ooseq_of(ahead_conn);

	assert_int_equal(q->n, n_model);
	for (unsigned i = 0; i < n_model; i++)
		assert_int_equal(net_range_at(q, i)->begin, model[i]);
}

static void free_ranges(void)
{
	net_ranges_free(net_ooseq_of(ahead_conn));
	ahead_conn->pcb.rcv_sacks = NULL;
}

static void test_ranges_keep_their_order(void **state)
{
	connect_wide(ahead_read_all);
	for (uint32_t i = 0; i < 60000; i++) {
		/* it grows, stays full for a while, and shrinks */
		bool grows = n_model == 0 || random_below(60000) > i;

		if (grows && n_model < NET_RANGES_MAX)
			insert(random_below(n_model + 1), i);
		else if (random_below(100) == 0 && n_model > 100)
			take_out(random_below(n_model - 99), random_below(100));
		else if (random_below(4) == 0)
			take_out(0, 1); /* as bytes are delivered */
		else
			take_out(random_below(n_model), 1);
		if (i % 500 == 0)
			check_model();
	}
	free_ranges();
}

/* Counts the slots whose range is another than in `before`. */
static unsigned count_moved(const struct net_range *before)
{
	struct net_ooseq *q = net_ooseq_of(ahead_conn);
	unsigned n = 0;

	for (unsigned i = 0; i < NET_RANGES_MAX; i++)
		n += memcmp(&before[i],
			    &q->blocks[i / NET_BLOCK][i % NET_BLOCK],
			    sizeof(*before)) != 0;
	return n;
}

static void copy_slots(struct net_range *before)
{
	struct net_ooseq *q = net_ooseq_of(ahead_conn);

	for (unsigned i = 0; i < NET_RANGES_MAX / NET_BLOCK; i++)
		memcpy(before + i * NET_BLOCK, q->blocks[i],
		       NET_BLOCK * sizeof(*before));
}

/* Without runs, half of all ranges move. */
static void test_worst_insertion_moves_few_ranges(void **state)
{
	struct net_range *before = calloc(NET_RANGES_MAX, sizeof(*before));
	unsigned most = 2 * NET_RUN + NET_RANGES_MAX / NET_RUN;

	assert_non_null(before);
	connect_wide(ahead_read_all);
	for (uint32_t i = 0; i < NET_RANGES_MAX - 1; i++)
		insert(i / 2, i + 1);
	for (unsigned i = 0; i < 50; i++) {
		unsigned at = n_model / 2 + random_below(200) - 100;

		copy_slots(before);
		insert(at, 100000 + i);
		assert_in_range(count_moved(before), 1, most);
		copy_slots(before);
		take_out(n_model / 2 + random_below(200) - 100, 1);
		assert_in_range(count_moved(before), 1, most);
	}
	check_model();
	free_ranges();
	free(before);
}

static void put_byte(uint32_t at)
{
	ahead_put(at, at + 1, 0);
	run_rounds(1);
	ahead_drain();
}

/*
 * Every second byte comes in the worst order, the middle last, then what is
 * missing in the same order from the end.
 */
static void test_bytes_in_the_worst_order_make_the_stream(void **state)
{
	const uint32_t ranges = 4000;

	connect_wide(ahead_read_all);
	for (uint32_t i = 0; i < ranges; i++)
		put_byte(i % 2 ? 2 * (ranges - i / 2) - 1 : i + 1);
	assert_int_equal(net_ooseq_of(ahead_conn)->n, ranges);
	for (uint32_t i = ranges; i-- > 0;)
		put_byte(i % 2 ? 2 * (ranges - i / 2) - 2 : i);
	ahead_expect_read(2 * ranges);
	ahead_expect_held(0);
	assert_int_equal(net_here()->stats.ooseq_drops, 0);
}

int main(void)
{
#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, ahead_teardown)
	const struct CMUnitTest tests[] = {
		T(test_ranges_keep_their_order),
		T(test_worst_insertion_moves_few_ranges),
		T(test_bytes_in_the_worst_order_make_the_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
