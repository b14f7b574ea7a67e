/*
 * RFC 7323: timestamps, on which both sides agree in their SYNs, and PAWS,
 * which drops old segments from before the sequence numbers wrapped.
 *
 * lwIP's own timestamps are not compiled in: it would not offer them when it
 * dials, and it has no PAWS. Outgoing segments get their option from hooks
 * (net_ts_refresh()), so that a segment has the time at which it is sent, also
 * when it is resent.
 *
 * A connection keeps TS.Recent and the offset of its own timestamps, in eight
 * bytes that lwIP had for an unused queue. The rest follows from other fields:
 * TS.Recent is as old as the last segment (pcb->tmr), and Last.ACK.sent is
 * RCV.NXT unless an ACK is due. The offset is a keyed hash of the addresses and
 * ports, as for the initial sequence number (RFC 6528): it does not reveal the
 * uptime, the timestamps of a later connection of the same ports continue those
 * of the last one (RFC 6191), and a SYN cookie need not encode it.
 */
#include "netstack/tcp/tcp.h"

#include "lwip/ip.h"
#include "lwip/prot/tcp.h"

#include "dpdk_glue/bytes.h"

bool net_ts_read(const struct tcp_hdr *tcp, struct net_ts *out)
{
	const uint8_t *opt = net_tcp_option(tcp, NET_OPT_TS);

	if (!opt)
		return false;
	*out = (struct net_ts){.value = glue_get32(opt + 2),
			       .echo = glue_get32(opt + 6)};
	return true;
}

uint32_t net_ts_offset(const ip_addr_t *local, uint16_t local_port,
		       const ip_addr_t *remote, uint16_t remote_port)
{
	return (uint32_t)(net_tuple_hash(local, local_port, remote,
					 remote_port) >>
			  32);
}

/* ---- agreeing ---- */

void net_ts_offer(struct net_conn *conn, const ip_addr_t *remote, uint16_t port)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (net_here()->timestamps_off)
		return;
	tcp_set_flags(pcb, NET_TF_TS);
	conn->pcb.ts_offset =
		net_ts_offset(&pcb->local_ip, pcb->local_port, remote, port);
}

bool net_ts_offered(const struct tcp_hdr *syn, struct net_ts *out)
{
	return !net_here()->timestamps_off && net_ts_read(syn, out);
}

void net_ts_accept(struct net_conn *conn, uint32_t value)
{
	struct tcp_pcb *pcb = &conn->pcb;

	tcp_set_flags(pcb, NET_TF_TS);
	conn->pcb.ts_recent = value;
	conn->pcb.ts_offset = net_ts_offset(&pcb->local_ip, pcb->local_port,
					    &pcb->remote_ip, pcb->remote_port);
}

/*
 * Our SYN may have to be sent again with an ACK, to a peer whose own has no
 * timestamp: so ours has none from now on.
 */
static void withdraw_timestamps(struct tcp_pcb *pcb)
{
	struct tcp_seg *syn = pcb->unacked ? pcb->unacked : pcb->unsent;
	uint8_t *end;

	tcp_clear_flags(pcb, NET_TF_TS);
	if (!syn)
		return;
	end = (uint8_t *)syn->tcphdr + TCPH_HDRLEN_BYTES(syn->tcphdr);
	memset(end - NET_TS_BYTES, NET_OPT_NOP, NET_TS_BYTES);
}

void net_ts_answered(struct net_conn *conn, const struct tcp_hdr *tcp)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint8_t flags = TCPH_FLAGS(tcp);
	struct net_ts ts;

	if (!(pcb->flags & NET_TF_TS) || !(flags & TCP_SYN) ||
	    ((flags & TCP_ACK) && lwip_ntohl(tcp->ackno) != pcb->lastack + 1))
		return; /* no answer: lwIP resets it, or gives up */
	if (net_ts_read(tcp, &ts))
		conn->pcb.ts_recent = ts.value;
	else
		withdraw_timestamps(pcb);
}

bool net_ts_returned(const struct tcp_hdr *ack, int64_t age_ns,
		     struct net_ts *out)
{
	uint32_t sent = net_ts_now() + net_ts_offset(ip_current_dest_addr(),
						     lwip_ntohs(ack->dest),
						     ip_current_src_addr(),
						     lwip_ntohs(ack->src));

	return net_ts_offered(ack, out) && sent - out->echo <= age_ns >> 20;
}
