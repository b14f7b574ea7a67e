/*
 * Leases: what a server's message gives, and how a shard uses it.
 */
#include "netstack/link/dhcp.h"
#include "netstack/link/slaac.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/ip.h"

/* What this shard has applied; owned. */
static NET_SHARD_VAR struct net_lease *applied[NET_MAX_LINKS];
static NET_SHARD_VAR unsigned servers_turn;
#define applied	     NET_SHARD(applied)
#define servers_turn NET_SHARD(servers_turn)

/* ---- from a message ---- */

static void put_addr(struct net_addr *to, uint32_t ip, uint8_t bits)
{
	*to = (struct net_addr){.family = 4, .prefix_len = bits};
	memcpy(to->ip, &ip, 4);
}

static bool is_host(uint32_t ip)
{
	uint32_t host = lwip_ntohl(ip);

	/* 0/8, 127/8, groups and class E are no host's (RFC 1122 3.2.1.3). */
	return host >> 24 != 0 && host >> 24 != 127 && host >> 28 < 14;
}

/* Without a mask: that of the address's class, as hosts did before masks. */
static uint8_t default_bits(uint32_t ip)
{
	uint32_t host = lwip_ntohl(ip);

	return host >> 31 == 0 ? 8 : host >> 30 == 2 ? 16 : 24;
}

/* Neither the first nor the last address of its network (RFC 3021). */
static bool is_in_network(uint32_t ip, uint8_t bits)
{
	uint32_t rest = bits < 31 ? lwip_ntohl(ip) << bits : 1u << 31;

	return bits >= 31 || (rest != 0 && rest != UINT32_MAX << bits);
}

static bool is_ours_already(const struct net_dhcp *client, uint32_t ip)
{
	ip_addr_t addr = IPADDR4_INIT(ip);
	bool leased = client->lease.bound &&
		      memcmp(client->lease.addr.ip, &ip, 4) == 0;

	return !leased && net_ifaddr_of(&addr) != NULL;
}

/*
 * Returns whether the router of a route is another host, which may be outside
 * the lease's network. A route without a router is usable if it comes from
 * option 121.
 */
static bool is_usable(const struct net_lease *lease,
		      const struct net_dhcp_route *route)
{
	uint32_t own;

	memcpy(&own, lease->addr.ip, 4);
	return route->via ? is_host(route->via) && route->via != own
			  : route->bits > 0;
}

static void add_route(struct net_lease *lease,
		      const struct net_dhcp_route *route)
{
	if (lease->n_routes < NET_DHCP_ROUTES && is_usable(lease, route))
		lease->routes[lease->n_routes++] = *route;
}

/* RFC 3442: with option 121, routers do not count. */
static void read_routes(const struct net_dhcp_msg *msg, struct net_lease *out)
{
	for (unsigned i = 0; i < msg->n_routes; i++)
		add_route(out, &msg->routes[i]);
	for (unsigned i = 0; i < msg->n_routers && !msg->has_routes; i++)
		if (out->n_routes == 0)
			add_route(out, &(struct net_dhcp_route){
					       .via = msg->routers[i]});
}

int net_lease_read(const struct net_dhcp *client,
		   const struct net_dhcp_msg *msg, struct net_lease *out)
{
	uint8_t bits = msg->mask_bits ? msg->mask_bits : default_bits(msg->ip);
	struct net_lease lease = {
		.link = (unsigned)(client->port - net_here()->ports)};

	if (!is_host(msg->ip) || !is_in_network(msg->ip, bits) ||
	    is_ours_already(client, msg->ip))
		return -EINVAL;
	put_addr(&lease.addr, msg->ip, bits);
	read_routes(msg, &lease);
	for (unsigned i = 0; i < msg->n_servers; i++) {
		struct net_addr *server = &lease.servers[lease.n_servers];

		if (!is_host(msg->servers[i]))
			continue;
		put_addr(server, msg->servers[i], 32);
		server->port = 53;
		lease.n_servers++;
	}
	if (msg->mtu >= GLUE_MTU_MIN && msg->mtu < net_here()->mtu)
		lease.mtu = msg->mtu;
	*out = lease;
	return 0;
}

/* ---- on a shard ---- */

static bool have_same_addr(const struct net_lease *a, const struct net_lease *b)
{
	return a->bound && b->bound &&
	       a->addr.prefix_len == b->addr.prefix_len &&
	       memcmp(a->addr.ip, b->addr.ip, 4) == 0;
}

/* The address may be inactive, because another host has it. */
static void set_mtu(const struct net_port *port, const struct net_addr *addr,
		    unsigned mtu)
{
	struct net_ifaddr *own;
	ip_addr_t ip;

	net_addr_to_lwip(addr, &ip);
	own = net_ifaddr_on(port, &ip);
	if (own)
		own->netif->mtu = (uint16_t)mtu;
}

int net_lease_apply(struct net_lease *lease)
{
	static const struct net_lease none;
	struct net_port *port = &net_here()->ports[lease->link];
	struct net_lease *old = applied[lease->link];
	const struct net_lease *before = old ? old : &none;
	bool same = have_same_addr(before, lease);
	int err = 0;

	if (before->bound)
		set_mtu(port, &before->addr, net_here()->mtu);
	if (before->bound && !same)
		net_ifaddr_remove(port, &before->addr);
	if (lease->bound && !same)
		err = net_ifaddr_add(port, &lease->addr);
	lease->bound = lease->bound && err == 0;
	if (lease->bound && lease->mtu)
		set_mtu(port, &lease->addr, lease->mtu);
	net_routes_lease(port, lease->routes,
			 lease->bound ? lease->n_routes : 0);
	applied[lease->link] = lease;
	servers_turn++;
	free(old);
	return err;
}

void net_leases_close(void)
{
	for (unsigned i = 0; i < NET_MAX_LINKS; i++) {
		free(applied[i]);
		applied[i] = NULL;
	}
}

unsigned net_leased_servers(struct net_addr out[NET_MAX_RESOLVERS],
			    unsigned *turn)
{
	unsigned n = 0, slaac_turn;

	for (unsigned i = 0; i < NET_MAX_LINKS; i++)
		for (unsigned k = 0;
		     applied[i] && applied[i]->bound &&
		     k < applied[i]->n_servers && n < NET_MAX_RESOLVERS;
		     k++)
			out[n++] = applied[i]->servers[k];
	n = net_slaac_servers(out, n, &slaac_turn);
	*turn = servers_turn + slaac_turn; /* both only grow */
	return n;
}
