/*
 * Simultaneous open (RFC 9293 3.5, MUST-10): the peer dials the port that dials
 * it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/conn/conn.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xffffffffu

static void *dial_peer(void *arg)
{
	struct net_conn *conn = NULL;
	struct net_addr addr;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &conn);
	if (result == 0) {
		net_send_all(conn, "hello", 5);
		got_len = (size_t)net_recv_full(conn, got, 5);
		net_close(conn);
	}
	ended++;
	return NULL;
}

static void send_syn(const struct peer *peer, uint8_t flags)
{
	static const uint8_t options[] = {2, 4, 4, 0, 1, 3, 3, 7, 4, 2, 1, 1};
	struct segment syn = {.src = peer->port,
			      .dst = peer->stack_port,
			      .seq = NEAR_WRAP,
			      .ack = flags & PEER_ACK ? peer->rcv : 0,
			      .flags = flags,
			      .wnd = 1000,
			      .options = options,
			      .options_len = sizeof(options),
			      .data = (const uint8_t *)""};

	peer_send_raw(&syn);
}

/* Both have sent a SYN; the stack has answered the peer's. */
static void cross_syns(struct peer *peer)
{
	struct segment s;

	net_spawn(stack, "dial", dial_peer, NULL);
	expect(&s, PEER_SYN, ANY, 0, 0);
	*peer = (struct peer){.port = 80,
			      .stack_port = s.src,
			      .snd = NEAR_WRAP,
			      .rcv = s.seq + 1,
			      .wnd = 1000};
	send_syn(peer, PEER_SYN);
	peer->snd++;
	expect(&s, PEER_SYN | PEER_ACK, peer->rcv - 1, peer->snd, 0);
	assert_int_equal(ended, 0);
}

/* Checks an open connection: the stack sends, the peer answers, both close. */
static void expect_open(struct peer *peer)
{
	struct segment s;

	do
		assert_true(peer_next(&s));
	while (s.len == 0);
	check_segment(&s, PEER_ACK | PEER_PSH, peer->rcv, peer->snd, 5);
	assert_memory_equal(s.data, "hello", 5);
	peer->rcv += 5;
	peer_send(peer, PEER_ACK, "world", 5);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, 0);
	assert_int_equal(got_len, 5);
	assert_memory_equal(got, "world", 5);
}

static void test_ack_completes_a_simultaneous_open(void **state)
{
	struct peer peer;

	cross_syns(&peer);
	peer_send(&peer, PEER_ACK, NULL, 0);
	expect_open(&peer);
}

/* The peer answers our SYN with a SYN-ACK. */
static void test_syn_ack_completes_a_simultaneous_open(void **state)
{
	struct peer peer;

	cross_syns(&peer);
	send_syn(&peer, PEER_SYN | PEER_ACK);
	expect_open(&peer);
}

static struct net_conn *only_conn(void)
{
	for (struct net_conn **b = net_here()->buckets;
	     b <= net_here()->buckets + net_here()->bucket_mask; b++)
		if (*b)
			return *b;
	return NULL;
}

/* RFC 7323 2.2 */
static void test_syn_ack_window_is_not_scaled(void **state)
{
	struct peer peer;

	cross_syns(&peer);
	send_syn(&peer, PEER_SYN | PEER_ACK);
	run_rounds(1);
	assert_in_range(only_conn()->pcb.snd_wnd, 1000 - 127, 1000);
	expect_open(&peer);
}

static unsigned count_edges(uint32_t *edge)
{
	struct segment s;
	unsigned n = 0;

	for (; peer_next(&s); n++) {
		uint32_t right = s.ack + ((uint32_t)s.wnd << net_rcv_scale());

		assert_true((int32_t)(right - *edge) >= 0);
		*edge = right;
	}
	return n;
}

/* Data behind a hole is answered at once, before the ACK that opens it. */
static void test_window_announced_in_syn_received_is_kept(void **state)
{
	struct peer peer;
	uint32_t edge;

	cross_syns(&peer);
	edge = peer.snd;
	net_budget_set(net_budget_used() / 8 * 9);
	peer.snd += 1000;
	peer_send(&peer, PEER_ACK, "ahead", 5);
	assert_int_equal(count_edges(&edge), 1);
	peer.snd -= 1005;
	peer_send(&peer, PEER_ACK, NULL, 0);
	assert_in_range(count_edges(&edge), 1, 4);
	net_budget_set(0);
}

static void test_options_of_the_crossing_syn_are_used(void **state)
{
	struct peer peer;
	struct net_conn *conn;

	cross_syns(&peer);
	conn = only_conn();
	assert_non_null(conn);
	assert_int_equal(conn->pcb.mss, 1024);
	assert_int_equal(conn->pcb.snd_scale, 7);
	assert_true(conn->pcb.flags & TF_SACK);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(conn->pcb.snd_wnd, 1000 << 7);
	expect_open(&peer);
}

static void test_syn_ack_of_a_simultaneous_open_is_resent(void **state)
{
	struct peer peer;

	cross_syns(&peer);
	run_ms(1500);
	expect(NULL, PEER_SYN | PEER_ACK, peer.rcv - 1, peer.snd, 0);
	send_syn(&peer, PEER_SYN); /* the peer has not received it */
	expect(NULL, PEER_SYN | PEER_ACK, peer.rcv - 1, peer.snd, 0);
	peer_send(&peer, PEER_ACK, NULL, 0);
	expect_open(&peer);
}

static void test_reset_refuses_a_simultaneous_open(void **state)
{
	struct peer peer;

	cross_syns(&peer);
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ECONNREFUSED);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_silent_peer_times_out_a_simultaneous_open(void **state)
{
	struct segment s;
	struct peer peer;

	cross_syns(&peer);
	run_ms(29000); /* net_dial()'s timeout is what counts */
	assert_int_equal(ended, 0);
	run_ms(2000);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -ETIMEDOUT);
	assert_int_equal(net_here()->n_conns, 0);
	while (peer_next(&s))
		;
}

#define T(test)                                                                \
	cmocka_unit_test_setup_teardown(test, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_ack_completes_a_simultaneous_open),
		T(test_syn_ack_completes_a_simultaneous_open),
		T(test_syn_ack_window_is_not_scaled),
		T(test_window_announced_in_syn_received_is_kept),
		T(test_options_of_the_crossing_syn_are_used),
		T(test_syn_ack_of_a_simultaneous_open_is_resent),
		T(test_reset_refuses_a_simultaneous_open),
		T(test_silent_peer_times_out_a_simultaneous_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
