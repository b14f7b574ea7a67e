/* Lines of coronet-proxy's access log, and the way of a record to its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "apps/proxy/access_log.h"

static struct access_record full_record(void)
{
	return (struct access_record){
		.begin_ns = 1000,
		.end_ns = 2500000 + 1000,
		.queue_ns = 1000000,
		.connect_ns = 250000,
		.bytes_to = 12,
		.bytes_from = UINT64_MAX,
		.addrs = {.family = 6,
			  .src = {0xfd},
			  .src_port = 65535,
			  .dst = {0xfd, 1},
			  .dst_port = 443},
		.end = ACCESS_CLIENT_RESET,
		.retries = 2,
		.backend = "web1",
		.server_name = "www.example.com",
		.id = "1-2-3",
		.tls = {.version = "TLSv1.3",
			.cipher = "TLS_AES_128_GCM_SHA256",
			.resumed = true,
			.client = "100% J\303\266rg\n"},
	};
}

static void test_log_line_has_every_field(void **state)
{
	struct access_record r = full_record();
	char line[ACCESS_LOG_LINE_MAX];

	access_log_format(&r, ACCESS_TEXT, INT64_C(1700000000123000000), line);
	assert_string_equal(
		line,
		"2023-11-14T22:13:20.123Z client=[fd00::]:65535 "
		"listener=[fd01::]:443 backend=web1 connect_ms=0.250 "
		"queue_ms=1.000 to=12 from=18446744073709551615 "
		"duration_ms=2.500 retries=2 sni=www.example.com tls=TLSv1.3 "
		"cipher=TLS_AES_128_GCM_SHA256 "
		"resumed=yes tls_client=100%25%20J%C3%B6rg%0A "
		"id=1-2-3 end=client-reset\n");
	r = (struct access_record){.connect_ns = -1, .end = ACCESS_DENIED};
	access_log_format(&r, ACCESS_TEXT, 0, line);
	assert_string_equal(
		line, "1970-01-01T00:00:00.000Z client=- listener=- "
		      "backend=- connect_ms=- queue_ms=0.000 to=0 "
		      "from=0 duration_ms=0.000 retries=0 sni=- tls=- "
		      "cipher=- resumed=- tls_client=- id=- end=denied\n");
	for (int end = 0; end < ACCESS_ENDS; end++)
		assert_non_null(access_end_name((enum access_end)end));
}

static void test_json_line_has_every_field(void **state)
{
	struct access_record r = full_record();
	char line[ACCESS_LOG_LINE_MAX];
	size_t n;

	strcpy(r.server_name, "a\"\\\n\x01");
	n = access_log_format(&r, ACCESS_JSON, INT64_C(1700000000123000000),
			      line);
	line[n] = '\0';
	assert_string_equal(
		line,
		"{\"time\":\"2023-11-14T22:13:20.123Z\","
		"\"client\":\"[fd00::]:65535\",\"listener\":\"[fd01::]:443\","
		"\"backend\":\"web1\",\"connect_ms\":0.250,\"queue_ms\":1.000,"
		"\"to\":12,\"from\":18446744073709551615,"
		"\"duration_ms\":2.500,\"retries\":2,"
		"\"sni\":\"a\\\"\\\\\\n\\u0001\",\"tls\":\"TLSv1.3\","
		"\"cipher\":\"TLS_AES_128_GCM_SHA256\","
		"\"resumed\":true,\"tls_client\":\"100% "
		"J\303\266rg\\n\",\"id\":\"1-2-3\","
		"\"end\":\"client-reset\"}\n");
	r = (struct access_record){.connect_ns = -1, .end = ACCESS_DENIED};
	n = access_log_format(&r, ACCESS_JSON, 0, line);
	line[n] = '\0';
	assert_string_equal(
		line, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"client\":null,"
		      "\"listener\":null,\"backend\":null,\"connect_ms\":null,"
		      "\"queue_ms\":0.000,\"to\":0,\"from\":0,"
		      "\"duration_ms\":0.000,\"retries\":0,\"sni\":null,"
		      "\"tls\":null,\"cipher\":null,\"resumed\":null,"
		      "\"tls_client\":null,"
		      "\"id\":null,\"end\":\"denied\"}\n");
}

/*
 * The longest texts; JSON writes six bytes for each of a control character, a
 * text three.
 */
static void test_longest_line_has_room(void **state)
{
	struct access_record r = {.end = ACCESS_HALF_CLOSED_TIMEOUT};
	char line[ACCESS_LOG_LINE_MAX];
	size_t n;

	memset(r.server_name, 1, sizeof(r.server_name) - 1);
	memset(r.backend, 'b', sizeof(r.backend) - 1);
	memset(r.id, 'i', sizeof(r.id) - 1);
	memset(r.tls.version, 'v', sizeof(r.tls.version) - 1);
	memset(r.tls.cipher, 'c', sizeof(r.tls.cipher) - 1);
	memset(r.tls.client, 1, sizeof(r.tls.client) - 1);
	r.bytes_to = r.bytes_from = UINT64_MAX;
	r.end_ns = INT64_MAX;
	n = access_log_format(&r, ACCESS_JSON, INT64_MAX / 2, line);
	assert_in_range(n, 1200, ACCESS_LOG_LINE_MAX);
	assert_int_equal(line[n - 1], '\n');
	n = access_log_format(&r, ACCESS_TEXT, INT64_MAX / 2, line);
	assert_in_range(n, 700, ACCESS_LOG_LINE_MAX);
	assert_int_equal(line[n - 1], '\n');
}

static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* A ring holds ACCESS_LOG_RING records, and its file each of them. */
static void test_record_gets_into_the_file(void **state)
{
	char path[] = "/tmp/access-log-XXXXXX", line[ACCESS_LOG_LINE_MAX];
	struct access_record r = full_record();
	struct line_log *log;
	int fd = mkstemp(path);
	unsigned n = 0;
	FILE *in;

	assert_true(fd >= 0);
	assert_int_equal(line_log_open(&access_log_kind, path, ACCESS_TEXT, 2,
				       clock_ns, NULL, &log),
			 0);
	for (unsigned i = 0; i < ACCESS_LOG_RING; i++)
		access_log_add(log, 1, &r);
	assert_int_equal(line_log_lost(log), 0);
	line_log_close(log);
	access_log_add(NULL, 0, &r);
	in = fdopen(fd, "r");
	while (fgets(line, sizeof(line), in))
		n += strstr(line, " client=[fd00::]:65535 ") != NULL;
	assert_int_equal(n, ACCESS_LOG_RING);
	fclose(in);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_line_has_every_field),
		cmocka_unit_test(test_json_line_has_every_field),
		cmocka_unit_test(test_longest_line_has_room),
		cmocka_unit_test(test_record_gets_into_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
