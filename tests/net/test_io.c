/*
 * Reading up to a delimiter, reading and writing vectors, back-pressure.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/state.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define NEAR_WRAP 0xfffffff0u

static struct peer peer;
static struct net_conn *accepted;

static void *accept_body(void *arg)
{
	assert_int_equal(net_accept(listener, &accepted), 0);
	return NULL;
}

static void connect_peer(void)
{
	net_spawn(stack, "acceptor", accept_body, NULL);
	run_rounds(2);
	peer_connect(&peer, 1000, 7, NEAR_WRAP);
	run_rounds(2);
	assert_non_null(accepted);
}

static void peer_says(const char *text)
{
	peer_send(&peer, PEER_ACK | PEER_PSH, text, (unsigned)strlen(text));
	run_rounds(2);
}

static void peer_ends(void)
{
	peer_send(&peer, PEER_ACK | PEER_FIN, NULL, 0);
	run_rounds(2);
}

/* ---- net_recv_until ---- */

static const char *delim;
static size_t room;

static void *until_body(void *arg)
{
	char buf[256];
	long n = net_recv_until(accepted, buf, room, delim, strlen(delim));

	if (n > 0) {
		memcpy(got, buf, (size_t)n);
		got_len = (size_t)n;
	}
	result = n;
	ended++;
	return NULL;
}

/* Reads up to d into len bytes; returns at once. */
static void read_until(const char *d, size_t len)
{
	delim = d;
	room = len;
	ended = 0;
	net_spawn(stack, "reader", until_body, NULL);
	run_rounds(2);
}

static void expect_read(const char *text)
{
	assert_int_equal(ended, 1);
	assert_int_equal(result, strlen(text));
	assert_memory_equal(got, text, strlen(text));
}

static void expect_left(const char *text)
{
	assert_int_equal(net_recv(accepted, got, sizeof(got)), strlen(text));
	assert_memory_equal(got, text, strlen(text));
}

static void test_until_leaves_later_bytes(void **state)
{
	connect_peer();
	peer_says("one\ntwo\nthr");
	read_until("\n", 99);
	expect_read("one\n");
	read_until("\n", 99);
	expect_read("two\n");
	expect_left("thr");
	net_close(accepted);
}

static void test_until_waits_for_the_delimiter(void **state)
{
	connect_peer();
	read_until("\r\n", 99);
	peer_says("GET / HTTP/1.1");
	assert_int_equal(ended, 0);
	peer_says("\r\nHost");
	expect_read("GET / HTTP/1.1\r\n");
	expect_left("Host");
	net_close(accepted);
}

static void test_delimiter_straddles_segments_a_byte_each(void **state)
{
	const char *text = "head\r\n\r\r\n\r\nbody";
	char one[2] = "";

	connect_peer();
	read_until("\r\n\r\n", 99);
	for (; *text; text++) {
		one[0] = *text;
		peer_says(one);
	}
	expect_read("head\r\n\r\r\n\r\n");
	expect_left("body");
	net_close(accepted);
}

static void test_delimiter_that_repeats_itself_is_found(void **state)
{
	connect_peer();
	read_until("aab", 99);
	peer_says("xaa");
	peer_says("aabaab");
	expect_read("xaaaab");
	read_until("aab", 99);
	expect_read("aab");
	read_until("aabaaaa", 99);
	peer_says("aabaaab");
	peer_says("aaaa");
	expect_read("aabaaabaaaa");
	net_close(accepted);
}

static uint32_t seed;

static unsigned draw_below(unsigned n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 16) % n;
}

/* Text of two letters comes in pieces; memmem() says where each read ends. */
static void try_text_in_pieces(void)
{
	char text[61] = "", pattern[16] = "", piece[61];
	size_t len = 20 + draw_below(40), plen = 1 + draw_below(15), at = 0;
	const char *hit;

	for (size_t i = 0; i < len; i++)
		text[i] = (char)('a' + draw_below(2));
	memcpy(pattern, text + draw_below((unsigned)(len - plen)), plen);
	if (draw_below(4) == 0)
		pattern[plen - 1] ^= 'a' ^ 'b'; /* likely nowhere */
	hit = memmem(text, len, pattern, plen);
	read_until(pattern, 99);
	while (at < len) {
		size_t part = 1 + draw_below((unsigned)(len - at));

		memcpy(piece, text + at, part);
		piece[part] = '\0';
		peer_says(piece);
		at += part;
	}
	assert_int_equal(ended, hit != NULL);
	if (hit) {
		size_t end = (size_t)(hit - text) + plen;

		assert_int_equal(result, end);
		assert_memory_equal(got, text, end);
		if (end < len)
			expect_left(text + end);
		return;
	}
	net_cancel(accepted);
	run_rounds(2);
	accepted->cancelled = false; /* for the next text */
	expect_left(text);
}

static void test_until_finds_the_same_as_memmem(void **state)
{
	connect_peer();
	for (seed = 1; seed < 300; seed++) {
		uint32_t was = seed;

		try_text_in_pieces();
		seed = was;
	}
	net_close(accepted);
}

static void test_until_starts_within_a_segment(void **state)
{
	connect_peer();
	peer_says(";a;b;");
	assert_int_equal(net_recv(accepted, got, 1), 1);
	read_until(";", 99);
	expect_read("a;");
	read_until(";", 2); /* exactly the room that it needs */
	expect_read("b;");
	net_close(accepted);
}

static void test_until_without_room_is_emsgsize_and_loses_nothing(void **state)
{
	connect_peer();
	peer_says("0123");
	read_until("\n", 8);
	assert_int_equal(ended, 0);
	peer_says("456789\n");
	assert_int_equal(result, -EMSGSIZE);
	expect_left("0123456789\n");
	net_close(accepted);
}

static void test_until_at_the_end_is_enodata_then_0(void **state)
{
	connect_peer();
	peer_says("whole\npart");
	read_until("\n", 99);
	expect_read("whole\n");
	read_until("\n", 99);
	assert_int_equal(ended, 0);
	peer_ends();
	assert_int_equal(result, -ENODATA);
	expect_left("part");
	read_until("\n", 99);
	assert_int_equal(result, 0);
	net_close(accepted);
}

static void test_until_errors_leave_the_bytes(void **state)
{
	connect_peer();
	peer_says("abc");
	net_set_read_deadline(accepted, fake_now_ns + 10000000);
	read_until("\n", 99);
	run_ms(20);
	assert_int_equal(result, -ETIMEDOUT);
	net_set_read_deadline(accepted, CORO_FOREVER);
	read_until("\n", 99);
	assert_int_equal(net_recv(accepted, got, 1), -EBUSY);
	peer_send(&peer, PEER_RST, NULL, 0);
	run_rounds(2);
	assert_int_equal(result, -ECONNRESET);
	expect_left("abc");
	net_close(accepted);
}

static void test_until_ends_when_reading_is_shut_down(void **state)
{
	connect_peer();
	peer_says("abc");
	read_until("\n", 99);
	assert_int_equal(net_shutdown(accepted, NET_SHUT_RD), 0);
	run_rounds(2);
	assert_int_equal(result, -ENOTCONN);
	net_close(accepted);
}

static void test_until_refuses_invalid_arguments(void **state)
{
	char buf[100];

	connect_peer();
	assert_int_equal(net_recv_until(accepted, buf, 9, "", 0), -EINVAL);
	assert_int_equal(
		net_recv_until(accepted, buf, 99, buf, NET_DELIM_MAX + 1),
		-EINVAL);
	assert_int_equal(net_recv_until(accepted, buf, 1, "\r\n", 2), -EINVAL);
	assert_int_equal(net_recv_until(accepted, NULL, 9, "\n", 1), -EINVAL);
	assert_int_equal(net_recv_until(NULL, buf, 9, "\n", 1), -EBADF);
	assert_int_equal(net_recv_until(accepted, buf, 9, "\n", 1), -EPERM);
	net_close(accepted);
}

static void *until_big_body(void *arg)
{
	result = net_recv_until(accepted, got, sizeof(got), "\n", 1);
	ended++;
	return NULL;
}

static void test_until_gives_up_when_the_window_is_full(void **state)
{
	static const uint8_t block[1400];

	connect_peer(); /* no scaling: 65535 bytes of window */
	net_spawn(stack, "reader", until_big_body, NULL);
	for (unsigned i = 0; i < 46; i++) {
		peer_send(&peer, PEER_ACK, block, sizeof(block));
		run_rounds(1);
	}
	run_rounds(2);
	assert_int_equal(ended, 1);
	assert_int_equal(result, -EMSGSIZE);
	assert_int_equal(net_recv(accepted, got, sizeof(got)), 46 * 1400);
	net_close(accepted);
}

/* ---- vectors ---- */

static void test_recvv_fills_buffers_in_order(void **state)
{
	char a[3], c[8];
	struct iovec iov[] = {{a, sizeof(a)}, {NULL, 0}, {c, sizeof(c)}};

	connect_peer();
	peer_says("ab");
	peer_says("cdef");
	assert_int_equal(net_recvv(accepted, iov, 3), 6);
	assert_memory_equal(a, "abc", 3);
	assert_memory_equal(c, "def", 3);
	assert_int_equal(net_recvv(accepted, iov, 3), -EPERM); /* blocks */
	net_close(accepted);
}

static void test_invalid_vectors_are_refused(void **state)
{
	static struct iovec many[NET_IOV_MAX + 1];
	struct iovec over[] = {{got, LONG_MAX}, {got, 1}};
	struct iovec wraps[] = {{got, SIZE_MAX}, {got, 2}};
	struct iovec null = {NULL, 1}, empty = {NULL, 0};

	connect_peer();
	assert_int_equal(net_sendv(accepted, over, 2), -EINVAL);
	assert_int_equal(net_sendv(accepted, wraps, 2), -EINVAL);
	assert_int_equal(net_sendv_all(accepted, wraps, 2), -EINVAL);
	assert_int_equal(net_recvv(accepted, over, 2), -EINVAL);
	assert_int_equal(net_sendv(accepted, many, NET_IOV_MAX + 1), -EINVAL);
	assert_int_equal(net_sendv(accepted, &null, 1), -EINVAL);
	assert_int_equal(net_recvv(accepted, NULL, 1), -EINVAL);
	assert_int_equal(net_sendv(accepted, many, NET_IOV_MAX), 0);
	assert_int_equal(net_sendv_all(accepted, &empty, 1), 0);
	assert_int_equal(net_sendv(accepted, NULL, 0), 0);
	assert_int_equal(net_recvv(accepted, &empty, 1), 0);
	assert_int_equal(net_sendv(NULL, NULL, 0), -EBADF);
	peer_expect_nothing();
	net_close(accepted);
}

static void test_sendv_gathers_buffers_into_one_segment(void **state)
{
	struct iovec iov[] = {{"he", 2}, {NULL, 0}, {"llo", 3}};
	struct segment s;

	connect_peer();
	assert_int_equal(net_sendv(accepted, iov, 3), 5);
	expect(&s, PEER_ACK | PEER_PSH, peer.rcv, peer.snd, 5);
	assert_memory_equal(s.data, "hello", 5);
	net_close(accepted);
}

/* 400,000 bytes in three vectors, which the send buffer cannot hold. */
static uint8_t pattern[400000];

static void *sendv_body(void *arg)
{
	struct iovec iov[] = {{pattern, 10000},
			      {pattern + 10000, 389990},
			      {pattern + 399990, 10}};

	result = arg ? net_sendv(accepted, iov, 3)
		     : net_sendv_all(accepted, iov, 3);
	ended++;
	return NULL;
}

static void start_sendv(bool partial)
{
	for (unsigned i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 7 + i / 251);
	connect_peer();
	net_spawn(stack, "sender", sendv_body, partial ? pattern : NULL);
	run_rounds(2);
}

/* Takes and acknowledges sent bytes; compares them with the pattern. */
static unsigned drain_frames(void)
{
	struct segment s;
	unsigned at = 0;

	while (peer_next(&s)) {
		if (s.seq != peer.rcv)
			continue;
		assert_memory_equal(s.data, pattern + at, s.len);
		at += s.len;
		peer.rcv += s.len;
		peer_send(&peer, PEER_ACK, NULL, 0);
	}
	return at;
}

static void test_sendv_accepts_as_much_as_fits(void **state)
{
	start_sendv(true);
	assert_int_equal(ended, 1);
	assert_in_range(result, 10001, TCP_SND_BUF);
	assert_int_equal(drain_frames(), result);
	net_close(accepted);
}

static void test_sendv_all_parks_and_sends_the_rest(void **state)
{
	start_sendv(false);
	assert_int_equal(ended, 0); /* the buffer is full */
	assert_int_equal(drain_frames(), sizeof(pattern));
	assert_int_equal(ended, 1);
	assert_int_equal(result, sizeof(pattern));
	net_close(accepted);
}

/* ---- back-pressure ---- */

static void test_window_closes_for_a_slow_reader_and_opens_again(void **state)
{
	static const uint8_t block[1400];
	struct segment s = {0};
	uint32_t edge;

	connect_peer();
	for (unsigned i = 0; i < 46; i++) {
		peer_send(&peer, PEER_ACK, block, sizeof(block));
		run_rounds(1);
	}
	run_ms(50);
	while (peer_next(&s))
		;
	assert_in_range(s.wnd, 0, 1459);
	edge = s.ack + s.wnd;
	while (net_recv(accepted, got, 10000) > 0)
		;
	run_ms(50);
	while (peer_next(&s))
		;
	assert_in_range(s.ack + s.wnd - edge, 46 * 1400 - 16384, 46 * 1400);
	net_close(accepted);
}

static int setup(void **state)
{
	accepted = NULL;
	return peer_listen(state);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, peer_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_until_leaves_later_bytes),
		T(test_until_waits_for_the_delimiter),
		T(test_delimiter_straddles_segments_a_byte_each),
		T(test_delimiter_that_repeats_itself_is_found),
		T(test_until_finds_the_same_as_memmem),
		T(test_until_starts_within_a_segment),
		T(test_until_without_room_is_emsgsize_and_loses_nothing),
		T(test_until_at_the_end_is_enodata_then_0),
		T(test_until_errors_leave_the_bytes),
		T(test_until_ends_when_reading_is_shut_down),
		T(test_until_refuses_invalid_arguments),
		T(test_until_gives_up_when_the_window_is_full),
		T(test_recvv_fills_buffers_in_order),
		T(test_invalid_vectors_are_refused),
		T(test_sendv_gathers_buffers_into_one_segment),
		T(test_sendv_accepts_as_much_as_fits),
		T(test_sendv_all_parks_and_sends_the_rest),
		T(test_window_closes_for_a_slow_reader_and_opens_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
