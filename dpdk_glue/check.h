/*
 * Decides which frames the stack may see. It checks every length that the
 * stack's parsers rely on, and refuses frames that the stack does not use.
 *
 * It needs no DPDK and has no state. The caller verifies the checksums: struct
 * glue_l4 describes what they cover.
 */
#pragma once

#include "dpdk_glue/bytes.h"
#include "dpdk_glue/glue.h"
#include "dpdk_glue/hint.h"

enum glue_verdict {
	GLUE_KEEP,
	GLUE_BAD_FRAME,	 /* too short, or lengths that contradict each other */
	GLUE_BAD_CSUM,	 /* never from glue_check() itself */
	GLUE_REFUSED,	 /* well formed, but not used by this stack */
	GLUE_OTHER_VLAN, /* has a VLAN tag, or not the link's (vlan.h) */
};

/* The transport header and its payload, for verifying the checksum. */
struct glue_l4 {
	const uint8_t *addrs; /* both, in the IP header; NULL: there is no IP */
	uint8_t addr_len;     /* bytes of one address, 4 or 16 */
	uint8_t proto;
	uint16_t len; /* bytes from l4_off */
};

#define GLUE_ETHERTYPE_CTAG 0x8100 /* 802.1Q */
#define GLUE_ETHERTYPE_STAG 0x88a8 /* 802.1ad */

#define GLUE_ETH_BYTES 14u
#define GLUE_IP4_BYTES 20u
#define GLUE_IP6_BYTES 40u
#define GLUE_TCP_BYTES 20u

enum glue_proto {
	GLUE_PROTO_ICMP = 1,
	GLUE_PROTO_IGMP = 2,
	GLUE_PROTO_TCP = 6,
	GLUE_PROTO_UDP = 17,
	GLUE_PROTO_ICMP6 = 58,
};

/*
 * Check the rarer frames, out of line; l3_off is set and IP lengths are
 * checked.
 */
enum glue_verdict glue_check_arp(struct glue_frame *f);
enum glue_verdict glue_check_rare4(struct glue_frame *f, struct glue_l4 *l4);
enum glue_verdict glue_check_rare6(struct glue_frame *f, struct glue_l4 *l4);

/* Types of options of neighbour discovery (RFC 4861 4.6). */
enum { GLUE_ND_SOURCE_MAC = 1, GLUE_ND_TARGET_MAC = 2 };

/*
 * Returns the first option of a type in a message that has passed, or NULL.
 * opt: where its options begin; left: their bytes.
 */
const uint8_t *glue_nd_option(const uint8_t *opt, unsigned left, unsigned type);

/*
 * Sets the flags of a refused frame for the exception path (GLUE_FRAME_OTHER),
 * and *l4 so that glue_flow_owner() finds the flow of a TCP segment's first
 * fragment.
 */
void glue_check_other(struct glue_frame *f, struct glue_l4 *l4);

static inline enum glue_verdict
glue_check_ip4(struct glue_frame *f, unsigned total, struct glue_l4 *l4)
{
	const uint8_t *ip = f->data + f->l3_off;
	unsigned room = f->seg_len - f->l3_off;
	unsigned header, bytes;

	if (room < GLUE_IP4_BYTES || ip[0] >> 4 != 4)
		return GLUE_BAD_FRAME;
	header = (ip[0] & 15) * 4u;
	bytes = glue_get16(ip + 2);
	if (header < GLUE_IP4_BYTES || header > room || bytes < header ||
	    bytes > total - f->l3_off)
		return GLUE_BAD_FRAME;
	f->flags |= GLUE_FRAME_IP4;
	f->l4_off = (uint16_t)(f->l3_off + header);
	*l4 = (struct glue_l4){ip + 12, 4, ip[9], (uint16_t)(bytes - header)};
	/* Neither option nor fragment, as in nearly all frames. */
	if (likely(l4->proto == GLUE_PROTO_TCP && ip[0] == 0x45 &&
		   (glue_get16(ip + 6) & 0x3fff) == 0)) {
		if (l4->len < GLUE_TCP_BYTES ||
		    f->seg_len < f->l4_off + GLUE_TCP_BYTES)
			return GLUE_BAD_FRAME;
		f->flags |= GLUE_FRAME_TCP;
		return GLUE_KEEP;
	}
	return glue_check_rare4(f, l4);
}

static inline enum glue_verdict
glue_check_ip6(struct glue_frame *f, unsigned total, struct glue_l4 *l4)
{
	const uint8_t *ip = f->data + f->l3_off;
	unsigned room = f->seg_len - f->l3_off;
	unsigned bytes;

	if (room < GLUE_IP6_BYTES || ip[0] >> 4 != 6)
		return GLUE_BAD_FRAME;
	bytes = glue_get16(ip + 4);
	if (bytes + GLUE_IP6_BYTES > total - f->l3_off)
		return GLUE_BAD_FRAME;
	f->flags |= GLUE_FRAME_IP6;
	f->l4_off = (uint16_t)(f->l3_off + GLUE_IP6_BYTES);
	*l4 = (struct glue_l4){ip + 8, 16, ip[6], (uint16_t)bytes};
	if (likely(l4->proto == GLUE_PROTO_TCP)) {
		if (l4->len < GLUE_TCP_BYTES ||
		    f->seg_len < f->l4_off + GLUE_TCP_BYTES)
			return GLUE_BAD_FRAME;
		f->flags |= GLUE_FRAME_TCP;
		return GLUE_KEEP;
	}
	return glue_check_rare6(f, l4);
}

/*
 * Checks a frame of `total` bytes, whose first segment has data and seg_len
 * set. Sets flags, l3_off, l4_off and *l4. All headers must be in the first
 * segment; no byte beyond it is read. The tag of the link's VLAN was removed
 * before.
 */
static inline enum glue_verdict glue_check(struct glue_frame *f, unsigned total,
					   struct glue_l4 *l4)
{
	unsigned type;

	f->flags = 0;
	f->l3_off = GLUE_ETH_BYTES;
	f->l4_off = 0;
	l4->addrs = NULL;
	if (unlikely(f->seg_len < GLUE_ETH_BYTES))
		return GLUE_BAD_FRAME;
	if (f->data[0] & 1)
		f->flags |= GLUE_FRAME_MCAST;
	type = glue_get16(f->data + 12);
	if (likely(type == 0x0800))
		return glue_check_ip4(f, total, l4);
	switch (type) {
	case 0x86dd:
		return glue_check_ip6(f, total, l4);
	case 0x0806:
		return glue_check_arp(f);
	case GLUE_ETHERTYPE_CTAG:
	case GLUE_ETHERTYPE_STAG:
		return GLUE_OTHER_VLAN;
	default:
		return GLUE_REFUSED;
	}
}
