/*
 * NUMA nodes of CPUs and of cards.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_bus() */
#include "dpdk_glue/port_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus.h>
#include <rte_dev.h>

#include "dpdk_glue/pci.h"

#define NODES_MAX 64 /* NUMA nodes looked at */

int glue_node_of_cpu(int cpu)
{
	char path[64];

	for (int node = 0; cpu >= 0 && node < NODES_MAX; node++) {
		snprintf(path, sizeof(path),
			 "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
		if (access(path, F_OK) == 0)
			return node;
	}
	return SOCKET_ID_ANY;
}

/*
 * The node of a port that DPDK was given after --. Virtual devices have none:
 * DPDK names the node of the thread that has made them.
 */
static int node_of_port(const char *name)
{
	struct rte_eth_dev_info info;
	uint16_t id;

	if (rte_eth_dev_get_port_by_name(name, &id) < 0 ||
	    rte_eth_dev_info_get(id, &info) < 0 || !info.device ||
	    strcmp(rte_bus_name(rte_dev_bus(info.device)), "vdev") == 0)
		return -1;
	return rte_eth_dev_socket_id(id);
}

int glue_node_of_card(const struct glue_link *link)
{
	struct glue_link parts[GLUE_BOND_MEMBERS];
	struct glue_pci_device card;

	if (glue_link_parts(link, parts) == 0)
		return -1;
	if (parts[0].kind == GLUE_LINK_PORT)
		return node_of_port(parts[0].name);
	if (parts[0].kind != GLUE_LINK_PCI)
		return -1;
	glue_pci_read("", parts[0].name, &card);
	return card.node;
}

/*
 * Frames of a card on one NUMA node that a CPU of another handles cross the
 * bridge between the two.
 */
void glue_node_warn(const struct glue_device *device)
{
	int card = device->node;

	for (unsigned i = 0; card >= 0 && i < device->n_shards; i++) {
		int cpu = glue_eal_lcore(i), node = glue_node_of_cpu(cpu);

		if (node < 0 || node == card)
			continue;
		glue_log_line("link %s:%s: the card is on NUMA node %d, and "
			      "shard %u's CPU %d on node %d; choose a CPU of "
			      "node %d (--lcores)",
			      glue_link_kind_name(device->link->kind),
			      device->link->name, card, i, cpu, node, card);
		return; /* one line is enough */
	}
}
