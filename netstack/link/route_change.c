/*
 * Changes of the routes while the stack runs, on one shard: by the operator,
 * and by options that a program has read again.
 *
 * The table has the routes of the options in their order, then those that the
 * operator has added, then those of leases and routers.
 */
#include "netstack/link/link_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "netstack/lwip/hooks.h"

/* ---- changes by the operator ---- */

/* Whether a route has the prefix and the gateway, and the link if it is set. */
static bool is_same_route(const struct net_route_entry *route,
			  const struct net_route_opts *opts)
{
	const struct net_ifaddr *near;
	const struct net_port *port;
	ip_addr_t to, via;

	net_addr_to_lwip(&opts->to, &to);
	net_addr_to_lwip(&opts->via, &via);
	if (route->prefix_len != opts->to.prefix_len ||
	    !ip_addr_zoneless_eq(&route->to, &to) ||
	    !ip_addr_zoneless_eq(&route->via, &via))
		return false;
	near = route->port ? NULL : net_route_near(route);
	port = near ? net_port_of(near->netif) : route->port;
	return !opts->link || port == &net_here()->ports[opts->link - 1];
}

static bool has_source(const struct net_route_entry *route,
		       const struct net_route_opts *opts)
{
	ip_addr_t source;

	net_addr_to_lwip(&opts->source, &source);
	return !opts->source.family ||
	       (route->has_source && ip_addr_eq(&route->source, &source));
}

/* The next packet to each destination looks its route up. */
static void forget_hops(void)
{
	for (unsigned i = 0; i < NET_NEIGHBOURS; i++)
		net_here()->neighbours[i].expires_ns = 0;
	for (unsigned i = 0; i < NET_ASKED6; i++)
		net_asked.ip6[i].until_ns = 0;
}

int net_route_add(const struct net_route_opts *opts)
{
	struct net_route_entry *end = net_here()->routes +
				      net_here()->n_routes -
				      net_here()->n_leased_routes;
	int err = net_route_check(opts);

	if (err < 0)
		return err;
	for (const struct net_route_entry *at = net_here()->routes; at < end;
	     at++)
		if (is_same_route(at, opts))
			return -EEXIST;
	if (net_here()->n_routes == NET_ROUTES)
		return -ENOSPC;
	memmove(end + 1, end, net_here()->n_leased_routes * sizeof(*end));
	net_route_fill(end, opts);
	net_here()->n_routes++;
	forget_hops();
	return 0;
}

int net_route_remove(const struct net_route_opts *opts)
{
	struct net_route_entry *end = net_here()->routes + net_here()->n_routes;

	for (struct net_route_entry *at = net_here()->routes;
	     at < end - net_here()->n_leased_routes; at++)
		if (is_same_route(at, opts) && has_source(at, opts)) {
			memmove(at, at + 1,
				(size_t)(end - at - 1) * sizeof(*at));
			net_here()->n_routes--;
			forget_hops();
			return 0;
		}
	return -ESRCH;
}

/* ---- changes of the options ---- */

static bool is_same_addr(const struct net_addr *a, const struct net_addr *b)
{
	return a->family == b->family && a->prefix_len == b->prefix_len &&
	       memcmp(a->ip, b->ip, a->family == 4 ? 4 : 16) == 0;
}

static bool is_same_option(const struct net_route_opts *a,
			   const struct net_route_opts *b)
{
	return is_same_addr(&a->to, &b->to) && is_same_addr(&a->via, &b->via) &&
	       is_same_addr(&a->source, &b->source) && a->link == b->link;
}

static bool has_option(const struct net_route_list *list,
		       const struct net_route_opts *route)
{
	for (unsigned i = 0; i < list->n; i++)
		if (is_same_option(&list->routes[i], route))
			return true;
	return false;
}

bool net_routes_equal(const struct net_opts *a, const struct net_opts *b)
{
	if (a->n_routes != b->n_routes ||
	    !is_same_addr(&a->gateway4, &b->gateway4) ||
	    !is_same_addr(&a->gateway6, &b->gateway6))
		return false;
	for (unsigned i = 0; i < a->n_routes; i++)
		if (!is_same_option(&a->routes[i], &b->routes[i]))
			return false;
	return true;
}

/* The next table, and the entries of the present one that are in it or end. */
struct next_routes {
	struct net_route_entry entries[NET_ROUTES];
	unsigned n;
	bool seen[NET_ROUTES];
};

static int keep_entry(struct next_routes *next,
		      const struct net_route_entry *entry)
{
	if (next->n == NET_ROUTES)
		return -ENOSPC;
	next->entries[next->n++] = *entry;
	return 0;
}

/* Finds a route of the user that was not seen yet; NULL: there is none. */
static const struct net_route_entry *
find_entry(struct next_routes *next, const struct net_route_opts *opts)
{
	struct net_route_entry wanted;

	net_route_fill(&wanted, opts);
	for (unsigned i = 0;
	     i < net_here()->n_routes - net_here()->n_leased_routes; i++) {
		const struct net_route_entry *at = &net_here()->routes[i];

		if (next->seen[i] || at->port != wanted.port ||
		    at->prefix_len != wanted.prefix_len ||
		    at->has_source != wanted.has_source ||
		    !ip_addr_zoneless_eq(&at->to, &wanted.to) ||
		    !ip_addr_zoneless_eq(&at->via, &wanted.via) ||
		    !has_source(at, opts))
			continue;
		next->seen[i] = true;
		return at;
	}
	return NULL;
}

/* A route of both options stays away if the operator has removed it. */
static int keep_option(struct next_routes *next,
		       const struct net_route_list *from,
		       const struct net_route_opts *route)
{
	const struct net_route_entry *at = find_entry(next, route);
	struct net_route_entry entry;

	if (has_option(from, route))
		return at ? keep_entry(next, at) : 0;
	net_route_fill(&entry, route);
	return keep_entry(next, &entry);
}

/* Fills the next table; sets in removed[] which routes of `from` were missing.
 */
static int fill_next(struct next_routes *next,
		     const struct net_route_list *from,
		     const struct net_route_list *to, bool removed[NET_ROUTES])
{
	int err = 0;

	for (unsigned i = 0; err == 0 && i < to->n; i++)
		err = keep_option(next, from, &to->routes[i]);
	for (unsigned i = 0; i < from->n; i++) /* those of `from` alone end */
		removed[i] = !find_entry(next, &from->routes[i]) &&
			     !has_option(to, &from->routes[i]);
	for (unsigned i = 0; err == 0 && i < net_here()->n_routes; i++)
		if (!next->seen[i])
			err = keep_entry(next, &net_here()->routes[i]);
	return err;
}

static int check_new(const struct net_route_list *from, struct net_opts *to)
{
	for (unsigned i = 0; i < to->n_routes; i++)
		if (!has_option(from, &to->routes[i]) &&
		    net_route_check_option(&to->routes[i], to) < 0)
			return -EINVAL;
	return 0;
}

static int replace(const struct net_route_list *from,
		   const struct net_route_list *to)
{
	struct next_routes next = {.n = 0};
	bool removed[NET_ROUTES] = {false};
	int err = fill_next(&next, from, to, removed);

	if (err < 0)
		return err;
	memcpy(net_here()->routes, next.entries,
	       next.n * sizeof(next.entries[0]));
	net_here()->n_routes = next.n;
	memcpy(net_here()->routes_removed, removed, sizeof(removed));
	forget_hops();
	return 0;
}

int net_routes_replace(const struct net_opts *from, struct net_opts *to)
{
	struct net_route_list old, new;
	int err;

	net_route_list(from, &old);
	net_route_list(to, &new);
	if (check_new(&old, to) < 0)
		return -EINVAL;
	err = replace(&old, &new);
	if (err < 0)
		snprintf(to->error, sizeof(to->error),
			 "--route: no room: the stack has at most %u routes, "
			 "with those of route add and of leases",
			 NET_ROUTES);
	return err;
}

int net_routes_restore(const struct net_opts *from, const struct net_opts *to)
{
	struct net_route_list old, new;
	unsigned n = 0;

	net_route_list(from, &old);
	net_route_list(to, &new);
	for (unsigned i = 0; i < old.n; i++)
		if (!net_here()->routes_removed[i])
			old.routes[n++] = old.routes[i];
	old.n = n;
	return replace(&new, &old);
}
