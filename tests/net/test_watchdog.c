/*
 * The watchdog names the handler that blocks the loop, and no other. The test's
 * handlers block until the line has been written.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/program/log.h"
#include "netstack/shard/shard.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static int log_ends[2];
static char line[1024];

static int setup_with(void **state, unsigned limit_ms)
{
	struct net_opts opts;

	fake_now_ns = 1000000000;
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:test";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_BUSY;
	opts.watchdog_ms = limit_ms;
	line[0] = '\0';
	if (pipe2(log_ends, O_NONBLOCK) < 0)
		return -1;
	net_log_set_fd(log_ends[1]);
	if (net_stack_open(&opts, &stack) < 0)
		return -1;
	return net_listen(stack, &net_addr_any(7), 0, &listener);
}

static int setup(void **state)
{
	return setup_with(state, 20);
}

static int setup_without(void **state)
{
	return setup_with(state, 0);
}

static int teardown(void **state)
{
	net_stack_close(stack);
	fake_reset();
	net_log_set_fd(STDERR_FILENO);
	close(log_ends[0]);
	close(log_ends[1]);
	return fake_frames_out ? -1 : 0;
}

/* Returns whether a line was written. */
static bool line_came(void)
{
	ssize_t n = read(log_ends[0], line, sizeof(line) - 1);

	if (n > 0)
		line[n] = '\0';
	return n > 0;
}

static void computes(struct net_conn *conn, void *arg)
{
	while (!line_came())
		;
	ended++;
}

static void blocks(struct net_conn *conn, void *arg)
{
	struct pollfd pfd = {.fd = log_ends[0], .events = POLLIN};

	assert_int_equal(poll(&pfd, 1, -1), 1); /* not -EINTR */
	assert_true(line_came());
	ended++;
}

static void serve_one(net_handler handler)
{
	struct peer peer;

	ended = 0;
	net_listener_serve(listener, handler, NULL);
	peer_connect(&peer, 1000, 7, 99);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_non_null(strstr(line, "watchdog: coroutine 'conn' (handler "));
	assert_non_null(strstr(line, "peer 10.0.0.2:1000) has kept all"));
}

static void test_handler_that_computes_is_named(void **state)
{
	serve_one(computes);
	assert_non_null(strstr(line, " s, at "));
}

static void test_handler_that_blocks_the_thread_is_named(void **state)
{
	serve_one(blocks);
	assert_non_null(strstr(line, "in a system call that blocks"));
}

static void *computes_alone(void *arg)
{
	while (!line_came())
		;
	ended++;
	return NULL;
}

static void test_coroutine_without_a_connection_is_named(void **state)
{
	ended = 0;
	net_spawn(stack, "miner", computes_alone, NULL);
	run_rounds(1);
	assert_int_equal(ended, 1);
	assert_non_null(strstr(line, "coroutine 'miner' has kept all"));
}

static unsigned looks_at_start;

static void *yields(void *arg)
{
	while (net_watchdog_looks() - looks_at_start < 20)
		coro_yield();
	ended++;
	return NULL;
}

/* While turns end, no handler is named, however busy the loop is. */
static void test_yielding_coroutines_are_not_named(void **state)
{
	ended = 0;
	looks_at_start = net_watchdog_looks();
	for (int i = 0; i < 3; i++)
		net_spawn(stack, "fair", yields, NULL);
	while (ended < 3)
		net_stack_round(stack);
	net_log_flush();
	assert_false(line_came());
}

static volatile unsigned urgent;

static void on_urgent(int signo)
{
	urgent++;
}

/* The program's own SIGURG handler still runs, and is restored at the end. */
static void test_sigurg_handler_of_the_program_is_kept(void **state)
{
	struct sigaction own = {.sa_handler = on_urgent}, old, now;

	net_stack_close(stack);
	sigaction(SIGURG, &own, &old);
	setup(state);
	urgent = 0;
	raise(SIGURG);
	assert_int_equal(urgent, 1);
	serve_one(computes);
	assert_int_equal(urgent, 1);
	net_stack_close(stack);
	sigaction(SIGURG, &old, &now);
	assert_ptr_equal(now.sa_handler, on_urgent);
	setup(state);
}

static void test_without_a_limit_there_is_no_watchdog(void **state)
{
	struct sigaction now;
	unsigned looks = net_watchdog_looks();

	sigaction(SIGURG, NULL, &now);
	assert_true(now.sa_handler == SIG_DFL);
	run_rounds(100);
	assert_int_equal(net_watchdog_looks(), looks);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_handler_that_computes_is_named),
		T(test_handler_that_blocks_the_thread_is_named),
		T(test_coroutine_without_a_connection_is_named),
		T(test_yielding_coroutines_are_not_named),
		T(test_sigurg_handler_of_the_program_is_kept),
		cmocka_unit_test_setup_teardown(
			test_without_a_limit_there_is_no_watchdog,
			setup_without, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
