/* Lines of coronet-httpd's access log, from heads that clients may send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "apps/httpd/http_log.h"

/* 2023-11-14T22:13:20.1235Z; in the middle of a millisecond, since the log
 * asks its clock a moment after the system's. */
#define BEGIN_NS INT64_C(1700000000123500000)

static char path[64];
static FILE *file;
static struct line_log *the_log;

/* The log's clock is the system's. */
static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void open_log(enum http_log_form form)
{
	int fd;

	strcpy(path, "/tmp/http-log-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	file = fdopen(fd, "r");
	assert_int_equal(line_log_open(&http_log_kind, path, form, 1, clock_ns,
				       NULL, &the_log),
			 0);
}

static void add_entry(const char *head, size_t len)
{
	const struct http_log_entry entry = {
		.begin_ns = BEGIN_NS,
		.end_ns = BEGIN_NS + 2500000,
		.bytes = 15,
		.number = 3,
		.status = 200,
		.client = {.family = 4, .port = 1024, .ip = {10, 9, 1, 1}},
		.listener = {.family = 4, .port = 80, .ip = {10, 9, 0, 1}},
		.head = head,
		.head_len = len,
	};

	http_log_add(the_log, 0, &entry);
}

/* Writes what was added; the lines are read by next_line(). */
static void write_lines(void)
{
	assert_int_equal(line_log_lost(the_log), 0);
	line_log_close(the_log);
	rewind(file);
}

/* Returns the next line without its newline; NULL: the end. */
static char *next_line(void)
{
	static char line[HTTP_LOG_LINE_MAX + 1];
	size_t len;

	if (!fgets(line, sizeof(line), file))
		return NULL;
	len = strlen(line);
	assert_true(len > 0 && line[len - 1] == '\n');
	line[len - 1] = '\0';
	return line;
}

static void close_log(void)
{
	assert_null(next_line());
	fclose(file);
	unlink(path);
}

static void check_line(enum http_log_form form, const char *head,
		       const char *expected)
{
	open_log(form);
	add_entry(head, strlen(head));
	write_lines();
	assert_string_equal(next_line(), expected);
	close_log();
}

#define HEAD                                                                   \
	"GET /a?b HTTP/1.1\r\nHost: www.example.com:80\r\nReFeReR: \t "        \
	"http://x/\"\r\nUser-Agent:curl/7.88\\\xc3\xb6\r\nX: y\r\n\r\n"        \
	"GET /next HTTP/1.1\r\nReferer: next\r\n"

static void set_zone(const char *zone)
{
	setenv("TZ", zone, 1);
}

static void test_lines_have_every_field(void **state)
{
	set_zone("AAA-05:30");
	check_line(HTTP_LOG_COMMON, HEAD,
		   "10.9.1.1 - - [15/Nov/2023:03:43:20 +0530] "
		   "\"GET /a?b HTTP/1.1\" 200 15");
	set_zone("BBB+3");
	check_line(HTTP_LOG_COMBINED, HEAD,
		   "10.9.1.1 - - [14/Nov/2023:19:13:20 -0300] "
		   "\"GET /a?b HTTP/1.1\" 200 15 \"http://x/\\x22\" "
		   "\"curl/7.88\\x5C\\xC3\\xB6\"");
	check_line(HTTP_LOG_JSON, HEAD,
		   "{\"time\":\"2023-11-14T22:13:20.123Z\","
		   "\"client\":\"10.9.1.1:1024\",\"listener\":\"10.9.0.1:80\","
		   "\"request\":\"GET /a?b HTTP/1.1\",\"status\":200,"
		   "\"bytes\":15,\"duration_ms\":2.500,"
		   "\"host\":\"www.example.com:80\","
		   "\"referer\":\"http://x/\\\"\","
		   "\"user_agent\":\"curl/7.88\\\\\\u00C3\\u00B6\","
		   "\"scheme\":\"http\",\"tls\":null,\"cipher\":null,"
		   "\"connection_requests\":3,\"end\":\"done\"}");
}

static void test_json_has_tls_and_addresses(void **state)
{
	const struct http_log_tls tls = {"TLSv1.3", "TLS_AES_128_GCM_SHA256"};
	struct http_log_entry entry = {
		.status = HTTP_LOG_NO_ANSWER,
		.client = {.family = 6, .port = 65535, .ip = {0xfd}},
		.listener = {.family = 6, .port = 443, .ip = {0xfd, 1}},
		.number = 1,
		.has_tls = true,
		.tls = &tls,
		.bytes = UINT64_MAX,
		.head = "",
	};
	char *line;

	open_log(HTTP_LOG_JSON);
	for (unsigned end = 0; end < HTTP_LOG_ENDS; end++) {
		entry.end = (enum http_log_end)end;
		http_log_add(the_log, 0, &entry);
	}
	write_lines();
	for (unsigned end = 0; end < HTTP_LOG_ENDS; end++) {
		line = next_line();
		assert_non_null(line);
		assert_non_null(strstr(line,
				       ",\"client\":\"[fd00::]:65535\","
				       "\"listener\":\"[fd01::]:443\","
				       "\"request\":null,\"status\":499,"
				       "\"bytes\":18446744073709551615,"));
		assert_non_null(
			strstr(line, ",\"scheme\":\"https\","
				     "\"tls\":\"TLSv1.3\","
				     "\"cipher\":\"TLS_AES_128_GCM_SHA256\","));
		assert_null(strstr(line, "(null)"));
	}
	assert_non_null(strstr(line, "\"end\":\"no-memory\"}"));
	close_log();
}

/* A head that is not whole, is none, or has fields in odd forms. */
static void test_any_head_has_a_line(void **state)
{
	static const struct {
		const char *head, *fields;
	} heads[] = {
		{"", "\"-\" 200 15 \"-\" \"-\""},
		{"GET / HT", "\"GET / HT\" 200 15 \"-\" \"-\""},
		{"\r\nGET / HTTP/1.1\r", "\"GET / HTTP/1.1\\x0D\" 200 15 \"-\" "
					 "\"-\""},
		{"\r\n\r\nReferer: x\r\n", "\"-\" 200 15 \"-\" \"-\""},
		{"GET /\nReferer: x\nUser-Agent: y",
		 "\"GET /\" 200 15 \"x\" \"y\""},
		{"GET /\r\nReferer:\r\nUser-Agent: \t \r\n",
		 "\"GET /\" 200 15 \"-\" \"-\""},
		{"GET /\r\nReferer: a\r\nreferer: b\r\n",
		 "\"GET /\" 200 15 \"a\" \"-\""},
		{"GET /\r\nReferer : a\r\n Referer: b\r\nX-Referer: c\r\n"
		 "Refere:\r\nReferer",
		 "\"GET /\" 200 15 \"-\" \"-\""},
		{"GET /\r\n\r\nReferer: a\r\n", "\"GET /\" 200 15 \"-\" \"-\""},
	};

	set_zone("UTC");
	open_log(HTTP_LOG_COMBINED);
	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		add_entry(heads[i].head, strlen(heads[i].head));
	write_lines();
	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		assert_string_equal(next_line() + strlen("10.9.1.1 - - "
							 "[14/Nov/2023:22:13:"
							 "20 +0000] "),
				    heads[i].fields);
	close_log();
	assert_false(http_log_has_request("\r\n", 2));
	assert_false(http_log_has_request("\r\n\r\n", 4));
	assert_true(http_log_has_request("\r\nG", 3));
	assert_true(http_log_has_request("\0", 1));
}

/* Returns the bytes of a text in quotes at *at, and moves *at behind it. */
static size_t unquote(char **at, char *out)
{
	char *from = *at + 1;
	size_t n = 0;

	assert_int_equal(**at, '"');
	while (*from != '"') {
		unsigned byte;

		if (*from != '\\') {
			assert_in_range(*from, ' ', '~');
			out[n++] = *from++;
			continue;
		}
		assert_int_equal(sscanf(from, "\\x%2X", &byte), 1);
		out[n++] = (char)byte;
		from += 4;
	}
	*at = from + 1;
	return n;
}

/* No byte but a line's end can end a text, and each is found again. */
static void test_every_byte_is_kept_in_its_field(void **state)
{
	static const char *const behind[] = {" 200 15 ", " ", ""};
	char head[64], text[64];
	char *at;

	open_log(HTTP_LOG_COMBINED);
	for (int c = 0; c < 256; c++) {
		int n = sprintf(head,
				"a%cb\r\nReferer: a%cb\r\nUser-Agent: "
				"a%cb\r\n\r\n",
				c, c, c);

		add_entry(head, (size_t)n);
	}
	write_lines();
	for (int c = 0; c < 256; c++) {
		const char expected[] = {'a', (char)c, 'b'};

		at = next_line();
		assert_non_null(at);
		at = strchr(at, '"');
		for (unsigned i = 0; i < 3 && c != '\n'; i++) {
			assert_int_equal(unquote(&at, text), 3);
			assert_memory_equal(text, expected, 3);
			assert_memory_equal(at, behind[i], strlen(behind[i]));
			at += strlen(behind[i]);
		}
	}
	close_log();
}

static void test_random_heads_are_valid_json(void **state)
{
	static char head[4096];
	cJSON *line;

	srand(1);
	for (unsigned turn = 0; turn < 20; turn++) {
		open_log(HTTP_LOG_JSON);
		for (unsigned i = 0; i < 100; i++) {
			size_t len = (size_t)rand() % sizeof(head);

			for (size_t at = 0; at < len; at++)
				head[at] = (char)(rand() % 256);
			if (turn % 2)
				memcpy(head, "G\r\nUser-Agent: \\\"", 17);
			add_entry(head, len);
		}
		write_lines();
		for (unsigned i = 0; i < 100; i++) {
			char *text = next_line();

			assert_non_null(text);
			for (const char *c = text; *c; c++)
				assert_in_range(*c, ' ', '~');
			line = cJSON_Parse(text);
			assert_non_null(line);
			assert_int_equal(cJSON_GetArraySize(line), 15);
			cJSON_Delete(line);
		}
		close_log();
	}
}

/* Texts that are too long are cut; the longest have room in a line. */
static void test_long_texts_are_cut(void **state)
{
	static char head[65536];
	const struct {
		unsigned max;
		const char *before;
	} texts[] = {{HTTP_LOG_REQUEST_MAX, ""},
		     {HTTP_LOG_REFERER_MAX, "\r\nReferer: "},
		     {HTTP_LOG_AGENT_MAX, "\r\nUser-Agent: "},
		     {HTTP_LOG_HOST_MAX, "\r\nHost: "}};
	const char byte = 1;
	char *line;

	for (unsigned more = 0; more < 2; more++) {
		size_t len = 0;

		for (unsigned i = 0; i < 4; i++) {
			len += (size_t)sprintf(head + len, "%s",
					       texts[i].before);
			memset(head + len, byte, texts[i].max + more);
			len += texts[i].max + more;
		}
		for (unsigned form = 0; form <= HTTP_LOG_JSON; form++) {
			open_log((enum http_log_form)form);
			add_entry(head, len);
			write_lines();
			line = next_line();
			assert_non_null(line);
			assert_int_equal(strstr(line, "...\"") != NULL, more);
			if (form == HTTP_LOG_COMMON)
				assert_int_equal(strlen(strchr(line, '"')),
						 4 * HTTP_LOG_REQUEST_MAX +
							 3 * more +
							 strlen("\"\" 200 15"));
			close_log();
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_have_every_field),
		cmocka_unit_test(test_json_has_tls_and_addresses),
		cmocka_unit_test(test_any_head_has_a_line),
		cmocka_unit_test(test_every_byte_is_kept_in_its_field),
		cmocka_unit_test(test_random_heads_are_valid_json),
		cmocka_unit_test(test_long_texts_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
