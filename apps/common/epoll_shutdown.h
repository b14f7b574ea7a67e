/*
 * Graceful shutdown of a program of several epoll threads: the first signal
 * drains, the second ends the program at once. For the main thread.
 */
#pragma once

#include <stdint.h>

/*
 * Blocks SIGINT and SIGTERM in this thread and those that it starts from now
 * on. Returns a descriptor from which they can be read, owned by the caller, or
 * -errno.
 */
int shutdown_signals(void);

/*
 * Blocks until done_event, an eventfd(2) to which each thread adds one, has
 * counted `threads`. The first signal makes drain_event readable, the second
 * exits with status 1. The files are borrowed.
 */
void shutdown_wait(int signals, int drain_event, int done_event,
		   uint32_t threads);
