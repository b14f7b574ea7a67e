/*
 * What is the same in every stand-in for dpdk_glue: an EAL that is always
 * there, a port that is always up, and flows that are all shard 0's.
 */
#include <string.h>

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

int glue_eal_start(const struct glue_eal_conf *conf, char *err, size_t err_len)
{
	return 0;
}

void glue_eal_stop(void)
{
}

bool glue_eal_huge(void)
{
	return false;
}

bool glue_port_link_up(struct glue_port *port)
{
	return true;
}

bool glue_port_hw_csum(const struct glue_port *port)
{
	return true;
}

unsigned glue_tx_flush(struct glue_port *port)
{
	return 0;
}

unsigned glue_link_mem_mib(const struct glue_link *link)
{
	return 64;
}

uint64_t glue_port_no_frame(const struct glue_port *port)
{
	return 0;
}

unsigned glue_port_frames_spare(const struct glue_port *port)
{
	return glue_port_frames(port) / 2;
}

void glue_port_stats(struct glue_port *port, struct glue_port_stats *out)
{
	memset(out, 0, sizeof(*out));
}
