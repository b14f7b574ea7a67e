/*
 * Finds the last segments of lwIP's queues. lwIP appends to both, and would
 * walk over them from the front each time. With many connections each step is a
 * cache miss, and walking over a window of 180 segments cost more than sending
 * the segments that an ACK had made room for.
 *
 * A connection therefore stores a segment of each queue, as the distance from
 * the connection in cache lines, which fits into its spare bytes; 0: none.
 *
 * For `unacked` it is the last of several. Segments leave at the front, so the
 * last one stays while there are several; code that appends to the queue or
 * splits segments updates it. A single segment is not stored.
 *
 * For `unsent` it is a segment near the end, the last one at the last search,
 * from which the next search continues. It is dropped when it leaves the queue.
 */
#include "netstack/recovery/recovery.h"

#define LINE 64

static inline struct tcp_seg *segment_at(const struct tcp_pcb *pcb,
					 int32_t lines)
{
	return (struct tcp_seg *)((intptr_t)pcb + (intptr_t)lines * LINE);
}

/* Returns 0 if it is too far away. */
static inline int32_t lines_to(const struct tcp_pcb *pcb,
			       const struct tcp_seg *seg)
{
	int32_t lines = (int32_t)(((intptr_t)seg - (intptr_t)pcb) / LINE);

	return likely(segment_at(pcb, lines) == seg) ? lines : 0;
}

static struct tcp_seg *last_from(struct tcp_seg *seg)
{
	while (seg->next)
		seg = seg->next;
	return seg;
}

/* ---- unacked ---- */

struct tcp_seg *net_unacked_last(struct tcp_pcb *pcb)
{
	struct net_conn *conn = net_conn_of(pcb);
	struct tcp_seg *last;

	if (!pcb->unacked->next)
		return pcb->unacked;
	if (conn->unacked_last)
		return segment_at(pcb, conn->unacked_last);
	last = last_from(pcb->unacked);
	conn->unacked_last = lines_to(pcb, last);
	return last;
}

struct tcp_seg *net_unacked_append(struct tcp_pcb *pcb, struct tcp_seg *seg)
{
	net_conn_of(pcb)->unacked_last = lines_to(pcb, seg);
	return seg;
}

/* ---- unsent ---- */

struct tcp_seg *net_unsent_last(struct tcp_pcb *pcb)
{
	struct tcp_seg *last =
		last_from(pcb->unsent_near ? segment_at(pcb, pcb->unsent_near)
					   : pcb->unsent);

	pcb->unsent_near = lines_to(pcb, last);
	return last;
}

struct tcp_seg *net_unsent_leave(struct tcp_pcb *pcb, struct tcp_seg *seg)
{
	if (pcb->unsent_near && segment_at(pcb, pcb->unsent_near) == seg)
		pcb->unsent_near = 0;
	return seg->next;
}

struct tcp_seg *net_unsent_acked(struct tcp_pcb *pcb, struct tcp_seg *rest)
{
	if (rest != pcb->unsent)
		pcb->unsent_near = 0;
	return rest;
}
