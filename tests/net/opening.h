/*
 * Helpers for tests of handshakes: a SYN from port 1000 to port 7, its answer,
 * and the resulting state.
 */
#pragma once

#include "tests/net/repair.h"

#define NEAR_WRAP 0xffffffffu /* the SYN is the last number */

/* MSS 1460, a window scale of 7, SACK. */
extern const uint8_t all_options[12];

/* Sends a SYN with all options, takes the answer, and sets `peer` up. */
struct segment open_handshake(void);
/* Sends a segment of the peer with any sequence number and a window of 500. */
void send_segment(uint8_t flags, uint32_t seq, uint32_t ack, const char *data);
/* Returns the connection from that port, or NULL. */
struct net_conn *find_conn(uint16_t port);
/* Discards the stack's segments. */
void discard_frames(void);
/* Checks that no half-open connection is left, or that one is. */
void expect_gone(void);
void expect_half_open(void);
