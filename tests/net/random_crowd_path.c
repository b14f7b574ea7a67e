/*
 * The path between a crowd of clients and the stack: it delays every packet for
 * the same time, loses some, reports its MTU, and answers ARP or neighbour
 * solicitations for the router.
 */
#include "tests/net/random_shards.h"

#include <string.h>

#include "dpdk_glue/glue_csum.h"
#include "tests/bytes.h"
#include "tests/net/frames.h"

#define PACKETS	   16384u
#define PACKET_MAX 1600u
#define ANSWER_MAX                                                             \
	(8 * SECOND) /* the stack's longest wait before it answers             \
		      */

struct packet {
	int64_t at;
	unsigned len;
	bool to_stack;
	uint8_t frame[PACKET_MAX];
};

static struct packet packets[PACKETS]; /* in the order of delivery */
static unsigned first, n_packets;
#define QUOTED 48u
static uint8_t last_packet[QUOTED]; /* its beginning, of the stack's */
static int64_t asked, asked_due;    /* for the stack's MAC address */

static const uint8_t stack_ip6[16] = {0xfd, [15] = 1};
static const uint8_t peer_ip6[16] = {0xfd, [15] = 2};
static const uint8_t asking_mac[6] = {0x33, 0x33, 0xff, 0, 0, 1};
static const uint8_t asking_ip6[16] = {0xff, 2, [11] = 1, 0xff, 0, 0, 1};

int64_t crowd_active_ns(void)
{
	return crowd.now - crowd.paused;
}

static void travel(bool to_stack, const uint8_t *frame, unsigned len)
{
	struct packet *packet;

	if (n_packets == PACKETS || len > PACKET_MAX ||
	    rng_chance(&crowd.rng, crowd.draw.loss))
		return;
	packet = &packets[(first + n_packets++) % PACKETS];
	packet->at = crowd.now + crowd.draw.delay;
	packet->to_stack = to_stack;
	packet->len = len;
	memcpy(packet->frame, frame, len);
}

/* ---- headers ---- */

/* Each client is a host of its own, behind the router that is the peer. */
static void put_ip4(uint8_t *frame, unsigned host, unsigned payload,
		    unsigned proto)
{
	uint8_t *ip = frame + 14;
	uint16_t sum;

	memset(ip, 0, 20);
	frame_ethernet(frame, 0x0800);
	ip[0] = 0x45;
	put16(ip + 2, 20 + payload);
	ip[8] = 64;
	ip[9] = (uint8_t)proto;
	put32(ip + 12, 0x0a010000 + host);
	memcpy(ip + 16, stack_ip, 4);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, ip, 20));
	memcpy(ip + 10, &sum, 2);
}

/* From a client, or from the router at fd01::. */
static void put_ip6(uint8_t *frame, unsigned host, unsigned payload,
		    unsigned proto)
{
	uint8_t *ip = frame + 14;

	memset(ip, 0, 40);
	frame_ethernet(frame, 0x86dd);
	ip[0] = 0x60;
	put16(ip + 4, payload);
	ip[6] = (uint8_t)proto;
	ip[7] = 255;
	ip[8] = 0xfd;
	ip[9] = 1;
	put32(ip + 20, host);
	memcpy(ip + 24, stack_ip6, 16);
}

static unsigned header(void)
{
	return crowd.draw.ip6 ? 14 + 40 : 14 + 20;
}

/* Sums a payload with its addresses; its checksum is at an offset of it. */
static void put_sum(uint8_t *frame, unsigned proto, unsigned len, unsigned at)
{
	uint8_t *payload = frame + header();
	unsigned addr_len = crowd.draw.ip6 ? 16 : 4;
	uint16_t sum;

	put16(payload + at, 0);
	sum = (uint16_t)~glue_sum_fold(glue_sum_pseudo(payload - 2 * addr_len,
						       addr_len, (uint8_t)proto,
						       (uint16_t)len) +
				       glue_sum_add(0, payload, len));
	memcpy(payload + at, &sum, 2);
}

void crowd_send(unsigned host, const struct segment *s)
{
	uint8_t frame[PACKET_MAX];
	unsigned len = frame_put_tcp(frame + header(), s);

	if (crowd.draw.ip6)
		put_ip6(frame, host, len, 6);
	else
		put_ip4(frame, host, len, 6);
	put_sum(frame, 6, len, 16);
	travel(true, frame, header() + len);
}

/* ---- frames that are not segments ---- */

static void ask_arp(void)
{
	uint8_t frame[42] = {0}, *arp = frame + 14;

	frame_ethernet(frame, 0x0806);
	memset(frame, 0xff, 6);
	put16(arp, 1);
	put16(arp + 2, 0x0800);
	arp[4] = 6;
	arp[5] = 4;
	put16(arp + 6, 1);
	memcpy(arp + 8, fake_peer_mac, 6);
	memcpy(arp + 14, peer_ip, 4);
	memcpy(arp + 24, stack_ip, 4);
	queue_receive(frame, sizeof(frame));
}

static void take_arp(const uint8_t *frame)
{
	uint8_t answer[42] = {0}, *arp = answer + 14;

	if (get16(frame + 14 + 6) == 2) {
		asked = 0;
		return;
	}
	if (memcmp(frame + 14 + 24, peer_ip, 4) != 0)
		return;
	memcpy(answer, frame, sizeof(answer));
	frame_ethernet(answer, 0x0806);
	put16(arp + 6, 2);
	memcpy(arp + 8, fake_peer_mac, 6);
	memcpy(arp + 14, peer_ip, 4);
	memcpy(arp + 18, frame + 14 + 8, 10);
	queue_receive(answer, sizeof(answer));
}

/* A solicitation or an advertisement of the router (RFC 4861 4.3, 4.4). */
static void send_nd(unsigned type, const uint8_t *mac, const uint8_t *dst,
		    const uint8_t *target)
{
	uint8_t frame[54 + 32] = {0}, *nd = frame + 54;

	put_ip6(frame, 0, 32, 58);
	memcpy(frame, mac, 6);
	memcpy(frame + 22, peer_ip6, 16);
	memcpy(frame + 38, dst, 16);
	nd[0] = (uint8_t)type;
	nd[4] = type == 136 ? 0x60 : 0; /* solicited, override */
	memcpy(nd + 8, target, 16);
	nd[24] = type == 136 ? 2 : 1;
	nd[25] = 1;
	memcpy(nd + 26, fake_peer_mac, 6);
	put_sum(frame, 58, 32, 2);
	queue_receive(frame, sizeof(frame));
}

static bool is_neighbour_discovery(const uint8_t *frame)
{
	return get16(frame + 12) == 0x86dd && frame[20] == 58 &&
	       (frame[54] == 135 || frame[54] == 136);
}

static void take_nd(const uint8_t *frame)
{
	const uint8_t *nd = frame + 54;

	if (nd[0] == 136)
		asked = 0;
	else if (memcmp(nd + 8, peer_ip6, 16) == 0)
		send_nd(136, frame + 6, frame + 22, peer_ip6);
}

/* The stack is to answer for its address, whatever its connections do. */
static void ask_neighbour(void)
{
	if (!asked)
		asked = crowd_active_ns();
	asked_due = crowd.now + SECOND;
	if (crowd.draw.ip6)
		send_nd(135, asking_mac, asking_ip6, stack_ip6);
	else
		ask_arp();
}

/* Returns the bytes of the TCP segment in a frame; 0: there is none. */
static unsigned segment_len(const uint8_t *frame)
{
	const uint8_t *ip = frame + 14;

	switch (get16(frame + 12)) {
	case 0x0800:
		return crowd.draw.ip6 || ip[9] != 6 ? 0 : get16(ip + 2) - 20;
	case 0x86dd:
		return !crowd.draw.ip6 || ip[6] != 6 ? 0 : get16(ip + 4);
	default:
		return 0;
	}
}

/* ---- errors that routers report ---- */

/* Quotes the beginning of a packet of the stack's (RFC 792, RFC 4443 2.4). */
static void send_error(const uint8_t *packet, unsigned quoted, uint8_t type,
		       uint8_t code, uint32_t value)
{
	uint8_t report[54 + 8 + 60] = {0}, *icmp = report + header();
	uint16_t sum;

	if (crowd.draw.ip6)
		put_ip6(report, 0, 8 + quoted, 58);
	else
		put_ip4(report, 0, 8 + quoted, 1);
	icmp[0] = type;
	icmp[1] = code;
	put32(icmp + 4, value);
	memcpy(icmp + 8, packet, quoted);
	if (crowd.draw.ip6) {
		put_sum(report, 58, 8 + quoted, 2);
	} else {
		sum = (uint16_t)~glue_sum_fold(
			glue_sum_add(0, icmp, 8 + quoted));
		memcpy(icmp + 2, &sum, 2);
	}
	travel(true, report, header() + 8 + quoted);
}

/* A router reports an MTU, with the header and the ports. */
static void report_mtu(const uint8_t *packet, unsigned quoted, uint32_t mtu)
{
	if (crowd.draw.ip6)
		send_error(packet, quoted, 2, 0, mtu);
	else
		send_error(packet, quoted, 3, 4, mtu & 0xffff);
}

/* For another segment, another port, cut off, or with another cause. */
void crowd_forge_error(void)
{
	static const uint8_t types[2][5] = {{3, 4, 5, 11, 12},
					    {1, 3, 4, 100, 255}};
	uint8_t packet[QUOTED];
	unsigned ip = header() - 14;
	uint32_t mtu = rng_below(&crowd.rng, 1500);

	if (!last_packet[0])
		return;
	memcpy(packet, last_packet, sizeof(packet));
	switch (rng_below(&crowd.rng, 4)) {
	case 0:
		put32(packet + ip + 4, get32(packet + ip + 4) + 0x40000000);
		report_mtu(packet, ip + 8, mtu);
		break;
	case 1:
		put16(packet + ip, rng_below(&crowd.rng, 65536));
		report_mtu(packet, ip + 8, mtu);
		break;
	case 2:
		report_mtu(packet, rng_below(&crowd.rng, ip + 8), mtu);
		break;
	case 3: /* right, but for the cause (RFC 5927 4) */
		send_error(packet, ip + 8,
			   types[crowd.draw.ip6][rng_below(&crowd.rng, 5)],
			   (uint8_t)rng_below(&crowd.rng, 4),
			   (uint32_t)rng_next(&crowd.rng));
	}
}

/* Only a segment of TCP is worth a forged error. */
static void keep_last(const uint8_t *frame, unsigned len)
{
	if (segment_len(frame) && len >= 14 + QUOTED)
		memcpy(last_packet, frame + 14, QUOTED);
}

void crowd_take(const uint8_t *frame, unsigned len)
{
	if (get16(frame + 12) == 0x0806)
		take_arp(frame);
	else if (is_neighbour_discovery(frame))
		take_nd(frame);
	else if (crowd.draw.mtu_at && crowd.now >= crowd.draw.mtu_at &&
		 len > 14 + crowd.draw.path_mtu)
		report_mtu(frame + 14, header() - 14 + 8, crowd.draw.path_mtu);
	else
		travel(false, frame, len);
	keep_last(frame, len);
}

/* ---- delivery ---- */

static void deliver(const struct packet *packet)
{
	unsigned len = packet->to_stack ? 0 : segment_len(packet->frame);
	struct segment s;

	if (packet->to_stack) {
		queue_receive(packet->frame, packet->len);
	} else if (len) {
		s = frame_get_tcp(packet->frame + header(), len);
		crowd_receive(&s);
	}
}

void crowd_path_begin(void)
{
	asked_due = crowd.now;
}

void crowd_path_run(void)
{
	while (n_packets && packets[first].at <= crowd.now) {
		const struct packet *packet = &packets[first];

		first = (first + 1) % PACKETS;
		n_packets--;
		deliver(packet);
	}
	if (crowd.now >= asked_due)
		ask_neighbour();
	if (asked && crowd_active_ns() - asked > ANSWER_MAX)
		crowd_violated("the stack does not say its MAC address");
}

int64_t crowd_path_due(void)
{
	return LWIP_MIN(n_packets ? packets[first].at : NEVER, asked_due);
}
