/*
 * The limit of a program's sessions, over all of its shards.
 *
 * One atomic operation when a session begins and one when it ends; the limit is
 * never exceeded. A coroutine may wait for room: the end of a session, on any
 * shard, wakes those that wait.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include <coronet/coro.h>

struct session_limit;

/* A coroutine that may wait, on its shard; zeroed at first. */
struct limit_waiter {
	struct limit_shard *shard;
	struct coro *co; /* while it waits; else NULL */
	bool closed;	 /* by session_limit_close() */
	struct limit_waiter *next;
};

/*
 * A shard's part; used by its thread alone, except `waits` and `wake`. Zeroed.
 */
struct limit_shard {
	struct session_limit *limit;
	struct coro_sched *sched;
	struct limit_waiter *waiters;
	struct limit_shard *next;
	struct coro_wake wake;
	_Alignas(64) atomic_bool waits; /* other shards then post `wake` */
};

/* The limit of the program. */
struct session_limit {
	unsigned max;
	struct limit_shard *_Atomic shards; /* a list that only grows */
	_Alignas(64) atomic_uint sessions;
};

void session_limit_init(struct session_limit *limit, unsigned max);

/*
 * Adds a shard, on its thread, while its scheduler is open. Its memory must
 * stay valid.
 */
void session_limit_join(struct session_limit *limit, struct limit_shard *shard);

/* Registers a coroutine that may wait; the memory must stay valid. */
void session_limit_add(struct limit_shard *shard, struct limit_waiter *waiter);

static inline bool session_limit_full(const struct session_limit *limit)
{
	return limit->sessions >= limit->max;
}

/* Counts one session more; returns false at the limit. */
bool session_limit_take(struct session_limit *limit);

/* Counts one session fewer, on its shard. */
void session_limit_give(struct limit_shard *shard);

/*
 * Blocks the coroutine while there is no room; another one may use the room
 * first. Returns 0, -ECANCELED (closed, or the coroutine was cancelled) or an
 * error of coro_park().
 */
int session_limit_wait(struct limit_waiter *waiter);

/* Ends the waiter's present wait, and all later ones at once. */
void session_limit_close(struct limit_waiter *waiter);
