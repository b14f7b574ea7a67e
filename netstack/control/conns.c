/*
 * Commands on connections: lists them in pages, shows one, resets one.
 *
 * The walk covers the hash table, a few buckets and connections per round. Its
 * position is a bucket number, so it may stop and continue at any time.
 * Connections that begin or end meanwhile may be listed or not; all others are
 * listed once.
 */
#include "netstack/control/control_priv.h"

#include "lwip/ip.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE_ROWS     96   /* of an answer */
#define SPARE_ROWS    16   /* the rest of the last bucket */
#define SLICE_ROWS    8	   /* of a round */
#define SLICE_LOOKS   32   /* connections looked at in a round */
#define SLICE_BUCKETS 8192 /* 64 KiB, mostly empty: some 6 us */

struct row {
	char id[NET_ID_TEXT_MAX];
	struct net_addr local, peer;
	struct net_conn_stats stats;
	int64_t age_ns; /* -1: not known */
	bool v6, reads, writes, polls, served, closed;
	char handler[NET_NAME_MAX], name[NET_NAME_MAX];
	char reader[32], writer[32]; /* coroutines */
	const char *call;	     /* that the writer is in */
};

struct page {
	struct net_filter filter;
	uint64_t bucket;
	unsigned n;
	bool done;
	struct row rows[PAGE_ROWS + SPARE_ROWS];
};

/* ---- on the shard's thread ---- */

static const char *writer_call(const struct net_conn *conn)
{
	if (conn->connecting)
		return "net_dial";
	return conn->lingering ? "net_close_wait" : "net_send";
}

int64_t net_conn_age_ns(const struct net_conn *conn)
{
	uint32_t now = (uint32_t)(net_here()->now_ns >> 24);

	return conn->ext->has_counters
		       ? (int64_t)(now -
				   net_counted_of(net_counts(conn))->began)
				 << 24
		       : -1;
}

static void fill_row(struct net_conn *conn, struct row *row)
{
	const char *name = net_name_in(net_here(), conn);

	net_id_format(conn, row->id, sizeof(row->id));
	row->local = net_local_addr(conn);
	row->peer = net_peer_addr(conn);
	net_conn_fill_stats(conn, &row->stats);
	row->age_ns = net_conn_age_ns(conn);
	row->v6 = IP_IS_V6_VAL(conn->pcb.remote_ip);
	row->served = conn->served;
	row->closed = !conn->owned;
	row->polls = conn->ext->pollers != NULL;
	snprintf(row->handler, sizeof(row->handler), "%s",
		 conn->served ? net_handler_name(conn) : "");
	snprintf(row->name, sizeof(row->name), "%s", name ? name : "");
	row->reads = conn->reader != NULL;
	row->writes = conn->writer != NULL;
	if (row->reads)
		snprintf(row->reader, sizeof(row->reader), "%s",
			 coro_name(conn->reader));
	if (row->writes)
		snprintf(row->writer, sizeof(row->writer), "%s",
			 coro_name(conn->writer));
	row->call = writer_call(conn);
}

/* Takes the connections of a bucket; returns how many were looked at. */
static unsigned take_bucket(struct page *page, unsigned bucket)
{
	struct net_conn *conn = net_here()->buckets[bucket];
	unsigned looks = 0;

	for (; conn; conn = conn->pcb.hash_next) {
		looks++;
		if (page->n < PAGE_ROWS + SPARE_ROWS &&
		    net_filter_takes(&page->filter, conn))
			fill_row(conn, &page->rows[page->n++]);
	}
	return looks;
}

static bool walk_slice(void *data)
{
	struct page *page = data;
	unsigned buckets = 0, looks = 0, most = page->n + SLICE_ROWS;

	while (page->bucket <= net_here()->bucket_mask && page->n < PAGE_ROWS &&
	       page->n < most && looks < SLICE_LOOKS &&
	       buckets++ < SLICE_BUCKETS)
		looks += take_bucket(page, (unsigned)page->bucket++);
	page->done = page->bucket > net_here()->bucket_mask;
	return page->done || page->n >= PAGE_ROWS;
}

/* ---- as JSON ---- */

static void add_text(cJSON *to, const char *name, const char *text)
{
	if (*text)
		cJSON_AddStringToObject(to, name, text);
}

static void add_wait(cJSON *waits, const char *coro, const char *call)
{
	cJSON *wait = cJSON_CreateObject();

	cJSON_AddStringToObject(wait, "coroutine", coro);
	cJSON_AddStringToObject(wait, "in", call);
	cJSON_AddItemToArray(waits, wait);
}

static void add_waits(cJSON *to, const struct row *row)
{
	cJSON *waits = cJSON_AddArrayToObject(to, "waits");

	if (row->reads)
		add_wait(waits, row->reader, "net_recv");
	if (row->writes)
		add_wait(waits, row->writer, row->call);
	if (row->polls)
		add_wait(waits, "", "net_poll");
}

static void add_stats(cJSON *to, const struct net_conn_stats *s)
{
	cJSON_AddStringToObject(to, "cc", s->cc);
	net_control_number(to, "mss", s->mss);
	net_control_number(to, "rtt_us", s->rtt_us);
	net_control_number(to, "rttvar_us", s->rttvar_us);
	net_control_number(to, "rto_us", s->rto_us);
	net_control_number(to, "cwnd", s->cwnd);
	net_control_number(to, "ssthresh", s->ssthresh);
	net_control_number(to, "snd_wnd", s->snd_wnd);
	net_control_number(to, "rcv_wnd", s->rcv_wnd);
	net_control_number(to, "unread", s->unread);
	net_control_number(to, "unsent", s->unsent);
	net_control_number(to, "unacked", s->unacked);
	if (s->pacing_rate)
		net_control_number(to, "pacing_rate", s->pacing_rate);
	cJSON_AddBoolToObject(to, "counted", s->counted);
	if (!s->counted)
		return;
	net_control_number(to, "rx_bytes", s->rx_bytes);
	net_control_number(to, "tx_bytes", s->tx_bytes);
	net_control_number(to, "rx_segs", s->rx_segs);
	net_control_number(to, "tx_segs", s->tx_segs);
	net_control_number(to, "retransmits", s->retransmits);
	net_control_number(to, "rtos", s->rtos);
	net_control_number(to, "dup_acks", s->dup_acks);
	net_control_number(to, "out_of_order", s->out_of_order);
	net_control_number(to, "busy_us", s->info.busy_time);
	net_control_number(to, "rwnd_limited_us", s->info.rwnd_limited);
	net_control_number(to, "sndbuf_limited_us", s->info.sndbuf_limited);
}

static cJSON *row_json(const struct row *row)
{
	cJSON *to = cJSON_CreateObject();

	cJSON_AddStringToObject(to, "id", row->id);
	cJSON_AddStringToObject(to, "state", net_state_name(row->stats.state));
	net_control_addr(to, "local", &row->local);
	net_control_addr(to, "peer", &row->peer);
	add_text(to, "name", row->name);
	add_text(to, "handler", row->handler);
	if (row->closed)
		cJSON_AddBoolToObject(to, "closed", true);
	if (row->age_ns >= 0)
		cJSON_AddNumberToObject(to, "age_ms",
					(double)(row->age_ns / 1000000));
	add_waits(to, row);
	add_stats(to, &row->stats);
	return to;
}

/* ---- commands ---- */

/* The page in JSON, and where the next one begins. */
static cJSON *page_json(const struct page *page, unsigned shard)
{
	cJSON *all = cJSON_CreateObject();
	cJSON *rows = cJSON_AddArrayToObject(all, "conns");

	for (unsigned i = 0; i < page->n; i++)
		cJSON_AddItemToArray(rows, row_json(&page->rows[i]));
	net_control_next(all, shard, page->done, page->bucket);
	return all;
}

static cJSON *list_conns(const char *params)
{
	struct net_filter filter;
	cJSON *answer = net_filter_parse(params, &filter);
	struct net_ask *ask;
	struct page *page;
	int err;

	if (answer)
		return answer;
	ask = net_ask_new(walk_slice, sizeof(struct page));
	if (!ask)
		return NULL;
	page = (void *)ask->data;
	page->filter = filter;
	page->bucket = filter.at;
	err = net_ask_run(ask, filter.shard);
	answer = err < 0 ? net_control_ask_error(filter.shard, err)
			 : page_json(page, filter.shard);
	if (err == 0)
		net_control_number(answer, "rounds", ask->slices);
	net_ask_put(ask);
	return answer;
}

struct one {
	char id[NET_ID_TEXT_MAX];
	bool found, drop;
	struct row row;
};

static bool one_step(void *data)
{
	struct one *one = data;
	struct net_conn *conn = net_id_find(one->id);

	one->found = conn != NULL;
	if (!conn)
		return true;
	fill_row(conn, &one->row);
	if (one->drop)
		net_conn_drop(conn);
	return true;
}

static cJSON *ask_one(const char *id, bool drop)
{
	int shard = id ? net_id_shard(id) : -EINVAL, err;
	struct net_ask *ask;
	struct one *one;
	cJSON *answer;

	if (shard < 0)
		return net_control_error("'%s': expected the ID of a "
					 "connection, as conns lists them",
					 id ? id : "");
	ask = net_ask_new(one_step, sizeof(struct one));
	if (!ask)
		return NULL;
	one = (void *)ask->data;
	snprintf(one->id, sizeof(one->id), "%s", id);
	one->drop = drop;
	err = net_ask_run(ask, (unsigned)shard);
	if (err < 0)
		answer = net_control_ask_error((unsigned)shard, err);
	else if (!one->found)
		answer = net_control_error(
			"there is no connection %s: it has ended, or the list "
			"is old; list the connections again",
			id);
	else
		answer = row_json(&one->row);
	net_ask_put(ask);
	return answer;
}

static cJSON *show_conn(const char *params)
{
	return ask_one(params, false);
}

static cJSON *drop_conn(const char *params)
{
	return ask_one(params, true);
}

const struct net_command net_conn_commands[] = {
	{"/coronet/conns",
	 "A page of connections. Parameters: peer=ADDRESS[/BITS], port=N, "
	 "state=NAME, handler=NAME, cursor=NEXT (of the page before)",
	 list_conns},
	{"/coronet/conn", "One connection. Parameter: its ID", show_conn},
	{"/coronet/drop",
	 "Resets a connection; calls on it fail with ECONNABORTED. Parameter: "
	 "its ID",
	 drop_conn},
	{0},
};
