#include "apps/common/opts.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *opts_version(void)
{
	return CORONET_VERSION;
}

void opts_set_version(const char *program)
{
	static char text[80];

	snprintf(text, sizeof(text), "%s (coronet) %s", program,
		 CORONET_VERSION);
	argp_program_version = text;
}

/* In opts_try() a refusal jumps here instead of ending the program. */
static _Thread_local struct {
	bool set;
	jmp_buf env;
	const char *place;
	char *error;
	size_t len;
} catcher;

/* Stores the line, without a newline, and jumps: the program does not end. */
__attribute__((noreturn)) static void throw_refusal(const char *option,
						    const char *value,
						    const char *expected,
						    const char *example)
{
	char *error = catcher.error;

	snprintf(error, catcher.len,
		 value ? "%s%s '%s': expected %s, for example %s"
		       : "%s%s%s is missing: expected %s, for example %s",
		 value ? catcher.place : "", option, value ? value : "",
		 expected, example);
	for (char *c = error; *c; c++)
		if (iscntrl((unsigned char)*c))
			*c = '?';
	longjmp(catcher.env, 1);
}

/* setjmp(3) is in a function of its own, which changes no variable after it. */
static int parse_caught(argp_parser_t parser, int key, char *value,
			struct argp_state *state)
{
	if (setjmp(catcher.env))
		return -EINVAL;
	parser(key, value, state);
	return 0;
}

int opts_try(const struct argp *argp, const char *name, char *value,
	     const char *where, void *input, char *error, size_t len)
{
	const struct argp_option *option = argp->options;
	struct argp_state state = {
		.root_argp = argp, .input = input, .name = (char *)""};
	int err;

	while (name && option->name && strcmp(option->name, name) != 0)
		option++;
	if (name && !option->name)
		return -ENOENT;
	catcher.set = true;
	catcher.place = where;
	catcher.error = error;
	catcher.len = len;
	err = parse_caught(argp->parser, name ? option->key : ARGP_KEY_END,
			   value, &state);
	catcher.set = false;
	return err;
}

void opts_refuse(const struct argp_state *state, const char *option,
		 const char *value, const char *expected, const char *example)
{
	if (catcher.set)
		throw_refusal(option, value, expected, example);
	opt_refuse_or_exit(state, option, value, expected, example);
}

unsigned opts_source_limit(unsigned max_clients)
{
	return max_clients < 2048 ? 1024 : max_clients / 2;
}

uint64_t opts_number(const struct argp_state *state, const char *option,
		     const char *text, uint64_t min, uint64_t max,
		     const char *example)
{
	char expected[80];
	uint64_t value;

	if (opt_parse_number(text, min, max, &value) == 0)
		return value;
	snprintf(expected, sizeof(expected), "a whole number from %ju to %ju",
		 (uintmax_t)min, (uintmax_t)max);
	opts_refuse(state, option, text, expected, example);
}

int64_t opts_seconds(const struct argp_state *state, const char *option,
		     const char *text, int64_t min_ns, int64_t max_ns,
		     const char *example)
{
	char expected[80];
	uint64_t value;

	if (opt_parse_decimal(text, (uint64_t)min_ns, (uint64_t)max_ns,
			      &value) == 0)
		return (int64_t)value;
	snprintf(expected, sizeof(expected), "seconds from %g to %g",
		 (double)min_ns / OPT_NS_PER_S, (double)max_ns / OPT_NS_PER_S);
	opts_refuse(state, option, text, expected, example);
}
