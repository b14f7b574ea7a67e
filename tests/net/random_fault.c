/*
 * Failing allocations, from a drawn number on: one, or several in a row. None
 * when lives are compared, since prediction allocates less than lwIP.
 */
#include "tests/net/random.h"

unsigned fault_given;

static unsigned left, chance;
static uint64_t refused;
static struct rng rng;

void fault_arm(unsigned from, unsigned count, unsigned rate)
{
	fault_given = 0;
	if (differ_lives())
		from = 0;
	left = from ? count : 0;
	chance = rate;
	rng.state = from;
	refused = net_here()->stats.no_memory;
	net_mem_fail_after(from);
}

void fault_disarm(void)
{
	left = 0;
	net_mem_fail_after(0);
}

void fault_step(void)
{
	if (!left || net_here()->stats.no_memory == refused)
		return;
	fault_given += (unsigned)(net_here()->stats.no_memory - refused);
	refused = net_here()->stats.no_memory;
	if (--left)
		net_mem_fail_after(rng_between(&rng, 1, 2000 / chance));
}
