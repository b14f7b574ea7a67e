/*
 * The state and counters of a connection, collected on request.
 */
#include "netstack/api/api.h"

#include <assert.h>
#include <errno.h>

#include "lwip/prot/tcp.h"

static_assert((int)NET_TCP_LISTEN == LISTEN &&
		      (int)NET_TCP_ESTABLISHED == ESTABLISHED &&
		      (int)NET_TCP_CLOSE_WAIT == CLOSE_WAIT &&
		      (int)NET_TCP_LAST_ACK == LAST_ACK &&
		      (int)NET_TCP_TIME_WAIT == TIME_WAIT,
	      "our states are lwIP's");

/* Data bytes in flight: a FIN has a sequence number, but is no data. */
static uint32_t in_flight(const struct tcp_pcb *pcb)
{
	uint32_t numbers = pcb->snd_nxt - pcb->lastack;
	bool fin = (pcb->state == FIN_WAIT_1 || pcb->state == CLOSING ||
		    pcb->state == LAST_ACK) &&
		   !pcb->unsent;

	return numbers - (fin && numbers);
}

/*
 * Queued bytes beyond those in flight. snd_lbb does not count a FIN on the last
 * segment of data, but snd_nxt does once it has gone.
 */
static uint32_t not_sent(const struct tcp_pcb *pcb)
{
	uint32_t numbers = pcb->snd_lbb - pcb->snd_nxt;

	return (int32_t)numbers < 0 ? 0 : numbers;
}

/* In the order of lwIP's states, from CLOSED on. */
static const uint8_t linux_states[] = {7, 10, 2, 3, 1, 4, 5, 8, 11, 9, 6};
static_assert(sizeof(linux_states) == TIME_WAIT + 1 && SYN_SENT == 2 &&
		      FIN_WAIT_1 == 5 && CLOSE_WAIT == 7 && CLOSING == 8,
	      "a number for each of lwIP's states");

#define OPT_TIMESTAMPS 1u
#define OPT_SACK       2u
#define OPT_WSCALE     4u

static void fill_options(const struct net_conn *conn, struct net_tcp_info *out)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->flags & NET_TF_TS)
		out->options |= OPT_TIMESTAMPS;
	if (pcb->flags & TF_SACK)
		out->options |= OPT_SACK;
	if (pcb->flags & TF_WND_SCALE) {
		out->options |= OPT_WSCALE;
		out->snd_wscale = pcb->snd_scale;
		out->rcv_wscale = pcb->rcv_scale;
	}
}

static uint32_t ms_since(int64_t then_ns)
{
	return (uint32_t)((net_here()->now_ns - then_ns) / 1000000);
}

/* unacked: bytes; waiting: segments that the peer is not known to hold. */
static void fill_counts(const struct net_conn *conn, uint32_t unacked,
			unsigned waiting, struct net_tcp_info *out)
{
	struct net_conn_ext *counts = net_counts(conn);
	const struct net_counted *more;

	if (!counts) {
		out->absent |= NET_INFO_NO_COUNTS;
		return;
	}
	more = net_counted_of(counts);
	out->total_retrans = counts->retransmits;
	out->total_rto = counts->rtos;
	out->bytes_acked = counts->tx_acked;
	out->bytes_received = counts->rx_bytes;
	out->bytes_retrans = more->bytes_retrans;
	out->bytes_sent = counts->tx_acked + unacked + more->bytes_retrans;
	/* Each segment counts once, but twice if it came twice, as in Linux. */
	out->delivered =
		more->data_out - more->data_retrans - waiting + more->dsacks;
	out->segs_out = counts->tx_segs;
	out->segs_in = counts->rx_segs;
	out->data_segs_out = more->data_out;
	out->data_segs_in = more->data_in;
	out->dsack_dups = more->dsacks;
	out->reord_seen = more->reordered;
	out->rcv_ooopack = more->out_of_order;
	out->rcv_mss = more->rcv_mss;
	out->delivered_ce = more->delivered_ce;
	out->rcv_space = more->rcv_space;
	if (more->rcv_space)
		out->absent &= ~(unsigned)NET_INFO_NO_RCV;
	net_phase_fill_info(conn, out);
	out->last_data_sent = ms_since(more->sent_ns);
	out->last_data_recv = ms_since(more->recv_ns);
}

static void fill_info(const struct net_conn *conn, struct net_conn_stats *stats)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	struct net_tcp_info *out = &stats->info;
	unsigned waiting;

	out->absent = NET_INFO_NO_RCV;
	out->state = linux_states[pcb->state];
	out->ato = NET_TICK_NS / 1000;
	out->snd_mss = pcb->mss;
	out->rcv_ssthresh = net_rcv_max(pcb);
	out->snd_wnd = pcb->snd_wnd;
	out->rcv_wnd = pcb->rcv_ann_right_edge - pcb->rcv_nxt;
	out->notsent_bytes = stats->unsent;
	out->last_ack_recv = (tcp_ticks - pcb->tmr) * TCP_SLOW_INTERVAL;
	fill_options(conn, out);
	waiting = net_recovery_fill_info(conn, out);
	fill_counts(conn, stats->unacked, waiting, out);
}

#define FEW_PIECES 32u /* unread pieces that are counted one by one */

/*
 * Bytes that nobody has read. If there are many pieces, the result is what the
 * window is shut by, which is more while memory is short.
 */
static uint32_t count_unread(const struct net_conn *conn)
{
	/* An orphan's link in its list lies where the queue is. */
	const struct pbuf *p = conn->orphaned ? NULL : net_rxq_head(conn);
	uint32_t bytes = 0, max;

	for (unsigned n = 0; p; p = net_rxq_next(conn, p), n++) {
		if (n == FEW_PIECES && conn->pcb_live) {
			max = net_rcv_max(&conn->pcb);
			return LWIP_MAX(bytes,
					max - LWIP_MIN(conn->pcb.rcv_wnd, max));
		}
		bytes += p->len;
	}
	return bytes - LWIP_MIN(conn->rx_off, bytes);
}

void net_conn_fill_stats(const struct net_conn *conn,
			 struct net_conn_stats *out)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct net_conn_ext *counts = conn->ext; /* zeros: none */
	struct net_recovery_info info;

	net_recovery_info(conn, &info);
	*out = (struct net_conn_stats){
		.counted = conn->ext->has_counters,
		.state = (enum net_tcp_state)pcb->state,
		.mss = pcb->mss,
		.rtt_us = (uint32_t)(info.srtt_ns / 1000),
		.rttvar_us = (uint32_t)(info.rttvar_ns / 1000),
		.rto_us = (uint32_t)(info.rto_ns / 1000),
		.cwnd = info.cwnd_bytes,
		.ssthresh = pcb->ssthresh,
		.snd_wnd = pcb->snd_wnd,
		.rcv_wnd = pcb->rcv_wnd,
		.snd_una = pcb->lastack,
		.unread = count_unread(conn),
		.cc = net_cc_name(conn),
		.pacing_rate = info.pacing_rate,
		.ecn = (pcb->flags & NET_TF_ECN) && pcb->state > SYN_SENT,
		.rx_bytes = counts->rx_bytes,
		.rx_segs = counts->rx_segs,
		.tx_segs = counts->tx_segs,
		.retransmits = counts->retransmits,
		.rtos = counts->rtos,
		.dup_acks = counts->dup_acks,
		.out_of_order = counts->out_of_order,
	};

	if (conn->pcb_live) {
		out->unacked = in_flight(pcb);
		out->unsent = not_sent(pcb);
	}
	out->tx_bytes = counts->tx_acked + out->unacked;
	fill_info(conn, out);
}

int net_conn_stats(const struct net_conn *conn, struct net_conn_stats *out)
{
	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	net_conn_fill_stats(conn, out);
	if (conn->rx_tail)
		out->unread = net_rxq_bytes(conn);
	return 0;
}
