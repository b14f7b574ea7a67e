/*
 * The access log of coronet-proxy: a line per session, written by line_log.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "apps/common/line_log.h"
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
	ACCESS_RATE,	      /* of its source */
	ACCESS_LISTENER_RATE, /* of all clients of its listener */
	ACCESS_BAD_HEADER,    /* PROXY */
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

/* "done", "client-reset"... */
const char *access_end_name(enum access_end end);

/*
 * Writes a record as a line with its newline, at most ACCESS_LOG_LINE_MAX
 * bytes. wall_ns: when it ended, since 1970. Returns its length; 0: there was
 * no memory for JSON.
 */
size_t access_log_format(const struct access_record *record,
			 enum access_form form, int64_t wall_ns, char *line);

/* For line_log_open(); its form is an enum access_form. */
extern const struct line_log_kind access_log_kind;

/* Copies a record into the shard's ring, on its thread. log NULL: ignored. */
void access_log_add(struct line_log *log, unsigned shard,
		    const struct access_record *record);
