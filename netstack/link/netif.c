/*
 * Interfaces: opens the ports and sets the addresses.
 *
 * lwIP's netif has one IPv4 address, so each address of a link is a netif of
 * its own; IPv6 addresses live on a link's first netif.
 */
#include "netstack/link/link_priv.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/ip.h"
#include "lwip/mld6.h"
#include "lwip/nd6.h"
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
	ip4_addr_t ip = {0}, mask = {0}, gateway = {0};

	if (addr) {
		memcpy(&ip.addr, addr->ip, 4);
		mask.addr = lwip_htonl(~UINT32_C(0) << (32 - addr->prefix_len));
		if (ip4_addr_net_eq(&net_here()->gateway4, &ip, &mask))
			gateway = net_here()->gateway4;
	}
	if (!netif_add(netif, &ip, &mask, &gateway, port, init_netif,
		       ethernet_input))
		return NULL;
	netif_set_up(netif);
	netif_set_link_up(netif);
	if (!netif_default || !ip4_addr_isany_val(gateway))
		netif_set_default(netif);
	net_here()->n_netifs++;
	port->n_netifs++;
	return netif;
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
	return 0;
}

/*
 * Adds the addresses of one link, which is up without any, too. A link without
 * an IPv6 address has no link-local address either, and ignores IPv6.
 */
static int add_addrs(struct net_port *port, struct net_opts *opts)
{
	size_t link = (size_t)(port - net_here()->ports);

	for (unsigned i = 0; i < opts->n_addrs; i++)
		port->has_ip6 |= opts->addr_links[i] == link &&
				 opts->addrs[i].family == 6;
	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (opts->addr_links[i] == link && opts->addrs[i].family == 4) {
			struct netif *netif = add_netif(port, &opts->addrs[i]);

			if (!netif)
				return -ENOMEM;
			if (!port->netif0)
				port->netif0 = netif;
		}
	if (!port->netif0)
		port->netif0 = add_netif(port, NULL);
	if (!port->netif0)
		return -ENOMEM;
	if (!port->has_ip6)
		return 0;
	netif_create_ip6_linklocal_address(port->netif0, 1);
	netif_ip6_addr_set_state(port->netif0, 0, IP6_ADDR_PREFERRED);
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

int net_link_open(struct net_opts *opts)
{
	struct glue_port_conf conf = {.mtu = opts->mtu,
				      .shard = net_here()->shard};
	int err;

	lwip_init();
	net_here()->pmtud_off = opts->pmtud_off;
	net_here()->predicts = !opts->predict_off;
	net_here()->timestamps_off = opts->timestamps_off;
	net_here()->ecn = (uint8_t)opts->ecn;
	net_rcv_wnd_init(opts->rmem_max ? opts->rmem_max : NET_RMEM_MAX);
	net_here()->wmem_max =
		opts->wmem_max ? (uint32_t)opts->wmem_max : NET_WMEM_MAX;
	if (opts->gateway4.family)
		memcpy(&net_here()->gateway4.addr, opts->gateway4.ip, 4);
	if (opts->gateway6.family) {
		memcpy(net_here()->gateway6.addr, opts->gateway6.ip, 16);
		net_here()->has_gateway6 = true;
	}
	for (unsigned i = 0; i < opts->n_links; i++) {
		struct net_port *port = &net_here()->ports[i];

		err = glue_port_open(i, &conf, &port->glue, opts->error,
				     sizeof(opts->error));
		if (err < 0)
			return err;
		net_here()->n_ports++;
		port->frames_to_hold = glue_port_frames_spare(port->glue);
		net_here()->ooseq_max += port->frames_to_hold / 2;
		err = add_addrs(port, opts);
		if (err == 0)
			err = net_exception_open(i, opts);
		if (err < 0)
			return err;
	}
	return 0;
}

void net_link_close(void)
{
	net_loop_close();
	while (net_here()->n_netifs)
		netif_remove(&net_here()->netifs[--net_here()->n_netifs]);
	net_exception_close();
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		glue_tx_drop(net_here()->ports[i].glue);
	net_extbufs_close(); /* received frames go back to their pools */
	net_views_free();
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		glue_port_close(net_here()->ports[i].glue);
	net_here()->n_ports = 0;
}

static NET_SHARD_VAR bool logged_untrusted;
#define logged_untrusted NET_SHARD(logged_untrusted)

/* Logged once, since nothing else shows why no connection is made. */
static void log_untrusted(void)
{
	for (unsigned i = 0; !logged_untrusted && i < net_here()->n_ports;
	     i++) {
		uint64_t n = glue_port_untrusted(net_here()->ports[i].glue);

		if (!n)
			continue;
		logged_untrusted = true;
		net_log_of(
			NET_COMPONENT_LINK, NET_LOG_WARNING,
			"coronet: link %u: the peer leaves checksums of TCP "
			"and UDP to its NIC, which a virtual link has not: "
			"frames are dropped. 'ethtool -K IFACE tx off' on its "
			"interface helps, or csum=trust with this --link",
			i + 1);
	}
}

void net_link_tick(void)
{
	struct net_stack *stack = net_here();

	if (stack->now_ns < stack->next_100ms_ns)
		return;
	stack->next_100ms_ns = stack->now_ns + 100 * INT64_C(1000000);
	mld6_tmr();
	if (stack->now_ns < stack->next_1s_ns)
		return;
	stack->next_1s_ns = stack->now_ns + INT64_C(1000000000);
	log_untrusted();
	etharp_tmr();
	net_neighbour_probe();
	nd6_tmr();
}
