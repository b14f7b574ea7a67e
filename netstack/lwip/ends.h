/*
 * Where lwIP's queues of segments end: what edits of lwIP call (ends.c).
 */
#pragma once

struct tcp_pcb;
struct tcp_seg;

/* The last of `unacked`, or of `unsent`; there is one. */
struct tcp_seg *net_unacked_last(struct tcp_pcb *pcb);
struct tcp_seg *net_unsent_last(struct tcp_pcb *pcb);
/* seg is about to become the last of `unacked`, after others; returns it. */
struct tcp_seg *net_unacked_append(struct tcp_pcb *pcb, struct tcp_seg *seg);
/* The first of `unsent` leaves it; returns the next. */
struct tcp_seg *net_unsent_leave(struct tcp_pcb *pcb, struct tcp_seg *seg);
/* An ACK has left `rest` of it; returns that. */
struct tcp_seg *net_unsent_acked(struct tcp_pcb *pcb, struct tcp_seg *rest);
