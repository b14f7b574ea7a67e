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

/* The first user words of a frame are lwIP's pbuf of its segment. */
static_assert(sizeof(struct pbuf_custom) <=
		      NET_PORT_WORD * sizeof(((struct glue_frame *)0)->user[0]),
	      "lwIP's pbuf fits into a frame");

static inline struct pbuf_custom *pbuf_of(struct glue_frame *frame)
{
	return (struct pbuf_custom *)(void *)frame->user;
}

static void free_frame(struct pbuf *p)
{
	net_frame_port(p)->frames_in--;
	glue_frame_free(
		(struct glue_frame *)(void *)((char *)p -
					      offsetof(struct glue_frame,
						       user)));
}

static inline struct pbuf *wrap_one(struct net_port *port,
				    struct glue_frame *frame, u16_t tot_len)
{
	struct pbuf_custom *pc = pbuf_of(frame);
	struct pbuf *p = &pc->pbuf;

	pc->custom_free_function = free_frame;
	p->next = NULL;
	p->payload = frame->data;
	p->tot_len = tot_len;
	p->len = frame->seg_len;
	p->type_internal = PBUF_REF;
	p->flags = PBUF_FLAG_IS_CUSTOM;
	p->ref = 1;
	p->if_idx = NETIF_NO_INDEX;
	frame->user[NET_PORT_WORD] = (uintptr_t)port;
	port->frames_in++;
	return p;
}

/* Cold: a frame in several segments becomes as many pbufs. */
__attribute__((noinline)) static struct pbuf *
wrap_chain(struct net_port *port, struct glue_frame *frame)
{
	struct pbuf *head = NULL, **link = &head;
	unsigned total = 0;

	for (struct glue_frame *f = frame; f; f = f->next)
		total += f->seg_len;
	glue_frame_split(frame);
	for (struct glue_frame *f = frame; f; f = f->next) {
		*link = wrap_one(port, f, (u16_t)total);
		link = &(*link)->next;
		total -= f->seg_len;
	}
	return head;
}

/* Has a router marked a packet? Then it takes the full path. */
static inline bool is_marked(unsigned tos)
{
	return (tos & NET_ECN_FIELD) == NET_ECN_CE;
}

static inline struct net_conn *find_conn4(const struct ip_hdr *ip,
					  const struct tcp_hdr *tcp)
{
	return net_demux_find4(ip->dest.addr, lwip_ntohs(tcp->dest),
			       ip->src.addr, lwip_ntohs(tcp->src));
}

static inline struct net_conn *find_conn6(const struct netif *netif,
					  const struct ip6_hdr *ip,
					  const struct tcp_hdr *tcp,
					  ip_addr_t *remote)
{
	ip_addr_t local;

	ip_addr_copy_from_ip6_packed(local, ip->dest);
	ip_addr_copy_from_ip6_packed(*remote, ip->src);
	ip6_addr_assign_zone(ip_2_ip6(&local), IP6_UNKNOWN, netif);
	ip6_addr_assign_zone(ip_2_ip6(remote), IP6_UNKNOWN, netif);
	return net_demux_find(&local, lwip_ntohs(tcp->dest), remote,
			      lwip_ntohs(tcp->src));
}

static inline bool input_predicted6(const struct netif *netif,
				    const struct ip6_hdr *ip, struct pbuf *p)
{
	struct net_conn *conn;
	ip_addr_t remote;

	if (p->len < TCP_HLEN || is_marked(IP6H_TC(ip)))
		return false;
	conn = find_conn6(netif, ip, p->payload, &remote);
	if (!conn || !net_predict_input(conn, p))
		return false;
	net_neighbour_confirm6(ip_2_ip6(&remote));
	return true;
}

/* Sets what lwIP's IP layer would, and passes a segment to TCP. Owns p. */
__attribute__((noinline)) static void input_unpredicted4(struct netif *netif,
							 struct ip_hdr *ip,
							 struct net_conn *conn,
							 struct pbuf *p)
{
	ip_data.current_netif = netif;
	ip_data.current_input_netif = netif;
	ip_data.current_ip4_header = ip;
	ip_data.current_ip_header_tot_len = IPH_HL_BYTES(ip);
	ip_addr_copy_from_ip4(ip_data.current_iphdr_src, ip->src);
	ip_addr_copy_from_ip4(ip_data.current_iphdr_dest, ip->dest);
	net_tcp_input_found(conn, p, netif);
	ip_data.current_netif = NULL;
	ip_data.current_input_netif = NULL;
	ip_data.current_ip4_header = NULL;
	ip_data.current_ip_header_tot_len = 0;
}

/*
 * Cold: an address was removed, and its connections stay; or ::1 is an address
 * of the stack, and no frame may go there.
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
 * Passes a TCP segment to TCP without lwIP's IP layer: dpdk_glue has checked
 * its IP header, that it is no fragment and that it is all there; tcp/check.c
 * checks the source of a segment that opens a connection. False leaves the
 * frame to lwIP's IP.
 */
static inline bool input_tcp4(struct net_port *port, struct netif *netif,
			      struct glue_frame *frame)
{
	struct ip_hdr *ip =
		(struct ip_hdr *)(void *)(frame->data + NET_ETH_HEADER);
	unsigned header = frame->l4_off - NET_ETH_HEADER;
	struct net_conn *conn = NULL;
	struct pbuf *p;

	if (frame->next || ip->dest.addr != netif_ip4_addr(netif)->addr ||
	    !netif_is_up(netif))
		return false;
	p = wrap_one(port, frame, (u16_t)(lwip_ntohs(IPH_LEN(ip)) - header));
	p->payload = frame->data + frame->l4_off;
	p->len = p->tot_len;
	if (p->len >= TCP_HLEN)
		conn = find_conn4(ip, p->payload);
	if (!conn || !net_here()->predicts || is_marked(IPH_TOS(ip)) ||
	    !net_predict_input(conn, p))
		input_unpredicted4(netif, ip, conn, p);
	return true;
}

/* Like input_tcp4(), for IPv6 with TCP's header right after IP's. */
static inline bool input_tcp6(struct net_port *port, struct netif *netif,
			      struct glue_frame *frame)
{
	const struct ip6_hdr *ip = (const void *)(frame->data + NET_ETH_HEADER);
	struct pbuf *p;

	if (frame->next || frame->l4_off != NET_ETH_HEADER + IP6_HLEN ||
	    !net_here()->predicts || !takes_ip6(port, frame) ||
	    !netif_is_up(netif))
		return false;
	p = wrap_one(port, frame, IP6H_PLEN(ip));
	p->payload = frame->data + frame->l4_off;
	p->len = p->tot_len;
	if (input_predicted6(netif, ip, p))
		return true;
	p->payload = frame->data + NET_ETH_HEADER;
	p->len = p->tot_len = (u16_t)(frame->seg_len - NET_ETH_HEADER);
	ip6_input(p, netif);
	return true;
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

	if (!netif_is_up(netif) ||
	    (frame->flags & GLUE_FRAME_IP4
		     ? ip->dest.addr != netif_ip4_addr(netif)->addr
		     : !takes_ip6(port, frame)))
		return false;
	udp = net_udp_find_plain(netif, frame, &len);
	if (!udp)
		return false;
	p = wrap_one(port, frame, (u16_t)len);
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
	struct pbuf *p = frame->next ? wrap_chain(port, frame)
				     : wrap_one(port, frame, frame->seg_len);

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
	p = frame->next ? wrap_chain(port, frame)
			: wrap_one(port, frame, frame->seg_len);
	if (flags & (GLUE_FRAME_ARP | GLUE_FRAME_MCAST)) {
		ethernet_input(p, netif);
		return;
	}
	p->payload = frame->data + NET_ETH_HEADER;
	p->len = (u16_t)(p->len - NET_ETH_HEADER);
	p->tot_len = (u16_t)(p->tot_len - NET_ETH_HEADER);
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

static inline void input_frame(struct net_port *port, struct glue_frame *frame)
{
	bool done = false;

	if (frame->flags == (GLUE_FRAME_IP4 | PLAIN_TCP))
		done = input_tcp4(port, port->netif0, frame);
	else if (frame->flags == (GLUE_FRAME_IP6 | PLAIN_TCP))
		done = input_tcp6(port, port->netif0, frame);
	else if (is_plain_udp(frame))
		done = input_udp(port, port->netif0, frame);
	if (!done)
		input_other(port, frame);
}

/* ---- runs: segments of one connection, one right behind the other ---- */

/* Small segments rarely arrive back to back, and each test costs them more. */
#define RUN_BYTES 512u

/* A cheap test for any frames: most begin no run. */
static inline bool may_run(const struct glue_frame *first,
			   const struct glue_frame *second)
{
	uint32_t a, b; /* both ports */

	memcpy(&a, first->data + first->l4_off, sizeof(a));
	memcpy(&b, second->data + second->l4_off, sizeof(b));
	return a == b;
}

/* Is it a segment that input_tcp4() or input_tcp6() would take? */
static bool is_plain(const struct net_port *port,
		     const struct glue_frame *frame)
{
	const struct ip_hdr *ip = (const void *)(frame->data + NET_ETH_HEADER);

	if (frame->next || !net_here()->predicts || !netif_is_up(port->netif0))
		return false;
	if (frame->flags == (GLUE_FRAME_IP4 | PLAIN_TCP))
		return ip->dest.addr == netif_ip4_addr(port->netif0)->addr &&
		       !is_marked(IPH_TOS(ip));
	return frame->flags == (GLUE_FRAME_IP6 | PLAIN_TCP) &&
	       !is_marked(IP6H_TC((const struct ip6_hdr *)(const void *)ip)) &&
	       frame->l4_off == NET_ETH_HEADER + IP6_HLEN &&
	       takes_ip6(port, frame);
}

/* Wraps TCP's part of a plain segment. NULL: it has no room for a header. */
static struct pbuf *wrap_segment(struct net_port *port,
				 struct glue_frame *frame)
{
	const void *ip = frame->data + NET_ETH_HEADER;
	unsigned header = frame->l4_off - NET_ETH_HEADER;
	unsigned len =
		frame->flags & GLUE_FRAME_IP4
			? lwip_ntohs(IPH_LEN((const struct ip_hdr *)ip)) -
				  header
			: IP6H_PLEN((const struct ip6_hdr *)ip);
	struct pbuf *p;

	if (len < TCP_HLEN)
		return NULL;
	p = wrap_one(port, frame, (u16_t)len);
	p->payload = frame->data + frame->l4_off;
	p->len = p->tot_len;
	return p;
}

static struct net_conn *find_conn(const struct net_port *port,
				  const struct glue_frame *frame)
{
	const void *ip = frame->data + NET_ETH_HEADER;
	const struct tcp_hdr *tcp = (const void *)(frame->data + frame->l4_off);
	ip_addr_t remote;

	if (frame->flags & GLUE_FRAME_IP6)
		return find_conn6(port->netif0, ip, tcp, &remote);
	return find_conn4(ip, tcp);
}

static bool is_for_conn(const struct tcp_pcb *pcb,
			const struct glue_frame *frame)
{
	const void *ip = frame->data + NET_ETH_HEADER;
	const struct tcp_hdr *tcp = (const void *)(frame->data + frame->l4_off);
	const struct ip_hdr *ip4 = ip;
	const struct ip6_hdr *ip6 = ip;

	if (tcp->src != lwip_htons(pcb->remote_port) ||
	    tcp->dest != lwip_htons(pcb->local_port))
		return false;
	if (frame->flags & GLUE_FRAME_IP6)
		return IP_IS_V6_VAL(pcb->remote_ip) &&
		       !memcmp(&ip6->src, ip_2_ip6(&pcb->remote_ip),
			       sizeof(ip6->src)) &&
		       !memcmp(&ip6->dest, ip_2_ip6(&pcb->local_ip),
			       sizeof(ip6->dest));
	return IP_IS_V4_VAL(pcb->remote_ip) &&
	       ip4->src.addr == ip_2_ip4(&pcb->remote_ip)->addr &&
	       ip4->dest.addr == ip_2_ip4(&pcb->local_ip)->addr;
}

/*
 * Does header prediction take the segment, the first of a run or the next one?
 * If not, the frame is as it was.
 */
static inline bool take_predicted(struct net_conn *conn, struct net_port *port,
				  struct glue_frame *frame,
				  bool (*predict)(struct net_conn *,
						  struct pbuf *))
{
	struct pbuf *p = wrap_segment(port, frame);

	if (p && predict(conn, p))
		return true;
	if (p)
		port->frames_in--;
	return false;
}

/*
 * Takes a run of segments of one connection together, as GRO does, from the
 * first frame on. Returns how many there were, of two frames or more. Nothing
 * happens between them: no other frame, no lwIP, no coroutine, so the
 * connection that was found is that of all.
 */
__attribute__((noinline)) static unsigned
input_run(struct net_port *port, struct glue_frame **frames, unsigned n)
{
	struct net_conn *conn = NULL;
	unsigned k = 1;

	if (may_run(frames[0], frames[1]) && is_plain(port, frames[0]))
		conn = find_conn(port, frames[0]);
	if (!conn || !net_predict_runs(conn) ||
	    !take_predicted(conn, port, frames[0], net_predict_input)) {
		input_frame(port, frames[0]);
		return 1;
	}
	if (IP_IS_V6_VAL(conn->pcb.remote_ip)) /* the frame may be gone */
		net_neighbour_confirm6(ip_2_ip6(&conn->pcb.remote_ip));
	while (k < n && is_plain(port, frames[k]) &&
	       is_for_conn(&conn->pcb, frames[k]) &&
	       take_predicted(conn, port, frames[k], net_predict_next))
		k++;
	if (k > 1)
		net_predict_settle(conn);
	return k;
}

static inline void input_burst(struct net_port *port,
			       struct glue_frame **frames, unsigned n)
{
	struct glue_frame **end = frames + n;

	while (frames < end - 1)
		if (likely(frames[1]->seg_len < RUN_BYTES))
			input_frame(port, *frames++);
		else
			frames += input_run(port, frames,
					    (unsigned)(end - frames));
	if (frames < end)
		input_frame(port, *frames);
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
		net_demux_prefetch(frames, n);
		input_burst(port, frames, n);
	}
	if (net_here()->n_shards > 1)
		net_loop_take_over();
	if (unlikely(net_link_loops()))
		total += net_loop_input();
	return total;
}
