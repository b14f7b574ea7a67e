/*
 * The asymmetric core: resume, suspend, status, reset, destroy, cleanups, local
 * storage, FP control words.
 */
#include "test_coro.h"

#include <pthread.h>

static void *echoes(void *arg)
{
	void *in = arg;

	for (int i = 0; i < 3; i++)
		assert_int_equal(coro_suspend((char *)in + 1, &in), 0);
	return (char *)in + 100;
}

static void test_values_pass_in_both_directions(void **state)
{
	struct coro *co;
	void *out = NULL;

	assert_int_equal(coro_create(*state, NULL, echoes, &co), 0);
	assert_int_equal(coro_status(co), CORO_READY);
	for (long i = 0; i < 3; i++) {
		assert_int_equal(coro_resume(co, (void *)(i * 10), &out), 0);
		assert_int_equal((long)out, i * 10 + 1);
		assert_int_equal(coro_status(co), CORO_SUSPENDED);
	}
	assert_int_equal(coro_resume(co, (void *)30, &out), 0);
	assert_int_equal((long)out, 130);
	assert_int_equal(coro_status(co), CORO_DEAD);
	assert_int_equal(coro_resume(co, NULL, &out), -ESRCH);
	assert_int_equal(coro_destroy(co), 0);
}

static void *returns_arg(void *arg)
{
	return arg;
}

static void test_reset_runs_again(void **state)
{
	const struct coro_attr attrs[] = {{0}, {.stack = CORO_STACK_PRIVATE}};
	struct coro *co;
	void *out = NULL;

	for (int k = 0; k < 2; k++) {
		coro_create(*state, &attrs[k], returns_arg, &co);
		assert_int_equal(coro_reset(co, returns_arg), -EBUSY);
		for (long i = 1; i < 5; i++) {
			assert_int_equal(coro_resume(co, (void *)i, &out), 0);
			assert_int_equal((long)out, i);
			assert_int_equal(coro_reset(co, returns_arg), 0);
		}
		assert_int_equal(coro_destroy(co), 0);
	}
}

static void *resumes_itself(void *arg)
{
	assert_int_equal(coro_resume(coro_self(), NULL, NULL), -EBUSY);
	assert_int_equal(coro_status(coro_self()), CORO_RUNNING);
	assert_int_equal(coro_destroy(coro_self()), -EBUSY);
	return NULL;
}

enum { FIRST_RING = 1000 }; /* of the 1,024 there is room for at first */

static void *counts_itself(void *arg)
{
	++*(unsigned *)arg;
	return NULL;
}

static void test_reset_makes_room_in_the_run_queue(void **state)
{
	static struct coro *again[FIRST_RING], *more[FIRST_RING];
	unsigned ran = 0;

	for (int i = 0; i < FIRST_RING; i++)
		assert_int_equal(coro_spawn(*state, NULL, counts_itself, &ran,
					    &again[i]),
				 0);
	run_idle(*state);
	for (int i = 0; i < FIRST_RING; i++) {
		coro_create(*state, NULL, counts_itself, &more[i]);
		coro_start(more[i], &ran);
	}
	for (int i = 0; i < FIRST_RING; i++) {
		assert_int_equal(coro_reset(again[i], counts_itself), 0);
		assert_int_equal(coro_start(again[i], &ran), 0);
	}
	assert_int_equal(run_idle(*state), 2 * FIRST_RING);
	assert_int_equal(ran, 3 * FIRST_RING);
	for (int i = 0; i < FIRST_RING; i++) {
		coro_destroy(again[i]);
		coro_destroy(more[i]);
	}
}

static void test_resuming_oneself_is_refused(void **state)
{
	struct coro *co;

	coro_create(*state, NULL, resumes_itself, &co);
	assert_int_equal(coro_resume(co, NULL, NULL), 0);
	coro_destroy(co);
}

static void *nest_body(void *arg)
{
	long depth = (long)arg;
	struct coro *co;
	void *out = NULL;

	if (depth == 0)
		return NULL;
	if (coro_create(coro_sched_self(), NULL, nest_body, &co) != 0)
		return (void *)-1000000L;
	if (coro_resume(co, (void *)(depth - 1), &out) != 0)
		return (void *)-1000000L;
	coro_destroy(co);
	return (char *)out + 1;
}

static void test_resume_nests_to_any_depth(void **state)
{
	struct coro *co;
	void *out = NULL;

	coro_create(*state, NULL, nest_body, &co);
	assert_int_equal(coro_resume(co, (void *)MANY(20000L), &out), 0);
	assert_int_equal((long)out, MANY(20000));
	coro_destroy(co);
}

static void cleanup(void *arg)
{
	log_int(*(int *)arg);
	assert_int_equal(coro_sleep_ns(1), -ECANCELED);
	assert_int_equal(coro_suspend(NULL, NULL), -ECANCELED);
}

static void *with_cleanups(void *arg)
{
	int one = 1, two = 2, three = 3; /* locals: must be there at the end */

	assert_int_equal(coro_cleanup_push(cleanup, &one), 0);
	assert_int_equal(coro_cleanup_push(cleanup, &two), 0);
	assert_int_equal(coro_cleanup_push(cleanup, &three), 0);
	assert_int_equal(coro_cleanup_pop(false), 0);
	if (arg == NULL)
		coro_park();
	else if (arg == (void *)1)
		coro_suspend(NULL, NULL);
	else if (arg == (void *)2)
		coro_exit((void *)9);
	/* Returning would destroy its locals first. */
	assert_int_equal(coro_cleanup_pop(true), -1000);
	return NULL;
}

static void *occupies(void *arg)
{
	volatile char pad[2000];

	memset((void *)pad, 0x55, sizeof(pad));
	coro_yield();
	return NULL;
}

static void test_destroy_of_a_parked_coroutine_runs_its_cleanups(void **state)
{
	struct coro *co;

	for (int other = 0; other < 2; other++) {
		log_reset();
		coro_spawn(*state, NULL, with_cleanups, NULL, &co);
		coro_sched_round(*state);
		if (other) /* saves its bytes, on one stack */
			coro_spawn(*state, NULL, occupies, NULL, NULL);
		coro_sched_round(*state);
		assert_int_equal(coro_destroy(co), 0);
		assert_string_equal(test_log, "2 1 ");
		run_idle(*state);
	}
}

static void
test_destroy_of_a_suspended_coroutine_runs_its_cleanups(void **state)
{
	struct coro *co;

	log_reset();
	coro_create(*state, NULL, with_cleanups, &co);
	assert_int_equal(coro_resume(co, (void *)1, NULL), 0);
	assert_int_equal(coro_destroy(co), 0);
	assert_string_equal(test_log, "2 1 ");
}

static void test_exit_runs_cleanups_and_gives_a_result(void **state)
{
	struct coro *co;
	void *out = NULL;

	log_reset();
	coro_create(*state, NULL, with_cleanups, &co);
	assert_int_equal(coro_resume(co, (void *)2, &out), 0);
	assert_int_equal((long)out, 9);
	assert_string_equal(test_log, "2 1 ");
	coro_destroy(co);
}

static struct coro *the_victim;

static void *destroys(void *arg)
{
	assert_int_equal(coro_destroy(the_victim), 0);
	log_int(7);
	return NULL;
}

static void test_destroy_from_another_coroutine(void **state)
{
	log_reset();
	coro_spawn(*state, NULL, with_cleanups, NULL, &the_victim);
	run_idle(*state);
	coro_spawn(*state, NULL, destroys, NULL, NULL);
	run_idle(*state);
	assert_string_equal(test_log, "2 1 7 ");
}

static void test_close_runs_the_cleanups_of_all_coroutines(void **state)
{
	log_reset();
	for (int i = 0; i < 3; i++)
		coro_spawn(*state, NULL, with_cleanups, NULL, NULL);
	run_idle(*state);
	sched_teardown(state);
	assert_string_equal(test_log, "2 1 2 1 2 1 ");
	sched_setup(state);
}

static unsigned key[2];

static void destructor(void *value)
{
	log_int((long)value);
}

static void *uses_locals(void *arg)
{
	assert_null(coro_local_get(key[0]));
	assert_int_equal(coro_local_set(key[0], arg), 0);
	assert_int_equal(coro_local_set(key[1], arg), 0);
	coro_yield();
	assert_ptr_equal(coro_local_get(key[0]), arg);
	assert_ptr_equal(coro_local_get(key[1]), arg);
	assert_int_equal(coro_local_set(255, arg), -EINVAL);
	return NULL;
}

static void *parks_forever(void *arg)
{
	coro_park();
	return NULL;
}

static void *joins_forever(void *arg)
{
	coro_join(arg, NULL);
	return NULL;
}

static void *pushes_and_parks(void *arg)
{
	coro_cleanup_push(cleanup, arg);
	coro_park();
	return NULL;
}

/* The teardown closes. The control blocks are visited in the order in which
 * they were made: the one that is joined first, then last. */
static void test_close_with_a_joiner(void **state)
{
	struct coro *joined[2], *joiner;
	static int number = 1;

	coro_spawn(*state, NULL, parks_forever, NULL, &joined[0]);
	coro_spawn(*state, NULL, joins_forever, joined[0], NULL);
	coro_create(*state, NULL, joins_forever, &joiner);
	coro_spawn(*state, NULL, parks_forever, NULL, &joined[1]);
	coro_start(joiner, joined[1]);
	coro_spawn(*state, NULL, pushes_and_parks, &number, &joined[0]);
	coro_spawn(*state, NULL, joins_forever, joined[0], NULL);
	run_idle(*state);
	assert_int_equal(coro_sched_live(*state), 6);
	assert_int_equal(coro_destroy(joined[0]), -EBUSY);
}

static struct coro *blocker;

static void *resumes_the_blocker(void *arg)
{
	log_int(coro_resume(blocker, NULL, NULL));
	coro_suspend(NULL, NULL);
	return NULL;
}

static void
test_resume_fails_if_the_resumed_coroutine_is_destroyed(void **state)
{
	struct coro *resumer;

	log_reset();
	coro_create(*state, NULL, parks_forever, &blocker);
	coro_spawn(*state, NULL, resumes_the_blocker, NULL, &resumer);
	run_idle(*state);
	assert_string_equal(test_log, "");
	assert_int_equal(coro_destroy(blocker), 0);
	run_idle(*state);
	assert_int_equal(strtol(test_log, NULL, 10), -EAGAIN);
	/* The error is returned once: the next call succeeds. */
	assert_int_equal(coro_start(resumer, NULL), 0);
	run_idle(*state);
	assert_int_equal(coro_join(resumer, NULL), 0);
}

static void test_local_storage_has_destructors(void **state)
{
	log_reset();
	assert_int_equal(coro_key_create(destructor, &key[0]), 0);
	assert_int_equal(coro_key_create(NULL, &key[1]), 0);
	for (long i = 1; i < 4; i++)
		coro_spawn(*state, NULL, uses_locals, (void *)i, NULL);
	run_idle(*state);
	assert_string_equal(test_log, "1 2 3 ");
	assert_int_equal(coro_key_delete(key[0]), 0);
	assert_int_equal(coro_key_delete(key[1]), 0);
	assert_int_equal(coro_key_delete(key[1]), -EINVAL);
	assert_int_equal(coro_local_set(key[0], NULL), -EPERM);
}

static void test_keys_run_out_and_come_back(void **state)
{
	unsigned keys[256], one_more, n = 0;

	while (n < 256 && coro_key_create(NULL, &keys[n]) == 0)
		n++;
	assert_int_equal(n, 256);
	assert_int_equal(coro_key_create(NULL, &one_more), -EAGAIN);
	assert_int_equal(coro_key_delete(keys[100]), 0);
	assert_int_equal(coro_key_create(NULL, &one_more), 0);
	assert_int_equal(one_more, keys[100]);
	while (n > 0)
		assert_int_equal(coro_key_delete(keys[--n]), 0);
}

static void *sets_again(void *arg)
{
	return arg;
}

static void destructor_that_sets(void *value)
{
	log_int((long)value);
	if ((long)value < 3)
		coro_local_set(key[0], (char *)value + 1);
}

static void *sets_one(void *arg)
{
	coro_local_set(key[0], (void *)1);
	return sets_again(arg);
}

static void test_destructors_may_set_values_again(void **state)
{
	log_reset();
	coro_key_create(destructor_that_sets, &key[0]);
	coro_spawn(*state, NULL, sets_one, NULL, NULL);
	run_idle(*state);
	assert_string_equal(test_log, "1 2 3 ");
	coro_key_delete(key[0]);
}

static void *blocks_inside(void *arg)
{
	assert_int_equal(coro_sleep_ns(MS), 0);
	coro_suspend((void *)5, NULL);
	return (void *)6;
}

static void *resumes_a_sleeper(void *arg)
{
	struct coro *co;
	void *out = NULL;

	coro_create(coro_sched_self(), NULL, blocks_inside, &co);
	assert_int_equal(coro_resume(co, NULL, &out), 0);
	log_int((long)out);
	assert_int_equal(coro_resume(co, NULL, &out), 0);
	log_int((long)out);
	coro_destroy(co);
	return NULL;
}

static void test_resumed_coroutine_that_blocks_blocks_its_resumer(void **state)
{
	log_reset();
	coro_spawn(*state, NULL, resumes_a_sleeper, NULL, NULL);
	run_idle(*state);
	assert_string_equal(test_log, "");
	pass_ns(*state, MS + TICK);
	assert_string_equal(test_log, "5 6 ");
}

static void test_resume_by_a_thread_fails_if_the_coroutine_blocks(void **state)
{
	struct coro *co;

	coro_create(*state, NULL, blocks_inside, &co);
	assert_int_equal(coro_resume(co, NULL, NULL), -EAGAIN);
	assert_int_equal(coro_resume(co, NULL, NULL), -EBUSY);
	pass_ns(*state, MS + TICK);
	assert_int_equal(coro_status(co), CORO_SUSPENDED);
	coro_destroy(co);
}

static void *suspends_with_errno(void *arg)
{
	errno = 5;
	coro_suspend(NULL, NULL);
	assert_int_equal(errno, 5);
	return NULL;
}

static void test_errno_is_kept_by_resume_and_suspend(void **state)
{
	struct coro *co;

	coro_create(*state, NULL, suspends_with_errno, &co);
	errno = 3;
	coro_resume(co, NULL, NULL);
	assert_int_equal(errno, 3);
	errno = 4;
	coro_resume(co, NULL, NULL);
	assert_int_equal(errno, 4);
	coro_destroy(co);
}

static void *mixes_private(void *arg)
{
	char pad[3000];

	memset(pad, (int)(long)arg, sizeof(pad));
	for (int i = 0; i < 20; i++) {
		coro_yield();
		assert_int_equal(pad[i * 100], (int)(long)arg);
	}
	return NULL;
}

static void test_private_and_shared_stacks_mix(void **state)
{
	for (long i = 0; i < 100; i++) {
		const struct coro_attr attr = {
			.stack = i % 2 ? CORO_STACK_PRIVATE : CORO_STACK_SHARED,
			.stack_size = i % 2 ? 8192u << i % 3 : 0,
			.no_guard = i % 4 == 1,
		};

		assert_int_equal(coro_spawn(*state, &attr, mixes_private,
					    (void *)(i % 100), NULL),
				 0);
	}
	run_idle(*state);
}

static void test_names_are_kept(void **state)
{
	char name[] = "temporary";
	struct coro *a, *b;

	coro_create(*state, &(struct coro_attr){.name = name}, echoes, &a);
	strcpy(name, "changed");
	coro_create(*state, &(struct coro_attr){.name = name}, echoes, &b);
	assert_string_equal(coro_name(a), "temporary");
	assert_string_equal(coro_name(b), "changed");
	coro_destroy(a);
	coro_destroy(b);
}

static struct coro *foreign;
static int foreign_err[4];

static void *foreign_thread(void *arg)
{
	foreign_err[0] = coro_resume(foreign, NULL, NULL);
	foreign_err[1] = coro_destroy(foreign);
	foreign_err[2] = coro_join(foreign, NULL);
	foreign_err[3] = coro_spawn(arg, NULL, echoes, NULL, NULL);
	return NULL;
}

static void test_foreign_thread_is_refused(void **state)
{
	pthread_t th;

	coro_create(*state, NULL, echoes, &foreign);
	pthread_create(&th, NULL, foreign_thread, *state);
	pthread_join(th, NULL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(foreign_err[i], -EPERM);
	coro_destroy(foreign);
}

static void *thread_of_its_own(void *arg)
{
	struct coro_sched *s;
	struct coro *co;
	void *out = NULL;

	if (coro_sched_open(NULL, &s) != 0)
		return NULL;
	coro_create(s, NULL, echoes, &co);
	for (int i = 0; i < 4; i++)
		coro_resume(co, (void *)1, &out);
	coro_destroy(co);
	coro_sched_close(s);
	return out;
}

static void test_each_thread_may_have_its_scheduler(void **state)
{
	pthread_t th[3];
	void *out = NULL;

	for (int i = 0; i < 3; i++)
		pthread_create(&th[i], NULL, thread_of_its_own, NULL);
	for (int i = 0; i < 3; i++) {
		pthread_join(th[i], &out);
		assert_int_equal((long)out, 101);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_values_pass_in_both_directions),
		BOTH(test_reset_runs_again),
		BOTH(test_reset_makes_room_in_the_run_queue),
		BOTH(test_close_with_a_joiner),
		BOTH(test_resume_fails_if_the_resumed_coroutine_is_destroyed),
		BOTH(test_resuming_oneself_is_refused),
		BOTH(test_resume_nests_to_any_depth),
		BOTH(test_destroy_of_a_parked_coroutine_runs_its_cleanups),
		BOTH(test_destroy_of_a_suspended_coroutine_runs_its_cleanups),
		BOTH(test_exit_runs_cleanups_and_gives_a_result),
		BOTH(test_destroy_from_another_coroutine),
		BOTH(test_close_runs_the_cleanups_of_all_coroutines),
		BOTH(test_local_storage_has_destructors),
		BOTH(test_keys_run_out_and_come_back),
		BOTH(test_destructors_may_set_values_again),
		BOTH(test_resumed_coroutine_that_blocks_blocks_its_resumer),
		BOTH(test_resume_by_a_thread_fails_if_the_coroutine_blocks),
		BOTH(test_errno_is_kept_by_resume_and_suspend),
		BOTH(test_private_and_shared_stacks_mix),
		BOTH(test_names_are_kept),
		BOTH(test_foreign_thread_is_refused),
		BOTH(test_each_thread_may_have_its_scheduler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
