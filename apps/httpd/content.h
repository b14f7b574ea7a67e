/*
 * The bytes of a file as they were between two changes of it, and how to tell
 * without reading it again that they are still the file's.
 *
 * One thread gets and drops them; data, len and etag never change and are read
 * by any.
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
 * A share of an open regular file's bytes, to be dropped by the caller: of
 * those it had before (NULL: not known), if it has not changed. A file that
 * changes while it is read is read again; one that does not rest keeps the
 * bytes it had before, or has what was read last. Returns 0, -EFBIG, -EIO (it
 * shrinks all the time), -ENOMEM, or what reading gave.
 */
int content_get(int fd, const struct stat *st, struct content *before,
		struct content **out);
/* NULL is ignored. */
void content_drop(struct content *content);

/* An entity tag that is the same wherever the same bytes are served. */
void content_tag(char out[CONTENT_ETAG_BYTES], const char *data, size_t len);
