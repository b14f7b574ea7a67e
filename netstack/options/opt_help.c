/*
 * The stream to which argp writes --help.
 *
 * argp collects text in a small buffer. When a line begins where the buffer has
 * no room for its left margin, argp (glibc 2.36, argp-fmtstream.c) writes the
 * blanks of the margin to the stream, ahead of the text that is still in the
 * buffer. The stream is unbuffered, so these blanks arrive one by one. They are
 * kept until the line that lacks them, the next that begins without a blank. A
 * blank that arrives alone is in its place: glibc 2.41 writes text in pieces.
 */
#include "netstack/options/opt.h"

#include <stdio.h>

#define BEHIND_MAX 512 /* bytes from the blanks to their line, at most */

static struct {
	FILE *out;
	unsigned single; /* blanks that have just arrived one by one */
	unsigned blanks, behind;
	bool within_line;
} help;

static void write_char(char c)
{
	if (help.blanks && !help.within_line && c != ' ' && c != '\n') {
		fprintf(help.out, "%*s", (int)help.blanks, "");
		help.blanks = 0;
	}
	if (help.blanks && ++help.behind == BEHIND_MAX)
		help.blanks = 0;
	help.within_line = c != '\n';
	putc(c, help.out);
}

static ssize_t write_help(void *cookie, const char *text, size_t len)
{
	if (len == 1 && *text == ' ') {
		help.single++;
		return 1;
	}
	if (help.single == 1) {
		write_char(' ');
	} else if (help.single > 1) {
		help.blanks += help.single;
		help.behind = 0;
	}
	help.single = 0;
	for (size_t i = 0; i < len; i++)
		write_char(text[i]);
	return (ssize_t)len;
}

FILE *opt_open_help(FILE *out)
{
	const cookie_io_functions_t functions = {.write = write_help};
	FILE *stream = fopencookie(&help, "w", functions);

	if (!stream)
		return out;
	setvbuf(stream, NULL, _IONBF, 0);
	help.out = out;
	help.single = help.blanks = 0;
	help.within_line = false;
	return stream;
}
