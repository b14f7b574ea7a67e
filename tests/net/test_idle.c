/*
 * Adaptive polling: an idle loop naps; before that it yields the core to
 * competing threads, and stops yielding when that only costs time.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "netstack/link/link_priv.h"
#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define SPELL 256 /* rounds until it naps */
#define EVERY 16  /* rounds from one yield to the next */
#define US    INT64_C(1000)
#define MS    (1000 * US)

static unsigned naps, yields;
static int64_t others_ns; /* time that other threads keep a yielded core */

/* Replaces the C library's function, so that the test does not wait. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
		    struct timespec *left)
{
	naps++;
	return 0;
}

int sched_yield(void)
{
	yields++;
	fake_now_ns += others_ns;
	return 0;
}

/* Receives a segment, which counts as work; it gets no answer. */
static void receive_segment(void)
{
	peer_send_raw(&(struct segment){.src = 9,
					.dst = 9,
					.flags = PEER_RST,
					.options = (const uint8_t *)"",
					.data = (const uint8_t *)""});
	net_stack_round(stack);
	assert_int_equal(stack->empty_rounds, 0);
	naps = yields = 0;
}

static int adaptive_setup(void **state)
{
	int err = peer_setup(state);

	if (err < 0)
		return err;
	stack->adaptive = true;
	others_ns = 0;
	receive_segment();
	return 0;
}

static void empty_rounds(unsigned n)
{
	while (n--)
		net_stack_round(stack);
}

static void test_naps_after_many_empty_rounds(void **state)
{
	empty_rounds(SPELL);
	assert_int_equal(naps, 0);
	empty_rounds(3);
	assert_int_equal(naps, 3);
	receive_segment();
	empty_rounds(SPELL);
	assert_int_equal(naps, 0);
}

static void test_yields_to_a_competing_thread(void **state)
{
	others_ns = 20 * US;
	for (unsigned i = 0; i < 100; i++) {
		receive_segment();
		empty_rounds(EVERY);
		assert_int_equal(yields, 1);
	}
	receive_segment();
	empty_rounds(SPELL);
	assert_int_equal(yields, SPELL / EVERY);
}

/* A yield without a competing thread costs little, but not nothing. */
static void test_yields_rarely_if_alone(void **state)
{
	others_ns = US;
	empty_rounds(SPELL);
	assert_int_equal(yields, 1);
	fake_now_ns += 99 * US;
	empty_rounds(SPELL);
	assert_int_equal(yields, 1);
	receive_segment();
	fake_now_ns += US;
	empty_rounds(SPELL);
	assert_int_equal(yields, 1);
}

/* A program that never sleeps gets a tenth of our time. */
static void test_yields_a_tenth_of_the_time_to_a_greedy_thread(void **state)
{
	int64_t began_ns = fake_now_ns;
	unsigned taken = 0;

	others_ns = 3 * MS;
	while (fake_now_ns < began_ns + 1000 * MS) {
		receive_segment();
		empty_rounds(SPELL);
		taken += yields;
		fake_now_ns += 100 * US;
	}
	assert_in_range(taken, 1000 / 33 - 2, 1000 / 33 + 2);
}

static void *sleeper(void *arg)
{
	coro_sleep_ns(100 * MS);
	return NULL;
}

/* A timer that expires before the end of a nap comes first. */
static void test_neither_naps_nor_yields_before_a_timer(void **state)
{
	others_ns = 20 * US;
	assert_int_equal(coro_spawn(stack->sched, NULL, sleeper, NULL, NULL),
			 0);
	receive_segment();
	empty_rounds(1);
	fake_now_ns = coro_sched_next_ns(stack->sched) - 10 * US;
	empty_rounds(2 * SPELL);
	assert_int_equal(yields, 0);
	assert_int_equal(naps, 0);
	fake_now_ns += 100 * MS;
	empty_rounds(2); /* it ends */
	receive_segment();
	empty_rounds(SPELL + 1);
	assert_int_equal(yields, SPELL / EVERY);
	assert_int_equal(naps, 1);
}

static void test_busy_polling_neither_naps_nor_yields(void **state)
{
	stack->adaptive = false;
	empty_rounds(10 * SPELL);
	assert_int_equal(yields, 0);
	assert_int_equal(naps, 0);
}

/* Sends like a timer, at the end of a round without work. */
static void send_to_ourselves(void)
{
	struct pbuf *p = pbuf_alloc(PBUF_RAW, 20, PBUF_RAM);

	memset(p->payload, 0, 20); /* no protocol */
	net_loop_output(netif_default, p);
	pbuf_free(p);
	fake_on_flush = NULL;
}

static void test_looped_packet_is_received_before_a_nap(void **state)
{
	empty_rounds(SPELL + 1);
	assert_int_equal(naps, 1);
	fake_on_flush = send_to_ourselves;
	empty_rounds(2);
	assert_int_equal(naps, 1);
	empty_rounds(SPELL + 1);
	assert_int_equal(naps, 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, adaptive_setup, peer_teardown)
	static const struct CMUnitTest tests[] = {
		T(test_naps_after_many_empty_rounds),
		T(test_yields_to_a_competing_thread),
		T(test_yields_rarely_if_alone),
		T(test_yields_a_tenth_of_the_time_to_a_greedy_thread),
		T(test_neither_naps_nor_yields_before_a_timer),
		T(test_busy_polling_neither_naps_nor_yields),
		T(test_looped_packet_is_received_before_a_nap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
