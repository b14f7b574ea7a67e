/*
 * The shards of an appliance on coronet: calls on each of them, and SIGHUP,
 * which a coroutine of the first shard follows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <coronet/net.h>

/*
 * Calls fn on the thread of each shard, one after the other, outside any
 * coroutine there; the argument of shard i is element i of an array. first,
 * size: the array's first element, and the bytes of an element. fn returns 0 or
 * a negative errno, as a pointer. Blocks; in a coroutine of a shard. Returns
 * the first error, which ends the calls, or 0.
 */
int shards_call(coro_fn fn, void *first, size_t size);

/* Notes each SIGHUP from now on, which would end the process otherwise. */
void hangup_catch(void);

/*
 * Makes SIGHUP unpark the calling coroutine, until hangup_unfollow(). One
 * coroutine of the process may do so.
 */
void hangup_follow(void);
void hangup_unfollow(void);

/* Whether SIGHUP has come since hangup_take() was called last. */
bool hangup_came(void);
bool hangup_take(void);
