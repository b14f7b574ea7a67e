/*
 * Checks of forged segments: RFC 5961, RFC 9293 3.10.7, and classic attacks.
 * Sequence numbers of both sides wrap within most tests.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u
#define WINDOW	  65535u

static void read_all(struct net_conn *conn, void *arg)
{
	long n;

	while ((n = net_recv(conn, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

static struct net_conn *only;

static void remember(struct net_conn *conn)
{
	only = conn;
}

static struct net_conn *only_conn(void)
{
	only = NULL;
	net_for_each_conn(remember);
	assert_non_null(only);
	return only;
}

/* Opens a connection whose own numbers are about to wrap as well. */
static void connect_near_wrap(struct peer *peer)
{
	uint32_t shift;
	struct tcp_pcb *pcb;

	serve(read_all);
	peer_connect(peer, 1000, 7, NEAR_WRAP);
	pcb = &only_conn()->pcb;
	shift = NEAR_WRAP - pcb->snd_nxt;
	pcb->snd_nxt += shift;
	pcb->lastack += shift;
	pcb->snd_lbb += shift;
	pcb->snd_wl2 += shift;
	peer->rcv += shift;
}

static void send_forged(const struct peer *peer, uint8_t flags, uint32_t seq,
			uint32_t ack, const char *data)
{
	const struct segment s = {.src = peer->port,
				  .dst = peer->stack_port,
				  .seq = seq,
				  .ack = ack,
				  .flags = flags,
				  .wnd = peer->wnd,
				  .options = (const uint8_t *)"",
				  .data = (const uint8_t *)data,
				  .len = (unsigned)strlen(data)};

	peer_send_raw(&s);
}

static void expect_challenge(const struct peer *peer)
{
	expect(NULL, PEER_ACK, peer->rcv, peer->snd, 0);
	peer_expect_nothing();
}

static void expect_alive(struct peer *peer)
{
	size_t before = got_len;
	struct segment s;

	peer_send(peer, PEER_ACK | PEER_PSH, "alive", 5);
	run_ms(100);
	assert_int_equal(got_len, before + 5);
	assert_memory_equal(got + before, "alive", 5);
	while (peer_next(&s))
		;
}

/* ---- RFC 5961 section 3: resets ---- */

static void test_exact_rst_resets(void **state)
{
	struct peer peer;

	connect_near_wrap(&peer);
	send_forged(&peer, PEER_RST, peer.snd, 0, "");
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_rst_in_the_window_is_challenged(void **state)
{
	static const uint32_t ahead[] = {1, 100, WINDOW - 1};
	struct peer peer;

	connect_near_wrap(&peer);
	for (unsigned i = 0; i < 3; i++) {
		send_forged(&peer, PEER_RST, peer.snd + ahead[i], 0, "");
		expect_challenge(&peer);
		run_ms(500);
	}
	expect_alive(&peer);
	assert_int_equal(net_here()->stats.challenge_acks, 3);
}

static void test_rst_outside_the_window_is_dropped(void **state)
{
	static const uint32_t ahead[] = {-1u, -1000u, WINDOW, WINDOW + 1,
					 0x80000000u};
	struct peer peer;

	connect_near_wrap(&peer);
	for (unsigned i = 0; i < 5; i++) {
		send_forged(&peer, PEER_RST, peer.snd + ahead[i], 0, "");
		peer_expect_nothing();
	}
	assert_int_equal(net_here()->stats.rx_unacceptable, 5);
	expect_alive(&peer);
}

static void test_rst_into_a_closed_window_must_be_exact(void **state)
{
	struct peer peer;

	connect_near_wrap(&peer);
	only_conn()->pcb.rcv_wnd = 0;
	send_forged(&peer, PEER_RST, peer.snd + 1, 0, "");
	peer_expect_nothing();
	send_forged(&peer, PEER_RST, peer.snd, 0, "");
	run_rounds(3);
	assert_int_equal(result, -ECONNRESET);
}

/* ---- section 4: SYNs ---- */

static void test_syn_for_a_connection_is_challenged(void **state)
{
	static const uint32_t ahead[] = {0, 1, -1u, WINDOW + 9, 0x80000000u};
	struct peer peer;

	connect_near_wrap(&peer);
	for (unsigned i = 0; i < 5; i++) {
		send_forged(&peer, PEER_SYN, peer.snd + ahead[i], 0, "");
		expect_challenge(&peer);
		run_ms(500);
		send_forged(&peer, PEER_SYN | PEER_ACK, peer.snd + ahead[i],
			    peer.rcv, "");
		expect_challenge(&peer);
		run_ms(500);
	}
	expect_alive(&peer);
}

static void test_half_open_answers_its_syn_and_challenges_another(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 7, .snd = NEAR_WRAP};
	struct segment first, s;

	peer.wnd = 100;
	send_forged(&peer, PEER_SYN, peer.snd, 0, "");
	assert_true(peer_next(&first));
	send_forged(&peer, PEER_SYN, peer.snd, 0, "");
	expect(NULL, PEER_SYN | PEER_ACK, first.seq, peer.snd + 1, 0);
	/* A restarted client answers our challenge with an exact RST. */
	send_forged(&peer, PEER_SYN, peer.snd + 70000, 0, "");
	expect(&s, PEER_ACK, first.seq + 1, peer.snd + 1, 0);
	assert_int_equal(net_here()->half_open, 1);
	send_forged(&peer, PEER_RST, s.ack, 0, "");
	run_rounds(2);
	assert_int_equal(net_here()->half_open, 0);
}

static void read_all_and_stay(struct net_conn *conn, void *arg)
{
	while (net_recv(conn, got, sizeof(got)) > 0)
		;
	coro_sleep_ns(INT64_C(60000000000));
}

/* A connection held by a handler; test_time_wait.c has the others. */
static void test_time_wait_never_resets(void **state)
{
	struct peer peer;

	serve(read_all_and_stay);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	net_shutdown(only_conn(), NET_SHUT_WR);
	reach_time_wait(&peer);
	send_forged(&peer, PEER_RST, peer.snd, 0, "");
	send_forged(&peer, PEER_RST | PEER_ACK, peer.snd, peer.rcv, "");
	peer_expect_nothing();
	assert_int_equal(net_here()->n_conns, 1);
	send_forged(&peer, PEER_SYN, peer.snd, 0, ""); /* not newer */
	expect(NULL, PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(net_here()->n_conns, 1);
}

/* ---- section 5: data ---- */

static void test_data_with_an_impossible_ack_is_challenged(void **state)
{
	/* ACKs of data never sent, and ACKs older than the largest window. */
	static const uint32_t ahead[] = {1, 1000, -(WINDOW + 1), 0x80000000u};
	struct peer peer;

	connect_near_wrap(&peer);
	for (unsigned i = 0; i < 4; i++) {
		send_forged(&peer, PEER_ACK, peer.snd, peer.rcv + ahead[i],
			    "evil");
		expect_challenge(&peer);
		run_ms(500);
	}
	assert_int_equal(got_len, 0);
	expect_alive(&peer);
}

static void test_data_with_an_old_ack_is_taken(void **state)
{
	struct peer peer;

	connect_near_wrap(&peer);
	send_forged(&peer, PEER_ACK, peer.snd, peer.rcv - WINDOW, "late");
	run_rounds(3);
	assert_int_equal(got_len, 4);
}

static void test_ack_far_outside_the_window_acknowledges_nothing(void **state)
{
	struct peer peer;

	connect_near_wrap(&peer);
	net_shutdown(only_conn(), NET_SHUT_WR);
	expect(NULL, PEER_ACK | PEER_FIN, peer.rcv, peer.snd, 0);
	peer.rcv++;
	send_forged(&peer, PEER_ACK, peer.snd - 100, peer.rcv, "");
	expect_challenge(&peer);
	send_forged(&peer, PEER_ACK, peer.snd + WINDOW + 1, peer.rcv, "");
	run_rounds(2);
	assert_int_equal(only_conn()->pcb.state, FIN_WAIT_1);
	send_forged(&peer, PEER_ACK, peer.snd, peer.rcv, "");
	run_rounds(2);
	assert_int_equal(only_conn()->pcb.state, FIN_WAIT_2);
}

static void test_each_retransmission_is_acknowledged(void **state)
{
	struct peer peer;

	connect_near_wrap(&peer);
	expect_alive(&peer);
	for (unsigned i = 0; i < 3; i++) {
		send_forged(&peer, PEER_ACK, peer.snd - 5, peer.rcv, "alive");
		expect_challenge(
			&peer); /* like a challenge ACK, but not rate limited */
	}
	assert_int_equal(net_here()->stats.challenge_acks, 0);
	assert_int_equal(got_len, 5);
}

static void test_keepalive_is_answered(void **state)
{
	struct peer peer;

	connect_near_wrap(&peer);
	send_forged(&peer, PEER_ACK, peer.snd - 1, peer.rcv, "");
	expect_challenge(&peer);
}

static void test_data_without_ack_is_dropped(void **state)
{
	static const uint8_t flags[] = {0, PEER_PSH, PEER_FIN,
					PEER_FIN | PEER_PSH | 0x20};
	struct peer peer;

	connect_near_wrap(&peer);
	for (unsigned i = 0; i < 4; i++) {
		send_forged(&peer, flags[i], peer.snd, peer.rcv, "evil");
		peer_expect_nothing();
	}
	assert_int_equal(got_len, 0);
	assert_int_equal(net_here()->stats.rx_unacceptable, 4);
	expect_alive(&peer);
}

/* ---- section 7: rate limits ---- */

static void test_challenges_are_limited_by_connection(void **state)
{
	struct peer first, second;
	struct segment s;
	unsigned n = 0;

	serve(read_all);
	peer_connect(&first, 1000, 7, NEAR_WRAP);
	peer_connect(&second, 1001, 7, NEAR_WRAP);
	for (unsigned ms = 0; ms < 1000; ms++) {
		send_forged(&first, PEER_RST, first.snd + 9, 0, "");
		run_ms(1);
		while (peer_next(&s))
			n++;
	}
	assert_int_equal(n, 2);
	/* Another connection has its own limit. */
	send_forged(&second, PEER_RST, second.snd + 9, 0, "");
	expect_challenge(&second);
}

/* ---- resets that leave ---- */

static void test_wrong_ack_half_open_draws_a_bare_rst(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 7, .snd = NEAR_WRAP};
	struct segment s;

	peer.wnd = 100;
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	send_forged(&peer, PEER_ACK, peer.snd, s.seq + 2, "");
	peer.rcv = s.seq + 1;
	expect(&s, PEER_RST, peer.rcv + 1, 0, 0);
	assert_int_equal(s.wnd, 0);
	assert_int_equal(net_here()->half_open,
			 1); /* the right ACK is accepted */
	send_forged(&peer, PEER_ACK, peer.snd, peer.rcv, "");
	run_rounds(2);
	assert_int_equal(net_here()->stats.accepted, 1);
}

static void test_closed_port_resets_as_rfc_9293_says(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 9};
	struct segment s;

	send_forged(&peer, PEER_ACK, 77, NEAR_WRAP, "data");
	expect(&s, PEER_RST, NEAR_WRAP, 0, 0);
	assert_int_equal(s.wnd, 0);
	send_forged(&peer, PEER_SYN, -1u, 99,
		    ""); /* its ACK field is not valid */
	expect(&s, PEER_RST | PEER_ACK, 0, 0, 0); /* after the wrap */
	send_forged(&peer, PEER_FIN, 10, 99, "data");
	expect(&s, PEER_RST | PEER_ACK, 0, 15, 0);
	send_forged(&peer, PEER_RST, 10, 99, "");
	send_forged(&peer, PEER_RST | PEER_ACK, 10, 99, "");
	peer_expect_nothing();
}

static void test_listener_resets_an_ack_and_ignores_other_segments(void **state)
{
	struct peer peer = {.port = 1000, .stack_port = 7};

	send_forged(&peer, PEER_ACK, 5, 6, "");
	expect(NULL, PEER_RST, 6, 0, 0);
	send_forged(&peer, 0, 5, 6, "");			  /* null */
	send_forged(&peer, PEER_FIN | PEER_PSH | 0x20, 5, 6, ""); /* Xmas */
	send_forged(&peer, PEER_RST, 5, 6, "");
	peer_expect_nothing();
	assert_int_equal(net_here()->n_conns, 0);
}

static void test_abort_sends_a_reset_that_closes_the_window(void **state)
{
	struct segment s;
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	tcp_abort(&only_conn()->pcb);
	expect(&s, PEER_RST | PEER_ACK, peer.rcv, peer.snd, 0);
	assert_int_equal(s.wnd, 0);
	run_rounds(2);
	assert_int_equal(ended, 1);
}

/* ---- connecting out ---- */

static void *dial_body(void *arg)
{
	struct net_addr addr;
	struct net_conn *conn = NULL;

	net_addr_parse("10.0.0.2:80", -1, &addr);
	result = net_dial(stack, &addr, NULL, &conn);
	ended++;
	if (result == 0)
		net_close(conn);
	return NULL;
}

static void start_dial(struct peer *peer)
{
	struct segment s;

	net_spawn(stack, "dial", dial_body, NULL);
	expect(&s, PEER_SYN, ANY, 0, 0);
	*peer = (struct peer){.port = 80,
			      .stack_port = s.src,
			      .snd = NEAR_WRAP,
			      .rcv = s.seq + 1,
			      .wnd = 1000};
}

static void test_dial_is_refused_only_by_a_rst_with_its_ack(void **state)
{
	struct peer peer;

	start_dial(&peer);
	send_forged(&peer, PEER_RST, 0, peer.rcv, ""); /* no ACK flag */
	send_forged(&peer, PEER_RST | PEER_ACK, 0, peer.rcv + 1, "");
	send_forged(&peer, PEER_ACK, 0, peer.rcv, ""); /* no SYN: no answer */
	peer_expect_nothing();
	assert_int_equal(ended, 0);
	send_forged(&peer, PEER_RST | PEER_ACK, 0, peer.rcv, "");
	run_rounds(3);
	assert_int_equal(result, -ECONNREFUSED);
}

static void test_dial_resets_the_peers_old_connection(void **state)
{
	struct segment s;
	struct peer peer;

	start_dial(&peer);
	send_forged(&peer, PEER_ACK, 5, peer.rcv + 4711, "");
	expect(&s, PEER_RST, peer.rcv + 4711, 0, 0);
	while (peer_next(&s)) /* the SYN again */
		assert_int_equal(s.flags, PEER_SYN);
	peer_send(&peer, PEER_SYN | PEER_ACK, NULL, 0);
	run_rounds(3);
	assert_int_equal(result, 0);
}

/* ---- options ---- */

static uint32_t send_syn(uint16_t port, uint32_t seq, const uint8_t *options,
			 unsigned len)
{
	const struct segment syn = {.src = port,
				    .dst = 7,
				    .seq = seq,
				    .flags = PEER_SYN,
				    .wnd = 65535,
				    .options = options,
				    .options_len = len,
				    .data = (const uint8_t *)""};
	struct segment s;

	peer_send_raw(&syn);
	expect(&s, PEER_SYN | PEER_ACK, ANY, seq + 1, 0);
	return s.seq + 1;
}

/* Returns the MSS of a connection whose SYN has this option. */
static unsigned mss_of(uint16_t port, const uint8_t *options, unsigned len)
{
	struct peer peer = {
		.port = port, .stack_port = 7, .snd = 6, .wnd = 65535};
	ip_addr_t local, remote;

	IP_ADDR4(&local, 10, 0, 0, 1);
	IP_ADDR4(&remote, 10, 0, 0, 2);
	peer.rcv = send_syn(port, 5, options, len);
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	return net_demux_find(&local, 7, &remote, port)->pcb.mss;
}

static void test_tiny_mss_is_raised_and_an_absent_one_is_536(void **state)
{
	static const uint8_t one[] = {2, 4, 0, 1}, zero[] = {2, 4, 0, 0};
	static const uint8_t least[] = {2, 4, 0, 217};

	serve(read_all);
	assert_int_equal(mss_of(2000, one, 4), 216);
	assert_int_equal(mss_of(2001, zero, 4), 216);
	assert_int_equal(mss_of(2002, least, 4), 217);
	assert_int_equal(mss_of(2003, one, 0), 536);
}

static void test_handshake_options_are_ignored_later(void **state)
{
	static const uint8_t first[] = {2, 4, 2, 0};
	static const uint8_t later[] = {2, 4, 0x23, 0, 3, 3, 7, 4, 2, 0, 0, 0};
	struct segment s = {.src = 2000,
			    .dst = 7,
			    .seq = 6,
			    .flags = PEER_ACK,
			    .wnd = 1000,
			    .options = later,
			    .options_len = sizeof(later),
			    .data = (const uint8_t *)""};
	struct tcp_pcb *pcb;

	serve(read_all);
	send_syn(2000, 5, first, 4);
	/* again, and different */
	s.ack = send_syn(2000, 5, later, sizeof(later));
	peer_send_raw(&s);
	run_rounds(2);
	pcb = &only_conn()->pcb;
	assert_int_equal(pcb->state, ESTABLISHED);
	assert_int_equal(pcb->mss, 512);
	assert_int_equal(pcb->snd_wnd, 1000); /* not scaled */
	assert_int_equal(pcb->flags & (TF_WND_SCALE | TF_SACK), 0);
}

/* ---- impossible senders ---- */

static void test_multicast_and_broadcast_segments_are_dropped(void **state)
{
	static const uint8_t from[][4] = {{10, 0, 0, 255}, {255, 255, 255, 255},
					  {224, 0, 0, 1},  {239, 1, 2, 3},
					  {0, 0, 0, 0},	   {10, 0, 0, 1}};
	static const uint8_t to[][4] = {{10, 0, 0, 255}, {255, 255, 255, 255}};
	struct segment s = {.src = 7, /* LAND: the same port, too */
			    .dst = 7,
			    .flags = PEER_SYN,
			    .wnd = 100,
			    .options = (const uint8_t *)"",
			    .data = (const uint8_t *)""};

	for (unsigned i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
		s.from = from[i];
		peer_send_raw(&s);
		peer_expect_nothing();
	}
	s.from = NULL;
	for (unsigned i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
		s.to = to[i];
		peer_send_raw(&s);
		peer_expect_nothing();
	}
	s.to = NULL;
	s.to_all = true;
	peer_send_raw(&s);
	peer_expect_nothing();
	assert_int_equal(net_here()->half_open, 0);
	s.to_all = false;
	peer_send_raw(&s);
	run_rounds(2);
	assert_int_equal(net_here()->half_open, 1);
}

#define T(name)                                                                \
	cmocka_unit_test_setup_teardown(name, peer_listen, peer_teardown)

/* Ethernet pads short frames to 60 bytes; the padding is not data. */
static void test_frame_padding_is_not_data(void **state)
{
	const uint16_t flags =
		GLUE_FRAME_IP4 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK;
	uint8_t frame[60] = {
		[12] = 0x08,	    [14] = 0x45,
		[17] = 42,	    [22] = 64,
		[23] = 6,	    [26] = 10,
		[29] = 2,	    [30] = 10,
		[33] = 1,	    [34] = 1000 >> 8,
		[35] = 1000 & 0xff, [37] = 7,
		[46] = 5 << 4,	    [47] = PEER_PSH | PEER_ACK,
		[48] = 0xff,	    [54] = 'o',
		[55] = 'k',	    [56] = 'n',
		[57] = 'o',
	};
	struct peer peer;

	serve(read_all);
	peer_connect(&peer, 1000, 7, 5000);
	for (unsigned i = 0; i < 4; i++) {
		frame[38 + i] = (uint8_t)(peer.snd >> (24 - 8 * i));
		frame[42 + i] = (uint8_t)(peer.rcv >> (24 - 8 * i));
	}
	fake_receive(frame, sizeof(frame), flags, 34);
	run_rounds(2);
	assert_int_equal(got_len, 2);
	assert_memory_equal(got, "ok", 2);
	peer.snd += 2;
	peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_int_equal(ended, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_exact_rst_resets),
		T(test_rst_in_the_window_is_challenged),
		T(test_rst_outside_the_window_is_dropped),
		T(test_rst_into_a_closed_window_must_be_exact),
		T(test_syn_for_a_connection_is_challenged),
		T(test_half_open_answers_its_syn_and_challenges_another),
		T(test_time_wait_never_resets),
		T(test_data_with_an_impossible_ack_is_challenged),
		T(test_data_with_an_old_ack_is_taken),
		T(test_ack_far_outside_the_window_acknowledges_nothing),
		T(test_each_retransmission_is_acknowledged),
		T(test_keepalive_is_answered),
		T(test_data_without_ack_is_dropped),
		T(test_challenges_are_limited_by_connection),
		T(test_wrong_ack_half_open_draws_a_bare_rst),
		T(test_closed_port_resets_as_rfc_9293_says),
		T(test_listener_resets_an_ack_and_ignores_other_segments),
		T(test_abort_sends_a_reset_that_closes_the_window),
		T(test_dial_is_refused_only_by_a_rst_with_its_ack),
		T(test_dial_resets_the_peers_old_connection),
		T(test_tiny_mss_is_raised_and_an_absent_one_is_536),
		T(test_handshake_options_are_ignored_later),
		T(test_multicast_and_broadcast_segments_are_dropped),
		T(test_frame_padding_is_not_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
