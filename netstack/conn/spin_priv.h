/*
 * A spinlock for data that shards share and lock for a few dozen instructions.
 * Its holder does not allocate, log or block. It has a cache line of its own.
 */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define NET_SPIN_LOOKS 1024u

struct net_spin {
	_Alignas(64) atomic_bool held;
};

/*
 * The holder may not be running if shards share a CPU, so a waiter yields after
 * every NET_SPIN_LOOKS attempts. The wait is bounded by the time for which the
 * other threads hold the lock.
 */
static inline void net_spin_lock(struct net_spin *lock)
{
	unsigned looks = 0;

	while (atomic_exchange_explicit(&lock->held, true,
					memory_order_acquire))
		while (atomic_load_explicit(&lock->held, memory_order_relaxed))
			if (++looks % NET_SPIN_LOOKS == 0)
				sched_yield();
			else
				__builtin_ia32_pause();
}

static inline void net_spin_unlock(struct net_spin *lock)
{
	atomic_store_explicit(&lock->held, false, memory_order_release);
}
