/*
 * ICMP errors about datagrams that were sent: "port unreachable" (RFC 1122
 * 4.1.3.3) for connected sockets, and "too big" (RFC 1191, RFC 8201) for all. A
 * message is believed only if the datagram that it quotes belongs to a socket
 * which has sent to that peer lately (RFC 5927 4).
 */
#include "netstack/udp/udp.h"

#include <errno.h>
#include <string.h>

#include "lwip/prot/icmp.h"
#include "lwip/prot/icmp6.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"

#include "dpdk_glue/bytes.h"

#define QUOTE_AT 8u   /* the packet behind an ICMP header */
#define LEAST4	 552u /* tried for routers that name no MTU */

/* The datagram that a message quotes. */
struct quote {
	ip_addr_t local, remote;
	uint16_t local_port, remote_port;
	unsigned len; /* of its packet, as its header says */
};

static bool quotes_udp4(const uint8_t *ip, unsigned room)
{
	return room >= IP_HLEN && ip[0] >> 4 == 4 && ip[9] == IP_PROTO_UDP;
}

static bool quotes_udp6(const uint8_t *ip, unsigned room)
{
	return room >= IP6_HLEN && ip[0] >> 4 == 6 && ip[6] == IP6_NEXTH_UDP;
}

static bool read_quote4(const uint8_t *ip, unsigned room, struct quote *out)
{
	unsigned header = (ip[0] & 15) * 4u;

	if (header < IP_HLEN || room < header + 4 ||
	    (glue_get16(ip + 6) & IP_OFFMASK))
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(&ip_2_ip4(&out->local)->addr, ip + 12, 4);
	memcpy(&ip_2_ip4(&out->remote)->addr, ip + 16, 4);
	out->len = glue_get16(ip + 2);
	out->local_port = (uint16_t)glue_get16(ip + header);
	out->remote_port = (uint16_t)glue_get16(ip + header + 2);
	return true;
}

static void read_ip6(ip_addr_t *to, const uint8_t *from, struct netif *netif)
{
	memcpy(ip_2_ip6(to)->addr, from, 16);
	IP_SET_TYPE_VAL(*to, IPADDR_TYPE_V6);
	ip6_addr_assign_zone(ip_2_ip6(to), IP6_UNICAST, netif);
}

static bool read_quote6(const uint8_t *ip, unsigned room, struct netif *netif,
			struct quote *out)
{
	if (room < IP6_HLEN + 4)
		return false;
	memset(out, 0, sizeof(*out));
	read_ip6(&out->local, ip + 8, netif);
	read_ip6(&out->remote, ip + 24, netif);
	out->len = IP6_HLEN + glue_get16(ip + 4);
	out->local_port = (uint16_t)glue_get16(ip + IP6_HLEN);
	out->remote_port = (uint16_t)glue_get16(ip + IP6_HLEN + 2);
	return true;
}

static struct net_udp *socket_of(const struct quote *q)
{
	if (!net_udp_was_sent(&q->local, q->local_port, &q->remote,
			      q->remote_port))
		return NULL;
	return net_udp_find(&q->local, q->local_port, &q->remote,
			    q->remote_port);
}

/* Nobody listens at the peer's port; an unconnected socket ignores that. */
static void take_unreachable(const struct quote *q)
{
	struct net_udp *udp = socket_of(q);

	if (!udp || !udp->remote_port)
		return;
	udp->stats.refused++;
	udp->err = -ECONNREFUSED;
	net_udp_wake(udp, NET_READABLE);
}

/* mtu 0: an old router, which does not say. */
static void take_too_big(const struct quote *q, unsigned mtu)
{
	if (mtu == 0)
		mtu = LEAST4;
	if (net_here()->pmtud_off || mtu >= q->len || !socket_of(q)) {
		net_here()->stats.path_mtu_refused++;
		return;
	}
	net_path_note(&q->remote, mtu);
}

static void take_error4(const uint8_t *icmp, unsigned room)
{
	struct quote quote;

	if (!read_quote4(icmp + QUOTE_AT, room - QUOTE_AT, &quote))
		return;
	if (icmp[1] == ICMP_DUR_FRAG)
		take_too_big(&quote, glue_get16(icmp + 6));
	else
		take_unreachable(&quote);
}

static void take_error6(const uint8_t *icmp, unsigned room, struct netif *netif)
{
	struct quote quote;

	if (!read_quote6(icmp + QUOTE_AT, room - QUOTE_AT, netif, &quote))
		return;
	if (icmp[0] == ICMP6_TYPE_PTB) /* a huge MTU is no less wrong */
		take_too_big(&quote, glue_get16(icmp + 4)
					     ? UINT16_MAX
					     : glue_get16(icmp + 6));
	else
		take_unreachable(&quote);
}

bool net_udp_quoted(const struct glue_frame *frame)
{
	const uint8_t *icmp = frame->data + frame->l4_off;
	unsigned room = frame->seg_len - frame->l4_off;

	if (room < QUOTE_AT)
		return false;
	if (frame->flags & GLUE_FRAME_IP4)
		return icmp[0] == ICMP_DUR &&
		       quotes_udp4(icmp + QUOTE_AT, room - QUOTE_AT);
	return icmp[0] < ICMP6_TYPE_EREQ &&
	       quotes_udp6(icmp + QUOTE_AT, room - QUOTE_AT);
}

void net_udp_icmp_input(const struct net_port *port,
			const struct glue_frame *frame)
{
	const uint8_t *icmp = frame->data + frame->l4_off;
	unsigned room = frame->seg_len - frame->l4_off;

	if (frame->flags & GLUE_FRAME_IP4)
		take_error4(icmp, room);
	else
		take_error6(icmp, room, port->netif0);
}
