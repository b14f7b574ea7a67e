/*
 * Counters that one thread writes and any other may read at any time.
 *
 * Each shard has a struct that consists of uint64_t only. Adding takes no
 * locked instruction. A reader sees a valid value of each counter, but not all
 * values of one moment.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Called by the writer alone. */
static inline void counters_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* For a counter that may also decrease. Called by the writer alone. */
static inline void counters_set(uint64_t *counter, uint64_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Adds each counter of a shard's struct (size bytes) to that in `sum`. */
static inline void counters_sum(void *sum, const void *shard, size_t size)
{
	uint64_t *into = sum;
	const uint64_t *from = shard;

	for (size_t i = 0; i < size / sizeof(*from); i++)
		into[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
