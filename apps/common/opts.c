/* The version, and the default limit of clients per source. */
#include "apps/common/opts.h"

#include <stdio.h>

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

unsigned opts_source_limit(unsigned max_clients)
{
	return max_clients < 2048 ? 1024 : max_clients / 2;
}
