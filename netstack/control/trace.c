/*
 * The connection trace for the control socket: a client watches some
 * connections and polls for their events.
 *
 * A watch belongs to a client of the socket. It ends with the client, or after
 * a minute without a request, so that no rings are held in vain. A slow client
 * loses events of the rings that it watches, and gets their number; nothing
 * waits for it. The control thread alone uses the watches; each shard's part of
 * them is in net_here()->traces, which steps and posted functions reach.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/prot/tcp.h"

#define PAGE_EVENTS   256u /* of an answer */
#define PAGE_RINGS    64u
#define SLICE_RINGS   128u /* looked at in a round */
#define SLICE_LOOKS   64u  /* connections that a walk looks at in a round */
#define SLICE_BUCKETS 512u
#define WALK_ROUNDS   256u  /* of one answer */
#define LEASE_MS      60000 /* without a question */

static_assert(NET_MAX_SHARDS <= 64, "a bit each in `full`");

struct wanted {
	struct net_filter filter;
	uint16_t peer_port; /* 0: any */
	char id[NET_ID_TEXT_MAX];
};
static_assert(sizeof(struct wanted) <= NET_TRACE_FILTER_MAX, "it is copied");

static struct watch {
	bool used;
	bool ends;	 /* it ends, and some shards do not know */
	uint64_t client; /* net_control_client */
	int64_t asked_ms;
	struct wanted wanted;
	uint64_t walked; /* buckets of walk_shard */
	unsigned walk_shard;
	uint64_t full;	 /* shards whose last page had no room for all */
	unsigned next;	 /* the shard that is asked first */
	int64_t wall_ns; /* what is added to the stack's clock */
} watches[NET_TRACE_WATCHES];

_Thread_local uint64_t net_control_client;

static unsigned number_of(const struct watch *watch)
{
	return (unsigned)(watch - watches);
}

/* ---- choosing connections ---- */

static bool is_wanted(const void *filter, const struct net_conn *conn)
{
	const struct wanted *wanted = filter;

	if (wanted->id[0])
		return net_id_find(wanted->id) == conn;
	return (!wanted->peer_port ||
		conn->pcb.remote_port == wanted->peer_port) &&
	       net_filter_takes(&wanted->filter, conn);
}

/* Reads an ID, an address, a network, or an address and a port. */
static int read_peer(const char *text, struct wanted *out)
{
	struct net_addr *peer = &out->filter.peer;

	if (net_id_shard(text) >= 0) {
		snprintf(out->id, sizeof(out->id), "%.*s", NET_ID_TEXT_MAX - 1,
			 text);
		return 0;
	}
	if (strchr(text, '/'))
		return net_addr_parse_prefix(text, peer);
	if (net_addr_parse(text, 0, peer) < 0)
		return -EINVAL;
	out->peer_port = peer->port;
	peer->port = 0;
	peer->prefix_len = peer->family == 4 ? 32 : 128;
	return 0;
}

/* Reads "PEER,key=value...", where either may be missing; keys: net_filter. */
static cJSON *read_wanted(const char *params, struct wanted *out)
{
	const char *rest = params ? params : "";
	size_t len = strcspn(rest, ",");
	struct net_addr peer;
	char word[128];
	cJSON *wrong;

	memset(out, 0, sizeof(*out));
	if (!*rest)
		return net_control_error(
			"trace: expected a peer, as in 10.9.0.2, "
			"10.9.0.2:4711 or the ID of a connection, or a filter");
	if (memchr(rest, '=', len))
		return net_filter_parse(rest, &out->filter);
	snprintf(word, sizeof(word), "%.*s", (int)len, rest);
	if (len >= sizeof(word) || read_peer(word, out) < 0)
		return net_control_error(
			"'%s': expected a peer, as in 10.9.0.2, 10.9.0.0/16 "
			"or 10.9.0.2:4711, or the ID of a connection, as conns "
			"lists them",
			word);
	rest += len + (rest[len] == ',');
	peer = out->filter.peer;
	wrong = net_filter_parse(*rest ? rest : NULL, &out->filter);
	if (peer.family)
		out->filter.peer = peer;
	return wrong;
}

/* ---- watches begin and end ---- */

static struct watch *watch_of_client(void)
{
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		if (watches[w].used && !watches[w].ends &&
		    watches[w].client == net_control_client)
			return &watches[w];
	return NULL;
}

static void unwatch_step(void *arg)
{
	net_trace_unwatch((unsigned)(uintptr_t)arg);
}

/* Posts to all shards, even slow ones; if that fails, it is repeated. */
static void end_watch(struct watch *watch)
{
	watch->ends = true;
	for (unsigned s = 0; s < net_ask_shards(); s++)
		if (net_post(s, unwatch_step,
			     (void *)(uintptr_t)number_of(watch)) < 0)
			return;
	watch->used = false;
}

int net_traces_expire(int64_t now)
{
	int64_t next = INT64_MAX;

	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++) {
		struct watch *watch = &watches[w];
		int64_t until = watch->asked_ms + LEASE_MS;

		if (watch->used && (watch->ends || until <= now))
			end_watch(watch);
		if (watch->used)
			next = watch->ends ? now + 100 : LWIP_MIN(next, until);
	}
	return next == INT64_MAX ? -1 : (int)(LWIP_MAX(next, now) - now);
}

void net_traces_client_gone(uint64_t client)
{
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		if (watches[w].used && watches[w].client == client)
			end_watch(&watches[w]);
}

void net_traces_forget(void)
{
	memset(watches, 0, sizeof(watches));
}

struct begin {
	unsigned w;
	int err;
	struct wanted wanted;
};

/* Watches one connection, from now on: its ID may change without a ring. */
static int watch_one(unsigned w, const char *id)
{
	struct net_conn *conn = net_id_find(id);

	if (!conn)
		return -ENOENT;
	net_trace_look(w, conn, net_demux_hash_of(conn));
	return net_trace_of(conn) ? 0 : -ENOBUFS;
}

static bool begin_step(void *data)
{
	struct begin *begin = data;

	/* Remove a watch of this number whose end could not be posted. */
	net_trace_unwatch(begin->w);
	begin->err = net_trace_watch(begin->w, is_wanted, &begin->wanted,
				     sizeof(begin->wanted));
	if (begin->err == 0 && begin->wanted.id[0])
		begin->err = watch_one(begin->w, begin->wanted.id);
	return true;
}

static cJSON *begin_on(const struct watch *watch, unsigned shard)
{
	struct net_ask *ask = net_ask_new(begin_step, sizeof(struct begin));
	cJSON *wrong = NULL;
	struct begin *begin;
	int err;

	if (!ask)
		return net_control_error("no memory");
	begin = (void *)ask->data;
	begin->w = number_of(watch);
	begin->wanted = watch->wanted;
	err = net_ask_run(ask, shard);
	if (err < 0)
		wrong = net_control_ask_error(shard, err);
	else if (begin->err == -ENOENT)
		wrong = net_control_error(
			"there is no connection %s: it has ended, or the list "
			"is old; list the connections again",
			watch->wanted.id);
	else if (begin->err == -ENOBUFS)
		wrong = net_control_error(
			"connection %s cannot be traced: there is no memory, "
			"or other clients trace %u connections of its shard",
			watch->wanted.id, NET_TRACE_EXTRA);
	else if (begin->err < 0)
		wrong = net_control_error("shard %u: %s", shard,
					  strerror(-begin->err));
	net_ask_put(ask);
	return wrong;
}

/* With an ID, only its shard is asked; otherwise all are. */
static unsigned first_shard(const struct watch *watch)
{
	return watch->wanted.id[0] ? (unsigned)net_id_shard(watch->wanted.id)
				   : 0;
}

static unsigned end_shard(const struct watch *watch)
{
	return watch->wanted.id[0] ? first_shard(watch) + 1 : net_ask_shards();
}

static struct watch *free_watch(void)
{
	for (unsigned w = 0; w < NET_TRACE_WATCHES; w++)
		if (!watches[w].used)
			return &watches[w];
	return NULL;
}

static cJSON *start_trace(const char *params)
{
	struct watch *watch = watch_of_client();
	struct wanted wanted;
	cJSON *wrong = read_wanted(params, &wanted), *to;

	if (wrong)
		return wrong;
	if (watch)
		end_watch(watch);
	watch = free_watch();
	if (!watch)
		return net_control_error(
			"too many tracing clients (at most %u)",
			NET_TRACE_WATCHES);
	*watch = (struct watch){.used = true,
				.client = net_control_client,
				.asked_ms = net_control_now_ms(),
				.wanted = wanted};
	/* A single connection is watched already when this returns. */
	watch->walk_shard = wanted.id[0] ? end_shard(watch) : 0;
	if (!net_ask_shards())
		wrong = net_control_ask_error(0, -EAGAIN);
	for (unsigned s = first_shard(watch); !wrong && s < end_shard(watch);
	     s++)
		wrong = begin_on(watch, s);
	if (wrong) {
		end_watch(watch);
		return wrong;
	}
	to = cJSON_CreateObject();
	cJSON_AddNumberToObject(to, "events_kept", NET_TRACE_EVENTS);
	return to;
}

static cJSON *stop_trace(const char *params)
{
	struct watch *watch = watch_of_client();

	if (watch)
		end_watch(watch);
	return cJSON_CreateObject();
}

/* ---- reading events, on the shard's thread ---- */

struct ring {
	char id[NET_ID_TEXT_MAX];
	struct net_addr local, peer;
	uint32_t iss, irs;
	uint64_t missed;
};

struct reported_event {
	struct net_trace_event event;
	unsigned ring;
};

struct page {
	unsigned w;
	bool walks, resume, more;
	bool lives; /* one of the rings' connections has not ended */
	uint64_t bucket;
	unsigned rounds;
	int64_t wall_ns; /* net_control_wall_offset_ns() */
	uint64_t missed, without;
	unsigned most; /* events; other shards have the rest */
	unsigned n_events, n_rings;
	struct ring rings[PAGE_RINGS];
	struct reported_event events[PAGE_EVENTS];
};

/* Looks at existing connections; false: the walk is over. */
static bool walk_slice(struct page *page)
{
	unsigned looks = 0, buckets = 0;

	while (page->bucket <= net_here()->bucket_mask && looks < SLICE_LOOKS &&
	       buckets++ < SLICE_BUCKETS) {
		struct net_conn *conn = net_here()->buckets[page->bucket++];

		for (; conn; conn = conn->pcb.hash_next, looks++)
			net_trace_look(page->w, conn, net_demux_hash_of(conn));
	}
	return page->bucket <= net_here()->bucket_mask;
}

static void report_ring(struct page *page, struct net_trace *trace)
{
	struct ring *ring = &page->rings[page->n_rings];
	uint64_t at = trace->reported[page->w], first = 0;

	if (trace->n > NET_TRACE_EVENTS)
		first = trace->n - NET_TRACE_EVENTS;
	*ring = (struct ring){.local = trace->local,
			      .peer = trace->peer,
			      .iss = trace->iss,
			      .irs = trace->irs,
			      .missed = first > at ? first - at : 0};
	snprintf(ring->id, sizeof(ring->id), "%u-%08x-%x-%x", net_here()->shard,
		 trace->hash, trace->ref, trace->turn);
	for (at = LWIP_MAX(at, first); at < trace->n; at++)
		page->events[page->n_events++] = (struct reported_event){
			.event = trace->events[at % NET_TRACE_EVENTS],
			.ring = page->n_rings};
	page->n_rings++;
	trace->reported[page->w] = trace->n;
}

static bool has_room(const struct page *page)
{
	return page->n_rings < PAGE_RINGS &&
	       page->n_events + NET_TRACE_EVENTS <= page->most;
}

/* Reports rings in turn, from where the last page was full; false: no more. */
static bool report_slice(struct page *page)
{
	struct net_trace_watch *watch = &net_here()->traces->watches[page->w];
	struct net_trace *trace = watch->at, *next;
	unsigned looks = 0, before = page->n_events;

	for (; trace && looks < SLICE_RINGS; trace = next, looks++) {
		next = trace->next;
		if (!(trace->watches & 1u << page->w))
			continue;
		page->lives |= trace->conn && trace->conn->pcb_live;
		if (trace->reported[page->w] == trace->n)
			continue;
		if (!has_room(page)) {
			page->more = true;
			break;
		}
		if (page->n_events > before)
			break; /* one ring a round */
		report_ring(page, trace);
		net_trace_release(trace);
	}
	watch->at = trace;
	return trace && !page->more;
}

static bool page_step(void *data)
{
	struct page *page = data;
	struct net_traces *traces = net_here()->traces;

	if (!traces || !traces->watches[page->w].wants)
		return true;
	if (page->rounds++ == 0) {
		page->wall_ns = net_control_wall_offset_ns();
		if (!page->resume)
			traces->watches[page->w].at = traces->first;
	}
	if (page->walks && page->rounds <= WALK_ROUNDS) {
		page->walks = walk_slice(page);
		if (!page->resume)
			traces->watches[page->w].at = traces->first;
		return false;
	}
	if (report_slice(page))
		return false;
	page->missed = traces->watches[page->w].missed;
	page->without = traces->watches[page->w].without;
	traces->watches[page->w].missed = 0;
	traces->watches[page->w].without = 0;
	return true;
}

/* ---- as JSON ---- */

/* A sequence number relative to the stream's first; a SYN's is 0. */
static double make_seq_relative(uint32_t number, uint32_t first)
{
	uint32_t n = number - first;

	return n > 0xffff0000u ? (double)(int32_t)n : (double)n;
}

static void add_flags(cJSON *to, uint8_t flags)
{
	static const struct {
		uint8_t bit;
		char letter;
	} all[] = {{TCP_SYN, 'S'}, {TCP_FIN, 'F'}, {TCP_RST, 'R'},
		   {TCP_PSH, 'P'}, {TCP_URG, 'U'}, {TCP_ECE, 'E'},
		   {TCP_CWR, 'W'}, {TCP_ACK, '.'}};
	char text[sizeof(all) / sizeof(all[0]) + 1];
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (flags & all[i].bit)
			text[n++] = all[i].letter;
	text[n] = '\0';
	cJSON_AddStringToObject(to, "flags", text);
}

static void add_segment(cJSON *to, const struct net_trace_event *e,
			const struct ring *ring)
{
	bool in = e->kind == NET_TRACE_IN;

	add_flags(to, e->flags);
	cJSON_AddNumberToObject(
		to, "seq",
		make_seq_relative(e->seg.seq, in ? ring->irs : ring->iss));
	net_control_number(to, "len", e->seg.len);
	if (e->flags & TCP_ACK)
		cJSON_AddNumberToObject(
			to, "ack",
			make_seq_relative(e->seg.ack,
					  in ? ring->iss : ring->irs));
	net_control_number(to, "wnd", e->seg.wnd);
	if (e->sacks)
		net_control_number(to, "sacks", e->sacks);
	net_control_number(to, "cwnd", e->seg.cwnd);
	if (e->what)
		cJSON_AddStringToObject(to, in ? "note" : "resent", e->what);
}

static void add_call(cJSON *to, const struct net_trace_event *e)
{
	cJSON_AddStringToObject(to, "call", e->what);
	if (e->call.coro[0])
		cJSON_AddStringToObject(to, "coroutine", e->call.coro);
	if (e->kind == NET_TRACE_CALL && e->call.n)
		cJSON_AddNumberToObject(to, "bytes", (double)e->call.n);
	if (e->kind != NET_TRACE_DONE)
		return;
	cJSON_AddNumberToObject(to, "result", (double)e->call.n);
	if (e->call.n < 0)
		cJSON_AddStringToObject(to, "error", strerror((int)-e->call.n));
	cJSON_AddNumberToObject(to, "waited_us",
				(double)(e->call.waited_ns / 1000));
}

static const char *const kinds[] = {
	[NET_TRACE_BEGIN] = "begin",
	[NET_TRACE_IN] = "in",
	[NET_TRACE_OUT] = "out",
	[NET_TRACE_CWND] = "cwnd",
	[NET_TRACE_SND_WND] = "peer-window",
	[NET_TRACE_RCV_WND] = "window",
	[NET_TRACE_TIMER] = "timer",
	[NET_TRACE_STATE] = "state",
	[NET_TRACE_CALL] = "call",
	[NET_TRACE_DONE] = "done",
	[NET_TRACE_END] = "end",
};

static void add_details(cJSON *to, const struct net_trace_event *e,
			const struct ring *ring)
{
	switch ((enum net_trace_kind)e->kind) {
	case NET_TRACE_BEGIN:
		cJSON_AddStringToObject(to, "how", e->what);
		break;
	case NET_TRACE_IN:
	case NET_TRACE_OUT:
		add_segment(to, e, ring);
		break;
	case NET_TRACE_CWND:
		net_control_number(to, "cwnd", e->value.now);
		net_control_number(to, "was", e->value.was);
		net_control_number(to, "ssthresh", e->value.ssthresh);
		cJSON_AddStringToObject(to, "why", e->what);
		break;
	case NET_TRACE_SND_WND:
	case NET_TRACE_RCV_WND:
		cJSON_AddStringToObject(to, "what", e->what);
		net_control_number(to, "bytes", e->value.now);
		break;
	case NET_TRACE_TIMER:
		cJSON_AddStringToObject(to, "timer", e->what);
		net_control_number(to, "times", e->value.now);
		break;
	case NET_TRACE_STATE:
		cJSON_AddStringToObject(
			to, "state",
			net_state_name((enum net_tcp_state)e->value.now));
		cJSON_AddStringToObject(
			to, "was",
			net_state_name((enum net_tcp_state)e->value.was));
		break;
	case NET_TRACE_CALL:
	case NET_TRACE_DONE:
		add_call(to, e);
		break;
	case NET_TRACE_END:
		cJSON_AddStringToObject(to, "why", e->what);
		break;
	}
}

/* Returns an event's connection, kind and time, in microseconds since 1970. */
static cJSON *head_json(const struct ring *ring, int64_t wall_ns,
			const char *kind)
{
	char text[NET_ADDR_TEXT_MAX];
	cJSON *to = cJSON_CreateObject();

	net_control_number(to, "time_us", (uint64_t)wall_ns / 1000);
	cJSON_AddStringToObject(to, "id", ring->id);
	cJSON_AddStringToObject(
		to, "local", net_addr_format(&ring->local, text, sizeof(text)));
	cJSON_AddStringToObject(
		to, "peer", net_addr_format(&ring->peer, text, sizeof(text)));
	cJSON_AddStringToObject(to, "kind", kind);
	return to;
}

/* Orders events of several rings by time, of one ring as they are. */
static int compare_events(const void *a, const void *b)
{
	const struct reported_event *x =
		*(const struct reported_event *const *)a;
	const struct reported_event *y =
		*(const struct reported_event *const *)b;

	if (x->event.ns != y->event.ns)
		return x->event.ns < y->event.ns ? -1 : 1;
	return x < y ? -1 : 1;
}

static void add_events(cJSON *to, const struct page *page)
{
	const struct reported_event *order[PAGE_EVENTS];
	bool said[PAGE_RINGS] = {false};

	for (unsigned i = 0; i < page->n_events; i++)
		order[i] = &page->events[i];
	qsort(order, page->n_events, sizeof(order[0]), compare_events);
	for (unsigned i = 0; i < page->n_events; i++) {
		const struct net_trace_event *e = &order[i]->event;
		const struct ring *ring = &page->rings[order[i]->ring];
		int64_t wall_ns = page->wall_ns + e->ns;
		cJSON *event;

		if (ring->missed && !said[order[i]->ring]) {
			event = head_json(ring, wall_ns, "missed");
			net_control_number(event, "events", ring->missed);
			cJSON_AddItemToArray(to, event);
			said[order[i]->ring] = true;
		}
		event = head_json(ring, wall_ns, kinds[e->kind]);
		add_details(event, e, ring);
		cJSON_AddItemToArray(to, event);
	}
}

/* ---- the command ---- */

struct sums {
	uint64_t missed, without;
	unsigned events;
	bool more, lives;
};

static cJSON *page_of(struct watch *watch, unsigned shard, cJSON *events,
		      struct sums *sums)
{
	struct net_ask *ask = net_ask_new(page_step, sizeof(struct page));
	struct page *page;
	int err;

	if (!ask)
		return net_control_error("no memory");
	page = (void *)ask->data;
	page->w = number_of(watch);
	page->resume = watch->full >> shard & 1;
	page->walks = shard == watch->walk_shard;
	page->bucket = watch->walked;
	page->most = PAGE_EVENTS - sums->events;
	err = net_ask_run(ask, shard);
	if (err == 0) {
		watch->wall_ns = net_control_steady_offset(watch->wall_ns,
							   page->wall_ns);
		page->wall_ns = watch->wall_ns;
		add_events(events, page);
		sums->more |= page->more;
		sums->lives |= page->lives;
		watch->full &= ~(UINT64_C(1) << shard);
		watch->full |= (uint64_t)page->more << shard;
		sums->events += page->n_events;
		sums->missed += page->missed;
		sums->without += page->without;
		if (shard == watch->walk_shard) {
			watch->walked = page->walks ? page->bucket : 0;
			watch->walk_shard += !page->walks;
			sums->more |= watch->walk_shard < end_shard(watch);
		}
	}
	net_ask_put(ask);
	return err < 0 ? net_control_ask_error(shard, err) : NULL;
}

static cJSON *report_trace(const char *params)
{
	struct watch *watch = watch_of_client();
	unsigned first, n;
	struct sums sums = {0};
	cJSON *to, *events, *wrong = NULL;

	if (!watch)
		return net_control_error(
			"this client watches no connection, or has not asked "
			"for a minute; /coronet/trace.start,PEER starts a "
			"trace");
	watch->asked_ms = net_control_now_ms();
	to = cJSON_CreateObject();
	events = cJSON_AddArrayToObject(to, "events");
	first = first_shard(watch);
	n = end_shard(watch) - first;
	for (unsigned i = 0; !wrong && i < n; i++)
		wrong = page_of(watch, first + (watch->next + i) % n, events,
				&sums);
	watch->next++;
	if (wrong) {
		cJSON_Delete(to);
		return wrong;
	}
	cJSON_AddBoolToObject(to, "more", sums.more);
	if (watch->wanted.id[0])
		cJSON_AddBoolToObject(to, "ended", !sums.more && !sums.lives);
	net_control_number(to, "missed", sums.missed);
	net_control_number(to, "without", sums.without);
	return to;
}

const struct net_command net_trace_commands[] = {
	{"/coronet/trace.start",
	 "Traces connections until this client disconnects. "
	 "Parameters: an address, ADDRESS:PORT, a network or an ID, and "
	 "port=N, "
	 "state=NAME, handler=NAME",
	 start_trace},
	{"/coronet/trace",
	 "Events of these connections since the last request; more: ask again "
	 "at once; ended: the connection of the ID has ended",
	 report_trace},
	{"/coronet/trace.stop", "Ends this client's trace", stop_trace},
	{0},
};
