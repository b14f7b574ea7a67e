/* Frames, and the path they take: delayed, duplicated, reordered or lost. */
#include "tests/net/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_glue/glue_csum.h"
#include "tests/bytes.h"
#include "tests/net/frames.h"

#define FRAME_ROOM 9216u

static const uint8_t stack_ip6[16] = {0xfd, [15] = 1};
static const uint8_t peer_ip6[16] = {0xfd, [15] = 2};

/* ---- frames ---- */

unsigned path_header(void)
{
	return over_ip6 ? 40 : 20;
}

void path_addresses(ip_addr_t *local, ip_addr_t *remote)
{
	if (over_ip6) {
		IP_ADDR6(local, PP_HTONL(0xfd000000), 0, 0, PP_HTONL(1));
		IP_ADDR6(remote, PP_HTONL(0xfd000000), 0, 0, PP_HTONL(2));
	} else {
		IP_ADDR4(local, 10, 0, 0, 1);
		IP_ADDR4(remote, 10, 0, 0, 2);
	}
}

static void build_ip4(uint8_t *frame, unsigned payload, unsigned proto)
{
	uint8_t *ip = frame + 14;

	frame_ethernet(frame, 0x0800);
	ip[0] = 0x45;
	put16(ip + 2, 20 + payload);
	ip[8] = 64;
	ip[9] = (uint8_t)proto;
	memcpy(ip + 12, peer_ip, 4);
	memcpy(ip + 16, stack_ip, 4);
}

static void build_ip6(uint8_t *frame, unsigned payload, unsigned next)
{
	uint8_t *ip = frame + 14;

	frame_ethernet(frame, 0x86dd);
	ip[0] = 0x60;
	put16(ip + 4, payload);
	ip[6] = (uint8_t)next;
	ip[7] = 255;
	memcpy(ip + 8, peer_ip6, 16);
	memcpy(ip + 24, stack_ip6, 16);
}

uint8_t *path_packet(uint8_t *frame, unsigned proto, unsigned payload)
{
	if (over_ip6)
		build_ip6(frame, payload, proto);
	else
		build_ip4(frame, payload, proto);
	return frame + 14 + path_header();
}

static unsigned build_frame(const struct segment *s, uint8_t *frame)
{
	unsigned payload = 20 + s->options_len + s->len;

	memset(frame, 0, 14 + 40 + 20);
	path_packet(frame, 6, payload);
	ecn_put_tos(frame + 14, s->tos);
	frame_put_tcp(frame + 14 + path_header(), s);
	return 14 + path_header() + payload;
}

static void parse_frame(const uint8_t *frame, struct segment *out)
{
	const uint8_t *ip = frame + 14;
	unsigned payload = over_ip6 ? get16(ip + 4) : get16(ip + 2) - 20;

	*out = frame_get_tcp(ip + path_header(), payload);
	out->tos = ecn_tos(ip);
}

/* Answers a neighbour solicitation for the peer (RFC 4861). */
static void answer_nd(const uint8_t *asked)
{
	uint8_t frame[86] = {0}, *nd = frame + 54;
	uint16_t sum;

	if (asked[20] != 58 || asked[54] != 135 ||
	    memcmp(asked + 54 + 8, peer_ip6, 16) != 0)
		return;
	build_ip6(frame, 32, 58);
	nd[0] = 136;
	nd[4] = 0x60; /* solicited, override */
	memcpy(nd + 8, peer_ip6, 16);
	nd[24] = 2;
	nd[25] = 1;
	memcpy(nd + 26, fake_peer_mac, 6);
	sum = (uint16_t)~glue_sum_fold(
		glue_sum_add(glue_sum_pseudo(frame + 22, 16, 58, 32), nd, 32));
	memcpy(nd + 2, &sum, 2);
	if (!fake_receive_wire(frame, sizeof(frame)))
		violated(NULL, "an advertisement is dropped");
}

/*
 * Returns whether the frame is a segment; answers ARP and neighbour
 * solicitations.
 */
static bool is_segment(const uint8_t *frame)
{
	unsigned type = get16(frame + 12);

	if (type == 0x0806)
		frame_answer_arp(frame);
	if (type == 0x86dd)
		answer_nd(frame);
	return over_ip6 ? type == 0x86dd && frame[14 + 6] == 6
			: type == 0x0800 && frame[14 + 9] == 6;
}

static struct flow *flow_of(const struct segment *s, bool from_stack)
{
	uint16_t port = from_stack ? s->dst : s->src;

	for (unsigned i = 0; i < life.draw.n_flows; i++)
		if (life.flows[i].peer_port == port)
			return &life.flows[i];
	return NULL;
}

/* ---- printing ---- */

void path_trace(const struct flow *flow, const struct segment *s,
		enum direction to, const char *what)
{
	uint32_t base = to == TO_PEER ? flow->stack_isn : flow->isn;
	uint32_t ack = to == TO_PEER ? flow->isn : flow->stack_isn;

	if (!verbose)
		return;
	printf("%12.6f %u %s %c%c%c%c%c%c%c ecn %u seq %d len %u ack %d wnd %u "
	       "opt %u "
	       "%s\n",
	       (double)(fake_now_ns - life.start) / 1e9, flow->index,
	       to == TO_PEER ? "<-" : "->", s->flags & PEER_SYN ? 'S' : '.',
	       s->flags & PEER_FIN ? 'F' : '.', s->flags & PEER_RST ? 'R' : '.',
	       s->flags & PEER_ACK ? 'A' : '.', s->flags & PEER_PSH ? 'P' : '.',
	       s->flags & PEER_ECE ? 'E' : '.', s->flags & PEER_CWR ? 'C' : '.',
	       s->tos & 3, (int)(s->seq - base - 1), s->len,
	       (int)(s->ack - ack - 1), s->wnd, s->options_len, what);
}

/* ---- both ends ---- */

void path_send(struct flow *flow, const struct segment *s)
{
	static uint8_t frame[FRAME_ROOM];
	struct segment stamped = *s;
	uint8_t options[40];

	ecn_fill(flow, &stamped);
	stamp_fill(flow, &stamped, options);
	path_trace(flow, &stamped, TO_STACK, "");
	path_carry(flow, TO_STACK, frame, build_frame(&stamped, frame));
}

void path_collect(void)
{
	static uint8_t frame[FRAME_ROOM];
	unsigned len;

	while ((len = fake_sent(frame, sizeof(frame)))) {
		struct segment s;
		struct flow *flow;

		differ_frame(frame, len);
		if (!is_segment(frame))
			continue;
		parse_frame(frame, &s);
		flow = flow_of(&s, true);
		life.frames++;
		if (!flow)
			continue; /* of the flood before a cookie */
		check_sent(flow, &s);
		path_trace(flow, &s, TO_PEER, "");
		if (trouble_passes(frame, len))
			path_carry(flow, TO_PEER, frame, len);
	}
}

void path_deliver(void)
{
	struct carried *packet;

	while ((packet = path_due())) {
		struct segment s;

		parse_frame(packet->frame, &s);
		if (packet->to == TO_STACK) {
			check_delivered(packet->flow, &s);
			path_trace(packet->flow, &s, TO_STACK, "arrives");
			fake_receive(
				packet->frame, packet->len,
				(over_ip6 ? GLUE_FRAME_IP6 : GLUE_FRAME_IP4) |
					GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK,
				(uint16_t)(14 + path_header()));
			life.frames++;
		} else if (packet->flow->state != PEER_VANISHED) {
			path_trace(packet->flow, &s, TO_PEER, "arrives");
			peer_input(packet->flow, &s);
		}
		free(packet);
	}
}
