/*
 * Scaling: many listeners, found by hash, and many connections that are watched
 * without a coroutine each.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MANY 300u /* more than lwIP's own pool holds by default */

static void count_handler(struct net_conn *conn, void *arg)
{
	*(unsigned *)arg += 1;
}

static bool answers(uint16_t port)
{
	struct peer peer = {
		.port = 2000, .stack_port = port, .snd = 9, .wnd = 999};
	struct segment s;

	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	peer.rcv = s.seq + 1;
	if (s.flags & PEER_SYN) {
		peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
		run_rounds(2);
		return true;
	}
	assert_true(s.flags & PEER_RST);
	return false;
}

static void test_many_listeners_are_found_until_closed(void **state)
{
	struct net_listener *many[MANY];

	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(net_listen(stack,
					    &net_addr_any((uint16_t)(100 + i)),
					    8, &many[i]),
				 0);
	for (unsigned i = 0; i < MANY; i += 2)
		net_listener_close(many[i]);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(answers((uint16_t)(100 + i)), i % 2);
	for (unsigned i = 1; i < MANY; i += 2)
		net_listener_close(many[i]);
	assert_true(answers(7)); /* the first one, from the setup */
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_listener_of_an_address_takes_precedence(void **state)
{
	struct net_listener *of_all, *of_one;
	unsigned all = 0, one = 0;
	struct net_addr addr;
	struct peer peer;

	assert_int_equal(net_listen(stack, &net_addr_any(80), 8, &of_all), 0);
	net_listener_serve(of_all, count_handler, &all);
	net_addr_parse("10.0.0.1:80", -1, &addr);
	assert_int_equal(net_listen(stack, &addr, 8, &of_one), 0);
	assert_int_equal(net_listen(stack, &addr, 8, &of_all), -EADDRINUSE);
	net_listener_serve(of_one, count_handler, &one);
	peer_connect(&peer, 1000, 80, 5);
	assert_int_equal(one, 1);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	net_listener_close(of_one);
	peer_connect(&peer, 1001, 80, 5);
	assert_int_equal(all, 1);
	assert_int_equal(one, 1);
}

/*
 * Listeners of 0.0.0.0 and :: share a port; neither shares it with one of both
 * families.
 */
static void test_listeners_of_both_families_share_a_port(void **state)
{
	struct net_listener *v4, *v6, *both;
	unsigned clients = 0, others = 0;
	struct net_addr any4, any6;
	struct peer peer;

	net_addr_parse("0.0.0.0:80", -1, &any4);
	net_addr_parse("[::]:80", -1, &any6);
	assert_int_equal(net_listen(stack, &any6, 8, &v6), 0);
	net_listener_serve(v6, count_handler, &others);
	assert_false(answers(80));
	assert_int_equal(net_listen(stack, &any4, 8, &v4), 0);
	net_listener_serve(v4, count_handler, &clients);
	assert_true(answers(80));
	assert_int_equal(net_listen(stack, &any4, 8, &both), -EADDRINUSE);
	assert_int_equal(net_listen(stack, &net_addr_any(80), 8, &both),
			 -EADDRINUSE);
	peer_connect(&peer, 1001, 80, 5);
	assert_int_equal(clients, 1);
	assert_int_equal(others, 0);
	net_listener_close(v4);
	net_listener_close(v6);
	assert_int_equal(net_listen(stack, &net_addr_any(80), 8, &both), 0);
	assert_int_equal(net_listen(stack, &any4, 8, &v4), -EADDRINUSE);
	assert_int_equal(net_listen(stack, &any6, 8, &v6), -EADDRINUSE);
}

/* ---- watched connections ---- */

struct watched {
	struct net_watch watch;
	struct net_conn *conn;
	unsigned calls;
	long last;
};

static struct watched seen;

static void on_change(struct net_conn *conn, struct net_watch *watch)
{
	struct watched *w = (struct watched *)(void *)watch;
	struct net_view view;

	w->calls++;
	while ((w->last = net_recv_view(conn, &view)) > 0)
		w->last = net_send_view(conn, &view);
	if (w->last != -EAGAIN) {
		net_abort(conn);
		w->conn = NULL;
	}
}

static void *watch_body(void *arg)
{
	seen = (struct watched){.watch = {on_change}};
	assert_int_equal(net_accept(listener, &seen.conn), 0);
	net_set_watch(seen.conn, &seen.watch);
	return NULL;
}

static void watch_next(struct peer *peer)
{
	net_spawn(stack, "acceptor", watch_body, NULL);
	run_rounds(1);
	peer_connect(peer, 1000, 7, 0xfffffff0u);
	run_rounds(2);
	assert_non_null(seen.conn);
}

static void test_watched_connection_echoes_without_a_coroutine(void **state)
{
	struct segment s;
	struct peer peer;

	watch_next(&peer);
	for (unsigned i = 0; i < 3; i++) {
		peer_send(&peer, PEER_ACK | PEER_PSH, "0123456789abcdef", 16);
		expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 16);
		assert_memory_equal(s.data, "0123456789abcdef", 16);
		peer.rcv += 16;
		assert_int_equal(seen.last, -EAGAIN);
	}
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(1);
	assert_int_equal(seen.last, 0);
	assert_null(seen.conn);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_watch_reports_a_reset(void **state)
{
	struct peer peer;

	watch_next(&peer);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(1);
	assert_int_equal(seen.last, -ECONNRESET);
	assert_null(seen.conn);
}

static void test_watch_reports_a_silent_peer(void **state)
{
	struct peer peer;

	watch_next(&peer);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	expect(NULL, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 1);
	for (unsigned i = 0; i < 600 && seen.conn; i++) {
		run_ms(1000);
		while (fake_sent((uint8_t[2048]){0}, 2048))
			;
	}
	assert_int_equal(seen.last, -ETIMEDOUT);
	assert_null(seen.conn);
}

static void test_removed_watch_is_not_called(void **state)
{
	struct peer peer;

	watch_next(&peer);
	seen.calls = 0;
	net_set_watch(seen.conn, NULL);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	run_rounds(2);
	assert_int_equal(seen.calls, 0);
	net_abort(seen.conn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_many_listeners_are_found_until_closed, peer_listen,
			peer_teardown),
		cmocka_unit_test_setup_teardown(
			test_listener_of_an_address_takes_precedence,
			peer_listen, peer_teardown),
		cmocka_unit_test_setup_teardown(
			test_listeners_of_both_families_share_a_port,
			peer_listen, peer_teardown),
		cmocka_unit_test_setup_teardown(
			test_watched_connection_echoes_without_a_coroutine,
			peer_listen, peer_teardown),
		cmocka_unit_test_setup_teardown(test_watch_reports_a_reset,
						peer_listen, peer_teardown),
		cmocka_unit_test_setup_teardown(
			test_watch_reports_a_silent_peer, peer_listen,
			peer_teardown),
		cmocka_unit_test_setup_teardown(
			test_removed_watch_is_not_called, peer_listen,
			peer_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
