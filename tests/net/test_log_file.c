/*
 * A log in a file: the form of lines, rotation, a full disk, a FIFO without a
 * reader, and a file that has vanished. A call that blocks makes the test hang.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/net.h>

#include "netstack/program/log.h"

static char folder[] = "/tmp/coronet-log-XXXXXX";
static char path[64], moved[64], text[1 << 16];

static int set_up(void **state)
{
	snprintf(path, sizeof(path), "%s/log", folder);
	snprintf(moved, sizeof(moved), "%s/log.1", folder);
	return 0;
}

static int tear_down(void **state)
{
	net_log_close();
	net_log_to(NULL);
	unlink(path);
	unlink(moved);
	return 0;
}

/* Waits until all lines are written. */
static void flush_log(void)
{
	while (net_log_waiting())
		usleep(1000);
}

static void open_log(const char *where)
{
	assert_int_equal(net_log_to(where), 0);
	assert_int_equal(net_log_open(), 0);
}

static const char *text_in(const char *name)
{
	FILE *file = fopen(name, "r");
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	return text;
}

static void assert_matches(const char *subject, const char *pattern)
{
	regex_t compiled;

	assert_int_equal(regcomp(&compiled, pattern, REG_EXTENDED), 0);
	if (regexec(&compiled, subject, 0, NULL, 0) != 0)
		fail_msg("not %s: %s", pattern, subject);
	regfree(&compiled);
}

#define TIME "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z"

static void test_lines_have_time_and_level(void **state)
{
	struct stat st;
	char where[64];

	open_log(path);
	net_log("one");
	net_log_at(NET_LOG_ERROR, "two");
	flush_log();
	assert_matches(text_in(path),
		       "^" TIME " notice one\n" TIME " error two\n$");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_string_equal(net_log_where(where, sizeof(where)), path);
}

static void test_log_file_is_appended_to(void **state)
{
	open_log(path);
	net_log("one");
	net_log_close();
	open_log(path);
	net_log("two");
	flush_log();
	assert_matches(text_in(path),
		       "^" TIME " notice one\n" TIME " notice two\n$");
}

static void test_rotation_loses_no_line(void **state)
{
	open_log(path);
	net_log("before");
	flush_log();
	assert_int_equal(rename(path, moved), 0);
	net_log("moved");
	flush_log();
	assert_int_equal(net_log_reopen_wait(), 0);
	net_log("after");
	flush_log();
	assert_matches(text_in(moved),
		       "^" TIME " notice before\n" TIME " notice moved\n$");
	assert_matches(text_in(path), "^" TIME " notice after\n$");
}

static void wait_for(const char *name)
{
	while (access(name, F_OK) != 0)
		usleep(1000);
}

static pthread_t main_thread;
static atomic_bool hold_writer;
static sem_t is_closing, may_close;

/* In place of the C library's: holds the writer where it closes a file. */
int close(int fd)
{
	if (!pthread_equal(pthread_self(), main_thread) &&
	    atomic_exchange(&hold_writer, false)) {
		sem_post(&is_closing);
		sem_wait(&may_close);
	}
	return (int)syscall(SYS_close, fd);
}

/* The file is opened while the writer is still closing the one before it. */
static void test_reopen_is_of_the_file_that_was_opened_last(void **state)
{
	main_thread = pthread_self();
	sem_init(&is_closing, 0, 0);
	sem_init(&may_close, 0, 0);
	open_log(path);
	net_log("one");
	flush_log();
	hold_writer = true;
	net_log_close();
	sem_wait(&is_closing);
	open_log(path);
	assert_int_equal(rename(path, moved), 0);
	net_log_reopen();
	sem_post(&may_close);
	wait_for(path);
}

static void test_sigusr1_reopens_while_the_log_is_open(void **state)
{
	struct sigaction now;

	open_log(path);
	assert_int_equal(rename(path, moved), 0);
	raise(SIGUSR1);
	wait_for(path);
	net_log_close();
	sigaction(SIGUSR1, NULL, &now);
	assert_ptr_equal(now.sa_handler, SIG_DFL);
	/* The program's own action is kept. */
	signal(SIGUSR1, SIG_IGN);
	open_log(path);
	sigaction(SIGUSR1, NULL, &now);
	assert_ptr_equal(now.sa_handler, SIG_IGN);
	net_log_close();
	signal(SIGUSR1, SIG_DFL);
}

static unsigned reopened;

static void on_reopen(void *arg)
{
	++*(unsigned *)arg;
}

static void test_other_logs_are_notified_of_a_reopen(void **state)
{
	open_log(NULL);
	reopened = 0;
	assert_int_equal(net_log_join(NULL, NULL), -EINVAL);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(net_log_join(on_reopen, &reopened), 0);
	assert_int_equal(net_log_join(on_reopen, &reopened), -ENOSPC);
	assert_int_equal(net_log_reopen_wait(), 0);
	assert_int_equal(reopened, 8);
	for (unsigned i = 0; i < 9; i++)
		net_log_leave(on_reopen, &reopened);
	assert_int_equal(net_log_reopen_wait(), 0);
	assert_int_equal(reopened, 8);
}

static void test_log_continues_if_the_file_cannot_be_reopened(void **state)
{
	open_log(path);
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(net_log_reopen_wait(), -EISDIR);
	net_log("still here");
	flush_log();
	assert_matches(text_in(moved),
		       "^" TIME " error coronet: --log-to '/tmp/.*/log': Is a "
		       "directory; the old file is kept\n" TIME
		       " notice still here\n$");
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(net_log_reopen_wait(), 0);
	net_log("new");
	flush_log();
	assert_matches(text_in(path), "^" TIME " notice new\n$");
}

static void test_unusable_log_files_are_refused(void **state)
{
	char where[64], below[80];

	snprintf(below, sizeof(below), "%s/none/log", folder);
	assert_int_equal(net_log_check_to(""), -EINVAL);
	assert_int_equal(net_log_check_to("journal"), 0);
	assert_int_equal(net_log_check_to(below), -ENOENT);
	assert_int_equal(net_log_check_to(folder), -EISDIR);
	assert_int_equal(net_log_check_to("/etc/passwd/log"), -ENOTDIR);
	assert_int_equal(net_log_check_to(path), 0);
	assert_int_equal(access(path, F_OK), -1); /* no file was made */
	assert_int_equal(net_log_to(""), -EINVAL);
	assert_int_equal(net_log_to(below), -ENOENT);
	assert_int_equal(net_log_to(folder), -EISDIR);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(net_log_to(path), -ENXIO);
	assert_string_equal(net_log_where(where, sizeof(where)), "stderr");
}

static void wait_for_dropped(uint64_t n)
{
	while (net_log_dropped() < n)
		usleep(1000);
}

static void test_full_disk_blocks_no_caller(void **state)
{
	uint64_t before = net_log_dropped();

	open_log("/dev/full");
	for (unsigned i = 0; i < 1000; i++)
		net_log("line %u", i);
	wait_for_dropped(before + 1000);
	assert_int_equal(net_log_dropped(), before + 1000);
}

/* Counts the lines in a text, and the lines that it reports as missing. */
static void count_lines(unsigned *lines, unsigned *missing)
{
	*lines = *missing = 0;
	for (char *at = text; *at; at = strchr(at, '\n') + 1) {
		char *said = strstr(at, "warning coronet: ");
		unsigned n;

		assert_non_null(strchr(at, '\n'));
		if (said && said < strchr(at, '\n')) {
			assert_int_equal(sscanf(said,
						"warning coronet: %u lines of "
						"the log were dropped",
						&n),
					 1);
			*missing += n;
		} else {
			assert_matches(at, "^" TIME " notice line [0-9]+");
			++*lines;
		}
	}
}

/* Makes a FIFO that holds fewer lines than the ring; returns its reader. */
static int open_fifo(void)
{
	int reader;

	assert_int_equal(mkfifo(path, 0600), 0);
	reader = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(reader >= 0);
	assert_int_equal(fcntl(reader, F_SETPIPE_SZ, 4096), 4096);
	return reader;
}

/* Reads whole lines, the last of which has this end. */
static void read_up_to(int reader, const char *end)
{
	size_t len = 0;

	*text = '\0';
	while (len == 0 || text[len - 1] != '\n' || !strstr(text, end)) {
		ssize_t n = read(reader, text + len, sizeof(text) - 1 - len);

		len += n > 0 ? (size_t)n : 0;
		text[len] = '\0';
	}
}

static void test_stopped_fifo_reader_blocks_no_caller(void **state)
{
	uint64_t before = net_log_dropped();
	unsigned lines, missing;
	int reader = open_fifo();

	open_log(path);
	for (unsigned i = 0; i < 10000; i++)
		net_log("line %u", i);
	assert_true(net_log_dropped() > before);
	/*
	 * The FIFO has no reader any more: lines are lost, without another
	 * effect.
	 */
	while (read(reader, text, sizeof(text)) > 0 || errno != EAGAIN)
		;
	close(reader);
	flush_log();
	before = net_log_dropped();
	for (unsigned i = 0; i < 100; i++)
		net_log("line %u", i);
	wait_for_dropped(before + 100);
	flush_log();
	/* The next reader gets the number of lost lines. */
	reader = open(path, O_RDONLY | O_NONBLOCK);
	net_log("line 100");
	flush_log();
	read_up_to(reader, " notice line 100\n");
	count_lines(&lines, &missing);
	assert_true(lines >= 1);
	assert_true(missing >= 100);
	close(reader);
}

/* Also while the writer waits for the reader. */
static void test_rotation_ends_waiting_for_a_stopped_reader(void **state)
{
	int reader = open_fifo();

	open_log(path);
	for (unsigned i = 0; i < 10000; i++)
		net_log("line %u", i);
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(net_log_reopen_wait(), 0);
	flush_log(); /* a full ring would drop the next line */
	net_log("after");
	while (!strstr(text_in(path), " notice after\n"))
		usleep(1000);
	close(reader);
}

/* The error is written to the old FIFO only when that has room again. */
static void
test_failed_reopen_beside_a_stopped_reader_blocks_no_call(void **state)
{
	int reader = open_fifo();
	char where[64];

	open_log(path);
	for (unsigned i = 0; i < 10000; i++)
		net_log("line %u", i);
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(mkfifo(path, 0600), 0); /* nobody reads this one */
	assert_int_equal(net_log_reopen_wait(), -ENXIO);
	assert_string_equal(net_log_where(where, sizeof(where)), path);
	net_log_leave(on_reopen, &reopened);
	/* Leave nothing to be reported in the next log. */
	while (net_log_waiting())
		if (read(reader, text, sizeof(text)) < 0)
			usleep(1000);
	net_log("last");
	read_up_to(reader, " notice last\n");
	close(reader);
}

/* Limits the file size, like a disk with room for a part of a line. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_partial_line_is_terminated(void **state)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
	uint64_t before;
	size_t size;

	sigaction(SIGXFSZ, &ignore, &old);
	open_log(path);
	net_log("whole");
	flush_log();
	size = strlen(text_in(path));
	before = net_log_dropped();
	limit_files((rlim_t)size + 10);
	net_log("torn, as there is no room");
	wait_for_dropped(before + 1);
	limit_files(RLIM_INFINITY);
	net_log("next");
	flush_log();
	sigaction(SIGXFSZ, &old, NULL);
	assert_matches(text_in(path),
		       "^" TIME " notice whole\n[0-9T:-]{10}\n" TIME
		       " warning coronet: 1 lines of the log were "
		       "dropped[^\n]*\n" TIME " notice next\n$");
}

/* "journal" is stderr with priorities, wherever stderr leads. */
static void test_journal_lines_have_a_priority_and_no_time(void **state)
{
	static const char *const names[] = {"emergency", "alert",   "critical",
					    "error",	 "warning", "notice"};
	char where[64];
	int ends[2];
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	net_log_set_fd(ends[1]);
	open_log("journal");
	assert_string_equal(net_log_where(where, sizeof(where)), "journal");
	for (unsigned i = 0; i < 6; i++)
		net_log_at(NET_LOG_EMERGENCY + i, "%s", names[i]);
	net_log_dpdk(NET_LOG_DEBUG, "EAL: debug\n", 11);
	flush_log();
	n = read(ends[0], text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	assert_string_equal(text, "<0>emergency\n<1>alert\n<2>critical\n"
				  "<3>error\n<4>warning\n<5>notice\n"
				  "<7>EAL: debug\n");
	net_log_close();
	net_log_set_fd(STDERR_FILENO);
	net_log_to("stderr");
	net_log_open();
	flush_log();
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
#define CASE(test_) cmocka_unit_test_setup_teardown(test_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(test_lines_have_time_and_level),
		CASE(test_log_file_is_appended_to),
		CASE(test_rotation_loses_no_line),
		CASE(test_reopen_is_of_the_file_that_was_opened_last),
		CASE(test_sigusr1_reopens_while_the_log_is_open),
		CASE(test_other_logs_are_notified_of_a_reopen),
		CASE(test_log_continues_if_the_file_cannot_be_reopened),
		CASE(test_unusable_log_files_are_refused),
		CASE(test_full_disk_blocks_no_caller),
		CASE(test_stopped_fifo_reader_blocks_no_caller),
		CASE(test_rotation_ends_waiting_for_a_stopped_reader),
		CASE(test_failed_reopen_beside_a_stopped_reader_blocks_no_call),
		CASE(test_partial_line_is_terminated),
		CASE(test_journal_lines_have_a_priority_and_no_time),
	};
	int failed;

	if (!mkdtemp(folder))
		return 1;
	failed = cmocka_run_group_tests_name("log_file", tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
