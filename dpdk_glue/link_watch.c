/*
 * Watches the carriers of links, and releases cards that are removed.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_event_callback_register() */
#include "dpdk_glue/link_watch.h"

#include <rte_alarm.h>
#include <rte_dev.h>

#include "dpdk_glue/bond.h"

#define LOOK_US 500000

/* ---- carrier ---- */

static void log_state(const struct glue_device *device)
{
	if (!device->carrier)
		glue_log_line("link %s:%s: down, no carrier",
			      glue_link_kind_name(device->link->kind),
			      device->link->name);
	else if (!device->speed_mbps || device->link->kind == GLUE_LINK_BOND)
		glue_log_line("link %s:%s: up",
			      glue_link_kind_name(device->link->kind),
			      device->link->name);
	else
		glue_log_line("link %s:%s: up, %u Mbit/s",
			      glue_link_kind_name(device->link->kind),
			      device->link->name, device->speed_mbps);
}

/* Called on DPDK's interrupt thread only. */
static void set_carrier(struct glue_device *device, bool up)
{
	if (device->carrier && !up)
		__atomic_fetch_add(&device->carrier_losses, 1,
				   __ATOMIC_RELAXED);
	__atomic_store_n(&device->carrier, up, __ATOMIC_RELAXED);
}

static bool ask_driver(const struct glue_device *device, unsigned *speed_mbps)
{
	struct rte_eth_link link = {0};
	bool known = rte_eth_link_get_nowait(device->id, &link) == 0;

	*speed_mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN
			      ? 0
			      : link.link_speed;
	return known && link.link_status == RTE_ETH_LINK_UP;
}

static bool has_carrier(struct glue_device *device)
{
	unsigned speed_mbps;
	bool up = ask_driver(device, &speed_mbps);

	__atomic_store_n(&device->speed_mbps, speed_mbps, __ATOMIC_RELAXED);
	return device->link->kind == GLUE_LINK_BOND ? glue_bond_look(device)
						    : up;
}

/*
 * DPDK's drivers do not lock the registers that report the carrier: two threads
 * that ask an e1000e at once read that there is none. So a port that is watched
 * is not asked again.
 */
bool glue_device_up(const struct glue_device *device, unsigned *speed_mbps)
{
	if (!device->watched)
		return ask_driver(device, speed_mbps);
	*speed_mbps = __atomic_load_n(&device->speed_mbps, __ATOMIC_RELAXED);
	return __atomic_load_n(&device->carrier, __ATOMIC_RELAXED);
}

static void poll_carrier(void *arg)
{
	struct glue_device *device = arg;
	bool up = has_carrier(device), changed = up != device->carrier;

	set_carrier(device, up);
	if (changed)
		log_state(device);
	rte_eal_alarm_set(device->link->kind == GLUE_LINK_BOND
				  ? GLUE_BOND_LOOK_US
				  : LOOK_US,
			  poll_carrier, device);
}

/* ---- removal ---- */

void glue_card_release(uint16_t port_id)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port_id, &info) != 0)
		return;
	rte_eth_dev_stop(port_id);
	rte_eth_dev_close(port_id);
	rte_dev_remove(info.device);
}

/*
 * VFIO delays the removal until the program has closed the card. This does not
 * run in DPDK's callback, since the device that would be closed calls that.
 */
static void give_up(void *arg)
{
	struct glue_device *device = arg;

	rte_eal_alarm_cancel(poll_carrier, device);
	set_carrier(device, false);
	__atomic_store_n(&device->n_active, 0, __ATOMIC_RELEASE);
	glue_log_line("link %s:%s: the card has been taken away",
		      glue_link_kind_name(device->link->kind),
		      device->link->name);
	if (!glue_sync_works())
		return; /* a burst may be under way: it stays until the end */
	glue_sync_wait();
	pthread_mutex_lock(&device->port_lock);
	device->gone = true;
	glue_card_release(device->id);
	pthread_mutex_unlock(&device->port_lock);
}

static void on_event(const char *name, enum rte_dev_event_type type, void *arg)
{
	(void)name;
	if (type == RTE_DEV_EVENT_REMOVE)
		rte_eal_alarm_set(1, give_up, arg);
}

/* ---- beginning and end ---- */

void glue_link_watch(struct glue_device *device)
{
	if (device->link->kind != GLUE_LINK_BOND &&
	    !glue_link_is_port(device->link))
		return;
	device->carrier = has_carrier(device);
	device->watched = true;
	rte_eal_alarm_set(LOOK_US, poll_carrier, device);
	if (device->link->kind == GLUE_LINK_PCI)
		rte_dev_event_callback_register(device->link->name, on_event,
						device);
}

void glue_link_unwatch(struct glue_device *device)
{
	if (!device->watched)
		return;
	if (device->link->kind == GLUE_LINK_PCI)
		rte_dev_event_callback_unregister(device->link->name, on_event,
						  device);
	rte_eal_alarm_cancel(give_up, device);
	rte_eal_alarm_cancel(poll_carrier, device);
}
