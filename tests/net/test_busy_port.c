/*
 * A port without room: every segment that could not leave is sent soon after
 * the port has room again.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/api/api.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define SOON_MS 20u /* before lwIP's next tick */

static struct peer peer;
static struct net_conn *ours;
static bool go;

static void port_is_busy(bool busy)
{
	fake_tx_budget = busy ? 0 : -1;
}

static void await_word(struct net_conn *conn)
{
	ours = conn;
	while (!go)
		coro_sleep_ns(1000000);
}

static void connect_to(net_handler handler)
{
	serve(handler);
	go = false;
	peer_connect(&peer, 1000, 7, 99);
	run_ms(20);
	while (fake_sent(got, sizeof(got)))
		;
}

/* Lets the handler continue while the port is busy. */
static void say_so(unsigned ms)
{
	port_is_busy(true);
	go = true;
	run_ms(ms);
	peer_expect_nothing();
	port_is_busy(false);
}

static void read_all(struct net_conn *conn, void *arg)
{
	await_word(conn);
	while (net_conn_readable(conn))
		net_recv(conn, got, sizeof(got));
	coro_park_until(CORO_FOREVER);
}

static void test_window_update_is_sent_later(void **state)
{
	static const uint8_t block[1000];
	unsigned left = 65535;

	connect_to(read_all);
	while (left) {
		unsigned n = LWIP_MIN(left, (unsigned)sizeof(block));

		peer_send(&peer, PEER_ACK, block, n);
		left -= n;
		run_rounds(2);
	}
	run_ms(100);
	while (fake_sent(got, sizeof(got)))
		;
	say_so(5);
	assert_true(peer_wait(SOON_MS).wnd > 30000);
}

static void close_it(struct net_conn *conn, void *arg)
{
	await_word(conn);
}

static void test_fin_is_sent_later(void **state)
{
	connect_to(close_it);
	say_so(5);
	assert_true(peer_wait(SOON_MS).flags & PEER_FIN);
}

static void shut_it(struct net_conn *conn, void *arg)
{
	await_word(conn);
	net_shutdown(conn, NET_SHUT_WR);
	coro_park_until(CORO_FOREVER);
}

static void test_shutdown_fin_is_sent_later(void **state)
{
	connect_to(shut_it);
	say_so(5);
	assert_true(peer_wait(SOON_MS).flags & PEER_FIN);
}

static void send_it(struct net_conn *conn, void *arg)
{
	await_word(conn);
	net_send_all(conn, "data", 4);
	coro_park_until(CORO_FOREVER);
}

static void test_data_is_sent_later(void **state)
{
	connect_to(send_it);
	say_so(5);
	assert_int_equal(peer_wait(SOON_MS).len, 4);
}

/* Several timeouts find the port busy. */
static void test_retransmission_is_sent_later(void **state)
{
	connect_to(send_it);
	go = true;
	assert_int_equal(peer_wait(SOON_MS).len, 4);
	port_is_busy(true);
	run_ms(3000);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).len, 4);
}

static void test_delayed_ack_is_sent_later(void **state)
{
	connect_to(close_it);
	peer_send(&peer, PEER_ACK, "x", 1);
	run_rounds(1);
	port_is_busy(true);
	run_ms(200); /* longer than it is delayed */
	peer_expect_nothing();
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).ack, peer.snd);
	peer_expect_nothing();
}

static void keep_alive(struct net_conn *conn, void *arg)
{
	net_set_keepalive(conn, 10, 10, 3);
	await_word(conn);
}

static void test_keepalive_is_sent_later(void **state)
{
	connect_to(keep_alive);
	port_is_busy(true);
	run_ms(11000);
	peer_expect_nothing();
	port_is_busy(false);
	assert_int_equal(peer_wait(100).seq, peer.rcv - 1);
}

/* A window that closes while the port is busy is still probed. */
static void test_probe_is_sent_later(void **state)
{
	struct segment s;

	connect_to(send_it);
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, "x", 1);
	run_ms(100);
	while (peer_next(&s))
		;
	go = true;
	port_is_busy(true);
	run_ms(400);
	port_is_busy(false);
	assert_int_equal(peer_wait(1000).seq, peer.rcv - 1);
}

static void test_answer_to_a_syn_is_sent_later(void **state)
{
	connect_to(close_it); /* so that its address is known */
	peer.port = 1001;
	port_is_busy(true);
	peer_send(&peer, PEER_SYN, NULL, 0);
	run_ms(5);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).flags, PEER_SYN | PEER_ACK);
}

/* A link may stay blocked: its records must not fill the backlog for good. */
static void test_half_open_on_a_busy_port_times_out(void **state)
{
	connect_to(close_it); /* so that its address is known */
	peer.port = 1001;
	port_is_busy(true);
	peer_send(&peer, PEER_SYN, NULL, 0);
	run_ms(19000);
	assert_int_equal(net_here()->half_open, 1);
	run_ms(1200);
	assert_int_equal(net_here()->half_open, 0);
	assert_int_equal(listener->pending, 0);
	port_is_busy(false);
	run_ms(SOON_MS);
	peer_expect_nothing();
}

static void test_half_open_answered_late_is_timed_from_then(void **state)
{
	connect_to(close_it); /* so that its address is known */
	peer.port = 1001;
	port_is_busy(true);
	peer_send(&peer, PEER_SYN, NULL, 0);
	run_ms(900);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).flags, PEER_SYN | PEER_ACK);
	run_ms(900);
	peer_expect_nothing();
	assert_int_equal(peer_wait(150).flags, PEER_SYN | PEER_ACK);
}

static void *dial(void *arg)
{
	const struct net_dial_opts opts = {.timeout_ms = 500};
	struct net_addr to;

	assert_int_equal(net_addr_parse("10.0.0.2:80", 0, &to), 0);
	result = net_dial(stack, &to, &opts, &ours);
	return NULL;
}

static void test_syn_is_sent_later(void **state)
{
	struct coro *co;

	connect_to(close_it); /* so that its address is known */
	port_is_busy(true);
	assert_int_equal(coro_spawn(net_here()->sched, NULL, dial, NULL, &co),
			 0);
	run_ms(5);
	port_is_busy(false);
	assert_int_equal(peer_wait(SOON_MS).flags, PEER_SYN);
	run_ms(1000);
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_window_update_is_sent_later),
		T(test_fin_is_sent_later),
		T(test_shutdown_fin_is_sent_later),
		T(test_data_is_sent_later),
		T(test_retransmission_is_sent_later),
		T(test_delayed_ack_is_sent_later),
		T(test_keepalive_is_sent_later),
		T(test_probe_is_sent_later),
		T(test_answer_to_a_syn_is_sent_later),
		T(test_half_open_on_a_busy_port_times_out),
		T(test_half_open_answered_late_is_timed_from_then),
		T(test_syn_is_sent_later),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
