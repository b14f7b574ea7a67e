/*
 * The receive window: it opens by what has been read.
 */
#include "netstack/conn/conn.h"

static void open_window(struct tcp_pcb *pcb, unsigned len)
{
	while (len) {
		u16_t part = (u16_t)LWIP_MIN(len, 0xffff);

		tcp_recved(pcb, part);
		len -= part;
	}
}

/*
 * How many of len bytes that have been read the window opens by. While memory
 * is short that is less: what has been announced stays announced, and the rest
 * is made up for when the queue is empty and memory is there again.
 */
static unsigned window_step(const struct net_conn *conn, unsigned len)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	u32_t most = LWIP_MIN(net_here()->rcv_most, TCP_WND_MAX(pcb));
	u32_t room = most > pcb->rcv_wnd ? most - pcb->rcv_wnd : 0;

	if (!conn->rx_tail && !pcb->refused_data)
		return room;
	return LWIP_MIN(len, room);
}

/*
 * Cold: memory is short, or was. lwIP tells the peer when the window has opened
 * by a quarter of the largest one, which a small one never does: RFC 1122
 * 4.2.3.3 has half of it.
 */
__attribute__((noinline)) static void open_carefully(struct net_conn *conn,
						     unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u32_t edge;

	open_window(pcb, window_step(conn, len));
	edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	if (net_here()->rcv_most < TCP_WND && pcb->state >= ESTABLISHED &&
	    (s32_t)(edge - pcb->rcv_ann_right_edge) >=
		    (s32_t)(net_here()->rcv_most / 2))
		tcp_ack_now(pcb);
}

__attribute__((noinline)) static void open_slowly(struct net_conn *conn,
						  unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (net_here()->rcv_most < TCP_WND ||
	    (!conn->rx_tail && pcb->rcv_wnd + len < TCP_WND_MAX(pcb)))
		open_carefully(conn, len);
	else
		open_window(pcb, len);
	if (pcb->flags & TF_ACK_NOW) /* the port had no room for it */
		net_conn_queue_output(conn);
}

/*
 * Mostly memory suffices, nothing else is unread, and the window's edge has
 * moved by less than a segment: then the peer is not told, and what is
 * announced stays as lwIP settled it when the bytes came (RFC 9293 3.8.6.2.2).
 */
long net_conn_recved(struct net_conn *conn, unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	u32_t wnd = pcb->rcv_wnd + len;
	u32_t step = pcb->rcv_nxt + wnd - pcb->rcv_ann_right_edge;

	if (__builtin_expect(step < pcb->mss && wnd == TCP_WND_MAX(pcb) &&
				     net_here()->rcv_most >= TCP_WND &&
				     !(pcb->flags & TF_ACK_NOW),
			     1))
		pcb->rcv_wnd = wnd;
	else
		open_slowly(conn, len);
	return (long)len;
}
