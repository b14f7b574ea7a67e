/*
 * Files in memory, to be served by path: one file, or those of a folder and of
 * the folders in it.
 *
 * Loaded files are read-only: a response has the announced length, whatever
 * happens on the disk meanwhile. Loading again makes another struct files,
 * which shares the bytes of unchanged files with the one before. One thread
 * loads and frees; any thread may find files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "apps/httpd/types.h"

#define FILES_MAX	16384
#define FILES_BYTES_MAX (1ul << 30) /* all together */
#define FILES_PATH_MAX	300
#define FILES_DEPTH_MAX 16 /* folders within folders */

/*
 * One form of a file: as it is, or compressed. Its fields are those of an
 * answer with all of its bytes. The last of them, from `validators` on,
 * distinguish this form from others, and those from `coding_field` on name its
 * coding.
 */
struct file_body {
	const char *data;
	size_t len;
	const char *coding; /* "gzip", "br"; NULL: as it is */
	const char *etag;   /* of these bytes, its quotes included */
	char fields[352];
	uint16_t validators, coding_field, fields_len;
};

struct content;

struct file {
	char path[FILES_PATH_MAX]; /* "/", "/name", "/folder/" */
	const char *type;
	time_t modified;
	struct file_body own;
	/* from a file of its name and ".gz" or ".br"; owned; NULL: none */
	struct file_body *gzip, *brotli;
	struct content *content; /* a share of it; NULL: our own page */
	char *location; /* of a folder within another: its path, encoded */
	bool is_index;	/* its bytes are those of its index.html */
};

struct files {
	struct file *list; /* sorted by path */
	unsigned n, room;
	size_t bytes; /* of all of them */
	struct types types;
	const struct files *before; /* while loading again */
	/* Symbolic links that lead out of the folder, which are left out */
	unsigned n_outside;
	char outside[FILES_PATH_MAX]; /* the first of them */
	/*
	 * Names that cannot be read, also left out: links that lead nowhere or
	 * in a circle, sockets and the like, files that this user may not read
	 * or whose disk fails
	 */
	unsigned n_broken;
	char broken[FILES_PATH_MAX];
	/* Compressed files that are older than their originals */
	unsigned n_stale;
	char stale[FILES_PATH_MAX + 20];
	char error[640]; /* one clear line when loading failed */
};

/*
 * Loads a file (found at "/" and at "/" and its name), or a folder's regular
 * files but hidden ones, and those of its folders, each index.html at the path
 * of its folder as well; NULL: a page of our own at "/". A symbolic link within
 * a folder is followed if what it names lies in the folder, too. A file "x.gz"
 * or "x.br" beside "x", and no older, is its compressed form as well. types: a
 * file of media types, or NULL (types.h). Returns 0, or -errno with
 * files->error set: -EFBIG (too many or too large), -ELOOP (too many folders
 * within folders), -ENAMETOOLONG, -ENOMEM, or an error of opening or reading.
 */
int files_load(struct files *files, const char *root, const char *types);

/*
 * Loads the same files again, as they are now. Files that have not changed
 * since `before` was loaded, by their inode, size and times, are not read
 * again. A file that is being written keeps its old content until the writing
 * has ended. The media types move from `before` to files, which has to be freed
 * after it. Returns 1 (something has changed), 0 (nothing has: files is empty),
 * or an error of files_load(); then everything stays with `before`.
 */
int files_reload(struct files *files, struct files *before, const char *root);
void files_free(struct files *files);

/* The file at a path, or NULL. */
const struct file *files_find(const struct files *files, const char *path,
			      size_t len);
/* The index of the folder that a path without a "/" at its end names, or NULL.
 */
const struct file *files_find_folder(const struct files *files,
				     const char *path, size_t len);
