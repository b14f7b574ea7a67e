/*
 * Router advertisements (RFC 4861 4.2), with the options that hosts use (RFC
 * 4191 2.2, RFC 8106 5.1): reads them into a struct. There is no state and no
 * I/O.
 *
 * Addresses are 16 bytes as on the wire; times are in seconds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_RA_FIXED	16u /* bytes before the options */
#define NET_RA_PREFIXES 8u
#define NET_RA_SERVERS	8u	   /* name servers */
#define NET_RA_INFINITE UINT32_MAX /* a lifetime that does not end */

/* A network of unicast addresses that is not link-local. */
struct net_ra_prefix {
	uint8_t ip[16];	 /* no bit behind the prefix is set */
	uint8_t bits;	 /* 1 to 128 */
	bool on_link;	 /* hosts reach its addresses without a router */
	bool autonomous; /* hosts may form an address; preferred_s <= valid_s */
	uint32_t valid_s, preferred_s;
};

struct net_ra_server {
	uint8_t ip[16]; /* unicast, not link-local */
	uint32_t lifetime_s;
};

struct net_ra_msg {
	uint16_t router_s; /* 0: the sender is no default router */
	int8_t preference; /* RFC 4191: -1 low, 0 medium, 1 high */
	uint8_t n_prefixes, n_servers;
	bool has_mac;
	uint8_t mac[6]; /* the sender's, unicast */
	struct net_ra_prefix prefixes[NET_RA_PREFIXES];
	struct net_ra_server servers[NET_RA_SERVERS];
};

/*
 * Reads an ICMPv6 message. Keeps the first prefixes and name servers, as many
 * as *out has room for. Skips unknown options, and those with a length or value
 * that hosts must ignore by RFC 4861, RFC 4862 or RFC 8106. Any bytes are safe.
 * Returns 0 with *out filled, or -EBADMSG: it is no router advertisement, or an
 * option has the length 0 or goes beyond the message.
 */
int net_ra_read(const uint8_t *bytes, size_t len, struct net_ra_msg *out);
