/*
 * Path MTU discovery: routers that report a smaller MTU, that lie, and that
 * drop silently.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/far.h"

/* ---- routers that report an MTU ---- */

static void lowers_at_once(bool v6, unsigned mtu)
{
	far.v6 = v6;
	far.mtu = mtu;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	assert_in_range(far_download(1000), 0, 100);
	assert_int_equal(far.largest, mtu);
	assert_true(far.messages > 0);
	assert_int_equal(far_conn->pcb.mss, mtu - far_ip_bytes() - 20);
	assert_int_equal(net_here()->stats.path_mtu_lowered, 1);
	far_pass_ms();
	/* Each pbuf of the pieces was counted. */
	assert_int_equal(far_conn->pcb.snd_queuelen, 0);
	/* Only the segments of one flight were too long. */
	assert_in_range(far.too_long, 1, 10);
}

static void test_too_big_lowers_a_living_connection(void **state)
{
	lowers_at_once(true, 1280);
}

static void test_needs_fragments_lowers_a_living_connection(void **state)
{
	lowers_at_once(false, 1000);
}

/* A router older than RFC 1191 reports no MTU. */
static void test_plateaus_are_tried_without_a_reported_mtu(void **state)
{
	far.mtu = 1100;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	/* The field holds the low 16 bits: 0, which means no MTU. */
	far.says = 1u << 16;
	far_download(1000);
	assert_int_equal(far.largest, 1006);
}

static void test_too_small_mtu_is_raised_to_the_floor(void **state)
{
	static const unsigned mtus[] = {40, 61, 68, 0xffffffff};

	for (unsigned i = 0; i < 3; i++) {
		memset(net_paths, 0, NET_PATHS * sizeof(*net_paths));
		far.v6 = true;
		far.mtu = 1280;
		far.says = mtus[i];
		serve(far_feed);
		far_connect((uint16_t)(1000 + i), far_full_mss());
		far_download(1000);
		assert_int_equal(far_conn->pcb.mss, 1220);
		assert_int_equal(far.largest, 1280);
	}
	far.v6 = false;
	far.mtu = 552;
	far.says = 68;
	far_connect(1010, far_full_mss());
	far_download(1000);
	assert_int_equal(far_conn->pcb.mss, 512);
	assert_int_equal(far.largest, 552);
}

static void test_icmp_error_without_a_segment_in_flight_is_refused(void **state)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		far.v6 = v6;
		far.mtu = 0;
		serve(far_feed);
		far_connect((uint16_t)(1000 + v6), far_full_mss());
		far.deaf = true;
		far.lies = true;
		far.mtu = 1400;
		far.says = 1280;
		far_pass_ms();
		far_pass_ms();
		assert_true(far.messages > 0);
		assert_int_equal(net_here()->stats.path_mtu_refused,
				 far.messages);
		assert_int_equal(far_conn->pcb.mss, far_full_mss());
		assert_int_equal(net_path_mtu(&far_conn->pcb.remote_ip), 0);
		far.lies = far.deaf = false;
		far.mtu = 0;
		far_download(5000);
		assert_int_equal(far.largest, 1500);
	}
}

/* Messages are refused that quote another port, a sequence number outside the
 * flight, a packet that fits, a fragment, or UDP. */
static void test_icmp_error_must_quote_a_connection(void **state)
{
	uint8_t packet[40];

	serve(far_feed);
	far_connect(1000, far_full_mss());
	far.deaf = true;
	far_pass_ms();
	far_quote(packet);
	put16(packet + 22, 1001);
	far_complain(packet, 1000);
	put16(packet + 22, 1000);
	put16(packet + 20, 8);
	far_complain(packet, 1000);
	put16(packet + 20, 7);
	put32(packet + 24, far_conn->pcb.snd_nxt);
	far_complain(packet, 1000);
	put32(packet + 24, far.base - 1);
	far_complain(packet, 1000);
	put32(packet + 24, far.base);
	far_complain(packet, 1500); /* the packet fits */
	packet[9] = 17;
	far_complain(packet, 1000);
	packet[9] = 6;
	packet[6] = 1; /* a later fragment: it has no ports */
	far_complain(packet, 1000);
	run_ms(1);
	assert_int_equal(net_here()->stats.path_mtu_refused, 7);
	assert_int_equal(far_conn->pcb.mss, far_full_mss());
	packet[6] = 0;
	far_complain(packet, 1000);
	run_ms(1);
	assert_int_equal(far_conn->pcb.mss, 960);
}

/* An attacker who sees the segments and lowers the MTU byte by byte reaches the
 * floor in a few steps. */
static void test_small_steps_end_at_the_floor(void **state)
{
	uint8_t packet[40];
	unsigned steps = 0;

	serve(far_feed);
	far_connect(1000, far_full_mss());
	far.deaf = true;
	far_pass_ms();
	far_quote(packet);
	while (far_conn->pcb.mss > 512) {
		unsigned was = far_conn->pcb.mss;

		far_complain(packet, was + 40 - 1);
		run_ms(1);
		assert_true(far_conn->pcb.mss < was);
		steps++;
	}
	assert_in_range(steps, 2, 10);
}

static void test_new_connections_start_with_the_path_mtu(void **state)
{
	far.mtu = 1300;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	far_download(1000);
	far.messages = far.too_long = 0;
	far_connect(1001, far_full_mss());
	far_download(1000);
	assert_int_equal(far.too_long, 0);
	assert_int_equal(far.largest, 1300);
	far.v6 = true; /* the cache keeps each address apart */
	far.mtu = 0;
	far_connect(1002, far_full_mss());
	far_download(1000);
	assert_int_equal(far.largest, 1500);
}

static void test_path_mtu_expires_after_ten_minutes(void **state)
{
	struct net_conn *first;

	far.mtu = 1300;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	far_download(1000);
	first = far_conn;
	assert_int_equal(first->pcb.mss, 1260);
	fake_now_ns += INT64_C(599000000000);
	net_path_review(first);
	assert_int_equal(first->pcb.mss, 1260);
	fake_now_ns += INT64_C(2000000000);
	run_ms(1);
	far.mtu = 0;
	net_conn_queue_output(first); /* it has something to send */
	run_ms(1);
	assert_int_equal(first->pcb.mss, far_full_mss());
	far_connect(1001, far_full_mss());
	far_download(1000);
	assert_int_equal(far.largest, 1500);
}

/* The MSS never exceeds the peer's own, even once the path MTU has expired. */
static void test_the_peers_mss_stays_the_bound(void **state)
{
	far.mtu = 1000;
	serve(far_feed);
	far_connect(1000, 1200);
	far_download(1000);
	assert_int_equal(far_conn->pcb.mss, 960);
	fake_now_ns += INT64_C(700000000000);
	run_ms(1);
	net_path_review(far_conn);
	assert_int_equal(far_conn->pcb.mss, 1200);
}

static void test_many_destinations_do_not_grow_the_cache(void **state)
{
	ip_addr_t ip = IPADDR4_INIT_BYTES(10, 0, 0, 2);
	unsigned known = 0;

	far.mtu = 1300;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	far_download(1000);
	assert_int_equal(net_path_mtu(&ip), 1300);
	for (unsigned i = 0; i < NET_PATHS; i++)
		known += net_paths[i].mtu != 0;
	assert_int_equal(known, 1);
}

static void test_df_is_set_until_the_floor(void **state)
{
	serve(far_feed);
	far_connect(1000, far_full_mss());
	assert_true(far.df);
	far.mtu = 552;
	far.says = 400;
	far_download(1000);
	assert_false(far.df); /* routers may fragment such short packets */
}

static void test_pmtud_off_ignores_icmp_and_sets_no_df(void **state)
{
	serve(far_feed);
	far_connect(1000, far_full_mss());
	assert_false(far.df);
	far.mtu = 1400;
	for (unsigned i = 0; i < 3000; i++)
		far_pass_ms();
	assert_true(far.messages > 0);
	assert_int_equal(far_conn->pcb.mss, far_full_mss());
	assert_int_equal(net_here()->stats.path_mtu_guessed, 0);
}

/* ---- routers that drop silently ---- */

static void finds_black_hole(bool v6, unsigned mtu, unsigned guess,
			     unsigned limit_ms)
{
	far.v6 = v6;
	far.mtu = mtu;
	far.silent = true;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	assert_in_range(far_download(limit_ms), 500, limit_ms);
	assert_int_equal(far.largest, guess);
	assert_true(net_here()->stats.path_mtu_guessed > 0);
	far.too_long = 0;
	far_connect(1001, far_full_mss());
	far_download(1000);
	assert_int_equal(far.too_long, 0);
}

static void test_black_hole_is_detected_over_ipv6(void **state)
{
	finds_black_hole(true, 1300, 1280, 5000);
}

static void test_black_hole_is_detected_over_ipv4(void **state)
{
	finds_black_hole(false, 1400, 1280, 5000);
}

static void test_narrow_black_hole_takes_more_steps(void **state)
{
	finds_black_hole(false, 1000, 576, 10000);
}

/* An absent peer looks like a black hole, so a guess expires. */
static void test_guessed_mtu_expires_after_a_minute(void **state)
{
	ip_addr_t ip = IPADDR4_INIT_BYTES(10, 0, 0, 2);

	far.mtu = 1300;
	far.silent = true;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	far_download(5000);
	assert_int_equal(net_path_mtu(&ip), 1280);
	fake_now_ns += INT64_C(61000000000);
	run_ms(1);
	assert_int_equal(net_path_mtu(&ip), 0);
	far.mtu = 0;
	far_connect(1001, far_full_mss());
	far_download(1000);
	assert_int_equal(far.largest, 1500);
}

/* The loss of small segments does not indicate a small path MTU. */
static void test_small_segments_are_not_cut(void **state)
{
	far.mtu = 500;
	far.silent = true;
	far_to_send = 500;
	serve(far_feed);
	far_connect(1000, far_full_mss());
	for (unsigned i = 0; i < 5000; i++)
		far_pass_ms();
	assert_int_equal(far_conn->pcb.mss, far_full_mss());
	assert_int_equal(net_here()->stats.path_mtu_guessed, 0);
	far.mtu = 0;
	far_download(10000);
}

/* ---- the floor under every MSS ---- */

static void test_mss_of_a_handshake_is_raised_to_the_floor(void **state)
{
	serve(far_feed);
	far_to_send = 2000;
	for (unsigned mss = 1; mss < 300; mss += 37) {
		far_connect((uint16_t)(1000 + mss), mss);
		far_download(1000);
		assert_in_range(far_conn->pcb.mss, NET_MSS_FLOOR, 1460);
	}
	far_conn->pcb.mss = 1; /* as if some other code had lowered it */
	net_path_settle(far_conn);
	assert_int_equal(far_conn->pcb.mss, NET_MSS_FLOOR);
}

#define T(name) cmocka_unit_test_setup_teardown(name, far_setup, far_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_too_big_lowers_a_living_connection),
		T(test_needs_fragments_lowers_a_living_connection),
		T(test_plateaus_are_tried_without_a_reported_mtu),
		T(test_too_small_mtu_is_raised_to_the_floor),
		T(test_icmp_error_without_a_segment_in_flight_is_refused),
		T(test_icmp_error_must_quote_a_connection),
		T(test_small_steps_end_at_the_floor),
		T(test_new_connections_start_with_the_path_mtu),
		T(test_path_mtu_expires_after_ten_minutes),
		T(test_the_peers_mss_stays_the_bound),
		T(test_many_destinations_do_not_grow_the_cache),
		T(test_df_is_set_until_the_floor),
		cmocka_unit_test_setup_teardown(
			test_pmtud_off_ignores_icmp_and_sets_no_df,
			far_setup_pmtud_off, far_teardown),
		T(test_black_hole_is_detected_over_ipv6),
		T(test_black_hole_is_detected_over_ipv4),
		T(test_narrow_black_hole_takes_more_steps),
		T(test_guessed_mtu_expires_after_a_minute),
		T(test_small_segments_are_not_cut),
		T(test_mss_of_a_handshake_is_raised_to_the_floor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
