/*
 * Router advertisements, built by hand: the fixed part, then options in the
 * order in which they are added.
 */
#pragma once

#include <string.h>

#include "netstack/link/ra_msg.h"
#include "tests/bytes.h"

#define PREFIX ((const uint8_t *)"\xfd\x77\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
#define SERVER ((const uint8_t *)"\xfd\x77\0\0\0\0\0\0\0\0\0\0\0\0\0\x35")

struct ra_bytes {
	uint8_t data[1024];
	unsigned len;
};

/* Without options; flags: with the router's preference. */
static inline void ra_begin(struct ra_bytes *b, unsigned router_s,
			    unsigned flags)
{
	memset(b, 0, sizeof(*b));
	b->data[0] = 134;
	b->data[4] = 64;
	b->data[5] = (uint8_t)flags;
	put16(b->data + 6, router_s);
	b->len = NET_RA_FIXED;
}

/* An option with a value of len bytes, 6 or 8 * n + 6. */
static inline void ra_add(struct ra_bytes *b, unsigned type, const void *value,
			  unsigned len)
{
	b->data[b->len] = (uint8_t)type;
	b->data[b->len + 1] = (uint8_t)((len + 2) / 8);
	memcpy(b->data + b->len + 2, value, len);
	b->len += 2 + len;
}

static inline void ra_prefix(struct ra_bytes *b, const uint8_t ip[16],
			     unsigned bits, unsigned flags, uint32_t valid_s,
			     uint32_t preferred_s)
{
	uint8_t value[30] = {(uint8_t)bits, (uint8_t)flags};

	put32(value + 2, valid_s);
	put32(value + 6, preferred_s);
	memcpy(value + 14, ip, 16);
	ra_add(b, 3, value, sizeof(value));
}

/* ips: 16 bytes of each of n servers. */
static inline void ra_servers(struct ra_bytes *b, uint32_t lifetime_s,
			      const uint8_t *ips, unsigned n)
{
	uint8_t value[6 + 16 * 8] = {0};

	put32(value + 2, lifetime_s);
	memcpy(value + 6, ips, 16u * n);
	ra_add(b, 25, value, 6 + 16 * n);
}
