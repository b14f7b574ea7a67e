/* The connection trace: the exact contents of a ring for known exchanges. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"
#include "tests/net/traced.h"

/* ---- recorded events ---- */

static void test_trace_of_an_exchange_is_complete(void **state)
{
	struct peer p;
	struct segment s;

	traced_first(1);
	serve(traced_echo);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	expect_trace(net_trace_of(traced_conn),
		     "0 begin accepted\n"
		     "0 in flags 10 seq 1 len 0 ack 1\n"
		     "0 net_recv(100) by conn\n");
	run_ms(5);
	peer_send(&p, PEER_ACK | PEER_PSH, "hello", 5);
	s = peer_wait(1);
	p.rcv += s.len;
	expect_trace(net_trace_of(traced_conn),
		     "5 in flags 18 seq 1 len 5 ack 1\n"
		     "5 net_recv = 5 after 5 ms\n"
		     "5 net_send(5) by conn\n"
		     "5 net_send = 5 after 0 ms\n"
		     "5 net_recv(100) by conn\n"
		     "5 out flags 18 seq 1 len 5 ack 6\n");
	peer_send(&p, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	traced_drain();
	p.rcv++;
	expect_trace(net_here()->traces->first,
		     "5 in flags 11 seq 6 len 0 ack 6\n"
		     "5 state close-wait\n"
		     "5 net_recv = 0 after 0 ms\n"
		     "5 net_close(0) by conn\n"
		     "5 out flags 11 seq 6 len 0 ack 7\n"
		     "5 state last-ack\n"
		     "5 net_close = 0 after 0 ms\n");
	assert_int_equal(ended, 1);
	peer_send(&p, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(traced_rings(), 0); /* no event waits for a reader */
}

static void test_the_ring_keeps_the_last_events_in_order(void **state)
{
	const struct net_trace *trace;
	struct peer p;
	int64_t last = 0;

	traced_first(1);
	serve(traced_echo);
	peer_connect(&p, 1000, 7, 99);
	for (unsigned i = 0; i < 40; i++) {
		peer_send(&p, PEER_ACK | PEER_PSH, "x", 1);
		p.rcv += peer_wait(1).len;
		run_ms(1);
	}
	trace = net_trace_of(traced_conn);
	assert_true(trace->n > 2 * NET_TRACE_EVENTS);
	for (uint64_t i = trace->n - NET_TRACE_EVENTS; i < trace->n; i++) {
		const struct net_trace_event *e =
			&trace->events[i % NET_TRACE_EVENTS];

		assert_true(e->ns >= last);
		last = e->ns;
	}
	assert_true(last >= fake_now_ns - 2000000);
}

/* Starts printing events from here on, in numbers of repair.c's stream. */
static void begin_printing(void)
{
	struct net_trace *trace = net_trace_of(ours);

	trace->iss = base - 1;
	printed_events = trace->n;
}

/* RACK resends the segments that the peer's SACK blocks show to be lost. */
static void test_a_loss_is_repaired_by_rack(void **state)
{
	traced_first(1);
	repair_connect(true, 10 * MSS);
	EXPECT_SENT(0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	run_ms(RTT_MS);
	begin_printing();
	ACK_SACK(1, 2, 10);
	EXPECT_SENT(1);
	expect_trace(net_trace_of(ours),
		     "40 in flags 10 seq 1 len 0 ack 1001 sacks 1\n"
		     "40 out flags 10 seq 1001 len 1000 ack 1 RACK\n"
		     "40 cwnd 7000 was 10000: loss\n");
	ACK(10);
	expect_trace(net_trace_of(ours),
		     "40 in flags 10 seq 1 len 0 ack 10001\n");
}

/*
 * Nothing comes back: a probe for the tail after two round trips, then a
 * timeout 140 ms after the probe, and the next one after twice as long.
 */
static void test_a_silent_peer_is_probed_and_timed_out(void **state)
{
	traced_first(1);
	repair_connect(true, 3 * MSS);
	EXPECT_SENT(0, 1, 2);
	begin_printing();
	for (unsigned i = 0; i < 2000 && net_here()->stats.rtos < 2; i++)
		run_ms(1);
	expect_trace(net_trace_of(ours),
		     "61 timer TLP 1\n"
		     "61 out flags 18 seq 2001 len 1000 ack 1 TLP\n"
		     "202 timer RTO 1\n"
		     "202 out flags 10 seq 1 len 1000 ack 1 RTO\n"
		     "202 cwnd 1000 was 10000: RTO\n"
		     "483 timer RTO 2\n"
		     "483 out flags 10 seq 1 len 1000 ack 1 RTO\n");
	traced_drain();
}

/* Three duplicates of a peer without SACK. */
static void test_duplicates_cause_a_fast_retransmission(void **state)
{
	char *text;

	traced_first(1);
	repair_connect(NO_SACK, 10 * MSS);
	EXPECT_SENT(0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	run_ms(RTT_MS);
	ACK(1);
	for (unsigned i = 0; i < 3; i++)
		ACK(1);
	text = trace_text(net_trace_of(ours));
	assert_true(has_line(text, "len 1000 ack 1 fast\n"));
	free(text);
	traced_drain();
}

static void test_trace_shows_a_closed_window_and_its_probes(void **state)
{
	char *text;

	traced_first(1);
	repair_connect(true, 4 * MSS);
	EXPECT_SENT(0, 1, 2, 3);
	run_ms(RTT_MS);
	peer.wnd = 0;
	ACK(4);
	assert_int_equal(net_trace_of(ours)->seen.snd_shut, true);
	to_send = 0;
	net_send(NULL, "", 0);
	peer.wnd = 1000;
	ACK(4);
	text = trace_text(net_trace_of(ours));
	assert_true(has_line(text, "peer's window shut\n"));
	assert_true(has_line(text, "peer's window open\n"));
	free(text);
}

static void *dial_body(void *arg)
{
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &traced_conn);
	if (result == 0)
		coro_sleep_ns(INT64_C(3000000000));
	net_abort(traced_conn);
	return NULL;
}

/* From its first SYN on, which is lost. */
static void test_trace_of_a_dial_starts_at_its_syn(void **state)
{
	struct peer p = {.port = 80, .snd = 77, .wnd = 65535};
	struct segment s;

	traced_first(1);
	net_spawn(stack, "dialer", dial_body, NULL);
	s = peer_wait(1);
	p.stack_port = s.src;
	p.rcv = s.seq + 1;
	run_ms(1100);
	assert_int_equal(peer_wait(1).flags, PEER_SYN);
	peer_send(&p, PEER_SYN | PEER_ACK, NULL, 0);
	run_rounds(2);
	traced_drain();
	expect_trace(net_here()->traces->first,
		     "0 begin dialed\n"
		     "0 out flags 2 seq 0 len 0 ack -77\n"
		     "0 state syn-sent\n"
		     "0 net_dial(0) by dialer\n"
		     "1001 timer handshake 1\n"
		     "1001 out flags 2 seq 0 len 0 ack -77 RTO\n"
		     "1100 in flags 12 seq 0 len 0 ack 1\n"
		     "1100 state established\n"
		     "1100 net_dial = 0 after 1100 ms\n"
		     "1100 out flags 10 seq 1 len 0 ack 1\n");
	run_ms(3000);
	traced_drain();
}

/* ---- resets, and why ---- */

static void test_trace_shows_a_reset_by_the_peer(void **state)
{
	struct peer p;
	char *text;

	traced_first(1);
	serve(traced_read_all);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	peer_send(&p, PEER_RST, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	text = trace_text(
		net_trace_of(traced_conn)); /* its owner still holds it */
	assert_true(has_line(text, "end reset by the peer (-104)\n"));
	assert_true(has_line(text, "net_recv_view = -104 after 0 ms\n"));
	free(text);
	run_ms(1500);
	assert_int_equal(traced_rings(), 0);
}

static void test_trace_shows_an_abort_after_the_end(void **state)
{
	struct peer p;
	struct net_trace *trace;
	char *text;

	traced_first(0);
	assert_int_equal(net_trace_watch(0, traced_wants_all, "", 1), 0);
	serve(traced_abort);
	peer_connect(&p, 1000, 7, 99);
	run_ms(3);
	traced_drain();
	trace = net_here()->traces->first;
	assert_null(trace->conn); /* it waits for a reader */
	text = trace_text(trace);
	assert_true(has_line(text, "net_abort(0) by conn\n"));
	assert_true(has_line(text, "end reset: by the application"));
	assert_true(has_line(text, "out flags 14 "));
	free(text);
	trace->reported[0] = trace->n;
	net_trace_release(trace);
	assert_int_equal(traced_rings(), 0);
}

/*
 * A reset with a wrong number ends nothing, and is not the reported reason
 * later.
 */
static void test_trace_shows_refused_segments(void **state)
{
	struct peer p;
	char *text;

	traced_first(1);
	serve(traced_read_all);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	p.snd += 100;
	peer_send(&p, PEER_RST, NULL, 0);
	p.snd -= 100;
	run_rounds(2);
	text = trace_text(net_trace_of(traced_conn));
	assert_true(has_line(text, "in flags 4 seq 101 len 0"));
	assert_true(has_line(text, " refused\n"));
	assert_true(has_line(text, "out flags 10 ")); /* the challenge */
	free(text);
	traced_drain();
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_trace_of_an_exchange_is_complete),
		TEST(test_the_ring_keeps_the_last_events_in_order),
		TEST(test_a_loss_is_repaired_by_rack),
		TEST(test_a_silent_peer_is_probed_and_timed_out),
		TEST(test_duplicates_cause_a_fast_retransmission),
		TEST(test_trace_shows_a_closed_window_and_its_probes),
		TEST(test_trace_of_a_dial_starts_at_its_syn),
		TEST(test_trace_shows_a_reset_by_the_peer),
		TEST(test_trace_shows_an_abort_after_the_end),
		TEST(test_trace_shows_refused_segments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
