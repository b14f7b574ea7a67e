/*
 * Private to link/: what its files offer each other.
 */
#pragma once

#include "netstack/link/link.h"

struct nd6_neighbor_cache_entry;

#define NET_ETH_HEADER 14u /* bytes */

static inline struct net_port *net_port_of(const struct netif *netif)
{
	return netif->state;
}

/* ---- output.c ---- */
/* lwIP's linkoutput: p begins with the Ethernet header. */
err_t net_link_output(struct netif *netif, struct pbuf *p);
/* Sends a packet of IPv4 to a neighbour. */
err_t net_link_send(struct netif *netif, struct pbuf *p, const uint8_t *mac);

/* Of what goes to a neighbour the two headers, as far as they are the same. */
void net_link_header4(uint8_t *header, const struct netif *netif, uint32_t dest,
		      const uint8_t *mac);

/* ---- loop.c ---- */
/* Whether an address is this interface's. */
bool net_netif_owns6(const struct netif *netif, const ip6_addr_t *ip);
/* Whether an address is ours; a link-local one: on this interface. */
bool net_loop_owns4(uint32_t ip);
bool net_loop_owns6(const struct netif *netif, const ip6_addr_t *ip);
/*
 * Takes a copy of an IP packet for one of our addresses, to be received next.
 * ERR_MEM: it is to be sent again.
 */
err_t net_loop_output(struct netif *netif, const struct pbuf *p);
/* Receives a burst at most; how many. */
unsigned net_loop_input(void);
/* Frees what has not been received. */
void net_loop_close(void);

/* ---- neighbour.c ---- */
/* Its place in the cache; NULL: it is to be asked for. */
const struct net_neighbour *net_neighbour_known(const ip4_addr_t *dest);
/* The same for IPv6, while lwIP believes that it can be reached. */
struct nd6_neighbor_cache_entry *net_neighbour_known6(const ip6_addr_t *dest);
/* RFC 4861 7.3.1: it has answered what was sent there. */
void net_neighbour_confirm6(const ip6_addr_t *dest);
/* lwIP's output functions of every interface. */
err_t net_neighbour_output4(struct netif *netif, struct pbuf *p,
			    const ip4_addr_t *dest);
err_t net_neighbour_output6(struct netif *netif, struct pbuf *p,
			    const ip6_addr_t *dest);
/*
 * An ARP packet, a neighbour's solicitation or advertisement: answers what must
 * be answered. Whether lwIP may see it (ARP: on which interface), or it is to
 * be freed.
 */
bool net_neighbour_arp(const struct net_port *port, struct glue_frame *frame,
		       struct netif **out);
bool net_neighbour_nd(const struct net_port *port,
		      const struct glue_frame *frame);
/* ---- exception_set.c ---- */
/* A link's, as opts has it; after its port and addresses. */
int net_exception_open(unsigned link, struct net_opts *opts);
/* All of this shard, before its ports close. */
void net_exception_close(void);
/* ---- exception.c ---- */
/*
 * Passes a frame that is no TCP segment of the stack to the kernel, if the port
 * has an exception interface. True: the caller frees the frame.
 */
bool net_exception_input(struct net_port *port, const struct glue_frame *frame);
/* ---- share.c ---- */
/* On shard 0: tells the others of a neighbour, before lwIP sees the frame. */
void net_neighbour_share(const struct net_port *port,
			 const struct glue_frame *frame);

/* Before nd6_tmr(): no packet is to wait for a neighbour that has asked us. */
void net_neighbour_probe(void);
