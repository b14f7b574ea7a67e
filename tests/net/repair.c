/* Helpers for tests of loss recovery. */
#include "tests/net/repair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/link/link.h"

#define NEAR_WRAP (0u - 2500u) /* within the third segment */

struct peer peer;
struct net_conn *ours;
uint32_t base;
size_t to_send;

uint8_t stream_byte(size_t at)
{
	return (uint8_t)(at * 7 + at / 251);
}

static void send_stream(struct net_conn *accepted, void *arg)
{
	static uint8_t data[STREAM];
	struct net_view view;

	for (size_t i = 0; i < to_send; i++)
		data[i] = stream_byte(i);
	ours = accepted;
	result = net_send_all(accepted, data, to_send);
	while (net_recv_view(accepted, &view) > 0)
		net_view_release(accepted, &view);
	ended++;
}

/*
 * Renumbers the connection, which has nothing in flight, as if it had another
 * ISN.
 */
static void renumber(struct net_conn *which, uint32_t seq)
{
	struct tcp_pcb *pcb = &which->pcb;

	pcb->snd_nxt = pcb->lastack = pcb->snd_lbb = pcb->snd_wl2 = seq;
	peer.rcv = base = seq;
}

void repair_connect(bool sack, size_t bytes)
{
	static const uint8_t options[] = {2, 4, MSS >> 8, MSS & 255, 3, 3,
					  4, 1, 4,	  2,	     1, 1};

	to_send = 0;
	serve(send_stream);
	peer_open(&peer, 99, options, sack ? 12 : 8);
	run_ms(RTT_MS);
	to_send = bytes;
	ours = NULL;
	peer_send(&peer, PEER_ACK, NULL, 0);
	/* Renumber between the handshake and the handler's first write. */
	net_link_rx();
	for (struct net_conn **b = net_here()->buckets;
	     b <= net_here()->buckets + net_here()->bucket_mask; b++)
		if (*b)
			renumber(*b, NEAR_WRAP);
	run_rounds(2);
}

unsigned take_sent(unsigned *out, unsigned max)
{
	struct segment s;
	unsigned n = 0;

	while (peer_next(&s)) {
		uint32_t at = s.seq - base;

		if (s.len == 0)
			continue;
		assert_true(n < max);
		assert_int_equal(at % MSS, 0);
		for (unsigned i = 0; i < s.len; i++)
			assert_int_equal(s.data[i], stream_byte(at + i));
		out[n++] = at / MSS;
	}
	return n;
}

void expect_sent(unsigned n, const unsigned *numbers)
{
	unsigned sent[64], found = take_sent(sent, 64);

	for (unsigned i = 0; i < found && i < n; i++)
		assert_int_equal(sent[i], numbers[i]);
	assert_int_equal(found, n);
}

void ack_raw(uint32_t ack, unsigned blocks, const uint32_t *edges)
{
	uint8_t options[40] = {1, 1, 5, (uint8_t)(2 + 8 * blocks)};
	struct segment s = {.src = peer.port,
			    .dst = peer.stack_port,
			    .seq = peer.snd,
			    .ack = ack,
			    .flags = PEER_ACK,
			    .wnd = peer.wnd,
			    .options = options,
			    .options_len = blocks ? 4 + 8 * blocks : 0,
			    .data = (const uint8_t *)""};

	for (unsigned i = 0; i < 2 * blocks; i++)
		for (unsigned k = 0; k < 4; k++)
			options[4 + 4 * i + k] =
				(uint8_t)(edges[i] >> (24 - 8 * k));
	peer_send_raw(&s);
	run_rounds(1);
}

void ack_to(unsigned n, unsigned blocks, const unsigned *edges)
{
	uint32_t raw[8];

	for (unsigned i = 0; i < 2 * blocks; i++)
		raw[i] = base + edges[i] * MSS;
	ack_raw(base + n * MSS, blocks, raw);
}
