/*
 * A peer whose data comes before its turn, across the wrap of sequence numbers.
 */
#pragma once

#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u
#define FIRST	  (NEAR_WRAP + 1)

extern struct peer ahead_peer;
extern struct net_conn *ahead_conn; /* the last that a handler has had */

/* The stream's byte at a place. */
uint8_t ahead_byte(uint32_t at);

/* Handlers: reads to the end; closes with nothing read. */
void ahead_read_all(struct net_conn *c, void *arg);
void ahead_read_nothing(struct net_conn *c, void *arg);

/* A connection of a peer that takes SACK, or not. */
void ahead_connect(net_handler handler, bool sack);
/* Bytes [from, to) of the stream. */
void ahead_put(uint32_t from, uint32_t to, uint8_t flags);

/* The ACK that is sent now: of `ack` bytes, with these blocks. */
#define SACKS(ack, ...) ahead_expect_sacks(ack, ##__VA_ARGS__, -1)
void ahead_expect_sacks(uint32_t ack, ...);
/* The stream has been read up to here, and no further. */
void ahead_expect_read(uint32_t len);
/* So many pieces are held. */
void ahead_expect_held(unsigned pieces);

/* What the peer was sent is gone. */
void ahead_drain(void);
int ahead_teardown(void **state);
