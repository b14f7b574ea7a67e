#include "dpdk_glue/port_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#include "dpdk_glue/check.h"
#include "dpdk_glue/glue_csum.h"
#include "dpdk_glue/memif.h"
#include "dpdk_glue/tap.h"

#define POOL_DEFAULT 12288
#define TSO_MBUFS    40u /* what one frame may be made of */
#define POOL_CACHE   256

static uint16_t ring_size(const struct glue_link *link)
{
	return (uint16_t)(link->queue_size ? link->queue_size : 1024);
}

/* What two rings, the queue before one and a thread's cache may hold. */
static unsigned ring_frames(unsigned n_ring)
{
	return 2 * n_ring + TX_PENDING + POOL_CACHE * 3 / 2;
}

static unsigned pool_frames(const struct glue_link *link, unsigned asked)
{
	return RTE_MAX(asked ? asked : POOL_DEFAULT,
		       2 * ring_frames(ring_size(link)));
}

unsigned glue_link_mem_mib(const struct glue_link *link)
{
	unsigned kib = pool_frames(link, 0) * 5 / 2;

	return RTE_MAX(64u, kib / 1024 + 34);
}

const uint8_t *glue_port_mac(const struct glue_port *port)
{
	return port->mac;
}

bool glue_port_hw_csum(const struct glue_port *port)
{
	return port->hw_csum;
}

bool glue_port_tso(const struct glue_port *port)
{
	return port->tso;
}

bool glue_port_lends(const struct glue_port *port)
{
	return port->lends;
}

bool glue_port_link_up(struct glue_port *port)
{
	struct rte_eth_link link = {0};

	return rte_eth_link_get_nowait(port->id, &link) == 0 &&
	       link.link_status == RTE_ETH_LINK_UP;
}

unsigned glue_port_frames_free(const struct glue_port *port)
{
	return rte_mempool_avail_count(port->pool);
}

unsigned glue_port_frames(const struct glue_port *port)
{
	return port->n_frames;
}

uint64_t glue_port_no_frame(const struct glue_port *port)
{
	return port->stats.tx_no_frame;
}

/* Half of the pool at most, and never what the port itself needs. */
unsigned glue_port_frames_spare(const struct glue_port *port)
{
	return (port->n_frames - ring_frames(port->n_ring)) / 2;
}

/*
 * Virtual devices either cannot checksum or leave it to the far side, which
 * is of no use when that side forwards to a third: they get software unless
 * the user says otherwise.
 */
static bool want_hw_csum(const struct glue_link *link,
			 const struct rte_eth_dev_info *info)
{
	const uint64_t tx = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM |
			    RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
			    RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	bool can = (info->tx_offload_capa & tx) == tx;

	switch (link->csum) {
	case GLUE_CSUM_HW:
		return can;
	case GLUE_CSUM_SW:
		return false;
	case GLUE_CSUM_AUTO:
		break;
	}
	return can && link->kind == GLUE_LINK_PCI &&
	       strcmp(info->driver_name, "net_virtio") != 0;
}

/*
 * These copy a frame's segments with the CPU, from wherever they lie. The
 * others hand addresses to a device or to another process, which see DPDK's
 * own memory alone.
 */
static bool copies_frames(const struct glue_link *link)
{
	switch (link->kind) {
	case GLUE_LINK_MEMIF:
	case GLUE_LINK_TAP:
	case GLUE_LINK_AF_PACKET:
	case GLUE_LINK_RING: /* gives frames to ourselves */
	case GLUE_LINK_PCAP:
		return true;
	case GLUE_LINK_VHOST:
	case GLUE_LINK_AF_XDP:
	case GLUE_LINK_PCI:
		break;
	}
	return false;
}

/*
 * The largest IP packet a port takes. Some name only the frame's limit; memif
 * names one of 1518 bytes, and moves whatever its buffers hold.
 */
static unsigned max_mtu(const struct glue_link *link,
			const struct rte_eth_dev_info *info)
{
	const unsigned overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
	unsigned mtu = info->max_mtu;

	if (link->kind == GLUE_LINK_MEMIF)
		return GLUE_MTU_MAX;
	if (info->max_rx_pktlen > overhead &&
	    info->max_rx_pktlen - overhead < mtu)
		mtu = info->max_rx_pktlen - overhead;
	return mtu;
}

/*
 * net_tap cuts up segments that, with their Ethernet header, are no longer
 * than its MTU, and refuses the rest for ever: its MTU must be that much
 * larger than ours.
 */
static unsigned port_mtu(const struct glue_link *link, unsigned mtu)
{
	return link->kind == GLUE_LINK_TAP && link->tso == GLUE_TSO_ON
		       ? mtu + RTE_ETHER_HDR_LEN
		       : mtu;
}

static bool can_tso(const struct glue_link *link,
		    const struct rte_eth_dev_info *info, unsigned mtu)
{
	const uint64_t needed =
		RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS |
		RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;

	return (info->tx_offload_capa & needed) == needed &&
	       port_mtu(link, mtu) <= max_mtu(link, info);
}

/*
 * Where no hardware does the cutting it costs what it saves (net_tap cuts with
 * the CPU), or hands frames of 64 KiB to who may not take them (virtio).
 */
static int choose_tso(struct glue_port *port, const struct glue_link *link,
		      const struct rte_eth_dev_info *info, unsigned mtu,
		      char *err, size_t err_len)
{
	unsigned most = info->tx_desc_lim.nb_seg_max;

	port->tso = can_tso(link, info, mtu);
	if (link->tso == GLUE_TSO_ON && !port->tso)
		return glue_fail(err, err_len, -EINVAL,
				 "tso=on: the port does not cut up segments%s",
				 link->kind == GLUE_LINK_TAP
					 ? " of this size; use --mtu 1486"
					 : "; leave it at auto");
	if (link->tso == GLUE_TSO_AUTO)
		port->tso &= port->hw_csum && link->kind == GLUE_LINK_PCI;
	port->tso &= link->tso != GLUE_TSO_OFF;
	port->hw_csum |= port->tso;
	port->tso6 = port->tso && link->kind != GLUE_LINK_TAP;
	port->tso_mbufs =
		(uint16_t)(most ? RTE_MIN(most, TSO_MBUFS) : TSO_MBUFS);
	return 0;
}

static int configure(struct glue_port *port, const struct glue_link *link,
		     unsigned mtu, char *err, size_t err_len)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	uint16_t n_rx = ring_size(link);
	uint16_t n_tx = n_rx;
	int rc = rte_eth_dev_info_get(port->id, &info);

	if (rc < 0)
		return glue_fail(err, err_len, rc, "port information: %s",
				 rte_strerror(-rc));
	port->hw_csum = want_hw_csum(link, &info);
	rc = choose_tso(port, link, &info, mtu, err, err_len);
	if (rc < 0)
		return rc;
	if (port->tso)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_TSO;
	if (port->hw_csum) {
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM |
					RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
					RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
		conf.rxmode.offloads =
			info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_CHECKSUM;
	}
	if (mtu + RTE_ETHER_HDR_LEN > DATA_ROOM)
		conf.rxmode.offloads |=
			info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	conf.txmode.offloads |=
		info.tx_offload_capa & (RTE_ETH_TX_OFFLOAD_MULTI_SEGS |
					RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE);
	port->lends = copies_frames(link);
	if (port->lends || port->tso || mtu + RTE_ETHER_HDR_LEN > DATA_ROOM)
		conf.txmode.offloads &= ~RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	rc = rte_eth_dev_configure(port->id, 1, 1, &conf);
	if (rc < 0)
		return glue_fail(err, err_len, rc, "port configuration: %s",
				 rte_strerror(-rc));
	if (mtu > max_mtu(link, &info))
		return glue_fail(err, err_len, -EINVAL,
				 "the port takes an MTU of at most %u, not %u; "
				 "memif and most NICs take up to 9000",
				 max_mtu(link, &info), mtu);
	if (port_mtu(link, mtu) != RTE_ETHER_MTU) {
		rc = rte_eth_dev_set_mtu(port->id,
					 (uint16_t)port_mtu(link, mtu));
		if (rc < 0 && rc != -ENOTSUP)
			return glue_fail(err, err_len, -EINVAL,
					 "the port refuses an MTU of %u: %s",
					 mtu, rte_strerror(-rc));
	}
	rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &n_rx, &n_tx);
	rc = rte_eth_rx_queue_setup(port->id, 0, n_rx, SOCKET_ID_ANY, NULL,
				    port->pool);
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(port->id, 0, n_tx, SOCKET_ID_ANY,
					    NULL);
	if (rc < 0)
		return glue_fail(err, err_len, rc, "port queues: %s",
				 rte_strerror(-rc));
	rc = rte_eth_dev_start(port->id);
	if (rc < 0)
		return glue_fail(err, err_len, rc, "port start: %s",
				 rte_strerror(-rc));
	rte_eth_allmulticast_enable(port->id); /* not every port can */
	return 0;
}

/*
 * net_tap gives its port the kernel interface's own MAC; two stacks on one
 * wire need two, or their link-local addresses collide.
 */
static void choose_mac(struct glue_port *port, const struct glue_link *link)
{
	struct rte_ether_addr addr = {0};

	rte_eth_macaddr_get(port->id, &addr);
	memcpy(port->mac, addr.addr_bytes, sizeof(port->mac));
	if (link->kind == GLUE_LINK_TAP) {
		port->mac[0] |= 2;
		port->mac[5] ^= 1;
	}
	if (memcmp(link->mac, "\0\0\0\0\0\0", 6) != 0)
		memcpy(port->mac, link->mac, sizeof(port->mac));
}

/*
 * As rte_pktmbuf_pool_create(), but without hugepages that one lays no frame
 * across a page of 4 KiB, and so one frame in each. Where a device sees the
 * addresses that we see, a frame may cross pages: 20 MiB less for 12288.
 */
static struct rte_mempool *make_pool(const char *name, unsigned n)
{
	struct rte_pktmbuf_pool_private priv = {
		.mbuf_data_room_size = RTE_PKTMBUF_HEADROOM + DATA_ROOM,
		.mbuf_priv_size = sizeof(struct glue_frame),
	};
	unsigned flags = rte_eal_iova_mode() == RTE_IOVA_VA
				 ? RTE_MEMPOOL_F_NO_IOVA_CONTIG
				 : 0;
	struct rte_mempool *pool = rte_mempool_create_empty(
		name, n,
		(unsigned)sizeof(struct rte_mbuf) + priv.mbuf_priv_size +
			priv.mbuf_data_room_size,
		POOL_CACHE, sizeof(priv), SOCKET_ID_ANY, flags);

	if (!pool)
		return NULL;
	if (rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(),
				       NULL) != 0)
		goto free_pool;
	rte_pktmbuf_pool_init(pool, &priv);
	if (rte_mempool_populate_default(pool) < 0)
		goto free_pool;
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;

free_pool:
	rte_mempool_free(pool);
	return NULL;
}

int glue_port_open(unsigned index, const struct glue_port_conf *conf,
		   struct glue_port **out, char *err, size_t err_len)
{
	const struct glue_link *link = glue_eal_link(index);
	char reason[160], name[32];
	struct glue_captured log;
	struct glue_port *port;
	uint16_t id;
	int rc;

	if (!link || !glue_eal_port_id(index, &id))
		return glue_fail(err, err_len, -ENODEV,
				 "link %s:%s: DPDK found no such port%s",
				 link ? glue_link_kind_name(link->kind) : "?",
				 link ? link->name : "?",
				 link && link->kind == GLUE_LINK_PCI
					 ? "; is the NIC bound to vfio-pci "
					   "(dpdk-devbind.py --status)?"
					 : "");
	port = rte_zmalloc("glue_port", sizeof(*port), RTE_CACHE_LINE_SIZE);
	if (!port)
		return glue_fail(err, err_len, -ENOMEM, "no memory for a port");
	port->id = id;
	port->n_ring = ring_size(link);
	port->n_frames = pool_frames(link, conf->n_frames);
	snprintf(name, sizeof(name), "frames%u", index);
	port->pool = make_pool(name, port->n_frames);
	if (!port->pool) {
		rc = glue_fail(err, err_len, -ENOMEM,
			       "link %s:%s: no memory for %u frames: %s",
			       glue_link_kind_name(link->kind), link->name,
			       port->n_frames, rte_strerror(rte_errno));
		goto free_port;
	}
	glue_capture_start(&log); /* net_tap complains of what does no harm */
	rc = configure(port, link, conf->mtu, reason, sizeof(reason));
	glue_capture_end(&log, NULL, 0);
	if (rc < 0) {
		glue_fail(err, err_len, rc, "link %s:%s: %s",
			  glue_link_kind_name(link->kind), link->name, reason);
		goto free_pool;
	}
	choose_mac(port, link);
	if (link->kind == GLUE_LINK_MEMIF && !link->server)
		glue_memif_watch(port, link->name);
	if (link->kind == GLUE_LINK_TAP)
		glue_tap_watch(port);
	*out = port;
	return 0;

free_pool:
	rte_mempool_free(port->pool);
free_port:
	rte_free(port);
	return rc;
}

void glue_port_close(struct glue_port *port)
{
	glue_memif_unwatch(port);
	glue_tap_unwatch(port);
	/* DPDK would complain that its memif socket has no name any more. */
	rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_EMERG);
	glue_tx_drop(port);
	rte_eth_dev_stop(port->id);
	rte_eth_dev_close(port->id);
	rte_mempool_free(port->pool);
	rte_free(port);
}

/* Ports that check tell so in ol_flags; anything unchecked we check. */
static inline bool l4_csum_ok(const struct rte_mbuf *m, uint64_t pseudo,
			      unsigned off, unsigned len)
{
	if ((m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) ==
	    RTE_MBUF_F_RX_L4_CKSUM_GOOD)
		return true;
	return glue_sum_fold(pseudo + glue_mbuf_sum(m, off, len)) == 0xffff;
}

/*
 * Sums what glue_check() has found: the IP header, then what the transport's
 * checksum covers. ICMPv4 has no pseudo header; UDP over IPv4 may have no sum.
 */
static inline enum glue_verdict
check_sums(struct rte_mbuf *m, struct glue_frame *f, const struct glue_l4 *l4)
{
	uint64_t pseudo = 0;

	if (l4->addr_len == 4) {
		unsigned header = (unsigned)(f->l4_off - f->l3_off);

		if ((m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) !=
			    RTE_MBUF_F_RX_IP_CKSUM_GOOD &&
		    glue_sum_fold(glue_sum_add(0, f->data + f->l3_off,
					       header)) != 0xffff)
			return GLUE_BAD_CSUM;
		if (unlikely(l4->proto == IPPROTO_UDP) &&
		    glue_get16(f->data + f->l4_off + 6) == 0)
			return GLUE_KEEP;
	}
	if (likely(l4->proto != IPPROTO_ICMP))
		pseudo = glue_sum_pseudo(l4->addrs, l4->addr_len, l4->proto,
					 l4->len);
	if (!l4_csum_ok(m, pseudo, f->l4_off, l4->len))
		return GLUE_BAD_CSUM;
	f->flags |= GLUE_FRAME_CSUM_OK;
	return GLUE_KEEP;
}

/* Cold: the data of every segment, and how they hang together. */
__attribute__((noinline)) static void describe_chain(struct rte_mbuf *m)
{
	for (; m; m = m->next) {
		struct glue_frame *f = frame_of(m);

		f->data = rte_pktmbuf_mtod(m, uint8_t *);
		f->seg_len = m->data_len;
		f->next = m->next ? frame_of(m->next) : NULL;
	}
}

static inline void describe(struct rte_mbuf *m, struct glue_frame *f)
{
	f->data = rte_pktmbuf_mtod(m, uint8_t *);
	f->seg_len = m->data_len;
	f->next = NULL;
	f->flags = 0;
	f->l3_off = sizeof(struct rte_ether_hdr);
	f->l4_off = 0;
	if (unlikely(m->next != NULL))
		describe_chain(m);
}

static inline enum glue_verdict check_frame(struct rte_mbuf *m,
					    struct glue_frame *f)
{
	enum glue_verdict verdict;
	struct glue_l4 l4;

	describe(m, f);
	verdict = glue_check(f, m->pkt_len, &l4);
	return verdict == GLUE_KEEP && l4.addrs ? check_sums(m, f, &l4)
						: verdict;
}

static void drop(struct glue_port *port, struct rte_mbuf *m,
		 enum glue_verdict verdict)
{
	switch (verdict) {
	case GLUE_BAD_CSUM:
		port->stats.rx_bad_csum++;
		break;
	case GLUE_REFUSED:
		port->stats.rx_refused++;
		break;
	case GLUE_BAD_FRAME:
	case GLUE_KEEP:
		port->stats.rx_bad_frame++;
		break;
	}
	rte_pktmbuf_free(m);
}

unsigned glue_rx(struct glue_port *port, struct glue_frame **frames,
		 unsigned max)
{
	struct rte_mbuf *bufs[GLUE_BURST];
	unsigned n, kept = 0;

	n = glue_rx_burst(port, bufs, max);
	for (unsigned i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(bufs[i], void *));
	for (unsigned i = 0; i < n; i++) {
		struct glue_frame *f = frame_of(bufs[i]);
		enum glue_verdict verdict = check_frame(bufs[i], f);

		if (likely(verdict == GLUE_KEEP)) {
			port->stats.rx_bytes += bufs[i]->pkt_len;
			frames[kept++] = f;
			continue;
		}
		drop(port, bufs[i], verdict);
	}
	port->stats.rx_frames += kept;
	return kept;
}

unsigned glue_rx_raw(struct glue_port *port, struct glue_frame **frames,
		     unsigned max)
{
	struct rte_mbuf *bufs[GLUE_BURST];
	unsigned n;

	n = glue_rx_burst(port, bufs, max);
	for (unsigned i = 0; i < n; i++) {
		frames[i] = frame_of(bufs[i]);
		describe(bufs[i], frames[i]);
		port->stats.rx_bytes += bufs[i]->pkt_len;
	}
	port->stats.rx_frames += n;
	return n;
}

void glue_frame_free(struct glue_frame *frame)
{
	rte_pktmbuf_free(mbuf_of(frame));
}

void glue_frame_split(struct glue_frame *frame)
{
	struct rte_mbuf *next;

	for (struct rte_mbuf *m = mbuf_of(frame); m; m = next) {
		next = m->next;
		m->next = NULL;
		m->nb_segs = 1;
		m->pkt_len = m->data_len;
	}
}

void glue_port_stats(struct glue_port *port, struct glue_port_stats *out)
{
	struct rte_eth_stats eth;

	*out = port->stats;
	if (rte_eth_stats_get(port->id, &eth) == 0)
		out->rx_missed = eth.imissed + eth.rx_nombuf;
}
