/*
 * The calls a coroutine makes: accept, dial, deadlines, shutdown, and the
 * errors that tell their failures apart.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/net_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u /* sequence numbers wrap within the test */

static void *accept_body(void *arg)
{
	struct net_conn *conn = NULL;

	result = net_accept(listener, &conn);
	if (result == 0) {
		assert_int_equal(net_peer_addr(conn).port, 1000);
		assert_int_equal(net_local_addr(conn).port, 7);
		net_close(conn);
	}
	ended++;
	return NULL;
}

static void test_accept_blocks_until_a_connection_is_there(void **state)
{
	struct peer peer;

	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(3);
	assert_int_equal(ended, 0);
	peer_connect(&peer, 1000, 7, 5);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
}

static void test_closed_listener_ends_accept(void **state)
{
	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	net_listener_close(listener);
	run_rounds(2);
	assert_int_equal(result, -EINVAL);
}

static void test_stopped_stack_leaves_the_listener_to_its_owner(void **state)
{
	struct peer peer = {
		.port = 1000, .stack_port = 7, .snd = 9, .wnd = 999};
	struct segment s;

	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	net_stack_stop(stack);
	fake_clock_step_ns = 1000000; /* draining takes time */
	assert_int_equal(net_stack_run(stack), 0);
	fake_clock_step_ns = 0;
	assert_int_equal(result, -ECANCELED);
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	assert_true(s.flags & PEER_RST);
	net_listener_close(listener);
}

static void test_listener_closed_under_a_handshake_refuses_it(void **state)
{
	struct peer peer = {
		.port = 1000, .stack_port = 7, .snd = 9, .wnd = 999};
	struct segment s;

	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	net_listener_close(listener);
	peer_send(&peer, PEER_ACK, NULL, 0);
	assert_true(peer_next(&s));
	assert_true(s.flags & PEER_RST);
	assert_int_equal(net_the.n_conns, 0);
}

static void test_listening_errors_are_told_apart(void **state)
{
	struct net_listener *other;
	struct net_addr foreign;

	assert_int_equal(net_listen(stack, &net_addr_any(7), 0, &other),
			 -EADDRINUSE);
	assert_int_equal(net_listen(stack, &net_addr_any(0), 0, &other),
			 -EINVAL);
	net_addr_parse("10.0.0.77:80", -1, &foreign);
	assert_int_equal(net_listen(stack, &foreign, 0, &other),
			 -EADDRNOTAVAIL);
}

/* ---- dialing ---- */

static struct net_conn *dialed;
static struct net_dial_opts dial_opts;

static void *dial_body(void *arg)
{
	struct net_addr addr;

	net_addr_parse(arg, -1, &addr);
	result = net_dial(stack, &addr, &dial_opts, &dialed);
	if (result == 0) {
		result = net_send_all(dialed, "ping", 4);
		net_close(dialed);
	}
	ended++;
	return NULL;
}

static void dial(const char *addr)
{
	net_spawn(stack, "dialer", dial_body, (void *)(uintptr_t)addr);
}

static void test_dial_connects(void **state)
{
	struct segment s;
	struct peer peer = {.stack_port = 0, .snd = NEAR_WRAP, .wnd = 65535};

	dial("10.0.0.2:80");
	assert_true(peer_next(&s));
	assert_int_equal(s.flags, PEER_SYN);
	peer.port = 80;
	peer.stack_port = s.src;
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_SYN | PEER_ACK, NULL, 0);
	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	assert_memory_equal(s.data, "ping", 4);
	assert_int_equal(result, 4);
}

static void test_dial_takes_a_port_in_time_wait_over(void **state)
{
	struct segment s;
	struct peer peer = {.port = 80, .snd = 77, .wnd = 65535};

	dial_opts.source = (struct net_addr){
		.family = 4, .port = 5555, .ip = {10, 0, 0, 1}};
	for (unsigned i = 0; i < 2; i++) {
		dial("10.0.0.2:80");
		assert_true(peer_next(&s));
		assert_int_equal(s.flags, PEER_SYN);
		assert_int_equal(s.src, 5555);
		peer.stack_port = s.src;
		peer.rcv = s.seq + 1;
		peer_send(&peer, PEER_SYN | PEER_ACK, NULL, 0);
		reach_time_wait(&peer);
		/* The same port while its TIME_WAIT lasts: the clock must have
		 * carried the ISN past what was sent. */
		fake_now_ns += 1000000;
	}
	assert_int_equal(result, 4);
	memset(&dial_opts, 0, sizeof(dial_opts));
}

static void test_dial_refused_is_econnrefused(void **state)
{
	struct segment s;
	struct peer peer = {.port = 80, .snd = 1};

	dial("10.0.0.2:80");
	assert_true(peer_next(&s));
	peer.stack_port = s.src;
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNREFUSED);
	assert_int_equal(net_the.n_conns, 0);
}

static void test_dial_to_a_silent_port_is_etimedout(void **state)
{
	struct segment s;

	dial_opts.timeout_ms = 300;
	dial("10.0.0.2:80");
	assert_true(peer_next(&s)); /* ARP was answered, the SYN is out */
	run_ms(400);
	assert_int_equal(result, -ETIMEDOUT);
	dial_opts.timeout_ms = 0;
}

static void test_dial_to_nobody_is_ehostunreach(void **state)
{
	dial_opts.timeout_ms = 300;
	dial("10.0.0.99:80");
	run_ms(400);
	assert_int_equal(result, -EHOSTUNREACH);
	dial_opts.timeout_ms = 0;
}

static void test_dial_from_a_foreign_source_is_refused(void **state)
{
	net_addr_parse("10.0.0.50:1", -1, &dial_opts.source);
	dial("10.0.0.2:80");
	run_rounds(2);
	assert_int_equal(result, -EADDRNOTAVAIL);
	memset(&dial_opts, 0, sizeof(dial_opts));
}

/* ---- deadlines, half-close, abuse ---- */

static void read_until_deadline(struct net_conn *conn, void *arg)
{
	net_set_read_deadline(conn, net_now_ns(stack) + 50000000);
	result = net_recv(conn, got, 1);
	ended++;
}

static void test_read_deadline_is_etimedout(void **state)
{
	struct peer peer;

	serve(read_until_deadline);
	peer_connect(&peer, 1000, 7, 5);
	run_ms(40);
	assert_int_equal(ended, 0);
	run_ms(20);
	assert_int_equal(result, -ETIMEDOUT);
}

static void half_close(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_shutdown(conn, NET_SHUT_WR), 0);
	assert_int_equal(net_send(conn, "x", 1), -EPIPE);
	result = net_recv(conn, got, sizeof(got));
	ended++;
}

static void test_half_close_sends_fin_and_still_reads(void **state)
{
	struct segment s;
	struct peer peer;

	serve(half_close);
	peer_connect(&peer, 1000, 7, 5);
	assert_true(peer_next(&s));
	assert_true(s.flags & PEER_FIN);
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK | PEER_PSH, "late", 4);
	run_rounds(3);
	assert_int_equal(result, 4);
}

static void close_unread(struct net_conn *conn, void *arg)
{
	coro_sleep_ns(10000000);
	ended++;
}

static void test_closing_with_unread_data_draws_rst(void **state)
{
	struct segment s;
	struct peer peer;

	serve(close_unread);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH, "unread", 6);
	run_ms(15);
	assert_true(peer_next(&s));
	while (!(s.flags & PEER_RST))
		assert_true(peer_next(&s));
	assert_int_equal(net_the.n_conns, 0);
}

static void test_calls_outside_a_coroutine_are_eperm(void **state)
{
	struct net_conn *conn;
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	assert_int_equal(net_dial(stack, &addr, NULL, &conn), -EPERM);
	assert_int_equal(net_accept(listener, &conn), -EPERM);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_accept_blocks_until_a_connection_is_there),
		T(test_closed_listener_ends_accept),
		T(test_stopped_stack_leaves_the_listener_to_its_owner),
		T(test_listener_closed_under_a_handshake_refuses_it),
		T(test_listening_errors_are_told_apart),
		T(test_dial_connects),
		T(test_dial_takes_a_port_in_time_wait_over),
		T(test_dial_refused_is_econnrefused),
		T(test_dial_to_a_silent_port_is_etimedout),
		T(test_dial_to_nobody_is_ehostunreach),
		T(test_dial_from_a_foreign_source_is_refused),
		T(test_read_deadline_is_etimedout),
		T(test_half_close_sends_fin_and_still_reads),
		T(test_closing_with_unread_data_draws_rst),
		T(test_calls_outside_a_coroutine_are_eperm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
