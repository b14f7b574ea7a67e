/*
 * Messages of a DHCP server, built by hand: the fixed part, then options in the
 * order in which they are added.
 */
#pragma once

#include <string.h>

#include "netstack/link/dhcp_msg.h"
#include "tests/bytes.h"

struct dhcp_bytes {
	uint8_t data[NET_DHCP_BYTES_MAX + 1];
	unsigned len;
};

/* Without options; ip: yiaddr. */
static inline void dhcp_begin(struct dhcp_bytes *b, uint32_t xid,
			      const uint8_t mac[6], const char ip[4])
{
	memset(b, 0, sizeof(*b));
	b->data[0] = 2;
	b->data[1] = 1;
	b->data[2] = 6;
	put32(b->data + 4, xid);
	memcpy(b->data + 16, ip, 4);
	memcpy(b->data + 28, mac, 6);
	memcpy(b->data + 236, "\x63\x82\x53\x63", 4);
	b->len = 240;
}

static inline void dhcp_add(struct dhcp_bytes *b, unsigned code,
			    const char *value, unsigned len)
{
	b->data[b->len] = (uint8_t)code;
	b->data[b->len + 1] = (uint8_t)len;
	memcpy(b->data + b->len + 2, value, len);
	b->len += 2 + len;
}

static inline void dhcp_add32(struct dhcp_bytes *b, unsigned code,
			      uint32_t value)
{
	uint8_t bytes[4];

	put32(bytes, value);
	dhcp_add(b, code, (const char *)bytes, 4);
}

static inline void dhcp_end(struct dhcp_bytes *b)
{
	b->data[b->len++] = 255;
}
