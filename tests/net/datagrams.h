/*
 * The peer of UDP tests: forges datagrams and ICMP errors, and reads those that
 * the stack sends. It is 10.0.0.2 and fd00::2, the stack 10.0.0.1 and fd00::1.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net_udp.h>

extern const struct net_addr udp_us4, udp_us6, udp_peer4, udp_peer6;

/* An address with another port. */
struct net_addr udp_at(struct net_addr addr, unsigned port);

/* cmocka's setup: a stack with both addresses and a MTU of 1,500. */
int udp_setup(void **state);

/* A datagram on the wire; lengths and checksums are right unless changed. */
struct datagram {
	struct net_addr from, to;
	uint8_t data[9000];
	unsigned len;
	unsigned udp_len;   /* the header's field; 0: the right one */
	bool no_sum;	    /* the checksum's field is 0 */
	bool bad_sum;	    /* it is wrong */
	bool partial_sum;   /* of the pseudo header alone, and trusted */
	bool to_all;	    /* an Ethernet broadcast */
	bool to_group;	    /* a multicast frame */
	unsigned options;   /* bytes of IPv4 options */
	unsigned icmp_type; /* as read: 0: it is UDP */
	unsigned icmp_code, icmp_mtu;
	bool df;
	uint8_t ttl, tos;
	uint8_t frame[9100]; /* as read: from the IP header on */
};

/* Sends it to the stack; returns whether dpdk_glue takes it. */
bool datagram_send(const struct datagram *d);
/* The same from the peer at a port, with a text. */
bool datagram_say(struct net_addr from, struct net_addr to, const char *text);
/*
 * Runs the stack until it has sent a datagram or an ICMP error; answers ARP and
 * neighbour solicitations meanwhile. Returns false if it sends none.
 */
bool datagram_next(struct datagram *out);
/*
 * Sends an ICMP error that quotes a datagram of the stack's; mtu: its field.
 */
void datagram_send_error(const struct datagram *quoted, unsigned type,
			 unsigned code, unsigned mtu);
