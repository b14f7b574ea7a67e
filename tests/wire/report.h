/*
 * What wire tells at its end.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "tests/wire/opts.h"

/*
 * One direction. in_frames + duplicated = out_frames + lost + down +
 * queue_dropped + overflowed + no_frame + under_way.
 */
struct wire_counts {
	struct wire_stats model;
	uint64_t out_frames, out_bytes; /* handed to the port */
	uint64_t overflowed;		/* --hold was too little */
	uint64_t no_frame;		/* a port had no frame left */
	uint64_t under_way;		/* held when the wire ended */
	uint64_t missed;  /* lost by the port before the wire saw them */
	uint64_t refused; /* of out_frames: the port took no more */
};

/* As text to stdout, and as JSON to opts->json: 0 or -errno. */
int wire_report(const struct wire_opts *opts, int64_t ran_ns,
		const struct wire_counts counts[WIRE_ENDS]);
