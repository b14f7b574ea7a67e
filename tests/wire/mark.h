/*
 * What a router with a long queue does to a packet instead of dropping it:
 * "congestion experienced" (RFC 3168 5).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * frame is len contiguous bytes, which may be the beginning alone. Marks an
 * ECN-capable packet, and mends IPv4's checksum. Returns whether it did: not
 * what is no IP, is not ECN-capable, or is marked already.
 */
bool wire_mark(uint8_t *frame, unsigned len);
