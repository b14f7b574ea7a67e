/*
 * A far end behind a router whose link takes less than ours. The router drops
 * each packet that is too long, and reports it in an ICMP message or stays
 * silent. IPv4 or IPv6; for IPv6 the neighbour cache is filled beforehand.
 *
 * The stack under test sends a known stream to the far end, which checks each
 * byte and acknowledges what has arrived. One connection at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/net/peer.h"

#define FAR_STREAM 100000u /* bytes of the longest stream */

struct far {
	/* Set by the test; all zero at first. */
	bool v6;
	bool silent;   /* the router drops without a message */
	bool deaf;     /* the far end sends no ACK by itself */
	bool lies;     /* messages quote a sequence number never sent */
	bool sack;     /* the SYN permits SACK */
	unsigned mtu;  /* of the router's link; 0: any length passes */
	unsigned says; /* the MTU in messages; 0: the true one */
	uint16_t wnd;  /* the window each segment offers; first 65535 */
	uint8_t asks;  /* more flags of the SYN */
	uint8_t tos;   /* of packets of the far end: the traffic class */

	/* Kept by the far end. */
	uint16_t port;
	uint32_t snd, rcv;
	uint32_t base; /* sequence number of the stream's first byte; 0: none */
	uint8_t *map;  /* for each byte of the stream: 1 once it has arrived */
	uint8_t *times;	   /* for each byte of the stream: number of arrivals */
	unsigned largest;  /* bytes of the longest packet that got through */
	unsigned too_long; /* packets that did not */
	unsigned messages; /* ICMP messages sent */
	unsigned segments; /* that arrived with data */
	bool fin, df;	   /* a FIN has arrived; the last packet had DF set */
	unsigned fin_at;   /* the FIN's offset in the stream */
	uint8_t got_tos, got_flags; /* of the last packet */
};

extern struct far far;
extern size_t far_to_send;	  /* bytes of this test's stream */
extern struct net_conn *far_conn; /* the stack's end; set by the handler */

/* cmocka's setup and teardown: a stack that listens at port 7. */
int far_setup(void **state);
int far_setup_pmtud_off(void **state);
int far_teardown(void **state);

/* Writes `len` bytes of the stream, from offset `at` on. */
void far_fill(uint8_t *data, size_t len, size_t at);

/* A handler: sends the stream, then sleeps, so that the connection lives. */
void far_feed(struct net_conn *conn, void *arg);

/* The handshake, from `port`, with this MSS option. */
void far_connect(uint16_t port, unsigned mss);

/* Sends a segment without data; mss 0: without options. */
void far_say(uint8_t flags, unsigned mss);

/* The same with a few bytes, and no options. */
void far_say_data(const char *text);

/* Acknowledges nothing new, and reports [left, right) as held. */
void far_say_sack(uint32_t left, uint32_t right);

/* The router's message that `packet`, an IP packet, exceeds `mtu`. */
void far_complain(const uint8_t *packet, unsigned mtu);

/* IPv4 and TCP headers of the stream's first segment, 1500 bytes long, from
 * port 7 to port 1000: for far_complain(). */
void far_quote(uint8_t packet[40]);

/* The stack, router and far end for one millisecond. */
void far_pass_ms(void);

/* Passes time until the whole stream has arrived; returns how many
 * milliseconds that took. Fails the test at the limit. */
unsigned far_download(unsigned limit_ms);

/* Bytes of an IP header; the MSS that fits an MTU of 1500. */
unsigned far_ip_bytes(void);
unsigned far_full_mss(void);
