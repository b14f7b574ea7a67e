/*
 * Keeps a TAP link alive. Private to dpdk_glue/.
 *
 * net_tap reads frames only after a signal that the kernel sends with each
 * frame it queues. If a signal is lost, the port receives nothing any more: the
 * kernel has no room for another frame, so it sends no further signal. This
 * happens when the pool of frames was empty for a moment, and when the user's
 * limit of queued signals is reached, which also ends the process (SIGIO). So
 * DPDK's interrupt thread calls the signal's handler ten times a second as
 * well.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/*
 * Called before a TAP is made. Does not change SIGIO if the program handles it.
 */
void glue_tap_prepare(void);

/*
 * Begins to poll a TAP's device, which is open and started, until
 * glue_tap_unwatch().
 */
void glue_tap_watch(struct glue_device *device);
void glue_tap_unwatch(struct glue_device *device);
