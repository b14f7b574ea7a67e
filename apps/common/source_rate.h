/*
 * Limits events per second: all of them, or those of each source.
 *
 * A source is a prefix of an address. Each has a token bucket that fills evenly
 * in a second (GCRA, ITU-T I.371: it stores the time at which it will be full
 * again). The table has a fixed size: a source has its bucket in one of four
 * slots, or takes over the one of the four that will be full first. So a flood
 * of sources can reset others' buckets, but cannot make them larger than the
 * rate, and uses no memory. The slots of a source depend on a secret. All
 * shards use one table, without locks.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define SOURCE_RATE_SETS 16384
#define SOURCE_RATE_WAYS 4

struct source_rate {
	uint64_t secret;
	unsigned bytes4, bytes6; /* of an address that identify its source */
	struct source_bucket {
		_Atomic uint32_t source; /* a hash of it; 0: unused */
		_Atomic uint32_t n_over; /* events beyond the rate */
		_Atomic int64_t full_ns; /* when its bucket is full again */
	} buckets[SOURCE_RATE_SETS][SOURCE_RATE_WAYS];
};

/*
 * Counts an event in a token bucket of `burst` tokens, which fills by per_s a
 * second (GCRA). *full_ns: 0 at first. A change of the limit counts at once.
 * per_s: 1 to 10^9; burst: 1 to 10^6. Returns 0, or the ns until the next event
 * may come, which was not counted. Any thread.
 */
int64_t rate_bucket_take(_Atomic int64_t *full_ns, unsigned per_s,
			 unsigned burst, int64_t now_ns);

/*
 * Hashes the first `bytes` bytes (1 to 8) of an address: all bits of these go
 * into all bits of the hash, one to one within a family.
 */
uint64_t source_hash(uint64_t secret, uint8_t family, const void *ip,
		     unsigned bytes);

/*
 * bytes4, bytes6: the prefix of a source, 1 to 4 and 1 to 8 bytes of an
 * address. Returns a table, to be freed by free(3); NULL: no memory, or no
 * random bytes for its secret.
 */
struct source_rate *source_rate_new(unsigned bytes4, unsigned bytes6);

/*
 * Counts an event of a source. ip: 4 or 16 bytes. per_s: 1 to 10^9. Returns 0
 * if the event is within the rate, otherwise its number among those beyond:
 * 1, 2, ...
 */
uint32_t source_rate_over(struct source_rate *rate, uint8_t family,
			  const void *ip, unsigned per_s, int64_t now_ns);
