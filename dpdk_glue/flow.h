/*
 * Which shard a frame belongs to. Private to dpdk_glue/; netstack/ has
 * glue_flow_fold() and glue_flow_shard() of glue.h.
 *
 * One rule everywhere: RETA[Toeplitz hash of the 4-tuple], with a key of one
 * repeated 16-bit word, so that both directions of a flow have the same hash
 * (Woo, Park: Scalable TCP Session Monitoring with Symmetric Receive-side
 * Scaling). With such a key the hash depends on the exclusive or of all 16-bit
 * words of the tuple alone, and is linear in it: two tables of 256 bytes, made
 * by rte_softrss() when the program starts, give its low seven bits.
 *
 * Frames other than TCP and UDP belong to shard 0, except ICMP errors: they
 * belong to the shard of the segment that they quote.
 *
 * Threads: written by glue_flow_start() alone, before other shards run.
 */
#pragma once

#include "dpdk_glue/check.h"
#include "dpdk_glue/glue.h"

#define GLUE_RETA_SIZE	 128
#define GLUE_RSS_KEY_MAX 256 /* bytes; of any port */

struct glue_flow_rule {
	uint8_t low[256], high[256]; /* hashes of the two bytes of a fold */
	uint8_t reta[GLUE_RETA_SIZE];
	unsigned n_shards;
};
extern struct glue_flow_rule glue_flow_rule;

/* Fills the tables for n_shards, 1 to GLUE_MAX_SHARDS. */
void glue_flow_start(unsigned n_shards);

/* Writes len bytes of the key. */
void glue_flow_key(uint8_t *key, unsigned len);

/*
 * The shard of an ICMP or ICMPv6 message: that of the segment it quotes, or 0.
 */
unsigned glue_flow_icmp(const struct glue_frame *f);

/* The shard of a frame for which glue_check() returned GLUE_KEEP and *l4. */
static inline unsigned glue_flow_owner(const struct glue_frame *f,
				       const struct glue_l4 *l4)
{
	uint64_t words[4], fold;
	uint32_t ports;

	if (unlikely(!(f->flags & (GLUE_FRAME_TCP | GLUE_FRAME_UDP))))
		return f->flags & GLUE_FRAME_ICMP ? glue_flow_icmp(f) : 0;
	__builtin_memcpy(&ports, f->data + f->l4_off, sizeof(ports));
	if (l4->addr_len == 4) {
		__builtin_memcpy(&fold, l4->addrs, 8);
	} else {
		__builtin_memcpy(words, l4->addrs, 32);
		fold = words[0] ^ words[1] ^ words[2] ^ words[3];
	}
	fold ^= fold >> 32;
	fold ^= ports;
	fold ^= fold >> 16;
	/* in network order: the first byte is the high one */
	return glue_flow_rule.reta[glue_flow_rule.high[fold & 255] ^
				   glue_flow_rule.low[fold >> 8 & 255]];
}
