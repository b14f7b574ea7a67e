/*
 * A bound on a scheduler's memory: allocations beyond it fail, existing
 * coroutines continue.
 */
#include "test_coro.h"

static int parked;

/* Deep enough that its saved bytes take a buffer of their own. */
__attribute__((noinline)) static int park_deep(void)
{
	volatile char deep[1024];
	int err;

	deep[0] = 1;
	err = coro_park();
	return deep[0] == 1 ? err : -1;
}

static void *park_body(void *arg)
{
	parked++;
	park_deep();
	parked--;
	return NULL;
}

static void test_starting_beyond_the_bound_fails(void **state)
{
	struct coro_sched *s = *state;
	size_t bound = coro_sched_memory(s) + 64 * 1024;
	unsigned n = 0;

	coro_sched_limit_memory(s, bound);
	while (n < 100000 && coro_spawn(s, NULL, park_body, NULL, NULL) == 0)
		n++;
	assert_true(n > 100 && n < 1000);
	assert_true(coro_sched_memory(s) <= bound);
	coro_sched_limit_memory(s, SIZE_MAX);
	assert_int_equal(coro_spawn(s, NULL, park_body, NULL, NULL), 0);
	run_idle(s);
}

static void test_stacks_are_put_aside_beyond_the_bound(void **state)
{
	struct coro_sched *s = *state;

	parked = 0;
	for (int i = 0; i < 200; i++)
		assert_int_equal(coro_spawn(s, NULL, park_body, NULL, NULL), 0);
	coro_sched_limit_memory(s, 0);
	run_idle(s);
	assert_int_equal(parked, 200);
	assert_true(coro_sched_memory(s) > 200 * 1024);
	assert_in_range(coro_sched_memory_live(s), 150 * 1024,
			coro_sched_memory(s));
}

static void *nothing(void *arg)
{
	return NULL;
}

static void test_memory_serves_again_within_the_bound(void **state)
{
	struct coro_sched *s = *state;
	size_t taken;

	for (int i = 0; i < 1000; i++)
		assert_int_equal(coro_spawn(s, NULL, nothing, NULL, NULL), 0);
	run_idle(s);
	taken = coro_sched_memory(s);
	assert_int_equal(coro_sched_memory_live(s), 0);
	coro_sched_limit_memory(s, 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(coro_spawn(s, NULL, nothing, NULL, NULL), 0);
	run_idle(s);
	assert_int_equal(coro_sched_memory(s), taken);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_starting_beyond_the_bound_fails),
		cmocka_unit_test_setup_teardown(
			test_stacks_are_put_aside_beyond_the_bound,
			sched_setup_one_stack, sched_teardown),
		BOTH(test_memory_serves_again_within_the_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
