/*
 * How netstack/ enters lwIP: which pcb it sees.
 *
 * lwIP walks lists of pcbs. They are empty but while it works on a connection:
 * it is then shown that pcb alone, and what it has put on its lists meanwhile
 * is taken back (tcp/pcbs.c), so that its walks never grow.
 *
 * The other files of lwip/ are what lwIP calls; nobody else does.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lwip/opt.h"
#include "lwip/tcp.h"
#include "lwip/priv/tcp_priv.h"

#include "netstack/lwip/hooks.h"

/* The pools that lwIP takes its objects from; after net_mem_init(). */
void net_memp_init(void);

static inline void net_pcb_show(struct tcp_pcb *pcb)
{
	pcb->next = NULL;
	if (pcb->state == TIME_WAIT)
		tcp_tw_pcbs = pcb;
	else
		tcp_active_pcbs = pcb;
}

/* Takes one off lwIP's lists; NULL: they are empty. */
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
 * A segment with a header's room in front, as tcp_write() makes them: its pbuf
 * is 20 bytes of header and `copied` bytes of data. NULL: no memory.
 */
struct tcp_seg *net_seg_new(unsigned copied);
/* lwIP has freed a segment; its pbuf may still be held. */
void net_seg_freed(struct tcp_seg *seg);
/* tcp_seg_free() */
void net_seg_free(struct tcp_seg *seg);

/* ---- hooks.c ---- */
/* tcp_write() and tcp_output(): if an assertion fails, it is this one's. */
err_t net_lwip_write(struct net_conn *conn, const void *data, u16_t len,
		     u8_t flags);
err_t net_lwip_output(struct net_conn *conn);

/* ---- predict.c ---- */
/*
 * Queues len bytes, not 0, as tcp_write() would, by a copy or a reference;
 * ERR_MEM as it would; ERR_INPROGRESS: it must be asked.
 */
err_t net_predict_write(struct net_conn *conn, const void *data, u16_t len);
err_t net_predict_refer(struct net_conn *conn, const void *data, u16_t len);
/*
 * Sends what is ordinary from the head of `unsent`, or the ACK that is due.
 * False: there may be more for tcp_output() to do.
 */
bool net_predict_output(struct net_conn *conn);

/* What lwIP calls where receiving a segment makes it want to send. */
err_t net_tcp_output(struct tcp_pcb *pcb);
