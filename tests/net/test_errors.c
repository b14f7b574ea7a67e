/*
 * Every call that reads or writes, in every situation that ends it: a table of
 * situations and calls, with the error that the header documents.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static struct peer peer;
static struct net_conn *conn, *given; /* given: the argument of the call */
static struct coro *caller, *second;
static uint8_t block[20000];
static unsigned released;

/* ---- the calls ---- */

static long call_recv(void)
{
	return net_recv(given, got, 9);
}

static long call_recv_full(void)
{
	return net_recv_full(given, got, 9);
}

static long call_recv_view(void)
{
	struct net_view view;

	return net_recv_view(given, &view);
}

static long call_recv_until(void)
{
	return net_recv_until(given, got, 9, "\n", 1);
}

static long call_recvv(void)
{
	struct iovec iov = {got, 9};

	return net_recvv(given, &iov, 1);
}

static long call_send(void)
{
	return net_send(given, block, 9);
}

static long call_send_all(void)
{
	return net_send_all(given, block, 9);
}

static long call_sendv(void)
{
	struct iovec iov = {block, 9};

	return net_sendv(given, &iov, 1);
}

static long call_sendv_all(void)
{
	struct iovec iov = {block, 9};

	return net_sendv_all(given, &iov, 1);
}

static void count_release(void *arg)
{
	released++;
}

static long call_send_owned(void)
{
	return net_send_owned(given, block, 9, count_release, NULL);
}

static long call_writable(void)
{
	return net_writable(given);
}

static const struct call {
	const char *name;
	long (*fn)(void);
	bool writes;
} calls[] = {
	{"net_recv", call_recv, false},
	{"net_recv_full", call_recv_full, false},
	{"net_recv_view", call_recv_view, false},
	{"net_recv_until", call_recv_until, false},
	{"net_recvv", call_recvv, false},
	{"net_send", call_send, true},
	{"net_send_all", call_send_all, true},
	{"net_sendv", call_sendv, true},
	{"net_sendv_all", call_sendv_all, true},
	{"net_send_owned", call_send_owned, true},
	{"net_writable", call_writable, true},
};

#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static const struct call *call;

static void *call_body(void *arg)
{
	if (arg)
		coro_deadline_set(net_now_ns(stack) + 5000000);
	result = call->fn();
	ended++;
	return NULL;
}

/* ---- events before the call, or while it is blocked ---- */

static void is_null(void)
{
	given = NULL;
}

static void is_closed(void)
{
	net_close(conn);
	conn = NULL;
}

static void is_aborted(void)
{
	net_abort(conn);
	conn = NULL;
}

static void is_cancelled(void)
{
	assert_int_equal(net_cancel(conn), 0);
}

static void coroutine_is_cancelled(void)
{
	coro_cancel(caller);
}

static void is_reset(void)
{
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
}

static void is_shut_down(void)
{
	assert_int_equal(net_shutdown(conn, NET_SHUT_RDWR), 0);
}

static void has_deadlines(void)
{
	net_set_read_deadline(conn, fake_now_ns + 5000000);
	net_set_write_deadline(conn, fake_now_ns + 5000000);
}

static void time_passes(void)
{
	run_ms(10);
}

static void nobody_is_there(void)
{
}

static void never_called(struct net_conn *c, struct net_watch *watch)
{
}

static void is_watched(void)
{
	static struct net_watch watch = {.fn = never_called};

	net_set_watch(conn, &watch);
}

static void *second_body(void *arg)
{
	return (void *)call->fn();
}

static void another_is_blocked(void)
{
	assert_int_equal(
		coro_spawn(net_here()->sched, NULL, second_body, NULL, &second),
		0);
	run_rounds(2);
}

static void peer_ends(void)
{
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(2);
}

#define BLOCKS 99 /* the situation does not end calls of this kind */

static const struct situation {
	const char *name;
	void (*before)(void), (*meanwhile)(void);
	long reads, writes;
	bool outside, deadline; /* no coroutine; one with a deadline */
} situations[] = {
	{"no connection", is_null, NULL, -EBADF, -EBADF, false, false},
	{"closed before", is_closed, NULL, -EBADF, -EBADF, false, false},
	{"closed", NULL, is_closed, -EBADF, -EBADF, false, false},
	{"aborted", NULL, is_aborted, -EBADF, -EBADF, false, false},
	{"cancelled before", is_cancelled, NULL, -ECANCELED, -ECANCELED, false,
	 false},
	{"cancelled", NULL, is_cancelled, -ECANCELED, -ECANCELED, false, false},
	{"coroutine cancelled", NULL, coroutine_is_cancelled, -ECANCELED,
	 -ECANCELED, false, false},
	{"reset before", is_reset, NULL, -ECONNRESET, -ECONNRESET, false,
	 false},
	{"reset", NULL, is_reset, -ECONNRESET, -ECONNRESET, false, false},
	{"shut down before", is_shut_down, NULL, -ENOTCONN, -EPIPE, false,
	 false},
	{"shut down", NULL, is_shut_down, -ENOTCONN, -EPIPE, false, false},
	{"its deadlines", has_deadlines, time_passes, -ETIMEDOUT, -ETIMEDOUT,
	 false, false},
	{"the coroutine's deadline", NULL, time_passes, -ETIMEDOUT, -ETIMEDOUT,
	 false, true},
	{"another one is blocked", another_is_blocked, NULL, -EBUSY, -EBUSY,
	 false, false},
	{"no coroutine", nobody_is_there, NULL, -EPERM, -EPERM, true, false},
	{"watched", is_watched, NULL, -EAGAIN, -EAGAIN, false, false},
	{"the peer's end", NULL, peer_ends, 0, BLOCKS, false, false},
};

/* ---- one cell of the table ---- */

static void *accept_body(void *arg)
{
	assert_int_equal(net_accept(listener, &conn), 0);
	return NULL;
}

static void drain_wire(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

static void connect_peer(uint16_t port)
{
	conn = NULL;
	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	peer_connect(&peer, port, 7, 5);
	run_rounds(2);
	assert_non_null(conn);
	given = conn;
}

/* Fills the send buffer after the peer has closed its window. */
static void fill_queue(void)
{
	struct net_poll_item item = {.conn = conn, .events = NET_WRITABLE};

	peer_send(&peer, PEER_ACK, "x", 1);
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, "y",
		  1); /* a later number: the window is accepted */
	run_rounds(2);
	assert_int_equal(net_recv(conn, got, 2), 2);
	while (net_poll(&item, 1, 0) == 1)
		assert_true(net_send(conn, block, sizeof(block)) > 0);
	drain_wire();
	assert_int_equal(net_poll(&item, 1, 0), 0);
}

static void make_call(const struct situation *s)
{
	if (s->outside) {
		result = call->fn();
		ended++;
		return;
	}
	assert_int_equal(coro_spawn(net_here()->sched, NULL, call_body,
				    s->deadline ? stack : NULL, &caller),
			 0);
	run_rounds(2);
	if (s->meanwhile) {
		assert_int_equal(ended, 0);
		s->meanwhile();
		run_rounds(3);
	}
}

static void clean_up(void)
{
	if (conn)
		net_abort(conn);
	run_rounds(3);
	if (second)
		assert_int_equal(coro_join(second, NULL), 0);
	if (caller)
		assert_int_equal(coro_join(caller, NULL), 0);
	second = caller = NULL;
	drain_wire();
}

static void try_cell(const struct situation *s, uint16_t port)
{
	long expected = call->writes ? s->writes : s->reads;

	connect_peer(port);
	if (call->writes)
		fill_queue();
	ended = released = 0;
	if (s->before)
		s->before();
	make_call(s);
	if (ended != (expected != BLOCKS) || (ended && result != expected))
		fail_msg("%s, %s: %ld, expected %ld", call->name, s->name,
			 ended ? result : (long)BLOCKS, expected);
	clean_up();
	if (call->fn == call_send_owned && s->before != another_is_blocked)
		assert_int_equal(released, 1); /* in every situation */
}

static void test_every_call_returns_the_documented_error(void **state)
{
	uint16_t port = 1000;

	for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
		for (call = calls; call < calls + N_CALLS; call++)
			try_cell(&situations[i], port++);
}

static void test_every_blocked_call_ends_when_the_stack_stops(void **state)
{
	unsigned n = 0;

	for (call = calls; call < calls + N_CALLS; call++) {
		peer_teardown(state);
		assert_int_equal(peer_listen(state), 0);
		connect_peer(1000);
		if (call->writes)
			fill_queue();
		ended = 0;
		net_spawn(stack, "caller", call_body, NULL);
		run_rounds(2);
		net_stack_stop(stack);
		fake_clock_step_ns = 1000000;
		assert_int_equal(net_stack_run(stack), 0);
		fake_clock_step_ns = 0;
		assert_int_equal(ended, 1);
		assert_int_equal(result, -ECANCELED);
		n++;
	}
	assert_int_equal(n, N_CALLS);
}

/* ---- memory ---- */

static void *dial_body(void *arg)
{
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &conn);
	return NULL;
}

static void test_dial_without_memory_is_enomem(void **state)
{
	net_here()->max_conns = 0;
	net_spawn(stack, "dialer", dial_body, NULL);
	run_rounds(2);
	assert_int_equal(result, -ENOMEM);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_every_call_returns_the_documented_error),
		T(test_every_blocked_call_ends_when_the_stack_stops),
		T(test_dial_without_memory_is_enomem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
