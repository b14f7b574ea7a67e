/*
 * Private to device.c, port*.c, memif.c and tap.c: a device, which all shards
 * share; a port, which is one shard's view of it; and the mbufs behind frames.
 *
 * Threads: a device is written under a lock while it is opened and closed, and
 * by memif.c. The fields that shards read in every burst are in its first cache
 * line. Only its shard's thread uses a port.
 */
#pragma once

#include <pthread.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "dpdk_glue/burst_sync.h"
#include "dpdk_glue/flow.h"
#include "dpdk_glue/glue_csum.h"
#include "dpdk_glue/glue_priv.h"
#include "dpdk_glue/pcap_priv.h"
#include "dpdk_glue/tso.h"
#include "dpdk_glue/vlan.h"

#define DATA_ROOM  2048 /* bytes of one segment, without its headroom */
#define TX_PENDING 512	/* frames that may wait for the port */
#define HAND_OVER  1024 /* frames that may wait for a shard to take them */

/* Written by its shard alone. */
struct glue_empty {
	_Alignas(RTE_CACHE_LINE_SIZE) uint32_t n; /* bursts without a frame */
	unsigned lcore; /* atomic: whose cache of the pool the shard uses */
};

static_assert(GLUE_MAX_SHARDS <= 64, "a bit for each in short_pools");

struct glue_device {
	/*
	 * Atomic: queue pairs that may be polled, those below this number; 0
	 * while the port is stopped.
	 */
	uint16_t n_active;
	uint16_t id;
	uint16_t n_queues;
	uint16_t n_shards;
	/*
	 * Atomic, a bit for each shard whose queue receives into its pool: at
	 * the shard's last check, the pool was short, so that the stack must
	 * keep no more of its frames; or it was nearly empty.
	 */
	uint64_t short_pools, empty_pools;
	struct rte_ring **rx_rings; /* per shard: frames that others received */
	struct rte_ring **tx_rings; /* per shard: frames to send for others */

	unsigned index; /* of the link */
	int node;	/* a card's NUMA node; -1: none */
	unsigned n_open;
	const struct glue_link *link;
	unsigned mtu;
	bool hw_csum;	    /* the port does TCP and UDP checksums */
	bool hw_ip4_csum;   /* and those of IPv4 headers */
	bool tso;	    /* the port cuts TSO frames up */
	bool tso6;	    /* of IPv6, too */
	uint16_t tso_mbufs; /* at most in one TSO frame */
	bool can_lend;	    /* frames may refer to any memory */
	bool can_resend;    /* frames are not kept after they were sent */
	bool rss;	    /* the port spreads flows by our rule: verified */
	bool rss_all;	    /* those of TCP and UDP, IPv4 and IPv6 */
	const char *no_rss; /* why it does not; NULL: it does */
	uint8_t mac[RTE_ETHER_ADDR_LEN];
	unsigned asked_frames; /* requested for each receive pool; 0: default */
	unsigned n_ring;       /* frames that the rings of a queue may hold */
	unsigned transit;      /* most frames of a receive pool in transit */
	struct rte_mempool **pools; /* per shard */
	struct glue_empty *empty;   /* per shard */
	const char *server_path;    /* a memif client's (memif.c), or NULL */
	uint16_t n_client_queues;   /* memif.c's: as the server has, too */
	int tap_signal;		    /* a TAP's (tap.c), or 0 */
	bool watched, carrier;	    /* link_watch.c's */
	bool in_reset;		    /* link_watch.c's: its card was reset */
	unsigned restarts_due;	    /* link_watch.c's */
	unsigned speed_mbps;	    /* atomic: link_watch.c's; 0: unknown */
	unsigned carrier_losses;    /* atomic: link_watch.c's */
	unsigned bond_due;	    /* atomic: bond.c's */
	pthread_mutex_t
		port_lock; /* for calls that may race with its removal */
	bool gone; /* under port_lock: the card and its port were removed */
	int64_t restarted_ns; /* last restart of a memif client's port */
};

struct glue_port {
	struct glue_device *device;
	unsigned *bursts; /* of this thread: burst_sync.h */
	uint32_t *empty;  /* count of its queue: struct glue_empty */
	uint16_t id;
	uint16_t shard;	    /* its shard, and the number of its queue */
	uint16_t n_pending; /* frames in pending[] */
	uint16_t n_carried; /* those of them that other shards send */
	bool has_shards;    /* there are several shards */
	bool sorts_frames;  /* several shards, a bond or a VLAN */
	bool trusts_csum;   /* GLUE_CSUM_TRUST */
	bool keeps_refused; /* for the kernel: GLUE_FRAME_OTHER */
	bool hw_csum;
	bool hw_ip4_csum;
	bool tso;
	bool tso6;
	uint16_t tso_mbufs;
	uint16_t vlan; /* of the link; 0: none */
	struct rte_mempool *pool;
	struct glue_port_stats stats;
	struct glue_tso tso_frame; /* the last pending frame, while it grows */
	struct rte_mbuf *tso_tail;
	struct rte_mbuf *pending[TX_PENDING];
	uint8_t carried[TX_PENDING]; /* 1: another shard sends pending[i] */
};

/* Returns whether this shard has a queue pair that may be polled now. */
static inline bool glue_port_active(const struct glue_port *port)
{
	return port->shard <
	       __atomic_load_n(&port->device->n_active, __ATOMIC_ACQUIRE);
}

/* Bursts, on the port's thread; they move nothing while it is stopped. */
static inline uint16_t glue_rx_burst(struct glue_port *port,
				     struct rte_mbuf **bufs, unsigned max)
{
	struct glue_pcap *pcap;
	uint16_t n = 0;

	glue_burst_begin(port->bursts);
	if (likely(glue_port_active(port)))
		n = rte_eth_rx_burst(
			port->id, port->shard, bufs,
			(uint16_t)RTE_MIN(max, (unsigned)GLUE_BURST));
	if (n == 0)
		__atomic_store_n(port->empty, *port->empty + 1,
				 __ATOMIC_RELAXED);
	pcap = glue_pcap_running();
	if (unlikely(pcap))
		glue_pcap_rx(pcap, port->id, port->shard, bufs, n);
	glue_burst_end(port->bursts);
	return n;
}

static inline uint16_t glue_tx_burst(struct glue_port *port,
				     struct rte_mbuf **bufs, uint16_t want)
{
	struct glue_pcap *pcap;
	uint16_t n = 0;

	glue_burst_begin(port->bursts);
	pcap = glue_pcap_running();
	if (unlikely(!glue_port_active(port)))
		n = 0;
	else if (likely(!pcap))
		n = rte_eth_tx_burst(port->id, port->shard, bufs, want);
	else
		n = glue_pcap_tx(pcap, port->id, port->shard, bufs, want);
	glue_burst_end(port->bursts);
	return n;
}

/*
 * Used around DPDK calls for the port other than bursts, since the port may be
 * removed with its card. If glue_device_enter() returns false, it was removed,
 * and glue_device_leave() is not called.
 */
static inline bool glue_device_enter(struct glue_device *device)
{
	pthread_mutex_lock(&device->port_lock);
	if (likely(!device->gone))
		return true;
	pthread_mutex_unlock(&device->port_lock);
	return false;
}

static inline void glue_device_leave(struct glue_device *device)
{
	pthread_mutex_unlock(&device->port_lock);
}

/* Sends frames of shards without a queue through this queue (port_tx.c). */
void glue_tx_carry(struct glue_port *port);

/*
 * glue_tx_carry() for all shards, including closed ones with queues: frames
 * that were sent while they closed, mostly RSTs. Only if no other port is open.
 */
void glue_tx_carry_remaining(struct glue_port *port);

static inline struct glue_frame *frame_of(struct rte_mbuf *m)
{
	return (struct glue_frame *)(m + 1);
}

static inline struct rte_mbuf *mbuf_of(struct glue_frame *frame)
{
	return (struct rte_mbuf *)frame - 1;
}

/*
 * Bytes of a received frame on the wire, including a VLAN tag that was removed.
 */
static inline unsigned wire_len(const struct glue_port *port,
				const struct rte_mbuf *m)
{
	return m->pkt_len + (port->vlan ? GLUE_TAG_BYTES : 0);
}

/*
 * The checksum, not folded, of len bytes of a frame from offset off on, in any
 * number of mbufs.
 */
uint64_t glue_chain_sum(const struct rte_mbuf *m, unsigned off, unsigned len);

static inline uint64_t glue_mbuf_sum(const struct rte_mbuf *m, unsigned off,
				     unsigned len)
{
	if (likely(!m->next))
		return glue_sum_add(
			0, rte_pktmbuf_mtod_offset(m, uint8_t *, off), len);
	return glue_chain_sum(m, off, len);
}

/*
 * The device of links[index]. The first call opens it, with the pools and rings
 * of all shards. Each successful call is undone by one glue_device_put(); the
 * last of these stops and closes the device.
 */
int glue_device_get(unsigned index, const struct glue_port_conf *conf,
		    struct glue_device **out, char *err, size_t err_len);
void glue_device_put(struct glue_device *device);

/* Returns whether only one port of the device is open. */
bool glue_device_is_last(struct glue_device *device);

/*
 * Returns whether the device has a carrier; *speed_mbps: its speed, 0 if
 * unknown. For a watched device these are the results of the last check;
 * otherwise it queries the driver. Called after glue_device_enter()
 * (link_watch.c).
 */
bool glue_device_up(const struct glue_device *device, unsigned *speed_mbps);

/*
 * Configures the device's port, which is stopped, with the settings chosen for
 * it, and starts it. Returns 0 or -errno, with the reason in err; -EAGAIN: an
 * AF_XDP link's queues may become free (port_setup.c).
 */
int glue_port_setup(struct glue_device *device, char *err, size_t err_len);
/*
 * Configures the device's port, which is stopped and has no RSS, with n of its
 * n_queues queue pairs. Returns 0 or -errno, with the reason in err.
 */
int glue_port_set_queues(struct glue_device *device, uint16_t n, char *err,
			 size_t err_len);

/* ---- node.c ---- */

/* The NUMA node of a CPU; SOCKET_ID_ANY if it is unknown. */
int glue_node_of_cpu(int cpu);

/* The NUMA node of a link's card, or of a bond's first one; -1: none. */
int glue_node_of_card(const struct glue_link *link);

/* Logs a line if a shard's CPU is on another node than the device's card. */
void glue_node_warn(const struct glue_device *device);

/* ---- capability.c ---- */

/* The largest IP packet that a port takes. */
unsigned glue_can_mtu(const struct glue_link *link,
		      const struct rte_eth_dev_info *info);

/* The MTU to set on a port for IP packets of `mtu` bytes. */
unsigned glue_port_mtu(const struct glue_link *link,
		       const struct rte_eth_dev_info *info, unsigned mtu);

/*
 * Configure a device as its link requests, as far as the port can: queue pairs,
 * then checksums and TSO. They return 0, or -EINVAL with the reason in err.
 */
int glue_choose_queues(struct glue_device *device,
		       const struct rte_eth_dev_info *info, char *err,
		       size_t err_len);
/* Returns how many queue pairs a port can have, at most `wanted`. */
unsigned glue_usable_queues(const struct rte_eth_dev_info *info,
			    unsigned wanted);
int glue_choose_offloads(struct glue_device *device,
			 const struct rte_eth_dev_info *info, char *err,
			 size_t err_len);

/* Put the chosen settings into conf; key has GLUE_RSS_KEY_MAX bytes. */
void glue_offloads(const struct glue_device *device,
		   const struct rte_eth_dev_info *info,
		   struct rte_eth_conf *conf);
/* Requests RSS in conf. Returns NULL, or the part of it that the port lacks. */
const char *glue_ask_for_rss(const struct glue_device *device,
			     const struct rte_eth_dev_info *info,
			     struct rte_eth_conf *conf, uint8_t *key);

/* Returns whether it was requested for all flows of TCP and UDP. */
bool glue_rss_is_for_all(const struct rte_eth_conf *conf);

/*
 * Called after the start of a port for which RSS was requested, to set its
 * table and read its settings back. Returns NULL if it spreads flows by the
 * rule of glue_flow_shard(), or the setting that it has not accepted.
 */
const char *glue_set_rss(const struct glue_device *device,
			 const struct rte_eth_conf *conf);
