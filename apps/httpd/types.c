/* Media types by the end of a file's name. */
#include "apps/httpd/types.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX  (1 << 20) /* bytes of a file of types */
#define TYPE_MAX  100	    /* bytes of one */
#define TYPES_MAX 16384u

/* Texts are served as UTF-8. */
static const struct type common[] = {
	{"html", "text/html; charset=utf-8"},
	{"htm", "text/html; charset=utf-8"},
	{"txt", "text/plain; charset=utf-8"},
	{"md", "text/markdown; charset=utf-8"},
	{"css", "text/css; charset=utf-8"},
	{"js", "text/javascript; charset=utf-8"},
	{"mjs", "text/javascript; charset=utf-8"},
	{"json", "application/json"},
	{"xml", "application/xml"},
	{"pdf", "application/pdf"},
	{"wasm", "application/wasm"},
	{"svg", "image/svg+xml"},
	{"png", "image/png"},
	{"jpg", "image/jpeg"},
	{"jpeg", "image/jpeg"},
	{"gif", "image/gif"},
	{"webp", "image/webp"},
	{"ico", "image/x-icon"},
	{"woff2", "font/woff2"},
	{"gz", "application/gzip"},
};

/* RFC 9110 8.3.1, without parameters: it goes into a header as it is. */
static bool is_type(const char *word)
{
	const char *slash = strchr(word, '/');

	if (!slash || slash == word || !slash[1] || strchr(slash + 1, '/') ||
	    strlen(word) > TYPE_MAX)
		return false;
	for (; *word; word++)
		if (*word <= ' ' || *word >= 0x7f ||
		    strchr("\"(),:;<=>?@[\\]{}", *word))
			return false;
	return true;
}

static int compare_extensions(const void *a, const void *b)
{
	return strcasecmp(((const struct type *)a)->end,
			  ((const struct type *)b)->end);
}

/* Takes a line's words; the line is cut at their ends. */
static void take_line(struct types *types, char *line)
{
	char *rest = line, *word = strsep(&rest, " \t\r");
	const char *name = word;

	if (*word == '#' || !is_type(word))
		return;
	while ((word = strsep(&rest, " \t\r")) && types->n < TYPES_MAX) {
		if (*word == '#')
			return;
		if (*word)
			types->list[types->n++] = (struct type){word, name};
	}
}

/* Reads a whole file, with a NUL behind it: malloc'ed. */
static int read_file(const char *path, char **out)
{
	FILE *file = fopen(path, "re");
	char *text = malloc(FILE_MAX + 1);
	int err = 0;
	size_t n;

	if (!file)
		err = -errno;
	else if (!text)
		err = -ENOMEM;
	if (err == 0) {
		n = fread(text, 1, FILE_MAX, file);
		text[n] = '\0';
		if (ferror(file))
			err = -EIO;
		else if (!feof(file) && fgetc(file) != EOF)
			err = -EFBIG;
	}
	if (file)
		fclose(file);
	if (err < 0) {
		free(text);
		return err;
	}
	*out = text;
	return 0;
}

int types_load(struct types *types, const char *path)
{
	char *rest, *line;
	int err;

	*types = (struct types){0};
	if (!path)
		return 0;
	err = read_file(path, &types->text);
	if (err < 0)
		return err;
	types->list = calloc(TYPES_MAX, sizeof(*types->list));
	if (!types->list) {
		types_free(types);
		return -ENOMEM;
	}
	rest = types->text;
	while ((line = strsep(&rest, "\n")))
		take_line(types, line);
	qsort(types->list, types->n, sizeof(*types->list), compare_extensions);
	return 0;
}

void types_free(struct types *types)
{
	free(types->text);
	free(types->list);
	*types = (struct types){0};
}

const char *types_find(const struct types *types, const char *name)
{
	const char *dot = strrchr(name, '.');
	const struct type *found = NULL;
	struct type key;

	if (!dot)
		return "application/octet-stream";
	key.end = dot + 1;
	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		if (strcasecmp(common[i].end, key.end) == 0)
			return common[i].name;
	if (types->n)
		found = bsearch(&key, types->list, types->n, sizeof(key),
				compare_extensions);
	return found ? found->name : "application/octet-stream";
}
