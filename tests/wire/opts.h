/*
 * The command line of wire.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dpdk_glue/glue.h"
#include "tests/wire/model.h"
#include "tests/wire/settings.h"

#define WIRE_LINKS GLUE_MAX_LINKS

enum wire_end { WIRE_A, WIRE_B, WIRE_ENDS };

struct wire_opts {
	const char *link_texts[WIRE_ENDS]; /* A's and B's, borrowed from argv */
	struct glue_link links[WIRE_LINKS];
	enum wire_end end_of[WIRE_LINKS]; /* of each of the links */
	unsigned n_links;
	struct wire_conf conf[WIRE_ENDS]; /* of frames that enter at that end */
	const char *override[WIRE_ENDS];  /* --a-to-b and --b-to-a */
	uint64_t seed;
	unsigned hold_pkts; /* frames under way, each direction */
	unsigned mtu;
	int64_t run_ns; /* 0: until a signal */
	FILE *json;	/* NULL, or to be closed by the caller */
	int lcore;	/* -1: not pinned */
	bool adaptive;
	bool huge_off;
	bool control; /* by lines on stdin */
};

/*
 * Reads the command line. A wrong value ends the program with status 2 and one
 * line on stderr that names the value.
 */
void wire_opts_parse(int argc, char **argv, struct wire_opts *out);
