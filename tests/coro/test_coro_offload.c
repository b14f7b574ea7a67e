/*
 * Functions on threads of their own: results, bounds, deadlines, cancelling,
 * closing. A call that fails has not run.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include <coronet/coro_io.h>

#include "child.h"
#include "peer.h"

#define THREADS 2
#define QUEUE	3

struct job {
	struct coro *co;
	int64_t deadline;
	int err;
	int after; /* of the next blocking call */
	void *result;
	bool done;
	_Atomic int runs;
	int turn; /* which it was of those that ran */
	pthread_t ran_on;
};

static struct job jobs[16];
static _Atomic int turns;
static sem_t begun, go;

static void *run_offloaded(void *arg)
{
	struct job *j = arg;

	assert_null(coro_self());
	j->ran_on = pthread_self();
	j->turn = turns++;
	j->runs++;
	return &j->runs;
}

static void *runs_until_stopped(void *arg)
{
	sem_post(&begun);
	sem_take(&go);
	return run_offloaded(arg);
}

static void *offloads(void *arg)
{
	struct job *j = arg;

	j->err = coro_offload_until(run_offloaded, j, &j->result, j->deadline);
	j->after = coro_yield();
	j->done = true;
	return NULL;
}

static void *offloads_long(void *arg)
{
	struct job *j = arg;

	j->err = coro_offload_until(runs_until_stopped, j, &j->result,
				    j->deadline);
	j->after = coro_yield();
	j->done = true;
	return NULL;
}

static struct job *job_start(struct coro_sched *s, int i, coro_fn fn)
{
	struct job *j = &jobs[i];

	*j = (struct job){.deadline = CORO_FOREVER, .err = 1};
	assert_int_equal(coro_spawn(s, NULL, fn, j, &j->co), 0);
	return j;
}

static void finish_job(struct coro_sched *s, struct job *j)
{
	while (!j->done)
		if (coro_sched_round(s) == 0)
			sched_yield();
	assert_int_equal(coro_join(j->co, NULL), 0);
}

/* Occupies both threads with functions that wait for go. */
static void occupy(struct coro_sched *s)
{
	for (int i = 0; i < THREADS; i++)
		job_start(s, i, offloads_long);
	run_idle(s);
	for (int i = 0; i < THREADS; i++)
		sem_take(&begun);
}

static void release(struct coro_sched *s)
{
	for (int i = 0; i < THREADS; i++)
		sem_post(&go);
	for (int i = 0; i < THREADS; i++)
		finish_job(s, &jobs[i]);
}

static void test_runs_elsewhere_and_gives_the_result(void **state)
{
	struct job *j = job_start(*state, 0, offloads);

	finish_job(*state, j);
	assert_int_equal(j->err, 0);
	assert_int_equal(j->runs, 1);
	assert_ptr_equal(j->result, &j->runs);
	assert_false(pthread_equal(j->ran_on, pthread_self()));
}

static void test_queue_is_served_in_order_and_bounded(void **state)
{
	struct job *j;

	occupy(*state);
	turns = 0;
	for (int i = THREADS; i < THREADS + QUEUE; i++) {
		j = job_start(*state, i, offloads);
		run_idle(*state);
		assert_int_equal(j->err, 1);
	}
	j = job_start(*state, THREADS + QUEUE, offloads);
	finish_job(*state, j);
	assert_int_equal(j->err, -EAGAIN);
	assert_int_equal(j->runs, 0);
	/* One thread goes on, and serves them all. */
	sem_post(&go);
	for (int i = THREADS; i < THREADS + QUEUE; i++)
		finish_job(*state, &jobs[i]);
	for (int i = THREADS; i < THREADS + QUEUE; i++) {
		assert_int_equal(jobs[i].runs, 1);
		assert_int_equal(jobs[i].turn, i - THREADS + 1);
		assert_true(
			pthread_equal(jobs[i].ran_on, jobs[THREADS].ran_on));
	}
	sem_post(&go);
	for (int i = 0; i < THREADS; i++)
		finish_job(*state, &jobs[i]);
	/* The bound is the queue's own again. */
	occupy(*state);
	for (int i = THREADS; i < THREADS + QUEUE; i++)
		job_start(*state, i, offloads);
	run_idle(*state);
	release(*state);
	for (int i = THREADS; i < THREADS + QUEUE; i++) {
		finish_job(*state, &jobs[i]);
		assert_int_equal(jobs[i].err, 0);
	}
}

/* ---- given up before it has begun, and after ---- */

static void test_deadline_while_it_waits_for_a_thread(void **state)
{
	struct job *j;

	occupy(*state);
	j = job_start(*state, 2, offloads);
	j->deadline = fake_now + 5 * MS;
	run_idle(*state);
	pass_ns(*state, 6 * MS);
	finish_job(*state, j);
	assert_int_equal(j->err, -ETIMEDOUT);
	release(*state);
	finish_job(*state, job_start(*state, 3, offloads)); /* behind it */
	assert_int_equal(j->runs, 0);
}

static void test_cancel_while_it_waits_for_a_thread(void **state)
{
	struct job *j;

	occupy(*state);
	j = job_start(*state, 2, offloads);
	run_idle(*state);
	coro_cancel(j->co);
	finish_job(*state, j);
	assert_int_equal(j->err, -ECANCELED);
	assert_int_equal(j->after, 0);
	release(*state);
	finish_job(*state, job_start(*state, 3, offloads));
	assert_int_equal(j->runs, 0);
}

static void test_destroyed_while_it_waits_for_a_thread(void **state)
{
	struct job *j;

	occupy(*state);
	j = job_start(*state, 2, offloads);
	run_idle(*state);
	assert_int_equal(coro_destroy(j->co), 0);
	release(*state);
	finish_job(*state, job_start(*state, 3, offloads));
	assert_int_equal(j->runs, 0);
}

static void test_deadline_after_it_has_begun(void **state)
{
	struct job *j = job_start(*state, 0, offloads_long);

	j->deadline = fake_now + 5 * MS;
	run_idle(*state);
	sem_take(&begun);
	pass_ns(*state, 6 * MS);
	assert_false(j->done);
	sem_post(&go);
	finish_job(*state, j);
	assert_int_equal(j->err, 0);
	assert_int_equal(j->runs, 1);
	assert_int_equal(j->after, 0);
}

static void test_cancel_after_it_has_begun(void **state)
{
	struct job *j = job_start(*state, 0, offloads_long);

	run_idle(*state);
	sem_take(&begun);
	coro_cancel(j->co);
	run_idle(*state);
	assert_false(j->done);
	sem_post(&go);
	finish_job(*state, j);
	assert_int_equal(j->err, 0);
	assert_int_equal(j->after, -ECANCELED);
}

static void *posts_go(void *arg)
{
	usleep(20000);
	sem_post(&go);
	return NULL;
}

static void test_destroy_waits_for_a_running_job(void **state)
{
	struct job *j = job_start(*state, 0, offloads_long);
	pthread_t th;

	run_idle(*state);
	sem_take(&begun);
	assert_int_equal(pthread_create(&th, NULL, posts_go, NULL), 0);
	assert_int_equal(coro_destroy(j->co), 0);
	assert_int_equal(j->runs, 1);
	pthread_join(th, NULL);
}

/* The teardown closes the scheduler with a running and a queued job. */
static void test_close_with_jobs_out(void **state)
{
	void *own = NULL;
	pthread_t th;

	assert_int_equal(sched_setup(&own), 0);
	occupy(own);
	job_start(own, 2, offloads);
	run_idle(own);
	sem_post(&go);
	assert_int_equal(pthread_create(&th, NULL, posts_go, NULL), 0);
	assert_int_equal(sched_teardown(&own), 0);
	pthread_join(th, NULL);
	assert_int_equal(jobs[0].runs + jobs[1].runs, 2);
}

/* ---- properties of the threads ---- */

static cpu_set_t cpus_there, cpus_here, cpus_spared;
static sigset_t signals_there;

static void *note_thread(void *arg)
{
	sched_getaffinity(0, sizeof(cpus_there), &cpus_there);
	pthread_sigmask(SIG_SETMASK, NULL, &signals_there);
	return NULL;
}

static void *offloads_look(void *arg)
{
	struct job *j = arg;

	j->err = coro_offload(note_thread, j, NULL);
	j->done = true;
	return NULL;
}

/* They are on all CPUs but the polling thread's; with one, on that. */
static void test_threads_are_not_pinned_and_take_no_signals(void **state)
{
	cpu_set_t want;

	CPU_XOR(&want, &cpus_here, &cpus_spared);
	if (CPU_COUNT(&want) == 0)
		want = cpus_here;
	finish_job(*state, job_start(*state, 0, offloads_look));
	assert_int_equal(jobs[0].err, 0);
	assert_true(CPU_EQUAL(&cpus_there, &want));
	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGKILL && sig != SIGSTOP && sig != SIGSYS &&
		    (sig < 32 || sig > 33))
			assert_int_equal(sigismember(&signals_there, sig), 1);
}

static void *spare_own(void *arg)
{
	static int err;

	sched_setaffinity(0, sizeof(cpus_here), &cpus_here);
	err = coro_offload_spare();
	return &err;
}

static void test_cpus_of_a_thread_with_several_are_not_spared(void **state)
{
	pthread_t th;
	void *err;

	pthread_create(&th, NULL, spare_own, NULL);
	pthread_join(th, &err);
	assert_int_equal(*(int *)err, CPU_COUNT(&cpus_here) > 1 ? -EINVAL : 0);
}

static void test_offload_outside_a_coroutine_is_refused(void **state)
{
	assert_int_equal(coro_offload(run_offloaded, NULL, NULL), -EPERM);
}

static void test_limits_are_refused_after_the_first_offload(void **state)
{
	assert_int_equal(coro_offload_limits(1, 1), -EBUSY);
	assert_int_equal(coro_offload_limits(CORO_OFFLOAD_THREADS_MAX + 1, 0),
			 -EINVAL);
	assert_int_equal(coro_offload_limits(0, CORO_OFFLOAD_QUEUE_MAX + 1),
			 -EINVAL);
}

static void *offloads_its_stack(void *arg)
{
	struct job on_stack = {0};

	coro_offload(run_offloaded, &on_stack, NULL);
	return NULL;
}

static void child_offloads_its_stack(void)
{
	coro_spawn(coro_sched_self(), NULL, offloads_its_stack, NULL, NULL);
	coro_sched_round(coro_sched_self());
}

static void test_argument_on_a_shared_stack_is_refused(void **state)
{
	int status = in_child(child_offloads_its_stack);

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(said, "lies on a shared stack"));
}

/* ---- several schedulers at once ---- */

#define EACH MANY(2000)

struct counter {
	_Atomic int runs;
	int refused;
};

static void *count_run(void *arg)
{
	((struct counter *)arg)->runs++;
	return NULL;
}

static void *offloads_often(void *arg)
{
	struct counter *c = arg;

	for (int i = 0; i < EACH;) {
		int err = coro_offload(count_run, c, NULL);

		if (err == 0) {
			i++;
			continue;
		}
		assert_int_equal(err, -EAGAIN);
		c->refused++;
		coro_yield();
	}
	return NULL;
}

static void *scheduler(void *arg)
{
	struct counter *c = arg;
	struct coro_sched *s;

	assert_int_equal(coro_sched_open(NULL, &s), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(coro_spawn(s, NULL, offloads_often, c, NULL),
				 0);
	assert_int_equal(coro_sched_run(s), 0);
	coro_sched_close(s);
	return NULL;
}

static void test_many_from_several_schedulers(void **state)
{
	static struct counter counter[3];
	pthread_t th[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(
			pthread_create(&th[i], NULL, scheduler, &counter[i]),
			0);
	for (int i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(counter[i].runs, 4 * EACH);
}

static int set_up_all(void **state)
{
	int cpu = 0;

	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	/* As a polling thread is when it offloads for the first time. */
	if (sched_getaffinity(0, sizeof(cpus_here), &cpus_here) < 0)
		return -1;
	while (!CPU_ISSET(cpu, &cpus_here))
		cpu++;
	CPU_ZERO(&cpus_spared);
	CPU_SET(cpu, &cpus_spared);
	if (sched_setaffinity(0, sizeof(cpus_spared), &cpus_spared) < 0 ||
	    coro_offload_spare() < 0)
		return -1;
	return coro_offload_limits(THREADS, QUEUE);
}

static int unpin_thread(void **state)
{
	return sched_setaffinity(0, sizeof(cpus_here), &cpus_here);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_runs_elsewhere_and_gives_the_result, sched_setup,
			sched_teardown),
		cmocka_unit_test_setup_teardown(
			test_threads_are_not_pinned_and_take_no_signals,
			sched_setup, sched_teardown),
		cmocka_unit_test(
			test_cpus_of_a_thread_with_several_are_not_spared),
		cmocka_unit_test_teardown(
			test_limits_are_refused_after_the_first_offload,
			unpin_thread),
		BOTH(test_queue_is_served_in_order_and_bounded),
		BOTH(test_deadline_while_it_waits_for_a_thread),
		BOTH(test_cancel_while_it_waits_for_a_thread),
		BOTH(test_destroyed_while_it_waits_for_a_thread),
		BOTH(test_deadline_after_it_has_begun),
		BOTH(test_cancel_after_it_has_begun),
		BOTH(test_destroy_waits_for_a_running_job),
		cmocka_unit_test(test_close_with_jobs_out),
		BOTH(test_offload_outside_a_coroutine_is_refused),
		BOTH(test_argument_on_a_shared_stack_is_refused),
		cmocka_unit_test(test_many_from_several_schedulers),
	};

	return cmocka_run_group_tests(tests, set_up_all, NULL);
}
