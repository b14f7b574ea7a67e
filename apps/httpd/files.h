/*
 * Files in memory, to be served by path: one file, or those of a folder and of
 * the folders in it.
 *
 * Loaded files are constant, so a response has the announced length even if the
 * file on disk changes. Loading again makes another struct files, which shares
 * the bytes of unchanged files with the previous one. One thread loads and
 * frees; any thread may find files.
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
 * One form of a file: original or compressed. `fields` are the header fields of
 * a response with all of its bytes. Those from offset `validators` on
 * distinguish this form from others, and those from `coding_field` on name its
 * coding.
 */
struct file_body {
	const char *data;
	size_t len;
	const char *coding; /* "gzip", "br"; NULL: the original */
	const char *etag;   /* of these bytes, including its quotes */
	char fields[352];
	uint16_t validators, coding_field, fields_len;
};

struct content;

struct file {
	char path[FILES_PATH_MAX]; /* "/", "/name", "/folder/" */
	const char *type;
	time_t modified;
	struct file_body own;
	/* from the file of this name and ".gz" or ".br"; owned; NULL: none */
	struct file_body *gzip, *brotli;
	struct content *content; /* a reference; NULL: the built-in page */
	char *location; /* of a folder within another: its path, encoded */
	bool is_index;	/* a folder, whose bytes are of its index.html */
};

struct files {
	struct file *list; /* sorted by path */
	unsigned n, room;
	size_t bytes; /* of all of them */
	struct types types;
	const struct files *before; /* while loading again */
	/* Symbolic links that lead out of the folder, which are omitted */
	unsigned n_outside;
	char outside[FILES_PATH_MAX]; /* the first of them */
	/*
	 * Names that cannot be read, also omitted: links that are broken or
	 * circular, sockets and other special files, files that this user may
	 * not read or whose disk fails
	 */
	unsigned n_broken;
	char broken[FILES_PATH_MAX];
	/* Compressed files that are older than their originals */
	unsigned n_stale;
	char stale[FILES_PATH_MAX + 20];
	char error[640]; /* one clear line when loading failed */
};

/*
 * Loads the file `root` (to be found at "/" and at "/NAME"); or all regular
 * files of the folder `root` and the folders in it, except hidden ones, each
 * index.html also at the path of its folder; or with root NULL a built-in page
 * at "/". A symbolic link within a folder is followed if its target is in the
 * folder, too. A file "x.gz" or "x.br" that is not older than "x" in the same
 * folder is also its compressed form. types: a file of media types, or NULL
 * (types.h). Returns 0, or -errno with files->error set: -EFBIG (too many or
 * too large), -ELOOP (folders are nested too deeply), -ENAMETOOLONG, -ENOMEM,
 * or an error of opening or reading.
 */
int files_load(struct files *files, const char *root, const char *types);

/*
 * Loads the files of `before` again. Files that have not changed since then, by
 * their inode, size and times, are not read again. A file that is being written
 * keeps its old content until the writing has ended. The media types move from
 * `before` to `files`, which must be freed after `before`. Returns 1 (something
 * has changed), 0 (nothing has changed, and files is empty), or an error of
 * files_load(), in which case `before` keeps everything.
 */
int files_reload(struct files *files, struct files *before, const char *root);
void files_free(struct files *files);

/* The file at a path, or NULL. */
const struct file *files_find(const struct files *files, const char *path,
			      size_t len);
/* The index of a folder, whose path lacks the "/" at its end; or NULL. */
const struct file *files_find_folder(const struct files *files,
				     const char *path, size_t len);
