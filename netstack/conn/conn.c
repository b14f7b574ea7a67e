/*
 * Connections: their memory, waiting, and waking those that wait.
 */
#include "netstack/conn/conn.h"

#include <errno.h>

#include "netstack/conn/ended.h"
#include "netstack/conn/tls.h"

/* ---- life ---- */

#undef net_turns
NET_SHARD_VAR uint32_t net_turns[NET_TURNS];

const struct net_conn_ext net_conn_no_ext = {.read_deadline = CORO_FOREVER,
					     .write_deadline = CORO_FOREVER};

struct net_conn_ext *net_conn_ext(struct net_conn *conn)
{
	struct net_conn_ext *ext = (struct net_conn_ext *)conn->ext;

	if (ext != &net_conn_no_ext)
		return ext;
	ext = net_mem_malloc(sizeof(*ext));
	if (!ext)
		return NULL;
	*ext = net_conn_no_ext;
	conn->ext = ext;
	return ext;
}

/*
 * Frees the memory once nobody holds it: lwIP, an owner, a handler, waiters,
 * net_poll(), the output queue.
 */
void net_conn_put(struct net_conn *conn)
{
	net_client_check(conn);
	if (conn->pcb_live || conn->owned || conn->waiters || conn->in_output ||
	    conn->ext->pollers || conn->served)
		return;
	net_ended_leave(conn);
	net_rxq_clear(conn);
	net_here()->n_counted -= conn->ext->has_counters;
	if (conn->ext != &net_conn_no_ext) {
		if (unlikely(net_is_tls(conn)))
			net_tls_calls(conn)->forget(conn);
		net_mem_free(net_conn_ext(conn));
	}
	if (conn->announced) {
		net_name_forget(conn);
		if (net_traced(conn))
			net_trace_gone(conn);
	}
	net_mem_free(conn);
}

/* ---- waiting ---- */

cold int net_conn_refusal(const struct net_conn *conn)
{
	if (!conn || !conn->owned || conn->lingering)
		return -EBADF;
	return conn->cancelled ? -ECANCELED : -EBUSY;
}

int net_conn_wait_begin(struct net_conn *conn, struct coro **slot)
{
	struct coro *self = coro_self();

	if (conn->watched)
		return -EAGAIN;
	if (!self)
		return -EPERM;
	if (*slot)
		return -EBUSY;
	if (net_here()->draining)
		return -ECANCELED;
	*slot = self;
	conn->waiters++;
	return 0;
}

int net_conn_wait_end(struct net_conn *conn, struct coro **slot, int err)
{
	conn->waiters--;
	*slot = NULL;
	if (conn->owned)
		return net_here()->draining && err == 0 ? -ECANCELED : err;
	net_conn_put(conn); /* closed by another coroutine meanwhile */
	net_call_end(err);
	return -EBADF;
}

int net_conn_wait(struct net_conn *conn, struct coro **slot,
		  int64_t deadline_ns)
{
	int err = net_conn_wait_begin(conn, slot);

	if (err < 0)
		return err;
	return net_conn_wait_end(conn, slot, coro_park_in_call(deadline_ns));
}

/* ---- waking ---- */

void net_poller_wake(struct net_poller *poller)
{
	if (poller->woken)
		return;
	poller->woken = true;
	coro_unpark(poller->co);
}

void net_poll_wake(struct net_poll_node *nodes, unsigned events)
{
	for (; nodes; nodes = nodes->next)
		if (nodes->events & events)
			net_poller_wake(nodes->poller);
}

void net_poll_wake_all(void)
{
	for (struct net_poller *p = net_here()->pollers; p; p = p->next)
		net_poller_wake(p);
}

/* Makes every call blocked on it return, with err. */
void net_conn_kill(struct net_conn *conn, int err)
{
	if (!conn->err)
		conn->err = (int16_t)err;
	net_conn_wake_all(conn);
}

/* ---- the timer of a connection ---- */

void net_timer_by(struct net_conn *conn, int64_t due_ns)
{
	if (due_ns < conn->timer.expires_ns)
		coro_timer_arm(net_here()->sched, &conn->timer, due_ns);
}
