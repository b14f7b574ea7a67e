/*
 * Checks whether a program's memory can be accessed, for calls that return
 * EFAULT.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns how many of the bytes can be accessed, before the first page that is
 * missing.
 */
size_t net_touch(uintptr_t memory, size_t bytes, bool write);
/*
 * In a handler of SIGSEGV or SIGBUS: returns true if net_touch() caused the
 * signal; net_touch() then returns.
 */
bool net_touch_failed(void *context);
