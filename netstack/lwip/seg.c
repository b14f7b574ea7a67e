/*
 * Segments that are one object with their pbuf and data. lwIP frees segment and
 * pbuf separately, in either order, and a pbuf may be held longer than its
 * segment (by a neighbour's queue). The object is freed with the last of them.
 */
#include "netstack/recovery/recovery.h"

#include "lwip/memp.h"
#include "lwip/prot/tcp.h"

static struct net_whole_seg *whole_of(struct pbuf *p)
{
	return (void *)((char *)p - offsetof(struct net_whole_seg, pbuf));
}

static void free_pbuf(struct pbuf *p)
{
	struct net_whole_seg *whole = whole_of(p);

	if (whole->seg.state & NET_SEG_GONE)
		net_mem_free(whole);
	else
		whole->seg.state &= (uint8_t)~NET_SEG_WHOLE;
}

struct tcp_seg *net_seg_new(unsigned copied)
{
	struct net_whole_seg *whole = net_mem_malloc(sizeof(*whole) + copied);
	struct pbuf *p;

	if (!whole)
		return NULL;
	whole->seg.state = NET_SEG_WHOLE;
	whole->pbuf.custom_free_function = free_pbuf;
	p = &whole->pbuf.pbuf;
	p->next = NULL;
	p->payload = whole->data - TCP_HLEN;
	p->len = p->tot_len = (uint16_t)(TCP_HLEN + copied);
	p->type_internal = (uint8_t)PBUF_RAM;
	p->flags = PBUF_FLAG_IS_CUSTOM;
	p->ref = 1;
	p->if_idx = NETIF_NO_INDEX;
	whole->seg.seg.p = p;
	whole->seg.seg.tcphdr = p->payload;
	return &whole->seg.seg;
}

void net_seg_freed(struct tcp_seg *seg)
{
	struct net_seg *own = net_seg_of(seg);

	if (unlikely(own->state & NET_SEG_WHOLE))
		own->state |= NET_SEG_GONE;
	else
		net_mem_free(seg);
}

void net_seg_free(struct tcp_seg *seg)
{
	struct pbuf *p = seg->p;

	if (likely((net_seg_of(seg)->state & NET_SEG_WHOLE) && p->ref == 1 &&
		   !p->next)) {
		net_mem_free(seg);
		return;
	}
	pbuf_free(p);
	memp_free(MEMP_TCP_SEG, seg);
}
