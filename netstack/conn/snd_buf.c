/*
 * Room in the send buffer.
 */
#include "netstack/conn/conn.h"

#define ROOM_MAX    0xffffu /* bytes that lwIP takes at once */
#define UNSENT_MAX  32768u  /* bytes taken before they can be sent, or more */
#define PIECE_BYTES 256u    /* bytes of a buffer for each pbuf it may have */

/*
 * While memory is short a connection has no more than its part of what is left,
 * but always two segments.
 */
__attribute__((noinline)) static uint32_t buffer_left(const struct tcp_pcb *pcb)
{
	uint32_t queued = pcb->snd_lbb - pcb->lastack;
	uint32_t most = LWIP_MAX(net_here()->snd_max, 2u * pcb->mss);

	if (queued >= most || pcb->snd_queuelen >= most / PIECE_BYTES)
		return 0;
	return LWIP_MIN(pcb->snd_buf, most - queued);
}

/*
 * Room in the send buffer, which has limits in bytes and in pbufs. While the
 * peer would take more than is queued, few bytes may wait for the port or for
 * cwnd: they would only grow cold in the cache. They are no less than a round
 * receives, which would otherwise pile up before a coroutine that forwards it.
 * Behind a peer that does not read, the whole buffer may fill.
 */
size_t net_send_room(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	uint32_t queued = pcb->snd_lbb - pcb->lastack;
	uint32_t unsent = pcb->snd_lbb - pcb->snd_nxt;
	uint32_t room = pcb->snd_buf, most;

	if (pcb->snd_queuelen >= (room + queued) / PIECE_BYTES)
		return 0; /* the buffer may have grown */
	if (unlikely(net_here()->snd_max < TCP_SND_BUF))
		room = buffer_left(pcb);
	if (queued < pcb->snd_wnd) {
		most = LWIP_MAX(UNSENT_MAX, GLUE_BURST * (uint32_t)pcb->mss);
		room = unsent < most ? LWIP_MIN(room, most - unsent) : 0;
	}
	return LWIP_MIN(room, ROOM_MAX);
}

/* With less room the woken writer would only wait again. */
static size_t room_wanted(const struct net_conn *conn)
{
	return conn->wants == NET_WANTS_SEGMENT
		       ? LWIP_MAX(conn->pcb.mss, NET_RECORD_ROOM)
		       : 1;
}

void net_send_went_out(struct net_conn *conn)
{
	size_t room;

	if (!conn->wants && !conn->ext->pollers)
		return;
	if (conn->wants == NET_WANTS_MEMORY)
		return; /* trying again each round would find none either */
	room = net_send_room(conn);
	if (room >= room_wanted(conn))
		net_wake(conn->writer);
	if (room && conn->ext->pollers)
		net_poll_wake(conn->ext->pollers, NET_WRITABLE);
}
