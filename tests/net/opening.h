/*
 * What the tests of handshakes share: a SYN from port 1000 to port 7, whose
 * answer is taken, and what is known of it.
 */
#pragma once

#include "tests/net/repair.h"

#define NEAR_WRAP 0xffffffffu /* the SYN is the last number */

/* MSS 1460, a window scale of 7, SACK. */
extern const uint8_t all_options[12];

/* A SYN with all options is answered; `peer` goes on from there. */
struct segment begin(void);
/* The peer sends at any number, with a window of 500. */
void say(uint8_t flags, uint32_t seq, uint32_t ack, const char *data);
/* The connection from that port; NULL: there is none. */
struct net_conn *find(uint16_t port);
/* Forgets what the stack sends. */
void drain(void);
/* Nothing is left of it; or one half-open connection is. */
void expect_gone(void);
void expect_half_open(void);
