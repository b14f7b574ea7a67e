/*
 * Media types by the suffix of a file's name.
 */
#pragma once

struct types {
	char *text; /* of the file that was read, cut into words */
	struct type {
		const char *end, *name; /* "gz", "application/gzip" */
	} * list;			/* sorted by end, ignoring case */
	unsigned n;
};

/*
 * Reads a file in the format of /etc/mime.types: each line has a type and the
 * suffixes of its files. Invalid types are ignored; path NULL: no file. Returns
 * 0 or -errno; `types` has the built-in types in both cases.
 */
int types_load(struct types *types, const char *path);
void types_free(struct types *types);

/* The type of a file by its name, for Content-Type; never NULL. */
const char *types_find(const struct types *types, const char *name);
