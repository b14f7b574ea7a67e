/*
 * Files in memory, to be served by path: one file, or those of a folder and of
 * the folders in it.
 *
 * Loaded once, before anything is served; read-only from then on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "apps/httpd/types.h"

#define FILES_MAX	16384
#define FILES_BYTES_MAX (1ul << 30) /* all together */
#define FILES_PATH_MAX	300
#define FILES_DEPTH_MAX 16 /* folders within folders */

/* One form of a file: as it is, or compressed. */
struct file_body {
	const char *data;
	size_t len;
	const char *coding; /* "gzip", "br"; NULL: as it is */
	char etag[20];	    /* of these bytes, its quotes included */
	char fields[352];   /* of an answer with all of them */
	size_t fields_len;
};

struct file {
	char path[FILES_PATH_MAX]; /* "/", "/name", "/folder/" */
	const char *type;
	time_t modified;
	struct file_body own;
	/* from a file of its name and ".gz" or ".br"; owned; NULL: none */
	struct file_body *gzip, *brotli;
	bool is_index; /* its bytes are those of the index.html in there */
};

struct files {
	struct file *list; /* sorted by path */
	unsigned n;
	size_t bytes; /* of all of them */
	struct types types;
	/* Symbolic links that lead out of the folder, which are left out */
	unsigned n_outside;
	char outside[FILES_PATH_MAX]; /* the first of them */
	/* Compressed files that are older than what they stand for */
	unsigned n_stale;
	char stale[FILES_PATH_MAX + 16];
	char error[640]; /* one clear line when loading failed */
};

/*
 * Loads a file (found at "/" and at "/" and its name), or a folder's regular
 * files but hidden ones, and those of its folders, each index.html at the path
 * of its folder as well; NULL: a page of our own at "/". A symbolic link within
 * a folder is followed if what it names lies in the folder, too. A file "x.gz"
 * or "x.br" beside "x", and no older, is its compressed form as well. types:
 * a file of media types, or NULL (types.h). Returns 0, or -errno with
 * files->error set: -EFBIG (too many or too large), -ELOOP (too many folders
 * within folders), -ENAMETOOLONG, -ENOMEM, or what opening and reading gave.
 */
int files_load(struct files *files, const char *root, const char *types);
void files_free(struct files *files);

/* The file at a path, or NULL. */
const struct file *files_find(const struct files *files, const char *path,
			      size_t len);
/* Whether a path without a "/" at its end names a folder that has an index. */
bool files_is_folder(const struct files *files, const char *path, size_t len);
