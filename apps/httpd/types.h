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
 * that have it, in each line. Types that are none are left out; path NULL:
 * there is no file. Returns 0 or -errno, and types has what every server knows
 * in any case.
 */
int types_load(struct types *types, const char *path);
void types_free(struct types *types);

/* The type of a file's name, as Content-Type has it: never NULL. */
const char *types_find(const struct types *types, const char *name);
