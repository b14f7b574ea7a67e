/*
 * The application: a coroutine that reads and one that writes on each
 * connection, with drawn calls, sizes and pauses; then one of four ends. Every
 * received byte is compared, and written bytes are recorded to check the peer's
 * side.
 */
#include "tests/net/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HELD 8u
#define CALL_MAX  65000u

enum writing {
	WRITE_SEND = 1,
	WRITE_ALL = 2,
	WRITE_VECTOR = 4,
	WRITE_VECTOR_ALL = 8,
	WRITE_OWNED = 16,
	WRITE_WHEN_WRITABLE = 32,
};

enum reads {
	READ_COPY = 1,
	READ_VIEW = 2,
	READ_FULL = 4,
	READ_VECTOR = 8,
	READ_UNTIL = 16,
};

static uint8_t scratch[MAX_FLOWS][CALL_MAX];
static struct net_view views[MAX_FLOWS][MOST_HELD];

static void sleep_randomly(struct flow *flow, int64_t most)
{
	if (most && rng_chance(&flow->app_rng, 300))
		coro_sleep_ns(1 + (int64_t)(rng_next(&flow->app_rng) %
					    (uint64_t)most));
}

/* Counts a call of the application, and its bytes, as allowed work. */
static void count_call(size_t bytes)
{
	life.calls++;
	life.call_bytes += bytes;
}

/* Picks one of the set bits at random. */
static unsigned pick_bit(struct rng *rng, unsigned bits)
{
	unsigned bit;

	do
		bit = 1u << rng_below(rng, 6);
	while (!(bits & bit)); /* at least one is set */
	return bit;
}

/* ---- writing ---- */

struct loan {
	struct flow *flow;
	size_t len;
	uint8_t bytes[];
};

static void loan_back(void *arg)
{
	struct loan *loan = arg;

	loan->flow->app.loans--;
	memset(loan->bytes, 0xee, loan->len);
	free(loan);
}

static long write_owned(struct flow *flow, const uint8_t *from, size_t n)
{
	struct loan *loan = malloc(sizeof(*loan) + n);

	if (!loan)
		abort();
	loan->flow = flow;
	loan->len = n;
	memcpy(loan->bytes, from, n);
	flow->app.loans++;
	return net_send_owned(flow->app.conn, loan->bytes, n, loan_back, loan);
}

static unsigned split_buffer(struct flow *flow, const uint8_t *from, size_t n,
			     struct iovec iov[4])
{
	unsigned parts = rng_between(&flow->app_rng, 1, 4), i;

	for (i = 0; i < parts && n; i++) {
		size_t part = i + 1 == parts ? n
					     : rng_below(&flow->app_rng,
							 (uint32_t)n + 1);

		iov[i] = (struct iovec){(void *)(uintptr_t)from, part};
		from += part;
		n -= part;
	}
	return i;
}

static long write_some(struct flow *flow, const uint8_t *from, size_t n)
{
	struct net_conn *conn = flow->app.conn;
	struct iovec iov[4];
	long room;

	switch (pick_bit(&flow->app_rng, flow->d->writes)) {
	case WRITE_SEND:
		return net_send(conn, from, n);
	case WRITE_ALL:
		return net_send_all(conn, from, n);
	case WRITE_VECTOR:
		return net_sendv(conn, iov, split_buffer(flow, from, n, iov));
	case WRITE_VECTOR_ALL:
		return net_sendv_all(conn, iov,
				     split_buffer(flow, from, n, iov));
	case WRITE_OWNED:
		return write_owned(flow, from, n);
	default:
		room = net_writable(conn);
		if (room <= 0)
			return room;
		return net_send(conn, from,
				n < (size_t)room ? n : (size_t)room);
	}
}

static void *run_writer(void *arg)
{
	struct flow *flow = arg;
	struct app *app = &flow->app;
	const struct draw *d = flow->d;

	while (app->sent < d->out_bytes) {
		uint32_t n = d->out_bytes - app->sent;
		long taken;

		sleep_randomly(flow, d->write_pause);
		if (n > d->write_max)
			n = rng_between(&flow->app_rng, 1, d->write_max);
		if (n > CALL_MAX)
			n = CALL_MAX;
		app->sent_max = app->sent + n;
		count_call(n);
		taken = write_some(flow, stream_at(flow, TO_PEER, app->sent),
				   n);
		if (taken < 0) {
			app->wr_err = (int)taken;
			check_error(flow, "writing", app->wr_err);
			break;
		}
		if (taken == 0 || taken > (long)n)
			violated(flow, "a write of %u bytes took %ld", n,
				 taken);
		app->sent += (uint32_t)taken;
		app->sent_max = app->sent;
	}
	if (app->wr_err == 0 && d->shut_wr &&
	    net_shutdown(app->conn, NET_SHUT_WR) == 0)
		app->wr_shut = true;
	app->writer_done = true;
	return NULL;
}

/* ---- reading ---- */

void app_take(struct flow *flow, const uint8_t *data, size_t n)
{
	uint32_t at = flow->app.got;

	if (at + n > flow->tx.written)
		violated(flow, "%zu bytes at %u were never sent", n, at);
	if (memcmp(data, stream_at(flow, TO_STACK, at), n) != 0)
		violated(flow, "wrong bytes within %zu at %u", n, at);
	flow->app.got += (uint32_t)n;
	count_call(n);
}

static void release_view(struct flow *flow, unsigned i)
{
	net_view_release(flow->app.conn, &views[flow->index][i]);
}

static void release_views(struct flow *flow)
{
	for (unsigned i = 0; i < MOST_HELD; i++)
		release_view(flow, i);
}

/* Keeps views for a while, each in a slot of its own. */
static long read_view(struct flow *flow)
{
	unsigned i =
		flow->d->hold ? rng_below(&flow->app_rng, flow->d->hold) : 0;
	struct net_view *view = &views[flow->index][i];
	long n;

	release_view(flow, i);
	n = net_recv_view(flow->app.conn, view);
	if (n > 0) {
		if (n != (long)view->len)
			violated(flow, "a view of %zu bytes: %ld", view->len,
				 n);
		app_take(flow, view->data, (size_t)n);
		if (!flow->d->hold)
			release_view(flow, i);
	}
	return n;
}

static long copy_some(struct flow *flow, long n)
{
	if (n > 0)
		app_take(flow, scratch[flow->index], (size_t)n);
	return n;
}

static long read_vector(struct flow *flow, uint32_t most)
{
	uint8_t *to = scratch[flow->index];
	uint32_t first = rng_below(&flow->app_rng, most + 1);
	struct iovec iov[2] = {{to, first}, {to + first, most - first}};

	return copy_some(flow, net_recvv(flow->app.conn, iov, 2));
}

/*
 * Reads up to a byte value that comes about every 256; if none does, just some.
 */
static long read_until(struct flow *flow, uint32_t most)
{
	uint8_t *to = scratch[flow->index];
	long n = net_recv_until(flow->app.conn, to, most, "\n", 1);

	if (n == -EMSGSIZE || n == -ENODATA)
		n = net_recv(flow->app.conn, to, most);
	return copy_some(flow, n);
}

static long read_some(struct flow *flow)
{
	struct net_conn *conn = flow->app.conn;
	uint8_t *to = scratch[flow->index];
	uint32_t most = rng_between(&flow->app_rng, 1, flow->d->read_max);

	if (most > CALL_MAX)
		most = CALL_MAX;
	switch (pick_bit(&flow->app_rng, flow->d->reads)) {
	case READ_VIEW:
		return read_view(flow);
	case READ_FULL:
		return copy_some(flow, net_recv_full(conn, to, most));
	case READ_VECTOR:
		return read_vector(flow, most);
	case READ_UNTIL:
		return read_until(flow, most);
	default:
		return copy_some(flow, net_recv(conn, to, most));
	}
}

static void read_all(struct flow *flow)
{
	struct app *app = &flow->app;

	while (app->got < flow->d->read_until) {
		uint32_t before = app->got;
		long n;

		sleep_randomly(flow, flow->d->app_read_pause);
		n = read_some(flow);
		if (n == 0) {
			app->eof = true;
			check_eof(flow);
			return;
		}
		if (n < 0) {
			app->rd_err = (int)n;
			check_error(flow, "reading", app->rd_err);
			return;
		}
		if (app->got == before)
			violated(flow, "a read of %ld bytes gave none", n);
	}
	if (flow->d->shut_rd)
		net_shutdown(app->conn, NET_SHUT_RD);
}

/* Echoes every view. */
static void echo_flow(struct flow *flow)
{
	struct app *app = &flow->app;
	struct net_view view;
	long n;

	while ((n = net_recv_view(app->conn, &view)) > 0) {
		app_take(flow, view.data, view.len);
		app->sent_max = app->sent + (uint32_t)n;
		sleep_randomly(flow, flow->d->app_read_pause);
		n = net_send_view(app->conn, &view);
		if (n < 0) {
			app->wr_err = (int)n;
			check_error(flow, "sending a view", app->wr_err);
			return;
		}
		app->sent = app->sent_max;
	}
	app->rd_err = (int)n;
	if (n < 0)
		check_error(flow, "reading a view", app->rd_err);
	else
		check_eof(flow);
	app->eof = n == 0;
}

/* ---- the handler ---- */

/* Notes the possible consequences of the application's end now. */
void app_note_end(struct flow *flow)
{
	struct app *app = &flow->app;

	app->closed = true;
	if (!app->eof || flow->d->ending == END_ABORT || app->wr_err)
		flow->watch.causes |= BY_APP;
	if (flow->d->ending == END_CLOSE_WAIT)
		flow->watch.causes |= BY_DEADLINE;
}

static void end_flow(struct flow *flow)
{
	struct app *app = &flow->app;
	struct net_conn *conn = app->conn;

	release_views(flow);
	app_note_end(flow);
	app->conn = NULL;
	switch (flow->d->ending) {
	case END_ABORT:
		net_abort(conn);
		break;
	case END_CLOSE_WAIT:
		app->end_err = net_close_wait(conn, net_now_ns(life.stack) +
							    flow->d->linger);
		check_closed(flow, app->end_err);
		break;
	case END_CLOSE:
		net_close(conn);
		break;
	case END_RETURN:
		if (flow->d->dialed)
			net_close(conn);
		break; /* else: end_serving() closes it */
	}
	app->ended = true;
}

static void set_options(struct flow *flow)
{
	const struct draw *d = flow->d;
	struct net_conn *conn = flow->app.conn;
	int64_t now = net_now_ns(life.stack);

	net_set_nodelay(conn, !d->nagle);
	net_set_cc(conn, d->cc);
	if (d->pace)
		net_set_pacing_rate(conn, d->pace);
	if (d->keepalive)
		net_set_keepalive(conn, 1 + d->out_bytes % 30, 1, 20);
	if (d->user_timeout_ms) {
		net_set_user_timeout(conn, d->user_timeout_ms);
		flow->watch.causes |= BY_DEADLINE;
	}
	if (!d->deadline)
		return;
	flow->watch.causes |= BY_DEADLINE;
	net_set_read_deadline(conn, now + d->deadline);
	net_set_write_deadline(conn, now + d->deadline);
}

void app_run(struct flow *flow)
{
	struct app *app = &flow->app;
	int err;

	set_options(flow);
	if (flow->d->echo) {
		echo_flow(flow);
	} else {
		err = coro_spawn(life.stack->sched, NULL, run_writer, flow,
				 &app->writer);
		if (err < 0)
			app->wr_err = err;
		read_all(flow);
		if (err == 0)
			coro_join(app->writer, NULL);
	}
	end_flow(flow);
}

static struct flow *flow_of_port(uint16_t port)
{
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		if (life.flows[i].peer_port == port)
			return &life.flows[i];
	return NULL;
}

/* An old segment may make a second connection, which is closed. */
void app_serve(struct net_conn *conn, void *arg)
{
	struct flow *flow = flow_of_port(net_peer_addr(conn).port);

	if (!flow || flow->app.started) {
		if (flow)
			flow->watch.causes |= BY_GHOST;
		net_abort(conn);
		return;
	}
	flow->app.started = true;
	flow->app.conn = conn;
	app_run(flow);
}

static void *dial_peer(void *arg)
{
	struct flow *flow = arg;
	struct net_dial_opts opts = {.source.port = flow->stack_port};
	struct net_addr addr;
	int err;

	net_addr_parse(PEER_ADDR, flow->peer_port, &addr);
	flow->app.started = true;
	err = net_dial(life.stack, &addr, &opts, &flow->app.conn);
	if (err < 0) {
		flow->app.dial_err = err;
		flow->app.ended = flow->app.closed = true;
		check_error(flow, "dialling", err);
		flow->watch.causes |= BY_DEADLINE; /* for late answers */
		return NULL;
	}
	if (flow->d->watched)
		app_watch(flow);
	else
		app_run(flow);
	return NULL;
}

void app_dial(struct flow *flow)
{
	if (net_spawn(life.stack, "dial", dial_peer, flow) < 0)
		violated(flow, "no coroutine to dial with");
}

bool app_over(const struct flow *flow)
{
	return !flow->app.started || flow->app.ended;
}

/* ---- cancelled calls, dropped connections ---- */

static int64_t due_at(const struct flow *flow, int64_t after, bool done)
{
	return after && !done && flow->app.conn ? life.start + after : NEVER;
}

static int64_t cancel_due(const struct flow *flow)
{
	return due_at(flow, flow->d->cancel_at, flow->watch.causes & BY_APP);
}

static int64_t drop_due(const struct flow *flow)
{
	return due_at(flow, flow->d->drop_at, flow->dropped);
}

void app_disturb(struct flow *flow)
{
	if (fake_now_ns >= cancel_due(flow)) {
		flow->watch.causes |= BY_APP;
		net_cancel(flow->app.conn);
	}
	if (fake_now_ns >= drop_due(flow)) {
		flow->dropped = true;
		flow->watch.causes |= BY_APP;
		net_conn_drop(flow->app.conn);
	}
}

int64_t app_disturb_due(const struct flow *flow)
{
	return earlier(cancel_due(flow), drop_due(flow));
}
