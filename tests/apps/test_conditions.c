/* Conditions, ranges and codings of RFC 9110; malformed ones are ignored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "apps/httpd/conditions.h"

#define SUNDAY "Sun, 06 Nov 1994 08:49:37 GMT"
#define BEFORE "Sun, 06 Nov 1994 08:49:36 GMT"
#define LATER  "Sun, 06 Nov 1994 08:49:38 GMT"
#define TIME   784111777

static const struct http_validators file = {"\"abc\"", TIME};
static char head[16384]; /* more than a line may have */
static struct http_request request;

/* A request with these fields, each line ended by CRLF. */
static void parse_request(const char *method, const char *fields)
{
	int len =
		snprintf(head, sizeof(head),
			 "%s / HTTP/1.1\r\nHost: x\r\n%s\r\n", method, fields);

	assert_int_equal(http_parse(head, (size_t)len, &request), len);
}

static int check_conditions(const char *fields)
{
	parse_request("GET", fields);
	return http_check_conditions(head, &request, &file);
}

static void test_request_without_conditions_gets_the_whole_file(void **state)
{
	struct http_range ranges[HTTP_RANGES_MAX];
	unsigned n = 9;

	assert_int_equal(check_conditions(""), 200);
	assert_int_equal(
		http_read_ranges(head, &request, &file, 10, ranges, &n), 200);
	assert_int_equal(n, 0);
	assert_int_equal(http_choose_coding(head, &request, 3), HTTP_IDENTITY);
}

static void test_tags_decide_between_200_304_and_412(void **state)
{
	assert_int_equal(check_conditions("If-None-Match: \"abc\"\r\n"), 304);
	assert_int_equal(check_conditions("If-None-Match: W/\"abc\"\r\n"), 304);
	assert_int_equal(check_conditions("If-None-Match: *\r\n"), 304);
	assert_int_equal(check_conditions("If-None-Match: \"a\", \"abc\"\r\n"),
			 304);
	assert_int_equal(
		check_conditions("If-None-Match: \"a\",,W/\"b\" , \"abc\"\r\n"),
		304);
	assert_int_equal(check_conditions("If-None-Match: \"a,\", \"abc\"\r\n"),
			 304);
	assert_int_equal(check_conditions("If-None-Match: \"abcd\"\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match: \"ab\"\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match: abc\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match: \"abc\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match: w/\"abc\"\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match: W/\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match: *, \"a\"\r\n"), 200);
	assert_int_equal(check_conditions("If-None-Match:\r\n"), 200);
	assert_int_equal(check_conditions("If-Match: \"abc\"\r\n"), 200);
	assert_int_equal(check_conditions("If-Match: *\r\n"), 200);
	assert_int_equal(check_conditions("If-Match: \"b\"\r\n"), 412);
	/* RFC 9110 13.1.1: compared strongly. */
	assert_int_equal(check_conditions("If-Match: W/\"abc\"\r\n"), 412);
	assert_int_equal(check_conditions("If-Match:\r\n"), 412);
}

static void test_dates_decide_between_200_304_and_412(void **state)
{
	assert_int_equal(check_conditions("If-Modified-Since: " SUNDAY "\r\n"),
			 304);
	assert_int_equal(check_conditions("If-Modified-Since: " LATER "\r\n"),
			 304);
	assert_int_equal(check_conditions("If-Modified-Since: " BEFORE "\r\n"),
			 200);
	assert_int_equal(check_conditions("If-Modified-Since: yesterday\r\n"),
			 200);
	assert_int_equal(check_conditions("If-Modified-Since:\r\n"), 200);
	assert_int_equal(
		check_conditions("If-Unmodified-Since: " SUNDAY "\r\n"), 200);
	assert_int_equal(check_conditions("If-Unmodified-Since: " LATER "\r\n"),
			 200);
	assert_int_equal(
		check_conditions("If-Unmodified-Since: " BEFORE "\r\n"), 412);
	assert_int_equal(check_conditions("If-Unmodified-Since: never\r\n"),
			 200);
}

/* RFC 9110 13.2.2. */
static void test_tags_go_before_dates(void **state)
{
	assert_int_equal(check_conditions("If-None-Match: \"b\"\r\n"
					  "If-Modified-Since: " SUNDAY "\r\n"),
			 200);
	assert_int_equal(check_conditions("If-Modified-Since: " BEFORE "\r\n"
					  "If-None-Match: \"abc\"\r\n"),
			 304);
	assert_int_equal(check_conditions("If-Match: \"abc\"\r\n"
					  "If-Unmodified-Since: " BEFORE
					  "\r\n"),
			 200);
	assert_int_equal(check_conditions("If-Match: \"b\"\r\n"
					  "If-None-Match: \"abc\"\r\n"),
			 412);
	assert_int_equal(check_conditions("If-Match: \"abc\"\r\n"
					  "If-None-Match: \"abc\"\r\n"),
			 304);
}

/* RFC 9110 5.3: equivalent to one line with commas. */
static void test_tags_may_come_in_several_lines(void **state)
{
	assert_int_equal(
		check_conditions("If-None-Match: \"a\"\r\nAccept: x\r\n"
				 "if-none-match: \"b\", \"abc\"\r\n"),
		304);
	assert_int_equal(check_conditions("If-None-Match: \"abc\"\r\n"
					  "If-None-Match: \"b\"\r\n"),
			 304);
	assert_int_equal(check_conditions("If-None-Match: \"a\"\r\n"
					  "If-None-Match: \"b\"\r\n"),
			 200);
	assert_int_equal(
		check_conditions("If-Match: \"a\"\r\nIf-Match: \"b\"\r\n"),
		412);
	assert_int_equal(check_conditions("If-Match: \"a\"\r\nIf-Match:\r\n"
					  "If-Match: \t\"abc\" \r\n"),
			 200);
}

static void test_repeated_fields_are_ignored(void **state)
{
	struct http_range ranges[HTTP_RANGES_MAX];
	unsigned n;

	assert_int_equal(check_conditions("If-Modified-Since: " SUNDAY "\r\n"
					  "If-Modified-Since: " SUNDAY "\r\n"
					  "If-Modified-Since: " SUNDAY "\r\n"),
			 200);
	parse_request("GET", "Range: bytes=0-0\r\nRange: bytes=0-0\r\n");
	assert_int_equal(
		http_read_ranges(head, &request, &file, 10, ranges, &n), 200);
	/* Two If-Range fields are ambiguous. */
	parse_request("GET", "Range: bytes=0-0\r\nIf-Range: \"abc\"\r\n"
			     "If-Range: \"abc\"\r\n");
	assert_int_equal(
		http_read_ranges(head, &request, &file, 10, ranges, &n), 200);
	parse_request("GET",
		      "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n");
	assert_int_equal(http_choose_coding(head, &request, 3), HTTP_IDENTITY);
}

static void expect_date(const char *text, bool good)
{
	time_t time = 0;

	assert_int_equal(http_read_date(text, strlen(text), &time), good);
	if (good)
		assert_int_equal(time, TIME);
}

static void test_three_date_formats_are_read(void **state)
{
	char text[HTTP_DATE_BYTES];

	expect_date(SUNDAY, true);
	expect_date("Sunday, 06-Nov-94 08:49:37 GMT", true);
	expect_date("Sun Nov  6 08:49:37 1994", true);
	expect_date("Sun, 06 Nov 1994 08:49:37", false);
	expect_date("Sun, 06 Nov 1994 08:49:37 CET", false);
	expect_date(SUNDAY " ", false);
	expect_date("Sun, 36 Nov 1994 08:49:37 GMT", false);
	expect_date("Sun, 06 Nov 1994 08:49:37 GMT and some hours", false);
	expect_date("", false);
	http_write_date(TIME, text);
	assert_string_equal(text, SUNDAY);
}

/* ---- ranges ---- */

/* "0-4,9-9" of a file of ten bytes, or the status alone. */
static const char *ranges_of(const char *method, const char *fields,
			     uint64_t size)
{
	static char text[1024];
	struct http_range ranges[HTTP_RANGES_MAX];
	size_t len = 0;
	unsigned n;
	int status;

	parse_request(method, fields);
	status = http_read_ranges(head, &request, &file, size, ranges, &n);
	if (status != 206) {
		assert_int_equal(n, 0);
		snprintf(text, sizeof(text), "%d", status);
		return text;
	}
	assert_true(n > 0);
	for (unsigned i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%llu-%llu", i ? "," : "",
					(unsigned long long)ranges[i].first,
					(unsigned long long)ranges[i].last);
	return text;
}

static void expect_ranges(const char *value, const char *expected)
{
	char fields[512];

	snprintf(fields, sizeof(fields), "Range: %s\r\n", value);
	assert_string_equal(ranges_of("GET", fields, 10), expected);
}

static void test_ranges_are_cut_to_the_file(void **state)
{
	expect_ranges("bytes=0-4", "0-4");
	expect_ranges("Bytes=0-4", "0-4");
	expect_ranges("bytes=9-", "9-9");
	expect_ranges("bytes=5-100", "5-9");
	expect_ranges("bytes=5-999999999999999999", "5-9");
	expect_ranges("bytes=-1", "9-9");
	expect_ranges("bytes=-3", "7-9");
	expect_ranges("bytes=-10", "0-9");
	expect_ranges("bytes=-100", "0-9");
	expect_ranges("bytes=0-0,9-9", "0-0,9-9");
	expect_ranges("bytes=9-9, 0-0", "9-9,0-0");
	expect_ranges("bytes= ,0-0\t,,\t9-9 ,", "0-0,9-9");
	expect_ranges("bytes=0-0,10-,20-30", "0-0");
}

static void test_ranges_beyond_the_end(void **state)
{
	expect_ranges("bytes=10-", "416");
	expect_ranges("bytes=10-20", "416");
	expect_ranges("bytes=-0", "416");
	expect_ranges("bytes=10-,20-", "416");
	assert_string_equal(ranges_of("GET", "Range: bytes=0-\r\n", 0), "416");
	assert_string_equal(ranges_of("GET", "Range: bytes=0-5\r\n", 0), "416");
	assert_string_equal(ranges_of("GET", "Range: bytes=-5\r\n", 0), "416");
}

static void test_wrong_ranges_are_ignored(void **state)
{
	static const char *const wrong[] = {
		"",
		"bytes",
		"bytes=",
		"bytes=,",
		"lines=0-4",
		"bytes=4",
		"bytes=a-b",
		"bytes=-",
		"bytes=4-0",
		"bytes=0-4;",
		"bytes=0-4 5-6",
		"bytes=0 -4",
		"bytes=0-4,x",
		"bytes=0--4",
		"bytes=+0-4",
		"bytes=0x0-4",
		"bytes=0-9999999999999999999",
		"bytes=-9999999999999999999",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		expect_ranges(wrong[i], "200");
	assert_string_equal(ranges_of("HEAD", "Range: bytes=0-4\r\n", 10),
			    "200");
}

/*
 * Ranges larger than the file save nothing, and many are an attack (RFC 9110
 * 17.15).
 */
static void test_ranges_larger_than_the_file_are_ignored(void **state)
{
	char value[256] = "bytes=";

	expect_ranges("bytes=0-4,5-9", "0-4,5-9");
	expect_ranges("bytes=0-5,5-9", "200");
	expect_ranges("bytes=0-,0-", "200");
	for (unsigned i = 0; i < HTTP_RANGES_MAX; i++)
		strcat(value, "10-,");
	expect_ranges(value, "416");
	strcat(value, "0-0");
	expect_ranges(value, "200");
}

static void test_if_range_applies_to_an_unchanged_file_only(void **state)
{
#define RANGE "Range: bytes=0-0\r\n"
	assert_string_equal(ranges_of("GET", RANGE "If-Range: \"abc\"\r\n", 10),
			    "0-0");
	assert_string_equal(
		ranges_of("GET", RANGE "If-Range: " SUNDAY "\r\n", 10), "0-0");
	assert_string_equal(ranges_of("GET", RANGE "If-Range: \"b\"\r\n", 10),
			    "200");
	assert_string_equal(
		ranges_of("GET", RANGE "If-Range: W/\"abc\"\r\n", 10), "200");
	assert_string_equal(
		ranges_of("GET", RANGE "If-Range: " LATER "\r\n", 10), "200");
	assert_string_equal(ranges_of("GET", RANGE "If-Range: *\r\n", 10),
			    "200");
	assert_string_equal(ranges_of("GET", RANGE "If-Range:\r\n", 10), "200");
	/* A changed file no longer has that range. */
	assert_string_equal(
		ranges_of("GET", "Range: bytes=50-\r\nIf-Range: \"b\"\r\n", 10),
		"200");
}

/* ---- codings ---- */

static void expect_coding(const char *value, unsigned there,
			  enum http_coding expected)
{
	char fields[256];

	snprintf(fields, sizeof(fields), "Accept-Encoding: %s\r\n", value);
	parse_request("GET", fields);
	assert_int_equal(http_choose_coding(head, &request, there), expected);
}

static void test_best_accepted_coding_is_chosen(void **state)
{
	const unsigned both = HTTP_GZIP | HTTP_BROTLI;

	expect_coding("gzip", both, HTTP_GZIP);
	expect_coding("x-gzip", both, HTTP_GZIP);
	expect_coding("GZip", both, HTTP_GZIP);
	expect_coding("gzip, deflate, br", both, HTTP_BROTLI);
	expect_coding("gzip, deflate, br", HTTP_GZIP, HTTP_GZIP);
	expect_coding("gzip, deflate, br", HTTP_BROTLI, HTTP_BROTLI);
	expect_coding("gzip, deflate, br", 0, HTTP_IDENTITY);
	expect_coding("br;q=0.5, gzip", both, HTTP_GZIP);
	expect_coding("br;q=0.5,gzip;q=0.501", both, HTTP_GZIP);
	expect_coding("br ; q=0.5, gzip;Q=0.499", both, HTTP_BROTLI);
	expect_coding("gzip;q=0", both, HTTP_IDENTITY);
	expect_coding("gzip;q=0.0, br;q=0.000", both, HTTP_IDENTITY);
	expect_coding("gzip;q=0.001", both, HTTP_GZIP);
	expect_coding("*", both, HTTP_BROTLI);
	expect_coding("*;q=0", both, HTTP_IDENTITY);
	expect_coding("br;q=0, *", both, HTTP_GZIP);
	expect_coding("*, gzip;q=0", HTTP_GZIP, HTTP_IDENTITY);
	expect_coding("identity, gzip;q=0.5", both, HTTP_IDENTITY);
	expect_coding("identity;q=0.5, gzip;q=0.5", both, HTTP_GZIP);
	expect_coding("identity;q=0, gzip", both, HTTP_GZIP);
	expect_coding("", both, HTTP_IDENTITY);
	expect_coding(", ,", both, HTTP_IDENTITY);
	expect_coding("gzipped, brr", both, HTTP_IDENTITY);
	/* A malformed weight rules the coding out. */
	expect_coding("gzip;q=", both, HTTP_IDENTITY);
	expect_coding("gzip;q=01", both, HTTP_IDENTITY);
	expect_coding("gzip;q=2", both, HTTP_IDENTITY);
	expect_coding("gzip;q=1.5", both, HTTP_IDENTITY);
	expect_coding("gzip;level=9", both, HTTP_IDENTITY);
	expect_coding("gzip;", both, HTTP_IDENTITY);
	expect_coding("gzip;x=1,br", both, HTTP_BROTLI);
	expect_coding("gzip gzip, br;q=0.1", both, HTTP_GZIP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_request_without_conditions_gets_the_whole_file),
		cmocka_unit_test(test_tags_decide_between_200_304_and_412),
		cmocka_unit_test(test_dates_decide_between_200_304_and_412),
		cmocka_unit_test(test_tags_go_before_dates),
		cmocka_unit_test(test_tags_may_come_in_several_lines),
		cmocka_unit_test(test_repeated_fields_are_ignored),
		cmocka_unit_test(test_three_date_formats_are_read),
		cmocka_unit_test(test_ranges_are_cut_to_the_file),
		cmocka_unit_test(test_ranges_beyond_the_end),
		cmocka_unit_test(test_wrong_ranges_are_ignored),
		cmocka_unit_test(test_ranges_larger_than_the_file_are_ignored),
		cmocka_unit_test(
			test_if_range_applies_to_an_unchanged_file_only),
		cmocka_unit_test(test_best_accepted_coding_is_chosen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
