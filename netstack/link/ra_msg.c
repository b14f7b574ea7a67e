/* Reads router advertisements. */
#include "netstack/link/ra_msg.h"

#include <errno.h>
#include <string.h>

#include "dpdk_glue/bytes.h"

/* Offsets of the fixed fields (RFC 4861 4.2). */
enum { AT_TYPE = 0, AT_CODE = 1, AT_FLAGS = 5, AT_LIFETIME = 6 };

enum { ROUTER_ADVERTISEMENT = 134 };
enum { OPTION_SOURCE_MAC = 1, OPTION_PREFIX = 3, OPTION_SERVERS = 25 };

/* Lengths of options are in units of eight bytes. */
#define UNIT	      8u
#define PREFIX_UNITS  4u
#define SERVERS_LEAST 3u /* one server */

enum { PREFIX_ON_LINK = 0x80, PREFIX_AUTONOMOUS = 0x40 };

/*
 * Neither a group nor link-local; nor from ::/64, which has the loopback, the
 * unspecified and the mapped addresses.
 */
static bool is_global_unicast(const uint8_t ip[16])
{
	static const uint8_t zero[8];

	return ip[0] != 0xff && !(ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80) &&
	       memcmp(ip, zero, 8) != 0;
}

/* RFC 4191 2.2: the reserved value means medium. */
static int8_t read_preference(uint8_t flags)
{
	switch (flags >> 3 & 3) {
	case 1:
		return 1;
	case 3:
		return -1;
	default:
		return 0;
	}
}

/* Clears the bits behind a prefix. */
static void mask_prefix(uint8_t ip[16], unsigned bits)
{
	for (unsigned i = 0; i < 16; i++)
		if (bits < 8 * i)
			ip[i] = 0;
		else if (bits < 8 * (i + 1))
			ip[i] &= (uint8_t)(0xff00 >> (bits - 8 * i));
}

/* RFC 4861 4.6.2; RFC 4862 5.5.3 b and c. */
static void read_prefix(const uint8_t *option, struct net_ra_msg *out)
{
	struct net_ra_prefix prefix = {
		.bits = option[2],
		.on_link = option[3] & PREFIX_ON_LINK,
		.autonomous = option[3] & PREFIX_AUTONOMOUS,
		.valid_s = glue_get32(option + 4),
		.preferred_s = glue_get32(option + 8),
	};

	if (prefix.bits > 128 || out->n_prefixes == NET_RA_PREFIXES)
		return;
	memcpy(prefix.ip, option + 16, 16);
	mask_prefix(prefix.ip, prefix.bits);
	if (!is_global_unicast(prefix.ip))
		return;
	if (prefix.preferred_s > prefix.valid_s)
		prefix.autonomous = false;
	out->prefixes[out->n_prefixes++] = prefix;
}

/* RFC 4861 4.6.1. */
static void read_mac(const uint8_t *option, struct net_ra_msg *out)
{
	static const uint8_t zero[6];

	if (option[1] != 1 || option[2] & 1 || memcmp(option + 2, zero, 6) == 0)
		return;
	memcpy(out->mac, option + 2, 6);
	out->has_mac = true;
}

/* RFC 8106 5.1 and 5.3.1. */
static void read_servers(const uint8_t *option, struct net_ra_msg *out)
{
	const uint8_t *end = option + UNIT * option[1];

	if (option[1] < SERVERS_LEAST || option[1] % 2 == 0)
		return;
	for (const uint8_t *at = option + UNIT;
	     at < end && out->n_servers < NET_RA_SERVERS; at += 16) {
		struct net_ra_server *server = &out->servers[out->n_servers];

		if (!is_global_unicast(at))
			continue;
		memcpy(server->ip, at, 16);
		server->lifetime_s = glue_get32(option + 4);
		out->n_servers++;
	}
}

int net_ra_read(const uint8_t *bytes, size_t len, struct net_ra_msg *out)
{
	struct net_ra_msg msg = {0};
	size_t at = NET_RA_FIXED;

	if (len < NET_RA_FIXED || bytes[AT_TYPE] != ROUTER_ADVERTISEMENT ||
	    bytes[AT_CODE] != 0)
		return -EBADMSG;
	msg.router_s =
		(uint16_t)(bytes[AT_LIFETIME] << 8 | bytes[AT_LIFETIME + 1]);
	msg.preference = read_preference(bytes[AT_FLAGS]);
	while (at < len) {
		const uint8_t *option = bytes + at;

		if (len - at < UNIT || option[1] == 0 ||
		    UNIT * option[1] > len - at)
			return -EBADMSG;
		if (option[0] == OPTION_PREFIX && option[1] == PREFIX_UNITS)
			read_prefix(option, &msg);
		else if (option[0] == OPTION_SERVERS)
			read_servers(option, &msg);
		else if (option[0] == OPTION_SOURCE_MAC)
			read_mac(option, &msg);
		at += UNIT * option[1];
	}
	*out = msg;
	return 0;
}
