/*
 * Invariants: at every frame that leaves, after every round, and at the end of
 * a connection and of a life. An error of the application and a reset to the
 * peer need a cause.
 */
#include "tests/net/random.h"

#include "netstack/tcp/tcp.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_MSS   216u
#define ACK_BOUND   (150 * MS) /* a delayed ACK and two ticks */
#define RTO_SLACK   (100 * MS) /* ticks, rounds, a port refusing */
#define PERSIST_MAX (62 * SECOND)
#define SILENCE	    (15 * SECOND)
#define ORPHAN	    (230 * SECOND)

void violated(const struct flow *flow, const char *what, ...)
{
	va_list args;

	printf("seed %llu: ", (unsigned long long)life.draw.seed);
	if (flow)
		printf("flow %u, ", flow->index);
	printf("at %.6f s: ", (double)(fake_now_ns - life.start) / 1e9);
	va_start(args, what);
	vprintf(what, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	if (getenv("CORONET_RANDOM_ABORT"))
		abort();
	_Exit(1);
}

static bool was_caused(const struct flow *flow, unsigned by)
{
	unsigned causes = flow->watch.causes;

	fault_step();
	if (fault_given)
		causes |= BY_MEMORY;
	if (fake_now_ns - flow->watch.heard >
	    (flow->d->keepalive ? SILENCE / 4 : SILENCE))
		causes |= BY_SILENCE;
	if (flow->app.closed && fake_now_ns - flow->watch.progress > ORPHAN)
		causes |= BY_SILENCE; /* tcp/orphan.c gives it up */
	return causes & by;
}

/* ---- segments of the stack ---- */

static unsigned mss_max(const struct flow *flow)
{
	unsigned unsaid = over_ip6 ? 1220 : 536; /* RFC 9293 3.7.1 */
	unsigned mss = flow->d->mss ? flow->d->mss : unsaid;

	if (mss > life.draw.mtu - path_header() - 20)
		mss = life.draw.mtu - path_header() - 20;
	return mss < LEAST_MSS ? LEAST_MSS : mss;
}

static void check_stream(struct flow *flow, const struct segment *s,
			 uint32_t offset)
{
	const struct app *app = &flow->app;
	uint32_t end = offset + s->len;
	bool fin = s->flags & PEER_FIN;

	if (s->len + s->options_len > mss_max(flow)) /* RFC 6691 */
		violated(flow, "a segment of %u bytes and %u, MSS %u", s->len,
			 s->options_len, mss_max(flow));
	if (seq_after(end, app->sent_max))
		violated(flow, "sends up to %u, %u are written", end,
			 app->sent_max);
	if (memcmp(s->data, stream_at(flow, TO_PEER, offset), s->len) != 0)
		violated(flow, "wrong bytes from %u on", offset);
	if (fin && !app->closed && !app->wr_shut)
		violated(flow, "FIN of a connection that nobody has closed");
	if (fin && (seq_after(app->sent, end)))
		violated(flow, "FIN at %u, %u are written", end, app->sent);
	if (seq_after(end, flow->watch.edge) &&
	    !(s->len == 1 && offset == flow->watch.edge))
		violated(flow, "sends [%u, %u) beyond the window's edge %u",
			 offset, end, flow->watch.edge);
	flow->watch.sent = seq_max(flow->watch.sent, end + fin);
	flow->watch.active = fake_now_ns;
}

/* Checks the ACK number and window. */
static void check_ack(struct flow *flow, const struct segment *s)
{
	struct watch *w = &flow->watch;
	uint32_t ack = s->ack - flow->isn - 1;
	unsigned scale = flow->scaled ? flow->stack_scale : 0;
	uint32_t edge = ack + ((uint32_t)s->wnd << scale);

	if (seq_after(ack, w->delivered))
		violated(flow, "acknowledges %u, %u have come", ack,
			 w->delivered);
	if (w->announced && seq_after(w->our_ack, ack))
		violated(flow, "acknowledges %u after %u", ack, w->our_ack);
	if (w->announced && seq_after(w->our_edge, edge + (1u << scale) - 1))
		violated(flow, "the window's edge goes back from %u to %u",
			 w->our_edge, edge);
	w->our_ack = ack;
	w->our_edge = w->announced ? seq_max(w->our_edge, edge) : edge;
	w->announced = true;
}

static void check_reset(struct flow *flow, const struct segment *s)
{
	uint32_t offset = s->seq - flow->stack_isn - 1;

	/*
	 * The answer to a segment without a connection has that segment's ACK
	 * number, or 0 if it had none, like a SYN repeated after the end.
	 */
	if (!(s->flags & PEER_ACK) || !flow->known_isn || s->seq == 0)
		return;
	if (!was_caused(flow, ~0u))
		violated(flow, "a reset without a cause");
	if (flow->watch.causes & BY_GHOST)
		return;
	if (seq_after(offset, flow->watch.edge))
		violated(flow, "a reset at %u, the window's edge is %u", offset,
			 flow->watch.edge);
}

void check_sent(struct flow *flow, const struct segment *s)
{
	uint32_t offset = s->seq - flow->stack_isn - 1;

	stamp_check_sent(flow, s);
	ecn_check_sent(flow, s);
	if (s->flags & PEER_RST) {
		check_reset(flow, s);
		return;
	}
	if (s->flags & PEER_SYN) {
		if (s->len)
			violated(flow, "a SYN with data");
		flow->watch.active = fake_now_ns;
		if (flow->known_isn && s->seq != flow->stack_isn)
			flow->watch.causes |= BY_GHOST; /* an old SYN's */
		return;
	}
	if (!flow->known_isn || (flow->watch.causes & BY_GHOST))
		return;
	if (!(s->flags & PEER_ACK))
		violated(flow, "a segment without ACK");
	check_ack(flow, s);
	if (s->len || s->flags & PEER_FIN)
		check_stream(flow, s, offset);
	else if (seq_after(offset, flow->watch.edge))
		violated(flow, "an ACK at %u, the window's edge is %u", offset,
			 flow->watch.edge);
	else if (offset + 1 == flow->watch.acked)
		flow->watch.active = fake_now_ns; /* a probe without data */
}

void check_delivered(struct flow *flow, const struct segment *s)
{
	struct watch *w = &flow->watch;
	uint32_t offset = s->seq - flow->isn - 1;
	uint32_t end = offset + s->len + ((s->flags & PEER_FIN) != 0);
	unsigned scale = 0;
	uint32_t ack = s->ack - flow->stack_isn - 1;

	w->heard = fake_now_ns;
	stamp_check_delivered(flow, s, offset);
	ecn_check_delivered(flow, s, offset);
	if (s->flags & PEER_SYN) {
		w->edge = seq_max(w->edge, s->wnd);
		w->synack_heard |= s->flags & PEER_ACK;
		return;
	}
	if (!seq_after(end, flow->tx.max))
		w->delivered = seq_max(w->delivered, end);
	if (!(s->flags & PEER_ACK) || s->flags & PEER_RST ||
	    seq_after(ack, w->sent))
		return;
	if (flow->scaled)
		scale = flow->d->wscale > 14 ? 14 : (unsigned)flow->d->wscale;
	w->edge = seq_max(w->edge, ack + ((uint32_t)s->wnd << scale));
	w->acked = seq_max(w->acked, ack);
}

/* ---- after each round ---- */

static struct net_conn *conn_of(const struct flow *flow)
{
	ip_addr_t local, remote;

	path_addresses(&local, &remote);
	return net_demux_find(&local, flow->stack_port, &remote,
			      flow->peer_port);
}

/* Returns how long the stack may be silent with data to send. */
static int64_t allowed_silence(const struct net_conn *conn)
{
	struct net_recovery_info info;

	net_recovery_info(conn, &info);
	if (!conn->pcb.unacked)
		return PERSIST_MAX;
	return (int64_t)info.rto_ns + RTO_SLACK;
}

/*
 * Something is sent at every timeout while there is data to send. A received
 * segment may shorten the timeout, by a timer's resolution.
 */
static void check_progress(struct flow *flow, const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	int64_t allowed;

	if (life.starving || (!pcb->unacked && !pcb->unsent)) {
		flow->watch.busy = false;
		return;
	}
	if (!flow->watch.busy || flow->watch.lastack != pcb->lastack ||
	    flow->watch.faults != fault_given)	  /* allocations failed */
		flow->watch.active = fake_now_ns; /* RFC 6298 5.3 */
	if (flow->watch.lastack != pcb->lastack)
		flow->watch.progress = fake_now_ns;
	flow->watch.faults = fault_given;
	flow->watch.busy = true;
	flow->watch.lastack = pcb->lastack;
	allowed = allowed_silence(conn);
	if (allowed < flow->watch.allowed &&
	    flow->watch.active < fake_now_ns - allowed + NET_FINE_NS)
		flow->watch.active = fake_now_ns - allowed + NET_FINE_NS;
	flow->watch.allowed = allowed;
	if (fake_now_ns - flow->watch.active > allowed)
		violated(flow,
			 "silent for %.3f s with %u bytes unacknowledged, %u "
			 "unsent; RTO %.3f s, state %d",
			 (double)(fake_now_ns - flow->watch.active) / 1e9,
			 pcb->snd_nxt - pcb->lastack,
			 pcb->snd_lbb - pcb->snd_nxt, (double)allowed / 1e9,
			 pcb->state);
}

/* Data received in order is acknowledged soon. */
static void check_owed(struct flow *flow, const struct net_conn *conn)
{
	struct watch *w = &flow->watch;

	if (life.starving || !w->announced || fault_given ||
	    conn->pcb.rcv_nxt == flow->isn + 1 + w->our_ack) {
		w->owes_since = NEVER;
		return;
	}
	if (w->owes_after !=
	    w->our_ack) /* it has acknowledged some meanwhile */
		w->owes_since = fake_now_ns;
	w->owes_after = w->our_ack;
	w->owes_since = earlier(w->owes_since, fake_now_ns);
	if (fake_now_ns - w->owes_since > ACK_BOUND)
		violated(flow, "%u bytes not acknowledged for %.3f s",
			 conn->pcb.rcv_nxt - flow->isn - 1 - w->our_ack,
			 (double)(fake_now_ns - w->owes_since) / 1e9);
}

/* A window that has opened by much is announced. */
static void check_window(struct flow *flow, const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	struct watch *w = &flow->watch;
	uint32_t edge = pcb->rcv_nxt + pcb->rcv_wnd - flow->isn - 1;

	if (life.starving || !w->announced || fault_given ||
	    pcb->state > FIN_WAIT_2 || conn->eof ||
	    !seq_after(edge, w->our_edge + TCP_WND_UPDATE_THRESHOLD)) {
		w->window_since = NEVER;
		return;
	}
	w->window_since = earlier(w->window_since, fake_now_ns);
	if (fake_now_ns - w->window_since > SECOND)
		violated(flow, "the window is open up to %u, %u is announced",
			 edge, w->our_edge);
}

/*
 * lwIP's room behind the last unsent byte, which the next write fills, is in
 * the stack's own memory and within a segment.
 */
static void check_room(struct flow *flow, const struct net_conn *conn)
{
	const struct tcp_seg *seg = conn->pcb.unsent;
	const struct pbuf *p;

	if (!conn->pcb.unsent_oversize)
		return;
	while (seg && seg->next)
		seg = seg->next;
	for (p = seg ? seg->p : NULL; p && p->next; p = p->next)
		;
	if (!p || p->type_internal != (uint8_t)PBUF_RAM ||
	    seg->len + conn->pcb.unsent_oversize > conn->pcb.mss)
		violated(flow, "%u bytes of room that are not there",
			 conn->pcb.unsent_oversize);
}

/* The ends of queues that lwip/ends.c remembers are right. */
static void check_ends(struct flow *flow, const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	const char *base = (const char *)conn;
	const char *last = base + conn->unacked_last * INT64_C(64);
	const char *near = base + pcb->unsent_near * INT64_C(64);
	const struct tcp_seg *seg = pcb->unacked;

	while (seg && seg->next)
		seg = seg->next;
	if (seg != pcb->unacked && conn->unacked_last &&
	    (const char *)seg != last)
		violated(flow, "another segment is the last in flight");
	for (seg = pcb->unsent; seg && (const char *)seg != near;)
		seg = seg->next;
	if (pcb->unsent_near && !seg)
		violated(flow, "the end of what waits is not in its queue");
}

static void expect_nothing(struct watch *w)
{
	w->busy = false;
	w->owes_since = w->window_since = NEVER;
}

static void check_flow(struct flow *flow)
{
	const struct net_conn *conn = conn_of(flow);

	ecn_check_round(flow, conn && conn->pcb.state >= ESTABLISHED &&
				      conn->pcb.state < TIME_WAIT);
	if (!conn) {
		expect_nothing(&flow->watch);
		if (flow->app.started && was_caused(flow, BY_SILENCE))
			flow->watch.causes |= BY_SILENCE;
		return;
	}
	if (conn->pcb.state < ESTABLISHED || conn->pcb.state == TIME_WAIT ||
	    (flow->watch.causes & BY_GHOST)) {
		expect_nothing(&flow->watch);
		return;
	}
	check_room(flow, conn);
	check_ends(flow, conn);
	check_progress(flow, conn);
	check_owed(flow, conn);
	check_window(flow, conn);
}

void check_round(void)
{
	for (unsigned i = 0; i < life.draw.n_flows; i++)
		check_flow(&life.flows[i]);
}

/* ---- errors of the application ---- */

static unsigned causes_of(int err)
{
	switch (err) {
	case -ECONNRESET:
	case -ECONNREFUSED:
		return BY_PEER;
	case -ETIMEDOUT:
		return BY_DEADLINE | BY_SILENCE;
	case -EHOSTUNREACH:
		return BY_SILENCE;
	case -ECANCELED:
	case -ECONNABORTED: /* dropped by an operator */
	case -ENOTCONN:
		return BY_APP;
	default:
		return 0;
	}
}

void check_error(struct flow *flow, const char *call, int err)
{
	if (was_caused(flow, causes_of(err) | BY_MEMORY | BY_GHOST) ||
	    (flow->app.rd_err && flow->app.wr_err))
		return;
	if (flow->d->dialed && (!flow->watch.synack_heard || life.pauses) &&
	    (err == -ETIMEDOUT || err == -EHOSTUNREACH))
		return; /* the SYNs or answers were lost, or too late */
	violated(flow, "%s gives %d (%s) without a cause", call, err,
		 strerror(-err));
}

void check_eof(struct flow *flow)
{
	if (flow->app.got != flow->d->in_bytes || !flow->tx.fin_wanted)
		violated(flow, "a clean end after %u of %u bytes",
			 flow->app.got, flow->d->in_bytes);
}

static bool peer_has_all(const struct flow *flow)
{
	const struct peer_rx *rx = &flow->rx;

	return rx->has_fin && rx->next == rx->fin_at + 1 &&
	       !seq_after(flow->app.sent, rx->fin_at);
}

bool has_cookie(void)
{
	return life.draw.flow[0].cookie || life.draw.flow[1].cookie ||
	       life.draw.flow[2].cookie;
}

/* With a cookie, segments before the ACK with the cookie have no connection. */
static bool before_cookie(const struct flow *flow)
{
	return has_cookie() && flow->rx.next == 0;
}

/* It has acknowledged the peer's FIN; its TIME_WAIT is short. */
static bool stack_has_all(const struct flow *flow)
{
	return flow->watch.our_ack == flow->d->in_bytes + 1;
}

void check_reset_taken(struct flow *flow)
{
	if (!before_cookie(flow) && flow->app.started && !peer_over(flow) &&
	    !(stack_has_all(flow) && peer_has_all(flow)) &&
	    !was_caused(flow, ~0u))
		violated(flow, "the peer is reset with %u of %u bytes",
			 flow->rx.next, flow->app.sent);
}

void check_closed(struct flow *flow, int err)
{
	if (err == 0 && !peer_has_all(flow))
		violated(flow,
			 "net_close_wait() says all has arrived: %u of %u have",
			 flow->rx.next, flow->app.sent + 1);
	if (err < 0 && err != -EPIPE)
		check_error(flow, "net_close_wait()", err);
}

/* ---- ends ---- */

void check_flow_end(struct flow *flow)
{
	const struct app *app = &flow->app;

	if (app->loans)
		violated(flow, "%u loans are not back", app->loans);
	if (was_caused(flow, BY_MEMORY) || flow->watch.causes ||
	    !app->started || app->dial_err)
		return;
	if (!app->eof)
		violated(flow, "the application has got %u of %u bytes",
			 app->got, flow->d->in_bytes);
	if (!peer_has_all(flow))
		violated(flow, "the peer has got %u of %u bytes%s",
			 flow->rx.next, app->sent,
			 flow->rx.has_fin ? " and a FIN" : "");
}

static void back_to(const char *what, long now, long then)
{
	if (now != then)
		violated(NULL, "%s: %ld at the end, %ld at the start", what,
			 now, then);
}

void check_life_end(void)
{
	back_to("connections", net_here()->n_conns, 0);
	back_to("half-open connections", net_here()->half_open, 0);
	back_to("pieces out of order", net_here()->ooseq_held, 0);
	back_to("frames received", net_here()->ports[0].frames_in, 0);
	back_to("frames", fake_frames_out, 0);
	back_to("in TIME_WAIT", net_time_waits.n, 0);
	back_to("blocks of TIME_WAIT", net_time_waits.oldest != NULL, 0);
	back_to("in the output queue",
		(long)(net_here()->output.tail - net_here()->output.head), 0);
	back_to("bytes of memory", (long)net_mem_live_bytes(),
		(long)life.memory);
	back_to("coroutines", coro_sched_live(net_here()->sched), 0);
	back_to("timers", coro_sched_next_ns(net_here()->sched) != CORO_FOREVER,
		0);
}
