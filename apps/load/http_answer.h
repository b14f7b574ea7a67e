/*
 * Where the responses of HTTP/1.1 end (RFC 9112): what a load generator needs
 * to know in order to ask the next question. It takes responses with status 2xx
 * and a Content-Length; others are errors, also those in chunks.
 *
 * Plain calls; nothing allocates. A zeroed struct waits for a response.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_ANSWER_LINE 40 /* bytes of a line that are kept, and its CR */

struct http_answer {
	uint64_t left; /* bytes of the body that have not come */
	bool in_body;
	bool has_status, has_length; /* of the head so far */
	uint8_t line_len;
	char line[HTTP_ANSWER_LINE]; /* of the head, while it comes */
};

/*
 * Takes the next bytes of a connection. Returns 1 if they end a response, after
 * which the struct waits for the next one, 0 if more has to come, or -EBADMSG:
 * they are not a response as described above, or go on behind its end.
 */
int http_answer_take(struct http_answer *answer, const void *data, size_t len);
