/* Memory that is taken until receive windows are small. */
#pragma once

#include <cmocka.h>

#include "netstack/mem/mem.h"
#include "netstack/state.h"

#define BALLAST 4096u

static void *ballast[BALLAST];
static unsigned n_ballast;

static inline void take_ballast(void)
{
	assert_in_range(n_ballast, 0, BALLAST - 1);
	ballast[n_ballast] = net_mem_malloc(65000);
	assert_non_null(ballast[n_ballast++]);
}

static inline void free_ballast(void)
{
	while (n_ballast)
		net_mem_free(ballast[--n_ballast]);
}

/* Takes memory until no window opens beyond `limit` bytes. */
static inline void make_memory_short(uint32_t limit)
{
	net_budget_set(net_mem_bytes() + net_budget_elsewhere() + (64u << 20));
	while (net_here()->rcv_limit > limit) {
		take_ballast();
		net_budget_changed();
	}
}

static inline void free_memory(void)
{
	free_ballast();
	net_budget_set(0);
}
