/*
 * Sends lwIP's packets as frames.
 */
#include "netstack/link/link_priv.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/priv/nd6_priv.h"
#include "lwip/prot/ieee.h"

void net_link_tx(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		glue_tx_flush(net_here()->ports[i].glue);
}

bool net_link_takes_extbufs(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		if (!glue_port_lends(net_here()->ports[i].glue))
			return false;
	return true;
}

static inline void describe_l4(struct glue_frame *frame, uint8_t proto)
{
	if (proto == IP_PROTO_TCP)
		frame->flags |= GLUE_FRAME_TCP;
	else if (proto == IP_PROTO_UDP)
		frame->flags |= GLUE_FRAME_UDP;
}

/* Sets what dpdk_glue must know to fill in checksums. */
static inline void describe_ip4(struct glue_frame *frame,
				const struct ip_hdr *ip)
{
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = (uint16_t)(NET_ETH_HEADER + IPH_HL_BYTES(ip));
	frame->flags = GLUE_FRAME_IP4;
	describe_l4(frame, IPH_PROTO(ip));
}

static inline void describe_ip6(struct glue_frame *frame,
				const struct ip6_hdr *ip)
{
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP6_HLEN;
	frame->flags = GLUE_FRAME_IP6;
	describe_l4(frame, IP6H_NEXTH(ip));
}

static inline void describe_frame(struct glue_frame *frame)
{
	const uint8_t *eth = frame->data;

	if (eth[12] == 0x08 && eth[13] == 0x00) {
		describe_ip4(frame, (const void *)(eth + NET_ETH_HEADER));
	} else if (eth[12] == 0x86 && eth[13] == 0xdd) {
		describe_ip6(frame, (const void *)(eth + NET_ETH_HEADER));
	}
}

/* Copies a chain of pbufs into a frame of one or several segments, at off. */
static void copy_chain(const struct pbuf *p, struct glue_frame *frame,
		       unsigned off)
{
	unsigned from = 0;

	while (p) {
		unsigned part = p->len - from;
		unsigned room = frame->seg_len - off;

		if (part > room)
			part = room;
		memcpy(frame->data + off, (const uint8_t *)p->payload + from,
		       part);
		off += part;
		from += part;
		if (from == p->len) {
			p = p->next;
			from = 0;
		}
		if (off == frame->seg_len) {
			frame = frame->next;
			off = 0;
			if (!frame)
				return;
		}
	}
}

/*
 * Makes the frame for a chain of pbufs whose first `off` bytes are yet to be
 * filled in: a copy, or headers before memory that is only referred to. NULL
 * when the port is out of frames.
 */
static inline struct glue_frame *make_frame(struct glue_port *glue,
					    const struct pbuf *p, unsigned off)
{
	struct glue_frame *frame;

	if (p->next && glue_port_lends(glue) && net_extbuf_only(p)) {
		frame = glue_tx_alloc(glue, off + p->len);
		if (!frame)
			return NULL;
		copy_chain(p, frame, off); /* its frames end where p does */
		if (net_extbuf_attach(glue, frame, p))
			return frame;
		glue_frame_free(frame);
		return NULL;
	}
	frame = glue_tx_alloc(glue, off + p->tot_len);
	if (!frame)
		return NULL;
	if (likely(!p->next && !frame->next))
		memcpy(frame->data + off, p->payload, p->len);
	else
		copy_chain(p, frame, off);
	return frame;
}

/* lwIP's linkoutput: p begins with the Ethernet header. */
err_t net_link_output(struct netif *netif, struct pbuf *p)
{
	struct glue_port *glue = net_port_of(netif)->glue;
	struct glue_frame *frame = make_frame(glue, p, 0);

	if (!frame)
		return ERR_MEM;
	describe_frame(frame);
	glue_tx(glue, frame);
	return ERR_OK;
}

static inline void put_ethernet(uint8_t *eth, const struct netif *netif,
				const uint8_t *mac, uint16_t type)
{
	memcpy(eth, mac, 6);
	memcpy(eth + 6, netif->hwaddr, 6);
	eth[12] = (uint8_t)(type >> 8);
	eth[13] = (uint8_t)type;
}

/* Sends an IPv4 packet to a known neighbour, without lwIP's etharp_output(). p
 * begins with the IP header. */
err_t net_link_send(struct netif *netif, struct pbuf *p, const uint8_t *mac)
{
	struct glue_port *glue = net_port_of(netif)->glue;
	struct glue_frame *frame = make_frame(glue, p, NET_ETH_HEADER);

	if (!frame)
		return ERR_MEM;
	put_ethernet(frame->data, netif, mac, ETHTYPE_IP);
	describe_ip4(frame, p->payload);
	glue_tx(glue, frame);
	return ERR_OK;
}

/* Writes what is constant in the headers, as ip4.c and put_ethernet() do. */
void net_link_header4(uint8_t *header, const struct netif *netif, uint32_t dest,
		      const uint8_t *mac)
{
	struct ip_hdr *ip = (void *)(header + NET_ETH_HEADER);

	put_ethernet(header, netif, mac, ETHTYPE_IP);
	memset(ip, 0, IP_HLEN);
	IPH_VHL_SET(ip, 4, IP_HLEN / 4);
	IPH_PROTO_SET(ip, IP_PROTO_TCP);
	ip->src.addr = netif_ip4_addr(netif)->addr;
	ip->dest.addr = dest;
}

/* What differs in the IP headers of segments; inlined, so it is never stored.
 */
struct ip_fields {
	const ip_addr_t *from, *to;
	uint8_t ttl, tos;
};

/* Writes the rest of IPv4's header, as ip4.c and net_neighbour_output4() do. */
static inline void finish_ip4(struct ip_hdr *ip, struct ip_fields f,
			      unsigned len)
{
	const ip4_addr_t *dest = ip_2_ip4(f.to);

	IPH_TOS_SET(ip, f.tos);
	IPH_LEN_SET(ip, lwip_htons((uint16_t)(IP_HLEN + len)));
	IPH_ID_SET(ip, net_ip_id(dest));
	IPH_OFFSET_SET(ip, net_path_df(dest) ? PP_HTONS(IP_DF) : 0);
	IPH_TTL_SET(ip, f.ttl);
}

static inline bool send_tcp4(struct ip_fields f, const struct pbuf *p)
{
	const struct net_neighbour *slot = net_neighbour_known(ip_2_ip4(f.to));
	struct glue_frame *frame;
	struct glue_port *glue;

	if (!slot ||
	    netif_ip4_addr(slot->netif)->addr != ip_2_ip4(f.from)->addr)
		return false;
	glue = net_port_of(slot->netif)->glue;
	frame = make_frame(glue, p, NET_ETH_HEADER + IP_HLEN);
	if (!frame)
		return false;
	memcpy(frame->data, slot->header, sizeof(slot->header));
	finish_ip4((void *)(frame->data + NET_ETH_HEADER), f, p->tot_len);
	frame->l3_off = NET_ETH_HEADER;
	frame->l4_off = NET_ETH_HEADER + IP_HLEN;
	frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP;
	glue_tx(glue, frame);
	return true;
}
static_assert(sizeof(((struct net_neighbour *)0)->header) ==
		      NET_ETH_HEADER + IP_HLEN,
	      "TCP's header follows");

/* Writes IPv6's header as ip6.c does. */
static inline void put_ip6(struct ip6_hdr *ip, struct ip_fields f, unsigned len)
{
	IP6H_VTCFL_SET(ip, 6, f.tos, 0);
	IP6H_PLEN_SET(ip, len);
	IP6H_NEXTH_SET(ip, IP6_NEXTH_TCP);
	IP6H_HOPLIM_SET(ip, f.ttl);
	ip6_addr_copy_to_packed(ip->src, *ip_2_ip6(f.from));
	ip6_addr_copy_to_packed(ip->dest, *ip_2_ip6(f.to));
}

static inline bool send_tcp6(struct ip_fields f, const struct pbuf *p)
{
	const struct nd6_neighbor_cache_entry *entry =
		net_neighbour_known6(ip_2_ip6(f.to));
	struct glue_frame *frame;
	struct glue_port *glue;
	struct ip6_hdr *ip;

	if (!entry || !netif_is_up(entry->netif) ||
	    !netif_is_link_up(entry->netif) ||
	    netif_get_ip6_addr_match(entry->netif, ip_2_ip6(f.from)) < 0)
		return false;
	glue = net_port_of(entry->netif)->glue;
	frame = make_frame(glue, p, NET_ETH_HEADER + IP6_HLEN);
	if (!frame)
		return false;
	put_ethernet(frame->data, entry->netif, entry->lladdr, ETHTYPE_IPV6);
	ip = (void *)(frame->data + NET_ETH_HEADER);
	put_ip6(ip, f, p->tot_len);
	describe_ip6(frame, ip);
	glue_tx(glue, frame);
	return true;
}

bool net_link_send_tcp(const struct tcp_pcb *pcb, const struct pbuf *p)
{
	const struct ip_fields f = {.from = &pcb->local_ip,
				    .to = &pcb->remote_ip,
				    .ttl = pcb->ttl,
				    .tos = pcb->tos};

	return IP_IS_V6_VAL(pcb->remote_ip) ? send_tcp6(f, p) : send_tcp4(f, p);
}

bool net_link_send_reply(const struct net_reply *reply, const struct pbuf *p)
{
	const struct ip_fields f = {.from = reply->from,
				    .to = reply->to,
				    .ttl = reply->ttl ? reply->ttl : TCP_TTL,
				    .tos = reply->tos};

	return IP_IS_V6(reply->to) ? send_tcp6(f, p) : send_tcp4(f, p);
}
