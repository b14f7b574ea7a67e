/*
 * More SYNs than a listener may answer: the others are dropped, and no other
 * segment is. The listener at port 7 has a backlog of 8.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define BACKLOG	   8
#define AT_ONCE	   16385 /* cookies after a pause */
#define IN_A_MS	   125
#define WAIT_MAX_S 200

/* Returns whether a SYN is answered. */
static bool is_answered(uint16_t port, uint16_t stack_port, uint32_t seq)
{
	struct peer p = {.port = port,
			 .stack_port = stack_port,
			 .snd = seq,
			 .wnd = 65535};
	struct segment s;

	peer_send(&p, PEER_SYN, NULL, 0);
	if (!peer_next(&s))
		return false;
	assert_int_equal(s.flags, PEER_SYN | PEER_ACK);
	assert_int_equal(s.dst, port);
	return true;
}

/*
 * Sends SYNs without ACKs until one is not answered; returns the number of
 * answers.
 */
static unsigned flood_syns(uint16_t first)
{
	unsigned answered = 0;

	while (is_answered((uint16_t)(first + answered), 7, 99))
		assert_true(++answered < 2 * AT_ONCE);
	return answered;
}

static void expect_echo(struct peer *peer)
{
	struct segment s;

	peer_send(peer, PEER_ACK | PEER_PSH, "still here", 10);
	expect(&s, PEER_ACK | PEER_PSH, peer->rcv, peer->snd, 10);
	assert_int_equal(s.dst, peer->port);
	peer->rcv += 10;
}

static void test_answers_are_limited_and_connections_continue(void **state)
{
	struct net_stats stats;
	struct peer old;

	serve(echo_views);
	peer_connect(&old, 1000, 7, 99);
	assert_int_equal(flood_syns(20000), BACKLOG + AT_ONCE);
	for (unsigned i = 0; i < 100; i++)
		assert_false(is_answered((uint16_t)(50000 + i), 7, 99));
	net_stack_stats(stack, &stats);
	assert_int_equal(stats.cookies_sent, AT_ONCE);
	assert_int_equal(stats.syns_shed, 101);
	expect_echo(&old);
}

static void test_each_millisecond_allows_more_answers(void **state)
{
	serve(echo_views);
	flood_syns(20000);
	for (unsigned ms = 1; ms <= 5; ms++) {
		run_ms(1);
		assert_int_equal(flood_syns((uint16_t)(40000 + 1000 * ms)),
				 IN_A_MS);
	}
}

/* A dropped SYN is not parsed: its header may be malformed. */
static void test_dropped_syns_are_not_parsed(void **state)
{
	const struct segment bad = {.src = 1001,
				    .dst = 7,
				    .flags = PEER_SYN,
				    .options = (const uint8_t *)"\2\0\0\0",
				    .options_len = 4,
				    .data = (const uint8_t *)""};

	serve(echo_views);
	peer_send_raw(&bad);
	run_rounds(2);
	assert_int_equal(net_here()->stats.rx_bad_frame, 1);
	flood_syns(20000);
	peer_send_raw(&bad);
	run_rounds(2);
	assert_int_equal(net_here()->stats.rx_bad_frame, 1);
	assert_int_equal(net_here()->stats.syns_shed, 2);
}

static void test_cookie_opens_a_connection_during_the_flood(void **state)
{
	struct peer p = {
		.port = 1000, .stack_port = 7, .snd = 99, .wnd = 65535};
	struct segment s;

	serve(echo_views);
	for (uint16_t port = 1; port <= BACKLOG; port++)
		assert_true(is_answered(port, 7, 99));
	peer_send(&p, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	flood_syns(20000);
	p.snd = 100;
	p.rcv = s.seq + 1;
	peer_send(&p, PEER_ACK, NULL, 0);
	expect_echo(&p);
	assert_int_equal(net_here()->stats.cookies_accepted, 1);
}

static void test_other_listeners_still_answer(void **state)
{
	struct net_listener *other, *own;
	struct net_addr addr;

	serve(echo_views);
	assert_int_equal(net_listen(stack, &net_addr_any(8), 8, &other), 0);
	flood_syns(20000);
	assert_true(is_answered(1001, 8, 99));
	assert_int_equal(net_addr_parse("10.0.0.1:7", -1, &addr), 0);
	assert_int_equal(net_listen(stack, &addr, 8, &own), 0);
	assert_true(is_answered(1002, 7, 99));
	net_listener_close(own);
	assert_false(is_answered(1003, 7, 99));
	net_listener_close(other);
}

/* Sends a datagram to that port whose bytes look like a SYN. */
static void send_datagram(void)
{
	uint8_t frame[14 + 20 + 20] = {0}, *ip = frame + 14, *udp = ip + 20;

	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	frame[12] = 8;
	memcpy(ip, "\x45\0\0\x28\0\0\0\0\x40\x11\0\0\x0a\0\0\2\x0a\0\0\1", 20);
	udp[3] = 7;
	udp[5] = 20;
	udp[13] = PEER_SYN;
	fake_receive(frame, sizeof(frame),
		     GLUE_FRAME_IP4 | GLUE_FRAME_UDP | GLUE_FRAME_CSUM_OK, 34);
}

static void test_only_syns_are_dropped(void **state)
{
	struct peer p = {.port = 1000, .stack_port = 7, .snd = 99, .rcv = 77};

	serve(echo_views);
	flood_syns(20000);
	peer_send(&p, PEER_SYN | PEER_ACK, NULL, 0);
	expect(NULL, PEER_RST, 77, 0, 0);
	send_datagram();
	run_rounds(2);
	assert_int_equal(net_here()->stats.syns_shed, 1);
}

/* A source that has used up its cookies does not affect others. */
static void test_one_source_uses_up_its_own_limit_only(void **state)
{
	static const uint8_t other[4] = {10, 0, 0, 3};
	const struct net_limits limits = {.half_open_per_source = 2};

	serve(echo_views);
	assert_int_equal(net_listener_limit(listener, &limits), 0);
	assert_int_equal(flood_syns(20000), 2 + AT_ONCE);
	assert_int_equal(net_here()->half_open, 2);
	peer_send_syn_of(other, 1001);
	assert_int_equal(net_here()->half_open, 3);
}

static void test_free_backlog_is_used_again(void **state)
{
	struct segment s;
	struct peer p;

	serve(echo_views);
	flood_syns(20000);
	for (unsigned i = 0; net_here()->half_open && i < WAIT_MAX_S; i++)
		run_ms(1000); /* those half open end after a while */
	assert_int_equal(net_here()->half_open, 0);
	while (peer_next(&s))
		; /* retransmitted SYN-ACKs */
	peer_connect(&p, 1000, 7, 99);
	expect_echo(&p);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_answers_are_limited_and_connections_continue),
		T(test_each_millisecond_allows_more_answers),
		T(test_dropped_syns_are_not_parsed),
		T(test_cookie_opens_a_connection_during_the_flood),
		T(test_other_listeners_still_answer),
		T(test_only_syns_are_dropped),
		T(test_one_source_uses_up_its_own_limit_only),
		T(test_free_backlog_is_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
