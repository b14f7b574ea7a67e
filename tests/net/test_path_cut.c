/*
 * Segments queued or in flight when the path MTU falls: the stack splits them
 * into pieces that fit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/mem/mem.h"
#include "netstack/recovery/recovery_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/far.h"

static bool given_back;

static void note_given_back(void *arg)
{
	given_back = true;
}

static void send_and_close(struct net_conn *conn, void *arg)
{
	static uint8_t data[FAR_STREAM];

	far_fill(data, far_to_send, 0);
	far_conn = conn;
	result = net_send_all(conn, data, far_to_send);
	ended++;
}

static void test_fin_stays_on_the_last_piece(void **state)
{
	far.mtu = 700;
	far_to_send = 5 * far_full_mss();
	serve(send_and_close);
	far.deaf = true;
	far_connect(1000, far_full_mss());
	far_pass_ms(); /* every segment, the FIN's too, was too long */
	far.deaf = false;
	far_download(2000);
	for (unsigned i = 0; i < 500 && !far.fin; i++)
		far_pass_ms();
	assert_true(far.fin);
	assert_int_equal(far.fin_at, far_to_send);
	assert_int_equal(far.largest, 700);
}

static void send_lent(struct net_conn *conn, void *arg)
{
	static uint8_t data[FAR_STREAM];

	far_fill(data, far_to_send, 0);
	far_conn = conn;
	result = net_send_owned(conn, data, far_to_send, note_given_back, NULL);
	coro_sleep_ns(INT64_C(36000000000000));
	ended++;
}

static void test_lent_memory_is_split_and_returned(void **state)
{
	given_back = false;
	fake_lends = true;
	far.mtu = 800;
	serve(send_lent);
	far_connect(1000, far_full_mss());
	far_download(2000);
	for (unsigned i = 0; i < 100 && !given_back; i++)
		far_pass_ms();
	assert_true(given_back);
	assert_int_equal(far.largest, 800);
}

#define COPIED (20 * 1460 + 100u) /* the last segment has room */
#define LENT   2000u
#define GUARD  500u

static uint8_t lent[2][LENT + GUARD];

static void send_both_kinds(struct net_conn *conn, void *arg)
{
	static uint8_t data[COPIED];

	far_fill(data, COPIED, 0);
	far_conn = conn;
	net_set_nodelay(conn, false); /* so that lwIP leaves room */
	net_send_all(conn, data, COPIED);
	coro_sleep_ns(5000000); /* until the router has reported its MTU */
	memset(lent, 0xa5, sizeof(lent));
	for (unsigned k = 0; k < 2; k++) {
		far_fill(lent[k], LENT, COPIED + k * LENT);
		net_send_owned(conn, lent[k], LENT, note_given_back, NULL);
	}
	coro_sleep_ns(INT64_C(36000000000000));
}

/* lwIP remembers how much room the last segment has. Once that segment is cut,
 * the room is gone, and lwIP must not write behind lent memory. */
static void test_lent_memory_is_not_written_to(void **state)
{
	fake_lends = true;
	far.mtu = 800;
	far_to_send = COPIED + 2 * LENT;
	serve(send_both_kinds);
	far.deaf = true;
	far_connect(1000, far_full_mss());
	for (unsigned i = 0; i < 20; i++)
		far_pass_ms();
	assert_int_equal(far_conn->pcb.mss, 760);
	far.deaf = false;
	far_download(3000);
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < GUARD; i++)
			assert_int_equal(lent[k][LENT + i], 0xa5);
}

/* The MTU falls while part of the stream is in flight. */
static void test_mtu_may_fall_during_a_recovery(void **state)
{
	far.mtu = 0;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	for (unsigned i = 0; i < 3; i++)
		far_pass_ms();
	far.mtu = 1200;
	far_download(3000);
	assert_in_range(far_conn->pcb.mss, 512, 1160);
}

static void test_sacked_bytes_are_not_resent_after_a_split(void **state)
{
	uint8_t packet[40];
	unsigned mss = far_full_mss();

	far.sack = far.deaf = true;
	far_to_send = 10 * mss;
	serve(far_feed);
	far_connect(1000, mss);
	far_pass_ms();
	assert_int_equal(far.segments, 10);
	far_say_sack(far.base + 4 * mss, far.base + 6 * mss);
	far_quote(packet);
	far_complain(packet, 1000);
	for (unsigned i = 0; i < 5; i++)
		far_pass_ms();
	for (unsigned i = 0; i < far_to_send; i++)
		assert_int_equal(far.times[i] > 1, i < 4 * mss || i >= 6 * mss);
}

static void send_slowly(struct net_conn *conn, void *arg)
{
	uint8_t piece[300];

	far_conn = conn;
	net_set_nodelay(conn, false); /* segments are made with room to grow */
	for (size_t at = 0; at < far_to_send; at += sizeof(piece)) {
		far_fill(piece, sizeof(piece), at);
		result = net_send_all(conn, piece, sizeof(piece));
		coro_sleep_ns(1000000);
	}
	coro_sleep_ns(INT64_C(36000000000000));
	ended++;
}

/* Bytes written and not yet sent. */
static unsigned waiting(void)
{
	return far_conn ? far_conn->pcb.snd_lbb - far_conn->pcb.snd_nxt : 0;
}

/* A piece has no room at its end, so bytes written later get their own memory.
 */
static void test_small_writes_follow_split_segments(void **state)
{
	far_to_send = 30000;
	far.wnd = 3000;
	far.deaf = true;
	serve(send_slowly);
	far_connect(1000, far_full_mss());
	/* Beyond the window wait one full segment and most of another. */
	for (unsigned i = 0; i < 300 && waiting() < far_full_mss() + 800; i++)
		far_pass_ms();
	assert_int_equal(far_conn->pcb.unsent->len, far_full_mss());
	far.mtu = 600;
	far.wnd = 2000; /* room for the first of the two, which is too long */
	far_say(PEER_ACK, 0);
	for (unsigned i = 0; i < 20; i++)
		far_pass_ms();
	far.deaf = false;
	far.wnd = 3000;
	far_say(PEER_ACK, 0);
	far_download(20000);
	assert_true(far.too_long > 0);
	assert_int_equal(far_conn->pcb.mss, 560);
}

/* If any allocation fails during the split, the stream still arrives. */
static void test_short_memory_delays_and_loses_nothing(void **state)
{
	for (unsigned n = 1; n <= 24; n++) {
		memset(net_paths, 0, NET_PATHS * sizeof(*net_paths));
		memset(&far.mtu, 0, sizeof(far.mtu));
		serve(far_feed);
		far_connect((uint16_t)(1000 + n), far_full_mss());
		for (unsigned i = 0; i < 2; i++)
			far_pass_ms();
		far.deaf = true;
		far.mtu = 1000;
		far_pass_ms();
		far.deaf = false;
		net_mem_fail_after(n);
		far_pass_ms();
		net_mem_fail_after(0);
		far_download(20000);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, far_setup, far_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_fin_stays_on_the_last_piece),
		T(test_lent_memory_is_split_and_returned),
		T(test_lent_memory_is_not_written_to),
		T(test_mtu_may_fall_during_a_recovery),
		T(test_sacked_bytes_are_not_resent_after_a_split),
		T(test_small_writes_follow_split_segments),
		T(test_short_memory_delays_and_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
