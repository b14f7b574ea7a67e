/* The ends of HTTP responses are found wherever the bytes are cut. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "apps/load/http_answer.h"

#define HEAD "HTTP/1.1 200 OK\r\nServer: a\r\nContent-Length: 5\r\n\r\n"

static int take_all(const char *text)
{
	struct http_answer answer = {0};

	return http_answer_take(&answer, text, strlen(text));
}

static void test_every_cut_in_three(void **state)
{
	static const char text[] = HEAD "12345";
	const size_t len = sizeof(text) - 1;

	for (size_t a = 0; a <= len; a++) {
		for (size_t b = a; b < len; b++) {
			struct http_answer answer = {0};

			assert_int_equal(http_answer_take(&answer, text, a), 0);
			assert_int_equal(
				http_answer_take(&answer, text + a, b - a), 0);
			assert_int_equal(
				http_answer_take(&answer, text + b, len - b),
				1);
			/* and it waits for the next one */
			assert_int_equal(http_answer_take(&answer, text, len),
					 1);
		}
	}
}

static void test_ends(void **state)
{
	assert_int_equal(take_all(HEAD), 0);
	assert_int_equal(take_all(HEAD "1234"), 0);
	assert_int_equal(take_all(HEAD "12345"), 1);
	assert_int_equal(take_all(HEAD "123456"), -EBADMSG);
	assert_int_equal(
		take_all("HTTP/1.1 204 None\r\nContent-Length: 0\r\n\r\n"), 1);
	assert_int_equal(take_all("HTTP/1.1 200 OK\ncontent-LENGTH:5\n\n12345"),
			 1);
	assert_int_equal(
		take_all("HTTP/1.1 200 OK\r\nContent-Length:\t 1\r\n\r\nx"), 1);
}

static void test_other_responses_are_refused(void **state)
{
	static const char *const wrong[] = {
		"HTTP/1.1 301 Moved\r\n",
		"HTTP/1.1 404 Not Found\r\n",
		"HTTP/1.0 200 OK\r\n",
		"\r\n",
		"ICY 200 OK\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: \r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(take_all(wrong[i]), -EBADMSG);
}

/* A line is cut at HTTP_ANSWER_LINE bytes, but never a number. */
static void test_long_lines(void **state)
{
	char text[400];

	snprintf(text, sizeof(text), "HTTP/1.1 200 %0200d\r\nX: %0100d\r\n%s",
		 0, 0, "Content-Length: 2\r\n\r\nab");
	assert_int_equal(take_all(text), 1);
	for (int spaces = 0; spaces < 60; spaces++) {
		snprintf(text, sizeof(text),
			 "HTTP/1.1 200 OK\r\nContent-Length:%*s12\r\n\r\n%s",
			 spaces, "", "123456789012");
		/* complete, or refused; never taken for another length */
		assert_int_equal(take_all(text),
				 spaces + 17 < HTTP_ANSWER_LINE - 1 ? 1
								    : -EBADMSG);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cut_in_three),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_other_responses_are_refused),
		cmocka_unit_test(test_long_lines),
	};

	return cmocka_run_group_tests_name("http_answer", tests, NULL, NULL);
}
