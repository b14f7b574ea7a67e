/*
 * Packs the addresses of a record, which is smaller than a connection: the
 * local one as an index into the table of addresses, the peer's without its
 * type.
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <string.h>

#define V6 (1u << (NET_LOCAL_BITS - 1))
static_assert(NET_IFADDRS <= V6, "an index holds an address's number");

bool net_local_index_of(const ip_addr_t *local, uint16_t *out)
{
	for (unsigned i = 0; i < net_here()->n_addrs; i++) {
		const struct net_ifaddr *addr = &net_here()->addrs[i];

		if (!addr->active || !ip_addr_eq(&addr->ip, local))
			continue;
		*out = (uint16_t)(i | (IP_IS_V6(local) ? V6 : 0));
		return true;
	}
	return false;
}

const ip_addr_t *net_local_index_ip(uint16_t local_index)
{
	return &net_here()->addrs[local_index & (V6 - 1)].ip;
}

void net_remote_pack(const ip_addr_t *ip, uint32_t words[4], uint8_t *zone)
{
	if (IP_IS_V6(ip)) {
		memcpy(words, ip_2_ip6(ip)->addr, 16);
		*zone = ip6_addr_zone(ip_2_ip6(ip));
	} else {
		words[0] = ip_2_ip4(ip)->addr;
		words[1] = words[2] = words[3] = 0;
		*zone = 0;
	}
}

ip_addr_t net_remote_unpack(const uint32_t words[4], uint16_t local_index,
			    uint8_t zone)
{
	ip_addr_t ip;

	if (local_index & V6) {
		memset(&ip, 0, sizeof(ip));
		memcpy(ip_2_ip6(&ip)->addr, words, 16);
		ip6_addr_set_zone(ip_2_ip6(&ip), zone);
		IP_SET_TYPE_VAL(ip, IPADDR_TYPE_V6);
	} else {
		ip_addr_set_ip4_u32_val(ip, words[0]);
	}
	return ip;
}
