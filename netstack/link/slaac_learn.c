/*
 * What routers advertise: default routers, prefixes on the link and name
 * servers, each until its lifetime ends (RFC 4861 6.3.4, RFC 8106 6.1). A list
 * that is full takes no more.
 */
#include "netstack/link/slaac.h"
#include "netstack/program/log.h"

#include <string.h>

/* ---- lists ---- */

/* The entry of a prefix or address, or a free one; NULL: the list is full. */
static struct net_slaac_entry *find_entry(struct net_slaac_entry *list,
					  unsigned n, const uint8_t ip[16],
					  uint8_t bits)
{
	struct net_slaac_entry *unused = NULL;

	for (unsigned i = 0; i < n; i++)
		if (!list[i].until_ns)
			unused = unused ? unused : &list[i];
		else if (list[i].bits == bits &&
			 memcmp(list[i].ip, ip, 16) == 0)
			return &list[i];
	return unused;
}

/* Adds an entry, renews it, or ends it if its lifetime is 0. */
static void learn_entry(struct net_slaac_entry *list, unsigned n,
			const uint8_t ip[16], uint8_t bits, uint32_t lifetime_s)
{
	struct net_slaac_entry *entry = find_entry(list, n, ip, bits);

	if (!entry) {
		net_here()->stats.rx_refused++;
		return;
	}
	memcpy(entry->ip, ip, 16);
	entry->bits = bits;
	entry->until_ns = lifetime_s ? net_slaac_end_ns(lifetime_s) : 0;
}

static void expire_entries(struct net_slaac_entry *list, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (list[i].until_ns <= net_here()->now_ns)
			list[i].until_ns = 0;
}

/* ---- routers ---- */

static void log_router(const struct net_slaac *client, const uint8_t ip[16],
		       const char *event, const char *reason)
{
	char text[NET_ADDR_TEXT_MAX];

	net_log_of(NET_COMPONENT_LINK, NET_LOG_INFO,
		   "coronet.link: event=%s link=%u router=%s%s", event,
		   net_slaac_link(client) + 1, net_slaac_format(ip, text),
		   reason);
}

static void drop_router(const struct net_slaac *client,
			struct net_slaac_entry *router, const char *reason)
{
	log_router(client, router->ip, "router-lost", reason);
	*router = (struct net_slaac_entry){0};
}

static void learn_router(struct net_slaac *client, const struct net_ra_msg *msg,
			 const uint8_t from[16])
{
	struct net_slaac_entry *router =
		find_entry(client->routers, NET_SLAAC_ROUTERS, from, 128);

	if (!router || (!router->until_ns && !msg->router_s)) {
		net_here()->stats.rx_refused += !router && msg->router_s;
		return;
	}
	if (!msg->router_s) {
		drop_router(client, router, " reason=withdrawn");
		return;
	}
	if (!router->until_ns)
		log_router(client, from, "router", "");
	memcpy(router->ip, from, 16);
	router->bits = 128;
	router->preference = msg->preference;
	router->until_ns = net_slaac_end_ns(msg->router_s);
}

bool net_slaac_has_router(const struct net_slaac *client)
{
	for (unsigned i = 0; i < NET_SLAAC_ROUTERS; i++)
		if (client->routers[i].until_ns)
			return true;
	return false;
}

/* ---- advertisements ---- */

void net_slaac_learn(struct net_slaac *client, const struct net_ra_msg *msg,
		     const uint8_t from[16])
{
	learn_router(client, msg, from);
	for (unsigned i = 0; i < msg->n_prefixes; i++) {
		const struct net_ra_prefix *prefix = &msg->prefixes[i];

		if (prefix->on_link)
			learn_entry(client->prefixes, NET_SLAAC_PREFIXES,
				    prefix->ip, prefix->bits, prefix->valid_s);
		/* RFC 4862 5.5.3 d: an identifier has the other 64 bits. */
		if (prefix->autonomous && prefix->bits == 64)
			net_slaac_take_prefix(client, prefix);
	}
	for (unsigned i = 0; i < msg->n_servers; i++)
		learn_entry(client->servers, NET_SLAAC_SERVERS,
			    msg->servers[i].ip, 128,
			    msg->servers[i].lifetime_s);
}

void net_slaac_expire(struct net_slaac *client)
{
	int64_t now_ns = net_here()->now_ns;

	for (unsigned i = 0; i < NET_SLAAC_ROUTERS; i++)
		if (client->routers[i].until_ns &&
		    client->routers[i].until_ns <= now_ns)
			drop_router(client, &client->routers[i],
				    " reason=expired");
	expire_entries(client->prefixes, NET_SLAAC_PREFIXES);
	expire_entries(client->servers, NET_SLAAC_SERVERS);
}

/* ---- the configuration in use ---- */

static void put_addr(struct net_addr *to, const uint8_t ip[16], uint8_t bits)
{
	*to = (struct net_addr){.family = 6, .prefix_len = bits};
	memcpy(to->ip, ip, 16);
}

/* Returns whether the first 64 bits of an address are a prefix on the link. */
static bool is_on_link(const struct net_slaac *client, const uint8_t ip[16])
{
	for (unsigned i = 0; i < NET_SLAAC_PREFIXES; i++)
		if (client->prefixes[i].until_ns &&
		    client->prefixes[i].bits == 64 &&
		    memcmp(client->prefixes[i].ip, ip, 8) == 0)
			return true;
	return false;
}

/* RFC 5942 4: an address has no network on the link unless a router says so. */
static void describe_addrs(const struct net_slaac *client,
			   struct net_slaac_config *out)
{
	for (unsigned i = 0; i < NET_SLAAC_ADDRS; i++) {
		const struct net_slaac_addr *addr = &client->addrs[i];
		bool has_network = i == 0 || is_on_link(client, addr->ip);

		if (addr->state != NET_SLAAC_USED)
			continue;
		put_addr(&out->addrs[out->n_addrs], addr->ip,
			 has_network ? 64 : 128);
		out->deprecated[out->n_addrs++] =
			addr->preferred_ns <= net_here()->now_ns;
	}
}

/* Returns whether a prefix is the network of an address already. */
static bool has_addr(const struct net_slaac_config *config,
		     const struct net_slaac_entry *prefix)
{
	for (unsigned i = 0; i < config->n_addrs; i++)
		if (prefix->bits == 64 &&
		    memcmp(config->addrs[i].ip, prefix->ip, 8) == 0)
			return true;
	return false;
}

static void describe_routes(const struct net_slaac *client,
			    struct net_slaac_config *out)
{
	for (unsigned i = 0; i < NET_SLAAC_PREFIXES; i++) {
		const struct net_slaac_entry *prefix = &client->prefixes[i];

		if (prefix->until_ns && !has_addr(out, prefix))
			put_addr(&out->routes[out->n_routes++].to, prefix->ip,
				 prefix->bits);
	}
	/* The first of equal routes counts: RFC 4191 3.2. */
	for (int preference = 1; preference >= -1; preference--)
		for (unsigned i = 0; i < NET_SLAAC_ROUTERS; i++) {
			const struct net_slaac_entry *router =
				&client->routers[i];
			struct net_slaac_route *route =
				&out->routes[out->n_routes];

			if (!router->until_ns ||
			    router->preference != preference)
				continue;
			route->to.family = 6;
			put_addr(&route->via, router->ip, 128);
			out->n_routes++;
		}
}

void net_slaac_describe(const struct net_slaac *client,
			struct net_slaac_config *out)
{
	memset(out, 0, sizeof(*out)); /* configurations are compared */
	out->link = net_slaac_link(client);
	describe_addrs(client, out);
	describe_routes(client, out);
	for (unsigned i = 0; i < NET_SLAAC_SERVERS; i++)
		if (client->servers[i].until_ns) {
			struct net_addr *to = &out->servers[out->n_servers++];

			put_addr(to, client->servers[i].ip, 128);
			to->port = 53;
		}
}
