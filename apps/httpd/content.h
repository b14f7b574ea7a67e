/*
 * The bytes of one version of a file, with the inode and times that identify an
 * unchanged file, so that it need not be read again.
 *
 * One thread gets and drops contents; data, len and etag never change, and any
 * thread may read them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include <sodium.h>

#define CONTENT_BYTES_MAX  (1ul << 30)
#define CONTENT_ETAG_BYTES (2 * crypto_shorthash_BYTES + 3) /* quotes, NUL */

struct content {
	unsigned refs;
	bool settled; /* the file had not changed for a while before reading */
	dev_t dev;
	ino_t ino;
	struct timespec modified, changed;
	char etag[CONTENT_ETAG_BYTES];
	size_t len;
	char data[];
};

/*
 * Gets a reference to the bytes of an open regular file, for the caller to
 * drop: `before` itself (NULL: unknown) if the file has not changed. A file
 * that changes while it is read is read again; if it keeps changing, the result
 * is `before`, or the bytes read last. Returns 0, -EFBIG, -EIO (the file keeps
 * shrinking), -ENOMEM, or an error of reading.
 */
int content_get(int fd, const struct stat *st, struct content *before,
		struct content **out);
/* Drops a reference; NULL is ignored. */
void content_drop(struct content *content);

/* Writes an entity tag that depends only on the bytes. */
void content_tag(char out[CONTENT_ETAG_BYTES], const char *data, size_t len);
