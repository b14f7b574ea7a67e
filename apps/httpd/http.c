/* A strict parser of HTTP/1.1 requests (RFC 9112). */
#include "apps/httpd/http.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#define EXT_MAX	    256	 /* bytes of a chunk's extension */
#define TRAILER_MAX 8192 /* bytes of all trailers */

/* A piece of the caller's bytes. */
struct piece {
	const char *at;
	size_t len;
};

/* ---- characters ---- */

/* RFC 9110 5.6.2. */
static bool is_token_char(unsigned char c)
{
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z'))
		return true;
	return c && strchr("!#$%&'*+-.^_`|~", c);
}

/* RFC 9110 5.5: visible, blank or beyond ASCII. */
static bool is_value_char(unsigned char c)
{
	return c == '\t' || (c >= ' ' && c != 0x7f);
}

static bool is_token(struct piece p)
{
	for (size_t i = 0; i < p.len; i++)
		if (!is_token_char((unsigned char)p.at[i]))
			return false;
	return p.len > 0;
}

static bool is_word(struct piece p, const char *word)
{
	return p.len == strlen(word) && strncasecmp(p.at, word, p.len) == 0;
}

static struct piece trim_space(struct piece p)
{
	while (p.len && (p.at[0] == ' ' || p.at[0] == '\t')) {
		p.at++;
		p.len--;
	}
	while (p.len && (p.at[p.len - 1] == ' ' || p.at[p.len - 1] == '\t'))
		p.len--;
	return p;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* ---- the request line ---- */

static enum http_method method_of(struct piece p)
{
	static const char *const known[] = {"POST",    "PUT",	  "DELETE",
					    "CONNECT", "OPTIONS", "TRACE",
					    "PATCH"};

	/* Methods are case-sensitive: RFC 9110 9.1. */
	if (p.len == 3 && memcmp(p.at, "GET", 3) == 0)
		return HTTP_GET;
	if (p.len == 4 && memcmp(p.at, "HEAD", 4) == 0)
		return HTTP_HEAD;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (p.len == strlen(known[i]) &&
		    memcmp(p.at, known[i], p.len) == 0)
			return HTTP_KNOWN;
	return HTTP_UNKNOWN;
}

/* Parses "HTTP/1.1". Returns 0, -400 or -505. */
static int parse_version(struct piece p, uint8_t *minor)
{
	if (p.len != 8 || memcmp(p.at, "HTTP/", 5) != 0 || p.at[6] != '.' ||
	    p.at[5] < '0' || p.at[5] > '9' || p.at[7] < '0' || p.at[7] > '9')
		return -400;
	if (p.at[5] != '1')
		return -505;
	*minor = p.at[7] != '0'; /* RFC 9110 2.5: 1.2 is read as 1.1 */
	return 0;
}

static struct http_text text_of(struct piece p, const char *data)
{
	return (struct http_text){(uint16_t)(p.at - data), (uint16_t)p.len};
}

/* A host and perhaps a port; empty is allowed (RFC 9112 3.2). */
static bool is_host(struct piece value)
{
	for (size_t i = 0; i < value.len; i++) {
		unsigned char c = (unsigned char)value.at[i];

		if (!is_token_char(c) && !strchr(":[]();,=", c))
			return false;
	}
	return true;
}

/* The bytes of "http://" or "https://" that a target begins with, or 0. */
static size_t scheme_len(struct piece p)
{
	if (p.len > 7 && strncasecmp(p.at, "http://", 7) == 0)
		return 7;
	return p.len > 8 && strncasecmp(p.at, "https://", 8) == 0 ? 8 : 0;
}

/*
 * Finds the path in "/path?query", in "http://host/path" or the same with
 * https, which a proxy in front may have ended. There is none in the "*" of
 * OPTIONS and the "host:port" of CONNECT (RFC 9112 3.2).
 */
static int parse_target(struct piece p, const char *data,
			struct http_request *out)
{
	size_t scheme = scheme_len(p);
	const char *query;

	if (p.len > HTTP_TARGET_MAX)
		return -414;
	for (size_t i = 0; i < p.len; i++)
		if (p.at[i] <= ' ' || p.at[i] >= 0x7f || p.at[i] == '#')
			return -400;
	if (scheme) {
		struct piece host = {p.at + scheme, 0};

		while (host.len < p.len - scheme &&
		       !strchr("/?", host.at[host.len]))
			host.len++;
		if (host.len == 0 || !is_host(host))
			return -400;
		out->host = text_of(host, data);
		p.len -= scheme + host.len;
		p.at += scheme + host.len;
	} else if (p.at[0] != '/') {
		if (out->method == HTTP_GET || out->method == HTTP_HEAD)
			return -400;
		p.len = 0;
	}
	query = p.len ? memchr(p.at, '?', p.len) : NULL;
	out->path = (uint16_t)(p.at - data);
	out->path_len = (uint16_t)(query ? (size_t)(query - p.at) : p.len);
	out->query_len = (uint16_t)(p.len - out->path_len);
	return 0;
}

static int parse_request_line(struct piece line, const char *data,
			      struct http_request *out)
{
	const char *first = memchr(line.at, ' ', line.len), *second;
	struct piece method, target, version;
	size_t rest;
	int err;

	if (!first)
		return -400;
	method = (struct piece){line.at, (size_t)(first - line.at)};
	rest = line.len - method.len - 1;
	second = memchr(first + 1, ' ', rest);
	if (!second)
		return -400;
	target = (struct piece){first + 1, (size_t)(second - first - 1)};
	version = (struct piece){second + 1, rest - target.len - 1};
	if (!is_token(method) || target.len == 0)
		return -400;
	err = parse_version(version, &out->minor);
	if (err < 0)
		return err;
	out->method = method_of(method);
	return parse_target(target, data, out);
}

/* ---- fields ---- */

/* Digits that fit: RFC 9112 6.3 allows lists of equal numbers, we do not. */
static int parse_length(struct piece value, uint64_t *out)
{
	uint64_t n = 0;

	if (value.len == 0 || value.len > 18)
		return -400;
	for (size_t i = 0; i < value.len; i++) {
		if (value.at[i] < '0' || value.at[i] > '9')
			return -400;
		n = n * 10 + (uint64_t)(value.at[i] - '0');
	}
	*out = n;
	return 0;
}

/* The options of a Connection field; each has to be a token. */
static int parse_connection(struct piece value, struct http_head *head)
{
	while (value.len) {
		const char *comma = memchr(value.at, ',', value.len);
		size_t len = comma ? (size_t)(comma - value.at) : value.len;
		struct piece option = trim_space((struct piece){value.at, len});

		if (option.len && !is_token(option))
			return -400;
		head->close |= is_word(option, "close");
		head->keep_alive |= is_word(option, "keep-alive");
		len += comma != NULL;
		value.at += len;
		value.len -= len;
	}
	return 0;
}

static const char *const kept_names[HTTP_KEPT_FIELDS] = {
	[HTTP_IF_MATCH] = "if-match",
	[HTTP_IF_NONE_MATCH] = "if-none-match",
	[HTTP_ACCEPT_ENCODING] = "accept-encoding",
	[HTTP_IF_MODIFIED_SINCE] = "if-modified-since",
	[HTTP_IF_UNMODIFIED_SINCE] = "if-unmodified-since",
	[HTTP_IF_RANGE] = "if-range",
	[HTTP_RANGE] = "range"};

/* Keeps a field if it is used later. */
static void keep_field(struct piece name, struct piece value, const char *data,
		       struct http_head *head)
{
	for (unsigned i = 0; i < HTTP_KEPT_FIELDS; i++) {
		struct http_text *text = &head->request.fields[i];

		if (!is_word(name, kept_names[i]))
			continue;
		if ((head->kept >> i & 1) && i > HTTP_IF_NONE_MATCH)
			*text = (struct http_text){i > HTTP_ACCEPT_ENCODING, 0};
		else if (!(head->kept >> i & 1))
			*text = text_of(value, data);
		head->kept |= (uint8_t)(1u << i);
		return;
	}
}
static_assert(HTTP_KEPT_FIELDS <= 8, "a bit of `kept` each");

/* Finds the CR that ends a line of a head that has been found to be right. */
static const char *end_of_line(const char *at)
{
	return memchr(at, '\r', HTTP_HEAD_MAX);
}

bool http_next_line(const char *head, enum http_field field,
		    struct http_text *text)
{
	const char *at = end_of_line(head + text->at + text->len) + 2;

	while (*at != '\r') {
		const char *end = end_of_line(at);
		const char *colon = memchr(at, ':', (size_t)(end - at));
		struct piece value = trim_space(
			(struct piece){colon + 1, (size_t)(end - colon) - 1});

		if (is_word((struct piece){at, (size_t)(colon - at)},
			    kept_names[field])) {
			*text = text_of(value, head);
			return true;
		}
		at = end + 2;
	}
	return false;
}

static int take_field(struct piece name, struct piece value, const char *data,
		      struct http_head *head)
{
	if (is_word(name, "host")) {
		head->hosts++;
		if (head->request.host.len == 0)
			head->request.host = text_of(value, data);
		return is_host(value) ? 0 : -400;
	}
	if (is_word(name, "content-length")) {
		head->lengths++;
		return parse_length(value, &head->length);
	}
	if (is_word(name, "transfer-encoding")) {
		head->encodings++;
		return is_word(value, "chunked") ? 0 : -501;
	}
	if (is_word(name, "connection"))
		return parse_connection(value, head);
	if (is_word(name, "expect")) {
		head->expectations++;
		return is_word(value, "100-continue") ? 0 : -417;
	}
	keep_field(name, value, data, head);
	return 0;
}

static int parse_field(struct piece line, const char *data,
		       struct http_head *head)
{
	const char *colon = memchr(line.at, ':', line.len);
	struct piece name, value;

	/* A line that begins with a blank is folding, which has no token. */
	if (!colon)
		return -400;
	name = (struct piece){line.at, (size_t)(colon - line.at)};
	value = trim_space((struct piece){colon + 1, line.len - name.len - 1});
	if (!is_token(name))
		return -400;
	for (size_t i = 0; i < value.len; i++)
		if (!is_value_char((unsigned char)value.at[i]))
			return -400;
	return take_field(name, value, data, head);
}

/* Checks what single fields could not show. */
static int check_head(const struct http_head *head, struct http_request *out)
{
	if (head->hosts > 1 || (out->minor && head->hosts == 0))
		return -400; /* RFC 9112 3.2 */
	if (head->lengths > 1 || head->encodings > 1 || head->expectations > 1)
		return -400;
	if (head->encodings && (head->lengths || !out->minor))
		return -400; /* RFC 9112 6.1: smuggling, or a faulty 1.0 */
	out->chunked = head->encodings != 0;
	out->body_len = head->length;
	out->expects = head->expectations && out->minor;
	out->keep_alive = !head->close && (out->minor || head->keep_alive);
	return 0;
}

/* ---- the head ---- */

#define LINE_MAX (HTTP_TARGET_MAX + 32) /* bytes of the request line */

enum { AT_START, AT_REQUEST, AT_FIELDS };

/*
 * Finds the line at head->at, without its CRLF. Returns 1, 0 (not whole yet) or
 * -400: a CR or a LF alone ends no line. Looks only at bytes that it has not
 * seen before, and at a CR that was the last byte.
 */
static int next_line(struct http_head *head, const char *data, size_t len,
		     struct piece *line)
{
	const char *start = data + head->scanned;
	size_t room = len - head->scanned;
	const char *lf = memchr(start, '\n', room);
	size_t n = lf ? (size_t)(lf - start) : room;
	const char *cr = memchr(start, '\r', n);

	head->looked += 2 * (uint32_t)n + 1;
	head->scanned = (uint16_t)((cr ? cr : start + n) - data);
	if (!lf)
		return cr && cr + 1 < start + room ? -400 : 0;
	if (!cr || cr + 1 != lf)
		return -400;
	*line = (struct piece){data + head->at, (size_t)(cr - data) - head->at};
	head->at = head->scanned = (uint16_t)(lf + 1 - data);
	head->looked += (uint32_t)line->len;
	return 1;
}

/* Returns minus the status for a request line that is too long. */
static int refuse_line(const char *line)
{
	const char *space = memchr(line, ' ', LINE_MAX + 1);

	return space ? -414 : -400; /* or a method without an end */
}

/*
 * Returns 0 or minus a status if next_line() has returned err and no line. A
 * line that is too long is reported before an error at its end.
 */
static int without_line(const struct http_head *head, const char *data,
			size_t len, int err)
{
	if (head->stage != AT_FIELDS && head->scanned - head->at > LINE_MAX)
		return refuse_line(data + head->at);
	if (err < 0)
		return err;
	return len >= HTTP_HEAD_MAX ? -431 : 0;
}

static int take_line(struct http_head *head, const char *data,
		     struct piece line)
{
	if (head->stage == AT_START && line.len == 0) {
		head->stage = AT_REQUEST; /* RFC 9112 2.2: one is ignored */
		return 0;
	}
	if (head->stage != AT_FIELDS) {
		head->stage = AT_FIELDS;
		if (line.len > LINE_MAX)
			return refuse_line(line.at);
		return parse_request_line(line, data, &head->request);
	}
	if (head->fields == HTTP_FIELDS_MAX)
		return -431;
	head->fields++;
	return parse_field(line, data, head);
}

long http_read_head(struct http_head *head, const char *data, size_t len,
		    struct http_request *out)
{
	int err;

	if (len > HTTP_HEAD_MAX)
		len = HTTP_HEAD_MAX;
	for (;;) {
		struct piece line;

		err = next_line(head, data, len, &line);
		if (err <= 0)
			return without_line(head, data, len, err);
		if (head->stage == AT_FIELDS && line.len == 0)
			break;
		err = take_line(head, data, line);
		if (err < 0)
			return err;
	}
	err = check_head(head, &head->request);
	if (err < 0)
		return err;
	*out = head->request;
	return head->at;
}

long http_parse(const char *data, size_t len, struct http_request *out)
{
	struct http_head head = {0};

	return http_read_head(&head, data, len, out);
}

bool http_asks_for_head(const char *data, size_t len)
{
	if (len >= 2 && memcmp(data, "\r\n", 2) == 0) {
		data += 2;
		len -= 2;
	}
	return len >= 5 && memcmp(data, "HEAD ", 5) == 0;
}

/* ---- chunks ---- */

enum {
	CHUNK_SIZE,
	CHUNK_EXT,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_CR,
	CHUNK_LF,
	TRAILER_START,
	TRAILER,
	TRAILER_LF,
	END_LF
};

static int size_byte(struct http_chunks *c, char byte)
{
	int digit = hex_digit(byte);

	if (digit >= 0) {
		if (++c->digits > 15)
			return -400;
		c->size = c->size * 16 + (uint64_t)digit;
		return 0;
	}
	if (c->digits == 0 || (byte != '\r' && byte != ';'))
		return -400;
	c->line = 0;
	c->state = byte == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT;
	return 0;
}

static int size_done(struct http_chunks *c)
{
	c->left = c->size;
	c->state = c->size ? CHUNK_DATA : TRAILER_START;
	c->size = 0;
	c->digits = 0;
	return 0;
}

/* Takes a byte of an extension or a trailer line, which ends with CR. */
static int text_byte(struct http_chunks *c, char byte, uint8_t next)
{
	if (byte == '\r')
		c->state = next;
	else if (!is_value_char((unsigned char)byte))
		return -400;
	return 0;
}

static int chunk_byte(struct http_chunks *c, char byte)
{
	switch (c->state) {
	case CHUNK_SIZE:
		return size_byte(c, byte);
	case CHUNK_EXT:
		if (++c->line > EXT_MAX)
			return -400;
		return text_byte(c, byte, CHUNK_SIZE_LF);
	case CHUNK_SIZE_LF:
		return byte == '\n' ? size_done(c) : -400;
	case CHUNK_CR:
		c->state = CHUNK_LF;
		return byte == '\r' ? 0 : -400;
	case CHUNK_LF:
		c->state = CHUNK_SIZE;
		return byte == '\n' ? 0 : -400;
	case TRAILER_START:
		if (byte == '\r') {
			c->state = END_LF;
			return 0;
		}
		c->state = TRAILER;
		return is_token_char((unsigned char)byte) ? 0 : -400;
	case TRAILER:
		if (++c->trailers > TRAILER_MAX)
			return -400;
		return text_byte(c, byte, TRAILER_LF);
	case TRAILER_LF:
		c->state = TRAILER_START;
		return byte == '\n' ? 0 : -400;
	case END_LF:
		c->done = true;
		return byte == '\n' ? 0 : -400;
	default:
		return -400;
	}
}

long http_skip_chunks(struct http_chunks *chunks, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len && !chunks->done) {
		if (chunks->state == CHUNK_DATA) {
			uint64_t part = len - at;

			if (part > chunks->left)
				part = chunks->left;
			chunks->left -= part;
			at += part;
			if (chunks->left == 0)
				chunks->state = CHUNK_CR;
			continue;
		}
		if (chunk_byte(chunks, data[at++]) < 0)
			return -400;
	}
	return (long)at;
}

/* ---- paths ---- */

long http_decode(const char *path, size_t len, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int c = (unsigned char)path[i];

		if (c == '%') {
			if (len - i < 3 || hex_digit(path[i + 1]) < 0 ||
			    hex_digit(path[i + 2]) < 0)
				return -400;
			c = hex_digit(path[i + 1]) * 16 +
			    hex_digit(path[i + 2]);
			i += 2;
			if (c == 0)
				return -400;
		}
		if (n == room)
			return -414;
		out[n++] = (char)c;
	}
	return (long)n;
}

long http_normalize(char *path, size_t len)
{
	size_t n = 0; /* length so far, without a "/" at the end */
	bool open = true;

	for (size_t at = 0; at < len;) {
		const char *segment = path + at + 1;
		const char *slash = memchr(segment, '/', len - at - 1);
		size_t size = slash ? (size_t)(slash - segment) : len - at - 1;

		at += 1 + size;
		open = true; /* a "/" is to follow */
		if (size == 0 || (size == 1 && segment[0] == '.'))
			continue;
		if (size == 2 && memcmp(segment, "..", 2) == 0) {
			if (n == 0)
				return -400;
			while (path[--n] != '/')
				;
			continue;
		}
		memmove(path + n + 1, segment, size);
		path[n] = '/';
		n += 1 + size;
		open = false;
	}
	if (open)
		path[n++] = '/';
	return (long)n;
}
