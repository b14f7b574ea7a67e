/* Frames by hand, for the tests of the exception path: one at a time. */
#pragma once

#include "dpdk_glue/glue_csum.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

static uint8_t frame[4096];
static unsigned len;

static inline void ethernet(const uint8_t *dest, unsigned type)
{
	memset(frame, 0, sizeof(frame));
	memcpy(frame, dest, 6);
	memcpy(frame + 6, fake_peer_mac, 6);
	put16(frame + 12, type);
}

static const uint8_t everybody[6] = {255, 255, 255, 255, 255, 255};
static const uint8_t stranger_mac[6] = {2, 0, 0, 0, 0, 99};

/*
 * Builds an IPv4 packet of 40 bytes with checksums; `offset` is the fragment
 * field with flags.
 */
static inline void build_ip4(const uint8_t *mac, uint8_t proto, uint32_t dest,
			     unsigned offset, unsigned from, unsigned to)
{
	uint8_t *ip = frame + 14, *l4 = ip + 20;
	unsigned sum_at = proto == 6 ? 16 : proto == 17 ? 6 : 2;
	uint64_t sum = 0;

	ethernet(mac, 0x0800);
	len = 54;
	ip[0] = 0x45;
	put16(ip + 2, 40);
	put16(ip + 6, offset);
	ip[8] = 64;
	ip[9] = proto;
	put32(ip + 12, 0x0a000002);
	put32(ip + 16, dest);
	put16(ip + 10, __builtin_bswap16((uint16_t)~glue_sum_fold(
			       glue_sum_add(0, ip, 20))));
	put16(l4, from);
	put16(l4 + 2, proto == 1 ? 0 : to);
	if (proto == 6) {
		l4[12] = 0x50;
		l4[13] = PEER_SYN;
	} else if (proto == 17) {
		put16(l4 + 4, 20);
	}
	if (proto == 6 || proto == 17)
		sum = glue_sum_pseudo(ip + 12, 4, proto, 20);
	put16(l4 + sum_at, __builtin_bswap16((uint16_t)~glue_sum_fold(
				   sum + glue_sum_add(0, l4, 20))));
}

#define US     0x0a000001u
#define OTHER  0x0a0000feu
#define TO_ALL 0x0a0000ffu
#define MORE   0x2000u

static inline void build_arp(unsigned op, uint32_t target)
{
	ethernet(everybody, 0x0806);
	len = 42;
	memcpy(frame + 14, "\0\1\10\0\6\4", 6);
	put16(frame + 20, op);
	memcpy(frame + 22, fake_peer_mac, 6);
	put32(frame + 28, 0x0a000002);
	put32(frame + 38, target);
}

static inline void other_type(const uint8_t *mac)
{
	ethernet(mac, 0x88cc); /* LLDP */
	len = 60;
}

/* Builds an ICMP message; type 8, code 0 is an echo request, type 0 a reply. */
static inline void build_icmp4(unsigned type_code, uint32_t dest)
{
	build_ip4(fake_mac, 1, dest, 0, type_code, 0);
}
