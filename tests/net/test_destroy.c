/*
 * Coroutines that end before their body has returned, with coro_exit() or by
 * coro_destroy(), while they use connections; and calls that are blocked when
 * their connection is closed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "netstack/udp/udp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static struct peer peer;
static struct net_conn *ours;
static struct coro *co;
static bool released;

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

static void read_byte(struct net_conn *conn, void *arg)
{
	char byte;

	ours = conn;
	co = coro_self();
	result = net_recv(conn, &byte, 1);
	ended++;
}

static void test_destroyed_handler_closes_its_connection(void **state)
{
	serve(read_byte);
	peer_connect(&peer, 1000, 7, 5);
	run_rounds(2);
	assert_int_equal(coro_destroy(co), 0);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	assert_int_equal(ended, 0);
	peer.rcv++;
	end_closed_conn();
}

/* ---- blocked calls ---- */

static void *accept_one(void *arg)
{
	result = net_accept(listener, &ours);
	ended++;
	return NULL;
}

static struct coro *spawn(coro_fn fn)
{
	struct coro *spawned;

	result = 12345;
	ended = 0;
	assert_int_equal(
		coro_spawn(net_here()->sched, NULL, fn, NULL, &spawned), 0);
	run_rounds(2);
	return spawned;
}

static void accept_peer(void)
{
	ours = NULL;
	peer_connect(&peer, 1000, 7, 5);
	coro_detach(spawn(accept_one));
	assert_int_equal(result, 0);
	assert_non_null(ours);
}

static void *recv_one(void *arg)
{
	char byte;

	result = net_recv(ours, &byte, 1);
	ended++;
	return NULL;
}

static void *view_one(void *arg)
{
	struct net_view view;

	result = net_recv_view(ours, &view);
	ended++;
	return NULL;
}

/* The next call reads, and the connection's memory goes when it is closed. */
static void expect_reader_left(void)
{
	assert_int_equal(ended, 0);
	assert_null(ours->reader);
	assert_int_equal(ours->waiters, 0);
	co = spawn(recv_one);
	peer_send(&peer, PEER_ACK | PEER_PSH, "x", 1);
	run_rounds(2);
	assert_int_equal(result, 1);
	coro_detach(co);
	net_abort(ours);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_destroyed_reader_leaves_the_connection(void **state)
{
	accept_peer();
	assert_int_equal(coro_destroy(spawn(recv_one)), 0);
	expect_reader_left();
}

static void test_destroyed_viewer_leaves_the_connection(void **state)
{
	accept_peer();
	assert_int_equal(coro_destroy(spawn(view_one)), 0);
	expect_reader_left();
}

/* It was woken, and has not run yet. */
static void test_woken_reader_leaves_the_connection(void **state)
{
	accept_peer();
	co = spawn(recv_one);
	net_cancel(ours);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	assert_null(ours->reader);
	assert_int_equal(ours->waiters, 0);
	net_abort(ours);
}

/* The connection was closed under the reader, which holds its memory. */
static void test_reader_of_a_closed_connection_frees_it(void **state)
{
	uint64_t before;

	accept_peer();
	net_abort(ours);
	expect(NULL, PEER_RST | PEER_ACK, ANY, ANY, 0);
	before = net_mem_live_bytes();
	accept_peer();
	co = spawn(recv_one);
	net_abort(ours);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	run_rounds(2);
	assert_int_equal(net_mem_live_bytes(), before);
}

/* The same by a reader that returns, while the program ends. */
static void test_reader_frees_a_connection_closed_while_draining(void **state)
{
	uint64_t before;

	accept_peer();
	net_abort(ours);
	expect(NULL, PEER_RST | PEER_ACK, ANY, ANY, 0);
	before = net_mem_live_bytes();
	accept_peer();
	coro_detach(spawn(recv_one));
	net_here()->draining = true;
	net_abort(ours);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EBADF);
	assert_int_equal(net_mem_live_bytes(), before);
}

static void test_destroyed_acceptor_leaves_the_listener(void **state)
{
	assert_int_equal(coro_destroy(spawn(accept_one)), 0);
	assert_int_equal(ended, 0);
	accept_peer();
	net_abort(ours);
}

static void *dial_one(void *arg)
{
	struct net_addr addr;

	net_addr_parse("10.0.0.2:99", -1, &addr);
	result = net_dial(stack, &addr, NULL, &ours);
	ended++;
	return NULL;
}

static void test_destroyed_dialer_stops_dialing(void **state)
{
	co = spawn(dial_one);
	assert_true(peer_wait(100).flags & PEER_SYN);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	assert_int_equal(net_here()->n_conns, 0);
	run_ms(5000);
	peer_expect_nothing();
}

static void note_released(void *arg)
{
	released = true;
}

static uint8_t lent[1u << 20]; /* more than the send buffer takes */

static void *send_lent(void *arg)
{
	result = net_send_owned(ours, lent, sizeof(lent), note_released, NULL);
	ended++;
	return NULL;
}

static void *send_copied(void *arg)
{
	result = net_send_all(ours, lent, sizeof(lent));
	ended++;
	return NULL;
}

static void test_destroyed_sender_gives_its_buffer_back(void **state)
{
	accept_peer();
	released = false;
	co = spawn(send_lent);
	assert_ptr_equal(ours->writer, co);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	assert_null(ours->writer);
	net_abort(ours);
	run_rounds(2);
	assert_true(released);
}

static void test_destroyed_sender_leaves_the_connection(void **state)
{
	accept_peer();
	co = spawn(send_copied);
	assert_ptr_equal(ours->writer, co);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	assert_null(ours->writer);
	assert_int_equal(ours->waiters, 0);
	net_abort(ours);
}

static void *close_and_wait(void *arg)
{
	result = net_close_wait(ours, CORO_FOREVER);
	ended++;
	return NULL;
}

static void test_destroyed_close_goes_on_without_its_owner(void **state)
{
	accept_peer();
	co = spawn(close_and_wait);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	peer.rcv++;
	end_closed_conn();
}

static struct net_udp *udp;

static void *receive_datagram(void *arg)
{
	char byte;

	result = net_udp_recv(udp, &byte, 1, NULL);
	ended++;
	return NULL;
}

static void test_destroyed_receiver_leaves_the_socket(void **state)
{
	struct net_addr at = net_addr_any(53);

	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
	co = spawn(receive_datagram);
	assert_ptr_equal(udp->reader, co);
	assert_int_equal(coro_destroy(co), 0);
	assert_int_equal(ended, 0);
	assert_null(udp->reader);
	assert_int_equal(udp->waiters, 0);
	co = spawn(receive_datagram);
	net_udp_close(udp);
	assert_int_equal(coro_destroy(co), 0); /* frees the socket */
	assert_int_equal(ended, 0);
	assert_int_equal(net_udps.n, 0);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_handler_that_exits_closes_its_connection),
		T(test_destroyed_handler_closes_its_connection),
		T(test_destroyed_reader_leaves_the_connection),
		T(test_destroyed_viewer_leaves_the_connection),
		T(test_woken_reader_leaves_the_connection),
		T(test_reader_of_a_closed_connection_frees_it),
		T(test_reader_frees_a_connection_closed_while_draining),
		T(test_destroyed_acceptor_leaves_the_listener),
		T(test_destroyed_dialer_stops_dialing),
		T(test_destroyed_sender_gives_its_buffer_back),
		T(test_destroyed_sender_leaves_the_connection),
		T(test_destroyed_close_goes_on_without_its_owner),
		T(test_destroyed_receiver_leaves_the_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
