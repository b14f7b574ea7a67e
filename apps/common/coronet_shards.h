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
 * a negative errno, as a pointer. Called in a coroutine of a shard, which it
 * blocks. Returns 0, or the first error, after which no shard is called.
 */
int shards_call(coro_fn fn, void *first, size_t size);

/* Catches and notes each SIGHUP, instead of letting it end the process. */
void hangup_catch(void);

/*
 * Makes SIGHUP unpark the calling coroutine, until hangup_unfollow(). One
 * coroutine of the process may do so.
 */
void hangup_follow(void);
void hangup_unfollow(void);

/*
 * Returns whether SIGHUP has come since the last hangup_take(), which resets
 * that.
 */
bool hangup_came(void);
bool hangup_take(void);
