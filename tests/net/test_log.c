/*
 * The log: writing a line never blocks the caller, whatever stderr is.
 *
 * A pipe stands in for stderr; a real thread writes to it. No check fails on a
 * slow machine: a call that blocks makes the test hang, and meson's time limit
 * ends it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/net.h>

#include "netstack/program/log.h"
#include "tests/net/fake_glue.h"

#define NS_PER_S INT64_C(1000000000)

static int reader, pipe_in;
static char text[1 << 20];
static size_t text_len;

static int open_pipe(void **state)
{
	int ends[2];

	if (pipe(ends))
		return -1;
	reader = ends[0];
	pipe_in = ends[1];
	text_len = 0;
	text[0] = '\0';
	net_log_set_fd(pipe_in);
	return net_log_open();
}

static int close_pipe(void **state)
{
	net_log_close();
	net_log_set_fd(STDERR_FILENO);
	close(reader);
	close(pipe_in);
	return 0;
}

/* Fills the pipe until any write would block. Returns the number of bytes. */
static size_t fill_log(void)
{
	static const char dots[4096];
	int flags = fcntl(pipe_in, F_GETFL);
	size_t all = 0;
	ssize_t n;

	fcntl(pipe_in, F_SETFL, flags | O_NONBLOCK);
	while ((n = write(pipe_in, dots, sizeof(dots))) > 0)
		all += (size_t)n;
	fcntl(pipe_in, F_SETFL, flags);
	return all;
}

/* Reads at most `most` bytes that are written by now or soon. */
static void read_some(size_t most)
{
	ssize_t n = read(reader, text + text_len, most);

	assert_true(n > 0);
	text_len += (size_t)n;
	assert_true(text_len < sizeof(text) - 4096);
	text[text_len] = '\0';
}

/* Reads until the text ends in `end`. */
static void read_until(const char *end)
{
	size_t len = strlen(end);

	while (text_len < len || strcmp(text + text_len - len, end) != 0)
		read_some(4096);
}

/* Reads and discards fill()'s bytes. */
static void pass_over(size_t n)
{
	while (n) {
		ssize_t part = read(reader, text, n < 4096 ? n : 4096);

		assert_true(part > 0);
		n -= (size_t)part;
	}
}

/*
 * Checks that the text is "line 0\n", "line 1\n"..., with the number of missing
 * lines reported exactly where they are missing. Returns the number of lines,
 * missing ones included.
 */
static unsigned check_lines(unsigned *dropped)
{
	unsigned next = 0, n;

	*dropped = 0;
	for (const char *at = text; strchr(at, '\n');
	     at = strchr(at, '\n') + 1) {
		if (sscanf(at, "coronet: %u lines of the log were dropped",
			   &n) == 1) {
			*dropped += n;
			next += n;
		} else {
			assert_int_equal(sscanf(at, "line %u\n", &n), 1);
			assert_int_equal(n, next);
			next++;
		}
	}
	return next;
}

/*
 * Reads until every line up to n is accounted for; returns the number of
 * dropped ones.
 */
static unsigned read_lines(unsigned n)
{
	unsigned dropped, got;

	while ((got = check_lines(&dropped)) < n)
		read_some(4096);
	assert_int_equal(got, n);
	return dropped;
}

static void test_line_gets_its_newline(void **state)
{
	net_log("three %s %d", "plus", 4);
	read_until("three plus 4\n");
	assert_string_equal(text, "three plus 4\n");
}

static void test_bytes_are_written_as_they_are(void **state)
{
	net_log_write("\rab", 3);
	net_log_write("c", 1);
	read_until("abc");
	assert_string_equal(text, "\rabc");
}

static void test_control_characters_in_a_line_are_replaced(void **state)
{
	net_log("name '%s'", "a\nb\x1b[2Jc\x7f");
	read_until("'\n");
	assert_string_equal(text, "name 'a?b?[2Jc?'\n");
}

static void test_long_line_is_cut(void **state)
{
	char longer[2 * NET_LOG_BYTES];

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	net_log("%s", longer);
	read_until("\n");
	assert_int_equal(text_len, NET_LOG_BYTES);
	assert_string_equal(text + text_len - 5, "x...\n");
	longer[NET_LOG_BYTES - 1] = '\0'; /* with the newline: just fits */
	text_len = 0;
	net_log("%s", longer);
	read_until("\n");
	assert_int_equal(text_len, NET_LOG_BYTES);
	assert_string_equal(text + text_len - 3, "xx\n");
}

static void test_full_pipe_blocks_no_caller(void **state)
{
	uint64_t before = net_log_dropped();
	size_t filled = fill_log();

	for (unsigned i = 0; i < 10000; i++)
		net_log("line %u", i);
	/* The lines in the ring, and the one that the thread is writing. */
	assert_in_range(net_log_dropped() - before, 10000 - NET_LOG_SLOTS - 1,
			10000 - NET_LOG_SLOTS);
	pass_over(filled);
	assert_int_equal(read_lines(10000), net_log_dropped() - before);
	/* Later lines are written as usual. */
	net_log("line %u", 10000);
	assert_int_equal(read_lines(10001), net_log_dropped() - before);
}

static void test_slow_reader_gets_complete_lines_in_order(void **state)
{
	uint64_t before = net_log_dropped();
	unsigned i, dropped;

	/* It reads less than half of the lines. */
	for (i = 0; i < 20000 || net_log_dropped() == before; i++) {
		net_log("line %u", i);
		if (i % 25 == 24)
			read_some(100);
	}
	dropped = read_lines(i);
	assert_int_equal(dropped, net_log_dropped() - before);
	assert_true(dropped > 0);
}

static _Atomic bool holds_writer, is_held;

/* Hides the C library's: the writer sleeps in it. */
int sem_wait(sem_t *sem)
{
	static int (*real)(sem_t *);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "sem_wait");
	while (atomic_load(&holds_writer)) {
		atomic_store(&is_held, true);
		usleep(1000);
	}
	return real(sem);
}

static _Atomic bool holds_write;

/* Hides the C library's: the writer of the log is held before it. */
ssize_t write(int fd, const void *bytes, size_t len)
{
	static ssize_t (*real)(int, const void *, size_t);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "write");
	while (atomic_load(&holds_write)) {
		atomic_store(&is_held, true);
		usleep(1000);
	}
	return real(fd, bytes, len);
}

static void *release_writer(void *arg)
{
	usleep(600000);
	atomic_store(&holds_writer, false);
	atomic_store(&holds_write, false);
	return arg;
}

/* A program that aborts on a busy machine: its last lines say why. */
static void test_flush_waits_for_a_writer_that_has_not_run(void **state)
{
	pthread_t thread;

	net_log("before");
	read_until("before\n");
	atomic_store(&holds_writer, true);
	net_log("its last line"); /* it may be in a call that is not held */
	while (!atomic_load(&is_held))
		usleep(1000);
	assert_int_equal(pthread_create(&thread, NULL, release_writer, NULL),
			 0);
	net_log("the last words");
	net_log_flush();
	assert_int_equal(net_log_waiting(), 0);
	pthread_join(thread, NULL);
	read_until("the last words\n");
}

/* The description is shared: another process may have set O_NONBLOCK. */
/* The pipe is empty: a busy machine holds the writer, and not the reader. */
static void test_flush_waits_for_a_writer_held_in_a_write(void **state)
{
	pthread_t thread;

	atomic_store(&is_held, false);
	atomic_store(&holds_write, true);
	net_log("a line");
	while (!atomic_load(&is_held))
		usleep(1000);
	assert_int_equal(pthread_create(&thread, NULL, release_writer, NULL),
			 0);
	net_log("the last line");
	net_log_flush();
	assert_int_equal(net_log_waiting(), 0);
	pthread_join(thread, NULL);
	read_until("the last line\n");
}

static void test_nonblocking_description_tears_no_line(void **state)
{
	uint64_t before = net_log_dropped();
	size_t filled = fill_log();

	fcntl(pipe_in, F_SETFL, fcntl(pipe_in, F_GETFL) | O_NONBLOCK);
	for (unsigned i = 0; i < NET_LOG_SLOTS; i++)
		net_log("line %u", i);
	pass_over(filled);
	assert_int_equal(read_lines(NET_LOG_SLOTS), 0);
	assert_int_equal(net_log_dropped(), before);
}

static void wait_for_dropped(uint64_t n)
{
	while (net_log_dropped() < n)
		usleep(1000);
}

static void test_closed_pipe_only_loses_lines(void **state)
{
	uint64_t before = net_log_dropped();
	int ends[2];

	close(reader);
	for (unsigned i = 0; i < 5; i++)
		net_log("line %u", i);
	wait_for_dropped(before + 5);
	/* Once the pipe is open again, the number of lost lines is reported. */
	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], pipe_in);
	close(ends[1]);
	reader = ends[0];
	net_log("line %u", 5);
	assert_int_equal(read_lines(6), 5);
}

static int status_of(void (*body)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		body();
		_exit(7);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void write_to_closed_pipe(void)
{
	int ends[2];

	if (pipe(ends))
		_exit(1);
	close(ends[0]);
	if (write(ends[1], "x", 1) != -1 || errno != EPIPE)
		_exit(1);
}

static void say_to_closed_pipe(void)
{
	net_log_open();
	write_to_closed_pipe(); /* as printf(3) on a closed stdout does */
}

static void say_after_close(void)
{
	net_log_open();
	net_log_close();
	write_to_closed_pipe();
}

static void say_without_writer(void)
{
	close(reader);
	net_log("before there is a stack");
	if (net_log_dropped() == 0)
		_exit(1);
}

static void test_sigpipe_ends_no_process(void **state)
{
	int status;

	net_log_close(); /* so that the children begin with the default */
	status = status_of(say_to_closed_pipe);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
	status = status_of(say_without_writer);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
	/* The program's own action is restored. */
	status = status_of(say_after_close);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGPIPE);
}

static void test_sigpipe_action_of_the_program_is_kept(void **state)
{
	struct sigaction now;

	net_log_close();
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(net_log_open(), 0);
	sigaction(SIGPIPE, NULL, &now);
	assert_ptr_equal(now.sa_handler, SIG_IGN);
	net_log_close();
	sigaction(SIGPIPE, NULL, &now);
	assert_ptr_equal(now.sa_handler, SIG_IGN);
	signal(SIGPIPE, SIG_DFL);
}

static void say_as_child(void)
{
	net_log("the child");
}

static void test_forked_child_writes_its_own_lines(void **state)
{
	assert_int_equal(WEXITSTATUS(status_of(say_as_child)), 7);
	read_until("the child\n");
}

static void say_storm(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		net_log_seldom("storm of %s", "7.7.7.7");
}

/* A line starts with its priority only if journald reads stderr. */
static void test_lines_for_the_journal_have_a_priority(void **state)
{
	static struct net_log_limit limit;
	struct stat st;
	char stream[64];

	assert_int_equal(fstat(pipe_in, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu",
		 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	assert_int_equal(net_log_open(), 0);
	net_log("one");
	net_log_limited(&limit, "two");
	read_until("two\n");
	assert_string_equal(text, "<5>one\n<4>two\n");
	/* stderr has been given to another file since */
	setenv("JOURNAL_STREAM", "1:1", 1);
	assert_int_equal(net_log_open(), 0);
	net_log("three");
	read_until("three\n");
	assert_string_equal(text, "<5>one\n<4>two\nthree\n");
	unsetenv("JOURNAL_STREAM");
}

static void test_repeated_lines_are_limited_to_one_a_second(void **state)
{
	fake_now_ns = 5 * NS_PER_S;
	say_storm(1000);
	fake_now_ns += NS_PER_S - 1;
	say_storm(1);
	net_log_seldom("another event");
	fake_now_ns += 1;
	say_storm(3);
	fake_now_ns += 10 * NS_PER_S;
	say_storm(1);
	fake_now_ns += NS_PER_S;
	say_storm(1);
	net_log("end");
	read_until("end\n");
	assert_string_equal(text, "storm of 7.7.7.7\n"
				  "another event\n"
				  "storm of 7.7.7.7 (and 1000 more like it)\n"
				  "storm of 7.7.7.7 (and 2 more like it)\n"
				  "storm of 7.7.7.7\n"
				  "end\n");
}

int main(void)
{
#define CASE(test_)                                                            \
	cmocka_unit_test_setup_teardown(test_, open_pipe, close_pipe)
	const struct CMUnitTest tests[] = {
		CASE(test_line_gets_its_newline),
		CASE(test_bytes_are_written_as_they_are),
		CASE(test_control_characters_in_a_line_are_replaced),
		CASE(test_long_line_is_cut),
		CASE(test_full_pipe_blocks_no_caller),
		CASE(test_slow_reader_gets_complete_lines_in_order),
		CASE(test_flush_waits_for_a_writer_that_has_not_run),
		CASE(test_flush_waits_for_a_writer_held_in_a_write),
		CASE(test_nonblocking_description_tears_no_line),
		CASE(test_closed_pipe_only_loses_lines),
		CASE(test_sigpipe_ends_no_process),
		CASE(test_sigpipe_action_of_the_program_is_kept),
		CASE(test_forked_child_writes_its_own_lines),
		CASE(test_lines_for_the_journal_have_a_priority),
		CASE(test_repeated_lines_are_limited_to_one_a_second),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
