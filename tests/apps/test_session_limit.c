/*
 * The limit of sessions over several shards: threads with a scheduler each.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "apps/proxy/session_limit.h"

#define SHARDS	 4
#define WAITERS	 3    /* a shard */
#define SESSIONS 5000 /* one after the other, of each waiter */

struct shard {
	struct limit_shard limit;
	struct limit_waiter waiters[WAITERS];
	pthread_t thread;
};

static struct session_limit limit;
static struct shard shards[SHARDS];
static pthread_barrier_t together;
static atomic_uint now, most, served;

/* Takes, is a session for a while, gives back; many times. */
static void *serve_sessions(void *arg)
{
	struct limit_waiter *waiter = arg;

	for (unsigned i = 0; i < SESSIONS; i++) {
		unsigned n, before = most;

		while (!session_limit_take(&limit))
			if (session_limit_wait(waiter) < 0)
				return NULL;
		n = ++now;
		while (n > before &&
		       !atomic_compare_exchange_weak(&most, &before, n))
			;
		for (unsigned k = 0; k < i % 4; k++)
			coro_yield();
		now--;
		served++;
		session_limit_give(waiter->shard);
	}
	return NULL;
}

static void *run_shard(void *arg)
{
	struct shard *shard = arg;
	struct coro_sched *sched;

	coro_sched_open(NULL, &sched);
	session_limit_join(&limit, &shard->limit);
	pthread_barrier_wait(&together); /* to contend with each other */
	for (unsigned i = 0; i < WAITERS; i++) {
		session_limit_add(&shard->limit, &shard->waiters[i]);
		coro_spawn(sched, NULL, serve_sessions, &shard->waiters[i],
			   NULL);
	}
	/* A wake-up is yet to come while any of them waits. */
	coro_sched_hold(sched, 1);
	while (coro_sched_live(sched)) {
		coro_sched_round(sched);
		if (coro_sched_live(sched) && !coro_sched_ready(sched))
			coro_sched_wait(sched, CORO_FOREVER);
	}
	pthread_barrier_wait(&together); /* others may post until then */
	coro_sched_close(sched);
	return NULL;
}

static void run_with(unsigned max)
{
	session_limit_init(&limit, max);
	now = most = served = 0;
	pthread_barrier_init(&together, NULL, SHARDS);
	for (unsigned i = 0; i < SHARDS; i++) {
		shards[i] = (struct shard){0};
		pthread_create(&shards[i].thread, NULL, run_shard, &shards[i]);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		pthread_join(shards[i].thread, NULL);
	pthread_barrier_destroy(&together);
	assert_int_equal(served, SHARDS * WAITERS * SESSIONS);
	assert_int_equal(limit.sessions, 0);
	assert_in_range(most, 1, max);
}

/* A wake-up that is lost would leave a coroutine waiting for ever. */
static void test_all_shards_together_stay_below_the_limit(void **state)
{
	run_with(1);
	run_with(2);
	run_with(SHARDS * WAITERS);
}

#define TAKES 100000

static void *take_and_give(void *arg)
{
	struct shard *shard = arg;

	pthread_barrier_wait(&together);
	for (unsigned i = 0; i < TAKES; i++)
		if (session_limit_take(&limit)) {
			served++;
			session_limit_give(&shard->limit);
		}
	return NULL;
}

static void test_no_session_is_counted_twice_or_lost(void **state)
{
	session_limit_init(&limit, SHARDS - 1);
	served = 0;
	pthread_barrier_init(&together, NULL, SHARDS);
	for (unsigned i = 0; i < SHARDS; i++) {
		shards[i] = (struct shard){.limit.limit = &limit};
		pthread_create(&shards[i].thread, NULL, take_and_give,
			       &shards[i]);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		pthread_join(shards[i].thread, NULL);
	pthread_barrier_destroy(&together);
	assert_int_equal(limit.sessions, 0);
	assert_true(served >= TAKES);
}

static int result = 1;

static void *wait_for_room(void *arg)
{
	result = session_limit_wait(arg);
	return NULL;
}

static void test_closing_ends_the_wait(void **state)
{
	struct shard *shard = &shards[0];
	struct coro_sched *sched;

	*shard = (struct shard){0};
	session_limit_init(&limit, 1);
	assert_int_equal(coro_sched_open(NULL, &sched), 0);
	session_limit_join(&limit, &shard->limit);
	session_limit_add(&shard->limit, &shard->waiters[0]);
	assert_true(session_limit_take(&limit));
	assert_false(session_limit_take(&limit));
	coro_spawn(sched, NULL, wait_for_room, &shard->waiters[0], NULL);
	coro_sched_round(sched);
	coro_sched_round(sched);
	assert_int_equal(result, 1);
	session_limit_close(&shard->waiters[0]);
	coro_sched_round(sched);
	assert_int_equal(result, -ECANCELED);
	assert_int_equal(coro_sched_live(sched), 0);
	assert_int_equal(session_limit_wait(&shard->waiters[0]), -ECANCELED);
	coro_sched_close(sched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_shards_together_stay_below_the_limit),
		cmocka_unit_test(test_no_session_is_counted_twice_or_lost),
		cmocka_unit_test(test_closing_ends_the_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
