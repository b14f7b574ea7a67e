/*
 * Descriptors: copies, children, other threads, limits, and the kernel's own in
 * coroutines.
 */
#include "netstack/sockets/whole.h"
/* after it: it has a variable fd */
#include "tests/net/sockets.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- copies ---- */

static int copy = -1;

static void *dup_body(void *arg)
{
	copy = dup(fd);
	keep_result(close(fd));
	return NULL;
}

static void test_dup_shares_the_connection(void **state)
{
	char text[4];

	connect_socket();
	run_coro(dup_body);
	assert_int_equal(result, 0);
	assert_false(net_sockets_ours(fd));
	assert_true(net_sockets_ours(copy));
	peer_sends("abc");
	assert_int_equal(read(copy, text, 4), 3);
	assert_int_equal(fcntl(copy, F_SETFL, O_NONBLOCK), 0);
	fd = fcntl(copy, F_DUPFD_CLOEXEC, 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(read(fd, text, 4), -1);
	assert_int_equal(errno, EAGAIN); /* the flag is shared */
	assert_int_equal(close(copy), 0);
	assert_int_equal(net_here()->n_conns, 1);
}

static void test_dup2_over_ours_closes_it(void **state)
{
	struct segment s;
	int other = open("/dev/null", O_WRONLY);

	connect_socket();
	assert_int_equal(dup2(other, fd), fd);
	assert_false(net_sockets_ours(fd));
	assert_int_equal(write(fd, "x", 1), 1);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_FIN));
	close(other);
}

static void test_dup2_copies_our_socket(void **state)
{
	int other = open("/dev/null", O_WRONLY);

	connect_socket();
	assert_int_equal(dup2(fd, other), other);
	assert_int_equal(write(other, "via", 3), 3);
	peer_receives("via");
	assert_int_equal(dup2(fd, fd), fd);
	assert_int_equal(dup3(fd, fd, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(close(other), 0);
	assert_true(net_sockets_ours(fd));
}

static void test_close_range_closes_sockets(void **state)
{
	struct segment s;

	connect_socket();
	assert_int_equal(
		close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_CLOEXEC),
		0);
	assert_true(net_sockets_ours(fd));
	assert_int_equal(close_range((unsigned)fd, (unsigned)fd, 0), 0);
	assert_false(net_sockets_ours(fd));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fd = -1;
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_FIN));
}

/* ---- children ---- */

/*
 * A child's calls block in the kernel although it runs in the coroutine, since
 * no loop runs there. This is the first test, while no socket is the stack's
 * yet.
 */
static void *fork_first_body(void *arg)
{
	const struct timespec while_it_waits = {.tv_nsec = 50000000};
	int to_child[2], how;
	pid_t child;
	char c;

	assert_int_equal(pipe(to_child), 0);
	child = fork();
	if (child == 0) {
		alarm(20);
		_exit(read(to_child[0], &c, 1) == 1 ? 7 : 8);
	}
	syscall(SYS_nanosleep, &while_it_waits, NULL);
	assert_int_equal(write(to_child[1], "x", 1), 1);
	waitpid(child, &how, 0);
	close(to_child[0]);
	close(to_child[1]);
	keep_result(WIFEXITED(how) ? WEXITSTATUS(how) : -1);
	return NULL;
}

static void test_child_forked_in_a_coroutine_blocks_in_the_kernel(void **state)
{
	run_coro(fork_first_body);
	assert_int_equal(result, 7);
}

static int status;

static void *fork_body(void *arg)
{
	pid_t child = fork();

	if (child == 0) {
		bool good = read(fd, &(char){0}, 1) == -1 && errno == ENOTSUP &&
			    close(fd) == 0;

		_exit(good ? 7 : 8);
	}
	waitpid(child, &status, 0);
	keep_result(WEXITSTATUS(status));
	return NULL;
}

static void test_child_uses_the_kernel_only(void **state)
{
	connect_socket();
	run_coro(fork_body);
	assert_int_equal(result, 7);
	assert_int_equal(write(fd, "still", 5), 5);
	peer_receives("still");
}

/* A number that a child has closed is free in the child. */
static bool child_uses(int number)
{
	int pair[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 &&
	       dup2(pair[0], number) == number && write(number, "x", 1) == 1 &&
	       read(pair[1], &(char){0}, 1) == 1;
}

static void *fork_again_body(void *arg)
{
	pid_t child = fork();

	if (child == 0) {
		int again;
		bool good = close(fd) == 0;

		again = socket(AF_UNIX, SOCK_STREAM, 0);
		good = good && again == fd && write(again, "x", 1) == -1 &&
		       errno == ENOTCONN; /* the kernel's answer */
		good = good && close(again) == 0 && child_uses(fd) &&
		       close_range(3, ~0u, 0) == 0 && epoll_create1(0) == 3 &&
		       close(3) == 0;
		_exit(good ? 7 : 8);
	}
	waitpid(child, &status, 0);
	keep_result(WEXITSTATUS(status));
	return NULL;
}

static void test_child_may_reuse_descriptor_numbers(void **state)
{
	connect_socket();
	run_coro(fork_again_body);
	assert_int_equal(result, 7);
	assert_int_equal(write(fd, "still", 5), 5);
	peer_receives("still");
}

/* A descriptor that a vfork()ed child closes stays open in the parent. */
static void *vfork_body(void *arg)
{
	pid_t child = vfork();

	if (child == 0) {
		close(fd);
		_exit(7);
	}
	waitpid(child, &status, 0);
	keep_result(WEXITSTATUS(status));
	return NULL;
}

static void test_vfork_child_leaves_the_table_alone(void **state)
{
	connect_socket();
	run_coro(vfork_body);
	assert_int_equal(result, 7);
	assert_true(net_sockets_ours(fd));
	assert_int_equal(write(fd, "still", 5), 5);
	peer_receives("still");
}

/* exec closes a socket with FD_CLOEXEC; one without becomes the kernel's. */
static void *exec_body(void *arg)
{
	char text[64];
	pid_t child;

	snprintf(text, sizeof(text), "test %s -e /proc/self/fd/%d",
		 arg ? "!" : "", fd);
	child = fork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", text, NULL);
		_exit(9);
	}
	waitpid(child, &status, 0);
	keep_result(WEXITSTATUS(status));
	return NULL;
}

static void test_exec_closes_or_passes_sockets(void **state)
{
	connect_socket();
	run_coro(exec_body);
	assert_int_equal(result, 0);
	assert_int_equal(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
	net_spawn(stack, "exec", exec_body, "marked");
	run_rounds(2);
	assert_int_equal(result, 0);
}

/* ---- threads ---- */

static void *count_turn(void *arg)
{
	*(int *)arg = net_whole_turn();
	return NULL;
}

/* The stack's own threads start before main() becomes a coroutine. */
static void test_other_threads_are_not_taken_for_main(void **state)
{
	pthread_t thread;
	int turned = -1;

	net_whole.on = true;
	assert_int_equal(pthread_create(&thread, NULL, count_turn, &turned), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	net_whole.on = false;
	assert_int_equal(turned, 0);
}

static void *use_foreign(void *arg)
{
	int *errors = arg;

	errors[0] = read(fd, &(char){0}, 1) < 0 ? errno : 0;
	errors[1] = close(fd) < 0 ? errno : 0;
	errors[2] = dup2(0, fd) < 0 ? errno : 0;
	errors[3] = dup(fd) < 0 ? errno : 0;
	errors[4] = close_range((unsigned)fd, (unsigned)fd, 0) < 0 ? errno : 0;
	return NULL;
}

static void test_other_threads_are_refused(void **state)
{
	pthread_t thread;
	int errors[5];

	connect_socket();
	assert_int_equal(pthread_create(&thread, NULL, use_foreign, errors), 0);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(errors[i], EPERM);
	assert_true(net_sockets_ours(fd));
	assert_int_equal(write(fd, "still", 5), 5);
	peer_receives("still");
}

static void test_no_call_waits_outside_coroutines(void **state)
{
	connect_socket();
	assert_int_equal(read(fd, &(char){0}, 1), -1);
	assert_int_equal(errno, EPERM);
	peer_sends("x");
	assert_int_equal(read(fd, &(char){0}, 1), 1);
}

/* ---- limits ---- */

static void *emfile_body(void *arg)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	fd = accept(server, (struct sockaddr *)&in, &len);
	keep_result(fd);
	return NULL;
}

static void *listen_body(void *arg)
{
	server = socket(AF_INET, SOCK_STREAM, 0);
	bind_to(server, "10.0.0.1", 80);
	keep_result(listen(server, 8));
	return NULL;
}

static void test_accept_without_a_free_descriptor_keeps_the_client(void **state)
{
	struct rlimit old, none;

	run_coro(listen_body);
	assert_int_equal(result, 0);
	peer_connect(&peer, 1000, 80, 5);
	run_rounds(4);
	getrlimit(RLIMIT_NOFILE, &old);
	none = old;
	none.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &none);
	run_coro(emfile_body);
	assert_int_equal(error, EMFILE);
	setrlimit(RLIMIT_NOFILE, &old);
	run_coro(emfile_body);
	assert_true(fd >= 0);
}

/*
 * Thousands of sockets: each has a number, is reported by epoll, and is closed.
 */
#define MANY 10000

static int many[MANY], many_set;
static unsigned n_many;

static void *accept_many_body(void *arg)
{
	struct epoll_event event = {.events = EPOLLIN};

	many_set = epoll_create1(0);
	for (n_many = 0; n_many < MANY; n_many++) {
		many[n_many] = accept(server, NULL, NULL);
		assert_true(many[n_many] >= 0);
		event.data.u32 = n_many;
		assert_int_equal(epoll_ctl(many_set, EPOLL_CTL_ADD,
					   many[n_many], &event),
				 0);
	}
	return NULL;
}

static void *close_many_body(void *arg)
{
	struct epoll_event events[16];

	assert_int_equal(epoll_wait(many_set, events, 16, -1), 1);
	assert_int_equal(events[0].data.u32, MANY - 1);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(close(many[i]), 0);
	keep_result(epoll_wait(many_set, events, 16, 0));
	close(many_set);
	return NULL;
}

static int setup_many(void **state)
{
	struct net_opts opts;

	peer_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.max_conns = 2 * MANY;
	opts.poll = NET_POLL_BUSY;
	fd = server = -1;
	fake_now_ns = 1000000000;
	return net_stack_open(&opts, &stack);
}

static void *listen_many_body(void *arg)
{
	server = socket(AF_INET, SOCK_STREAM, 0);
	bind_to(server, "0.0.0.0", 80);
	keep_result(listen(server, 4096));
	return NULL;
}

static void test_ten_thousand_sockets(void **state)
{
	allow_files(MANY + 100);
	run_coro(listen_many_body);
	assert_int_equal(result, 0);
	run_coro(accept_many_body);
	for (unsigned i = 0; i < MANY; i++) {
		peer_connect(&peer, (uint16_t)(10000 + i), 80, 5);
		run_rounds(2);
	}
	run_rounds(4);
	assert_int_equal(n_many, MANY);
	peer_sends("x");
	run_coro(close_many_body);
	assert_int_equal(result, 0);
	run_rounds(4);
}

/* ---- the kernel's, in coroutines ---- */

static int pipes[2];

static void *read_body(void *arg)
{
	char c;

	keep_result(read(pipes[0], &c, 1));
	return NULL;
}

static void until_ended(void)
{
	for (unsigned i = 0; i < 1000 && !ended; i++)
		run_ms(1);
	assert_int_equal(ended, 1);
}

static void test_reading_a_pipe_waits(void **state)
{
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	run_coro(read_body);
	run_ms(3);
	assert_int_equal(ended, 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	until_ended();
	assert_int_equal(result, 1);
	fcntl(pipes[0], F_SETFL, O_NONBLOCK);
	run_coro(read_body);
	assert_int_equal(error, EAGAIN);
	close(pipes[0]);
	close(pipes[1]);
}

static char much[1 << 20];

static void *write_body(void *arg)
{
	keep_result(write(pipes[1], much, sizeof(much)));
	return NULL;
}

static void write_much(void)
{
	static char part[65536];
	size_t bytes = 0;

	run_coro(write_body);
	assert_int_equal(ended, 0);
	fcntl(pipes[0], F_SETFL, O_NONBLOCK);
	while (bytes < sizeof(much)) {
		ssize_t n = read(pipes[0], part, sizeof(part));

		bytes += n > 0 ? (size_t)n : 0;
		run_ms(1);
	}
	until_ended();
	assert_int_equal(result, sizeof(much));
	close(pipes[0]);
	close(pipes[1]);
}

static void test_writing_a_pipe_waits(void **state)
{
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	write_much();
}

static void test_writing_a_kernels_socket_waits(void **state)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), 0);
	write_much();
}

static void *timed_body(void *arg)
{
	struct timeval tv = {.tv_usec = 30000};

	setsockopt(pipes[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	keep_result(recv(pipes[0], &(char){0}, 1, 0));
	return NULL;
}

static void test_so_rcvtimeo_of_a_kernel_socket_is_obeyed(void **state)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), 0);
	run_coro(timed_body);
	run_ms(20);
	assert_int_equal(ended, 0);
	run_ms(20);
	until_ended();
	assert_int_equal(error, EAGAIN);
	close(pipes[0]);
	close(pipes[1]);
}

static void *loopback_body(void *arg)
{
	socklen_t len = sizeof(struct sockaddr_in);
	struct sockaddr_in in = make_address("127.0.0.1", 0);

	server = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(server, (struct sockaddr *)&in, len), 0);
	assert_int_equal(listen(server, 1), 0);
	getsockname(server, (struct sockaddr *)&in, &len);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, len), 0);
	pipes[0] = accept(server, NULL, NULL);
	assert_int_equal(send(fd, "abc", 3, 0), 3);
	keep_result(recv(pipes[0], much, 3, MSG_WAITALL));
	close(pipes[0]);
	return NULL;
}

static void test_kernel_tcp_sockets_work(void **state)
{
	run_coro(loopback_body);
	until_ended();
	assert_int_equal(result, 3);
	assert_false(net_sockets_ours(fd));
}

/* A signal handler runs, and the call continues. */
static volatile sig_atomic_t signals;

static void on_signal(int signo)
{
	signals++;
}

static void test_signals_do_not_end_calls(void **state)
{
	struct sigaction action = {.sa_handler = on_signal}, old;

	signals = 0;
	sigaction(SIGUSR1, &action, &old);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	run_coro(read_body);
	raise(SIGUSR1);
	run_ms(2);
	assert_int_equal(signals, 1);
	assert_int_equal(ended, 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	until_ended();
	assert_int_equal(result, 1);
	close(pipes[0]);
	close(pipes[1]);
	sigaction(SIGUSR1, &old, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_child_forked_in_a_coroutine_blocks_in_the_kernel),
		T(test_dup_shares_the_connection),
		T(test_dup2_over_ours_closes_it),
		T(test_dup2_copies_our_socket),
		T(test_close_range_closes_sockets),
		T(test_child_uses_the_kernel_only),
		T(test_child_may_reuse_descriptor_numbers),
		T(test_vfork_child_leaves_the_table_alone),
		T(test_exec_closes_or_passes_sockets),
		T(test_other_threads_are_not_taken_for_main),
		T(test_other_threads_are_refused),
		T(test_no_call_waits_outside_coroutines),
		T(test_accept_without_a_free_descriptor_keeps_the_client),
		cmocka_unit_test_setup_teardown(test_ten_thousand_sockets,
						setup_many, sockets_teardown),
		T(test_reading_a_pipe_waits),
		T(test_writing_a_pipe_waits),
		T(test_writing_a_kernels_socket_waits),
		T(test_so_rcvtimeo_of_a_kernel_socket_is_obeyed),
		T(test_kernel_tcp_sockets_work),
		T(test_signals_do_not_end_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
