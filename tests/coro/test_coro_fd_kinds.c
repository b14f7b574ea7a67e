/*
 * Every kind of descriptor that programs wait for becomes readable, by an
 * action on a second descriptor.
 */
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "fd_wait.h"

/* ---- kinds of descriptors ---- */

struct kind {
	const char *name;
	void (*open)(int fds[2]);
	void (*make_ready)(int fds[2]);
};

static void say_second(int fds[2])
{
	write_byte(fds[1]);
}

static void open_eventfd(int fds[2])
{
	fds[0] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	fds[1] = dup(fds[0]);
}

static void say_eventfd(int fds[2])
{
	assert_int_equal(eventfd_write(fds[1], 1), 0);
}

static void open_timerfd(int fds[2])
{
	fds[0] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	fds[1] = dup(fds[0]);
}

static void say_timerfd(int fds[2])
{
	const struct itimerspec soon = {.it_value.tv_nsec = 1};

	assert_int_equal(timerfd_settime(fds[1], 0, &soon, NULL), 0);
}

/* The second one is a file that is watched. */
static void open_inotify(int fds[2])
{
	char path[] = "/tmp/coronet-fd-XXXXXX";

	fds[0] = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	fds[1] = mkstemp(path);
	assert_true(inotify_add_watch(fds[0], path, IN_MODIFY) >= 0);
	unlink(path);
}

/* SIGURG stays blocked; the second one only has to be open. */
static void open_signalfd(int fds[2])
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGURG);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	fds[0] = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	fds[1] = dup(fds[0]);
}

static void say_signalfd(int fds[2])
{
	assert_int_equal(raise(SIGURG), 0);
}

static void open_unix(int fds[2])
{
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
}

static int listen_tcp(struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*at);

	*at = (struct sockaddr_in){.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(bind(fd, (void *)at, len), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (void *)at, &len), 0);
	return fd;
}

static void open_tcp(int fds[2])
{
	struct sockaddr_in at;
	int listener = listen_tcp(&at);

	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fds[0], (void *)&at, sizeof(at)), 0);
	fds[1] = accept(listener, NULL, NULL);
	close(listener);
}

static struct sockaddr_in where;

static void open_listener(int fds[2])
{
	fds[0] = listen_tcp(&where);
	fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void say_listener(int fds[2])
{
	assert_int_equal(connect(fds[1], (void *)&where, sizeof(where)), 0);
}

static void test_every_kind_of_descriptor_becomes_readable(void **state)
{
	static const struct kind kinds[] = {
		{"pipe", open_pipe, say_second},
		{"eventfd", open_eventfd, say_eventfd},
		{"timerfd", open_timerfd, say_timerfd},
		{"inotify", open_inotify, say_second},
		{"signalfd", open_signalfd, say_signalfd},
		{"Unix socket", open_unix, say_second},
		{"TCP socket", open_tcp, say_second},
		{"TCP listener", open_listener, say_listener},
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char taken[4096];
		struct wait *w;
		int fds[2];

		print_message("# %s\n", kinds[i].name);
		kinds[i].open(fds);
		assert_true(fds[0] >= 0 && fds[1] >= 0);
		w = wait_start(*state, 0, fds[0], POLLIN);
		look_for_events(*state);
		assert_false(w->done);
		kinds[i].make_ready(fds);
		while (!w->done) /* the kernel may take a moment */
			look_for_events(*state);
		wait_end(w);
		assert_int_equal(w->got, POLLIN);
		(void)!read(fds[0], taken, sizeof(taken)); /* the signal */
		close_pipe(fds);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_every_kind_of_descriptor_becomes_readable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
