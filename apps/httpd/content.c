/* Reads and shares the bytes of one version of a file. */
#include "apps/httpd/content.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * Two changes within a tick of the disk's clock leave the same times behind,
 * and some file systems count whole seconds: a file that changed this recently
 * is read again next time, whatever its times say.
 */
#define SETTLED_S 2
#define READS_MAX 3 /* attempts at a file that changes meanwhile */

#define PIECE_BYTES (64u << 10) /* bytes that are compared at a time */

/*
 * The kernel's times of files are up to 10 ms old, so a write that comes during
 * the read shows only if the one before was longer ago than that.
 */
#define REST_NS (50 * 1000000ll)

/* Was the file written to just now? */
static bool is_recent(const struct stat *st)
{
	struct timespec now;
	int64_t ago_ns;

	clock_gettime(CLOCK_REALTIME, &now);
	ago_ns = (now.tv_sec - st->st_ctim.tv_sec) * 1000000000ll +
		 now.tv_nsec - st->st_ctim.tv_nsec;
	return ago_ns >= 0 && ago_ns < REST_NS;
}

static bool is_settled(const struct stat *st)
{
	return st->st_ctim.tv_sec < time(NULL) - SETTLED_S;
}

void content_tag(char out[CONTENT_ETAG_BYTES], const char *data, size_t len)
{
	static const unsigned char key[crypto_shorthash_KEYBYTES];
	unsigned char hash[crypto_shorthash_BYTES];

	crypto_shorthash(hash, (const unsigned char *)data, len, key);
	*out++ = '"';
	for (unsigned i = 0; i < sizeof(hash); i++)
		out += sprintf(out, "%02x", hash[i]);
	strcpy(out, "\"");
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Does the disk report the same of the file as it did of these bytes? */
static bool is_as_read(const struct content *content, const struct stat *st)
{
	return content->dev == st->st_dev && content->ino == st->st_ino &&
	       content->len == (size_t)st->st_size &&
	       same_time(&content->modified, &st->st_mtim) &&
	       same_time(&content->changed, &st->st_ctim);
}

void content_drop(struct content *content)
{
	if (content && --content->refs == 0)
		free(content);
}

/*
 * Reads an open file once. Returns 0, -EAGAIN (it has changed meanwhile; *out
 * has what was read, unless it shrank), or -errno.
 */
static int read_once(int fd, const struct stat *st, struct content **out)
{
	size_t len = (size_t)st->st_size, done = 0;
	struct content *content = malloc(sizeof(*content) + len + 1);
	bool recent = is_recent(st);
	struct stat after;
	ssize_t n = 1;

	*out = NULL;
	if (!content)
		return -ENOMEM;
	while (done < len && n > 0) {
		n = pread(fd, content->data + done, len - done, (off_t)done);
		done += n > 0 ? (size_t)n : 0;
	}
	if (n < 0 || fstat(fd, &after)) {
		int err = -errno;

		free(content);
		return err;
	}
	if (done < len) {
		free(content);
		return -EAGAIN;
	}
	content->refs = 1;
	content->dev = st->st_dev;
	content->ino = st->st_ino;
	content->modified = st->st_mtim;
	content->changed = st->st_ctim;
	content->settled = is_settled(st);
	content->len = len;
	*out = content;
	return is_as_read(content, &after) && !recent ? 0 : -EAGAIN;
}

/* Does an open file still have these bytes? -EAGAIN: not known. */
static int compare_once(int fd, const struct stat *st,
			const struct content *content)
{
	static _Thread_local char piece[PIECE_BYTES];
	struct stat after;
	size_t done = 0;

	if (is_recent(st))
		return -EAGAIN;
	while (done < content->len) {
		ssize_t n = pread(fd, piece, sizeof(piece), (off_t)done);

		if (n <= 0 || (size_t)n > content->len - done ||
		    memcmp(content->data + done, piece, (size_t)n) != 0)
			return -EAGAIN;
		done += (size_t)n;
	}
	return fstat(fd, &after) == 0 && is_as_read(content, &after) ? 0
								     : -EAGAIN;
}

/*
 * Reads an open file as it is between two changes. If it never rests, returns
 * the bytes it had before or, without any, those that were read last.
 */
static int read_steady(int fd, const struct stat *st, struct content *before,
		       struct content **out)
{
	struct stat now = *st;
	int err = -EAGAIN;

	*out = NULL;
	for (unsigned i = 0; err == -EAGAIN && i < READS_MAX; i++) {
		content_drop(*out);
		*out = NULL;
		if (i && !before)
			nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
		if (i && fstat(fd, &now))
			return -errno;
		if ((size_t)now.st_size > CONTENT_BYTES_MAX)
			return -EFBIG;
		err = read_once(fd, &now, out);
	}
	if (err != -EAGAIN)
		return err;
	if (before) {
		content_drop(*out);
		*out = before;
		before->refs++;
	}
	return *out ? 0 : -EIO; /* each time, it had shrunk */
}

int content_get(int fd, const struct stat *st, struct content *before,
		struct content **out)
{
	struct content *content;
	int err;

	if (before && is_as_read(before, st) &&
	    (before->settled || compare_once(fd, st, before) == 0)) {
		if (is_settled(st))
			before->settled = true;
		before->refs++;
		*out = before;
		return 0;
	}
	err = read_steady(fd, st, before, &content);
	if (err < 0)
		return err;
	if (before && before != content && before->len == content->len &&
	    same_time(&before->modified, &content->modified) &&
	    memcmp(before->data, content->data, content->len) == 0) {
		before->dev = content->dev;
		before->ino = content->ino;
		before->changed = content->changed;
		before->settled = content->settled;
		content_drop(content);
		content = before;
		before->refs++;
	}
	if (content != before)
		content_tag(content->etag, content->data, content->len);
	*out = content;
	return 0;
}
