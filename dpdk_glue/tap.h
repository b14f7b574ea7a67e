/*
 * Keeps a TAP link alive. Private to dpdk_glue/.
 *
 * net_tap reads frames only after a signal that the kernel sends with each
 * frame it queues. One that is lost leaves the port deaf: the kernel has no
 * room for another frame, so it sends no other signal. This happens where the
 * pool of frames was empty for a moment, and where the user's limit of queued
 * signals is reached, which ends the process besides (SIGIO). So DPDK's
 * interrupt thread calls the signal's handler ten times a second as well.
 */
#pragma once

#include "dpdk_glue/port_priv.h"

/* Before a TAP is made. Leaves SIGIO alone if the program handles it. */
void glue_tap_prepare(void);

/* Looks after a TAP's device, opened and started, until unwatched. */
void glue_tap_watch(struct glue_device *device);
void glue_tap_unwatch(struct glue_device *device);
