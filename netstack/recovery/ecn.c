/*
 * Explicit congestion notification, RFC 3168: a router whose queue grows marks
 * a packet instead of dropping it. The receiver echoes the mark until the
 * sender says that it has cut its window.
 *
 * This is classic ECN, as the kernel's tcp_ecn: both SYNs agree on it, new data
 * is sent with ECT(0), and a mark is answered like a loss, but nothing is
 * retransmitted. ACKs, SYNs, resets, probes and retransmissions are not
 * ECN-capable (6.1.1, 6.1.4 to 6.1.6). The state is three bits of pcb->flags
 * and, if there is recovery state, the end of the window that was cut.
 *
 * The ECN field lies in pcb->tos, which is set for each segment before it
 * leaves: here, or in tcp/predict_out.c.
 */
#include "netstack/recovery/recovery_priv.h"

#define BITS   PP_HTONS(TCP_ECE | TCP_CWR)
#define ECHO   PP_HTONS(TCP_ECE)
#define ANSWER PP_HTONS(TCP_CWR)

/* ---- agreeing, 6.1.1 ---- */

void net_ecn_offer(struct tcp_pcb *pcb)
{
	if (net_here()->ecn == NET_ECN_ON)
		tcp_set_flags(pcb, NET_TF_ECN);
}

bool net_ecn_offered(const struct tcp_hdr *syn)
{
	return net_here()->ecn != NET_ECN_OFF &&
	       (syn->_hdrlen_rsvd_flags & BITS) == BITS;
}

void net_ecn_accept(struct tcp_pcb *pcb)
{
	tcp_set_flags(pcb, NET_TF_ECN);
	net_here()->stats.ecn_conns++;
}

/*
 * ECE without CWR agrees; a host that echoes reserved bits sends both (6.1.1).
 * If two SYNs cross, nothing is agreed upon.
 */
void net_ecn_answered(struct tcp_pcb *pcb, const struct tcp_hdr *hdr)
{
	struct tcp_seg *syn = pcb->unacked ? pcb->unacked : pcb->unsent;
	uint8_t flags = TCPH_FLAGS(hdr);

	if (!(pcb->flags & NET_TF_ECN) || !(flags & TCP_SYN) ||
	    ((flags & TCP_ACK) && lwip_ntohl(hdr->ackno) != pcb->lastack + 1))
		return; /* no answer: lwIP resets it, or gives up */
	if ((flags & TCP_ACK) && (hdr->_hdrlen_rsvd_flags & BITS) == ECHO) {
		net_here()->stats.ecn_conns++;
	} else {
		tcp_clear_flags(pcb, NET_TF_ECN);
		if (syn) /* it may leave once more, with an ACK */
			syn->tcphdr->_hdrlen_rsvd_flags &= (uint16_t)~BITS;
	}
}

/* ---- outgoing marks ---- */

/*
 * 6.1.1.1: a SYN that is sent again does not ask again, since a box on the path
 * may drop SYNs that do.
 */
static uint16_t of_syn(struct tcp_pcb *pcb, const struct tcp_seg *syn)
{
	if (!syn)
		return 0;
	if (!(net_seg_of((struct tcp_seg *)(uintptr_t)syn)->state &
	      NET_SEG_SENT))
		return BITS;
	tcp_clear_flags(pcb, NET_TF_ECN);
	return 0;
}

void net_ecn_segment_out(struct net_conn *conn, const struct pbuf *p,
			 struct tcp_hdr *hdr)
{
	struct tcp_pcb *pcb = &conn->pcb;
	const struct tcp_seg *seg = pcb->unsent;
	uint16_t bits = 0;

	if (seg && seg->p != p)
		seg = NULL; /* an ACK, a probe */
	net_ecn_set_ect(pcb, false);
	if (pcb->state < ESTABLISHED) {
		bits = of_syn(pcb, seg);
	} else {
		if (pcb->flags & NET_TF_ECE)
			bits = ECHO;
		if (seg && seg->len) {
			net_ecn_set_ect(pcb, true);
			if (pcb->flags & NET_TF_CWR)
				bits |= ANSWER;
			tcp_clear_flags(pcb, NET_TF_CWR);
		}
	}
	hdr->_hdrlen_rsvd_flags &= (uint16_t)~BITS;
	hdr->_hdrlen_rsvd_flags |= bits;
}

/* 6.1.5: no ECT, and no CWR. ECE is sent as with any other segment. */
void net_ecn_resend(struct tcp_pcb *pcb, struct tcp_hdr *hdr)
{
	net_ecn_set_ect(pcb, false);
	hdr->_hdrlen_rsvd_flags &= (uint16_t)~BITS;
	if (pcb->flags & NET_TF_ECE)
		hdr->_hdrlen_rsvd_flags |= ECHO;
}

/* ---- incoming marks, 6.1.3 ---- */

/*
 * All segments echo a mark until CWR comes. The window of the host that sends
 * CWR may be so small by then that it waits for the ACK: that is sent at once.
 */
void net_ecn_input(struct net_conn *conn, const struct tcp_hdr *hdr, bool data,
		   bool ce)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->state < ESTABLISHED || !data)
		return;
	if (hdr->_hdrlen_rsvd_flags & ANSWER) {
		tcp_clear_flags(pcb, NET_TF_ECE);
		tcp_ack_now(pcb);
	}
	if (ce) {
		tcp_set_flags(pcb, NET_TF_ECE);
		net_here()->stats.rx_ce++;
	}
}

/* ---- reaction, 6.1.2 ---- */

void net_ecn_cut(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (!(conn->pcb.flags & NET_TF_ECN))
		return;
	tcp_set_flags(&conn->pcb, NET_TF_CWR);
	rec->ecn_end = conn->pcb.snd_nxt;
	rec->ecn_waits = true;
}

void net_ecn_uncut(struct net_conn *conn)
{
	tcp_clear_flags(&conn->pcb, NET_TF_CWR);
	net_recovery_of(conn)->ecn_waits = false;
}

/*
 * Cuts the window once a round trip: an echo that comes before the ACK of the
 * segment with our CWR is of the same mark, or of one as old. A window that a
 * loss has cut is not cut again. After a mark nothing is undone (RFC 4015 3):
 * the path was congested.
 */
void net_ecn_ack(struct net_conn *conn, const struct net_ack *ack)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (rec->ecn_waits && TCP_SEQ_GT(ack->una, rec->ecn_end))
		rec->ecn_waits = false;
	if (!ack->ece)
		return;
	rec->undo_left = 0;
	net_undo_never(conn);
	rec->frto = NET_FRTO_OFF;
	if (rec->ecn_waits || rec->state != NET_RECOVERY_OPEN)
		return;
	if (ack->acked == 0 && ack->una == conn->pcb.snd_nxt)
		return; /* nothing is in flight */
	rec->event_us = net_now_us();
	rec->harmed = true;
	rec->cc->on_ecn(conn);
	if (net_traced(conn))
		net_trace_cwnd_why(conn, "ECN");
	net_ecn_cut(conn);
	net_here()->stats.ecn_cuts++;
}

/* Cuts the window once until CWR has left. */
void net_ecn_ack_without_memory(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->flags & NET_TF_CWR)
		return;
	pcb->ssthresh = LWIP_MAX(pcb->cwnd / 2, 2u * pcb->mss);
	pcb->cwnd = LWIP_MIN(pcb->cwnd, pcb->ssthresh);
	tcp_set_flags(pcb, NET_TF_CWR);
	net_here()->stats.ecn_cuts++;
}
