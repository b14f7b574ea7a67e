/*
 * Channels between threads, case by case: a waiter is woken once, by any
 * thread. test_coro_threads.c mixes everything at random.
 */
#include <sched.h>
#include <stdatomic.h>

#include <coronet/coro_chan.h>

#include "peer.h"

static struct coro_chan *ch, *local;

static int setup_with(void **state, size_t capacity)
{
	if (coro_chan_open_shared(sizeof(long), capacity, &ch) != 0 ||
	    coro_chan_open(sizeof(long), capacity, &local) != 0)
		return -1;
	return sched_setup(state);
}

static int rendezvous(void **state)
{
	return setup_with(state, 0);
}

static int buffered(void **state)
{
	return setup_with(state, 2);
}

static int teardown(void **state)
{
	int err = sched_teardown(state);

	coro_chan_free(ch);
	coro_chan_free(local);
	return err;
}

struct task {
	struct coro *co;
	int64_t deadline;
	long value;
	int err;
	int after; /* of the next blocking call */
	int chosen;
	bool done;
};

static struct task task[4];

static void *send_values(void *arg)
{
	struct task *t = arg;

	t->err = coro_chan_send_until(ch, &t->value, t->deadline);
	t->after = coro_yield();
	t->done = true;
	return NULL;
}

static void *receives(void *arg)
{
	struct task *t = arg;

	t->err = coro_chan_recv_until(ch, &t->value, t->deadline);
	t->after = coro_yield();
	t->done = true;
	return NULL;
}

static void *selects(void *arg)
{
	struct task *t = arg;
	long a = -1, b = -1;
	struct coro_case cases[] = {{local, CORO_RECV, &a, 0},
				    {NULL, CORO_SEND, NULL, 0},
				    {ch, CORO_RECV, &b, 0}};

	t->chosen = coro_select_until(cases, 3, t->deadline);
	if (t->chosen >= 0) {
		t->err = cases[t->chosen].err;
		t->value = t->chosen == 0 ? a : b;
	}
	t->after = coro_yield();
	t->done = true;
	return NULL;
}

static struct task *start_task(struct coro_sched *s, int i, coro_fn fn,
			       long value)
{
	struct task *t = &task[i];

	*t = (struct task){.deadline = CORO_FOREVER, .value = value, .err = 1};
	assert_int_equal(coro_spawn(s, NULL, fn, t, &t->co), 0);
	run_idle(s);
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

/* Run fn(arg) on a thread without a scheduler, to its end. */
static void *elsewhere(void *(*fn)(void *arg), void *arg)
{
	pthread_t th;
	void *result;

	assert_int_equal(pthread_create(&th, NULL, fn, arg), 0);
	pthread_join(th, &result);
	return result;
}

static void *trysends(void *arg)
{
	return (void *)(long)coro_chan_trysend(ch, &(long){(long)arg});
}

static void *tryrecvs(void *arg)
{
	return (void *)(long)coro_chan_tryrecv(ch, arg);
}

static void *closes(void *arg)
{
	coro_chan_close(ch);
	return NULL;
}

/* ---- one thread ---- */

static void test_buffer_is_bounded_and_first_in_first_out(void **state)
{
	long v;

	for (long i = 0; i < 9; i++) {
		assert_int_equal(coro_chan_trysend(ch, &i), 0);
		assert_int_equal(coro_chan_trysend(ch, &(long){i + 100}), 0);
		assert_int_equal(coro_chan_trysend(ch, &i), -EAGAIN);
		assert_int_equal(coro_chan_count(ch), 2);
		assert_int_equal(coro_chan_state(ch), CORO_CHAN_CAN_RECV);
		assert_int_equal(coro_chan_tryrecv(ch, &v), 0);
		assert_int_equal(v, i);
		assert_int_equal(coro_chan_tryrecv(ch, &v), 0);
		assert_int_equal(v, i + 100);
		assert_int_equal(coro_chan_tryrecv(ch, &v), -EAGAIN);
		assert_int_equal(coro_chan_state(ch), CORO_CHAN_CAN_SEND);
	}
}

static void test_sender_and_receiver_on_one_thread_meet(void **state)
{
	start_task(*state, 0, send_values, 7);
	start_task(*state, 1, send_values, 8);
	assert_int_equal(coro_chan_state(ch), CORO_CHAN_CAN_RECV);
	for (int i = 2; i < 4; i++) {
		start_task(*state, i, receives, 0);
		assert_int_equal(task[i].err, 0);
		assert_int_equal(task[i].value, i + 5);
	}
	for (int i = 0; i < 4; i++)
		finish_task(*state, &task[i]);
}

static void test_waiting_sender_fills_the_room(void **state)
{
	long v;

	for (int i = 0; i < 3; i++)
		start_task(*state, i, send_values, i);
	assert_false(task[2].done);
	for (long i = 0; i < 3; i++) {
		assert_int_equal(coro_chan_tryrecv(ch, &v), 0);
		assert_int_equal(v, i);
	}
	for (int i = 0; i < 3; i++)
		finish_task(*state, &task[i]);
}

static void test_closed_channel_returns_its_values(void **state)
{
	long v;

	for (int i = 0; i < 3; i++)
		start_task(*state, i, send_values, i);
	coro_chan_close(ch);
	coro_chan_close(ch);
	finish_task(*state, &task[2]);
	assert_int_equal(task[2].err, -EPIPE);
	assert_int_equal(coro_chan_trysend(ch, &(long){0}), -EPIPE);
	assert_int_equal(coro_chan_tryrecv(ch, &v), 0);
	assert_int_equal(coro_chan_tryrecv(ch, NULL), 0);
	assert_int_equal(coro_chan_tryrecv(ch, &v), -EPIPE);
	start_task(*state, 2, receives, 0);
	assert_int_equal(task[2].err, -EPIPE);
	for (int i = 0; i < 3; i++)
		finish_task(*state, &task[i]);
}

static void test_last_owner_frees(void **state)
{
	struct coro_chan *mine = coro_chan_ref(ch);

	coro_chan_free(ch);
	assert_int_equal(coro_chan_trysend(mine, &(long){3}), 0);
	assert_int_equal(coro_chan_count(mine), 1);
}

static void test_waiting_outside_a_coroutine_is_refused(void **state)
{
	long v;

	assert_int_equal(coro_chan_recv(ch, &v), -EPERM);
	assert_int_equal(coro_chan_send(ch, &v), -EPERM);
	assert_int_equal(coro_chan_open_shared((size_t)2 << 20, 1, &local),
			 -EINVAL);
}

struct watcher {
	struct coro_chan_watch watch; /* first */
	int times;
	bool once; /* removes itself */
};

static void count_call(struct coro_chan_watch *w)
{
	struct watcher *t = (struct watcher *)w;

	assert_null(coro_self());
	t->times++;
	if (t->once)
		coro_chan_unwatch(w);
}

/* ---- actions by another thread ---- */

static void test_another_thread_sends(void **state)
{
	struct task *t = start_task(*state, 0, receives, 0);

	assert_null(elsewhere(trysends, (void *)5));
	assert_int_equal((long)elsewhere(trysends, (void *)6), -EAGAIN);
	finish_task(*state, t);
	assert_int_equal(t->err, 0);
	assert_int_equal(t->value, 5);
}

static void test_another_thread_receives(void **state)
{
	struct task *t = start_task(*state, 0, send_values, 9);
	long v = 0;

	assert_null(elsewhere(tryrecvs, &v));
	assert_int_equal(v, 9);
	finish_task(*state, t);
	assert_int_equal(t->err, 0);
}

static void test_another_thread_closes(void **state)
{
	for (int i = 0; i < 3; i++)
		start_task(*state, i, i == 2 ? selects : receives, 0);
	elsewhere(closes, NULL);
	for (int i = 0; i < 3; i++) {
		finish_task(*state, &task[i]);
		assert_int_equal(task[i].err, -EPIPE);
	}
	assert_int_equal(task[2].chosen, 2);
}

static void test_deadline_and_cancel(void **state)
{
	struct task *t;

	for (int i = 0; i < 3; i++) {
		t = &task[i];
		*t = (struct task){.deadline = fake_now + MS, .err = 1};
		coro_spawn(*state, NULL,
			   i == 0   ? receives
			   : i == 1 ? selects
				    : send_values,
			   t, &t->co);
		run_idle(*state);
		if (i == 2) /* the receiver before it is gone */
			coro_cancel(t->co);
		pass_ns(*state, 2 * MS);
		assert_true(t->done);
		assert_int_equal(i == 1 ? t->chosen : t->err,
				 i == 2 ? -ECANCELED : -ETIMEDOUT);
		assert_int_equal((long)elsewhere(trysends, (void *)1), -EAGAIN);
		finish_task(*state, t);
	}
}

/* The value has been handed over when the deadline, or the cancel, comes. */
static void test_late_deadline_or_cancel_loses_no_value(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct task *t = &task[0];
		bool cancel = i % 2;

		*t = (struct task){.deadline = fake_now + MS, .err = 1};
		coro_spawn(*state, NULL, i < 2 ? receives : selects, t, &t->co);
		run_idle(*state);
		assert_null(elsewhere(trysends, (void *)4));
		if (cancel)
			coro_cancel(t->co);
		fake_now += 2 * MS;
		coro_sched_advance(*state, fake_now); /* before the wake-up */
		run_idle(*state);
		assert_int_equal(t->err, 0);
		assert_int_equal(t->value, 4);
		assert_int_equal(t->after, cancel ? -ECANCELED : 0);
		finish_task(*state, t);
	}
}

static void test_destroyed_waiter_is_forgotten(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct task *t =
			start_task(*state, 0, i == 1 ? selects : receives, 0);

		if (i == 2) /* given a value that it never sees */
			assert_null(elsewhere(trysends, (void *)4));
		assert_int_equal(coro_destroy(t->co), 0);
		assert_int_equal((long)elsewhere(trysends, (void *)1), -EAGAIN);
		assert_int_equal(coro_chan_trysend(local, &(long){1}), -EAGAIN);
		run_idle(*state);
	}
}

static void test_scheduler_closes_with_a_pending_wake_up(void **state)
{
	for (int i = 0; i < 2; i++) {
		start_task(*state, 0, receives, 0);
		start_task(*state, 1, selects, 0);
		if (i == 1)
			assert_null(elsewhere(trysends, (void *)4));
		coro_sched_close(*state);
		assert_int_equal((long)elsewhere(trysends, (void *)1), -EAGAIN);
		sched_setup(state);
	}
}

static void test_watch_is_called_on_its_own_thread(void **state)
{
	static struct watcher a, b;
	long v;

	memset(&a, 0, sizeof(a));
	b = a;
	a.watch.fn = b.watch.fn = count_call;
	b.once = true;
	assert_int_equal(coro_chan_watch(ch, &a.watch), 0);
	assert_int_equal(coro_chan_watch(ch, &b.watch), 0);
	assert_null(elsewhere(trysends, (void *)1));
	assert_null(elsewhere(trysends, (void *)1));
	assert_int_equal(a.times, 0);
	run_idle(*state);
	assert_int_equal(a.times, 1);
	assert_int_equal(b.times, 1);
	assert_int_equal(coro_chan_tryrecv(ch, &v), 0);
	run_idle(*state);
	assert_int_equal(a.times, 2);
	elsewhere(closes, NULL);
	coro_chan_unwatch(&a.watch); /* its wake-up is pending */
	coro_chan_unwatch(&a.watch);
	run_idle(*state);
	assert_int_equal(a.times, 2);
	assert_int_equal(b.times, 1);
}

static void test_watch_is_called_when_a_receiver_waits(void **state)
{
	static struct watcher a;

	memset(&a, 0, sizeof(a));
	a.watch.fn = count_call;
	coro_chan_watch(ch, &a.watch);
	start_task(*state, 0, receives, 0);
	run_idle(*state);
	assert_int_equal(a.times, 1);
	assert_int_equal(coro_chan_state(ch), CORO_CHAN_CAN_SEND);
	coro_chan_close(ch); /* and the scheduler closes with the wake-up */
	coro_chan_unwatch(&a.watch);
	coro_sched_close(*state);
	sched_setup(state);
}

/* ---- select over both kinds ---- */

static void test_select_takes_the_local_one(void **state)
{
	struct task *t = start_task(*state, 0, selects, 0);

	assert_int_equal(coro_chan_trysend(local, &(long){3}), 0);
	assert_int_equal((long)elsewhere(trysends, (void *)1), -EAGAIN);
	assert_int_equal(coro_chan_trysend(local, &(long){3}), -EAGAIN);
	finish_task(*state, t);
	assert_int_equal(t->chosen, 0);
	assert_int_equal(t->value, 3);
}

static void test_select_takes_the_shared_one(void **state)
{
	struct task *t = start_task(*state, 0, selects, 0);

	assert_int_equal(coro_chan_state(local), CORO_CHAN_CAN_SEND);
	assert_null(elsewhere(trysends, (void *)6));
	/* The wake-up is still pending, but the select waits no longer. */
	assert_int_equal(coro_chan_state(local), 0);
	assert_int_equal(coro_chan_trysend(local, &(long){3}), -EAGAIN);
	finish_task(*state, t);
	assert_int_equal(t->chosen, 2);
	assert_int_equal(t->value, 6);
}

/* A local select gets the value instead of the destroyed waiter. */
static void test_destroyed_waiter_is_skipped(void **state)
{
	struct task *dead = start_task(*state, 0, selects, 0);
	struct task *next = start_task(*state, 1, selects, 0);

	assert_null(elsewhere(trysends, (void *)6));
	assert_int_equal(coro_chan_trysend(local, &(long){3}), 0);
	finish_task(*state, dead);
	finish_task(*state, next);
	assert_int_equal(dead->chosen, 2);
	assert_int_equal(next->chosen, 0);
	assert_int_equal(next->value, 3);
}

static void test_select_with_ready_cases_does_not_wait(void **state)
{
	bool seen[3] = {false};
	long v;

	for (int i = 0; i < 200 && !(seen[0] && seen[2]); i++) {
		struct task *t;

		coro_chan_trysend(local, &(long){10});
		coro_chan_trysend(ch, &(long){12});
		t = start_task(*state, 0, selects, 0);
		assert_true(t->done);
		assert_int_equal(t->value, 10 + t->chosen);
		seen[t->chosen] = true;
		finish_task(*state, t);
		while (coro_chan_tryrecv(local, &v) == 0 ||
		       coro_chan_tryrecv(ch, &v) == 0)
			;
	}
	assert_true(seen[0] && seen[2]); /* neither starves */
}

static struct coro_chan *many[64];

/* Each of many channels, some twice, some local: the one sent to is chosen. */
static void *selects_many(void *arg)
{
	struct task *t = arg;
	long v = -1;
	struct coro_case cases[128];

	for (unsigned i = 0; i < 128; i++)
		cases[i] =
			(struct coro_case){many[i * 37 % 64], CORO_RECV, &v, 0};
	t->chosen = coro_select(cases, 128);
	t->err = cases[t->chosen].err;
	t->value = v;
	t->done = true;
	return NULL;
}

static void test_select_over_many(void **state)
{
	for (int i = 0; i < 64; i++)
		assert_int_equal(
			(i % 3 ? coro_chan_open_shared
			       : coro_chan_open)(sizeof(long), 0, &many[i]),
			0);
	for (long i = 0; i < 64; i++) {
		struct task *t = start_task(*state, 0, selects_many, 0);

		assert_false(t->done);
		assert_int_equal(coro_chan_trysend(many[i], &i), 0);
		finish_task(*state, t);
		assert_int_equal(t->err, 0);
		assert_int_equal(t->value, i);
		assert_int_equal(t->chosen * 37 % 64, i);
	}
	for (int i = 0; i < 64; i++)
		coro_chan_free(many[i]);
}

/* ---- two schedulers ---- */

static struct coro_chan *back;

static void *echoes(void *arg)
{
	long v;

	while (coro_chan_recv(ch, &v) == 0)
		coro_chan_send(back, &v);
	coro_chan_close(back);
	coro_sched_hold(coro_sched_self(), -1);
	return NULL;
}

static void spawns_echo(void *arg)
{
	coro_spawn(coro_sched_self(), NULL, echoes, NULL, NULL);
}

static long received;

static void *ping_body(void *arg)
{
	long v;

	for (long i = 0; i < MANY(5000); i++) {
		assert_int_equal(coro_chan_send(ch, &i), 0);
		assert_int_equal(coro_chan_recv(back, &v), 0);
		assert_int_equal(v, i);
	}
	coro_chan_close(ch);
	received = coro_chan_recv(back, &v);
	return NULL;
}

/* Both sleep whenever the other has the value. */
static void test_ping_pong_between_sleeping_schedulers(void **state)
{
	static struct peer peer;
	struct coro_sched *s;

	peer_start(&peer);
	coro_chan_open_shared(sizeof(long), 0, &ch);
	coro_chan_open_shared(sizeof(long), 0, &back);
	coro_post(peer.s, spawns_echo, NULL);
	assert_int_equal(coro_sched_open(NULL, &s), 0);
	coro_spawn(s, NULL, ping_body, NULL, NULL);
	assert_int_equal(coro_sched_run(s), 0);
	assert_int_equal(received, -EPIPE);
	coro_sched_close(s);
	pthread_join(peer.th, NULL);
	coro_sched_unref(peer.s);
	coro_chan_free(ch);
	coro_chan_free(back);
}

#define ON(setup, name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON(buffered, test_buffer_is_bounded_and_first_in_first_out),
		ON(rendezvous, test_sender_and_receiver_on_one_thread_meet),
		ON(buffered, test_waiting_sender_fills_the_room),
		ON(buffered, test_closed_channel_returns_its_values),
		ON(buffered, test_last_owner_frees),
		ON(rendezvous, test_waiting_outside_a_coroutine_is_refused),
		ON(rendezvous, test_another_thread_sends),
		ON(rendezvous, test_another_thread_receives),
		ON(rendezvous, test_another_thread_closes),
		ON(rendezvous, test_deadline_and_cancel),
		ON(rendezvous, test_late_deadline_or_cancel_loses_no_value),
		ON(rendezvous, test_destroyed_waiter_is_forgotten),
		ON(rendezvous, test_scheduler_closes_with_a_pending_wake_up),
		ON(buffered, test_watch_is_called_on_its_own_thread),
		ON(rendezvous, test_watch_is_called_when_a_receiver_waits),
		ON(rendezvous, test_select_takes_the_local_one),
		ON(rendezvous, test_select_takes_the_shared_one),
		ON(rendezvous, test_destroyed_waiter_is_skipped),
		ON(buffered, test_select_with_ready_cases_does_not_wait),
		ON(rendezvous, test_select_over_many),
		cmocka_unit_test(test_ping_pong_between_sleeping_schedulers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
