/*
 * Scheduler: rounds, parking, sleeping, cancelling, joining, deadlines.
 * Every test runs twice: on many stacks, and on one, where each switch copies.
 */
#include <pthread.h>

#include <coronet/coro_io.h>

#include "test_coro.h"

struct worker {
	int id;
	int rounds;
	int err;
	struct coro *co;
	int64_t deadline;
	void *ptr;
};

static void *yielder(void *arg)
{
	struct worker *w = arg;
	int id = w->id;
	/* Something on the stack that must survive the others' turns. */
	volatile unsigned char mark[600];

	memset((void *)mark, id, sizeof(mark));
	for (int i = 0; i < w->rounds; i++) {
		log_int(id * 100 + i);
		assert_int_equal(coro_yield(), 0);
		for (size_t k = 0; k < sizeof(mark); k++)
			assert_int_equal(mark[k], (unsigned char)id);
	}
	return arg;
}

static void test_yield_interleaves_in_spawn_order(void **state)
{
	static struct worker w[3];

	log_reset();
	for (int i = 0; i < 3; i++) {
		w[i] = (struct worker){.id = i + 1, .rounds = 2};
		assert_int_equal(coro_spawn(*state, NULL, yielder, &w[i], NULL),
				 0);
	}
	run_idle(*state);
	assert_string_equal(test_log, "100 200 300 101 201 301 ");
}

static void test_round_resumes_each_ready_once(void **state)
{
	static struct worker w[4];

	for (int i = 0; i < 4; i++) {
		w[i] = (struct worker){.id = i, .rounds = 3};
		coro_spawn(*state, NULL, yielder, &w[i], NULL);
	}
	assert_int_equal(coro_sched_round(*state), 4);
	assert_int_equal(coro_sched_round(*state), 4);
	assert_int_equal(coro_sched_round(*state), 4);
	assert_int_equal(coro_sched_round(*state), 4);
	assert_int_equal(coro_sched_round(*state), 0);
	assert_false(coro_sched_ready(*state));
}

static void *parker(void *arg)
{
	struct worker *w = arg;

	for (;;) {
		w->err = coro_park();
		if (w->err < 0)
			break;
		w->rounds++;
	}
	return &w->rounds;
}

static void test_park_waits_for_unpark(void **state)
{
	static struct worker w;
	struct coro *co;
	void *result;

	w = (struct worker){0};
	assert_int_equal(coro_spawn(*state, NULL, parker, &w, &co), 0);
	run_idle(*state);
	assert_int_equal(w.rounds, 0);
	assert_int_equal(coro_status(co), CORO_SUSPENDED);
	coro_unpark(co);
	assert_int_equal(coro_status(co), CORO_READY);
	run_idle(*state);
	assert_int_equal(w.rounds, 1);
	coro_cancel(co);
	run_idle(*state);
	assert_int_equal(w.err, -ECANCELED);
	assert_int_equal(coro_status(co), CORO_DEAD);
	assert_int_equal(coro_join(co, &result), 0);
	assert_ptr_equal(result, &w.rounds);
}

static void test_unpark_that_comes_first_is_remembered_once(void **state)
{
	static struct worker w;
	struct coro *co;

	w = (struct worker){0};
	coro_spawn(*state, NULL, parker, &w, &co);
	coro_unpark(co);
	coro_unpark(co);
	run_idle(*state);
	assert_int_equal(w.rounds, 1);
	coro_detach(co);
}

static void *sleeper(void *arg)
{
	struct worker *w = arg;

	w->err = coro_sleep_ns(w->rounds * MS);
	log_int(w->id);
	return NULL;
}

static void test_sleepers_wake_in_order_of_their_deadlines(void **state)
{
	static struct worker w[3];
	static const int ms[3] = {30, 10, 20};

	log_reset();
	for (int i = 0; i < 3; i++) {
		w[i] = (struct worker){.id = i, .rounds = ms[i]};
		coro_spawn(*state, NULL, sleeper, &w[i], NULL);
	}
	run_idle(*state);
	pass_ns(*state, 10 * MS - 1);
	assert_string_equal(test_log, "");
	pass_ns(*state, TICK);
	assert_string_equal(test_log, "1 ");
	pass_ns(*state, 10 * MS);
	pass_ns(*state, 10 * MS);
	assert_string_equal(test_log, "1 2 0 ");
	assert_int_equal(coro_sched_next_ns(*state), CORO_FOREVER);
}

static void test_sleepers_with_equal_deadlines_wake_in_order(void **state)
{
	static struct worker w[8];

	for (int ms = 1; ms < 300; ms *= 6) {
		log_reset();
		for (int i = 0; i < 8; i++) {
			w[i] = (struct worker){.id = i, .rounds = ms};
			coro_spawn(*state, NULL, sleeper, &w[i], NULL);
		}
		run_idle(*state);
		pass_ns(*state, ms * MS + TICK);
		assert_string_equal(test_log, "0 1 2 3 4 5 6 7 ");
	}
}

static void *park_until(void *arg)
{
	struct worker *w = arg;

	w->err = coro_park_until(fake_now + 5 * MS);
	w->rounds++;
	return NULL;
}

static void test_park_until_times_out(void **state)
{
	static struct worker w;

	w = (struct worker){.err = 1};
	coro_spawn(*state, NULL, park_until, &w, NULL);
	run_idle(*state);
	pass_ns(*state, 5 * MS - 1);
	assert_int_equal(w.err, 1);
	pass_ns(*state, TICK);
	assert_int_equal(w.err, -ETIMEDOUT);
}

static void test_unpark_before_deadline_stops_the_timer(void **state)
{
	static struct worker w;
	struct coro *co;

	w = (struct worker){.err = 1};
	coro_spawn(*state, NULL, park_until, &w, &co);
	run_idle(*state);
	assert_true(coro_sched_next_ns(*state) < CORO_FOREVER);
	coro_unpark(co);
	assert_int_equal(coro_sched_next_ns(*state), CORO_FOREVER);
	run_idle(*state);
	assert_int_equal(w.err, 0);
	pass_ns(*state, SEC);
	assert_int_equal(w.rounds, 1);
	coro_detach(co);
}

static void *with_deadline(void *arg)
{
	struct worker *w = arg;
	int64_t old = coro_deadline_set(w->deadline);

	assert_true(old == CORO_FOREVER);
	w->err = coro_park();
	assert_int_equal(coro_sleep_ns(SEC), -ETIMEDOUT);
	assert_true(coro_deadline_set(old) == w->deadline);
	assert_int_equal(coro_sleep_ns(MS), 0);
	w->rounds = 1;
	return NULL;
}

static void test_every_call_inherits_the_deadline(void **state)
{
	static struct worker w;

	w = (struct worker){.deadline = fake_now + 3 * MS};
	coro_spawn(*state, NULL, with_deadline, &w, NULL);
	run_idle(*state);
	pass_ns(*state, 4 * MS);
	assert_int_equal(w.err, -ETIMEDOUT);
	pass_ns(*state, 2 * MS);
	assert_int_equal(w.rounds, 1);
}

static void *join_body(void *arg)
{
	struct worker *w = arg;
	void *result = NULL;

	w->err = coro_join_until(w->co, &result, w->deadline);
	w->ptr = result;
	return NULL;
}

static void test_join_waits_and_gives_the_result(void **state)
{
	static struct worker child, w;

	child = (struct worker){.rounds = 7, .id = 5};
	w = (struct worker){.deadline = CORO_FOREVER};
	coro_spawn(*state, NULL, sleeper, &child, &w.co);
	coro_spawn(*state, NULL, join_body, &w, NULL);
	run_idle(*state);
	assert_int_equal(coro_join(w.co, NULL), -EBUSY);
	w.ptr = &w;
	pass_ns(*state, 8 * MS);
	assert_int_equal(w.err, 0);
	assert_null(w.ptr);
}

static void test_join_times_out_and_keeps_the_handle(void **state)
{
	static struct worker child, w;

	child = (struct worker){.rounds = 70};
	w = (struct worker){.deadline = fake_now + MS};
	coro_spawn(*state, NULL, sleeper, &child, &w.co);
	coro_spawn(*state, NULL, join_body, &w, NULL);
	run_idle(*state);
	pass_ns(*state, 2 * MS);
	assert_int_equal(w.err, -ETIMEDOUT);
	pass_ns(*state, 100 * MS);
	assert_int_equal(coro_status(w.co), CORO_DEAD);
	assert_int_equal(coro_join(w.co, NULL), 0);
}

static void *cancel_before(void *arg)
{
	struct worker *w = arg;

	w->err = coro_sleep_ns(MS);
	assert_true(coro_cancelled());
	w->rounds = coro_sleep_ns(MS); /* blocks again after -ECANCELED */
	return NULL;
}

static void test_cancel_fails_one_call(void **state)
{
	static struct worker w;
	struct coro *co;

	w = (struct worker){.rounds = 1};
	coro_spawn(*state, NULL, cancel_before, &w, &co);
	coro_cancel(co);
	run_idle(*state);
	assert_int_equal(w.err, -ECANCELED);
	pass_ns(*state, 2 * MS);
	assert_int_equal(w.rounds, 0);
	coro_detach(co);
}

static void *keeps_errno(void *arg)
{
	errno = (int)(long)arg;
	for (int i = 0; i < 10; i++) {
		coro_yield();
		assert_int_equal(errno, (int)(long)arg);
	}
	return NULL;
}

static void test_errno_is_each_coroutines_own(void **state)
{
	errno = 77;
	for (long i = 1; i < 5; i++)
		coro_spawn(*state, NULL, keeps_errno, (void *)i, NULL);
	run_idle(*state);
	assert_int_equal(errno, 77);
}

static void test_blocking_outside_a_coroutine_is_refused(void **state)
{
	assert_int_equal(coro_park(), -EPERM);
	assert_int_equal(coro_yield(), -EPERM);
	assert_int_equal(coro_sleep_ns(1), -EPERM);
	assert_null(coro_self());
}

static void test_wrong_attributes_are_refused(void **state)
{
	static const struct coro_attr bad[] = {
		{.stack = 7},
		{.stack_size = 65536},
		{.no_guard = true},
		{.shared_stack = 1000},
		{.stack = CORO_STACK_PRIVATE, .shared_stack = 1},
		{.stack = CORO_STACK_PRIVATE, .stack_size = 100},
		{.stack = CORO_STACK_PRIVATE, .stack_size = (size_t)1 << 40},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(
			coro_spawn(*state, &bad[i], sleeper, NULL, NULL),
			-EINVAL);
	assert_int_equal(coro_spawn(*state, NULL, NULL, NULL, NULL), -EINVAL);
}

static void test_second_scheduler_on_a_thread_is_refused(void **state)
{
	struct coro_sched *s;

	assert_int_equal(coro_sched_open(NULL, &s), -EEXIST);
	assert_ptr_equal(coro_sched_self(), *state);
}

static void test_wrong_scheduler_attributes_are_refused(void **state)
{
	static const struct coro_sched_attr bad[] = {
		{.stack_size = 4096},
		{.stack_size = (size_t)8 << 20},
		{.stack_count = 1025},
	};
	struct coro_sched *s = NULL;

	sched_teardown(state);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(coro_sched_open(&bad[i], &s), -EINVAL);
	assert_null(s);
	sched_setup(state);
}

static void *misuses_join(void *arg)
{
	struct worker *w = arg;

	assert_int_equal(coro_join(coro_self(), NULL), -EDEADLK);
	assert_int_equal(coro_join(w->co, NULL), -EBUSY); /* main's other */
	assert_int_equal(coro_sched_run(coro_sched_self()), -EPERM);
	assert_int_equal(coro_sched_round(coro_sched_self()), 0);
	coro_detach(coro_self());
	assert_int_equal(coro_join(coro_self(), NULL), -EINVAL);
	w->rounds = 1;
	return NULL;
}

static void test_wrong_joins_are_refused(void **state)
{
	static struct worker first, second;
	struct coro *co;

	second = (struct worker){0};
	first = (struct worker){.deadline = CORO_FOREVER};
	coro_spawn(*state, NULL, parker, &(struct worker){0}, &first.co);
	coro_spawn(*state, NULL, join_body, &first, NULL);
	run_idle(*state);
	second.co = first.co;
	coro_spawn(*state, NULL, misuses_join, &second, &co);
	run_idle(*state);
	assert_int_equal(second.rounds, 1);
	assert_int_equal(coro_destroy(first.co), -EBUSY); /* it is joined */
	coro_cancel(first.co);
	run_idle(*state);
	assert_int_equal(first.err, 0);
}

static void *exits_deep(void *arg)
{
	for (int i = 0;; i++)
		if (coro_yield() < 0 || i == 2)
			coro_exit((char *)arg + i);
}

static void test_exit_gives_the_joiner_its_result(void **state)
{
	struct coro *co;
	void *result = NULL;

	coro_spawn(*state, NULL, exits_deep, (void *)10, &co);
	run_idle(*state);
	assert_int_equal(coro_join(co, &result), 0);
	assert_int_equal((long)result, 12);
	coro_spawn(*state, NULL, exits_deep, (void *)10, &co);
	coro_sched_round(*state);
	coro_cancel(co); /* yield returns it as well */
	run_idle(*state);
	assert_int_equal(coro_join(co, &result), 0);
	assert_int_equal((long)result, 11);
}

/* Recursion to a depth that differs at each turn, so that save buffers grow,
 * shrink and change hands. */
static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

__attribute__((noinline)) static unsigned deep(unsigned n, unsigned id)
{
	volatile unsigned char pad[48];
	unsigned sum;

	memset((void *)pad, id + n, sizeof(pad));
	if (n == 0)
		assert_int_equal(coro_yield(), 0);
	sum = n ? deep(n - 1, id) : 0;
	for (size_t i = 0; i < sizeof(pad); i++)
		assert_int_equal(pad[i], (unsigned char)(id + n));
	return sum + 1;
}

static void *dive_body(void *arg)
{
	struct worker *w = arg;
	uint32_t seed = w->id;

	for (int i = 0; i < w->rounds; i++) {
		unsigned n = next_random(&seed) % 60;

		if (next_random(&seed) % 16 == 0)
			n = next_random(&seed) % 600;
		assert_int_equal(deep(n, w->id), n + 1);
	}
	w->err = 1;
	return NULL;
}

static void test_stack_bytes_survive_any_depth(void **state)
{
	enum { N = 200 };
	static struct worker w[N];

	for (int i = 0; i < N; i++) {
		w[i] = (struct worker){.id = i, .rounds = 40};
		coro_spawn(*state, NULL, dive_body, &w[i], NULL);
	}
	run_idle(*state);
	for (int i = 0; i < N; i++)
		assert_int_equal(w[i].err, 1);
}

static void *count_up(void *arg)
{
	coro_park();
	++*(unsigned *)arg;
	return NULL;
}

static void test_many_coroutines_park_and_end(void **state)
{
	enum { MOST = MANY(100000) };
	const int n = RUNNING_ON_VALGRIND ? MOST / 20 : MOST;
	static struct coro *co[MOST];
	static unsigned ended;

	ended = 0;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < n; i++)
			assert_int_equal(coro_spawn(*state, NULL, count_up,
						    &ended, &co[i]),
					 0);
		run_idle(*state);
		for (int i = 0; i < n; i++)
			coro_unpark(co[(i * 7919LL) % n]);
		run_idle(*state);
		for (int i = 0; i < n; i++)
			assert_int_equal(coro_join(co[i], NULL), 0);
	}
	assert_int_equal(ended, 2 * n);
}

static void *spawns(void *arg)
{
	long n = (long)arg;

	log_int(n);
	if (n > 0)
		assert_int_equal(coro_spawn(coro_sched_self(), NULL, spawns,
					    (void *)(n - 1), NULL),
				 0);
	return NULL;
}

static void test_spawn_inside_runs_in_the_next_round(void **state)
{
	log_reset();
	coro_spawn(*state, NULL, spawns, (void *)3, NULL);
	assert_int_equal(coro_sched_round(*state), 1);
	assert_string_equal(test_log, "3 ");
	run_idle(*state);
	assert_string_equal(test_log, "3 2 1 0 ");
}

/* ---- threads that take turns ---- */

#define TURNS 6

/* The compiler must not cache either address across threads. */
__attribute__((noinline)) static int *errno_here(void)
{
	__asm__ volatile("" ::: "memory");
	return &errno;
}

__attribute__((noinline)) static pthread_t thread_here(void)
{
	__asm__ volatile("" ::: "memory");
	return pthread_self();
}

/* Records the thread that runs it each time. */
static void *traveller(void *arg)
{
	pthread_t *threads = arg;
	volatile unsigned char mark[600];

	memset((void *)mark, 7, sizeof(mark));
	for (int i = 0; i < TURNS; i++) {
		threads[i] = thread_here();
		*errno_here() = 100 + i;
		assert_int_equal(coro_yield(), 0);
		assert_int_equal(*errno_here(), 100 + i);
		for (size_t k = 0; k < sizeof(mark); k++)
			assert_int_equal(mark[k], 7);
	}
	return NULL;
}

static void *one_turn(void *arg)
{
	struct coro_sched *s = arg;

	assert_int_equal(coro_sched_enter(s), 0);
	assert_ptr_equal(coro_sched_self(), s);
	assert_int_equal(coro_sched_enter(s), -EEXIST);
	coro_sched_round(s);
	coro_sched_leave(s);
	assert_null(coro_sched_self());
	return NULL;
}

static void test_threads_take_turns_at_a_scheduler(void **state)
{
	static pthread_t threads[TURNS];
	struct coro_sched *s = *state;
	pthread_t other;

	assert_int_equal(coro_spawn(s, NULL, traveller, threads, NULL), 0);
	for (int i = 0; i < TURNS / 2; i++) {
		coro_sched_round(s);
		coro_sched_leave(s);
		pthread_create(&other, NULL, one_turn, s);
		pthread_join(other, NULL);
		assert_int_equal(coro_sched_enter(s), 0);
		assert_true(pthread_equal(threads[2 * i], pthread_self()));
		assert_true(pthread_equal(threads[2 * i + 1], other));
	}
	coro_sched_round(s);
	assert_false(coro_sched_ready(s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_yield_interleaves_in_spawn_order),
		BOTH(test_round_resumes_each_ready_once),
		BOTH(test_park_waits_for_unpark),
		BOTH(test_unpark_that_comes_first_is_remembered_once),
		BOTH(test_sleepers_wake_in_order_of_their_deadlines),
		BOTH(test_sleepers_with_equal_deadlines_wake_in_order),
		BOTH(test_park_until_times_out),
		BOTH(test_unpark_before_deadline_stops_the_timer),
		BOTH(test_every_call_inherits_the_deadline),
		BOTH(test_join_waits_and_gives_the_result),
		BOTH(test_join_times_out_and_keeps_the_handle),
		BOTH(test_cancel_fails_one_call),
		BOTH(test_errno_is_each_coroutines_own),
		BOTH(test_blocking_outside_a_coroutine_is_refused),
		BOTH(test_wrong_attributes_are_refused),
		BOTH(test_second_scheduler_on_a_thread_is_refused),
		BOTH(test_wrong_scheduler_attributes_are_refused),
		BOTH(test_wrong_joins_are_refused),
		BOTH(test_exit_gives_the_joiner_its_result),
		BOTH(test_stack_bytes_survive_any_depth),
		BOTH(test_many_coroutines_park_and_end),
		BOTH(test_spawn_inside_runs_in_the_next_round),
		BOTH(test_threads_take_turns_at_a_scheduler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
