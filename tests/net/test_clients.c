/*
 * A listener's limits: clients in all, clients of one source, half-open
 * connections of one source.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static void wait_for_end(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

static void set_limits(struct net_limits limits)
{
	serve(wait_for_end);
	assert_int_equal(net_listener_limit(listener, &limits), 0);
}

static void send_syn(uint16_t port)
{
	struct peer p = {
		.port = port, .stack_port = 7, .snd = 99, .wnd = 65535};

	peer_send(&p, PEER_SYN, NULL, 0);
}

/* Closes from the peer's side, so that TIME_WAIT is the peer's. */
static void peer_leaves(struct peer *p)
{
	struct segment s;

	peer_send(p, PEER_ACK | PEER_FIN, NULL, 0);
	while (peer_next(&s))
		if (s.flags & PEER_FIN)
			p->rcv = s.seq + s.len + 1;
	peer_send(p, PEER_ACK, NULL, 0);
	run_rounds(2);
}

static void test_clients_beyond_the_limit_are_not_answered(void **state)
{
	struct peer one, two, three;

	set_limits((struct net_limits){.clients = 2});
	peer_connect(&one, 1001, 7, 99);
	peer_connect(&two, 1002, 7, 99);
	assert_int_equal(net_listener_clients(listener), 2);
	send_syn(1003);
	peer_expect_nothing();
	assert_int_equal(stack->stats.clients_refused, 1);
	peer_leaves(&one);
	assert_int_equal(net_listener_clients(listener), 1);
	peer_connect(&three, 1003, 7, 99);
	assert_int_equal(net_listener_clients(listener), 2);
}

static void test_half_open_count_towards_the_clients(void **state)
{
	set_limits((struct net_limits){.clients = 1});
	send_syn(1001);
	expect(NULL, PEER_SYN | PEER_ACK, ANY, 100, 0);
	send_syn(1002);
	peer_expect_nothing();
	assert_int_equal(stack->stats.clients_refused, 1);
}

static void test_each_source_has_its_own_limit(void **state)
{
	static const uint8_t other[4] = {10, 0, 0, 3};
	struct peer one;

	set_limits((struct net_limits){.clients_per_source = 1});
	peer_connect(&one, 1001, 7, 99);
	send_syn(1002);
	peer_expect_nothing();
	assert_int_equal(stack->stats.clients_refused, 1);
	peer_send_syn_of(other, 1009);
	assert_int_equal(net_here()->half_open, 1);
	assert_int_equal(stack->stats.clients_refused, 1);
}

static void
test_half_open_of_a_source_get_cookies_beyond_its_limit(void **state)
{
	struct segment s;
	struct peer p;

	set_limits((struct net_limits){.half_open_per_source = 2});
	for (uint16_t port = 1001; port <= 1003; port++) {
		send_syn(port);
		expect(&s, PEER_SYN | PEER_ACK, ANY, 100, 0);
	}
	assert_int_equal(net_here()->half_open, 2);
	assert_int_equal(stack->stats.cookies_sent, 1);
	p = (struct peer){.port = 1003,
			  .stack_port = 7,
			  .snd = 100,
			  .rcv = s.seq + 1,
			  .wnd = 65535};
	peer_send(&p, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(net_listener_clients(listener), 1);
}

static void test_cookie_beyond_the_limit_opens_no_connection(void **state)
{
	struct segment s;
	struct peer one, two;

	set_limits(
		(struct net_limits){.clients = 1, .half_open_per_source = 1});
	net_listener_limit(listener,
			   &(struct net_limits){.half_open_per_source = 1});
	send_syn(1001);
	assert_true(peer_next(&s));
	send_syn(1002);
	assert_true(peer_next(&s));
	assert_int_equal(stack->stats.cookies_sent, 1);
	two = (struct peer){.port = 1002,
			    .stack_port = 7,
			    .snd = 100,
			    .rcv = s.seq + 1,
			    .wnd = 65535};
	peer_connect(&one, 1003, 7, 5); /* a cookie, too */
	set_limits((struct net_limits){.clients = 1});
	peer_send(&two, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(net_listener_clients(listener), 1);
	assert_int_equal(stack->stats.clients_refused, 1);
}

static void close_at_once(struct net_conn *conn, void *arg)
{
	net_close(conn);
}

static void test_time_wait_does_not_count(void **state)
{
	struct peer one;

	set_limits((struct net_limits){.clients = 1});
	serve(close_at_once);
	peer_connect(&one, 1001, 7, 99);
	reach_time_wait(&one);
	assert_int_equal(net_listener_clients(listener), 0);
	peer_connect(&one, 1002, 7, 99);
}

/* A handler that continues after its peer has left still uses memory. */
static bool go;

static void linger(struct net_conn *conn, void *arg)
{
	while (!go)
		coro_yield();
}

static void test_a_handler_counts_until_it_returns(void **state)
{
	struct peer one;

	set_limits((struct net_limits){.clients = 1});
	serve(linger);
	go = false;
	peer_connect(&one, 1001, 7, 99);
	peer_send(&one, PEER_ACK | PEER_RST, NULL, 0);
	run_rounds(3);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_listener_clients(listener), 1);
	go = true;
	run_rounds(3);
	assert_int_equal(net_listener_clients(listener), 0);
}

static void test_expired_half_open_is_not_counted(void **state)
{
	struct segment s;

	set_limits((struct net_limits){.clients = 1});
	send_syn(1001);
	assert_true(peer_next(&s));
	for (unsigned i = 0; i < 200 && net_here()->half_open; i++) {
		run_ms(1000);
		while (peer_next(&s))
			;
	}
	assert_int_equal(net_here()->half_open, 0);
	send_syn(1002);
	assert_true(peer_next(&s));
	assert_int_equal(stack->stats.clients_refused, 0);
}

static void test_limit_without_a_listener_is_refused(void **state)
{
	struct net_limits limits = {0};

	assert_int_equal(net_listener_limit(NULL, &limits), -EBADF);
	assert_int_equal(net_listener_limit(listener, NULL), -EINVAL);
	assert_int_equal(net_listener_clients(NULL), 0);
	net_listener_limits(listener, &limits);
	assert_int_equal(limits.clients, UINT32_MAX);
	assert_int_equal(limits.clients_per_source, 1024);
	assert_int_equal(limits.half_open_per_source, 64);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_clients_beyond_the_limit_are_not_answered),
		T(test_half_open_count_towards_the_clients),
		T(test_each_source_has_its_own_limit),
		T(test_half_open_of_a_source_get_cookies_beyond_its_limit),
		T(test_cookie_beyond_the_limit_opens_no_connection),
		T(test_time_wait_does_not_count),
		T(test_a_handler_counts_until_it_returns),
		T(test_expired_half_open_is_not_counted),
		T(test_limit_without_a_listener_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
