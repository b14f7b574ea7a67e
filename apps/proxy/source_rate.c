/* Limits the connections per second of each source. */
#include "apps/proxy/source_rate.h"

#include <stdlib.h>
#include <string.h>

#include "apps/proxy/balance.h"

#define NS_PER_S INT64_C(1000000000)

struct source_rate *source_rate_new(uint64_t secret)
{
	struct source_rate *rate = calloc(1, sizeof(*rate));

	if (rate)
		rate->secret = secret;
	return rate;
}

/* Returns a hash, which is never 0. */
static uint64_t hash_source(const struct source_rate *rate, uint8_t family,
			    const void *ip)
{
	uint8_t key[17] = {0};

	memcpy(key, &rate->secret, 8);
	key[8] = family;
	memcpy(key + 9, ip, family == 4 ? 4 : 8);
	return balance_hash(key, sizeof(key)) | 1;
}

/* Returns the source's bucket; without one, takes over that of its set that is
 * full soonest. */
static struct source_bucket *find_bucket(struct source_rate *rate,
					 uint64_t source)
{
	struct source_bucket *set =
		rate->buckets[(source >> 32) % SOURCE_RATE_SETS];
	struct source_bucket *oldest = &set[0];

	for (unsigned i = 0; i < SOURCE_RATE_WAYS; i++) {
		if (set[i].source == source)
			return &set[i];
		if (set[i].full_ns < oldest->full_ns)
			oldest = &set[i];
	}
	oldest->source = source;
	oldest->full_ns = 0;
	return oldest;
}

bool source_rate_take(struct source_rate *rate, uint8_t family, const void *ip,
		      unsigned per_s, int64_t now_ns)
{
	struct source_bucket *bucket =
		find_bucket(rate, hash_source(rate, family, ip));
	int64_t each_ns = NS_PER_S / per_s, full_ns = bucket->full_ns, next_ns;

	do {
		next_ns = (full_ns > now_ns ? full_ns : now_ns) + each_ns;
		/* It is empty: it holds what a second allows. */
		if (next_ns - now_ns > each_ns * per_s)
			return false;
	} while (!atomic_compare_exchange_weak(&bucket->full_ns, &full_ns,
					       next_ns));
	return true;
}
