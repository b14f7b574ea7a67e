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

#include "dpdk_glue/glue_csum.h"

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

/*
 * The neighbour of a destination, if the datagram may have the address that
 * was last used there; NULL: lwIP's IP sends it.
 */
static const struct net_neighbour *find_neighbour4(struct net_udp_path *path)
{
	const struct net_neighbour *slot =
		net_neighbour_known(ip_2_ip4(&path->remote));
	uint32_t own, local = ip_2_ip4(&path->local)->addr;

	if (!slot)
		return NULL;
	own = netif_ip4_addr(slot->netif)->addr;
	if (local ? local != own : !slot->by_route)
		return NULL;
	path->port = net_port_of(slot->netif);
	return slot;
}

/* Writes the headers, sums apart. */
static void put_headers4(uint8_t *at, struct net_udp_path *path,
			 const struct net_neighbour *slot, unsigned len)
{
	const ip4_addr_t *dest = ip_2_ip4(&path->remote);
	struct ip_hdr *ip = (void *)(at + NET_ETH_HEADER);

	ip_2_ip4(&path->local)->addr = netif_ip4_addr(slot->netif)->addr;
	memcpy(at, slot->header, sizeof(slot->header));
	IPH_TOS_SET(ip, path->tos);
	IPH_LEN_SET(ip, lwip_htons((uint16_t)(IP_HLEN + NET_UDP_HEADER + len)));
	IPH_ID_SET(ip, net_ip_id(dest));
	IPH_OFFSET_SET(ip, net_path_df(dest) ? PP_HTONS(IP_DF) : 0);
	IPH_TTL_SET(ip, path->ttl);
	IPH_PROTO_SET(ip, IP_PROTO_UDP);
	put_udp(ip + 1, path, len);
}

static int send_packet4(struct net_udp_path *path, const struct iovec *iov,
			unsigned n, unsigned len, struct net_extbuf *ext)
{
	const struct net_neighbour *slot = find_neighbour4(path);
	struct glue_frame *frame;
	struct glue_port *glue;

	if (!slot)
		return -EINPROGRESS;
	glue = path->port->glue;
	frame = make_frame(glue, FRAME4, iov, n, len, ext);
	if (!frame)
		return -EAGAIN;
	put_headers4(frame->data, path, slot, len);
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

static const struct nd6_neighbor_cache_entry *
find_neighbour6(struct net_udp_path *path)
{
	const struct nd6_neighbor_cache_entry *entry =
		net_neighbour_known6(ip_2_ip6(&path->remote));

	if (!entry || !netif_is_up(entry->netif) ||
	    !netif_is_link_up(entry->netif) ||
	    netif_get_ip6_addr_match(entry->netif, ip_2_ip6(&path->local)) < 0)
		return NULL;
	path->port = net_port_of(entry->netif);
	return entry;
}

static void put_headers6(uint8_t *at, const struct net_udp_path *path,
			 const struct nd6_neighbor_cache_entry *entry,
			 unsigned len)
{
	struct ip6_hdr *ip = (void *)(at + NET_ETH_HEADER);

	memcpy(at, entry->lladdr, 6);
	memcpy(at + 6, entry->netif->hwaddr, 6);
	at[12] = ETHTYPE_IPV6 >> 8;
	at[13] = ETHTYPE_IPV6 & 0xff;
	put_ip6(ip, path, len);
	put_udp(ip + 1, path, len);
}

static int send_packet6(struct net_udp_path *path, const struct iovec *iov,
			unsigned n, unsigned len, struct net_extbuf *ext)
{
	const struct nd6_neighbor_cache_entry *entry = find_neighbour6(path);
	struct glue_frame *frame;
	struct glue_port *glue;

	if (!entry)
		return -EINPROGRESS;
	glue = path->port->glue;
	frame = make_frame(glue, FRAME6, iov, n, len, ext);
	if (!frame)
		return -EAGAIN;
	put_headers6(frame->data, path, entry, len);
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP6_HLEN;
	frame->flags = GLUE_FRAME_IP6 | GLUE_FRAME_UDP;
	glue_tx(glue, frame);
	return 0;
}

/* ---- in the frame in which a datagram has come ---- */

/*
 * The sums of the addresses and of the ports, as UDP's checksum has them. What
 * is to be sent is summed from the path: a header's fields that were just
 * stored would be loaded slowly.
 */
struct ends {
	uint64_t addrs, ports;
};

static inline uint64_t sum_words(const void *at, unsigned words)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < words; i++) {
		uint32_t word;

		memcpy(&word, (const uint8_t *)at + 4 * i, 4);
		sum += word;
	}
	return sum;
}

static inline struct ends ends_of(const struct udp_hdr *udp, unsigned words)
{
	return (struct ends){sum_words((const uint8_t *)udp - 4 * words, words),
			     (uint64_t)udp->src + udp->dest};
}

static inline uint64_t sum_ports(const struct net_udp_path *path)
{
	return (uint64_t)lwip_htons(path->local_port) +
	       lwip_htons(path->remote_port);
}

/*
 * Returns the checksum after the ends have changed (RFC 1624); that of an
 * answer, whose ends are exchanged, is the old one. 0: there is none to begin
 * with. A virtual peer may have left the sum of the pseudo header alone, which
 * is no checksum of the datagram (csum=trust).
 */
static inline uint16_t renew_sum(const struct udp_hdr *udp,
				 const struct ends *was, const struct ends *now)
{
	uint16_t sum = udp->chksum;

	if (glue_sum_fold(was->addrs + udp->len + PP_HTONS(IP_PROTO_UDP)) ==
	    sum)
		return 0;
	if (sum == 0 ||
	    likely(now->addrs == was->addrs && now->ports == was->ports))
		return sum;
	sum = (uint16_t)~glue_sum_fold(
		(uint64_t)(uint16_t)~sum +
		(uint16_t)~glue_sum_fold(was->addrs + was->ports) +
		glue_sum_fold(now->addrs + now->ports));
	return sum ? sum : 0xffff; /* RFC 768: zero means none */
}

/* The checksum of a header that put_headers4() has written. */
static inline uint16_t sum_header4(const struct ip_hdr *ip,
				   const struct net_udp_path *path,
				   uint64_t addrs)
{
	return (uint16_t)~glue_sum_fold(
		addrs + (0x45u | (uint32_t)path->tos << 8) + IPH_LEN(ip) +
		IPH_ID(ip) + IPH_OFFSET(ip) +
		(path->ttl | (uint32_t)IP_PROTO_UDP << 8));
}

static int send_held4(struct net_udp_path *path, const struct pbuf *p)
{
	const struct net_neighbour *slot = find_neighbour4(path);
	struct glue_frame *frame = net_frame_around(p);
	struct udp_hdr *udp;
	struct ends was, now;
	struct ip_hdr *ip;
	uint16_t sum;

	if (!slot || p->payload != frame->data + FRAME4 ||
	    !glue_tx_again(path->port->glue, frame, FRAME4 + p->len))
		return -EINPROGRESS;
	ip = (void *)(frame->data + NET_ETH_HEADER);
	udp = (void *)(ip + 1);
	now = (struct ends){(uint64_t)ip_2_ip4(&path->remote)->addr +
				    netif_ip4_addr(slot->netif)->addr,
			    sum_ports(path)};
	was = ends_of(udp, 2);
	sum = renew_sum(udp, &was, &now);
	put_headers4(frame->data, path, slot, p->len);
	udp->chksum = sum;
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP_HLEN;
	if (likely(sum)) {
		IPH_CHKSUM_SET(ip, sum_header4(ip, path, now.addrs));
		frame->flags = 0; /* nothing is left to sum */
	} else {
		frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_UDP;
	}
	glue_tx(path->port->glue, frame);
	return 0;
}

static int send_held6(struct net_udp_path *path, const struct pbuf *p)
{
	const struct nd6_neighbor_cache_entry *entry = find_neighbour6(path);
	struct glue_frame *frame = net_frame_around(p);
	struct ends was, now;
	struct udp_hdr *udp;
	uint16_t sum;

	if (!entry || p->payload != frame->data + FRAME6 ||
	    !glue_tx_again(path->port->glue, frame, FRAME6 + p->len))
		return -EINPROGRESS;
	udp = (void *)(frame->data + NET_ETH_HEADER + IP6_HLEN);
	now = (struct ends){sum_words(ip_2_ip6(&path->local)->addr, 4) +
				    sum_words(ip_2_ip6(&path->remote)->addr, 4),
			    sum_ports(path)};
	was = ends_of(udp, 8);
	sum = renew_sum(udp, &was, &now);
	put_headers6(frame->data, path, entry, p->len);
	udp->chksum = sum;
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP6_HLEN;
	frame->flags = sum ? 0 : GLUE_FRAME_IP6 | GLUE_FRAME_UDP;
	glue_tx(path->port->glue, frame);
	return 0;
}

int net_link_send_held(struct net_udp_path *path, const struct pbuf *p)
{
	bool is_v6 = p->flags & NET_UDP_IS_V6;

	if (is_v6 != IP_IS_V6_VAL(path->remote))
		return -EINPROGRESS;
	return is_v6 ? send_held6(path, p) : send_held4(path, p);
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
