/*
 * How netstack/ calls lwIP, and which pcb lwIP sees.
 *
 * lwIP walks lists of pcbs. They are empty, except that they hold one pcb while
 * lwIP works on its connection. Pcbs that lwIP adds meanwhile are taken off its
 * lists afterwards (tcp/input.c), so its walks never grow.
 *
 * Only lwIP calls the other files of lwip/.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lwip/opt.h"
#include "lwip/tcp.h"
#include "lwip/priv/tcp_priv.h"

#include "netstack/lwip/hooks.h"

/* Makes the pools of lwIP's objects, after net_mem_init(). */
void net_memp_init(void);

/* Puts a pcb on lwIP's list, which is empty, before lwIP works on it. */

static inline void net_pcb_show(struct tcp_pcb *pcb)
{
	pcb->next = NULL;
	if (pcb->state == TIME_WAIT)
		tcp_tw_pcbs = pcb;
	else
		tcp_active_pcbs = pcb;
}

/* Takes a pcb off lwIP's lists; NULL: they are empty. */
static inline struct tcp_pcb *net_pcb_take(void)
{
	struct tcp_pcb **list =
		tcp_active_pcbs ? &tcp_active_pcbs : &tcp_tw_pcbs;
	struct tcp_pcb *pcb = *list;

	if (pcb) {
		*list = pcb->next;
		pcb->next = NULL;
	}
	return pcb;
}

struct net_conn;

/* ---- seg.c ---- */
/*
 * Makes a segment as tcp_write() does, with room for lower headers: its pbuf
 * has 20 bytes of TCP header and `copied` bytes of data. NULL: no memory.
 */
struct tcp_seg *net_seg_new(unsigned copied);
/* Called when lwIP has freed a segment, whose pbuf may still be held. */
void net_seg_freed(struct tcp_seg *seg);
/* Frees a segment and its pbufs, like tcp_seg_free(). */
void net_seg_free(struct tcp_seg *seg);

/* ---- hooks.c ---- */
/*
 * Call tcp_write() and tcp_output(), and attribute a failed assertion to conn.
 */
err_t net_lwip_write(struct net_conn *conn, const void *data, uint16_t len,
		     uint8_t flags);
err_t net_lwip_output(struct net_conn *conn);

/*
 * lwIP calls this in place of tcp_output() after it has received a segment:
 * sends at once in a handshake, otherwise in the output phase.
 */
err_t net_tcp_output(struct tcp_pcb *pcb);
