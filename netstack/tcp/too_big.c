/*
 * ICMP messages of routers that a packet was too big (RFC 1191, RFC 8201). One
 * is accepted only if it quotes a segment that is in flight on a live
 * connection (RFC 5927 4.1).
 */
#include "netstack/tcp/tcp.h"

#include <string.h>

#include "lwip/prot/icmp.h"
#include "lwip/prot/icmp6.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"

#include "dpdk_glue/bytes.h"

#define QUOTE_AT 8u   /* the packet behind an ICMP header */
#define LEAST4	 552u /* of an MTU that is guessed */

/* RFC 1191 7.1, for routers that do not say what fits. */
static const uint16_t plateaus[] = {32000, 17914, 8166, 4352,
				    2002,  1492,  1006, LEAST4};

/* The segment that an ICMP message quotes. */
struct quote {
	ip_addr_t local, remote;
	uint16_t local_port, remote_port;
	uint32_t seq;
	unsigned len; /* of its packet, as its header says */
};

static void read_ports(const uint8_t *tcp, struct quote *out)
{
	out->local_port = (uint16_t)glue_get16(tcp);
	out->remote_port = (uint16_t)glue_get16(tcp + 2);
	out->seq = glue_get32(tcp + 4);
}

static bool read_quote4(const uint8_t *ip, unsigned room, struct quote *out)
{
	unsigned header = (ip[0] & 15) * 4u;

	if (room < 20 || ip[0] >> 4 != 4 || header < 20 || room < header + 8 ||
	    ip[9] != IP_PROTO_TCP || (glue_get16(ip + 6) & IP_OFFMASK))
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(&ip_2_ip4(&out->local)->addr, ip + 12, 4);
	memcpy(&ip_2_ip4(&out->remote)->addr, ip + 16, 4);
	IP_SET_TYPE_VAL(out->local, IPADDR_TYPE_V4);
	IP_SET_TYPE_VAL(out->remote, IPADDR_TYPE_V4);
	out->len = glue_get16(ip + 2);
	read_ports(ip + header, out);
	return true;
}

static bool read_quote6(const uint8_t *ip, unsigned room, struct netif *netif,
			struct quote *out)
{
	if (room < IP6_HLEN + 8 || ip[0] >> 4 != 6 || ip[6] != IP6_NEXTH_TCP)
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(ip_2_ip6(&out->local)->addr, ip + 8, 16);
	memcpy(ip_2_ip6(&out->remote)->addr, ip + 24, 16);
	IP_SET_TYPE_VAL(out->local, IPADDR_TYPE_V6);
	IP_SET_TYPE_VAL(out->remote, IPADDR_TYPE_V6);
	ip6_addr_assign_zone(ip_2_ip6(&out->local), IP6_UNICAST, netif);
	ip6_addr_assign_zone(ip_2_ip6(&out->remote), IP6_UNICAST, netif);
	out->len = IP6_HLEN + glue_get16(ip + 4);
	read_ports(ip + IP6_HLEN, out);
	return true;
}

/* RFC 5927 4.1: finds a live connection that has the segment in flight. */
static struct net_conn *conn_of(const struct quote *quote)
{
	struct net_conn *conn =
		net_demux_find(&quote->local, quote->local_port, &quote->remote,
			       quote->remote_port);
	const struct tcp_pcb *pcb;

	if (!conn)
		return NULL;
	pcb = &conn->pcb;
	return pcb->state >= ESTABLISHED && pcb->state != TIME_WAIT &&
			       quote->seq - pcb->lastack <
				       pcb->snd_nxt - pcb->lastack
		       ? conn
		       : NULL;
}

/* An old router names no MTU: tries the next one below what it did not take. */
static unsigned plateau_below(unsigned len)
{
	for (unsigned i = 0; i < sizeof(plateaus) / sizeof(plateaus[0]); i++)
		if (plateaus[i] < len)
			return plateaus[i];
	return LEAST4;
}

void net_too_big_input(const struct net_port *port,
		       const struct glue_frame *frame)
{
	const uint8_t *icmp = frame->data + frame->l4_off;
	unsigned room = frame->seg_len - frame->l4_off;
	struct net_conn *conn = NULL;
	struct quote quote;
	unsigned mtu;

	if (room < QUOTE_AT || net_here()->pmtud_off)
		return;
	if (frame->flags & GLUE_FRAME_IP4) {
		mtu = glue_get16(icmp + 6);
		if (read_quote4(icmp + QUOTE_AT, room - QUOTE_AT, &quote))
			conn = conn_of(&quote);
		if (conn && mtu == 0)
			mtu = plateau_below(quote.len);
	} else {
		mtu = glue_get32(icmp + 4);
		if (read_quote6(icmp + QUOTE_AT, room - QUOTE_AT, port->netif0,
				&quote))
			conn = conn_of(&quote);
	}
	if (!conn || mtu >= quote.len) { /* a packet that fits is not too big */
		net_here()->stats.path_mtu_refused++;
		return;
	}
	net_pcb_show(&conn->pcb); /* as for any event of a connection */
	net_path_too_big(conn, mtu);
	net_pcbs_take_back();
}
