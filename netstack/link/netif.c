/*
 * Links: opens and closes them, and runs lwIP's timers for neighbours.
 */
#include "netstack/link/dhcp.h"
#include "netstack/link/slaac.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lwip/etharp.h"
#include "lwip/igmp.h"
#include "lwip/init.h"
#include "lwip/ip.h"
#include "lwip/mld6.h"
#include "lwip/nd6.h"
#include "netif/ethernet.h"

int net_link_open(struct net_opts *opts)
{
	struct glue_port_conf conf = {.mtu = opts->mtu,
				      .shard = net_here()->shard};
	int err;

	lwip_init();
	net_loop_shards_open();
	net_here()->pmtud_off = opts->pmtud_off;
	net_here()->dad_off = opts->dad_off;
	net_here()->predicts = !opts->predict_off;
	net_here()->timestamps_off = opts->timestamps_off;
	net_here()->ecn = (uint8_t)opts->ecn;
	net_rcv_wnd_init(opts->rmem_max ? opts->rmem_max : NET_RMEM_MAX);
	net_here()->wmem_max =
		opts->wmem_max ? (uint32_t)opts->wmem_max : NET_WMEM_MAX;
	for (unsigned i = 0; i < opts->n_links; i++) {
		struct net_port *port = &net_here()->ports[i];

		err = glue_port_open(i, &conf, &port->glue, opts->error,
				     sizeof(opts->error));
		if (err < 0)
			return err;
		net_here()->n_ports++;
		port->frames_to_hold = glue_port_frames_spare(port->glue);
		net_here()->ooseq_max += port->frames_to_hold / 2;
		err = net_ifaddrs_open(port, opts);
		if (err == 0)
			err = net_exception_open(i, opts);
		if (err < 0)
			return err;
	}
	err = net_routes_open(opts);
	if (err == 0)
		err = net_dhcp_open(opts);
	return err == 0 ? net_slaac_open(opts) : err;
}

void net_link_close(void)
{
	net_loop_close();
	net_dhcp_close();
	net_slaac_close();
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
		net_log_of(NET_COMPONENT_LINK, NET_LOG_WARNING,
			   "coronet: link %u: the peer leaves the checksums of "
			   "TCP and UDP to its NIC, but a virtual link has "
			   "none: its frames are dropped. Use 'ethtool -K "
			   "IFACE tx off' on the peer's interface, or "
			   "csum=trust with this --link",
			   i + 1);
	}
}

void net_link_tick(void)
{
	struct net_stack *stack = net_here();

	if (stack->now_ns < stack->next_100ms_ns)
		return;
	if (stack->next_100ms_ns == 0)
		net_announce_start();
	stack->next_100ms_ns = stack->now_ns + 100 * INT64_C(1000000);
	igmp_tmr();
	mld6_tmr();
	net_announce_tick();
	net_dhcp_tick();
	net_slaac_tick();
	if (stack->now_ns < stack->next_1s_ns)
		return;
	stack->next_1s_ns = stack->now_ns + INT64_C(1000000000);
	log_untrusted();
	etharp_tmr();
	net_neighbour_probe();
	nd6_tmr();
}
