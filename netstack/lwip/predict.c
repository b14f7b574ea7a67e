/*
 * Header prediction on the way out: what tcp_write() and tcp_output() do with
 * one piece and one ordinary segment, without the cases that do not apply. The
 * pcb and its queues are then as lwIP would have left them, so that whatever
 * comes next (a loss, a timeout, the end) goes on from there.
 */
#include <string.h>

#include "lwip/prot/tcp.h"

#include "netstack/link/link.h"

/* A header of 20 bytes with nothing but ACK and PSH, if any. */
#define PLAIN_BITS PP_HTONS(0x5000)
#define PLAIN_MASK PP_HTONS((u16_t) ~(TCP_ACK | TCP_PSH))

/* Before the bytes of a pbuf for a segment: its headers, and IPv6's. */
#define HEADROOM LWIP_MEM_ALIGN_SIZE(PBUF_TRANSPORT)

/* ---- writing ---- */

/* What pbuf_alloc() makes of PBUF_TRANSPORT and PBUF_RAM; NULL: no memory. */
static inline struct pbuf *make_pbuf(unsigned len)
{
	unsigned head = LWIP_MEM_ALIGN_SIZE(sizeof(struct pbuf)) + HEADROOM;
	struct pbuf *p = net_mem_malloc(head + LWIP_MEM_ALIGN_SIZE(len));

	if (!p)
		return NULL;
	p->next = NULL;
	p->payload = (u8_t *)p + head - TCP_HLEN;
	p->len = p->tot_len = (u16_t)(TCP_HLEN + len);
	p->type_internal = (u8_t)PBUF_RAM;
	p->flags = 0;
	p->ref = 1;
	p->if_idx = NETIF_NO_INDEX;
	return p;
}

static inline void begin_header(const struct tcp_pcb *pcb, struct tcp_hdr *tcp)
{
	tcp->src = lwip_htons(pcb->local_port);
	tcp->dest = lwip_htons(pcb->remote_port);
	tcp->seqno = lwip_htonl(pcb->snd_lbb);
	tcp->_hdrlen_rsvd_flags = PP_HTONS(0x5000 | TCP_PSH);
	tcp->urgp = 0;
}

static err_t no_memory(struct tcp_pcb *pcb)
{
	tcp_set_flags(pcb, TF_NAGLEMEMERR);
	return ERR_MEM;
}

err_t net_predict_write(struct net_conn *conn, const void *data, u16_t len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u32_t most = LWIP_MIN(pcb->mss, TCPWND_MIN16(pcb->snd_wnd_max / 2));
	struct tcp_seg *seg;
	struct pbuf *p;

	if (!net_here()->predicts || pcb->state != ESTABLISHED || pcb->unsent ||
	    len > most || len > pcb->snd_buf ||
	    pcb->snd_queuelen >= TCP_SND_QUEUELEN ||
	    (!(pcb->flags & TF_NODELAY) && pcb->unacked))
		return ERR_INPROGRESS;
	p = make_pbuf(len);
	if (!p)
		return no_memory(pcb);
	seg = memp_malloc(MEMP_TCP_SEG);
	if (!seg) {
		pbuf_free(p);
		return no_memory(pcb);
	}
	seg->next = NULL;
	seg->p = p;
	seg->len = len;
	seg->flags = 0;
	seg->tcphdr = p->payload;
	begin_header(pcb, seg->tcphdr);
	memcpy((u8_t *)p->payload + TCP_HLEN, data, len);
	pcb->unsent = seg;
	pcb->unsent_near = 0;
	pcb->unsent_oversize = 0;
	pcb->snd_lbb += len;
	pcb->snd_buf -= len;
	pcb->snd_queuelen++;
	return ERR_OK;
}

/* ---- sending ---- */

/* Nagle's algorithm, as tcp_output() has it, lets it go. */
static inline bool nagle_lets_go(const struct tcp_pcb *pcb)
{
	return (pcb->flags & TF_NODELAY) || !pcb->unacked;
}

static inline bool is_plain(const struct tcp_pcb *pcb,
			    const struct tcp_seg *seg)
{
	const struct pbuf *p = seg->p;

	return !p->next && p->ref == 1 && !seg->flags && seg->len &&
	       (seg->tcphdr->_hdrlen_rsvd_flags & PLAIN_MASK) == PLAIN_BITS &&
	       p->payload == seg->tcphdr && net_seg_begin(seg) == pcb->snd_nxt;
}

static inline void fill_header(struct tcp_pcb *pcb, struct tcp_hdr *tcp)
{
	tcp->_hdrlen_rsvd_flags |= PP_HTONS(TCP_ACK);
	tcp->ackno = lwip_htonl(pcb->rcv_nxt);
	tcp->wnd =
		lwip_htons(TCPWND_MIN16(RCV_WND_SCALE(pcb, pcb->rcv_ann_wnd)));
	tcp->chksum = 0;
}

/* The head of `unsent` has left, and goes behind the last of `unacked`. */
static inline void move_on(struct tcp_pcb *pcb)
{
	struct tcp_seg *seg = pcb->unsent, *last;

	pcb->rcv_ann_right_edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	if (pcb->rtime < 0)
		pcb->rtime = 0;
	pcb->persist_backoff = 0;
	pcb->snd_nxt += seg->len;
	pcb->unsent = net_unsent_leave(pcb, seg);
	if (!pcb->unsent)
		pcb->unsent_oversize = 0;
	tcp_clear_flags(pcb, TF_ACK_DELAY | TF_ACK_NOW);
	seg->next = NULL;
	if (pcb->unacked) {
		last = net_unacked_last(pcb);
		last->next = net_unacked_append(pcb, seg);
	} else {
		pcb->unacked = seg;
	}
}

static inline bool may_leave(const struct tcp_pcb *pcb, u32_t wnd)
{
	u32_t under_way = pcb->snd_nxt - pcb->lastack;

	return pcb->unsent && under_way <= wnd &&
	       pcb->unsent->len <= wnd - under_way && nagle_lets_go(pcb) &&
	       is_plain(pcb, pcb->unsent);
}

bool net_predict_output(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u32_t wnd = LWIP_MIN(pcb->snd_wnd, pcb->cwnd);

	if (pcb->state != ESTABLISHED || conn->repairing ||
	    !may_leave(pcb, wnd))
		return false;
	do {
		const struct pbuf *p = pcb->unsent->p;

		fill_header(pcb, pcb->unsent->tcphdr);
		if (!net_link_send_tcp(pcb, p))
			return false;
		net_count_sent(conn);
		net_recovery_segment_out(pcb, p);
		move_on(pcb);
	} while (may_leave(pcb, wnd));
	if (pcb->unsent)
		return false;
	tcp_clear_flags(pcb, TF_NAGLEMEMERR); /* as lwIP does, last of all */
	return true;
}
