/*
 * Sessions that wait for a backend with room, of all shards: so many at most.
 *
 * Each shard has a list, the first that came first. Whoever makes room wakes
 * the first of its own list and of each shard that has one; a session that was
 * woken wakes the next one when it leaves the list, and passes the turn on to
 * the next one that wants other backends when there is nothing for it. So as
 * many go on as there is room for, and nobody overtakes within a shard.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/coro.h>

struct backend_queue;

/* A session that waits, on its shard; on the heap. */
struct queue_waiter {
	struct queue_waiter *next, **pprev; /* pprev NULL: on no list */
	struct coro *co;
	uint64_t allowed; /* the backends it may have */
};

/* A shard's part: its thread's alone, but for `waits` and `wake`. */
struct queue_shard {
	struct backend_queue *queue;
	struct queue_waiter *first, **last;
	struct coro_sched *sched; /* a reference; may be closed */
	struct queue_shard *next;
	struct coro_wake wake;
	_Alignas(64) atomic_bool waits;
};

/* The program's; zeroed. */
struct backend_queue {
	struct queue_shard *_Atomic shards; /* a list that only grows */
	_Alignas(64) atomic_uint n;
};

/* On the shard's thread. The memory stays until queue_fini(). */
void queue_join(struct backend_queue *queue, struct queue_shard *shard);

/* When no shard runs any more; nothing if it never joined. */
void queue_fini(struct queue_shard *shard);

/* Puts a waiter last. False: there are `max` already. In a coroutine. */
bool queue_enter(struct queue_shard *shard, struct queue_waiter *waiter,
		 unsigned max);

/*
 * To be called before each look whether there is room: what is made after it
 * wakes the waiter.
 */
void queue_look(struct queue_shard *shard);

/* Blocks until there may be room: 0, -ETIMEDOUT, -ECANCELED. */
int queue_wait(int64_t deadline_ns);

/* There was nothing for it: somebody else's turn. */
void queue_pass(struct queue_waiter *waiter);

/* Off the list; the next one's turn. */
void queue_leave(struct queue_shard *shard, struct queue_waiter *waiter);

/* Whether one who wants these backends would overtake. */
static inline bool queue_is_before(const struct queue_shard *shard,
				   uint64_t allowed)
{
	return shard->first && shard->first->allowed & allowed;
}

/* There is room, or other backends. Any thread. */
void queue_kick(struct backend_queue *queue);
