/*
 * Commands on a shard's other state: listeners, coroutines, memory, neighbours,
 * routes, and its counters.
 */
#include "netstack/control/control_priv.h"
#include "netstack/control/counters.h"

#include "lwip/etharp.h"
#include "lwip/ip.h"
#include "lwip/priv/nd6_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Asks every shard with a step and `bytes` of data, and has `add` put what
 * they answer into an array called `name`.
 */
static cJSON *ask_all(const char *name, net_ask_step step, size_t bytes,
		      void (*add)(cJSON *array, unsigned shard, void *data))
{
	unsigned n = net_ask_shards();
	cJSON *all = cJSON_CreateObject();
	cJSON *array = cJSON_AddArrayToObject(all, name);

	if (n == 0) {
		cJSON_Delete(all);
		return net_control_ask_error(0, -EAGAIN);
	}
	for (unsigned i = 0; i < n; i++) {
		struct net_ask *ask = net_ask_new(step, bytes);
		int err = ask ? net_ask_run(ask, i) : -ENOMEM;

		if (err == 0)
			add(array, i, ask->data);
		if (ask)
			net_ask_put(ask);
		if (err < 0) {
			cJSON_Delete(all);
			return net_control_ask_error(i, err);
		}
	}
	return all;
}

/* ---- listeners ---- */

#define PAGE_LISTENERS 128u /* of an answer */

struct listener_row {
	struct net_addr addr;
	char handler[NET_NAME_MAX];
	unsigned backlog, pending, queued, clients;
	struct net_limits limits;
	const char *cc;
	bool accepts, stopped, draining;
};

struct listeners {
	uint64_t skip;
	unsigned n, most;
	bool done;
	struct listener_row rows[PAGE_LISTENERS];
};

static const char *state_of(const struct listener_row *row)
{
	if (row->stopped)
		return "stopped";
	return row->draining ? "draining" : "listening";
}

/* Programs have few listeners: one slice is enough. */
static bool listeners_step(void *data)
{
	struct listeners *all = data;
	const struct net_listener *l = net_here()->listeners;

	for (; l && all->skip; l = l->next)
		all->skip--;
	for (; l && all->n < all->most; l = l->next) {
		struct listener_row *row = &all->rows[all->n++];

		row->addr = l->addr;
		snprintf(row->handler, sizeof(row->handler), "%.*s",
			 NET_NAME_MAX - 1, l->handler_name);
		row->backlog = l->backlog;
		row->pending = l->pending;
		row->queued = l->queued;
		row->clients = net_listener_clients(l);
		net_listener_limits(l, &row->limits);
		row->cc = net_cc_title(l->cc);
		row->accepts = l->acceptor != NULL;
		row->stopped = l->stopped;
		row->draining = l->draining;
	}
	all->done = !l;
	return true;
}

static void add_listeners(cJSON *array, unsigned shard,
			  const struct listeners *all)
{
	char text[NET_ADDR_TEXT_MAX];

	for (unsigned i = 0; i < all->n; i++) {
		const struct listener_row *row = &all->rows[i];
		cJSON *to = cJSON_CreateObject();

		net_control_number(to, "shard", shard);
		cJSON_AddStringToObject(
			to, "local",
			net_addr_format(&row->addr, text, sizeof(text)));
		cJSON_AddStringToObject(to, "handler", row->handler);
		cJSON_AddStringToObject(to, "state", state_of(row));
		cJSON_AddBoolToObject(to, "accepts", row->accepts);
		cJSON_AddStringToObject(to, "cc", row->cc);
		net_control_number(to, "backlog", row->backlog);
		net_control_number(to, "pending", row->pending);
		net_control_number(to, "queued", row->queued);
		net_control_number(to, "clients", row->clients);
		net_control_number(to, "max_clients", row->limits.clients);
		net_control_number(to, "max_clients_per_source",
				   row->limits.clients_per_source);
		cJSON_AddItemToArray(array, to);
	}
}

/* Adds a shard's listeners from *at on, at most *room, and advances both. */
static int add_shard_listeners(cJSON *array, unsigned shard, uint64_t *at,
			       unsigned *room, bool *done)
{
	struct net_ask *ask =
		net_ask_new(listeners_step, sizeof(struct listeners));
	struct listeners *all;
	int err;

	if (!ask)
		return -ENOMEM;
	all = (void *)ask->data;
	all->skip = *at;
	all->most = *room;
	err = net_ask_run(ask, shard);
	if (err == 0) {
		add_listeners(array, shard, all);
		*at += all->n;
		*room -= all->n;
		*done = all->done;
	}
	net_ask_put(ask);
	return err;
}

static cJSON *list_listeners(const char *params)
{
	unsigned room = PAGE_LISTENERS, n = net_ask_shards(), shard;
	struct net_filter filter;
	cJSON *all = net_filter_parse(params, &filter), *array;
	bool done = true;
	int err;

	if (all)
		return all;
	all = cJSON_CreateObject();
	array = cJSON_AddArrayToObject(all, "listeners");
	shard = filter.shard;
	do {
		err = add_shard_listeners(array, shard, &filter.at, &room,
					  &done);
		if (err < 0) {
			cJSON_Delete(all);
			return net_control_ask_error(shard, err);
		}
		shard += done;
		filter.at = done ? 0 : filter.at;
	} while (room && shard < n);
	if (shard < n)
		net_control_next(all, shard, false, filter.at);
	return all;
}

/* ---- shards ---- */

struct shard_row {
	struct net_stats stats;
	unsigned coros, ready;
	int64_t now_ns;
};

static bool shard_step(void *data)
{
	struct shard_row *row = data;

	net_stack_stats(net_here(), &row->stats);
	row->coros = coro_sched_live(net_here()->sched);
	row->ready = (unsigned)coro_sched_ready(net_here()->sched);
	row->now_ns = net_here()->now_ns;
	return true;
}

static void add_counters(cJSON *to, const struct net_metric_family *family,
			 const struct net_stats *stats)
{
	for (unsigned i = 0; i < family->n; i++) {
		const struct net_counter *c = &family->counters[i];

		if (c->is_listed)
			net_control_number(to, c->name,
					   net_counter_value(stats, c));
	}
}

static void add_shard(cJSON *array, unsigned shard, void *data)
{
	const struct shard_row *row = data;
	cJSON *to = cJSON_CreateObject();

	net_control_number(to, "shard", shard);
	net_control_number(to, "clock_ns", (uint64_t)row->now_ns);
	net_control_number(to, "coroutines", row->coros);
	net_control_number(to, "ready", row->ready);
	for (unsigned i = 0; i < net_n_metric_families; i++)
		add_counters(to, &net_metric_families[i], &row->stats);
	cJSON_AddItemToArray(array, to);
}

static cJSON *list_shards(const char *params)
{
	return ask_all("shards", shard_step, sizeof(struct shard_row),
		       add_shard);
}

/* ---- coroutines ---- */

#define CORO_PAGE  128u
#define CORO_SLICE 8u
#define CORO_LOOKS 512u /* entries, of which most may be empty */

struct coro_row {
	uint64_t number;
	char name[32];
	const char *state, *where;
	char of[200];
	size_t stack_bytes;
	int64_t wakes_in_ns; /* -1: never by itself */
	bool cancelled;
};

struct coro_page {
	struct coro_walk walk;
	unsigned n;
	struct coro_row rows[CORO_PAGE];
};

/* Names the call on a connection that a coroutine waits in. */
static const char *call_of(const struct net_conn *conn, const struct coro *co)
{
	if (conn->reader == co)
		return "net_recv";
	if (conn->writer != co)
		return NULL;
	if (conn->connecting)
		return "net_dial";
	return conn->lingering ? "net_close_wait" : "net_send";
}

static void fill_coro(const struct coro_info *info, struct coro_row *row)
{
	const struct net_conn *conn;
	char text[280], *more;

	row->number = (uint64_t)(uintptr_t)info->co;
	snprintf(row->name, sizeof(row->name), "%s", info->name);
	row->state = info->state;
	row->where = info->where;
	row->stack_bytes = info->stack_bytes;
	row->cancelled = info->cancelled;
	row->wakes_in_ns =
		info->wakes_ns == CORO_FOREVER
			? -1
			: LWIP_MAX(info->wakes_ns - net_here()->now_ns, 0);
	net_recognized = NULL;
	coro_describe(info->co, NULL, text, sizeof(text));
	more = strchr(text, '(');
	if (more)
		snprintf(row->of, sizeof(row->of), "%.*s",
			 (int)strlen(more) - 2, more + 1);
	conn = net_recognized;
	if (conn && info->where && call_of(conn, info->co))
		row->where = call_of(conn, info->co);
}

static bool coros_step(void *data)
{
	struct coro_page *page = data;
	struct coro_info infos[CORO_SLICE];
	unsigned n = coro_sched_walk(net_here()->sched, &page->walk, infos,
				     LWIP_MIN(CORO_SLICE, CORO_PAGE - page->n),
				     CORO_LOOKS);

	for (unsigned i = 0; i < n; i++)
		fill_coro(&infos[i], &page->rows[page->n++]);
	return page->walk.done || page->n == CORO_PAGE;
}

static cJSON *coro_json(const struct coro_row *row)
{
	cJSON *to = cJSON_CreateObject();
	char text[24];

	snprintf(text, sizeof(text), "%llx", (unsigned long long)row->number);
	cJSON_AddStringToObject(to, "id", text);
	cJSON_AddStringToObject(to, "name", row->name);
	cJSON_AddStringToObject(to, "state", row->state);
	if (row->where)
		cJSON_AddStringToObject(to, "in", row->where);
	if (row->of[0])
		cJSON_AddStringToObject(to, "of", row->of);
	if (row->wakes_in_ns >= 0)
		net_control_number(to, "wakes_in_us",
				   (uint64_t)row->wakes_in_ns / 1000);
	if (row->cancelled)
		cJSON_AddBoolToObject(to, "cancelled", true);
	net_control_number(to, "stack_bytes", row->stack_bytes);
	return to;
}

static cJSON *coro_page_json(const struct coro_page *page, unsigned shard)
{
	cJSON *all = cJSON_CreateObject();
	cJSON *rows = cJSON_AddArrayToObject(all, "coros");

	for (unsigned i = 0; i < page->n; i++)
		cJSON_AddItemToArray(rows, coro_json(&page->rows[i]));
	net_control_next(all, shard, page->walk.done, page->walk.left);
	return all;
}

static cJSON *list_coros(const char *params)
{
	struct net_filter filter;
	cJSON *answer = net_filter_parse(params, &filter);
	struct coro_page *page;
	struct net_ask *ask;
	int err;

	if (answer)
		return answer;
	ask = net_ask_new(coros_step, sizeof(struct coro_page));
	if (!ask)
		return NULL;
	page = (void *)ask->data;
	page->walk.begun = filter.at != 0;
	page->walk.left = filter.at;
	err = net_ask_run(ask, filter.shard);
	answer = err < 0 ? net_control_ask_error(filter.shard, err)
			 : coro_page_json(page, filter.shard);
	net_ask_put(ask);
	return answer;
}

/* ---- memory ---- */

struct mem_row {
	uint64_t used, whole, slabs, slabs_live, coros, coros_live;
	unsigned conns, half_open, time_wait, ooseq, counted;
	unsigned frames, frames_free, frames_in, n_ports;
	unsigned snd_max, rcv_limit;
	bool full;
};

static bool mem_step(void *data)
{
	struct mem_row *row = data;
	const struct net_stack *stack = net_here();

	row->used = net_budget_used();
	row->whole = net_budget_whole();
	row->slabs = net_mem_bytes();
	row->coros = coro_sched_memory(stack->sched);
	row->coros_live = coro_sched_memory_live(stack->sched);
	row->conns = stack->n_conns;
	row->half_open = stack->half_open;
	row->time_wait = net_time_waits.n;
	row->counted = stack->n_counted;
	row->ooseq = stack->ooseq_held;
	row->snd_max = stack->snd_max;
	row->rcv_limit = stack->rcv_limit;
	row->full = stack->memory_full;
	for (unsigned i = 0; i < stack->n_ports; i++) {
		row->frames += glue_port_frames(stack->ports[i].glue);
		row->frames_free += glue_port_frames_free(stack->ports[i].glue);
		row->frames_in += stack->ports[i].frames_in;
	}
	return true;
}

static void add_mem(cJSON *array, unsigned shard, void *data)
{
	const struct mem_row *row = data;
	cJSON *to = cJSON_CreateObject();

	net_control_number(to, "shard", shard);
	net_control_number(to, "budget_bytes", row->whole);
	net_control_number(to, "used_bytes", row->used);
	net_control_number(to, "slab_bytes", row->slabs);
	net_control_number(to, "coroutine_bytes", row->coros);
	net_control_number(to, "coroutine_live_bytes", row->coros_live);
	net_control_number(to, "conns", row->conns);
	net_control_number(to, "conn_bytes",
			   row->conns * sizeof(struct net_conn) +
				   row->counted * sizeof(struct net_conn_ext));
	net_control_number(to, "half_open", row->half_open);
	net_control_number(to, "time_wait", row->time_wait);
	net_control_number(to, "out_of_order_pieces", row->ooseq);
	net_control_number(to, "frames", row->frames);
	net_control_number(to, "frames_free", row->frames_free);
	net_control_number(to, "frames_received_and_held", row->frames_in);
	net_control_number(to, "send_buffer_max_bytes", row->snd_max);
	net_control_number(to, "receive_window_max_bytes", row->rcv_limit);
	cJSON_AddBoolToObject(to, "full", row->full);
	cJSON_AddItemToArray(array, to);
}

static cJSON *list_mem(const char *params)
{
	return ask_all("mem", mem_step, sizeof(struct mem_row), add_mem);
}

/* ---- neighbours ---- */

#define MAX_NEIGH (ARP_TABLE_SIZE + LWIP_ND6_NUM_NEIGHBORS)

struct neigh_row {
	struct net_addr addr;
	uint8_t mac[6];
	uint8_t port;
	const char *state;
};

struct neighs {
	unsigned n, arp_at;
	struct neigh_row rows[MAX_NEIGH];
};

static uint8_t port_of(const struct netif *netif)
{
	const struct net_port *port = netif->state;

	return (uint8_t)(port - net_here()->ports);
}

static void take_arp(struct neighs *all, unsigned i)
{
	struct eth_addr *mac;
	struct netif *netif;
	ip4_addr_t *ip;
	ip_addr_t any;

	if (!etharp_get_entry(i, &ip, &netif, &mac))
		return;
	ip_addr_copy_from_ip4(any, *ip);
	net_addr_from_lwip(&any, 0, &all->rows[all->n].addr);
	memcpy(all->rows[all->n].mac, mac, 6);
	all->rows[all->n].port = port_of(netif);
	all->rows[all->n++].state = "reachable";
}

static const char *nd_state(uint8_t state)
{
	switch ((enum nd6_neighbor_cache_entry_state)state) {
	case ND6_NO_ENTRY:
		return NULL;
	case ND6_INCOMPLETE:
		return "incomplete";
	case ND6_REACHABLE:
		return "reachable";
	case ND6_STALE:
		return "stale";
	case ND6_DELAY:
		return "delay";
	case ND6_PROBE:
		return "probe";
	}
	return NULL;
}

static void take_nd(struct neighs *all, unsigned i)
{
	const struct nd6_neighbor_cache_entry *entry = &neighbor_cache[i];
	struct neigh_row *row = &all->rows[all->n];
	ip_addr_t any;

	row->state = nd_state(entry->state);
	if (!row->state || !entry->netif)
		return;
	ip_addr_copy_from_ip6(any, entry->next_hop_address);
	net_addr_from_lwip(&any, 0, &row->addr);
	memcpy(row->mac, entry->lladdr, 6);
	row->port = port_of(entry->netif);
	all->n++;
}

#define NEIGH_LOOKS 64u /* of a slice */

static bool neigh_step(void *data)
{
	struct neighs *all = data;

	for (unsigned i = 0; i < NEIGH_LOOKS && all->arp_at < MAX_NEIGH; i++) {
		unsigned at = all->arp_at++;

		if (at < ARP_TABLE_SIZE)
			take_arp(all, at);
		else
			take_nd(all, at - ARP_TABLE_SIZE);
	}
	return all->arp_at == MAX_NEIGH;
}

static void add_ip(cJSON *to, const char *name, const struct net_addr *addr)
{
	char text[NET_ADDR_TEXT_MAX];

	cJSON_AddStringToObject(to, name, net_ip_format(addr, text));
}

static void add_neighbours(cJSON *array, unsigned shard, void *data)
{
	const struct neighs *all = data;
	char mac[24];

	/* Shards share what they learn; one's table is enough. */
	for (unsigned i = 0; shard == 0 && i < all->n; i++) {
		const struct neigh_row *row = &all->rows[i];
		cJSON *to = cJSON_CreateObject();

		add_ip(to, "address", &row->addr);
		snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x",
			 row->mac[0], row->mac[1], row->mac[2], row->mac[3],
			 row->mac[4], row->mac[5]);
		cJSON_AddStringToObject(to, "mac", mac);
		net_control_number(to, "link", row->port);
		cJSON_AddStringToObject(to, "state", row->state);
		cJSON_AddItemToArray(array, to);
	}
}

static cJSON *list_neigh(const char *params)
{
	return ask_all("neigh", neigh_step, sizeof(struct neighs),
		       add_neighbours);
}

/* ---- routes ---- */

#define MAX_ROUTES (NET_IFADDRS + NET_ROUTES)

struct route_row {
	struct net_addr to, via, from; /* via: family 0: on the link itself */
	uint8_t port;
};

struct routes {
	unsigned n;
	struct route_row rows[MAX_ROUTES];
};

/* Clears the bits of a network's address that are the host's. */
static void clear_host(struct net_addr *addr)
{
	for (unsigned bit = addr->prefix_len; bit < 8 * sizeof(addr->ip); bit++)
		addr->ip[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
}

static void take_network(struct routes *all, const struct net_ifaddr *addr)
{
	struct route_row *row = &all->rows[all->n++];

	net_addr_from_lwip(&addr->ip, 0, &row->from);
	row->to = row->from;
	row->to.prefix_len = addr->prefix_len;
	clear_host(&row->to);
	row->port = port_of(addr->netif);
}

static void take_route(struct routes *all, const struct net_route_entry *route)
{
	struct route_row *row = &all->rows[all->n];
	const struct net_ifaddr *near = net_route_near(route);

	if (!near)
		return; /* no address has a network with the gateway */
	net_addr_from_lwip(&route->to, 0, &row->to);
	row->to.prefix_len = route->prefix_len;
	if (!ip_addr_isany_val(route->via))
		net_addr_from_lwip(&route->via, 0, &row->via);
	if (route->has_source)
		net_addr_from_lwip(&route->source, 0, &row->from);
	row->port = port_of(near->netif);
	all->n++;
}

static bool routes_step(void *data)
{
	struct routes *all = data;
	const struct net_stack *stack = net_here();

	for (unsigned i = 0; i < stack->n_addrs; i++)
		if (stack->addrs[i].active)
			take_network(all, &stack->addrs[i]);
	for (unsigned i = 0; i < stack->n_routes; i++)
		take_route(all, &stack->routes[i]);
	return true;
}

static void add_routes(cJSON *array, unsigned shard, void *data)
{
	const struct routes *all = data;
	char text[NET_ADDR_TEXT_MAX], to_text[NET_ADDR_TEXT_MAX + 8];

	for (unsigned i = 0; shard == 0 && i < all->n; i++) {
		const struct route_row *row = &all->rows[i];
		cJSON *to = cJSON_CreateObject();

		snprintf(to_text, sizeof(to_text), "%s/%u",
			 net_ip_format(&row->to, text), row->to.prefix_len);
		cJSON_AddStringToObject(to, "to", to_text);
		if (row->via.family)
			add_ip(to, "via", &row->via);
		if (row->from.family)
			add_ip(to, "from", &row->from);
		net_control_number(to, "link", row->port);
		cJSON_AddItemToArray(array, to);
	}
}

static cJSON *list_routes(const char *params)
{
	return ask_all("routes", routes_step, sizeof(struct routes),
		       add_routes);
}

const struct net_command net_table_commands[] = {
	{"/coronet/listeners",
	 "Listeners of all shards. Parameter: cursor=NEXT (of the page before)",
	 list_listeners},
	{"/coronet/shards", "Counters of each shard", list_shards},
	{"/coronet/coros",
	 "A page of coroutines. Parameter: cursor=NEXT (of the page before)",
	 list_coros},
	{"/coronet/mem", "Memory budgets, and what uses memory", list_mem},
	{"/coronet/neigh", "Neighbours: ARP and neighbour discovery",
	 list_neigh},
	{"/coronet/routes", "Networks and gateways", list_routes},
	{0},
};
