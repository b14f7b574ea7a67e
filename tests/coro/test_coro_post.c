/*
 * Posting to a scheduler from its own thread, from others and from signal
 * handlers: order, bounds, sleep, close.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "child.h"
#include "peer.h"

static void log_post(void *arg)
{
	assert_null(coro_self());
	log_int((long)arg);
}

static void test_post_runs_in_the_next_round_in_order(void **state)
{
	log_reset();
	assert_false(coro_sched_ready(*state));
	for (long i = 1; i <= 3; i++)
		assert_int_equal(coro_post(*state, log_post, (void *)i), 0);
	assert_string_equal(test_log, "");
	assert_true(coro_sched_ready(*state));
	coro_sched_round(*state);
	assert_string_equal(test_log, "1 2 3 ");
	assert_false(coro_sched_ready(*state));
	coro_sched_round(*state);
	assert_string_equal(test_log, "1 2 3 ");
}

static unsigned left;

static void posts_itself(void *arg)
{
	log_int(left);
	if (--left > 0)
		assert_int_equal(coro_post(arg, posts_itself, arg), 0);
}

static void test_post_from_a_post_runs_in_the_next_round(void **state)
{
	log_reset();
	left = 3;
	coro_post(*state, posts_itself, *state);
	coro_sched_round(*state);
	assert_string_equal(test_log, "3 ");
	assert_true(coro_sched_ready(*state));
	coro_sched_round(*state);
	assert_string_equal(test_log, "3 2 ");
	run_idle(*state);
	assert_string_equal(test_log, "3 2 1 ");
}

static void *posts_from_coroutine(void *arg)
{
	assert_int_equal(coro_post(coro_sched_self(), log_post, (void *)1), 0);
	log_int(0);
	coro_yield();
	log_int(2);
	return NULL;
}

static void test_coroutine_may_post(void **state)
{
	log_reset();
	coro_spawn(*state, NULL, posts_from_coroutine, NULL, NULL);
	run_idle(*state);
	assert_string_equal(test_log, "0 1 2 ");
}

static int small_queue(void **state)
{
	return sched_setup_with(state,
				&(struct coro_sched_attr){.post_capacity = 3});
}

/* Over many turns of the queue, rounded up to four slots. */
static void test_full_queue_refuses(void **state)
{
	for (int turn = 0; turn < 50; turn++) {
		log_reset();
		for (long i = 0; i < 4; i++)
			assert_int_equal(coro_post(*state, log_post, (void *)i),
					 0);
		assert_int_equal(coro_post(*state, log_post, NULL), -EAGAIN);
		assert_int_equal(coro_post(*state, log_post, NULL), -EAGAIN);
		coro_sched_round(*state);
		assert_string_equal(test_log, "0 1 2 3 ");
	}
}

static void test_wrong_capacity_is_refused(void **state)
{
	const struct coro_sched_attr attr = {.post_capacity = (1u << 20) + 1};
	struct coro_sched *s = NULL;

	sched_teardown(state);
	assert_int_equal(coro_sched_open(&attr, &s), -EINVAL);
	assert_null(s);
	sched_setup(state);
}

static void *posts_its_stack(void *arg)
{
	int on_stack = 0;

	coro_post(coro_sched_self(), log_post, &on_stack);
	return NULL;
}

static void post_on_shared_stack(void)
{
	struct coro_sched *s;

	if (coro_sched_open(NULL, &s) < 0)
		return;
	coro_spawn(s, NULL, posts_its_stack, NULL, NULL);
	coro_sched_round(s);
}

static void test_argument_on_a_shared_stack_is_refused(void **state)
{
	int status = in_child(post_on_shared_stack);

	assert_true(WIFSIGNALED(status));
	assert_non_null(strstr(said, "coro_post: the argument lies on a"));
}

/* ---- several threads ---- */

#define POSTERS 4
#define EACH	(RUNNING_ON_VALGRIND ? 500 : MANY(25000))

struct poster {
	struct coro_sched *s;
	pthread_t th;
	long next;  /* what it expects, on the scheduler's thread */
	long wrong; /* posts that came out of order, or twice */
	long accepted;
	int err; /* what stopped it */
	struct message {
		struct poster *from;
		long number;
	} messages[25000];
};

static struct poster posters[POSTERS];

static void take_message(void *arg)
{
	struct message *m = arg;

	m->from->wrong += m->number != m->from->next;
	m->from->next = m->number + 1;
}

static void *posts_many(void *arg)
{
	struct poster *p = arg;

	for (long i = 0; i < EACH; i++) {
		p->messages[i] = (struct message){p, i};
		while ((p->err = coro_post(p->s, take_message,
					   &p->messages[i])) == -EAGAIN)
			sched_yield();
		if (p->err < 0)
			break;
		p->accepted++;
	}
	return NULL;
}

static void posters_start(struct coro_sched *s)
{
	for (int i = 0; i < POSTERS; i++) {
		struct poster *p = &posters[i];

		p->next = p->wrong = p->accepted = 0;
		p->s = coro_sched_ref(s);
		pthread_create(&p->th, NULL, posts_many, p);
	}
}

static void posters_join(void)
{
	for (int i = 0; i < POSTERS; i++) {
		pthread_join(posters[i].th, NULL);
		coro_sched_unref(posters[i].s);
	}
}

static bool all_came(void)
{
	long sum = 0;

	for (int i = 0; i < POSTERS; i++)
		sum += posters[i].next;
	return sum == POSTERS * EACH;
}

/* A queue of four slots, so that it is full most of the time. */
static void test_many_threads_lose_nothing_and_keep_their_order(void **state)
{
	posters_start(*state);
	while (!all_came())
		if (coro_sched_round(*state) == 0)
			sched_yield();
	posters_join();
	for (int i = 0; i < POSTERS; i++) {
		assert_int_equal(posters[i].wrong, 0);
		assert_int_equal(posters[i].accepted, EACH);
	}
}

/* Every accepted post has run when the scheduler is closed. */
static void test_close_runs_accepted_posts_while_others_post(void **state)
{
	for (int turn = 0; turn < (RUNNING_ON_VALGRIND ? 5 : 200); turn++) {
		posters_start(*state);
		for (int i = 0; i < turn % 20 * 50; i++)
			coro_sched_round(*state);
		coro_sched_close(*state);
		posters_join();
		for (int i = 0; i < POSTERS; i++) {
			struct poster *p = &posters[i];

			assert_int_equal(p->wrong, 0);
			assert_int_equal(p->next, p->accepted);
			assert_true(p->err == -ESHUTDOWN ||
				    p->accepted == EACH);
		}
		small_queue(state);
	}
}

static void test_post_wakes_a_sleeping_scheduler(void **state)
{
	static struct peer peer;

	peer_start(&peer);
	for (int i = 0; i < 200; i++) {
		peer_hold(&peer);
		peer_go(&peer);
		if (i % 10 == 0)
			usleep(1000); /* it surely sleeps */
	}
	peer_stop(&peer);
}

/* ---- wake-ups posted while they run ---- */

struct burst {
	struct coro_wake wake; /* first */
	struct coro_sched *s;
	_Atomic long value; /* written relaxed, so that posting must order it */
	_Atomic long seen;
	_Atomic long posted; /* its coro_wake_post() has returned */
	_Atomic bool stop;
};

static struct burst burst;

static void see_wake(struct coro_wake *w)
{
	struct burst *b = (struct burst *)w;

	b->seen = atomic_load_explicit(&b->value, memory_order_relaxed);
}

#define BURSTS (RUNNING_ON_VALGRIND ? 2000 : MANY(50000))

/* The second post of each pair finds the first one posted, or just running. */
static void *posts_bursts(void *arg)
{
	struct burst *b = arg;

	for (long i = 2; i <= BURSTS && !b->stop; i += 2) {
		for (long k = i; k < i + 2; k++) {
			atomic_store_explicit(&b->value, k,
					      memory_order_relaxed);
			coro_wake_post(b->s, &b->wake);
		}
		b->posted = i + 1;
		while (b->seen != i + 1 && !b->stop)
			;
	}
	return NULL;
}

static void test_wake_up_posted_while_it_runs_is_not_lost(void **state)
{
	pthread_t th;
	long posted, seen;

	memset(&burst, 0, sizeof(burst));
	coro_wake_init(&burst.wake, see_wake);
	burst.s = *state;
	pthread_create(&th, NULL, posts_bursts, &burst);
	do {
		posted = burst.posted;
		while (coro_sched_ready(*state))
			coro_sched_round(*state);
		seen = burst.seen;
	} while (seen >= posted && seen < BURSTS);
	burst.stop = true;
	pthread_join(th, NULL);
	assert_true(seen >= posted);
}

/* ---- signals ---- */

static struct coro_sched *alarmed;
static volatile unsigned handled;

static void on_post(void *arg)
{
	if (--left == 0)
		coro_sched_stop(coro_sched_self());
}

static void posts_on_signal(int signo)
{
	if (coro_post(alarmed, on_post, NULL) == 0)
		handled = handled + 1;
}

static void test_signal_handler_may_post(void **state)
{
	struct itimerval it = {{0, 2000}, {0, 2000}}, off = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = posts_on_signal};

	left = 5;
	handled = 0;
	assert_int_equal(coro_sched_open(NULL, &alarmed), 0);
	coro_sched_hold(alarmed, 1);
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	assert_int_equal(coro_sched_run(alarmed), 0);
	setitimer(ITIMER_REAL, &off, NULL);
	assert_true(handled >= 5);
	signal(SIGALRM, SIG_IGN); /* one may still be pending */
	coro_sched_close(alarmed);
}

/* ---- the end ---- */

static void *posts_in_cleanup(void *arg)
{
	coro_park();
	return NULL;
}

static void too_late(void *arg)
{
	assert_int_equal(coro_post(coro_sched_self(), log_post, NULL),
			 -ESHUTDOWN);
	log_int(9);
}

static void *with_cleanup(void *arg)
{
	coro_cleanup_push(too_late, NULL);
	return posts_in_cleanup(arg);
}

static void spawns(void *arg)
{
	assert_int_equal(
		coro_spawn(coro_sched_self(), NULL, with_cleanup, NULL, NULL),
		0);
	log_int(1);
}

static void test_close_runs_queued_posts_and_refuses_new_ones(void **state)
{
	struct coro_sched *s = coro_sched_ref(*state);
	static struct coro_wake wake;

	log_reset();
	coro_spawn(s, NULL, with_cleanup, NULL, NULL);
	coro_sched_round(s);
	coro_post(s, spawns, NULL);
	coro_post(s, too_late, NULL);
	coro_sched_close(s);
	assert_string_equal(test_log, "1 9 9 ");
	assert_int_equal(coro_post(s, log_post, NULL), -ESHUTDOWN);
	coro_wake_init(&wake, NULL);
	coro_wake_post(s, &wake); /* forgotten */
	coro_sched_unref(s);
	coro_sched_unref(NULL);
	sched_setup(state);
}

static void fail_if_called(struct coro_wake *w)
{
	log_int(-1);
}

static void test_close_forgets_wake_ups(void **state)
{
	static struct coro_wake wake;

	log_reset();
	coro_wake_init(&wake, fail_if_called);
	coro_wake_post(*state, &wake);
	coro_sched_close(*state);
	assert_string_equal(test_log, "");
	sched_setup(state);
}

static void sees_wake(struct coro_wake *w)
{
	log_int(7);
}

static void test_shut_scheduler_still_runs(void **state)
{
	static struct coro_wake wake;

	log_reset();
	coro_post(*state, log_post, (void *)1);
	coro_sched_shut(*state);
	assert_string_equal(test_log, "1 ");
	assert_int_equal(coro_post(*state, log_post, NULL), -ESHUTDOWN);
	coro_sched_shut(*state);
	coro_wake_init(&wake, sees_wake);
	coro_wake_post(*state, &wake);
	run_idle(*state);
	assert_string_equal(test_log, "1 7 ");
}

#define ON(setup, name)                                                        \
	cmocka_unit_test_setup_teardown(name, setup, sched_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON(sched_setup, test_post_runs_in_the_next_round_in_order),
		ON(sched_setup, test_post_from_a_post_runs_in_the_next_round),
		ON(sched_setup, test_coroutine_may_post),
		ON(small_queue, test_full_queue_refuses),
		ON(sched_setup, test_wrong_capacity_is_refused),
		cmocka_unit_test(test_argument_on_a_shared_stack_is_refused),
		ON(small_queue,
		   test_many_threads_lose_nothing_and_keep_their_order),
		ON(small_queue,
		   test_close_runs_accepted_posts_while_others_post),
		cmocka_unit_test(test_post_wakes_a_sleeping_scheduler),
		ON(sched_setup, test_wake_up_posted_while_it_runs_is_not_lost),
		cmocka_unit_test(test_signal_handler_may_post),
		ON(sched_setup,
		   test_close_runs_queued_posts_and_refuses_new_ones),
		ON(sched_setup, test_close_forgets_wake_ups),
		ON(sched_setup, test_shut_scheduler_still_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
