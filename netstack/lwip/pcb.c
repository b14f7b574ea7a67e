/*
 * The life of a pcb, from its allocation by memp until it is freed on any path.
 */
#include "netstack/lwip/pcb_priv.h"

#include <errno.h>
#include <string.h>

#include "netstack/conn/end.h"
#include "netstack/conn/ended.h"
#include "netstack/program/events.h"
#include "netstack/tcp/tcp.h"

/* Called before any segment has passed; without memory, nothing is counted. */
static void begin_counting(struct net_conn *conn)
{
	struct net_counted *counted = net_mem_calloc(1, sizeof(*counted));

	if (!counted)
		return;
	counted->ext = net_conn_no_ext;
	counted->ext.has_counters = true;
	conn->ext = &counted->ext;
	counted->sent_ns = counted->recv_ns = net_here()->now_ns;
	counted->idle_ns = counted->phase_ns = net_here()->now_ns;
	counted->began = (uint32_t)(net_here()->now_ns >> 24);
	net_here()->n_counted++;
}

/* A new connection as tcp_alloc() returns it, uncounted; `pcb_live` is clear
 * until there was one. Accepted connections are copies of it. */
static NET_SHARD_VAR struct net_conn fresh_conn;
#define fresh_conn NET_SHARD(fresh_conn)

/* Returns memory for a connection, not initialised; NULL: there is none. */
static struct net_conn *take_memory(void)
{
	return net_output_has_room() ? net_mem_pool_alloc(MEMP_TCP_PCB) : NULL;
}

static void begin_life(struct net_conn *conn)
{
	if (net_here()->n_counted < net_here()->max_counted)
		begin_counting(conn);
	net_here()->n_conns++;
}

void *net_conn_alloc(void)
{
	struct net_conn *conn = take_memory();

	if (!conn)
		return NULL;
	memset(conn, 0, sizeof(*conn));
	conn->pcb_live = true;
	conn->shard = (uint8_t)net_here()->shard;
	conn->cc = net_here()->cc & 3;
	conn->ext = &net_conn_no_ext;
	net_timer_init(conn);
	begin_life(conn);
	return conn;
}

cold static struct net_conn *make_first(void)
{
	struct net_conn *conn = net_conn_of(tcp_alloc(TCP_PRIO_NORMAL));

	if (!conn)
		return NULL;
	fresh_conn = *conn;
	fresh_conn.ext = &net_conn_no_ext;
	return conn;
}

struct net_conn *net_conn_new(void)
{
	struct net_conn *conn;

	if (unlikely(!fresh_conn.pcb_live))
		return make_first();
	if (!net_orphan_make_room()) {
		net_here()->stats.no_memory++;
		return NULL;
	}
	conn = take_memory();
	if (!conn)
		return NULL;
	*conn = fresh_conn;
	conn->pcb.tmr = tcp_ticks;
	begin_life(conn);
	return conn;
}

/*
 * Returns why lwIP has freed the pcb if it did not report that: it reports
 * nothing in SYN_RCVD, and a dialed one gets there when the peer dials, too.
 */
static int pending_error(const struct net_conn *conn)
{
	if (conn->connecting && conn->pcb.nrtx >= TCP_MAXRTX)
		return -ETIMEDOUT;
	if (conn->connecting)
		return -ECONNREFUSED;
	return conn->eof ? -EPIPE : -ECONNABORTED;
}

/* Called when lwIP has freed the pcb, on whatever path. */
void net_conn_pcb_freed(struct net_conn *conn)
{
	if (conn->hashed) {
		net_here()->stats.closed++;
		net_event_closed(conn);
	}
	net_demux_remove(conn);
	coro_timer_cancel(net_here()->sched, &conn->timer);
	net_recovery_free(conn);
	if (conn->pending)
		net_listener_forget(conn);
	net_orphan_leave(conn);
	conn->pcb_live = false;
	net_count_phase(conn);
	net_ooseq_clear(conn);
	net_here()->n_conns--;
	if (!conn->err)
		conn->err = (int16_t)pending_error(conn);
	if (net_traced(conn))
		net_trace_ended(conn);
	net_here()->ending = NET_END_NONE;
	net_ended_enter(conn);
	net_conn_wake_all(conn);
	net_conn_put(conn);
}
