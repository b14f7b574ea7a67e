/* Connections that are traced, and the text of their rings. */
#include "tests/net/traced.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "netstack/control/control_priv.h"
#include "tests/net/fake_glue.h"
#include "tests/net/repair.h"

static int64_t began_ns;
uint64_t printed_events; /* events that trace_text() has printed */

/* ---- a ring's events as text ---- */

static const char *state_name(uint32_t state)
{
	return net_state_name((enum net_tcp_state)state);
}

static void print_segment(FILE *out, const struct net_trace *trace,
			  const struct net_trace_event *e)
{
	bool in = e->kind == NET_TRACE_IN;

	fprintf(out, "%s flags %x seq %d len %u ack %d", in ? "in" : "out",
		e->flags, (int)(e->seg.seq - (in ? trace->irs : trace->iss)),
		e->seg.len, (int)(e->seg.ack - (in ? trace->iss : trace->irs)));
	if (e->sacks)
		fprintf(out, " sacks %u", e->sacks);
	if (e->what)
		fprintf(out, " %s", e->what);
}

static void print_event(FILE *out, const struct net_trace *trace,
			const struct net_trace_event *e)
{
	switch ((enum net_trace_kind)e->kind) {
	case NET_TRACE_BEGIN:
		fprintf(out, "begin %s", e->what);
		break;
	case NET_TRACE_IN:
	case NET_TRACE_OUT:
		print_segment(out, trace, e);
		break;
	case NET_TRACE_CWND:
		fprintf(out, "cwnd %u was %u: %s", e->value.now, e->value.was,
			e->what);
		break;
	case NET_TRACE_SND_WND:
		fprintf(out, "peer's window %s", e->what);
		break;
	case NET_TRACE_RCV_WND:
		fprintf(out, "window %s", e->what);
		break;
	case NET_TRACE_TIMER:
		fprintf(out, "timer %s %u", e->what, e->value.now);
		break;
	case NET_TRACE_STATE:
		fprintf(out, "state %s", state_name(e->value.now));
		break;
	case NET_TRACE_CALL:
		fprintf(out, "%s(%ld) by %s", e->what, (long)e->call.n,
			e->call.coro);
		break;
	case NET_TRACE_DONE:
		fprintf(out, "%s = %ld after %ld ms", e->what, (long)e->call.n,
			(long)(e->call.waited_ns / 1000000));
		break;
	case NET_TRACE_END:
		fprintf(out, "end %s (%ld)", e->what, (long)e->call.n);
		break;
	}
}

/*
 * Returns the new events, one a line, each with the ms since began_ns; the
 * caller frees it.
 */
char *trace_text(const struct net_trace *trace)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(trace);
	if (trace->n - printed_events > NET_TRACE_EVENTS)
		printed_events = trace->n - NET_TRACE_EVENTS;
	for (; printed_events < trace->n; printed_events++) {
		const struct net_trace_event *e =
			&trace->events[printed_events % NET_TRACE_EVENTS];

		fprintf(out, "%ld ", (long)((e->ns - began_ns) / 1000000));
		print_event(out, trace, e);
		fputc('\n', out);
	}
	fclose(out);
	return text;
}

void expect_trace(const struct net_trace *trace, const char *expected)
{
	char *text = trace_text(trace);

	assert_string_equal(text, expected);
	free(text);
}

bool has_line(const char *text, const char *part)
{
	bool has = strstr(text, part) != NULL;

	if (!has)
		print_message("no '%s' in:\n%s", part, text);
	return has;
}

/* ---- the harness ---- */

struct net_conn *traced_conn;

void traced_echo(struct net_conn *accepted, void *arg)
{
	char data[100];
	long n;

	traced_conn = accepted;
	while ((n = net_recv(accepted, data, sizeof(data))) > 0)
		net_send(accepted, data, (size_t)n);
	result = n;
	net_close(accepted);
	ended++;
}

void traced_first(unsigned n)
{
	assert_int_equal(net_traces_keep(n), 0);
	began_ns = fake_now_ns;
	printed_events = 0;
	traced_conn = NULL;
	ended = 0;
}

void traced_drain(void)
{
	struct segment s;

	while (peer_next(&s))
		;
}

unsigned traced_rings(void)
{
	const struct net_traces *traces = net_here()->traces;

	return traces->n_own + traces->n_extra;
}

bool traced_is_marked(const struct net_conn *which)
{
	bool marked = which->pcb.flags & NET_TF_TRACED;

	assert_int_equal(marked, !!(which->shard & NET_SHARD_TRACED));
	return marked;
}

void traced_read_all(struct net_conn *accepted, void *arg)
{
	struct net_view view;

	traced_conn = accepted;
	while ((result = net_recv_view(accepted, &view)) > 0)
		net_view_release(accepted, &view);
	ended++;
	coro_sleep_ns(1000000000);
	net_close(accepted);
}

void traced_abort(struct net_conn *accepted, void *arg)
{
	traced_conn = accepted;
	coro_sleep_ns(1000000);
	net_abort(accepted);
}

/* A filter that accepts every connection. */
bool traced_wants_all(const void *filter, const struct net_conn *which)
{
	return true;
}
