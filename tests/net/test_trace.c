/*
 * The sock trace: what a ring holds of a known exchange, word for word; who has
 * one, and what becomes of it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/asking.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

static int64_t began_ns;
static uint64_t seen; /* events that told() has given */

/* ---- what a ring holds, as text ---- */

static const char *state_name(uint32_t state)
{
	return net_state_name((enum net_tcp_state)state);
}

static void print_segment(FILE *out, const struct net_trace *trace,
			  const struct net_trace_event *e)
{
	bool in = e->kind == NET_TRACE_IN;

	fprintf(out, "%s flags %x seq %d len %u ack %d", in ? "in" : "out",
		e->flags, (int)(e->seg.seq - (in ? trace->irs : trace->iss)),
		e->seg.len, (int)(e->seg.ack - (in ? trace->iss : trace->irs)));
	if (e->sacks)
		fprintf(out, " sacks %u", e->sacks);
	if (e->what)
		fprintf(out, " %s", e->what);
}

static void print_event(FILE *out, const struct net_trace *trace,
			const struct net_trace_event *e)
{
	switch ((enum net_trace_kind)e->kind) {
	case NET_TRACE_BEGIN:
		fprintf(out, "begin %s", e->what);
		break;
	case NET_TRACE_IN:
	case NET_TRACE_OUT:
		print_segment(out, trace, e);
		break;
	case NET_TRACE_CWND:
		fprintf(out, "cwnd %u was %u: %s", e->value.now, e->value.was,
			e->what);
		break;
	case NET_TRACE_SND_WND:
		fprintf(out, "peer's window %s", e->what);
		break;
	case NET_TRACE_RCV_WND:
		fprintf(out, "window %s", e->what);
		break;
	case NET_TRACE_TIMER:
		fprintf(out, "timer %s %u", e->what, e->value.now);
		break;
	case NET_TRACE_STATE:
		fprintf(out, "state %s", state_name(e->value.now));
		break;
	case NET_TRACE_CALL:
		fprintf(out, "%s(%ld) by %s", e->what, (long)e->call.n,
			e->call.coro);
		break;
	case NET_TRACE_DONE:
		fprintf(out, "%s = %ld after %ld ms", e->what, (long)e->call.n,
			(long)(e->call.waited_ns / 1000000));
		break;
	case NET_TRACE_END:
		fprintf(out, "end %s (%ld)", e->what, (long)e->call.n);
		break;
	}
}

/*
 * What has been written since the last time, a line an event, with the ms since
 * began_ns before it; the caller's to free.
 */
static char *told(const struct net_trace *trace)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(trace);
	if (trace->n - seen > NET_TRACE_EVENTS)
		seen = trace->n - NET_TRACE_EVENTS;
	for (; seen < trace->n; seen++) {
		const struct net_trace_event *e =
			&trace->events[seen % NET_TRACE_EVENTS];

		fprintf(out, "%ld ", (long)((e->ns - began_ns) / 1000000));
		print_event(out, trace, e);
		fputc('\n', out);
	}
	fclose(out);
	return text;
}

static void expect_told(const struct net_trace *trace, const char *expected)
{
	char *text = told(trace);

	assert_string_equal(text, expected);
	free(text);
}

static bool has_line(const char *text, const char *part)
{
	bool has = strstr(text, part) != NULL;

	if (!has)
		print_message("no '%s' in:\n%s", part, text);
	return has;
}

/* ---- the harness ---- */

static struct net_conn *conn;

static void echo(struct net_conn *accepted, void *arg)
{
	char data[100];
	long n;

	conn = accepted;
	while ((n = net_recv(accepted, data, sizeof(data))) > 0)
		net_send(accepted, data, (size_t)n);
	result = n;
	net_close(accepted);
	ended++;
}

static void trace_first(unsigned n)
{
	assert_int_equal(net_traces_open(n), 0);
	began_ns = fake_now_ns;
	seen = 0;
	conn = NULL;
	ended = 0;
}

static void drain(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

static unsigned rings(void)
{
	const struct net_traces *traces = net_here()->traces;

	return traces->n_own + traces->n_extra;
}

static bool is_marked(const struct net_conn *which)
{
	bool marked = which->pcb.flags & NET_TF_TRACED;

	assert_int_equal(marked, !!(which->shard & NET_SHARD_TRACED));
	return marked;
}

/* ---- what is written ---- */

static void test_an_exchange_is_told_word_for_word(void **state)
{
	struct peer p;
	struct segment s;

	trace_first(1);
	serve(echo);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	expect_told(net_trace_of(conn), "0 begin accepted\n"
					"0 in flags 10 seq 1 len 0 ack 1\n"
					"0 net_recv(100) by conn\n");
	run_ms(5);
	peer_send(&p, PEER_ACK | PEER_PSH, "hello", 5);
	s = peer_wait(1);
	p.rcv += s.len;
	expect_told(net_trace_of(conn), "5 in flags 18 seq 1 len 5 ack 1\n"
					"5 net_recv = 5 after 5 ms\n"
					"5 net_send(5) by conn\n"
					"5 net_send = 5 after 0 ms\n"
					"5 net_recv(100) by conn\n"
					"5 out flags 18 seq 1 len 5 ack 6\n");
	peer_send(&p, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	drain();
	p.rcv++;
	expect_told(net_here()->traces->first,
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
	assert_int_equal(rings(), 0); /* nobody waits to be told */
}

static void test_the_ring_keeps_the_last_events_in_order(void **state)
{
	const struct net_trace *trace;
	struct peer p;
	int64_t last = 0;

	trace_first(1);
	serve(echo);
	peer_connect(&p, 1000, 7, 99);
	for (unsigned i = 0; i < 40; i++) {
		peer_send(&p, PEER_ACK | PEER_PSH, "x", 1);
		p.rcv += peer_wait(1).len;
		run_ms(1);
	}
	trace = net_trace_of(conn);
	assert_true(trace->n > 2 * NET_TRACE_EVENTS);
	for (uint64_t i = trace->n - NET_TRACE_EVENTS; i < trace->n; i++) {
		const struct net_trace_event *e =
			&trace->events[i % NET_TRACE_EVENTS];

		assert_true(e->ns >= last);
		last = e->ns;
	}
	assert_true(last >= fake_now_ns - 2000000);
}

/* What follows is told from here on, in numbers of repair.c's stream. */
static void begin_telling(void)
{
	struct net_trace *trace = net_trace_of(ours);

	trace->iss = base - 1;
	seen = trace->n;
}

/* What the peer's SACK blocks tell to be lost is sent again by RACK. */
static void test_a_loss_is_repaired_by_rack(void **state)
{
	trace_first(1);
	repair_connect(true, 10 * MSS);
	EXPECT_SENT(0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	run_ms(RTT_MS);
	begin_telling();
	ACK_SACK(1, 2, 10);
	EXPECT_SENT(1);
	expect_told(net_trace_of(ours),
		    "40 in flags 10 seq 1 len 0 ack 1001 sacks 1\n"
		    "40 out flags 10 seq 1001 len 1000 ack 1 RACK\n"
		    "40 cwnd 7000 was 10000: loss\n");
	ACK(10);
	expect_told(net_trace_of(ours),
		    "40 in flags 10 seq 1 len 0 ack 10001\n");
}

/*
 * Nothing comes back: a probe for the tail after two round trips, then a
 * timeout 140 ms after the probe, and the next one after twice as long.
 */
static void test_a_silent_peer_is_probed_and_timed_out(void **state)
{
	trace_first(1);
	repair_connect(true, 3 * MSS);
	EXPECT_SENT(0, 1, 2);
	begin_telling();
	for (unsigned i = 0; i < 2000 && net_here()->stats.rtos < 2; i++)
		run_ms(1);
	expect_told(net_trace_of(ours),
		    "61 timer TLP 1\n"
		    "61 out flags 18 seq 2001 len 1000 ack 1 TLP\n"
		    "202 timer RTO 1\n"
		    "202 out flags 10 seq 1 len 1000 ack 1 RTO\n"
		    "202 cwnd 1000 was 10000: RTO\n"
		    "483 timer RTO 2\n"
		    "483 out flags 10 seq 1 len 1000 ack 1 RTO\n");
	drain();
}

/* Three duplicates of a peer without SACK. */
static void test_duplicates_cause_a_fast_retransmission(void **state)
{
	char *text;

	trace_first(1);
	repair_connect(NO_SACK, 10 * MSS);
	EXPECT_SENT(0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	run_ms(RTT_MS);
	ACK(1);
	for (unsigned i = 0; i < 3; i++)
		ACK(1);
	text = told(net_trace_of(ours));
	assert_true(has_line(text, "len 1000 ack 1 fast\n"));
	free(text);
	drain();
}

static void test_a_shut_window_is_told_and_probed(void **state)
{
	char *text;

	trace_first(1);
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
	text = told(net_trace_of(ours));
	assert_true(has_line(text, "peer's window shut\n"));
	assert_true(has_line(text, "peer's window open\n"));
	free(text);
}

static void *dial_body(void *arg)
{
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &conn);
	if (result == 0)
		coro_sleep_ns(INT64_C(3000000000));
	net_abort(conn);
	return NULL;
}

/* From its first SYN on, which is lost. */
static void test_a_dialed_connection_is_told_from_its_syn(void **state)
{
	struct peer p = {.port = 80, .snd = 77, .wnd = 65535};
	struct segment s;

	trace_first(1);
	net_spawn(stack, "dialer", dial_body, NULL);
	s = peer_wait(1);
	p.stack_port = s.src;
	p.rcv = s.seq + 1;
	run_ms(1100);
	assert_int_equal(peer_wait(1).flags, PEER_SYN);
	peer_send(&p, PEER_SYN | PEER_ACK, NULL, 0);
	run_rounds(2);
	drain();
	expect_told(net_here()->traces->first,
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
	drain();
}

/* ---- resets, and why ---- */

static void read_to_the_end(struct net_conn *accepted, void *arg)
{
	struct net_view view;

	conn = accepted;
	while ((result = net_recv_view(accepted, &view)) > 0)
		net_view_release(accepted, &view);
	ended++;
	coro_sleep_ns(1000000000);
	net_close(accepted);
}

static void test_a_reset_by_the_peer_is_told_as_such(void **state)
{
	struct peer p;
	char *text;

	trace_first(1);
	serve(read_to_the_end);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	peer_send(&p, PEER_RST, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	text = told(net_trace_of(conn)); /* its owner holds it still */
	assert_true(has_line(text, "end reset by the peer (-104)\n"));
	assert_true(has_line(text, "net_recv_view = -104 after 0 ms\n"));
	free(text);
	run_ms(1500);
	assert_int_equal(rings(), 0);
}

static void abort_it(struct net_conn *accepted, void *arg)
{
	conn = accepted;
	coro_sleep_ns(1000000);
	net_abort(accepted);
}

/* A watch of every connection. */
static bool wants_all(const void *filter, const struct net_conn *which)
{
	return true;
}

static void test_an_abort_is_told_after_the_end(void **state)
{
	struct peer p;
	struct net_trace *trace;
	char *text;

	trace_first(0);
	assert_int_equal(net_trace_watch(0, wants_all, "", 1), 0);
	serve(abort_it);
	peer_connect(&p, 1000, 7, 99);
	run_ms(3);
	drain();
	trace = net_here()->traces->first;
	assert_null(trace->conn); /* it waits to be told */
	text = told(trace);
	assert_true(has_line(text, "net_abort(0) by conn\n"));
	assert_true(has_line(text, "end reset: by the application"));
	assert_true(has_line(text, "out flags 14 "));
	free(text);
	trace->told[0] = trace->n;
	net_trace_release(trace);
	assert_int_equal(rings(), 0);
}

/* A reset whose number is wrong ends nothing, and is not the reason later. */
static void test_what_is_refused_is_told_as_such(void **state)
{
	struct peer p;
	char *text;

	trace_first(1);
	serve(read_to_the_end);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	p.snd += 100;
	peer_send(&p, PEER_RST, NULL, 0);
	p.snd -= 100;
	run_rounds(2);
	text = told(net_trace_of(conn));
	assert_true(has_line(text, "in flags 4 seq 101 len 0"));
	assert_true(has_line(text, " refused\n"));
	assert_true(has_line(text, "out flags 10 ")); /* the challenge */
	free(text);
	drain();
}

/* ---- who has a ring ---- */

static void test_as_many_have_a_ring_as_were_asked_for(void **state)
{
	struct peer p[4];

	trace_first(2);
	serve(read_to_the_end);
	for (unsigned i = 0; i < 3; i++) {
		peer_connect(&p[i], (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		assert_int_equal(is_marked(conn), i < 2);
	}
	assert_int_equal(rings(), 2);
	peer_send(&p[0], PEER_RST, NULL, 0); /* its ring is free again */
	run_ms(1100);
	assert_int_equal(rings(), 1);
	peer_connect(&p[3], 1003, 7, 99);
	run_rounds(2);
	assert_true(is_marked(conn));
	assert_int_equal(rings(), 2);
}

static void test_rings_give_their_memory_back(void **state)
{
	struct peer p;
	uint64_t before;

	serve(read_to_the_end);
	trace_first(1);
	before = net_mem_live_bytes();
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	assert_true(net_mem_live_bytes() >= before + sizeof(struct net_trace));
	peer_send(&p, PEER_RST, NULL, 0);
	run_ms(1100);
	assert_int_equal(net_mem_live_bytes(), before);
}

/* Whichever allocation fails: a ring or none, and never half a one. */
static void test_without_memory_a_connection_has_no_ring(void **state)
{
	unsigned without = 0;

	trace_first(8);
	serve(read_to_the_end);
	for (unsigned i = 1; i <= 4; i++) {
		struct peer p = {.port = (uint16_t)(1000 + i),
				 .stack_port = 7,
				 .snd = 99,
				 .wnd = 65535};
		unsigned before = rings();

		conn = NULL;
		peer_send(&p, PEER_SYN, NULL, 0);
		p.rcv = peer_wait(1).seq + 1;
		net_mem_fail_after(i);
		peer_send(&p, PEER_ACK, NULL, 0);
		run_rounds(1);
		net_mem_fail_after(0);
		run_rounds(2);
		if (!conn)
			continue;
		assert_int_equal(rings() - before, is_marked(conn));
		without += !is_marked(conn);
	}
	assert_int_equal(without, 1);
	drain();
}

static void test_a_watch_has_a_bounded_number_of_rings(void **state)
{
	struct peer p;
	unsigned marked = 0;

	serve(read_to_the_end);
	trace_first(0);
	assert_int_equal(net_trace_watch(1, wants_all, "", 1), 0);
	for (unsigned i = 0; i < NET_TRACE_EXTRA + 3; i++) {
		peer_connect(&p, (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		marked += is_marked(conn);
	}
	assert_int_equal(marked, NET_TRACE_EXTRA);
	assert_int_equal(net_here()->traces->watches[1].without, 3);
	net_trace_unwatch(1);
	assert_int_equal(rings(), 0);
	assert_false(is_marked(conn));
}

/* One that has ended and is not told gives way, and that is counted. */
static void test_what_has_ended_gives_way(void **state)
{
	struct net_trace_watch *watch;
	struct peer p;

	serve(abort_it);
	trace_first(0);
	assert_int_equal(net_trace_watch(0, wants_all, "", 1), 0);
	for (unsigned i = 0; i < NET_TRACE_EXTRA + 2; i++) {
		peer_connect(&p, (uint16_t)(1000 + i), 7, 99);
		run_ms(2);
		drain();
	}
	watch = &net_here()->traces->watches[0];
	assert_int_equal(rings(), NET_TRACE_EXTRA);
	assert_int_equal(watch->without, 0);
	assert_true(watch->missed >= 2 * 4);
	net_trace_unwatch(0);
	assert_int_equal(rings(), 0);
}

/* Found in any state, let go of in the same, and ending as it would have. */
static void watch_and_let_go(struct net_conn *which)
{
	const struct net_trace *trace;
	uint64_t before = net_mem_live_bytes();

	assert_int_equal(net_trace_watch(2, wants_all, "", 1), 0);
	net_trace_look(2, which, net_demux_hash_of(which));
	trace = net_trace_of(which);
	assert_non_null(trace);
	assert_true(is_marked(which));
	assert_string_equal(trace->events[0].what, "found in the midst");
	net_trace_look(2, which, net_demux_hash_of(which)); /* not twice */
	assert_int_equal(rings(), 1);
	net_trace_unwatch(2);
	assert_false(is_marked(which));
	assert_null(net_trace_of(which));
	assert_int_equal(net_mem_live_bytes(), before);
}

static void hold(struct net_conn *accepted, void *arg)
{
	conn = accepted;
	coro_park();
}

static void test_watched_in_every_state(void **state)
{
	static const uint8_t closes[] = {0, 1};

	serve(hold);
	trace_first(0);
	assert_int_equal(net_trace_watch(2, wants_all, "", 1), 0);
	net_trace_unwatch(2);
	for (unsigned i = 0; i < sizeof(closes); i++) {
		struct peer p;

		peer_connect(&p, (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		watch_and_let_go(conn); /* established */
		if (closes[i]) {
			net_shutdown(conn, NET_SHUT_WR);
			watch_and_let_go(conn); /* fin-wait-1 */
			run_rounds(2);
			drain();
			p.rcv++;
			peer_send(&p, PEER_ACK, NULL, 0);
			run_rounds(2);
			assert_int_equal(conn->pcb.state, FIN_WAIT_2);
			watch_and_let_go(conn);
		}
		peer_send(&p, PEER_ACK | PEER_FIN, NULL, 0);
		run_rounds(2);
		assert_int_equal(conn->pcb.state,
				 closes[i] ? TIME_WAIT : CLOSE_WAIT);
		watch_and_let_go(conn);
		if (!closes[i]) {
			net_shutdown(conn, NET_SHUT_WR);
			assert_int_equal(conn->pcb.state, LAST_ACK);
			watch_and_let_go(conn);
		}
		drain();
	}
}

/* A call that began before its ring, or whose ring went, is no harm. */
static void test_a_call_outlives_its_ring(void **state)
{
	struct peer p;
	char *text;

	serve(read_to_the_end);
	trace_first(0);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2); /* the handler waits already */
	assert_int_equal(net_trace_watch(0, wants_all, "", 1), 0);
	net_trace_look(0, conn, net_demux_hash_of(conn));
	peer_send(&p, PEER_ACK | PEER_PSH, "a", 1);
	run_rounds(3);
	text = told(net_trace_of(conn));
	assert_true(has_line(text, "net_recv_view(0) by conn\n"));
	free(text);
	/* Within the call that was told: its end is not another ring's. */
	net_trace_unwatch(0);
	assert_int_equal(net_trace_watch(0, wants_all, "", 1), 0);
	net_trace_look(0, conn, net_demux_hash_of(conn));
	seen = 0;
	peer_send(&p, PEER_ACK | PEER_PSH, "b", 1);
	run_rounds(3);
	text = told(net_trace_of(conn));
	assert_null(strstr(text, "net_recv_view = "));
	assert_true(has_line(text, "net_recv_view(0) by conn\n"));
	free(text);
	net_trace_unwatch(0);
	peer_send(&p, PEER_ACK | PEER_PSH, "b", 1);
	run_rounds(3);
	assert_null(net_trace_of(conn));
	assert_int_equal(net_trace_watch(0, wants_all, "", 1), 0);
	net_trace_look(0, conn, net_demux_hash_of(conn));
	peer_send(&p, PEER_ACK | PEER_PSH, "c", 1);
	run_rounds(3);
	assert_non_null(net_trace_of(conn));
	drain();
}

/* Prediction takes segments of others, and theirs again when it is let go. */
static void test_only_traced_connections_go_the_long_way(void **state)
{
	struct peer p;

	serve(echo);
	trace_first(1);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	net_here()->lwip_ticks = 0;
	seen = net_trace_of(conn)->n;
	peer_send(&p, PEER_ACK | PEER_PSH, "a", 1);
	p.rcv += peer_wait(1).len;
	assert_int_equal(net_trace_of(conn)->n - seen, 6);
	assert_string_equal(
		net_here()->traces->first->events[(seen + 1) % 64].what,
		"net_recv");
}

/* ---- by the control socket ---- */

static void expect_ok(uint64_t client, const char *request)
{
	cJSON *answer = asked(client, request);
	const char *error =
		cJSON_GetStringValue(cJSON_GetObjectItem(answer, "error"));

	if (error)
		fail_msg("%s: %s", request, error);
	cJSON_Delete(answer);
}

static void expect_error(uint64_t client, const char *request, const char *part)
{
	cJSON *answer = asked(client, request);
	const char *error =
		cJSON_GetStringValue(cJSON_GetObjectItem(answer, "error"));

	assert_non_null(error);
	assert_true(has_line(error, part));
	cJSON_Delete(answer);
}

/* The kinds of what is told, one after another. */
static char *kinds_told(uint64_t client)
{
	cJSON *page = asked(client, "/coronet/trace");
	const cJSON *event;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	cJSON_ArrayForEach(event, cJSON_GetObjectItem(page, "events"))
	{
		fprintf(out, "%s ",
			cJSON_GetStringValue(
				cJSON_GetObjectItem(event, "kind")));
	}
	fclose(out);
	cJSON_Delete(page);
	return text;
}

static void expect_kinds(uint64_t client, const char *expected)
{
	char *text = kinds_told(client);

	assert_string_equal(text, expected);
	free(text);
}

static void test_a_client_follows_a_connection_to_its_end(void **state)
{
	struct peer p;

	serve(echo);
	net_ask_open(1);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	expect_ok(1, "/coronet/trace.start,10.0.0.2:1000");
	expect_kinds(1, "begin ");
	peer_send(&p, PEER_ACK | PEER_PSH, "a", 1);
	p.rcv += peer_wait(1).len;
	expect_kinds(1, "in call done call out ");
	expect_kinds(1, "");
	peer_send(&p, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(3);
	drain();
	p.rcv++;
	peer_send(&p, PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(rings(), 1); /* it has ended, and waits */
	expect_kinds(1, "in state done call out state done in end ");
	assert_int_equal(rings(), 0);
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

static void test_one_that_comes_later_is_followed(void **state)
{
	struct peer p, other;

	serve(read_to_the_end);
	net_ask_open(1);
	expect_ok(1, "/coronet/trace.start,10.0.0.2:1001,port=7");
	peer_connect(&other, 1000, 7, 99);
	peer_connect(&p, 1001, 7, 99);
	run_rounds(2);
	expect_kinds(1, "begin in call ");
	assert_int_equal(rings(), 1);
	net_traces_client_gone(1);
	run_rounds(2);
	assert_int_equal(rings(), 0);
	expect_error(1, "/coronet/trace", "watches nothing");
	net_ask_shut();
}

static void test_a_slow_client_is_told_what_it_missed(void **state)
{
	const cJSON *missed;
	struct peer p;
	cJSON *page;

	serve(echo);
	net_ask_open(1);
	expect_ok(1, "/coronet/trace.start,10.0.0.0/8");
	peer_connect(&p, 1000, 7, 99);
	for (unsigned i = 0; i < 40; i++) {
		peer_send(&p, PEER_ACK | PEER_PSH, "x", 1);
		p.rcv += peer_wait(1).len;
	}
	run_rounds(2);
	/* begin, in, call; then in, done, call, done, call, out each. */
	page = asked(1, "/coronet/trace");
	missed = cJSON_GetArrayItem(cJSON_GetObjectItem(page, "events"), 0);
	assert_string_equal(
		cJSON_GetStringValue(cJSON_GetObjectItem(missed, "kind")),
		"missed");
	assert_int_equal(cJSON_GetObjectItem(missed, "events")->valuedouble,
			 3 + 40 * 6 - NET_TRACE_EVENTS);
	assert_int_equal(
		cJSON_GetArraySize(cJSON_GetObjectItem(page, "events")),
		1 + NET_TRACE_EVENTS);
	cJSON_Delete(page);
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

static void test_clients_that_watch_are_bounded(void **state)
{
	net_ask_open(1);
	for (unsigned i = 0; i < NET_TRACE_WATCHES; i++)
		expect_ok(10 + i, "/coronet/trace.start,10.9.9.9");
	expect_error(20, "/coronet/trace.start,10.9.9.9", "trace already");
	expect_ok(10, "/coronet/trace.start,10.9.9.8"); /* its own, anew */
	expect_kinds(11, "");
	net_traces_client_gone(12);
	run_rounds(1);
	expect_ok(20, "/coronet/trace.start,10.9.9.9");
	for (unsigned i = 10; i <= 20; i++)
		net_traces_client_gone(i);
	run_rounds(2);
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		assert_null(net_here()->traces->watches[w].wants);
	net_ask_shut();
}

/* One that holds its place and asks for nothing. */
static void test_a_client_that_does_not_ask_loses_its_watch(void **state)
{
	struct timespec ts;
	int64_t now;
	struct peer p;

	serve(read_to_the_end);
	net_ask_open(1);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = ts.tv_sec * 1000;
	assert_int_equal(net_traces_expire(now), -1);
	peer_connect(&p, 1000, 7, 99);
	expect_ok(1, "/coronet/trace.start,10.0.0.2");
	expect_kinds(1, "begin ");
	assert_in_range(net_traces_expire(now + 30000), 1, 62000);
	run_rounds(2);
	assert_int_equal(rings(), 1);
	assert_int_equal(net_traces_expire(now + 120000), -1);
	run_rounds(2);
	assert_int_equal(rings(), 0);
	expect_error(1, "/coronet/trace", "watches nothing");
	net_ask_shut();
}

static void test_what_is_no_peer_is_refused(void **state)
{
	net_ask_open(1);
	expect_error(1, "/coronet/trace.start", "expected a peer");
	expect_error(1, "/coronet/trace.start,nobody", "'nobody': expected");
	expect_error(1, "/coronet/trace.start,10.9.0.1:x", "expected a peer");
	expect_error(1, "/coronet/trace.start,10.9.0.1,port=0", "port '0'");
	expect_error(1, "/coronet/trace.start,0-1-2-3", "no connection");
	expect_error(1, "/coronet/trace", "watches nothing");
	net_ask_shut();
}

/* More rings than a page has room for: every event is told once. */
static void test_pages_tell_every_event_once(void **state)
{
	struct peer p[12];
	unsigned events = 0, pages = 0;
	bool more = true;

	serve(echo);
	trace_first(12);
	net_ask_open(1);
	for (unsigned i = 0; i < 12; i++) {
		peer_connect(&p[i], (uint16_t)(1000 + i), 7, 99);
		for (unsigned k = 0; k < 12; k++) {
			peer_send(&p[i], PEER_ACK | PEER_PSH, "x", 1);
			p[i].rcv += peer_wait(1).len;
		}
	}
	run_rounds(2);
	expect_ok(1, "/coronet/trace.start,10.0.0.2");
	while (more) {
		cJSON *page = asked(1, "/coronet/trace");

		events += (unsigned)cJSON_GetArraySize(
			cJSON_GetObjectItem(page, "events"));
		more = cJSON_IsTrue(cJSON_GetObjectItem(page, "more"));
		cJSON_Delete(page);
		assert_true(++pages < 20);
	}
	assert_int_equal(events, 12 * NET_TRACE_EVENTS);
	assert_true(pages > 2);
	net_traces_client_gone(1);
	run_rounds(2);
	net_ask_shut();
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)
#define MANY_TEST(name)                                                        \
	cmocka_unit_test_setup_teardown(name, peer_listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_an_exchange_is_told_word_for_word),
		TEST(test_the_ring_keeps_the_last_events_in_order),
		TEST(test_a_loss_is_repaired_by_rack),
		TEST(test_a_silent_peer_is_probed_and_timed_out),
		TEST(test_duplicates_cause_a_fast_retransmission),
		TEST(test_a_shut_window_is_told_and_probed),
		TEST(test_a_dialed_connection_is_told_from_its_syn),
		TEST(test_a_reset_by_the_peer_is_told_as_such),
		TEST(test_an_abort_is_told_after_the_end),
		TEST(test_what_is_refused_is_told_as_such),
		TEST(test_as_many_have_a_ring_as_were_asked_for),
		TEST(test_rings_give_their_memory_back),
		TEST(test_without_memory_a_connection_has_no_ring),
		MANY_TEST(test_a_watch_has_a_bounded_number_of_rings),
		MANY_TEST(test_what_has_ended_gives_way),
		TEST(test_watched_in_every_state),
		TEST(test_a_call_outlives_its_ring),
		TEST(test_only_traced_connections_go_the_long_way),
		TEST(test_a_client_follows_a_connection_to_its_end),
		TEST(test_one_that_comes_later_is_followed),
		TEST(test_a_slow_client_is_told_what_it_missed),
		TEST(test_clients_that_watch_are_bounded),
		TEST(test_a_client_that_does_not_ask_loses_its_watch),
		TEST(test_what_is_no_peer_is_refused),
		MANY_TEST(test_pages_tell_every_event_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
