/*
 * The functions of netstack/lwip/hooks.h that lwIP is edited to call, for tests
 * without netstack/.
 */
#pragma once

struct tcp_pcb;
struct tcp_seg;

struct tcp_seg *net_unacked_last(struct tcp_pcb *pcb);
struct tcp_seg *net_unsent_last(struct tcp_pcb *pcb);
struct tcp_seg *net_unacked_begin(struct tcp_pcb *pcb, struct tcp_seg *seg);
struct tcp_seg *net_unacked_append(struct tcp_pcb *pcb, struct tcp_seg *seg);
struct tcp_seg *net_unsent_leave(struct tcp_pcb *pcb, struct tcp_seg *seg);
struct tcp_seg *net_unsent_acked(struct tcp_pcb *pcb, struct tcp_seg *rest);
