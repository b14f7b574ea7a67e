/*
 * The budget of memory.
 */
#include "netstack/net_priv.h"

uint64_t net_budget_elsewhere(void)
{
	return net_the.sched ? coro_sched_memory(net_the.sched) : 0;
}

void net_budget_changed(void)
{
}
