/*
 * The path between a crowd of clients and the stack: it delays every packet for
 * the same time, loses some, reports its MTU, and answers ARP for the router.
 */
#include "tests/net/random_shards.h"

#include <string.h>

#include "dpdk_glue/glue_csum.h"
#include "tests/bytes.h"
#include "tests/net/frames.h"

#define PACKETS	   16384u
#define PACKET_MAX 1600u
#define ANSWER_MAX (8 * SECOND) /* the stack's longest wait before it answers  \
				 */

struct packet {
	int64_t at;
	unsigned len;
	bool to_stack;
	uint8_t frame[PACKET_MAX];
};

static struct packet packets[PACKETS]; /* in the order of delivery */
static unsigned first, n_packets;
static int64_t asked, asked_due; /* ARP */

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

void crowd_send(unsigned host, const struct segment *s)
{
	uint8_t frame[PACKET_MAX], *tcp = frame + 34;
	unsigned len = frame_put_tcp(tcp, s);
	uint16_t sum;

	put_ip4(frame, host, len, 6);
	put16(tcp + 16, 0);
	sum = (uint16_t)~glue_sum_fold(glue_sum_pseudo(frame + 26, 4, 6, len) +
				       glue_sum_add(0, tcp, len));
	memcpy(tcp + 16, &sum, 2);
	travel(true, frame, 34 + len);
}

/* ---- frames that are not segments ---- */

/* The stack is to answer for its address, whatever its connections do. */
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
	if (!asked)
		asked = crowd_active_ns();
	asked_due = crowd.now + SECOND;
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

/* A router reports its MTU, with the header and eight bytes of the packet. */
static void report_mtu(const uint8_t *frame)
{
	uint8_t report[34 + 8 + 28] = {0}, *icmp = report + 34;
	uint16_t sum;

	put_ip4(report, 0, 36, 1);
	icmp[0] = 3;
	icmp[1] = 4;
	put16(icmp + 6, crowd.draw.path_mtu);
	memcpy(icmp + 8, frame + 14, 28);
	sum = (uint16_t)~glue_sum_fold(glue_sum_add(0, icmp, 36));
	memcpy(icmp + 2, &sum, 2);
	travel(true, report, sizeof(report));
}

void crowd_take(const uint8_t *frame, unsigned len)
{
	if (get16(frame + 12) == 0x0806)
		take_arp(frame);
	else if (crowd.draw.mtu_at && crowd.now >= crowd.draw.mtu_at &&
		 len > 14 + crowd.draw.path_mtu)
		report_mtu(frame);
	else
		travel(false, frame, len);
}

/* ---- delivery ---- */

static void deliver(const struct packet *packet)
{
	const uint8_t *ip = packet->frame + 14;
	struct segment s;

	if (packet->to_stack) {
		queue_receive(packet->frame, packet->len);
		return;
	}
	if (get16(packet->frame + 12) != 0x0800 || ip[9] != 6)
		return;
	s = frame_get_tcp(ip + 20, get16(ip + 2) - 20);
	crowd_receive(&s);
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
		ask_arp();
	if (asked && crowd_active_ns() - asked > ANSWER_MAX)
		crowd_violated("the stack answers no ARP request");
}

int64_t crowd_path_due(void)
{
	return LWIP_MIN(n_packets ? packets[first].at : NEVER, asked_due);
}
