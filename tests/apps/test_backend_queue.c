/*
 * Waiting for a backend with a free slot: bounds, order, timeouts, and many
 * threads that take and release slots.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "apps/proxy/backend_queue.h"

#define SHARDS	 4
#define SESSIONS 8 /* coroutines a shard */
#define TURNS	 2000
#define SECOND	 INT64_C(1000000000)

static struct backend_queue queue;

/* A backend with max slots. */
static struct backend {
	atomic_uint active, most;
	unsigned max;
} backends[2];

static bool take_session(struct backend *backend)
{
	unsigned n = backend->active;

	do {
		if (n >= backend->max)
			return false;
	} while (!atomic_compare_exchange_weak(&backend->active, &n, n + 1));
	if (n + 1 > backend->most)
		backend->most = n + 1;
	return true;
}

static void give_slot(struct backend *backend)
{
	backend->active--;
	queue_kick(&queue);
}

/* Waits like coronet-proxy. Returns 0 or a negative errno. */
static int wait_for(struct queue_shard *shard, struct queue_waiter *waiter,
		    int kind, unsigned max, int64_t until_ns)
{
	bool got = false;
	int err = 0;

	waiter->allowed = UINT64_C(1) << kind;
	if (!queue_wanted(shard, NULL, waiter->allowed) &&
	    take_session(&backends[kind]))
		return 0;
	if (!queue_enter(shard, waiter, max))
		return -EBUSY;
	if (queue_wanted(shard, waiter, waiter->allowed))
		err = queue_wait(until_ns);
	while (err == 0) {
		queue_look(shard);
		got = take_session(&backends[kind]);
		if (got)
			break;
		queue_pass(waiter);
		err = queue_wait(until_ns);
	}
	queue_leave(shard, waiter);
	return got ? 0 : err;
}

/* ---- one shard, on a clock of the test's ---- */

static struct coro_sched *sched;
static struct queue_shard shard;
static int64_t now_ns;

static int64_t clock_ns(void *ctx)
{
	return now_ns;
}

static int setup(void **state)
{
	const struct coro_sched_attr attr = {.clock_ns = clock_ns};

	now_ns = SECOND;
	queue = (struct backend_queue){0};
	backends[0] = (struct backend){.max = 1};
	backends[1] = (struct backend){.max = 1};
	if (coro_sched_open(&attr, &sched) < 0)
		return -1;
	queue_join(&queue, &shard);
	return 0;
}

static int teardown(void **state)
{
	coro_sched_close(sched);
	queue_fini(&shard);
	assert_int_equal(queue.n, 0);
	return 0;
}

static struct client {
	struct queue_waiter waiter;
	int kind, result;
	unsigned turn; /* when it got its slot */
} clients[8];
static unsigned turns;

static void *run_client(void *arg)
{
	struct client *client = arg;

	client->result = wait_for(&shard, &client->waiter, client->kind, 3,
				  now_ns + 5 * SECOND);
	client->turn = ++turns;
	return NULL;
}

static void client_arrives(int i, int kind)
{
	clients[i] = (struct client){.kind = kind, .result = 1};
	assert_int_equal(coro_spawn(sched, NULL, run_client, &clients[i], NULL),
			 0);
	coro_sched_round(sched);
}

static void run_ready(void)
{
	while (coro_sched_ready(sched))
		coro_sched_round(sched);
}

static void test_queue_is_bounded(void **state)
{
	turns = 0;
	for (int i = 0; i < 5; i++)
		client_arrives(i, 0);
	assert_int_equal(clients[0].result, 0);
	assert_int_equal(queue.n, 3);
	assert_int_equal(clients[4].result, -EBUSY);
	/* One slot becomes free: the first waiter gets it, and no other. */
	for (int i = 1; i < 4; i++) {
		give_slot(&backends[0]);
		run_ready();
		assert_int_equal(clients[i].result, 0);
		assert_int_equal(queue.n, 3 - i);
	}
	assert_int_equal(clients[3].turn, 5);
}

static void test_two_free_slots_admit_two_sessions(void **state)
{
	backends[0].max = 2;
	for (int i = 0; i < 4; i++)
		client_arrives(i, 0);
	give_slot(&backends[0]);
	give_slot(&backends[0]);
	run_ready();
	assert_int_equal(clients[2].result, 0);
	assert_int_equal(clients[3].result, 0);
	assert_true(clients[2].turn < clients[3].turn);
}

static void test_session_times_out_in_the_queue(void **state)
{
	client_arrives(0, 0);
	client_arrives(1, 0);
	now_ns += 2 * SECOND;
	coro_sched_advance(sched, now_ns);
	client_arrives(2, 0);
	now_ns += 3 * SECOND + SECOND / 10;
	coro_sched_advance(sched, now_ns);
	run_ready();
	assert_int_equal(clients[1].result, -ETIMEDOUT);
	assert_int_equal(clients[2].result, 1);
	give_slot(&backends[0]);
	run_ready();
	assert_int_equal(clients[2].result, 0);
}

static void test_new_session_does_not_overtake(void **state)
{
	client_arrives(0, 0);
	client_arrives(1, 0);
	backends[0].active--; /* a free slot without a notification */
	client_arrives(2, 0);
	assert_int_equal(clients[2].result, 1);
	queue_kick(&queue);
	run_ready();
	assert_int_equal(clients[1].result, 0);
	assert_int_equal(clients[2].result, 1);
	give_slot(&backends[0]);
	run_ready();
	assert_int_equal(clients[2].result, 0);
}

static void test_session_for_another_backend_does_not_wait(void **state)
{
	client_arrives(0, 0);
	client_arrives(1, 1);
	client_arrives(2, 0); /* waits for the first */
	client_arrives(3, 1); /* and behind it one for the second */
	give_slot(&backends[1]);
	run_ready();
	assert_int_equal(clients[3].result, 0);
	assert_int_equal(clients[2].result, 1);
	give_slot(&backends[0]);
	run_ready();
	assert_int_equal(clients[2].result, 0);
}

/* ---- several shards ---- */

static struct queue_shard parts[SHARDS];
static pthread_barrier_t together;
static atomic_uint served;

static struct session {
	struct queue_waiter waiter;
	struct queue_shard *shard;
	int kind;
} sessions[SHARDS][SESSIONS];

static void *serve_client(void *arg)
{
	struct session *s = arg;

	for (unsigned i = 0; i < TURNS; i++) {
		if (wait_for(s->shard, &s->waiter, s->kind, SHARDS * SESSIONS,
			     CORO_FOREVER) < 0)
			return NULL;
		for (unsigned k = 0; k < i % 4; k++)
			coro_yield();
		served++;
		give_slot(&backends[s->kind]);
	}
	return NULL;
}

static void *run_shard(void *arg)
{
	unsigned index = (unsigned)(uintptr_t)arg;
	struct coro_sched *own;

	coro_sched_open(NULL, &own);
	queue_join(&queue, &parts[index]);
	pthread_barrier_wait(&together);
	for (int i = 0; i < SESSIONS; i++) {
		struct session *s = &sessions[index][i];

		*s = (struct session){.shard = &parts[index], .kind = i % 2};
		coro_spawn(own, NULL, serve_client, s, NULL);
	}
	coro_sched_hold(own, 1);
	while (coro_sched_live(own)) {
		coro_sched_round(own);
		if (coro_sched_live(own) && !coro_sched_ready(own))
			coro_sched_wait(own, CORO_FOREVER);
	}
	pthread_barrier_wait(&together); /* others may post until then */
	coro_sched_close(own);
	return NULL;
}

static void test_shards_share_the_slots_and_admit_every_session(void **state)
{
	pthread_t threads[SHARDS];

	queue = (struct backend_queue){0};
	backends[0] = (struct backend){.max = 1};
	backends[1] = (struct backend){.max = 3};
	served = 0;
	pthread_barrier_init(&together, NULL, SHARDS);
	for (uintptr_t i = 0; i < SHARDS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, run_shard, (void *)i),
			0);
	for (int i = 0; i < SHARDS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < SHARDS; i++)
		queue_fini(&parts[i]);
	pthread_barrier_destroy(&together);
	assert_int_equal(served, SHARDS * SESSIONS * TURNS);
	assert_int_equal(backends[0].most, 1);
	assert_in_range(backends[1].most, 1, 3);
	assert_int_equal(queue.n, 0);
}

static void test_waiters_ahead_keep_only_what_they_wait_for(void **state)
{
	static struct queue_waiter waiters[QUEUE_LOOKS + 2];

	assert_int_equal(queue_wanted(&shard, NULL, 7), 0);
	for (unsigned i = 0; i < QUEUE_LOOKS + 2; i++) {
		assert_true(queue_enter(&shard, &waiters[i], UINT32_MAX));
		waiters[i].allowed = i == 1 ? 2 : 1;
	}
	assert_int_equal(queue_wanted(&shard, &waiters[0], 7), 0);
	assert_int_equal(queue_wanted(&shard, &waiters[1], 7), 1);
	assert_int_equal(queue_wanted(&shard, &waiters[2], 7), 3);
	assert_int_equal(queue_wanted(&shard, &waiters[2], 2), 2);
	assert_int_equal(queue_wanted(&shard, &waiters[2], 4), 0);
	/* So many that not all are looked at. */
	assert_int_equal(queue_wanted(&shard, &waiters[QUEUE_LOOKS], 7), 3);
	assert_int_equal(queue_wanted(&shard, NULL, 7), 7);
	queue.n = 0;
	shard.first = NULL;
	shard.last = &shard.first;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_queue_is_bounded),
		CASE(test_two_free_slots_admit_two_sessions),
		CASE(test_session_times_out_in_the_queue),
		CASE(test_new_session_does_not_overtake),
		CASE(test_session_for_another_backend_does_not_wait),
		CASE(test_waiters_ahead_keep_only_what_they_wait_for),
		cmocka_unit_test(
			test_shards_share_the_slots_and_admit_every_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
