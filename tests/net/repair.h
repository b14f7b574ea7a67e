/*
 * Helpers for tests of loss recovery: a connection whose sequence numbers are
 * about to wrap, a handler that sends, and a peer that acknowledges by hand.
 * Segments are numbered from 0.
 */
#pragma once

#include "tests/net/peer.h"

#define MSS	1000u
#define RTT_MS	20u
#define STREAM	400000u
#define NO_SACK false

extern struct peer peer;
extern struct net_conn *ours; /* the stack's side */
extern uint32_t base;	      /* sequence number of segment 0 */
extern size_t to_send;	      /* bytes that the handler sends before it waits */

/* Setup: a connection with an RTT of RTT_MS; `to_send` bytes follow. */
void repair_connect(bool sack, size_t bytes);

/* Bytes of the stream the handler sends. */
uint8_t stream_byte(size_t at);

/*
 * Takes the stack's segments: writes their numbers, in order, to out. Returns
 * their count; fails above max.
 */
unsigned take_sent(unsigned *out, unsigned max);

/* Fails unless exactly these segments have been sent. */
void expect_sent(unsigned n, const unsigned *numbers);
#define EXPECT_SENT(...)                                                       \
	expect_sent(sizeof((unsigned[]){__VA_ARGS__}) / sizeof(unsigned),      \
		    (const unsigned[]){__VA_ARGS__})

/* Acknowledges all segments before n, with SACK blocks [from, to), in pairs. */
void ack_to(unsigned n, unsigned blocks, const unsigned *edges);
#define ACK(n) ack_to(n, 0, NULL)
#define ACK_SACK(n, ...)                                                       \
	ack_to(n, sizeof((unsigned[]){__VA_ARGS__}) / sizeof(unsigned) / 2,    \
	       (const unsigned[]){__VA_ARGS__})

/* The same with raw sequence numbers. */
void ack_raw(uint32_t ack, unsigned blocks, const uint32_t *edges);
