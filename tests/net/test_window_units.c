/*
 * The receive window of a reader that waits with bytes unread while memory is
 * short, at the largest scale, which counts in units of 16 KiB. The peer obeys
 * the last window that was announced, and never probes it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"
#include "tests/net/short_memory.h"

#define SCALE 14u
#define LIMIT (3u << SCALE)

static struct peer peer;
static uint32_t edge; /* of the window, as the peer knows it */
static bool go;

static void connect_scaled(net_handler handler)
{
	static const uint8_t options[] = {2, 4, 5, 120, 3, 3, 7, 1};
	struct segment s;

	go = false;
	net_rcv_wnd_init(UINT64_C(1) << 30); /* --rmem-max 1G */
	assert_int_equal(net_here()->rcv_scale, SCALE);
	serve(handler);
	make_memory_short(LIMIT);
	peer = (struct peer){.port = 1000, .wnd = 65535};
	s = peer_open(&peer, 99, options, sizeof(options));
	edge = s.ack + s.wnd;
	peer_send(&peer, PEER_ACK, NULL, 0);
}

static void hear(void)
{
	struct segment s;

	run_ms(1);
	while (peer_next(&s))
		edge = s.ack + (s.wnd << SCALE);
}

/* Sends until the window is full for a second. Returns how much it sent. */
static uint32_t fill_window(void)
{
	static const uint8_t zeros[1000];
	uint32_t from = peer.snd;
	unsigned idle_ms = 0;

	while (idle_ms < 1000 && !ended) {
		hear();
		if ((int32_t)(edge - peer.snd) < (int32_t)sizeof(zeros)) {
			idle_ms++;
			continue;
		}
		peer_send(&peer, PEER_ACK, zeros, sizeof(zeros));
		idle_ms = 0;
	}
	return peer.snd - from;
}

static void read_endless_line(struct net_conn *conn, void *arg)
{
	result = net_recv_until(conn, got, sizeof(got), "\n", 1);
	ended++;
}

static void test_line_that_fills_less_than_a_unit_is_reported(void **state)
{
	connect_scaled(read_endless_line);
	assert_in_range(fill_window(), 1, 65534);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EMSGSIZE);
	free_memory();
}

/* Reads less than the part of the window that is worth an ACK. */
static void read_part_then_line(struct net_conn *conn, void *arg)
{
	while (!go)
		coro_sleep_ns(1000000);
	assert_int_equal(net_recv_full(conn, got, 20000), 20000);
	result = net_recv_until(conn, got, sizeof(got), "\n", 1);
	ended++;
}

static void test_room_is_announced_before_a_reader_waits(void **state)
{
	connect_scaled(read_part_then_line);
	assert_in_range(fill_window(), 1u << SCALE, 65535);
	go = true;
	while (edge == peer.snd || (int32_t)(edge - peer.snd) < 1000) {
		assert_int_equal(ended, 0);
		hear();
	}
	peer_send(&peer, PEER_ACK, "\n", 1);
	while (!ended)
		run_ms(1);
	assert_true(result > 1);
	free_memory();
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_line_that_fills_less_than_a_unit_is_reported),
		T(test_room_is_announced_before_a_reader_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
