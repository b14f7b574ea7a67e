/*
 * lwIP's pools: each type of object is allocated from slabs.
 */
#include "netstack/lwip/pcb_priv.h"

#include "lwip/memp.h"
#include "lwip/etharp.h"
#include "lwip/igmp.h"
#include "lwip/udp.h"
#include "lwip/mld6.h"
#include "lwip/nd6.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/priv/memp_priv.h"

#include "netstack/tcp/tcp.h"

static const struct {
	uint32_t limit, size;
} memp_types[MEMP_MAX] = {
#define LWIP_MEMPOOL(name, num, size, desc)                                    \
	[MEMP_##name] = {(uint32_t)(num), (uint32_t)(size)},
#include "lwip/priv/memp_std.h"
};

static uint32_t round_to(uint32_t size, uint32_t unit)
{
	return (size + unit - 1) / unit * unit;
}

void net_memp_init(void)
{
	for (unsigned i = 0; i < MEMP_MAX; i++)
		net_mem_pool_init(i, round_to(memp_types[i].size, 16),
				  memp_types[i].limit);
	net_mem_pool_init(MEMP_PBUF, NET_EXTBUF_PBUF_SIZE,
			  memp_types[MEMP_PBUF].limit);
	net_mem_pool_init(MEMP_TCP_SEG, round_to(sizeof(struct net_seg), 64),
			  memp_types[MEMP_TCP_SEG].limit);
	/* --max-conns bounds pcbs */
	net_mem_pool_init(MEMP_TCP_PCB, round_to(sizeof(struct net_conn), 64),
			  UINT32_MAX);
}

/* lwIP's segment with what loss recovery keeps of it. */
static void *seg_alloc(void)
{
	struct net_seg *seg = net_mem_pool_alloc(MEMP_TCP_SEG);

	if (seg)
		seg->state = 0;
	return seg;
}

void memp_init(void)
{
}

static void *alloc_pbuf(void)
{
	void *mem = net_mem_pool_alloc(MEMP_PBUF);

	if (mem)
		net_extbuf_pbuf_made(mem);
	return mem;
}

void *memp_malloc(memp_t type)
{
	if (type == MEMP_TCP_PCB) {
		if (!net_orphan_make_room()) {
			net_here()->stats.no_memory++;
			return NULL;
		}
		return net_conn_alloc();
	}
	if (type == MEMP_PBUF)
		return alloc_pbuf();
	if (type == MEMP_TCP_SEG)
		return seg_alloc();
	return net_mem_pool_alloc(type);
}

void memp_free(memp_t type, void *mem)
{
	if (!mem)
		return;
	if (type == MEMP_TCP_PCB) {
		net_conn_pcb_freed(mem);
		return;
	}
	if (type == MEMP_TCP_SEG) {
		net_seg_freed(mem);
		return;
	}
	if (type == MEMP_PBUF)
		net_extbuf_pbuf_freed(mem);
	net_mem_free(mem);
}

void *memp_malloc_pool(const struct memp_desc *desc)
{
	return NULL; /* custom pools: this build has none */
}

void memp_free_pool(const struct memp_desc *desc, void *mem)
{
}
