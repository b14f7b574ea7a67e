/*
 * Sends datagrams of UDP as frames, or by lwIP's IP while the neighbour is not
 * known.
 */
#include "netstack/link/link_priv.h"

#include <errno.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/prot/ieee.h"
#include "lwip/prot/udp.h"

#define FRAME4 (NET_ETH_HEADER + IP_HLEN + NET_UDP_HEADER)
#define FRAME6 (NET_ETH_HEADER + (unsigned)IP6_HLEN + NET_UDP_HEADER)

/* Bytes in a frame of one or several segments, from `off` on. */
static void copy_vectors(struct glue_frame *frame, unsigned off,
			 const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *from = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left) {
			size_t part =
				LWIP_MIN(left, (size_t)(frame->seg_len - off));

			memcpy(frame->data + off, from, part);
			from += part;
			left -= part;
			off += (unsigned)part;
			if (off == frame->seg_len && left) {
				frame = frame->next;
				off = 0;
			} else if (off == frame->seg_len && frame->next) {
				frame = frame->next;
				off = 0;
			}
		}
	}
}

/* A frame with the payload behind `off` bytes of headers; NULL: no room. */
static struct glue_frame *make_frame(struct glue_port *glue, unsigned off,
				     const struct iovec *iov, unsigned n,
				     unsigned len, struct net_extbuf *ext)
{
	struct glue_frame *frame;

	if (ext && n == 1 && len >= NET_EXTBUF_MIN && glue_port_lends(glue)) {
		frame = glue_tx_alloc(glue, off);
		if (!frame)
			return NULL;
		if (net_extbuf_lend(ext, glue, frame, iov->iov_base, len))
			return frame;
		glue_frame_free(frame);
		return NULL;
	}
	frame = glue_tx_alloc(glue, off + len);
	if (!frame)
		return NULL;
	if (likely(n == 1 && !frame->next)) {
		if (len)
			memcpy(frame->data + off, iov->iov_base, len);
	} else {
		copy_vectors(frame, off, iov, n);
	}
	return frame;
}

/* The port fills in the checksum. */
static inline void put_udp(void *at, const struct net_udp_path *path,
			   unsigned len)
{
	struct udp_hdr *udp = at;

	udp->src = lwip_htons(path->local_port);
	udp->dest = lwip_htons(path->remote_port);
	udp->len = lwip_htons((uint16_t)(NET_UDP_HEADER + len));
	udp->chksum = 0;
}

static int send_packet4(struct net_udp_path *path, const struct iovec *iov,
			unsigned n, unsigned len, struct net_extbuf *ext)
{
	const ip4_addr_t *dest = ip_2_ip4(&path->remote);
	const struct net_neighbour *slot = net_neighbour_known(dest);
	struct glue_frame *frame;
	struct glue_port *glue;
	struct ip_hdr *ip;
	uint32_t own;

	if (!slot)
		return -EINPROGRESS;
	own = netif_ip4_addr(slot->netif)->addr;
	if (ip_2_ip4(&path->local)->addr && ip_2_ip4(&path->local)->addr != own)
		return -EINPROGRESS;
	path->port = net_port_of(slot->netif);
	glue = path->port->glue;
	frame = make_frame(glue, FRAME4, iov, n, len, ext);
	if (!frame)
		return -EAGAIN;
	ip_2_ip4(&path->local)->addr = own;
	memcpy(frame->data, slot->header, sizeof(slot->header));
	ip = (void *)(frame->data + NET_ETH_HEADER);
	IPH_TOS_SET(ip, path->tos);
	IPH_LEN_SET(ip, lwip_htons((uint16_t)(IP_HLEN + NET_UDP_HEADER + len)));
	IPH_ID_SET(ip, net_ip_id(dest));
	IPH_OFFSET_SET(ip, net_path_df(dest) ? PP_HTONS(IP_DF) : 0);
	IPH_TTL_SET(ip, path->ttl);
	IPH_PROTO_SET(ip, IP_PROTO_UDP);
	put_udp(ip + 1, path, len);
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP_HLEN;
	frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_UDP;
	glue_tx(glue, frame);
	return 0;
}

static void put_ip6(struct ip6_hdr *ip, const struct net_udp_path *path,
		    unsigned len)
{
	IP6H_VTCFL_SET(ip, 6, path->tos, 0);
	IP6H_PLEN_SET(ip, (uint16_t)(NET_UDP_HEADER + len));
	IP6H_NEXTH_SET(ip, IP6_NEXTH_UDP);
	IP6H_HOPLIM_SET(ip, path->ttl);
	ip6_addr_copy_to_packed(ip->src, *ip_2_ip6(&path->local));
	ip6_addr_copy_to_packed(ip->dest, *ip_2_ip6(&path->remote));
}

static int send_packet6(struct net_udp_path *path, const struct iovec *iov,
			unsigned n, unsigned len, struct net_extbuf *ext)
{
	const struct nd6_neighbor_cache_entry *entry =
		net_neighbour_known6(ip_2_ip6(&path->remote));
	struct glue_frame *frame;
	struct glue_port *glue;
	struct ip6_hdr *ip;

	if (!entry || !netif_is_up(entry->netif) ||
	    !netif_is_link_up(entry->netif) ||
	    netif_get_ip6_addr_match(entry->netif, ip_2_ip6(&path->local)) < 0)
		return -EINPROGRESS;
	path->port = net_port_of(entry->netif);
	glue = path->port->glue;
	frame = make_frame(glue, FRAME6, iov, n, len, ext);
	if (!frame)
		return -EAGAIN;
	memcpy(frame->data, entry->lladdr, 6);
	memcpy(frame->data + 6, entry->netif->hwaddr, 6);
	frame->data[12] = ETHTYPE_IPV6 >> 8;
	frame->data[13] = ETHTYPE_IPV6 & 0xff;
	ip = (void *)(frame->data + NET_ETH_HEADER);
	put_ip6(ip, path, len);
	put_udp(ip + 1, path, len);
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP6_HLEN;
	frame->flags = GLUE_FRAME_IP6 | GLUE_FRAME_UDP;
	glue_tx(glue, frame);
	return 0;
}

int net_link_send_udp(struct net_udp_path *path, const struct iovec *iov,
		      unsigned n, unsigned len, struct net_extbuf *ext)
{
	return IP_IS_V6_VAL(path->remote)
		       ? send_packet6(path, iov, n, len, ext)
		       : send_packet4(path, iov, n, len, ext);
}

/* A datagram to a group leaves by the link of its source. */
static struct netif *route_find(const struct net_udp_path *path)
{
	const struct net_ifaddr *own;

	if (!ip_addr_ismulticast(&path->remote))
		return ip_route(&path->local, &path->remote);
	own = net_ifaddr_of(&path->local);
	return own ? own->netif : NULL;
}

static void gather_payload(uint8_t *to, const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (iov[i].iov_len)
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

int net_link_route_udp(struct net_udp_path *path, const struct iovec *iov,
		       unsigned n, unsigned len)
{
	struct netif *netif = route_find(path);
	struct pbuf *p;
	err_t err;

	if (!netif)
		return -EHOSTUNREACH;
	path->port = net_port_of(netif);
	if (glue_tx_busy(path->port->glue))
		return -EAGAIN;
	p = pbuf_alloc(PBUF_IP, (uint16_t)(NET_UDP_HEADER + len), PBUF_RAM);
	if (!p)
		return -ENOMEM;
	put_udp(p->payload, path, len);
	gather_payload((uint8_t *)p->payload + NET_UDP_HEADER, iov, n);
	err = ip_output_if(p, &path->local, &path->remote, path->ttl, path->tos,
			   IP_PROTO_UDP, netif);
	pbuf_free(p);
	if (err == ERR_OK)
		return 0;
	return err == ERR_MEM || err == ERR_BUF ? -ENOMEM : -EHOSTUNREACH;
}

/* ---- to groups that own sockets have joined ---- */

static void put_ip4(struct ip_hdr *ip, const struct net_udp_path *path,
		    unsigned len)
{
	memset(ip, 0, IP_HLEN);
	IPH_VHL_SET(ip, 4, IP_HLEN / 4);
	IPH_TOS_SET(ip, path->tos);
	IPH_LEN_SET(ip, lwip_htons((uint16_t)(IP_HLEN + NET_UDP_HEADER + len)));
	IPH_TTL_SET(ip, path->ttl);
	IPH_PROTO_SET(ip, IP_PROTO_UDP);
	ip->src.addr = ip_2_ip4(&path->local)->addr;
	ip->dest.addr = ip_2_ip4(&path->remote)->addr;
}

void net_link_loop_group(const struct net_udp_path *path,
			 const struct iovec *iov, unsigned n, unsigned len)
{
	const struct netif *netif = route_find(path);
	bool is_v6 = IP_IS_V6_VAL(path->remote);
	unsigned header = is_v6 ? (unsigned)IP6_HLEN : IP_HLEN;
	struct pbuf *p;
	uint8_t *to;

	if (!netif || !net_udp_group_find(net_link_of(netif), &path->remote))
		return;
	p = pbuf_alloc(PBUF_RAW, (uint16_t)(header + NET_UDP_HEADER + len),
		       PBUF_RAM);
	if (!p) {
		net_here()->stats.loop_drops++;
		return;
	}
	to = p->payload;
	if (is_v6)
		put_ip6((void *)to, path, len);
	else
		put_ip4((void *)to, path, len);
	put_udp(to + header, path, len);
	gather_payload(to + header + NET_UDP_HEADER, iov, n);
	net_loop_push(netif, p);
}
