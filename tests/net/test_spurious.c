/*
 * Spurious retransmissions, detected by timestamps (Eifel, RFC 3522) or,
 * without them, by F-RTO (RFC 5682). Segments have 1,000 bytes, the round trip
 * takes 20 ms, and ten segments are in flight.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/recovery/recovery_priv.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

#define SEGS   64
#define ISN    99
#define WINDOW (10 * MSS)
#define SLOW   (UINT32_C(1) << 30) /* ssthresh before any loss */

static uint8_t data[SEGS * MSS];
static uint32_t stamps[SEGS]; /* of the first copy */
static uint32_t again[SEGS];  /* of the first that was sent again; 0: none */
static unsigned sent, resent; /* segments that were new, that were not */
static bool stamped;

static void feed_handler(struct net_conn *conn, void *arg)
{
	struct net_view view;

	ours = conn;
	net_send_all(conn, data, to_send);
	while (net_recv_view(conn, &view) > 0)
		net_view_release(conn, &view);
}

static void put_stamp(uint8_t *at, uint32_t echo)
{
	memcpy(at, "\1\1\10\12", 4);
	put32(at + 4, (uint32_t)(fake_now_ns >> 20));
	put32(at + 8, echo);
}

/* Takes the stack's segments. */
static void take_all(void)
{
	struct segment s;

	while (peer_next(&s)) {
		uint32_t at = (s.seq - base) / MSS;

		if (s.len == 0)
			continue;
		assert_true(at < SEGS);
		if (at < sent) {
			resent++;
			if (stamped && !again[at])
				again[at] = get32(s.options + 4);
			continue;
		}
		assert_int_equal(at, sent);
		sent++;
		if (stamped)
			stamps[at] = get32(s.options + 4);
	}
}

static void send_sack(uint8_t flags, unsigned next, uint32_t echo,
		      unsigned from, unsigned to)
{
	uint8_t options[24];
	unsigned n = 0;
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .seq = ISN + 1,
			    .ack = base + next * MSS,
			    .flags = PEER_ACK | flags,
			    .wnd = 65535,
			    .options = options,
			    .data = (const uint8_t *)""};

	if (stamped) {
		put_stamp(options, echo);
		n = 12;
	}
	if (to) {
		memcpy(options + n, "\1\1\5\12", 4);
		put32(options + n + 4, base + from * MSS);
		put32(options + n + 8, base + to * MSS);
		n += 12;
	}
	s.options_len = n;
	peer_send_raw(&s);
	run_rounds(2);
	take_all();
}

static void send_ack(unsigned next, uint32_t echo)
{
	send_sack(0, next, echo, 0, 0);
}

static void connect_with(bool timestamps)
{
	uint8_t options[20] = {2, 4, MSS >> 8, MSS & 255, 4, 2, 1, 1};
	struct segment s = {.src = 1000,
			    .dst = 7,
			    .seq = ISN,
			    .flags = PEER_SYN,
			    .wnd = 65535,
			    .options = options,
			    .options_len = timestamps ? 20 : 8,
			    .data = (const uint8_t *)""};
	uint32_t echo;

	/* The MSS includes the option. */
	if (timestamps)
		put16(options + 2, MSS + 12);
	stamped = timestamps;
	to_send = sizeof(data);
	sent = resent = 0;
	memset(again, 0, sizeof(again));
	serve(feed_handler);
	put_stamp(options + 8, 0);
	peer_send_raw(&s);
	assert_true(peer_next(&s));
	base = s.seq + 1;
	echo = timestamps ? get32(s.options + s.options_len - 8) : 0;
	run_ms(RTT_MS);
	send_ack(0, echo);
	assert_int_equal(sent, 10);
	assert_int_equal(ours->pcb.mss, MSS);
}

/* Delays all ACKs for a second: the first segment is resent repeatedly. */
static void delay_spike(void)
{
	for (unsigned ms = 0; ms < 1000; ms += 10) {
		run_ms(10);
		take_all();
	}
	assert_true(resent >= 2);
	assert_int_equal(ours->recovery->state, NET_RECOVERY_LOSS);
	assert_true(ours->pcb.ssthresh < WINDOW);
}

static void expect_undone(void)
{
	assert_int_equal(net_here()->stats.cuts_undone, 1);
	assert_int_equal(ours->recovery->state, NET_RECOVERY_OPEN);
	assert_int_equal(ours->recovery->lost_bytes, 0);
	assert_true(ours->recovery->cwnd >= WINDOW);
	assert_int_equal(ours->pcb.ssthresh, SLOW);
}

static void expect_not_undone(void)
{
	assert_int_equal(net_here()->stats.cuts_undone, 0);
	assert_true(ours->pcb.ssthresh < WINDOW);
}

/* Checks that the other segments arrive without another retransmission. */
static void expect_the_rest_once(uint32_t echo)
{
	unsigned before = resent;

	for (unsigned i = 0;
	     i < 200 && ours->pcb.lastack != base + sizeof(data); i++) {
		run_ms(RTT_MS);
		take_all();
		send_ack(sent, echo);
	}
	assert_int_equal(sent, SEGS);
	assert_int_equal(resent, before);
	assert_int_equal(ours->pcb.lastack, base + sizeof(data));
}

/* ---- Eifel ---- */

static void test_late_ack_of_the_original_undoes_a_timeout(void **state)
{
	connect_with(true);
	delay_spike();
	send_ack(2, stamps[0]);
	expect_undone();
	expect_the_rest_once(stamps[1]);
}

/*
 * The echo is that of the retransmission: the original was lost, and others may
 * be lost too.
 */
static void test_ack_of_the_retransmission_undoes_nothing(void **state)
{
	unsigned before;

	connect_with(true);
	delay_spike();
	before = resent;
	send_ack(1, again[0]);
	expect_not_undone();
	assert_int_equal(ours->recovery->state, NET_RECOVERY_LOSS);
	assert_true(resent > before);
}

/* Three segments overtake one, whose retransmission is spurious. */
static void test_reordering_is_undone_by_the_echo(void **state)
{
	connect_with(true);
	run_ms(RTT_MS);
	send_sack(0, 0, stamps[0], 1, 4);
	assert_int_equal(resent, 1);
	assert_int_equal(ours->pcb.ssthresh, 7 * MSS);
	send_ack(5, stamps[0]);
	expect_undone();
	expect_the_rest_once(stamps[1]);
}

static void test_a_loss_is_not_undone(void **state)
{
	connect_with(true);
	run_ms(RTT_MS);
	send_sack(0, 0, stamps[0], 1, 4);
	assert_int_equal(resent, 1);
	run_ms(RTT_MS);
	send_ack(10, again[0]);
	expect_not_undone();
}

/* RFC 4015 3: congestion was also signalled by ECN. */
static void test_timeout_with_an_ecn_echo_is_not_undone(void **state)
{
	connect_with(true);
	tcp_set_flags(&ours->pcb, NET_TF_ECN);
	delay_spike();
	send_sack(PEER_ECE, 2, stamps[0], 0, 0);
	send_ack(3, stamps[0]);
	expect_not_undone();
}

/* A lying peer echoes a timestamp older than any segment. */
static void test_reduction_is_undone_once(void **state)
{
	connect_with(true);
	delay_spike();
	send_ack(2, stamps[0]);
	expect_undone();
	send_sack(0, 3, stamps[0], 0, 1); /* D-SACKs of the copies */
	send_sack(0, 4, stamps[0], 0, 1);
	assert_int_equal(net_here()->stats.cuts_undone, 1);
}

/* RFC 7323 4: retransmissions give RTT samples, too. */
static void
test_echoed_timestamp_of_a_retransmission_gives_an_rtt_sample(void **state)
{
	uint32_t before_us, ms;

	connect_with(true);
	delay_spike();
	before_us = ours->srtt_us >> 3;
	ms = (uint32_t)((fake_now_ns >> 20) + ours->pcb.ts_offset - again[0]);
	send_ack(1, again[0]);
	/* One sample of some hundred ms, an eighth of it. */
	assert_true(ms > 300);
	assert_in_range((ours->srtt_us >> 3) - before_us,
			(ms - RTT_MS) * 1024 / 8 - 3000,
			(ms - RTT_MS + 2) * 1024 / 8 + 3000);
}

static void
test_retransmission_without_timestamps_gives_no_rtt_sample(void **state)
{
	uint32_t before_us;

	connect_with(false);
	delay_spike();
	before_us = ours->srtt_us;
	send_ack(1, 0);
	assert_int_equal(ours->srtt_us, before_us);
}

/* ---- F-RTO ---- */

/*
 * After the first ACK two new segments leave instead of retransmissions; the
 * second ACK shows that the timeout was spurious.
 */
static void test_frto_undoes_a_timeout(void **state)
{
	unsigned news, copies;

	connect_with(false);
	delay_spike();
	news = sent;
	copies = resent;
	send_ack(1, 0);
	assert_int_equal(sent, news + 2);
	assert_int_equal(resent, copies);
	assert_int_equal(net_here()->stats.cuts_undone, 0);
	send_ack(2, 0);
	assert_int_equal(resent, copies);
	expect_undone();
	expect_the_rest_once(0);
}

/* The same by a SACK of segments that were not resent. */
static void test_frto_accepts_a_sack(void **state)
{
	connect_with(false);
	delay_spike();
	send_ack(1, 0);
	send_sack(0, 1, 0, 2, 3);
	assert_int_equal(net_here()->stats.cuts_undone, 1);
}

/* New segments arrive, those in flight before do not: they were lost. */
static void test_frto_continues_with_recovery(void **state)
{
	unsigned news, copies;

	connect_with(false);
	delay_spike();
	send_ack(1, 0);
	news = sent;
	copies = resent;
	send_sack(0, 1, 0, news - 2, news - 1);
	expect_not_undone();
	assert_true(resent > copies);
	assert_int_equal(sent, news);
}

/*
 * An ACK of everything is ambiguous: the retransmission may have filled a hole.
 */
static void test_frto_ignores_an_ack_of_everything(void **state)
{
	connect_with(false);
	delay_spike();
	send_ack(sent, 0);
	expect_not_undone();
	assert_int_equal(ours->recovery->state, NET_RECOVERY_OPEN);
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_late_ack_of_the_original_undoes_a_timeout),
		T(test_ack_of_the_retransmission_undoes_nothing),
		T(test_reordering_is_undone_by_the_echo),
		T(test_a_loss_is_not_undone),
		T(test_timeout_with_an_ecn_echo_is_not_undone),
		T(test_reduction_is_undone_once),
		T(test_echoed_timestamp_of_a_retransmission_gives_an_rtt_sample),
		T(test_retransmission_without_timestamps_gives_no_rtt_sample),
		T(test_frto_undoes_a_timeout),
		T(test_frto_accepts_a_sack),
		T(test_frto_continues_with_recovery),
		T(test_frto_ignores_an_ack_of_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
