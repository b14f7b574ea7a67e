/* The bounded queue of sessions that wait for a backend with room. */
#include "apps/proxy/backend_queue.h"

#include <stddef.h>

static void on_wake(struct coro_wake *wake)
{
	struct queue_shard *shard =
		(struct queue_shard *)(void *)((char *)wake -
					       offsetof(struct queue_shard,
							wake));

	if (shard->first)
		coro_unpark(shard->first->co);
}

void queue_join(struct backend_queue *queue, struct queue_shard *shard)
{
	shard->queue = queue;
	shard->first = NULL;
	shard->last = &shard->first;
	shard->sched = coro_sched_ref(coro_sched_self());
	coro_wake_init(&shard->wake, on_wake);
	shard->next = queue->shards;
	while (!atomic_compare_exchange_weak(&queue->shards, &shard->next,
					     shard))
		; /* bounded by the shards that join at the same time */
}

void queue_fini(struct queue_shard *shard)
{
	if (shard->sched)
		coro_sched_unref(shard->sched);
	shard->sched = NULL;
}

bool queue_enter(struct queue_shard *shard, struct queue_waiter *waiter,
		 unsigned max)
{
	unsigned n = shard->queue->n;

	do {
		if (n >= max)
			return false;
	} while (!atomic_compare_exchange_weak(&shard->queue->n, &n, n + 1));
	waiter->co = coro_self();
	waiter->next = NULL;
	waiter->pprev = shard->last;
	*shard->last = waiter;
	shard->last = &waiter->next;
	return true;
}

uint64_t queue_wanted(const struct queue_shard *shard,
		      const struct queue_waiter *waiter, uint64_t allowed)
{
	const struct queue_waiter *ahead = shard->first;
	uint64_t wanted = 0;

	for (int i = 0; ahead && ahead != waiter; i++, ahead = ahead->next) {
		wanted |= ahead->allowed & allowed;
		if (wanted == allowed || i == QUEUE_LOOKS)
			return allowed;
	}
	return wanted;
}

void queue_look(struct queue_shard *shard)
{
	shard->waits = true;
}

int queue_wait(int64_t deadline_ns)
{
	return coro_park_until(deadline_ns);
}

/* Wakes one waiter; a chain of these wakes each one at most once. */
void queue_pass(const struct queue_waiter *waiter)
{
	struct queue_waiter *other = waiter->next;

	while (other && other->allowed == waiter->allowed)
		other = other->next;
	if (other)
		coro_unpark(other->co);
}

void queue_leave(struct queue_shard *shard, struct queue_waiter *waiter)
{
	struct queue_waiter *next = waiter->next;

	*waiter->pprev = next;
	if (next)
		next->pprev = waiter->pprev;
	else
		shard->last = waiter->pprev;
	waiter->pprev = NULL;
	atomic_fetch_sub(&shard->queue->n, 1);
	if (next)
		coro_unpark(next->co);
}

/*
 * A shard sets `waits` before its waiter looks, so room that is made after that
 * look is reported. The wake-up that is posted does not clear the flag, so that
 * is done here.
 */
void queue_kick(struct backend_queue *queue)
{
	struct queue_shard *shard = queue->shards;

	if (queue->n == 0)
		return;
	for (; shard; shard = shard->next)
		if (shard->waits && atomic_exchange(&shard->waits, false))
			coro_wake_post(shard->sched, &shard->wake);
}
