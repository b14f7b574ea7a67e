/*
 * The stack's addresses: listed, added and removed while the program runs.
 *
 * The shards change their tables one after another, shard 0 last: it probes for
 * an address that is added, answers for it, and posts its withdrawal to the
 * others, which must have it by then.
 */
#include "netstack/control/control_priv.h"
#include "netstack/link/leased.h"
#include "netstack/link/link.h"
#include "netstack/program/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "netstack/options/opt.h"

/* ---- changes ---- */

struct addr_change {
	struct net_change change;
	struct net_addr addr;
	unsigned link; /* from 1 */
};

/* Only shard 0 knows, which is asked first. */
static bool is_leased(const struct net_port *port, const struct net_addr *addr)
{
	ip_addr_t ip;
	int64_t left_s;

	net_addr_to_lwip(addr, &ip);
	if (IP_IS_V6_VAL(ip))
		ip6_addr_assign_zone(ip_2_ip6(&ip), IP6_UNICAST, port->netif0);
	return net_here()->shard == 0 &&
	       (net_dhcp_lease_of(port, &ip, &left_s) ||
		net_slaac_lease_of(port, &ip, &left_s));
}

static int change_here(const struct addr_change *change)
{
	struct net_port *port = &net_here()->ports[change->link - 1];

	if (change->link > net_here()->n_ports)
		return -ENODEV;
	if (change->change.add)
		return net_ifaddr_add(port, &change->addr);
	return is_leased(port, &change->addr)
		       ? -EBUSY
		       : net_ifaddr_remove(port, &change->addr);
}

static bool change_step(void *data)
{
	struct addr_change *change = data;

	change->change.err = change_here(change);
	return true;
}

static cJSON *change_error(const struct addr_change *change, int err)
{
	char text[NET_ADDR_TEXT_MAX];

	net_ip_format(&change->addr, text);
	switch (err) {
	case -ENODEV:
		return net_control_error("there is no link %u", change->link);
	case -EEXIST:
		return net_control_error("the stack has %s already", text);
	case -ENOSPC:
		return net_control_error(
			"no room for %s: the stack takes %d addresses, and a "
			"link takes seven IPv6 addresses; addresses that were "
			"removed within the last minute count as well",
			text, NET_MAX_ADDRS);
	case -EBUSY:
		if (change->addr.family == 6)
			return net_control_error(
				"%s was formed by --addr auto: it is removed "
				"when its prefix expires",
				text);
		return net_control_error("%s is leased by DHCP: it is removed "
					 "when the lease ends",
					 text);
	case -EADDRNOTAVAIL:
		return net_control_error("link %u does not have %s/%u; addr "
					 "lists what it has",
					 change->link, text,
					 change->addr.prefix_len);
	default:
		return net_control_error("%s: %s", text, strerror(-err));
	}
}

/* Reads "ADDRESS/BITS[,LINK]". */
static int read_change(const char *params, struct addr_change *out)
{
	char text[NET_ADDR_TEXT_MAX + 8], *comma;
	uint64_t link = 1;

	if (!params || strlen(params) >= sizeof(text))
		return -EINVAL;
	strcpy(text, params);
	comma = strchr(text, ',');
	if (comma)
		*comma++ = '\0';
	if (comma && opt_parse_number(comma, 1, NET_MAX_LINKS, &link) < 0)
		return -EINVAL;
	if (net_addr_parse_prefix(text, &out->addr) < 0 ||
	    !(net_addr_is_host(&out->addr) || net_addr_is_loopback(&out->addr)))
		return -EINVAL;
	out->link = (unsigned)link;
	return 0;
}

static cJSON *change_json(const struct addr_change *change)
{
	char text[NET_ADDR_TEXT_MAX], addr[NET_ADDR_TEXT_MAX + 8];
	cJSON *to = cJSON_CreateObject();

	snprintf(addr, sizeof(addr), "%s/%u",
		 net_ip_format(&change->addr, text), change->addr.prefix_len);
	cJSON_AddStringToObject(to, change->change.add ? "added" : "removed",
				addr);
	net_control_number(to, "link", change->link);
	return to;
}

static cJSON *change_all(const char *params, bool add)
{
	struct addr_change change = {.change.add = add};
	int err, unasked;

	if (read_change(params, &change) < 0)
		return net_control_error("'%.80s': expected an address and the "
					 "bits of its network, as in "
					 "10.9.0.5/16, and a link",
					 params ? params : "");
	err = net_ask_change(change_step, &change.change, sizeof(change),
			     &unasked);
	if (err == 0)
		return change_json(&change);
	return unasked >= 0 ? net_control_ask_error((unsigned)unasked, err)
			    : change_error(&change, err);
}

static cJSON *add_addr(const char *params)
{
	return change_all(params, true);
}

static cJSON *remove_addr(const char *params)
{
	return change_all(params, false);
}

/* ---- the list ---- */

struct addrs {
	unsigned n;
	struct addr_row {
		struct net_addr addr; /* with prefix_len */
		unsigned link;
		const char *state;
		bool leased;
		int64_t left_s; /* of the lease; -1: it has no end */
	} rows[NET_IFADDRS + NET_SLAAC_UNUSED];
};

/* Adds addresses that SLAAC probes, or found at other hosts. */
static void add_unused(struct addrs *all)
{
	struct net_slaac_unused unused[NET_SLAAC_UNUSED];
	unsigned n = net_slaac_unused(unused);

	for (unsigned i = 0; i < n; i++)
		all->rows[all->n++] = (struct addr_row){
			.addr = unused[i].addr,
			.link = unused[i].link + 1,
			.state = unused[i].tentative ? "tentative"
						     : "duplicate"};
}

static bool addrs_step(void *data)
{
	struct addrs *all = data;

	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *own = &net_here()->addrs[i];
		const struct net_port *port = own->netif->state;
		struct addr_row *row = &all->rows[all->n];

		if (!own->active && !own->duplicate)
			continue;
		all->n++;
		net_addr_from_lwip(&own->ip, 0, &row->addr);
		row->addr.prefix_len = own->prefix_len;
		row->link = (unsigned)(port - net_here()->ports) + 1;
		row->leased = net_dhcp_lease_of(port, &own->ip, &row->left_s) ||
			      net_slaac_lease_of(port, &own->ip, &row->left_s);
		row->state = own->duplicate ? "duplicate"
			     : own->probed_ns > net_here()->now_ns
				     ? "optimistic"
			     : own->deprecated ? "deprecated"
					       : "preferred";
	}
	add_unused(all);
	return true;
}

/* Writes a time as in 2030-01-31T12:00:00Z, or "forever"; returns text. */
static const char *format_end(int64_t left_s, char *text, size_t len)
{
	time_t end = time(NULL) + (time_t)left_s;
	struct tm tm;

	if (left_s < 0 || !gmtime_r(&end, &tm) ||
	    strftime(text, len, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		snprintf(text, len, "forever");
	return text;
}

static void add_row(cJSON *array, const struct addr_row *row)
{
	char text[NET_ADDR_TEXT_MAX], addr[NET_ADDR_TEXT_MAX + 8], end[32];
	cJSON *to = cJSON_CreateObject();

	snprintf(addr, sizeof(addr), "%s/%u", net_ip_format(&row->addr, text),
		 row->addr.prefix_len);
	cJSON_AddStringToObject(to, "address", addr);
	net_control_number(to, "link", row->link);
	cJSON_AddStringToObject(to, "state", row->state);
	if (row->leased)
		cJSON_AddStringToObject(
			to, "leased_until",
			format_end(row->left_s, end, sizeof(end)));
	cJSON_AddItemToArray(array, to);
}

/* Shard 0 detects duplicates; the addresses are those of every shard. */
static cJSON *list_addrs(const char *params)
{
	struct net_ask *ask = net_ask_new(addrs_step, sizeof(struct addrs));
	const struct addrs *addrs;
	cJSON *all, *array;
	int err;

	if (!ask)
		return NULL;
	err = net_ask_run(ask, 0);
	if (err < 0) {
		net_ask_put(ask);
		return net_control_ask_error(0, err);
	}
	addrs = (const void *)ask->data;
	all = cJSON_CreateObject();
	array = cJSON_AddArrayToObject(all, "addrs");
	for (unsigned i = 0; i < addrs->n; i++)
		add_row(array, &addrs->rows[i]);
	net_ask_put(ask);
	return all;
}

const struct net_command net_addr_commands[] = {
	{"/coronet/addr", "Addresses of the stack", list_addrs},
	{"/coronet/addr.add",
	 "Adds an address. Parameters: ADDRESS/BITS[,LINK], LINK from 1",
	 add_addr},
	{"/coronet/addr.del",
	 "Removes an address; its connections stay. Parameters: as for "
	 "addr.add",
	 remove_addr},
	{0},
};
