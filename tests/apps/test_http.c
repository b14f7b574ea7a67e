/*
 * HTTP requests: valid ones (RFC 9112) are parsed however they are split,
 * others are refused with the right status.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/httpd/http.h"

#define GET "GET / HTTP/1.1\r\n"
#define H   "Host: x\r\n"

static struct http_request r;

/*
 * Appends a piece to the bytes read so far, in a new allocation of exact size.
 */
static long read_piece(struct http_head *head, char **held, const char *text,
		       size_t len, struct http_request *out)
{
	char *copy = malloc(len ? len : 1);
	long n;

	memcpy(copy, text, len);
	n = http_read_head(head, copy, len, out);
	free(*held);
	*held = copy;
	return n;
}

/* The same head in pieces of `step` bytes after a first one of `first`. */
static long read_in_pieces(const char *text, size_t len, size_t first,
			   size_t step, struct http_request *out)
{
	struct http_head head = {0};
	char *held = NULL;
	long n = 0;

	for (size_t have = first; n == 0; have += step) {
		n = read_piece(&head, &held, text, have < len ? have : len,
			       out);
		if (have >= len)
			break;
	}
	free(held);
	return n;
}

/* Checks that the result does not depend on how the head is split. */
static void check_cuts(const char *text, size_t len)
{
	struct http_request whole = {0}, cut = {0};
	long n = http_parse(text, len, &whole);

	for (size_t first = 0; first <= len; first++) {
		assert_int_equal(read_in_pieces(text, len, first, len, &cut),
				 n);
		assert_memory_equal(&cut, &whole, n > 0 ? sizeof(cut) : 0);
	}
	for (size_t step = 1; step < 10; step++) {
		assert_int_equal(read_in_pieces(text, len, 0, step, &cut), n);
		assert_memory_equal(&cut, &whole, n > 0 ? sizeof(cut) : 0);
	}
}

/*
 * Parses from an allocation of exact size. Every prefix must ask for more, or
 * be refused as the whole is; none may yield the whole's length.
 */
static long parse_request(const char *text, size_t len)
{
	long whole = 0;

	for (size_t part = 0; part <= len; part++) {
		char *copy = malloc(part ? part : 1);
		long n;

		memcpy(copy, text, part);
		n = http_parse(copy, part, &r);
		free(copy);
		if (whole != 0)
			assert_int_equal(n, whole);
		assert_true(n <= (long)part);
		whole = n;
	}
	return whole;
}

static long parse_text(const char *text)
{
	check_cuts(text, strlen(text));
	return parse_request(text, strlen(text));
}

static void test_a_request_is_read_to_its_end(void **state)
{
	const char *text = "GET /a/b.html?x=/y HTTP/1.1\r\nHost: h:80\r\n"
			   "Accept: */*\r\nX-Odd:\t a b\xff \r\n\r\nmore";

	assert_int_equal(parse_text(text), strlen(text) - 4);
	assert_int_equal(r.method, HTTP_GET);
	assert_int_equal(r.minor, 1);
	assert_true(r.keep_alive);
	assert_false(r.chunked);
	assert_int_equal(r.body_len, 0);
	assert_int_equal(r.path_len, 9);
	assert_memory_equal(text + r.path, "/a/b.html", 9);
}

/* RFC 9112 3.2.2: a target's host takes the place of the field's. */
static void test_host_is_that_of_the_target_or_of_the_field(void **state)
{
	static const struct {
		const char *text, *host;
	} rows[] = {
		{"GET / HTTP/1.1\r\nHost:  a.test:81 \r\n\r\n", "a.test:81"},
		{"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", "[::1]"},
		{"GET http://b:8/p HTTP/1.1\r\nHost: a\r\n\r\n", "b:8"},
		{"GET https://b?q HTTP/1.1\r\nHost: a\r\n\r\n", "b"},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", ""},
		{"GET / HTTP/1.0\r\n\r\n", ""},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_true(parse_text(rows[i].text) > 0);
		assert_int_equal(r.host.len, strlen(rows[i].host));
		assert_memory_equal(rows[i].text + r.host.at, rows[i].host,
				    r.host.len);
	}
}

static void test_target_forms_are_parsed(void **state)
{
	const char *text = "GET http://h/p?q HTTP/1.1\r\n" H "\r\n";

	assert_true(parse_text(text) > 0);
	assert_int_equal(r.path_len, 2);
	assert_int_equal(r.query_len, 2);
	assert_memory_equal(text + r.path, "/p?q", 4);
	assert_true(parse_text("GET HTTPS://h:443/p HTTP/1.1\r\n" H "\r\n") >
		    0);
	assert_int_equal(r.path_len, 2);
	assert_int_equal(r.query_len, 0);
	assert_int_equal(parse_text("GET https:///p HTTP/1.1\r\n" H "\r\n"),
			 -400);
	assert_true(parse_text("GET http://h HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(r.path_len, 0);
	assert_true(parse_text("OPTIONS * HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(r.method, HTTP_KNOWN);
	assert_true(parse_text("CONNECT a:1 HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(parse_text("GET * HTTP/1.1\r\n" H "\r\n"), -400);
	assert_int_equal(parse_text("GET a HTTP/1.1\r\n" H "\r\n"), -400);
	assert_int_equal(parse_text("GET http:///p HTTP/1.1\r\n" H "\r\n"),
			 -400);
	/* A slash in the query begins no path; a user is an error (4.2.4). */
	assert_true(parse_text("GET http://h?q=/p HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(r.path_len, 0);
	assert_int_equal(parse_text("GET http://u@h/ HTTP/1.1\r\n" H "\r\n"),
			 -400);
}

static void test_methods_are_case_sensitive(void **state)
{
	assert_true(parse_text("HEAD / HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(r.method, HTTP_HEAD);
	assert_true(parse_text("PUT / HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(r.method, HTTP_KNOWN);
	assert_true(parse_text("get / HTTP/1.1\r\n" H "\r\n") > 0);
	assert_int_equal(r.method, HTTP_UNKNOWN);
}

static void test_only_versions_1_x_are_parsed(void **state)
{
	assert_true(parse_text("GET / HTTP/1.0\r\n\r\n") > 0);
	assert_int_equal(r.minor, 0);
	assert_false(r.keep_alive);
	assert_true(parse_text("GET / HTTP/1.9\r\n" H "\r\n") > 0);
	assert_int_equal(r.minor, 1);
	assert_int_equal(parse_text("GET / HTTP/2.0\r\n"), -505);
	assert_int_equal(parse_text("GET / HTTP/0.9\r\n"), -505);
	assert_int_equal(parse_text("GET / http/1.1\r\n"), -400);
	assert_int_equal(parse_text("GET / HTTP/1.10\r\n"), -400);
	assert_int_equal(parse_text("GET / HTTP/11\r\n"), -400);
	assert_int_equal(parse_text("GET /\r\n"), -400);
}

static void test_connection_field_decides_keep_alive(void **state)
{
	assert_true(parse_text(GET H "Connection: close\r\n\r\n") > 0);
	assert_false(r.keep_alive);
	assert_true(parse_text(GET H "connection: x, ,CLOSE\r\n\r\n") > 0);
	assert_false(r.keep_alive);
	assert_true(parse_text("GET / HTTP/1.0\r\n"
			       "Connection: Keep-Alive\r\n\r\n") > 0);
	assert_true(r.keep_alive);
	assert_true(parse_text(GET H "Connection: keep-alive, close\r\n\r\n") >
		    0);
	assert_false(r.keep_alive);
	assert_int_equal(parse_text(GET H "Connection: a b\r\n\r\n"), -400);
}

static void test_one_empty_line_before_a_request_is_ignored(void **state)
{
	assert_true(parse_text("\r\n" GET H "\r\n") > 0);
	assert_int_equal(parse_text("\r\n\r\n" GET H "\r\n"), -400);
}

static void test_lines_end_in_crlf_alone(void **state)
{
	assert_int_equal(parse_text("GET / HTTP/1.1\nHost: x\n\n"), -400);
	assert_int_equal(parse_text(GET "Host: x\n\r\n"), -400);
	assert_int_equal(parse_text(GET "Host: x\r\r\n\r\n"), -400);
	assert_int_equal(parse_text(GET H "A: b\rC: d\r\n\r\n"), -400);
	assert_int_equal(parse_text("GET /\r HTTP/1.1\r\n" H "\r\n"), -400);
	assert_int_equal(parse_text("\n" GET H "\r\n"), -400);
	/* At once, not when the line has ended. */
	assert_int_equal(parse_text("GET / HTTP/1.1\rX"), -400);
}

static void test_malformed_request_lines_are_refused(void **state)
{
	static const char *const wrong[] = {
		" GET / HTTP/1.1\r\n",	  "GET  / HTTP/1.1\r\n",
		"GET /  HTTP/1.1\r\n",	  "GET / HTTP/1.1 \r\n",
		"GET\t/ HTTP/1.1\r\n",	  "GET / x HTTP/1.1\r\n",
		"G@T / HTTP/1.1\r\n",	  "GET /\x01 HTTP/1.1\r\n",
		"GET /\x7f HTTP/1.1\r\n", "GET /\x80 HTTP/1.1\r\n",
		"GET /# HTTP/1.1\r\n",	  "GET\r\n",
		"GET / HTTP/1.x\r\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse_text(wrong[i]), -400);
	assert_int_equal(parse_request(GET "A: \0\r\n\r\n", 23), -400);
	assert_int_equal(parse_request("GET /\0 HTTP/1.1\r\n\r\n", 19), -400);
}

static void test_malformed_fields_are_refused(void **state)
{
	static const char *const wrong[] = {
		GET H "Name : x\r\n\r\n",
		GET H " Name: x\r\n\r\n",
		GET H "Name: x\r\n folded\r\n\r\n",
		GET H "Name: x\r\n\tfolded\r\n\r\n",
		GET H ": x\r\n\r\n",
		GET H "Name\r\n\r\n",
		GET H "N(me: x\r\n\r\n",
		GET H "Name: a\x7f\r\n\r\n",
		GET H "Name: a\x01\r\n\r\n",
		GET "\r\n",		 /* no Host */
		GET H H "\r\n",		 /* two */
		GET "Host: a b\r\n\r\n", /* none */
		GET "Host: a/b\r\n\r\n",
		GET "Host: a@b\r\n\r\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse_text(wrong[i]), -400);
	assert_true(parse_text(GET "Host:\r\n\r\n") > 0);
	assert_true(parse_text(GET "Host: [fd00::1]:80\r\n\r\n") > 0);
}

static void test_bodies_have_one_length(void **state)
{
	static const char *const wrong[] = {
		"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"Content-Length: 5, 5\r\n\r\n",
		"Content-Length: +5\r\n\r\n",
		"Content-Length: -5\r\n\r\n",
		"Content-Length: 0x5\r\n\r\n",
		"Content-Length: 5 5\r\n\r\n",
		"Content-Length:\r\n\r\n",
		"Content-Length: 99999999999999999999\r\n\r\n",
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: "
		"chunked\r\n\r\n",
		"Transfer-Encoding : chunked\r\n\r\n",
	};
	char text[256];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), GET H "%s", wrong[i]);
		assert_int_equal(parse_text(text), -400);
	}
	assert_true(parse_text(GET H "Content-Length: 0012\r\n\r\n") > 0);
	assert_true(r.body_len == 12);
	assert_true(parse_text(GET H "Transfer-Encoding: Chunked\r\n\r\n") > 0);
	assert_true(r.chunked);
}

static void test_codings_not_known_are_501_and_expectations_417(void **state)
{
	assert_int_equal(parse_text(GET H "Transfer-Encoding: gzip\r\n\r\n"),
			 -501);
	assert_int_equal(
		parse_text(GET H "Transfer-Encoding: gzip, chunked\r\n\r\n"),
		-501);
	assert_int_equal(
		parse_text(GET H "Transfer-Encoding: xchunked\r\n\r\n"), -501);
	assert_int_equal(parse_text("GET / HTTP/1.0\r\n"
				    "Transfer-Encoding: chunked\r\n\r\n"),
			 -400);
	assert_int_equal(parse_text(GET H "Expect: tea\r\n\r\n"), -417);
	assert_true(parse_text(GET H "Expect: 100-Continue\r\n\r\n") > 0);
	assert_true(r.expects);
}

/* A text of `n` bytes of `fill` between two others: its length. */
static size_t build_request(char *text, const char *before, char fill, size_t n,
			    const char *after)
{
	size_t at = strlen(before);

	memcpy(text, before, at);
	memset(text + at, fill, n);
	memcpy(text + at + n, after, strlen(after) + 1);
	return at + n + strlen(after);
}

/* Also at the limits, where the first error must not depend on the split. */
static void test_long_head_may_be_split_anywhere(void **state)
{
	static const char *const ends[] = {" HTTP/1.1\r\n" H "\r\n",
					   " HTTP/1.1\n", "\rx HTTP/1.1\r\n",
					   "\r\r\n", ""};
	static const struct {
		const char *before;
		size_t n;
	} heads[] = {
		{"GET /", HTTP_TARGET_MAX - 1},
		{"GET /", HTTP_TARGET_MAX},
		{"GET /", HTTP_TARGET_MAX + 27},
		{"GET /", HTTP_TARGET_MAX + 28},
		{"A-METHOD-THAT-IS-LONGER-THAN-SOME /", HTTP_TARGET_MAX - 1},
		{"\r\nGET /", HTTP_TARGET_MAX + 28},
		{"G", HTTP_TARGET_MAX + 32},
		{GET H "A: ", HTTP_HEAD_MAX - 23 - 21},
		{GET H "A: ", HTTP_HEAD_MAX},
	};
	static char text[3 * HTTP_HEAD_MAX];

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		for (size_t end = 0; end < sizeof(ends) / sizeof(ends[0]);
		     end++) {
			struct http_request whole, cut;
			size_t len = build_request(text, heads[i].before, 'a',
						   heads[i].n, ends[end]);
			long n = http_parse(text, len, &whole);

			/* Every position near the end, where all limits are. */
			for (size_t first = len > 60 ? len - 60 : 0;
			     first <= len; first++)
				assert_int_equal(read_in_pieces(text, len,
								first, len,
								&cut),
						 n);
			for (size_t first = HTTP_TARGET_MAX;
			     first <= HTTP_TARGET_MAX + 80 && first < len;
			     first++)
				assert_int_equal(read_in_pieces(text, len,
								first, 1500,
								&cut),
						 n);
			assert_int_equal(read_in_pieces(text, len, 0, 97, &cut),
					 n);
		}
}

/*
 * The cost of a head is proportional to its length, however small its pieces
 * are. It is counted in bytes scanned.
 */
static void test_head_in_small_pieces_is_scanned_once(void **state)
{
	static char text[2 * HTTP_HEAD_MAX];
	struct http_head head = {0};
	size_t len = 0;

	len += (size_t)sprintf(text, GET H);
	for (int i = 0; i < 95; i++)
		len += build_request(text + len, "X-Field: ", 'a', 150, "\r\n");
	len += build_request(text + len, "Y: ", 'y', HTTP_HEAD_MAX - 10 - len,
			     "");
	for (size_t have = 0; have <= len; have++)
		assert_int_equal(http_read_head(&head, text, have, &r), 0);
	assert_true(head.looked >= len); /* it counts */
	assert_true(head.looked <= 4 * len);
	text[len++] = '\r';
	text[len++] = '\n';
	memcpy(text + len, "\r\n", 3);
	assert_int_equal(http_read_head(&head, text, len + 2, &r), len + 2);
	assert_true(head.looked <= 5 * len);
}

static void test_head_method_is_recognized_early(void **state)
{
	assert_true(http_asks_for_head("HEAD / HTTP/1.1\r\n", 17));
	assert_true(http_asks_for_head("\r\nHEAD ", 7));
	assert_true(http_asks_for_head("HEAD ", 5));
	assert_false(http_asks_for_head("HEAD", 4));
	assert_false(http_asks_for_head("GET HEAD ", 9));
	assert_false(http_asks_for_head("HEADS /", 7));
	assert_false(http_asks_for_head("\r\n\r\nHEAD ", 9));
	assert_false(http_asks_for_head("", 0));
}

static void test_target_and_fields_are_bounded(void **state)
{
	static char text[40000];
	size_t n;

	n = (size_t)sprintf(text, "GET /%0*d HTTP/1.1\r\n" H "\r\n",
			    HTTP_TARGET_MAX - 1, 0);
	assert_int_equal(http_parse(text, n, &r), (long)n);
	n = (size_t)sprintf(text, "GET /%0*d HTTP/1.1\r\n" H "\r\n",
			    HTTP_TARGET_MAX, 0);
	assert_int_equal(http_parse(text, n, &r), -414);
	memset(text, 'a', sizeof(text));
	memcpy(text, "GET /", 5);
	assert_int_equal(http_parse(text, 5000, &r), 0);
	assert_int_equal(http_parse(text, 9000, &r), -414);
	memset(text, 'a', sizeof(text));
	assert_int_equal(http_parse(text, 9000, &r), -400);
	n = (size_t)sprintf(text, GET H "A: %0*d\r\n\r\n", HTTP_HEAD_MAX, 0);
	assert_int_equal(http_parse(text, n, &r), -431);
	assert_int_equal(http_parse(text, HTTP_HEAD_MAX - 1, &r), 0);
	assert_int_equal(http_parse(text, HTTP_HEAD_MAX, &r), -431);
	n = (size_t)sprintf(text, GET H);
	for (int i = 1; i < HTTP_FIELDS_MAX; i++)
		n += (size_t)sprintf(text + n, "A: b\r\n");
	sprintf(text + n, "\r\n");
	assert_true(http_parse(text, n + 2, &r) > 0);
	sprintf(text + n, "A: b\r\n\r\n");
	assert_int_equal(http_parse(text, n + 8, &r), -431);
}

/* Skips chunks byte by byte and at once, with the same result. */
static long pass_over(const char *text, size_t len)
{
	struct http_chunks whole = {0}, bytes = {0};
	long n = http_skip_chunks(&whole, text, len), m = 0;

	for (size_t i = 0; i < len && !bytes.done && m >= 0; i++) {
		long one = http_skip_chunks(&bytes, text + i, 1);

		m = one < 0 ? one : m + one;
	}
	assert_int_equal(n, m);
	if (n >= 0)
		assert_int_equal(whole.done, bytes.done);
	return n < 0 ? n : whole.done ? n : 0;
}

static long pass_over_text(const char *text)
{
	return pass_over(text, strlen(text));
}

static void test_chunks_are_skipped(void **state)
{
	assert_int_equal(pass_over_text("0\r\n\r\nGET"), 5);
	assert_int_equal(pass_over_text("5\r\nhello\r\n00\r\n\r\n"), 16);
	assert_int_equal(pass_over_text("a;x=\"y\"\r\n0123456789\r\n0\r\n"
					"T: v\r\n\r\nX"),
			 32);
	assert_int_equal(pass_over_text("5\r\nhello\r\n"), 0);
}

static void test_malformed_chunks_are_refused(void **state)
{
	static const char *const wrong[] = {
		"\r\n",
		"x\r\n",
		" 5\r\nhello\r\n0\r\n\r\n",
		"5 \r\nhello\r\n0\r\n\r\n",
		"0x5\r\nhello\r\n0\r\n\r\n",
		"5\nhello\r\n0\r\n\r\n",
		"5\r\nhello!\r\n0\r\n\r\n",
		"5\r\nhello\n0\r\n\r\n",
		"5\r\nhelloX\n0\r\n\r\n",
		"5\rXhello\r\n0\r\n\r\n",
		"5;a\nb\r\nhello\r\n0\r\n\r\n",
		"1000000000000000\r\n",
		"0\r\n folded\r\n\r\n",
		"0\r\nT: v\n\r\n",
		"0\r\n\rX",
		"-1\r\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(pass_over_text(wrong[i]), -400);
}

static void test_chunk_extensions_and_trailers_are_bounded(void **state)
{
	static char text[20000];

	memset(text, 'x', sizeof(text));
	memcpy(text, "5;", 2);
	assert_int_equal(pass_over(text, 300), -400);
	memset(text, 'x', sizeof(text));
	memcpy(text, "0\r\nT: ", 6);
	assert_int_equal(pass_over(text, 8000), 0);
	assert_int_equal(pass_over(text, 9000), -400);
}

static void test_paths_are_decoded_once(void **state)
{
	char out[16];

	assert_int_equal(http_decode("/a%20b%2Fc", 10, out, 16), 6);
	assert_memory_equal(out, "/a b/c", 6);
	assert_int_equal(http_decode("%2525", 5, out, 16), 3);
	assert_memory_equal(out, "%25", 3);
	assert_int_equal(http_decode("/%2", 3, out, 16), -400);
	assert_int_equal(http_decode("/%", 2, out, 16), -400);
	assert_int_equal(http_decode("/%20", 3, out, 16), -400);
	assert_int_equal(http_decode("/%zz", 4, out, 16), -400);
	assert_int_equal(http_decode("/%00", 4, out, 16), -400);
	assert_int_equal(http_decode("abc", 3, out, 2), -414);
}

static void test_dot_segments_are_removed(void **state)
{
	static const struct {
		const char *path, *normal; /* NULL: it leaves the folder */
	} cases[] = {
		{"/", "/"},
		{"/a", "/a"},
		{"/a/", "/a/"},
		{"/a/b", "/a/b"},
		{"/.", "/"},
		{"/./", "/"},
		{"/./a", "/a"},
		{"/a/.", "/a/"},
		{"/a/./b/", "/a/b/"},
		{"/a/..", "/"},
		{"/a/../", "/"},
		{"/a/../b", "/b"},
		{"/a/b/..", "/a/"},
		{"/a/b/../../c", "/c"},
		{"/a/b/c/../d/./../e", "/a/b/e"},
		{"//", "/"},
		{"//a///b//", "/a/b/"},
		{"//x/../a", "/a"},
		{"/...", "/..."},
		{"/..a/.b", "/..a/.b"},
		{"/a/..b", "/a/..b"},
		{"/..", NULL},
		{"/../", NULL},
		{"/a/../..", NULL},
		{"/a/../../a", NULL},
		{"//../a", NULL},
		{"/./../a", NULL},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len = strlen(cases[i].path);
		char *path = malloc(len); /* no byte beyond, says ASan */
		long n;

		assert_non_null(path);
		memcpy(path, cases[i].path, len);
		n = http_normalize(path, len);
		if (!cases[i].normal) {
			assert_int_equal(n, -400);
		} else {
			assert_int_equal(n, strlen(cases[i].normal));
			assert_memory_equal(path, cases[i].normal, n);
		}
		free(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_request_is_read_to_its_end),
		cmocka_unit_test(
			test_host_is_that_of_the_target_or_of_the_field),
		cmocka_unit_test(test_target_forms_are_parsed),
		cmocka_unit_test(test_methods_are_case_sensitive),
		cmocka_unit_test(test_only_versions_1_x_are_parsed),
		cmocka_unit_test(test_connection_field_decides_keep_alive),
		cmocka_unit_test(
			test_one_empty_line_before_a_request_is_ignored),
		cmocka_unit_test(test_lines_end_in_crlf_alone),
		cmocka_unit_test(test_malformed_request_lines_are_refused),
		cmocka_unit_test(test_malformed_fields_are_refused),
		cmocka_unit_test(test_bodies_have_one_length),
		cmocka_unit_test(
			test_codings_not_known_are_501_and_expectations_417),
		cmocka_unit_test(test_target_and_fields_are_bounded),
		cmocka_unit_test(test_long_head_may_be_split_anywhere),
		cmocka_unit_test(test_head_in_small_pieces_is_scanned_once),
		cmocka_unit_test(test_head_method_is_recognized_early),
		cmocka_unit_test(test_chunks_are_skipped),
		cmocka_unit_test(test_malformed_chunks_are_refused),
		cmocka_unit_test(
			test_chunk_extensions_and_trailers_are_bounded),
		cmocka_unit_test(test_paths_are_decoded_once),
		cmocka_unit_test(test_dot_segments_are_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
