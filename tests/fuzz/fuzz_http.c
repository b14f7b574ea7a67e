/*
 * Any bytes as HTTP requests and as chunked bodies: no byte beyond them is
 * read, the result does not depend on how they are split, and the length and
 * the path of a valid request lie within it. Requested ranges lie within the
 * file, and their sum does not exceed it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "apps/httpd/conditions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses a copy of exact size, so that ASan sees reads beyond the end. */
static long parse_request(const uint8_t *data, size_t size,
			  struct http_request *out)
{
	char *copy = malloc(size ? size : 1);
	long n;

	assert(copy);
	memcpy(copy, data, size);
	n = http_parse(copy, size, out);
	free(copy);
	return n;
}

/* Parses two pieces, the second elsewhere in memory. */
static long parse_pieces(const uint8_t *data, size_t size, size_t cut,
			 struct http_request *out)
{
	struct http_head head = {0};
	char *first = malloc(cut ? cut : 1), *all = malloc(size ? size : 1);
	long n;

	assert(first && all);
	memcpy(first, data, cut);
	memcpy(all, data, size);
	n = http_read_head(&head, first, cut, out);
	free(first);
	if (n == 0)
		n = http_read_head(&head, all, size, out);
	free(all);
	assert(head.looked <=
	       4 * (size < HTTP_HEAD_MAX ? size : HTTP_HEAD_MAX) + 8);
	return n;
}

/* Checks the conditions and ranges of a request for a file of 1,000 bytes. */
static void check_conditions(const uint8_t *data, size_t size,
			     const struct http_request *request)
{
	const struct http_validators file = {"\"abc\"", 784111777};
	struct http_range ranges[HTTP_RANGES_MAX];
	char *head = malloc(size);
	uint64_t bytes = 0;
	unsigned n = 0;
	int status;

	assert(head);
	memcpy(head, data, size);
	for (unsigned i = 0; i < HTTP_KEPT_FIELDS; i++)
		assert(request->fields[i].at + request->fields[i].len <= size);
	status = http_check_conditions(head, request, &file);
	assert(status == 200 || status == 304 || status == 412);
	status = http_read_ranges(head, request, &file, 1000, ranges, &n);
	assert((status == 206) == (n > 0) && n <= HTTP_RANGES_MAX);
	assert(status == 200 || status == 206 || status == 416);
	for (unsigned i = 0; i < n; i++) {
		assert(ranges[i].first <= ranges[i].last);
		assert(ranges[i].last < 1000);
		bytes += ranges[i].last - ranges[i].first + 1;
	}
	assert(bytes <= 1000);
	status = http_read_ranges(head, request, &file, 0, ranges, &n);
	assert(status == 200 || status == 416);
	assert(http_choose_coding(head, request, HTTP_GZIP) <= HTTP_GZIP);
	free(head);
}

/*
 * A normalized path is not longer, normalizing it again changes nothing, and it
 * does not leave the folder.
 */
static void check_normal(char *path, long len)
{
	long n = http_normalize(path, (size_t)len);

	if (n < 0)
		return;
	assert(n > 0 && n <= len && path[0] == '/');
	assert(!memmem(path, (size_t)n, "//", 2));
	assert(!memmem(path, (size_t)n, "/./", 3));
	assert(!memmem(path, (size_t)n, "/../", 4));
	assert(http_normalize(path, (size_t)n) == n);
}

static void check_request(const uint8_t *data, size_t size, size_t cut)
{
	struct http_request whole = {0}, part = {0};
	char decoded[HTTP_TARGET_MAX];
	long n = parse_request(data, size, &whole), m;

	assert(n <= (long)size && (n >= 0 || (n <= -400 && n > -600)));
	assert(n != 0 || size < HTTP_HEAD_MAX);
	m = parse_request(data, cut, &part);
	assert(m == 0 || m == n);
	memset(&part, 0, sizeof(part));
	assert(parse_pieces(data, size, cut, &part) == n);
	assert(memcmp(&whole, &part, sizeof(whole)) == 0);
	if (n <= 0)
		return;
	assert(parse_request(data, (size_t)n, &part) == n);
	assert(memcmp(&whole, &part, sizeof(whole)) == 0);
	assert(whole.path + whole.path_len <= n);
	assert(whole.path_len == 0 || data[whole.path] == '/');
	assert(!(whole.chunked && whole.body_len));
	check_conditions(data, (size_t)n, &whole);
	m = http_decode((const char *)data + whole.path, whole.path_len,
			decoded, sizeof(decoded));
	assert(m == -400 || (m >= 0 && m <= whole.path_len));
	assert(m < 0 || !memchr(decoded, 0, (size_t)m));
	if (m > 0)
		check_normal(decoded, m);
}

static void check_chunks(const uint8_t *data, size_t size, size_t cut)
{
	struct http_chunks whole = {0}, parts = {0};
	const char *text = (const char *)data;
	long n = http_skip_chunks(&whole, text, size);
	long m = http_skip_chunks(&parts, text, cut), rest;

	assert(n <= (long)size);
	if (m < 0) {
		assert(n == m);
		return;
	}
	assert(parts.done || (size_t)m == cut);
	rest = http_skip_chunks(&parts, text + m, size - (size_t)m);
	assert(n < 0 ? rest == n : m + rest == n);
	assert(n < 0 || whole.done == parts.done);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t cut;

	if (size < 2 || size > 20000)
		return 0;
	cut = ((size_t)data[0] << 8 | data[1]) % (size - 1);
	data += 2;
	size -= 2;
	if (cut > size)
		cut = size;
	check_request(data, size, cut);
	check_chunks(data, size, cut);
	return 0;
}
