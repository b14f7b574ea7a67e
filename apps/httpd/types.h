/*
 * Media types by the end of a file's name.
 */
#pragma once

struct types {
	char *text; /* of the file that was read, cut into words */
	struct type {
		const char *end, *name; /* "gz", "application/gzip" */
	} * list;			/* sorted by end, whatever its case */
	unsigned n;
};

/*
 * Reads a file in the form of /etc/mime.types: a type and the ends of names
 * that have it, in each line. Invalid types are left out; path NULL: no file.
 * Returns 0 or -errno; types has the built-in types in any case.
 */
int types_load(struct types *types, const char *path);
void types_free(struct types *types);

/* The type of a file's name, as Content-Type has it: never NULL. */
const char *types_find(const struct types *types, const char *name);
