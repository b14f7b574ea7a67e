/*
 * Passes received frames to TCP and lwIP.
 */
#include "netstack/link/dhcp.h"
#include "netstack/link/slaac.h"

#include <assert.h>

#include "lwip/ip.h"
#include "lwip/prot/icmp.h"
#include "lwip/prot/icmp6.h"
#include "netif/ethernet.h"

/* Rounds between two looks at the pools: 512 frames a link at most. */
#define POOL_ROUNDS 16

/* A segment's flags beside the version of IP. */
#define PLAIN_TCP (GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK)

/*
 * Out of line: an address was removed, and its connections stay; or ::1 is an
 * address of the stack, and no frame may go there.
 */
__attribute__((noinline)) static bool owns_dest6(const struct net_port *port,
						 const struct glue_frame *frame)
{
	const struct ip6_hdr *ip = (const void *)(frame->data + NET_ETH_HEADER);
	ip6_addr_t dest;

	ip6_addr_copy_from_packed(dest, ip->dest);
	return !ip6_addr_isloopback(&dest) &&
	       net_loop_owns6(port->netif0, &dest);
}

/* May the fast paths take a packet of IPv6? */
static inline bool takes_ip6(const struct net_port *port,
			     const struct glue_frame *frame)
{
	return port->has_ip6 &&
	       (likely(!net_here()->checks_dest6) || owns_dest6(port, frame));
}

/*
 * May TCP have a frame without lwIP's IP layer? dpdk_glue has checked its IP
 * header, that it is no fragment and that it is all there; tcp/check.c checks
 * the source of a segment that opens a connection.
 */
static inline bool is_plain_tcp(const struct net_port *port,
				const struct glue_frame *frame)
{
	const struct ip_hdr *ip = (const void *)(frame->data + NET_ETH_HEADER);
	const struct netif *netif = port->netif0;

	if (frame->next || !netif_is_up(netif))
		return false;
	if (frame->flags == (GLUE_FRAME_IP4 | PLAIN_TCP))
		return ip->dest.addr == netif_ip4_addr(netif)->addr;
	return frame->flags == (GLUE_FRAME_IP6 | PLAIN_TCP) &&
	       frame->l4_off == NET_ETH_HEADER + IP6_HLEN &&
	       net_here()->predicts && takes_ip6(port, frame);
}

/*
 * Queues a plain datagram for the port's first address at its socket. False
 * leaves the frame to lwIP's IP, which also looks for a socket.
 */
static inline bool input_udp(struct net_port *port, struct netif *netif,
			     struct glue_frame *frame)
{
	const struct ip_hdr *ip = (const void *)(frame->data + NET_ETH_HEADER);
	struct net_udp *udp;
	struct pbuf *p;
	unsigned len;

	/* lwIP stores 0.0.0.0 if the link has no address. */
	if (!netif_is_up(netif) ||
	    (frame->flags & GLUE_FRAME_IP4
		     ? ip->dest.addr != netif_ip4_addr(netif)->addr ||
			       !ip->dest.addr
		     : !takes_ip6(port, frame)))
		return false;
	udp = net_udp_find_plain(netif, frame, &len);
	if (!udp)
		return false;
	p = net_frame_wrap(port, frame, (uint16_t)len);
	p->payload = frame->data + frame->l4_off + NET_UDP_HEADER;
	p->len = p->tot_len;
	if (frame->flags & GLUE_FRAME_IP6)
		p->flags |= NET_UDP_IS_V6;
	net_udp_queue(udp, p);
	return true;
}

/*
 * Handles messages for the stack itself; false: not for lwIP. dpdk_glue has
 * checked the format of each.
 */
static bool input_icmp(struct net_port *port, const struct glue_frame *frame)
{
	const uint8_t *icmp = frame->data + frame->l4_off;

	if (net_udp_quoted(frame)) {
		net_udp_icmp_input(port, frame);
		return false;
	}
	if (frame->flags & GLUE_FRAME_IP4) {
		if (icmp[0] != ICMP_DUR)
			return true;
	} else {
		if (icmp[0] == ICMP6_TYPE_NS || icmp[0] == ICMP6_TYPE_NA)
			return net_neighbour_nd(port, frame);
		if (icmp[0] == ICMP6_TYPE_MLQ || icmp[0] == ICMP6_TYPE_MLR)
			return net_group_message(port, frame);
		if (icmp[0] == ICMP6_TYPE_RA)
			return false; /* of use with --addr auto alone */
		if (icmp[0] != ICMP6_TYPE_PTB)
			return true;
	}
	net_too_big_input(port, frame);
	return false;
}

/* RFC 1122 3.2.1.3 (g), RFC 4291 2.5.3: no frame has such an address. */
static bool has_loopback(const struct glue_frame *frame)
{
	const uint8_t *l3 = frame->data + frame->l3_off;
	const struct ip6_hdr *ip6 = (const void *)l3;
	ip6_addr_t src, dest;

	if (frame->flags & GLUE_FRAME_IP4)
		return l3[12] == 127 || l3[16] == 127;
	if (!(frame->flags & GLUE_FRAME_IP6))
		return false;
	ip6_addr_copy_from_packed(src, ip6->src);
	ip6_addr_copy_from_packed(dest, ip6->dest);
	return ip6_addr_isloopback(&src) || ip6_addr_isloopback(&dest);
}

/* May lwIP see a frame, and on which of the port's interfaces? */
static bool admit_frame(struct net_port *port, struct glue_frame *frame,
			struct netif **netif)
{
	uint16_t flags = frame->flags;

	if (flags & GLUE_FRAME_ARP)
		return net_neighbour_arp(port, frame, netif);
	if (((flags & GLUE_FRAME_IP6) && !port->has_ip6) || has_loopback(frame))
		return false;
	if (flags & GLUE_FRAME_ICMP)
		return input_icmp(port, frame);
	if (flags & GLUE_FRAME_IGMP)
		return net_group_message(port, frame);
	return (flags & (GLUE_FRAME_TCP | GLUE_FRAME_UDP)) != 0;
}

/* Delivers a datagram to a group, whatever its headers look like. */
static void input_group(struct net_port *port, struct glue_frame *frame)
{
	unsigned l3_off = frame->l3_off, l4_off = frame->l4_off;
	struct pbuf *p = frame->next
				 ? net_frame_wrap_chain(port, frame)
				 : net_frame_wrap(port, frame, frame->seg_len);

	net_udp_group_input((unsigned)(port - net_here()->ports), p, l3_off,
			    l4_off);
}

/* Handles all but plain segments for the port's first address. */
static void input_other(struct net_port *port, struct glue_frame *frame)
{
	struct netif *netif = port->netif0;
	uint16_t flags = frame->flags;
	struct pbuf *p;

	if (unlikely(net_dhcp_has(port)) && net_dhcp_input(port, frame)) {
		glue_frame_free(frame);
		return;
	}
	if (unlikely(port->exception) && net_exception_input(port, frame)) {
		glue_frame_free(frame);
		return;
	}
	if (unlikely(net_slaac_has(port)) && net_slaac_input(port, frame)) {
		glue_frame_free(frame);
		return;
	}
	if (flags & GLUE_FRAME_UDP &&
	    net_group_is_dest(frame->data + frame->l3_off)) {
		input_group(port, frame);
		return;
	}
	if (!admit_frame(port, frame, &netif)) {
		net_here()->stats.rx_refused++;
		glue_frame_free(frame);
		return;
	}
	p = frame->next ? net_frame_wrap_chain(port, frame)
			: net_frame_wrap(port, frame, frame->seg_len);
	if (flags & (GLUE_FRAME_ARP | GLUE_FRAME_MCAST)) {
		ethernet_input(p, netif);
		return;
	}
	p->payload = frame->data + NET_ETH_HEADER;
	p->len = (uint16_t)(p->len - NET_ETH_HEADER);
	p->tot_len = (uint16_t)(p->tot_len - NET_ETH_HEADER);
	if (flags & GLUE_FRAME_IP4)
		ip4_input(p, netif);
	else
		ip6_input(p, netif);
}

/* To us alone, and verified: UDP over IPv4 may have no checksum. */
static inline bool is_plain_udp(const struct glue_frame *frame)
{
	unsigned flags = frame->flags & ~(unsigned)GLUE_FRAME_CSUM_OK;

	return flags == (GLUE_FRAME_IP4 | GLUE_FRAME_UDP) ||
	       flags == (GLUE_FRAME_IP6 | GLUE_FRAME_UDP);
}

static inline void input_burst(struct net_port *port,
			       struct glue_frame *const *frames, unsigned n)
{
	struct glue_frame *const *end = frames + n;

	while (frames < end) {
		n = 0;
		while (frames + n < end && is_plain_tcp(port, frames[n]))
			n++;
		if (n > 0) {
			net_tcp_input_burst(port, frames, n);
			frames += n;
			continue;
		}
		if (!is_plain_udp(*frames) ||
		    !input_udp(port, port->netif0, *frames))
			input_other(port, *frames);
		frames++;
	}
}

/* Updates how many more frames connections may hold: others hold some, too. */
static void look_at_pools(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++) {
		struct net_port *port = &net_here()->ports[i];

		port->frames_to_hold = glue_port_frames_spare(port->glue);
	}
}

unsigned net_link_rx(void)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned total = 0;

	if (unlikely(net_here()->stats.rounds % POOL_ROUNDS == 0))
		look_at_pools();
	for (unsigned i = 0; i < net_here()->n_ports; i++) {
		struct net_port *port = &net_here()->ports[i];
		unsigned n = glue_rx(port->glue, frames, GLUE_BURST);

		total += n;
		if (unlikely(net_here()->shed_until_ns > net_here()->now_ns))
			n = net_syn_limit_shed(port, frames, n);
		input_burst(port, frames, n);
	}
	if (net_here()->n_shards > 1)
		net_loop_take_over();
	if (unlikely(net_link_loops()))
		total += net_loop_input();
	return total;
}
