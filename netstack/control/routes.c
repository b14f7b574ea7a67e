/*
 * Changes of routes while the program runs. The operator adds routes, and
 * removes any but those of leases and routers. A reload replaces the routes of
 * the old options by those of the new ones.
 */
#include "netstack/control/control_priv.h"
#include "netstack/link/link.h"

#include <coronet/net_reload.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct route_change {
	struct net_change change;
	struct net_route_opts route;
};

static bool change_step(void *data)
{
	struct route_change *change = data;

	change->change.err = change->change.add
				     ? net_route_add(&change->route)
				     : net_route_remove(&change->route);
	return true;
}

/* Writes "PREFIX via GATEWAY"; returns text. */
static const char *format_route(const struct net_route_opts *route,
				char text[2 * NET_ADDR_TEXT_MAX + 16])
{
	char to[NET_ADDR_TEXT_MAX], via[NET_ADDR_TEXT_MAX];

	snprintf(text, 2 * NET_ADDR_TEXT_MAX + 16, "%s/%u via %s",
		 net_ip_format(&route->to, to), route->to.prefix_len,
		 net_ip_format(&route->via, via));
	return text;
}

static const char *reason_of(int err)
{
	switch (err) {
	case -ENODEV:
		return "there is no such link";
	case -ENOTUNIQ:
		return "a link-local gateway may be on any link: add dev LINK";
	case -ENETUNREACH:
		return "no address has a network with the gateway now (if it "
		       "is on a link nevertheless, add dev LINK)";
	case -EADDRNOTAVAIL:
		return "src is not an address of the gateway's link";
	case -EEXIST:
		return "the stack has this route already";
	case -ENOSPC:
		return "no room for another route";
	case -ESRCH:
		return "there is no such route of --route, --gateway or route "
		       "add; routes lists what there is";
	default:
		return strerror(-err);
	}
}

static cJSON *change_all(const char *params, bool add)
{
	struct route_change change = {.change.add = add};
	char text[2 * NET_ADDR_TEXT_MAX + 16], error[256];
	int err, unasked;
	cJSON *to;

	if (net_route_parse(params ? params : "", &change.route, error,
			    sizeof(error)) < 0)
		return net_control_error("%s", error);
	err = net_ask_change(change_step, &change.change, sizeof(change),
			     &unasked);
	format_route(&change.route, text);
	if (err < 0)
		return unasked >= 0
			       ? net_control_ask_error((unsigned)unasked, err)
			       : net_control_error("%s: %s", text,
						   reason_of(err));
	to = cJSON_CreateObject();
	cJSON_AddStringToObject(to, add ? "added" : "removed", text);
	return to;
}

static cJSON *add_route(const char *params)
{
	return change_all(params, true);
}

static cJSON *remove_route(const char *params)
{
	return change_all(params, false);
}

/* ---- options that were read again ---- */

struct options_change {
	struct net_change change;
	struct net_opts from, to;
};

static bool replace_step(void *data)
{
	struct options_change *change = data;

	change->change.err =
		change->change.add
			? net_routes_replace(&change->from, &change->to)
			: net_routes_restore(&change->from, &change->to);
	return true;
}

int net_routes_change(const struct net_opts *from, struct net_opts *to)
{
	struct options_change change = {{.add = true}, *from, *to};
	int err, unasked;

	if (net_routes_equal(from, to))
		return 0;
	err = net_ask_change(replace_step, &change.change, sizeof(change),
			     &unasked);
	if (err == 0)
		return 1;
	if (unasked >= 0)
		net_control_ask_reason((unsigned)unasked, err, to->error,
				       sizeof(to->error));
	else if (err == -ENOMEM)
		snprintf(to->error, sizeof(to->error), "%s", strerror(ENOMEM));
	else
		memcpy(to->error, change.to.error, sizeof(to->error));
	return err;
}

const struct net_command net_route_commands[] = {
	{"/coronet/route.add",
	 "Adds a route. Parameters: PREFIX via GATEWAY [dev LINK] [src "
	 "ADDRESS], as of --route",
	 add_route},
	{"/coronet/route.del", "Removes a route. Parameters: as for route.add",
	 remove_route},
	{0},
};
