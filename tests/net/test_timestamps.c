/*
 * Timestamps, RFC 7323: agreement, and the option on every sent segment. Their
 * use is in test_paws.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/stamped.h"

#define BACKLOG 8

static struct net_conn *ours; /* of the handler */
static size_t to_send;

static int set_up(void **state)
{
	stamp = 1000;
	ours = NULL;
	return peer_listen(state);
}

static int set_up_off(void **state)
{
	int err = set_up(state);

	net_here()->timestamps_off = true;
	return err;
}

/* Sends to_send bytes, then stays. */
static void send_and_read(struct net_conn *conn, void *arg)
{
	static uint8_t data[20000];

	ours = conn;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	if (to_send)
		net_send_all(conn, data, to_send);
	coro_sleep_ns(INT64_C(3600000000000));
}

static void *dial_peer(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &conn);
	if (result == 0)
		send_and_read(conn, NULL);
	return NULL;
}

static void connect_feeding(size_t bytes)
{
	to_send = bytes;
	serve(send_and_read);
	stamped_connect();
}

/* ---- agreement ---- */

static void test_offered_timestamps_are_answered(void **state)
{
	struct segment s;

	connect_feeding(5);
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	assert_int_equal(s.len, 5);
	assert_int_equal(s.options_len, STAMP_BYTES);
	assert_memory_equal(s.options, "\1\1\10\12", 4);
}

static void test_syn_without_timestamps_gets_none(void **state)
{
	struct segment s;
	struct peer peer;

	to_send = 5;
	serve(send_and_read);
	s = peer_open(&peer, 1, (const uint8_t *)"\2\4\5\264", 4);
	assert_false(has_stamp(&s));
	peer_send(&peer, PEER_ACK, NULL, 0);
	expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 5);
	assert_int_equal(s.options_len, 0);
}

static void test_timestamps_off_answers_without(void **state)
{
	struct segment s;

	to_send = 5;
	serve(send_and_read);
	stamped = (struct peer){1000, 7, 1, 0, 65535};
	stamped_syn(PEER_SYN, true);
	expect(&s, PEER_SYN | PEER_ACK, ANY, ANY, 0);
	assert_false(has_stamp(&s));
	stamped.rcv = s.seq + 1;
	stamped_send(PEER_ACK, ""); /* RFC 7323 3.2: it is ignored */
	expect(&s, PEER_ACK | PEER_PSH, stamped.rcv, stamped.snd, 5);
	assert_false(has_stamp(&s));
}

/* The stack dials port 80; the peer may answer. */
static struct segment expect_dialed(void)
{
	struct segment s;

	net_spawn(stack, "dial", dial_peer, NULL);
	expect(&s, PEER_SYN, ANY, 0, 0);
	stamped = (struct peer){80, s.src, 500, s.seq + 1, 65535};
	return s;
}

static void test_dial_offers_timestamps(void **state)
{
	struct segment s = expect_dialed();

	assert_int_equal(echo_of(&s), 0);
	assert_int_not_equal(stamp_of(&s), (uint32_t)(fake_now_ns >> 20));
	to_send = 5;
	stamped_syn(PEER_SYN | PEER_ACK, true);
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	assert_int_equal(s.len, 5);
	assert_int_equal(net_here()->stats.dialed, 1);
}

static void test_syn_ack_without_timestamps_disables_them(void **state)
{
	struct segment s = expect_dialed();

	assert_true(has_stamp(&s));
	to_send = 5;
	stamped_syn(PEER_SYN | PEER_ACK, false);
	expect(&s, PEER_ACK | PEER_PSH, stamped.rcv, ANY, 5);
	assert_int_equal(s.options_len, 0);
	assert_int_equal(ours->pcb.mss, 1460);
}

static void test_timestamps_off_dials_without(void **state)
{
	struct segment s = expect_dialed();

	assert_false(has_stamp(&s));
	to_send = 5;
	stamped_syn(PEER_SYN | PEER_ACK, true); /* without an offer */
	assert_true(peer_next(&s));
	assert_false(has_stamp(&s));
}

/* An ACK of data never sent comes from an old connection. */
static void test_wrong_syn_ack_does_not_agree_on_timestamps(void **state)
{
	struct segment s = expect_dialed();

	stamped.rcv += 9;
	stamped_syn(PEER_SYN | PEER_ACK, false);
	expect(&s, PEER_RST, stamped.rcv, 0, 0);
	assert_false(has_stamp(&s));
	stamped.rcv -= 9;
	stamped_syn(PEER_SYN | PEER_ACK, true);
	do
		assert_true(peer_next(&s));
	while (s.flags & PEER_SYN);
	assert_int_equal(echo_of(&s), stamp);
}

static void test_crossing_syns_agree_on_timestamps(void **state)
{
	struct segment s = expect_dialed();

	to_send = 5;
	stamped_syn(PEER_SYN, true);
	expect_stamped(PEER_SYN | PEER_ACK, stamp);
	stamp++;
	stamped_syn(PEER_SYN | PEER_ACK, true);
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	assert_int_equal(s.len, 5);
}

static void test_crossing_syn_without_timestamps_disables_them(void **state)
{
	struct segment s = expect_dialed();

	to_send = 5;
	stamped_syn(PEER_SYN, false);
	expect(&s, PEER_SYN | PEER_ACK, ANY, ANY, ANY);
	assert_false(has_stamp(&s));
	stamped_syn(PEER_SYN | PEER_ACK, false);
	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	assert_int_equal(s.options_len, 0);
}

static struct net_conn *dialed(void)
{
	for (struct net_conn **b = net_here()->buckets;
	     b <= net_here()->buckets + net_here()->bucket_mask; b++)
		for (struct net_conn *conn = *b; conn;
		     conn = conn->pcb.hash_next)
			if (conn->connecting)
				return conn;
	return NULL;
}

/* The option was never written, so it must not be sent. */
static void test_unsent_syn_withdraws_its_timestamp_offer(void **state)
{
	struct segment s;

	connect_feeding(0); /* the neighbour is known */
	fake_tx_budget = 0;
	net_spawn(stack, "dial", dial_peer, NULL);
	run_rounds(2);
	assert_non_null(dialed());
	stamped = (struct peer){80, dialed()->pcb.local_port, 500, 0, 65535};
	fake_tx_budget = -1;
	stamped_syn(PEER_SYN, false);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_ACK));
	assert_false(has_stamp(&s));
	assert_int_equal(s.options_len, 24);
	assert_memory_equal(s.options + 12, "\1\1\1\1\1\1\1\1\1\1\1\1", 12);
}

/* ---- cookies ---- */

static void flood_syns(void)
{
	for (unsigned i = 0; i < BACKLOG; i++) {
		peer_send_syn_of((const uint8_t[]){10, 0, 0, 2},
				 (uint16_t)(20000 + i));
		expect(NULL, PEER_SYN | PEER_ACK, ANY, 100, 0);
	}
}

static void get_cookie(bool has)
{
	struct segment s;

	stamped = (struct peer){1000, 7, 500, 0, 65535};
	stamped_syn(PEER_SYN, has);
	assert_true(peer_next(&s));
	assert_int_equal(net_here()->stats.cookies_sent, 1);
	assert_int_equal(has_stamp(&s), has);
	stamped.rcv = s.seq + 1;
	if (has) { /* to be echoed */
		assert_int_equal(echo_of(&s), stamp);
		stamped_syn(PEER_SYN, true);
		expect_stamped(PEER_SYN | PEER_ACK, stamp);
	}
}

static void test_cookie_agrees_on_timestamps(void **state)
{
	struct segment s;

	to_send = 5;
	serve(send_and_read);
	flood_syns();
	get_cookie(true);
	run_ms(50);
	stamp += 50;
	stamped_send(PEER_ACK, "");
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	assert_int_equal(s.len, 5);
	assert_int_equal(net_here()->stats.cookies_accepted, 1);
	assert_int_equal(ours->pcb.mss, 1460 - STAMP_BYTES);
}

static void test_cookie_without_timestamps_agrees_on_none(void **state)
{
	struct segment s;

	to_send = 5;
	serve(send_and_read);
	flood_syns();
	get_cookie(false);
	stamped_send(PEER_ACK, ""); /* it has received none to echo */
	expect(&s, PEER_ACK | PEER_PSH, stamped.rcv, stamped.snd, 5);
	assert_int_equal(s.options_len, 0);
	assert_int_equal(ours->pcb.mss, 1460);
}

/*
 * The clock continues from the cookie's; the cookie's last bit encodes ECN, for
 * which it went back by one or two.
 */
static void test_connection_continues_the_cookies_clock(void **state)
{
	struct segment s;
	uint32_t before;

	to_send = 5;
	serve(send_and_read);
	flood_syns();
	stamped = (struct peer){1000, 7, 500, 0, 65535};
	stamped_syn(PEER_SYN, true);
	s = expect_stamped(PEER_SYN | PEER_ACK, stamp);
	before = stamp_of(&s);
	stamped.rcv = s.seq + 1;
	fake_now_ns += 10 << 20;
	stamped_send(PEER_ACK, "");
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	assert_in_range(stamp_of(&s), before + 10, before + 12);
}

/* ---- the clock ---- */

static void test_the_clock_ticks_each_millisecond_or_so(void **state)
{
	struct segment s;
	uint32_t before;

	connect_feeding(5);
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	before = stamp_of(&s);
	stamped.rcv += 5;
	stamped_send(PEER_ACK, "");
	fake_now_ns += INT64_C(100) << 20;
	stamped_send(PEER_ACK, "x");
	s = peer_wait(100);
	assert_in_range(stamp_of(&s) - before, 100, 150);
}

/* RFC 7323 7.1: timestamps do not reveal the uptime. */
static void test_each_connection_has_its_own_timestamp_offset(void **state)
{
	struct segment s;
	uint32_t first;

	stamped = (struct peer){1000, 7, 500, 0, 65535};
	stamped_syn(PEER_SYN, true);
	assert_true(peer_next(&s));
	first = stamp_of(&s);
	assert_int_not_equal(first, (uint32_t)(fake_now_ns >> 20));
	stamped.port = 1001;
	stamped_syn(PEER_SYN, true);
	assert_true(peer_next(&s));
	assert_int_not_equal(stamp_of(&s), first);
}

/* ---- sent segments ---- */

static void test_full_segments_leave_room_for_the_option(void **state)
{
	struct segment s;

	connect_feeding(5000);
	assert_int_equal(ours->pcb.mss, 1460 - STAMP_BYTES);
	for (unsigned at = 0; at < 5000; at += s.len) {
		expect(&s, ANY, stamped.rcv + at, ANY,
		       5000 - at > 1448 ? 1448 : 5000 - at);
		assert_int_equal(s.options_len, STAMP_BYTES);
		for (unsigned i = 0; i < s.len; i++)
			assert_int_equal(s.data[i], (uint8_t)((at + i) * 7));
	}
}

static void test_sent_data_is_predicted(void **state)
{
	struct segment s;

	connect_feeding(5); /* the neighbour is known from then on */
	expect_stamped(PEER_ACK | PEER_PSH, stamp);
	stamped.rcv += 5;
	stamped_send(PEER_ACK, "");
	run_rounds(2);
	net_here()->predicts = true; /* or CORONET_PREDICT has turned it off */
	assert_int_equal(net_predict_write(ours, "data", 4), ERR_OK);
	assert_true(net_predict_output(ours));
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	assert_int_equal(s.len, 4);
	assert_memory_equal(s.data, "data", 4);
}

/* A peer's smallest MSS counts the option, too. */
static void test_option_shortens_segments_of_the_smallest_mss(void **state)
{
	static const uint8_t options[] = {2, 4, 0, 216, 1, 1, 8, 10,
					  0, 0, 0, 1,	0, 0, 0, 0};
	struct peer peer;

	to_send = 1000;
	serve(send_and_read);
	peer_open(&peer, 1, options, sizeof(options));
	stamped = peer;
	stamped_send(PEER_ACK, "");
	expect(NULL, ANY, ANY, ANY, 216 - STAMP_BYTES);
}

/* Resent twice, from unsent and from unacked, as lent and as copied data. */
static void test_retransmission_has_a_current_timestamp(void **state)
{
	struct segment first, s;
	uint32_t before;

	connect_feeding(5);
	first = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	before = stamp_of(&first);
	stamp += 7;
	stamped_send(PEER_ACK, ""); /* nothing new but the timestamp */
	for (unsigned i = 0; i < 3; i++) {
		s = peer_wait(5000);
		check_segment(&s, PEER_ACK | PEER_PSH, first.seq, stamped.snd,
			      5);
		assert_int_equal(echo_of(&s), stamp);
		assert_true(stamp_of(&s) - before - 1 < 10000);
		before = stamp_of(&s);
	}
}

static void test_fin_and_its_ack_have_a_timestamp(void **state)
{
	struct segment s;

	serve(echo_views);
	stamped_connect();
	stamped_send(PEER_ACK | PEER_FIN, "");
	s = expect_stamped(PEER_ACK | PEER_FIN, stamp);
	assert_int_equal(s.options_len, STAMP_BYTES);
}

static void test_reset_has_a_timestamp(void **state)
{
	struct segment s;

	connect_feeding(0);
	net_abort(ours);
	s = expect_stamped(PEER_RST | PEER_ACK, stamp);
	assert_int_equal(s.seq, stamped.rcv);
	ours = NULL;
}

static void test_keepalive_probe_has_a_timestamp(void **state)
{
	struct segment s;

	connect_feeding(0);
	net_set_keepalive(ours, 1, 1, 5);
	stamp += 3;
	stamped_send(PEER_ACK, "");
	s = peer_wait(3000);
	assert_int_equal(s.seq, stamped.rcv - 1);
	assert_int_equal(echo_of(&s), stamp);
}

static void test_persist_probe_has_a_timestamp(void **state)
{
	struct segment s;

	to_send = 100;
	serve(send_and_read);
	stamped_connect();
	s = expect_stamped(PEER_ACK | PEER_PSH, stamp);
	stamped.rcv += 100;
	stamped.wnd = 0;
	stamped_send(PEER_ACK, "");
	run_rounds(2);
	net_here()->now_ns = fake_now_ns;
	assert_int_equal(tcp_write(&ours->pcb, "more", 4, TCP_WRITE_FLAG_COPY),
			 ERR_OK);
	net_conn_queue_output(ours);
	s = peer_wait(5000);
	check_segment(&s, PEER_ACK, stamped.rcv - 1, stamped.snd, 0);
	assert_int_equal(echo_of(&s), stamp);
}

/*
 * tcp_split_unsent_seg(): the probe splits off the part that fits the window.
 */
static void test_segment_split_for_a_small_window_has_a_timestamp(void **state)
{
	uint8_t all[100];
	unsigned got_bytes = 0;
	struct segment s;

	to_send = 100;
	serve(send_and_read);
	stamped = (struct peer){1000, 7, 500, 0, 30};
	stamped_syn(PEER_SYN, true);
	s = expect_stamped(PEER_SYN | PEER_ACK, stamp);
	stamped.rcv = s.seq + 1;
	stamped_send(PEER_ACK, "");
	while (got_bytes < sizeof(all)) {
		s = peer_wait(5000);
		assert_int_equal(echo_of(&s), stamp);
		if (s.len == 0)
			continue;
		assert_int_equal(s.seq, stamped.rcv);
		assert_in_range(s.len, 1, 30);
		memcpy(all + got_bytes, s.data, s.len);
		got_bytes += s.len;
		stamped.rcv += s.len;
		stamped_send(PEER_ACK, "");
	}
	for (unsigned i = 0; i < sizeof(all); i++)
		assert_int_equal(all[i], (uint8_t)(i * 7));
}

static void test_challenge_ack_has_a_timestamp(void **state)
{
	connect_feeding(0);
	stamped_send_at(stamped.snd + 9, PEER_RST, "", stamp);
	expect_stamped(PEER_ACK, stamp);
}

/* 12 bytes and 28 are 40, the maximum. */
static void test_sack_leaves_room_for_the_timestamp(void **state)
{
	struct segment s;

	connect_feeding(0);
	for (unsigned i = 1; i <= 5; i++) {
		stamped_send_at(stamped.snd + 100 * i, PEER_ACK, "ahead",
				stamp);
		s = expect_stamped(PEER_ACK, stamp);
		assert_int_equal(s.options_len,
				 STAMP_BYTES + 4 + 8 * (i < 3 ? i : 3));
		assert_int_equal(s.options[2], 5);
		assert_int_equal(get32(s.options + 4), stamped.snd + 100 * i);
	}
}

/* The peer's SACK is found behind its timestamp; both without padding. */
static void test_sack_behind_a_timestamp_is_used(void **state)
{
	uint8_t options[20] = {8, 10};
	struct segment s, sack;

	connect_feeding(8000);
	for (unsigned i = 0; i < 6; i++)
		assert_true(peer_next(&s));
	put32(options + 2, stamp);
	put32(options + 6, stamp_of(&s));
	options[10] = 5;
	options[11] = 10;
	put32(options + 12, stamped.rcv + 2896);
	put32(options + 16, stamped.rcv + 8000);
	sack = (struct segment){.src = 1000,
				.dst = 7,
				.seq = stamped.snd,
				.ack = stamped.rcv + 1448,
				.flags = PEER_ACK,
				.wnd = 65535,
				.options = options,
				.options_len = sizeof(options),
				.data = (const uint8_t *)""};
	peer_send_raw(&sack);
	/* Three beyond it have arrived. */
	expect(&s, ANY, stamped.rcv + 1448, stamped.snd, 1448);
}

/* Segments too long for a router are split; the option counts. */
static void test_segments_split_for_the_path_fit_with_the_option(void **state)
{
	unsigned got_bytes = 0;
	struct segment s;

	connect_feeding(5000);
	for (unsigned i = 0; i < 4; i++)
		assert_true(peer_next(&s));
	net_pcb_show(&ours->pcb);
	net_path_too_big(ours, 1000);
	net_pcbs_take_back();
	while (got_bytes < 5000) {
		s = peer_wait(1000);
		assert_in_range(s.len, 1, 1000 - 40 - STAMP_BYTES);
		assert_int_equal(echo_of(&s), stamp);
		assert_int_equal(s.seq, stamped.rcv);
		for (unsigned i = 0; i < s.len; i++)
			assert_int_equal(s.data[i],
					 (uint8_t)((got_bytes + i) * 7));
		got_bytes += s.len;
		stamped.rcv += s.len;
		stamped_send(PEER_ACK, "");
	}
}

/* Reports the segment as a duplicate by D-SACK (RFC 2883). */
static void say_twice(const struct segment *s)
{
	uint8_t options[20] = {8, 10};
	struct segment ack = {.src = 1000,
			      .dst = 7,
			      .seq = stamped.snd,
			      .ack = s->seq + s->len,
			      .flags = PEER_ACK,
			      .wnd = 65535,
			      .options = options,
			      .options_len = sizeof(options),
			      .data = (const uint8_t *)""};

	put32(options + 2, stamp);
	put32(options + 6, stamp_of(s));
	options[10] = 5;
	options[11] = 10;
	put32(options + 12, s->seq);
	put32(options + 16, s->seq + s->len);
	peer_send_raw(&ack);
}

/*
 * A peer sends a request every 10 ms and delays its ACKs for longer: each ACK
 * goes with the next request, unless a probe triggers it at once. Its
 * timestamps give RTT samples of probed segments, too, which does not prove
 * that probes were needed.
 */
static void
test_delayed_acks_with_timestamps_lengthen_the_probe_timeout(void **state)
{
	unsigned probes = 0;
	struct segment s;

	serve(echo_views);
	stamped_connect();
	for (unsigned i = 0; i < 50; i++) {
		stamped_send(PEER_ACK | PEER_PSH, "x");
		run_rounds(2);
		expect(&s, PEER_ACK | PEER_PSH, ANY, stamped.snd, 1);
		stamped.rcv = s.seq + 1;
		for (unsigned ms = 0; ms < 10; ms++) {
			run_ms(1);
			stamp++;
			if (!peer_next(&s))
				continue;
			assert_int_equal(s.seq, stamped.rcv - 1);
			say_twice(&s);
			probes++;
		}
	}
	assert_in_range(probes, 1, 10);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, peer_teardown)
#define OFF(name)                                                              \
	cmocka_unit_test_setup_teardown(name, set_up_off, peer_teardown)
	const struct CMUnitTest tests[] = {
		T(test_offered_timestamps_are_answered),
		T(test_syn_without_timestamps_gets_none),
		OFF(test_timestamps_off_answers_without),
		T(test_dial_offers_timestamps),
		T(test_syn_ack_without_timestamps_disables_them),
		OFF(test_timestamps_off_dials_without),
		T(test_wrong_syn_ack_does_not_agree_on_timestamps),
		T(test_crossing_syns_agree_on_timestamps),
		T(test_crossing_syn_without_timestamps_disables_them),
		T(test_unsent_syn_withdraws_its_timestamp_offer),
		T(test_cookie_agrees_on_timestamps),
		T(test_cookie_without_timestamps_agrees_on_none),
		T(test_connection_continues_the_cookies_clock),
		T(test_the_clock_ticks_each_millisecond_or_so),
		T(test_each_connection_has_its_own_timestamp_offset),
		T(test_full_segments_leave_room_for_the_option),
		T(test_sent_data_is_predicted),
		T(test_option_shortens_segments_of_the_smallest_mss),
		T(test_retransmission_has_a_current_timestamp),
		T(test_fin_and_its_ack_have_a_timestamp),
		T(test_reset_has_a_timestamp),
		T(test_keepalive_probe_has_a_timestamp),
		T(test_persist_probe_has_a_timestamp),
		T(test_segment_split_for_a_small_window_has_a_timestamp),
		T(test_challenge_ack_has_a_timestamp),
		T(test_sack_leaves_room_for_the_timestamp),
		T(test_sack_behind_a_timestamp_is_used),
		T(test_delayed_acks_with_timestamps_lengthen_the_probe_timeout),
		T(test_segments_split_for_the_path_fit_with_the_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
