/*
 * Detects a defect of DPDK's net_virtio.
 *
 * On a packed ring the driver describes a frame of several buffers by a table
 * beside the ring (an indirect descriptor), and leaves the number of an earlier
 * frame in the ring's entry, because it writes the new number into the table.
 * The device then returns the wrong number, and the driver soon sends nothing
 * more, without an error (seen with 22.11; later sources have the same lines).
 * The driver offers no way to choose a split ring, and shows only in its log
 * which ring it has negotiated.
 */
#pragma once

#include <stdbool.h>

/*
 * Make the driver log what it negotiates: the log is captured, and the port is
 * configured in between. The first call returns the old level, for the second.
 */
int glue_virtio_log_begin(void);
void glue_virtio_log_end(int level);

/*
 * Returns whether the captured log of a port's start shows net_virtio on packed
 * rings with indirect descriptors. If it does not show whether the latter were
 * negotiated, assumes that they were: hosts offer them by default.
 */
bool glue_virtio_stalls(const char *log);
