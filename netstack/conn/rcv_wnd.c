/*
 * The receive window: it opens by what has been read, and grows with the path.
 *
 * It begins at TCP_WND. A sender that fills it in less than a round trip has to
 * wait, so the window has room for twice what is read in a round trip, and
 * grows before the sender needs more (dynamic right-sizing: Fisk and Feng,
 * 2001): it is doubled when more than ENOUGH of it was read in a round trip, up
 * to --rmem-max and while memory is not short. A sender that doubles its rate
 * each round trip finds it doubled in time. Unread data does not make it grow:
 * if a quarter of the window was unread all the time, the sender waits for the
 * reader, and a larger window would only hold more data, cold in the cache.
 *
 * Data held behind a hole makes it grow at once: nothing can be read until the
 * hole is filled, two or three round trips after its segment was first sent, or
 * after a timeout. Meanwhile the sender continues while it has a window.
 * Otherwise a sender that loses one segment in a hundred would wait at each
 * hole.
 *
 * The round trip is the minimum RTT, never the smoothed one: the part of a
 * window beyond what the path needs waits in a queue, the queue makes round
 * trips longer, and longer ones would ask for a larger window.
 */
#include "netstack/conn/conn.h"
#include "netstack/lwip/hooks.h"

/* A longer time is no round trip: two seconds, in units of now_us. */
#define TRIP_MOST_US (2000000u / 1024 * 1000)

#define ENOUGH(max) ((max) / 8 * 3)

#define SCALE_MIN 3u
#define SCALE_MAX 14u /* RFC 7323 2.3 */

void net_rcv_wnd_init(uint64_t rmem_max)
{
	uint8_t scale = SCALE_MIN;

	while (scale < SCALE_MAX && UINT64_C(65535) << scale < rmem_max)
		scale++;
	net_here()->rcv_scale = scale;
	net_here()->rmem_max =
		(uint32_t)LWIP_MIN(rmem_max, UINT64_C(65535) << scale);
}

uint8_t net_rcv_scale(void)
{
	return net_here()->rcv_scale;
}

/* Returns how far the window may be open now: less while memory is short. */
static uint32_t window_limit(const struct tcp_pcb *pcb)
{
	uint32_t max = net_rcv_max(pcb);

	if (net_here()->rcv_limit >= TCP_WND)
		return max;
	return LWIP_MIN(net_here()->rcv_limit, max);
}

/* ---- opening ---- */

/*
 * Opens the window by len bytes. If the edge has moved far, an ACK is sent to
 * announce it, otherwise the next segment does.
 */
static void open_window(struct net_conn *conn, uint32_t len)
{
	struct tcp_pcb *pcb = &conn->pcb;

	pcb->rcv_wnd = LWIP_MIN(pcb->rcv_wnd + len, net_rcv_max(pcb));
	if (tcp_update_rcv_ann_wnd(pcb) >= TCP_WND_UPDATE_THRESHOLD)
		tcp_ack_now(pcb);
}

/*
 * Returns by how many bytes the window opens after len bytes were read. While
 * memory is short, these are fewer than len: an announced window never shrinks,
 * and the rest follows when the queue is empty and memory is available again.
 */
static uint32_t window_step(const struct net_conn *conn, uint32_t len)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	uint32_t room = window_limit(pcb) > pcb->rcv_wnd
				? window_limit(pcb) - pcb->rcv_wnd
				: 0;

	if (!conn->rx_tail)
		return room;
	return LWIP_MIN(len, room);
}

/*
 * Called if memory is short, or was. lwIP announces a window when it has opened
 * by a quarter of the first one, which a small one never does: announce that
 * when it has opened by half (RFC 1122 4.2.3.3).
 */
cold static void open_carefully(struct net_conn *conn, uint32_t len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t edge;

	open_window(conn, window_step(conn, len));
	edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	if (net_here()->rcv_limit < TCP_WND && pcb->state >= ESTABLISHED &&
	    (int32_t)(edge - pcb->rcv_ann_right_edge) >=
		    (int32_t)(net_here()->rcv_limit / 2))
		tcp_ack_now(pcb);
}

/* ---- growing ---- */

/* Doubles the window at once, even if bytes are unread: the peer may wait. */
static void double_window(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t max = net_rcv_max(pcb);

	pcb->rcv_max =
		(uint32_t)LWIP_MIN(2 * (uint64_t)max, net_here()->rmem_max);
	open_window(conn, pcb->rcv_max - max);
}

/*
 * If more than a window has come since the mark, a part of it was announced
 * after the mark, so the round trip is no longer than that has taken. A
 * handshake may have taken more, while an address was looked up or a process
 * woke, and a connection that only receives measures no other round trip.
 */
static void note_trip(struct net_conn *conn, uint32_t bytes, uint32_t passed_us)
{
	if ((int32_t)(bytes - net_rcv_max(&conn->pcb)) > 0 &&
	    passed_us < conn->pcb.min_rtt_us)
		conn->pcb.min_rtt_us = LWIP_MAX(passed_us, 1);
}

/*
 * Has a round trip passed since the mark, or nearly? Bytes that come at its end
 * belong to the next one. If none is known, a window's worth of bytes takes no
 * less.
 */
static bool is_over(const struct net_conn *conn, uint32_t bytes,
		    uint32_t passed_us)
{
	uint32_t least_us = conn->pcb.min_rtt_us; /* recovery/rtt.c */

	if (conn->srtt_us)
		return passed_us >= least_us - least_us / 8;
	return bytes >= net_rcv_max(&conn->pcb);
}

/*
 * Counts the bytes that are read within a round trip, from the mark on. The
 * mark is the sequence number up to which all had been read, and the time.
 */
static void measure_reading(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t max = net_rcv_max(pcb), now_us = net_here()->now_us;
	uint32_t unread = max - pcb->rcv_wnd, read = pcb->rcv_nxt - unread;
	uint32_t bytes = read - pcb->rcv_mark;
	uint32_t passed_us = now_us - pcb->rcv_mark_us;

	conn->caught_up |= unread <= max / 4;
	if (pcb->rcv_mark_us && conn->srtt_us)
		note_trip(conn, bytes, passed_us);
	if (pcb->rcv_mark_us && !is_over(conn, bytes, passed_us))
		return;
	if (pcb->rcv_mark_us && passed_us <= TRIP_MOST_US)
		net_count_space(conn, bytes);
	if (pcb->rcv_mark_us && passed_us <= TRIP_MOST_US &&
	    (int32_t)bytes > (int32_t)ENOUGH(max) && conn->caught_up)
		double_window(conn);
	conn->caught_up = false;
	pcb->rcv_mark = read;
	pcb->rcv_mark_us = now_us ? now_us : 1; /* 0: there is no mark */
}

void net_rcv_wnd_held(struct net_conn *conn, uint32_t bytes)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t max = net_rcv_max(pcb), unread = max - pcb->rcv_wnd;

	if (bytes > ENOUGH(max) && max < net_here()->rmem_max &&
	    (pcb->flags & TF_WND_SCALE) && net_here()->rcv_limit >= TCP_WND &&
	    unread <= max / 4)
		double_window(conn);
}

/* ---- reading ---- */

__attribute__((noinline)) static void open_slowly(struct net_conn *conn,
						  uint32_t len)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (net_here()->rcv_limit < TCP_WND ||
	    (!conn->rx_tail && pcb->rcv_wnd + len < net_rcv_max(pcb))) {
		open_carefully(conn, len);
		pcb->rcv_mark_us = 0; /* unread bytes are unknown now */
	} else {
		open_window(conn, len);
		if (net_rcv_max(pcb) < net_here()->rmem_max &&
		    (pcb->flags & TF_WND_SCALE))
			measure_reading(conn);
	}
	if (pcb->flags & TF_ACK_NOW)
		net_conn_queue_output(conn);
}

/*
 * In the common case memory suffices, nothing else is unread, and the window's
 * edge has moved by less than a segment. Then no ACK is sent, and the announced
 * window stays as lwIP set it when the bytes arrived (RFC 9293 3.8.6.2.2).
 */
long net_conn_recved(struct net_conn *conn, unsigned len)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t wnd = pcb->rcv_wnd + len;
	uint32_t step = pcb->rcv_nxt + wnd - pcb->rcv_ann_right_edge;

	if (likely(step < pcb->mss && wnd == net_rcv_max(pcb) &&
		   net_here()->rcv_limit >= TCP_WND &&
		   !(pcb->flags & TF_ACK_NOW)))
		pcb->rcv_wnd = wnd;
	else
		open_slowly(conn, len);
	return (long)len;
}

/* ---- waiting with bytes unread ---- */

/* The least window that is announced as room for a segment (RFC 7323 2.3). */
static uint32_t segment_window(const struct tcp_pcb *pcb)
{
	uint32_t unit = UINT32_C(1) << pcb->rcv_scale;

	return (net_here()->mtu + unit - 1) & ~(unit - 1);
}

bool net_rcv_wnd_is_full(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t least = segment_window(pcb);

	if (!conn->pcb_live)
		return false;
	if (pcb->rcv_wnd < least)
		return true;
	if ((int32_t)(pcb->rcv_ann_right_edge - pcb->rcv_nxt) <
	    (int32_t)least) {
		pcb->rcv_ann_wnd = pcb->rcv_wnd;
		tcp_ack_now(pcb);
		net_conn_queue_output(conn);
	}
	return false;
}
