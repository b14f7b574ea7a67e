/*
 * The last segments of lwIP's queues: functions that edits of lwIP call
 * (ends.c).
 */
#pragma once

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
