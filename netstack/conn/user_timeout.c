/*
 * The user timeout (RFC 5482, for this side alone): how long a connection waits
 * for its peer before it is given up, as Linux's TCP_USER_TIMEOUT.
 *
 * For data in flight the wait begins with its first retransmission; for data
 * that a closed window holds back, when that is noticed, even if the peer
 * answers each probe; for keepalive, with the last segment of the peer, but the
 * last probe has its interval to be answered in. If data waits when the first
 * user timeout is set, it counts from that call. Without
 * a user timeout TCP's own bounds apply: twelve timeouts, and a peer that
 * answers probes is never given up.
 *
 * Few connections have one, so its state is in a larger net_conn_ext, which
 * replaces the connection's own when a timeout is set.
 */
#include "netstack/conn/conn.h"

#include <errno.h>
#include <string.h>

/* Leaves out time in which the process did not run; wraps after 49 days. */
static uint32_t clock_ms(void)
{
	return (uint32_t)((net_here()->now_ns - net_here()->paused_ns) /
			  1000000);
}

/* ---- setting the user timeout ---- */

void net_user_timeout_init(struct net_conn *conn)
{
	struct net_conn_user_timeout *timeout = net_conn_user_timeout(conn);

	timeout->since_ms = timeout->silent_ms = timeout->probed_ms =
		clock_ms();
	timeout->since_ack = conn->pcb.lastack - 1; /* before any wait */
}

/* Replaces the connection's ext, which is freed. */
static struct net_conn_user_timeout *make_timeout(struct net_conn *conn)
{
	struct net_conn_ext *was = net_conn_ext(conn);
	struct net_conn_user_timeout *timeout;

	if (!was)
		return NULL;
	timeout = net_mem_calloc(1, sizeof(*timeout));
	if (!timeout)
		return NULL;
	memcpy(timeout, was,
	       was->has_counters ? sizeof(struct net_counted) : sizeof(*was));
	timeout->all.ext.has_user_timeout = true;
	if (was->pollers) /* the list's head moves */
		was->pollers->pprev = &timeout->all.ext.pollers;
	net_mem_free(was);
	conn->ext = &timeout->all.ext;
	net_user_timeout_init(conn);
	return timeout;
}

int net_conn_set_user_timeout(struct net_conn *conn, uint32_t timeout_ms)
{
	struct net_conn_user_timeout *timeout = net_conn_user_timeout(conn);

	if (!timeout && timeout_ms == 0)
		return 0;
	if (!timeout)
		timeout = make_timeout(conn);
	if (!timeout)
		return -ENOMEM;
	timeout->timeout_ms = timeout_ms;
	return 0;
}

/* ---- waiting ---- */

bool net_user_timeout_is_set(const struct net_conn *conn)
{
	const struct net_conn_user_timeout *timeout =
		net_conn_user_timeout(conn);

	return timeout && timeout->timeout_ms;
}

/*
 * Only an ACK of new data is progress: a peer that acknowledges nothing and
 * changes its window would make the wait begin again and again. But when the
 * window has opened for what it held back, that data has the whole timeout to
 * be acknowledged in.
 */
void net_user_timeout_begin(struct net_conn *conn)
{
	struct net_conn_user_timeout *timeout = net_conn_user_timeout(conn);
	bool in_flight = conn->pcb.unacked;

	if (!timeout || (timeout->since_ack == conn->pcb.lastack &&
			 timeout->since_in_flight == in_flight))
		return;
	timeout->since_ms = clock_ms();
	timeout->since_ack = conn->pcb.lastack;
	timeout->since_in_flight = in_flight;
}

/* Does data wait for the peer? */
static bool is_waiting(const struct tcp_pcb *pcb)
{
	if (pcb->state < ESTABLISHED)
		return false;
	return pcb->unacked ? pcb->nrtx != 0
			    : pcb->unsent && pcb->persist_steps;
}

/* Returns how long it is until this time of clock_ms(); negative: passed. */
static int32_t until_ms(uint32_t due_ms)
{
	return (int32_t)(due_ms - clock_ms());
}

static int64_t data_due_ns(const struct net_conn_user_timeout *timeout,
			   const struct tcp_pcb *pcb)
{
	int32_t left_ms = until_ms(timeout->since_ms + timeout->timeout_ms);

	if (!is_waiting(pcb))
		return CORO_FOREVER;
	return net_here()->now_ns + left_ms * INT64_C(1000000);
}

void net_user_timeout_probed(struct net_conn *conn)
{
	struct net_conn_user_timeout *timeout = net_conn_user_timeout(conn);

	if (!timeout)
		return;
	timeout->probed_ms = clock_ms();
	if (conn->pcb.keep_cnt_sent == 1)
		timeout->silent_ms =
			timeout->probed_ms - 1000u * conn->pcb.keep_idle_s;
}

/*
 * Returns when a connection whose keepalives are not answered is given up: the
 * number of probes does not count then, and each has its interval to be
 * answered in, as in Linux. That ends a tick before the next probe is sent.
 */
static int64_t keepalive_due_ns(const struct net_conn_user_timeout *timeout,
				const struct tcp_pcb *pcb)
{
	int32_t answer_ms =
		until_ms(timeout->probed_ms + 1000u * pcb->keep_intvl_s -
			 TCP_SLOW_INTERVAL);
	int32_t left_ms = until_ms(timeout->silent_ms + timeout->timeout_ms);

	if (!pcb->keep_cnt_sent || !ip_get_option(pcb, SOF_KEEPALIVE))
		return CORO_FOREVER;
	return net_here()->now_ns +
	       LWIP_MAX(answer_ms, left_ms) * INT64_C(1000000);
}

int64_t net_user_timeout_due_ns(const struct net_conn *conn)
{
	const struct net_conn_user_timeout *timeout =
		net_conn_user_timeout(conn);
	int64_t data_ns, keepalive_ns;

	if (!net_user_timeout_is_set(conn))
		return CORO_FOREVER;
	data_ns = data_due_ns(timeout, &conn->pcb);
	keepalive_ns = keepalive_due_ns(timeout, &conn->pcb);
	return LWIP_MIN(data_ns, keepalive_ns);
}

bool net_user_timeout_gives_up(struct net_conn *conn)
{
	if (net_user_timeout_due_ns(conn) > net_here()->now_ns)
		return false;
	net_conn_give_up(conn);
	return true;
}
