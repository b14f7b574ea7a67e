/*
 * What DHCP has leased, for the folders above link/.
 */
#pragma once

#include "netstack/state.h"

/*
 * Whether an entry of net_opts.addrs stands for an address that is leased:
 * 0.0.0.0/0.
 */
static inline bool net_addr_is_leased(const struct net_addr *addr)
{
	return addr->family == 4 && addr->prefix_len == 0;
}

/* ---- dhcp.c ---- */
/*
 * On shard 0: whether an address of a link is leased now. *left_s: for how many
 * seconds; -1: without an end.
 */
bool net_dhcp_lease_of(const struct net_port *port, const ip_addr_t *ip,
		       int64_t *left_s);

/* ---- dhcp_lease.c ---- */
/*
 * The name servers of this shard's leases. Returns how many; *turn changes
 * whenever they may have changed.
 */
unsigned net_leased_servers(struct net_addr out[NET_MAX_RESOLVERS],
			    unsigned *turn);
