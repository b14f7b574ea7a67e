/*
 * Data out of order: its FIN, the other fields of its segment, and the end of
 * the connection.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/ahead.h"
#include "tests/net/fake_glue.h"

/* ---- FIN ---- */

static void
test_fin_out_of_order_ends_the_stream_once_the_hole_is_filled(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1100, PEER_FIN);
	SACKS(0, 1000, 1100);
	assert_int_equal(ended, 0);
	ahead_put(0, 1000, 0);
	ahead_expect_read(1100);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_null(ahead_conn->pcb.rcv_sacks);
}

static void test_fin_out_of_order_may_have_no_data(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1000, PEER_FIN);
	SACKS(0);
	ahead_put(0, 400, 0);
	SACKS(400);
	assert_int_equal(ended, 0);
	ahead_put(400, 1000, 0);
	ahead_expect_read(1000);
	assert_int_equal(ended, 1);
}

/* A FIN at one number is not replaced by one at another. */
static void test_second_fin_at_another_number_is_ignored(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(1000, 1100, PEER_FIN);
	ahead_put(500, 600, PEER_FIN);
	ahead_put(0, 500, 0);
	ahead_expect_read(600);
	assert_int_equal(ended, 0);
	ahead_put(600, 1000, 0);
	ahead_expect_read(1100);
	assert_int_equal(ended, 1);
}

/* Data beyond the FIN of a peer shows that the stream does not end there. */
static void test_data_beyond_a_fin_out_of_order_replaces_it(void **state)
{
	ahead_connect(ahead_read_all, true);
	ahead_put(500, 600, PEER_FIN);
	ahead_put(0, 700, 0);
	ahead_expect_read(700);
	assert_int_equal(ended, 0);
	ahead_put(700, 800, PEER_FIN);
	ahead_expect_read(800);
	assert_int_equal(ended, 1);
}

/* Does not close at once. */
static void read_and_stay(struct net_conn *c, void *arg)
{
	ahead_read_all(c, arg);
	coro_sleep_ns(1000000000);
}

static void test_data_behind_a_fin_is_dropped(void **state)
{
	ahead_connect(read_and_stay, true);
	ahead_put(1000, 1100, 0);
	ahead_put(2000, 2100, 0);
	ahead_put(0, 500, PEER_FIN);
	ahead_expect_read(500);
	assert_int_equal(ended, 1);
	assert_int_equal(net_here()->ooseq_held, 0);
	assert_int_equal(ahead_conn->pcb.state, CLOSE_WAIT);
	ahead_put(1000, 1100, 0); /* nor is it accepted afterwards */
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, 0);
	run_ms(1100);
}

/* ---- other fields of the segment ---- */

static void send_much(struct net_conn *c, void *arg)
{
	static const uint8_t block[20000];

	ahead_conn = c;
	result = net_send_all(c, block, sizeof(block));
	ahead_read_all(c, arg);
}

static void test_ack_and_window_of_data_out_of_order_are_used(void **state)
{
	struct peer at;
	struct segment s;

	ahead_connect(send_much, true);
	while (peer_next(&s))
		;
	at = ahead_peer;
	at.snd = FIRST + 1000;
	at.rcv = ahead_peer.rcv + 3000;
	at.wnd = 777;
	peer_send(&at, PEER_ACK, "ahead", 5);
	run_rounds(1);
	assert_int_equal(ahead_conn->pcb.lastack, ahead_peer.rcv + 3000);
	assert_int_equal(ahead_conn->pcb.snd_wnd, 777u << 4);
	ahead_expect_held(1);
}

static void test_window_of_data_out_of_order_is_used(void **state)
{
	struct peer at;
	struct segment s;

	ahead_connect(send_much, true);
	while (peer_next(&s))
		;
	at = ahead_peer;
	at.snd = FIRST + 1000;
	at.wnd = 888;
	peer_send(&at, PEER_ACK, "ahead", 5);
	run_rounds(1);
	assert_int_equal(ahead_conn->pcb.lastack, ahead_peer.rcv);
	assert_int_equal(ahead_conn->pcb.snd_wnd, 888u << 4);
	ahead_expect_held(1);
}

/* Both directions lose segments: the peer's SACK blocks come with its data. */
static void test_sack_blocks_of_data_out_of_order_are_used(void **state)
{
	uint32_t options[3] = {lwip_htonl(0x0101050a)};
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .flags = PEER_ACK,
			    .wnd = 65535,
			    .options = (const uint8_t *)options,
			    .options_len = 12,
			    .data = (const uint8_t *)"ahead",
			    .len = 5};
	struct segment sent;

	ahead_connect(send_much, true);
	while (peer_next(&sent))
		;
	s.seq = FIRST + 1000;
	s.ack = ahead_peer.rcv;
	options[1] = lwip_htonl(ahead_peer.rcv + 1460);
	options[2] = lwip_htonl(ahead_peer.rcv + 3 * 1460);
	peer_send_raw(&s);
	run_rounds(1);
	assert_true(ahead_conn->has_recovery);
	ahead_expect_held(1);
}

/* A handshake's last ACK is lost, and so is the first data behind it. */
static void test_data_out_of_order_completes_a_handshake(void **state)
{
	struct segment s;

	serve(ahead_read_all);
	ahead_conn = NULL;
	ahead_peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = 65535};
	peer_send(&ahead_peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	ahead_peer.rcv = s.seq + 1;
	ahead_put(1000, 1100, 0);
	run_rounds(2);
	assert_non_null(ahead_conn);
	ahead_expect_held(1);
	ahead_put(0, 1000, 0);
	ahead_expect_read(1100);
}

/* A segment from the peer resets the count of keepalive probes. */
static void test_data_out_of_order_resets_the_probe_counts(void **state)
{
	ahead_connect(ahead_read_all, true);
	run_ms(3000);
	ahead_conn->pcb.keep_cnt_sent = 3;
	ahead_conn->pcb.persist_probe = 3;
	ahead_put(1000, 1100, 0);
	SACKS(0, 1000, 1100);
	assert_int_equal(ahead_conn->pcb.tmr, tcp_ticks);
	assert_int_equal(ahead_conn->pcb.keep_cnt_sent, 0);
	assert_int_equal(ahead_conn->pcb.persist_probe, 0);
}

/* RFC 5681 2: a segment with data is no duplicate ACK. */
static void test_data_out_of_order_is_no_duplicate_ack(void **state)
{
	struct segment s;

	ahead_connect(send_much, false);
	while (peer_next(&s))
		;
	for (uint32_t i = 0; i < 6; i++)
		ahead_put(1000 + i * 600, 1500 + i * 600, 0);
	run_rounds(2);
	assert_false(ahead_conn->has_recovery);
	assert_int_equal(ahead_conn->pcb.dupacks, 0);
	assert_int_equal(ahead_conn->pcb.nrtx, 0);
}

/* ---- ends ---- */

static void test_data_out_of_order_is_not_kept_after_close(void **state)
{
	ahead_connect(ahead_read_nothing, true);
	ahead_put(1000, 1100, 0);
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, 0);
}

static void test_reset_frees_held_data(void **state)
{
	struct peer reset;
	struct segment s;

	ahead_connect(ahead_read_all, true);
	for (uint32_t i = 1; i < 200; i++)
		ahead_put(i * 1000, i * 1000 + 600, 0);
	while (peer_next(&s))
		;
	assert_int_equal(net_here()->ooseq_held, 199);
	assert_int_equal(fake_frames_out, 199);
	reset = ahead_peer;
	peer_send(&reset, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, 0);
	assert_int_equal(fake_frames_out, 0);
}

/*
 * Each allocation fails in turn: the data is not held, and nothing else is
 * lost.
 */
static void test_data_out_of_order_without_memory_is_dropped(void **state)
{
	struct segment s;

	ahead_connect(ahead_read_all, true);
	for (unsigned fail = 1; fail < 6; fail++) {
		net_mem_fail_after(fail);
		ahead_put(1000, 1100, 0);
		ahead_put(3000, 3100, PEER_FIN);
		net_mem_fail_after(0);
		while (peer_next(&s))
			;
	}
	ahead_put(0, 1000, 0);
	ahead_put(1000, 2000, 0);
	ahead_put(2000, 3000, 0);
	ahead_put(3000, 3100, PEER_FIN);
	ahead_expect_read(3100);
	assert_int_equal(ended, 1);
}

int main(void)
{
#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, ahead_teardown)
	const struct CMUnitTest tests[] = {
		T(test_fin_out_of_order_ends_the_stream_once_the_hole_is_filled),
		T(test_fin_out_of_order_may_have_no_data),
		T(test_second_fin_at_another_number_is_ignored),
		T(test_data_beyond_a_fin_out_of_order_replaces_it),
		T(test_data_behind_a_fin_is_dropped),
		T(test_ack_and_window_of_data_out_of_order_are_used),
		T(test_window_of_data_out_of_order_is_used),
		T(test_sack_blocks_of_data_out_of_order_are_used),
		T(test_data_out_of_order_completes_a_handshake),
		T(test_data_out_of_order_resets_the_probe_counts),
		T(test_data_out_of_order_is_no_duplicate_ack),
		T(test_data_out_of_order_is_not_kept_after_close),
		T(test_reset_frees_held_data),
		T(test_data_out_of_order_without_memory_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
