/*
 * The end of a blocking call whose coroutine is ended by coro_destroy(). The
 * wait returns -EOWNERDEAD, and the call gives back what it holds, like for any
 * other error. But it must not return to the program: the coroutine ends.
 */
#pragma once

#include <errno.h>

#include <coronet/coro.h>

#include "netstack/state.h"

/* Passes the result of a call on, unless its coroutine ends. */
static inline long net_call_end(long n)
{
	if (unlikely(n == -EOWNERDEAD))
		coro_exit(NULL);
	return n;
}
