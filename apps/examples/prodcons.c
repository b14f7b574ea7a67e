/*
 * prodcons.c - a producer and a consumer with a condition variable. The
 * consumer waits while there is nothing, the producer makes one a second (here:
 * a millisecond).
 */
#include <stdio.h>

#include <coronet/coro.h>
#include <coronet/coro_sync.h>

#define TASKS 5

/* Static, not on a coroutine's stack: both coroutines use it. */
static struct coro_mutex mutex;
static struct coro_cond not_empty;
static int queue[TASKS], made, taken;

static void *producer(void *arg)
{
	for (int id = 0; id < TASKS; id++) {
		coro_mutex_lock(&mutex);
		queue[made++] = id;
		printf("produce task %d\n", id);
		coro_cond_signal(&not_empty);
		coro_mutex_unlock(&mutex);
		coro_sleep_ns(1000000);
	}
	return NULL;
}

static void *consumer(void *arg)
{
	while (taken < TASKS) {
		coro_mutex_lock(&mutex);
		while (taken == made)
			coro_cond_wait(&not_empty, &mutex);
		printf("consume task %d\n", queue[taken++]);
		coro_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(void)
{
	struct coro_sched *s;
	int err = coro_sched_open(NULL, &s);

	if (err < 0)
		return 1;
	coro_spawn(s, NULL, consumer, NULL, NULL);
	coro_spawn(s, NULL, producer, NULL, NULL);
	err = coro_sched_run(s);
	coro_sched_close(s);
	return err < 0;
}
