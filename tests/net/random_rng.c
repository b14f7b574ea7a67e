/*
 * Random numbers from a seed: the test's draws, and the stack's system
 * randomness.
 */
#include "tests/net/random.h"

#include <sodium.h>

/* ---- numbers: splitmix64 ---- */

uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t rng_below(struct rng *rng, uint32_t n)
{
	return (uint32_t)((rng_next(rng) >> 32) * n >> 32);
}

uint32_t rng_between(struct rng *rng, uint32_t lo, uint32_t hi)
{
	return hi > lo ? lo + rng_below(rng, hi - lo + 1) : lo;
}

uint32_t rng_log(struct rng *rng, uint32_t lo, uint32_t hi)
{
	unsigned low = 31u - (unsigned)__builtin_clz(lo | 1);
	unsigned high = 31u - (unsigned)__builtin_clz(hi | 1);
	uint32_t bit = UINT32_C(1) << rng_between(rng, low, high);
	uint32_t n = bit + rng_below(rng, bit);

	return n < lo ? lo : n > hi ? hi : n;
}

bool rng_chance(struct rng *rng, unsigned per_mille)
{
	return rng_below(rng, 1000) < per_mille;
}

/* ---- the stack's ---- */

static struct rng entropy;
static unsigned refills;

static const char *entropy_name(void)
{
	return "seeded";
}

static uint32_t entropy_random(void)
{
	return (uint32_t)rng_next(&entropy);
}

static void entropy_buf(void *buf, size_t len)
{
	uint8_t *at = buf;

	refills++;
	for (size_t i = 0; i < len; i++)
		at[i] = (uint8_t)rng_next(&entropy);
}

static struct randombytes_implementation seeded = {
	.implementation_name = entropy_name,
	.random = entropy_random,
	.buf = entropy_buf,
};

void seed_entropy(uint64_t seed)
{
	unsigned before, since = 0;

	randombytes_set_implementation(&seeded);
	before = refills;
	while (refills == before)
		net_random();
	while (++since < 64) /* the stack draws 64 at a time */
		net_random();
	entropy.state = seed ^ UINT64_C(0x5eed);
}
