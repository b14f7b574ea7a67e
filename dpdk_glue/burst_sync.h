/*
 * Waiting for the bursts under way, as RCU waits for its readers: a port's
 * memory does not go while a burst is in it. Private to dpdk_glue/.
 *
 * memif's peer may leave at any time; DPDK then unmaps the shared rings on its
 * interrupt thread, whatever the polling threads are doing with them. A burst
 * that was preempted meanwhile would go on in memory that is not there. So
 * munmap() on any other thread waits until the bursts under way have ended; the
 * next ones find the port disconnected. The same wait lets another thread stop
 * a port (memif.c).
 *
 * A polling thread pays a store before and after each burst; the other side
 * pays for order between the two, by membarrier(2).
 */
#pragma once

#include <stdbool.h>

/* The calling thread polls from now on. 0 or -errno of membarrier(2). */
int glue_sync_start(void);

/* The count of a shard, odd while a burst runs; its thread's alone to write. */
unsigned *glue_sync_count(unsigned shard);

/* Whether the calling thread polls ports from now on. */
void glue_sync_polls(bool on);

/* Whether this process may wait for a burst: membarrier(2) is allowed. */
bool glue_sync_works(void);

/*
 * Returns once every burst that was under way has ended. Each burst that begins
 * later sees what the caller has written before. Not on a polling thread.
 */
void glue_sync_wait(void);

static inline void glue_burst_begin(unsigned *bursts)
{
	__atomic_store_n(bursts, *bursts + 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void glue_burst_end(unsigned *bursts)
{
	__atomic_store_n(bursts, *bursts + 1, __ATOMIC_RELEASE);
}
