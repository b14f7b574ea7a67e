/* The limit of a program's sessions over all of its shards. */
#include "apps/proxy/session_limit.h"

#include <errno.h>
#include <stddef.h>

void session_limit_init(struct session_limit *limit, unsigned max)
{
	limit->max = max;
	limit->shards = NULL;
	limit->sessions = 0;
}

static void wake_waiters(struct limit_shard *shard)
{
	for (struct limit_waiter *w = shard->waiters; w; w = w->next)
		if (w->co)
			coro_unpark(w->co);
}

static void on_wake(struct coro_wake *wake)
{
	wake_waiters((struct limit_shard *)(void *)((char *)wake -
						    offsetof(struct limit_shard,
							     wake)));
}

void session_limit_join(struct session_limit *limit, struct limit_shard *shard)
{
	shard->limit = limit;
	shard->sched = coro_sched_self();
	coro_wake_init(&shard->wake, on_wake);
	shard->next = limit->shards;
	while (!atomic_compare_exchange_weak(&limit->shards, &shard->next,
					     shard))
		; /* bounded by the shards that join at the same time */
}

void session_limit_add(struct limit_shard *shard, struct limit_waiter *waiter)
{
	waiter->shard = shard;
	waiter->next = shard->waiters;
	shard->waiters = waiter;
}

bool session_limit_take(struct session_limit *limit)
{
	unsigned n = limit->sessions;

	do {
		if (n >= limit->max)
			return false;
	} while (!atomic_compare_exchange_weak(&limit->sessions, &n, n + 1));
	return true;
}

void session_limit_give(struct limit_shard *shard)
{
	struct limit_shard *other = shard->limit->shards;

	atomic_fetch_sub(&shard->limit->sessions, 1);
	wake_waiters(shard);
	for (; other; other = other->next)
		if (other != shard && other->waits &&
		    atomic_exchange(&other->waits, false))
			coro_wake_post(other->sched, &other->wake);
}

/*
 * `waits` is set before the limit is checked: a shard that ends a session after
 * that check sees it, and posts.
 */
int session_limit_wait(struct limit_waiter *waiter)
{
	struct limit_shard *shard = waiter->shard;
	int err = 0;

	while (err == 0 && !waiter->closed) {
		waiter->co = coro_self();
		shard->waits = true;
		if (!session_limit_full(shard->limit))
			break;
		err = coro_park();
	}
	waiter->co = NULL;
	return waiter->closed ? -ECANCELED : err;
}

void session_limit_close(struct limit_waiter *waiter)
{
	waiter->closed = true;
	if (waiter->co)
		coro_unpark(waiter->co);
}
