/*
 * The log of lines: a file that is renamed while it is written, a disk that is
 * full, pipes whose reader is slow or absent, syslog servers and local daemons
 * that come and go.
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
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/line_log.h"
#include "apps/common/log_target.h"

#define RECORDS	  4096
#define BYTES_MAX 1024

static char folder[64], path[96], moved[96], where[128];

static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* A number, and letters that depend on it. */
struct record {
	unsigned number, letters;
	char text[];
};

static size_t format(const void *at, unsigned form, int64_t wall_ns, char *line)
{
	const struct record *r = at;

	return (size_t)snprintf(line, BYTES_MAX,
				form ? "{\"line\":%u,\"text\":\"%.*s\"}\n"
				     : "line %u %.*s.\n",
				r->number, (int)r->letters, r->text);
}

static bool is_json(unsigned form)
{
	return form == 1;
}

static const struct line_log_kind kind = {
	.program = "test-log",
	.ring_bytes = LINE_LOG_RING(RECORDS, sizeof(struct record) + 40),
	.line_max = BYTES_MAX,
	.format = format,
	.is_json = is_json,
};

static void add_line(struct line_log *log, unsigned shard, unsigned number,
		     unsigned letters)
{
	struct record *r = line_log_begin(log, shard, sizeof(*r) + letters);

	if (!r)
		return;
	r->number = number;
	r->letters = letters;
	memset(r->text, 'a' + number % 26, letters);
	line_log_end(log, shard, clock_ns());
}

static void add_lines(struct line_log *log, unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++)
		add_line(log, 0, i, 40);
}

static sem_t said;
static char said_line[512];

static void note_line(const char *line)
{
	snprintf(said_line, sizeof(said_line), "%s", line);
	sem_post(&said);
}

static void await_said(const char *text)
{
	assert_int_equal(sem_wait(&said), 0);
	if (!strstr(said_line, text))
		fail_msg("'%s' instead of '%s'", said_line, text);
}

static struct line_log *open_log(const char *at, unsigned form, unsigned shards)
{
	struct line_log *log;

	assert_int_equal(line_log_open(&kind, at, form, shards, clock_ns,
				       note_line, &log),
			 0);
	return log;
}

static int setup(void **state)
{
	strcpy(folder, "/tmp/line-log-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/log", folder);
	snprintf(moved, sizeof(moved), "%s/log.1", folder);
	snprintf(where, sizeof(where), "unix:%s", path);
	sem_init(&said, 0, 0);
	return 0;
}

static int teardown(void **state)
{
	sem_destroy(&said);
	unlink(path);
	unlink(moved);
	return rmdir(folder);
}

/* The number of lost lines that a line reports, or 0. */
static uint64_t lost_in(const char *line)
{
	const char *text = strstr(line, "Z lost=");
	const char *json = strstr(line, "Z\",\"lost\":");

	if (text && text - line == 23) /* of the time */
		return strtoull(text + 7, NULL, 10);
	return json && *line == '{' ? strtoull(json + 10, NULL, 10) : 0;
}

/* A line of the text form is whole, and has the letters of its number. */
static void check_line(const char *line)
{
	unsigned number, at = 0;

	assert_int_equal(sscanf(line, "line %u %n", &number, &at), 1);
	assert_true(at > 0);
	at += strspn(line + at, (char[]){(char)('a' + number % 26), '\0'});
	assert_string_equal(line + at, ".\n");
}

/* Lines of a file, each of which is whole; *lost: the reported ones. */
static unsigned lines_of(const char *file, uint64_t *lost)
{
	FILE *in = fopen(file, "r");
	char line[BYTES_MAX];
	unsigned n = 0;

	assert_non_null(in);
	while (fgets(line, sizeof(line), in)) {
		if (lost_in(line)) {
			*lost += lost_in(line);
			continue;
		}
		check_line(line);
		n++;
	}
	fclose(in);
	return n;
}

static void await_lost(const struct line_log *log, uint64_t n)
{
	while (line_log_lost(log) < n)
		usleep(1000);
}

/* ---- files ---- */

static void test_renamed_file_loses_no_line(void **state)
{
	struct line_log *log = open_log(path, 0, 2);
	uint64_t lost = 0;
	struct stat st;
	unsigned n = 0;

	for (; n < 6000; n++) {
		if (n == 3150) {
			assert_int_equal(rename(path, moved), 0);
			line_log_reopen(log);
			while (stat(path, &st) < 0)
				usleep(1000);
		}
		add_line(log, n % 2, n, n % 41);
	}
	assert_int_equal(line_log_lost(log), 0);
	line_log_close(log);
	assert_int_equal(lines_of(path, &lost) + lines_of(moved, &lost), n);
	assert_true(lines_of(moved, &lost) > 0 && lines_of(path, &lost) > 0);
	assert_int_equal(lost, 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07, 0);
}

/* A folder takes the file's name; the failure is in the program's log. */
static void test_failure_to_reopen_the_file_is_logged(void **state)
{
	struct line_log *log = open_log(path, 0, 1);
	uint64_t lost = 0;

	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	line_log_reopen(log);
	await_said("Is a directory; the old file is kept");
	assert_non_null(strstr(said_line, path));
	add_lines(log, 0, 1);
	line_log_close(log);
	assert_int_equal(lines_of(moved, &lost), 1);
	assert_int_equal(rmdir(path), 0);
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

/* Records of all sizes, many times as many as the ring holds. */
static void test_ring_keeps_order_and_bytes(void **state)
{
	struct line_log *log = open_log(path, 0, 1);
	char line[BYTES_MAX], expected[BYTES_MAX], text[401];
	off_t size = 0;
	FILE *in;

	for (unsigned i = 0; i < 20 * RECORDS; i++) {
		if (i % 400 == 0)
			await_size(size);
		add_line(log, 0, i, i * 7 % 400);
		size += snprintf(NULL, 0, "line %u .\n", i) + i * 7 % 400;
	}
	assert_int_equal(line_log_lost(log), 0);
	line_log_close(log);
	in = fopen(path, "r");
	assert_non_null(in);
	for (unsigned i = 0; i < 20 * RECORDS; i++) {
		unsigned letters = i * 7 % 400;

		memset(text, 'a' + i % 26, letters);
		text[letters] = '\0';
		snprintf(expected, sizeof(expected), "line %u %s.\n", i, text);
		assert_non_null(fgets(line, sizeof(line), in));
		assert_string_equal(line, expected);
	}
	assert_null(fgets(line, sizeof(line), in));
	fclose(in);
}

/*
 * A file that accepts a part of a line and then nothing, as on a full disk, and
 * later more. No line is torn, and the count of lost lines is right.
 */
static void test_a_full_disk_tears_no_line(void **state)
{
	struct line_log *log = open_log(path, 0, 1);
	struct rlimit limit, was;
	uint64_t lost, reported = 0, lines;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	limit = was;
	limit.rlim_cur = 5007;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	add_lines(log, 0, 200);
	assert_int_equal(await_size(5007), 5007);
	await_lost(log, 1);
	add_lines(log, 200, 7);
	await_lost(log, 7);
	usleep(100000); /* five polls, none of which may count anything */
	lost = line_log_lost(log);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	add_lines(log, 207, 10);
	line_log_close(log);
	lines = lines_of(path, &reported);
	assert_int_equal(lines + reported, 217);
	assert_true(reported >= lost);
}

/* At the end lost lines are reported by the program, if not in the file. */
static void test_lines_of_a_full_disk_are_reported_at_the_end(void **state)
{
	struct line_log *log = open_log("/dev/full", 0, 1);

	add_lines(log, 0, 7);
	line_log_close(log);
	await_said("/dev/full': 7 lines could not be written");
}

/* ---- pipes ---- */

/* Nobody reads the pipe: the shard does not block, and every line is written or
 * counted as lost. */
static void lose_lines(unsigned form)
{
	const unsigned n = 3 * RECORDS;
	struct line_log *log;
	uint64_t lost, reported = 0, written = 0;
	char line[BYTES_MAX];
	FILE *in;

	assert_int_equal(mkfifo(path, 0600), 0);
	in = fopen(path, "r+");
	assert_non_null(in);
	log = open_log(path, form, 1);
	for (unsigned i = 0; i < n; i++) {
		add_line(log, 0, i, i % 41); /* none ends with the ring */
		if (i == RECORDS / 2)
			usleep(100000); /* the pipe is full by now */
	}
	lost = line_log_lost(log);
	assert_true(lost > 0 && lost < n);
	while (written < n - lost || reported < lost) {
		assert_non_null(fgets(line, sizeof(line), in));
		if (form == 0 && lost_in(line) == 0)
			check_line(line);
		reported += lost_in(line);
		written += lost_in(line) == 0;
	}
	assert_int_equal(written, n - lost);
	assert_int_equal(reported, lost);
	line_log_close(log);
	fclose(in);
	assert_int_equal(unlink(path), 0);
}

static void test_lines_that_a_full_pipe_loses_are_counted(void **state)
{
	lose_lines(0);
	lose_lines(1);
}

/* The pipe is full for a while; the ring holds what comes meanwhile. */
static void test_slow_reader_loses_no_line(void **state)
{
	const unsigned n = RECORDS;
	struct line_log *log;
	char line[BYTES_MAX], expected[32];
	FILE *in;

	assert_int_equal(mkfifo(path, 0600), 0);
	in = fopen(path, "r+");
	assert_non_null(in);
	log = open_log(path, 0, 1);
	add_lines(log, 0, n);
	usleep(100000);
	for (unsigned i = 0; i < n; i++) {
		snprintf(expected, sizeof(expected), "line %u ", i);
		assert_non_null(fgets(line, sizeof(line), in));
		assert_memory_equal(line, expected, strlen(expected));
		if (i % 512 == 0)
			usleep(30000);
	}
	assert_int_equal(line_log_lost(log), 0);
	line_log_close(log);
	fclose(in);
}

/* A reader that comes, goes, and comes again finds the number of lost lines
 * before any other. */
static void test_fifo_needs_no_reader(void **state)
{
	char line[BYTES_MAX];
	struct line_log *log;
	FILE *in;

	assert_int_equal(mkfifo(path, 0600), 0);
	log = open_log(path, 0, 1);
	await_said("nobody reads it; lines are lost");
	for (unsigned turn = 0; turn < 2; turn++) {
		uint64_t lost = line_log_lost(log);

		add_lines(log, 0, 5);
		await_lost(log, lost + 5);
		in = fopen(path, "r");
		assert_non_null(in);
		assert_non_null(fgets(line, sizeof(line), in));
		assert_int_equal(lost_in(line), 5);
		add_lines(log, 7, 1);
		assert_non_null(fgets(line, sizeof(line), in));
		assert_memory_equal(line, "line 7 ", 7);
		fclose(in);
	}
	line_log_close(log);
}

/* The FIFO is made again while its reader is away; no file takes its place. */
static void test_fifo_may_be_replaced(void **state)
{
	char line[BYTES_MAX];
	struct line_log *log;
	struct stat st;
	FILE *in;

	assert_int_equal(mkfifo(path, 0600), 0);
	in = fopen(path, "r+");
	assert_non_null(in);
	log = open_log(path, 0, 1);
	fclose(in);
	assert_int_equal(unlink(path), 0);
	add_lines(log, 0, 3);
	await_lost(log, 3);
	await_said("nobody reads it");
	usleep(50000);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(mkfifo(path, 0600), 0);
	in = fopen(path, "r");
	assert_non_null(in);
	assert_non_null(fgets(line, sizeof(line), in));
	assert_int_equal(lost_in(line), 3);
	line_log_close(log);
	fclose(in);
}

/* A pipe that is full at the end holds up the program for a second. */
static void test_end_of_a_full_pipe_is_bounded(void **state)
{
	struct line_log *log;
	int64_t begin_ns;
	char pipe[4096];
	unsigned n = 0;
	ssize_t taken;
	int fd;

	assert_int_equal(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_SETPIPE_SZ, 4096) > 0);
	log = open_log(path, 0, 1);
	add_lines(log, 0, 3000);
	begin_ns = clock_ns();
	line_log_close(log);
	assert_true(clock_ns() - begin_ns >= INT64_C(1000000000));
	await_said(" lines could not be written");
	taken = read(fd, pipe, sizeof(pipe));
	assert_int_equal(taken, sizeof(pipe));
	for (ssize_t i = 0; i < taken; i++)
		n += pipe[i] == '\n';
	n += (unsigned)strtoul(strstr(said_line, "': ") + 3, NULL, 10);
	assert_int_equal(n, 3000);
	close(fd);
}

/* What a full pipe has not taken is written after the log is reopened, which
 * ends the wait. */
static void test_reopening_leaves_a_full_pipe(void **state)
{
	struct line_log *log;
	uint64_t lost = 0;
	char pipe[4096];
	struct stat st;
	ssize_t taken;
	unsigned n;
	int fd;

	assert_int_equal(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_SETPIPE_SZ, 4096) > 0);
	log = open_log(path, 0, 1);
	add_lines(log, 0, 1000);
	usleep(100000);
	assert_int_equal(rename(path, moved), 0);
	line_log_reopen(log);
	while (stat(path, &st) < 0)
		usleep(1000);
	line_log_close(log);
	n = lines_of(path, &lost);
	taken = read(fd, pipe, sizeof(pipe));
	assert_int_equal(taken, sizeof(pipe));
	for (ssize_t i = 0; i < taken; i++)
		n += pipe[i] == '\n';
	assert_int_equal(lost, pipe[taken - 1] != '\n');
	assert_int_equal(n + lost, 1000);
	close(fd);
}

/* ---- syslog ---- */

static void test_lines_are_sent_to_syslog(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct line_log *log;
	char text[2048];
	ssize_t n;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	snprintf(where, sizeof(where), "udp:127.0.0.1:%u", ntohs(at.sin_port));
	log = open_log(where, 0, 1);
	add_line(log, 0, 7, 2);
	n = recv(fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	assert_memory_equal(text, "<134>1 2", 8);
	assert_non_null(strstr(text, " test-log "));
	assert_non_null(strstr(text, " access - line 7 hh."));
	assert_null(strchr(text, '\n'));
	line_log_close(log);
	close(fd);
}

static int bind_daemon(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	strcpy(at.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* Receives a datagram; returns what follows its header. */
static const char *receive(int fd, char text[2048])
{
	ssize_t n = recv(fd, text, 2047, 0);
	char *at;
	unsigned day, hour;
	int pid;

	assert_true(n > 0);
	text[n] = '\0';
	assert_null(strchr(text, '\n'));
	assert_int_equal(sscanf(text, "<134>%*3s %2u %2u:%*u:%*u test-log[%d]:",
				&day, &hour, &pid),
			 3);
	assert_int_equal(pid, getpid());
	at = strstr(text, "]: ");
	assert_non_null(at);
	return at + 3;
}

/* A daemon that is not there yet, is started, ends, and is started again. */
static void test_local_daemon_may_come_and_go(void **state)
{
	struct line_log *log = open_log(where, 0, 1);
	char text[2048];
	int fd;

	await_said("No such file or directory; lines are lost");
	for (unsigned turn = 0; turn < 2; turn++) {
		uint64_t lost = line_log_lost(log);

		add_lines(log, 0, 3);
		await_lost(log, lost + 3);
		fd = bind_daemon();
		assert_int_equal(lost_in(receive(fd, text)), 3);
		add_line(log, 0, 8, 1);
		assert_string_equal(receive(fd, text), "line 8 i.");
		close(fd);
		assert_int_equal(unlink(path), 0);
	}
	line_log_close(log);
}

/* A daemon that is restarted between two lines loses none. */
static void test_local_daemon_that_restarts_loses_no_line(void **state)
{
	int fd = bind_daemon();
	struct line_log *log = open_log(where, 0, 1);
	char text[2048];

	for (unsigned i = 0; i < 3; i++) {
		add_line(log, 0, 8, 1);
		assert_string_equal(receive(fd, text), "line 8 i.");
		close(fd);
		assert_int_equal(unlink(path), 0);
		fd = bind_daemon();
	}
	assert_int_equal(line_log_lost(log), 0);
	line_log_close(log);
	close(fd);
}

/* The queue of a socket has few datagrams; the ring has the others. */
static void test_slow_local_daemon_loses_no_line(void **state)
{
	int fd = bind_daemon();
	struct line_log *log = open_log(where, 0, 1);
	char text[2048], expected[32];

	add_lines(log, 0, 2000);
	usleep(100000);
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(expected, sizeof(expected), "line %u ", i);
		assert_memory_equal(receive(fd, text), expected,
				    strlen(expected));
	}
	assert_int_equal(line_log_lost(log), 0);
	line_log_close(log);
	close(fd);
}

/* ---- checks ---- */

static int try_open(const char *at)
{
	struct line_log *log;

	return line_log_open(&kind, at, 0, 1, clock_ns, note_line, &log);
}

static void check_refused(const char *at, int err)
{
	assert_int_equal(log_target_check(at), err);
	assert_int_equal(try_open(at), err);
}

static void test_unusable_targets_are_refused(void **state)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	check_refused(folder, -EISDIR);
	check_refused("", -ENOENT);
	check_refused("/nonexistent/%", -ENOENT);
	check_refused("udp:127.0.0.1", -EINVAL);
	check_refused("udp:banana", -EINVAL);
	check_refused("unix:", -EINVAL);
	check_refused("unix:/etc/passwd/x", -ENOTDIR);
	assert_int_equal(log_target_check("unix:/dev/null"), -ENOTSOCK);
	assert_int_equal(try_open("unix:/dev/null"), -ECONNREFUSED);
	check_refused("unix:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		      "aaaaaaaaaaa",
		      -ENAMETOOLONG);
	strcpy(at.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0);
	check_refused(path, -ENXIO);
	assert_int_equal(try_open(where), -EPROTOTYPE);
	close(fd);
	line_log_close(NULL);
}

static void test_check_makes_nothing(void **state)
{
	struct stat st;

	assert_int_equal(log_target_check(path), 0);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(log_target_check(where), 0);
	assert_int_equal(log_target_check("udp:127.0.0.1:514"), 0);
	assert_int_equal(log_target_check("udp:[::1]:514"), 0);
	assert_int_equal(log_target_check("/dev/full"), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(log_target_check(path), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_renamed_file_loses_no_line),
		CASE(test_ring_keeps_order_and_bytes),
		CASE(test_failure_to_reopen_the_file_is_logged),
		CASE(test_a_full_disk_tears_no_line),
		CASE(test_lines_of_a_full_disk_are_reported_at_the_end),
		CASE(test_lines_that_a_full_pipe_loses_are_counted),
		CASE(test_slow_reader_loses_no_line),
		CASE(test_fifo_needs_no_reader),
		CASE(test_fifo_may_be_replaced),
		CASE(test_end_of_a_full_pipe_is_bounded),
		CASE(test_reopening_leaves_a_full_pipe),
		CASE(test_lines_are_sent_to_syslog),
		CASE(test_local_daemon_may_come_and_go),
		CASE(test_local_daemon_that_restarts_loses_no_line),
		CASE(test_slow_local_daemon_loses_no_line),
		CASE(test_unusable_targets_are_refused),
		CASE(test_check_makes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
