/*
 * Threads that do not poll: a memif server's relay, a capture's writer. (DPDK
 * renamed its call for these between 22.11 and 24.11.) Private to dpdk_glue/.
 */
#pragma once

#include <pthread.h>

/*
 * Starts run(arg) on a thread that takes no signals and does not run on the
 * CPUs that shards are pinned to, if the process has others. name has 15
 * characters at most. Returns 0 or -errno of pthread_create(3).
 */
int glue_thread_start(pthread_t *thread, const char *name,
		      void *(*run)(void *arg), void *arg);

/*
 * Calls fn(arg) on DPDK's interrupt thread, which runs timers and handles peers
 * that disconnect, and waits for its end: none of these overlap with it. fn may
 * call this, and then runs the inner function at once.
 */
void glue_on_interrupt_thread(void (*fn)(void *arg), void *arg);

/*
 * Calls fn(arg) on a thread that has the capabilities of glue_caps_keep(), and
 * waits for its end (caps.c).
 */
void glue_run_with_caps(void (*fn)(void *arg), void *arg);
