/*
 * A loop that receives datagrams: which errors end it, and how long it sleeps
 * after the others; and sending without waiting. The calls of the stack are the
 * test's.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <coronet/coro.h>

#include "apps/common/datagrams.h"

/* The results of the next calls, of which the last one stays. */
static const int *results;
static unsigned n_results, n_calls;
static int64_t sleeps_ns[32];
static unsigned n_sleeps;
static int sleep_result;

int net_udp_recv_batch(struct net_udp *udp, struct net_datagram *datagrams,
		       unsigned n)
{
	unsigned i = n_calls++;

	return results[i < n_results ? i : n_results - 1];
}

int coro_sleep_ns(int64_t ns)
{
	assert_true(n_sleeps < 32);
	sleeps_ns[n_sleeps++] = ns;
	return sleep_result;
}

/* As with the stack's call, a socket without a watch would wait for room. */
static struct net_udp_watch *socket_watch;
static bool has_room;

void net_udp_set_watch(struct net_udp *udp, struct net_udp_watch *watch)
{
	socket_watch = watch;
}

int net_udp_send_batch(struct net_udp *udp,
		       const struct net_datagram *datagrams, unsigned n)
{
	if (has_room)
		return (int)n;
	assert_non_null(socket_watch);
	socket_watch->fn(udp, socket_watch);
	return -EAGAIN;
}

static uint64_t errors;

static int recv_with(const int *next, unsigned n)
{
	struct net_datagram got;

	results = next;
	n_results = n;
	n_calls = n_sleeps = 0;
	errors = 0;
	return datagrams_recv(NULL, &got, 1, &errors);
}

static void test_datagrams_are_returned_at_once(void **state)
{
	sleep_result = 0;
	assert_int_equal(recv_with((const int[]){3}, 1), 3);
	assert_int_equal(n_sleeps, 0);
	assert_int_equal(errors, 0);
}

static void test_loop_goes_on_after_a_lack_of_memory(void **state)
{
	static const int next[] = {-ENOBUFS, -ENOMEM, -ECONNREFUSED, 1};

	sleep_result = 0;
	assert_int_equal(recv_with(next, 4), 1);
	assert_int_equal(errors, 3);
	assert_int_equal(n_sleeps, 3);
}

static void test_pauses_double_up_to_a_second(void **state)
{
	int next[21];

	sleep_result = 0;
	for (unsigned i = 0; i < 20; i++)
		next[i] = -ENOBUFS;
	next[20] = 1;
	assert_int_equal(recv_with(next, 21), 1);
	assert_true(sleeps_ns[0] == DATAGRAMS_PAUSE_MIN_NS);
	for (unsigned i = 1; i < n_sleeps; i++)
		assert_true(sleeps_ns[i] == 2 * sleeps_ns[i - 1] ||
			    sleeps_ns[i] == DATAGRAMS_PAUSE_MAX_NS);
	assert_true(sleeps_ns[19] == DATAGRAMS_PAUSE_MAX_NS);
}

static void test_end_of_the_stack_or_the_socket_ends_the_loop(void **state)
{
	static const int ends[] = {-ECANCELED, -EBADF, -EINVAL, -EPERM};

	sleep_result = 0;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(recv_with(&ends[i], 1), ends[i]);
		assert_int_equal(n_sleeps, 0);
	}
}

static void test_cancelled_pause_ends_the_loop(void **state)
{
	sleep_result = -ECANCELED;
	assert_int_equal(recv_with((const int[]){-ENOBUFS}, 1), -ECANCELED);
	assert_int_equal(n_calls, 1);
}

static void test_sending_does_not_wait_for_room(void **state)
{
	const struct net_datagram answers[2] = {{0}};

	has_room = false;
	assert_int_equal(datagrams_send(NULL, answers, 2), -EAGAIN);
	assert_null(socket_watch); /* receiving waits as before */
	has_room = true;
	assert_int_equal(datagrams_send(NULL, answers, 2), 2);
	assert_null(socket_watch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_datagrams_are_returned_at_once),
		cmocka_unit_test(test_loop_goes_on_after_a_lack_of_memory),
		cmocka_unit_test(test_pauses_double_up_to_a_second),
		cmocka_unit_test(
			test_end_of_the_stack_or_the_socket_ends_the_loop),
		cmocka_unit_test(test_cancelled_pause_ends_the_loop),
		cmocka_unit_test(test_sending_does_not_wait_for_room),
	};

	return cmocka_run_group_tests_name("datagrams", tests, NULL, NULL);
}
