/*
 * Waiting for the burst under way, as RCU waits for its readers: a port's memory
 * does not go while a burst is in it. Private to dpdk_glue/.
 *
 * memif's peer may leave at any time; DPDK then unmaps the shared rings on its
 * interrupt thread, whatever the polling thread is doing with them. A burst
 * that was preempted meanwhile would go on in memory that is not there. So
 * munmap() on any other thread waits until the burst under way has ended; the
 * next one finds the port disconnected. The same wait lets another thread stop
 * a port (memif.c).
 *
 * The polling thread pays a store before and after each burst; the other side
 * pays for order between the two, by membarrier(2).
 */
#pragma once

#include <stdbool.h>

/* Odd while a burst runs. Written by the polling thread alone. */
extern unsigned glue_burst_count;

/* The calling thread is the polling thread from now on. 0 or -errno. */
int glue_sync_start(void);

/* Whether this process may wait for a burst: membarrier(2) is allowed. */
bool glue_sync_works(void);

/*
 * Returns once every burst that was under way has ended. Each burst that begins
 * later sees what the caller has written before. Not on the polling thread.
 */
void glue_sync_wait(void);

static inline void glue_burst_begin(void)
{
	__atomic_store_n(&glue_burst_count, glue_burst_count + 1,
			 __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void glue_burst_end(void)
{
	__atomic_store_n(&glue_burst_count, glue_burst_count + 1,
			 __ATOMIC_RELEASE);
}
