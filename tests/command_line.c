/* Reads the command line of a test or benchmark. */
#include "tests/command_line.h"

#include <stdio.h>
#include <stdlib.h>

static const struct command_line *current;

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		opt_set_defaults(current->set->rows, current->set->n,
				 state->input);
		return 0;
	case ARGP_KEY_ARG:
		if (!current->take_argument)
			opt_refuse_argument(state, arg);
		current->take_argument(state, arg);
		return 0;
	default:
		return opt_parse_key(current->set, key, arg, state);
	}
}

static char *format_help(int key, const char *text, void *input)
{
	return opt_filter_help(current->set, key, text);
}

void command_line_read(const struct command_line *line, int argc, char **argv,
		       void *base)
{
	const struct argp argp = {
		.options = line->set->options,
		.parser = parse_key,
		.args_doc = line->args_doc,
		.doc = line->doc,
		.help_filter = format_help,
	};

	current = line;
	opt_fill_options(line->set);
	if (argp_parse(&argp, argc, argv, 0, NULL, base))
		exit(OPT_EXIT_USAGE);
}

void command_runs_add(struct command_runs *runs, const struct argp_state *state,
		      const char *name, const char *arg, uint64_t max)
{
	char expected[80];
	uint64_t number;

	if (runs->n == COMMAND_RUNS_MAX ||
	    opt_parse_number(arg, 1, max, &number) < 0) {
		snprintf(expected, sizeof(expected),
			 "at most %u numbers from 1 to %ju", COMMAND_RUNS_MAX,
			 (uintmax_t)max);
		opt_refuse_or_exit(state, name, arg, expected, "64");
	}
	runs->numbers[runs->n++] = (unsigned)number;
}
