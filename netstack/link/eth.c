/*
 * Between frames and lwIP: interfaces, input, output.
 *
 * lwIP's netif has one IPv4 address, so each address of a link is a netif of
 * its own; IPv6 addresses live on a link's first netif.
 */
#include "netstack/recovery/path.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lwip/init.h"
#include "lwip/ip.h"
#include "lwip/prot/icmp.h"
#include "lwip/prot/icmp6.h"
#include "netif/ethernet.h"

#define ETH_HEADER 14u

/*
 * ICMP errors sent, all there is of them being "port unreachable": a second's
 * at once and then one by one (RFC 4443 2.4 f).
 */
#define ERRORS_A_SECOND 100

/* A received segment of a frame as lwIP sees it; in the frame's user words. */
#define PORT_WORD 4 /* of them is the port's: net_frame_port() */
static_assert(sizeof(struct pbuf_custom) <=
		      PORT_WORD * sizeof(((struct glue_frame *)0)->user[0]),
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

/* ---- input ---- */

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
	frame->user[PORT_WORD] = (uintptr_t)port;
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

/*
 * The short way of a TCP segment: dpdk_glue has checked its IP header, that it
 * is no fragment and that it is all there; tcp/check.c looks at the source of
 * what opens a connection. False leaves the frame to lwIP's IP.
 */
static inline bool input_tcp4(struct net_port *port, struct netif *netif,
			      struct glue_frame *frame)
{
	struct ip_hdr *ip = (struct ip_hdr *)(void *)(frame->data + ETH_HEADER);
	unsigned header = frame->l4_off - ETH_HEADER;
	struct pbuf *p;

	if (frame->next || ip->dest.addr != netif_ip4_addr(netif)->addr ||
	    !netif_is_up(netif))
		return false;
	p = wrap_one(port, frame, (u16_t)(lwip_ntohs(IPH_LEN(ip)) - header));
	p->payload = frame->data + frame->l4_off;
	p->len = p->tot_len;
	ip_data.current_netif = netif;
	ip_data.current_input_netif = netif;
	ip_data.current_ip4_header = ip;
	ip_data.current_ip_header_tot_len = (u16_t)header;
	ip_addr_copy_from_ip4(ip_data.current_iphdr_src, ip->src);
	ip_addr_copy_from_ip4(ip_data.current_iphdr_dest, ip->dest);
	net_tcp_input(p, netif);
	ip_data.current_netif = NULL;
	ip_data.current_input_netif = NULL;
	ip_data.current_ip4_header = NULL;
	ip_data.current_ip_header_tot_len = 0;
	return true;
}

/* Whether a datagram that nobody listens for may be answered. */
static bool may_send_error(void)
{
	const int64_t each_ns = 1000000000 / ERRORS_A_SECOND;
	int64_t least = net_the.now_ns - 1000000000;

	if (net_the.error_due_ns < least)
		net_the.error_due_ns = least;
	if (net_the.error_due_ns > net_the.now_ns)
		return false;
	net_the.error_due_ns += each_ns;
	return true;
}

/*
 * Messages for the stack itself; false: not for lwIP. dpdk_glue has held each
 * to its form.
 */
static bool input_icmp(struct net_port *port, const struct glue_frame *frame)
{
	const uint8_t *icmp = frame->data + frame->l4_off;

	if (frame->flags & GLUE_FRAME_IP4) {
		if (icmp[0] != ICMP_DUR)
			return true;
	} else {
		if (icmp[0] == ICMP6_TYPE_NS || icmp[0] == ICMP6_TYPE_NA)
			return net_neighbour_nd(port, frame);
		if (icmp[0] != ICMP6_TYPE_PTB)
			return true;
	}
	net_path_too_big(port, frame);
	return false;
}

/* Whether lwIP may see it, and on which of the port's interfaces. */
static bool admit(struct net_port *port, struct glue_frame *frame,
		  struct netif **netif)
{
	uint16_t flags = frame->flags;

	if (flags & GLUE_FRAME_ARP)
		return net_neighbour_arp(port, frame, netif);
	if ((flags & GLUE_FRAME_IP6) && !port->has_ip6)
		return false;
	if (flags & GLUE_FRAME_TCP)
		return true;
	if (flags & GLUE_FRAME_ICMP)
		return input_icmp(port, frame);
	return (flags & GLUE_FRAME_UDP) && may_send_error();
}

/* Whatever is no plain segment for the port's first address. */
static void input_rest(struct net_port *port, struct glue_frame *frame)
{
	struct netif *netif = port->netif0;
	uint16_t flags = frame->flags;
	struct pbuf *p;

	if (!admit(port, frame, &netif)) {
		net_the.stats.rx_refused++;
		glue_frame_free(frame);
		return;
	}
	p = frame->next ? wrap_chain(port, frame)
			: wrap_one(port, frame, frame->seg_len);
	if (flags & (GLUE_FRAME_ARP | GLUE_FRAME_MCAST)) {
		ethernet_input(p, netif);
		return;
	}
	p->payload = frame->data + ETH_HEADER;
	p->len = (u16_t)(p->len - ETH_HEADER);
	p->tot_len = (u16_t)(p->tot_len - ETH_HEADER);
	if (flags & GLUE_FRAME_IP4)
		ip4_input(p, netif);
	else
		ip6_input(p, netif);
}

static inline void input_frame(struct net_port *port, struct glue_frame *frame)
{
	if (frame->flags !=
		    (GLUE_FRAME_IP4 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK) ||
	    !input_tcp4(port, port->netif0, frame))
		input_rest(port, frame);
}

unsigned net_eth_rx(void)
{
	struct glue_frame *frames[GLUE_BURST];
	unsigned total = 0;

	for (unsigned i = 0; i < net_the.n_ports; i++) {
		struct net_port *port = &net_the.ports[i];
		unsigned n = glue_rx(port->glue, frames, GLUE_BURST);

		net_demux_prefetch(frames, n);
		for (unsigned k = 0; k < n; k++)
			input_frame(port, frames[k]);
		total += n;
	}
	return total;
}

/* ---- output ---- */

void net_eth_tx(void)
{
	for (unsigned i = 0; i < net_the.n_ports; i++)
		glue_tx_flush(net_the.ports[i].glue);
}

bool net_eth_lends(void)
{
	for (unsigned i = 0; i < net_the.n_ports; i++)
		if (!glue_port_lends(net_the.ports[i].glue))
			return false;
	return true;
}

bool net_eth_busy(void)
{
	for (unsigned i = 0; i < net_the.n_ports; i++)
		if (!glue_tx_busy(net_the.ports[i].glue))
			return false;
	return true;
}

static inline struct net_port *port_of(const struct netif *netif)
{
	return netif->state;
}

static inline void describe_l4(struct glue_frame *frame, uint8_t proto)
{
	if (proto == IP_PROTO_TCP)
		frame->flags |= GLUE_FRAME_TCP;
	else if (proto == IP_PROTO_UDP)
		frame->flags |= GLUE_FRAME_UDP;
}

/* What dpdk_glue must know to fill in checksums. */
static inline void describe_ip4(struct glue_frame *frame,
				const struct ip_hdr *ip)
{
	frame->l3_off = ETH_HEADER;
	frame->l4_off = (uint16_t)(ETH_HEADER + IPH_HL_BYTES(ip));
	frame->flags = GLUE_FRAME_IP4;
	describe_l4(frame, IPH_PROTO(ip));
}

static inline void describe(struct glue_frame *frame)
{
	const uint8_t *eth = frame->data;

	if (eth[12] == 0x08 && eth[13] == 0x00) {
		describe_ip4(frame, (const void *)(eth + ETH_HEADER));
	} else if (eth[12] == 0x86 && eth[13] == 0xdd) {
		frame->l3_off = ETH_HEADER;
		frame->l4_off = ETH_HEADER + 40;
		frame->flags = GLUE_FRAME_IP6;
		describe_l4(frame, eth[ETH_HEADER + 6]);
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
 * The frame for a chain of pbufs whose first `off` bytes are yet to be filled
 * in: a copy, or headers before memory that is only referred to. NULL when the
 * port is out of frames.
 */
static struct glue_frame *make_frame(struct glue_port *glue,
				     const struct pbuf *p, unsigned off)
{
	struct glue_frame *frame;

	if (p->next && glue_port_lends(glue) && net_loan_is(p)) {
		frame = glue_tx_alloc(glue, off + p->len);
		if (!frame)
			return NULL;
		copy_chain(p, frame, off); /* its frames end where p does */
		if (net_loan_attach(glue, frame, p))
			return frame;
		glue_frame_free(frame);
		return NULL;
	}
	frame = glue_tx_alloc(glue, off + p->tot_len);
	if (frame)
		copy_chain(p, frame, off);
	return frame;
}

/* lwIP's linkoutput: p begins with the Ethernet header. */
static err_t link_output(struct netif *netif, struct pbuf *p)
{
	struct glue_port *glue = port_of(netif)->glue;
	struct glue_frame *frame = make_frame(glue, p, 0);

	if (!frame)
		return ERR_MEM;
	describe(frame);
	glue_tx(glue, frame);
	return ERR_OK;
}

/* The short way of IPv4: the neighbour is known, p begins with the IP header.
 */
err_t net_eth_send(struct netif *netif, struct pbuf *p, const uint8_t *mac)
{
	struct glue_port *glue = port_of(netif)->glue;
	struct glue_frame *frame = make_frame(glue, p, ETH_HEADER);
	uint8_t *eth;

	if (!frame)
		return ERR_MEM;
	eth = frame->data;
	memcpy(eth, mac, 6);
	memcpy(eth + 6, netif->hwaddr, 6);
	eth[12] = 0x08;
	eth[13] = 0x00;
	describe_ip4(frame, p->payload);
	glue_tx(glue, frame);
	return ERR_OK;
}

/* ---- what lwIP asks ---- */

struct netif *net_route_src4(const ip4_addr_t *src, const ip4_addr_t *dest)
{
	if (net_the.n_netifs == 1 || !src || ip4_addr_isany(src))
		return NULL;
	for (unsigned i = 0; i < net_the.n_netifs; i++)
		if (ip4_addr_eq(netif_ip4_addr(&net_the.netifs[i]), src))
			return &net_the.netifs[i];
	return NULL;
}

const ip6_addr_t *net_gateway6(struct netif *netif, const ip6_addr_t *dest)
{
	return net_the.has_gateway6 ? &net_the.gateway6 : NULL;
}

/* ---- interfaces ---- */

static err_t init_netif(struct netif *netif)
{
	netif->name[0] = 'c';
	netif->name[1] = 'n';
	netif->output = net_neighbour_output4;
	netif->output_ip6 = net_neighbour_output6;
	netif->linkoutput = link_output;
	netif->mtu = (u16_t)net_the.mtu;
	netif->hwaddr_len = 6;
	memcpy(netif->hwaddr, glue_port_mac(port_of(netif)->glue), 6);
	netif->flags =
		NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
	if (port_of(netif)->has_ip6)
		netif->flags |= NETIF_FLAG_MLD6;
	return ERR_OK;
}

static struct netif *add_netif(struct net_port *port,
			       const struct net_addr *addr)
{
	struct netif *netif = &net_the.netifs[net_the.n_netifs];
	ip4_addr_t ip = {0}, mask = {0}, gateway = {0};

	if (addr) {
		memcpy(&ip.addr, addr->ip, 4);
		mask.addr = lwip_htonl(~UINT32_C(0) << (32 - addr->prefix_len));
		if (ip4_addr_net_eq(&net_the.gateway4, &ip, &mask))
			gateway = net_the.gateway4;
	}
	if (!netif_add(netif, &ip, &mask, &gateway, port, init_netif,
		       ethernet_input))
		return NULL;
	netif_set_up(netif);
	netif_set_link_up(netif);
	if (!netif_default || !ip4_addr_isany_val(gateway))
		netif_set_default(netif);
	net_the.n_netifs++;
	port->n_netifs++;
	return netif;
}

static int add_ip6(struct net_port *port, const struct net_addr *addr)
{
	ip6_addr_t ip = {0};
	s8_t index = -1;

	memcpy(ip.addr, addr->ip, 16);
	ip6_addr_assign_zone(&ip, IP6_UNICAST, port->netif0);
	if (netif_add_ip6_address(port->netif0, &ip, &index) != ERR_OK ||
	    index < 0)
		return -ENOSPC;
	netif_ip6_addr_set_state(port->netif0, index, IP6_ADDR_PREFERRED);
	return 0;
}

/*
 * The addresses of one link; it is up without any, too. One without an IPv6
 * address has no link-local address either, and ignores IPv6.
 */
static int add_addrs(struct net_port *port, struct net_opts *opts)
{
	size_t link = (size_t)(port - net_the.ports);

	for (unsigned i = 0; i < opts->n_addrs; i++)
		port->has_ip6 |= opts->addr_links[i] == link &&
				 opts->addrs[i].family == 6;
	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (opts->addr_links[i] == link && opts->addrs[i].family == 4) {
			struct netif *netif = add_netif(port, &opts->addrs[i]);

			if (!netif)
				return -ENOMEM;
			if (!port->netif0)
				port->netif0 = netif;
		}
	if (!port->netif0)
		port->netif0 = add_netif(port, NULL);
	if (!port->netif0)
		return -ENOMEM;
	if (!port->has_ip6)
		return 0;
	netif_create_ip6_linklocal_address(port->netif0, 1);
	netif_ip6_addr_set_state(port->netif0, 0, IP6_ADDR_PREFERRED);
	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (opts->addr_links[i] == link && opts->addrs[i].family == 6 &&
		    add_ip6(port, &opts->addrs[i]) < 0) {
			snprintf(opts->error, sizeof(opts->error),
				 "--addr: more than %d IPv6 addresses",
				 LWIP_IPV6_NUM_ADDRESSES - 1);
			return -EINVAL;
		}
	return 0;
}

int net_eth_open(struct net_opts *opts)
{
	struct glue_port_conf conf = {.mtu = opts->mtu};
	int err;

	lwip_init();
	net_the.pmtud_off = opts->pmtud_off;
	if (opts->gateway4.family)
		memcpy(&net_the.gateway4.addr, opts->gateway4.ip, 4);
	if (opts->gateway6.family) {
		memcpy(net_the.gateway6.addr, opts->gateway6.ip, 16);
		net_the.has_gateway6 = true;
	}
	for (unsigned i = 0; i < opts->n_links; i++) {
		struct net_port *port = &net_the.ports[i];

		err = glue_port_open(i, &conf, &port->glue, opts->error,
				     sizeof(opts->error));
		if (err < 0)
			return err;
		net_the.n_ports++;
		port->frames_to_hold = glue_port_frames_spare(port->glue);
		net_the.ooseq_most += port->frames_to_hold / 2;
		err = add_addrs(port, opts);
		if (err < 0)
			return err;
	}
	return 0;
}

void net_eth_close(void)
{
	while (net_the.n_netifs)
		netif_remove(&net_the.netifs[--net_the.n_netifs]);
	for (unsigned i = 0; i < net_the.n_ports; i++)
		glue_tx_drop(net_the.ports[i].glue);
	net_loans_end(); /* received frames go back to their pools */
	net_views_end();
	for (unsigned i = 0; i < net_the.n_ports; i++)
		glue_port_close(net_the.ports[i].glue);
	net_the.n_ports = 0;
}
