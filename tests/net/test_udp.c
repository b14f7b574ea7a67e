/*
 * UDP sockets: opening, finding, receiving, sending, waiting, closing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/udp/udp.h"
#include "tests/net/datagrams.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define SECOND_NS INT64_C(1000000000)
#define US	  udp_at(udp_us4, 53)
#define PEER	  udp_at(udp_peer4, 4000)

static struct net_udp *udp, *other;
static struct net_datagram got_views[300];
static long got_n;

static int setup(void **state)
{
	udp = other = NULL;
	got_n = 0;
	ended = 0;
	return udp_setup(state);
}

static int teardown(void **state)
{
	int err = peer_teardown(state);

	assert_int_equal(net_udps.n, 0);
	return err;
}

static void open_at(struct net_addr at)
{
	assert_int_equal(net_udp_open(stack, &at, NULL, &udp), 0);
}

static void spawn_coro(coro_fn fn, void *arg)
{
	assert_int_equal(net_spawn(stack, "test", fn, arg), 0);
	run_rounds(1);
}

/* Receives at most 300 datagrams without blocking. */
static int take_datagrams(unsigned n)
{
	if (!(net_udp_ready(udp, NET_READABLE) & NET_READABLE))
		return 0;
	return net_udp_recv_batch(udp, got_views, n);
}

static void check_text(unsigned i, const char *text)
{
	assert_int_equal(got_views[i].len, strlen(text));
	assert_memory_equal(got_views[i].data, text, strlen(text));
}

/* ---- opening ---- */

static void test_same_address_and_port_is_refused(void **state)
{
	struct net_addr any = {.port = 53}, any4 = {.family = 4, .port = 53};
	struct net_addr any6 = {.family = 6, .port = 53}, us = US;

	open_at(US);
	assert_int_equal(net_udp_open(stack, &us, NULL, &other), -EADDRINUSE);
	assert_int_equal(net_udp_open(stack, &any4, NULL, &other), 0);
	assert_int_equal(net_udp_open(stack, &any, NULL, &udp), -EADDRINUSE);
	assert_int_equal(net_udp_open(stack, &any6, NULL, &udp), 0);
	net_udp_close(other);
	assert_int_equal(net_udp_open(stack, &any4, NULL, &other), 0);
}

static void test_open_reports_wrong_arguments(void **state)
{
	struct net_addr us = US, foreign = PEER;

	assert_int_equal(net_udp_open(NULL, &us, NULL, &udp), -EINVAL);
	assert_int_equal(net_udp_open(stack, NULL, NULL, &udp), -EINVAL);
	assert_int_equal(net_udp_open(stack, &us, NULL, NULL), -EINVAL);
	assert_int_equal(net_udp_open(stack, &foreign, NULL, &udp),
			 -EADDRNOTAVAIL);
	assert_null(udp);
}

static void test_port_0_chooses_different_ports(void **state)
{
	struct net_addr us = udp_us4;

	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(net_udp_open(stack, &us, NULL, &udp), 0);
		assert_true(net_udp_local_addr(udp).port >= NET_PORT_FIRST);
	}
	assert_int_equal(net_udps.n, 100);
}

static void test_open_without_memory_fails_cleanly(void **state)
{
	struct net_addr us = US;

	open_at(udp_at(udp_us4, 1)); /* the tables */
	net_mem_fail_after(1);
	assert_int_equal(net_udp_open(stack, &us, NULL, &other), -ENOMEM);
	net_mem_fail_after(0);
	assert_int_equal(net_udp_open(stack, &us, NULL, &other), 0);
}

/* ---- demux ---- */

static unsigned longest_chain(void)
{
	unsigned longest = 0;

	for (unsigned i = 0; i < NET_UDP_BUCKETS; i++) {
		struct net_udp *const heads[] = {net_udps.ports[i],
						 net_udps.tuples[i]};

		for (unsigned k = 0; k < 2; k++) {
			unsigned n = 0;

			for (const struct net_udp *u = heads[k]; u;
			     u = u->hash_next)
				n++;
			longest = n > longest ? n : longest;
		}
	}
	return longest;
}

static void test_hundred_thousand_sockets_are_found_in_a_few_probes(void **s)
{
	for (unsigned i = 0; i < 100000; i++) {
		struct net_addr us = US, peer = PEER;

		peer.port = (uint16_t)(1 + i % 50000);
		peer.ip[3] = (uint8_t)(2 + i / 50000);
		assert_int_equal(net_udp_open(stack, &us, NULL, &udp), 0);
		assert_int_equal(net_udp_connect(udp, &peer), 0);
	}
	assert_int_equal(net_udps.n_connected, 100000);
	assert_in_range(longest_chain(), 2, 16);
	assert_true(datagram_say(udp_at(udp_peer4, 777), US, "x"));
	run_rounds(1);
	for (struct net_udp *u = net_udps.all; u; u = u->next)
		assert_int_equal(u->rx_queued,
				 u->remote_port == 777 &&
					 ip_2_ip4(&u->remote)->addr >> 24 == 2);
}

static void test_exhausted_ports_are_cached_for_a_while(void **state)
{
	struct net_addr us = udp_us4, peer = PEER, second = udp_peer4;
	struct net_udp *closed;
	uint16_t port;

	for (unsigned i = 0; i < NET_PORT_COUNT; i++) {
		assert_int_equal(net_udp_open(stack, &us, NULL, &closed), 0);
		assert_int_equal(net_udp_connect(closed, &peer), 0);
	}
	assert_int_equal(net_udp_open(stack, &us, NULL, &udp), 0);
	assert_int_equal(net_udp_connect(udp, &peer), -EADDRNOTAVAIL);
	port = net_udp_local_addr(closed).port;
	net_udp_close(closed);
	assert_int_equal(net_udp_connect(udp, &peer), -EADDRNOTAVAIL);
	second.port = 4001; /* the cache covers one destination only */
	assert_int_equal(net_udp_open(stack, &us, NULL, &other), 0);
	assert_int_equal(net_udp_connect(other, &second), 0);
	run_ms(60);
	assert_int_equal(net_udp_connect(udp, &peer), 0);
	assert_int_equal(net_udp_local_addr(udp).port, port);
}

/* A key with which equidistant products have few values of their low bits. */
static void test_consecutive_ports_share_few_buckets(void **state)
{
	static uint8_t n[NET_UDP_BUCKETS];
	ip_addr_t us = IPADDR4_INIT_BYTES(10, 0, 0, 1);
	ip_addr_t peer = IPADDR4_INIT_BYTES(10, 0, 0, 2);
	unsigned longest = 0;

	net_here()->hash_key[0] = UINT64_C(0x0f834db3c6690101);
	net_here()->hash_key[1] = UINT64_C(0x0689ffa4d41a928e);
	for (unsigned port = 1024; port < 51024; port++) {
		uint32_t hash = net_demux_hash(&us, 7, &peer, (uint16_t)port);

		longest = LWIP_MAX(longest, ++n[hash % NET_UDP_BUCKETS]);
	}
	assert_in_range(longest, 4, 10);
}

static void test_most_specific_socket_gets_the_datagram(void **state)
{
	struct net_addr any = {.port = 53}, us = US, peer = PEER;
	struct net_udp *connected;

	assert_int_equal(net_udp_open(stack, &any, NULL, &other), 0);
	datagram_say(PEER, US, "any");
	run_rounds(1);
	assert_int_equal(other->rx_queued, 1);
	net_udp_close(other);
	any.family = 4;
	assert_int_equal(net_udp_open(stack, &any, NULL, &other), 0);
	assert_int_equal(net_udp_open(stack, &us, NULL, &connected), 0);
	assert_int_equal(net_udp_connect(connected, &peer), 0);
	open_at(US);
	datagram_say(PEER, US, "connected");
	datagram_say(udp_at(udp_peer4, 4001), US, "address");
	run_rounds(1);
	assert_int_equal(connected->rx_queued_bytes, 9);
	assert_int_equal(udp->rx_queued_bytes, 7);
	assert_int_equal(other->rx_queued, 0);
	net_udp_close(udp);
	datagram_say(udp_at(udp_peer4, 4001), US, "any");
	run_rounds(1);
	assert_int_equal(other->rx_queued, 1);
}

/* ---- receiving ---- */

static void *receive_one(void *arg)
{
	static struct net_datagram info;
	char buf[4];

	result = net_udp_recv(udp, buf, sizeof(buf), &info);
	if (result > 0)
		memcpy(got, buf, (size_t)result);
	got_views[0] = info;
	ended++;
	return NULL;
}

static void test_datagram_wakes_a_reader(void **state)
{
	open_at(US);
	spawn_coro(receive_one, NULL);
	assert_int_equal(ended, 0);
	datagram_say(PEER, US, "abcdef");
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 4);
	assert_memory_equal(got, "abcd", 4);
	assert_int_equal(got_views[0].len, 6); /* it was cut */
	assert_int_equal(got_views[0].peer.port, 4000);
	assert_memory_equal(got_views[0].peer.ip, udp_peer4.ip, 4);
	assert_memory_equal(got_views[0].local.ip, udp_us4.ip, 4);
	assert_int_equal(udp->stats.rx_cut, 1);
}

static void test_empty_datagram_is_received(void **state)
{
	open_at(US);
	datagram_say(PEER, US, "");
	run_rounds(1);
	spawn_coro(receive_one, NULL);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_int_equal(got_views[0].peer.port, 4000);
}

static void test_batch_takes_what_has_come_in_order(void **state)
{
	open_at(US);
	datagram_say(PEER, US, "one");
	datagram_say(udp_at(udp_peer4, 4001), US, "two");
	datagram_say(PEER, US, "three");
	run_rounds(1);
	assert_int_equal(take_datagrams(2), 2);
	check_text(0, "one");
	check_text(1, "two");
	assert_int_equal(got_views[1].peer.port, 4001);
	net_udp_release(udp, got_views, 2);
	assert_null(got_views[0].data);
	assert_int_equal(take_datagrams(2), 1);
	check_text(0, "three");
	net_udp_release(udp, got_views, 1);
	assert_int_equal(fake_frames_out, 0);
}

static void test_queue_is_bounded_by_datagrams_and_bytes(void **state)
{
	struct net_udp_opts opts = {.rx_datagrams = 3, .rx_bytes = 100};
	struct net_addr us = US;
	struct net_udp_stats stats;
	struct datagram d = {.from = PEER, .to = US, .len = 60};

	assert_int_equal(net_udp_open(stack, &us, &opts, &udp), 0);
	for (unsigned i = 0; i < 5; i++)
		datagram_say(PEER, US, "x");
	run_rounds(1);
	net_udp_stats(udp, &stats);
	assert_int_equal(stats.queued, 3);
	assert_int_equal(stats.rx_full, 2);
	assert_int_equal(net_here()->stats.udp_queue_full, 2);
	assert_int_equal(take_datagrams(3), 3);
	net_udp_release(udp, got_views, 3);
	datagram_send(&d);
	datagram_send(&d);
	run_rounds(1);
	net_udp_stats(udp, &stats);
	assert_int_equal(stats.queued_bytes, 60);
	assert_int_equal(stats.rx_full, 3);
}

/* Datagrams that wait beyond what may be held are copied. */
static void test_frames_beyond_the_limit_are_copied(void **state)
{
	open_at(US);
	fake_frames_spare = 2;
	for (unsigned i = 0; i < 16; i++) { /* until it is looked at */
		datagram_say(PEER, US, "data");
		run_rounds(1);
	}
	for (unsigned i = 0; i < 20; i++)
		datagram_say(PEER, US, "data");
	run_rounds(1);
	assert_in_range(fake_frames_out, 0, 20);
	assert_int_equal(take_datagrams(300), 36);
	check_text(35, "data");
	assert_int_equal(got_views[35].peer.port, 4000);
	net_udp_release(udp, got_views, 36);
}

static void test_exhausted_pool_frees_queued_frames(void **state)
{
	open_at(US);
	datagram_say(PEER, US, "one");
	datagram_say(PEER, US, "two");
	run_rounds(1);
	assert_int_equal(fake_frames_out, 2);
	fake_frames_exhausted = true;
	run_ms(2);
	assert_int_equal(fake_frames_out, 0);
	assert_int_equal(take_datagrams(2), 2);
	check_text(0, "one");
	check_text(1, "two");
	net_udp_release(udp, got_views, 2);
}

static void test_many_held_datagrams_lie_in_copies(void **state)
{
	open_at(US);
	for (unsigned i = 0; i < NET_UDP_VIEWS_MAX + 1; i++) {
		datagram_say(PEER, US, "held");
		run_rounds(1);
		if (i < NET_UDP_VIEWS_MAX)
			assert_int_equal(
				net_udp_recv_batch(udp, &got_views[i], 1), 1);
	}
	assert_int_equal(net_udp_recv_batch(udp, &got_views[299], 1), -ENOBUFS);
	assert_int_equal(udp->rx_queued, 1); /* it is not lost */
	assert_in_range(fake_frames_out, 1, 65);
	check_text(200, "held");
	net_udp_release(udp, got_views, NET_UDP_VIEWS_MAX);
	assert_int_equal(take_datagrams(1), 1);
	net_udp_release(udp, got_views, 1);
	assert_int_equal(fake_frames_out, 0);
}

static void test_second_release_is_counted_and_ignored(void **state)
{
	struct net_datagram copy;

	open_at(US);
	datagram_say(PEER, US, "one");
	run_rounds(1);
	assert_int_equal(take_datagrams(1), 1);
	copy = got_views[0];
	net_udp_release(udp, got_views, 1);
	net_udp_release(udp, got_views, 1); /* empty */
	assert_int_equal(net_here()->stats.view_misuses, 0);
	net_udp_release(udp, &copy, 1);
	assert_int_equal(net_here()->stats.view_misuses, 1);
}

static void test_forgotten_datagrams_are_reclaimed_by_close(void **state)
{
	open_at(US);
	datagram_say(PEER, US, "one");
	datagram_say(PEER, US, "two");
	run_rounds(1);
	assert_int_equal(take_datagrams(2), 2);
	net_udp_close(udp);
	assert_int_equal(net_here()->stats.views_reclaimed, 2);
	assert_int_equal(fake_frames_out, 0);
}

static void test_stack_closes_sockets_with_what_they_hold(void **state)
{
	open_at(udp_at(udp_us4, 54));
	spawn_coro(receive_one, NULL); /* blocked until the end */
	open_at(US);
	datagram_say(PEER, US, "one");
	datagram_say(PEER, US, "two");
	run_rounds(1);
	assert_int_equal(take_datagrams(1), 1);
	/* teardown checks that every frame is back */
}

/* ---- waiting ---- */

static void test_deadline_cancel_and_close_end_a_wait(void **state)
{
	open_at(US);
	net_udp_set_read_deadline(udp, net_now_ns(stack) + SECOND_NS);
	spawn_coro(receive_one, NULL);
	run_ms(1100);
	assert_int_equal(result, -ETIMEDOUT);
	net_udp_set_read_deadline(udp, CORO_FOREVER);
	spawn_coro(receive_one, NULL);
	net_udp_close(udp);
	run_rounds(2);
	assert_int_equal(result, -EBADF);
	open_at(US);
	spawn_coro(receive_one, NULL);
	assert_int_equal(net_udp_cancel(udp), 0);
	run_rounds(2);
	assert_int_equal(result, -ECANCELED);
	assert_int_equal(ended, 3);
	assert_int_equal(net_udp_send(udp, NULL, "x", 1), -ECANCELED);
}

static void test_one_reader_at_a_time(void **state)
{
	open_at(US);
	spawn_coro(receive_one, NULL);
	spawn_coro(receive_one, NULL);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EBUSY);
	assert_int_equal(net_udp_recv(udp, got, 1, NULL), -EPERM);
}

static struct net_poll_item items[2];

static void *poll_both(void *arg)
{
	got_n = net_poll(items, 2, CORO_FOREVER);
	ended++;
	return NULL;
}

static void test_poll_waits_for_sockets_beside_listeners(void **state)
{
	open_at(US);
	assert_int_equal(net_listen(stack, &net_addr_any(7), 0, &listener), 0);
	items[0] = (struct net_poll_item){.listener = listener,
					  .events = NET_READABLE};
	items[1] = (struct net_poll_item){.udp = udp, .events = NET_READABLE};
	spawn_coro(poll_both, NULL);
	assert_int_equal(ended, 0);
	datagram_say(PEER, US, "x");
	run_rounds(2);
	assert_int_equal(got_n, 1);
	assert_int_equal(items[1].revents, NET_READABLE);
	assert_int_equal(take_datagrams(1), 1);
	net_udp_release(udp, got_views, 1);
	spawn_coro(poll_both, NULL);
	net_udp_close(udp);
	run_rounds(2);
	assert_int_equal(items[1].revents, NET_GONE);
	assert_int_equal(ended, 2);
}

static void test_calls_on_no_socket_return_ebadf(void **state)
{
	struct net_udp_stats stats;
	struct net_datagram d;

	assert_int_equal(net_udp_recv(NULL, got, 1, NULL), -EBADF);
	assert_int_equal(net_udp_recv_batch(NULL, &d, 1), -EBADF);
	assert_int_equal(net_udp_send(NULL, NULL, "x", 1), -EBADF);
	assert_int_equal(net_udp_send_batch(NULL, &d, 1), -EBADF);
	assert_int_equal(net_udp_connect(NULL, &udp_peer4), -EBADF);
	assert_int_equal(net_udp_cancel(NULL), -EBADF);
	assert_int_equal(net_udp_stats(NULL, &stats), -EBADF);
	assert_int_equal(net_udp_room(NULL, NULL), -EBADF);
	assert_int_equal(net_udp_ready(NULL, 0), NET_GONE);
	assert_int_equal(net_udp_local_addr(NULL).port, 0);
	net_udp_close(NULL);
	net_udp_release(NULL, NULL, 0);
	net_udp_set_read_deadline(NULL, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_same_address_and_port_is_refused),
		T(test_open_reports_wrong_arguments),
		T(test_port_0_chooses_different_ports),
		T(test_open_without_memory_fails_cleanly),
		T(test_hundred_thousand_sockets_are_found_in_a_few_probes),
		T(test_exhausted_ports_are_cached_for_a_while),
		T(test_consecutive_ports_share_few_buckets),
		T(test_most_specific_socket_gets_the_datagram),
		T(test_datagram_wakes_a_reader),
		T(test_empty_datagram_is_received),
		T(test_batch_takes_what_has_come_in_order),
		T(test_queue_is_bounded_by_datagrams_and_bytes),
		T(test_frames_beyond_the_limit_are_copied),
		T(test_exhausted_pool_frees_queued_frames),
		T(test_many_held_datagrams_lie_in_copies),
		T(test_second_release_is_counted_and_ignored),
		T(test_forgotten_datagrams_are_reclaimed_by_close),
		T(test_stack_closes_sockets_with_what_they_hold),
		T(test_deadline_cancel_and_close_end_a_wait),
		T(test_one_reader_at_a_time),
		T(test_poll_waits_for_sockets_beside_listeners),
		T(test_calls_on_no_socket_return_ebadf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
