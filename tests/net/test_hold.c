/*
 * Resources that connections hold: unread bytes, frames, views. They never use
 * up the frames for receiving and sending, and views that a handler forgets are
 * released.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "netstack/program/log.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define SPARE (FAKE_MAX_FRAMES / 2)

static bool go;

/* Reads into got[] once go is set. */
static void read_late(struct net_conn *conn, void *arg)
{
	long n;

	while (!go) /* sleeps, since yields would resume thousands each round */
		coro_sleep_ns(1000000);
	while ((n = net_recv(conn, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	ended++;
}

static int listen_many(void **state)
{
	go = false;
	return peer_listen_many(state);
}

static unsigned frames_in(void)
{
	return net_here()->ports[0].frames_in;
}

static void forget_sent(void)
{
	while (fake_sent(got, sizeof(got)))
		;
}

/* ---- frames ---- */

static void test_unread_bytes_leave_frames_to_receive(void **state)
{
	struct peer first, peer;
	struct segment s;

	serve(read_late);
	peer_connect(&first, 999, 7, 99);
	for (unsigned i = 0; i < 3900; i++) {
		peer_connect(&peer, (uint16_t)(1000 + i), 7, 99);
		peer_send(&peer, PEER_ACK, "x", 1);
		run_rounds(2);
		forget_sent();
	}
	assert_in_range(frames_in(), SPARE, SPARE + GLUE_BURST);
	assert_int_equal(net_here()->n_conns, 3901);
	/* New clients are served as before, and no byte is lost. */
	peer_send(&first, PEER_ACK, "y", 1);
	assert_true(peer_next(&s) || (run_ms(50), peer_next(&s)));
	assert_int_equal(s.ack, first.snd);
	got_len = 0;
	go = true;
	run_ms(3);
	assert_int_equal(got_len, 3901);
	assert_int_equal(frames_in(), 0);
}

static void test_without_memory_for_a_copy_a_segment_is_dropped(void **state)
{
	struct peer peer;

	serve(read_late);
	peer_connect(&peer, 1000, 7, 99);
	fake_frames_spare = 0;
	run_rounds(16);
	net_mem_fail_after(1);
	peer_send(&peer, PEER_ACK, "abc", 3);
	run_ms(60);
	peer_expect_nothing(); /* no ACK: the peer sends it again */
	assert_int_equal(stack->stats.rx_no_memory, 1);
	assert_int_equal(frames_in(), 0);
	peer.snd -= 3;
	peer_send(&peer, PEER_ACK, "abc", 3);
	run_ms(60);
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	go = true;
	run_ms(3);
	assert_int_equal(got_len, 3);
	assert_memory_equal(got, "abc", 3);
}

/* ---- a pool that is empty ---- */

/* Makes several connections hold unread bytes in the received frames. */
static void hold_frames(struct peer *peers, unsigned n, unsigned frames)
{
	uint8_t data[600];

	memset(data, 'x', sizeof(data));
	for (unsigned i = 0; i < n; i++) {
		peer_connect(&peers[i], (uint16_t)(1000 + i), 7, 99);
		for (unsigned k = 0; k < frames; k++) {
			peer_send(&peers[i], PEER_ACK, data, sizeof(data));
			run_rounds(1);
			forget_sent();
		}
	}
}

static void test_held_frames_are_copied_when_a_pool_is_empty(void **state)
{
	struct peer peers[3];

	serve(read_late);
	hold_frames(peers, 3, 20);
	memset(got, 'x', sizeof(got));
	peers[0].snd += 600; /* a hole, with frames behind it */
	peer_send(&peers[0], PEER_ACK, got, 600);
	run_rounds(1);
	assert_int_equal(frames_in(), 3 * 20 + 1);
	fake_frames_exhausted = true;
	run_ms(50);
	assert_int_equal(frames_in(), 0);
	fake_frames_exhausted = false;
	peers[0].snd -= 1200;
	peer_send(&peers[0], PEER_ACK, got, 600);
	memset(got, 0, sizeof(got));
	got_len = 0;
	go = true;
	run_ms(50);
	assert_int_equal(got_len, 3 * 20 * 600 + 1200);
	for (unsigned i = 0; i < got_len; i++)
		assert_int_equal(got[i], 'x');
	assert_int_equal(stack->stats.memory_resets, 0);
}

static void test_frames_of_ended_connections_are_copied(void **state)
{
	struct peer peers[3];

	serve(read_late);
	hold_frames(peers, 3, 20);
	for (unsigned i = 0; i < 3; i++) {
		peer_send(&peers[i], PEER_RST, NULL, 0);
		run_rounds(1);
	}
	assert_int_equal(net_here()->n_conns, 0);
	assert_int_equal(frames_in(), 3 * 20);
	fake_frames_exhausted = true;
	run_ms(50);
	assert_int_equal(frames_in(), 0);
	fake_frames_exhausted = false;
	got_len = 0;
	go = true;
	run_ms(50);
	assert_int_equal(got_len, 3 * 20 * 600);
	assert_int_equal(stack->stats.memory_resets, 0);
}

/* Takes every view and keeps it. */
static void keep_views(struct net_conn *conn, void *arg)
{
	struct net_view view;

	while (net_recv_view(conn, &view) > 0)
		;
	ended++;
}

static void test_largest_holder_of_frames_is_reset(void **state)
{
	struct peer peers[3];
	struct segment s;

	serve(keep_views);
	hold_frames(peers, 2, 10);
	peer_connect(&peers[2], 1007, 7, 99);
	for (unsigned k = 0; k < 40; k++) {
		peer_send(&peers[2], PEER_ACK, got, 600);
		run_rounds(1);
		forget_sent();
	}
	fake_frames_exhausted = true;
	run_ms(80);
	assert_int_equal(stack->stats.memory_resets, 0);
	run_ms(100);
	assert_int_equal(stack->stats.memory_resets, 1);
	expect(&s, PEER_RST | PEER_ACK, ANY, ANY, 0);
	assert_int_equal(s.dst, 1007);
	run_ms(1000); /* the others hold few */
	assert_int_equal(stack->stats.memory_resets, 1);
	assert_int_equal(net_here()->n_conns, 2);
}

static void test_holder_of_another_links_frames_is_not_reset(void **state)
{
	struct peer peer;

	serve(keep_views);
	hold_frames(&peer, 1, 40);
	fake_exhausted_port = net_here()->ports[1].glue;
	fake_frames_exhausted = true;
	run_ms(1000);
	assert_int_equal(stack->stats.memory_resets, 0);
	fake_exhausted_port = net_here()->ports[0].glue;
	for (unsigned i = 0; i < 1000 && !stack->stats.memory_resets; i++)
		run_ms(1);
	assert_int_equal(stack->stats.memory_resets, 1);
}

static void test_holder_of_copies_is_not_reset(void **state)
{
	struct peer peers[2];
	struct segment s;

	serve(keep_views);
	hold_frames(&peers[0], 1, 20);
	fake_frames_spare = 0;
	net_here()->ports[0].frames_to_hold = 0;
	peer_connect(&peers[1], 1007, 7, 99);
	for (unsigned k = 0; k < 40; k++) {
		peer_send(&peers[1], PEER_ACK, got, 600);
		run_rounds(1);
		forget_sent();
	}
	assert_int_equal(frames_in(), 20);
	fake_frames_exhausted = true;
	run_ms(1000);
	assert_int_equal(stack->stats.memory_resets, 1);
	expect(&s, PEER_RST | PEER_ACK, ANY, ANY, 0);
	assert_int_equal(s.dst, 1000);
}

static void test_frames_of_a_reset_connection_get_time_to_return(void **state)
{
	struct peer peers[3];

	serve(keep_views);
	hold_frames(peers, 3, 40);
	fake_frames_exhausted = true;
	for (unsigned i = 0; i < 1000 && !stack->stats.memory_resets; i++)
		run_ms(1);
	run_ms(80);
	assert_int_equal(stack->stats.memory_resets, 1);
	run_ms(100);
	assert_int_equal(stack->stats.memory_resets, 2);
	fake_frames_exhausted = false;
	run_ms(200);
	assert_int_equal(stack->stats.memory_resets, 2);
}

/* ---- small pieces ---- */

static struct net_conn *held;

static void hold_and_read(struct net_conn *conn, void *arg)
{
	held = conn;
	read_late(conn, arg);
}

static unsigned pieces(void)
{
	const struct pbuf *p = net_rxq_head(held);
	unsigned n = 0;

	for (; p; p = net_rxq_next(held, p))
		n++;
	return n;
}

static void send_bytes(struct peer *peer, unsigned n, unsigned each)
{
	uint8_t data[600];

	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < each; k++)
			data[k] = (uint8_t)(peer->snd + k);
		peer_send(peer, PEER_ACK, data, each);
		run_rounds(1);
		forget_sent();
	}
}

static void expect_bytes(uint32_t first, size_t len)
{
	go = true;
	run_ms(3);
	assert_int_equal(got_len, len);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(got[i], (uint8_t)(first + i));
}

static void test_a_byte_unread_costs_about_a_byte(void **state)
{
	uint64_t before, taken;
	struct peer peer;
	uint32_t first;

	serve(hold_and_read);
	peer_connect(&peer, 1000, 7, 0xffffff00u);
	first = peer.snd;
	before = net_mem_live_bytes();
	send_bytes(&peer, 20000, 1);
	taken = net_mem_live_bytes() - before;
	assert_in_range(taken, 20000, 20000 + 20000 / 16 + 4096);
	assert_true(pieces() < 20);
	assert_true(frames_in() <= 1);
	assert_int_equal(net_rxq_bytes(held), 20000);
	got_len = 0;
	expect_bytes(first, 20000);
}

static void test_pieces_are_merged_in_order(void **state)
{
	struct peer peer;
	uint32_t first;
	size_t len = 0;

	serve(hold_and_read);
	peer_connect(&peer, 1000, 7, 0xffffff00u);
	first = peer.snd;
	for (unsigned each = 1; each < 600; each += 7) {
		send_bytes(&peer, 2, each);
		len += 2 * each;
	}
	assert_true(pieces() < 60);
	got_len = 0;
	expect_bytes(first, len);
	assert_int_equal(frames_in(), 0);
}

static void test_without_memory_to_merge_bytes_stay_in_frames(void **state)
{
	struct peer peer;
	uint32_t first;

	serve(hold_and_read);
	peer_connect(&peer, 1000, 7, 99);
	first = peer.snd;
	send_bytes(&peer, 1, 10);
	net_mem_fail_after(1);
	send_bytes(&peer, 3, 10);
	assert_int_equal(frames_in(), 2);
	got_len = 0;
	expect_bytes(first, 40);
}

/* ---- views ---- */

static unsigned to_take, to_release;

static void take_views(struct net_conn *conn, void *arg)
{
	static struct net_view views[NET_VIEWS_MAX + 1];
	unsigned n = 0;

	while (n < to_take && (result = net_recv_view(conn, &views[n])) > 0)
		n++;
	ended = n;
	while (!go)
		coro_yield();
	for (unsigned i = 0; i < to_release && i < n; i++)
		net_view_release(conn, &views[i]);
	if (result == -ENOBUFS && to_release)
		result = net_recv_view(conn, &views[0]);
}

static void serve_views(unsigned n, unsigned releases)
{
	to_take = n;
	to_release = releases;
	serve(take_views);
}

/* Lines that earlier tests have logged do not suppress those of this one. */
static void pass_log_limits(void)
{
	static int64_t hours;

	fake_now_ns += ++hours * INT64_C(3600000000000);
	run_rounds(1);
}

static void
test_forgotten_views_come_back_when_the_handler_returns(void **state)
{
	char line[512] = "";
	struct peer peer;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	net_log_set_fd(ends[1]);
	pass_log_limits();
	serve_views(3, 1);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, 3, 600);
	go = true;
	run_rounds(2);
	net_log_flush();
	net_log_set_fd(STDERR_FILENO);
	assert_int_equal(ended, 3);
	assert_int_equal(frames_in(), 0);
	assert_int_equal(stack->stats.views_reclaimed, 2);
	assert_true(read(ends[0], line, sizeof(line) - 1) > 0);
	assert_non_null(strstr(line, "2 view(s) of 10.0.0.2:1000 were never "
				     "released"));
	assert_non_null(strstr(line, "handler"));
	close(ends[0]);
	close(ends[1]);
}

static void test_views_are_bounded_and_few_hold_frames(void **state)
{
	struct peer peer;

	serve_views(NET_VIEWS_MAX + 1, 0);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, NET_VIEWS_MAX + 10, 600);
	assert_int_equal(ended, NET_VIEWS_MAX);
	assert_int_equal(result, -ENOBUFS);
	assert_in_range(frames_in(), 1, NET_VIEWS_FRAMES + 10);
	go = true;
	run_ms(3);
	assert_int_equal(frames_in(), 0);
	assert_int_equal(stack->stats.views_reclaimed, NET_VIEWS_MAX);
}

static void test_a_released_view_makes_room_for_another(void **state)
{
	struct peer peer;

	serve_views(NET_VIEWS_MAX + 1, 1);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, NET_VIEWS_MAX + 10, 600);
	go = true;
	run_rounds(1);
	assert_int_equal(result, 600);
}

static void test_views_of_one_connection_hold_few_frames(void **state)
{
	struct peer peer;

	serve_views(64, 64);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, 64, 600);
	assert_int_equal(ended, 64);
	assert_int_equal(frames_in(), NET_VIEWS_FRAMES);
	go = true;
	run_rounds(2);
	assert_int_equal(frames_in(), 0);
}

static void release_twice(struct net_conn *conn, void *arg)
{
	struct net_view view, copy, other;

	net_recv_view(conn, &view);
	copy = view;
	net_view_release(conn, &view);
	net_view_release(conn, &view); /* empty: no effect */
	while (net_recv_view(conn, &other) == 0)
		;
	net_view_release(conn, &copy);
	assert_int_equal(stack->stats.view_misuses, 1);
	copy = other;
	net_view_release(conn, &other);
	result = net_send_view(conn, &copy);
	ended++;
	net_recv_view(conn, &view); /* until the peer ends */
}

static void test_a_view_given_back_twice_is_recognised(void **state)
{
	struct peer peer;

	serve(release_twice);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, 2, 600);
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EINVAL);
	assert_int_equal(stack->stats.view_misuses, 2);
	assert_int_equal(stack->stats.views_reclaimed, 0);
	assert_int_equal(frames_in(), 0);
}

static void forget_and_close(struct net_conn *conn, void *arg)
{
	struct net_view view;

	result = net_recv_view(conn, &view);
	net_close(conn);
}

static void test_views_of_a_closing_handler_are_released(void **state)
{
	struct peer peer;

	serve(forget_and_close);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, 1, 600);
	run_rounds(2);
	assert_int_equal(result, 600);
	assert_int_equal(frames_in(), 0);
	assert_int_equal(stack->stats.views_reclaimed, 1);
}

static struct net_conn *other_conn;

static void wait_here(struct net_conn *conn, void *arg)
{
	struct net_view view;

	if (!other_conn) {
		other_conn = conn;
		while (!go)
			coro_yield();
		return;
	}
	/* A view may outlive its connection, but not its handler. */
	net_recv_view(conn, &view);
	net_close(conn);
	result = net_send_view(other_conn, &view);
	ended++;
}

static void test_a_view_may_be_sent_elsewhere_after_its_connection(void **state)
{
	struct peer a, b;
	struct segment s;

	other_conn = NULL;
	serve(wait_here);
	peer_connect(&a, 1000, 7, 99);
	peer_connect(&b, 1001, 7, 99);
	peer_send(&b, PEER_ACK, "hello", 5);
	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	assert_int_equal(s.dst, 1000);
	assert_memory_equal(s.data, "hello", 5);
	run_rounds(2);
	assert_int_equal(result, 5);
	assert_int_equal(stack->stats.views_reclaimed, 0);
	go = true;
}

static struct net_conn *accepted;
static struct net_view kept;

static void *accept_and_take(void *arg)
{
	assert_int_equal(net_accept(listener, &accepted), 0);
	result = net_recv_view(accepted, &kept);
	net_close(accepted);
	return NULL;
}

static void test_close_outside_a_handler_releases_views(void **state)
{
	struct peer peer;

	net_spawn(stack, "acceptor", accept_and_take, NULL);
	run_rounds(1);
	peer_connect(&peer, 1000, 7, 99);
	send_bytes(&peer, 1, 600);
	run_rounds(2);
	assert_int_equal(result, 600);
	assert_int_equal(frames_in(), 0);
	assert_int_equal(stack->stats.views_reclaimed, 1);
	net_view_release(NULL, &kept); /* too late, and harmless */
	assert_int_equal(stack->stats.view_misuses, 1);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_unread_bytes_leave_frames_to_receive),
		T(test_without_memory_for_a_copy_a_segment_is_dropped),
		T(test_held_frames_are_copied_when_a_pool_is_empty),
		T(test_frames_of_ended_connections_are_copied),
		T(test_largest_holder_of_frames_is_reset),
		cmocka_unit_test_setup_teardown(
			test_holder_of_another_links_frames_is_not_reset,
			peer_listen_on_two_links, peer_teardown),
		T(test_holder_of_copies_is_not_reset),
		T(test_a_byte_unread_costs_about_a_byte),
		T(test_pieces_are_merged_in_order),
		T(test_without_memory_to_merge_bytes_stay_in_frames),
		T(test_forgotten_views_come_back_when_the_handler_returns),
		T(test_views_are_bounded_and_few_hold_frames),
		T(test_a_released_view_makes_room_for_another),
		T(test_views_of_one_connection_hold_few_frames),
		T(test_a_view_given_back_twice_is_recognised),
		T(test_views_of_a_closing_handler_are_released),
		T(test_a_view_may_be_sent_elsewhere_after_its_connection),
		T(test_close_outside_a_handler_releases_views),
		T(test_frames_of_a_reset_connection_get_time_to_return),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
