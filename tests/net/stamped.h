/*
 * A peer with timestamps (RFC 7323), for tests of what they are for.
 */
#pragma once

#include "tests/net/peer.h"

/* Two NOPs and the option, of any value. */
#define STAMP_BYTES 12u

extern struct peer stamped; /* the connection from port 1000 */
extern uint32_t stamp;	    /* its clock: the timestamp of what it sends */

/* The peer's SYN, with an MSS of 1460 and SACK, and its stamp if it has one. */
void stamped_syn(uint8_t flags, bool has_stamp);

/* The handshake with the listener at port 7; its answer bears an echo. */
void stamped_connect(void);

/* Sends at stamped.snd, which moves on; or anywhere, with any timestamp. */
void stamped_send(uint8_t flags, const char *data);
void stamped_send_at(uint32_t seq, uint8_t flags, const char *data,
		     uint32_t value);
/* The same with no option. */
void bare_send_at(uint32_t seq, uint8_t flags, const char *data);

/* What a segment bears. */
bool has_stamp(const struct segment *s);
uint32_t stamp_of(const struct segment *s);
uint32_t echo_of(const struct segment *s);

/* The next segment: has these flags, a stamp, and echoes this one. */
struct segment expect_stamped(uint8_t flags, uint32_t echo);
