/*
 * What a connection counts as segments pass, if it began while there were few
 * enough.
 */
#include "netstack/conn/conn.h"
#include "netstack/program/events.h"

#include "lwip/prot/tcp.h"

static void count16(uint16_t *count)
{
	*count = (uint16_t)(*count + (*count != UINT16_MAX));
}

void net_count_bytes(struct net_conn *conn, unsigned rx, unsigned acked)
{
	struct net_conn_ext *counts = net_counts(conn);

	if (!counts)
		return;
	counts->rx_bytes += rx;
	counts->tx_acked += acked;
}

void net_count_rto(struct net_conn *conn)
{
	struct net_conn_ext *counts = net_counts(conn);

	net_here()->stats.rtos++;
	if (counts)
		count16(&counts->rtos);
	net_event_rto(conn);
}

void net_count_odd_ack(struct net_conn *conn, bool dsack, bool reordered)
{
	struct net_conn_ext *counts = net_counts(conn);

	if (!counts)
		return;
	net_counted_of(counts)->dsacks += dsack;
	net_counted_of(counts)->reordered += reordered;
}

/* RFC 5681 2: what makes an ACK a duplicate. */
static bool is_dup_ack(const struct tcp_pcb *pcb, const struct tcp_hdr *tcp,
		       unsigned len)
{
	return len == 0 && pcb->unacked &&
	       (TCPH_FLAGS(tcp) & (TCP_ACK | TCP_SYN | TCP_FIN | TCP_RST)) ==
		       TCP_ACK &&
	       lwip_ntohl(tcp->ackno) == pcb->lastack &&
	       SND_WND_SCALE(pcb, (u32_t)lwip_ntohs(tcp->wnd)) == pcb->snd_wnd;
}

void net_count_in(struct net_conn *conn, const struct pbuf *p)
{
	struct net_conn_ext *counts = net_counts(conn);
	const struct tcp_hdr *tcp = p->payload;
	unsigned len = p->tot_len - TCPH_HDRLEN_BYTES(tcp);

	if (!counts)
		return;
	counts->rx_segs++;
	if (len)
		net_count_data_in(net_counted_of(counts), len);
	if (len && (s32_t)(lwip_ntohl(tcp->seqno) - conn->pcb.rcv_nxt) > 0) {
		count16(&counts->out_of_order);
		net_counted_of(counts)->out_of_order++;
	} else if (is_dup_ack(&conn->pcb, tcp, len)) {
		count16(&counts->dup_acks);
	}
}

/* Of window probes only the first sends its byte; lwIP has begun to probe. */
void net_count_out(struct net_conn *conn, const struct pbuf *p)
{
	struct net_conn_ext *counts = net_counts(conn);
	const struct tcp_hdr *tcp = p->payload;
	unsigned data, len;

	if (!counts)
		return;
	data = p->tot_len - TCPH_HDRLEN_BYTES(tcp);
	len = data + ((TCPH_FLAGS(tcp) & (TCP_SYN | TCP_FIN)) != 0);
	counts->tx_segs++;
	if (data)
		net_count_data_out(net_counted_of(counts));
	if (len && !conn->pcb.persist_backoff &&
	    (s32_t)(lwip_ntohl(tcp->seqno) - conn->pcb.snd_nxt) < 0) {
		counts->retransmits++;
		net_counted_of(counts)->bytes_retrans += data;
		net_counted_of(counts)->data_retrans += data != 0;
	}
}
