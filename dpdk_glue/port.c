/*
 * A shard's port: opens and closes it, and receives frames.
 */
#include "dpdk_glue/port_priv.h"

#include <errno.h>
#include <string.h>

#include <rte_malloc.h>

#include "dpdk_glue/bond.h"
#include "dpdk_glue/check.h"
#include "dpdk_glue/partial_sum.h"

void glue_port_keep_refused(struct glue_port *port, bool keeps)
{
	port->keeps_refused = keeps;
}

const uint8_t *glue_port_mac(const struct glue_port *port)
{
	return port->device->mac;
}

bool glue_port_hw_csum(const struct glue_port *port)
{
	return port->hw_csum;
}

uint64_t glue_port_untrusted(const struct glue_port *port)
{
	return port->trusts_csum ? 0 : port->stats.rx_partial_csum;
}

bool glue_port_tso(const struct glue_port *port)
{
	return port->tso;
}

bool glue_port_lends(const struct glue_port *port)
{
	return port->device->can_lend;
}

unsigned glue_port_queues(const struct glue_port *port)
{
	return port->device->n_queues;
}

bool glue_port_link_up(struct glue_port *port)
{
	unsigned speed_mbps;
	bool up;

	if (!glue_device_enter(port->device))
		return false;
	up = glue_device_up(port->device, &speed_mbps) &&
	     __atomic_load_n(&port->device->n_active, __ATOMIC_ACQUIRE) > 0;
	glue_device_leave(port->device);
	return up;
}

bool glue_port_has_carrier(const struct glue_port *port)
{
	const struct glue_device *device = port->device;

	return !device->watched ||
	       __atomic_load_n(&device->carrier, __ATOMIC_RELAXED);
}

unsigned glue_port_frames_free(const struct glue_port *port)
{
	return rte_mempool_avail_count(port->pool);
}

unsigned glue_port_frames(const struct glue_port *port)
{
	return port->pool->size;
}

/* The cache may be in use by its own thread: then this is an estimate. */
__attribute__((noinline, no_sanitize("thread"))) static unsigned
cached_frames(struct rte_mempool *pool, unsigned lcore)
{
	const struct rte_mempool_cache *cache =
		rte_mempool_default_cache(pool, lcore);

	return cache ? cache->len : 0;
}

/* rte_mempool_avail_count() visits the caches of all lcores. */
static unsigned usable_frames(struct rte_mempool *pool, unsigned lcore)
{
	return rte_mempool_get_ops(pool->ops_index)->get_count(pool) +
	       cached_frames(pool, lcore);
}

unsigned glue_port_frames_usable(const struct glue_port *port)
{
	return usable_frames(port->pool, rte_lcore_id());
}

uint64_t glue_port_no_frame(const struct glue_port *port)
{
	return port->stats.tx_no_frame;
}

/* Sets or clears this shard's bit. */
static void mark_pool(const struct glue_port *port, uint64_t *pools,
		      bool marked)
{
	uint64_t bit = UINT64_C(1) << port->shard;

	if (marked == !!(__atomic_load_n(pools, __ATOMIC_RELAXED) & bit))
		return;
	if (marked)
		__atomic_fetch_or(pools, bit, __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(pools, ~bit, __ATOMIC_RELAXED);
}

/*
 * The pools, a bit each, whose frames this shard may hold: those of all queues,
 * or only its own if the port spreads all flows by our rule to a queue per
 * shard.
 */
static uint64_t own_pools(const struct glue_port *port)
{
	const struct glue_device *device = port->device;

	return device->rss_all && device->n_queues == device->n_shards
		       ? UINT64_C(1) << port->shard
		       : UINT64_MAX;
}

/*
 * Which pools of those marked still have fewer frames than `needed`. The shard
 * that marked one may be in a long handler, so others count the frames.
 */
static uint64_t pools_below(const struct glue_port *port, const uint64_t *pools,
			    unsigned needed)
{
	const struct glue_device *device = port->device;
	uint64_t left = __atomic_load_n(pools, __ATOMIC_RELAXED) &
			own_pools(port),
		 below = 0;

	for (; unlikely(left); left &= left - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(left);
		unsigned lcore = __atomic_load_n(&device->empty[shard].lcore,
						 __ATOMIC_RELAXED);

		if (usable_frames(device->pools[shard], lcore) < needed)
			below |= left & -left;
	}
	return below;
}

/*
 * A shard checks the pool that it receives into, and heeds the state of all
 * pools whose frames it may hold. A pool is short when what is left is no more
 * than its port may need at once.
 */
unsigned glue_port_frames_spare(struct glue_port *port)
{
	struct glue_device *device = port->device;
	unsigned usable = glue_port_frames_usable(port);
	unsigned spare = (device->pools[0]->size - device->transit) / 2;
	unsigned needed = RTE_MAX(spare, 2 * device->n_ring + TX_PENDING);
	bool receives = glue_port_active(port);

	__atomic_store_n(&device->empty[port->shard].lcore, rte_lcore_id(),
			 __ATOMIC_RELAXED);
	mark_pool(port, &device->short_pools, receives && usable < needed);
	mark_pool(port, &device->empty_pools, receives && usable < GLUE_BURST);
	return pools_below(port, &device->short_pools, needed) ? 0 : spare;
}

uint64_t glue_port_empty_pools(const struct glue_port *port)
{
	return pools_below(port, &port->device->empty_pools, GLUE_BURST);
}

bool glue_frame_is_of(const struct glue_port *port, struct glue_frame *frame,
		      uint64_t pools)
{
	for (; pools; pools &= pools - 1)
		if (port->device->pools[__builtin_ctzll(pools)] ==
		    mbuf_of(frame)->pool)
			return true;
	return false;
}

bool glue_port_rss(const struct glue_port *port)
{
	return port->device->rss;
}

int glue_port_open(unsigned index, const struct glue_port_conf *conf,
		   struct glue_port **out, char *err, size_t err_len)
{
	struct glue_device *device;
	struct glue_port *port;
	int rc;

	if (conf->shard >= glue_eal_shards())
		return glue_fail(err, err_len, -EINVAL,
				 "shard %u of %u: there is no such shard",
				 conf->shard, glue_eal_shards());
	rc = glue_device_get(index, conf, &device, err, err_len);
	if (rc < 0)
		return rc;
	port = rte_zmalloc("glue_port", sizeof(*port), RTE_CACHE_LINE_SIZE);
	if (!port) {
		glue_device_put(device);
		return glue_fail(err, err_len, -ENOMEM, "no memory for a port");
	}
	port->device = device;
	port->bursts = glue_sync_count(conf->shard);
	port->empty = &device->empty[conf->shard].n;
	port->id = device->id;
	port->shard = (uint16_t)conf->shard;
	port->has_shards = device->n_shards > 1;
	port->sorts_frames = port->has_shards ||
			     device->link->kind == GLUE_LINK_BOND ||
			     device->link->vlan;
	port->trusts_csum = device->link->csum == GLUE_CSUM_TRUST;
	port->hw_csum = device->hw_csum;
	port->hw_ip4_csum = device->hw_ip4_csum;
	port->tso = device->tso;
	port->tso6 = device->tso6;
	port->tso_mbufs = device->tso_mbufs;
	port->vlan = device->link->vlan;
	port->pool = device->pools[conf->shard];
	*out = port;
	return 0;
}

void glue_port_close(struct glue_port *port)
{
	struct glue_device *device = port->device;

	if (port->has_shards && glue_port_active(port) &&
	    glue_device_is_last(device))
		glue_tx_carry_remaining(port);
	glue_tx_drop(port);
	mark_pool(port, &device->short_pools, false);
	mark_pool(port, &device->empty_pools, false);
	rte_free(port);
	glue_device_put(device);
}

/*
 * Ports that check sums set GOOD in ol_flags; any other frame we check. NONE,
 * which has GOOD's bit, marks a frame of a virtual peer that has not been on a
 * wire: its sum is incomplete, and its bytes are right.
 */
static inline bool l4_csum_ok(const struct rte_mbuf *m, uint64_t pseudo,
			      unsigned off, unsigned len)
{
	if (m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_GOOD)
		return true;
	return glue_sum_fold(pseudo + glue_mbuf_sum(m, off, len)) == 0xffff;
}

/*
 * Verifies the sums of what glue_check() has found: the IP header's, then the
 * transport's. ICMPv4 and IGMP have no pseudo header; UDP over IPv4 may have no
 * sum.
 */
static inline enum glue_verdict
check_sums(struct rte_mbuf *m, struct glue_frame *f, const struct glue_l4 *l4)
{
	uint64_t pseudo = 0;

	if (l4->addr_len == 4) {
		unsigned header = (unsigned)(f->l4_off - f->l3_off);

		if ((m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) !=
			    RTE_MBUF_F_RX_IP_CKSUM_GOOD &&
		    glue_sum_fold(glue_sum_header4(f->data + f->l3_off,
						   header)) != 0xffff)
			return GLUE_BAD_CSUM;
		if (unlikely(l4->proto == IPPROTO_UDP) &&
		    glue_get16(f->data + f->l4_off + 6) == 0)
			return GLUE_KEEP;
	}
	if (likely(l4->proto > IPPROTO_IGMP))
		pseudo = glue_sum_pseudo(l4->addrs, l4->addr_len, l4->proto,
					 l4->len);
	if (!l4_csum_ok(m, pseudo, f->l4_off, l4->len))
		return GLUE_BAD_CSUM;
	f->flags |= GLUE_FRAME_CSUM_OK;
	return GLUE_KEEP;
}

/* Cold: describe every segment, and link them. */
__attribute__((noinline)) static void describe_chain(struct rte_mbuf *m)
{
	for (; m; m = m->next) {
		struct glue_frame *f = frame_of(m);

		f->data = rte_pktmbuf_mtod(m, uint8_t *);
		f->seg_len = m->data_len;
		f->next = m->next ? frame_of(m->next) : NULL;
	}
}

static inline void describe_frame(struct rte_mbuf *m, struct glue_frame *f)
{
	f->data = rte_pktmbuf_mtod(m, uint8_t *);
	f->seg_len = m->data_len;
	f->next = NULL;
	f->flags = 0;
	f->l3_off = sizeof(struct rte_ether_hdr);
	f->l4_off = 0;
	if (unlikely(m->next))
		describe_chain(m);
}

/* Inline in its few callers: a call costs each frame 30 instructions. */
static inline __attribute__((always_inline)) enum glue_verdict
check_frame(struct rte_mbuf *m, struct glue_frame *f, struct glue_l4 *l4)
{
	enum glue_verdict verdict;

	describe_frame(m, f);
	verdict = glue_check(f, m->pkt_len, l4);
	return verdict == GLUE_KEEP && l4->addrs ? check_sums(m, f, l4)
						 : verdict;
}

/* Checks a frame with a tag, on a link without a VLAN. */
__attribute__((cold, noinline)) static enum glue_verdict
check_tagged(struct rte_mbuf *m, struct glue_frame *f, struct glue_l4 *l4)
{
	enum glue_verdict verdict = glue_vlan_take(m, 0);

	return verdict == GLUE_KEEP ? check_frame(m, f, l4) : verdict;
}

/* Checks a frame as received; one that is kept has no tag any more. */
static inline enum glue_verdict check_received(struct rte_mbuf *m,
					       struct glue_frame *f,
					       struct glue_l4 *l4,
					       uint16_t vlan)
{
	enum glue_verdict verdict = GLUE_KEEP;

	if (vlan)
		verdict = glue_vlan_take(m, vlan);
	if (verdict == GLUE_KEEP)
		verdict = check_frame(m, f, l4);
	if (unlikely(verdict == GLUE_OTHER_VLAN) && !vlan)
		verdict = check_tagged(m, f, l4);
	return verdict;
}

static void drop_frame(struct glue_port *port, struct rte_mbuf *m,
		       enum glue_verdict verdict)
{
	switch (verdict) {
	case GLUE_BAD_CSUM:
		port->stats.rx_bad_csum++;
		break;
	case GLUE_REFUSED:
		port->stats.rx_refused++;
		break;
	case GLUE_OTHER_VLAN:
		port->stats.rx_other_vlan++;
		break;
	case GLUE_BAD_FRAME:
	case GLUE_KEEP:
		port->stats.rx_bad_frame++;
		break;
	}
	rte_pktmbuf_free(m);
}

/* Decides whether a frame is kept nevertheless, and marks it. */
__attribute__((cold, noinline)) static bool
keep_after_all(struct glue_port *port, struct glue_frame *f, struct glue_l4 *l4,
	       enum glue_verdict verdict)
{
	switch (verdict) {
	case GLUE_REFUSED: /* for the kernel to judge */
		if (!port->keeps_refused)
			return false;
		glue_check_other(f, l4);
		return true;
	case GLUE_BAD_CSUM:
		if (!glue_has_partial_sum(f, l4))
			return false;
		port->stats.rx_partial_csum++;
		if (port->trusts_csum)
			f->flags |= GLUE_FRAME_CSUM_OK;
		return port->trusts_csum;
	case GLUE_KEEP:
	case GLUE_BAD_FRAME:
	case GLUE_OTHER_VLAN:
		break;
	}
	return false;
}

/* ---- frames of other shards ---- */

/* The frames of one burst that belong to other shards, in order. */
struct foreign {
	unsigned n;
	uint8_t owners[GLUE_BURST];
	struct rte_mbuf *bufs[GLUE_BURST];
};

/*
 * How many frames of this shard's queue the ring of another shard may take.
 * While the pool is short, shards that do not take their frames over have
 * HAND_OVER of them together. A pool that only one queue receives into has room
 * for all rings.
 */
static unsigned ring_room(const struct glue_port *port,
			  const struct rte_ring *ring)
{
	const struct glue_device *device = port->device;
	unsigned most = HAND_OVER / device->n_queues;
	unsigned waiting = rte_ring_count(ring);

	if (!(__atomic_load_n(&device->short_pools, __ATOMIC_RELAXED) >>
		      port->shard &
	      1))
		return HAND_OVER;
	return most - RTE_MIN(waiting, most);
}

/* Hands each owner its frames; those its ring has no room for are dropped. */
__attribute__((noinline)) static void hand_over(struct glue_port *port,
						struct foreign *foreign)
{
	while (foreign->n) {
		struct rte_mbuf *burst[GLUE_BURST];
		unsigned owner = foreign->owners[0];
		struct rte_ring *ring = port->device->rx_rings[owner];
		unsigned n = 0, rest = 0, taken;

		for (unsigned i = 0; i < foreign->n; i++) {
			if (foreign->owners[i] == owner) {
				burst[n++] = foreign->bufs[i];
				continue;
			}
			foreign->owners[rest] = foreign->owners[i];
			foreign->bufs[rest++] = foreign->bufs[i];
		}
		foreign->n = rest;
		taken = rte_ring_enqueue_burst(
			ring, (void **)burst, RTE_MIN(n, ring_room(port, ring)),
			NULL);
		port->stats.rx_handed_over += taken;
		port->stats.rx_hand_over_full += n - taken;
		if (taken < n)
			rte_pktmbuf_free_bulk(burst + taken, n - taken);
	}
}

/*
 * Takes frames that other shards have received for this one, and checked. If
 * this shard has a queue, that gets at least half of a burst.
 */
__attribute__((noinline)) static unsigned
take_over(struct glue_port *port, struct glue_frame **frames, unsigned max)
{
	struct rte_mbuf *bufs[GLUE_BURST];
	unsigned n;

	if (port->shard < port->device->n_queues) {
		glue_tx_carry(port);
		max = RTE_MAX(max / 2, 1u);
	}
	n = rte_ring_dequeue_burst(port->device->rx_rings[port->shard],
				   (void **)bufs,
				   RTE_MIN(max, (unsigned)GLUE_BURST), NULL);
	/* All lines of these frames are in another core's cache. */
	for (unsigned i = 0; i < n; i++) {
		rte_prefetch0(bufs[i]);
		rte_prefetch0((char *)bufs[i] + RTE_CACHE_LINE_SIZE);
		rte_prefetch0(frame_of(bufs[i]));
	}
	for (unsigned i = 0; i < n; i++) {
		frames[i] = frame_of(bufs[i]);
		rte_prefetch0(frames[i]->data);
		port->stats.rx_bytes += wire_len(port, bufs[i]);
	}
	port->stats.rx_taken_over += n;
	return n;
}

/*
 * Every frame comes in here; `sorts_frames` is a constant. Ports without shards
 * and VLANs, nearly all there are, pay for neither.
 */
static inline __attribute__((always_inline)) unsigned
receive_frames(struct glue_port *port, struct glue_frame **frames, unsigned max,
	       bool sorts_frames)
{
	struct rte_mbuf *bufs[GLUE_BURST];
	struct foreign foreign;
	unsigned n, kept = 0;

	foreign.n = 0;
	if (sorts_frames)
		glue_bond_turn(port);
	if (sorts_frames && port->has_shards)
		kept = take_over(port, frames, max);
	n = kept < max ? glue_rx_burst(port, bufs, max - kept) : 0;
	for (unsigned i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(bufs[i], void *));
	for (unsigned i = 0; i < n; i++) {
		struct glue_frame *f = frame_of(bufs[i]);
		struct glue_l4 l4;
		enum glue_verdict verdict = check_received(
			bufs[i], f, &l4, sorts_frames ? port->vlan : 0);
		unsigned owner;

		if (unlikely(verdict != GLUE_KEEP) &&
		    !keep_after_all(port, f, &l4, verdict)) {
			drop_frame(port, bufs[i], verdict);
			continue;
		}
		if (sorts_frames && port->has_shards) {
			owner = glue_flow_owner(f, &l4);
			if (owner != port->shard) {
				foreign.owners[foreign.n] = (uint8_t)owner;
				foreign.bufs[foreign.n++] = bufs[i];
				continue;
			}
		}
		port->stats.rx_bytes += sorts_frames ? wire_len(port, bufs[i])
						     : bufs[i]->pkt_len;
		frames[kept++] = f;
	}
	if (sorts_frames && foreign.n)
		hand_over(port, &foreign);
	port->stats.rx_frames += kept;
	return kept;
}

__attribute__((noinline)) static unsigned
receive_sorted(struct glue_port *port, struct glue_frame **frames, unsigned max)
{
	return receive_frames(port, frames, max, true);
}

unsigned glue_rx(struct glue_port *port, struct glue_frame **frames,
		 unsigned max)
{
	if (unlikely(port->sorts_frames))
		return receive_sorted(port, frames, max);
	return receive_frames(port, frames, max, false);
}

unsigned glue_rx_raw(struct glue_port *port, struct glue_frame **frames,
		     unsigned max)
{
	struct rte_mbuf *bufs[GLUE_BURST];
	unsigned n, kept = 0;

	glue_bond_turn(port);
	n = glue_rx_burst(port, bufs, max);
	for (unsigned i = 0; i < n; i++) {
		enum glue_verdict verdict = GLUE_KEEP;

		if (port->vlan)
			verdict = glue_vlan_take(bufs[i], port->vlan);
		if (verdict != GLUE_KEEP) {
			drop_frame(port, bufs[i], verdict);
			continue;
		}
		frames[kept] = frame_of(bufs[i]);
		describe_frame(bufs[i], frames[kept++]);
		port->stats.rx_bytes += wire_len(port, bufs[i]);
	}
	port->stats.rx_frames += kept;
	return kept;
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
	if (port->shard != 0 || !glue_device_enter(port->device))
		return;
	if (rte_eth_stats_get(port->id, &eth) == 0)
		out->rx_missed = eth.imissed + eth.rx_nombuf;
	glue_device_leave(port->device);
}
