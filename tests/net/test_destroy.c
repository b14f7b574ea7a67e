/*
 * Coroutines that end before their body has returned, with coro_exit() or by
 * coro_destroy(), while they use connections.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static struct peer peer;

/* Ends the connection that the stack has closed, as its peer. */
static void end_closed_conn(void)
{
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_ms(2000);
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(net_listener_clients(listener), 0);
}

/* ---- handlers ---- */

static void read_and_exit(struct net_conn *conn, void *arg)
{
	char byte;

	result = net_recv(conn, &byte, 1);
	coro_exit(NULL);
}

static void test_handler_that_exits_closes_its_connection(void **state)
{
	serve(read_and_exit);
	peer_connect(&peer, 1000, 7, 5);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	assert_int_equal(result, 1);
	peer.rcv++;
	end_closed_conn();
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_handler_that_exits_closes_its_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
