/*
 * Channels and select on one shared stack, where no value in flight survives.
 */
#include "test_coro.h"

#include <coronet/coro_chan.h>

struct big {
	int id;
	char bytes[996];
};

struct task {
	struct coro_chan *ch;
	int from, to;
	int err;
	long sum;
	int64_t deadline;
	struct coro *co;
};

static struct task task[8];
static struct coro_chan *ch[4];

static int setup(void **state)
{
	memset(task, 0, sizeof(task));
	memset(ch, 0, sizeof(ch));
	log_reset();
	return sched_setup_one_stack(state);
}

static int teardown(void **state)
{
	int err = sched_teardown(state);

	for (int i = 0; i < 4; i++)
		coro_chan_free(ch[i]);
	return err;
}

static void fill_big(struct big *b, int id)
{
	b->id = id;
	memset(b->bytes, id, sizeof(b->bytes));
}

static void *send_range(void *arg)
{
	struct task *t = arg;
	struct big
		b; /* on the shared stack: must be copied before the switch */

	for (int i = t->from; i < t->to; i++) {
		fill_big(&b, i);
		t->err = coro_chan_send(t->ch, &b);
		if (t->err < 0)
			break;
		fill_big(&b, 99);
	}
	return NULL;
}

static void *receives(void *arg)
{
	struct task *t = arg;
	struct big b;

	while ((t->err = coro_chan_recv(t->ch, &b)) == 0) {
		for (size_t i = 0; i < sizeof(b.bytes); i++)
			assert_int_equal(b.bytes[i], (char)b.id);
		t->sum += b.id;
		log_int(b.id);
	}
	return NULL;
}

static void start_body(void *s, int i, coro_fn fn)
{
	if (task[i].ch == NULL)
		task[i].ch = ch[0];
	assert_int_equal(coro_spawn(s, NULL, fn, &task[i], &task[i].co), 0);
}

static void test_values_arrive_in_order(void **state)
{
	for (size_t cap = 0; cap < 4; cap++) {
		memset(task, 0, sizeof(task));
		log_reset();
		coro_chan_open(sizeof(struct big), cap, &ch[0]);
		task[0] = (struct task){.from = 1, .to = 8};
		start_body(*state, 0, send_range);
		start_body(*state, 1, receives);
		run_idle(*state);
		assert_string_equal(test_log, "1 2 3 4 5 6 7 ");
		coro_chan_close(ch[0]);
		run_idle(*state);
		assert_int_equal(task[1].err, -EPIPE);
		coro_chan_free(ch[0]);
		ch[0] = NULL;
	}
}

static void test_rendezvous_blocks_the_sender(void **state)
{
	struct big b;

	coro_chan_open(sizeof(struct big), 0, &ch[0]);
	task[0] = (struct task){.from = 5, .to = 7, .err = 1};
	start_body(*state, 0, send_range);
	run_idle(*state);
	assert_int_equal(task[0].err, 1);
	assert_int_equal(coro_chan_tryrecv(ch[0], &b), 0);
	assert_int_equal(b.id, 5);
	run_idle(*state);
	assert_int_equal(task[0].err, 0);
	assert_int_equal(coro_chan_tryrecv(ch[0], &b), 0);
	assert_int_equal(b.id, 6);
	run_idle(*state);
	assert_int_equal(coro_chan_tryrecv(ch[0], &b), -EAGAIN);
}

static void test_close_drains_then_refuses(void **state)
{
	struct big b;

	coro_chan_open(sizeof(struct big), 2, &ch[0]);
	task[0] = (struct task){.from = 1, .to = 9};
	start_body(*state, 0, send_range);
	run_idle(*state);
	assert_int_equal(coro_chan_count(ch[0]), 2);
	coro_chan_close(ch[0]);
	run_idle(*state);
	assert_int_equal(task[0].err, -EPIPE);
	assert_int_equal(coro_chan_trysend(ch[0], &b), -EPIPE);
	assert_int_equal(coro_chan_tryrecv(ch[0], &b), 0);
	assert_int_equal(coro_chan_tryrecv(ch[0], NULL), 0);
	assert_int_equal(coro_chan_tryrecv(ch[0], &b), -EPIPE);
}

static void test_bare_events_have_no_bytes(void **state)
{
	coro_chan_open(0, 1, &ch[0]);
	assert_int_equal(coro_chan_trysend(ch[0], NULL), 0);
	assert_int_equal(coro_chan_trysend(ch[0], NULL), -EAGAIN);
	assert_int_equal(coro_chan_tryrecv(ch[0], NULL), 0);
	assert_int_equal(coro_chan_open((size_t)2 << 20, 1, &ch[1]), -EINVAL);
	assert_int_equal(coro_chan_open(8, SIZE_MAX / 4, &ch[1]), -EINVAL);
}

static void *selects(void *arg)
{
	struct task *t = arg;
	struct big b[3];
	struct coro_case cases[4] = {
		{ch[0], CORO_RECV, &b[0], 0},
		{ch[1], CORO_RECV, &b[1], 0},
		{ch[2], CORO_SEND, &b[2], 0},
		{NULL, CORO_RECV, NULL, 0},
	};

	fill_big(&b[2], 77);
	t->err = coro_select_until(cases, 4, t->deadline);
	if (t->err == 0 || t->err == 1)
		t->sum = cases[t->err].err ? cases[t->err].err : b[t->err].id;
	return NULL;
}

static void open_three(void)
{
	for (int i = 0; i < 3; i++)
		coro_chan_open(sizeof(struct big), 0, &ch[i]);
}

static void test_select_receives_from_the_ready_channel(void **state)
{
	open_three();
	task[0].deadline = CORO_FOREVER;
	start_body(*state, 0, selects);
	run_idle(*state);
	task[1] = (struct task){.ch = ch[1], .from = 41, .to = 42};
	start_body(*state, 1, send_range);
	run_idle(*state);
	assert_int_equal(task[0].err, 1);
	assert_int_equal(task[0].sum, 41);
	/* and is gone from the others */
	assert_int_equal(coro_chan_trysend(ch[0], &(struct big){0}), -EAGAIN);
	assert_int_equal(coro_chan_tryrecv(ch[2], NULL), -EAGAIN);
}

static void test_select_sends_to_the_waiting_receiver(void **state)
{
	struct big b;

	open_three();
	task[0].deadline = CORO_FOREVER;
	start_body(*state, 0, selects);
	run_idle(*state);
	assert_int_equal(coro_chan_tryrecv(ch[2], &b), 0);
	assert_int_equal(b.id, 77);
	run_idle(*state);
	assert_int_equal(task[0].err, 2);
}

static void test_select_times_out_and_leaves_all(void **state)
{
	open_three();
	task[0].deadline = fake_now + MS;
	start_body(*state, 0, selects);
	run_idle(*state);
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[0].err, -ETIMEDOUT);
	assert_int_equal(coro_chan_trysend(ch[0], &(struct big){0}), -EAGAIN);
}

static void test_select_returns_when_a_channel_closes(void **state)
{
	open_three();
	task[0].deadline = CORO_FOREVER;
	start_body(*state, 0, selects);
	run_idle(*state);
	coro_chan_close(ch[0]);
	run_idle(*state);
	assert_int_equal(task[0].err, 0);
	assert_int_equal(task[0].sum, -EPIPE);
}

static void test_select_default_does_not_wait(void **state)
{
	struct big b;
	struct coro_case c = {NULL, CORO_RECV, &b, 0};

	open_three();
	c.chan = ch[0];
	assert_int_equal(coro_select_try(&c, 1), -EAGAIN);
	assert_int_equal(coro_select_try(&c, 0), -EAGAIN);
	assert_int_equal(coro_select(&c, 1), -EPERM); /* would wait, outside */
}

static void test_select_starves_no_case(void **state)
{
	struct big b;
	int taken[2] = {0};

	coro_chan_open(sizeof(struct big), 100, &ch[0]);
	coro_chan_open(sizeof(struct big), 100, &ch[1]);
	for (int i = 0; i < 100; i++) {
		coro_chan_trysend(ch[0], memset(&b, 0, sizeof(b)));
		coro_chan_trysend(ch[1], &b);
	}
	for (int i = 0; i < 100; i++) {
		struct coro_case c[2] = {{ch[0], CORO_RECV, &b, 0},
					 {ch[1], CORO_RECV, &b, 0}};

		taken[coro_select(c, 2)]++;
	}
	assert_true(taken[0] > 30 && taken[1] > 30);
}

/* Two selects that take turns, over channels that always have something. */
static void test_select_starves_no_case_beside_another_select(void **state)
{
	int taken[4] = {0}, v = 0;

	for (int i = 0; i < 4; i++) {
		coro_chan_open(sizeof(v), 100, &ch[i]);
		while (coro_chan_trysend(ch[i], &v) == 0)
			;
	}
	for (int i = 0; i < 100; i++) {
		unsigned base = i % 2 * 2;
		struct coro_case c[2] = {{ch[base], CORO_RECV, &v, 0},
					 {ch[base + 1], CORO_RECV, &v, 0}};

		taken[base + coro_select(c, 2)]++;
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(taken[i], 25);
}

/* A case that is rarely ready does not pass its turns to its neighbour. */
static void test_select_is_fair_beside_cases_that_are_never_ready(void **state)
{
	int taken[4] = {0}, v = 0;

	for (int i = 0; i < 4; i++)
		coro_chan_open(sizeof(v), 100, &ch[i]);
	for (int i = 0; i < 90; i++) {
		coro_chan_trysend(ch[0], &v);
		coro_chan_trysend(ch[3], &v);
	}
	for (int i = 0; i < 90; i++) {
		struct coro_case c[4];

		for (int k = 0; k < 4; k++)
			c[k] = (struct coro_case){ch[k], CORO_RECV, &v, 0};
		taken[coro_select(c, 4)]++;
	}
	assert_int_equal(taken[0], 45);
	assert_int_equal(taken[3], 45);
}

static void test_waiter_destroyed_leaves_its_channels(void **state)
{
	open_three();
	task[0].deadline = CORO_FOREVER;
	for (int i = 0; i < 2; i++) { /* waiting, then woken but not yet run */
		start_body(*state, 0, selects);
		run_idle(*state);
		if (i == 1)
			assert_int_equal(
				coro_chan_trysend(ch[0], &(struct big){0}), 0);
		assert_int_equal(coro_destroy(task[0].co), 0);
		assert_int_equal(coro_chan_trysend(ch[0], &(struct big){0}),
				 -EAGAIN);
	}
}

static void test_cancelled_receiver_leaves(void **state)
{
	coro_chan_open(sizeof(struct big), 0, &ch[0]);
	start_body(*state, 0, receives);
	run_idle(*state);
	coro_cancel(task[0].co);
	run_idle(*state);
	assert_int_equal(task[0].err, -ECANCELED);
	assert_int_equal(coro_chan_trysend(ch[0], &(struct big){0}), -EAGAIN);
}

struct watcher {
	struct coro_chan_watch watch;
	unsigned calls;
};

static void count_call(struct coro_chan_watch *w)
{
	((struct watcher *)(void *)w)->calls++;
}

static void test_watches_are_called_at_every_change(void **state)
{
	static struct watcher a, b;
	struct coro_chan *one;
	int value = 1;

	a = b = (struct watcher){.watch.fn = count_call};
	assert_int_equal(coro_chan_open(sizeof(value), 1, &one), 0);
	assert_int_equal(coro_chan_state(one), CORO_CHAN_CAN_SEND);
	coro_chan_watch(one, &a.watch);
	coro_chan_watch(one, &b.watch);
	assert_int_equal(coro_chan_trysend(one, &value), 0);
	assert_int_equal(coro_chan_state(one), CORO_CHAN_CAN_RECV);
	coro_chan_unwatch(&a.watch);
	coro_chan_unwatch(&a.watch);
	assert_int_equal(coro_chan_tryrecv(one, &value), 0);
	coro_chan_close(one);
	assert_int_equal(coro_chan_state(one), CORO_CHAN_CAN_RECV |
						       CORO_CHAN_CAN_SEND |
						       CORO_CHAN_CLOSED);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 3);
	coro_chan_unwatch(&b.watch);
	coro_chan_free(one);
}

static void *receives_one(void *arg)
{
	struct task *t = arg;
	struct big b;

	t->err = coro_chan_recv(t->ch, &b);
	if (t->err == 0)
		log_int((t->from + 1) * 100 + b.id);
	return NULL;
}

static void *selects_one(void *arg)
{
	struct task *t = arg;
	struct big b;
	struct coro_case cases[] = {{ch[1], CORO_RECV, NULL, 0},
				    {ch[0], CORO_RECV, &b, 0}};

	t->err = coro_select(cases, 2);
	if (t->err == 1)
		log_int((t->from + 1) * 100 + b.id);
	return NULL;
}

/* Receivers in a select are in the same queue. */
static void test_receivers_are_served_in_order(void **state)
{
	struct big b;

	open_three();
	for (int i = 0; i < 4; i++) {
		task[i].from = i;
		start_body(*state, i, i % 2 ? selects_one : receives_one);
	}
	run_idle(*state);
	for (int i = 0; i < 4; i++) {
		fill_big(&b, i);
		assert_int_equal(coro_chan_trysend(ch[0], &b), 0);
	}
	assert_int_equal(coro_chan_trysend(ch[0], &b), -EAGAIN);
	run_idle(*state);
	assert_string_equal(test_log, "100 201 302 403 ");
}

static void test_senders_are_served_in_order(void **state)
{
	struct big b;

	for (size_t cap = 0; cap < 3; cap++) {
		coro_chan_open(sizeof(struct big), cap, &ch[0]);
		for (int i = 0; i < 5; i++) {
			task[i] = (struct task){.from = i, .to = i + 1};
			start_body(*state, i, send_range);
		}
		run_idle(*state);
		for (int i = 0; i < 5; i++) {
			assert_int_equal(coro_chan_tryrecv(ch[0], &b), 0);
			assert_int_equal(b.id, i);
		}
		run_idle(*state);
		coro_chan_free(ch[0]);
		ch[0] = NULL;
	}
}

static unsigned char sent[1 << 20], received[1 << 20];

static void *sends_a_mebibyte(void *arg)
{
	assert_int_equal(coro_chan_send(ch[0], sent), 0);
	memset(sent, 0, sizeof(sent)); /* ours again: it was copied */
	return NULL;
}

static void test_values_may_be_large(void **state)
{
	assert_int_equal(coro_chan_open(sizeof(sent), 0, &ch[0]), 0);
	memset(sent, 0xa7, sizeof(sent));
	memset(received, 0, sizeof(received));
	start_body(*state, 0, sends_a_mebibyte);
	run_idle(*state);
	assert_int_equal(coro_chan_tryrecv(ch[0], received), 0);
	run_idle(*state);
	assert_int_equal(sent[0], 0);
	for (size_t i = 0; i < sizeof(received); i += 4093)
		assert_int_equal(received[i], 0xa7);
	assert_int_equal(received[sizeof(received) - 1], 0xa7);
}

static void *selects_too_many(void *arg)
{
	static struct coro_case cases[1025];

	task[0].err = coro_select(cases, 1025);
	task[1].err = coro_select_until(cases, 1024, fake_now + MS);
	return NULL;
}

static void test_select_with_too_many_cases_is_refused(void **state)
{
	start_body(*state, 0, selects_too_many);
	run_idle(*state);
	assert_int_equal(task[0].err, -EINVAL);
	pass_ns(*state, 2 * MS);
	assert_int_equal(task[1].err, -ETIMEDOUT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_values_arrive_in_order),
		T(test_rendezvous_blocks_the_sender),
		T(test_close_drains_then_refuses),
		T(test_bare_events_have_no_bytes),
		T(test_select_receives_from_the_ready_channel),
		T(test_select_sends_to_the_waiting_receiver),
		T(test_select_times_out_and_leaves_all),
		T(test_select_returns_when_a_channel_closes),
		T(test_select_default_does_not_wait),
		T(test_select_starves_no_case),
		T(test_select_starves_no_case_beside_another_select),
		T(test_select_is_fair_beside_cases_that_are_never_ready),
		T(test_waiter_destroyed_leaves_its_channels),
		T(test_cancelled_receiver_leaves),
		T(test_receivers_are_served_in_order),
		T(test_senders_are_served_in_order),
		T(test_values_may_be_large),
		T(test_select_with_too_many_cases_is_refused),
		T(test_watches_are_called_at_every_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
