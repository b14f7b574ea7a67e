/*
 * A path with a bottleneck between a connection of the stack and a peer: a
 * bounded queue, a rate, random losses, and a delay. The peer acknowledges
 * every segment. The clock is virtual.
 */
#pragma once

#include "tests/net/repair.h"
#include "tests/net/rival.h"

struct bottleneck {
	double rate;	    /* bytes a second */
	int64_t delay_ns;   /* of both directions together */
	double queue;	    /* bytes; packets beyond are dropped */
	unsigned per_mille; /* lost at random */
	unsigned scale;	    /* of the peer's window of 65535; 0: seven */
	unsigned mss;	    /* of the peer; 0: MSS */
	unsigned seed;	    /* of the losses */
	unsigned late_ms; /* ms for which the stack pauses, about each 30 ms */
	struct rival *rival; /* shares the queue, unless NULL; borrowed */
	/* counters */
	uint64_t sent, dropped; /* bytes; resent ones count */
	uint64_t delivered;	/* in order */
	double longest;		/* longest queue, in bytes */
};

/* Opens a connection whose handler sends `bytes` bytes. */
void bottleneck_connect(struct bottleneck *path, size_t bytes);
/* Advances the clock by ms, in steps of a quarter. */
void bottleneck_run(struct bottleneck *path, unsigned ms);
/* Called for each packet that leaves, unless NULL. */
extern void (*bottleneck_sees)(int64_t now_ns, unsigned bytes);
