/*
 * Ends a connection: shutting one direction or both, an orderly close, a reset.
 */
#include "netstack/api/api.h"
#include "netstack/conn/end.h"

#include <errno.h>

static bool is_gone(const struct net_conn *conn)
{
	return !conn || !conn->owned || conn->lingering;
}

static int shut_conn(struct net_conn *conn, enum net_shut how)
{
	if (is_gone(conn))
		return -EBADF;
	if (how < NET_SHUT_RD || how > NET_SHUT_RDWR)
		return -EINVAL;
	if (!conn->pcb_live)
		return -ENOTCONN;
	if ((how & NET_SHUT_RD) && !conn->rd_shut) {
		unsigned unread = conn->rx_tail ? net_rxq_bytes(conn) : 0;

		conn->rd_shut = true;
		net_rxq_clear(conn);
		net_conn_recved(conn, unread);
		net_conn_wake_reader(conn);
	}
	if ((how & NET_SHUT_WR) && !conn->wr_shut) {
		uint32_t window = net_cwnd_shut(conn);
		err_t err = tcp_shutdown(&conn->pcb, 0, 1);

		net_cwnd_open(conn, window);
		if (err != ERR_OK)
			return -ENOTCONN;
		conn->wr_shut = true;
		net_conn_wake_writer(conn);
		net_conn_queue_output(conn);
		net_pcbs_take_back();
	}
	return 0;
}

/* close_notify (RFC 8446 6.1) goes before the FIN. */
cold static int shut_tls(struct net_conn *conn, enum net_shut how)
{
	int err = 0;

	if (!is_gone(conn) && conn->pcb_live)
		err = net_tls_calls(conn)->shut(conn, how);
	return err < 0 ? err : shut_conn(conn, how);
}

cold static long shut_traced(struct net_conn *conn, enum net_shut how)
{
	NET_CALL_COLD(conn, "net_shutdown", 0, shut_conn(conn, how),
		      shut_tls(conn, how));
}

int net_shutdown(struct net_conn *conn, enum net_shut how)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return (int)shut_traced(conn, how);
	return shut_conn(conn, how);
}

/* Ends ownership; the pcb may live on to send its FIN. */
static void disown_conn(struct net_conn *conn)
{
	conn->owned = false;
	conn->watched = false;
	if (conn->n_views && !conn->served)
		net_views_reclaim(conn);
	net_conn_wake_all(conn);
	if (!conn->in_time_wait || !conn->pcb_live ||
	    !net_time_wait_check(conn))
		net_conn_put(conn);
}

/*
 * RFC 2525 2.17: have bytes come that nobody has read? lwIP resets a connection
 * then, but not if our FIN is out already: a peer that went on asking for a
 * window would be answered for ever.
 */
static bool unread_behind_fin(const struct net_conn *conn)
{
	return conn->rx_tail &&
	       (conn->pcb.state == FIN_WAIT_1 || conn->pcb.state == FIN_WAIT_2);
}

static void abort_for(struct net_conn *conn, enum net_end why)
{
	if (conn->pcb_live) {
		conn->attached = false;
		net_conn_reset(conn, why);
	}
	disown_conn(conn);
}

/* lwIP learns from rcv_wnd whether all has been read. */
static void close_by_lwip(struct net_conn *conn)
{
	uint32_t window, rcv_wnd = conn->pcb.rcv_wnd;

	conn->pcb.rcv_wnd = TCP_WND_MAX(&conn->pcb) - !!conn->rx_tail;
	window = net_cwnd_shut(conn);
	net_here()->ending = conn->rx_tail ? NET_END_UNREAD : 0;
	tcp_close(&conn->pcb); /* if memory is short: TF_CLOSEPEND */
	net_here()->ending = NET_END_NONE;
	net_cwnd_open(conn, window);
	net_pcbs_take_back();
	if (conn->pcb_live)
		conn->pcb.rcv_wnd = rcv_wnd;
}

static void close_now(struct net_conn *conn)
{
	if (conn->pcb_live && unread_behind_fin(conn)) {
		abort_for(conn, NET_END_UNREAD);
		return;
	}
	if (conn->pcb_live) {
		conn->attached = false;
		if (!net_predict_close(conn))
			close_by_lwip(conn);
	}
	if (conn->pcb_live) {
		/* The wait for the peer's FIN begins with the close. */
		if (conn->pcb.state == FIN_WAIT_2)
			conn->pcb.tmr = tcp_ticks;
		/* For lwIP no answer to a probe would count. */
		ip_reset_option(&conn->pcb, SOF_KEEPALIVE);
		if (conn->pcb.unsent) /* the port may have had no room */
			net_conn_queue_output(conn);
		net_timer_check(conn);
		net_orphan_enter(conn);
	}
	disown_conn(conn);
}

static long close_if_open(struct net_conn *conn)
{
	if (!is_gone(conn))
		close_now(conn);
	return 0;
}

cold static long close_tls(struct net_conn *conn)
{
	enum net_end why;

	if (is_gone(conn))
		return 0;
	why = net_tls_calls(conn)->close(conn);
	if (why)
		abort_for(conn, why);
	else
		close_now(conn);
	return 0;
}

cold static long close_traced(struct net_conn *conn)
{
	NET_CALL_COLD(conn, "net_close", 0, close_if_open(conn),
		      close_tls(conn));
}

void net_close(struct net_conn *conn)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		close_traced(conn);
	else
		close_if_open(conn);
}

static long abort_if_open(struct net_conn *conn)
{
	if (conn && conn->owned)
		abort_for(conn, NET_END_ABORT);
	return 0;
}

cold static long abort_traced(struct net_conn *conn)
{
	NET_CALL_TRACED(conn, "net_abort", 0, abort_if_open(conn));
}

bool net_stack_delivered(const struct net_stack *stack)
{
	NET_CHECK_STACK(stack);
	return !stack || net_orphans_delivered();
}

void net_abort(struct net_conn *conn)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		abort_traced(conn);
	else
		abort_if_open(conn);
}

void net_conn_discard(struct net_conn *conn, int err, enum net_end why)
{
	struct net_watch *watch = conn->watched ? conn->watch : NULL;

	conn->attached = false;
	if (!conn->err || (!conn->pcb_live && conn->rx_tail))
		conn->err = (int16_t)err;
	conn->eof = false; /* bytes before it may be lost: no clean end */
	net_rxq_clear(conn);
	if (net_is_tls(conn))
		net_tls_calls(conn)->forget(conn);
	if (conn->pcb_live)
		net_conn_reset(conn, why); /* wakes waiters; it may be gone */
	if (watch)
		watch->fn(conn, watch);
}

void net_conn_drop(struct net_conn *conn)
{
	net_conn_discard(conn, -ECONNABORTED, NET_END_DROP);
}

/*
 * Has the peer acknowledged everything, and our FIN as well? When that is so,
 * lwIP frees a pcb in LAST_ACK, and reports ERR_CLSD.
 */
static bool is_fin_acked(const struct net_conn *conn)
{
	if (!conn->pcb_live)
		return conn->err == -EPIPE;
	return conn->pcb.state == FIN_WAIT_2 || conn->pcb.state == TIME_WAIT;
}

static int wait_delivered(struct net_conn *conn, int64_t deadline_ns)
{
	while (!is_fin_acked(conn)) {
		int err = conn->err;

		if (err == 0)
			err = net_conn_wait(conn, &conn->writer, deadline_ns);
		if (err == 0 && conn->cancelled)
			err = -ECANCELED;
		if (err < 0)
			return err;
	}
	return 0;
}

static int close_and_wait(struct net_conn *conn, int64_t deadline_ns)
{
	int err;

	if (is_gone(conn))
		return -EBADF;
	if (!coro_self())
		return -EPERM;
	if (conn->writer)
		return -EBUSY;
	shut_conn(conn, NET_SHUT_RDWR);
	conn->cancelled = false;
	conn->lingering = true;
	conn->watched = false;
	net_conn_wake_all(conn);
	err = wait_delivered(conn, deadline_ns);
	if (err == -EBADF)
		return -ECONNABORTED; /* by net_abort() of another coroutine */
	conn->lingering = false;      /* nobody keeps its memory any more */
	if (err == 0 || err == -ECANCELED || err == -EOWNERDEAD)
		close_now(conn);
	else
		abort_for(conn, NET_END_ABORT);
	net_call_end(err);
	return err;
}

cold static int close_and_wait_tls(struct net_conn *conn, int64_t deadline_ns)
{
	if (is_gone(conn) || !coro_self() || conn->writer)
		return close_and_wait(conn, deadline_ns); /* why it may not */
	if (conn->pcb_live &&
	    net_tls_calls(conn)->shut(conn, NET_SHUT_RDWR) < 0) {
		abort_for(conn, NET_END_MEMORY);
		return -ENOMEM;
	}
	net_tls_calls(conn)->forget(conn);
	return close_and_wait(conn, deadline_ns);
}

cold static long close_wait_traced(struct net_conn *conn, int64_t deadline_ns)
{
	NET_CALL_COLD(conn, "net_close_wait", 0,
		      close_and_wait(conn, deadline_ns),
		      close_and_wait_tls(conn, deadline_ns));
}

int net_close_wait(struct net_conn *conn, int64_t deadline_ns)
{
	if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))
		return (int)close_wait_traced(conn, deadline_ns);
	return close_and_wait(conn, deadline_ns);
}

int net_cancel(struct net_conn *conn)
{
	NET_CHECK_CONN(conn);
	if (!conn || !conn->owned)
		return -EBADF;
	conn->cancelled = true;
	net_conn_wake_all(conn);
	return 0;
}
