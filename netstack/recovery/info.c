/*
 * The sender's part of Linux's TCP_INFO: computed from state that recovery/ has
 * anyway, so that it costs nothing until it is requested.
 */
#include "netstack/recovery/bbr.h"

#include "lwip/ip.h"

#define CA_OPEN	    0
#define CA_DISORDER 1
#define CA_RECOVERY 3
#define CA_LOSS	    4

#define NO_SSTHRESH 0x7fffffffu /* TCP_INFINITE_SSTHRESH */
#define DUPTHRESH   3u

static uint32_t convert_to_us(uint32_t units)
{
	return (uint32_t)(((uint64_t)units << 10) / 1000);
}

static uint8_t ca_state(const struct net_conn *conn)
{
	const struct net_recovery *rec = net_recovery_of(conn);

	if (!rec) /* a timeout without memory for one has no state of its own */
		return conn->pcb.nrtx && conn->pcb.unacked ? CA_LOSS : CA_OPEN;
	switch (rec->state) {
	case NET_RECOVERY_RECOVERY:
		return CA_RECOVERY;
	case NET_RECOVERY_LOSS:
		return CA_LOSS;
	case NET_RECOVERY_OPEN:
		break;
	}
	return rec->sacked_bytes || rec->dupacks ? CA_DISORDER : CA_OPEN;
}

/* Linux counts what was lost as lost until it is acknowledged. */
static unsigned fill_segments(const struct net_conn *conn,
			      struct net_tcp_info *out)
{
	unsigned waiting = 0;

	for (struct tcp_seg *seg = conn->pcb.unacked; seg; seg = seg->next) {
		uint8_t state = net_seg_of(seg)->state;

		out->unacked++;
		out->sacked += (state & NET_SEG_SACKED) != 0;
		out->retrans += (state & NET_SEG_RETRIED) != 0;
		out->lost += (state & (NET_SEG_LOST | NET_SEG_RETRIED)) != 0;
		waiting += seg->len && !(state & NET_SEG_SACKED);
	}
	return waiting;
}

static void fill_round_trips(const struct net_conn *conn,
			     struct net_tcp_info *out)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	out->rto = convert_to_us(net_rtt_rto_us(conn));
	if (conn->srtt_us == 0) {
		out->absent |= NET_INFO_NO_RTT;
		return;
	}
	out->rtt = convert_to_us(conn->srtt_us >> 3);
	out->rttvar = convert_to_us(conn->rttvar_us >> 2);
	out->min_rtt = convert_to_us(pcb->min_rtt_us);
	out->rcv_rtt = out->min_rtt; /* conn/rcv_wnd.c goes by it */
}

static void fill_window(const struct net_conn *conn, struct net_tcp_info *out)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct net_recovery *rec = net_recovery_of(conn);
	unsigned mss = LWIP_MAX(pcb->mss, 1);

	out->snd_cwnd = (rec ? rec->cwnd : pcb->cwnd) / mss;
	out->snd_ssthresh = pcb->ssthresh >= UINT32_C(1) << 30 ||
					    pcb->ssthresh == TCP_SND_BUF
				    ? NO_SSTHRESH
				    : pcb->ssthresh / mss;
}

static uint64_t or_unlimited(double rate)
{
	return rate > 0 ? (uint64_t)rate : UINT64_MAX;
}

static void fill_rates(const struct net_conn *conn, struct net_tcp_info *out)
{
	const struct net_rate *rate = net_rate_of(conn);
	double sample;

	out->max_pacing_rate = or_unlimited(net_pacing_cap(conn));
	out->pacing_rate = conn->has_recovery
				   ? or_unlimited(net_pacing_rate(conn))
				   : out->max_pacing_rate;
	if (!rate) {
		out->absent |= NET_INFO_NO_RATE;
		return;
	}
	sample = net_bbr_of(conn)->rs.rate;
	if (sample <= 0)
		sample = net_bbr_of(conn)->bw_latest;
	out->delivery_rate = (uint64_t)sample;
	out->delivery_rate_app_limited = rate->app_limited_to != 0;
}

static void fill_path(const struct net_conn *conn, struct net_tcp_info *out)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const struct netif *netif =
		conn->pcb_live ? ip_route(&pcb->local_ip, &pcb->remote_ip)
			       : NULL;
	unsigned known;

	if (!netif) {
		out->absent |= NET_INFO_NO_PATH;
		return;
	}
	known = net_path_mtu(&pcb->remote_ip);
	out->pmtu = known && known < netif->mtu ? known : netif->mtu;
	out->advmss =
		tcp_eff_send_mss(TCP_MSS, &pcb->local_ip, &pcb->remote_ip) -
		net_ts_bytes(pcb);
}

unsigned net_recovery_fill_info(const struct net_conn *conn,
				struct net_tcp_info *out)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	unsigned waiting = 0;

	out->ca_state = ca_state(conn);
	out->retransmits = pcb->nrtx;
	out->probes = (uint8_t)LWIP_MIN(255u, (unsigned)pcb->persist_probe +
						      pcb->keep_cnt_sent);
	out->backoff = pcb->persist_steps ? (uint8_t)(pcb->persist_steps - 1)
					  : pcb->nrtx;
	out->reordering = DUPTHRESH;
	if (conn->pcb_live)
		waiting = fill_segments(conn, out);
	fill_round_trips(conn, out);
	fill_window(conn, out);
	fill_rates(conn, out);
	fill_path(conn, out);
	return waiting;
}
