/*
 * poll(), select() and epoll over sockets of the stack and descriptors of the
 * kernel's; sleeping; names.
 */
#include "tests/net/sockets.h"
#include "tests/net/short_memory.h"

#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <time.h>

#include <coronet/coro_io.h>

static int pipes[2];

static void open_pipe(void)
{
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
}

static void close_pipe(void)
{
	close(pipes[0]);
	close(pipes[1]);
}

/* Runs rounds until the call has ended: the kernel is polled only in some. */
static void until_ended(void)
{
	for (unsigned i = 0; i < 1000 && !ended; i++)
		run_ms(1);
	assert_int_equal(ended, 1);
}

/* ---- poll ---- */

static struct pollfd items[70];
static nfds_t n_items;
static int timeout_ms;

static void *poll_body(void *arg)
{
	keep_result(poll(items, n_items, timeout_ms));
	return NULL;
}

static void poll_both(int ms)
{
	items[0] = (struct pollfd){.fd = fd, .events = POLLIN};
	items[1] = (struct pollfd){.fd = pipes[0], .events = POLLIN};
	items[2] = (struct pollfd){.fd = ~fd, .events = POLLIN, .revents = 9};
	n_items = 3;
	timeout_ms = ms;
	run_coro(poll_body);
}

static void test_poll_waits_for_both_kinds(void **state)
{
	open_pipe();
	connect_socket();
	poll_both(-1);
	run_ms(2);
	assert_int_equal(ended, 0);
	peer_sends("x");
	until_ended();
	assert_int_equal(result, 1);
	assert_int_equal(items[0].revents, POLLIN);
	assert_int_equal(items[1].revents, 0);
	assert_int_equal(items[2].revents, 0);
	assert_int_equal(read(fd, &(char){0}, 1), 1);
	poll_both(-1);
	assert_int_equal(ended, 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	until_ended();
	assert_int_equal(result, 1);
	assert_int_equal(items[0].revents, 0);
	assert_int_equal(items[1].revents, POLLIN);
	assert_int_equal(coro_fd_waiting(net_here()->sched), 0);
	close_pipe();
}

static void *low_water_body(void *arg)
{
	static char some[1000];
	int low = 30000;
	unsigned done = 0;

	while (done < 63000) {
		ssize_t n = read(fd, some, sizeof(some));

		assert_in_range(n, 1, sizeof(some));
		done += (unsigned)n;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
	return poll_body(arg);
}

/* The peer cannot send as much as the program asks for. */
static void test_small_window_is_readable_below_so_rcvlowat(void **state)
{
	static const uint8_t zeros[1000];

	make_memory_short(24 << 10);
	connect_socket();
	items[0] = (struct pollfd){.fd = fd, .events = POLLIN};
	n_items = 1;
	timeout_ms = -1;
	run_coro(low_water_body);
	for (unsigned i = 0; i < 63 + 24; i++) {
		peer_send(&peer, PEER_ACK, zeros, sizeof(zeros));
		run_ms(1);
		if (i < 63)
			assert_int_equal(ended, 0);
	}
	until_ended();
	assert_int_equal(items[0].revents, POLLIN);
	free_memory();
}

static void test_poll_times_out(void **state)
{
	open_pipe();
	connect_socket();
	poll_both(50);
	run_ms(45);
	assert_int_equal(ended, 0);
	run_ms(10);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	n_items = 0;
	timeout_ms = 20;
	run_coro(poll_body);
	run_ms(15);
	assert_int_equal(ended, 0);
	run_ms(10);
	assert_int_equal(result, 0);
	close_pipe();
}

static void test_poll_of_many_descriptors_works(void **state)
{
	open_pipe();
	connect_socket();
	for (unsigned i = 0; i < 70; i++)
		items[i] = (struct pollfd){.fd = i % 2 ? pipes[0] : fd,
					   .events = POLLIN};
	items[69].fd = 9999;
	n_items = 70;
	timeout_ms = -1;
	run_coro(poll_body);
	assert_int_equal(result, 1);
	assert_int_equal(items[69].revents, POLLNVAL);
	items[69].fd = -1;
	run_coro(poll_body);
	assert_int_equal(ended, 0);
	peer_sends("x");
	until_ended();
	assert_int_equal(result, 35);
	close_pipe();
}

static void *close_body2(void *arg)
{
	close(fd);
	fd = -1;
	return NULL;
}

static void test_close_wakes_poll(void **state)
{
	open_pipe();
	connect_socket();
	poll_both(-1);
	net_spawn(stack, "close", close_body2, NULL);
	until_ended();
	assert_int_equal(result, 1);
	assert_int_equal(items[0].revents, POLLNVAL);
	close_pipe();
}

/* A closing stack removes the call's watch from its socket. */
static void test_stack_closes_under_poll(void **state)
{
	open_pipe();
	connect_socket();
	poll_both(-1);
	assert_int_equal(ended, 0);
	close_pipe();
}

static fd_set in_set, out_set;
static struct timeval select_time;

static void *select_body(void *arg)
{
	keep_result(select(fd + 1 > pipes[0] + 1 ? fd + 1 : pipes[0] + 1,
			   &in_set, &out_set, NULL, &select_time));
	return NULL;
}

static void test_select_reports_ready_sockets_and_the_time_left(void **state)
{
	open_pipe();
	connect_socket();
	FD_ZERO(&in_set);
	FD_ZERO(&out_set);
	FD_SET(fd, &in_set);
	FD_SET(pipes[0], &in_set);
	select_time = (struct timeval){.tv_sec = 1};
	run_coro(select_body);
	run_ms(2);
	assert_int_equal(ended, 0);
	peer_sends("x");
	until_ended();
	assert_int_equal(result, 1);
	assert_true(FD_ISSET(fd, &in_set));
	assert_false(FD_ISSET(pipes[0], &in_set));
	assert_true(select_time.tv_sec == 0 && select_time.tv_usec > 0);
	FD_SET(fd, &out_set);
	run_coro(select_body);
	assert_int_equal(result, 2);
	close_pipe();
}

#define HIGH_FD 2000

/*
 * Beyond FD_SETSIZE, which the kernel allows: the caller's set is large enough.
 */
static void *select_high_body(void *arg)
{
	static unsigned long bits[64];
	int high = fcntl(fd, F_DUPFD, HIGH_FD);
	struct timeval tv = {0};

	assert_true(high >= HIGH_FD);
	bits[(size_t)high / 64] |= 1ul << high % 64;
	keep_result(select(high + 1, NULL, (fd_set *)(void *)bits, NULL, &tv));
	assert_int_equal(bits[(size_t)high / 64], 1ul << high % 64);
	assert_int_equal(close(high), 0);
	return NULL;
}

static void test_select_beyond_fd_setsize(void **state)
{
	allow_files(HIGH_FD + 100);
	connect_socket();
	run_coro(select_high_body);
	assert_int_equal(result, 1);
}

/* ---- epoll ---- */

static int set = -1;
static struct epoll_event events[8];
static uint32_t wanted;

static int control_set(int op, int number)
{
	struct epoll_event event = {.events = wanted,
				    .data.u64 = (unsigned)number};

	return epoll_ctl(set, op, number, &event) < 0 ? -errno : 0;
}

static void *set_body(void *arg)
{
	set = epoll_create1(EPOLL_CLOEXEC);
	keep_result(set);
	return NULL;
}

static void *wait_body(void *arg)
{
	keep_result(epoll_wait(set, events, 8, timeout_ms));
	return NULL;
}

static void wait_events(int ms)
{
	timeout_ms = ms;
	run_coro(wait_body);
}

static void set_up(uint32_t what)
{
	open_pipe();
	connect_socket();
	run_coro(set_body);
	wanted = what;
}

static void take_down(void)
{
	close(set);
	close_pipe();
}

static void test_epoll_reports_both_kinds_of_descriptors(void **state)
{
	set_up(EPOLLIN);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), -EEXIST);
	assert_int_equal(control_set(EPOLL_CTL_ADD, pipes[0]), 0);
	wait_events(0);
	assert_int_equal(result, 0);
	wait_events(-1);
	peer_sends("x");
	until_ended();
	assert_int_equal(result, 1);
	assert_int_equal(events[0].data.u64, fd);
	assert_int_equal(events[0].events, EPOLLIN);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	wait_events(-1); /* level-triggered: the socket, too */
	assert_int_equal(result, 2);
	assert_int_equal(read(fd, &(char){0}, 1), 1);
	wait_events(-1);
	assert_int_equal(result, 1);
	assert_int_equal(events[0].data.u64, pipes[0]);
	assert_int_equal(control_set(EPOLL_CTL_DEL, pipes[0]), 0);
	assert_int_equal(control_set(EPOLL_CTL_DEL, fd), 0);
	assert_int_equal(control_set(EPOLL_CTL_DEL, fd), -ENOENT);
	assert_int_equal(control_set(EPOLL_CTL_MOD, fd), -ENOENT);
	wait_events(20);
	run_ms(15);
	assert_int_equal(ended, 0);
	run_ms(10);
	assert_int_equal(result, 0);
	take_down();
}

static void test_epoll_wakes_for_kernel_descriptors(void **state)
{
	set_up(EPOLLIN);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	assert_int_equal(control_set(EPOLL_CTL_ADD, pipes[0]), 0);
	wait_events(-1);
	assert_int_equal(ended, 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	until_ended();
	assert_int_equal(events[0].data.u64, pipes[0]);
	take_down();
}

static void test_epoll_edge_and_oneshot(void **state)
{
	set_up(EPOLLIN | EPOLLET);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	peer_sends("x");
	wait_events(0);
	assert_int_equal(result, 1);
	wait_events(0); /* nothing new */
	assert_int_equal(result, 0);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(4);
	wait_events(0); /* an ACK brings no bytes */
	assert_int_equal(result, 0);
	peer_sends("y");
	wait_events(0);
	assert_int_equal(result, 1);
	wanted = EPOLLIN | EPOLLONESHOT;
	assert_int_equal(control_set(EPOLL_CTL_MOD, fd), 0);
	wait_events(0);
	assert_int_equal(result, 1);
	peer_sends("z");
	wait_events(0);
	assert_int_equal(result, 0);
	assert_int_equal(control_set(EPOLL_CTL_MOD, fd), 0);
	wait_events(0);
	assert_int_equal(result, 1);
	take_down();
}

/* Like nginx, adds a socket before connect() moves it to the stack. */
static void *early_body(void *arg)
{
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	keep_result(connect_to(fd, "10.0.0.2", 80));
	return NULL;
}

static void test_epoll_keeps_a_socket_added_before_connect(void **state)
{
	open_pipe();
	run_coro(set_body);
	wanted = EPOLLOUT;
	run_coro(early_body);
	assert_int_equal(error, EINPROGRESS);
	wait_events(-1);
	run_ms(2);
	assert_int_equal(ended, 0);
	answer_syn(PEER_SYN | PEER_ACK);
	until_ended();
	assert_int_equal(result, 1);
	assert_int_equal(events[0].events, EPOLLOUT);
	assert_int_equal(events[0].data.u64, fd);
	take_down();
}

static void test_epoll_made_outside_a_coroutine(void **state)
{
	open_pipe();
	set = epoll_create1(0);
	wanted = EPOLLIN;
	assert_int_equal(control_set(EPOLL_CTL_ADD, pipes[0]), 0);
	connect_socket();
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	peer_sends("x");
	assert_int_equal(write(pipes[1], "x", 1), 1);
	wait_events(-1);
	assert_int_equal(result, 2);
	take_down();
}

static void test_epoll_refuses_other_descriptors_as_sets(void **state)
{
	open_pipe();
	connect_socket();
	set = pipes[0];
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), -EINVAL);
	set = 9999;
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), -EBADF);
	close_pipe();
}

static void test_close_leaves_epoll(void **state)
{
	set_up(EPOLLIN);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	peer_sends("x");
	run_coro(close_body);
	wait_events(0);
	assert_int_equal(result, 0);
	take_down();
}

/* A level-triggered socket must not hide the kernel's members. */
static void *wait_one_body(void *arg)
{
	keep_result(epoll_wait(set, events, 1, 0));
	return NULL;
}

static void test_epoll_is_fair_to_both_kinds(void **state)
{
	unsigned seen[2] = {0};

	set_up(EPOLLIN);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	assert_int_equal(control_set(EPOLL_CTL_ADD, pipes[0]), 0);
	peer_sends("x");
	assert_int_equal(write(pipes[1], "x", 1), 1);
	for (unsigned i = 0; i < 6; i++) {
		run_coro(wait_one_body);
		assert_int_equal(result, 1);
		seen[events[0].data.u64 == (unsigned)pipes[0]]++;
	}
	assert_int_equal(seen[0], 3);
	assert_int_equal(seen[1], 3);
	take_down();
}

/* The kernel drops a closed pipe, and a socket gets its number. */
static void *reuse_body(void *arg)
{
	struct sockaddr_in in = make_address("10.0.0.2", 80);

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	keep_result(connect(fd, (struct sockaddr *)&in, sizeof(in)));
	return NULL;
}

static void test_epoll_forgets_a_closed_kernel_descriptor(void **state)
{
	int closed;

	open_pipe();
	run_coro(set_body);
	wanted = EPOLLIN;
	assert_int_equal(control_set(EPOLL_CTL_ADD, pipes[0]), 0);
	closed = pipes[0];
	assert_int_equal(close(pipes[0]), 0);
	run_coro(reuse_body);
	assert_int_equal(error, EINPROGRESS);
	assert_int_equal(fd, closed);
	answer_syn(PEER_SYN | PEER_ACK);
	peer_sends("x");
	wait_events(0);
	assert_int_equal(result, 0); /* it is no member */
	assert_int_equal(control_set(EPOLL_CTL_MOD, fd), -ENOENT);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	wait_events(0);
	assert_int_equal(result, 1);
	close(set);
	close(pipes[1]);
}

static void *close_set_body(void *arg)
{
	close(set);
	return NULL;
}

static void test_closed_epoll_set_wakes_its_waiter(void **state)
{
	set_up(EPOLLIN);
	assert_int_equal(control_set(EPOLL_CTL_ADD, fd), 0);
	wait_events(-1);
	net_spawn(stack, "close", close_set_body, NULL);
	until_ended();
	assert_int_equal(error, EBADF);
	close_pipe();
}

/* ---- time, names ---- */

static unsigned woken;

static void *sleep_body(void *arg)
{
	struct timespec ts = {.tv_nsec = 20000000};

	assert_int_equal(usleep(20000), 0);
	woken++;
	assert_int_equal(nanosleep(&ts, NULL), 0);
	woken++;
	assert_int_equal(clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL), 0);
	woken++;
	assert_int_equal(sleep(1), 0);
	woken++;
	ts.tv_nsec = 1000000000;
	keep_result(nanosleep(&ts, NULL));
	return NULL;
}

static void test_sleep_calls_block_the_coroutine_only(void **state)
{
	woken = 0;
	run_coro(sleep_body);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(woken, i);
		run_ms(21);
		run_rounds(1);
	}
	assert_int_equal(woken, 3);
	run_ms(990);
	assert_int_equal(woken, 3);
	run_ms(20);
	assert_int_equal(ended, 1);
	assert_int_equal(error, EINVAL);
}

static void *name_body(void *arg)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	struct hostent *host;
	unsigned turn;

	assert_int_equal(getaddrinfo("10.0.0.9", "80", &hints, &found), 0);
	assert_int_equal(found->ai_family, AF_INET);
	freeaddrinfo(found);
	/* Others may run meanwhile: the coroutine continues in a later turn. */
	turn = coro_sched_turn(stack->sched);
	assert_int_equal(getaddrinfo("localhost", "80", &hints, &found), 0);
	assert_int_not_equal(coro_sched_turn(stack->sched), turn);
	freeaddrinfo(found);
	turn = coro_sched_turn(stack->sched);
	host = gethostbyname("localhost");
	assert_int_not_equal(coro_sched_turn(stack->sched), turn);
	assert_non_null(host);
	assert_int_equal(host->h_addrtype, AF_INET);
	keep_result(0);
	return NULL;
}

static void test_lookups_run_on_another_thread(void **state)
{
	run_coro(name_body);
	while (!ended) {
		run_rounds(1);
		usleep(100);
	}
	assert_int_equal(result, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_poll_waits_for_both_kinds),
		T(test_small_window_is_readable_below_so_rcvlowat),
		T(test_poll_times_out),
		T(test_poll_of_many_descriptors_works),
		T(test_close_wakes_poll),
		T(test_stack_closes_under_poll),
		T(test_select_reports_ready_sockets_and_the_time_left),
		T(test_select_beyond_fd_setsize),
		T(test_epoll_reports_both_kinds_of_descriptors),
		T(test_epoll_wakes_for_kernel_descriptors),
		T(test_epoll_edge_and_oneshot),
		T(test_epoll_keeps_a_socket_added_before_connect),
		T(test_epoll_made_outside_a_coroutine),
		T(test_epoll_refuses_other_descriptors_as_sets),
		T(test_close_leaves_epoll),
		T(test_epoll_is_fair_to_both_kinds),
		T(test_epoll_forgets_a_closed_kernel_descriptor),
		T(test_closed_epoll_set_wakes_its_waiter),
		T(test_sleep_calls_block_the_coroutine_only),
		T(test_lookups_run_on_another_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
