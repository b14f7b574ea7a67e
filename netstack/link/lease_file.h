/*
 * Lease files: they store the address that DHCP has leased, for the next start
 * (RFC 2131 3.2). Private to link/.
 *
 * A file is one line, and is replaced as a whole. Reading blocks the thread, so
 * it happens while the stack opens; writing is left to coro_offload().
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The contents of a file. */
struct net_lease_record {
	uint8_t mac[6];	   /* of the link that leased the address */
	uint32_t ip;	   /* network byte order; a host's */
	int64_t expires_s; /* seconds since 1970; 0: never */
};

#define NET_LEASE_TEXT_MAX 128u /* bytes of a file, with a NUL */

/* Writes a record as the line of a file. Returns its length. */
size_t net_lease_format(const struct net_lease_record *record,
			char text[NET_LEASE_TEXT_MAX]);
/*
 * Reads the bytes of a file; any are safe. Returns 0 with *out filled, or
 * -EBADMSG: net_lease_format() has not written them.
 */
int net_lease_parse(const char *bytes, size_t len,
		    struct net_lease_record *out);

struct net_lease_file;

/*
 * Makes the handle of a link's file, owned by the caller; no file is opened.
 * directory: borrowed until the call returns. Returns 0 or -ENOMEM.
 */
int net_lease_file_open(const char *directory, unsigned link,
			struct net_lease_file **out);
/*
 * Reads a file; blocks the thread. Returns 0 with *out filled, or -ENOENT
 * (there is none, or its address has expired or belongs to another MAC), or,
 * after one line in the log, -EBADMSG or why it cannot be read.
 */
int net_lease_file_read(const struct net_lease_file *file, const uint8_t mac[6],
			struct net_lease_record *out);
/*
 * Makes another thread replace the file, with mode 0600, or remove it if record
 * is NULL. Called on shard 0; does not block. The last of several calls wins.
 * The first of consecutive failures is logged.
 */
void net_lease_file_write(struct net_lease_file *file,
			  const struct net_lease_record *record);
/*
 * Completes the last write, and frees the handle, which may be NULL. Blocks the
 * thread. Called after the scheduler has closed.
 */
void net_lease_file_close(struct net_lease_file *file);

/*
 * The directory of lease files: the option lease_dir or, if that is NULL, the
 * first directory of systemd's $STATE_DIRECTORY, copied to `first`. NULL: there
 * is none, or the option is "off".
 */
const char *net_lease_directory(const char *lease_dir, char first[PATH_MAX]);
/*
 * Reads at most NET_LEASE_TEXT_MAX bytes of a regular file. Blocks the thread.
 * Returns their number, -EBADMSG (it is no regular file) or another -errno.
 */
long net_lease_read_bytes(const char *path, char to[NET_LEASE_TEXT_MAX]);
/*
 * Replaces a file atomically, with mode 0600: a reader sees the old or the new
 * contents, even if the machine stops. Blocks the thread. temporary: a path in
 * the same directory. Returns 0 or -errno.
 */
int net_lease_replace(const char *path, const char *temporary, const char *text,
		      size_t len);

/* The time since 1970 in seconds. */
int64_t net_lease_wall_s(void);
