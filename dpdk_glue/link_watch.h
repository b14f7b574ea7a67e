/*
 * Watches a card's link while the program runs: the carrier, and the card's
 * removal and reset (link_watch.c). Private to dpdk_glue/.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/*
 * Until glue_link_unwatch(), DPDK's interrupt thread checks the carrier twice a
 * second, logs each change and counts the losses. A card that is removed from
 * the machine is stopped and released; the device stays, without frames. A card
 * that its physical function resets is configured and started again.
 */
void glue_link_watch(struct glue_device *device);

/*
 * Stops and closes a card's port and removes it from DPDK, so that VFIO lets
 * the machine take the card away. No thread may be in a burst of the port.
 */
void glue_card_release(uint16_t port_id);

/* Ends the watch; waits for a check under way. */
void glue_link_unwatch(struct glue_device *device);
