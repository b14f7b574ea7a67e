/*
 * What a router answers to a packet that is longer than its next link takes:
 * ICMP "fragmentation needed" (RFC 1191 4), ICMPv6 "packet too big" (RFC 4443
 * 3.2).
 */
#pragma once

#include <stdint.h>

#define WIRE_TOO_BIG_MAX 590 /* bytes of Ethernet frame */

/*
 * frame is len contiguous bytes, which may be the beginning alone. Writes the
 * answer to out, WIRE_TOO_BIG_MAX bytes, and returns its length; 0 where none
 * is due: what is no IP, has no DF (a router would cut it, this one cannot), is
 * a later fragment or an ICMP error, or went to many. A wire has no address of
 * its own: the answer comes from the one that the packet was for.
 */
unsigned wire_too_big(const uint8_t *frame, unsigned len, unsigned mtu,
		      uint8_t *out);
