/*
 * Random lives of TLS connections: both ends are the stack's, and a mirror
 * gives each frame that it sends back to it, by a path that loses, repeats,
 * reorders and delays. The applications are those of random_app.c.
 *
 * random_tls.c        the program: contexts, ends, the mirror, a life
 * random_tls_check.c  what has to hold
 */
#pragma once

#include "tests/net/random.h"

/* An end that dials has an even index, and the one it reaches the next. */
static inline struct flow *tls_other(const struct flow *flow)
{
	return &life.flows[flow->index ^ 1];
}

/* What lives have shown, of all processes. */
struct tls_seen {
	uint64_t frames, pairs, whole; /* whole: all arrived, and both ends */
	uint64_t resumed, old;	       /* TLS 1.2 */
	uint64_t offloaded;	       /* steps of handshakes */
	uint64_t digest;	       /* of the last life's frames */
};
extern struct tls_seen *tls_seen;

/* ---- random_tls_check.c ---- */
void tls_check_pair(const struct flow *dialed);
void tls_check_end(void);
