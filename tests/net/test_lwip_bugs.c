/*
 * Bugs of lwIP 2.2.1, or fixed by other projects that ship lwIP, each as a peer
 * would trigger it. docs/internals.md lists those that cannot happen.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define MSS	  536u	      /* the MSS without the option */
#define NEAR_WRAP 0xfffffe00u /* sequence numbers wrap within the test */

static struct net_conn *the_conn;
static size_t to_send;

static uint8_t stream_byte(size_t at)
{
	return (uint8_t)(at * 7 + at / 251);
}

static void send_and_close(struct net_conn *conn, void *arg)
{
	static uint8_t data[65536];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = stream_byte(i);
	the_conn = conn;
	result = net_send_all(conn, data, to_send);
	ended++;
}

static void send_and_wait(struct net_conn *conn, void *arg)
{
	send_and_close(conn, arg);
	coro_park_until(CORO_FOREVER);
}

/*
 * Connects with a window smaller than 64 KiB; returns the stream's first
 * sequence number.
 */
static uint32_t connect_to(struct peer *peer, net_handler handler, uint16_t wnd)
{
	struct segment s;

	serve(handler);
	*peer = (struct peer){
		.port = 1000, .stack_port = 7, .snd = NEAR_WRAP, .wnd = wnd};
	peer_send(peer, PEER_SYN, NULL, 0);
	assert_true(peer_next(&s));
	peer->rcv = s.seq + 1;
	peer_send(peer, PEER_ACK, NULL, 0);
	return peer->rcv;
}

/* The same; the handler sends so many bytes and closes. */
static uint32_t connect_small(struct peer *peer, uint16_t wnd, size_t bytes)
{
	to_send = bytes;
	return connect_to(peer, send_and_close, wnd);
}

/*
 * A segment is split for a small window: FIN and PSH belong to its last part
 * (libvma 908).
 */
static void test_split_segment_keeps_its_fin_at_the_end(void **state)
{
	struct peer peer;
	struct segment s;
	uint32_t base = connect_small(&peer, 2000, 2100);
	unsigned fins = 0;

	for (unsigned ms = 0; ms < 2000 && !fins; ms++) {
		run_ms(1);
		while (peer_next(&s)) {
			if (s.flags & (PEER_FIN | PEER_PSH))
				assert_int_equal(s.seq + s.len, base + 2100);
			fins += (s.flags & PEER_FIN) != 0;
			if (s.seq != peer.rcv)
				continue;
			peer.rcv += s.len + ((s.flags & PEER_FIN) != 0);
			if (peer.rcv - base < 2000) /* nothing is read */
				peer.wnd = (uint16_t)(2000 - (peer.rcv - base));
			peer_send(&peer, PEER_ACK, NULL, 0);
		}
	}
	assert_int_equal(fins, 1);
	assert_int_equal(peer.rcv - base, 2101);
}

/*
 * Checks a segment's bytes of the stream; returns true if the peer accepts it.
 */
static bool take_stream(struct peer *peer, const struct segment *s,
			uint32_t base)
{
	if (s->seq != peer->rcv)
		return false;
	for (unsigned i = 0; i < s->len; i++)
		assert_int_equal(s->data[i], stream_byte(s->seq - base + i));
	peer->rcv += s->len + ((s->flags & PEER_FIN) != 0);
	return true;
}

/* Takes and acknowledges segments until the connection or the time is over. */
static unsigned take_all(struct peer *peer, uint32_t base, unsigned ms)
{
	struct segment s;

	for (; ms; ms--) {
		while (peer_next(&s))
			if (take_stream(peer, &s, base) || s.len)
				peer_send(peer, PEER_ACK, NULL, 0);
		run_ms(1);
	}
	return peer->rcv - base;
}

/*
 * A window opens by less than the next segment, without later updates: the part
 * that fits is sent (libvma 459).
 */
static void test_window_smaller_than_the_next_segment_is_used(void **state)
{
	struct peer peer;
	struct segment s;
	uint32_t base = connect_small(&peer, 2 * MSS, 4 * MSS);

	while (peer_next(&s))
		take_stream(&peer, &s, base);
	peer.wnd = 100;
	peer_send(&peer, PEER_ACK, NULL, 0);
	s = peer_wait(1000);
	check_segment(&s, ANY, peer.rcv, peer.snd, 100);
}

static bool more; /* has been queued */

/* Sends, and continues after its last segment was split. */
static void send_twice(struct net_conn *conn, void *arg)
{
	static uint8_t data[2000];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = stream_byte(i);
	the_conn = conn;
	more = false;
	net_send_all(conn, data, 700);
	coro_sleep_ns(INT64_C(500000000));
	net_send_all(conn, data + 700, 900);
	net_send_all(conn, data + 1600, 400);
	more = true;
}

/*
 * Bytes written after a split follow its second half (libvma 578, 883: a
 * pointer to the last segment; lwIP 2.2.1: the room in the last segment).
 */
static void test_stream_goes_on_behind_a_split_segment(void **state)
{
	struct peer peer;
	struct segment s;
	uint32_t base;

	base = connect_to(&peer, send_twice, MSS);
	while (peer_next(&s))
		take_stream(&peer, &s, base);
	assert_int_equal(peer.rcv - base, MSS);
	peer.wnd = 50; /* of the 164 bytes that are left */
	peer_send(&peer, PEER_ACK, NULL, 0);
	s = peer_wait(1000);
	assert_int_equal(s.len, 50);
	take_stream(&peer, &s, base);
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	for (unsigned ms = 0; ms < 1000 && !more; ms++)
		run_ms(1);
	run_ms(10);
	peer.wnd = 65535;
	peer_send(&peer, PEER_ACK, NULL, 0);
	assert_int_equal(take_all(&peer, base, 1000), 2001);
}

/* The data of the last segment is acknowledged, its FIN later (libxlio 307). */
static void test_fin_is_acknowledged_after_its_data(void **state)
{
	struct peer peer;
	struct segment s;
	uint32_t base = connect_small(&peer, 65535, 300);

	expect(&s, PEER_ACK | PEER_PSH | PEER_FIN, base, peer.snd, 300);
	peer.rcv += 300;
	peer_send(&peer, PEER_ACK, NULL, 0);
	s = peer_wait(1000);
	assert_true(s.flags & PEER_FIN);
	assert_int_equal(s.seq + s.len, base + 300);
	peer.rcv++;
	peer_send(&peer, PEER_ACK, NULL, 0);
	run_ms(10);
	assert_int_equal(the_conn->pcb.state, FIN_WAIT_2);
	assert_null(the_conn->pcb.unacked);
	assert_int_equal(the_conn->pcb.snd_queuelen, 0);
}

/*
 * The port holds the buffer of the only segment in flight at its timeout: the
 * segment is resent once the buffer is released (libxlio 611).
 */
static void test_segment_held_by_the_port_is_sent_again_later(void **state)
{
	struct peer peer;
	struct segment s;
	struct pbuf *held;
	uint32_t base = connect_small(&peer, 65535, 100);

	assert_true(peer_next(&s));
	held = the_conn->pcb.unacked->p;
	pbuf_ref(held);
	run_ms(3000);
	peer_expect_nothing();
	pbuf_free(held);
	s = peer_wait(100);
	assert_int_equal(s.len, 100);
	assert_int_equal(take_all(&peer, base, 10), 0);
}

static void keep_lent(void *arg)
{
}

static void send_lent(struct net_conn *conn, void *arg)
{
	static uint8_t data[4000];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = stream_byte(i);
	the_conn = conn;
	net_send_owned(conn, data, sizeof(data), keep_lent, NULL);
	coro_park_until(CORO_FOREVER);
}

/*
 * The count of pbufs in a queue of chains stays right after splits
 * (ambrop72/badvpn 85).
 */
static void test_pbufs_of_split_chains_are_counted(void **state)
{
	struct peer peer;
	struct segment s;
	uint32_t base;

	fake_lends = true;
	base = connect_to(&peer, send_lent, 300);
	for (unsigned ms = 0; ms < 20000 && peer.rcv - base < 4000; ms++) {
		while (peer_next(&s))
			if (take_stream(&peer, &s, base)) {
				peer.wnd = (uint16_t)(100 + ms % 400);
				peer_send(&peer, PEER_ACK, NULL, 0);
			}
		run_ms(1);
	}
	assert_int_equal(peer.rcv - base, 4000);
	run_ms(10);
	assert_null(the_conn->pcb.unacked);
	assert_null(the_conn->pcb.unsent);
	assert_int_equal(the_conn->pcb.snd_queuelen, 0);
}

/* ---- receiving ---- */

static bool may_read;

static void read_stream(struct net_conn *conn, void *arg)
{
	the_conn = conn;
	got_len = 0;
	while (!may_read)
		coro_sleep_ns(1000000);
	while (got_len < sizeof(got)) {
		long n = net_recv(conn, got + got_len, sizeof(got) - got_len);

		if (n <= 0)
			break;
		got_len += (size_t)n;
	}
	ended++;
}

static void send_at(const struct peer *peer, uint32_t at, unsigned len,
		    uint8_t flags)
{
	uint8_t data[1400] = {0};
	struct peer now = *peer;

	for (unsigned i = 0; i < len; i++)
		data[i] = stream_byte(at + i);
	now.snd = peer->snd + at;
	peer_send(&now, PEER_ACK | flags, data, len);
}

static void expect_stream(size_t len)
{
	run_ms(20);
	assert_int_equal(got_len, len);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(got[i], stream_byte(i));
}

/*
 * Pieces of any length, in any order, overlapping and across the wrap, make up
 * the stream (libvma 1039, libxlio 26: == instead of <=).
 */
static void test_overlapping_pieces_make_the_stream(void **state)
{
	enum { LEN = 6000 };
	struct segment s;

	may_read = true;
	serve(read_stream);
	for (unsigned seed = 0; seed < 100; seed++) {
		uint32_t random = seed * 2654435761u + 1;
		struct peer peer;

		peer_connect(&peer, (uint16_t)(1000 + seed), 7,
			     (uint32_t)-3000 - 1);
		ended = 0;
		for (unsigned i = 0; i < 400 && !ended; i++) {
			uint32_t at, len;

			random = random * 1664525 + 1013904223;
			at = (random >> 8) % LEN;
			len = 1 + (random >> 4) % 1400;
			if (i % 50 == 49) /* the oldest missing piece */
				at = (uint32_t)got_len;
			if (len > LEN - at)
				len = LEN - at;
			send_at(&peer, at, len, at + len == LEN ? PEER_FIN : 0);
			run_rounds(2);
			while (peer_next(&s))
				;
		}
		for (uint32_t at = 0; at < LEN; at += 1000)
			send_at(&peer, at, 1000, at == 5000 ? PEER_FIN : 0);
		expect_stream(LEN);
		assert_int_equal(ended, 1);
		send_at(&peer, LEN + 1, 0, PEER_RST);
		run_rounds(2);
		while (peer_next(&s))
			;
		peer.snd += LEN + 1;
		peer_send(&peer, PEER_RST | PEER_ACK, NULL, 0);
		run_ms(1100);
	}
}

/*
 * A longer piece that replaces a held one does not reach beyond the window
 * (lwip-tcpip/lwip 3).
 */
static void test_longer_piece_out_of_order_is_cut_to_the_window(void **state)
{
	struct peer peer;
	uint32_t at = 0;

	may_read = false;
	serve(read_stream);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	for (; at + 1000 < 65535 - 1000; at += 1000)
		send_at(&peer, at, 1000, 0);
	run_rounds(8);
	assert_int_equal(the_conn->pcb.rcv_wnd, 65535 - at);
	send_at(&peer, at + 100, 100, 0);
	send_at(&peer, at + 400, 100, 0);
	send_at(&peer, at + 1000, 100, 0);
	send_at(&peer, at + 100, 1400, 0);
	send_at(&peer, at + 400, 1400, 0);
	send_at(&peer, at + 1000, 1400, PEER_FIN);
	run_rounds(8);
	send_at(&peer, at, 1400, 0);
	run_rounds(8);
	assert_true(the_conn->pcb.rcv_wnd < 1600);
	assert_true(the_conn->pcb.rcv_nxt - peer.snd <= 65535);
	may_read = true;
	run_ms(20);
	expect_stream(the_conn->pcb.rcv_nxt - peer.snd);
}

/*
 * Both windows are closed and each side answers segments outside its own: the
 * exchange ends (espressif/esp-idf 2425).
 */
static void
test_two_shut_windows_do_not_answer_each_other_for_ever(void **state)
{
	static const uint8_t block[1000];
	struct peer peer;
	struct segment s;
	unsigned answers = 0;

	to_send = 10000;
	connect_to(&peer, send_and_wait, 4000);
	for (unsigned i = 0; i < 66; i++) {
		peer_send(&peer, PEER_ACK, block, i < 65 ? 1000 : 535);
		run_rounds(2);
	}
	while (peer_next(&s))
		if (s.len)
			peer.rcv = s.seq + s.len;
	peer.wnd = 0;
	peer_send(&peer, PEER_ACK, NULL, 0);
	peer.snd--; /* as lwIP probes, a byte beyond the window or before it */
	for (unsigned ms = 0; ms < 10000; ms++) {
		while (peer_next(&s))
			if (s.len || s.seq != peer.rcv) {
				peer_send(&peer, PEER_ACK, NULL, 0);
				answers++;
			}
		run_ms(1);
	}
	assert_in_range(answers, 1, 30);
}

#define T(f) cmocka_unit_test_setup_teardown(f, peer_listen, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_split_segment_keeps_its_fin_at_the_end),
		T(test_window_smaller_than_the_next_segment_is_used),
		T(test_stream_goes_on_behind_a_split_segment),
		T(test_fin_is_acknowledged_after_its_data),
		T(test_segment_held_by_the_port_is_sent_again_later),
		T(test_pbufs_of_split_chains_are_counted),
		T(test_overlapping_pieces_make_the_stream),
		T(test_longer_piece_out_of_order_is_cut_to_the_window),
		T(test_two_shut_windows_do_not_answer_each_other_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
