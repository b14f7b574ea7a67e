/*
 * Checks whether a program's memory can be accessed, for calls that return
 * EFAULT.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns how many of the bytes precede the first page that cannot be accessed.
 * write: only their first byte is checked to be writable.
 */
size_t net_touch(uintptr_t memory, size_t bytes, bool write);
/*
 * Called in a handler of SIGSEGV or SIGBUS with its ucontext: returns whether
 * net_touch() caused the signal. If so, net_touch() continues and returns.
 */
bool net_touch_failed(void *context);
