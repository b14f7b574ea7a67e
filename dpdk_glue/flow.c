/*
 * Assigns flows to shards: the RSS key, the tables of the hash, and ICMP
 * errors.
 */
#include "dpdk_glue/flow.h"

#include <assert.h>
#include <string.h>

#include <rte_thash.h>

/*
 * Repeated, it makes the hash symmetric. Of all words of 16 bits this one and
 * its mirror spread small differences best: for every k up to 7 the low k bits
 * of a port, and those of either byte of an address, reach all values of the
 * low k bits of the hash. So 2^k consecutive ports take 2^k entries of the RETA
 * (0x6d5a, known from the paper, leaves half of them out), and the weight is
 * odd, so that the hash maps the 65,536 folds one to one.
 */
#define KEY_HIGH 0x26
#define KEY_LOW	 0x7b

struct glue_flow_rule glue_flow_rule;

void glue_flow_key(uint8_t *key, unsigned len)
{
	for (unsigned i = 0; i < len; i++)
		key[i] = i % 2 ? KEY_LOW : KEY_HIGH;
}

void glue_flow_start(unsigned n_shards)
{
	struct glue_flow_rule *rule = &glue_flow_rule;
	uint32_t key[2];

	assert(n_shards >= 1 && n_shards <= GLUE_MAX_SHARDS);
	glue_flow_key((uint8_t *)key, sizeof(key));
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t low = i, high = i << 8;

		rule->low[i] =
			rte_softrss(&low, 1, (uint8_t *)key) % GLUE_RETA_SIZE;
		rule->high[i] =
			rte_softrss(&high, 1, (uint8_t *)key) % GLUE_RETA_SIZE;
	}
	for (unsigned i = 0; i < GLUE_RETA_SIZE; i++)
		rule->reta[i] = (uint8_t)(i % n_shards);
	rule->n_shards = n_shards;
}

uint16_t glue_flow_fold(const void *addr_a, const void *addr_b,
			unsigned addr_len)
{
	const uint8_t *a = addr_a, *b = addr_b;
	unsigned fold = 0;

	for (unsigned i = 0; i < addr_len; i += 2)
		fold ^= glue_get16(a + i) ^ glue_get16(b + i);
	return (uint16_t)fold;
}

unsigned glue_flow_shard(uint16_t fold, uint16_t port_a, uint16_t port_b)
{
	fold ^= port_a ^ port_b;
	return glue_flow_rule.reta[glue_flow_rule.high[fold >> 8] ^
				   glue_flow_rule.low[fold & 255]];
}

/* Find a quoted packet's addresses and ports, if they are there. */
static bool find_quoted4(const uint8_t *ip, unsigned room, struct glue_l4 *l4)
{
	unsigned header;

	if (room < GLUE_IP4_BYTES || ip[0] >> 4 != 4)
		return false;
	header = (ip[0] & 15) * 4u;
	*l4 = (struct glue_l4){ip + 12, 4, ip[9], (uint16_t)header};
	return header >= GLUE_IP4_BYTES && room >= header + 4 &&
	       (glue_get16(ip + 6) & 0x1fff) == 0;
}

static bool find_quoted6(const uint8_t *ip, unsigned room, struct glue_l4 *l4)
{
	if (room < GLUE_IP6_BYTES + 4 || ip[0] >> 4 != 6)
		return false;
	*l4 = (struct glue_l4){ip + 8, 16, ip[6], GLUE_IP6_BYTES};
	return true;
}

unsigned glue_flow_icmp(const struct glue_frame *f)
{
	const uint8_t *icmp = f->data + f->l4_off;
	unsigned room = f->seg_len - f->l4_off;
	struct glue_l4 l4;
	const uint8_t *ports;
	uint16_t fold;

	if (room < 8)
		return 0;
	if (f->flags & GLUE_FRAME_IP4) {
		/* RFC 792: unreachable, which has "fragmentation needed" */
		if (icmp[0] != 3 || !find_quoted4(icmp + 8, room - 8, &l4))
			return 0;
	} else if (icmp[0] > 127 || !find_quoted6(icmp + 8, room - 8, &l4)) {
		return 0; /* RFC 4443 2.1: errors are those below 128 */
	}
	if (l4.proto != GLUE_PROTO_TCP && l4.proto != GLUE_PROTO_UDP)
		return 0;
	ports = icmp + 8 + l4.len;
	fold = glue_flow_fold(l4.addrs, l4.addrs + l4.addr_len, l4.addr_len);
	return glue_flow_shard(fold, (uint16_t)glue_get16(ports),
			       (uint16_t)glue_get16(ports + 2));
}
