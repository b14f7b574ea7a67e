/* The part of a capture that bursts use (pcap.c). Private to dpdk_glue/. */
#pragma once

#include <rte_mbuf.h>

struct glue_pcap;

/*
 * Atomic: the running capture; only read between glue_burst_begin() and
 * glue_burst_end().
 */
extern struct glue_pcap *glue_pcap_now;

static inline struct glue_pcap *glue_pcap_running(void)
{
	return __atomic_load_n(&glue_pcap_now, __ATOMIC_ACQUIRE);
}

/* Captures frames that were received. */
void glue_pcap_rx(struct glue_pcap *pcap, uint16_t port, uint16_t queue,
		  struct rte_mbuf **bufs, uint16_t n);

/* Does rte_eth_tx_burst(), and captures the frames that the port accepted. */
uint16_t glue_pcap_tx(struct glue_pcap *pcap, uint16_t port, uint16_t queue,
		      struct rte_mbuf **bufs, uint16_t want);

/*
 * Finds the first name of a host in a filter. Returns its length, with *name at
 * its first character; 0: there is none (pcap_filter.c).
 */
size_t glue_filter_find_name(const char *text, const char **name);

/* The words that it takes for libpcap's own, with blanks between. */
extern const char glue_filter_words[];
