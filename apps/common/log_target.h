/*
 * Where line_log.h writes: a file or FIFO, a syslog server, the local daemon's
 * socket. No call waits for a reader or a peer. Any thread, one at a time for a
 * target.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum log_target_kind { LOG_TO_FILE, LOG_TO_UDP, LOG_TO_UNIX };

struct log_target {
	enum log_target_kind kind;
	const char *path; /* borrowed; of UDP the address */
	int fd; /* -1: nobody reads the FIFO, or the daemon is absent */
};

/* Checks that log_target_open() would succeed, without making or opening
 * anything: 0 or its error. */
int log_target_check(const char *where);

/* Sets a target without a descriptor; where is borrowed. */
void log_target_init(struct log_target *target, const char *where);

/*
 * Opens the target, which keeps the descriptor that it has; create: a file may
 * be new. Returns a descriptor, or -EINVAL, -ENAMETOOLONG or an error of
 * open(2), socket(2) or connect(2).
 */
int log_target_open(const struct log_target *target, bool create);

/* Replaces the target's descriptor, which it closes; -1: it has none. */
void log_target_use(struct log_target *target, int fd);

/* Returns whether an error of log_target_open() means that a reader or a daemon
 * may appear later. */
bool log_target_may_appear(const struct log_target *target, int err);

/*
 * Writes as many bytes as are accepted, of a socket all of them as a datagram;
 * returns how many, and in *err why not more.
 */
size_t log_target_write(const struct log_target *target, const char *data,
			size_t len, int *err);

/* Returns whether an error of log_target_write() means that the reader or the
 * daemon has gone. */
bool log_target_is_gone(const struct log_target *target, int err);
