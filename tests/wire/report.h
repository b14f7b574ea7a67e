/* The report of a wire's counters, at its end and on request. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "tests/wire/opts.h"

#define WIRE_LATE_NS 1000000

/*
 * One direction. in_frames + duplicated = out_frames + too_big + lost + down +
 * queue_dropped + overflowed + no_frame + under_way.
 */
struct wire_counts {
	struct wire_stats model;
	uint64_t out_frames, out_bytes; /* handed to a port, or several */
	uint64_t reported;		/* of too_big: reported to the sender */
	uint64_t marked;		/* CE, RFC 3168 */
	uint64_t overflowed;		/* --hold was too little */
	uint64_t no_frame;		/* a port had no frame left */
	uint64_t under_way;		/* held now, or when the wire ended */
	uint64_t late;	   /* of out_frames: by more than WIRE_LATE_NS */
	uint64_t late_max; /* ns */
	uint64_t missed;   /* lost by the port before the wire saw them */
	uint64_t refused;  /* of out_frames: the port took no more */
};

/* The run time, and the part of it with frames to forward. */
struct wire_times {
	int64_t ran_ns, busy_ns;
};

/* Writes text to stdout, and JSON to opts->json; returns 0 or -errno. */
int wire_report(const struct wire_opts *opts, const struct wire_times *times,
		const struct wire_counts counts[WIRE_ENDS]);

/* Writes the JSON as one line to stdout, during the run; 0 or -ENOMEM. */
int wire_report_now(const struct wire_opts *opts,
		    const struct wire_times *times,
		    const struct wire_counts counts[WIRE_ENDS]);
