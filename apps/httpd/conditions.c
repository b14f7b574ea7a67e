/*
 * Decides what a request's conditions, ranges and encodings select (RFC 9110).
 */
#include "apps/httpd/conditions.h"

#include <string.h>
#include <strings.h>

/* A value, which is read from its beginning. */
struct value {
	const char *at, *end;
};

/* Finds a field's value; false: the field is not there. */
static bool get_field(const char *head, const struct http_request *request,
		      enum http_field field, struct value *out)
{
	struct http_text text = request->fields[field];

	*out = (struct value){head + text.at, head + text.at + text.len};
	return text.at != 0;
}

/* Skips blanks and, between the elements of a list, commas. */
static void skip_space(struct value *v, bool commas)
{
	while (v->at < v->end &&
	       (*v->at == ' ' || *v->at == '\t' || (commas && *v->at == ',')))
		v->at++;
}

static bool take_char(struct value *v, char c)
{
	if (v->at == v->end || *v->at != c)
		return false;
	v->at++;
	return true;
}

/* ---- dates ---- */

bool http_read_date(const char *text, size_t len, time_t *out)
{
	static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT",
					    "%A, %d-%b-%y %H:%M:%S GMT",
					    "%a %b %e %H:%M:%S %Y"};
	char copy[40];

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct tm tm = {0};
		const char *end = strptime(copy, forms[i], &tm);

		if (end && end == copy + len) {
			*out = timegm(&tm);
			return true;
		}
	}
	return false;
}

void http_write_date(time_t time, char out[HTTP_DATE_BYTES])
{
	struct tm tm;

	gmtime_r(&time, &tm);
	strftime(out, HTTP_DATE_BYTES, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* The date of a field; false: none, or none that can be read. */
static bool get_date(const char *head, const struct http_request *request,
		     enum http_field field, time_t *out)
{
	struct value v;

	return get_field(head, request, field, &v) &&
	       http_read_date(v.at, (size_t)(v.end - v.at), out);
}

/* ---- conditions ---- */

/*
 * Returns whether a list has the tag, or is "*", which matches any (RFC 9110
 * 8.8.3). If weakly, a weak tag counts as well.
 */
static bool lists_tag(struct value v, const char *etag, bool weakly)
{
	if (v.end - v.at == 1 && *v.at == '*')
		return true;
	for (;;) {
		const char *begin, *close;
		bool weak;

		skip_space(&v, true);
		weak = v.end - v.at > 2 && memcmp(v.at, "W/", 2) == 0;
		begin = v.at += 2 * weak;
		if (!take_char(&v, '"'))
			return false;
		close = memchr(v.at, '"', (size_t)(v.end - v.at));
		if (!close)
			return false;
		v.at = close + 1;
		if ((weakly || !weak) &&
		    (size_t)(v.at - begin) == strlen(etag) &&
		    memcmp(begin, etag, strlen(etag)) == 0)
			return true;
	}
}

/* Like lists_tag(), for a field that may have several lines (RFC 9110 5.3). */
static bool field_lists_tag(const char *head,
			    const struct http_request *request,
			    enum http_field field, const char *etag,
			    bool weakly)
{
	struct http_text text = request->fields[field];

	do {
		struct value v = {head + text.at, head + text.at + text.len};

		if (lists_tag(v, etag, weakly))
			return true;
	} while (http_next_line(head, field, &text));
	return false;
}

int http_check_conditions(const char *head, const struct http_request *request,
			  const struct http_validators *file)
{
	struct value v;
	time_t date;

	if (get_field(head, request, HTTP_IF_MATCH, &v)) {
		if (!field_lists_tag(head, request, HTTP_IF_MATCH, file->etag,
				     false))
			return 412;
	} else if (get_date(head, request, HTTP_IF_UNMODIFIED_SINCE, &date)) {
		if (file->modified > date)
			return 412;
	}
	if (get_field(head, request, HTTP_IF_NONE_MATCH, &v))
		return field_lists_tag(head, request, HTTP_IF_NONE_MATCH,
				       file->etag, true)
			       ? 304
			       : 200;
	if (get_date(head, request, HTTP_IF_MODIFIED_SINCE, &date))
		return file->modified <= date ? 304 : 200;
	return 200;
}

/* ---- ranges ---- */

/* RFC 9110 13.1.5: is it the very file that the client has a part of? */
static bool is_the_same(const char *head, const struct http_request *request,
			const struct http_validators *file)
{
	struct value v;
	time_t date;

	if (!get_field(head, request, HTTP_IF_RANGE, &v))
		return true;
	if (get_date(head, request, HTTP_IF_RANGE, &date))
		return date == file->modified;
	return v.at < v.end && *v.at != '*' && lists_tag(v, file->etag, false);
}

/* Digits that fit; false: there are none, or too many. */
static bool take_number(struct value *v, uint64_t *out)
{
	const char *begin = v->at;

	*out = 0;
	for (; v->at < v->end && *v->at >= '0' && *v->at <= '9'; v->at++) {
		if (v->at - begin == 18)
			return false;
		*out = *out * 10 + (uint64_t)(*v->at - '0');
	}
	return v->at > begin;
}

/* Takes one range. Returns 1, 0 (beyond the file's end) or -1 (malformed). */
static int take_range(struct value *v, uint64_t size, struct http_range *out)
{
	uint64_t last;

	if (take_char(v, '-')) { /* the last N bytes */
		if (!take_number(v, &last))
			return -1;
		*out = (struct http_range){last < size ? size - last : 0,
					   size - 1};
		return last && size;
	}
	if (!take_number(v, &out->first) || !take_char(v, '-'))
		return -1;
	out->last = size - 1;
	if (v->at < v->end && *v->at >= '0' && *v->at <= '9') {
		if (!take_number(v, &last) || last < out->first)
			return -1;
		if (last < out->last)
			out->last = last;
	}
	return out->first < size;
}

/* Like http_read_ranges(), but *n is valid only if it returns 206. */
static int read_ranges(const char *head, const struct http_request *request,
		       const struct http_validators *file, uint64_t size,
		       struct http_range *ranges, unsigned *n)
{
	uint64_t bytes = 0;
	unsigned asked = 0;
	struct value v;

	if (request->method != HTTP_GET ||
	    !get_field(head, request, HTTP_RANGE, &v) || v.end - v.at < 6 ||
	    strncasecmp(v.at, "bytes=", 6) != 0)
		return 200;
	v.at += 6;
	for (skip_space(&v, true); v.at < v.end; skip_space(&v, true)) {
		int there;

		if (asked++ == HTTP_RANGES_MAX)
			return 200;
		there = take_range(&v, size, &ranges[*n]);
		skip_space(&v, false);
		if (there < 0 || (v.at < v.end && *v.at != ','))
			return 200;
		if (there)
			bytes += ranges[*n].last - ranges[*n].first + 1;
		*n += (unsigned)there;
	}
	if (!asked || bytes > size || !is_the_same(head, request, file))
		return 200;
	return *n ? 206 : 416;
}

int http_read_ranges(const char *head, const struct http_request *request,
		     const struct http_validators *file, uint64_t size,
		     struct http_range ranges[HTTP_RANGES_MAX], unsigned *n)
{
	int status;

	*n = 0;
	status = read_ranges(head, request, file, size, ranges, n);
	if (status != 206)
		*n = 0;
	return status;
}

/* ---- codings ---- */

/* Returns ";q=0.5" in thousandths; 1000 without one, 0 if it is malformed. */
static unsigned take_weight(struct value *v)
{
	unsigned weight = 0, scale = 1000;

	skip_space(v, false);
	if (!take_char(v, ';'))
		return 1000;
	skip_space(v, false);
	if (!(take_char(v, 'q') || take_char(v, 'Q')) || !take_char(v, '='))
		return 0;
	for (unsigned i = 0; i < 4 && v->at < v->end; i++, scale /= 10) {
		if (*v->at < '0' || *v->at > '9')
			break;
		weight += (unsigned)(*v->at++ - '0') * scale;
		if (i == 0 && !take_char(v, '.'))
			break;
	}
	return weight > 1000 ? 0 : weight;
}

static bool is_word(struct value name, const char *word)
{
	size_t len = (size_t)(name.end - name.at);

	return len == strlen(word) && strncasecmp(name.at, word, len) == 0;
}

static struct value take_name(struct value *v)
{
	struct value name = {v->at, v->at};

	while (v->at < v->end && !strchr(" \t,;", *v->at))
		v->at++;
	name.end = v->at;
	return name;
}

/* In thousandths; -1: not named. */
struct weights {
	int identity, gzip, brotli, others;
};

static struct weights read_weights(struct value v)
{
	struct weights weights = {-1, -1, -1, -1};

	for (skip_space(&v, true); v.at < v.end; skip_space(&v, true)) {
		struct value name = take_name(&v);
		int weight = (int)take_weight(&v);

		if (is_word(name, "identity"))
			weights.identity = weight;
		else if (is_word(name, "gzip") || is_word(name, "x-gzip"))
			weights.gzip = weight;
		else if (is_word(name, "br"))
			weights.brotli = weight;
		else if (is_word(name, "*"))
			weights.others = weight;
		while (v.at < v.end && *v.at != ',')
			v.at++;
	}
	return weights;
}

/*
 * Prefers compressed forms if the client does not say, and Brotli to gzip,
 * which is larger.
 */
enum http_coding http_choose_coding(const char *head,
				    const struct http_request *request,
				    unsigned there)
{
	enum http_coding best = HTTP_IDENTITY;
	struct weights weights;
	struct value v;
	int least;

	if (!there || !get_field(head, request, HTTP_ACCEPT_ENCODING, &v))
		return HTTP_IDENTITY;
	weights = read_weights(v);
	if (weights.gzip < 0)
		weights.gzip = weights.others;
	if (weights.brotli < 0)
		weights.brotli = weights.others;
	least = weights.identity > 0 ? weights.identity : 1;
	if ((there & HTTP_GZIP) && weights.gzip >= least) {
		best = HTTP_GZIP;
		least = weights.gzip;
	}
	if ((there & HTTP_BROTLI) && weights.brotli >= least)
		best = HTTP_BROTLI;
	return best;
}
