/*
 * The bounded queue of sessions, on all shards, that wait for a backend with
 * room.
 *
 * Each shard has a list in order of arrival. When room appears, the first
 * session of each shard's list is woken. A session that was woken wakes the
 * next one when it leaves the list; if there is no room for it, it wakes the
 * next one that may use other backends. So as many sessions continue as there
 * is room for, and none takes room that one ahead of it, on its shard, waits
 * for.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/coro.h>

#define QUEUE_LOOKS 1024 /* waiters that are compared with another one */

struct backend_queue;

/* A session that waits, on its shard; on the heap. */
struct queue_waiter {
	struct queue_waiter *next, **pprev; /* pprev NULL: on no list */
	struct coro *co;
	uint64_t allowed; /* the backends it may have */
};

/* A shard's part: used by its thread alone, except `waits` and `wake`. */
struct queue_shard {
	struct backend_queue *queue;
	struct queue_waiter *first, **last;
	struct coro_sched *sched; /* a reference; may be closed */
	struct queue_shard *next;
	struct coro_wake wake;
	_Alignas(64) atomic_bool waits;
};

/* The queue of the program; zeroed at first. */
struct backend_queue {
	struct queue_shard *_Atomic shards; /* a list that only grows */
	_Alignas(64) atomic_uint n;
};

/* Adds a shard, on its thread. Its memory must stay until queue_fini(). */
void queue_join(struct backend_queue *queue, struct queue_shard *shard);

/*
 * Called when no shard runs any more. Does nothing if the shard never joined.
 */
void queue_fini(struct queue_shard *shard);

/*
 * Appends a waiter, the calling coroutine. Returns false if the queue has `max`
 * waiters already.
 */
bool queue_enter(struct queue_shard *shard, struct queue_waiter *waiter,
		 unsigned max);

/*
 * Called before each check for room: room that appears later wakes the waiter.
 */
void queue_look(struct queue_shard *shard);

/* Blocks until there may be room. Returns 0, -ETIMEDOUT or -ECANCELED. */
int queue_wait(int64_t deadline_ns);

/*
 * Called when there was no room for the waiter: wakes the next one that may use
 * other backends.
 */
void queue_pass(const struct queue_waiter *waiter);

/* Removes a waiter from the list, and wakes the next one. */
void queue_leave(struct queue_shard *shard, struct queue_waiter *waiter);

/*
 * Which of these backends do waiters ahead of this one want? waiter NULL: a
 * session that is not in the list, behind all. Others it may have at once. With
 * more than QUEUE_LOOKS waiters ahead, these want all of them.
 */
uint64_t queue_wanted(const struct queue_shard *shard,
		      const struct queue_waiter *waiter, uint64_t allowed);

/* Called when room has appeared or the backends have changed. Any thread. */
void queue_kick(struct backend_queue *queue);
