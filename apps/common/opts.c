#include "apps/common/opts.h"

#include <stdio.h>
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

void opts_refuse(const struct argp_state *state, const char *option,
		 const char *value, const char *expected, const char *example)
{
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
