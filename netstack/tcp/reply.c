/*
 * Segments that no connection sends: resets.
 *
 * tcp.c and tcp_in.c are compiled to call these where they would call lwIP's
 * tcp_rst(), which always sends an ACK with a reset and swaps the bytes of
 * its window.
 */
#include "netstack/tcp/tcp.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

static void put_header(struct tcp_hdr *tcp, const struct net_reply *reply)
{
	unsigned header = TCP_HLEN + reply->options_len;

	tcp->src = lwip_htons(reply->from_port);
	tcp->dest = lwip_htons(reply->to_port);
	tcp->seqno = lwip_htonl(reply->seq);
	tcp->ackno = lwip_htonl(reply->ack);
	TCPH_HDRLEN_FLAGS_SET(tcp, header / 4, reply->flags);
	tcp->wnd = lwip_htons(reply->wnd);
	tcp->chksum = 0; /* dpdk_glue's */
	tcp->urgp = 0;
}

/*
 * The common case, without lwIP and without an allocation. Returns false if the
 * neighbour is not known or the port has no free frame.
 */
static bool send_predicted(const struct net_reply *reply)
{
	struct {
		struct tcp_hdr tcp;
		uint8_t options[sizeof(reply->options)];
	} header;
	uint16_t len = (uint16_t)(TCP_HLEN + reply->options_len);
	struct pbuf p = {.payload = &header, .len = len, .tot_len = len};

	put_header(&header.tcp, reply);
	memcpy(header.options, reply->options, sizeof(header.options));
	return net_link_send_reply(reply, &p);
}

bool net_reply_send(const struct net_reply *reply)
{
	uint16_t header = (uint16_t)(TCP_HLEN + reply->options_len);
	struct netif *netif;
	struct pbuf *p;
	err_t err;

	if (net_here()->predicts && send_predicted(reply))
		return true;
	netif = ip_route(reply->from, reply->to);
	if (!netif)
		return true; /* there will be no route later either */
	p = pbuf_alloc(PBUF_IP, header, PBUF_RAM);
	if (!p)
		return false;
	put_header(p->payload, reply);
	memcpy((struct tcp_hdr *)p->payload + 1, reply->options,
	       reply->options_len);
	err = ip_output_if(p, reply->from, reply->to,
			   reply->ttl ? reply->ttl : TCP_TTL, reply->tos,
			   IP_PROTO_TCP, netif);
	pbuf_free(p);
	return err != ERR_MEM && err != ERR_BUF;
}

/*
 * The number that the peer takes a segment with: SND.NXT, unless its window has
 * shrunk beneath that by more than what scaling cuts off. tcp_out.c is edited
 * to do the same for ACKs.
 */
static uint32_t acceptable_seq(const struct tcp_pcb *pcb)
{
	uint32_t edge = pcb->lastack + pcb->snd_wnd;
	int32_t beyond = (int32_t)(pcb->snd_nxt - edge);

	return beyond >> pcb->snd_scale > 0 ? edge : pcb->snd_nxt;
}

/* RFC 7323 3.2: a reset should have a timestamp if these are agreed upon. */
static void stamp_reply(struct net_reply *reply, const struct tcp_pcb *pcb)
{
	if (!pcb || pcb->state == LISTEN || pcb->state == SYN_SENT)
		return;
	net_ts_refresh(pcb, reply->options);
	reply->options_len = (uint8_t)net_ts_bytes(pcb);
}

static void trace_reply(const struct tcp_pcb *pcb,
			const struct net_reply *reply)
{
	struct net_conn *conn = net_conn_of((struct tcp_pcb *)(uintptr_t)pcb);
	struct tcp_hdr hdr = {.seqno = lwip_htonl(reply->seq),
			      .ackno = lwip_htonl(reply->ack),
			      .wnd = lwip_htons(reply->wnd)};

	if (!net_traced(conn))
		return;
	TCPH_HDRLEN_FLAGS_SET(&hdr, TCP_HLEN / 4, reply->flags);
	net_trace_out(conn, &hdr, 0, NULL);
}

/* RFC 9293 3.5.1: nothing more is taken, so the window is closed. */
void net_rst_abort(const struct tcp_pcb *pcb, uint32_t seq, uint32_t ack,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   uint16_t local_port, uint16_t remote_port)
{
	struct net_reply reply = {
		.ttl = pcb ? pcb->ttl : 0,
		.tos = pcb ? pcb->tos & ~NET_ECN_FIELD : 0,
		.from = local_ip,
		.to = remote_ip,
		.from_port = local_port,
		.to_port = remote_port,
		.seq = pcb && seq == pcb->snd_nxt ? acceptable_seq(pcb) : seq,
		.ack = ack,
		.flags = TCP_RST | TCP_ACK,
	};

	stamp_reply(&reply, pcb);
	net_reply_send(&reply);
	if (pcb)
		trace_reply(pcb, &reply);
}

/*
 * RFC 9293 3.10.7: a segment with ACK draws <SEQ=SEG.ACK><CTL=RST>, any other
 * <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. lwIP gives both numbers.
 */
void net_rst_reply(const struct tcp_pcb *pcb, uint32_t seg_ack,
		   uint32_t seg_end, const ip_addr_t *local_ip,
		   const ip_addr_t *remote_ip, uint16_t local_port,
		   uint16_t remote_port)
{
	bool acked = net_here()->rx_flags & TCP_ACK;
	struct net_reply reply = {
		.ttl = pcb ? pcb->ttl : 0,
		.tos = pcb ? pcb->tos & ~NET_ECN_FIELD : 0,
		.from = local_ip,
		.to = remote_ip,
		.from_port = local_port,
		.to_port = remote_port,
		.seq = acked ? seg_ack : 0,
		.ack = acked ? 0 : seg_end,
		.flags = acked ? TCP_RST : TCP_RST | TCP_ACK,
	};

	stamp_reply(&reply, pcb);
	net_reply_send(&reply);
	if (pcb)
		trace_reply(pcb, &reply);
}

void net_rst_netif(struct netif *netif, uint32_t seg_ack, uint32_t seg_end,
		   const ip_addr_t *local_ip, const ip_addr_t *remote_ip,
		   uint16_t local_port, uint16_t remote_port)
{
	net_rst_reply(NULL, seg_ack, seg_end, local_ip, remote_ip, local_port,
		      remote_port);
}
