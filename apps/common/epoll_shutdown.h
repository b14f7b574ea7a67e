/*
 * Graceful shutdown of a program of several epoll threads: the first signal
 * drains, the second ends the program at once. For the main thread.
 */
#pragma once

#include <stdint.h>

/*
 * SIGINT and SIGTERM, blocked in this thread and those it starts from now on,
 * and readable: a file, owned by the caller, or -errno.
 */
int shutdown_signals(void);

/*
 * Blocks until done_event, an eventfd(2) to which each thread adds one, has
 * counted `threads`. The first signal makes drain_event readable, the second
 * exits with status 1. The files are borrowed.
 */
void shutdown_wait(int signals, int drain_event, int done_event,
		   uint32_t threads);
