/*
 * Sends messages of DHCP: broadcast in frames that are built here, since the
 * host may have no address yet (RFC 2131 4.1), or by UDP as any datagram.
 */
#include "netstack/link/dhcp.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/ieee.h"
#include "lwip/prot/udp.h"

#define TTL 64u

void net_dhcp_broadcast(const struct net_dhcp *client,
			const struct net_dhcp_out *msg, uint32_t from)
{
	const unsigned udp_bytes = NET_UDP_HEADER + NET_DHCP_BYTES;
	struct glue_port *glue = client->port->glue;
	struct glue_frame *frame =
		glue_tx_alloc(glue, NET_ETH_HEADER + IP_HLEN + udp_bytes);
	struct udp_hdr *udp;
	struct ip_hdr *ip;

	if (!frame)
		return; /* it is sent again */
	if (frame->next) {
		glue_frame_free(frame);
		return;
	}
	memset(frame->data, 0, NET_ETH_HEADER + IP_HLEN + NET_UDP_HEADER);
	memset(frame->data, 0xff, 6);
	memcpy(frame->data + 6, msg->mac, 6);
	frame->data[12] = ETHTYPE_IP >> 8;
	ip = (void *)(frame->data + NET_ETH_HEADER);
	IPH_VHL_SET(ip, 4, IP_HLEN / 4);
	IPH_LEN_SET(ip, lwip_htons((uint16_t)(IP_HLEN + udp_bytes)));
	IPH_TTL_SET(ip, TTL);
	IPH_PROTO_SET(ip, IP_PROTO_UDP);
	ip->src.addr = from;
	ip->dest.addr = IPADDR_BROADCAST;
	udp = (void *)(ip + 1);
	udp->src = PP_HTONS(NET_DHCP_CLIENT_PORT);
	udp->dest = PP_HTONS(NET_DHCP_SERVER_PORT);
	udp->len = lwip_htons((uint16_t)udp_bytes);
	net_dhcp_write(msg, (uint8_t *)(udp + 1));
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP_HLEN;
	frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_UDP;
	glue_tx(glue, frame);
}

void net_dhcp_unicast(const struct net_dhcp *client,
		      const struct net_dhcp_out *msg)
{
	struct net_udp_path path = {.local_port = NET_DHCP_CLIENT_PORT,
				    .remote_port = NET_DHCP_SERVER_PORT,
				    .ttl = TTL};
	uint8_t bytes[NET_DHCP_BYTES];
	struct iovec iov = {bytes, sizeof(bytes)};

	net_addr_to_lwip(&client->lease.addr, &path.local);
	ip_addr_set_ip4_u32_val(path.remote, client->server);
	net_dhcp_write(msg, bytes);
	if (net_link_send_udp(&path, &iov, 1, sizeof(bytes), NULL) < 0)
		net_link_route_udp(&path, &iov, 1, sizeof(bytes));
}
