/*
 * A peer that does not read: its window closes, shrinks and opens again. Our
 * segments stay acceptable meanwhile, and nothing is lost or given up while the
 * peer answers.
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

#define MSS	  536u	      /* what a SYN without options means */
#define NEAR_WRAP 0xfffffe00u /* sequence numbers wrap within the test */

static struct peer peer;
static struct net_conn *ours;
static uint32_t base; /* of the stream that the handler sends */
static size_t to_send;
static bool go; /* the handler continues */

static uint8_t stream_byte(size_t at)
{
	return (uint8_t)(at * 7 + at / 251);
}

/* Sends to_send bytes, then closes. */
static void send_and_close(struct net_conn *conn, void *arg)
{
	static uint8_t data[65536];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = stream_byte(i);
	ours = conn;
	result = net_send_all(conn, data, to_send);
	ended++;
}

/* The same, but closes only once go is set. */
static void send_and_wait(struct net_conn *conn, void *arg)
{
	send_and_close(conn, arg);
	while (!go)
		coro_sleep_ns(1000000);
}

/*
 * Closes its side at once and stays, so that the connection is no orphan, which
 * would end.
 */
static void send_and_shut(struct net_conn *conn, void *arg)
{
	send_and_close(conn, arg);
	net_shutdown(conn, NET_SHUT_WR);
	while (!go)
		coro_sleep_ns(1000000);
}

static void send_and_abort(struct net_conn *conn, void *arg)
{
	send_and_wait(conn, arg);
	net_abort(conn);
}

static void connect_to(net_handler handler, size_t bytes, uint16_t wnd)
{
	struct segment s;

	serve(handler);
	to_send = bytes;
	go = false;
	peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = wnd};
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	base = peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
}

/* Time passes in steps of 10 ms; few of these tests need finer ones. */
static void pass_ms(unsigned ms)
{
	for (; ms >= 10; ms -= 10) {
		fake_now_ns += 10000000;
		run_rounds(1);
	}
}

/* Returns whether the peer accepts a segment by RFC 9293 3.10.7.4. */
static bool acceptable(const struct segment *s)
{
	unsigned len = s->len + ((s->flags & PEER_FIN) != 0);

	if (len == 0)
		return s->seq - peer.rcv < peer.wnd || s->seq == peer.rcv;
	return s->seq - peer.rcv + len <= peer.wnd;
}

/*
 * The peer accepts the next segments, checks them, and answers where required.
 * Returns the number of received bytes, FIN included.
 */
static unsigned take_and_answer(void)
{
	struct segment s;

	while (peer_next(&s)) {
		bool next = s.seq == peer.rcv && acceptable(&s);

		for (unsigned i = 0; next && i < s.len; i++)
			assert_int_equal(s.data[i],
					 stream_byte(s.seq - base + i));
		if (next)
			peer.rcv += s.len + ((s.flags & PEER_FIN) != 0);
		if (s.len || (s.flags & PEER_FIN) || !acceptable(&s))
			peer_send(&peer, PEER_ACK, NULL, 0);
	}
	return peer.rcv - base;
}

/* Lets the peer answer for so many seconds with an unchanged window. */
static unsigned answer_for(unsigned seconds)
{
	unsigned n = 0;

	for (unsigned s = 0; s < seconds; s++) {
		pass_ms(1000);
		n = take_and_answer();
	}
	return n;
}

static unsigned answer_for_long(void)
{
	return answer_for(1800);
}

/* Queues the stream, delivers some of it, and closes the window. */
static void shut_window(void)
{
	struct segment s;

	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	pass_ms(50);
	peer_expect_nothing();
}

static void test_probe_carries_no_new_number(void **state)
{
	struct segment s;

	connect_to(send_and_wait, 65536, 20000);
	shut_window();
	for (unsigned i = 0; i < 5; i++) {
		s = peer_wait(30000);
		check_segment(&s, PEER_ACK, peer.rcv - 1, peer.snd, 0);
	}
	peer_send(&peer, PEER_ACK, "x",
		  1); /* our ACK number is in its window */
	s = peer_wait(30000);
	check_segment(&s, PEER_ACK, peer.rcv, peer.snd, 0);
}

static void test_reset_after_probes_is_in_the_window(void **state)
{
	struct segment s;

	connect_to(send_and_abort, 10000, 2000);
	shut_window();
	pass_ms(5000);
	while (peer_next(&s))
		;
	go = true;
	pass_ms(20);
	expect(&s, PEER_RST | PEER_ACK, peer.rcv, peer.snd, 0);
}

static void test_probes_back_off_without_lwip_ticks(void **state)
{
	struct segment s;
	unsigned probes = 0;
	uint64_t ticks;

	connect_to(send_and_wait, 10000, 2000);
	shut_window();
	ticks = net_lwip_ticks;
	for (unsigned i = 0; i < 60; i++) {
		pass_ms(10000);
		while (peer_next(&s)) {
			probes++;
			peer_send(&peer, PEER_ACK, NULL, 0);
		}
	}
	/* 120 ms doubled until it is a minute, then one a minute */
	assert_in_range(probes, 15, 20);
	assert_int_equal(net_lwip_ticks, ticks);
}

static void test_peer_that_answers_probes_is_kept(void **state)
{
	connect_to(send_and_shut, 10000, 2000);
	shut_window();
	assert_int_equal(answer_for_long(), 2000 / MSS * MSS);
	assert_int_equal(net_here()->n_conns, 1);
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned i = 0; i < 20; i++) {
		take_and_answer();
		pass_ms(10);
	}
	assert_int_equal(take_and_answer(), 10001);
	go = true;
}

static void test_silent_peer_is_given_up(void **state)
{
	struct segment s;
	unsigned seconds = 0;

	connect_to(send_and_wait, 65536, 2000);
	to_send = 0;
	shut_window();
	while (net_here()->n_conns && seconds < 3600) {
		pass_ms(1000);
		seconds++;
		while (peer_next(&s))
			;
	}
	assert_in_range(seconds, 100, 600);
	pass_ms(20);
	net_abort(ours);
	go = true;
}

/*
 * The peer shrinks its window below the data in flight, which it has not
 * received.
 */
static void shrink_window(uint16_t to)
{
	struct segment s;

	while (peer_next(&s))
		;
	peer.wnd = to;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	peer_expect_nothing();
}

static void test_peer_that_shrinks_its_window_to_zero_is_kept(void **state)
{
	connect_to(send_and_shut, 1072, 65535);
	shrink_window(0);
	assert_int_equal(answer_for_long(), 0);
	assert_int_equal(net_here()->n_conns, 1);
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned i = 0; i < 50; i++) { /* not at the next timeout */
		take_and_answer();
		pass_ms(10);
	}
	assert_int_equal(take_and_answer(), 1073);
	go = true;
}

/* No handler waits for an orphan, so it is given up. */
static void test_orphan_with_a_shrunk_window_is_given_up(void **state)
{
	connect_to(send_and_close, 1072, 65535);
	shrink_window(0);
	assert_int_equal(answer_for(600), 0);
	assert_int_equal(net_here()->n_conns, 0);
}

/*
 * The peer acknowledges nothing and announces two windows in turn, one each 100
 * ms. Returns for how many seconds the connection lasts, and in *sent how many
 * segments with data or FIN it sends.
 */
static unsigned alternate_windows(uint16_t one, uint16_t other, unsigned *sent)
{
	struct segment s;
	unsigned i;

	*sent = 0;
	for (i = 0; i < 12000 && net_here()->n_conns; i++) {
		peer.wnd = i % 2 ? one : other;
		peer_send(&peer, PEER_ACK, NULL, 0);
		pass_ms(100);
		while (peer_next(&s))
			*sent += s.len || s.flags & PEER_FIN;
	}
	return i / 10;
}

static void test_changing_window_does_not_save_an_orphan(void **state)
{
	unsigned sent;

	connect_to(send_and_close, 0, 65535);
	assert_in_range(alternate_windows(50000, 60000, &sent), 60, 600);
	assert_in_range(sent, 10, 15);
}

static void test_orphan_whose_window_opens_and_shuts_is_given_up(void **state)
{
	unsigned sent;

	connect_to(send_and_close, 20000, 1);
	assert_in_range(alternate_windows(0, 1, &sent), 60, 900);
}

/* The owner has not closed. */
static void test_changing_window_does_not_undo_the_backoff(void **state)
{
	unsigned sent;

	connect_to(send_and_wait, 1072, 65535);
	assert_in_range(alternate_windows(50000, 60000, &sent), 60, 600);
	assert_in_range(sent, 10, 15);
	go = true;
}

/* A closed window does not indicate a path MTU black hole. */
static void test_shrunk_window_does_not_lower_the_mss(void **state)
{
	static const uint8_t mss1460[] = {2, 4, 5, 180};
	struct segment s, syn = {.src = 1000,
				 .dst = 7,
				 .seq = 99,
				 .flags = PEER_SYN,
				 .wnd = 65535,
				 .options = mss1460,
				 .options_len = sizeof(mss1460),
				 .data = (const uint8_t *)""};

	serve(send_and_wait);
	to_send = 1460;
	go = false;
	peer_send_raw(&syn);
	assert_true(peer_next(&s));
	peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = 100, .wnd = 65535};
	base = peer.rcv = s.seq + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	shrink_window(0);
	assert_int_equal(answer_for(600), 0);
	assert_int_equal(ours->pcb.mss, 1460);
	assert_int_equal(net_here()->stats.path_mtu_guessed, 0);
	go = true;
}

static void test_silent_peer_with_a_shrunk_window_is_given_up(void **state)
{
	struct segment s;
	unsigned seconds = 0;

	connect_to(send_and_close, 1072, 65535);
	shrink_window(0);
	while (net_here()->n_conns && seconds < 3600) {
		pass_ms(1000);
		seconds++;
		while (peer_next(&s))
			;
	}
	assert_in_range(seconds, 100, 600);
}

static void test_answers_stay_in_a_shrunk_window(void **state)
{
	struct segment s;

	connect_to(send_and_abort, 3000, 65535);
	shrink_window(600);
	peer_send(&peer, PEER_ACK, "x", 1);
	s = peer_wait(30000);
	check_segment(&s, PEER_ACK, base + 600, peer.snd, 0);
	go = true;
	pass_ms(20);
	do
		assert_true(peer_next(&s));
	while (!(s.flags & PEER_RST));
	assert_int_equal(s.seq, base + 600);
}

/* Bytes that scaling rounds off are not a shrinking window. */
static void test_rounded_scaled_window_does_not_count_as_shrunk(void **state)
{
	static const uint8_t scale7[] = {2, 4, 2, 24, 1, 3, 3, 7};
	struct segment s, syn = {.src = 1000,
				 .dst = 7,
				 .seq = 99,
				 .flags = PEER_SYN,
				 .wnd = 1072,
				 .options = scale7,
				 .options_len = sizeof(scale7),
				 .data = (const uint8_t *)""};

	serve(send_and_wait);
	to_send = 1072;
	go = false;
	peer_send_raw(&syn);
	assert_true(peer_next(&s));
	peer = (struct peer){.port = 1000,
			     .stack_port = 7,
			     .snd = 100,
			     .rcv = s.seq + 1,
			     .wnd = 1072 >> 7};
	peer.wnd++;
	peer_send(&peer, PEER_ACK, NULL, 0);
	assert_true(peer_next(&s));
	assert_true(peer_next(&s));
	peer.wnd--; /* 1024 */
	peer_send(&peer, PEER_ACK, "x", 1);
	s = peer_wait(30000);
	assert_int_equal(s.seq, peer.rcv + 1072);
	go = true;
}

/* A retransmission is cut to the window. */
static void test_partial_window_is_used(void **state)
{
	connect_to(send_and_close, 3000, 65535);
	shrink_window(MSS + 100);
	for (unsigned i = 0; i < 200; i++) {
		pass_ms(10);
		take_and_answer();
	}
	assert_true(take_and_answer() > MSS);
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned i = 0; i < 200; i++) {
		pass_ms(10);
		take_and_answer();
	}
	assert_int_equal(take_and_answer(), 3001);
}

static void test_fin_waits_for_a_window(void **state)
{
	uint64_t ticks;

	connect_to(send_and_wait, 2 * MSS, 2 * MSS);
	shut_window();
	go = true; /* nothing is left to send but the FIN */
	pass_ms(100);
	ticks = net_lwip_ticks;
	assert_int_equal(answer_for(180), 2 * MSS);
	assert_int_equal(net_lwip_ticks, ticks);
	assert_int_equal(net_here()->n_conns, 1);
	peer.wnd = 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	pass_ms(500);
	assert_int_equal(take_and_answer(), 2 * MSS + 1);
}

static void test_fin_beyond_the_window_is_sent_alone(void **state)
{
	struct segment s;
	unsigned len = 0;

	connect_to(send_and_close, 100, 100);
	for (unsigned ms = 0; ms < 1000 && !len; ms += 10) {
		pass_ms(10);
		while (peer_next(&s)) {
			assert_false(s.flags & PEER_FIN);
			len += s.len;
		}
	}
	assert_int_equal(len, 100);
	peer.rcv += 100;
	peer_send(&peer, PEER_ACK, NULL, 0);
	pass_ms(500);
	assert_int_equal(take_and_answer(), 101);
}

static void test_full_segment_with_fin_is_sent_again(void **state)
{
	struct segment s;
	unsigned sent = 0;

	connect_to(send_and_close, MSS, 65535);
	for (unsigned ms = 0; ms < 20000; ms += 10) {
		while (peer_next(&s)) {
			check_segment(&s, PEER_ACK | PEER_PSH | PEER_FIN, base,
				      peer.snd, MSS);
			sent++;
		}
		pass_ms(10);
	}
	assert_in_range(sent, 7, 9); /* after 120 ms, doubled each time */
	peer.rcv += MSS + 1;
	peer_send(&peer, PEER_ACK, NULL, 0);
	pass_ms(10);
}

/* A failed split for lack of memory is retried soon, without back-off. */
static void test_split_without_memory_is_tried_again_soon(void **state)
{
	connect_to(send_and_wait, 10000, 4 * MSS);
	shut_window();
	peer.wnd = 100;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned i = 0; i < 10; i++) {
		net_mem_fail_after(1);
		run_ms(200);
	}
	net_mem_fail_after(0);
	assert_int_equal(peer_wait(250).len, 100);
	go = true;
}

/*
 * A timeout without memory for the recovery state requeues all but the first
 * segment. They are not in flight when the next timeout has memory.
 */
static void test_timeout_after_one_without_memory_sends(void **state)
{
	struct segment s;

	serve(send_and_wait);
	to_send = 3 * MSS;
	go = false;
	peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = 65535};
	peer_send(&peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	assert_int_equal(peer_wait(1500).flags, PEER_SYN | PEER_ACK);
	base = peer.rcv = s.seq + 1; /* sent twice: no round trip is known */
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(peer_wait(10).len, MSS);
	run_ms(900);
	peer_expect_nothing();
	net_mem_fail_after(1);
	assert_int_equal(peer_wait(200).seq, base);
	net_mem_fail_after(0);
	assert_int_equal(peer_wait(2100).seq, base);
	go = true;
}

/* Sends n keepalive probes; returns the number of answers. */
static unsigned send_probes(unsigned n, unsigned pause_ms)
{
	struct segment s;
	unsigned answers = 0;

	peer.snd--;
	while (n--) {
		peer_send(&peer, PEER_ACK, NULL, 0);
		run_ms(pause_ms);
		while (peer_next(&s)) {
			assert_int_equal(s.ack, peer.snd + 1);
			answers++;
		}
	}
	peer.snd++;
	return answers;
}

static void test_every_window_probe_is_answered(void **state)
{
	connect_to(send_and_wait, 0, 65535);
	assert_int_equal(send_probes(10, 120), 10);
	assert_in_range(send_probes(1000, 0), 0,
			1); /* but not a flood of them */
	go = true;
}

static void test_probe_is_answered_when_memory_is_short(void **state)
{
	net_here()->max_counted = 0; /* no counters are kept */
	connect_to(send_and_wait, 0, 65535);
	assert_ptr_equal(ours->ext, &net_conn_no_ext);
	net_mem_fail_after(1);
	assert_int_equal(send_probes(1, 10), 1);
	assert_ptr_equal(ours->ext, &net_conn_no_ext);
	go = true;
}

/* A window smaller than a segment needs memory to cut one. */
static void test_short_memory_does_not_back_off_probes(void **state)
{
	unsigned ms = 0;
	struct segment s;

	connect_to(send_and_wait, 5 * MSS, MSS);
	while (peer_next(&s))
		peer.rcv = s.seq + s.len;
	peer.wnd = 100;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_rounds(1);
	for (; ms < 4000; ms += 10) {
		net_mem_fail_after(1);
		pass_ms(10);
		assert_false(peer_next(&s));
	}
	net_mem_fail_after(0);
	for (ms = 0; ms < 3000 && !peer_next(&s); ms += 10)
		pass_ms(10);
	assert_in_range(ms, 0, 1000); /* one timeout, of a second at first */
	assert_int_equal(s.len, 100);
	go = true;
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_probe_carries_no_new_number),
		T(test_reset_after_probes_is_in_the_window),
		T(test_probes_back_off_without_lwip_ticks),
		T(test_peer_that_answers_probes_is_kept),
		T(test_silent_peer_is_given_up),
		T(test_peer_that_shrinks_its_window_to_zero_is_kept),
		T(test_orphan_with_a_shrunk_window_is_given_up),
		T(test_changing_window_does_not_save_an_orphan),
		T(test_orphan_whose_window_opens_and_shuts_is_given_up),
		T(test_changing_window_does_not_undo_the_backoff),
		T(test_shrunk_window_does_not_lower_the_mss),
		T(test_silent_peer_with_a_shrunk_window_is_given_up),
		T(test_answers_stay_in_a_shrunk_window),
		T(test_rounded_scaled_window_does_not_count_as_shrunk),
		T(test_partial_window_is_used),
		T(test_fin_waits_for_a_window),
		T(test_fin_beyond_the_window_is_sent_alone),
		T(test_full_segment_with_fin_is_sent_again),
		T(test_split_without_memory_is_tried_again_soon),
		T(test_timeout_after_one_without_memory_sends),
		T(test_every_window_probe_is_answered),
		T(test_probe_is_answered_when_memory_is_short),
		T(test_short_memory_does_not_back_off_probes),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
