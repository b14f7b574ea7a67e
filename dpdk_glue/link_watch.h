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

/* Waits for a look under way. */
void glue_link_unwatch(struct glue_device *device);
