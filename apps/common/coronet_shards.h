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
 * size: the array's first element, and the bytes of an element; 0: all shards
 * get the first. fn returns 0 or a negative errno, as a pointer. Called in a
 * coroutine of a shard, which it blocks. A call for which there is no memory
 * now is tried again. Returns 0, or the first error, after which no shard is
 * called: -ECANCELED or -ESHUTDOWN if the program ends, or fn's.
 */
int shards_call(coro_fn fn, void *first, size_t size);

/* Catches and notes each SIGHUP, instead of letting it end the process. */
void hangup_catch(void);

/*
 * Starts the coroutine that follows SIGHUP, on the calling shard. It has a
 * stack of its own, so that it can block however short memory is: only the
 * program's end ends it. Returns 0 or -ENOMEM.
 */
int hangup_spawn(const char *name, coro_fn fn, void *arg);

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
