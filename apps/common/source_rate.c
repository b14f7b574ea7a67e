/* Rates by source (a leaky bucket each, GCRA), in a table of fixed size. */
#include "apps/common/source_rate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NS_PER_S INT64_C(1000000000)

struct source_rate *source_rate_new(unsigned bytes4, unsigned bytes6)
{
	struct source_rate *rate = calloc(1, sizeof(*rate));

	if (!rate || getrandom(&rate->secret, sizeof(rate->secret), 0) < 0) {
		free(rate);
		return NULL;
	}
	rate->bytes4 = bytes4;
	rate->bytes6 = bytes6;
	return rate;
}

uint64_t source_hash(uint64_t secret, uint8_t family, const void *ip,
		     unsigned bytes)
{
	uint64_t h = 0;

	memcpy(&h, ip, bytes);
	h ^= secret * family;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

/* Returns the source's bucket; without one, takes over that of its set that is
 * full soonest. */
static struct source_bucket *find_bucket(struct source_rate *rate,
					 uint64_t hash)
{
	struct source_bucket *set =
		rate->buckets[(hash >> 32) % SOURCE_RATE_SETS];
	struct source_bucket *oldest = &set[0];
	uint32_t source = (uint32_t)hash | 1;

	for (unsigned i = 0; i < SOURCE_RATE_WAYS; i++) {
		if (set[i].source == source)
			return &set[i];
		if (set[i].full_ns < oldest->full_ns)
			oldest = &set[i];
	}
	oldest->source = source;
	oldest->n_over = 0;
	oldest->full_ns = 0;
	return oldest;
}

int64_t rate_bucket_take(_Atomic int64_t *full_ns, unsigned per_s,
			 unsigned burst, int64_t now_ns)
{
	int64_t each_ns = NS_PER_S / per_s, whole_ns = each_ns * burst;
	int64_t was_ns = *full_ns, next_ns;

	/* Bounded by the threads that change it at the same time. */
	for (;;) {
		next_ns = was_ns > now_ns ? was_ns : now_ns;
		if (next_ns - now_ns > whole_ns) {
			/* The limit has changed: it is just empty. */
			next_ns = now_ns + whole_ns;
			if (atomic_compare_exchange_weak(full_ns, &was_ns,
							 next_ns))
				was_ns = next_ns;
			continue;
		}
		next_ns += each_ns;
		if (next_ns - now_ns > whole_ns)
			return next_ns - now_ns - whole_ns;
		if (atomic_compare_exchange_weak(full_ns, &was_ns, next_ns))
			return 0;
	}
}

uint32_t source_rate_over(struct source_rate *rate, uint8_t family,
			  const void *ip, unsigned per_s, int64_t now_ns)
{
	unsigned bytes = family == 4 ? rate->bytes4 : rate->bytes6;
	struct source_bucket *bucket =
		find_bucket(rate, source_hash(rate->secret, family, ip, bytes));

	if (rate_bucket_take(&bucket->full_ns, per_s, per_s, now_ns) == 0)
		return 0;
	return (atomic_fetch_add(&bucket->n_over, 1) & INT32_MAX) + 1;
}
