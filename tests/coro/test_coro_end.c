/*
 * What runs when a coroutine ends: the function of coro_sched_last(), and the
 * rest of a library's call that it is blocked in.
 */
#include "test_coro.h"

static unsigned lasts;
static void *last_arg;
static struct coro *last_in;

static int last_yield;
static bool cleaned;

static void note_last(void *arg)
{
	last_yield = coro_yield();
	lasts++;
	last_arg = arg;
	last_in = coro_self();
}

static void note_cleanup(void *arg)
{
	assert_int_equal(lasts, 0);
	cleaned = true;
}

static struct coro *body_in;

static void *ends_with(void *arg)
{
	coro_set_last(arg);
	body_in = coro_self();
	coro_yield();
	return arg;
}

static void *exits_with(void *arg)
{
	coro_set_last(arg);
	coro_cleanup_push(note_cleanup, NULL);
	coro_exit(arg);
}

static void *changes_its_mind(void *arg)
{
	coro_set_last(arg);
	coro_set_last(NULL);
	return arg;
}

static void test_last_function_is_called_once(void **state)
{
	struct coro_sched *s = *state;
	struct coro *co;
	int thing;

	lasts = 0;
	coro_sched_last(s, note_last);
	assert_int_equal(coro_spawn(s, NULL, ends_with, &thing, NULL), 0);
	run_idle(s);
	assert_int_equal(lasts, 1);
	assert_int_equal(last_yield, 0); /* it may block */
	assert_ptr_equal(last_arg, &thing);
	assert_ptr_equal(last_in, body_in);
	/* The control block is reused, without the function. */
	assert_int_equal(coro_spawn(s, NULL, changes_its_mind, &thing, NULL),
			 0);
	run_idle(s);
	assert_int_equal(lasts, 1);
	assert_int_equal(coro_create(s, NULL, changes_its_mind, &co), 0);
	assert_int_equal(coro_resume(co, &thing, NULL), 0);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(lasts, 1);
}

static void test_last_function_runs_after_cleanups_of_an_exit(void **state)
{
	struct coro_sched *s = *state;
	void *exit_result = NULL;
	struct coro *co;
	int thing;

	lasts = 0;
	cleaned = false;
	coro_sched_last(s, note_last);
	assert_int_equal(coro_spawn(s, NULL, exits_with, &thing, &co), 0);
	run_idle(s);
	assert_true(cleaned);
	assert_int_equal(lasts, 1);
	assert_int_equal(last_yield, 0);
	assert_ptr_equal(last_arg, &thing);
	assert_int_equal(coro_join(co, &exit_result), 0);
	assert_ptr_equal(exit_result, &thing);
}

static void test_last_function_runs_when_destroyed(void **state)
{
	struct coro_sched *s = *state;
	struct coro *co;
	int thing;

	lasts = 0;
	coro_sched_last(s, note_last);
	assert_int_equal(coro_spawn(s, NULL, ends_with, &thing, &co), 0);
	coro_sched_round(s);
	assert_int_equal(lasts, 0);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(lasts, 1);
	assert_int_equal(last_yield, -ECANCELED);
	assert_ptr_equal(last_arg, &thing);
	assert_ptr_equal(last_in, body_in);
	run_idle(s);
	assert_int_equal(lasts, 1);
}

/*
 * Sets an argument, which keeps the end of a resumed coroutine with a handle
 * off the fast path.
 */
static void *ends_at_once(void *arg)
{
	coro_set_last(arg);
	return arg;
}

static void note_at_once(void *arg)
{
	lasts++;
}

static void test_last_function_runs_when_resumed(void **state)
{
	struct coro *co;
	int thing;

	lasts = 0;
	coro_sched_last(*state, note_at_once);
	assert_int_equal(coro_create(*state, NULL, ends_at_once, &co), 0);
	assert_int_equal(coro_resume(co, &thing, NULL), 0);
	assert_int_equal(lasts, 1);
	assert_int_equal(coro_destroy(co), 0);
}

/* ---- destroyed in a call of a library ---- */

static int park_result;
static unsigned cleanups, returns;

static void count_cleanup(void *arg)
{
	cleanups++;
}

static void *parks_in_call(void *arg)
{
	coro_cleanup_push(count_cleanup, NULL);
	park_result = coro_park_in_call(arg ? *(int64_t *)arg : CORO_FOREVER);
	if (park_result == -EOWNERDEAD) {
		assert_int_equal(cleanups, 0);
		assert_int_equal(coro_yield(), -ECANCELED);
		coro_exit(NULL);
	}
	coro_yield();
	returns++;
	return NULL;
}

static struct coro *spawn_in_call(struct coro_sched *s, int64_t *deadline_ns)
{
	struct coro *co;

	cleanups = returns = 0;
	park_result = 1;
	assert_int_equal(coro_spawn(s, NULL, parks_in_call, deadline_ns, &co),
			 0);
	coro_sched_round(s);
	return co;
}

static void expect_ended_in_call(struct coro_sched *s, struct coro *co)
{
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(park_result, -EOWNERDEAD);
	assert_int_equal(cleanups, 1);
	assert_int_equal(returns, 0);
	run_idle(s);
	assert_int_equal(returns, 0);
}

static void test_destroy_returns_to_the_call_that_is_parked(void **state)
{
	expect_ended_in_call(*state, spawn_in_call(*state, NULL));
}

static void test_destroy_returns_to_a_call_with_a_deadline(void **state)
{
	static int64_t deadline_ns;

	deadline_ns = fake_now + SEC;
	expect_ended_in_call(*state, spawn_in_call(*state, &deadline_ns));
	pass_ns(*state, 2 * SEC);
	assert_int_equal(park_result, -EOWNERDEAD);
}

static void test_destroy_returns_to_a_call_that_was_woken(void **state)
{
	struct coro *co = spawn_in_call(*state, NULL);

	coro_unpark(co);
	expect_ended_in_call(*state, co);
}

/* The coroutine is in coro_yield() now, which must not return. */
static void test_destroy_ends_in_the_call_after_that(void **state)
{
	struct coro *co = spawn_in_call(*state, NULL);

	coro_unpark(co);
	coro_sched_round(*state);
	assert_int_equal(park_result, 0);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(park_result, 0);
	assert_int_equal(cleanups, 1);
	run_idle(*state);
	assert_int_equal(returns, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_last_function_is_called_once),
		BOTH(test_last_function_runs_after_cleanups_of_an_exit),
		BOTH(test_last_function_runs_when_destroyed),
		BOTH(test_last_function_runs_when_resumed),
		BOTH(test_destroy_returns_to_the_call_that_is_parked),
		BOTH(test_destroy_returns_to_a_call_with_a_deadline),
		BOTH(test_destroy_returns_to_a_call_that_was_woken),
		BOTH(test_destroy_ends_in_the_call_after_that),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
