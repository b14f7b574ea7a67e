/*
 * TCP's timers: one wheel timer per connection. It is armed only while
 * something is pending, so idle connections cost nothing.
 *
 * When it expires, lwIP is shown that one pcb, and lwIP's own timer functions
 * do exactly its work.
 */
#include "netstack/conn/end.h"
#include "netstack/tcp/tcp.h"

#define TICK_BITS 22	/* 4 ms: pcb->tick_at counts so, and wraps */
#define OOSEQ_MS  6000u /* without a segment; then ooseq data is discarded */
/* A SYN is repeated after 1, 2, 4, 8, 16 s, and then every 32 s. */
#define SYN_SHIFT_MAX 5
static_assert(SYN_SHIFT_MAX < TCP_SYNMAXRTX, "lwIP does not give up");

#define RTO_TICKS 25 /* more than lwIP counts: it does not time data out */

#define PAUSE_NS INT64_C(1000000000) /* a longer round was a pause */

#undef net_lwip_ticks
NET_SHARD_VAR uint64_t net_lwip_ticks;
#define net_lwip_ticks NET_SHARD(net_lwip_ticks)

/* lwIP's count of timer calls; it marks pcbs. */
static NET_SHARD_VAR uint8_t timer_ctr;
#define timer_ctr NET_SHARD(timer_ctr)

/*
 * The clock of round trips and timeouts has 32 bits: after half an hour of
 * suspension the past would look like the future. A pause of the process would
 * spoil samples as well. So a pause counts as a second.
 */
static void set_us_clock(void)
{
	int64_t passed_ns = net_here()->now_ns - net_here()->clock_ns;

	if (passed_ns > PAUSE_NS)
		net_here()->paused_ns += passed_ns - PAUSE_NS;
	net_here()->clock_ns = net_here()->now_ns;
	net_here()->now_us =
		(uint32_t)((net_here()->now_ns - net_here()->paused_ns) >> 10);
}

/*
 * lwIP's clock and that of TCP's timers, set before anything in a round reads
 * them. From a round's start to its end they stand still, as now_ns does.
 */
void net_timers_set_clock(void)
{
	set_us_clock();
	if (net_here()->now_ns < net_here()->next_tick_ns)
		return;
	tcp_ticks = (uint32_t)(net_here()->now_ns / NET_TICK_NS);
	net_here()->next_tick_ns = ((int64_t)tcp_ticks + 1) * NET_TICK_NS;
}

static bool fast_pending(const struct tcp_pcb *pcb)
{
	return pcb->flags & (TF_ACK_DELAY | TF_ACK_NOW | TF_CLOSEPEND);
}

/*
 * Is there something that could be sent and was not, since the port was behind
 * or memory short? Data that waits for a window is sent by an ACK, a timeout or
 * a probe; paced data by recovery/pacing.c.
 */
static bool held_back(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return pcb->unsent && !conn->in_output &&
	       (pcb->state < ESTABLISHED || net_head_fits(pcb)) &&
	       !net_pacing_holds(conn);
}

/* Returns whether it is queued until its port accepts frames again. */
static bool waits_for_port(const struct net_conn *conn)
{
	const struct net_port *port =
		conn->in_output ? net_conn_port(conn) : NULL;

	return port && glue_tx_busy(port->glue);
}

/* Returns whether lwIP's timers have work that they count in ticks. */
static bool has_tick_work(const struct net_conn *conn)
{
	return (fast_pending(&conn->pcb) && !waits_for_port(conn)) ||
	       held_back(conn);
}

/* Returns when more than ms have passed since pcb->tmr for lwIP, in ns. */
static int64_t after_tmr(const struct tcp_pcb *pcb, unsigned ms)
{
	return ((int64_t)pcb->tmr + ms / TCP_SLOW_INTERVAL + 1) * NET_TICK_NS;
}

/*
 * Returns when a SYN or its answer is to be sent again, in ns. lwIP doubles the
 * wait for the answer only (RFC 6298 5.5).
 */
static int64_t handshake_due(const struct tcp_pcb *pcb)
{
	unsigned shift =
		pcb->state == SYN_SENT ? LWIP_MIN(pcb->nrtx, SYN_SHIFT_MAX) : 0;

	if (!pcb->unacked)
		return CORO_FOREVER;
	return net_us_to_ns(net_seg_of(pcb->unacked)->sent_us) +
	       (pcb->rto * NET_TICK_NS << shift);
}

/* Returns how long the peer must be silent before the next keepalive action. */
static uint32_t keepalive_ms(const struct tcp_pcb *pcb)
{
	return 1000u * (pcb->keep_idle_s +
			pcb->keep_cnt_sent * (uint32_t)pcb->keep_intvl_s);
}

/* Returns when the next keepalive action is due, in ns, or CORO_FOREVER. */
static int64_t keepalive_due(const struct tcp_pcb *pcb)
{
	int64_t ms;

	if (!ip_get_option(pcb, SOF_KEEPALIVE))
		return CORO_FOREVER;
	ms = keepalive_ms(pcb);
	return ((int64_t)pcb->tmr + 2) * NET_TICK_NS + ms * 1000000;
}

/*
 * Returns when lwIP next acts by itself in a state, in ns: a half-closed or
 * half-open connection needs nothing until then. recovery/recovery.c handles
 * data and FIN in flight in FIN_WAIT_1, CLOSING and LAST_ACK.
 */
static int64_t state_due(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	switch (pcb->state) {
	case SYN_SENT:
		return handshake_due(pcb);
	case SYN_RCVD:
		if (conn->connecting)
			return handshake_due(pcb);
		return LWIP_MIN(handshake_due(pcb),
				after_tmr(pcb, TCP_SYN_RCVD_TIMEOUT));
	case ESTABLISHED:
	case CLOSE_WAIT:
		return keepalive_due(pcb);
	case FIN_WAIT_2:
		if (pcb->flags & TF_RXCLOSED)
			return after_tmr(pcb, TCP_FIN_WAIT_TIMEOUT);
		return keepalive_due(pcb);
	case TIME_WAIT:
		return after_tmr(pcb, 2 * TCP_MSL);
	case CLOSED:
	case LISTEN:
	case FIN_WAIT_1:
	case CLOSING:
	case LAST_ACK:
		break;
	}
	return CORO_FOREVER;
}

/*
 * Returns when lwIP's tick is due, which begins to count at the first call.
 * lwIP reads last_timer in its ticks alone: in between its memory is tick_at.
 */
static int64_t tick_due(struct net_conn *conn)
{
	int64_t now = net_here()->now_ns >> TICK_BITS;

	if (!conn->ticking) {
		conn->ticking = true;
		conn->pcb.tick_at =
			(uint8_t)(((net_here()->now_ns + NET_TICK_NS) >>
				   TICK_BITS) +
				  1);
	}
	return (now + (int8_t)(conn->pcb.tick_at - (uint8_t)now)) << TICK_BITS;
}

/* Returns when data out of order is discarded, in ns. */
static int64_t ooseq_due(const struct tcp_pcb *pcb)
{
	return pcb->rcv_sacks ? after_tmr(pcb, OOSEQ_MS) : CORO_FOREVER;
}

/*
 * Returns the number of keepalive probes after which lwIP gives up; with a user
 * timeout, the largest number that does not overflow.
 */
uint32_t net_pcb_keep_cnt(const struct tcp_pcb *pcb)
{
	if (!net_user_timeout_is_set((const struct net_conn *)pcb))
		return pcb->keep_probes;
	return (UINT32_MAX / 1000u - pcb->keep_idle_s) /
	       LWIP_MAX(pcb->keep_intvl_s, 1u);
}

/* Is loss recovery all that may have a timeout, as on most connections? */
static inline bool has_repair_alone(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	return pcb->state == ESTABLISHED && !pcb->unsent && !pcb->rcv_sacks &&
	       !fast_pending(pcb) && !ip_get_option(pcb, SOF_KEEPALIVE) &&
	       !conn->ext->has_user_timeout;
}

static int64_t due_at(struct net_conn *conn)
{
	int64_t due, repair = net_recovery_due_ns(conn);
	bool overdue;

	if (likely(has_repair_alone(conn))) {
		conn->ticking = false;
		conn->pcb.persist_steps = 0;
		return repair;
	}
	due = state_due(conn);
	overdue = due <= net_here()->now_ns; /* could not be done just now */
	if (overdue)
		due = CORO_FOREVER;
	if (overdue || has_tick_work(conn))
		due = LWIP_MIN(due, tick_due(conn));
	else
		conn->ticking = false; /* tick_at wraps: it begins again */
	due = LWIP_MIN(due, net_persist_due_ns(conn));
	due = LWIP_MIN(due, ooseq_due(&conn->pcb));
	if (unlikely(conn->ext->has_user_timeout))
		due = LWIP_MIN(due, net_user_timeout_due_ns(conn));
	return LWIP_MIN(repair, due);
}

/* Arms the timer if there is a reason. */
void net_timer_check(struct net_conn *conn)
{
	if (conn->pcb_live && !net_timer_is_near(conn))
		net_timer_by(conn, due_at(conn));
}

/*
 * With a user timeout the number of probes does not count: the last that fits
 * is sent again and again, each time an interval later.
 */
static void hold_keepalive_count(struct tcp_pcb *pcb)
{
	if (pcb->keep_cnt_sent < UINT8_MAX)
		return;
	pcb->keep_cnt_sent--;
	pcb->tmr += 1000u * pcb->keep_intvl_s / TCP_SLOW_INTERVAL;
}

/*
 * lwIP gives a peer up once all of keepalive's time has passed, however many
 * probes were sent. After a jump of the clock, or a long pause of the process,
 * the peer has not been asked: the probe that is due is sent now, and the time
 * goes on from there.
 */
static void settle_keepalive(struct tcp_pcb *pcb)
{
	uint32_t ticks;

	if (!ip_get_option(pcb, SOF_KEEPALIVE))
		return;
	if (net_user_timeout_is_set(net_conn_of(pcb)))
		hold_keepalive_count(pcb);
	else if (pcb->keep_cnt_sent >= pcb->keep_probes)
		return;
	ticks = keepalive_ms(pcb) / TCP_SLOW_INTERVAL + 2;
	if (tcp_ticks - pcb->tmr > ticks)
		pcb->tmr = tcp_ticks - ticks;
}

/*
 * Sets lwIP's counts of ticks, since it sees only ticks that have work. The
 * timeout of data is recovery/recovery.c's, and ends LAST_ACK too: after two
 * MSL lwIP would drop what a peer that reads slowly has not got.
 */
static void settle_counts(struct tcp_pcb *pcb)
{
	if (pcb->state == SYN_RCVD && net_conn_of(pcb)->connecting)
		pcb->tmr = tcp_ticks; /* net_dial() gives up */
	if (pcb->state < ESTABLISHED) {
		bool over = pcb->state == SYN_RCVD &&
			    after_tmr(pcb, TCP_SYN_RCVD_TIMEOUT) <=
				    net_here()->now_ns;
		bool again = !over && handshake_due(pcb) <= net_here()->now_ns;

		pcb->rtime = again ? pcb->rto : LWIP_MIN(pcb->rtime, 0);
		if (pcb->state == SYN_SENT && pcb->nrtx > SYN_SHIFT_MAX)
			pcb->nrtx = SYN_SHIFT_MAX; /* net_dial() gives up */
		return;
	}
	if (pcb->rtime > 0)
		pcb->rtime = 0;
	pcb->rto = RTO_TICKS;
	if (pcb->state == LAST_ACK)
		pcb->tmr = tcp_ticks;
	else
		settle_keepalive(pcb);
}

/*
 * A delayed ACK is ours to send: lwIP forgets it when the port has no room.
 */
static void fast_tick(struct net_conn *conn)
{
	const struct net_port *port = net_conn_port(conn);
	struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->flags & (TF_ACK_DELAY | TF_ACK_NOW)) {
		if (net_traced(conn))
			net_trace_timer(conn, "delayed ACK", 1);
		tcp_clear_flags(pcb, TF_ACK_DELAY);
		tcp_ack_now(pcb);
		if (port && glue_tx_busy(port->glue))
			net_conn_queue_output(conn);
		else
			net_conn_output_now(conn);
	}
	if (pcb->flags & TF_CLOSEPEND) {
		tcp_clear_flags(pcb, TF_ACK_DELAY); /* not sent just now */
		pcb->last_timer = timer_ctr++;
		tcp_fasttmr();
	}
}

/* lwIP's persist timer is never run: recovery/persist.c is instead. */
static void slow_tick(struct tcp_pcb *pcb)
{
	uint8_t shut = pcb->persist_on, doublings = pcb->persist_steps;
	uint8_t probes = pcb->persist_probe;

	pcb->persist_on = 0;
	tcp_ticks--; /* it counts up itself */
	pcb->last_timer = timer_ctr++;
	tcp_slowtmr();
	if (!tcp_active_pcbs || pcb->unacked || !pcb->unsent)
		return;
	pcb->persist_on = shut;
	pcb->persist_steps = doublings;
	pcb->persist_probe = probes;
}

/* Returns why lwIP ends the connection now, if it does. */
static uint8_t end_of(const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->state == TIME_WAIT)
		return NET_END_DONE;
	if (pcb->nrtx >= TCP_MAXRTX && net_user_timeout_is_set(conn))
		return NET_END_USER_TIMEOUT;
	if (pcb->nrtx >= TCP_MAXRTX)
		return pcb->unacked ? NET_END_TIMEOUT : NET_END_WINDOW;
	if (pcb->state == FIN_WAIT_2 && pcb->flags & TF_RXCLOSED)
		return NET_END_FIN_TIMEOUT;
	return pcb->state >= ESTABLISHED ? NET_END_KEEPALIVE : NET_END_TIMEOUT;
}

/* Traces what lwIP is about to do to a connection that may not live on. */
cold static void trace_tick(struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (pcb->state < ESTABLISHED && pcb->unacked && pcb->rtime >= pcb->rto)
		net_trace_timer(conn, "handshake", pcb->nrtx + 1u);
}

/* Called when lwIP has sent a keepalive probe. */
cold static void note_keepalive(struct net_conn *conn)
{
	net_user_timeout_probed(conn);
	if (net_traced(conn))
		net_trace_timer(conn, "keepalive", conn->pcb.keep_cnt_sent);
}

/* Runs lwIP's timers for the one pcb it is shown. */
static void run_tick(struct net_conn *conn)
{
	struct tcp_pcb *pcb = &conn->pcb;
	uint8_t nrtx, keepalives;

	conn->ticking = false;
	net_lwip_ticks++;
	if (pcb->state != TIME_WAIT && fast_pending(pcb))
		fast_tick(conn);
	if (pcb->state != TIME_WAIT && held_back(conn))
		net_conn_output_now(conn); /* lwIP would not, in SYN_RCVD */
	if (tcp_tw_pcbs || tcp_active_pcbs) {
		settle_counts(pcb);
		nrtx = pcb->nrtx;
		net_here()->ending = end_of(conn);
		keepalives = pcb->keep_cnt_sent;
		if (net_traced(conn))
			trace_tick(conn);
		slow_tick(pcb);
		net_here()->ending = NET_END_NONE;
		if (tcp_active_pcbs && pcb->keep_cnt_sent > keepalives)
			note_keepalive(conn);
		if (tcp_active_pcbs && pcb->nrtx > nrtx)
			net_count_rto(conn); /* of a handshake */
	}
}

static bool tick_is_due(struct net_conn *conn)
{
	return state_due(conn) <= net_here()->now_ns ||
	       (conn->ticking && tick_due(conn) <= net_here()->now_ns);
}

static void handle_due(struct coro_timer *timer)
{
	struct net_conn *conn =
		(void *)((char *)timer - offsetof(struct net_conn, timer));
	struct tcp_pcb *pcb = &conn->pcb;
	bool watched = conn->watched;

	timer->expires_ns = CORO_FOREVER;
	if (!conn->pcb_live)
		return;
	if (ooseq_due(pcb) <= net_here()->now_ns)
		net_ooseq_clear(conn);
	net_pcb_show(pcb);
	if ((conn->ext->has_user_timeout && net_user_timeout_gives_up(conn)) ||
	    net_recovery_timeout(conn) || net_persist_timeout(conn) ||
	    tick_is_due(conn))
		run_tick(conn);
	if ((tcp_active_pcbs == pcb || tcp_tw_pcbs == pcb) && net_traced(conn))
		net_trace_settle(conn);
	net_pcbs_take_back(); /* arms again while there is a reason */
	if (watched)
		net_conn_notify(conn);
}

void net_timer_init(struct net_conn *conn)
{
	coro_timer_init(&conn->timer, handle_due);
	conn->timer.expires_ns = CORO_FOREVER;
}
