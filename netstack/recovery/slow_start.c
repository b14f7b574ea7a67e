/*
 * The congestion window of a connection without recovery state: the initial
 * window, slow start.
 */
#include "netstack/recovery/recovery_priv.h"

/*
 * RFC 6928: ten segments of initial window, but no more than 14600 bytes where
 * two are less. lwIP sets its own smaller one when the handshake ends.
 */
void net_cwnd_begin(struct tcp_pcb *pcb)
{
	u32_t window =
		LWIP_MIN(10u * pcb->mss, LWIP_MAX(2u * pcb->mss, 14600u));

	if (pcb->cwnd < window)
		pcb->cwnd = window;
}

/*
 * lwIP's slow start grows by two segments an ACK, however many it covers. Our
 * own receiver, like a kernel's behind GRO, acknowledges a whole burst at
 * once: RFC 9406 4.2 counts up to eight.
 */
void net_cwnd_slow_start(struct tcp_pcb *pcb, uint32_t lastack, uint32_t cwnd)
{
	uint32_t acked = pcb->lastack - lastack;

	if (acked <= 2u * pcb->mss || pcb->cwnd != cwnd + 2u * pcb->mss)
		return; /* not in slow start, or not held back */
	pcb->cwnd = cwnd + LWIP_MIN(acked, 8u * pcb->mss);
}
