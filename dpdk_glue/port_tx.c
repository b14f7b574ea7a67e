/*
 * Sends frames: allocates them, fills in checksums, queues them, joins them
 * into TSO frames and flushes them.
 */
#include "dpdk_glue/port_priv.h"

#include <assert.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/*
 * Pending frames of a shard from which on its senders hold back. A queue also
 * has at most that many pending frames of other shards, so that neither these
 * nor its own shard's frames keep the others waiting.
 */
#define TX_BUSY 128

static_assert(sizeof(struct rte_mbuf_ext_shared_info) <=
		      sizeof(((struct glue_lender *)0)->frames),
	      "DPDK's count of frames fits into a lender");

/* Sum over a chain of mbufs from an offset. */
uint64_t glue_chain_sum(const struct rte_mbuf *m, unsigned off, unsigned len)
{
	struct glue_sum sum = {0};

	for (; m && len; m = m->next) {
		unsigned n = m->data_len > off ? m->data_len - off : 0;

		n = RTE_MIN(n, len);
		if (n)
			glue_sum_piece(&sum,
				       rte_pktmbuf_mtod_offset(m, void *, off),
				       n);
		len -= n;
		off = off > m->data_len ? off - m->data_len : 0;
	}
	return sum.sum;
}

/* Cold: makes a frame longer than one segment. */
__attribute__((noinline)) static struct glue_frame *
alloc_chain(struct glue_port *port, unsigned len)
{
	struct rte_mbuf *head = NULL, **link = &head;
	unsigned total = len;
	uint16_t segs = 0;

	while (len) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(port->pool);
		struct glue_frame *f;

		if (!m) {
			rte_pktmbuf_free(head);
			port->stats.tx_no_frame++;
			return NULL;
		}
		m->data_len = (uint16_t)RTE_MIN(len, (unsigned)DATA_ROOM);
		len -= m->data_len;
		f = frame_of(m);
		f->data = rte_pktmbuf_mtod(m, uint8_t *);
		f->seg_len = m->data_len;
		f->flags = 0;
		f->next = NULL;
		if (head)
			frame_of(container_of(link, struct rte_mbuf, next))
				->next = f;
		*link = m;
		link = &m->next;
		segs++;
	}
	head->pkt_len = total;
	head->nb_segs = segs;
	return frame_of(head);
}

bool glue_tx_busy(struct glue_port *port)
{
	if (likely(port->n_pending - port->n_carried < TX_BUSY))
		return false;
	glue_tx_flush(port);
	return port->n_pending - port->n_carried >= TX_BUSY;
}

struct glue_frame *glue_tx_alloc(struct glue_port *port, unsigned len)
{
	struct glue_frame *f;
	struct rte_mbuf *m;

	if (unlikely(glue_tx_busy(port))) {
		port->stats.tx_busy++;
		return NULL;
	}
	if (unlikely(len > DATA_ROOM))
		return alloc_chain(port, len);
	m = rte_pktmbuf_alloc(port->pool);
	if (unlikely(!m)) {
		port->stats.tx_no_frame++;
		return NULL;
	}
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	f = frame_of(m);
	f->data = rte_pktmbuf_mtod(m, uint8_t *);
	f->seg_len = (uint16_t)len;
	f->flags = 0;
	f->next = NULL;
	return f;
}

static void lender_done(void *addr, void *lender)
{
	((struct glue_lender *)lender)->done(lender);
}

bool glue_tx_lend(struct glue_port *port, struct glue_frame *frame,
		  const void *data, unsigned len, struct glue_lender *lender)
{
	struct rte_mbuf_ext_shared_info *shared = (void *)lender->frames;
	struct rte_mbuf *head = mbuf_of(frame), *m;
	struct glue_frame *f;

	m = rte_pktmbuf_alloc(port->pool);
	if (unlikely(!m)) {
		port->stats.tx_no_frame++;
		return false;
	}
	if (rte_mbuf_ext_refcnt_read(shared) == 0) {
		shared->free_cb = lender_done;
		shared->fcb_opaque = lender;
		rte_mbuf_ext_refcnt_set(shared, 1);
	} else {
		rte_mbuf_ext_refcnt_update(shared, 1);
	}
	rte_pktmbuf_attach_extbuf(m, (void *)(uintptr_t)data, RTE_BAD_IOVA,
				  (uint16_t)len, shared);
	m->data_len = (uint16_t)len;
	f = frame_of(m);
	f->data = (uint8_t *)(uintptr_t)data;
	f->seg_len = (uint16_t)len;
	f->next = NULL;
	while (frame->next)
		frame = frame->next;
	frame->next = f;
	mbuf_of(frame)->next = m;
	head->nb_segs++;
	head->pkt_len += len;
	return true;
}

bool glue_tx_again(struct glue_port *port, struct glue_frame *frame,
		   unsigned len)
{
	struct rte_mbuf *m = mbuf_of(frame);

	if (!port->device->can_resend || m->next || !RTE_MBUF_DIRECT(m) ||
	    rte_mbuf_refcnt_read(m) != 1 || unlikely(glue_tx_busy(port)))
		return false;
	rte_mbuf_refcnt_set(m, 2);
	m->ol_flags = 0;
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	frame->seg_len = (uint16_t)len;
	return true;
}

static inline uint16_t *l4_csum_field(struct glue_frame *f)
{
	size_t off = f->flags & GLUE_FRAME_TCP
			     ? offsetof(struct rte_tcp_hdr, cksum)
			     : offsetof(struct rte_udp_hdr, dgram_cksum);

	return (uint16_t *)(void *)(f->data + f->l4_off + off);
}

/*
 * The field is mostly zero already; a store of two bytes would stall the wider
 * loads that follow.
 */
static inline void clear_field(uint16_t *field)
{
	if (unlikely(*field))
		*field = 0;
}

static inline void fill_ip4_csum(struct glue_frame *f)
{
	struct rte_ipv4_hdr *ip = (void *)(f->data + f->l3_off);

	clear_field((uint16_t *)(void *)((uint8_t *)ip +
					 offsetof(struct rte_ipv4_hdr,
						  hdr_checksum)));
	ip->hdr_checksum = (uint16_t)~glue_sum_fold(
		glue_sum_header4(ip, (unsigned)(f->l4_off - f->l3_off)));
}

static inline void fill_csum_sw(struct rte_mbuf *m, struct glue_frame *f)
{
	uint8_t *l3 = f->data + f->l3_off;
	bool ip4 = f->flags & GLUE_FRAME_IP4;
	unsigned len = m->pkt_len - f->l4_off;
	uint64_t sum;
	uint16_t *field;

	if (ip4)
		fill_ip4_csum(f);
	if (!(f->flags & (GLUE_FRAME_TCP | GLUE_FRAME_UDP)))
		return;
	field = l4_csum_field(f);
	clear_field(field);
	sum = glue_sum_pseudo(
		l3 + (ip4 ? 12 : 8), ip4 ? 4 : 16,
		f->flags & GLUE_FRAME_TCP ? IPPROTO_TCP : IPPROTO_UDP, len);
	*field = (uint16_t)~glue_sum_fold(sum +
					  glue_mbuf_sum(m, f->l4_off, len));
	if (*field == 0 && (f->flags & GLUE_FRAME_UDP))
		*field = 0xffff; /* RFC 768: zero means none */
}

static void fill_csum_hw(struct rte_mbuf *m, struct glue_frame *f, bool hw_ip4)
{
	void *l3 = f->data + f->l3_off;

	m->l2_len = f->l3_off;
	m->l3_len = (uint64_t)(f->l4_off - f->l3_off) & 0x1ff;
	if (!(f->flags & GLUE_FRAME_IP4)) {
		m->ol_flags |= RTE_MBUF_F_TX_IPV6;
	} else if (hw_ip4) {
		m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
		((struct rte_ipv4_hdr *)l3)->hdr_checksum = 0;
	} else {
		m->ol_flags |= RTE_MBUF_F_TX_IPV4;
		fill_ip4_csum(f);
	}
	if (f->flags & GLUE_FRAME_TCP)
		m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	else if (f->flags & GLUE_FRAME_UDP)
		m->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	else
		return;
	*l4_csum_field(f) = f->flags & GLUE_FRAME_IP4
				    ? rte_ipv4_phdr_cksum(l3, m->ol_flags)
				    : rte_ipv6_phdr_cksum(l3, m->ol_flags);
}

/* The TSO frame is complete: set what the NIC is to do with it. */
static void end_tso(struct glue_port *port)
{
	struct glue_tso *tso = &port->tso_frame;
	struct rte_mbuf *head;

	if (!tso->headers)
		return;
	head = port->pending[port->n_pending - 1];
	if (tso->segs > 1) {
		glue_tso_end(tso);
		head->tso_segsz = tso->mss;
		head->l4_len =
			(uint64_t)(tso->payload_off - tso->l4_off) & 0xff;
		head->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
		port->stats.tx_tso++;
	}
	fill_csum_hw(head, frame_of(head), port->hw_ip4_csum);
	tso->headers = NULL;
}

/* Removes a frame's headers, which may be an mbuf of their own. */
static struct rte_mbuf *strip_headers(struct rte_mbuf *m, uint16_t len)
{
	struct rte_mbuf *rest = m->next;

	if (m->data_len > len) {
		rte_pktmbuf_adj(m, len);
		return m;
	}
	rest->nb_segs = (uint16_t)(m->nb_segs - 1);
	rest->pkt_len = m->pkt_len - len;
	rte_pktmbuf_free_seg(m);
	return rest;
}

static bool join_tso(struct glue_port *port, struct rte_mbuf *m,
		     struct glue_frame *f)
{
	struct glue_tso *tso = &port->tso_frame;
	struct rte_mbuf *head;

	if (!tso->headers || f->seg_len < tso->payload_off)
		return false;
	head = port->pending[port->n_pending - 1];
	if (head->nb_segs + m->nb_segs > port->tso_mbufs ||
	    !glue_tso_add(tso, f->data, f->l3_off, f->l4_off, m->pkt_len))
		return false;
	port->stats.tx_bytes += m->pkt_len;
	m = strip_headers(m, tso->payload_off);
	head->nb_segs = (uint16_t)(head->nb_segs + m->nb_segs);
	head->pkt_len += m->pkt_len;
	port->tso_tail->next = m;
	port->tso_tail = rte_pktmbuf_lastseg(m);
	return true;
}

/* Begin what may become a TSO frame; its sums are filled in at the end. */
static bool begin_tso(struct glue_port *port, struct rte_mbuf *m,
		      struct glue_frame *f)
{
	bool ip6 = f->flags & GLUE_FRAME_IP6;

	if (!(f->flags & GLUE_FRAME_TCP) || (ip6 && !port->tso6) ||
	    !glue_tso_begin(&port->tso_frame, f->data, f->l3_off, f->l4_off,
			    ip6, m->pkt_len))
		return false;
	port->tso_tail = rte_pktmbuf_lastseg(m);
	return true;
}

/* Returns false if the frame had no room for the tag; it is freed then. */
__attribute__((noinline)) static bool
add_tag(struct glue_port *port, struct rte_mbuf *m, struct glue_frame *f)
{
	if (likely(glue_vlan_add(m, f, port->vlan)))
		return true;
	rte_pktmbuf_free(m);
	port->stats.tx_dropped++;
	return false;
}

void glue_tx(struct glue_port *port, struct glue_frame *f)
{
	struct rte_mbuf *m = mbuf_of(f);
	bool summed = !(f->flags & (GLUE_FRAME_IP4 | GLUE_FRAME_IP6));

	/* first, so that sums and TSO find the headers at their final places */
	if (unlikely(port->vlan) && !add_tag(port, m, f))
		return;
	if (port->tso) {
		if (join_tso(port, m, f))
			return;
		end_tso(port);
	}
	if (unlikely(port->n_pending == TX_PENDING)) {
		rte_pktmbuf_free(m);
		port->stats.tx_dropped++;
		return;
	}
	if (port->tso && begin_tso(port, m, f))
		summed = true;
	if (!summed && port->hw_csum)
		fill_csum_hw(m, f, port->hw_ip4_csum);
	else if (!summed)
		fill_csum_sw(m, f);
	port->stats.tx_bytes += m->pkt_len;
	port->pending[port->n_pending++] = m;
	if (port->n_pending % GLUE_BURST == 0 && !port->tso_frame.headers)
		glue_tx_flush(port);
}

/* Updates carried[], which is 0 from n_pending on, for remove_pending(). */
__attribute__((noinline)) static void remove_carried(struct glue_port *port,
						     unsigned from, unsigned n)
{
	uint8_t *carried = port->carried + from;

	for (unsigned i = 0; i < n; i++)
		port->n_carried = (uint16_t)(port->n_carried - carried[i]);
	memmove(carried, carried + n, port->n_pending - from - n);
	memset(port->carried + port->n_pending - n, 0, n);
}

/* Removes n pending frames, which have gone. */
static void remove_pending(struct glue_port *port, unsigned from, unsigned n)
{
	struct rte_mbuf **gone = port->pending + from;

	if (unlikely(port->n_carried))
		remove_carried(port, from, n);
	port->n_pending = (uint16_t)(port->n_pending - n);
	memmove(gone, gone + n, (port->n_pending - from) * sizeof(*gone));
}

/* ---- shards without a queue ---- */

/*
 * Lent memory is returned on the thread that lent it, so a frame that refers to
 * some is copied before another thread sends it. Returns false without memory.
 */
static bool own_memory(struct glue_port *port, struct rte_mbuf **m)
{
	struct rte_mbuf *copy;

	if ((*m)->nb_segs == 1 && RTE_MBUF_DIRECT(*m))
		return true;
	copy = rte_pktmbuf_copy(*m, port->pool, 0, UINT32_MAX);
	if (!copy)
		return false;
	rte_pktmbuf_free(*m);
	*m = copy;
	return true;
}

/* Pass frames to a shard that has a queue; none while the port is stopped. */
__attribute__((noinline)) static unsigned send_by_others(struct glue_port *port)
{
	struct glue_device *device = port->device;
	unsigned n_active =
		__atomic_load_n(&device->n_active, __ATOMIC_ACQUIRE);
	unsigned n = 0;

	if (n_active == 0)
		return 0;
	while (n < port->n_pending && own_memory(port, &port->pending[n]))
		n++;
	n = rte_ring_enqueue_burst(device->tx_rings[port->shard % n_active],
				   (void **)port->pending, n, NULL);
	port->stats.tx_handed_over += n;
	remove_pending(port, 0, n);
	return n;
}

/*
 * Sends at most max frames of the ring, after those that wait. Returns how many
 * frames went.
 */
static unsigned carry_frames(struct glue_port *port, struct rte_ring *ring,
			     unsigned max)
{
	unsigned n;

	end_tso(port);
	max = RTE_MIN(max, (unsigned)TX_PENDING - port->n_pending);
	n = rte_ring_dequeue_burst(
		ring, (void **)(port->pending + port->n_pending), max, NULL);
	memset(port->carried + port->n_pending, 1, n);
	port->n_carried = (uint16_t)(port->n_carried + n);
	port->n_pending = (uint16_t)(port->n_pending + n);
	port->stats.tx_carried += n;
	return glue_tx_flush(port);
}

void glue_tx_carry(struct glue_port *port)
{
	struct rte_ring *ring = port->device->tx_rings[port->shard];

	for (unsigned i = 0; i < HAND_OVER / TX_BUSY; i++) {
		if (likely(rte_ring_empty(ring)) || port->n_carried >= TX_BUSY)
			return;
		carry_frames(port, ring, TX_BUSY - port->n_carried);
	}
}

void glue_tx_carry_remaining(struct glue_port *port)
{
	for (unsigned i = 0; i < port->device->n_shards; i++) {
		struct rte_ring *ring = port->device->tx_rings[i];

		while (!rte_ring_empty(ring) &&
		       carry_frames(port, ring, TX_PENDING) > 0)
			; /* bounded by what is in the ring */
	}
}

/*
 * Drivers that offload want headers their own way: returns how many of the
 * frames behind `from` may be sent. A frame that the driver refuses is dropped
 * once it is the first, or it would block the rest for ever.
 */
__attribute__((noinline)) static uint16_t
prepare_frames(struct glue_port *port, unsigned from, uint16_t want)
{
	struct rte_mbuf **bufs = port->pending + from;
	uint16_t n = want; /* a port that is away takes none */

	glue_burst_begin(port->bursts);
	if (likely(glue_port_active(port)))
		n = rte_eth_tx_prepare(port->id, port->shard, bufs, want);
	glue_burst_end(port->bursts);
	if (likely(n > 0))
		return n;
	rte_pktmbuf_free(bufs[0]);
	remove_pending(port, from, 1);
	port->stats.tx_dropped++;
	return 0;
}

unsigned glue_tx_flush(struct glue_port *port)
{
	unsigned sent = 0;

	end_tso(port);
	if (unlikely(port->has_shards) && port->n_pending &&
	    !glue_port_active(port))
		return send_by_others(port);
	while (sent < port->n_pending) {
		uint16_t want =
			RTE_MIN(port->n_pending - sent, (unsigned)GLUE_BURST);
		uint16_t n;

		if (port->hw_csum && glue_port_active(port)) {
			want = prepare_frames(port, sent, want);
			if (unlikely(want == 0))
				continue;
		}
		n = glue_tx_burst(port, port->pending + sent, want);
		sent += n;
		if (n < want)
			break;
	}
	if (sent) {
		port->stats.tx_frames += sent;
		remove_pending(port, 0, sent);
	}
	return sent;
}

void glue_tx_drop(struct glue_port *port)
{
	port->tso_frame.headers = NULL;
	port->n_carried = 0;
	memset(port->carried, 0, sizeof(port->carried));
	while (port->n_pending)
		rte_pktmbuf_free(port->pending[--port->n_pending]);
}
