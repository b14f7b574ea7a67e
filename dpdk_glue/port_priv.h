/*
 * Private to port*.c: a port, and frames as the mbufs they are.
 */
#pragma once

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "dpdk_glue/glue_csum.h"
#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/burst_sync.h"
#include "dpdk_glue/tso.h"

#define DATA_ROOM  2048 /* bytes of one segment, headroom apart */
#define TX_PENDING 512	/* frames a port may keep us waiting with */

struct glue_port {
	uint16_t id;
	uint16_t n_pending; /* frames in pending[] */
	bool hw_csum;
	bool tso;	    /* the port cuts TSO frames up */
	bool tso6;	    /* of IPv6, too */
	uint16_t tso_mbufs; /* at most in one TSO frame */
	bool lends;	    /* frames may refer to any memory */
	bool away;	    /* atomic: stopped, not to be polled */
	uint8_t mac[RTE_ETHER_ADDR_LEN];
	unsigned n_frames;
	unsigned n_ring; /* frames that its rings may hold */
	struct rte_mempool *pool;
	struct glue_port_stats stats;
	struct glue_tso tso_frame; /* its last frame, while it grows */
	struct rte_mbuf *tso_tail;
	const char *server_path; /* a memif client's (memif.c), or NULL */
	int tap_signal;		 /* a TAP's (tap.c), or 0 */
	int64_t restarted_ns;	 /* of that client, since its link went down */
	struct rte_mbuf *pending[TX_PENDING];
};

/* The polling thread's bursts: none while the port is away. */
static inline uint16_t glue_rx_burst(struct glue_port *port,
				     struct rte_mbuf **bufs, unsigned max)
{
	uint16_t n = 0;

	glue_burst_begin();
	if (likely(!__atomic_load_n(&port->away, __ATOMIC_ACQUIRE)))
		n = rte_eth_rx_burst(
			port->id, 0, bufs,
			(uint16_t)RTE_MIN(max, (unsigned)GLUE_BURST));
	glue_burst_end();
	return n;
}

static inline uint16_t glue_tx_burst(struct glue_port *port,
				     struct rte_mbuf **bufs, uint16_t want)
{
	uint16_t n = 0;

	glue_burst_begin();
	if (likely(!__atomic_load_n(&port->away, __ATOMIC_ACQUIRE)))
		n = rte_eth_tx_burst(port->id, 0, bufs, want);
	glue_burst_end();
	return n;
}

static inline struct glue_frame *frame_of(struct rte_mbuf *m)
{
	return (struct glue_frame *)(m + 1);
}

static inline struct rte_mbuf *mbuf_of(struct glue_frame *frame)
{
	return (struct rte_mbuf *)frame - 1;
}

/* The sum over a frame from an offset, however many mbufs it is. */
uint64_t glue_chain_sum(const struct rte_mbuf *m, unsigned off, unsigned len);

static inline uint64_t glue_mbuf_sum(const struct rte_mbuf *m, unsigned off,
				     unsigned len)
{
	if (likely(m->next == NULL))
		return glue_sum_add(
			0, rte_pktmbuf_mtod_offset(m, uint8_t *, off), len);
	return glue_chain_sum(m, off, len);
}
