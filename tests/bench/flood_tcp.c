/* flood's frames: forges requests and ACKs, and parses the answers. */
#include "tests/bench/flood.h"

#include <string.h>

#include "tests/bytes.h"

#define RESEND_MS  300 /* far above any latency that is measured */
#define SCAN_FLOWS 16  /* scanned per call */

/* A flood of SYNs comes from 198.18.0.0/15 (RFC 2544), a few a call. */
#define SYNS_A_TURN 32
#define SYN_SOURCES UINT32_C(0xc6120000)

/* ---- bytes of a request ---- */

/*
 * Returns eight bytes of a stream; they depend on every bit of position and
 * flow.
 */
static inline uint64_t pattern_word(uint32_t index, uint32_t position)
{
	uint64_t x = ((uint64_t)index << 32 | position) + 1;

	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 32;
}

static void fill_pattern(uint8_t *to, uint32_t index, uint32_t position,
			 unsigned len)
{
	for (unsigned at = 0; at < len; at += 8) {
		uint64_t w = pattern_word(index, position + at);

		memcpy(to + at, &w, len - at < 8 ? len - at : 8);
	}
}

/*
 * Returns whether len bytes are those from `from` on of the request at
 * `position`.
 */
static bool has_pattern(const uint8_t *data, uint32_t index, uint32_t position,
			unsigned from, unsigned len)
{
	if (from % 8 == 0 && len % 8 == 0) {
		uint64_t differ = 0;

		for (unsigned at = 0; at < len; at += 8) {
			uint64_t w;

			memcpy(&w, data + at, 8);
			differ |= w ^ pattern_word(index, position + from + at);
		}
		return differ == 0;
	}
	for (unsigned i = 0; i < len; i++) {
		unsigned at = from + i;
		uint64_t w = pattern_word(index, position + at / 8 * 8);

		if (data[i] != (uint8_t)(w >> at % 8 * 8))
			return false;
	}
	return true;
}

/* ---- sending ---- */

static uint32_t address_of(const struct flood *fl, uint32_t index)
{
	return fl->client_ip + (index >> FLOOD_PORTS_BITS);
}

/*
 * Builds a segment to the server without its payload; NULL if no frame is free.
 */
static struct glue_frame *forge_segment(struct flood *fl, uint32_t from,
					const struct flow *flow, uint8_t flags,
					unsigned options, unsigned len)
{
	struct glue_frame *frame =
		glue_tx_alloc(fl->port, HEAD + options + len);
	uint8_t *eth, *ip, *tcp;

	if (!frame)
		return NULL;
	eth = frame->data;
	ip = eth + ETH;
	tcp = ip + IP;
	memcpy(eth, fl->server_mac, 6);
	memcpy(eth + 6, glue_port_mac(fl->port), 6);
	put16(eth + 12, 0x0800);
	memcpy(ip, "\x45\0\0\0\0\0\x40\0\x40\6\0\0", 12);
	put16(ip + 2, IP + TCP + options + len);
	put32(ip + 12, from);
	put32(ip + 16, fl->server_ip);
	put16(tcp, flow->port);
	put16(tcp + 2, fl->server_port);
	put32(tcp + 4, flow->snd);
	put32(tcp + 8, flags & ACK ? flow->rcv : 0);
	tcp[12] = (uint8_t)((TCP + options) / 4 << 4);
	tcp[13] = flags;
	put16(tcp + 14, 0xffff);
	put32(tcp + 16, 0);
	frame->l3_off = ETH;
	frame->l4_off = ETH + IP;
	frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP;
	return frame;
}

struct glue_frame *flood_segment(struct flood *fl, uint32_t index,
				 uint8_t flags, unsigned options, unsigned len)
{
	struct flow *flow = &fl->flows[index];
	struct glue_frame *frame = forge_segment(fl, address_of(fl, index),
						 flow, flags, options, len);

	if (!frame)
		return NULL;
	flow->sent_ms = fl->now_ms;
	flow->unacked &= !(flags & ACK);
	return frame;
}

void flood_send_bare(struct flood *fl, uint32_t index, uint8_t flags)
{
	struct glue_frame *frame = flood_segment(fl, index, flags, 0, 0);

	if (frame)
		glue_tx(fl->port, frame);
}

static void finish_syn(struct flood *fl, struct glue_frame *frame)
{
	memcpy(frame->data + HEAD, "\2\4\x05\xb4", 4); /* MSS 1460 */
	if (fl->mode == FLOOD_BULK)
		memcpy(frame->data + HEAD + 4, "\1\3\3\3", 4);
	glue_tx(fl->port, frame);
}

static unsigned syn_options(const struct flood *fl)
{
	return fl->mode == FLOOD_BULK ? 8 : 4;
}

static void send_syn(struct flood *fl, uint32_t index)
{
	struct glue_frame *frame =
		flood_segment(fl, index, SYN, syn_options(fl), 0);

	if (frame)
		finish_syn(fl, frame);
}

void flood_syns(struct flood *fl)
{
	for (unsigned i = 0; i < SYNS_A_TURN && !glue_tx_busy(fl->port); i++) {
		uint64_t w = pattern_word((uint32_t)fl->syns, 0);
		const struct flow flow = {.port = (uint16_t)(w >> 17 | 1024),
					  .snd = (uint32_t)(w >> 32)};
		struct glue_frame *frame =
			forge_segment(fl, SYN_SOURCES | (w & 0x1ffff), &flow,
				      SYN, syn_options(fl), 0);

		if (!frame)
			return;
		finish_syn(fl, frame);
		fl->syns++;
	}
}

static void send_request(struct flood *fl, uint32_t index)
{
	struct glue_frame *frame =
		flood_segment(fl, index, PSH | ACK, 0, fl->size);

	if (!frame && fl->n_unsent < FLOOD_WINDOW)
		fl->unsent[fl->n_unsent++] = index;
	if (!frame)
		return;
	fill_pattern(frame->data + HEAD, index, fl->flows[index].snd, fl->size);
	glue_tx(fl->port, frame);
}

void flood_connect(struct flood *fl, uint32_t index)
{
	struct flow *flow = &fl->flows[index];

	flow->snd = (uint32_t)fl->now_ns * 2654435761u + index;
	flow->rcv = 0;
	flow->got = 0;
	flow->state = FLOW_SYN;
	flow->sent_ms = fl->now_ms;
	fl->opening++;
	send_syn(fl, index);
}

void flood_ask(struct flood *fl, uint32_t index, int64_t due_ns)
{
	struct flow *flow = &fl->flows[index];

	flow->due_ns = due_ns;
	flow->got = 0;
	flow->state = FLOW_ASKED;
	flow->sent_ms = fl->now_ms;
	send_request(fl, index);
}

/* A prime step visits every flow, far from the last one. */
void flood_ask_next(struct flood *fl)
{
	for (unsigned i = 0; i < FLOOD_WINDOW; i++) {
		uint64_t turn = fl->next_ask++ % fl->conns;
		uint32_t index = (uint32_t)(turn * 1000003 % fl->conns);

		if (fl->flows[index].state != FLOW_READY)
			continue;
		flood_ask(fl, index, fl->now_ns);
		return;
	}
}

void flood_reset(struct flood *fl, uint32_t index)
{
	struct flow *flow = &fl->flows[index];

	if (flow->state == FLOW_ASKED)
		flow->snd += fl->size;
	if (flow->state > FLOW_SYN)
		flood_send_bare(fl, index, RST | ACK);
	flow->state = FLOW_CLOSED;
}

void flood_arp(struct flood *fl)
{
	struct glue_frame *frame = glue_tx_alloc(fl->port, 60);
	uint8_t *eth;

	if (!frame)
		return;
	eth = frame->data;
	memset(eth, 0, 60);
	memset(eth, 0xff, 6);
	memcpy(eth + 6, glue_port_mac(fl->port), 6);
	memcpy(eth + 12, "\x08\x06\0\1\x08\0\6\4\0\1", 10);
	memcpy(eth + 22, glue_port_mac(fl->port), 6);
	put32(eth + 28, fl->client_ip);
	put32(eth + 38, fl->server_ip);
	glue_tx(fl->port, frame);
}

void flood_bounce(struct flood *fl, unsigned frames)
{
	while (frames--) {
		struct glue_frame *frame =
			glue_tx_alloc(fl->port, HEAD + fl->size);

		if (!frame)
			return;
		memset(frame->data, 0, HEAD + fl->size);
		memset(frame->data, 2, 12);
		put16(frame->data + 12, 0x88b5); /* IEEE: for experiments */
		glue_tx(fl->port, frame);
	}
	glue_tx_flush(fl->port);
}

void flood_resend(struct flood *fl)
{
	for (unsigned i = 0; i < SCAN_FLOWS; i++) {
		uint32_t index = fl->scan++ % fl->conns;
		struct flow *flow = &fl->flows[index];

		if (flow->state == FLOW_CLOSED || flow->state == FLOW_READY ||
		    fl->now_ms - flow->sent_ms < RESEND_MS)
			continue;
		fl->resent++;
		if (flow->state == FLOW_SYN)
			send_syn(fl, index);
		else if (flow->state == FLOW_ASKED)
			send_request(fl, index);
		else
			flood_send_bare(fl, index, FIN | ACK);
	}
}

/* ---- receiving ---- */

static void answer_arp(struct flood *fl, const uint8_t *data)
{
	struct glue_frame *frame;
	uint8_t *eth;
	uint32_t asked = get32(data + 38) - fl->client_ip;

	if (data[21] == 2 && get32(data + 28) == fl->server_ip) {
		memcpy(fl->server_mac, data + 22, 6);
		fl->mac_known = true;
		return;
	}
	if (data[21] != 1 || asked > (fl->conns - 1) >> FLOOD_PORTS_BITS)
		return;
	frame = glue_tx_alloc(fl->port, 60);
	if (!frame)
		return;
	eth = frame->data;
	memset(eth, 0, 60);
	memcpy(eth, data + 6, 6);
	memcpy(eth + 6, glue_port_mac(fl->port), 6);
	memcpy(eth + 12, "\x08\x06\0\1\x08\0\6\4\0\2", 10);
	memcpy(eth + 22, glue_port_mac(fl->port), 6);
	memcpy(eth + 28, data + 38, 4);
	memcpy(eth + 32, data + 22, 10);
	glue_tx(fl->port, frame);
}

/* In cps mode the port's next use is by this flow again, later on. */
static void reopen(struct flood *fl, uint32_t index)
{
	struct flow *flow = &fl->flows[index];
	unsigned next = flow->port + fl->conns;

	if (next >= FLOOD_PORT_FIRST + (1u << FLOOD_PORTS_BITS))
		next = FLOOD_PORT_FIRST + index;
	flow->port = (uint16_t)next;
	flow->due_ns = fl->now_ns;
	flood_connect(fl, index);
}

static void established(struct flood *fl, uint32_t index)
{
	fl->opening--;
	if (fl->mode == FLOOD_CPS) {
		flood_ask(fl, index, fl->flows[index].due_ns);
		return;
	}
	fl->flows[index].state = FLOW_READY;
	fl->open++;
	flood_send_bare(fl, index, ACK);
}

/* Full: the oldest goes at once. */
static void ack_later(struct flood *fl, uint32_t index)
{
	struct flood_ack *ack = &fl->acks[fl->ack_tail++ % FLOOD_ACKS];

	*ack = (struct flood_ack){index, fl->now_ms + FLOOD_ACK_MS};
	fl->flows[index].unacked = true;
	if (fl->ack_tail - fl->ack_head == FLOOD_ACKS)
		fl->acks[fl->ack_head % FLOOD_ACKS].due_ms = fl->now_ms;
}

void flood_send_late(struct flood *fl)
{
	uint32_t n = fl->n_unsent;

	if (glue_tx_busy(fl->port))
		return;
	fl->n_unsent = 0;
	for (uint32_t i = 0; i < n; i++)
		send_request(fl, fl->unsent[i]);
	for (unsigned i = 0; i < GLUE_BURST && fl->ack_head != fl->ack_tail;
	     i++) {
		const struct flood_ack *ack =
			&fl->acks[fl->ack_head % FLOOD_ACKS];

		if ((int32_t)(fl->now_ms - ack->due_ms) < 0)
			return;
		if (fl->flows[ack->index].unacked) {
			flood_send_bare(fl, ack->index, ACK);
			if (fl->flows[ack->index].unacked)
				return; /* no frame now */
		}
		fl->ack_head++;
	}
}

/* The whole answer is here. */
static void answered(struct flood *fl, uint32_t index)
{
	struct flow *flow = &fl->flows[index];

	if (fl->mode == FLOOD_CPS) {
		flow->state = FLOW_FIN;
		flood_send_bare(fl, index, FIN | ACK);
		flow->snd++;
		return;
	}
	if (fl->measuring) {
		fl->answers++;
		hist_record(&fl->latency, fl->now_ns - flow->due_ns);
	}
	if (fl->closing) {
		flow->state = FLOW_READY;
	} else if (fl->step_ns == 0 && fl->conns <= FLOOD_WINDOW) {
		flood_ask(fl, index, fl->now_ns);
	} else if (fl->step_ns == 0) {
		flow->state = FLOW_READY;
		ack_later(fl, index);
		flood_ask_next(fl);
	} else if (flow->backlog) {
		flow->backlog--;
		flood_ask(fl, index,
			  flow->due_ns + (int64_t)(fl->step_ns * fl->conns));
	} else {
		flow->state = FLOW_READY;
		ack_later(fl, index);
	}
}

static void take_data(struct flood *fl, uint32_t index, const uint8_t *data,
		      unsigned len)
{
	struct flow *flow = &fl->flows[index];

	if (flow->state != FLOW_ASKED || flow->got + len > fl->size) {
		fl->unexpected++;
		return;
	}
	if (!has_pattern(data, index, flow->snd, flow->got, len))
		fl->wrong++;
	flow->rcv += len;
	flow->got = (uint16_t)(flow->got + len);
	if (flow->got < fl->size)
		return;
	flow->snd += fl->size;
	answered(fl, index);
}

/* The server has closed as well, in cps mode: the round is complete. */
static void finished(struct flood *fl, uint32_t index)
{
	struct flow *flow = &fl->flows[index];

	flow->rcv++;
	flood_send_bare(fl, index, ACK);
	if (fl->measuring) {
		fl->answers++;
		hist_record(&fl->latency, fl->now_ns - flow->due_ns);
	}
	flow->state = FLOW_CLOSED;
	if (!fl->closing)
		reopen(fl, index);
}

/* The server's SYN has its window scale: NOP, and the option's three bytes. */
static void begin_bulk(struct flow *flow, const uint8_t *tcp, unsigned header)
{
	flow->got = 0;
	for (unsigned at = TCP; at + 3 < header; at++)
		if (tcp[at] == 1 && tcp[at + 1] == 3 && tcp[at + 2] == 3)
			flow->got = tcp[at + 3] & 15;
	flow->bulk.una = flow->snd;
	flow->bulk.wnd = get16(tcp + 14);
	flow->apart = flow->snd - flow->rcv;
}

static void take_segment(struct flood *fl, uint32_t index, const uint8_t *ip)
{
	struct flow *flow = &fl->flows[index];
	const uint8_t *tcp = ip + IP;
	unsigned header = (tcp[12] >> 4) * 4u;
	unsigned len = get16(ip + 2) - IP - header;
	uint8_t flags = tcp[13];

	if (flags & RST) {
		fl->resets++;
		flow->state = FLOW_CLOSED;
		return;
	}
	if (flags & SYN) {
		if (flow->state != FLOW_SYN)
			return;
		flow->snd++;
		flow->rcv = get32(tcp + 4) + 1;
		if (fl->mode == FLOOD_BULK)
			begin_bulk(flow, tcp, header);
		established(fl, index);
		return;
	}
	if (fl->mode == FLOOD_BULK) {
		flood_bulk_take(fl, index, tcp, tcp + header, len);
		return;
	}
	if (get32(tcp + 4) != flow->rcv) {
		if (len) /* again: our ACK was lost */
			flood_send_bare(fl, index, ACK);
		return;
	}
	if (len)
		take_data(fl, index, tcp + header, len);
	if ((flags & FIN) && flow->state == FLOW_FIN)
		finished(fl, index);
}

void flood_input(struct flood *fl, const struct glue_frame *frame)
{
	const uint8_t *eth = frame->data, *ip = eth + ETH;
	unsigned port;
	uint32_t index;

	if (frame->seg_len >= 42 && get16(eth + 12) == 0x0806)
		answer_arp(fl, eth);
	if (frame->seg_len < HEAD || get16(eth + 12) != 0x0800 || ip[9] != 6)
		return;
	port = get16(ip + IP + 2) - FLOOD_PORT_FIRST;
	index = (get32(ip + 16) - fl->client_ip) << FLOOD_PORTS_BITS;
	index += fl->mode == FLOOD_CPS ? port % fl->conns : port;
	if (index < fl->conns &&
	    fl->flows[index].port == port + FLOOD_PORT_FIRST)
		take_segment(fl, index, ip);
	else
		fl->unexpected++;
}
