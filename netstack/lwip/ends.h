/*
 * Functions that edits of lwIP call: the last segments of its queues (ends.c),
 * and networks of IPv6.
 */
#pragma once

#include "lwip/ip6_addr.h"

struct tcp_pcb;
struct tcp_seg;

/* The last of `unacked`, or of `unsent`; there is one. */
struct tcp_seg *net_unacked_last(struct tcp_pcb *pcb);
struct tcp_seg *net_unsent_last(struct tcp_pcb *pcb);
/* seg is about to become the last of `unacked`, after others; returns it. */
struct tcp_seg *net_unacked_append(struct tcp_pcb *pcb, struct tcp_seg *seg);
/* Removes the first segment of `unsent`; returns the next one. */
struct tcp_seg *net_unsent_leave(struct tcp_pcb *pcb, struct tcp_seg *seg);
/* An ACK has left `rest` of `unsent`; returns `rest`. */
struct tcp_seg *net_unsent_acked(struct tcp_pcb *pcb, struct tcp_seg *rest);

/*
 * Whether an address is in the network of one of the stack's: lwIP assumes
 * networks of 64 bits (link/route.c).
 */
int net_nd_in_network(const ip6_addr_t *ip, const ip6_addr_t *own);
