/*
 * Connection trace events for changes of windows and of TCP's state. After an
 * operation that may have changed them, they are compared with the values
 * reported last.
 */
#include "netstack/recovery/recovery_priv.h"

/* While ACKs make the window grow, it is reported each time by this much. */
#define GROWTH(cwnd) ((cwnd) / 4)

/* lwIP's window is shut while a repair runs. */
static uint32_t cwnd_of(const struct net_conn *conn)
{
	return conn->has_recovery ? conn->recovery->cwnd : conn->pcb.cwnd;
}

/* `was` is the window at the last look, whether it was reported or not. */
static bool is_news(const struct net_trace *trace, const char *why,
		    uint32_t was, uint32_t ssthresh)
{
	uint32_t cwnd = trace->cwnd, seen = trace->seen.cwnd;

	if (ssthresh != trace->seen.ssthresh || cwnd < was)
		return true;
	return cwnd > was && (why || cwnd >= seen + GROWTH(seen));
}

static void look_at_cwnd(struct net_conn *conn, struct net_trace *trace,
			 uint32_t was)
{
	uint32_t cwnd = trace->cwnd, ssthresh = conn->pcb.ssthresh;
	const char *why = trace->cwnd_why;
	struct net_trace_event *event;

	trace->cwnd_why = NULL;
	if (!is_news(trace, why, was, ssthresh))
		return;
	if (!why && conn->has_recovery &&
	    conn->recovery->state != NET_RECOVERY_OPEN)
		why = "repairing";
	if (!why)
		why = cwnd <= was	 ? "congestion control"
		      : cwnd <= ssthresh ? "slow start"
					 : "congestion avoidance";
	event = net_trace_add(conn, NET_TRACE_CWND, why);
	event->value.was = cwnd > was ? trace->seen.cwnd : was;
	event->value.now = cwnd;
	event->value.ssthresh = ssthresh;
	trace->seen.cwnd = cwnd;
	trace->seen.ssthresh = ssthresh;
}

static void add_change(struct net_conn *conn, enum net_trace_kind kind,
		       const char *what, uint32_t was, uint32_t now)
{
	struct net_trace_event *event = net_trace_add(conn, kind, what);

	event->value.was = was;
	event->value.now = now;
}

static void look_at_windows(struct net_conn *conn, struct net_trace *trace)
{
	const struct tcp_pcb *pcb = &conn->pcb;
	uint32_t ours = pcb->rcv_ann_wnd;
	bool snd_shut = pcb->snd_wnd == 0, rcv_shut = ours == 0;

	if (snd_shut != trace->seen.snd_shut)
		add_change(conn, NET_TRACE_SND_WND, snd_shut ? "shut" : "open",
			   0, pcb->snd_wnd);
	trace->seen.snd_shut = snd_shut;
	if (rcv_shut != trace->seen.rcv_shut && pcb->state < CLOSE_WAIT)
		add_change(conn, NET_TRACE_RCV_WND, rcv_shut ? "shut" : "open",
			   0, ours);
	trace->seen.rcv_shut = rcv_shut;
	if (net_rcv_max(pcb) != trace->seen.rcv_max)
		add_change(conn, NET_TRACE_RCV_WND, "may grow",
			   trace->seen.rcv_max, net_rcv_max(pcb));
	trace->seen.rcv_max = net_rcv_max(pcb);
}

static void begin_with(const struct net_conn *conn, struct net_trace *trace)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	trace->seen = (struct net_trace_seen){
		.cwnd = trace->cwnd,
		.ssthresh = pcb->ssthresh,
		.rcv_max = net_rcv_max(pcb),
		.state = pcb->state,
		.snd_shut = pcb->state >= ESTABLISHED && !pcb->snd_wnd,
	};
}

cold void net_trace_settle(struct net_conn *conn)
{
	struct net_trace *trace = net_trace_of(conn);
	uint8_t state = conn->pcb.state, was;
	uint32_t cwnd;

	if (!trace || !conn->pcb_live)
		return;
	cwnd = trace->cwnd;
	trace->cwnd = cwnd_of(conn);
	was = trace->seen.state;
	if (state != was)
		add_change(conn, NET_TRACE_STATE, NULL, was, state);
	if (was < ESTABLISHED) { /* what the handshake has agreed upon */
		begin_with(conn, trace);
		return;
	}
	trace->seen.state = state;
	look_at_cwnd(conn, trace, cwnd);
	look_at_windows(conn, trace);
}

long net_trace_call_end(const struct net_trace_call *call, long result)
{
	struct net_trace *trace = net_trace_of_call(call);

	if (trace)
		net_trace_settle(trace->conn);
	return net_trace_return(call, result);
}
