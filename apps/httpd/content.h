/*
 * The bytes of one version of a file, and its inode and times, by which an
 * unchanged file is recognised without reading it again.
 *
 * One thread gets and drops contents; data, len and etag never change, and any
 * thread reads them.
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
	bool settled; /* had not changed for a while when it was read */
	dev_t dev;
	ino_t ino;
	struct timespec modified, changed;
	char etag[CONTENT_ETAG_BYTES];
	size_t len;
	char data[];
};

/*
 * Gets a reference to the bytes of an open regular file, which the caller
 * drops: that of `before` (NULL: unknown) if the file has not changed. A file
 * that changes while it is read is read again; if it keeps changing, the result
 * is `before`, or the bytes read last. Returns 0, -EFBIG, -EIO (the file keeps
 * shrinking), -ENOMEM, or an error of reading.
 */
int content_get(int fd, const struct stat *st, struct content *before,
		struct content **out);
/* NULL is ignored. */
void content_drop(struct content *content);

/* An entity tag that is the same wherever the same bytes are served. */
void content_tag(char out[CONTENT_ETAG_BYTES], const char *data, size_t len);
