/*
 * Waiting for several things: connections, listeners, channels.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <coronet/coro_chan.h>

#include "netstack/link/link.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static struct net_conn *conns[2];
static struct peer peers[2];
static struct coro_chan *chan;
static struct coro *poller;

/* The polling coroutine's items and its result. */
static struct net_poll_item items[4];
static unsigned n_items;
static int64_t until, own_deadline;

static void *poll_body(void *arg)
{
	struct net_poll_item mine[4]; /* on a stack that others use */

	memcpy(mine, items, sizeof(mine));
	coro_deadline_set(own_deadline);
	result = net_poll(mine, n_items, until);
	coro_deadline_set(CORO_FOREVER);
	memcpy(items, mine, sizeof(mine));
	ended++;
	return NULL;
}

static void poll_later(void)
{
	assert_int_equal(
		coro_spawn(net_here()->sched, NULL, poll_body, NULL, &poller),
		0);
	run_rounds(3);
}

/* Checks that the poller returns with so many ready items. */
static void expect_poll(int ready)
{
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, ready);
	ended = 0;
	assert_int_equal(coro_join(poller, NULL), 0);
}

static void *accept_body(void *arg)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(net_accept(listener, &conns[i]), 0);
	return NULL;
}

static void connect_two(void)
{
	net_spawn(stack, "acceptor", accept_body, NULL);
	for (uint16_t i = 0; i < 2; i++)
		peer_connect(&peers[i], (uint16_t)(1000 + i), 7, 5);
	run_rounds(2);
	assert_non_null(conns[1]);
	items[0] = (struct net_poll_item){.conn = conns[0],
					  .events = NET_READABLE};
	items[1] = (struct net_poll_item){.conn = conns[1],
					  .events = NET_READABLE};
	n_items = 2;
}

static void close_two(void)
{
	for (unsigned i = 0; i < 2; i++)
		net_abort(conns[i]);
	assert_null(net_here()->pollers);
}

static void test_poll_reports_the_readable_connection(void **state)
{
	connect_two();
	poll_later();
	assert_int_equal(ended, 0);
	peer_send(&peers[1], PEER_ACK | PEER_PSH, "x", 1);
	expect_poll(1);
	assert_int_equal(items[0].revents, 0);
	assert_int_equal(items[1].revents, NET_READABLE);
	close_two();
}

static void test_poll_is_level_triggered(void **state)
{
	connect_two();
	peer_send(&peers[0], PEER_ACK | PEER_PSH, "xy", 2);
	run_rounds(1);
	for (unsigned i = 0; i < 2; i++) {
		poll_later();
		expect_poll(1);
		assert_int_equal(net_recv(conns[0], got, 1), 1);
	}
	assert_int_equal(net_poll(items, 2, 0), 0);
	close_two();
}

static void test_poll_ends_at_its_deadline_with_0(void **state)
{
	connect_two();
	until = fake_now_ns + 50000000;
	poll_later();
	run_ms(49);
	assert_int_equal(ended, 0);
	run_ms(2);
	expect_poll(0);
	close_two();
}

static void test_poll_obeys_the_coroutines_deadline(void **state)
{
	connect_two();
	own_deadline = fake_now_ns + 50000000;
	poll_later();
	run_ms(51);
	expect_poll(-ETIMEDOUT);
	close_two();
}

static void test_poll_is_cancelled(void **state)
{
	connect_two();
	poll_later();
	coro_cancel(poller);
	expect_poll(-ECANCELED);
	close_two();
}

static void test_poll_ends_when_the_stack_stops(void **state)
{
	n_items = 0;
	poll_later();
	net_stack_stop(stack);
	fake_clock_step_ns = 1000000;
	assert_int_equal(net_stack_run(stack), 0);
	fake_clock_step_ns = 0;
	expect_poll(-ECANCELED);
}

static void test_poll_without_items_sleeps(void **state)
{
	n_items = 0;
	until = fake_now_ns + 5000000;
	poll_later();
	run_ms(6);
	expect_poll(0);
}

static void test_poll_reports_the_peers_fin_if_requested(void **state)
{
	connect_two();
	items[0].events = NET_READABLE | NET_PEER_CLOSED;
	poll_later();
	peer_send(&peers[0], PEER_ACK | PEER_FIN, NULL, 0);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_READABLE | NET_PEER_CLOSED);
	items[0].events = 0; /* no events requested: a FIN is no failure */
	assert_int_equal(net_poll(items, 1, 0), 0);
	close_two();
}

static void test_poll_reports_a_reset_always(void **state)
{
	connect_two();
	items[0].events = items[1].events = 0;
	poll_later();
	peer_send(&peers[0], PEER_RST, NULL, 0);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_FAILED);
	close_two();
}

static void test_poll_reports_a_cancel(void **state)
{
	connect_two();
	poll_later();
	net_cancel(conns[1]);
	expect_poll(1);
	assert_int_equal(items[1].revents, NET_READABLE | NET_FAILED);
	close_two();
}

static void test_poll_reports_a_closed_handle(void **state)
{
	connect_two();
	poll_later();
	net_abort(conns[0]);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_GONE);
	net_abort(conns[1]);
	assert_int_equal(net_here()->n_conns, 0);
}

/* ---- writing ---- */

/* Writes until nothing is accepted, even after segments have left. */
static void fill_send_buffer(struct net_conn *conn)
{
	struct net_poll_item item = {.conn = conn, .events = NET_WRITABLE};

	while (net_poll(&item, 1, 0) == 1) {
		while (net_poll(&item, 1, 0) == 1)
			assert_true(net_send(conn, got, sizeof(got)) > 0);
		run_rounds(2);
	}
}

static void test_poll_reports_room_after_an_ack(void **state)
{
	struct segment s;

	connect_two();
	fill_send_buffer(conns[0]);
	items[0].events = NET_WRITABLE | NET_READABLE;
	poll_later();
	assert_int_equal(ended, 0);
	assert_true(peer_next(&s));
	peers[0].rcv = s.seq + s.len;
	peer_send(&peers[0], PEER_ACK, NULL, 0);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_WRITABLE);
	close_two();
}

static void test_reading_poller_sleeps_through_acknowledgements(void **state)
{
	struct segment s;

	connect_two();
	fill_send_buffer(conns[0]);
	poll_later();
	assert_true(peer_next(&s));
	peers[0].rcv = s.seq + s.len;
	peer_send(&peers[0], PEER_ACK, NULL, 0);
	assert_int_equal(net_link_rx(), 1);
	assert_int_equal(coro_sched_round(net_here()->sched), 0);
	peer_send(&peers[0], PEER_ACK | PEER_PSH, "x", 1);
	expect_poll(1);
	close_two();
}

/* ---- listeners ---- */

static void test_poll_reports_an_acceptable_connection(void **state)
{
	struct net_poll_item item = {.listener = listener,
				     .events = NET_READABLE};

	items[0] = item;
	n_items = 1;
	poll_later();
	assert_int_equal(ended, 0);
	peer_connect(&peers[0], 1000, 7, 5);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_READABLE);
	assert_int_equal(net_accept(listener, &conns[0]), -EPERM);
}

static void test_poll_reports_a_closed_listener(void **state)
{
	items[0] = (struct net_poll_item){.listener = listener,
					  .events = NET_READABLE};
	n_items = 1;
	poll_later();
	net_listener_close(listener);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_GONE);
}

/* ---- channels ---- */

static void poll_channel(size_t capacity, unsigned events)
{
	assert_int_equal(coro_chan_open(sizeof(int), capacity, &chan), 0);
	connect_two();
	items[1] = (struct net_poll_item){.chan = chan, .events = events};
	poll_later();
}

static void test_poll_reports_a_value_in_a_channel(void **state)
{
	int value = 7;

	poll_channel(2, NET_READABLE);
	assert_int_equal(ended, 0);
	assert_int_equal(coro_chan_trysend(chan, &value), 0);
	expect_poll(1);
	assert_int_equal(items[1].revents, NET_READABLE);
	assert_int_equal(coro_chan_count(chan), 1); /* still in the channel */
	coro_chan_free(chan);
	close_two();
}

static void test_poll_reports_room_in_a_channel(void **state)
{
	int value = 7;

	assert_int_equal(coro_chan_open(sizeof(int), 1, &chan), 0);
	assert_int_equal(coro_chan_trysend(chan, &value), 0);
	items[0] = (struct net_poll_item){.chan = chan, .events = NET_WRITABLE};
	n_items = 1;
	poll_later();
	assert_int_equal(ended, 0);
	assert_int_equal(coro_chan_tryrecv(chan, NULL), 0);
	expect_poll(1);
	assert_int_equal(items[0].revents, NET_WRITABLE);
	coro_chan_free(chan);
}

static void *send_body(void *arg)
{
	int value = 9;

	return (void *)(long)coro_chan_send(chan, &value);
}

static void test_poll_reports_a_waiting_sender(void **state)
{
	int value = 0;

	poll_channel(0, NET_READABLE | NET_WRITABLE);
	net_spawn(stack, "sender", send_body, NULL);
	expect_poll(1);
	assert_int_equal(items[1].revents, NET_READABLE);
	assert_int_equal(coro_chan_tryrecv(chan, &value), 0);
	assert_int_equal(value, 9);
	run_rounds(2);
	coro_chan_free(chan);
	close_two();
}

static void test_poll_reports_a_closed_channel(void **state)
{
	poll_channel(1, NET_READABLE | NET_PEER_CLOSED);
	coro_chan_close(chan);
	expect_poll(1);
	assert_int_equal(items[1].revents, NET_READABLE | NET_PEER_CLOSED);
	coro_chan_free(chan);
	close_two();
}

/* ---- many ---- */

static unsigned woken;

static void *many_body(void *arg)
{
	struct net_poll_item item = {.conn = conns[0], .events = NET_READABLE};

	assert_int_equal(net_poll(&item, 1, CORO_FOREVER), 1);
	woken++;
	return NULL;
}

static void test_many_pollers_and_a_reader_share_a_connection(void **state)
{
	connect_two();
	woken = 0;
	for (unsigned i = 0; i < 300; i++)
		net_spawn(stack, "poller", many_body, NULL);
	run_rounds(2);
	peer_send(&peers[0], PEER_ACK | PEER_PSH, "x", 1);
	run_rounds(2);
	assert_int_equal(woken, 300);
	close_two();
}

static void *full_body(void *arg)
{
	static struct net_poll_item many[NET_POLL_MAX + 1];

	for (unsigned i = 0; i <= NET_POLL_MAX; i++)
		many[i] = (struct net_poll_item){.conn = conns[i % 2],
						 .events = NET_READABLE};
	assert_int_equal(net_poll(many, NET_POLL_MAX + 1, 0), -EINVAL);
	result = net_poll(many, NET_POLL_MAX, CORO_FOREVER);
	ended++;
	return NULL;
}

static void test_poll_items_are_bounded(void **state)
{
	connect_two();
	net_spawn(stack, "poller", full_body, NULL);
	run_rounds(2);
	assert_int_equal(ended, 0);
	peer_send(&peers[0], PEER_ACK | PEER_PSH, "x", 1);
	run_rounds(2);
	assert_int_equal(result, NET_POLL_MAX / 2);
	close_two();
}

static void test_poll_refuses_invalid_items(void **state)
{
	struct net_poll_item two = {.conn = (void *)1, .listener = listener};
	struct net_poll_item unknown = {.events = 0x100};
	struct net_poll_item none = {.events = NET_READABLE};

	assert_int_equal(net_poll(&two, 1, 0), -EINVAL);
	assert_int_equal(net_poll(&unknown, 1, 0), -EINVAL);
	assert_int_equal(net_poll(NULL, 1, 0), -EINVAL);
	assert_int_equal(net_poll(&none, 1, 0), 0);
	assert_int_equal(net_poll(&none, 1, CORO_FOREVER), -EPERM);
}

static void test_destroyed_poller_leaves_nothing_behind(void **state)
{
	connect_two();
	poll_later();
	assert_non_null(conns[0]->ext->pollers);
	assert_int_equal(coro_destroy(poller), 0);
	assert_null(conns[0]->ext->pollers);
	peer_send(&peers[0], PEER_ACK | PEER_PSH, "x", 1);
	run_rounds(2);
	close_two();
}

static int setup(void **state)
{
	conns[0] = conns[1] = NULL;
	memset(items, 0, sizeof(items));
	until = own_deadline = CORO_FOREVER;
	return peer_listen(state);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_poll_reports_the_readable_connection),
		T(test_poll_is_level_triggered),
		T(test_poll_ends_at_its_deadline_with_0),
		T(test_poll_obeys_the_coroutines_deadline),
		T(test_poll_is_cancelled),
		T(test_poll_ends_when_the_stack_stops),
		T(test_poll_without_items_sleeps),
		T(test_poll_reports_the_peers_fin_if_requested),
		T(test_poll_reports_a_reset_always),
		T(test_poll_reports_a_cancel),
		T(test_poll_reports_a_closed_handle),
		T(test_poll_reports_room_after_an_ack),
		T(test_reading_poller_sleeps_through_acknowledgements),
		T(test_poll_reports_an_acceptable_connection),
		T(test_poll_reports_a_closed_listener),
		T(test_poll_reports_a_value_in_a_channel),
		T(test_poll_reports_room_in_a_channel),
		T(test_poll_reports_a_waiting_sender),
		T(test_poll_reports_a_closed_channel),
		T(test_many_pollers_and_a_reader_share_a_connection),
		T(test_poll_items_are_bounded),
		T(test_poll_refuses_invalid_items),
		T(test_destroyed_poller_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
