/*
 * Coroutines of the stack that wait for the kernel: descriptors and functions
 * that block.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/coro_io.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static int fds[2];
static int64_t until;

static void *wait_for_fd(void *arg)
{
	result = net_fd_wait(fds[0], POLLIN, until);
	ended++;
	return NULL;
}

static void wait_later(void)
{
	assert_int_equal(net_spawn(stack, "waits", wait_for_fd, NULL), 0);
	run_ms(3);
}

static void expect_wait(int value)
{
	run_ms(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, value);
	ended = 0;
}

static void test_descriptor_wakes_a_coroutine(void **state)
{
	wait_later();
	assert_int_equal(ended, 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	expect_wait(POLLIN);
}

static void test_deadline_ends_the_wait(void **state)
{
	until = fake_now_ns + 10 * INT64_C(1000000);
	wait_later();
	assert_int_equal(ended, 0);
	run_ms(10);
	expect_wait(-ETIMEDOUT);
}

static void *stop_handler(void *arg)
{
	net_stack_stop(stack);
	return NULL;
}

static void test_wait_ends_when_the_stack_stops(void **state)
{
	wait_later();
	net_spawn(stack, "stops", stop_handler, NULL);
	assert_int_equal(net_stack_run(stack), 0);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECANCELED);
}

static void test_wait_is_refused_once_the_stack_stops(void **state)
{
	net_stack_stop(stack);
	assert_int_equal(net_spawn(stack, "waits", wait_for_fd, NULL), 0);
	assert_int_equal(net_stack_run(stack), 0);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECANCELED);
}

/* A handler that waits without an end does not outlive the stack. */
static void test_stack_closes_during_a_wait(void **state)
{
	wait_later();
	assert_int_equal(coro_fd_waiting(net_here()->sched), 1);
}

static pthread_t here, there;

static void *note_thread(void *arg)
{
	there = pthread_self();
	return arg;
}

static void *offloads(void *arg)
{
	void *value = NULL;

	result = net_offload(note_thread, &there, &value, CORO_FOREVER);
	assert_ptr_equal(value, &there);
	ended++;
	return NULL;
}

static void test_blocking_function_runs_elsewhere(void **state)
{
	here = pthread_self();
	assert_int_equal(net_spawn(stack, "offloads", offloads, NULL), 0);
	while (!ended) {
		run_rounds(1);
		usleep(100);
	}
	assert_int_equal(result, 0);
	assert_false(pthread_equal(here, there));
}

static int setup(void **state)
{
	until = CORO_FOREVER;
	if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0)
		return -1;
	return peer_listen(state);
}

static int teardown(void **state)
{
	int err = peer_teardown(state);

	close(fds[0]);
	close(fds[1]);
	return err;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_descriptor_wakes_a_coroutine),
		T(test_deadline_ends_the_wait),
		T(test_wait_ends_when_the_stack_stops),
		T(test_wait_is_refused_once_the_stack_stops),
		T(test_stack_closes_during_a_wait),
		T(test_blocking_function_runs_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
