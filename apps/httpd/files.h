/*
 * Files in memory, to be served by path: one file, or those of one folder.
 *
 * Loaded once, before anything is served; read-only from then on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FILES_MAX	1024
#define FILES_BYTES_MAX (1ul << 30) /* all together */
#define FILES_PATH_MAX	300

struct file {
	char path[FILES_PATH_MAX]; /* "/" or "/name" */
	char fields[128];	   /* Content-Type and Content-Length lines */
	size_t fields_len, len;
	const char *data;
};

struct files {
	struct file *list; /* sorted by path */
	unsigned n;
	size_t bytes; /* of all of them */
	/* Symbolic links that lead out of the folder, which are left out */
	unsigned n_outside;
	char outside[256]; /* the first of them */
	char error[640];   /* one clear line when loading failed */
};

/*
 * Loads a file (found at "/" and at "/" and its name), or a folder's regular
 * files but hidden ones, index.html at "/" as well; NULL: a page of our own at
 * "/". A symbolic link within a folder is followed if what it names lies in the
 * folder, too. Returns 0, or -errno with files->error set: -EFBIG (too many or
 * too large), -ENOMEM, or what opening and reading gave.
 */
int files_load(struct files *files, const char *root);
void files_free(struct files *files);

/* The file at a path, or NULL. */
const struct file *files_find(const struct files *files, const char *path,
			      size_t len);
