/*
 * The margins of --help, where argp leaves them out.
 */
#include <argp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/options/opt.h"

#define N_HELPS	    300u
#define HELP_BYTES  180u
#define HELP_COLUMN 29u /* argp's default */

/* Writes --help of options whose texts have many lengths. */
static void write_long_help(FILE *out)
{
	static char texts[N_HELPS][HELP_BYTES + 1];
	static struct argp_option options[N_HELPS + 1];
	const struct argp argp = {.options = options};
	char name[] = "tool";

	for (unsigned i = 0; i < N_HELPS; i++) {
		unsigned len = 20 + i * (7 * i + 13) % (HELP_BYTES - 20);

		for (unsigned c = 0; c < len; c++)
			texts[i][c] = c % 5 == 4 ? ' ' : 'x';
		options[i] = (struct argp_option){
			.name = "option", .key = 256 + (int)i, .doc = texts[i]};
	}
	argp_help(&argp, out, ARGP_HELP_LONG, name);
}

static void test_lines_of_help_keep_their_margins(void **state)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len), *help = opt_open_help(out);
	unsigned n_options = 0;

	write_long_help(help);
	fclose(help);
	fclose(out);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		size_t margin = strspn(line, " ");

		if (strncmp(line, "      --option", 14) == 0)
			n_options++;
		else if (line[margin])
			assert_int_equal(margin, HELP_COLUMN);
	}
	assert_int_equal(n_options, N_HELPS);
	free(text);
}

static void test_single_blank_stays_in_its_line(void **state)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len), *help = opt_open_help(out);

	fputs("a", help);
	fputc(' ', help);
	fputs("b\nc\n", help);
	fclose(help);
	fclose(out);
	assert_string_equal(text, "a b\nc\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_of_help_keep_their_margins),
		cmocka_unit_test(test_single_blank_stays_in_its_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
