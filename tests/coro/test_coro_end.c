/* What runs when a coroutine ends: the function of coro_sched_last(). */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_last_function_is_called_once),
		BOTH(test_last_function_runs_after_cleanups_of_an_exit),
		BOTH(test_last_function_runs_when_destroyed),
		BOTH(test_last_function_runs_when_resumed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
