/*
 * The round-trip time, and the timeouts computed from it: tail loss probe and
 * RTO.
 */
#include "netstack/recovery/recovery_priv.h"

#define RTO_FIRST_US NET_MS(1000)  /* RFC 6298 2.1 */
#define RTO_VAR_US   NET_MS(120)   /* RTO >= SRTT + this */
#define RTO_MAX_US   NET_MS(60000) /* RFC 6298 2.5 */
#define ACK_DELAY_US NET_MS(200)   /* RFC 8985 7.2, the longest */

/*
 * RFC 5681 3.1: slow start goes on until something is lost. lwIP ends it at
 * the size of its send buffer, which here may grow.
 */
static void begin_window(struct tcp_pcb *pcb)
{
	if (pcb->ssthresh == TCP_SND_BUF)
		pcb->ssthresh = UINT32_C(1) << 30;
}

/*
 * RFC 6298 2.2 and 2.3, Jacobson's scaled integers, and the least RTT, which no
 * delayed ACK has lengthened.
 */
void net_rtt_sample(struct net_conn *conn, uint32_t rtt_us)
{
	int32_t error;

	if (rtt_us == 0)
		rtt_us = 1; /* 0 is: no sample yet */
	if (rtt_us > UINT32_C(1) << 26)
		return;
	net_hist_add(&net_here()->stats.rtt, (uint64_t)rtt_us << 10);
	if (conn->srtt_us == 0) {
		conn->srtt_us = rtt_us << 3;
		conn->rttvar_us = rtt_us << 1;
		conn->pcb.min_rtt_us = rtt_us;
		begin_window(&conn->pcb);
		return;
	}
	conn->pcb.min_rtt_us = LWIP_MIN(conn->pcb.min_rtt_us, rtt_us);
	error = (int32_t)rtt_us - (int32_t)(conn->srtt_us >> 3);
	conn->srtt_us += (uint32_t)error;
	if (error < 0)
		error = -error;
	conn->rttvar_us += (uint32_t)(error - (int32_t)(conn->rttvar_us >> 2));
}

/*
 * RFC 7323 4: the timestamp that an ACK echoes also measures segments that were
 * sent again. Our clock of timestamps is coarse: round up, so that the least
 * RTT stays true.
 */
void net_rtt_by_echo(const struct net_conn *conn, struct net_ack *ack)
{
	uint32_t ticks = net_ts_now() + conn->pcb.ts_offset - ack->echo;

	if (!ack->has_echo || ack->acked == 0 || ticks >= UINT32_C(1) << 16)
		return;
	ack->rtt_us = (ticks + 1) << 10;
	ack->has_rtt = true;
}

/* RFC 6298 2.3 to 2.5 and 5.5, with a floor of its own. */
uint32_t net_rtt_backed_off_us(const struct net_conn *conn, unsigned doublings)
{
	uint64_t us = RTO_FIRST_US;

	if (conn->srtt_us)
		us = (conn->srtt_us >> 3) +
		     LWIP_MAX(conn->rttvar_us, RTO_VAR_US);
	us <<= LWIP_MIN(doublings, 16);
	return (uint32_t)LWIP_MIN(us, RTO_MAX_US);
}

/*
 * RFC 8985 7.2 has 2 SRTT and, if the peer may delay its ACK, the longest such
 * delay. Here the delay is learnt: a segment that was probed for measures
 * nothing (Karn), so the next probe waits twice as long until one does. It
 * waits no longer than the RFC's: round trips that vary much, as on a busy
 * machine, would have made it wait for nearly the timeout.
 */
uint32_t net_rtt_probe_us(const struct net_conn *conn)
{
	uint32_t srtt_us = conn->srtt_us >> 3;
	uint32_t us = srtt_us + LWIP_MAX(srtt_us, conn->rttvar_us / 2);

	us = LWIP_MAX(us, NET_PROBE_US) << conn->probe_shift;
	return LWIP_MIN(us, 2 * srtt_us + ACK_DELAY_US);
}

void net_recovery_info(const struct net_conn *conn,
		       struct net_recovery_info *out)
{
	*out = (struct net_recovery_info){
		.cwnd_bytes = conn->has_recovery ? conn->recovery->cwnd
						 : conn->pcb.cwnd,
		.ssthresh_bytes = conn->pcb.ssthresh,
		.retransmits = conn->ext->retransmits,
	};
	out->srtt_ns = (uint64_t)(conn->srtt_us >> 3) << 10;
	out->rttvar_ns = (uint64_t)(conn->rttvar_us >> 2) << 10;
	out->rto_ns = (uint64_t)net_rtt_rto_us(conn) << 10;
	if (conn->has_recovery)
		out->pacing_rate = (uint64_t)net_pacing_rate(conn);
}
