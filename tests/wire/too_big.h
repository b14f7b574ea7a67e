/*
 * A router's answer to a packet that is longer than the next link's MTU: ICMP
 * "fragmentation needed" (RFC 1191 4), ICMPv6 "packet too big" (RFC 4443 3.2).
 */
#pragma once

#include <stdint.h>

#define WIRE_TOO_BIG_MAX 590 /* bytes of Ethernet frame */

/*
 * frame is len contiguous bytes, which may be the beginning alone. Writes the
 * answer to out, WIRE_TOO_BIG_MAX bytes, and returns its length. Returns 0,
 * without an answer, if the packet is not IP, has no DF (a router would
 * fragment it, a wire cannot), is a later fragment or an ICMP error, or was
 * multicast. A wire has no address of its own: the answer's source is the
 * packet's destination.
 */
unsigned wire_too_big(const uint8_t *frame, unsigned len, unsigned mtu,
		      uint8_t *out);
