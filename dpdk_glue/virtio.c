/*
 * Finds out from net_virtio's log how it drives a card.
 */
#include "dpdk_glue/virtio.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_log.h>

#define LOG_TYPE "pmd.net.virtio.init"
#define INDIRECT (UINT64_C(1) << 28) /* VIRTIO_F_INDIRECT_DESC */

int glue_virtio_log_begin(void)
{
	int type = rte_log_register(LOG_TYPE); /* as the driver has */
	int level = type < 0 ? -1 : rte_log_get_level((uint32_t)type);

	if (level >= 0)
		rte_log_set_level((uint32_t)type, RTE_LOG_DEBUG);
	return level;
}

void glue_virtio_log_end(int level)
{
	int type = rte_log_register(LOG_TYPE);

	if (level >= 0 && type >= 0)
		rte_log_set_level((uint32_t)type, (uint32_t)level);
}

bool glue_virtio_stalls(const char *log)
{
	static const char features[] = "features after negotiate = ";
	const char *last = NULL;

	if (!strstr(log, "virtio: using packed ring"))
		return false;
	for (const char *at = log; (at = strstr(at, features));) {
		at += sizeof(features) - 1;
		last = at;
	}
	return !last || strtoull(last, NULL, 16) & INDIRECT;
}
