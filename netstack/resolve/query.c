/*
 * Queries: c-ares' channel, the coroutine that drives it, and what responses
 * say.
 *
 * c-ares chooses servers, repeats queries, checks IDs and questions, and falls
 * back to TCP. The coroutine lives while queries are open. c-ares closes its
 * sockets after the last one.
 */
#include "netstack/resolve/resolve_priv.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "dpdk_glue/bytes.h"
#include "netstack/link/leased.h"
#include "netstack/mem/mem.h"
#include "netstack/program/program.h"

#define NS_PER_S      INT64_C(1000000000)
#define TRY_MS	      2000 /* of the first turn over the servers; then twice */
#define TRIES	      2
#define EDNS_BYTES    1232 /* fits into an IPv6 packet of the least MTU */
#define SOA_BYTES_MIN 22   /* two names, five numbers */
#define RETRY_NS      10000000

static NET_SHARD_VAR struct {
	struct net_addr servers[NET_MAX_RESOLVERS]; /* the options' */
	unsigned n_servers;
	struct net_resolver *resolver; /* NULL: not needed yet */
} resolving;
#define resolving NET_SHARD(resolving)

static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void init_library(void)
{
	ares_library_init(ARES_LIB_INIT_ALL);
}

/* ---- responses ---- */

static int64_t clamp_ttl(int64_t ttl_s, int64_t max_s)
{
	if (ttl_s < 0) /* RFC 2181 8 */
		return 0;
	return ttl_s < max_s ? ttl_s : max_s;
}

struct reader {
	const uint8_t *bytes;
	size_t len, at;
};

/* A pointer ends a name, and is not followed (RFC 1035 4.1.4). */
static bool skip_name(struct reader *r)
{
	while (r->at < r->len) {
		unsigned label = r->bytes[r->at];

		r->at += label >= 0xc0 ? 2 : 1 + label;
		if (label == 0 || label >= 0xc0)
			return r->at <= r->len;
		if (label > NS_MAXLABEL)
			return false;
	}
	return false;
}

/* Moves behind a record; *data is where its RDATA begins. */
static bool skip_record(struct reader *r, size_t *data)
{
	if (!skip_name(r) || r->len - r->at < NS_RRFIXEDSZ)
		return false;
	*data = r->at + NS_RRFIXEDSZ;
	r->at = *data + glue_get16(r->bytes + *data - 2);
	return r->at <= r->len;
}

int64_t net_negative_ttl_s(const uint8_t *bytes, size_t len)
{
	struct reader r = {bytes, len, NS_HFIXEDSZ};
	unsigned answers, all;
	size_t data;

	if (len < NS_HFIXEDSZ)
		return 0;
	for (unsigned i = glue_get16(bytes + 4); i > 0; i--) {
		if (!skip_name(&r) || r.len - r.at < NS_QFIXEDSZ)
			return 0;
		r.at += NS_QFIXEDSZ;
	}
	answers = glue_get16(bytes + 6);
	all = answers + glue_get16(bytes + 8);
	for (unsigned i = 0; i < all && skip_record(&r, &data); i++) {
		int64_t ttl, minimum;

		if (i < answers || glue_get16(bytes + data - 10) != ns_t_soa ||
		    r.at - data < SOA_BYTES_MIN)
			continue;
		ttl = (int32_t)glue_get32(bytes + data - 6);
		minimum = (int32_t)glue_get32(bytes + r.at - 4);
		return clamp_ttl(minimum < ttl ? minimum : ttl,
				 NEGATIVE_TTL_MAX_S);
	}
	return 0;
}

/* Returns how many addresses a response has, or an error of c-ares. */
static int read_addrs4(struct net_name *name, const uint8_t *bytes, int len,
		       int64_t *ttl_s)
{
	struct ares_addrttl found[NET_RESOLVE_ADDRS];
	int n = NET_RESOLVE_ADDRS;
	int status = ares_parse_a_reply(bytes, len, NULL, found, &n);

	if (status != ARES_SUCCESS)
		return status == ARES_ENODATA ? 0 : -status;
	for (int i = 0; i < n; i++) {
		memcpy(name->addrs[i], &found[i].ipaddr, 4);
		*ttl_s = found[i].ttl < *ttl_s ? found[i].ttl : *ttl_s;
	}
	return n;
}

static int read_addrs6(struct net_name *name, const uint8_t *bytes, int len,
		       int64_t *ttl_s)
{
	struct ares_addr6ttl found[NET_RESOLVE_ADDRS];
	int n = NET_RESOLVE_ADDRS;
	int status = ares_parse_aaaa_reply(bytes, len, NULL, found, &n);

	if (status != ARES_SUCCESS)
		return status == ARES_ENODATA ? 0 : -status;
	for (int i = 0; i < n; i++) {
		memcpy(name->addrs[i], &found[i].ip6addr, 16);
		*ttl_s = found[i].ttl < *ttl_s ? found[i].ttl : *ttl_s;
	}
	return n;
}

static int errno_of(int status)
{
	switch (status) {
	case ARES_ENOTFOUND:
		return -ENOENT;
	case ARES_ENODATA:
		return -ENODATA;
	case ARES_ETIMEOUT:
		return -ETIMEDOUT;
	case ARES_ENOMEM:
		return -ENOMEM;
	case ARES_ECANCELLED:
	case ARES_EDESTRUCTION:
		return -ECANCELED;
	case ARES_EBADNAME:
		return -EINVAL;
	default: /* versions differ in what they distinguish */
		return -EAGAIN;
	}
}

/* Takes the addresses of a response into the entry, or finds why it has none.
 */
static int take_response(struct net_name *name, int status,
			 const uint8_t *bytes, int len, int64_t *ttl_s)
{
	int n;

	if (status != ARES_SUCCESS)
		return errno_of(status);
	if (len < NS_HFIXEDSZ || (bytes[3] & 15) != ns_r_noerror)
		return -EAGAIN;
	*ttl_s = TTL_MAX_S;
	n = name->family == 4 ? read_addrs4(name, bytes, len, ttl_s)
			      : read_addrs6(name, bytes, len, ttl_s);
	if (n < 0)
		return -EAGAIN;
	name->n = (uint8_t)n;
	return n ? 0 : -ENODATA;
}

static void on_response(void *arg, int status, int timeouts,
			unsigned char *bytes, int len)
{
	struct net_name *name = arg;
	int64_t ttl_s = 0;
	int err;

	if (resolving.resolver->changes_servers)
		return; /* it is asked again */
	err = take_response(name, status, bytes, len, &ttl_s);
	if (err == -ENOENT || err == -ENODATA)
		ttl_s = net_negative_ttl_s(bytes, (size_t)len);
	else if (err == -ENOMEM || err == -ECANCELED)
		ttl_s = 0;
	else if (err < 0)
		ttl_s = FAILURE_TTL_S;
	resolving.resolver->queries--;
	net_name_answer(name, err, clamp_ttl(ttl_s, TTL_MAX_S));
}

/* ---- the coroutine ---- */

void net_query_wake(struct net_resolver *resolver)
{
	coro_chan_trysend(resolver->wake, NULL);
}

/* Returns when c-ares has something to do by itself. */
static int64_t next_timeout_ns(struct net_resolver *resolver)
{
	struct timeval tv, *wait = ares_timeout(resolver->channel, NULL, &tv);

	if (!wait)
		return CORO_FOREVER;
	return net_here()->now_ns + wait->tv_sec * NS_PER_S +
	       wait->tv_usec * INT64_C(1000) + 1000000;
}

/* Returns 0 or why the coroutine has to end. */
static int wait_for_event(struct net_resolver *resolver)
{
	struct net_poll_item *items = resolver->items;
	unsigned n = net_dns_items(resolver, items);
	int err;

	items[n++] = (struct net_poll_item){.chan = resolver->wake,
					    .events = NET_READABLE};
	err = net_poll(items, n, next_timeout_ns(resolver));
	coro_chan_tryrecv(resolver->wake, NULL);
	if (err == -ENOMEM)
		err = coro_sleep_ns(RETRY_NS);
	return err < 0 ? err : 0;
}

static void *drive_queries(void *arg)
{
	struct net_resolver *resolver = arg;
	int err = 0;

	while (err == 0 && resolver->queries) {
		err = wait_for_event(resolver);
		if (!resolver->has_channel) /* the stack has closed */
			break;
		net_dns_process(resolver);
		ares_process_fd(resolver->channel, ARES_SOCKET_BAD,
				ARES_SOCKET_BAD);
		if (err == 0)
			err = coro_yield(); /* whatever c-ares leaves ready */
	}
	if (err < 0 && resolver->has_channel)
		ares_cancel(resolver->channel);
	resolver->driven = false;
	return NULL;
}

static int start_driver(struct net_resolver *resolver)
{
	const struct coro_attr attr = {.name = "resolver"};
	int err = 0;

	if (!resolver->driven)
		err = coro_spawn(net_here()->sched, &attr, drive_queries,
				 resolver, NULL);
	else
		net_query_wake(resolver);
	resolver->driven = err == 0;
	return err;
}

/* ---- servers ---- */

static void send_query(struct net_resolver *resolver, struct net_name *name)
{
	ares_query(resolver->channel, name->text, ns_c_in,
		   name->family == 4 ? ns_t_a : ns_t_aaaa, on_response, name);
}

/* c-ares changes servers only while no query is open. */
static void end_queries(struct net_resolver *resolver)
{
	resolver->changes_servers = true;
	ares_cancel(resolver->channel);
	resolver->changes_servers = false;
}

/* Asks the new servers; err: there are none, so the queries fail. */
static void repeat_queries(struct net_resolver *resolver, int err)
{
	for (struct net_name *name = resolver->cache.oldest; name;
	     name = name->newer) {
		if (!name->asked)
			continue;
		if (err == 0) {
			send_query(resolver, name);
		} else {
			resolver->queries--;
			net_name_answer(name, err, 0);
		}
	}
	net_query_wake(resolver);
}

static int set_servers(struct net_resolver *resolver)
{
	struct ares_addr_port_node nodes[NET_MAX_RESOLVERS];
	unsigned n = resolver->n_servers;

	memset(nodes, 0, sizeof(nodes));
	for (unsigned i = 0; i < n; i++) {
		const struct net_addr *server = &resolver->servers[i];

		nodes[i].next = i + 1 < n ? &nodes[i + 1] : NULL;
		nodes[i].family = server->family == 4 ? AF_INET : AF_INET6;
		memcpy(&nodes[i].addr, server->ip,
		       server->family == 4 ? 4 : 16);
		nodes[i].udp_port = nodes[i].tcp_port = server->port;
	}
	if (n == 0)
		return -EHOSTUNREACH;
	return ares_set_servers_ports(resolver->channel, nodes) == ARES_SUCCESS
		       ? 0
		       : -ENOMEM;
}

/* Uses n servers in place of the present ones. */
static int use_servers(struct net_resolver *resolver,
		       const struct net_addr *servers, unsigned n)
{
	int err;

	if (n && n == resolver->n_servers &&
	    memcmp(servers, resolver->servers, n * sizeof(*servers)) == 0)
		return 0;
	memcpy(resolver->servers, servers, n * sizeof(*servers));
	resolver->n_servers = n;
	end_queries(resolver);
	err = set_servers(resolver);
	if (err < 0)
		resolver->n_servers = 0; /* set them by the next call */
	repeat_queries(resolver, err);
	return err;
}

static int refresh_servers(struct net_resolver *resolver)
{
	struct net_resolv_conf *conf = &resolver->conf;
	struct net_addr leased[NET_MAX_RESOLVERS];
	unsigned turn, n = net_leased_servers(leased, &turn);

	if (!net_conf_refresh(conf) && resolver->n_servers &&
	    resolver->leased_turn == turn)
		return 0;
	resolver->leased_turn = turn;
	if (resolving.n_servers)
		return use_servers(resolver, resolving.servers,
				   resolving.n_servers);
	if (n)
		return use_servers(resolver, leased, n);
	return use_servers(resolver, conf->servers, conf->n_servers);
}

/* ---- the resolver ---- */

/* The files are read here, and c-ares' own cache would be a second one. */
static int open_channel(struct net_resolver *resolver)
{
	char no_file[] = "/dev/null";
	struct ares_options opts = {
		.flags = ARES_FLAG_EDNS,
		.timeout = TRY_MS,
		.tries = TRIES,
		.ednspsz = EDNS_BYTES,
		.resolvconf_path = no_file,
		.sock_state_cb = net_dns_interest,
		.sock_state_cb_data = resolver,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
		   ARES_OPT_EDNSPSZ | ARES_OPT_RESOLVCONF |
		   ARES_OPT_SOCK_STATE_CB | ARES_OPT_NOROTATE;

#ifdef ARES_OPT_QUERY_CACHE
	mask |= ARES_OPT_QUERY_CACHE;
#endif
#ifdef ARES_OPT_UDP_MAX_QUERIES
	opts.udp_max_queries = 1; /* a random port for each: RFC 5452 9.2 */
	mask |= ARES_OPT_UDP_MAX_QUERIES;
#endif
	pthread_once(&library_once, init_library);
	if (ares_init_options(&resolver->channel, &opts, mask) != ARES_SUCCESS)
		return -ENOMEM;
	ares_set_socket_functions(resolver->channel, &net_dns_functions,
				  resolver);
	resolver->has_channel = true;
	return 0;
}

int net_resolver_get(struct net_resolver **out)
{
	struct net_resolver *resolver = resolving.resolver;
	int err;

	if (!resolver) {
		resolver = net_mem_malloc(sizeof(*resolver));
		if (!resolver)
			return -ENOMEM;
		memset(resolver, 0, sizeof(*resolver));
		err = coro_chan_open(0, 1, &resolver->wake);
		if (err < 0) {
			net_mem_free(resolver);
			return err;
		}
		resolving.resolver = resolver;
	}
	*out = resolver;
	return 0;
}

int net_resolver_refresh(struct net_resolver *resolver)
{
	int err;

	if (net_here()->draining)
		return -ECANCELED;
	err = resolver->has_channel ? 0 : open_channel(resolver);
	return err < 0 ? err : refresh_servers(resolver);
}

int net_query_start(struct net_resolver *resolver, struct net_name *name)
{
	int err;

	if (net_here()->draining) /* net_resolve_stop() was called */
		return -ECANCELED;
	if (resolver->queries >= NET_RESOLVE_QUERIES)
		return -ENOBUFS;
	err = start_driver(resolver);
	if (err < 0)
		return err;
	resolver->queries++;
	name->asked = true;
	send_query(resolver, name);
	return 0;
}

void net_resolve_open(const struct net_opts *opts)
{
	resolving.n_servers = opts->n_resolvers;
	memcpy(resolving.servers, opts->resolvers, sizeof(resolving.servers));
}

void net_resolve_stop(void)
{
	struct net_resolver *resolver = resolving.resolver;

	if (!resolver || !resolver->has_channel)
		return;
	ares_destroy(resolver->channel);
	resolver->has_channel = false;
}

void net_resolve_fini(void)
{
	struct net_resolver *resolver = resolving.resolver;

	if (!resolver)
		return;
	resolving.resolver = NULL;
	net_name_cache_clear(&resolver->cache);
	net_file_clear(&resolver->hosts);
	net_conf_clear(&resolver->conf);
	coro_chan_free(resolver->wake);
	net_mem_free(resolver);
}
