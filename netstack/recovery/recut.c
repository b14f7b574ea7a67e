/*
 * Splits segments that are too long for the path MTU.
 *
 * The pieces are copies: a holder of the old segment (a neighbour's queue, a
 * frame that refers to lent memory) keeps it until it is done.
 */
#include "netstack/recovery/recovery_priv.h"

#include <string.h>

#include "lwip/prot/tcp.h"

#define MAX_PBUFS 0xffffu /* lwIP counts a queue's in 16 bits */

static void free_pieces(struct tcp_seg *seg)
{
	while (seg) {
		struct tcp_seg *next = seg->next;

		tcp_seg_free(seg);
		seg = next;
	}
}

/* Makes one piece: len bytes of the old one's data from `off` on. */
static struct tcp_seg *make_piece(struct tcp_seg *old, unsigned data_at,
				  unsigned off, unsigned len)
{
	unsigned header = TCPH_HDRLEN_BYTES(old->tcphdr);
	unsigned options = header - TCP_HLEN; /* written when it leaves */
	struct pbuf *p =
		pbuf_alloc(PBUF_TRANSPORT, (uint16_t)(options + len), PBUF_RAM);
	struct tcp_seg *seg = p ? memp_malloc(MEMP_TCP_SEG) : NULL;
	uint8_t flags = TCPH_FLAGS(old->tcphdr);

	if (!seg) {
		if (p)
			pbuf_free(p);
		return NULL;
	}
	pbuf_copy_partial(old->p, (uint8_t *)p->payload + options,
			  (uint16_t)len, (uint16_t)(data_at + off));
	pbuf_add_header(p, TCP_HLEN);	     /* PBUF_TRANSPORT has left room */
	*net_seg_of(seg) = *net_seg_of(old); /* its times, too */
	net_seg_of(seg)->state &= NET_SEG_SENT | NET_SEG_RESENT;
	seg->next = NULL;
	seg->p = p;
	seg->len = (uint16_t)len;
	seg->flags = 0;
	seg->tcphdr = p->payload;
	*seg->tcphdr = *old->tcphdr;
	seg->tcphdr->seqno = lwip_htonl(net_seg_begin(old) + off);
	seg->tcphdr->chksum = 0;
	if (off + len < old->len) /* only the last one pushes and ends */
		flags &= (uint8_t) ~(TCP_FIN | TCP_PSH);
	TCPH_HDRLEN_FLAGS_SET(seg->tcphdr, header / 4, flags);
	return seg;
}

/*
 * Cuts the segment at *link into as many as it takes. Returns the last of them;
 * NULL: no memory, and nothing has changed.
 */
static struct tcp_seg *cut_segment(struct tcp_pcb *pcb, struct tcp_seg **link,
				   unsigned mss)
{
	struct tcp_seg *old = *link, *first = NULL, *last = NULL,
		       **tail = &first;
	unsigned data_at = (unsigned)((uint8_t *)old->tcphdr -
				      (uint8_t *)old->p->payload) +
			   TCPH_HDRLEN_BYTES(old->tcphdr);
	unsigned pieces = (old->len + mss - 1) / mss;
	unsigned queued = pcb->snd_queuelen - pbuf_clen(old->p) + pieces;

	if (queued > MAX_PBUFS)
		return NULL;
	for (unsigned off = 0; off < old->len; off += mss) {
		last = make_piece(old, data_at, off,
				  LWIP_MIN(mss, old->len - off));
		if (!last) {
			free_pieces(first);
			return NULL;
		}
		*tail = last;
		tail = &last->next;
	}
	last->next = old->next;
	*link = first;
	pcb->snd_queuelen = (uint16_t)queued;
	old->next = NULL;
	return last;
}

/* A SYN or FIN alone has no data to cut. */
static bool too_long(const struct tcp_seg *seg, unsigned mss)
{
	return seg->len > mss && !(TCPH_FLAGS(seg->tcphdr) & TCP_SYN);
}

bool net_recut_unsent(struct net_conn *conn, unsigned mss)
{
	struct tcp_pcb *pcb = &conn->pcb;

	for (struct tcp_seg **link = &pcb->unsent; *link;
	     link = &(*link)->next) {
		struct tcp_seg *old = *link, *last;

		if (!too_long(old, mss))
			continue;
		last = cut_segment(pcb, link, mss);
		if (!last)
			return false;
		if (!last->next)
			pcb->unsent_oversize = 0; /* it has no room to fill */
		pcb->unsent_near = 0;
		tcp_seg_free(old);
		while (*link != last)
			link = &(*link)->next;
	}
	return true;
}

/*
 * Without memory a segment stays as it is, and is cut when it next times out.
 */
void net_recut_unacked(struct net_conn *conn, unsigned mss)
{
	struct tcp_pcb *pcb = &conn->pcb;
	bool marks = net_recovery_begin(conn);

	conn->unacked_last = 0;
	for (struct tcp_seg **link = &pcb->unacked; *link;
	     link = &(*link)->next) {
		struct tcp_seg *old = *link, *last;

		if (!too_long(old, mss) ||
		    net_seg_of(old)->state & NET_SEG_SACKED)
			continue;
		last = cut_segment(pcb, link, mss);
		if (!last)
			return;
		if (marks)
			net_sack_replace(net_recovery_of(conn),
					 net_seg_of(old));
		tcp_seg_free(old);
		for (;; link = &(*link)->next) {
			if (marks)
				net_sack_lose(net_recovery_of(conn),
					      net_seg_of(*link));
			if (*link == last)
				break;
		}
	}
}
