/*
 * Functions that edits of lwIP call: the last segments of its queues (ends.c),
 * and networks of IPv6.
 */
#pragma once

#include "lwip/ip6_addr.h"

struct tcp_pcb;
struct tcp_seg;

/* The last segment of `unacked`, or of `unsent`; the queue is not empty. */
struct tcp_seg *net_unacked_last(struct tcp_pcb *pcb);
struct tcp_seg *net_unsent_last(struct tcp_pcb *pcb);
/* Notes that seg will be the last of `unacked`, after others. Returns seg. */
struct tcp_seg *net_unacked_append(struct tcp_pcb *pcb, struct tcp_seg *seg);
/* Notes that seg leaves the head of `unsent`. Returns the next segment. */
struct tcp_seg *net_unsent_leave(struct tcp_pcb *pcb, struct tcp_seg *seg);
/* Notes that an ACK has left only `rest` of `unsent`. Returns `rest`. */
struct tcp_seg *net_unsent_acked(struct tcp_pcb *pcb, struct tcp_seg *rest);

/*
 * Returns whether an address is in the network of the stack's address `own`, of
 * any prefix length; lwIP assumes 64 bits (link/route.c).
 */
int net_nd_in_network(const ip6_addr_t *ip, const ip6_addr_t *own);
