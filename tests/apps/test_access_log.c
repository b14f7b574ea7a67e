/*
 * The access log: its lines, a file that is renamed while it is written, a
 * syslog server, and a file that accepts no more bytes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "apps/proxy/access_log.h"

static char folder[64], path[96], moved[96];

static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int setup(void **state)
{
	strcpy(folder, "/tmp/access-log-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/log", folder);
	snprintf(moved, sizeof(moved), "%s/log.1", folder);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	unlink(moved);
	return rmdir(folder);
}

static struct access_record record(unsigned number)
{
	struct access_record r = {
		.begin_ns = clock_ns() - 1500000,
		.end_ns = clock_ns(),
		.connect_ns = 250000,
		.bytes_to = number,
		.addrs = {.family = 4, .src_port = 1024, .dst_port = 80},
		.end = ACCESS_DONE,
	};

	return r;
}

/* Lines of a file that begin as ours do; the sum of their lost=. */
static unsigned lines_of(const char *file, uint64_t *lost)
{
	FILE *in = fopen(file, "r");
	char line[ACCESS_LOG_LINE_MAX];
	unsigned n = 0;

	assert_non_null(in);
	while (fgets(line, sizeof(line), in)) {
		char *at = strstr(line, " lost=");

		if (at && lost)
			*lost += strtoull(at + 6, NULL, 10);
		n += strstr(line, " client=0.0.0.0:1024 ") != NULL;
	}
	fclose(in);
	return n;
}

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
		"tls_client=100%25%20J%C3%B6rg%0A "
		"id=1-2-3 end=client-reset\n");
	r = (struct access_record){.connect_ns = -1, .end = ACCESS_DENIED};
	access_log_format(&r, ACCESS_TEXT, 0, line);
	assert_string_equal(line,
			    "1970-01-01T00:00:00.000Z client=- listener=- "
			    "backend=- connect_ms=- queue_ms=0.000 to=0 "
			    "from=0 duration_ms=0.000 retries=0 sni=- tls=- "
			    "cipher=- tls_client=- id=- end=denied\n");
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
		"\"tls_client\":\"100% J\303\266rg\\n\",\"id\":\"1-2-3\","
		"\"end\":\"client-reset\"}\n");
	r = (struct access_record){.connect_ns = -1, .end = ACCESS_DENIED};
	n = access_log_format(&r, ACCESS_JSON, 0, line);
	line[n] = '\0';
	assert_string_equal(
		line, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"client\":null,"
		      "\"listener\":null,\"backend\":null,\"connect_ms\":null,"
		      "\"queue_ms\":0.000,\"to\":0,\"from\":0,"
		      "\"duration_ms\":0.000,\"retries\":0,\"sni\":null,"
		      "\"tls\":null,\"cipher\":null,\"tls_client\":null,"
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

static sem_t said;
static char said_line[512];

static void note_line(const char *line)
{
	snprintf(said_line, sizeof(said_line), "%s", line);
	sem_post(&said);
}

static void test_renamed_file_loses_no_line(void **state)
{
	struct access_log *log;
	struct stat st;
	unsigned n = 0;

	assert_int_equal(access_log_open(path, ACCESS_TEXT, 2, clock_ns,
					 note_line, &log),
			 0);
	for (unsigned turn = 0; turn < 20; turn++)
		for (unsigned i = 0; i < 300; i++) {
			struct access_record r = record(n);

			if (turn == 10 && i == 150) {
				assert_int_equal(rename(path, moved), 0);
				access_log_reopen(log);
				while (stat(path, &st) < 0)
					usleep(1000);
			}
			access_log_add(log, n++ % 2, &r);
		}
	assert_int_equal(access_log_lost(log), 0);
	access_log_close(log);
	assert_int_equal(lines_of(path, NULL) + lines_of(moved, NULL), n);
	assert_true(lines_of(moved, NULL) > 0 && lines_of(path, NULL) > 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07, 0);
}

/* A folder takes the file's name; the failure is in the program's log. */
static void test_failure_to_reopen_the_file_is_logged(void **state)
{
	struct access_record r = record(0);
	struct access_log *log;

	sem_init(&said, 0, 0);
	assert_int_equal(access_log_open(path, ACCESS_TEXT, 1, clock_ns,
					 note_line, &log),
			 0);
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	access_log_reopen(log);
	assert_int_equal(sem_wait(&said), 0);
	assert_non_null(strstr(said_line, path));
	assert_non_null(strstr(said_line, "Is a directory; the old file"));
	access_log_add(log, 0, &r);
	access_log_close(log);
	assert_int_equal(lines_of(moved, NULL), 1);
	assert_int_equal(rmdir(path), 0);
	sem_destroy(&said);
}

/*
 * Nobody reads the pipe: the shard does not block, and every line is written or
 * counted as lost.
 */
/* mark: what precedes the number of lost lines. */
static void lose_lines(enum access_form form, const char *mark)
{
	const unsigned n = 3 * ACCESS_LOG_RING;
	struct access_log *log;
	uint64_t lost = 0, reported = 0;
	char buf[65536];
	FILE *in;
	unsigned written = 0;

	assert_int_equal(mkfifo(path, 0600), 0);
	in = fopen(path, "r+");
	assert_non_null(in);
	assert_int_equal(
		access_log_open(path, form, 1, clock_ns, note_line, &log), 0);
	for (unsigned i = 0; i < n; i++) {
		struct access_record r = record(i);

		access_log_add(log, 0, &r);
		if (i == ACCESS_LOG_RING / 2)
			usleep(100000); /* the pipe is full by now */
	}
	lost = access_log_lost(log);
	assert_true(lost > 0 && lost < n);
	while (written < n - lost || reported < lost) {
		char *at;

		assert_non_null(fgets(buf, sizeof(buf), in));
		at = strstr(buf, mark);
		if (at)
			reported += strtoull(at + strlen(mark), NULL, 10);
		else
			written++;
	}
	assert_int_equal(written, n - lost);
	assert_int_equal(reported, lost);
	access_log_close(log);
	fclose(in);
}

static void test_lost_lines_are_counted(void **state)
{
	lose_lines(ACCESS_TEXT, " lost=");
	assert_int_equal(unlink(path), 0);
	lose_lines(ACCESS_JSON, "\"lost\":");
}

static void add_lines(struct access_log *log, unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++) {
		struct access_record r = record(i);

		access_log_add(log, 0, &r);
	}
}

static off_t await_size(off_t size)
{
	struct stat st = {0};

	for (unsigned i = 0; i < 6000 && st.st_size < size; i++) {
		usleep(10000);
		assert_int_equal(stat(path, &st), 0);
	}
	return st.st_size;
}

/*
 * A file that accepts a part of a line and then nothing, as on a full disk, and
 * later more. No line is torn, and the count of lost lines is right.
 */
static void test_a_full_disk_tears_no_line(void **state)
{
	struct rlimit limit, was;
	struct access_log *log;
	uint64_t lost, reported = 0, lines;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	limit = was;
	limit.rlim_cur = 10007;
	assert_int_equal(access_log_open(path, ACCESS_TEXT, 1, clock_ns,
					 note_line, &log),
			 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	add_lines(log, 0, 200);
	assert_int_equal(await_size(10007), 10007);
	while (access_log_lost(log) == 0)
		usleep(1000);
	add_lines(log, 200, 7);
	while (access_log_lost(log) < 7)
		usleep(1000);
	usleep(100000); /* five polls, none of which may count anything */
	lost = access_log_lost(log);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	add_lines(log, 207, 10);
	access_log_close(log);
	lines = lines_of(path, &reported);
	assert_int_equal(lines + reported, 217);
	assert_true(reported >= lost);
}

static void test_lines_are_sent_to_syslog(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct access_record r = record(7);
	struct access_log *log;
	char where[64], text[2048];
	ssize_t n;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	snprintf(where, sizeof(where), "udp:127.0.0.1:%u", ntohs(at.sin_port));
	assert_int_equal(access_log_open(where, ACCESS_TEXT, 1, clock_ns,
					 note_line, &log),
			 0);
	access_log_add(log, 0, &r);
	n = recv(fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	assert_memory_equal(text, "<134>1 2", 8);
	assert_non_null(strstr(text, " coronet-proxy "));
	assert_non_null(strstr(text, " access - 2"));
	assert_non_null(strstr(text, " to=7 "));
	assert_null(strchr(text, '\n'));
	access_log_close(log);
	close(fd);
}

static void test_unusable_log_files_are_refused(void **state)
{
	struct access_log *log;

	assert_int_equal(access_log_check(folder), -EISDIR);
	assert_int_equal(access_log_check(""), -ENOENT);
	assert_int_equal(access_log_check("udp:127.0.0.1"), -EINVAL);
	assert_int_equal(access_log_check("udp:127.0.0.1:514"), 0);
	assert_int_equal(access_log_check(path), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(access_log_check(path), -ENXIO);
	assert_int_equal(access_log_open(folder, ACCESS_TEXT, 1, clock_ns,
					 note_line, &log),
			 -EISDIR);
	assert_int_equal(access_log_open("udp:banana", ACCESS_TEXT, 1, clock_ns,
					 note_line, &log),
			 -EINVAL);
	access_log_add(NULL, 0, NULL);
	access_log_close(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_log_line_has_every_field),
		CASE(test_json_line_has_every_field),
		CASE(test_longest_line_has_room),
		CASE(test_renamed_file_loses_no_line),
		CASE(test_a_full_disk_tears_no_line),
		CASE(test_failure_to_reopen_the_file_is_logged),
		CASE(test_lost_lines_are_counted),
		CASE(test_lines_are_sent_to_syslog),
		CASE(test_unusable_log_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
