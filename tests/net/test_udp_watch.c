/*
 * UDP sockets in event loops: watches, peeking, errors, options that change,
 * sockets that share a port.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/udp/udp.h"
#include "tests/net/datagrams.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define US   udp_at(udp_us4, 53)
#define PEER udp_at(udp_peer4, 4000)

static struct net_udp *udp, *other;
static struct datagram sent;
static unsigned n_calls;

static void count_call(struct net_udp *its, struct net_udp_watch *watch)
{
	assert_ptr_equal(its, udp);
	n_calls++;
}

static struct net_udp_watch watch = {count_call};

static int setup(void **state)
{
	udp = other = NULL;
	n_calls = 0;
	ended = 0;
	return udp_setup(state);
}

static int teardown(void **state)
{
	int err = peer_teardown(state);

	assert_int_equal(net_udps.n, 0);
	return err;
}

static void open_watched(struct net_addr at)
{
	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
	net_udp_set_watch(udp, &watch);
}

static void receive_text(const char *text)
{
	assert_true(datagram_say(PEER, US, text));
	run_rounds(1);
}

/* ---- watches ---- */

static void test_watch_is_called_for_each_datagram(void **state)
{
	open_watched(US);
	receive_text("one");
	assert_int_equal(n_calls, 1);
	receive_text("two"); /* the first one still waits */
	assert_int_equal(n_calls, 2);
	net_udp_set_watch(udp, NULL);
	receive_text("three");
	assert_int_equal(n_calls, 2);
}

static void *recv_body(void *arg)
{
	char byte;

	result = net_udp_recv(udp, &byte, 1, NULL);
	ended++;
	return NULL;
}

static void test_watched_socket_never_blocks(void **state)
{
	struct net_addr peer = PEER;

	open_watched(US);
	assert_int_equal(net_spawn(stack, "test", recv_body, NULL), 0);
	run_rounds(1);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EAGAIN);
	assert_int_equal(net_udp_send(udp, &peer, "x", 1), 1);
	assert_true(datagram_next(&sent)); /* the neighbour is known now */
	fake_tx_budget = 0;
	assert_int_equal(net_udp_send(udp, &peer, "x", 1), -EAGAIN);
	fake_tx_budget = -1;
}

static void test_refusal_calls_the_watch_and_is_reported_once(void **state)
{
	struct net_addr peer = PEER;

	open_watched(US);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), 1);
	assert_true(datagram_next(&sent));
	assert_int_equal(net_udp_error(udp, true), 0);
	datagram_send_error(&sent, 3, 3, 0);
	assert_int_equal(n_calls, 1);
	assert_int_equal(net_udp_error(udp, false), -ECONNREFUSED);
	assert_int_equal(net_udp_error(udp, true), -ECONNREFUSED);
	assert_int_equal(net_udp_error(udp, true), 0);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), 1);
}

/* ---- peeking ---- */

static void test_peeked_datagram_stays_until_it_is_discarded(void **state)
{
	struct net_datagram first;

	open_watched(US);
	assert_int_equal(net_udp_peek(udp, &first), -EAGAIN);
	assert_int_equal(net_udp_discard(udp), -EAGAIN);
	receive_text("one");
	receive_text("three");
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(net_udp_peek(udp, &first), 0);
		assert_int_equal(first.len, 3);
		assert_memory_equal(first.data, "one", 3);
		assert_int_equal(first.peer.port, 4000);
		assert_null(first.owner);
	}
	assert_int_equal(net_udp_discard(udp), 0);
	assert_int_equal(net_udp_peek(udp, &first), 0);
	assert_int_equal(first.len, 5);
}

static void test_datagram_has_the_ttl_and_tos_it_came_with(void **state)
{
	struct datagram d = {.from = PEER, .to = US, .len = 1, .options = 4};
	struct net_datagram first;

	open_watched(udp_at((struct net_addr){0}, 53));
	receive_text("x");
	assert_int_equal(net_udp_peek(udp, &first), 0);
	assert_int_equal(first.ttl, 64);
	assert_int_equal(first.tos, 0);
	net_udp_discard(udp);
	assert_true(datagram_send(&d)); /* by way of lwIP */
	run_rounds(1);
	assert_int_equal(net_udp_peek(udp, &first), 0);
	assert_int_equal(first.ttl, 64);
	net_udp_discard(udp);
	assert_true(
		datagram_say(udp_at(udp_peer6, 1), udp_at(udp_us6, 53), "x"));
	run_rounds(1);
	assert_int_equal(net_udp_peek(udp, &first), 0);
	assert_int_equal(first.ttl, 64);
}

/* ---- sending ---- */

static void test_connected_socket_can_send_to_another_peer(void **state)
{
	struct iovec iov = {(void *)(uintptr_t) "x", 1};
	struct net_addr peer = PEER, third = udp_at(udp_peer4, 5000);

	open_watched(US);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	assert_int_equal(net_udp_sendv(udp, &third, &iov, 1), -EISCONN);
	assert_int_equal(net_udp_sendv_from(udp, NULL, &third, &iov, 1), 1);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.port, 5000);
	assert_int_equal(net_udp_sendv_from(udp, NULL, NULL, &iov, 1), 1);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.to.port, 4000);
}

static void test_datagram_leaves_from_a_given_address(void **state)
{
	struct iovec iov = {(void *)(uintptr_t) "x", 1};
	struct net_addr peer = PEER, us = US, wrong = udp_peer4;

	open_watched(udp_at((struct net_addr){0}, 53));
	assert_int_equal(net_udp_sendv_from(udp, &us, &peer, &iov, 1), 1);
	assert_true(datagram_next(&sent));
	assert_memory_equal(sent.from.ip, us.ip, 4);
	wrong.ip[3] = 77;
	assert_int_equal(net_udp_sendv_from(udp, &wrong, &peer, &iov, 1),
			 -EADDRNOTAVAIL);
	us = udp_us6;
	assert_int_equal(net_udp_sendv_from(udp, &us, &peer, &iov, 1),
			 -EADDRNOTAVAIL);
}

/* ---- options ---- */

static void test_options_change_while_a_socket_is_open(void **state)
{
	struct net_udp_opts opts = {.ttl = 7, .tos = 0x20, .rx_datagrams = 1};
	struct net_addr peer = PEER;
	struct net_udp_stats stats;

	open_watched(US);
	assert_int_equal(net_udp_set_opts(udp, NULL), -EINVAL);
	assert_int_equal(net_udp_set_opts(udp, &opts), 0);
	assert_int_equal(net_udp_send(udp, &peer, "x", 1), 1);
	assert_true(datagram_next(&sent));
	assert_int_equal(sent.ttl, 7);
	assert_int_equal(sent.tos, 0x20);
	receive_text("one");
	receive_text("two");
	assert_int_equal(net_udp_stats(udp, &stats), 0);
	assert_int_equal(stats.rx, 1);
	assert_int_equal(stats.rx_full, 1);
}

/* ---- sharing ---- */

static unsigned queue_length(struct net_udp *its)
{
	struct net_udp_stats stats;

	assert_int_equal(net_udp_stats(its, &stats), 0);
	return stats.queued;
}

static void test_sockets_that_share_a_port_divide_its_peers(void **state)
{
	struct net_udp_opts shared = {.shared = true};
	struct net_addr us = US;

	assert_int_equal(net_udp_open(stack, &us, &shared, &udp), 0);
	assert_int_equal(net_udp_open(stack, &us, NULL, &other), -EADDRINUSE);
	assert_int_equal(net_udp_open(stack, &us, &shared, &other), 0);
	for (unsigned port = 1000; port < 1064; port++)
		for (unsigned i = 0; i < 2; i++)
			assert_true(
				datagram_say(udp_at(udp_peer4, port), us, "x"));
	run_rounds(4);
	assert_int_equal(queue_length(udp) + queue_length(other), 128);
	assert_in_range(queue_length(udp), 2, 126);
	/* Both of a port are at the same socket. */
	assert_int_equal(queue_length(udp) % 2, 0);
	net_udp_close(other);
	assert_true(datagram_say(PEER, us, "x"));
	run_rounds(1);
	assert_int_equal(queue_length(udp) % 2, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_watch_is_called_for_each_datagram),
		T(test_watched_socket_never_blocks),
		T(test_refusal_calls_the_watch_and_is_reported_once),
		T(test_peeked_datagram_stays_until_it_is_discarded),
		T(test_datagram_has_the_ttl_and_tos_it_came_with),
		T(test_connected_socket_can_send_to_another_peer),
		T(test_datagram_leaves_from_a_given_address),
		T(test_options_change_while_a_socket_is_open),
		T(test_sockets_that_share_a_port_divide_its_peers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
