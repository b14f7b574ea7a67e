/*
 * Links: between frames and lwIP's interfaces; neighbours.
 */
#pragma once

#include "netstack/tcp/tcp.h"

/* ---- netif.c ---- */
int net_link_open(struct net_opts *opts);
void net_link_close(void);
/* Runs lwIP's timers for neighbours that are due. */
void net_link_tick(void);

/* ---- input.c ---- */
unsigned net_link_rx(void);

/* ---- exception.c ---- */
/* Sends the kernel's frames on the links. Returns how many it read. */
unsigned net_exception_poll(void);
/* A descriptor that is readable when the kernel has frames; -1: none. */
int net_exception_fd(const struct net_port *port);

/* ---- output.c ---- */
void net_link_tx(void);
/*
 * Sends a segment, which is p alone. Returns false if its neighbour is not
 * known or the port has no free frame.
 */
bool net_link_send_tcp(const struct tcp_pcb *pcb, const struct pbuf *p);
/* Whether frames of every port may refer to the program's memory. */
bool net_link_takes_extbufs(void);

/* ---- loop.c ---- */
/*
 * Whether ip is an address of the stack, on any link: packets to it are looped.
 */
bool net_link_owns(const struct netif *netif, const ip_addr_t *ip);
/* Whether such packets wait to be received. */
static inline bool net_link_loops(void)
{
	return net_here()->loop.head != net_here()->loop.tail;
}

/* ---- neighbour.c ---- */
/* Whether the neighbour for an address has answered. */
bool net_neighbour_reachable(const ip_addr_t *ip);
