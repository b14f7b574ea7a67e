/*
 * Ethernet frames of the peers in these tests: the peer 10.0.0.2 sends them,
 * the stack 10.0.0.1 receives them.
 */
#pragma once

#include <string.h>

#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static const uint8_t stack_ip[4] = {10, 0, 0, 1};
static const uint8_t peer_ip[4] = {10, 0, 0, 2};

/* An Ethernet header from the peer to the stack. */
static inline void frame_ethernet(uint8_t *frame, unsigned type)
{
	memcpy(frame, fake_mac, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, type);
}

/* Answers a frame with an ARP request if it asks for the peer's address. */
static inline void frame_answer_arp(const uint8_t *request)
{
	uint8_t frame[42] = {0}, *arp = frame + 14;

	if (get16(request + 14 + 6) != 1 ||
	    memcmp(request + 14 + 24, peer_ip, 4) != 0)
		return;
	frame_ethernet(frame, 0x0806);
	put16(arp, 1);
	put16(arp + 2, 0x0800);
	arp[4] = 6;
	arp[5] = 4;
	put16(arp + 6, 2);
	memcpy(arp + 8, fake_peer_mac, 6);
	memcpy(arp + 14, peer_ip, 4);
	memcpy(arp + 18, fake_mac, 6);
	memcpy(arp + 24, stack_ip, 4);
	fake_receive(frame, sizeof(frame), 0, 0);
}

/* Writes a TCP header, options and data; no checksum. Gives their length. */
static inline unsigned frame_put_tcp(uint8_t *tcp, const struct segment *s)
{
	unsigned header = 20 + s->options_len;

	put16(tcp, s->src);
	put16(tcp + 2, s->dst);
	put32(tcp + 4, s->seq);
	put32(tcp + 8, s->ack);
	tcp[12] = (uint8_t)(header / 4 << 4);
	tcp[13] = s->flags;
	put16(tcp + 14, s->wnd);
	if (s->options_len)
		memcpy(tcp + 20, s->options, s->options_len);
	if (s->len)
		memcpy(tcp + header, s->data, s->len);
	return header + s->len;
}

/* Reads a TCP segment of len bytes; options and data point into it. */
static inline struct segment frame_get_tcp(const uint8_t *tcp, unsigned len)
{
	unsigned header = (tcp[12] >> 4) * 4u;

	return (struct segment){
		.src = (uint16_t)get16(tcp),
		.dst = (uint16_t)get16(tcp + 2),
		.seq = get32(tcp + 4),
		.ack = get32(tcp + 8),
		.flags = tcp[13],
		.wnd = (uint16_t)get16(tcp + 14),
		.options = tcp + 20,
		.options_len = header - 20,
		.data = tcp + header,
		.len = len - header,
	};
}
