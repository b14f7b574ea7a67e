/*
 * The blocks of a pcapng file (draft-ietf-opsawg-pcapng): a section, an
 * interface for each DPDK port, and a packet for each frame. DPDK's rte_pcapng
 * writes the same, but its calls differ in each of 22.11, 23.03, 23.11 and
 * 25.11, and it computes times in variables that threads share. Private to
 * dpdk_glue/.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* The interface of a port that did not exist when the file was begun. */
#define GLUE_PCAPNG_NO_INTERFACE UINT8_MAX

/* Where a frame was seen, and when. */
struct glue_pcapng_frame {
	uint64_t ns; /* since 1970 */
	uint8_t interface;
	uint16_t queue;
	bool outbound;
};

/*
 * Writes the section and its interfaces to fd, each of which cuts frames to
 * snap bytes, and fills in the interface of every port. Returns the number of
 * bytes written, -ENODEV without any port, or -errno of write(2).
 */
ssize_t glue_pcapng_begin(int fd, uint32_t snap,
			  uint8_t interfaces[RTE_MAX_ETHPORTS]);

/* Bytes that an mbuf needs for a frame of snap bytes and its block. */
uint16_t glue_pcapng_mbuf_bytes(uint32_t snap);

/*
 * Makes a block with the first snap bytes of m: one segment, owned by the
 * caller. A VLAN tag that the NIC has stripped is inserted again. The pool's
 * mbufs have glue_pcapng_mbuf_bytes(). Returns NULL when the pool is empty.
 */
struct rte_mbuf *glue_pcapng_copy(const struct rte_mbuf *m,
				  struct rte_mempool *pool, uint32_t snap,
				  const struct glue_pcapng_frame *frame);
