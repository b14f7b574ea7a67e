/*
 * Groups on the link: which messages of IGMP and MLD lwIP may see, and which
 * datagrams go to a group.
 *
 * dpdk_glue has checked what a message alone shows: its length, its TTL or hop
 * limit of 1, the router alert, that it goes to a group. Here its source must
 * be a neighbour (RFC 2236 10), and a shard accepts 100 messages a second.
 * Queries do not add up: a group has one timer, which lwIP runs ten times a
 * second, so a flood makes it send ten reports a second at most.
 *
 * Each shard reports its own groups, as if it were a host of its own: all get
 * the messages.
 */
#include "netstack/link/link_priv.h"
#include "netstack/shard_var.h"

#include <string.h>

#include "lwip/igmp.h"
#include "lwip/ip.h"
#include "lwip/mld6.h"
#include "lwip/prot/igmp.h"

#define MESSAGES_A_SECOND 100

static NET_SHARD_VAR int64_t message_due_ns; /* when one more may be seen */
#define message_due_ns NET_SHARD(message_due_ns)

/* Is the source of a message of IGMP a neighbour, or a switch (RFC 4541)? */
static bool source_ok(const struct net_port *port, const uint8_t *ip,
		      const uint8_t *igmp)
{
	ip_addr_t src;
	uint32_t ip4;

	memcpy(&ip4, ip + 12, sizeof(ip4));
	if (ip4 == 0)
		return igmp[0] == IGMP_MEMB_QUERY;
	ip_addr_set_ip4_u32_val(src, ip4);
	return !net_loop_owns4(ip4) && net_route_on_link(port, &src);
}

bool net_group_message(const struct net_port *port,
		       const struct glue_frame *frame)
{
	const uint8_t *ip = frame->data + frame->l3_off;
	ip6_addr_t src = {0};

	if (frame->flags & GLUE_FRAME_IP6) {
		memcpy(src.addr, ip + 8, sizeof(src.addr));
		if (net_netif_owns6(port->netif0, &src))
			return false;
	} else if (!source_ok(port, ip, frame->data + frame->l4_off)) {
		return false;
	}
	if (!net_rate_take(&message_due_ns, net_here()->now_ns,
			   1000000000 / MESSAGES_A_SECOND, 1000000000))
		return false;
	if (net_here()->shard == 0)
		net_neighbour_share(port, frame);
	return true;
}

bool net_group_is_dest(const uint8_t *ip)
{
	return ip[0] >> 4 == 6 ? ip[24] == 0xff : ip[16] >> 4 == 0xe;
}

const struct net_ifaddr *net_group_source(const ip_addr_t *group)
{
	struct net_hop hop = {.ip = *group};

	if (net_route_find(NULL, group, &hop) == 0)
		return net_route_source(&hop, group);
	for (unsigned i = 0; i < net_here()->n_addrs && !hop.near; i++)
		if (net_here()->addrs[i].active &&
		    !!IP_IS_V6(&net_here()->addrs[i].ip) == !!IP_IS_V6(group))
			hop.near = &net_here()->addrs[i];
	return hop.near ? net_route_source(&hop, group) : NULL;
}

void net_group_announce(const struct net_port *port)
{
	igmp_report_groups(port->netif0);
	mld6_report_groups(port->netif0);
}
