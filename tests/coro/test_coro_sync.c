/*
 * Mutex, rwlock, condition, semaphore, wait group, barrier.
 */
#include "test_coro.h"

#include <coronet/coro_sync.h>

struct task {
	int id;
	int err;
	int64_t deadline;
	struct coro *co;
};

static struct coro_mutex mutex;
static struct coro_rwlock rw;
static struct coro_cond cond;
static struct coro_sem sem;
static struct coro_wait_group wg;
static struct coro_barrier barrier;
static struct task task[16];
static bool hold;

static int setup(void **state)
{
	memset(&mutex, 0, sizeof(mutex));
	memset(&rw, 0, sizeof(rw));
	memset(&cond, 0, sizeof(cond));
	memset(&sem, 0, sizeof(sem));
	memset(&wg, 0, sizeof(wg));
	memset(task, 0, sizeof(task));
	hold = true;
	log_reset();
	return sched_setup_one_stack(state);
}

static struct task *start_task(void *s, int id, coro_fn fn)
{
	task[id].id = id;
	task[id].err = 1;
	if (task[id].deadline == 0)
		task[id].deadline = CORO_FOREVER;
	assert_int_equal(coro_spawn(s, NULL, fn, &task[id], &task[id].co), 0);
	coro_sched_round(s);
	coro_sched_round(s);
	return &task[id];
}

static void *lock_body(void *arg)
{
	struct task *t = arg;

	t->err = coro_mutex_lock_until(&mutex, t->deadline);
	if (t->err < 0)
		return NULL;
	log_int(t->id);
	coro_park();
	assert_int_equal(coro_mutex_unlock(&mutex), 0);
	return NULL;
}

static void test_mutex_is_fifo(void **state)
{
	for (int i = 0; i < 4; i++)
		start_task(*state, i, lock_body);
	assert_string_equal(test_log, "0 ");
	for (int i = 0; i < 4; i++) {
		coro_unpark(task[i].co);
		run_idle(*state);
	}
	assert_string_equal(test_log, "0 1 2 3 ");
	assert_null(mutex.owner);
}

static void *locks_twice(void *arg)
{
	assert_int_equal(coro_mutex_unlock(&mutex), -EPERM);
	assert_int_equal(coro_mutex_lock(&mutex), 0);
	assert_int_equal(coro_mutex_lock(&mutex), -EDEADLK);
	assert_int_equal(coro_mutex_trylock(&mutex), -EDEADLK);
	assert_int_equal(coro_mutex_unlock(&mutex), 0);
	return NULL;
}

static void test_mutex_misuse_is_refused(void **state)
{
	start_task(*state, 0, locks_twice);
	assert_int_equal(coro_mutex_lock(&mutex), -EPERM);
	assert_int_equal(coro_mutex_unlock(&mutex), -EPERM);
}

static void test_mutex_waiter_times_out_or_is_cancelled(void **state)
{
	start_task(*state, 0, lock_body);
	task[1].deadline = fake_now + MS;
	start_task(*state, 1, lock_body);
	start_task(*state, 2, lock_body);
	start_task(*state, 3, lock_body);
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[1].err, -ETIMEDOUT);
	coro_cancel(task[2].co);
	run_idle(*state);
	assert_int_equal(task[2].err, -ECANCELED);
	coro_unpark(task[0].co);
	run_idle(*state);
	assert_string_equal(test_log, "0 3 "); /* the queue is intact */
}

static void test_mutex_waiter_destroyed_leaves_the_queue(void **state)
{
	for (int i = 0; i < 3; i++)
		start_task(*state, i, lock_body);
	assert_int_equal(coro_destroy(task[1].co), 0);
	coro_unpark(task[0].co);
	run_idle(*state);
	assert_string_equal(test_log, "0 2 ");
}

static void *hold_read_lock(void *arg)
{
	struct task *t = arg;

	t->err = coro_rwlock_rdlock_until(&rw, t->deadline);
	if (t->err < 0)
		return NULL;
	log_int(t->id);
	coro_park();
	coro_rwlock_unlock(&rw);
	return NULL;
}

static void *writes(void *arg)
{
	struct task *t = arg;

	t->err = coro_rwlock_wrlock_until(&rw, t->deadline);
	if (t->err < 0)
		return NULL;
	log_int(100 + t->id);
	coro_park();
	coro_rwlock_unlock(&rw);
	return NULL;
}

static void test_rwlock_is_fifo(void **state)
{
	start_task(*state, 0, hold_read_lock);
	start_task(*state, 1, hold_read_lock);
	start_task(*state, 2, writes);
	start_task(*state, 3,
		   hold_read_lock); /* must not overtake the writer */
	start_task(*state, 4, hold_read_lock);
	start_task(*state, 5, writes);
	assert_string_equal(test_log, "0 1 ");
	for (int i = 0; i < 6; i++) {
		coro_unpark(task[i].co);
		run_idle(*state);
		if (i == 0)
			assert_string_equal(test_log, "0 1 ");
		if (i == 2)
			assert_string_equal(test_log, "0 1 102 3 4 ");
	}
	assert_string_equal(test_log, "0 1 102 3 4 105 ");
	assert_int_equal(rw.readers, 0);
	assert_null(rw.writer);
}

static void test_rwlock_writer_that_gives_up_lets_readers_pass(void **state)
{
	start_task(*state, 0, hold_read_lock);
	task[1].deadline = fake_now + MS;
	start_task(*state, 1, writes);
	start_task(*state, 2, hold_read_lock);
	assert_string_equal(test_log, "0 ");
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[1].err, -ETIMEDOUT);
	assert_string_equal(test_log, "0 2 ");
}

/* Two readers behind a writer that never runs again, wherever it stands. */
static void test_rwlock_writer_destroyed_lets_readers_pass(void **state)
{
	start_task(*state, 0, hold_read_lock);
	start_task(*state, 1, writes);
	start_task(*state, 2, hold_read_lock);
	start_task(*state, 3, writes);
	start_task(*state, 4, hold_read_lock);
	assert_int_equal(coro_destroy(task[3].co), 0); /* not the first */
	run_idle(*state);
	assert_string_equal(test_log, "0 ");
	assert_int_equal(coro_destroy(task[1].co), 0);
	run_idle(*state);
	assert_string_equal(test_log, "0 2 4 ");
	for (int i = 0; i < 5; i += 2)
		coro_unpark(task[i].co);
	run_idle(*state);
	assert_int_equal(rw.readers, 0);
}

/* Cancelled, and destroyed before it could pass the lock on itself. */
static void test_rwlock_writer_cancelled_and_destroyed(void **state)
{
	start_task(*state, 0, hold_read_lock);
	start_task(*state, 1, writes);
	start_task(*state, 2, hold_read_lock);
	coro_cancel(task[1].co);
	assert_int_equal(coro_destroy(task[1].co), 0);
	run_idle(*state);
	assert_string_equal(test_log, "0 2 ");
}

static void *waits_cond(void *arg)
{
	struct task *t = arg;

	assert_int_equal(coro_mutex_lock(&mutex), 0);
	t->err = coro_cond_wait_until(&cond, &mutex, t->deadline);
	assert_ptr_equal(mutex.owner, coro_self()); /* in every case */
	log_int(t->id);
	coro_mutex_unlock(&mutex);
	return NULL;
}

static void test_cond_signal_wakes_one_and_broadcast_all(void **state)
{
	for (int i = 0; i < 5; i++)
		start_task(*state, i, waits_cond);
	coro_cond_signal(&cond);
	run_idle(*state);
	assert_string_equal(test_log, "0 ");
	coro_cond_broadcast(&cond);
	run_idle(*state);
	assert_string_equal(test_log, "0 1 2 3 4 ");
	coro_cond_signal(&cond); /* no waiter: no effect */
	start_task(*state, 5, waits_cond);
	assert_int_equal(task[5].err, 1);
}

static void test_cond_timeout_is_reported(void **state)
{
	task[0].deadline = fake_now + MS;
	start_task(*state, 0, waits_cond);
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[0].err, -ETIMEDOUT);
	assert_string_equal(test_log, "0 ");
}

static void *signals_holding(void *arg)
{
	coro_mutex_lock(&mutex);
	coro_cond_signal(&cond);
	coro_park();
	coro_mutex_unlock(&mutex);
	return NULL;
}

static void test_signalled_waiter_cannot_lose_the_signal(void **state)
{
	task[0].deadline = fake_now + MS;
	start_task(*state, 0, waits_cond);
	start_task(*state, 1, signals_holding);
	pass_ns(*state, 10 * MS); /* past its deadline, still without mutex */
	coro_cancel(task[0].co);  /* returned by its next blocking call */
	run_idle(*state);
	assert_int_equal(task[0].err, 1);
	coro_unpark(task[1].co);
	run_idle(*state);
	assert_int_equal(task[0].err, 0);
}

static void test_cancelled_cond_waiter_owns_the_mutex(void **state)
{
	start_task(*state, 0, waits_cond);
	start_task(*state, 1, lock_body);
	coro_cancel(task[0].co);
	run_idle(*state);
	assert_int_equal(task[0].err, 1); /* 1 has the mutex */
	coro_unpark(task[1].co);
	run_idle(*state);
	assert_int_equal(task[0].err, -ECANCELED);
}

static void *waits_sem(void *arg)
{
	struct task *t = arg;

	t->err = coro_sem_wait_until(&sem, t->deadline);
	log_int(t->id);
	return NULL;
}

static void test_semaphore_counts_and_is_fifo(void **state)
{
	coro_sem_init(&sem, 2);
	for (int i = 0; i < 5; i++)
		start_task(*state, i, waits_sem);
	assert_string_equal(test_log, "0 1 ");
	assert_int_equal(coro_sem_trywait(&sem), -EAGAIN);
	coro_sem_post(&sem);
	coro_sem_post(&sem);
	run_idle(*state);
	assert_string_equal(test_log, "0 1 2 3 ");
	coro_sem_post(&sem);
	coro_sem_post(&sem);
	assert_int_equal(sem.count, 1);
}

static void *waits_group(void *arg)
{
	struct task *t = arg;

	t->err = coro_wait_group_wait_until(&wg, t->deadline);
	return NULL;
}

static void test_wait_group_waits_for_all(void **state)
{
	coro_wait_group_add(&wg, 3);
	start_task(*state, 0, waits_group);
	task[1].deadline = fake_now + MS;
	start_task(*state, 1, waits_group);
	coro_wait_group_done(&wg);
	coro_wait_group_done(&wg);
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[0].err, 1);
	assert_int_equal(task[1].err, -ETIMEDOUT);
	coro_wait_group_done(&wg);
	run_idle(*state);
	assert_int_equal(task[0].err, 0);
	assert_int_equal(coro_wait_group_done(&wg), -EINVAL);
}

/* More than can be counted must not look like none. */
static void test_wait_group_does_not_wrap(void **state)
{
	assert_int_equal(coro_wait_group_add(&wg, INT32_MAX), 0);
	assert_int_equal(coro_wait_group_add(&wg, INT32_MAX), 0);
	start_task(*state, 0, waits_group);
	assert_int_equal(coro_wait_group_add(&wg, 2), -EOVERFLOW);
	assert_int_equal(coro_wait_group_add(&wg, 1), 0);
	assert_int_equal(coro_wait_group_add(&wg, 1), -EOVERFLOW);
	run_idle(*state);
	assert_int_equal(task[0].err, 1);
}

static void *waits_barrier(void *arg)
{
	struct task *t = arg;

	t->err = coro_barrier_wait_until(&barrier, t->deadline);
	return NULL;
}

static void test_barrier_opens_for_the_last_and_works_again(void **state)
{
	assert_int_equal(coro_barrier_init(&barrier, 0), -EINVAL);
	coro_barrier_init(&barrier, 3);
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < 3; i++) {
			if (i == 2)
				assert_int_equal(task[0].err, 1);
			start_task(*state, i, waits_barrier);
		}
		run_idle(*state);
		assert_int_equal(task[0].err, 0);
		assert_int_equal(task[1].err, 0);
		assert_int_equal(task[2].err, 1);
		task[0].err = 1;
	}
}

static void test_barrier_does_not_count_waiters_that_gave_up(void **state)
{
	coro_barrier_init(&barrier, 3);
	task[0].deadline = fake_now + MS;
	start_task(*state, 0, waits_barrier);
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[0].err, -ETIMEDOUT);
	task[1].err = task[2].err = -1;
	start_task(*state, 1, waits_barrier);
	start_task(*state, 2, waits_barrier);
	assert_int_equal(task[1].err, 1);
	assert_int_equal(task[2].err, 1); /* waits still */
	task[2].err = -1;
	start_task(*state, 3, waits_barrier);
	run_idle(*state);
	assert_int_equal(task[2].err, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, sched_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_mutex_is_fifo),
		T(test_mutex_misuse_is_refused),
		T(test_mutex_waiter_times_out_or_is_cancelled),
		T(test_mutex_waiter_destroyed_leaves_the_queue),
		T(test_rwlock_is_fifo),
		T(test_rwlock_writer_that_gives_up_lets_readers_pass),
		T(test_rwlock_writer_destroyed_lets_readers_pass),
		T(test_rwlock_writer_cancelled_and_destroyed),
		T(test_cond_signal_wakes_one_and_broadcast_all),
		T(test_cond_timeout_is_reported),
		T(test_signalled_waiter_cannot_lose_the_signal),
		T(test_cancelled_cond_waiter_owns_the_mutex),
		T(test_semaphore_counts_and_is_fifo),
		T(test_wait_group_waits_for_all),
		T(test_wait_group_does_not_wrap),
		T(test_barrier_opens_for_the_last_and_works_again),
		T(test_barrier_does_not_count_waiters_that_gave_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
