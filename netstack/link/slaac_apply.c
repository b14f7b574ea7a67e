/*
 * How a shard uses what SLAAC has configured: it adds and removes the addresses
 * in which this configuration differs from the one before.
 */
#include "netstack/link/slaac.h"

#include <stdlib.h>
#include <string.h>

#include "lwip/ip.h"

/* What this shard has applied; owned. */
static NET_SHARD_VAR struct net_slaac_config *applied[NET_MAX_LINKS];
static NET_SHARD_VAR unsigned servers_turn;
#define applied	     NET_SHARD(applied)
#define servers_turn NET_SHARD(servers_turn)

static bool has_addr(const struct net_slaac_config *config,
		     const struct net_addr *addr)
{
	for (unsigned i = 0; i < config->n_addrs; i++)
		if (config->addrs[i].family &&
		    memcmp(config->addrs[i].ip, addr->ip, 16) == 0)
			return true;
	return false;
}

static void remove_others(struct net_port *port,
			  const struct net_slaac_config *before,
			  const struct net_slaac_config *now)
{
	for (unsigned i = 0; i < before->n_addrs; i++)
		if (before->addrs[i].family &&
		    !has_addr(now, &before->addrs[i]))
			net_ifaddr_remove(port, &before->addrs[i]);
}

/* Updates an address whose network or preference may have changed. */
static void update_addr(struct net_port *port, const struct net_addr *addr,
			bool deprecated)
{
	struct net_ifaddr *own;
	ip_addr_t ip;

	net_addr_to_lwip(addr, &ip);
	ip6_addr_assign_zone(ip_2_ip6(&ip), IP6_UNICAST, port->netif0);
	own = net_ifaddr_on(port, &ip);
	if (!own)
		return;
	own->prefix_len = addr->prefix_len;
	own->deprecated = deprecated;
}

unsigned net_slaac_apply(struct net_slaac_config *config)
{
	static const struct net_slaac_config none;
	struct net_port *port = &net_here()->ports[config->link];
	struct net_slaac_config *old = applied[config->link];
	const struct net_slaac_config *before = old ? old : &none;
	unsigned failed = 0;

	remove_others(port, before, config);
	for (unsigned i = 0; i < config->n_addrs; i++) {
		struct net_addr *addr = &config->addrs[i];

		if (has_addr(before, addr) ||
		    net_ifaddr_add_probed(port, addr) == 0) {
			update_addr(port, addr, config->deprecated[i]);
			continue;
		}
		failed |= 1u << i;
		addr->family = 0;
	}
	net_routes_slaac(port, config->routes, config->n_routes);
	applied[config->link] = config;
	servers_turn++;
	free(old);
	return failed;
}

unsigned net_slaac_servers(struct net_addr out[NET_MAX_RESOLVERS], unsigned n,
			   unsigned *turn)
{
	*turn = servers_turn;
	for (unsigned i = 0; i < NET_MAX_LINKS; i++)
		for (unsigned k = 0; applied[i] && k < applied[i]->n_servers &&
				     n < NET_MAX_RESOLVERS;
		     k++)
			out[n++] = applied[i]->servers[k];
	return n;
}

void net_slaac_applied_close(void)
{
	for (unsigned i = 0; i < NET_MAX_LINKS; i++) {
		free(applied[i]);
		applied[i] = NULL;
	}
}
