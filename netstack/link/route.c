/*
 * Routes: where packets to an address go, and the address they come from.
 *
 * The networks of the stack's addresses, --route and --gateway are one table of
 * prefixes; the longest decides. A gateway counts while an address of its link
 * has a network with it, or while the link has an address, if the gateway is
 * outside every network. Lookups are linear: packets of a connection ask once a
 * second, when link/neighbour.c has forgotten their neighbour.
 */
#include "netstack/link/dhcp.h"
#include "netstack/link/slaac.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lwip/ip.h"

#include "netstack/lwip/hooks.h"

static const void *bytes_of(const ip_addr_t *ip)
{
	return IP_IS_V6(ip) ? (const void *)ip_2_ip6(ip)->addr
			    : (const void *)&ip_2_ip4(ip)->addr;
}

/*
 * Returns how many leading bits two addresses share; -1: they are of two
 * families.
 */
static int common_bits(const ip_addr_t *a, const ip_addr_t *b)
{
	const uint8_t *x = bytes_of(a), *y = bytes_of(b);
	int bytes = IP_IS_V6(a) ? 16 : 4;

	if (!!IP_IS_V6(a) != !!IP_IS_V6(b))
		return -1;
	for (int i = 0; i < bytes; i++)
		if (x[i] != y[i])
			return 8 * i + __builtin_clz((unsigned)(x[i] ^ y[i])) -
			       24;
	return 8 * bytes;
}

static bool is_link_local(const ip_addr_t *ip)
{
	return IP_IS_V6(ip) && ip6_addr_islinklocal(ip_2_ip6(ip));
}

/*
 * Link-local addresses are in the network of every link, or of their zone. A
 * loopback address has no network: it must not appear on a link.
 */
static bool has_in_network(const struct net_ifaddr *addr, const ip_addr_t *ip)
{
	if (!addr->active || ip_addr_isloopback(&addr->ip) ||
	    common_bits(&addr->ip, ip) < addr->prefix_len)
		return false;
	return !is_link_local(ip) || !ip6_addr_has_zone(ip_2_ip6(ip)) ||
	       ip6_addr_test_zone(ip_2_ip6(ip), addr->netif);
}

/* The address with the longest prefix, of those the first. */
static const struct net_ifaddr *find_network(const struct net_port *port,
					     const ip_addr_t *ip)
{
	const struct net_ifaddr *found = NULL;

	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *addr = &net_here()->addrs[i];

		if ((!port || net_port_of(addr->netif) == port) &&
		    has_in_network(addr, ip) &&
		    (!found || addr->prefix_len > found->prefix_len))
			found = addr;
	}
	return found;
}

/* The address of a link that shares most bits with another, of those the first;
   NULL: the link has none of its family. */
static const struct net_ifaddr *find_similar(const struct net_port *port,
					     const ip_addr_t *ip)
{
	const struct net_ifaddr *found = NULL;
	int best = -1;

	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *addr = &net_here()->addrs[i];
		int bits = common_bits(&addr->ip, ip);

		if (!addr->active || net_port_of(addr->netif) != port ||
		    bits <= best)
			continue;
		best = bits;
		found = addr;
	}
	return found;
}

/* The address through which a route's gateway is reached. */
static const struct net_ifaddr *
near_gateway(const struct net_port *port, const struct net_route_entry *route)
{
	const struct net_ifaddr *near;

	if (port && route->port && route->port != port)
		return NULL;
	near = find_network(route->port ? route->port : port, &route->via);
	if (near || !route->on_link)
		return near;
	return find_similar(route->port, ip_addr_isany_val(route->via)
						 ? &route->to
						 : &route->via);
}

const struct net_ifaddr *net_route_near(const struct net_route_entry *route)
{
	return near_gateway(NULL, route);
}

int net_route_find(const struct net_port *port, const ip_addr_t *to,
		   struct net_hop *out)
{
	struct net_hop hop = {.ip = *to, .near = find_network(port, to)};
	int bits = hop.near ? hop.near->prefix_len : -1;

	for (unsigned i = 0; i < net_here()->n_routes; i++) {
		const struct net_route_entry *route = &net_here()->routes[i];
		const struct net_ifaddr *near;

		if (route->prefix_len <= bits || is_link_local(to) ||
		    common_bits(&route->to, to) < route->prefix_len)
			continue;
		near = near_gateway(port, route);
		if (!near)
			continue;
		hop = (struct net_hop){
			ip_addr_isany_val(route->via) ? *to : route->via, near,
			route};
		bits = route->prefix_len;
	}
	if (!hop.near)
		return -EHOSTUNREACH;
	if (is_link_local(&hop.ip))
		ip6_addr_assign_zone(ip_2_ip6(&hop.ip), IP6_UNICAST,
				     hop.near->netif);
	*out = hop;
	return 0;
}

/* ---- source addresses ---- */

/* The scope of a destination: the link alone, or more (RFC 6724 3.1). */
static bool has_link_scope(const ip_addr_t *to)
{
	return is_link_local(to) ||
	       (IP_IS_V6(to) && ip6_addr_ismulticast_linklocal(ip_2_ip6(to)));
}

/* RFC 6724 2.1, what matters among addresses of one host. */
static unsigned label_of(const ip_addr_t *ip)
{
	return IP_IS_V6(ip) && ip6_addr_isuniquelocal(ip_2_ip6(ip));
}

/*
 * Returns how well an address serves as a source: rules 1, 2, 3, 6 and 8 of RFC
 * 6724 5, in that order. A network that has the neighbour comes before rule 6,
 * since a gateway may refuse sources that it does not know. IPv4 has no labels:
 * there the longest of such networks is best.
 */
static unsigned source_rank(const struct net_ifaddr *addr,
			    const struct net_hop *hop, const ip_addr_t *to)
{
	unsigned bits = (unsigned)common_bits(&addr->ip, to);

	return (unsigned)!!ip_addr_zoneless_eq(&addr->ip, to) << 13 |
	       (unsigned)(is_link_local(&addr->ip) == has_link_scope(to))
		       << 12 |
	       (unsigned)!addr->deprecated << 11 |
	       (unsigned)has_in_network(addr, &hop->ip) << 10 |
	       (unsigned)(IP_IS_V6(to) ? label_of(&addr->ip) == label_of(to)
				       : addr == hop->near)
		       << 9 |
	       LWIP_MIN(bits, addr->prefix_len);
}

const struct net_ifaddr *net_route_source(const struct net_hop *hop,
					  const ip_addr_t *to)
{
	const struct net_port *port = net_port_of(hop->near->netif);
	const struct net_ifaddr *best = NULL;

	if (hop->route && hop->route->has_source)
		return net_ifaddr_of(&hop->route->source);
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *addr = &net_here()->addrs[i];

		if (addr->active && net_port_of(addr->netif) == port &&
		    !ip_addr_isloopback(&addr->ip) &&
		    !!IP_IS_V6(&addr->ip) == !!IP_IS_V6(to) &&
		    (!best ||
		     source_rank(addr, hop, to) > source_rank(best, hop, to)))
			best = addr;
	}
	return best;
}

struct net_ifaddr *net_ifaddr_of(const ip_addr_t *ip)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++)
		if (net_here()->addrs[i].active &&
		    ip_addr_eq(&net_here()->addrs[i].ip, ip))
			return &net_here()->addrs[i];
	return NULL;
}

const struct net_ifaddr *net_ifaddr_named(const ip_addr_t *ip)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++)
		if (net_here()->addrs[i].active &&
		    ip_addr_zoneless_eq(&net_here()->addrs[i].ip, ip))
			return &net_here()->addrs[i];
	return NULL;
}

/*
 * Returns whether a route says that an address outside the networks is on a
 * link.
 */
static bool is_routed_on_link(const struct net_port *port, const ip_addr_t *ip)
{
	for (unsigned i = 0; i < net_here()->n_routes; i++) {
		const struct net_route_entry *route = &net_here()->routes[i];

		if (!route->on_link || route->port != port)
			continue;
		if (ip_addr_isany_val(route->via)
			    ? common_bits(&route->to, ip) >= route->prefix_len
			    : ip_addr_eq(&route->via, ip))
			return true;
	}
	return false;
}

bool net_route_on_link(const struct net_port *port, const ip_addr_t *ip)
{
	return find_network(port, ip) || is_routed_on_link(port, ip);
}

int net_nd_in_network(const ip6_addr_t *ip, const ip6_addr_t *own)
{
	ip_addr_t addr, to;

	ip_addr_copy_from_ip6(addr, *own);
	ip_addr_copy_from_ip6(to, *ip);
	for (unsigned i = 0; i < net_here()->n_addrs; i++)
		if (ip_addr_eq(&net_here()->addrs[i].ip, &addr) &&
		    has_in_network(&net_here()->addrs[i], &to))
			return true;
	return false;
}

/* ---- opening ---- */

static bool has_ip4(const struct net_port *port)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++)
		if (net_port_of(net_here()->addrs[i].netif) == port &&
		    IP_IS_V4(&net_here()->addrs[i].ip))
			return true;
	return false;
}

/*
 * Returns whether a gateway of the options is on a link whose networks do not
 * have it, as those of clouds: of IPv4, since routers of IPv6 have link-local
 * addresses.
 */
static bool is_beside_networks(const struct net_port *port,
			       const ip_addr_t *via)
{
	return port && IP_IS_V4(via) && !find_network(NULL, via) &&
	       has_ip4(port);
}

void net_route_fill(struct net_route_entry *route,
		    const struct net_route_opts *opts)
{
	*route = (struct net_route_entry){
		.prefix_len = opts->to.prefix_len,
		.has_source = opts->source.family != 0,
		.port = opts->link ? &net_here()->ports[opts->link - 1] : NULL,
	};
	net_addr_to_lwip(&opts->to, &route->to);
	net_addr_to_lwip(&opts->via, &route->via);
	net_addr_to_lwip(&opts->source, &route->source);
	route->on_link = is_beside_networks(route->port, &route->via);
}

/* --gateway: on the only link it may be outside the networks. */
static void list_gateway(struct net_route_list *list,
			 const struct net_addr *via)
{
	if (via->family)
		list->routes[list->n++] = (struct net_route_opts){
			.to.family = via->family,
			.via = *via,
			.link = net_here()->n_ports == 1,
		};
}

void net_route_list(const struct net_opts *opts, struct net_route_list *out)
{
	memcpy(out->routes, opts->routes,
	       opts->n_routes * sizeof(opts->routes[0]));
	out->n = opts->n_routes;
	list_gateway(out, &opts->gateway4);
	list_gateway(out, &opts->gateway6);
}

static int refuse_route(const struct net_route_opts *route,
			struct net_opts *opts, const struct net_addr *wrong,
			const char *reason)
{
	char to[NET_ADDR_TEXT_MAX], via[NET_ADDR_TEXT_MAX],
		word[NET_ADDR_TEXT_MAX];

	snprintf(opts->error, sizeof(opts->error),
		 "--route '%s/%u via %s': %s: %s",
		 net_ip_format(&route->to, to), route->to.prefix_len,
		 net_ip_format(&route->via, via), net_ip_format(wrong, word),
		 reason);
	return -EINVAL;
}

/*
 * Returns whether a link of the route may get an address of its gateway's
 * version.
 */
static bool may_lease(const struct net_route_opts *route,
		      const struct net_opts *opts)
{
	bool found = false;

	for (unsigned i = 0; i < opts->n_addrs; i++)
		found |= net_addr_is_leased(&opts->addrs[i]) &&
			 opts->addrs[i].family == route->via.family &&
			 (!route->link ||
			  route->link == opts->addr_links[i] + 1u);
	return found && !route->source.family;
}

int net_route_check(const struct net_route_opts *route)
{
	const struct net_port *port = NULL;
	const struct net_ifaddr *near, *own;
	ip_addr_t via, source;

	net_addr_to_lwip(&route->via, &via);
	net_addr_to_lwip(&route->source, &source);
	if (route->link > net_here()->n_ports)
		return -ENODEV;
	if (is_link_local(&via) && !route->link && net_here()->n_ports > 1)
		return -ENOTUNIQ;
	if (route->link)
		port = &net_here()->ports[route->link - 1];
	near = find_network(port, &via);
	if (!near && is_beside_networks(port, &via))
		near = find_similar(port, &via);
	if (!near)
		return -ENETUNREACH;
	own = route->source.family ? net_ifaddr_of(&source) : near;
	return own && net_port_of(own->netif) == net_port_of(near->netif)
		       ? 0
		       : -EADDRNOTAVAIL;
}

int net_route_check_option(const struct net_route_opts *route,
			   struct net_opts *opts)
{
	switch (net_route_check(route)) {
	case -ENODEV:
		return refuse_route(route, opts, &route->via,
				    "dev exceeds the number of links");
	case -ENOTUNIQ:
		return refuse_route(route, opts, &route->via,
				    "a link-local gateway may be on any link: "
				    "add dev LINK");
	case -ENETUNREACH:
		if (may_lease(route, opts))
			return 0; /* used while there is such an address */
		return refuse_route(
			route, opts, &route->via,
			route->link
				? "not in a network of that link"
				: "not in a network of any --addr (if it is on "
				  "a link nevertheless, add dev LINK)");
	case -EADDRNOTAVAIL:
		return refuse_route(
			route, opts, &route->source,
			"src is not an --addr of the gateway's link");
	default:
		return 0;
	}
}

int net_routes_open(struct net_opts *opts)
{
	struct net_route_list list;

	for (unsigned i = 0; i < opts->n_routes; i++)
		if (net_route_check_option(&opts->routes[i], opts) < 0)
			return -EINVAL;
	net_route_list(opts, &list);
	for (unsigned i = 0; i < list.n; i++)
		net_route_fill(&net_here()->routes[net_here()->n_routes++],
			       &list.routes[i]);
	return 0;
}

/* ---- leases ---- */

static void drop_leased(const struct net_port *port, bool is_ip6)
{
	struct net_route_entry *routes = net_here()->routes;
	unsigned end = net_here()->n_routes,
		 to = end - net_here()->n_leased_routes;

	for (unsigned from = to; from < end; from++)
		if (routes[from].port != port ||
		    !!IP_IS_V6(&routes[from].to) != is_ip6)
			routes[to++] = routes[from];
	net_here()->n_leased_routes -= end - to;
	net_here()->n_routes = to;
}

void net_routes_lease(struct net_port *port,
		      const struct net_dhcp_route *routes, unsigned n)
{
	drop_leased(port, false);
	for (unsigned i = 0; i < n && net_here()->n_routes < NET_ROUTES; i++) {
		struct net_route_entry *route =
			&net_here()->routes[net_here()->n_routes++];

		*route = (struct net_route_entry){.prefix_len = routes[i].bits,
						  .on_link = true,
						  .port = port};
		ip_addr_set_ip4_u32_val(route->to, routes[i].to);
		ip_addr_set_ip4_u32_val(route->via, routes[i].via);
		net_here()->n_leased_routes++;
	}
}

/* A router is in the network of the link-local address. */
void net_routes_slaac(struct net_port *port,
		      const struct net_slaac_route *routes, unsigned n)
{
	drop_leased(port, true);
	for (unsigned i = 0; i < n && net_here()->n_routes < NET_ROUTES; i++) {
		struct net_route_entry *route =
			&net_here()->routes[net_here()->n_routes++];

		*route = (struct net_route_entry){
			.prefix_len = routes[i].to.prefix_len,
			.on_link = !routes[i].via.family,
			.port = port};
		net_addr_to_lwip(&routes[i].to, &route->to);
		ip_addr_set_any(true, &route->via);
		if (routes[i].via.family)
			net_addr_to_lwip(&routes[i].via, &route->via);
		net_here()->n_leased_routes++;
	}
}
