/*
 * A strict reader of HTTP/1.1 requests: it refuses whatever RFC 9112 lets a
 * server tolerate, since two programs that are lenient in different ways make
 * it possible to smuggle requests.
 *
 * Lines end in CRLF and nothing else; one space between the words of the
 * request line; no folding, no space before a colon, no control character;
 * exactly one Host; at most one Content-Length, of digits, and not together
 * with Transfer-Encoding, whose only value is "chunked". Nothing is copied or
 * allocated: offsets point into the caller's bytes. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX	16384 /* bytes of request line and fields */
#define HTTP_TARGET_MAX 8000  /* RFC 9110 4.1 recommends at least this */
#define HTTP_FIELDS_MAX 100
#define HTTP_PIECES_MAX 256 /* segments in which a head may arrive */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_KNOWN, HTTP_UNKNOWN };

/* Fields that are kept for the response; the first three are lists. */
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

/* A field's value, as an offset in the head; at 0: the field is missing. */
struct http_text {
	uint16_t at, len;
};

struct http_request {
	enum http_method
		method;	 /* KNOWN: a method of RFC 9110 that is not supported */
	uint8_t minor;	 /* of version 1: 0, or 1 for 1 and above */
	bool keep_alive; /* the connection may stay open after this request */
	bool chunked;	 /* a chunked body follows */
	bool expects;	 /* Expect: 100-continue */
	uint16_t path, path_len; /* absolute path without query; len 0: "*" */
	uint16_t query_len;	 /* of "?query" right behind the path */
	struct http_text host; /* of the target, else of Host; with its port */
	uint64_t body_len;     /* of a body that is not chunked */
	/*
	 * If a field has several lines: If-Match and If-None-Match have their
	 * first line, and http_next_line() finds the others; Accept-Encoding
	 * counts as missing; all others are empty.
	 */
	struct http_text fields[HTTP_KEPT_FIELDS];
};

/*
 * The position in a head that arrives in pieces, so that no byte is read again
 * when the next piece arrives. Zeroed: before the first byte.
 */
struct http_head {
	struct http_request request; /* as far as it is known */
	uint64_t length;	     /* the last Content-Length */
	uint16_t at;		     /* start of the partial line */
	uint16_t scanned; /* from `at` to here there is no line end */
	uint8_t stage, fields;
	uint8_t hosts, lengths, encodings, expectations; /* fields seen */
	uint8_t kept; /* bits of enum http_field */
	bool close, keep_alive;
	uint32_t looked; /* number of byte reads so far, with repetitions */
};

/*
 * Continues to read a request's head where the last call with the same struct
 * stopped. data: all bytes of the head so far, from its beginning; those of
 * earlier calls must be unchanged, but may have moved in memory. Returns the
 * head's length, including its final empty line, and one before its first line;
 * 0: more bytes are needed (never at HTTP_HEAD_MAX bytes); or minus the status
 * to answer with, after which the connection must be closed: 400, 414 (target
 * too long), 417 (unknown expectation), 431 (too many or too long fields), 501
 * (unknown transfer coding), 505 (not version 1). *out is written only when a
 * length is returned. The result does not depend on how the bytes were split.
 * After a result other than 0, the struct must be zeroed before the next
 * request.
 */
long http_read_head(struct http_head *head, const char *data, size_t len,
		    struct http_request *out);

/* http_read_head() for a head that is expected to be complete. */
long http_parse(const char *data, size_t len, struct http_request *out);

/*
 * Finds the next line with this field behind *text, in a head that was read
 * completely. Returns false if there is none.
 */
bool http_next_line(const char *head, enum http_field field,
		    struct http_text *text);

/*
 * Returns whether a head, which may be partial or malformed, has the method
 * HEAD: its response has no body, even if it is an error (RFC 9110 9.3.2).
 */
bool http_asks_for_head(const char *data, size_t len);

/* The position in a chunked body. Zeroed: before its first byte. */
struct http_chunks {
	uint64_t left; /* bytes of the chunk that are still to come */
	uint64_t size; /* value of the size line so far */
	uint8_t state;
	uint8_t digits;
	uint16_t line; /* bytes of an extension or trailer line */
	uint16_t trailers;
	bool done;
};

/*
 * Skips a chunked body, including trailers. Returns how many of the bytes
 * belong to it (all of them until chunks->done is set), or -400. Chunk data has
 * no limit here: the caller counts.
 */
long http_skip_chunks(struct http_chunks *chunks, const char *data, size_t len);

/*
 * Decodes %XX of a path into out. Returns the length, or -400 (a % without two
 * digits, or NUL), -414 (out is too small).
 */
long http_decode(const char *path, size_t len, char *out, size_t room);

/*
 * Removes dot segments and all empty segments but the last from a decoded path
 * that begins with "/", in place (RFC 3986 5.2.4; "/a/./b//c/.." becomes
 * "/a/b/"). Returns the length, or -400 for a path that leads above "/".
 */
long http_normalize(char *path, size_t len);
