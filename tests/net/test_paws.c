/*
 * Use of timestamps, RFC 7323 4.3 and 5: the echoed timestamp, protection
 * against wrapped sequence numbers, and new SYNs in TIME_WAIT (RFC 6191).
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

#define DAY_NS (INT64_C(24 * 3600) * 1000000000)

static struct net_conn *ours;

static int set_up_long(void **state)
{
	int err = peer_listen(state);

	stamp = 1000;
	ours = NULL;
	net_here()->predicts = false;
	return err;
}

static int set_up(void **state)
{
	int err = set_up_long(state);

	net_here()->predicts = true;
	return err;
}

/* Reads until the end, all into `got`. */
static void read_all(struct net_conn *conn, void *arg)
{
	long n;

	ours = conn;
	while ((n = net_recv(conn, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

static void connect_reading(void)
{
	serve(read_all);
	stamped_connect();
}

static void expect_got(const char *data)
{
	run_rounds(3);
	assert_int_equal(got_len, strlen(data));
	assert_memory_equal(got, data, got_len);
}

/* Expects the delayed ACK with this echo. */
static void expect_ack(uint32_t echo)
{
	struct segment s = peer_wait(200);

	check_segment(&s, PEER_ACK, stamped.rcv, stamped.snd, 0);
	assert_int_equal(echo_of(&s), echo);
}

/* ---- header prediction ---- */

/*
 * Returns whether a segment bypasses net_tcp_input(), which records the flags.
 */
static bool is_predicted(uint8_t flags, const char *data)
{
	net_here()->rx_flags = 0xff;
	stamped_send(flags, data);
	run_rounds(1);
	return net_here()->rx_flags == 0xff;
}

static void test_segments_with_a_timestamp_are_predicted(void **state)
{
	connect_reading();
	assert_true(is_predicted(PEER_ACK, "data"));
	stamp += 5;
	assert_true(is_predicted(PEER_ACK | PEER_PSH, "more"));
	expect_got("datamore");
}

static void test_segments_that_need_checks_are_not_predicted(void **state)
{
	uint8_t options[] = {8, 10, 0, 0, 4, 0, 0, 0, 0, 0, 1, 1};
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .flags = PEER_ACK,
			    .wnd = 65535,
			    .options = options,
			    .options_len = sizeof(options),
			    .data = (const uint8_t *)"x",
			    .len = 1};

	connect_reading();
	stamp--;
	assert_false(is_predicted(PEER_ACK, "old"));
	stamped.snd -= 3;
	s.seq = stamped.snd;
	s.ack = stamped.rcv;
	net_here()->rx_flags = 0xff;
	peer_send_raw(
		&s); /* NOPs behind the option: accepted, without prediction */
	run_rounds(1);
	assert_int_equal(net_here()->rx_flags, PEER_ACK);
	expect_got("x");
	stamped.snd++;
	net_here()->rx_flags = 0xff;
	bare_send_at(stamped.snd, PEER_ACK, "bare");
	run_rounds(1);
	assert_int_equal(net_here()->rx_flags, PEER_ACK);
	expect_got("x");
}

/* ---- echoes ---- */

static void test_newest_timestamp_is_echoed(void **state)
{
	connect_reading();
	stamp += 10;
	stamped_send(PEER_ACK, "a");
	expect_ack(stamp);
	stamp += 10;
	stamped_send(PEER_ACK, "b");
	expect_ack(stamp);
}

/* RFC 7323 4.3: an ACK for several segments echoes the earliest. */
static void test_a_delayed_ack_echoes_the_earliest(void **state)
{
	uint32_t first;

	connect_reading();
	first = stamp += 10;
	stamped_send(PEER_ACK, "a");
	run_rounds(1);
	stamp += 10;
	stamped_send(PEER_ACK, "b");
	expect_ack(first);
	stamped_send(PEER_ACK, "c");
	expect_ack(stamp);
}

static void test_timestamp_out_of_order_is_not_echoed(void **state)
{
	struct segment s;

	connect_reading();
	stamped_send_at(stamped.snd + 1, PEER_ACK, "b", stamp + 50);
	s = expect_stamped(PEER_ACK, stamp);
	assert_int_equal(s.ack, stamped.snd);
	stamped_send_at(stamped.snd, PEER_ACK, "a", stamp + 60);
	stamped.snd += 2;
	expect_ack(stamp + 60); /* it fills the hole */
	expect_got("ab");
}

/* A duplicate with a newer timestamp is outside the window. */
static void test_timestamp_of_a_duplicate_is_not_echoed(void **state)
{
	connect_reading();
	stamped_send(PEER_ACK, "a");
	expect_ack(stamp);
	stamped_send_at(stamped.snd - 1, PEER_ACK, "a", stamp + 50);
	expect_ack(stamp);
	stamped_send_at(stamped.snd - 1, PEER_ACK, "", stamp + 50); /* asks */
	expect_ack(stamp);
}

static void test_timestamp_of_a_reset_is_not_echoed(void **state)
{
	connect_reading();
	stamped_send_at(stamped.snd + 5, PEER_RST, "", stamp + 50);
	expect_ack(stamp); /* a challenge */
	assert_int_equal(ours->pcb.ts_recent, stamp);
}

/* ---- PAWS ---- */

static void test_old_data_is_dropped_and_answered(void **state)
{
	connect_reading();
	stamped_send_at(stamped.snd, PEER_ACK, "old", stamp - 1);
	expect_ack(stamp);
	expect_got("");
	assert_int_equal(net_here()->stats.rx_unacceptable, 1);
	stamped_send(PEER_ACK, "new");
	expect_got("new");
}

static void test_ack_with_an_old_timestamp_is_ignored(void **state)
{
	uint16_t wnd;

	connect_reading();
	wnd = (uint16_t)ours->pcb.snd_wnd;
	stamped.wnd = 1;
	stamped_send_at(stamped.snd, PEER_ACK, "", stamp - 1);
	expect_ack(stamp);
	stamped_send_at(stamped.snd, PEER_ACK, "", stamp - 1);
	peer_expect_nothing(); /* one challenge at a time */
	assert_int_equal(ours->pcb.snd_wnd, wnd);
}

static void test_fin_with_an_old_timestamp_is_ignored(void **state)
{
	connect_reading();
	stamped_send_at(stamped.snd, PEER_ACK | PEER_FIN, "", stamp - 1);
	expect_ack(stamp);
	assert_int_equal(ended, 0);
}

/* Half the numbers are older than one. */
static void test_timestamps_wrap(void **state)
{
	stamp = 0xfffffffe;
	connect_reading();
	stamped_send(PEER_ACK, "a");
	expect_ack(0xfffffffe);
	stamp = 3;
	stamped_send(PEER_ACK, "b");
	expect_ack(3);
	stamped_send_at(stamped.snd, PEER_ACK, "old", 0xffffffff);
	expect_ack(3);
	stamped_send_at(stamped.snd, PEER_ACK, "old", 0x80000004);
	expect_ack(3);
	stamp = 0x80000002;
	stamped_send(PEER_ACK, "c");
	expect_ack(stamp);
	expect_got("abc");
}

/*
 * 5.3 R1 from any value: only timestamps older by less than half of the range
 * are dropped. The peer's clock wraps several times.
 */
static void test_only_segments_with_older_timestamps_are_dropped(void **state)
{
	uint32_t recent = 0xfffffff0, random = 1, delta, value;
	unsigned taken = 0, wraps = 0;

	stamp = recent;
	connect_reading();
	for (unsigned i = 0; i < 400; i++) {
		random = random * 1664525 + 1013904223;
		delta = random >> (random >> 5 & 31);
		value = random & 16 ? recent - delta : recent + delta;
		stamped_send_at(stamped.snd, PEER_ACK, "x", value);
		run_ms(50); /* its ACK has left, so the next one counts */
		while (peer_next(&(struct segment){0}))
			;
		if ((int32_t)(value - recent) >= 0) {
			wraps += value < recent;
			recent = value;
			stamped.snd++;
			taken++;
		}
		assert_int_equal(got_len, taken);
	}
	assert_true(wraps > 3 && taken > 100 && taken < 300);
}

/* RFC 7323 5.5 */
static void test_any_timestamp_is_accepted_after_24_days(void **state)
{
	connect_reading();
	fake_now_ns += 23 * DAY_NS;
	run_rounds(2);
	stamped_send_at(stamped.snd, PEER_ACK, "old", stamp - 1);
	expect_ack(stamp);
	expect_got("");
	fake_now_ns += 2 * DAY_NS;
	run_rounds(2);
	stamp -= 100;
	stamped_send(PEER_ACK, "late");
	expect_ack(stamp); /* from here on it counts again */
	expect_got("late");
	stamped_send_at(stamped.snd, PEER_ACK, "old", stamp - 1);
	expect_ack(stamp);
	expect_got("late");
}

static void test_a_reset_needs_no_timestamp(void **state)
{
	connect_reading();
	bare_send_at(stamped.snd, PEER_RST, "");
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
}

static void test_reset_may_have_an_old_timestamp(void **state)
{
	connect_reading();
	stamped_send_at(stamped.snd, PEER_RST, "", stamp - 1);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
}

/* RFC 7323 3.2: dropped silently. */
static void test_segment_without_a_timestamp_is_dropped(void **state)
{
	connect_reading();
	bare_send_at(stamped.snd, PEER_ACK, "bare");
	bare_send_at(stamped.snd, PEER_ACK, "");
	run_ms(100);
	peer_expect_nothing();
	expect_got("");
	assert_int_equal(net_here()->stats.rx_unacceptable, 2);
	stamped_send(PEER_ACK, "on");
	expect_got("on");
}

/* RFC 5961 4: a restarted peer may offer no timestamps. */
static void test_syn_without_a_timestamp_is_challenged(void **state)
{
	connect_reading();
	bare_send_at(stamped.snd + 5000, PEER_SYN, "");
	expect_stamped(PEER_ACK, stamp);
	run_ms(1000);
	stamped_send_at(stamped.snd + 5000, PEER_SYN, "", stamp - 1);
	expect_stamped(PEER_ACK, stamp);
	assert_int_equal(ended, 0);
}

static void test_half_open_connections_check_timestamps(void **state)
{
	struct segment s;

	serve(read_all);
	stamped = (struct peer){1000, 7, 500, 0, 65535};
	stamped_syn(PEER_SYN, true);
	s = expect_stamped(PEER_SYN | PEER_ACK, stamp);
	stamped.rcv = s.seq + 1;
	bare_send_at(stamped.snd, PEER_ACK, "");
	run_rounds(2);
	assert_null(ours);
	stamped_send_at(stamped.snd, PEER_ACK, "", stamp - 1);
	run_rounds(2);
	assert_null(ours);
	stamped_send_at(stamped.snd - 100, PEER_ACK, "", stamp);
	expect_stamped(PEER_ACK, stamp); /* RFC 5961: that number is not it */
	assert_null(ours);
	stamped_send(PEER_ACK, "");
	run_rounds(2);
	assert_non_null(ours);
}

/* A repeated SYN only requests its answer. */
static void test_repeated_syn_updates_no_timestamp(void **state)
{
	struct segment s;

	serve(read_all);
	stamped = (struct peer){1000, 7, 500, 0, 65535};
	stamped_syn(PEER_SYN, true);
	s = expect_stamped(PEER_SYN | PEER_ACK, stamp);
	stamped.rcv = s.seq + 1;
	stamp += 1000;
	stamped_syn(PEER_SYN, true);
	expect_stamped(PEER_SYN | PEER_ACK, stamp - 1000);
	stamped_send_at(stamped.snd, PEER_ACK, "", stamp - 999);
	run_rounds(2);
	assert_non_null(ours);
	assert_int_equal(ours->pcb.ts_recent, stamp - 999);
}

/* The header claims 32 bytes, but has 24; the rest belongs to another frame. */
static void test_truncated_header_is_refused(void **state)
{
	uint8_t frame[14 + 20 + 32] = {0}, *ip = frame + 14, *tcp = ip + 20;

	connect_reading();
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, 0x0800);
	ip[0] = 0x45;
	put16(ip + 2, 20 + 24);
	ip[8] = 64;
	ip[9] = 6;
	memcpy(ip + 12, (const uint8_t[]){10, 0, 0, 2, 10, 0, 0, 1}, 8);
	put16(tcp, 1000);
	put16(tcp + 2, 7);
	put32(tcp + 4, stamped.snd);
	put32(tcp + 8, stamped.rcv);
	tcp[12] = 0x80;
	tcp[13] = PEER_ACK;
	put16(tcp + 14, 65535);
	memcpy(tcp + 20, "\1\1\10\12", 4);
	put32(tcp + 24, stamp);
	fake_receive(frame, sizeof(frame),
		     GLUE_FRAME_IP4 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK, 34);
	run_rounds(2);
	assert_int_equal(net_here()->stats.rx_bad_frame, 1);
	expect_got("");
}

/* The whole segment is refused, as for other options of a wrong length. */
static void test_options_with_a_wrong_length_are_refused(void **state)
{
	static const uint8_t lengths[] = {0, 1, 2, 9, 11, 12, 13, 255};
	uint8_t options[12] = {8};
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .flags = PEER_ACK,
			    .wnd = 65535,
			    .options = options,
			    .options_len = sizeof(options),
			    .data = (const uint8_t *)"x",
			    .len = 1};

	connect_reading();
	s.seq = stamped.snd;
	s.ack = stamped.rcv;
	put32(options + 2, stamp);
	for (unsigned i = 0; i < sizeof(lengths); i++) {
		options[1] = lengths[i];
		peer_send_raw(&s);
		run_rounds(1);
	}
	memset(options, 1, sizeof(options));
	options[10] = 8; /* and cut off */
	options[11] = 10;
	peer_send_raw(&s);
	run_rounds(2);
	assert_int_equal(net_here()->stats.rx_bad_frame, sizeof(lengths) + 1);
	expect_got("");
}

/* ---- TIME_WAIT ---- */

static void close_at_once(struct net_conn *conn, void *arg)
{
}

/* The stack closes first, which leaves a TIME_WAIT record. */
static void reach_record(void)
{
	struct segment s;

	serve(close_at_once);
	stamped_connect();
	s = expect_stamped(PEER_ACK | PEER_FIN, stamp);
	stamped.rcv = s.seq + 1;
	stamped_send(PEER_ACK | PEER_FIN, "");
	expect_ack(stamp);
	run_rounds(2);
	assert_int_equal(net_time_waits.n, 1);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_a_record_answers_with_a_timestamp(void **state)
{
	reach_record();
	fake_now_ns += 100 << 20;
	stamped_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "", stamp + 9);
	expect_ack(stamp);
}

static void test_time_wait_record_continues_the_clock(void **state)
{
	struct segment s;
	uint32_t before;

	reach_record();
	stamped_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "", stamp);
	s = expect_stamped(PEER_ACK, stamp);
	before = stamp_of(&s);
	fake_now_ns += 100 << 20;
	stamped_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "", stamp);
	s = expect_stamped(PEER_ACK, stamp);
	assert_int_equal(stamp_of(&s), before + 100);
}

/*
 * A segment with an old timestamp, or without one, does not restart its time.
 */
static void test_time_wait_record_checks_timestamps(void **state)
{
	reach_record();
	run_ms(600);
	stamped_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "", stamp - 1);
	expect_ack(stamp);
	bare_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "");
	peer_expect_nothing();
	stamped_send_at(stamped.snd, PEER_ACK, "", stamp - 1);
	expect_ack(stamp); /* a challenge */
	run_ms(600);
	assert_int_equal(net_time_waits.n, 0);
}

/* At any time at which the record is made. */
static void test_first_challenge_of_a_record_is_not_limited(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		reach_record();
		stamped_send_at(stamped.snd, PEER_ACK, "", stamp - 1);
		expect_ack(stamp);
		run_ms(3 * 512);
	}
}

static void test_record_without_timestamps_sends_none(void **state)
{
	struct segment s;
	struct peer peer;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, 1);
	reach_time_wait(&peer);
	run_rounds(2);
	stamped = peer;
	stamped_send_at(peer.snd - 1, PEER_ACK | PEER_FIN, "", 5);
	assert_true(peer_next(&s));
	assert_int_equal(s.options_len, 0);
}

/* Returns whether a SYN with this number and timestamp opens a connection */
static bool opens_connection(uint32_t seq, bool has, uint32_t value)
{
	uint64_t accepted = net_here()->n_conns;
	uint32_t was = stamp;
	struct segment s;

	run_ms(600); /* there may be another challenge */
	stamped.snd = seq + 1;
	stamp = value;
	stamped_syn(PEER_SYN, has);
	stamp = was;
	assert_true(peer_next(&s));
	if (s.flags == (PEER_SYN | PEER_ACK))
		return true;
	assert_int_equal(s.flags, PEER_ACK);
	assert_int_equal(net_here()->n_conns, accepted);
	return false;
}

/* RFC 6191 2, where the old connection had timestamps. */
static void test_later_timestamp_reopens_time_wait(void **state)
{
	reach_record();
	assert_true(opens_connection(stamped.snd - 1000, true, stamp + 1));
}

static void test_older_timestamp_does_not_reopen_time_wait(void **state)
{
	reach_record();
	assert_false(opens_connection(stamped.snd + 1000, true, stamp - 1));
}

static void test_the_same_timestamp_needs_a_later_number(void **state)
{
	uint32_t end;

	reach_record();
	end = stamped.snd;
	assert_false(opens_connection(end - 1000, true, stamp));
	run_ms(1500);
	reach_record();
	end = stamped.snd;
	assert_true(opens_connection(end + 1000, true, stamp));
}

static void test_without_a_timestamp_the_number_counts(void **state)
{
	uint32_t end;

	reach_record();
	end = stamped.snd;
	assert_false(opens_connection(end - 1000, false, 0));
	run_ms(1500);
	reach_record();
	end = stamped.snd;
	assert_true(opens_connection(end + 1000, false, 0));
}

/* A timestamp after a connection without any cannot be old. */
static void test_first_timestamp_reopens_time_wait(void **state)
{
	struct peer peer;

	serve(close_at_once);
	peer_connect(&peer, 1000, 7, 5000);
	reach_time_wait(&peer);
	run_rounds(2);
	stamped = peer;
	assert_true(opens_connection(peer.snd - 1000, true, 0x90000000));
}

static void hold_half_closed(struct net_conn *conn, void *arg)
{
	ours = conn;
	net_shutdown(conn, NET_SHUT_WR);
	coro_sleep_ns(INT64_C(3600000000000));
}

/* The same for a connection that a handler still holds. */
static void test_held_connection_in_time_wait_is_reopened(void **state)
{
	struct segment s;

	serve(hold_half_closed);
	stamped_connect();
	s = expect_stamped(PEER_ACK | PEER_FIN, stamp);
	stamped.rcv = s.seq + 1;
	stamped_send(PEER_ACK | PEER_FIN, "");
	expect_ack(stamp);
	assert_int_equal(ours->pcb.state, TIME_WAIT);
	stamped_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "", stamp - 1);
	expect_ack(stamp);
	stamped_send_at(stamped.snd - 1, PEER_ACK | PEER_FIN, "", stamp + 50);
	expect_ack(stamp); /* it lies before the window */
	assert_false(opens_connection(stamped.snd + 1000, true, stamp - 1));
	assert_true(opens_connection(stamped.snd - 3000, true, stamp + 1));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, peer_teardown)
#define LONG(name)                                                             \
	{                                                                      \
#name " without prediction", name, set_up_long, peer_teardown, \
			0                                                      \
	}
#define BOTH(name) T(name), LONG(name)
	const struct CMUnitTest tests[] = {
		T(test_segments_with_a_timestamp_are_predicted),
		T(test_segments_that_need_checks_are_not_predicted),
		BOTH(test_newest_timestamp_is_echoed),
		BOTH(test_a_delayed_ack_echoes_the_earliest),
		BOTH(test_timestamp_out_of_order_is_not_echoed),
		BOTH(test_timestamp_of_a_duplicate_is_not_echoed),
		T(test_timestamp_of_a_reset_is_not_echoed),
		BOTH(test_old_data_is_dropped_and_answered),
		T(test_ack_with_an_old_timestamp_is_ignored),
		T(test_fin_with_an_old_timestamp_is_ignored),
		BOTH(test_timestamps_wrap),
		BOTH(test_only_segments_with_older_timestamps_are_dropped),
		BOTH(test_any_timestamp_is_accepted_after_24_days),
		T(test_a_reset_needs_no_timestamp),
		T(test_reset_may_have_an_old_timestamp),
		BOTH(test_segment_without_a_timestamp_is_dropped),
		T(test_syn_without_a_timestamp_is_challenged),
		T(test_half_open_connections_check_timestamps),
		T(test_repeated_syn_updates_no_timestamp),
		T(test_truncated_header_is_refused),
		T(test_options_with_a_wrong_length_are_refused),
		T(test_a_record_answers_with_a_timestamp),
		T(test_time_wait_record_continues_the_clock),
		T(test_time_wait_record_checks_timestamps),
		T(test_first_challenge_of_a_record_is_not_limited),
		T(test_record_without_timestamps_sends_none),
		T(test_later_timestamp_reopens_time_wait),
		T(test_older_timestamp_does_not_reopen_time_wait),
		T(test_the_same_timestamp_needs_a_later_number),
		T(test_without_a_timestamp_the_number_counts),
		T(test_first_timestamp_reopens_time_wait),
		T(test_held_connection_in_time_wait_is_reopened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
