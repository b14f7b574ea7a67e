/*
 * Updates a connection's counters as segments pass, if it has counters
 * (net_opts.counted_conns).
 */
#include "netstack/conn/conn.h"
#include "netstack/program/events.h"

#include "lwip/prot/tcp.h"

static void bump_count16(uint16_t *count)
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
		bump_count16(&counts->rtos);
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

void net_count_marked(struct net_conn *conn, uint32_t delivered)
{
	struct net_conn_ext *counts = net_counts(conn);
	unsigned mss = LWIP_MAX(conn->pcb.mss, 1);

	if (counts)
		net_counted_of(counts)->delivered_ce +=
			(delivered + mss - 1) / mss;
}

void net_count_space(struct net_conn *conn, uint32_t bytes)
{
	struct net_conn_ext *counts = net_counts(conn);

	if (counts && bytes > net_counted_of(counts)->rcv_space)
		net_counted_of(counts)->rcv_space = bytes;
}

static bool is_idle(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return !conn->pcb_live || pcb->state < ESTABLISHED ||
	       (!pcb->unsent && !pcb->unacked);
}

/*
 * Linux checks in this order, too: a segment that the congestion window holds
 * back is not limited by the peer's.
 */
static enum net_phase phase_of(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct tcp_seg *next = pcb->unsent;
	uint32_t end;

	if (!next)
		return conn->wants ? NET_PHASE_SNDBUF : NET_PHASE_BUSY;
	end = lwip_ntohl(next->tcphdr->seqno) + next->len - pcb->lastack;
	return end > pcb->snd_wnd && end <= pcb->cwnd ? NET_PHASE_RWND
						      : NET_PHASE_BUSY;
}

void net_phase_fill_info(const struct net_conn *conn, struct net_tcp_info *out)
{
	const struct net_counted *counted = net_counted_of(net_counts(conn));
	uint64_t ns[NET_N_PHASES] = {counted->busy_ns, counted->rwnd_ns,
				     counted->sndbuf_ns};
	int64_t until_ns =
		counted->idle_ns ? counted->idle_ns : net_here()->now_ns;

	ns[counted->phase] += (uint64_t)(until_ns - counted->phase_ns);
	out->rwnd_limited = ns[NET_PHASE_RWND] / 1000;
	out->sndbuf_limited = ns[NET_PHASE_SNDBUF] / 1000;
	out->busy_time = ns[NET_PHASE_BUSY] / 1000 + out->rwnd_limited +
			 out->sndbuf_limited;
}

void net_phase_set(struct net_counted *counted, enum net_phase phase)
{
	uint64_t passed = (uint64_t)(net_here()->now_ns - counted->phase_ns);

	if (phase == counted->phase)
		return;
	switch ((enum net_phase)counted->phase) {
	case NET_PHASE_BUSY:
		counted->busy_ns += passed;
		break;
	case NET_PHASE_RWND:
		counted->rwnd_ns += passed;
		break;
	case NET_PHASE_SNDBUF:
		counted->sndbuf_ns += passed;
		break;
	case NET_N_PHASES:
		break;
	}
	counted->phase = (uint8_t)phase;
	counted->phase_ns = net_here()->now_ns;
}

void net_phase_settle(struct net_conn *conn)
{
	struct net_counted *counted = net_counted_of(net_counts(conn));

	if (is_idle(conn)) {
		net_phase_idle(counted);
		return;
	}
	if (counted->idle_ns)
		net_phase_wake(counted);
	net_phase_set(counted, phase_of(conn));
}

/* RFC 5681 2: what makes an ACK a duplicate. */
static bool is_dup_ack(const struct tcp_pcb *pcb, const struct tcp_hdr *tcp,
		       unsigned len)
{
	return len == 0 && pcb->unacked &&
	       (TCPH_FLAGS(tcp) & (TCP_ACK | TCP_SYN | TCP_FIN | TCP_RST)) ==
		       TCP_ACK &&
	       lwip_ntohl(tcp->ackno) == pcb->lastack &&
	       SND_WND_SCALE(pcb, (uint32_t)lwip_ntohs(tcp->wnd)) ==
		       pcb->snd_wnd;
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
	if (len && (int32_t)(lwip_ntohl(tcp->seqno) - conn->pcb.rcv_nxt) > 0) {
		bump_count16(&counts->out_of_order);
		net_counted_of(counts)->out_of_order++;
	} else if (is_dup_ack(&conn->pcb, tcp, len)) {
		bump_count16(&counts->dup_acks);
	}
}

/* Window probes are no retransmissions: only the first sends its byte, and
 * while lwIP probes persist_on is not 0. */
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
	if (data && !conn->pcb.persist_on)
		net_phase_out(net_counted_of(counts));
	if (len && !conn->pcb.persist_on &&
	    (int32_t)(lwip_ntohl(tcp->seqno) - conn->pcb.snd_nxt) < 0) {
		counts->retransmits++;
		net_counted_of(counts)->bytes_retrans += data;
		net_counted_of(counts)->data_retrans += data != 0;
	}
}
