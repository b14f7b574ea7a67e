/* A peer that sends data out of order, across the wrap of sequence numbers. */
#include "tests/net/ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lwip/prot/tcp.h"

#include "netstack/tcp/tcp.h"
#include "tests/net/fake_glue.h"

struct peer ahead_peer;
struct net_conn *ahead_conn;

uint8_t ahead_byte(uint32_t at)
{
	return (uint8_t)(at * 7 + (at >> 8));
}

void ahead_read_all(struct net_conn *c, void *arg)
{
	long n;

	ahead_conn = c;
	while ((n = net_recv(c, got + got_len, sizeof(got) - got_len)) > 0)
		got_len += (size_t)n;
	result = n;
	ended++;
}

void ahead_read_nothing(struct net_conn *c, void *arg)
{
	ahead_conn = c;
	net_close(c);
}

/* Opens a connection of a peer with or without SACK. */
void ahead_connect(net_handler handler, bool sack)
{
	static const uint8_t options[] = {2, 4, 5, 180, 3, 3, 4, 1, 4, 2, 1, 1};

	serve(handler);
	ahead_conn = NULL;
	peer_open(&ahead_peer, NEAR_WRAP, options, sack ? 12 : 8);
	peer_send(&ahead_peer, PEER_ACK, NULL, 0);
	run_rounds(2);
	assert_non_null(ahead_conn);
}

/* Sends bytes [from, to) of the stream. */
void ahead_put(uint32_t from, uint32_t to, uint8_t flags)
{
	static uint8_t data[2048];
	struct peer at = ahead_peer;

	assert_true(to - from <= sizeof(data));
	for (uint32_t i = from; i < to; i++)
		data[i - from] = ahead_byte(i);
	at.snd = FIRST + from;
	peer_send(&at, PEER_ACK | flags, data, to - from);
}

/* Expects an ACK of `ack` bytes with these blocks; -1 ends them. */
void ahead_expect_sacks(uint32_t ack, ...)
{
	const uint8_t *at;
	struct segment s;
	unsigned n = 0;
	va_list blocks;
	int left;

	assert_true(peer_next(&s));
	assert_int_equal(s.flags & ~PEER_PSH, PEER_ACK);
	assert_int_equal(s.ack - FIRST, ack);
	at = s.options + 4;
	va_start(blocks, ack);
	while ((left = va_arg(blocks, int)) >= 0) {
		int right = va_arg(blocks, int);
		uint32_t said[2];

		n++;
		assert_true(s.options_len >= 4 + n * 8);
		memcpy(said, at, 8);
		at += 8;
		assert_int_equal(lwip_ntohl(said[0]) - FIRST, left);
		assert_int_equal(lwip_ntohl(said[1]) - FIRST, right);
	}
	va_end(blocks);
	assert_int_equal(s.options_len, n ? 4 + n * 8 : 0);
	if (n) {
		assert_int_equal(s.options[2], 5);
		assert_int_equal(s.options[3], 2 + n * 8);
	}
}

void ahead_expect_read(uint32_t len)
{
	run_rounds(2);
	assert_int_equal(got_len, len);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(got[i], ahead_byte(i));
}

void ahead_expect_held(unsigned pieces)
{
	run_rounds(2);
	assert_int_equal(net_here()->ooseq_held, pieces);
	assert_int_equal(ahead_conn->pcb.rcv_sacks != NULL, pieces != 0);
}

void ahead_drain(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

int ahead_teardown(void **state)
{
	struct segment s;

	while (peer_next(&s))
		;
	return peer_teardown(state);
}
