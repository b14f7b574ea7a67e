/*
 * Limits the connections per second of each source.
 *
 * A source is an IPv4 address or an IPv6 /64. Each has a token bucket that
 * fills evenly in a second (GCRA, ITU-T I.371: it stores the time at which it
 * will be full again). The table has a fixed size: a source has its bucket in
 * one of four places, or takes the one of the four that is full soonest. So a
 * flood of sources can reset others' buckets, but cannot make them larger than
 * the rate, and takes no memory. The position of a source depends on a secret.
 * All shards use one table, without locks.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_RATE_SETS 16384
#define SOURCE_RATE_WAYS 4

struct source_rate {
	uint64_t secret;
	struct source_bucket {
		_Atomic uint64_t source; /* a hash of it; 0: nobody's */
		_Atomic int64_t full_ns; /* when its bucket is full again */
	} buckets[SOURCE_RATE_SETS][SOURCE_RATE_WAYS];
};

/* Zeroed memory but for the secret, owned by the caller; NULL: no memory. */
struct source_rate *source_rate_new(uint64_t secret);

/*
 * Counts a connection of a source; returns false if that exceeds `per_s` (1 or
 * more) per second. ip: 4 or 16 bytes.
 */
bool source_rate_take(struct source_rate *rate, uint8_t family, const void *ip,
		      unsigned per_s, int64_t now_ns);
