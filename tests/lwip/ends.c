/*
 * Stubs for lwIP's tests: the functions of netstack/lwip/ends.c without
 * remembered ends, a constant window scale, and no timestamps.
 */
#include "netstack/lwip/ends.h"

#include "lwip/priv/tcp_priv.h"

static struct tcp_seg *last_of(struct tcp_seg *seg)
{
	while (seg->next)
		seg = seg->next;
	return seg;
}

struct tcp_seg *net_unacked_last(struct tcp_pcb *pcb)
{
	return last_of(pcb->unacked);
}

struct tcp_seg *net_unsent_last(struct tcp_pcb *pcb)
{
	return last_of(pcb->unsent);
}

struct tcp_seg *net_unacked_append(struct tcp_pcb *pcb, struct tcp_seg *seg)
{
	return seg;
}

struct tcp_seg *net_unsent_leave(struct tcp_pcb *pcb, struct tcp_seg *seg)
{
	return seg->next;
}

struct tcp_seg *net_unsent_acked(struct tcp_pcb *pcb, struct tcp_seg *rest)
{
	return rest;
}

uint8_t net_rcv_scale(void);

uint8_t net_rcv_scale(void)
{
	return TCP_RCV_SCALE;
}

void net_ts_accept(struct tcp_pcb *pcb, const struct tcp_hdr *syn);

void net_ts_accept(struct tcp_pcb *pcb, const struct tcp_hdr *syn)
{
}

#if LWIP_EVENT_API
void *net_pcb_arg(struct tcp_pcb *pcb);

void *net_pcb_arg(struct tcp_pcb *pcb)
{
	return pcb;
}

uint32_t net_pcb_keep_cnt(const struct tcp_pcb *pcb);

uint32_t net_pcb_keep_cnt(const struct tcp_pcb *pcb)
{
	return 9;
}
#endif
