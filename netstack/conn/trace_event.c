/*
 * Writes events into the rings of the connection trace.
 */
#include "netstack/conn/conn.h"

#include <stdio.h>
#include <string.h>

#include "lwip/prot/tcp.h"

#define OPT_END	 0
#define OPT_NOP	 1
#define OPT_SACK 5

static struct net_trace_event *
add_event(struct net_trace *trace, enum net_trace_kind kind, const char *what)
{
	struct net_trace_event *event =
		&trace->events[trace->n++ % NET_TRACE_EVENTS];

	*event = (struct net_trace_event){
		.ns = net_here()->now_ns, .kind = kind, .what = what};
	return event;
}

struct net_trace_event *
net_trace_add(struct net_conn *conn, enum net_trace_kind kind, const char *what)
{
	struct net_trace *trace = net_trace_of(conn);

	return trace ? add_event(trace, kind, what) : NULL;
}

/* ---- segments ---- */

/* Counts SACK blocks in a header that is all there. */
static uint8_t count_sacks(const struct tcp_hdr *hdr)
{
	const uint8_t *at = (const uint8_t *)(hdr + 1);
	const uint8_t *end = (const uint8_t *)hdr + TCPH_HDRLEN_BYTES(hdr);

	while (at < end && *at != OPT_END) {
		if (*at == OPT_NOP) {
			at++;
			continue;
		}
		if (end - at < 2 || at[1] < 2 || at[1] > end - at)
			return 0;
		if (*at == OPT_SACK)
			return (uint8_t)((at[1] - 2) / 8);
		at += at[1];
	}
	return 0;
}

static struct net_trace_event *add_segment(struct net_trace *trace,
					   enum net_trace_kind kind,
					   const struct tcp_hdr *hdr,
					   const char *what)
{
	struct net_trace_event *event = add_event(trace, kind, what);

	event->flags = TCPH_FLAGS(hdr);
	event->seg.seq = lwip_ntohl(hdr->seqno);
	event->seg.ack = lwip_ntohl(hdr->ackno);
	event->seg.wnd = lwip_ntohs(hdr->wnd);
	event->seg.cwnd = trace->cwnd;
	event->sacks = count_sacks(hdr);
	return event;
}

void net_trace_in(struct net_conn *conn, const struct pbuf *p)
{
	struct net_trace *trace = net_trace_of(conn);
	const struct tcp_hdr *hdr = p->payload;
	struct net_trace_event *event;

	if (!trace)
		return;
	trace->last_in = trace->n;
	event = add_segment(trace, NET_TRACE_IN, hdr, NULL);
	event->seg.len = p->tot_len - TCPH_HDRLEN_BYTES(hdr);
	if (!(event->flags & TCP_SYN)) {
		event->seg.wnd <<= conn->pcb.snd_scale;
	} else if (!trace->has_irs) {
		trace->irs = event->seg.seq;
		trace->has_irs = true;
	}
}

void net_trace_in_was(struct net_conn *conn, const char *what)
{
	struct net_trace *trace = net_trace_of(conn);
	struct net_trace_event *event;

	if (!trace || trace->n - trace->last_in > NET_TRACE_EVENTS)
		return;
	event = &trace->events[trace->last_in % NET_TRACE_EVENTS];
	if (event->kind == NET_TRACE_IN)
		event->what = what;
}

void net_trace_out(struct net_conn *conn, const struct tcp_hdr *hdr,
		   unsigned len, const char *resent)
{
	struct net_trace *trace = net_trace_of(conn);
	struct net_trace_event *event;

	if (!trace)
		return;
	event = add_segment(trace, NET_TRACE_OUT, hdr, resent);
	event->seg.len = len;
	if (!(event->flags & TCP_SYN)) {
		event->seg.wnd <<= conn->pcb.rcv_scale;
	} else if (!trace->has_iss) {
		trace->iss = event->seg.seq;
		trace->has_iss = true;
	}
}

void net_trace_resent_why(struct net_conn *conn, const char *why)
{
	struct net_trace *trace = net_trace_of(conn);

	if (trace)
		trace->resent_why = why;
}

const char *net_trace_resent(struct net_conn *conn)
{
	struct net_trace *trace = net_trace_of(conn);

	return trace ? trace->resent_why : NULL;
}

/* ---- timers, windows, the end ---- */

void net_trace_timer(struct net_conn *conn, const char *which, unsigned times)
{
	struct net_trace_event *event =
		net_trace_add(conn, NET_TRACE_TIMER, which);

	if (event)
		event->value.now = times;
}

void net_trace_cwnd_why(struct net_conn *conn, const char *why)
{
	struct net_trace *trace = net_trace_of(conn);

	if (trace)
		trace->cwnd_why = why;
}

void net_trace_ended(struct net_conn *conn)
{
	struct net_trace *trace = net_trace_of(conn);
	enum net_end end = net_conn_end(conn);

	if (!trace)
		return;
	add_event(trace, NET_TRACE_END,
		  conn->connecting && end == NET_END_ABORT
			  ? "given up before it was open"
			  : net_end_text(end))
		->call.n = conn->err;
}

/* ---- calls ---- */

static void name_coro(struct net_trace_event *event)
{
	const struct coro *co = coro_self();

	snprintf(event->call.coro, sizeof(event->call.coro), "%s",
		 co ? coro_name(co) : "");
}

void net_trace_call(struct net_conn *conn, const char *name, size_t bytes,
		    struct net_trace_call *call)
{
	struct net_trace *trace = net_trace_of(conn);
	struct net_trace_event *event;

	*call = (struct net_trace_call){.conn = conn, .name = name};
	if (!trace)
		return;
	event = add_event(trace, NET_TRACE_CALL, name);
	event->call.n = (int64_t)bytes;
	name_coro(event);
	call->serial = trace->serial;
	call->began_ns = event->ns;
}

/* Returns the call's ring; NULL if it has gone, or is another one now. */
struct net_trace *net_trace_of_call(const struct net_trace_call *call)
{
	struct net_trace *trace =
		call->serial ? net_trace_of(call->conn) : NULL;

	return trace && trace->serial == call->serial ? trace : NULL;
}

long net_trace_return(const struct net_trace_call *call, long result)
{
	struct net_trace *trace = net_trace_of_call(call);
	struct net_trace_event *event;

	if (!trace)
		return result;
	event = add_event(trace, NET_TRACE_DONE, call->name);
	event->call.n = result;
	event->call.waited_ns = event->ns - call->began_ns;
	name_coro(event);
	return result;
}

void net_trace_poll(struct net_conn *conn, enum net_trace_kind kind, int result)
{
	struct net_trace_event *event = net_trace_add(conn, kind, "net_poll");

	if (!event)
		return;
	event->call.n = result;
	name_coro(event);
}
