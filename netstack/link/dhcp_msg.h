/*
 * Messages of DHCP for IPv4 (RFC 2131, RFC 2132): reads them into a struct, and
 * writes them. There is no state and no I/O.
 *
 * Addresses are in network byte order, as in lwIP; times in seconds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_DHCP_SERVER_PORT 67u
#define NET_DHCP_CLIENT_PORT 68u

#define NET_DHCP_FIXED	   240u	 /* bytes before the options */
#define NET_DHCP_MAC_AT	   28u	 /* where the client's MAC is */
#define NET_DHCP_BYTES_MAX 1500u /* of a message that is read */
#define NET_DHCP_BYTES	   300u	 /* of each that is written: BOOTP's least */

#define NET_DHCP_ROUTERS  4u
#define NET_DHCP_SERVERS  8u	     /* name servers */
#define NET_DHCP_ROUTES	  16u	     /* of option 121 */
#define NET_DHCP_INFINITE UINT32_MAX /* a lease that does not end */

enum net_dhcp_type {
	NET_DHCP_DISCOVER = 1,
	NET_DHCP_OFFER,
	NET_DHCP_REQUEST,
	NET_DHCP_DECLINE,
	NET_DHCP_ACK,
	NET_DHCP_NAK,
};

/* A network beyond a router. */
struct net_dhcp_route {
	uint32_t to, via; /* via 0: the network is on the link (RFC 3442) */
	uint8_t bits;	  /* of `to`; no bit behind them is set */
};

/* A server's message. Zero: the option is missing. */
struct net_dhcp_msg {
	uint8_t type; /* an enum net_dhcp_type of servers */
	uint8_t mac[6];
	uint32_t xid;	 /* host byte order */
	uint32_t ip;	 /* yiaddr: the client's */
	uint32_t server; /* its identifier; never zero */
	uint8_t mask_bits;
	uint16_t mtu;
	uint32_t lease_s, t1_s, t2_s;
	uint8_t n_routers, n_servers, n_routes;
	bool has_routes; /* it has option 121, maybe without a route */
	uint32_t routers[NET_DHCP_ROUTERS], servers[NET_DHCP_SERVERS];
	struct net_dhcp_route routes[NET_DHCP_ROUTES];
};

/* A client's message. Zero leaves an option out. */
struct net_dhcp_out {
	uint8_t type;
	const uint8_t *mac; /* 6 bytes */
	uint32_t xid;	    /* host byte order */
	uint16_t secs;	    /* since the client began to ask */
	uint32_t ciaddr;    /* the address that the client uses */
	uint32_t wanted;    /* the address that it requests, or declines */
	uint32_t server;    /* the identifier of the chosen server */
};

/*
 * Reads a message, the payload of a UDP datagram from a server. Options may be
 * overloaded into `file` and `sname` (option 52), and long ones split (RFC
 * 3396). Keeps the first routers, name servers and routes, as many as *out has
 * room for. Any bytes are safe. Returns 0 with *out filled, or -EBADMSG: it is
 * no answer to an Ethernet client, it has no message type or server identifier,
 * or an option has a wrong length or value.
 */
int net_dhcp_read(const uint8_t *bytes, size_t len, struct net_dhcp_msg *out);

/* Writes a message with the list of options that net_dhcp_read() knows. */
void net_dhcp_write(const struct net_dhcp_out *msg,
		    uint8_t out[NET_DHCP_BYTES]);
