/*
 * Handshakes that wait for their turn: one step a round, in the order in which
 * they came, and any of them may end meanwhile.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "netstack/tls/tls_priv.h"
#include "tests/net/tls_pair.h"

#define CLIENTS	   20u
#define ROUNDS_MAX 100000u

static struct coro *dialers[CLIENTS];
static int results[CLIENTS];
static uint64_t handshakes;

static void *dial_and_close(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.1:7", -1, &addr);
	results[i] = net_dial(stack, &addr, &dial_opts, &conn);
	if (results[i] == 0)
		net_close(conn);
	ended++;
	return NULL;
}

static void start_clients(void)
{
	serve(echo_end);
	ended = 0;
	handshakes = net_here()->stats.tls_handshakes;
	for (unsigned i = 0; i < CLIENTS; i++) {
		results[i] = 1;
		assert_int_equal(coro_spawn(stack->sched, NULL, dial_and_close,
					    (void *)(uintptr_t)i, &dialers[i]),
				 0);
	}
}

static void run_round(void)
{
	fake_now_ns += 1000;
	net_stack_round(stack);
}

/* Runs until n handshakes are done; each connection has two. */
static void run_until_handshakes(unsigned n)
{
	for (unsigned i = 0; i < ROUNDS_MAX; i++) {
		if (net_here()->stats.tls_handshakes - handshakes >= n)
			return;
		run_round();
	}
	fail_msg("%u handshakes are not done", n);
}

static void run_until_ended(unsigned n)
{
	for (unsigned i = 0; i < ROUNDS_MAX && ended < n; i++)
		run_round();
	assert_int_equal(ended, n);
}

static void detach_all(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (dialers[i])
			coro_detach(dialers[i]);
}

static void test_one_handshake_a_round(void **state)
{
	start_clients();
	for (unsigned i = 0; i < ROUNDS_MAX && ended < CLIENTS; i++) {
		uint64_t before = net_here()->stats.tls_handshakes;

		run_round();
		assert_true(net_here()->stats.tls_handshakes - before <= 1);
	}
	assert_int_equal(ended, CLIENTS);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(results[i], 0);
	detach_all();
}

/* Beside the one whose turn it is, there is its peer, and what was accepted. */
static void test_those_that_wait_do_not_run(void **state)
{
	start_clients();
	run_until_handshakes(1);
	while (net_here()->stats.tls_handshakes - handshakes < CLIENTS / 2) {
		unsigned before = coro_sched_turn(stack->sched);

		run_round();
		assert_true(coro_sched_turn(stack->sched) - before <= 8);
	}
	run_until_ended(CLIENTS);
	detach_all();
}

static void test_destroyed_ones_leave_the_queue(void **state)
{
	unsigned left = CLIENTS;

	start_clients();
	run_until_handshakes(3);
	for (unsigned i = 0; i < CLIENTS; i += 2) {
		left -= results[i] == 1;
		assert_int_equal(coro_destroy(dialers[i]), 0);
		dialers[i] = NULL;
	}
	run_until_ended(left);
	for (unsigned i = 1; i < CLIENTS; i += 2)
		assert_int_equal(results[i], 0);
	detach_all();
}

static void abort_handshake(struct net_conn *conn)
{
	if (net_is_tls(conn) && !net_tls_of(conn)->is_established)
		net_abort(conn);
}

static void return_now(struct net_conn *conn, void *arg)
{
}

/* Their owners' calls return, and the next ones find an empty queue. */
static void test_aborted_ones_leave_the_queue(void **state)
{
	start_clients();
	run_until_handshakes(3);
	net_for_each_conn(abort_handshake);
	run_until_ended(CLIENTS);
	detach_all();
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_true(results[i] == 0 || results[i] == -EBADF ||
			    results[i] == -ECONNRESET);
	tls_run(echo_end, return_now);
	assert_int_equal(dialed, 0);
}

/* The handshake's deadline ends a wait for a turn. */
static void test_deadline_ends_the_wait(void **state)
{
	uint64_t failed = net_here()->stats.tls_failed;

	start_clients();
	run_until_handshakes(1);
	fake_now_ns += INT64_C(3600) * 1000000000;
	run_until_ended(CLIENTS);
	detach_all();
	assert_true(net_here()->stats.tls_failed - failed >= CLIENTS - 3);
}

#define T(test) cmocka_unit_test_setup_teardown(test, tls_setup, tls_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_one_handshake_a_round),
		T(test_those_that_wait_do_not_run),
		T(test_destroyed_ones_leave_the_queue),
		T(test_aborted_ones_leave_the_queue),
		T(test_deadline_ends_the_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
