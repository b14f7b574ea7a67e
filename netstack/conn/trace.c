/*
 * Rings of the connection trace: which connections have one, and until when.
 */
#include "netstack/conn/conn.h"

#include <errno.h>
#include <string.h>

/* ---- the table ---- */

static struct net_trace **bucket_of(const struct net_conn *conn)
{
	const struct net_traces *traces = net_here()->traces;
	uint64_t mixed = ((uintptr_t)conn >> 6) * UINT64_C(0x9e3779b97f4a7c15);

	return &traces->buckets[(uint32_t)(mixed >> 32) & traces->mask];
}

struct net_trace *net_trace_of(const struct net_conn *conn)
{
	struct net_trace *trace;

	if (!net_here()->traces)
		return NULL;
	trace = *bucket_of(conn);
	while (trace && trace->conn != conn)
		trace = trace->hash_next;
	return trace;
}

static void unhash_trace(struct net_trace *trace)
{
	struct net_trace **at = bucket_of(trace->was);

	while (*at != trace)
		at = &(*at)->hash_next;
	*at = trace->hash_next;
}

static struct net_traces *make_table(unsigned n)
{
	struct net_traces *traces = net_mem_calloc(1, sizeof(*traces));

	if (!traces)
		return NULL;
	traces->most = traces->room = n;
	traces->last = &traces->first;
	traces->buckets = net_mem_map_table(n + NET_TRACE_EXTRA, &traces->mask);
	if (!traces->buckets) {
		net_mem_free(traces);
		return NULL;
	}
	net_here()->traces = traces;
	return traces;
}

/* Replaces the table by a larger one, for n. */
static int grow_table(struct net_traces *traces, unsigned n)
{
	struct net_trace **old = traces->buckets, **bucket;
	uint32_t old_mask = traces->mask, mask;
	struct net_trace **buckets =
		net_mem_map_table(n + NET_TRACE_EXTRA, &mask);

	if (!buckets)
		return -ENOMEM;
	traces->buckets = buckets;
	traces->mask = mask;
	traces->room = n;
	for (struct net_trace *t = traces->first; t; t = t->next) {
		bucket = bucket_of(t->was);
		t->hash_next = *bucket;
		*bucket = t;
	}
	net_mem_unmap_table(old, old_mask);
	return 0;
}

int net_traces_keep(unsigned n)
{
	struct net_traces *traces = net_here()->traces;

	if (!traces)
		return !n || make_table(n) ? 0 : -ENOMEM;
	if (n > traces->room && grow_table(traces, n) < 0)
		return -ENOMEM;
	traces->most = n;
	return 0;
}

/* ---- a ring's life ---- */

static void mark_traced(struct net_conn *conn)
{
	tcp_set_flags(&conn->pcb, NET_TF_TRACED);
	conn->shard |= NET_SHARD_TRACED;
	conn->announced =
		true; /* net_conn_put() checks it; events have the ID */
}

static void unmark_traced(struct net_conn *conn)
{
	tcp_clear_flags(&conn->pcb, NET_TF_TRACED);
	conn->shard &= (uint8_t)~NET_SHARD_TRACED;
}

static void forget_trace(struct net_trace *trace)
{
	struct net_traces *traces = net_here()->traces;

	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		if (traces->watches[w].at == trace)
			traces->watches[w].at = trace->next;
	if (trace->conn)
		unmark_traced(trace->conn);
	else
		traces->n_ended--;
	*trace->pprev = trace->next;
	if (trace->next)
		trace->next->pprev = trace->pprev;
	else
		traces->last = trace->pprev;
	unhash_trace(trace);
	--*(trace->extra ? &traces->n_extra : &traces->n_own);
	net_mem_free(trace);
}

/* Frees the oldest ring whose connection has ended, for one that lives. */
static bool recycle_trace(bool extra)
{
	struct net_traces *traces = net_here()->traces;
	struct net_trace *trace = traces->n_ended ? traces->first : NULL;

	while (trace && (trace->conn || trace->extra != extra))
		trace = trace->next;
	if (!trace)
		return false;
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		if (trace->watches & 1u << w)
			traces->watches[w].missed +=
				trace->n - trace->reported[w];
	forget_trace(trace);
	return true;
}

static bool may_have(bool extra)
{
	const struct net_traces *traces = net_here()->traces;

	return (extra ? traces->n_extra < NET_TRACE_EXTRA
		      : traces->n_own < traces->most) ||
	       recycle_trace(extra);
}

static void describe_trace(struct net_trace *trace, uint32_t hash)
{
	const struct net_conn *conn = trace->conn;
	const struct tcp_pcb *pcb = &conn->pcb;

	net_addr_from_lwip(&pcb->local_ip, pcb->local_port, &trace->local);
	net_addr_from_lwip(&pcb->remote_ip, pcb->remote_port, &trace->peer);
	trace->hash = hash;
	trace->cwnd = pcb->cwnd;
	trace->turn = *net_turn_of(hash);
	trace->ref = net_mem_ref(conn);
	trace->seen = (struct net_trace_seen){
		.cwnd = pcb->cwnd,
		.ssthresh = pcb->ssthresh,
		.rcv_max = net_rcv_max(pcb),
		.state = pcb->state,
		.snd_shut = pcb->state >= ESTABLISHED && !pcb->snd_wnd,
	};
	/* Each is the number before the first byte's, as a SYN's number is. */
	if (pcb->state >= ESTABLISHED) {
		trace->iss = pcb->lastack - 1;
		trace->irs = pcb->rcv_nxt - 1;
		trace->has_iss = trace->has_irs = true;
	}
}

static struct net_trace *begin_trace(struct net_conn *conn, bool extra,
				     uint32_t hash, const char *how)
{
	struct net_traces *traces = net_here()->traces;
	struct net_trace *trace, **bucket = bucket_of(conn);

	if (!may_have(extra))
		return NULL;
	trace = net_mem_malloc(sizeof(*trace));
	if (!trace)
		return NULL;
	memset(trace, 0, offsetof(struct net_trace, events));
	trace->conn = conn;
	trace->was = conn;
	trace->serial = ++traces->serial;
	trace->extra = extra;
	trace->hash_next = *bucket;
	*bucket = trace;
	trace->pprev = traces->last;
	*traces->last = trace;
	traces->last = &trace->next;
	++*(extra ? &traces->n_extra : &traces->n_own);
	describe_trace(trace, hash);
	mark_traced(conn);
	net_trace_add(conn, NET_TRACE_BEGIN, how);
	return trace;
}

/* Returns which watches want the connection, a bit each. */
static uint8_t wanted_by(const struct net_conn *conn)
{
	const struct net_traces *traces = net_here()->traces;
	uint8_t watches = 0;

	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++) {
		const struct net_trace_watch *watch = &traces->watches[w];

		if (watch->wants && watch->wants(watch->filter, conn))
			watches |= (uint8_t)(1u << w);
	}
	return watches;
}

static void count_without(uint8_t watches)
{
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		net_here()->traces->watches[w].without += watches >> w & 1;
}

void net_trace_born(struct net_conn *conn, uint32_t hash, const char *how)
{
	uint8_t watches = wanted_by(conn);
	struct net_trace *trace = begin_trace(conn, false, hash, how);

	if (!trace && watches)
		trace = begin_trace(conn, true, hash, how);
	if (trace)
		trace->watches = watches;
	else
		count_without(watches);
}

/* Has a watch not yet got all of its events? */
static bool is_awaited(const struct net_trace *trace)
{
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		if ((trace->watches & 1u << w) &&
		    trace->reported[w] != trace->n)
			return true;
	return false;
}

void net_trace_release(struct net_trace *trace)
{
	if (!trace->conn && !is_awaited(trace))
		forget_trace(trace);
}

void net_trace_gone(struct net_conn *conn)
{
	struct net_trace *trace = net_trace_of(conn);

	if (!trace)
		return;
	unmark_traced(conn);
	trace->conn = NULL;
	net_here()->traces->n_ended++;
	net_trace_release(trace);
}

void net_traces_close(void)
{
	struct net_traces *traces = net_here()->traces;

	if (!traces)
		return;
	while (traces->first)
		forget_trace(traces->first);
	net_mem_unmap_table(traces->buckets, traces->mask);
	net_mem_free(traces);
	net_here()->traces = NULL;
}

/* ---- watches ---- */

int net_trace_watch(unsigned w, net_trace_wants wants, const void *filter,
		    size_t filter_len)
{
	struct net_traces *traces = net_here()->traces;

	if (!traces)
		traces = make_table(0);
	if (!traces)
		return -ENOMEM;
	traces->watches[w] = (struct net_trace_watch){.wants = wants};
	memcpy(traces->watches[w].filter, filter, filter_len);
	return 0;
}

/* A watch that begins now gets what the ring still has. */
static void join_watch(struct net_trace *trace, unsigned w)
{
	if (trace->watches & 1u << w)
		return;
	trace->watches |= (uint8_t)(1u << w);
	trace->reported[w] =
		trace->n > NET_TRACE_EVENTS ? trace->n - NET_TRACE_EVENTS : 0;
}

void net_trace_look(unsigned w, struct net_conn *conn, uint32_t hash)
{
	const struct net_trace_watch *watch = &net_here()->traces->watches[w];
	struct net_trace *trace = net_trace_of(conn);

	if (!conn->pcb_live || !watch->wants ||
	    !watch->wants(watch->filter, conn))
		return;
	if (!trace)
		trace = begin_trace(conn, true, hash, "already open");
	if (trace)
		join_watch(trace, w);
	else
		count_without((uint8_t)(1u << w));
}

void net_trace_unwatch(unsigned w)
{
	struct net_traces *traces = net_here()->traces;
	struct net_trace *trace, *next;

	if (!traces)
		return;
	traces->watches[w].wants = NULL;
	for (trace = traces->first; trace; trace = next) {
		next = trace->next;
		trace->watches &= (uint8_t) ~(1u << w);
		if (trace->extra && !trace->watches)
			forget_trace(trace);
		else
			net_trace_release(trace);
	}
	traces->watches[w].at = NULL;
}
