/*
 * The stack's addresses: opening, adding and removing them.
 *
 * lwIP's netif has one IPv4 address, so each address of a link is a netif of
 * its own; IPv6 addresses live on a link's first netif. The table of addresses
 * is what the stack itself uses. Its entries stay: a record of a handshake or
 * of TIME_WAIT holds an entry's index. An address that was removed is inactive:
 * its connections stay, and nothing is sent from it. Its netif is free for
 * another address at once, and its entry after a minute.
 */
#include "netstack/link/leased.h"
#include "netstack/link/link_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lwip/etharp.h"
#include "netif/ethernet.h"

#define REUSE_NS INT64_C(60000000000) /* no record is as old */

static err_t init_netif(struct netif *netif)
{
	netif->name[0] = 'c';
	netif->name[1] = 'n';
	netif->output = net_neighbour_output4;
	netif->output_ip6 = net_neighbour_output6;
	netif->linkoutput = net_link_output;
	netif->mtu = (uint16_t)net_here()->mtu;
	netif->hwaddr_len = 6;
	memcpy(netif->hwaddr, glue_port_mac(net_port_of(netif)->glue), 6);
	/* Up from the beginning: announce.c announces, and not lwIP. */
	netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP |
		       NETIF_FLAG_ETHERNET | NETIF_FLAG_UP |
		       NETIF_FLAG_LINK_UP | NETIF_FLAG_MLD6;
	if (!net_port_of(netif)->netif0)
		netif->flags |= NETIF_FLAG_IGMP; /* the first has the groups */
	return ERR_OK;
}

/*
 * An interface without an IPv4 address: the link's, or with port NULL one that
 * its link can do without. The first of a link only if may_be_first.
 */
static struct netif *find_unused(const struct net_port *port, bool may_be_first)
{
	for (unsigned i = 0; i < net_here()->n_netifs; i++) {
		struct netif *netif = &net_here()->netifs[i];
		const struct net_port *its = net_port_of(netif);

		if (ip4_addr_isany_val(*netif_ip4_addr(netif)) &&
		    (!port || its == port) &&
		    (may_be_first || netif != its->netif0))
			return netif;
	}
	return NULL;
}

static struct netif *add_netif(struct net_port *port)
{
	struct netif *netif = &net_here()->netifs[net_here()->n_netifs];

	if (net_here()->n_netifs < NET_IFADDRS)
		net_here()->n_netifs++;
	else if ((netif = find_unused(NULL, false)))
		netif_remove(netif);
	else
		return NULL;
	if (!netif_add(netif, NULL, NULL, NULL, port, init_netif,
		       ethernet_input))
		return NULL;
	if (!netif_default)
		netif_set_default(netif);
	if (!port->netif0)
		port->netif0 = netif;
	return netif;
}

/* ---- IPv4 ---- */

/* lwIP's calls would announce the address on every shard. */
static void set_ip4(struct netif *netif, uint32_t ip, unsigned prefix_len)
{
	ip_addr_set_ip4_u32_val(netif->ip_addr, ip);
	ip_addr_set_ip4_u32_val(
		netif->netmask,
		ip ? lwip_htonl(~UINT32_C(0) << (32 - prefix_len)) : 0);
}

/*
 * The fast paths take frames to the address of a link's first interface, so a
 * loopback address gets another one.
 */
static int enable_ip4(struct net_port *port, struct net_ifaddr *addr)
{
	bool is_loopback = ip_addr_isloopback(&addr->ip);
	struct netif *netif;

	if (is_loopback && !port->netif0 && !add_netif(port))
		return -ENOSPC;
	netif = find_unused(port, !is_loopback);
	if (!netif)
		netif = add_netif(port);
	if (!netif)
		return -ENOSPC;
	addr->netif = netif;
	set_ip4(netif, ip_2_ip4(&addr->ip)->addr,
		is_loopback ? 32 : addr->prefix_len);
	return 0;
}

/* Forgets neighbours: their entries have headers from the address. */
static void disable_ip4(struct net_ifaddr *addr)
{
	set_ip4(addr->netif, 0, 0);
	etharp_cleanup_netif(addr->netif);
	for (unsigned i = 0; i < NET_NEIGHBOURS; i++)
		if (net_here()->neighbours[i].netif == addr->netif)
			net_here()->neighbours[i].ip = 0;
	addr->netif = net_port_of(addr->netif)->netif0;
}

/* ---- IPv6 ---- */

static int enable_ip6(const struct net_ifaddr *addr)
{
	int8_t index = -1;

	if (netif_add_ip6_address(addr->netif, ip_2_ip6(&addr->ip), &index) !=
		    ERR_OK ||
	    index < 0)
		return -ENOSPC;
	netif_ip6_addr_set_state(addr->netif, index, IP6_ADDR_PREFERRED);
	if (ip_addr_isloopback(&addr->ip))
		net_here()->checks_dest6 = true;
	return 0;
}

static void disable_ip6(struct net_ifaddr *addr)
{
	int8_t index =
		netif_get_ip6_addr_match(addr->netif, ip_2_ip6(&addr->ip));

	if (index >= 0)
		netif_ip6_addr_set_state(addr->netif, index, IP6_ADDR_INVALID);
}

/* ---- the table ---- */

struct net_ifaddr *net_ifaddr_on(const struct net_port *port,
				 const ip_addr_t *ip)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		struct net_ifaddr *addr = &net_here()->addrs[i];

		if (net_port_of(addr->netif) == port &&
		    ip_addr_eq(&addr->ip, ip))
			return addr;
	}
	return NULL;
}

/* Records live by a clock that leaves out the pauses of the process. */
static int64_t records_ns(void)
{
	return net_here()->now_ns - net_here()->paused_ns;
}

/* A new entry, or the one that was removed first, if no record has it. */
static struct net_ifaddr *free_entry(void)
{
	struct net_ifaddr *found = NULL;

	if (net_here()->n_addrs < NET_IFADDRS)
		return &net_here()->addrs[net_here()->n_addrs];
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		struct net_ifaddr *addr = &net_here()->addrs[i];

		if (!addr->active && !addr->duplicate &&
		    addr->removed_ns + REUSE_NS < records_ns() &&
		    (!found || addr->removed_ns < found->removed_ns))
			found = addr;
	}
	return found;
}

static int enable_addr(struct net_port *port, const ip_addr_t *ip,
		       unsigned prefix_len, enum net_addr_origin origin)
{
	struct net_ifaddr *entry = net_ifaddr_on(port, ip);
	struct net_ifaddr addr = {.ip = *ip,
				  .prefix_len = (uint8_t)prefix_len,
				  .active = true,
				  .netif = port->netif0};
	int err;

	if (!entry)
		entry = free_entry();
	if (!entry)
		return -ENOSPC;
	err = IP_IS_V6(ip) ? enable_ip6(&addr) : enable_ip4(port, &addr);
	if (err < 0)
		return err;
	*entry = addr;
	if (entry == &net_here()->addrs[net_here()->n_addrs])
		net_here()->n_addrs++;
	net_announce_begin(entry, origin);
	return 0;
}

static void read_ip(const struct net_port *port, const struct net_addr *addr,
		    ip_addr_t *out)
{
	net_addr_to_lwip(addr, out);
	if (IP_IS_V6(out))
		ip6_addr_assign_zone(ip_2_ip6(out), IP6_UNICAST, port->netif0);
}

/*
 * A link has a link-local address, from its MAC (RFC 4291 2.5.6), as soon as it
 * has another one of IPv6.
 */
static int open_ip6(struct net_port *port, enum net_addr_origin origin)
{
	const uint8_t *mac = port->netif0->hwaddr;
	struct net_addr addr = {.family = 6, .ip = {0xfe, 0x80}};
	ip_addr_t ip;
	int err;

	if (port->has_ip6)
		return 0;
	memcpy(addr.ip + 8, mac, 3);
	addr.ip[8] ^= 2;
	addr.ip[11] = 0xff;
	addr.ip[12] = 0xfe;
	memcpy(addr.ip + 13, mac + 3, 3);
	read_ip(port, &addr, &ip);
	err = enable_addr(port, &ip, 64, origin);
	port->has_ip6 = err == 0;
	return err;
}

static int add_addr(struct net_port *port, const struct net_addr *addr,
		    enum net_addr_origin origin)
{
	ip_addr_t ip;
	int err;

	if (!port->netif0 && addr->family == 6 && !add_netif(port))
		return -ENOSPC;
	read_ip(port, addr, &ip);
	if (net_ifaddr_of(&ip))
		return -EEXIST;
	err = addr->family == 6 && !ip_addr_isloopback(&ip)
		      ? open_ip6(port, origin)
		      : 0;
	return err == 0 ? enable_addr(port, &ip, addr->prefix_len, origin)
			: err;
}

int net_ifaddr_add(struct net_port *port, const struct net_addr *addr)
{
	int err = add_addr(port, addr, NET_ADDR_MOVED);

	if (err == 0)
		net_here()->addr_returned = net_here()->addrs_removed;
	return err;
}

int net_ifaddr_add_probed(struct net_port *port, const struct net_addr *addr)
{
	ip_addr_t ip;
	int err;

	read_ip(port, addr, &ip);
	if (net_ifaddr_of(&ip))
		return -EEXIST;
	err = enable_addr(port, &ip, addr->prefix_len, NET_ADDR_PROBED);
	if (err < 0)
		return err;
	port->has_ip6 |= ip6_addr_islinklocal(ip_2_ip6(&ip));
	net_here()->addr_returned = net_here()->addrs_removed;
	return 0;
}

void net_ifaddr_disable(struct net_ifaddr *addr, bool duplicate)
{
	addr->active = false;
	addr->duplicate = duplicate;
	addr->to_announce = 0;
	addr->removed_ns = records_ns();
	net_here()->addrs_removed = true;
	net_here()->checks_dest6 = true;
	if (IP_IS_V6(&addr->ip))
		disable_ip6(addr);
	else
		disable_ip4(addr);
	/* Destinations may have other routes now. */
	for (unsigned i = 0; i < NET_ASKED6; i++)
		net_asked.ip6[i].until_ns = 0;
}

int net_ifaddr_remove(struct net_port *port, const struct net_addr *addr)
{
	struct net_ifaddr *own;
	ip_addr_t ip;

	read_ip(port, addr, &ip);
	own = net_ifaddr_on(port, &ip);
	if (!own || (!own->active && !own->duplicate) ||
	    own->prefix_len != addr->prefix_len)
		return -EADDRNOTAVAIL;
	if (own->active)
		net_ifaddr_disable(own, false);
	own->duplicate = false;
	own->to_announce = 0;
	return 0;
}

/*
 * A link is up without an address, too. Without one of IPv6 it has no
 * link-local address either, and ignores IPv6.
 */
int net_ifaddrs_open(struct net_port *port, struct net_opts *opts)
{
	size_t link = (size_t)(port - net_here()->ports);
	int err = 0;

	/* The fast paths are for a link's first netif: IPv4 gets it. */
	for (unsigned family = 4; family <= 6; family += 2)
		for (unsigned i = 0; err == 0 && i < opts->n_addrs; i++)
			if (opts->addr_links[i] == link &&
			    opts->addrs[i].family == family &&
			    !net_addr_is_leased(&opts->addrs[i]))
				err = add_addr(port, &opts->addrs[i],
					       NET_ADDR_OPENED);
	if (err == -EEXIST)
		snprintf(opts->error, sizeof(opts->error),
			 "--addr: an address is given twice");
	else if (err < 0)
		snprintf(opts->error, sizeof(opts->error),
			 "--addr: more than %d IPv6 addresses",
			 LWIP_IPV6_NUM_ADDRESSES - 1);
	if (err < 0)
		return -EINVAL;
	return port->netif0 || add_netif(port) ? 0 : -ENOMEM;
}
