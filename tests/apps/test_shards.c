/*
 * Calls on each shard, from a coroutine of a real scheduler: net_call() is a
 * function of the test's, which may fail before it calls.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/common/coronet_shards.h"

#define SHARDS 3

static int error;	       /* of net_call() */
static unsigned failures;      /* calls that get it before each that succeeds */
static int fn_error;	       /* of the function that is called */
static unsigned calls[SHARDS]; /* of the function, by argument */

/* ---- net.h ---- */

struct net_stack *net_stack_here(void)
{
	return NULL;
}

unsigned net_stack_shards(const struct net_stack *stack)
{
	return SHARDS;
}

int net_call(unsigned shard, coro_fn fn, void *arg, void **result)
{
	static unsigned failed;

	if (failed < failures) {
		failed++;
		return error;
	}
	failed = 0;
	*result = fn(arg);
	return 0;
}

/* ---- cases ---- */

static void *count_call(void *arg)
{
	++*(unsigned *)arg;
	return (void *)(intptr_t)fn_error;
}

static void *call_all(void *arg)
{
	*(int *)arg = shards_call(count_call, calls, sizeof(calls[0]));
	return NULL;
}

/* Returns the result of shards_call() in a coroutine. */
static int call_in_coroutine(void)
{
	struct coro_sched *sched;
	int result = 1;

	memset(calls, 0, sizeof(calls));
	assert_int_equal(coro_sched_open(NULL, &sched), 0);
	assert_int_equal(coro_spawn(sched, NULL, call_all, &result, NULL), 0);
	assert_int_equal(coro_sched_run(sched), 0);
	coro_sched_close(sched);
	return result;
}

static void test_call_is_repeated_while_it_cannot_be_made(void **state)
{
	static const int errors[] = {-ENOMEM, -EAGAIN};

	failures = 2;
	fn_error = 0;
	for (unsigned i = 0; i < 2; i++) {
		error = errors[i];
		assert_int_equal(call_in_coroutine(), 0);
		for (unsigned k = 0; k < SHARDS; k++)
			assert_int_equal(calls[k], 1);
	}
}

static void test_end_of_the_program_ends_the_calls(void **state)
{
	failures = UINT32_MAX;
	error = -ESHUTDOWN;
	assert_int_equal(call_in_coroutine(), -ESHUTDOWN);
}

static void test_error_of_the_function_ends_the_calls(void **state)
{
	failures = 0;
	fn_error = -ENOMEM;
	assert_int_equal(call_in_coroutine(), -ENOMEM);
	assert_int_equal(calls[0], 1);
	assert_int_equal(calls[1], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_call_is_repeated_while_it_cannot_be_made),
		cmocka_unit_test(test_end_of_the_program_ends_the_calls),
		cmocka_unit_test(test_error_of_the_function_ends_the_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
