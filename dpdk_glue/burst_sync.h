/*
 * Waits for the bursts under way, as RCU waits for its readers, so that a
 * port's memory is not unmapped during a burst. Private to dpdk_glue/.
 *
 * memif's peer may leave at any time; DPDK then unmaps the shared rings on its
 * interrupt thread, whatever the polling threads are doing with them. A burst
 * that was preempted meanwhile would continue in unmapped memory. So munmap()
 * on any other thread waits until the bursts under way have ended; the next
 * ones find the port disconnected. The same wait lets another thread stop a
 * port (memif.c).
 *
 * A polling thread increments its count before and after each burst; the
 * waiting thread orders these stores by membarrier(2).
 */
#pragma once

#include <stdbool.h>

/*
 * Called on each polling thread before it polls. Returns 0, -errno of
 * membarrier(2), or -ENOMEM. A forked child waits for no burst.
 */
int glue_sync_start(void);

/* The count of a shard, odd during a burst; only its thread writes it. */
unsigned *glue_sync_count(unsigned shard);

/* Sets whether the calling thread polls ports. */
void glue_sync_polls(bool on);

/*
 * Returns whether this process may wait for a burst: membarrier(2) is allowed.
 */
bool glue_sync_works(void);

/*
 * Returns once every burst that was under way has ended. Every later burst sees
 * what the caller has written before. Not on a polling thread.
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
