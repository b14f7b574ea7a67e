/*
 * coro_fast.S: each condition under which resume, suspend and a short life
 * leave the fast path. Under the sanitizers, where that file is empty, the
 * functions in C must behave the same. (FP control words are in
 * test_coro_fp.c.)
 */
#include "test_coro.h"

#include <pthread.h>
#include <unistd.h>

static struct coro_sched *the_sched;

static int setup(void **state)
{
	int err = sched_setup(state);

	the_sched = *state;
	log_reset();
	return err;
}

static int setup_one_stack(void **state)
{
	int err = sched_setup_one_stack(state);

	the_sched = *state;
	log_reset();
	return err;
}

static int setup_measuring(void **state)
{
	int err = sched_setup_with(
		state, &(struct coro_sched_attr){.measure_stacks = true});

	the_sched = *state;
	return err;
}

static struct coro *new_coro(const struct coro_attr *attr, coro_fn fn)
{
	struct coro *co = NULL;

	assert_int_equal(coro_create(the_sched, attr, fn, &co), 0);
	return co;
}

static void *resume(struct coro *co, void *in)
{
	void *out = NULL;

	assert_int_equal(coro_resume(co, in, &out), 0);
	return out;
}

/* ---- coroutines that cannot be resumed ---- */

static void *park_self(void *arg)
{
	coro_park();
	return NULL;
}

static void *sleeps(void *arg)
{
	coro_sleep_ns(SEC);
	return NULL;
}

static void *returns(void *arg)
{
	return arg;
}

static void *resumes_upwards(void *arg)
{
	assert_int_equal(coro_resume(coro_self(), NULL, NULL), -EBUSY);
	assert_int_equal(coro_resume(arg, NULL, NULL), -EBUSY);
	return NULL;
}

static void *resumes_inner(void *arg)
{
	struct coro *inner = new_coro(NULL, resumes_upwards);

	resume(inner, coro_self());
	assert_int_equal(coro_destroy(inner), 0);
	return NULL;
}

static void test_only_new_and_suspended_coroutines_are_resumed(void **state)
{
	const coro_fn blocks[] = {park_self, sleeps};
	struct coro *co = new_coro(NULL, returns);

	resume(co, NULL);
	assert_int_equal(coro_resume(co, NULL, NULL), -ESRCH);
	coro_destroy(co);
	for (int i = 0; i < 2; i++) {
		coro_spawn(the_sched, NULL, blocks[i], NULL, &co);
		assert_int_equal(coro_resume(co, NULL, NULL), -EBUSY);
		coro_sched_round(the_sched);
		assert_int_equal(coro_resume(co, NULL, NULL), -EBUSY);
		assert_int_equal(coro_status(co), CORO_SUSPENDED);
		coro_destroy(co);
	}
	co = new_coro(NULL, resumes_inner);
	resume(co, NULL); /* running, and one that has resumed another */
	coro_destroy(co);
}

static int foreign_err[2];

static void *foreign_thread(void *arg)
{
	struct coro_sched *own;

	foreign_err[0] = coro_resume(arg, NULL, NULL);
	if (coro_sched_open(NULL, &own) != 0)
		return NULL;
	foreign_err[1] = coro_resume(arg, NULL, NULL);
	coro_sched_close(own);
	return NULL;
}

/* With and without a scheduler of its own. */
static void test_foreign_thread_is_refused(void **state)
{
	struct coro *co = new_coro(NULL, returns);
	pthread_t th;

	foreign_err[0] = foreign_err[1] = 0;
	pthread_create(&th, NULL, foreign_thread, co);
	pthread_join(th, NULL);
	assert_int_equal(foreign_err[0], -EPERM);
	assert_int_equal(foreign_err[1], -EPERM);
	assert_int_equal(coro_status(co), CORO_READY);
	coro_destroy(co);
}

/* ---- callers that cannot suspend ---- */

static void test_suspending_a_thread_is_refused(void **state)
{
	void *in = &in;

	assert_int_equal(coro_suspend(NULL, &in), -EPERM);
	assert_ptr_equal(in, &in);
	sched_teardown(state);
	assert_int_equal(coro_suspend(NULL, &in), -EPERM); /* no scheduler */
	setup(state);
}

static void suspends_in_cleanup(void *arg)
{
	log_int(coro_suspend(NULL, NULL));
}

static void *has_cleanup(void *arg)
{
	coro_cleanup_push(suspends_in_cleanup, NULL);
	coro_suspend(NULL, NULL);
	return NULL;
}

static void test_suspending_a_cleanup_is_refused(void **state)
{
	char wanted[16];
	struct coro *co = new_coro(NULL, has_cleanup);

	resume(co, NULL);
	assert_int_equal(coro_destroy(co), 0);
	snprintf(wanted, sizeof(wanted), "%d ", -ECANCELED);
	assert_string_equal(test_log, wanted);
}

/* ---- stacks that are measured ---- */

__attribute__((noinline)) static int digs(volatile int n)
{
	volatile char pad[1000];

	pad[0] = (char)n;
	__asm__ volatile("" : : "r"(pad) : "memory");
	return n <= 0 ? pad[0] : digs(n - 1) + pad[0];
}

static void *digs_and_suspends(void *arg)
{
	digs(50);
	assert_int_equal(coro_suspend((void *)5, NULL), 0);
	return (void *)6;
}

static void *digs_and_returns(void *arg)
{
	digs(50);
	return (void *)7;
}

static void test_suspending_measures_the_stack(void **state)
{
	struct coro *co = new_coro(NULL, digs_and_suspends);

	assert_ptr_equal(resume(co, NULL), (void *)5);
	assert_true(coro_stack_high_water(co) > 50000);
	assert_ptr_equal(resume(co, NULL), (void *)6);
	coro_destroy(co);
}

static void test_returning_measures_the_stack(void **state)
{
	struct coro *co = new_coro(&(struct coro_attr){.name = "digger"},
				   digs_and_returns);

	assert_int_equal(coro_name_high_water(the_sched, "digger"), 64);
	assert_ptr_equal(resume(co, NULL), (void *)7);
	assert_true(coro_name_high_water(the_sched, "digger") > 50000);
	coro_destroy(co);
}

/* ---- occupants of a shared stack ---- */

static void *hold_mark(void *arg)
{
	volatile unsigned char mark[700];
	void *in = arg;

	for (int i = 0; i < 3; i++) {
		memset((void *)mark, (int)(long)in, sizeof(mark));
		assert_int_equal(coro_suspend(in, &in), 0);
		for (size_t k = 0; k < sizeof(mark); k++)
			assert_int_equal(mark[k], (unsigned char)(long)in);
	}
	return (char *)in + 100;
}

static const struct coro_attr on_first = {.shared_stack = 1};

static void test_new_coroutine_saves_the_occupant_of_its_stack(void **state)
{
	struct coro *a = new_coro(&on_first, hold_mark),
		    *b = new_coro(&on_first, hold_mark);

	for (long i = 0; i < 3; i++) {
		errno = 10;
		assert_ptr_equal(resume(a, (void *)1), (void *)1);
		assert_ptr_equal(resume(b, (void *)2), (void *)2);
		assert_int_equal(errno, 10);
	}
	assert_ptr_equal(resume(a, (void *)1), (void *)101);
	assert_ptr_equal(resume(b, (void *)2), (void *)102);
	assert_int_equal(coro_sched_live(the_sched), 0);
	coro_destroy(a);
	coro_destroy(b);
}

/*
 * The stack has no occupant, but this coroutine has begun: its bytes must be
 * restored.
 */
static void test_saved_coroutine_is_restored_to_an_empty_stack(void **state)
{
	struct coro *a = new_coro(&on_first, hold_mark),
		    *b = new_coro(&on_first, returns);

	resume(a, (void *)1);
	assert_ptr_equal(resume(b, (void *)9), (void *)9);
	for (int i = 0; i < 2; i++)
		assert_ptr_equal(resume(a, (void *)1), (void *)1);
	assert_ptr_equal(resume(a, (void *)1), (void *)101);
	coro_destroy(a);
	coro_destroy(b);
}

/*
 * The save buffer is freed, and its size is recorded under the coroutine's
 * name.
 */
static void
test_end_of_a_restored_coroutine_records_its_high_water(void **state)
{
	const struct coro_attr named = {.shared_stack = 1, .name = "aside"};
	struct coro *b = new_coro(&on_first, hold_mark);

	for (int turn = 0; turn < 3; turn++) {
		struct coro *a = new_coro(&named, hold_mark);

		resume(a, (void *)1);
		resume(b, (void *)2);
		for (int i = 0; i < 2; i++)
			resume(a, (void *)1);
		assert_ptr_equal(resume(a, (void *)1), (void *)101);
		coro_destroy(a);
		assert_in_range(coro_name_high_water(the_sched, "aside"), 700,
				8000);
		if (turn == 1) {
			coro_destroy(b);
			b = new_coro(&on_first, hold_mark);
		}
	}
	coro_destroy(b);
}

static void *resumes_on_its_own_stack(void *arg)
{
	volatile unsigned char mark[300];
	struct coro *inner = new_coro(&on_first, arg);

	memset((void *)mark, 0x3c, sizeof(mark));
	assert_ptr_equal(resume(inner, (void *)4), (void *)4);
	for (size_t i = 0; i < sizeof(mark); i++)
		assert_int_equal(mark[i], 0x3c);
	coro_destroy(inner);
	return (void *)8;
}

/* Suspending and ending return to a resumer that was saved. */
static void test_saved_resumer_is_restored(void **state)
{
	const coro_fn inner[] = {returns, hold_mark};

	for (int i = 0; i < 2; i++) {
		struct coro *co = new_coro(&on_first, resumes_on_its_own_stack);

		assert_ptr_equal(resume(co, (void *)inner[i]), (void *)8);
		coro_destroy(co);
	}
}

static void *displaces_its_resumer(void *arg)
{
	struct coro *on_its_stack = new_coro(&on_first, arg);

	assert_ptr_equal(resume(on_its_stack, (void *)4), (void *)4);
	if (coro_status(on_its_stack) == CORO_SUSPENDED)
		log_int(1); /* and holds that stack when we end */
	coro_destroy(on_its_stack);
	return (void *)6;
}

static void *resumes_on_another_stack(void *arg)
{
	const struct coro_attr on_second = {.shared_stack = 2};
	volatile unsigned char mark[300];
	struct coro *inner = new_coro(&on_second, displaces_its_resumer);

	memset((void *)mark, 0x3d, sizeof(mark));
	assert_ptr_equal(resume(inner, arg), (void *)6);
	for (size_t i = 0; i < sizeof(mark); i++)
		assert_int_equal(mark[i], 0x3d);
	coro_destroy(inner);
	return (void *)8;
}

/* A short life ends after its resumer was saved. */
static void test_end_restores_a_saved_resumer(void **state)
{
	const coro_fn third[] = {returns, hold_mark};

	for (int i = 0; i < 2; i++) {
		struct coro *co = new_coro(&on_first, resumes_on_another_stack);

		assert_ptr_equal(resume(co, (void *)third[i]), (void *)8);
		coro_destroy(co);
	}
	assert_string_equal(test_log, "1 ");
}

extern __thread unsigned coro_mem_fail_in; /* in coro_mem.c */

static void *logs_and_yields(void *arg)
{
	volatile unsigned char mark[700];

	memset((void *)mark, (int)(long)arg, sizeof(mark));
	log_int((long)arg);
	coro_yield();
	for (size_t i = 0; i < sizeof(mark); i++)
		assert_int_equal(mark[i], (int)(long)arg);
	log_int((long)arg + 10);
	return NULL;
}

/*
 * Spawned coroutines own their stack before they begin. Another occupant needs
 * no buffer for them, and they still begin.
 */
static void test_coroutine_that_has_not_begun_yields_its_stack(void **state)
{
	struct coro *a = new_coro(&on_first, hold_mark);

	for (long i = 1; i <= 3; i++)
		assert_int_equal(coro_spawn(the_sched, &on_first,
					    logs_and_yields, (void *)i, NULL),
				 0);
	coro_mem_fail_in = 1; /* no allocation happens */
	assert_ptr_equal(resume(a, (void *)1), (void *)1);
	assert_int_equal(coro_mem_fail_in, 1);
	coro_mem_fail_in = 0;
	run_idle(the_sched);
	assert_string_equal(test_log, "1 2 3 11 12 13 ");
	for (int i = 0; i < 2; i++)
		resume(a, (void *)1);
	assert_ptr_equal(resume(a, (void *)1), (void *)101);
	coro_destroy(a);
}

static void
test_coroutine_destroyed_before_it_begins_frees_its_stack(void **state)
{
	struct coro *never, *a = new_coro(&on_first, hold_mark);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(coro_spawn(the_sched, &on_first,
					    logs_and_yields, (void *)1, &never),
				 0);
		coro_destroy(never);
		assert_ptr_equal(resume(a, (void *)1), (void *)1);
	}
	run_idle(the_sched);
	assert_string_equal(test_log, "");
	assert_ptr_equal(resume(a, (void *)1), (void *)101);
	coro_destroy(a);
}

static void *stores_frame_address(void *arg)
{
	*(const char **)arg = __builtin_frame_address(0);
	return NULL;
}

static void test_private_stacks_are_given_back(void **state)
{
	const struct coro_attr private = {.stack = CORO_STACK_PRIVATE,
					  .stack_size = 16384};
	const char *first = NULL, *again = NULL;
	struct coro *co;

	for (int i = 0; i < 100; i++) {
		co = new_coro(&private, stores_frame_address);
		resume(co, i ? &again : &first);
		coro_destroy(co);
		assert_false(coro_on_shared_stack(first));
		if (i > 0)
			assert_ptr_equal(first, again);
		co = new_coro(NULL, returns); /* shared ones go on */
		assert_ptr_equal(resume(co, (void *)3), (void *)3);
		coro_destroy(co);
	}
}

/* ---- ends with work left ---- */

static void log_arg(void *arg)
{
	log_int((long)arg);
}

static unsigned key;

static void *owe_body(void *arg)
{
	if (arg == (void *)1)
		coro_cleanup_push(log_arg, (void *)11);
	else
		coro_local_set(key, (void *)12);
	return arg;
}

static void test_end_runs_cleanups_and_destructors(void **state)
{
	assert_int_equal(coro_key_create(log_arg, &key), 0);
	for (long i = 1; i <= 2; i++) {
		struct coro *co = new_coro(NULL, owe_body);

		assert_ptr_equal(resume(co, (void *)i), (void *)i);
		coro_destroy(co);
	}
	assert_string_equal(test_log, "11 12 ");
	coro_key_delete(key);
}

static struct coro *joined;

static void *join_body(void *arg)
{
	void *result = NULL;

	assert_int_equal(coro_join(joined, &result), 0);
	log_int((long)result);
	return NULL;
}

static void test_end_wakes_the_joiner(void **state)
{
	joined = new_coro(NULL, hold_mark);
	resume(joined, (void *)1);
	coro_spawn(the_sched, NULL, join_body, NULL, NULL);
	run_idle(the_sched);
	for (int i = 0; i < 3; i++)
		resume(joined, (void *)1);
	assert_string_equal(test_log, "");
	run_idle(the_sched);
	assert_string_equal(test_log, "101 ");
}

static void test_result_waits_for_a_late_joiner(void **state)
{
	struct coro *co = new_coro(NULL, returns);
	void *result = NULL;

	resume(co, (void *)17);
	assert_int_equal(coro_join(co, &result), 0);
	assert_ptr_equal(result, (void *)17);
}

/* A dump from within the dumped coroutine. */
static void *resumes_and_dumps(void *arg)
{
	static char said[4096];
	struct coro *inner = new_coro(NULL, returns);
	int fds[2];

	resume(inner, NULL);
	coro_destroy(inner);
	assert_int_equal(pipe(fds), 0);
	coro_sched_dump(the_sched, fds[1]);
	close(fds[1]);
	assert_true(read(fds[0], said, sizeof(said) - 1) > 0);
	close(fds[0]);
	assert_non_null(strstr(said, "running"));
	return NULL;
}

static void test_resumer_runs_again(void **state)
{
	struct coro *co = new_coro(NULL, resumes_and_dumps);

	resume(co, NULL);
	coro_destroy(co);
}

static void *detaches_itself(void *arg)
{
	coro_detach(coro_self());
	return NULL;
}

static void test_end_of_a_detached_coroutine_recycles_it(void **state)
{
	struct coro *co = new_coro(NULL, detaches_itself), *next;

	assert_int_equal(coro_resume(co, NULL, NULL), 0);
	next = new_coro(NULL, returns);
	assert_ptr_equal(next, co);
	coro_destroy(next);
}

static void *sleeps_first(void *arg)
{
	coro_sleep_ns(MS);
	log_int(1);
	return (void *)21;
}

static void *resumes_sleeper(void *arg)
{
	log_int((long)resume(arg, NULL));
	return NULL;
}

/*
 * The coroutine blocked after a thread resumed it, and is joined by a
 * coroutine.
 */
static void test_end_after_blocking(void **state)
{
	struct coro *co = new_coro(NULL, sleeps_first), *resumer;

	assert_int_equal(coro_resume(co, NULL, NULL), -EAGAIN);
	pass_ns(the_sched, 2 * MS);
	assert_int_equal(coro_status(co), CORO_DEAD);
	assert_string_equal(test_log, "1 ");
	coro_reset(co, sleeps_first);
	coro_spawn(the_sched, NULL, resumes_sleeper, co, &resumer);
	run_idle(the_sched);
	assert_int_equal(coro_status(resumer), CORO_RUNNING);
	pass_ns(the_sched, 2 * MS);
	assert_string_equal(test_log, "1 1 21 ");
	coro_join(resumer, NULL);
	coro_destroy(co);
}

/* Coroutines handed to the scheduler after a suspend end in a round. */
static void test_coroutine_started_after_a_suspend_ends_in_a_round(void **state)
{
	struct coro *co[3];

	for (long i = 0; i < 3; i++) {
		co[i] = new_coro(NULL, hold_mark);
		for (int k = 0; k < 3; k++)
			resume(co[i], (void *)i);
	}
	for (long i = 0; i < 3; i++)
		assert_int_equal(coro_start(co[i], (void *)i), 0);
	assert_int_equal(coro_sched_round(the_sched), 3);
	for (long i = 0; i < 3; i++) {
		void *result = NULL;

		assert_int_equal(coro_join(co[i], &result), 0);
		assert_int_equal((long)result, 100 + i);
	}
}

static void *leaves_flags(void *arg)
{
	coro_deadline_set(0);
	coro_unpark(coro_self());
	coro_cancel(coro_self());
	errno = 55;
	return arg;
}

static void *finds_none(void *arg)
{
	assert_int_equal(errno, 0);
	assert_false(coro_cancelled());
	assert_true(coro_deadline() == CORO_FOREVER);
	assert_int_equal(coro_park(), 0);
	log_int(1);
	return NULL;
}

static void test_second_life_begins_clean(void **state)
{
	struct coro *co = new_coro(NULL, leaves_flags);

	errno = 33;
	assert_ptr_equal(resume(co, (void *)2), (void *)2);
	assert_int_equal(errno, 33);
	assert_int_equal(coro_status(co), CORO_DEAD);
	assert_int_equal(coro_sched_live(the_sched), 0);
	assert_int_equal(coro_reset(co, finds_none), 0);
	assert_int_equal(coro_sched_live(the_sched), 1);
	assert_int_equal(coro_resume(co, NULL, NULL), -EAGAIN);
	run_idle(the_sched);
	assert_string_equal(test_log, ""); /* it waits: no unpark is left */
	coro_unpark(co);
	run_idle(the_sched);
	assert_string_equal(test_log, "1 ");
	coro_destroy(co);
}

#define T(name, up) cmocka_unit_test_setup_teardown(name, up, sched_teardown)
#define EACH(name)                                                             \
	T(name, setup),                                                        \
	{                                                                      \
#name "_on_one_stack", name, setup_one_stack, sched_teardown,  \
			NULL                                                   \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_only_new_and_suspended_coroutines_are_resumed),
		EACH(test_foreign_thread_is_refused),
		T(test_suspending_a_thread_is_refused, setup),
		EACH(test_suspending_a_cleanup_is_refused),
		T(test_suspending_measures_the_stack, setup_measuring),
		T(test_returning_measures_the_stack, setup_measuring),
		EACH(test_new_coroutine_saves_the_occupant_of_its_stack),
		EACH(test_saved_coroutine_is_restored_to_an_empty_stack),
		EACH(test_end_of_a_restored_coroutine_records_its_high_water),
		EACH(test_saved_resumer_is_restored),
		T(test_end_restores_a_saved_resumer, setup),
		EACH(test_coroutine_that_has_not_begun_yields_its_stack),
		EACH(test_coroutine_destroyed_before_it_begins_frees_its_stack),
		EACH(test_private_stacks_are_given_back),
		EACH(test_end_runs_cleanups_and_destructors),
		EACH(test_end_wakes_the_joiner),
		EACH(test_result_waits_for_a_late_joiner),
		EACH(test_resumer_runs_again),
		EACH(test_end_of_a_detached_coroutine_recycles_it),
		EACH(test_end_after_blocking),
		EACH(test_coroutine_started_after_a_suspend_ends_in_a_round),
		EACH(test_second_life_begins_clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
