/*
 * Lease files: they keep the address that DHCP has leased for the next start
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

/* What a file remembers. */
struct net_lease_record {
	uint8_t mac[6];	   /* of the link that leased the address */
	uint32_t ip;	   /* network byte order; a host's */
	int64_t expires_s; /* since 1970; 0: never */
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
 * Has the file replaced, with mode 0600, or removed if record is NULL, on
 * another thread. On shard 0; does not block. The last of several calls wins.
 * The first failure in a row is logged.
 */
void net_lease_file_write(struct net_lease_file *file,
			  const struct net_lease_record *record);
/*
 * Does what is left of the last write, and frees the handle, which may be NULL.
 * Blocks the thread. After the scheduler has closed.
 */
void net_lease_file_close(struct net_lease_file *file);

/*
 * The directory of lease files: lease_dir, an option, or if that is NULL the
 * first of systemd's $STATE_DIRECTORY, which `first` holds. NULL: there is
 * none, or it is "off".
 */
const char *net_lease_directory(const char *lease_dir, char first[PATH_MAX]);
/*
 * Reads a regular file, at most NET_LEASE_TEXT_MAX bytes of it. Blocks the
 * thread. Returns how many there are, -EBADMSG (it is no regular file) or
 * another -errno.
 */
long net_lease_read_bytes(const char *path, char to[NET_LEASE_TEXT_MAX]);
/*
 * Replaces a file as a whole, with mode 0600: a reader sees it before or after,
 * even if the machine stops. Blocks the thread. temporary: a path beside it.
 * Returns 0 or -errno.
 */
int net_lease_replace(const char *path, const char *temporary, const char *text,
		      size_t len);

/* The time since 1970 in seconds. */
int64_t net_lease_wall_s(void);
