/*
 * The life of a card's link while the program runs: carrier lost and back, and
 * the card taken away (link_watch.c). Private to dpdk_glue/.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/*
 * From here to the end DPDK's interrupt thread looks at the carrier twice a
 * second, logs each change and counts the losses. A card bound to vfio-pci that
 * the machine takes away is stopped and given up; the device stays, without
 * frames.
 */
void glue_link_watch(struct glue_device *device);

/*
 * Stops and closes a card's port and removes it from DPDK, so that VFIO lets
 * the machine take the card away. No thread may be in a burst of the port.
 */
void glue_card_release(uint16_t port_id);

/* Waits for a look under way. */
void glue_link_unwatch(struct glue_device *device);
