/*
 * The command that lists UDP sockets, in pages as connections are.
 *
 * The walk covers the table of ports and then the hash of connected sockets, a
 * few buckets and sockets per round. Its position is a bucket and how many
 * sockets of it were listed, so it may stop and continue at any time. Sockets
 * that are opened or closed meanwhile may be listed or not; one that is
 * connected meanwhile may be listed twice.
 */
#include "netstack/control/control_priv.h"

#include <stdio.h>
#include <string.h>

#define PAGE_ROWS     96   /* of an answer */
#define SLICE_ROWS    8	   /* of a round */
#define SLICE_BUCKETS 8192 /* 64 KiB, mostly empty: some 6 us */
#define SKIP_BITS     24   /* of a cursor: sockets of a bucket */
#define BUCKETS	      (2 * (uint64_t)NET_UDP_BUCKETS)

struct row {
	struct net_addr local, peer;
	struct net_udp_stats stats;
	bool connected, waits;
	char reader[32]; /* coroutine */
};

struct page {
	uint64_t bucket, skip;
	unsigned n;
	bool done;
	struct row rows[PAGE_ROWS];
};

/* ---- on the shard's thread ---- */

static void fill_row(const struct net_udp *udp, struct row *row)
{
	row->local = net_udp_local_addr(udp);
	row->connected = udp->remote_port != 0;
	if (row->connected)
		row->peer = net_udp_peer_addr(udp);
	row->stats = udp->stats;
	row->stats.queued = udp->rx_queued;
	row->stats.queued_bytes = udp->rx_queued_bytes;
	row->stats.views = udp->n_held;
	row->waits = udp->reader != NULL;
	if (row->waits)
		snprintf(row->reader, sizeof(row->reader), "%s",
			 coro_name(udp->reader));
}

static const struct net_udp *first_in(uint64_t bucket)
{
	if (!net_udps.ports)
		return NULL;
	return bucket < NET_UDP_BUCKETS
		       ? net_udps.ports[bucket]
		       : net_udps.tuples[bucket - NET_UDP_BUCKETS];
}

/* Takes sockets of the current bucket, up to `most` rows of the page. */
static void take_bucket(struct page *page, unsigned most)
{
	const struct net_udp *udp = first_in(page->bucket);

	for (uint64_t i = 0; udp && i < page->skip; i++)
		udp = udp->hash_next;
	for (; udp && page->n < most; udp = udp->hash_next) {
		page->skip++;
		if (udp->owned)
			fill_row(udp, &page->rows[page->n++]);
	}
	if (udp)
		return;
	page->bucket++;
	page->skip = 0;
}

static bool walk_slice(void *data)
{
	struct page *page = data;
	unsigned most = LWIP_MIN(page->n + SLICE_ROWS, PAGE_ROWS);

	for (unsigned i = 0;
	     i < SLICE_BUCKETS && page->bucket < BUCKETS && page->n < most; i++)
		take_bucket(page, most);
	page->done = page->bucket >= BUCKETS || net_udps.n == 0;
	return page->done || page->n == PAGE_ROWS;
}

/* ---- as JSON ---- */

static cJSON *row_json(const struct row *row, unsigned shard)
{
	const struct net_udp_stats *s = &row->stats;
	cJSON *to = cJSON_CreateObject();

	cJSON_AddNumberToObject(to, "shard", shard);
	net_control_addr(to, "local", &row->local);
	if (row->connected)
		net_control_addr(to, "peer", &row->peer);
	net_control_number(to, "queued", s->queued);
	net_control_number(to, "queued_bytes", s->queued_bytes);
	net_control_number(to, "views", s->views);
	net_control_number(to, "drops", s->rx_full + s->rx_no_memory);
	net_control_number(to, "rx", s->rx);
	net_control_number(to, "rx_bytes", s->rx_bytes);
	net_control_number(to, "rx_full", s->rx_full);
	net_control_number(to, "rx_no_memory", s->rx_no_memory);
	net_control_number(to, "rx_cut", s->rx_cut);
	net_control_number(to, "tx", s->tx);
	net_control_number(to, "tx_bytes", s->tx_bytes);
	net_control_number(to, "tx_busy", s->tx_busy);
	net_control_number(to, "tx_too_big", s->tx_too_big);
	net_control_number(to, "refused", s->refused);
	if (row->waits)
		cJSON_AddStringToObject(to, "reader", row->reader);
	return to;
}

/* The page in JSON, and where the next one begins. */
static cJSON *page_json(const struct page *page, unsigned shard)
{
	cJSON *all = cJSON_CreateObject();
	cJSON *rows = cJSON_AddArrayToObject(all, "udp");

	for (unsigned i = 0; i < page->n; i++)
		cJSON_AddItemToArray(rows, row_json(&page->rows[i], shard));
	net_control_next(all, shard, page->done,
			 page->bucket << SKIP_BITS | page->skip);
	return all;
}

static cJSON *list_sockets(const char *params)
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
	page->bucket = filter.at >> SKIP_BITS;
	page->skip = filter.at & ((UINT64_C(1) << SKIP_BITS) - 1);
	err = net_ask_run(ask, filter.shard);
	answer = err < 0 ? net_control_ask_error(filter.shard, err)
			 : page_json(page, filter.shard);
	if (err == 0)
		net_control_number(answer, "rounds", ask->slices);
	net_ask_put(ask);
	return answer;
}

const struct net_command net_udp_commands[] = {
	{"/coronet/udp",
	 "A page of UDP sockets. Parameter: cursor=NEXT (of the page before)",
	 list_sockets},
	{0},
};
