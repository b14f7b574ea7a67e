/*
 * flood's datagrams: the server echoes them, and each answer is the next
 * request, with its addresses and ports swapped. As many are on their way as
 * against a forwarder, so that the figures compare.
 *
 * The first byte of a datagram is the period in which it was sent. One that is
 * not back after three further periods counts as lost, and another takes its
 * place; if it comes late, it is not sent again.
 */
#include "tests/bench/flood.h"

#include <string.h>

#include "tests/bytes.h"

#define MS	 INT64_C(1000000)
#define UDP	 8u
#define UDP_HEAD (ETH + IP + UDP)

#define PERIOD_NS (10 * MS)

static uint8_t byte_at(const struct flood *fl, uint32_t i)
{
	return (uint8_t)(i * 7 + fl->size);
}

/* Dates a datagram that is about to be sent. */
static void set_period(struct flood *fl, uint8_t *data)
{
	data[0] = fl->period;
	fl->in_flight[fl->period % FLOOD_PERIODS]++;
}

/* For the checksums. */
static void describe(struct glue_frame *frame)
{
	frame->l3_off = ETH;
	frame->l4_off = ETH + IP;
	frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_UDP;
}

static bool send_datagram(struct flood *fl, uint32_t index)
{
	struct glue_frame *frame = glue_tx_alloc(fl->port, UDP_HEAD + fl->size);
	uint8_t *ip, *udp;

	if (!frame)
		return false;
	ip = frame->data + ETH;
	udp = ip + IP;
	memcpy(frame->data, fl->server_mac, 6);
	memcpy(frame->data + 6, glue_port_mac(fl->port), 6);
	put16(frame->data + 12, 0x0800);
	memcpy(ip, "\x45\0\0\0\0\0\x40\0\x40\x11\0\0", 12);
	put16(ip + 2, IP + UDP + fl->size);
	put32(ip + 12, fl->client_ip);
	put32(ip + 16, fl->server_ip);
	put16(udp, fl->flows[index].port);
	put16(udp + 2, fl->server_port);
	put16(udp + 4, UDP + fl->size);
	put16(udp + 6, 0);
	for (uint32_t i = 1; i < fl->size; i++)
		udp[UDP + i] = byte_at(fl, i);
	set_period(fl, udp + UDP);
	describe(frame);
	glue_tx(fl->port, frame);
	return true;
}

/* Returns how many have left. */
static uint32_t send_datagrams(struct flood *fl, uint32_t n)
{
	uint32_t sent = 0;

	while (sent < n && send_datagram(fl, sent % fl->conns))
		sent++;
	return sent;
}

/* Begins a period; replaces what is lost. */
static void begin_period(struct flood *fl)
{
	uint32_t *oldest = &fl->in_flight[++fl->period % FLOOD_PERIODS];

	fl->period_ns = fl->now_ns;
	fl->to_send += *oldest;
	fl->resent += *oldest;
	*oldest = 0;
}

/* Is it an answer of the server's, of the right length? */
static bool is_answer(const struct flood *fl, const struct glue_frame *frame)
{
	const uint8_t *ip = frame->data + ETH, *udp = ip + IP;

	return frame->seg_len >= UDP_HEAD &&
	       get16(frame->data + 12) == 0x0800 && ip[0] == 0x45 &&
	       ip[9] == 17 && get32(ip + 12) == fl->server_ip &&
	       get32(ip + 16) == fl->client_ip &&
	       get16(udp) == fl->server_port &&
	       get16(udp + 4) == UDP + fl->size;
}

/* Swaps all addresses. The kernel on a veth leaves checksums to its NIC. */
static void send_back(struct flood *fl, struct glue_frame *frame)
{
	uint8_t *ip = frame->data + ETH, *udp = ip + IP;
	uint32_t from = get32(ip + 12);
	unsigned port = get16(udp);

	memcpy(frame->data, fl->server_mac, 6);
	memcpy(frame->data + 6, glue_port_mac(fl->port), 6);
	put32(ip + 12, get32(ip + 16));
	put32(ip + 16, from);
	put16(udp, get16(udp + 2));
	put16(udp + 2, port);
	put16(ip + 10, 0);
	put16(udp + 6, 0);
	set_period(fl, udp + UDP);
	describe(frame);
	glue_tx(fl->port, frame);
}

/* Every sixteenth answer's bytes are compared. */
static bool is_right(const struct flood *fl, const struct glue_frame *frame)
{
	const uint8_t *data = frame->data + UDP_HEAD;

	for (uint32_t i = 1; fl->answers % 16 == 0 && i < fl->size; i++)
		if (data[i] != byte_at(fl, i))
			return false;
	return true;
}

static void take_frame(struct flood *fl, struct glue_frame *frame)
{
	uint8_t sent_in;

	if (!is_answer(fl, frame)) {
		flood_input(fl, frame); /* ARP */
		glue_frame_free(frame);
		return;
	}
	fl->answers += fl->measuring;
	fl->wrong += !is_right(fl, frame);
	sent_in = frame->data[UDP_HEAD];
	if (fl->closing || (uint8_t)(fl->period - sent_in) >= FLOOD_PERIODS) {
		glue_frame_free(frame);
		return;
	}
	fl->in_flight[sent_in % FLOOD_PERIODS]--;
	send_back(fl, frame);
}

void flood_udp_start(struct flood *fl)
{
	fl->to_send = FLOOD_WINDOW / 2;
}

void flood_udp_turn(struct flood *fl)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned n = glue_rx_raw(fl->port, frames, GLUE_BURST);

	fl->now_ns = glue_now_ns();
	fl->now_ms = (uint32_t)(fl->now_ns / MS);
	for (unsigned i = 0; i < n; i++)
		take_frame(fl, frames[i]);
	if (fl->mac_known && !fl->closing) {
		if (fl->now_ns - fl->period_ns > PERIOD_NS)
			begin_period(fl);
		fl->to_send -= send_datagrams(fl, fl->to_send);
	}
	glue_tx_flush(fl->port);
	if (n)
		fl->busy_ns += glue_now_ns() - fl->now_ns;
}
