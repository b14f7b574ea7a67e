/*
 * The application without a coroutine: net_set_watch() on a connection that the
 * stack has dialed. Everything happens in callbacks, which do not block.
 */
#include "tests/net/random.h"

#include <errno.h>

static struct net_watch watches[MAX_FLOWS];

static void finish_flow(struct flow *flow)
{
	struct app *app = &flow->app;
	struct net_conn *conn = app->conn;

	app_note_end(flow);
	app->conn = NULL;
	app->ended = true;
	if (flow->d->ending == END_ABORT)
		net_abort(conn);
	else
		net_close(conn);
}

/* Returns whether the connection still exists. */
static bool read_all(struct flow *flow)
{
	struct app *app = &flow->app;
	struct net_view view;
	long n;

	if (app->eof || app->rd_err)
		return true;
	while ((n = net_recv_view(app->conn, &view)) > 0) {
		app_take(flow, view.data, view.len);
		net_view_release(app->conn, &view);
	}
	if (n == -EAGAIN)
		return true;
	app->eof = n == 0;
	if (n == 0) {
		check_eof(flow);
		return true;
	}
	app->rd_err = (int)n;
	check_error(flow, "reading", app->rd_err);
	return false;
}

static bool write_all(struct flow *flow)
{
	struct app *app = &flow->app;
	const struct draw *d = flow->d;

	while (app->sent < d->out_bytes) {
		uint32_t n = d->out_bytes - app->sent;
		long taken;

		if (n > d->write_max)
			n = rng_between(&flow->app_rng, 1, d->write_max);
		life.calls++;
		life.call_bytes += n;
		app->sent_max = app->sent + n;
		taken = net_send(app->conn, stream_at(flow, TO_PEER, app->sent),
				 n);
		if (taken == -EAGAIN) {
			app->sent_max = app->sent;
			return true;
		}
		if (taken < 0) {
			app->wr_err = (int)taken;
			check_error(flow, "writing", app->wr_err);
			return false;
		}
		app->sent += (uint32_t)taken;
		app->sent_max = app->sent;
	}
	if (d->shut_wr && !app->wr_shut &&
	    net_shutdown(app->conn, NET_SHUT_WR) == 0)
		app->wr_shut = true;
	return true;
}

static void handle_event(struct net_conn *conn, struct net_watch *watch)
{
	struct flow *flow = &life.flows[watch - watches];
	struct app *app = &flow->app;

	if (conn != app->conn)
		violated(flow, "a callback for another connection");
	if (!read_all(flow) || !write_all(flow) ||
	    (app->eof && app->sent == flow->d->out_bytes))
		finish_flow(flow);
}

void app_watch(struct flow *flow)
{
	struct net_watch *watch = &watches[flow->index];

	watch->fn = handle_event;
	net_set_cc(flow->app.conn, flow->d->cc);
	if (flow->d->user_timeout_ms) {
		net_set_user_timeout(flow->app.conn, flow->d->user_timeout_ms);
		flow->watch.causes |= BY_DEADLINE;
	}
	if (flow->d->pace)
		net_set_pacing_rate(flow->app.conn, flow->d->pace);
	net_set_keepalive(flow->app.conn, 5, 1, 20);
	net_set_watch(flow->app.conn, watch);
	handle_event(flow->app.conn, watch); /* what has come before */
}
