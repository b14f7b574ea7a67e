/*
 * The output of one connection: the steps before lwIP sends, and those after
 * the port has refused a frame. With recovery state: lost segments, then new
 * data, as far as the windows and pacing allow.
 */
#include "netstack/recovery/bbr.h"

#include "lwip/ip.h"

/* The mechanism that detected a loss. */
enum cause { RTO, RACK, FAST };

static enum cause current_cause(const struct net_conn *conn)
{
	if (!conn->has_recovery || conn->recovery->state == NET_RECOVERY_LOSS)
		return RTO;
	return conn->pcb.flags & TF_SACK ? RACK : FAST;
}

/* Names the cause for a connection that is traced. */
cold static const char *cause_of(struct net_conn *conn)
{
	static const char *const names[] = {
		[RTO] = "RTO", [RACK] = "RACK", [FAST] = "fast"};
	const char *why = net_trace_resent(conn);

	return why ? why : names[current_cause(conn)];
}

/*
 * Sends a segment of `unacked` again, as it lies there. False: not now, since
 * a driver still holds it or there was no memory.
 */
bool net_send_again(struct net_conn *conn, struct net_seg *seg)
{
	struct tcp_pcb *pcb = &conn->pcb;
	struct tcp_hdr *hdr = seg->seg.tcphdr;
	struct pbuf *p = seg->seg.p;

	if (p->ref != 1)
		return false;
	/* Remove what lower layers put in front the last time. */
	pbuf_remove_header(p, (size_t)((uint8_t *)hdr - (uint8_t *)p->payload));
	hdr->ackno = lwip_htonl(pcb->rcv_nxt);
	hdr->wnd =
		lwip_htons(TCPWND_MIN16(RCV_WND_SCALE(pcb, pcb->rcv_ann_wnd)));
	hdr->chksum = 0;
	net_ts_refresh(pcb, hdr + 1);
	if (pcb->flags & NET_TF_ECN)
		net_ecn_resend(pcb, hdr);
	pcb->rcv_ann_right_edge = pcb->rcv_nxt + pcb->rcv_ann_wnd;
	net_count_out(conn, p);
	if (ip_output(p, &pcb->local_ip, &pcb->remote_ip, pcb->ttl, pcb->tos,
		      IP_PROTO_TCP) != ERR_OK)
		return false;
	if (net_traced(conn))
		net_trace_out(conn, hdr, seg->seg.len, cause_of(conn));
	return true;
}

/* Accounts for bytes that have left, new or again. */
static void account_sent(struct net_conn *conn, uint32_t bytes)
{
	net_pacing_sent(conn, bytes);
	if (net_rate_of(conn))
		net_rate_sent(conn, bytes);
}

bool net_send_resend(struct net_conn *conn, struct net_seg *seg)
{
	struct net_recovery *rec = net_recovery_of(conn);

	if (!net_send_again(conn, seg))
		return false;
	net_sack_resent(rec, seg);
	rec->prr_out += TCP_TCPLEN(&seg->seg);
	net_undo_resent(conn);
	account_sent(conn, TCP_TCPLEN(&seg->seg));
	return true;
}

/* Accounts for what lwIP has sent by itself since the last call. */
void net_send_account(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	uint32_t bytes = conn->pcb.snd_nxt - rec->snd_seen;

	if (bytes == 0)
		return;
	rec->prr_out += bytes;
	rec->snd_seen = conn->pcb.snd_nxt;
	rec->new_us = net_now_us();
	account_sent(conn, bytes);
}

/* Sets lwIP's window from ours: shut while something lost waits to be sent. */
static void set_window(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);

	conn->pcb.cwnd = TAILQ_EMPTY(&rec->lost) ? rec->cwnd + rec->sacked_bytes
						 : NET_CWND_SHUT;
}

/*
 * Tries again later, since no ACK will come to trigger that. If the port is
 * full, waits for the port; otherwise memory is short, or a neighbour is not
 * known, and a timer is set.
 */
static void retry_later(struct net_conn *conn)
{
	const struct net_port *port = net_conn_port(conn);
	struct net_recovery *rec = net_recovery_of(conn);

	if (port && glue_tx_busy(port->glue)) {
		net_conn_queue_output(conn);
		return;
	}
	rec->reorder_armed = true;
	rec->reorder_due_us = net_now_us() + NET_PROBE_US;
}

/*
 * With nothing in flight, one segment may be sent regardless of its length and
 * the windows (RFC 6298 5.4, RFC 9293 3.8.6). The congestion window counts
 * bytes; the peer's window counts the FIN as well.
 */
static bool may_resend(const struct net_conn *conn, struct net_seg *seg)
{
	uint32_t lastack = conn->pcb.lastack;
	uint32_t pipe = net_recovery_pipe(conn, lastack);

	return pipe == 0 ||
	       (pipe + seg->seg.len <= net_recovery_of(conn)->cwnd &&
		net_seg_end(&seg->seg) - lastack <= conn->pcb.snd_wnd);
}

/* RFC 5682 2.1: sends two new segments in place of what seems lost. */
static void send_two_new(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;

	pcb->cwnd =
		net_recovery_of(conn)->recover - pcb->lastack + 2u * pcb->mss;
	net_conn_output_now(conn);
	pcb->cwnd = NET_CWND_SHUT;
}

/* Counts a retransmission by the mechanism that detected the loss. */
static void count_cause(const struct net_conn *conn)
{
	struct net_stats *stats = &net_here()->stats;

	switch (current_cause(conn)) {
	case RTO:
		stats->resent_rto++;
		break;
	case RACK:
		stats->resent_rack++;
		break;
	case FAST:
		stats->resent_fast++;
		break;
	}
}

/* Sends lost segments, as far as windows and pacing allow; then new data. */
void net_send_repair(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct net_seg *seg;

	net_pacing_release(conn);
	if (rec->frto == NET_FRTO_SECOND) {
		send_two_new(conn);
		return;
	}
	while ((seg = TAILQ_FIRST(&rec->lost)) && may_resend(conn, seg)) {
		if (!rec->at_once && net_pacing_room(conn) < seg->seg.len) {
			net_pacing_hold(conn, seg->seg.len, rec->lost_bytes);
			break;
		}
		if (!net_send_resend(conn, seg)) {
			retry_later(conn);
			break;
		}
		rec->at_once = false;
		count_cause(conn);
	}
	set_window(conn);
	net_conn_output_now(conn);
}

void net_recovery_output(struct net_conn *conn)
{
	if (unlikely(conn->has_recovery) &&
	    !TAILQ_EMPTY(&net_recovery_of(conn)->lost))
		net_send_repair(conn);
	else
		net_conn_output_now(conn);
}

/* ---- new data, of a connection with recovery state ---- */

/* Does the congestion window hold back the head of `unsent`? */
static bool cwnd_limits(const struct tcp_pcb *pcb)
{
	return pcb->unsent && !net_head_fits(pcb) &&
	       net_seg_end(pcb->unsent) - pcb->lastack <= pcb->snd_wnd;
}

/* After output, notes whether pacing or the window holds back further data. */
static void settle_output(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct tcp_pcb *pcb = &conn->pcb;

	if (!TAILQ_EMPTY(&rec->lost))
		return;
	net_pacing_release(conn);
	if (pcb->unsent && !conn->in_output && net_head_fits(pcb) &&
	    net_pacing_room(conn) < pcb->unsent->len)
		net_pacing_hold(conn, pcb->unsent->len,
				pcb->snd_lbb - pcb->snd_nxt);
	if (cwnd_limits(pcb)) {
		rec->cwnd_limited = rec->was_full = true;
		rec->full_end = pcb->snd_nxt;
	}
	if (net_rate_of(conn) && !pcb->unsent && !conn->wants)
		net_rate_app_limited(conn);
}

/* Sends what the windows allow of `unsent`, or the ACK that is due. */
static inline void send_what_fits(struct net_conn *conn)
{
	err_t err;

	if (net_here()->predicts && net_predict_output(conn))
		return;
	err = net_lwip_output(conn);
	/* Nagle's algorithm holds the segment that the ACK would go with. */
	if (err == ERR_OK && (conn->pcb.flags & TF_ACK_NOW))
		err = tcp_send_empty_ack(&conn->pcb);
	if (err == ERR_MEM || err == ERR_BUF)
		net_conn_queue_output(conn); /* the port, or memory, is short */
}

void net_send_new(struct net_conn *conn)
{
	struct net_recovery *rec = net_recovery_of(conn);
	struct tcp_pcb *pcb = &conn->pcb;
	uint32_t window = pcb->cwnd, span = net_recovery_span(pcb), room;

	net_send_account(conn);
	if (pcb->unsent && span == 0 && rec->cc->on_restart)
		rec->cc->on_restart(conn);
	room = net_pacing_room(conn);
	if (window > span && window - span > room)
		pcb->cwnd = LWIP_MAX(span + room, NET_CWND_SHUT);
	send_what_fits(conn);
	pcb->cwnd = window;
	net_send_account(conn);
	settle_output(conn);
}

/* Out of line: for a traced connection, or one whose path takes less than
 * agreed. */
__attribute__((noinline)) static void look_over(struct net_conn *conn)
{
	if (conn->pcb.flags & NET_TF_PATH)
		net_path_review(conn);
	if (net_traced(conn))
		net_trace_settle(conn);
}

struct net_port *net_conn_port(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct netif *netif = ip_route(&pcb->local_ip, &pcb->remote_ip);

	return netif ? netif->state : NULL;
}

void net_conn_output_now(struct net_conn *conn)
{
	net_recovery_before_output(conn);
	if (unlikely(conn->pcb.flags & (NET_TF_PATH | NET_TF_TRACED)))
		look_over(conn);
	if (unlikely(conn->has_recovery))
		net_send_new(conn);
	else
		send_what_fits(conn);
	net_send_went_out(conn);
}

uint32_t net_cwnd_shut(struct net_conn *conn)
{
	uint32_t window = conn->pcb.cwnd;

	if (conn->has_recovery || conn->paced)
		conn->pcb.cwnd = NET_CWND_SHUT;
	return window;
}

void net_cwnd_open(struct net_conn *conn, uint32_t window)
{
	if (conn->pcb_live && (conn->has_recovery || conn->paced))
		conn->pcb.cwnd = window;
}
