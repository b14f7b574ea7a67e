/* A peer with timestamps (RFC 7323). */
#pragma once

#include "tests/net/peer.h"

/* Two NOPs and the option, of any value. */
#define STAMP_BYTES 12u

extern struct peer stamped; /* the connection from port 1000 */
extern uint32_t stamp;	    /* its clock: the timestamp of its segments */

/*
 * Sends the peer's SYN, with an MSS of 1460 and SACK, and a timestamp if
 * has_stamp.
 */
void stamped_syn(uint8_t flags, bool has_stamp);

/* Does the handshake with the listener at port 7; its answer has an echo. */
void stamped_connect(void);

/*
 * Sends at stamped.snd, and advances it; or at any number, with any timestamp.
 */
void stamped_send(uint8_t flags, const char *data);
void stamped_send_at(uint32_t seq, uint8_t flags, const char *data,
		     uint32_t value);
/* The same with no option. */
void bare_send_at(uint32_t seq, uint8_t flags, const char *data);

/* Reads a segment's timestamp. */
bool has_stamp(const struct segment *s);
uint32_t stamp_of(const struct segment *s);
uint32_t echo_of(const struct segment *s);

/* Expects a segment with these flags, a timestamp, and this echo. */
struct segment expect_stamped(uint8_t flags, uint32_t echo);
