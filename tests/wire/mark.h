/*
 * Marks a packet "congestion experienced", as a router with a long queue does
 * (RFC 3168 5).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * frame is len contiguous bytes, which may be the beginning alone. Marks an
 * ECN-capable packet, and updates IPv4's checksum. Returns whether it did:
 * false if the packet is not IP, not ECN-capable, or marked already.
 */
bool wire_mark(uint8_t *frame, unsigned len);
