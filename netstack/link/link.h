/*
 * Links: between frames and lwIP's interfaces; neighbours.
 */
#pragma once

#include "netstack/tcp/tcp.h"

/* ---- netif.c ---- */
int net_link_open(struct net_opts *opts);
void net_link_close(void);
/* What lwIP does for neighbours by the clock. */
void net_link_tick(void);

/* ---- input.c ---- */
unsigned net_link_rx(void);

/* ---- exception.c ---- */
/* Sends what the kernel has for the links; frames taken. */
unsigned net_exception_poll(void);
/* What tells that the kernel has something for a link; -1: nothing does. */
int net_exception_fd(const struct net_port *port);

/* ---- output.c ---- */
void net_link_tx(void);
/*
 * Sends a segment, p on its own; false: its neighbour is not known, or the port
 * is out of frames.
 */
bool net_link_send_tcp(const struct tcp_pcb *pcb, const struct pbuf *p);
/* Whether every port takes memory that is lent. */
bool net_link_takes_extbufs(void);

/* ---- loop.c ---- */
/* Whether packets to an address are received again; any of every link's. */
bool net_link_owns(const struct netif *netif, const ip_addr_t *ip);
/* Whether such packets wait to be received. */
static inline bool net_link_loops(void)
{
	return net_here()->loop.head != net_here()->loop.tail;
}

/* ---- neighbour.c ---- */
/* Whether the neighbour for an address has answered. */
bool net_neighbour_reachable(const ip_addr_t *ip);
