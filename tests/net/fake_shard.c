/*
 * What dpdk_glue does for shards, where every flow is shard 0's.
 */
#include "dpdk_glue/glue.h"

uint16_t glue_flow_fold(const void *addr_a, const void *addr_b,
			unsigned addr_len)
{
	return 0;
}

unsigned glue_flow_shard(uint16_t fold, uint16_t port_a, uint16_t port_b)
{
	return 0;
}

int glue_thread_enter(unsigned shard, char *err, size_t err_len)
{
	return 0;
}

void glue_thread_leave(void)
{
}

unsigned glue_link_shards_mem_mib(const struct glue_link *link,
				  unsigned n_shards)
{
	return 64 * n_shards;
}
