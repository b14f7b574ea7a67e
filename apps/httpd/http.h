/*
 * A strict reader of HTTP/1.1 requests: it refuses whatever RFC 9112 lets a
 * server tolerate, since two programs that are lenient in different ways make
 * it possible to smuggle requests.
 *
 * Lines end in CRLF and nothing else; one space between the words of the
 * request line; no folding, no space before a colon, no control character;
 * exactly one Host; one Content-Length of digits, never beside a
 * Transfer-Encoding, which is "chunked" alone. Nothing is copied or allocated:
 * offsets point into the caller's bytes. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX	16384 /* bytes of request line and fields */
#define HTTP_TARGET_MAX 8000  /* RFC 9110 4.1 asks for that much */
#define HTTP_FIELDS_MAX 100
#define HTTP_PIECES_MAX 256 /* segments a head may come in */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_KNOWN, HTTP_UNKNOWN };

/* Fields that are kept for the response; the first of them are lists. */
enum http_field {
	HTTP_IF_MATCH,
	HTTP_IF_NONE_MATCH,
	HTTP_ACCEPT_ENCODING,
	HTTP_IF_MODIFIED_SINCE,
	HTTP_IF_UNMODIFIED_SINCE,
	HTTP_IF_RANGE,
	HTTP_RANGE,
	HTTP_KEPT_FIELDS
};

/* A field's value, of the head's bytes; at 0: it is not there. */
struct http_text {
	uint16_t at, len;
};

struct http_request {
	enum http_method
		method;	 /* KNOWN: a method of RFC 9110 that is not supported */
	uint8_t minor;	 /* of version 1: 0, or 1 for all above */
	bool keep_alive; /* the connection may go on after this */
	bool chunked;	 /* a chunked body follows */
	bool expects;	 /* Expect: 100-continue */
	uint16_t path, path_len; /* absolute path without query; len 0: "*" */
	uint16_t query_len;	 /* of "?query" right behind it */
	uint64_t body_len;	 /* of a body that is not chunked */
	/*
	 * What came twice: of the tags of If-Match and If-None-Match the first
	 * line, and http_next_line() finds the others; Accept-Encoding is not
	 * there then, the others are empty.
	 */
	struct http_text fields[HTTP_KEPT_FIELDS];
};

/*
 * How far a head has been read that comes in pieces, so that no byte of it is
 * read again when the next piece is there. Zeroed: before its first byte.
 */
struct http_head {
	struct http_request request; /* as far as it is known */
	uint64_t length;	     /* the last Content-Length */
	uint16_t at;	  /* where the line begins that is not whole */
	uint16_t scanned; /* up to here, no line ends behind `at` */
	uint8_t stage, fields;
	uint8_t hosts, lengths, encodings, expectations; /* fields seen */
	uint8_t kept; /* bits of enum http_field */
	bool close, keep_alive;
	uint32_t looked; /* bytes looked at so far, each as often as it was */
};

/*
 * Reads a request's head on from where the last call on the same head stopped.
 * data begins where the head begins and holds all that has come of it, the
 * bytes of earlier calls unchanged, though perhaps elsewhere in memory. Returns
 * the head's length, the empty line and one empty line before it included; 0:
 * more bytes are needed; or minus the status to answer with, after which the
 * connection is to be closed:
 * 400, 414 (target too long), 417 (an expectation not known), 431 (too many or
 * too long fields), 501 (a transfer coding not known), 505 (not version 1).
 * *out is written only when a length is returned. What is returned in the end
 * does not depend on how the bytes were cut. Never asks for more at
 * HTTP_HEAD_MAX bytes. Unless it returns 0, the head is done with: to be zeroed
 * before the next request.
 */
long http_read_head(struct http_head *head, const char *data, size_t len,
		    struct http_request *out);

/* http_read_head() of a head that is here as a whole, or not at all. */
long http_parse(const char *data, size_t len, struct http_request *out);

/*
 * The next line with this field behind *text, a value in a head that was read
 * to its end; false: there is none.
 */
bool http_next_line(const char *head, enum http_field field,
		    struct http_text *text);

/*
 * Whether a head that may be incomplete or wrong is one of HEAD: the answer to
 * it has no body, even if it is an error (RFC 9110 9.3.2).
 */
bool http_asks_for_head(const char *data, size_t len);

/* The position in a chunked body. Zeroed: before its first byte. */
struct http_chunks {
	uint64_t left; /* bytes of the chunk that are yet to come */
	uint64_t size; /* read so far, of a size line */
	uint8_t state;
	uint8_t digits;
	uint16_t line; /* bytes of an extension or trailer line */
	uint16_t trailers;
	bool done;
};

/*
 * Passes over a chunked body, trailers included. Returns how many of the bytes
 * belong to it (all, until chunks->done), or -400. Chunk data is not bounded:
 * the caller counts.
 */
long http_skip_chunks(struct http_chunks *chunks, const char *data, size_t len);

/*
 * Decodes %XX of a path into out. Returns the length, or -400 (a % without two
 * digits, or NUL), -414 (out is too small).
 */
long http_decode(const char *path, size_t len, char *out, size_t room);

/*
 * Removes the dot segments of a decoded path that begins with "/", and empty
 * segments but the last, in place (RFC 3986 5.2.4; "/a/./b//c/.." is "/a/b/").
 * Returns the length, or -400 for a path that leads above its beginning.
 */
long http_normalize(char *path, size_t len);
