/*
 * The access log: a line per session, in a file or sent to a syslog server,
 * without ever blocking a shard.
 *
 * A shard copies a record into a ring of its own, without a system call; a
 * thread checks the rings fifty times a second, formats the records and writes
 * the lines. If a ring or the file is full, lines are lost: they are counted,
 * and a line with their number precedes the next one that is written.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "apps/proxy/proxy_proto.h"

#define ACCESS_LOG_RING	    8192 /* records of a shard */
#define ACCESS_LOG_NAME_MAX 64
#define ACCESS_LOG_ID_MAX   40
#define ACCESS_LOG_LINE_MAX 2048

/* How a session ended. */
enum access_end {
	ACCESS_DONE,
	ACCESS_CLIENT_RESET,
	ACCESS_SERVER_RESET,
	ACCESS_IDLE_TIMEOUT,
	ACCESS_CLIENT_TIMEOUT,
	ACCESS_SERVER_TIMEOUT,
	ACCESS_HALF_CLOSED_TIMEOUT,
	ACCESS_CONNECT_FAILED,
	ACCESS_NO_BACKEND,
	ACCESS_NO_RETRY, /* the budget of retries was spent */
	ACCESS_QUEUE_FULL,
	ACCESS_QUEUE_TIMEOUT,
	ACCESS_DENIED,
	ACCESS_RATE,
	ACCESS_BAD_HEADER, /* PROXY */
	ACCESS_HEADER_TIMEOUT,
	ACCESS_BAD_HELLO, /* TLS */
	ACCESS_TLS_FAILED,
	ACCESS_HELLO_TIMEOUT,
	ACCESS_DISPLACED,
	ACCESS_STOPPED, /* the program ended */
	ACCESS_NO_MEMORY,
	ACCESS_ENDS
};

struct access_record {
	int64_t begin_ns, end_ns;      /* by the clock given to the log */
	int64_t queue_ns, connect_ns;  /* durations; connect -1: none */
	uint64_t bytes_to, bytes_from; /* the backend */
	struct proxy_addrs addrs;      /* the client and its destination */
	enum access_end end;
	unsigned retries;
	char backend[ACCESS_LOG_NAME_MAX];     /* empty: none */
	char server_name[ACCESS_LOG_NAME_MAX]; /* of TLS; cut; empty: none */
	char id[ACCESS_LOG_ID_MAX];	       /* empty: none */
	struct proxy_tls tls; /* version empty: the client does not use it */
};

enum access_form { ACCESS_TEXT, ACCESS_JSON };

struct access_log;

/* "done", "client-reset"... */
const char *access_end_name(enum access_end end);

/*
 * Writes a record as a line with its newline, at most ACCESS_LOG_LINE_MAX
 * bytes. wall_ns: when it ended, since 1970. Returns its length; 0: there was
 * no memory for JSON.
 */
size_t access_log_format(const struct access_record *record,
			 enum access_form form, int64_t wall_ns, char *line);

/*
 * Checks that access_log_open() would succeed: 0 or its error. Makes the file.
 */
int access_log_check(const char *where);

/*
 * Opens a file for appending, created with mode 0640, or a socket: with
 * "udp:ADDRESS:PORT" each line is sent as a datagram (RFC 5424, local0.info).
 * Starts the log's thread. clock_ns: the clock of the records' times. say:
 * called on that thread with a line, without newline, when the file cannot be
 * reopened. Returns 0, -EINVAL (not an address), -ENOMEM, or an error of
 * open(2), socket(2) or pthread_create(3).
 */
int access_log_open(const char *where, enum access_form form, unsigned shards,
		    int64_t (*clock_ns)(void), void (*say)(const char *line),
		    struct access_log **out);

/* Copies a record into the shard's ring, on its thread. log NULL: ignored. */
void access_log_add(struct access_log *log, unsigned shard,
		    const struct access_record *record);

/*
 * Makes the log's thread reopen the file soon. From any thread or signal
 * handler.
 */
void access_log_reopen(struct access_log *log);

/* Lines lost so far. Any thread. */
uint64_t access_log_lost(const struct access_log *log);

/*
 * Called when no shard adds records any more: writes the remaining lines, for
 * at most a second, and closes the log. NULL is ignored.
 */
void access_log_close(struct access_log *log);
