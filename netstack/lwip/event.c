/*
 * Receives lwIP's events.
 *
 * lwIP's one event function records what happened and makes coroutines ready;
 * everything else runs in the coroutine that requested it.
 */
#include "netstack/conn/end.h"
#include "netstack/api/api.h"
#include "netstack/program/events.h"

#include <errno.h>

static int error_of(const struct net_conn *conn, err_t err)
{
	switch (err) {
	case ERR_RST:
		net_here()->stats.reset++;
		return conn->connecting ? -ECONNREFUSED : -ECONNRESET;
	case ERR_ABRT:
		net_here()->stats.timed_out++;
		return -ETIMEDOUT;
	case ERR_CLSD:
		return -EPIPE;
	default:
		return -EIO;
	}
}

static err_t on_recv(struct net_conn *conn, struct pbuf *p)
{
	if (!p) {
		if (conn) {
			conn->eof = true;
			net_conn_wake_reader(conn);
		}
		return ERR_OK;
	}
	if (!conn || conn->rd_shut) {
		if (conn)
			net_conn_recved(conn, p->tot_len);
		pbuf_free(p);
		return ERR_OK;
	}
	net_count_bytes(conn, p->tot_len, 0);
	net_rxq_append(conn, p);
	net_conn_wake_reader(conn);
	return ERR_OK;
}

static void wake_dialer(struct net_conn *conn)
{
	conn->connecting = false;
	net_event_opened(conn, true);
	net_wake(conn->writer);
}

void *net_pcb_arg(struct tcp_pcb *pcb)
{
	return net_conn_of(pcb)->attached ? pcb : NULL;
}

/* lwIP's events. arg is the connection, NULL once its owner has closed it. */
err_t lwip_tcp_event(void *arg, struct tcp_pcb *pcb, enum lwip_event event,
		     struct pbuf *p, uint16_t size, err_t err)
{
	struct net_conn *conn = arg;

	switch (event) {
	case LWIP_EVENT_RECV:
		return on_recv(conn, p);
	case LWIP_EVENT_SENT:
		net_recovery_acked(net_conn_of(pcb));
		if (!conn)
			break;
		net_count_bytes(conn, 0, size);
		net_conn_wake_writer(conn);
		break;
	case LWIP_EVENT_ACCEPT: /* of a dial that crossed the peer's */
	case LWIP_EVENT_CONNECTED:
		if (conn)
			wake_dialer(conn);
		break;
	case LWIP_EVENT_ERR:
		if (err == ERR_RST) /* before the pcb is freed */
			net_here()->ending = NET_END_PEER_RESET;
		if (conn) {
			conn->err = (int16_t)error_of(conn, err);
			net_conn_wake_all(conn);
		}
		break;
	case LWIP_EVENT_POLL:
		break;
	}
	return ERR_OK;
}
