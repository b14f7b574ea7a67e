/*
 * Calls to another scheduler: results, deadlines, cancelling, closing. A call
 * that fails has not run.
 */
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "peer.h"

static struct peer peer;

static int with_peer(void **state)
{
	peer.capacity = 2; /* calls do not need the queue of posts */
	peer_start(&peer);
	return sched_setup(state);
}

static int without_peer(void **state)
{
	if (sched_teardown(state) != 0)
		return -1;
	peer_stop(&peer);
	return 0;
}

struct task {
	struct coro_sched *to;
	struct coro *co;
	int64_t deadline;
	int err;
	int after; /* of the next blocking call */
	void *result;
	_Atomic int runs;
	pthread_t ran_on;
	bool done;
};

static struct task task[4];

static void *count_run(void *arg)
{
	struct task *t = arg;

	assert_null(coro_self());
	t->ran_on = pthread_self();
	t->runs++;
	return &t->runs;
}

static void *call_body(void *arg)
{
	struct task *t = arg;

	t->err = coro_call_until(t->to, count_run, t, &t->result, t->deadline);
	t->after = coro_yield();
	t->done = true;
	return NULL;
}

static struct task *task_start(struct coro_sched *s, int i,
			       struct coro_sched *to, coro_fn fn)
{
	struct task *t = &task[i];

	*t = (struct task){.to = to, .deadline = CORO_FOREVER, .err = 1};
	assert_int_equal(coro_spawn(s, NULL, fn, t, &t->co), 0);
	return t;
}

/* Runs rounds until the task is done, for an event from another thread. */
static void finish_task(struct coro_sched *s, struct task *t)
{
	while (!t->done)
		if (coro_sched_round(s) == 0)
			sched_yield();
	assert_int_equal(coro_join(t->co, NULL), 0);
}

static void test_call_runs_there_and_gives_the_result(void **state)
{
	struct task *t = task_start(*state, 0, peer.s, call_body);

	finish_task(*state, t);
	assert_int_equal(t->err, 0);
	assert_int_equal(t->runs, 1);
	assert_ptr_equal(t->result, &t->runs);
	assert_true(pthread_equal(t->ran_on, peer.th));
}

static void test_call_to_the_own_scheduler(void **state)
{
	struct task *t = task_start(*state, 0, *state, call_body);

	finish_task(*state, t);
	assert_int_equal(t->err, 0);
	assert_int_equal(t->runs, 1);
	assert_true(pthread_equal(t->ran_on, pthread_self()));
}

static void *calls_often(void *arg)
{
	struct task *t = arg;

	for (int i = 0; i < MANY(5000); i++) {
		t->err = coro_call(t->to, count_run, t, NULL);
		assert_int_equal(t->err, 0);
		assert_int_equal(t->runs, i + 1);
	}
	t->done = true;
	return NULL;
}

static void test_calls_of_several_coroutines_all_return(void **state)
{
	for (int i = 0; i < 4; i++)
		task_start(*state, i, peer.s, calls_often);
	for (int i = 0; i < 4; i++)
		finish_task(*state, &task[i]);
}

static void test_call_outside_a_coroutine_is_refused(void **state)
{
	assert_int_equal(coro_call(peer.s, count_run, NULL, NULL), -EPERM);
}

/* ---- given up before it has begun ---- */

static void test_call_times_out_and_never_runs(void **state)
{
	struct task *t;

	peer_hold(&peer);
	t = task_start(*state, 0, peer.s, call_body);
	t->deadline = fake_now + 5 * MS;
	run_idle(*state);
	assert_false(t->done);
	pass_ns(*state, 6 * MS);
	assert_true(t->done);
	assert_int_equal(t->err, -ETIMEDOUT);
	peer_go(&peer);
	finish_task(*state, t);
	t = task_start(*state, 1, peer.s,
		       call_body); /* behind it in the inbox */
	finish_task(*state, t);
	assert_int_equal(task[0].runs, 0);
	assert_int_equal(task[1].runs, 1);
}

static void test_deadline_that_has_passed(void **state)
{
	struct task *t = task_start(*state, 0, peer.s, call_body);

	peer_hold(&peer);
	t->deadline = fake_now;
	run_idle(*state);
	assert_int_equal(t->err, -ETIMEDOUT);
	peer_go(&peer);
	finish_task(*state, t);
	assert_int_equal(t->runs, 0);
}

static void test_cancelled_call_never_runs(void **state)
{
	struct task *t;

	peer_hold(&peer);
	t = task_start(*state, 0, peer.s, call_body);
	run_idle(*state);
	coro_cancel(t->co);
	run_idle(*state);
	assert_int_equal(t->err, -ECANCELED);
	assert_int_equal(t->after, 0);
	peer_go(&peer);
	finish_task(*state, t);
	assert_int_equal(t->runs, 0);
}

static void test_destroyed_call_never_runs(void **state)
{
	struct task *t;

	peer_hold(&peer);
	t = task_start(*state, 0, peer.s, call_body);
	run_idle(*state);
	assert_int_equal(coro_destroy(t->co), 0);
	peer_go(&peer);
	finish_task(*state, task_start(*state, 1, peer.s, call_body));
	assert_int_equal(t->runs, 0);
}

/* The calling scheduler closes before the peer finds its call. */
static void test_caller_closes_before_its_call_is_found(void **state)
{
	struct task *t;

	peer_hold(&peer);
	t = task_start(*state, 0, peer.s, call_body);
	t->deadline = fake_now + MS;
	task_start(*state, 1, peer.s, call_body);
	run_idle(*state);
	pass_ns(*state, 2 * MS);
	assert_int_equal(t->err, -ETIMEDOUT);
	coro_sched_close(*state);
	peer_go(&peer);
	sched_setup(state);
	finish_task(*state, task_start(*state, 2, peer.s, call_body));
	assert_int_equal(task[0].runs + task[1].runs, 0);
}

static void *gives_up_often(void *arg)
{
	struct task *t = arg;

	for (int i = 0; i < 1024; i++) {
		t->err = coro_call_until(t->to, count_run, t, NULL, 0);
		assert_int_equal(t->err, -ETIMEDOUT);
	}
	t->err = coro_call(t->to, count_run, t, NULL);
	t->done = true;
	return NULL;
}

static void test_calls_given_up_are_bounded(void **state)
{
	struct task *t;

	peer_hold(&peer);
	t = task_start(*state, 0, peer.s, gives_up_often);
	finish_task(*state, t);
	assert_int_equal(t->err, -EAGAIN);
	peer_go(&peer);
	do {
		t = task_start(*state, 1, peer.s, call_body);
		finish_task(*state, t);
	} while (t->err == -EAGAIN); /* until they have come back */
	assert_int_equal(t->err, 0);
	assert_int_equal(task[0].runs, 0);
}

/* ---- given up too late ---- */

static void *counts_held(void *arg)
{
	struct task *t = arg;

	peer_hold_fn(&peer);
	t->runs++;
	return t;
}

static void *calls_held(void *arg)
{
	struct task *t = arg;

	t->err =
		coro_call_until(t->to, counts_held, t, &t->result, t->deadline);
	t->after = coro_yield();
	t->done = true;
	return NULL;
}

static void test_call_that_has_begun_ends_despite_its_deadline(void **state)
{
	struct task *t = task_start(*state, 0, peer.s, calls_held);

	t->deadline = fake_now + MS;
	run_idle(*state);
	sem_take(&peer.held);
	pass_ns(*state, 2 * MS);
	pass_ns(*state, 2 * MS);
	assert_int_equal(t->err, 1);
	peer_go(&peer);
	finish_task(*state, t);
	assert_int_equal(t->err, 0);
	assert_int_equal(t->runs, 1);
	assert_ptr_equal(t->result, t);
}

static void test_call_that_has_begun_ends_despite_cancel(void **state)
{
	struct task *t = task_start(*state, 0, peer.s, calls_held);

	run_idle(*state);
	sem_take(&peer.held);
	coro_cancel(t->co);
	run_idle(*state);
	assert_int_equal(t->err, 1);
	peer_go(&peer);
	finish_task(*state, t);
	assert_int_equal(t->err, 0);
	assert_int_equal(t->after, -ECANCELED); /* returned by the next call */
}

static void *lets_go_later(void *arg)
{
	usleep(20000); /* so that the other side is most likely waiting */
	peer_go(&peer);
	return NULL;
}

/* Neither coro_destroy() nor closing returns while the function runs. */
static void test_destroy_and_close_wait_for_a_running_call(void **state)
{
	for (int close = 0; close < 2; close++) {
		struct task *t = task_start(*state, 0, peer.s, calls_held);
		pthread_t th;

		run_idle(*state);
		sem_take(&peer.held);
		pthread_create(&th, NULL, lets_go_later, NULL);
		if (close)
			coro_sched_close(*state);
		else
			assert_int_equal(coro_destroy(t->co), 0);
		assert_int_equal(t->runs, 1);
		if (close)
			sched_setup(state);
		pthread_join(th, NULL);
	}
}

static void *destroys_its_caller(void *arg)
{
	struct task *t = arg;

	assert_int_equal(coro_destroy(t->co), 0);
	t->runs++;
	return NULL;
}

static void *is_destroyed(void *arg)
{
	struct task *t = arg;

	coro_call(coro_sched_self(), destroys_its_caller, t, NULL);
	t->err = 2;
	return NULL;
}

static void test_function_may_destroy_its_caller(void **state)
{
	struct task *t = task_start(*state, 0, NULL, is_destroyed);

	run_idle(*state);
	assert_int_equal(t->runs, 1);
	assert_int_equal(t->err, 1);
	assert_int_equal(coro_sched_live(*state), 0);
}

/* ---- the other closes ---- */

static void test_call_to_a_closed_scheduler_fails(void **state)
{
	struct task *t;

	peer_close(&peer);
	t = task_start(*state, 0, peer.s, call_body);
	finish_task(*state, t);
	assert_int_equal(t->err, -ESHUTDOWN);
	assert_int_equal(t->runs, 0);
	coro_sched_unref(peer.s);
	peer_start(&peer);
}

static void test_call_that_was_queued_runs_at_close(void **state)
{
	struct task *t;

	peer_hold(&peer);
	coro_post(peer.s, peer_stop_fn, NULL);
	t = task_start(*state, 0, peer.s, call_body);
	run_idle(*state);
	peer_go(&peer);
	finish_task(*state, t);
	assert_int_equal(t->err, 0);
	assert_int_equal(t->runs, 1);
	pthread_join(peer.th, NULL);
	coro_sched_unref(peer.s);
	peer_start(&peer);
}

/*
 * A scheduler that waits for a call is not deadlocked, and sleeps until the
 * call returns.
 */
static void test_run_waits_for_a_call(void **state)
{
	struct coro_sched *s;
	struct task *t;

	sched_teardown(state);
	assert_int_equal(coro_sched_open(NULL, &s), 0);
	for (int i = 0; i < 50; i++) {
		t = task_start(s, 0, peer.s, call_body);
		assert_int_equal(coro_sched_run(s), 0);
		assert_int_equal(t->err, 0);
		coro_detach(t->co);
	}
	coro_sched_close(s);
	sched_setup(state);
}

/* ---- schedulers that call each other ---- */

#define SHARDS 3
#define CALLS  MANY(3000)

static struct shard {
	struct coro_sched *s;
	pthread_t th;
	unsigned seed;
	_Atomic unsigned ran; /* functions, on this one's thread */
	unsigned succeeded[SHARDS];
	unsigned failed;
	int callers;
} shards[SHARDS];

static _Atomic int open_shards;

struct small_call {
	struct shard *to;
	bool ran;
};

static void *runs_on_shard(void *arg)
{
	struct small_call *c = arg;

	assert_ptr_equal(coro_sched_self(), c->to->s);
	assert_false(c->ran);
	c->ran = true;
	c->to->ran++;
	return c;
}

static void *calls_at_random(void *arg)
{
	struct shard *self = arg;
	struct small_call *c = malloc(sizeof(*c));

	for (int i = 0; i < CALLS; i++) {
		int k = rand_r(&self->seed) % SHARDS;
		int64_t deadline = CORO_FOREVER;
		void *result = NULL;
		int err;

		if (rand_r(&self->seed) % 4 == 0)
			deadline = coro_sched_clock(self->s) +
				   rand_r(&self->seed) % 50000;
		if (rand_r(&self->seed) % 8 == 0)
			coro_cancel(coro_self());
		*c = (struct small_call){&shards[k], false};
		err = coro_call_until(shards[k].s, runs_on_shard, c, &result,
				      deadline);
		assert_int_equal(err == 0, c->ran);
		if (err == 0)
			assert_ptr_equal(result, c);
		if (err == 0)
			self->succeeded[k]++;
		else
			self->failed++;
		assert_true(err == 0 || err == -ETIMEDOUT ||
			    err == -ECANCELED || err == -ESHUTDOWN ||
			    err == -EAGAIN);
	}
	free(c);
	if (--self->callers == 0)
		coro_sched_stop(self->s);
	return NULL;
}

static void *shard_main(void *arg)
{
	struct shard *self = arg;

	assert_int_equal(coro_sched_open(NULL, &self->s), 0);
	coro_sched_ref(self->s);
	coro_sched_hold(self->s, 1);
	self->callers = 4;
	for (int i = 0; i < 4; i++)
		coro_spawn(self->s, NULL, calls_at_random, self, NULL);
	open_shards++;
	while (open_shards < SHARDS)
		sched_yield();
	coro_sched_run(self->s);
	coro_sched_close(self->s); /* the others still call it */
	return NULL;
}

static void test_schedulers_call_each_other(void **state)
{
	for (int i = 0; i < SHARDS; i++)
		shards[i].seed = i + 1;
	for (int i = 0; i < SHARDS; i++)
		pthread_create(&shards[i].th, NULL, shard_main, &shards[i]);
	for (int i = 0; i < SHARDS; i++)
		pthread_join(shards[i].th, NULL);
	for (int k = 0; k < SHARDS; k++) {
		unsigned sum = 0;

		for (int i = 0; i < SHARDS; i++)
			sum += shards[i].succeeded[k];
		assert_int_equal(sum, shards[k].ran);
	}
	for (int i = 0; i < SHARDS; i++)
		coro_sched_unref(shards[i].s);
}

#define PEER(name)                                                             \
	cmocka_unit_test_setup_teardown(name, with_peer, without_peer)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PEER(test_call_runs_there_and_gives_the_result),
		PEER(test_call_to_the_own_scheduler),
		PEER(test_calls_of_several_coroutines_all_return),
		PEER(test_call_outside_a_coroutine_is_refused),
		PEER(test_call_times_out_and_never_runs),
		PEER(test_deadline_that_has_passed),
		PEER(test_cancelled_call_never_runs),
		PEER(test_destroyed_call_never_runs),
		PEER(test_caller_closes_before_its_call_is_found),
		PEER(test_calls_given_up_are_bounded),
		PEER(test_call_that_has_begun_ends_despite_its_deadline),
		PEER(test_call_that_has_begun_ends_despite_cancel),
		PEER(test_destroy_and_close_wait_for_a_running_call),
		PEER(test_function_may_destroy_its_caller),
		PEER(test_call_to_a_closed_scheduler_fails),
		PEER(test_call_that_was_queued_runs_at_close),
		PEER(test_run_waits_for_a_call),
		cmocka_unit_test(test_schedulers_call_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
