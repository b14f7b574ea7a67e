/*
 * coro_queue.h - a queue of coroutines that wait for one event.
 *
 * The node of a waiting coroutine is in its control block, since another
 * coroutine may occupy its stack; coro_stop_waiting() removes it. A head of all
 * zeros is an empty queue.
 */
#pragma once

#include "coro_priv.h"

static inline bool queue_empty(const struct coro_link *q)
{
	return !q->next || q->next == q;
}

static inline struct coro *queue_coro(const struct coro_link *l)
{
	return (struct coro *)((char *)l - offsetof(struct coro, link));
}

static inline struct coro *queue_first(const struct coro_link *q)
{
	return queue_coro(q->next);
}

static inline void queue_add(struct coro_link *q, struct coro *co)
{
	if (!q->next)
		q->next = q->prev = q;
	co->link.next = q;
	co->link.prev = q->prev;
	q->prev->next = &co->link;
	q->prev = &co->link;
	co->ctx.flags2 |= CORO_F2_LINKED;
}
