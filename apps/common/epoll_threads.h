/*
 * The threads of the programs on epoll: their number (--threads) and their CPUs
 * (--cpu); and the shutdown, in which the first signal drains and the second
 * ends the program at once.
 *
 * epoll_threads_argp is a child of a program's parser; its child_inputs entry
 * is the struct epoll_threads. It fills in the defaults, and refuses CPUs that
 * the process may not use before a thread is started.
 */
#pragma once

#include <argp.h>
#include <stdint.h>

#define EPOLL_THREADS_MAX 256

struct epoll_threads {
	uint32_t n;
	int cpu; /* of the first; further ones follow it; -1: anywhere */
};

extern const struct argp epoll_threads_argp;

/* Pins the calling thread, the program's `index`th, to its CPU. */
void epoll_threads_pin(const struct epoll_threads *threads, uint32_t index);

/*
 * Blocks SIGINT and SIGTERM in this thread and those that it starts from now
 * on. Returns a descriptor from which they can be read, owned by the caller, or
 * -errno.
 */
int shutdown_signals(void);

/*
 * Blocks until done_event, an eventfd(2) to which each thread adds one, has
 * counted `threads`. The first signal makes drain_event readable, the second
 * ends the process with status 1. The descriptors are borrowed.
 */
void shutdown_wait(int signals, int drain_event, int done_event,
		   uint32_t threads);
