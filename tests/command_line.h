/*
 * The command line of a test or benchmark: options from a table (opt.h), and
 * arguments that are no options.
 */
#pragma once

#include "netstack/options/opt.h"

#define COMMAND_RUNS_MAX 16u

/* Defines a set of rows for command_line_read(). */
#define COMMAND_SET(set, rows, check)                                          \
	static struct argp_option set##_options[OPT_COUNT(rows) + 1];          \
	static const struct opt_set set = {rows, OPT_COUNT(rows), 0x100,       \
					   check, set##_options}

struct command_line {
	const struct opt_set *set;
	const char *doc;      /* of --help */
	const char *args_doc; /* NULL: no arguments are valid */
	/* Takes an argument into the struct of the rows, or exits. */
	void (*take_argument)(const struct argp_state *state, const char *arg);
};

/*
 * Sets the struct at base to the rows' defaults and then as the command line
 * says. A wrong option or argument ends the program with one line on stderr and
 * OPT_EXIT_USAGE.
 */
void command_line_read(const struct command_line *line, int argc, char **argv,
		       void *base);

/* One number for each run of a benchmark. */
struct command_runs {
	unsigned n, numbers[COMMAND_RUNS_MAX];
};

/* Appends an argument from 1 to max; `name` is the argument's in errors. */
void command_runs_add(struct command_runs *runs, const struct argp_state *state,
		      const char *name, const char *arg, uint64_t max);
