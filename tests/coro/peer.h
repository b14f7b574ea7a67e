/*
 * peer.h - a thread with a scheduler of its own, on real time.
 */
#pragma once

#include "test_coro.h"

#include <pthread.h>
#include <semaphore.h>

struct peer {
	struct coro_sched *s; /* a reference: valid until peer_stop() */
	pthread_t th;
	sem_t up;
	unsigned capacity; /* of its queue; set before peer_start() */
	/* For peer_hold(). */
	sem_t held;
	sem_t go;
};

static inline void *peer_main(void *arg)
{
	struct peer *p = arg;
	const struct coro_sched_attr attr = {.post_capacity = p->capacity};

	if (coro_sched_open(&attr, &p->s) != 0)
		abort();
	coro_sched_ref(p->s);
	coro_sched_hold(p->s, 1);
	sem_post(&p->up);
	if (coro_sched_run(p->s) != 0)
		abort();
	coro_sched_close(p->s);
	return NULL;
}

static inline void sem_take(sem_t *sem)
{
	while (sem_wait(sem) != 0)
		;
}

static inline void peer_start(struct peer *p)
{
	sem_init(&p->up, 0, 0);
	sem_init(&p->held, 0, 0);
	sem_init(&p->go, 0, 0);
	assert_int_equal(pthread_create(&p->th, NULL, peer_main, p), 0);
	sem_take(&p->up);
}

static inline void peer_stop_fn(void *arg)
{
	coro_sched_stop(coro_sched_self());
}

/* Stops the loop and closes the scheduler. The reference stays valid. */
static inline void peer_close(struct peer *p)
{
	int err;

	while ((err = coro_post(p->s, peer_stop_fn, NULL)) == -EAGAIN)
		sched_yield();
	assert_int_equal(err, 0);
	pthread_join(p->th, NULL);
}

static inline void peer_stop(struct peer *p)
{
	peer_close(p);
	coro_sched_unref(p->s);
	sem_destroy(&p->up);
	sem_destroy(&p->held);
	sem_destroy(&p->go);
}

static inline void peer_hold_fn(void *arg)
{
	struct peer *p = arg;

	sem_post(&p->held);
	sem_take(&p->go);
}

/* The peer's thread blocks until peer_go(). */
static inline void peer_hold(struct peer *p)
{
	assert_int_equal(coro_post(p->s, peer_hold_fn, p), 0);
	sem_take(&p->held);
}

static inline void peer_go(struct peer *p)
{
	sem_post(&p->go);
}
