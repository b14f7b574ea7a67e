/*
 * How many connections a second each source may begin.
 *
 * A source is an IPv4 address or an IPv6 /64. Each has a bucket of so many
 * connections that fills evenly in a second (GCRA, ITU-T I.371: the time at
 * which it will be full again). The table has a fixed size, whoever comes: a
 * source finds its bucket in one of four places, or takes that of the four
 * which is full soonest. So a flood of sources can make others' buckets new,
 * but never larger than the rate, and takes no memory. Where a source lies
 * depends on a secret. All shards use one table; no locks.
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
 * One more connection of a source: false if it has had `per_s` (1 or more) of
 * them just now. ip: 4 or 16 bytes.
 */
bool source_rate_take(struct source_rate *rate, uint8_t family, const void *ip,
		      unsigned per_s, int64_t now_ns);
