/*
 * What is known of a connection, put together when somebody asks.
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

/* Data bytes in flight: a FIN takes a number and is none. */
static uint32_t in_flight(const struct tcp_pcb *pcb)
{
	uint32_t numbers = pcb->snd_nxt - pcb->lastack;
	bool fin = (pcb->state == FIN_WAIT_1 || pcb->state == CLOSING ||
		    pcb->state == LAST_ACK) &&
		   !pcb->unsent;

	return numbers - (fin && numbers);
}

/*
 * Queued bytes beyond those in flight. A FIN on the last segment of data is not
 * counted by snd_lbb, but is by snd_nxt once it has gone.
 */
static uint32_t not_sent(const struct tcp_pcb *pcb)
{
	uint32_t numbers = pcb->snd_lbb - pcb->snd_nxt;

	return (int32_t)numbers < 0 ? 0 : numbers;
}

int net_conn_stats(const struct net_conn *conn, struct net_conn_stats *out)
{
	const struct tcp_pcb *pcb;
	const struct net_conn_ext *counts;
	struct net_recovery_info info;

	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	net_recovery_info(conn, &info);
	pcb = &conn->pcb;
	counts = conn->ext; /* zeros where there are none */
	*out = (struct net_conn_stats){
		.counted = conn->ext->counted,
		.state = (enum net_tcp_state)pcb->state,
		.mss = pcb->mss,
		.rtt_us = (uint32_t)(info.srtt_ns / 1000),
		.rttvar_us = (uint32_t)(info.rttvar_ns / 1000),
		.rto_us = (uint32_t)(info.rto_ns / 1000),
		.cwnd = info.cwnd_bytes,
		.ssthresh = pcb->ssthresh,
		.snd_wnd = pcb->snd_wnd,
		.rcv_wnd = pcb->rcv_wnd,
		.unread = conn->rx_tail ? net_rxq_bytes(conn) : 0,
		.cc = net_cc_name(conn),
		.pacing_rate = info.pacing_rate,
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
	return 0;
}
