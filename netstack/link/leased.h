/*
 * Addresses that DHCP has leased or SLAAC has formed, and name servers, for the
 * folders above link/.
 */
#pragma once

#include "netstack/state.h"

/*
 * Returns whether an entry of net_opts.addrs stands for addresses that the
 * network assigns: 0.0.0.0/0 for that of DHCP, ::/0 for those of SLAAC.
 */
static inline bool net_addr_is_leased(const struct net_addr *addr)
{
	return addr->family && addr->prefix_len == 0;
}

static inline bool net_addr_is_dhcp(const struct net_addr *addr)
{
	return addr->family == 4 && net_addr_is_leased(addr);
}

static inline bool net_addr_is_auto(const struct net_addr *addr)
{
	return addr->family == 6 && net_addr_is_leased(addr);
}

/* The links that have an entry of this kind, a bit each. */
static inline uint8_t
net_leased_links(const struct net_opts *opts,
		 bool (*is_kind)(const struct net_addr *addr))
{
	unsigned links = 0;

	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (is_kind(&opts->addrs[i]))
			links |= 1u << opts->addr_links[i];
	return (uint8_t)links;
}

/* ---- dhcp.c ---- */
/*
 * On shard 0: whether an address of a link is leased now, and for how many
 * seconds more: *left_s, or -1 without an end.
 */
bool net_dhcp_lease_of(const struct net_port *port, const ip_addr_t *ip,
		       int64_t *left_s);

/* ---- dhcp_lease.c ---- */
/*
 * Fills in the name servers of this shard's leases, then those that routers
 * have advertised. Returns how many; *turn is a version that changes with them.
 */
unsigned net_leased_servers(struct net_addr out[NET_MAX_RESOLVERS],
			    unsigned *turn);

/* ---- slaac.c ---- */
/* net_dhcp_lease_of() for addresses of SLAAC; on shard 0. */
bool net_slaac_lease_of(const struct net_port *port, const ip_addr_t *ip,
			int64_t *left_s);

/* An address of SLAAC that the stack does not use. */
struct net_slaac_unused {
	unsigned link;	/* index */
	bool tentative; /* it is being probed; else: another host has it */
	struct net_addr addr; /* with prefix_len */
};
#define NET_SLAAC_ADDRS	 5u /* for each link: a link-local one, and others */
#define NET_SLAAC_UNUSED (NET_SLAAC_ADDRS * NET_MAX_LINKS)

/* On shard 0: fills in such addresses of all links. Returns how many. */
unsigned net_slaac_unused(struct net_slaac_unused out[NET_SLAAC_UNUSED]);
