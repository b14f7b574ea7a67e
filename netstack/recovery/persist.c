/*
 * The persist timer, RFC 9293 3.8.6.1 and 3.8.6.2.1: what a connection does
 * while it has data to send, none is in flight, and the peer's window does not
 * allow the next segment.
 *
 * lwIP's own timer is never run. It gives up after a number of probes although
 * the peer answers, ticks 25 times a second, and sends a byte of the stream
 * beyond the window: whatever we send after that byte lies beyond the window,
 * too, and the peer drops it, including our ACKs and resets. The probe here is
 * that of keepalive: a sequence number already acknowledged and no data, which
 * every peer answers with its window. A peer that answers is given up only
 * after the owner has closed; a silent one when a retransmission timeout would
 * give it up.
 */
#include "netstack/recovery/recovery_priv.h"

#define RETRY_US NET_MS(200) /* no memory, or no room in the port */

/* Doublings; net_rtt_backed_off_us() has a limit of its own. */
#define BACKOFF_MAX 16u

/*
 * An orphan is reset after this many doublings, although its peer answers: the
 * peer's window has been shut for four to seven minutes then, and no handler
 * waits for the bytes.
 */
#define ORPHAN_MAX 11u

/*
 * The state of the timer lies in the pcb. persist_probe counts probes since the
 * peer was last heard; lwIP sets it to 0 with every segment it takes. lwIP sets
 * persist_steps to 0 when a window shuts.
 */
static void arm_timer(struct tcp_pcb *pcb, unsigned doublings)
{
	const struct net_conn *conn = net_conn_of(pcb);

	pcb->persist_on = 1; /* for lwIP it is on, and so not set again */
	pcb->persist_steps = (uint8_t)(doublings + 1);
	pcb->persist_due_us =
		net_now_us() + net_rtt_backed_off_us(conn, doublings);
}

static bool needs_persist(const struct tcp_pcb *pcb)
{
	return pcb->unsent && !pcb->unacked && pcb->state >= ESTABLISHED &&
	       pcb->state < TIME_WAIT &&
	       !net_pacing_holds(net_conn_of((struct tcp_pcb *)(uintptr_t)pcb));
}

int64_t net_persist_due_ns(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (!needs_persist(pcb)) {
		pcb->persist_steps = 0;
		return CORO_FOREVER;
	}
	if (conn->in_output) /* it is sent before that */
		return CORO_FOREVER;
	if (pcb->persist_steps == 0) {
		arm_timer(pcb, 0);
		net_user_timeout_begin(conn);
	}
	return net_us_to_ns(pcb->persist_due_us);
}

/* Sequence numbers from the head of `unsent` to the window's right edge. */
static uint32_t window_room(const struct tcp_pcb *pcb)
{
	uint32_t room =
		pcb->lastack + pcb->snd_wnd - net_seg_begin(pcb->unsent);

	return (int32_t)room > 0 ? room : 0;
}

/* Makes the head of `unsent` no longer than `room`, if there is memory. */
static void cut_head(struct tcp_pcb *pcb, uint32_t room)
{
	struct tcp_seg *head = pcb->unsent;

	if (head->len > room || head->len > pcb->mss) {
		tcp_split_unsent_seg(pcb, (uint16_t)LWIP_MIN(room, pcb->mss));
	} else if (TCP_TCPLEN(head) > room && head->len) {
		/* All its bytes fit, and its FIN does not: that goes alone. */
		TCPH_UNSET_FLAG(head->tcphdr, TCP_FIN);
		if (tcp_enqueue_flags(pcb, TCP_FIN) != ERR_OK)
			TCPH_SET_FLAG(head->tcphdr, TCP_FIN);
	}
}

/*
 * The end of a silly window (RFC 9293 3.8.6.2.1): sends whatever fits. False if
 * there is no memory to cut it off.
 */
static bool send_what_fits(struct net_conn *conn, uint32_t room)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t need;

	cut_head(pcb, room);
	need = net_seg_begin(pcb->unsent) - pcb->lastack + pcb->unsent->len;
	if (pcb->cwnd < need) /* nothing is in flight, so one segment may be */
		pcb->cwnd = need;
	net_conn_output_now(conn);
	return pcb->unacked || conn->in_output;
}

/*
 * Returns whether this retransmission timeout is the last. A user timeout
 * replaces the number of timeouts, as Linux's does, unless the owner has gone.
 * If a window has shrunk below the data in flight, that data is sent again as a
 * probe: the peer is given up when it stays silent, not when it does not open
 * its window (RFC 9293 3.8.6), unless the connection is an orphan. lwIP gives
 * up by nrtx, so nrtx stays below its limit.
 */
bool net_persist_gives_up(struct tcp_pcb *pcb)
{
	struct net_conn *conn = net_conn_of(pcb);
	bool shut = net_window_shut(pcb);

	if (conn->orphaned || (!shut && !net_user_timeout_is_set(conn)))
		return pcb->nrtx >= TCP_MAXRTX;
	if (shut && pcb->persist_probe++ >= TCP_MAXRTX) {
		net_conn_give_up(conn);
		return true;
	}
	pcb->nrtx = LWIP_MIN(pcb->nrtx, TCP_MAXRTX - 2);
	return false;
}

/*
 * A segment that a timeout has sent into a shrunk window need not wait for the
 * next timeout, which may be a minute away: it is due as after the first. But
 * the timeouts of an orphan end only by an ACK of new data, since a peer that
 * acknowledges nothing could shut and open its window for ever.
 */
void net_persist_window_opened(struct tcp_pcb *pcb, uint32_t was)
{
	if (pcb->unacked && net_window_shut_at(pcb, was) &&
	    !net_window_shut(pcb) && !net_conn_of(pcb)->orphaned)
		pcb->nrtx = 0;
}

void net_persist_carrier_returned(struct tcp_pcb *pcb)
{
	unsigned timeouts = pcb->state < ESTABLISHED ? 0 : 1;

	pcb->nrtx = LWIP_MIN(pcb->nrtx, timeouts);
	if (pcb->persist_steps > 1) {
		pcb->persist_steps = 1;
		pcb->persist_due_us = net_now_us();
	}
}

bool net_persist_timeout(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	if (!needs_persist(pcb) || conn->in_output || pcb->persist_steps == 0 ||
	    net_us_after(pcb->persist_due_us, net_now_us()))
		return false;
	if (pcb->persist_probe >= TCP_MAXRTX ||
	    (conn->orphaned && pcb->persist_steps > ORPHAN_MAX)) {
		net_conn_give_up(conn);
		return true;
	}
	if (net_traced(conn))
		net_trace_timer(conn, "persist", pcb->persist_probe + 1u);
	if (window_room(pcb) ? send_what_fits(conn, window_room(pcb))
			     : tcp_keepalive(pcb) == ERR_OK) {
		pcb->persist_probe++;
		arm_timer(pcb, LWIP_MIN(pcb->persist_steps, BACKOFF_MAX));
	} else { /* nothing was sent: no reason to wait longer for an answer */
		pcb->persist_due_us = net_now_us() + RETRY_US;
	}
	return false;
}
