/*
 * The calls of a coroutine: accept, dial, deadlines, shutdown, and the distinct
 * errors of their failures.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
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

	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	net_stack_stop(stack);
	fake_clock_step_ns = 1000000; /* draining takes time */
	assert_int_equal(net_stack_run(stack), 0);
	fake_clock_step_ns = 0;
	assert_int_equal(result, -ECANCELED);
	peer_send(&peer, PEER_SYN, NULL, 0);
	expect(NULL, PEER_RST | PEER_ACK, 0, peer.snd, 0);
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
	expect(&s, PEER_RST | PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_listening_errors_have_distinct_codes(void **state)
{
	struct net_listener *other;
	struct net_addr foreign;

	assert_int_equal(net_listen(stack, &net_addr_any(7), 0, &other),
			 -EADDRINUSE);
	assert_int_equal(net_listen(stack, NULL, 0, &other), -EINVAL);
	net_addr_parse("10.0.0.77:80", -1, &foreign);
	assert_int_equal(net_listen(stack, &foreign, 0, &other),
			 -EADDRNOTAVAIL);
}

static void test_port_0_is_replaced_by_the_chosen_port(void **state)
{
	struct net_listener *one, *two;
	struct net_addr first, second;
	struct peer peer;

	assert_int_equal(net_listen(stack, &net_addr_any(0), 0, &one), 0);
	first = net_listener_addr(one);
	assert_int_equal(first.family, 0);
	assert_in_range(first.port, 16384, 65535);
	assert_int_equal(net_listen(stack, &net_addr_any(0), 0, &two), 0);
	second = net_listener_addr(two);
	assert_int_not_equal(first.port, second.port);
	peer_connect(&peer, 1000, second.port, 5);
	assert_int_equal(net_here()->n_conns, 1);
	assert_int_equal(net_listener_addr(listener).port, 7);
	assert_int_equal(net_listener_addr(NULL).port, 0);
}

/* Every port but one has a listener for all addresses. */
static void test_port_0_gets_the_last_free_port(void **state)
{
	struct net_listener *any, *own, *none;
	struct net_addr addr;

	net_addr_parse("10.0.0.1:1", -1, &addr);
	addr.port = 0;
	for (unsigned port = NET_PORT_FIRST; port < 65536; port++)
		if (port != 20001)
			assert_int_equal(
				net_listen(stack, &net_addr_any((uint16_t)port),
					   0, &any),
				0);
	assert_int_equal(net_listen(stack, &addr, 0, &own), 0);
	assert_int_equal(net_listener_addr(own).port, 20001);
	assert_int_equal(net_listen(stack, &addr, 0, &none), -EADDRINUSE);
}

static void test_second_acceptor_is_ebusy(void **state)
{
	struct net_conn *conn;

	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	net_spawn(stack, "second", accept_body, NULL);
	run_rounds(2);
	assert_int_equal(result, -EBUSY);
	assert_int_equal(net_accept(NULL, &conn), -EBADF);
	assert_int_equal(net_accept(listener, NULL), -EINVAL);
}

static void *accept_until(void *arg)
{
	struct net_conn *conn;

	coro_deadline_set(net_now_ns(stack) + 50000000);
	result = net_accept(listener, &conn);
	return NULL;
}

static void test_accept_obeys_deadline_and_cancel(void **state)
{
	struct coro *co;

	net_spawn(stack, "acceptor", accept_until, NULL);
	run_ms(45);
	assert_int_equal(result, 12345);
	run_ms(10);
	assert_int_equal(result, -ETIMEDOUT);
	coro_spawn(net_here()->sched, NULL, accept_body, NULL, &co);
	run_rounds(2);
	coro_cancel(co);
	run_rounds(2);
	assert_int_equal(result, -ECANCELED);
	coro_join(co, NULL);
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

static void dial_address(const char *addr)
{
	net_spawn(stack, "dialer", dial_body, (void *)(uintptr_t)addr);
}

static void test_route_and_own_addresses(void **state)
{
	struct net_addr addr, source = {0};

	net_addr_parse("10.0.0.2:80", -1, &addr);
	assert_int_equal(net_route(stack, &addr, &source), 0);
	assert_int_equal(source.port, 0);
	assert_memory_equal(source.ip, "\12\0\0\1", 4);
	assert_false(net_is_local(stack, &addr));
	assert_true(net_is_local(stack, &source));
	assert_false(net_is_local(stack, &(struct net_addr){0}));
	net_addr_parse("10.9.0.2:80", -1, &addr);
	assert_int_equal(net_route(stack, &addr, &source), -EHOSTUNREACH);
	assert_int_equal(net_route(stack, NULL, NULL), -EINVAL);
}

static void test_dial_connects(void **state)
{
	struct segment s;
	struct peer peer = {.stack_port = 0, .snd = NEAR_WRAP, .wnd = 65535};

	dial_address("10.0.0.2:80");
	expect(&s, PEER_SYN, ANY, 0, 0);
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

static void test_dial_reuses_a_port_in_time_wait(void **state)
{
	struct segment s;
	struct peer peer = {.port = 80, .snd = 77, .wnd = 65535};

	dial_opts.source = (struct net_addr){
		.family = 4, .port = 5555, .ip = {10, 0, 0, 1}};
	for (unsigned i = 0; i < 2; i++) {
		dial_address("10.0.0.2:80");
		expect(&s, PEER_SYN, ANY, 0, 0);
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

	dial_address("10.0.0.2:80");
	assert_true(peer_next(&s));
	peer.stack_port = s.src;
	peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNREFUSED);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_dial_to_a_silent_port_is_etimedout(void **state)
{
	dial_opts.timeout_ms = 300;
	dial_address("10.0.0.2:80");
	expect(NULL, PEER_SYN, ANY, 0, 0); /* behind ARP */
	run_ms(400);
	assert_int_equal(result, -ETIMEDOUT);
	dial_opts.timeout_ms = 0;
}

static void test_dial_to_an_unknown_host_is_ehostunreach(void **state)
{
	dial_opts.timeout_ms = 300;
	dial_address("10.0.0.99:80");
	run_ms(400);
	assert_int_equal(result, -EHOSTUNREACH);
	dial_opts.timeout_ms = 0;
}

static void test_dial_from_a_foreign_source_is_refused(void **state)
{
	net_addr_parse("10.0.0.50:1", -1, &dial_opts.source);
	dial_address("10.0.0.2:80");
	run_rounds(2);
	assert_int_equal(result, -EADDRNOTAVAIL);
	memset(&dial_opts, 0, sizeof(dial_opts));
}

static void test_exhausted_ports_are_cached_for_a_while(void **state)
{
	static struct net_listener *taken[NET_PORT_COUNT];
	struct segment s;

	for (unsigned i = 0; i < NET_PORT_COUNT; i++) {
		uint16_t port = (uint16_t)(NET_PORT_FIRST + i);

		assert_int_equal(
			net_listen(stack, &net_addr_any(port), 0, &taken[i]),
			0);
	}
	dial_address("10.0.0.2:80");
	run_rounds(2);
	assert_int_equal(result, -EADDRNOTAVAIL);
	net_listener_close(taken[4711]);
	result = 0;
	dial_address("10.0.0.2:80");
	run_rounds(2);
	assert_int_equal(result, -EADDRNOTAVAIL); /* from the cache */
	dial_address("10.0.0.2:81");
	assert_true(peer_next(&s)); /* the cache covers one destination only */
	assert_int_equal(s.src, NET_PORT_FIRST + 4711);
	run_ms(60);
	dial_address("10.0.0.2:80");
	assert_true(peer_next(&s));
	assert_int_equal(s.src, NET_PORT_FIRST + 4711);
	assert_int_equal(s.dst, 80);
	for (unsigned i = 0; i < NET_PORT_COUNT; i++)
		if (i != 4711)
			net_listener_close(taken[i]);
}

static void test_dial_is_cancelled(void **state)
{
	struct coro *co;

	coro_spawn(net_here()->sched, NULL, dial_body, "10.0.0.2:80", &co);
	expect(NULL, PEER_SYN, ANY, 0, 0);
	coro_cancel(co);
	run_rounds(3);
	assert_int_equal(result, -ECANCELED);
	assert_int_equal(net_here()->n_conns, 0);
	coro_join(co, NULL);
}

static void test_dial_from_a_port_in_use_is_eaddrinuse(void **state)
{
	struct segment s;

	net_addr_parse("10.0.0.1:5555", -1, &dial_opts.source);
	dial_address("10.0.0.2:80");
	assert_true(peer_next(&s));
	assert_int_equal(s.src, 5555);
	dial_address("10.0.0.2:80");
	run_rounds(2);
	assert_int_equal(result, -EADDRINUSE);
	memset(&dial_opts, 0, sizeof(dial_opts));
}

static void test_dial_to_an_invalid_address_is_einval(void **state)
{
	struct net_addr addr = {.port = 80};

	dial_address("10.0.0.2:80");
	assert_int_equal(net_dial(NULL, &addr, NULL, &dialed), -EINVAL);
	assert_int_equal(net_dial(stack, NULL, NULL, &dialed), -EINVAL);
	assert_int_equal(net_dial(stack, &addr, NULL, NULL), -EINVAL);
}

static void test_dial_off_the_network_is_ehostunreach(void **state)
{
	dial_address("192.0.2.1:80"); /* no gateway */
	run_rounds(2);
	assert_int_equal(result, -EHOSTUNREACH);
}

static void *dial_until(void *arg)
{
	coro_deadline_set(net_now_ns(stack) + 50000000);
	return dial_body(arg);
}

static void test_dial_obeys_the_coroutines_deadline(void **state)
{
	net_spawn(stack, "dialer", dial_until, "10.0.0.2:80");
	expect(NULL, PEER_SYN, ANY, 0, 0);
	run_ms(60);
	assert_int_equal(result, -ETIMEDOUT);
	assert_int_equal(net_here()->n_conns, 0);
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

static void write_until_deadline(struct net_conn *conn, void *arg)
{
	int64_t start = net_now_ns(stack);

	net_set_read_deadline(
		conn, start + 10000000); /* does not apply to the write */
	net_set_write_deadline(conn, start + 50000000);
	while ((result = net_send(conn, got, sizeof(got))) > 0)
		;
	assert_true(net_now_ns(stack) >= start + 50000000);
	assert_int_equal(net_writable(conn), -ETIMEDOUT);
	ended++;
	net_abort(conn);
}

static void test_write_deadline_does_not_end_a_read(void **state)
{
	struct peer peer;

	serve(write_until_deadline);
	peer_connect(&peer, 1000, 7, 5);
	run_ms(40);
	assert_int_equal(ended, 0);
	run_ms(20);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ETIMEDOUT);
}

static void shut_reading(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_shutdown(conn, NET_SHUT_RD), 0);
	assert_int_equal(net_recv(conn, got, 1), -ENOTCONN);
	coro_sleep_ns(10000000);
	assert_int_equal(net_recv(conn, got, 1), -ENOTCONN);
	result = net_send_all(conn, "still", 5);
	ended++;
}

static void test_reading_shut_down_still_writes(void **state)
{
	struct segment s;
	struct peer peer;

	serve(shut_reading);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH, "discarded", 9);
	run_ms(12);
	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	assert_memory_equal(s.data, "still", 5);
	assert_int_equal(s.ack, peer.snd); /* the bytes are acknowledged */
	while (peer_next(&s)) /* discarded bytes are not "unread" */
		assert_false(s.flags & PEER_RST);
	assert_int_equal(result, 5);
}

static void answer_after_the_end(struct net_conn *conn, void *arg)
{
	while ((result = net_recv(conn, got, sizeof(got))) > 0)
		;
	assert_int_equal(net_send_all(conn, "answer", 6), 6);
	ended++;
}

static void test_peers_half_close_leaves_the_other_direction(void **state)
{
	struct segment s;
	struct peer peer;

	serve(answer_after_the_end);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_FIN, "question", 8);
	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	assert_memory_equal(s.data, "answer", 6);
	assert_int_equal(result, 0);
}

/* ---- nodelay, keepalive ---- */

static bool nodelay;

static void write_twice(struct net_conn *conn, void *arg)
{
	net_set_nodelay(conn, nodelay);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(net_send_all(conn, "x", 1), 1);
		coro_sleep_ns(2000000);
	}
	coro_sleep_ns(50000000);
	ended++;
}

static unsigned segments_of_two_writes(bool no_delay)
{
	unsigned n = 0;
	struct segment s;
	struct peer peer;

	nodelay = no_delay;
	serve(write_twice);
	peer_connect(&peer, 1000, 7, 5);
	run_ms(5);
	while (peer_next(&s))
		n += s.len > 0;
	return n;
}

static void test_nodelay_sends_small_writes_at_once(void **state)
{
	assert_int_equal(segments_of_two_writes(true), 2);
}

static void test_nagle_holds_a_small_write_back(void **state)
{
	assert_int_equal(segments_of_two_writes(false), 1);
}

static void wait_with_keepalive(struct net_conn *conn, void *arg)
{
	assert_int_equal(net_set_keepalive(conn, 1, 0, 3), -EINVAL);
	assert_int_equal(net_set_keepalive(conn, 1, 1, 0), -EINVAL);
	assert_int_equal(net_set_keepalive(conn, 1000001, 1, 3), -EINVAL);
	/* lwIP would add 2^32 ms up to none and give the peer up at once. */
	assert_int_equal(net_set_keepalive(conn, 1000000, 16847, 200), -EINVAL);
	assert_int_equal(net_set_keepalive(conn, 1000000, 1000000, 3), 0);
	assert_int_equal(net_set_keepalive(conn, 1, 1, 3), 0);
	result = net_recv(conn, got, 1);
	ended++;
}

static void test_keepalive_probes_then_gives_up(void **state)
{
	unsigned probes = 0;
	struct segment s;
	struct peer peer;

	serve(wait_with_keepalive);
	peer_connect(&peer, 1000, 7, 5);
	run_ms(900);
	peer_expect_nothing();
	for (unsigned i = 0; i < 50 && !ended; i++) {
		run_ms(100);
		while (peer_next(&s))
			probes += s.len == 0 && !(s.flags & PEER_RST);
	}
	assert_int_equal(probes, 3);
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
	struct peer peer;

	serve(half_close);
	peer_connect(&peer, 1000, 7, 5);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	peer.rcv++;
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
	assert_int_equal(net_here()->n_conns, 0);
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
		T(test_listening_errors_have_distinct_codes),
		T(test_port_0_is_replaced_by_the_chosen_port),
		T(test_port_0_gets_the_last_free_port),
		T(test_second_acceptor_is_ebusy),
		T(test_accept_obeys_deadline_and_cancel),
		T(test_route_and_own_addresses),
		T(test_dial_connects),
		T(test_dial_reuses_a_port_in_time_wait),
		T(test_dial_refused_is_econnrefused),
		T(test_dial_to_a_silent_port_is_etimedout),
		T(test_dial_to_an_unknown_host_is_ehostunreach),
		T(test_dial_from_a_foreign_source_is_refused),
		T(test_exhausted_ports_are_cached_for_a_while),
		T(test_dial_is_cancelled),
		T(test_dial_from_a_port_in_use_is_eaddrinuse),
		T(test_dial_to_an_invalid_address_is_einval),
		T(test_dial_off_the_network_is_ehostunreach),
		T(test_dial_obeys_the_coroutines_deadline),
		T(test_read_deadline_is_etimedout),
		T(test_write_deadline_does_not_end_a_read),
		T(test_reading_shut_down_still_writes),
		T(test_peers_half_close_leaves_the_other_direction),
		T(test_nodelay_sends_small_writes_at_once),
		T(test_nagle_holds_a_small_write_back),
		T(test_keepalive_probes_then_gives_up),
		T(test_half_close_sends_fin_and_still_reads),
		T(test_closing_with_unread_data_draws_rst),
		T(test_calls_outside_a_coroutine_are_eperm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
