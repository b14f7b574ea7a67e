/* A peer that sends data out of order, across the wrap of sequence numbers. */
#pragma once

#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u
#define FIRST	  (NEAR_WRAP + 1)

extern struct peer ahead_peer;
extern struct net_conn *ahead_conn; /* the connection of the latest handler */

/* Returns the stream's byte at an offset. */
uint8_t ahead_byte(uint32_t at);

/* Handlers: one reads to the end, one closes without reading. */
void ahead_read_all(struct net_conn *c, void *arg);
void ahead_read_nothing(struct net_conn *c, void *arg);

/* Opens a connection of a peer with or without SACK. */
void ahead_connect(net_handler handler, bool sack);
/* Sends bytes [from, to) of the stream. */
void ahead_put(uint32_t from, uint32_t to, uint8_t flags);

/* Expects an ACK of `ack` bytes with these blocks. */
#define SACKS(ack, ...) ahead_expect_sacks(ack, ##__VA_ARGS__, -1)
void ahead_expect_sacks(uint32_t ack, ...);
/* Checks that the stream has been read up to here, and no further. */
void ahead_expect_read(uint32_t len);
/* Checks the number of pieces held out of order. */
void ahead_expect_held(unsigned pieces);

/* Discards the segments sent to the peer. */
void ahead_drain(void);
int ahead_teardown(void **state);
