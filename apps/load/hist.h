/*
 * A log-linear histogram of latencies: constant time to record, no allocation.
 *
 * A value below HIST_SUB is kept exactly; above that, each power of two is cut
 * into HIST_SUB equal buckets, so that a bucket is never wider than 1/128 of
 * the values it holds and a reported value is within 0.4 % of a true one.
 * Values are nanoseconds by convention, from 0 to HIST_MAX (18 minutes); larger
 * ones are counted in the last bucket, while max stays exact.
 *
 * The caller owns the memory (about 36 KiB, meant to be static). One thread at
 * a time; no call can fail.
 */
#pragma once

#include <stdint.h>

#define HIST_SUB_BITS 7
#define HIST_SUB      (1u << HIST_SUB_BITS)
#define HIST_MAX_BITS 40
#define HIST_MAX      ((INT64_C(1) << HIST_MAX_BITS) - 1)
#define HIST_BUCKETS  ((HIST_MAX_BITS - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
	uint64_t count;
	uint64_t sum;
	int64_t min;
	int64_t max;
	uint64_t buckets[HIST_BUCKETS];
};

/* Empties a histogram; called before its first use. */
void hist_reset(struct hist *hist);

/* Adds every value of `from` to `into`. */
void hist_merge(struct hist *into, const struct hist *from);

/*
 * The smallest recorded value that at least `percent` % (0 to 100) of the
 * values do not exceed, within the error above; 0 if nothing was recorded.
 */
int64_t hist_percentile(const struct hist *hist, double percent);

/* The exact mean; 0 if nothing was recorded. */
double hist_mean(const struct hist *hist);

/* The bucket a value from 0 to HIST_MAX falls into. */
static inline uint32_t hist_index(uint64_t value)
{
	uint32_t shift;

	if (value < HIST_SUB)
		return (uint32_t)value;
	shift = 63u - (uint32_t)__builtin_clzll(value) - HIST_SUB_BITS;
	return (shift << HIST_SUB_BITS) + (uint32_t)(value >> shift);
}

/* Records a value; a negative one (the clock went back) counts as 0. */
static inline void hist_record(struct hist *hist, int64_t value)
{
	if (value < 0)
		value = 0;
	if (value < hist->min)
		hist->min = value;
	if (value > hist->max)
		hist->max = value;
	hist->count++;
	hist->sum += (uint64_t)value;
	if (value > HIST_MAX)
		value = HIST_MAX;
	hist->buckets[hist_index((uint64_t)value)]++;
}
