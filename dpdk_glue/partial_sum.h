/*
 * Partial checksums: a virtual peer leaves the checksums of TCP and UDP to a
 * NIC, but a virtual link has none. The field then holds the sum of the
 * pseudo-header, as with Linux's CHECKSUM_PARTIAL.
 */
#pragma once

#include "dpdk_glue/check.h"

/*
 * Returns whether a frame that passed glue_check() has a partial sum, and a
 * correct one in its IPv4 header. l4: as glue_check() has set it.
 */
bool glue_has_partial_sum(const struct glue_frame *frame,
			  const struct glue_l4 *l4);

/*
 * Completes the checksum of a frame that leaves this program, if it is partial.
 * frame: from glue_rx(), borrowed; its segments may have been split.
 */
void glue_complete_sum(const struct glue_frame *frame);
