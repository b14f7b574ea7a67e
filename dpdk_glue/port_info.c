/* Information about a port from DPDK, as text for people. */
#include "dpdk_glue/bond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

static void read_state(const struct glue_device *device,
		       struct glue_port_info *out)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(device->id, &info) == 0 && info.driver_name)
		snprintf(out->driver, sizeof(out->driver), "%s",
			 info.driver_name);
	out->up = glue_device_up(device, &out->speed_mbps);
}

static bool enter_device(struct glue_device *device)
{
	if (glue_link_is_port(device->link))
		rte_eal_iopl_init();
	return glue_device_enter(device);
}

void glue_port_info(struct glue_port *port, struct glue_port_info *out)
{
	struct glue_device *device = port->device;

	*out = (struct glue_port_info){
		.mtu = device->mtu,
		.queues = device->n_queues,
		.rss = device->rss,
		.hw_csum = device->hw_csum,
		.tso = device->tso,
		.watched = device->watched,
		.carrier_losses = __atomic_load_n(&device->carrier_losses,
						  __ATOMIC_RELAXED),
	};
	snprintf(out->link, sizeof(out->link), "%s:%s",
		 glue_link_kind_name(device->link->kind), device->link->name);
	memcpy(out->mac, device->mac, sizeof(out->mac));
	out->sender_changes =
		glue_bond_sender(device, out->sender, sizeof(out->sender));
	if (!enter_device(device))
		return;
	read_state(device, out);
	glue_device_leave(device);
}

static unsigned read_xstats(uint16_t id, struct glue_xstat *out, unsigned max)
{
	int n = rte_eth_xstats_get_names(id, NULL, 0);
	struct rte_eth_xstat_name *names;
	struct rte_eth_xstat *values;
	unsigned filled = 0;

	if (n <= 0)
		return 0;
	names = calloc((size_t)n, sizeof(*names));
	values = calloc((size_t)n, sizeof(*values));
	if (names && values &&
	    rte_eth_xstats_get_names(id, names, (unsigned)n) == n &&
	    rte_eth_xstats_get(id, values, (unsigned)n) == n)
		for (; filled < max && filled < (unsigned)n; filled++) {
			uint64_t at = values[filled].id;

			snprintf(out[filled].name, sizeof(out[filled].name),
				 "%s", at < (unsigned)n ? names[at].name : "?");
			out[filled].value = values[filled].value;
		}
	free(names);
	free(values);
	return filled;
}

unsigned glue_port_xstats(struct glue_port *port, struct glue_xstat *out,
			  unsigned max)
{
	unsigned filled;

	if (!enter_device(port->device))
		return 0;
	filled = read_xstats(port->id, out, max);
	glue_device_leave(port->device);
	return filled;
}
