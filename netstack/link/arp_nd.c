/*
 * Frames of ARP (RFC 826) and of neighbour discovery (RFC 4861), for addresses
 * that lwIP's tables must not remember, or that it does not announce.
 */
#include "netstack/link/link_priv.h"

#include <string.h>

#include "lwip/inet_chksum.h"
#include "lwip/ip6.h"

#define NS_BYTES   24u /* of ICMPv6 */
#define NA_BYTES   32u
#define RS_BYTES   8u
#define MAC_OPTION 8u

enum { ROUTER_SOLICITATION = 133, SOLICITATION = 135, ADVERTISEMENT = 136 };
enum { SOURCE_MAC = 1, TARGET_MAC = 2 };

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
static bool put_checksum(uint8_t *icmp, uint16_t bytes, const uint8_t *ip)
{
	struct pbuf *message = pbuf_alloc_reference(icmp, bytes, PBUF_REF);
	ip6_addr_t src = {0}, dest = {0};
	uint16_t sum;

	if (!message)
		return false;
	memcpy(src.addr, ip + 8, 16);
	memcpy(dest.addr, ip + 24, 16);
	sum = ip6_chksum_pseudo(message, IP6_NEXTH_ICMP6, bytes, &src, &dest);
	memcpy(icmp + 2, &sum, 2);
	pbuf_free(message);
	return true;
}

/* Puts an ICMPv6 message of `bytes` bytes into a frame, and sends it. */
static void send_icmp6(const struct net_port *port, const struct net_nd *nd,
		       const uint8_t *message, uint16_t bytes)
{
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
	memcpy(icmp, message, bytes);
	if (put_checksum(icmp, bytes, ip))
		glue_tx(port->glue, frame);
	else
		glue_frame_free(frame);
}

static void put_mac(uint8_t *option, uint8_t type, const uint8_t *mac)
{
	option[0] = type;
	option[1] = 1;
	memcpy(option + 2, mac, 6);
}

void net_nd_send(const struct net_port *port, const struct net_nd *nd)
{
	uint8_t icmp[NA_BYTES] = {nd->solicits ? SOLICITATION : ADVERTISEMENT};

	icmp[4] = nd->flags;
	memcpy(icmp + 8, nd->target, 16);
	if (!nd->solicits)
		put_mac(icmp + NS_BYTES, TARGET_MAC, nd->own_mac);
	send_icmp6(port, nd, icmp, nd->solicits ? NS_BYTES : NA_BYTES);
}

void net_nd_probe(const struct net_port *port, const uint8_t ip[16])
{
	static const uint8_t none[16];
	uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff};
	uint8_t mac[6] = {0x33, 0x33, 0xff};

	memcpy(group + 13, ip + 13, 3);
	memcpy(mac + 3, ip + 13, 3);
	net_nd_send(port, &(struct net_nd){
				  .to_mac = mac,
				  .own_mac = port->netif0->hwaddr,
				  .src = none,
				  .dest = group,
				  .target = ip,
				  .solicits = true,
			  });
}

/* RFC 4861 4.1. lwIP has a link's link-local address in the first place. */
void net_rs_send(const struct net_port *port)
{
	static const uint8_t none[16], routers[16] = {0xff, 2, [15] = 2};
	static const uint8_t mac[6] = {0x33, 0x33, [5] = 2};
	const struct netif *netif = port->netif0;
	bool has_source = ip6_addr_isvalid(netif_ip6_addr_state(netif, 0));
	uint8_t icmp[RS_BYTES + MAC_OPTION] = {ROUTER_SOLICITATION};
	struct net_nd nd = {.to_mac = mac,
			    .own_mac = netif->hwaddr,
			    .src = none,
			    .dest = routers};

	if (has_source) {
		nd.src = (const void *)netif_ip6_addr(netif, 0)->addr;
		put_mac(icmp + RS_BYTES, SOURCE_MAC, netif->hwaddr);
	}
	send_icmp6(port, &nd, icmp,
		   has_source ? RS_BYTES + MAC_OPTION : RS_BYTES);
}
