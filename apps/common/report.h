/*
 * What a load run shows: the progress line, the final text and the JSON.
 *
 * Progress goes to stderr, rewritten in place on a terminal, a line each time
 * elsewhere. The text goes to stdout, unless stdout is where the JSON goes.
 */
#pragma once

#include "apps/common/load_stats.h"

/* Above this share of a core the generator had no time to be faster. */
#define LOAD_BUSY_LIMIT 0.97

/* The line of the current interval. Called by load_stats.c. */
void load_progress(struct load_stats *stats, int64_t now_ns);

/* Leaves the terminal's cursor on a line of its own. */
void load_progress_end(struct load_stats *stats);

/*
 * Prints and writes the result of a run that is done. Returns the program's
 * exit status: 0, or 1 when anything failed (an error was counted, nothing was
 * measured, the JSON could not be written). Closes opts->json unless it is
 * stdout.
 */
int load_report(const struct load_stats *stats);

/* The result as JSON text, to be freed by the caller; NULL without memory. */
char *load_report_json(const struct load_stats *stats);

/* The result as text for people, to `out`. */
void load_report_text(const struct load_stats *stats, FILE *out);
