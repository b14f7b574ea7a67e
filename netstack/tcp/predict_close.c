/*
 * Prediction of a close: sends our FIN without lwIP when nothing else waits to
 * leave. It does what tcp_close(), tcp_enqueue_flags() and tcp_output() do, and
 * leaves the pcb and its queues as they would, so that lwIP can process the
 * next event.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/prot/tcp.h"

/*
 * lwIP counts the number of the FIN against the peer's window, but not against
 * the congestion window. All sequence numbers that were queued have left.
 */
static bool may_close(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	uint32_t used = pcb->snd_lbb - pcb->lastack;

	return net_here()->predicts &&
	       (pcb->state == ESTABLISHED || pcb->state == CLOSE_WAIT) &&
	       !pcb->unsent && pcb->snd_lbb == pcb->snd_nxt &&
	       !(pcb->flags & (NET_TF_TRACED | TF_CLOSEPEND | TF_FIN)) &&
	       !conn->has_recovery && !conn->rx_tail && used <= pcb->cwnd &&
	       used < pcb->snd_wnd;
}

/* Puts a FIN on the queue, as tcp_enqueue_flags() does. False: no memory. */
static bool queue_fin(struct tcp_pcb *pcb)
{
	unsigned options = net_ts_bytes(pcb);
	struct tcp_seg *seg = net_seg_new(options);
	struct tcp_hdr *tcp;

	if (!seg)
		return false;
	tcp = seg->tcphdr;
	seg->next = NULL;
	seg->len = 0;
	seg->flags = 0;
	tcp->src = lwip_htons(pcb->local_port);
	tcp->dest = lwip_htons(pcb->remote_port);
	tcp->seqno = lwip_htonl(pcb->snd_lbb);
	TCPH_HDRLEN_FLAGS_SET(tcp, (TCP_HLEN + options) / 4, TCP_FIN);
	tcp->urgp = 0;
	pcb->unsent = seg;
	pcb->unsent_oversize = 0;
	pcb->unsent_near = 0;
	pcb->snd_lbb++;
	pcb->snd_queuelen++;
	tcp_set_flags(pcb, TF_FIN | TF_RXCLOSED);
	return true;
}

/* Fills in the header as tcp_output_segment() does, and sends it. */
static bool send_fin(struct net_conn *conn, struct tcp_seg *seg)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct tcp_hdr *tcp = seg->tcphdr;

	TCPH_SET_FLAG(tcp, TCP_ACK);
	tcp->ackno = lwip_htonl(pcb->rcv_nxt);
	tcp->wnd =
		lwip_htons(TCPWND_MIN16(RCV_WND_SCALE(pcb, pcb->rcv_ann_wnd)));
	tcp->chksum = 0;
	net_ts_refresh(pcb, tcp + 1);
	if (pcb->flags & NET_TF_ECN)
		net_ecn_segment_out(conn, seg->p, tcp);
	return net_link_send_tcp(pcb, seg->p);
}

/* Moves the FIN, which has left, to the segments that wait for an ACK. */
static void move_fin(struct tcp_pcb *pcb, struct tcp_seg *seg)
{
	struct tcp_seg *last = pcb->unacked ? net_unacked_last(pcb) : NULL;

	pcb->rcv_ann_right_edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	if (pcb->rtime < 0)
		pcb->rtime = 0;
	pcb->persist_on = 0;
	pcb->snd_nxt++;
	pcb->unsent = NULL;
	tcp_clear_flags(pcb, TF_ACK_DELAY | TF_ACK_NOW | TF_NAGLEMEMERR);
	if (last)
		last->next = net_unacked_append(pcb, seg);
	else
		pcb->unacked = seg;
}

bool net_predict_close(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (!may_close(conn) || !queue_fin(pcb))
		return false;
	pcb->state = pcb->state == ESTABLISHED ? FIN_WAIT_1 : LAST_ACK;
	if (!send_fin(conn, pcb->unsent)) {
		net_lwip_output(conn); /* the neighbour or the port is not
					  ready */
		return true;
	}
	net_count_sent(conn, 0);
	net_recovery_segment_out(pcb, pcb->unsent->p);
	move_fin(pcb, pcb->unsent);
	return true;
}
