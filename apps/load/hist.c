/* A log-linear histogram of latencies, which records in constant time. */
#include "apps/load/hist.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void hist_reset(struct hist *hist)
{
	memset(hist, 0, sizeof(*hist));
	hist->min = INT64_MAX;
}

void hist_merge(struct hist *into, const struct hist *from)
{
	uint32_t i;

	if (from->count == 0)
		return;
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	into->count += from->count;
	into->sum += from->sum;
	for (i = 0; i < HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

/* The middle of a bucket: the inverse of hist_index(). */
static int64_t bucket_value(uint32_t index)
{
	uint32_t shift;
	uint64_t low;

	if (index < 2 * HIST_SUB)
		return index;
	shift = (index >> HIST_SUB_BITS) - 1;
	low = (uint64_t)(index - (shift << HIST_SUB_BITS)) << shift;
	return (int64_t)(low + (UINT64_C(1) << shift) / 2);
}

static int64_t clamp_value(int64_t value, int64_t low, int64_t high)
{
	if (value < low)
		return low;
	return value > high ? high : value;
}

int64_t hist_percentile(const struct hist *hist, double percent)
{
	uint64_t rank, seen = 0;
	uint32_t i;

	assert(percent >= 0 && percent <= 100);
	if (hist->count == 0)
		return 0;
	/* 99.9 % of 1,000 are 999, whatever the last bit of a double says. */
	rank = (uint64_t)ceil(percent / 100 * (double)hist->count - 1e-6);
	/* The ends are known exactly. */
	if (rank <= 1)
		return hist->min;
	if (rank >= hist->count)
		return hist->max;
	for (i = 0; i < HIST_BUCKETS; i++) {
		seen += hist->buckets[i];
		if (seen >= rank)
			break;
	}
	return clamp_value(bucket_value(i), hist->min, hist->max);
}

double hist_mean(const struct hist *hist)
{
	return hist->count ? (double)hist->sum / (double)hist->count : 0;
}
