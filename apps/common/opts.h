/*
 * Shared by the options of all programs: the version, and limits.
 */
#pragma once

#include <argp.h>

#include "netstack/options/opt.h"

/* The project's version, "0.1.0". */
const char *opts_version(void);

/* What --version prints: "coronet-load (coronet) 0.1.0". Before argp_parse().
 */
void opts_set_version(const char *program);

/*
 * Prints the one line and exits with OPT_EXIT_USAGE. `value` is NULL when the
 * option is missing altogether; `example` is a whole "--option value".
 */
__attribute__((noreturn)) void
opts_refuse(const struct argp_state *state, const char *option,
	    const char *value, const char *expected, const char *example);

/*
 * The default limit of clients per source: half of max_clients, so that one
 * source cannot keep the others out, but at least 1,024.
 */
unsigned opts_source_limit(unsigned max_clients);

/* The parsers above, or opts_refuse(); `option` is "--conns". */
uint64_t opts_number(const struct argp_state *state, const char *option,
		     const char *text, uint64_t min, uint64_t max,
		     const char *example);
int64_t opts_seconds(const struct argp_state *state, const char *option,
		     const char *text, int64_t min_ns, int64_t max_ns,
		     const char *example);
