/*
 * The stack's addresses.
 *
 * lwIP's netif has one IPv4 address, so each address of a link is a netif of
 * its own; IPv6 addresses live on a link's first netif. The table of addresses
 * is what the stack itself uses: a record of a handshake or of TIME_WAIT holds
 * an entry's index.
 */
#include "netstack/link/link_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lwip/etharp.h"
#include "netif/ethernet.h"

static err_t init_netif(struct netif *netif)
{
	netif->name[0] = 'c';
	netif->name[1] = 'n';
	netif->output = net_neighbour_output4;
	netif->output_ip6 = net_neighbour_output6;
	netif->linkoutput = net_link_output;
	netif->mtu = (u16_t)net_here()->mtu;
	netif->hwaddr_len = 6;
	memcpy(netif->hwaddr, glue_port_mac(net_port_of(netif)->glue), 6);
	netif->flags =
		NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
	if (net_port_of(netif)->has_ip6)
		netif->flags |= NETIF_FLAG_MLD6;
	return ERR_OK;
}

static struct netif *add_netif(struct net_port *port,
			       const struct net_addr *addr)
{
	struct netif *netif = &net_here()->netifs[net_here()->n_netifs];
	ip4_addr_t ip = {0}, mask = {0};

	if (addr) {
		memcpy(&ip.addr, addr->ip, 4);
		mask.addr = lwip_htonl(~UINT32_C(0) << (32 - addr->prefix_len));
	}
	if (!netif_add(netif, &ip, &mask, NULL, port, init_netif,
		       ethernet_input))
		return NULL;
	netif_set_up(netif);
	netif_set_link_up(netif);
	if (!netif_default)
		netif_set_default(netif);
	net_here()->n_netifs++;
	return netif;
}

static void note_addr(struct netif *netif, const ip_addr_t *ip,
		      uint8_t prefix_len)
{
	net_here()->addrs[net_here()->n_addrs++] =
		(struct net_ifaddr){.ip = *ip,
				    .prefix_len = prefix_len,
				    .active = true,
				    .netif = netif};
}

static int add_ip4(struct net_port *port, const struct net_addr *addr)
{
	struct netif *netif = add_netif(port, addr);

	if (!netif)
		return -ENOMEM;
	if (!port->netif0)
		port->netif0 = netif;
	note_addr(netif, &netif->ip_addr, addr->prefix_len);
	return 0;
}

static int add_ip6(struct net_port *port, const struct net_addr *addr)
{
	ip6_addr_t ip = {0};
	s8_t index = -1;

	memcpy(ip.addr, addr->ip, 16);
	ip6_addr_assign_zone(&ip, IP6_UNICAST, port->netif0);
	if (netif_add_ip6_address(port->netif0, &ip, &index) != ERR_OK ||
	    index < 0)
		return -ENOSPC;
	netif_ip6_addr_set_state(port->netif0, index, IP6_ADDR_PREFERRED);
	note_addr(port->netif0, netif_ip_addr6(port->netif0, index),
		  addr->prefix_len);
	return 0;
}

/*
 * Adds the addresses of one link, which is up without any, too. A link without
 * an IPv6 address has no link-local address either, and ignores IPv6.
 */
int net_ifaddrs_open(struct net_port *port, struct net_opts *opts)
{
	size_t link = (size_t)(port - net_here()->ports);

	for (unsigned i = 0; i < opts->n_addrs; i++)
		port->has_ip6 |= opts->addr_links[i] == link &&
				 opts->addrs[i].family == 6;
	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (opts->addr_links[i] == link && opts->addrs[i].family == 4 &&
		    add_ip4(port, &opts->addrs[i]) < 0)
			return -ENOMEM;
	if (!port->netif0)
		port->netif0 = add_netif(port, NULL);
	if (!port->netif0)
		return -ENOMEM;
	if (!port->has_ip6)
		return 0;
	netif_create_ip6_linklocal_address(port->netif0, 1);
	netif_ip6_addr_set_state(port->netif0, 0, IP6_ADDR_PREFERRED);
	note_addr(port->netif0, netif_ip_addr6(port->netif0, 0), 64);
	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (opts->addr_links[i] == link && opts->addrs[i].family == 6 &&
		    add_ip6(port, &opts->addrs[i]) < 0) {
			snprintf(opts->error, sizeof(opts->error),
				 "--addr: more than %d IPv6 addresses",
				 LWIP_IPV6_NUM_ADDRESSES - 1);
			return -EINVAL;
		}
	return 0;
}
