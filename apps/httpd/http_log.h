/*
 * The access log of coronet-httpd: a line per response, and per request that
 * got none, written by line_log.h.
 *
 * Lines have the formats that Apache and nginx call common and combined, or are
 * JSON objects. Of the bytes that a client has sent, only printable ASCII
 * except " and \ is written as it is, so that no client can forge a line or a
 * field: others are \xHH, as nginx writes them, or in JSON \u00HH.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <coronet/net_stack.h>

#include "apps/common/line_log.h"

#define HTTP_LOG_RING_BYTES (4ul << 20) /* of a shard: 10,000 usual records */
#define HTTP_LOG_LINE_MAX   (72u << 10)

/* The logged bytes of each text; what is longer is cut, and ends in "...". */
#define HTTP_LOG_REQUEST_MAX 8192
#define HTTP_LOG_REFERER_MAX 2048
#define HTTP_LOG_AGENT_MAX   1024
#define HTTP_LOG_HOST_MAX    256

enum http_log_form { HTTP_LOG_COMMON, HTTP_LOG_COMBINED, HTTP_LOG_JSON };

/* How a response ended. */
enum http_log_end {
	HTTP_LOG_DONE,
	HTTP_LOG_CLIENT_CLOSED, /* or reset the connection */
	HTTP_LOG_SEND_TIMEOUT,
	HTTP_LOG_STOPPED, /* the program ended */
	HTTP_LOG_NO_MEMORY,
	HTTP_LOG_ENDS
};

/* The status of a request without a response, as in nginx: the client closed
 * the connection. */
#define HTTP_LOG_NO_ANSWER 499

/* What was agreed on in a handshake. */
struct http_log_tls {
	char version[16], cipher[64];
};

/* Pointers are borrowed during http_log_add(). */
struct http_log_entry {
	int64_t begin_ns, end_ns; /* by the log's clock */
	uint64_t bytes;		  /* of the body */
	unsigned number;	  /* of the connection's requests, from 1 */
	int status;
	enum http_log_end end;
	struct net_addr client, listener;
	bool has_tls;
	const struct http_log_tls *tls; /* NULL: unknown */
	/* The bytes from the request's first one on, as far as they are there:
	 * maybe not all of its head, maybe no HTTP. */
	const char *head;
	size_t head_len;
};

/* For line_log_open(); its form is an enum http_log_form. */
extern const struct line_log_kind http_log_kind;

/* Returns whether bytes that begin a request have a byte of its first line. */
bool http_log_has_request(const char *head, size_t len);

/* Copies an entry into the shard's ring, on its thread. */
void http_log_add(struct line_log *log, unsigned shard,
		  const struct http_log_entry *entry);
