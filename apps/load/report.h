/*
 * The output of a load run: the progress line, the final text and the JSON.
 *
 * Progress goes to stderr, rewritten in place on a terminal, a line each time
 * elsewhere. The text goes to stdout, unless stdout is where the JSON goes.
 *
 * If the generator itself was the bottleneck, no rates and latencies are
 * reported: they would be the generator's and not the server's. Errors and the
 * counts of idle mode are reported. With opts->report_limited everything is
 * reported, and the rates are lower bounds.
 */
#pragma once

#include "apps/load/load_stats.h"

#define LOAD_EXIT_REFUSED 3 /* the exit status without a report */

/* Prints the line of the current interval. Called by load_stats.c. */
void load_progress(struct load_stats *stats, int64_t now_ns);

/* Leaves the terminal's cursor on a line of its own. */
void load_progress_end(struct load_stats *stats);

/*
 * Prints and writes the result of a run that is done, and closes opts->json
 * unless it is stdout. Returns the program's exit status: 1 if anything failed
 * (an error was counted, nothing was measured, the JSON could not be written);
 * else LOAD_EXIT_REFUSED if the report was refused, except in idle mode, whose
 * counts are its result; else 0.
 */
int load_report(const struct load_stats *stats);

/* Returns whether rates and latencies are withheld. */
bool load_report_is_refused(const struct load_stats *stats);

/* Writes the reason, as part of a sentence, to `out`. */
void load_report_reason(const struct load_stats *stats, FILE *out);

/* The result as JSON text, to be freed by the caller; NULL without memory. */
char *load_report_json(const struct load_stats *stats);

/* The result as text for people, to `out`. */
void load_report_text(const struct load_stats *stats, FILE *out);
