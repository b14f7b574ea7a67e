/* The connection trace: connections with a ring, and the ring's lifetime. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"
#include "tests/net/traced.h"

static void test_number_of_rings_is_the_configured_one(void **state)
{
	struct peer p[4];

	traced_first(2);
	serve(traced_read_all);
	for (unsigned i = 0; i < 3; i++) {
		peer_connect(&p[i], (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		assert_int_equal(traced_is_marked(traced_conn), i < 2);
	}
	assert_int_equal(traced_rings(), 2);
	peer_send(&p[0], PEER_RST, NULL, 0); /* its ring is free again */
	run_ms(1100);
	assert_int_equal(traced_rings(), 1);
	peer_connect(&p[3], 1003, 7, 99);
	run_rounds(2);
	assert_true(traced_is_marked(traced_conn));
	assert_int_equal(traced_rings(), 2);
}

/* 3000 rings need a larger table, in which the existing ring must be found. */
static void test_number_of_rings_may_change(void **state)
{
	const struct net_trace *trace;
	struct net_conn *first;
	struct peer p[4];

	serve(traced_read_all);
	traced_first(1);
	for (unsigned i = 0; i < 2; i++) {
		peer_connect(&p[i], (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		first = i ? first : traced_conn;
		assert_int_equal(traced_is_marked(traced_conn), i < 1);
	}
	trace = net_trace_of(first);
	assert_int_equal(net_traces_keep(3000), 0);
	assert_ptr_equal(net_trace_of(first), trace);
	peer_connect(&p[2], 1002, 7, 99);
	run_rounds(2);
	assert_true(traced_is_marked(traced_conn));
	assert_int_equal(net_traces_keep(0), 0);
	peer_connect(&p[3], 1003, 7, 99);
	run_rounds(2);
	assert_false(traced_is_marked(traced_conn));
	assert_int_equal(traced_rings(), 2);
	peer_send(&p[0], PEER_RST, NULL, 0);
	peer_send(&p[2], PEER_RST, NULL, 0);
	run_ms(1100);
	assert_int_equal(traced_rings(), 0);
}

static void test_rings_return_their_memory(void **state)
{
	struct peer p;
	uint64_t before;

	serve(traced_read_all);
	traced_first(1);
	before = net_mem_live_bytes();
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	assert_true(net_mem_live_bytes() >= before + sizeof(struct net_trace));
	peer_send(&p, PEER_RST, NULL, 0);
	run_ms(1100);
	assert_int_equal(net_mem_live_bytes(), before);
}

/* If any allocation fails, the connection has no ring. */
static void test_without_memory_a_connection_has_no_ring(void **state)
{
	unsigned without = 0;

	traced_first(8);
	serve(traced_read_all);
	for (unsigned i = 1; i <= 4; i++) {
		struct peer p = {.port = (uint16_t)(1000 + i),
				 .stack_port = 7,
				 .snd = 99,
				 .wnd = 65535};
		unsigned before = traced_rings();

		traced_conn = NULL;
		peer_send(&p, PEER_SYN, NULL, 0);
		p.rcv = peer_wait(1).seq + 1;
		net_mem_fail_after(i);
		peer_send(&p, PEER_ACK, NULL, 0);
		run_rounds(1);
		net_mem_fail_after(0);
		run_rounds(2);
		if (!traced_conn)
			continue;
		assert_int_equal(traced_rings() - before,
				 traced_is_marked(traced_conn));
		without += !traced_is_marked(traced_conn);
	}
	assert_int_equal(without, 1);
	traced_drain();
}

static void test_a_watch_has_a_bounded_number_of_rings(void **state)
{
	struct peer p;
	unsigned marked = 0;

	serve(traced_read_all);
	traced_first(0);
	assert_int_equal(net_trace_watch(1, traced_wants_all, "", 1), 0);
	for (unsigned i = 0; i < NET_TRACE_EXTRA + 3; i++) {
		peer_connect(&p, (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		marked += traced_is_marked(traced_conn);
	}
	assert_int_equal(marked, NET_TRACE_EXTRA);
	assert_int_equal(net_here()->traces->watches[1].without, 3);
	net_trace_unwatch(1);
	assert_int_equal(traced_rings(), 0);
	assert_false(traced_is_marked(traced_conn));
}

/*
 * The ring of an ended connection with unread events is reused, and that is
 * counted.
 */
static void test_ring_of_an_ended_connection_is_reused(void **state)
{
	struct net_trace_watch *watch;
	struct peer p;

	serve(traced_abort);
	traced_first(0);
	assert_int_equal(net_trace_watch(0, traced_wants_all, "", 1), 0);
	for (unsigned i = 0; i < NET_TRACE_EXTRA + 2; i++) {
		peer_connect(&p, (uint16_t)(1000 + i), 7, 99);
		run_ms(2);
		traced_drain();
	}
	watch = &net_here()->traces->watches[0];
	assert_int_equal(traced_rings(), NET_TRACE_EXTRA);
	assert_int_equal(watch->without, 0);
	assert_true(watch->missed >= 2 * 4);
	net_trace_unwatch(0);
	assert_int_equal(traced_rings(), 0);
}

/* Watches and unwatches a connection in its current state. */
static void watch_and_let_go(struct net_conn *which)
{
	const struct net_trace *trace;
	uint64_t before = net_mem_live_bytes();

	assert_int_equal(net_trace_watch(2, traced_wants_all, "", 1), 0);
	net_trace_look(2, which, net_demux_hash_of(which));
	trace = net_trace_of(which);
	assert_non_null(trace);
	assert_true(traced_is_marked(which));
	assert_string_equal(trace->events[0].what, "already open");
	net_trace_look(2, which, net_demux_hash_of(which)); /* not twice */
	assert_int_equal(traced_rings(), 1);
	net_trace_unwatch(2);
	assert_false(traced_is_marked(which));
	assert_null(net_trace_of(which));
	assert_int_equal(net_mem_live_bytes(), before);
}

static void park_handler(struct net_conn *accepted, void *arg)
{
	traced_conn = accepted;
	coro_park();
}

static void test_connections_are_watched_in_every_state(void **state)
{
	static const uint8_t closes[] = {0, 1};

	serve(park_handler);
	traced_first(0);
	assert_int_equal(net_trace_watch(2, traced_wants_all, "", 1), 0);
	net_trace_unwatch(2);
	for (unsigned i = 0; i < sizeof(closes); i++) {
		struct peer p;

		peer_connect(&p, (uint16_t)(1000 + i), 7, 99);
		run_rounds(2);
		watch_and_let_go(traced_conn); /* established */
		if (closes[i]) {
			net_shutdown(traced_conn, NET_SHUT_WR);
			watch_and_let_go(traced_conn); /* fin-wait-1 */
			run_rounds(2);
			traced_drain();
			p.rcv++;
			peer_send(&p, PEER_ACK, NULL, 0);
			run_rounds(2);
			assert_int_equal(traced_conn->pcb.state, FIN_WAIT_2);
			watch_and_let_go(traced_conn);
		}
		peer_send(&p, PEER_ACK | PEER_FIN, NULL, 0);
		run_rounds(2);
		assert_int_equal(traced_conn->pcb.state,
				 closes[i] ? TIME_WAIT : CLOSE_WAIT);
		watch_and_let_go(traced_conn);
		if (!closes[i]) {
			net_shutdown(traced_conn, NET_SHUT_WR);
			assert_int_equal(traced_conn->pcb.state, LAST_ACK);
			watch_and_let_go(traced_conn);
		}
		traced_drain();
	}
}

/* A call may start before its connection has a ring, or outlive the ring. */
static void test_a_call_outlives_its_ring(void **state)
{
	struct peer p;
	char *text;

	serve(traced_read_all);
	traced_first(0);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2); /* the handler waits already */
	assert_int_equal(net_trace_watch(0, traced_wants_all, "", 1), 0);
	net_trace_look(0, traced_conn, net_demux_hash_of(traced_conn));
	peer_send(&p, PEER_ACK | PEER_PSH, "a", 1);
	run_rounds(3);
	text = trace_text(net_trace_of(traced_conn));
	assert_true(has_line(text, "net_recv_view(0) by conn\n"));
	free(text);
	/*
	 * The ring changes within a recorded call, whose end must not go to
	 * another ring.
	 */
	net_trace_unwatch(0);
	assert_int_equal(net_trace_watch(0, traced_wants_all, "", 1), 0);
	net_trace_look(0, traced_conn, net_demux_hash_of(traced_conn));
	printed_events = 0;
	peer_send(&p, PEER_ACK | PEER_PSH, "b", 1);
	run_rounds(3);
	text = trace_text(net_trace_of(traced_conn));
	assert_null(strstr(text, "net_recv_view = "));
	assert_true(has_line(text, "net_recv_view(0) by conn\n"));
	free(text);
	net_trace_unwatch(0);
	peer_send(&p, PEER_ACK | PEER_PSH, "b", 1);
	run_rounds(3);
	assert_null(net_trace_of(traced_conn));
	assert_int_equal(net_trace_watch(0, traced_wants_all, "", 1), 0);
	net_trace_look(0, traced_conn, net_demux_hash_of(traced_conn));
	peer_send(&p, PEER_ACK | PEER_PSH, "c", 1);
	run_rounds(3);
	assert_non_null(net_trace_of(traced_conn));
	traced_drain();
}

/* Prediction takes segments of others, and theirs again when it is let go. */
static void test_only_traced_connections_leave_the_fast_path(void **state)
{
	struct peer p;

	serve(traced_echo);
	traced_first(1);
	peer_connect(&p, 1000, 7, 99);
	run_rounds(2);
	net_lwip_ticks = 0;
	printed_events = net_trace_of(traced_conn)->n;
	peer_send(&p, PEER_ACK | PEER_PSH, "a", 1);
	p.rcv += peer_wait(1).len;
	assert_int_equal(net_trace_of(traced_conn)->n - printed_events, 6);
	assert_string_equal(
		net_here()
			->traces->first->events[(printed_events + 1) % 64]
			.what,
		"net_recv");
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)
#define MANY_TEST(name)                                                        \
	cmocka_unit_test_setup_teardown(name, peer_listen_many, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_number_of_rings_is_the_configured_one),
		TEST(test_number_of_rings_may_change),
		TEST(test_rings_return_their_memory),
		TEST(test_without_memory_a_connection_has_no_ring),
		MANY_TEST(test_a_watch_has_a_bounded_number_of_rings),
		MANY_TEST(test_ring_of_an_ended_connection_is_reused),
		TEST(test_connections_are_watched_in_every_state),
		TEST(test_a_call_outlives_its_ring),
		TEST(test_only_traced_connections_leave_the_fast_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
