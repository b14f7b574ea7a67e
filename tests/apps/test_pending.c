/*
 * Unfinished requests: the newest displaces the oldest, on any shard. Shards
 * are threads with a scheduler each.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/common/pending.h"

static struct coro_sched *sched;
static struct pending_limit limit;
static struct pending_list list;
static struct pending items[5];
static struct pending *displaced[8];
static unsigned n_displaced;

static void displace(struct pending *item)
{
	assert_null(item->pprev);
	displaced[n_displaced++] = item;
}

static int setup(void **state)
{
	memset(items, 0, sizeof(items));
	n_displaced = 0;
	limit = (struct pending_limit){.max = 3};
	if (coro_sched_open(NULL, &sched) < 0)
		return -1;
	pending_init(&list, &limit, displace);
	return 0;
}

static int teardown(void **state)
{
	coro_sched_close(sched);
	pending_fini(&list);
	return 0;
}

static void test_oldest_item_is_displaced(void **state)
{
	for (unsigned i = 0; i < 5; i++)
		pending_enter(&list, &items[i]);
	assert_int_equal(n_displaced, 2);
	assert_ptr_equal(displaced[0], &items[0]);
	assert_ptr_equal(displaced[1], &items[1]);
	assert_int_equal(list.n, 3);
	assert_int_equal(list.displaced, 2);
}

static void test_staying_does_not_make_it_newer(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	pending_enter(&list, &items[0]);
	assert_int_equal(list.n, 3);
	pending_enter(&list, &items[3]);
	assert_ptr_equal(displaced[0], &items[0]);
}

static void test_item_that_left_is_not_displaced(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	pending_leave(&list, &items[2]); /* the newest, the oldest, again */
	pending_leave(&list, &items[0]);
	pending_leave(&list, &items[0]);
	assert_int_equal(list.n, 1);
	pending_enter(&list, &items[3]);
	pending_enter(&list, &items[4]);
	assert_int_equal(n_displaced, 0);
	pending_enter(&list, &items[0]);
	assert_ptr_equal(displaced[0], &items[1]);
	while (list.oldest)
		pending_leave(&list, list.oldest);
	assert_int_equal(list.n, 0);
	assert_ptr_equal(list.newest, &list.oldest);
}

static void test_limit_of_zero_displaces_every_item(void **state)
{
	limit.max = 0;
	pending_enter(&list, &items[0]);
	assert_ptr_equal(displaced[0], &items[0]);
	assert_int_equal(list.n, 0);
}

/* ---- several shards ---- */

#define SHARDS 4
#define ITEMS  8      /* of each shard */
#define TURNS  200000 /* of each shard */

/* The lists of other threads, and the steps of the test. */
static struct other {
	pthread_t thread;
	struct pending_list list;
	struct pending items[ITEMS];
	uint64_t entered, left;
	uint32_t random;
} others[SHARDS];
static pthread_barrier_t together;

static void forget(struct pending *item)
{
}

/* Enters one item and ends after the test has checked. */
static void *enter_one(void *arg)
{
	struct other *me = arg;
	struct coro_sched *own;

	coro_sched_open(NULL, &own);
	pending_init(&me->list, &limit, forget);
	pending_enter(&me->list, &me->items[0]);
	pthread_barrier_wait(&together); /* the item is entered */
	pthread_barrier_wait(&together); /* the test has checked */
	coro_sched_round(own);
	pthread_barrier_wait(&together); /* this shard has checked, too */
	pending_leave(&me->list, &me->items[0]);
	coro_sched_close(own);
	return NULL;
}

static void with_one_elsewhere(void (*look)(void))
{
	others[0] = (struct other){0};
	pthread_barrier_init(&together, NULL, 2);
	pthread_create(&others[0].thread, NULL, enter_one, &others[0]);
	pthread_barrier_wait(&together);
	look();
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	pthread_join(others[0].thread, NULL);
	pthread_barrier_destroy(&together);
	pending_fini(&others[0].list);
}

static void displaces_here(void)
{
	assert_int_equal(n_displaced, 0); /* not on the other's thread */
	coro_sched_round(sched);
	assert_int_equal(n_displaced, 1);
	assert_ptr_equal(displaced[0], &items[0]);
	assert_int_equal(limit.n, 3);
	coro_sched_round(sched);
	assert_int_equal(n_displaced, 1);
}

static void test_oldest_item_of_all_shards_is_displaced(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	with_one_elsewhere(displaces_here);
	assert_int_equal(others[0].list.displaced, 0);
	assert_int_equal(limit.n, 2);
}

/* The surplus item leaves before the shard of the oldest is notified. */
static void leaves_first(void)
{
	pending_leave(&list, &items[1]);
	coro_sched_round(sched);
	assert_int_equal(n_displaced, 0);
	assert_int_equal(limit.n, 3);
}

static void test_nothing_is_displaced_once_there_is_room(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	with_one_elsewhere(leaves_first);
}

/* The other shard has the oldest item and must be notified. */
static void enter_three(void)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	assert_int_equal(limit.n, 4);
}

static void test_shard_of_the_oldest_item_is_notified(void **state)
{
	with_one_elsewhere(enter_three);
	assert_int_equal(n_displaced, 0);
	assert_int_equal(others[0].list.displaced, 1);
	assert_int_equal(limit.n, 3);
}

static unsigned draw_below(struct other *me, unsigned n)
{
	me->random = me->random * 1103515245u + 12345u;
	return (me->random >> 16) % n;
}

/* Items come and go in any order, while other shards displace. */
static void *come_and_go(void *arg)
{
	struct other *me = arg;
	struct coro_sched *own;

	coro_sched_open(NULL, &own);
	pending_init(&me->list, &limit, forget);
	pthread_barrier_wait(&together);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct pending *item = &me->items[draw_below(me, ITEMS)];

		if (item->pprev) {
			pending_leave(&me->list, item);
			me->left++;
		} else {
			pending_enter(&me->list, item);
			me->entered++;
		}
		coro_sched_round(own);
	}
	pthread_barrier_wait(&together); /* no more come */
	/* Each displaces what the others have asked it to. */
	while (limit.n > limit.max) {
		coro_sched_round(own);
		sched_yield();
	}
	pthread_barrier_wait(&together);
	coro_sched_close(own);
	return NULL;
}

static void check_race(unsigned shards)
{
	uint64_t entered = 0, gone = 0;
	unsigned there = 0;

	pthread_barrier_init(&together, NULL, shards);
	for (unsigned i = 0; i < shards; i++) {
		others[i] = (struct other){.random = i};
		pthread_create(&others[i].thread, NULL, come_and_go,
			       &others[i]);
	}
	for (unsigned i = 0; i < shards; i++)
		pthread_join(others[i].thread, NULL);
	pthread_barrier_destroy(&together);
	for (unsigned i = 0; i < shards; i++) {
		entered += others[i].entered;
		gone += others[i].left + others[i].list.displaced;
		there += others[i].list.n;
		pending_fini(&others[i].list);
	}
	assert_int_equal(entered - gone, there);
	assert_int_equal(limit.n, there);
	assert_true(there <= limit.max);
	assert_true(gone > 0);
	limit = (struct pending_limit){.max = 3};
}

static void test_all_shards_together_keep_to_the_limit(void **state)
{
	limit.lists = NULL; /* the test's own shard takes no part */
	check_race(2);
	check_race(SHARDS);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_oldest_item_is_displaced),
		T(test_staying_does_not_make_it_newer),
		T(test_item_that_left_is_not_displaced),
		T(test_limit_of_zero_displaces_every_item),
		T(test_oldest_item_of_all_shards_is_displaced),
		T(test_nothing_is_displaced_once_there_is_room),
		T(test_shard_of_the_oldest_item_is_notified),
		T(test_all_shards_together_keep_to_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
