/*
 * Conditions of a request on an existing file: that it has changed, or has not
 * (RFC 9110 13), ranges of its bytes (14), a compressed form (12.5.3).
 *
 * head: the bytes that were passed to http_read_head(). A malformed field is
 * ignored. Nothing is copied or allocated. Any thread.
 */
#pragma once

#include <time.h>

#include "apps/httpd/http.h"

#define HTTP_DATE_BYTES 30 /* of a date and its NUL */
#define HTTP_RANGES_MAX 16 /* of more ranges, the whole file is sent */

/* The validators of a file, which differ between its versions. */
struct http_validators {
	const char *etag; /* strong, its quotes included */
	time_t modified;
};

/* Bytes of a file, both ends included. */
struct http_range {
	uint64_t first, last;
};

/* Each is a bit. */
enum http_coding { HTTP_IDENTITY = 0, HTTP_GZIP = 1, HTTP_BROTLI = 2 };

/* Evaluates the conditions (RFC 9110 13.2.2, not If-Range): 200, 304 or 412. */
int http_check_conditions(const char *head, const struct http_request *request,
			  const struct http_validators *file);

/*
 * Finds which of a file's `size` bytes are requested. Returns 206 with *n
 * ranges in the order of the request, each within the file; 200: the whole
 * file, because no ranges were requested, or so many that they save nothing;
 * 416: all ranges are beyond its end. *n is 0 except with 206.
 */
int http_read_ranges(const char *head, const struct http_request *request,
		     const struct http_validators *file, uint64_t size,
		     struct http_range ranges[HTTP_RANGES_MAX], unsigned *n);

/*
 * Returns the coding that the client prefers, of the available ones (bits of
 * `there`).
 */
enum http_coding http_choose_coding(const char *head,
				    const struct http_request *request,
				    unsigned there);

/* Reads a date in any of the three forms of RFC 9110 5.6.7. */
bool http_read_date(const char *text, size_t len, time_t *out);
/* Writes a date: "Sun, 06 Nov 1994 08:49:37 GMT". */
void http_write_date(time_t time, char out[HTTP_DATE_BYTES]);
