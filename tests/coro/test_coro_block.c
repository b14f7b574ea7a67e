/*
 * The contract of every blocking call: it obeys the nearer of its own and the
 * inherited deadline, and cancel; it is refused outside coroutines; a dump
 * names it; and a waiter that gives up or is destroyed leaves nothing behind in
 * the object it waited for.
 */
#include "test_coro.h"

#include <unistd.h>

#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>

static struct coro_sched *the_sched;
static struct coro_mutex mutex, cond_mutex;
static struct coro_rwlock rw, rw_read;
static struct coro_cond cond;
static struct coro_sem sem;
static struct coro_wait_group group;
static struct coro_barrier barrier;
static struct coro_chan *ch;
static struct coro *endless;

/* ---- the calls, each of which waits forever ---- */

static int by_park(int64_t deadline)
{
	return coro_park_until(deadline);
}

static int by_lock(int64_t deadline)
{
	return coro_mutex_lock_until(&mutex, deadline);
}

static int by_rdlock(int64_t deadline)
{
	return coro_rwlock_rdlock_until(&rw, deadline);
}

static int by_wrlock(int64_t deadline)
{
	return coro_rwlock_wrlock_until(&rw_read, deadline);
}

static int by_cond(int64_t deadline)
{
	int err = coro_mutex_lock(&cond_mutex);

	if (err < 0)
		return err;
	err = coro_cond_wait_until(&cond, &cond_mutex, deadline);
	assert_int_equal(coro_mutex_unlock(&cond_mutex), 0);
	return err;
}

static int by_sem(int64_t deadline)
{
	return coro_sem_wait_until(&sem, deadline);
}

static int by_group(int64_t deadline)
{
	return coro_wait_group_wait_until(&group, deadline);
}

static int by_barrier(int64_t deadline)
{
	return coro_barrier_wait_until(&barrier, deadline);
}

static int by_send(int64_t deadline)
{
	return coro_chan_send_until(ch, &(int){1}, deadline);
}

static int by_recv(int64_t deadline)
{
	return coro_chan_recv_until(ch, NULL, deadline);
}

static int by_select(int64_t deadline)
{
	struct coro_case cases[] = {{ch, CORO_RECV, NULL, 0},
				    {NULL, CORO_SEND, NULL, 0}};

	return coro_select_until(cases, 2, deadline);
}

static int by_join(int64_t deadline)
{
	return coro_join_until(endless, NULL, deadline);
}

/* Its own deadline is success, so there is no other to time out at. */
static int by_sleep(int64_t deadline)
{
	return coro_sleep_until(CORO_FOREVER);
}

static const struct {
	const char *where;
	int (*call)(int64_t deadline);
	int outside; /* the error outside a coroutine */
} calls[] = {
	{"coro_park", by_park, -EPERM},
	{"coro_mutex_lock", by_lock, -EPERM},
	{"coro_rwlock_rdlock", by_rdlock, -EPERM},
	{"coro_rwlock_wrlock", by_wrlock, -EPERM},
	{"coro_cond_wait", by_cond, -EPERM},
	{"coro_sem_wait", by_sem, -EPERM},
	{"coro_wait_group_wait", by_group, -EPERM},
	{"coro_barrier_wait", by_barrier, -EPERM},
	{"coro_chan_send", by_send, -EPERM},
	{"coro_chan_recv", by_recv, -EPERM},
	{"coro_select", by_select, -EPERM},
	{"coro_join", by_join, -EBUSY},
	{"coro_sleep", by_sleep, -EPERM},
};

#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

/* ---- the holder of all objects ---- */

static bool let_go;
static struct coro *holder;

static void *hold_all(void *arg)
{
	coro_mutex_lock(&mutex);
	coro_rwlock_wrlock(&rw);
	coro_rwlock_rdlock(&rw_read);
	coro_wait_group_add(&group, 1);
	while (!let_go)
		coro_park();
	coro_mutex_unlock(&mutex);
	coro_rwlock_unlock(&rw);
	coro_rwlock_unlock(&rw_read);
	coro_wait_group_done(&group);
	coro_sem_post(&sem);
	return NULL;
}

static void *never_ends(void *arg)
{
	for (;;)
		coro_park();
	return NULL;
}

static int setup_remaining(void **state)
{
	the_sched = *state;
	memset(&mutex, 0, sizeof(mutex));
	memset(&cond_mutex, 0, sizeof(cond_mutex));
	memset(&rw, 0, sizeof(rw));
	memset(&rw_read, 0, sizeof(rw_read));
	memset(&cond, 0, sizeof(cond));
	memset(&group, 0, sizeof(group));
	coro_sem_init(&sem, 0);
	coro_barrier_init(&barrier, 3);
	let_go = false;
	log_reset();
	if (coro_chan_open(sizeof(int), 0, &ch) != 0)
		return -1;
	coro_spawn(the_sched, NULL, hold_all, NULL, &holder);
	coro_spawn(the_sched, NULL, never_ends, NULL, &endless);
	run_idle(the_sched);
	return 0;
}

static int setup(void **state)
{
	return sched_setup(state) || setup_remaining(state);
}

static int setup_one_stack(void **state)
{
	return sched_setup_one_stack(state) || setup_remaining(state);
}

static int teardown(void **state)
{
	int err = sched_teardown(state);

	coro_chan_free(ch);
	return err;
}

/* ---- the waiter ---- */

static struct waiter {
	int (*call)(int64_t deadline);
	int64_t own;
	int64_t inherited;
	int err;
} waiter;

static void *wait_body(void *arg)
{
	coro_deadline_set(waiter.inherited);
	waiter.err = waiter.call(waiter.own);
	return NULL;
}

static struct coro *start_blocked(size_t i, int64_t own, int64_t inherited)
{
	struct coro *co = NULL;

	waiter = (struct waiter){calls[i].call, own, inherited, 1};
	assert_int_equal(coro_spawn(the_sched, NULL, wait_body, NULL, &co), 0);
	run_idle(the_sched);
	assert_int_equal(waiter.err, 1);
	return co;
}

/* Times out after 5 ms and not before. */
static void check_times_out(struct coro *co)
{
	pass_ns(the_sched, 5 * MS - 1);
	assert_int_equal(waiter.err, 1);
	pass_ns(the_sched, TICK);
	assert_int_equal(waiter.err, -ETIMEDOUT);
	assert_int_equal(coro_join(co, NULL), 0);
}

static void test_inherited_deadline_ends_every_wait(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++)
		check_times_out(
			start_blocked(i, CORO_FOREVER, fake_now + 5 * MS));
}

static void test_own_deadline_ends_every_wait(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++)
		if (calls[i].call != by_sleep)
			check_times_out(start_blocked(i, fake_now + 5 * MS,
						      CORO_FOREVER));
}

static void test_nearer_deadline_counts(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		check_times_out(
			start_blocked(i, fake_now + SEC, fake_now + 5 * MS));
		if (calls[i].call != by_sleep)
			check_times_out(start_blocked(i, fake_now + 5 * MS,
						      fake_now + SEC));
	}
}

static void test_deadline_past_ends_the_wait_at_once(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co;

		waiter = (struct waiter){calls[i].call, fake_now - SEC,
					 fake_now - SEC, 1};
		coro_spawn(the_sched, NULL, wait_body, NULL, &co);
		run_idle(the_sched);
		assert_int_equal(waiter.err, -ETIMEDOUT);
		coro_join(co, NULL);
	}
}

static void test_cancel_ends_every_wait(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co = start_blocked(i, CORO_FOREVER, CORO_FOREVER);

		coro_cancel(co);
		run_idle(the_sched);
		assert_int_equal(waiter.err, -ECANCELED);
		coro_join(co, NULL);
	}
}

static void test_cancel_before_the_call_ends_every_wait(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co;

		waiter = (struct waiter){calls[i].call, CORO_FOREVER,
					 CORO_FOREVER, 1};
		coro_spawn(the_sched, NULL, wait_body, NULL, &co);
		coro_cancel(co);
		run_idle(the_sched);
		assert_int_equal(waiter.err, -ECANCELED);
		coro_join(co, NULL);
	}
}

static void test_blocking_outside_is_refused(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++)
		assert_int_equal(calls[i].call(CORO_FOREVER), calls[i].outside);
	assert_int_equal(coro_yield(), -EPERM);
}

static void test_dump_names_the_blocking_call(void **state)
{
	static char said[65536];

	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co =
			start_blocked(i, CORO_FOREVER, fake_now + 1500 * MS);
		char wanted[64];
		int fds[2];
		ssize_t n;

		assert_int_equal(pipe(fds), 0);
		coro_sched_dump(the_sched, fds[1]);
		close(fds[1]);
		n = read(fds[0], said, sizeof(said) - 1);
		close(fds[0]);
		assert_true(n > 0);
		said[n] = '\0';
		snprintf(wanted, sizeof(wanted), " %s ", calls[i].where);
		assert_non_null(strstr(said, wanted));
		assert_non_null(strstr(said, "for 1.500 s more"));
		coro_cancel(co);
		run_idle(the_sched);
		coro_join(co, NULL);
	}
}

/* ---- no traces of waiters that gave up ---- */

static void check_nothing_left(void)
{
	let_go = true;
	coro_unpark(holder);
	run_idle(the_sched);
	assert_null(mutex.owner);
	assert_null(cond_mutex.owner);
	assert_null(rw.writer);
	assert_int_equal(rw.readers, 0);
	assert_int_equal(rw_read.readers, 0);
	assert_null(rw_read.writer);
	assert_int_equal(sem.count, 1);
	assert_int_equal(group.count, 0);
	assert_int_equal(coro_chan_trysend(ch, &(int){1}), -EAGAIN);
	assert_int_equal(coro_chan_tryrecv(ch, NULL), -EAGAIN);
	coro_cond_signal(&cond); /* no waiter: no effect */
	assert_int_equal(coro_sched_next_ns(the_sched), CORO_FOREVER);
	assert_int_equal(coro_sched_live(the_sched), 1); /* endless */
	coro_join(holder, NULL);
	/* Two of three wait at the barrier: no others are counted. */
	waiter = (struct waiter){by_barrier, CORO_FOREVER, CORO_FOREVER, 1};
	for (int i = 0; i < 2; i++)
		coro_spawn(the_sched, NULL, wait_body, NULL, NULL);
	run_idle(the_sched);
	assert_int_equal(waiter.err, 1);
}

static void test_waiters_that_give_up_leave_nothing_behind(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co[2];

		co[0] = start_blocked(i, CORO_FOREVER, fake_now + MS);
		/* Only one coroutine can join another. */
		if (calls[i].call != by_join)
			co[1] = start_blocked(i, CORO_FOREVER, CORO_FOREVER);
		pass_ns(the_sched, 2 * MS);
		coro_join(co[0], NULL);
		if (calls[i].call == by_join)
			continue;
		coro_cancel(co[1]);
		run_idle(the_sched);
		coro_join(co[1], NULL);
	}
	check_nothing_left();
}

static void test_destroyed_waiters_leave_nothing_behind(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co =
			start_blocked(i, CORO_FOREVER, fake_now + SEC);

		assert_int_equal(coro_destroy(co), 0);
		assert_int_equal(waiter.err, 1);
	}
	check_nothing_left();
}

/* Destroys waiters that were woken but have not run yet. */
static void
test_waiters_destroyed_after_a_wake_up_leave_nothing_behind(void **state)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		struct coro *co = start_blocked(i, CORO_FOREVER, CORO_FOREVER);

		coro_cancel(co);
		assert_int_equal(coro_destroy(co), 0);
		assert_int_equal(waiter.err, 1);
	}
	check_nothing_left();
}

/* ---- calls that need not wait ---- */

static void *takes_what_is_free(void *arg)
{
	const int64_t past = fake_now - SEC;

	coro_deadline_set(past);
	assert_int_equal(coro_mutex_lock_until(&cond_mutex, past), 0);
	assert_int_equal(coro_mutex_unlock(&cond_mutex), 0);
	assert_int_equal(coro_rwlock_rdlock_until(&rw_read, past), 0);
	assert_int_equal(coro_rwlock_unlock(&rw_read), 0);
	coro_sem_post(&sem);
	assert_int_equal(coro_sem_wait_until(&sem, past), 0);
	coro_wait_group_done(&group);
	assert_int_equal(coro_wait_group_wait_until(&group, past), 0);
	coro_wait_group_add(&group, 1);
	coro_unpark(coro_self());
	assert_int_equal(coro_park_until(past), 0);
	log_int(1);
	return NULL;
}

static void test_call_that_need_not_wait_ignores_a_past_deadline(void **state)
{
	coro_spawn(the_sched, NULL, takes_what_is_free, NULL, NULL);
	run_idle(the_sched);
	assert_string_equal(test_log, "1 ");
}

/* ---- deadlines of children ---- */

static void *logs_deadline(void *arg)
{
	log_int(coro_deadline() == CORO_FOREVER ? -1 : coro_deadline() / MS);
	return NULL;
}

static void *spawns_two(void *arg)
{
	const struct coro_attr heir = {.inherit_deadline = true};

	coro_deadline_set(7 * MS);
	coro_spawn(the_sched, &heir, logs_deadline, NULL, NULL);
	coro_spawn(the_sched, NULL, logs_deadline, NULL, NULL);
	return NULL;
}

static void
test_child_inherits_a_deadline_if_the_attribute_says_so(void **state)
{
	coro_spawn(the_sched, NULL, spawns_two, NULL, NULL);
	run_idle(the_sched);
	assert_string_equal(test_log, "7 -1 ");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define EACH(name)                                                             \
	T(name),                                                               \
	{                                                                      \
#name "_on_one_stack", name, setup_one_stack, teardown, NULL   \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_inherited_deadline_ends_every_wait),
		EACH(test_own_deadline_ends_every_wait),
		EACH(test_nearer_deadline_counts),
		EACH(test_deadline_past_ends_the_wait_at_once),
		EACH(test_cancel_ends_every_wait),
		EACH(test_cancel_before_the_call_ends_every_wait),
		EACH(test_blocking_outside_is_refused),
		EACH(test_dump_names_the_blocking_call),
		EACH(test_waiters_that_give_up_leave_nothing_behind),
		EACH(test_destroyed_waiters_leave_nothing_behind),
		EACH(test_waiters_destroyed_after_a_wake_up_leave_nothing_behind),
		EACH(test_call_that_need_not_wait_ignores_a_past_deadline),
		EACH(test_child_inherits_a_deadline_if_the_attribute_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
