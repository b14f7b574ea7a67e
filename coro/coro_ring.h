/*
 * coro_ring.h - the run queue: an array, so that the coroutines that run next
 * can be prefetched. It has room for every coroutine, so that waking one cannot
 * fail.
 */
#pragma once

#include "coro_priv.h"

static inline void ring_push(struct coro_sched *s, struct coro *co)
{
	s->ring[s->tail++ & s->mask] = co;
}

static inline void ring_prefetch(const struct coro_sched *s, uint32_t head)
{
	uint32_t left = s->round_end - head;
	const struct coro *co;
	const char *save;
	size_t bytes;

	if (left > CORO_AHEAD_BLOCK)
		coro_prefetch(s->ring[(head + CORO_AHEAD_BLOCK) & s->mask]);
	if (left <= CORO_AHEAD_SAVE)
		return;
	co = s->ring[(head + CORO_AHEAD_SAVE) & s->mask];
	if (co->ctx.stack->occupant == &co->ctx)
		return;
	save = co->ctx.save;
	bytes = co->ctx.stack->top - (char *)co->ctx.sp;
	if (bytes > CORO_AHEAD_LINES * 64)
		bytes = CORO_AHEAD_LINES * 64;
	for (size_t i = 0; i < bytes; i += 64)
		coro_prefetch(save + i);
}

/* Removes the next coroutine of the round; at the end: the thread itself. */
static inline struct coro *ring_next(struct coro_sched *s)
{
	uint32_t head = s->head;

	if (head == s->round_end)
		return &s->main;
	ring_prefetch(s, head);
	s->head = head + 1;
	return s->ring[head & s->mask];
}

/* The result of coro_resume() or coro_suspend() in `next`. It is -EAGAIN for a
 * thread that resumed a coroutine which then waited for the scheduler, and for
 * a coroutine that resumed one which was destroyed. */
static inline long next_err(const struct coro *next)
{
	return unlikely(next->ctx.flags3 & CORO_F3_AGAIN) ? -EAGAIN : 0;
}

/* Switches from co, whose state is set, to the next coroutine. Returns the code
 * that wakes co. */
static inline int switch_next(struct coro_sched *s, struct coro *co)
{
	struct coro *next = ring_next(s);

	return coro_switch_int(s, co, next, next->value, next_err(next));
}
