/*
 * Shared by the options of all programs: the version, and limits.
 */
#pragma once

#include <argp.h>

#include "netstack/options/opt.h"

/* The project's version, "0.1.0". */
const char *opts_version(void);

/* Sets the line of --version: "coronet-load (coronet) 0.1.0". */
void opts_set_version(const char *program);

/*
 * The default limit of clients per source: half of max_clients, so that one
 * source cannot keep the others out, but at least 1,024.
 */
unsigned opts_source_limit(unsigned max_clients);
