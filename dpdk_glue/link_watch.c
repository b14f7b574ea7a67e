/*
 * Watches the carriers of links, releases cards that are removed, and restarts
 * those that are reset.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_event_callback_register() */
#include "dpdk_glue/link_watch.h"

#include <errno.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_errno.h>

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

/* ---- reset ---- */

/* The physical function may have given the card another address meanwhile. */
static void restore_mac(const struct glue_device *device)
{
	struct rte_ether_addr addr = {0};
	int rc = rte_eth_macaddr_get(device->id, &addr);

	if (rc < 0 ||
	    memcmp(addr.addr_bytes, device->mac, sizeof(device->mac)) == 0)
		return;
	memcpy(addr.addr_bytes, device->mac, sizeof(device->mac));
	rc = rte_eth_dev_default_mac_addr_set(device->id, &addr);
	if (rc < 0)
		glue_log_line("link %s:%s: the card got another MAC address, "
			      "and refuses its old one: %s",
			      glue_link_kind_name(device->link->kind),
			      device->link->name, rte_strerror(-rc));
}

/* Drivers without a reset of their own, such as igb's, do it when they start.
 */
static int restart_card(struct glue_device *device, char *err, size_t err_len)
{
	int rc = rte_eth_dev_reset(device->id);

	if (rc == -ENOTSUP)
		rc = rte_eth_dev_stop(device->id);
	if (rc < 0)
		return glue_fail(err, err_len, rc, "%s", rte_strerror(-rc));
	rc = glue_port_setup(device, err, err_len);
	if (rc == 0)
		restore_mac(device);
	return rc;
}

/*
 * The shards must not poll the port meanwhile, and DPDK forbids the reset in
 * its callback. The card refuses it as long as its physical function is down.
 */
static void reset_card(void *arg)
{
	struct glue_device *device = arg;
	bool repeated = device->in_reset, was_up = device->carrier;
	char err[200];
	int rc;

	if (device->gone)
		return;
	rte_eal_alarm_cancel(reset_card, device); /* a second event's */
	device->in_reset = true;
	set_carrier(device, false);
	__atomic_store_n(&device->n_active, 0, __ATOMIC_RELEASE);
	if (was_up)
		glue_log_line("link %s:%s: down, the card was reset",
			      glue_link_kind_name(device->link->kind),
			      device->link->name);
	if (!glue_sync_works())
		return; /* a burst may be under way */
	glue_sync_wait();
	pthread_mutex_lock(&device->port_lock);
	rc = restart_card(device, err, sizeof(err));
	pthread_mutex_unlock(&device->port_lock);
	if (rc < 0) {
		if (!repeated)
			glue_log_line("link %s:%s: the card does not start "
				      "again (%s); more attempts follow",
				      glue_link_kind_name(device->link->kind),
				      device->link->name, err);
		rte_eal_alarm_set(LOOK_US, reset_card, device);
		return;
	}
	device->in_reset = false;
	__atomic_store_n(&device->n_active, device->n_queues, __ATOMIC_RELEASE);
}

static int on_reset(uint16_t id, enum rte_eth_event_type type, void *arg,
		    void *ret)
{
	(void)id, (void)type, (void)ret;
	return rte_eal_alarm_set(1, reset_card, arg);
}

/* ---- looks at the carrier ---- */

/*
 * If a physical function is reset, its virtual functions lose their carrier and
 * their queues. igb's driver does not report that: it compares the interrupt's
 * cause with a wrong value.
 */
static bool hides_resets(const struct glue_device *device)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(device->id, &info) == 0 &&
	       strcmp(info.driver_name, "net_e1000_igb_vf") == 0;
}

/*
 * A card that may have been reset in silence is restarted when its carrier is
 * back, and again half a second later: the kernel does not answer the first
 * request of a function whose physical function it has just started, and the
 * driver does not report that either.
 */
static void poll_carrier(void *arg)
{
	struct glue_device *device = arg;
	bool up = !device->in_reset && has_carrier(device);
	bool changed = up != device->carrier;

	if (changed && !up && hides_resets(device))
		device->restarts_due = 2;
	if (up && device->restarts_due > 0) {
		device->restarts_due--;
		reset_card(device);
	} else {
		set_carrier(device, up);
		if (changed)
			log_state(device);
	}
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

	if (device->gone)
		return; /* both of DPDK's events came */
	rte_eal_alarm_cancel(poll_carrier, device);
	rte_eal_alarm_cancel(reset_card, device);
	set_carrier(device, false);
	__atomic_store_n(&device->n_active, 0, __ATOMIC_RELEASE);
	glue_log_line("link %s:%s: the card was removed from the machine",
		      glue_link_kind_name(device->link->kind),
		      device->link->name);
	if (!glue_sync_works())
		return; /* a burst may be under way: it stays until the end */
	glue_sync_wait();
	pthread_mutex_lock(&device->port_lock);
	device->gone = true;
	pthread_mutex_unlock(&device->port_lock);
	glue_card_release(device->id); /* slow if the card does not respond */
}

static void on_event(const char *name, enum rte_dev_event_type type, void *arg)
{
	(void)name;
	if (type == RTE_DEV_EVENT_REMOVE)
		rte_eal_alarm_set(1, give_up, arg);
}

/* Drivers that share the card with the kernel report the removal themselves. */
static int on_removal(uint16_t id, enum rte_eth_event_type type, void *arg,
		      void *ret)
{
	(void)id, (void)type, (void)ret;
	return rte_eal_alarm_set(1, give_up, arg);
}

/* ---- beginning and end ---- */

/* DPDK reports a removal by its own name of the device, such as an address. */
static const char *card_name(const struct glue_device *device)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(device->id, &info) < 0 || !info.device)
		return device->link->name;
	return rte_dev_name(info.device);
}

void glue_link_watch(struct glue_device *device)
{
	if (device->link->kind != GLUE_LINK_BOND &&
	    !glue_link_is_port(device->link))
		return;
	device->carrier = has_carrier(device);
	device->watched = true;
	rte_eal_alarm_set(LOOK_US, poll_carrier, device);
	if (!glue_link_is_port(device->link))
		return;
	rte_dev_event_callback_register(card_name(device), on_event, device);
	rte_eth_dev_callback_register(device->id, RTE_ETH_EVENT_INTR_RMV,
				      on_removal, device);
	rte_eth_dev_callback_register(device->id, RTE_ETH_EVENT_INTR_RESET,
				      on_reset, device);
}

static void ignore_events(struct glue_device *device)
{
	if (device->gone)
		return; /* DPDK forgot them with the card */
	rte_dev_event_callback_unregister(card_name(device), on_event, device);
	rte_eth_dev_callback_unregister(device->id, RTE_ETH_EVENT_INTR_RMV,
					on_removal, device);
	rte_eth_dev_callback_unregister(device->id, RTE_ETH_EVENT_INTR_RESET,
					on_reset, device);
}

void glue_link_unwatch(struct glue_device *device)
{
	if (!device->watched)
		return;
	if (glue_link_is_port(device->link))
		ignore_events(device);
	rte_eal_alarm_cancel(give_up, device);
	rte_eal_alarm_cancel(reset_card, device);
	rte_eal_alarm_cancel(poll_carrier, device);
}
