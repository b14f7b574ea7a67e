/*
 * Frames of ARP (RFC 826) and of neighbour discovery (RFC 4861), for addresses
 * that lwIP's tables must not remember, or that it does not announce.
 */
#include "netstack/link/link_priv.h"

#include <string.h>

#include "lwip/inet_chksum.h"
#include "lwip/ip6.h"

#define NS_BYTES 24u /* of ICMPv6 */
#define NA_BYTES 32u

void net_arp_send(const struct net_port *port, const struct net_arp *arp)
{
	struct glue_frame *frame = glue_tx_alloc(port->glue, NET_ARP_FRAME);
	uint8_t *data;

	if (!frame)
		return;
	data = frame->data;
	memset(data, 0, NET_ARP_FRAME);
	memset(data, 0xff, 6);
	if (arp->to_mac) {
		memcpy(data, arp->to_mac, 6);
		memcpy(data + 32, arp->to_mac, 6);
	}
	memcpy(data + 6, arp->own_mac, 6);
	memcpy(data + 12, "\10\6\0\1\10\0\6\4\0", 9);
	data[21] = arp->to_mac ? 2 : 1;
	memcpy(data + 22, arp->own_mac, 6);
	memcpy(data + 28, &arp->sender, 4);
	memcpy(data + 38, &arp->target, 4);
	glue_tx(port->glue, frame);
}

/* Fills in an ICMPv6 message's checksum; false without memory. */
static bool put_checksum(uint8_t *icmp, u16_t bytes, const struct net_nd *nd)
{
	struct pbuf *message = pbuf_alloc_reference(icmp, bytes, PBUF_REF);
	ip6_addr_t src = {0}, dest = {0};
	u16_t sum;

	if (!message)
		return false;
	memcpy(src.addr, nd->src, 16);
	memcpy(dest.addr, nd->dest, 16);
	sum = ip6_chksum_pseudo(message, IP6_NEXTH_ICMP6, bytes, &src, &dest);
	memcpy(icmp + 2, &sum, 2);
	pbuf_free(message);
	return true;
}

void net_nd_send(const struct net_port *port, const struct net_nd *nd)
{
	u16_t bytes = nd->solicits ? NS_BYTES : NA_BYTES;
	unsigned len = NET_ETH_HEADER + IP6_HLEN + bytes;
	struct glue_frame *frame = glue_tx_alloc(port->glue, len);
	uint8_t *data, *ip, *icmp;

	if (!frame)
		return;
	data = frame->data;
	ip = data + NET_ETH_HEADER;
	icmp = ip + IP6_HLEN;
	memset(data, 0, len);
	memcpy(data, nd->to_mac, 6);
	memcpy(data + 6, nd->own_mac, 6);
	memcpy(data + 12, "\x86\xdd\x60", 3);
	ip[5] = (uint8_t)bytes;
	ip[6] = IP6_NEXTH_ICMP6;
	ip[7] = 255;
	memcpy(ip + 8, nd->src, 16);
	memcpy(ip + 24, nd->dest, 16);
	icmp[0] = nd->solicits ? 135 : 136;
	icmp[4] = nd->flags;
	memcpy(icmp + 8, nd->target, 16);
	if (!nd->solicits) {
		icmp[24] = 2; /* the target's link-layer address */
		icmp[25] = 1;
		memcpy(icmp + 26, nd->own_mac, 6);
	}
	if (put_checksum(icmp, bytes, nd))
		glue_tx(port->glue, frame);
	else
		glue_frame_free(frame);
}
