/*
 * A path with a bottleneck, between a connection of the stack and a peer that
 * takes all: a queue of so many bytes that so many a second leave, losses at
 * random, and a delay. The clock is virtual.
 */
#pragma once

#include "tests/net/repair.h"
#include "tests/net/rival.h"

struct bottleneck {
	double rate;	     /* bytes a second */
	int64_t delay_ns;    /* of both directions together */
	double queue;	     /* bytes; what comes beyond is dropped */
	unsigned per_mille;  /* lost at random */
	unsigned scale;	     /* of the peer's window of 65535; 0: seven */
	unsigned mss;	     /* that the peer takes; 0: MSS */
	unsigned seed;	     /* of the losses */
	unsigned late_ms;    /* each 30 ms or so the stack is not run so long */
	struct rival *rival; /* shares the queue, unless NULL; borrowed */
	/* what has happened */
	uint64_t sent, dropped; /* bytes; resent ones count */
	uint64_t delivered;	/* in order */
	double longest;		/* bytes that were queued at most */
};

/* A handler that sends for as long as `to_send` bytes have not gone. */
void bottleneck_connect(struct bottleneck *path, size_t bytes);
/* Lets so many ms pass, in steps of a quarter. */
void bottleneck_run(struct bottleneck *path, unsigned ms);
/* What leaves is told to this, if it is not NULL. */
extern void (*bottleneck_sees)(int64_t now_ns, unsigned bytes);
