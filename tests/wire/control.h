/*
 * Lines that change a wire while it runs: "a-to-b", "b-to-a" or "both" with
 * KEY=VALUE,... as on the command line, and "counters".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tests/wire/opts.h"

#define WIRE_CONTROL_LINE 256 /* bytes, its end included */

struct wire_control {
	int fd;
	bool ended; /* end of input */
	size_t len;
	char buf[WIRE_CONTROL_LINE];
};

/* The request of one line. */
struct wire_request {
	bool counters;
	bool changes[WIRE_ENDS]; /* which of the confs have changed */
};

/* fd is borrowed. */
void wire_control_init(struct wire_control *control, int fd);

/*
 * Gets the next whole line without its newline, or returns false when there is
 * none yet; never waits. A line that is too long is returned in pieces, each of
 * which is refused.
 */
bool wire_control_next(struct wire_control *control,
		       char line[WIRE_CONTROL_LINE]);

/*
 * Obeys a line: changes conf[] as it says, or not at all. Modifies the line.
 * Returns 0, or -EINVAL with one line in err.
 */
int wire_control_parse(char *line, struct wire_conf conf[WIRE_ENDS],
		       struct wire_request *out, char *err, size_t err_len);
