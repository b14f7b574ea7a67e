/*
 * Groups: which sockets have joined which group on which link.
 *
 * lwIP's igmp.c (RFC 2236) and mld6.c (RFC 2710) report the groups of a link,
 * and answer queries about them; link/group.c checks what they are shown. They
 * know a group once, however many sockets have joined it, because they search
 * their lists and count in eight bits. Datagrams find their group here, in a
 * hash.
 */
#include "netstack/udp/udp.h"

#include <errno.h>

#include "lwip/igmp.h"
#include "lwip/mld6.h"

static struct net_udp_group **bucket_of(unsigned link, const ip_addr_t *ip)
{
	ip_addr_t none = {.type = IP_GET_TYPE(ip)};

	return &net_udps.groups[net_demux_hash(ip, (uint16_t)link, &none, 0) %
				NET_UDP_GROUP_BUCKETS];
}

static bool is_same(const ip_addr_t *a, const ip_addr_t *b)
{
	if (IP_GET_TYPE(a) != IP_GET_TYPE(b))
		return false;
	return IP_IS_V6(a) ? ip6_addr_zoneless_eq(ip_2_ip6(a), ip_2_ip6(b))
			   : ip4_addr_eq(ip_2_ip4(a), ip_2_ip4(b));
}

struct net_udp_group *net_udp_group_find(unsigned link, const ip_addr_t *ip)
{
	struct net_udp_group *group;

	if (!net_udps.n_groups[link])
		return NULL;
	group = *bucket_of(link, ip);
	while (group && (group->link != link || !is_same(&group->ip, ip)))
		group = group->next;
	return group;
}

/*
 * Groups that are never reported: those of all hosts of a link (RFC 2236 6, RFC
 * 2710 5), and those that reach no link.
 */
static bool is_silent(const ip_addr_t *ip)
{
	if (IP_IS_V4(ip))
		return ip_2_ip4(ip)->addr == PP_HTONL(0xe0000001u);
	return ip6_addr_isallnodes_linklocal(ip_2_ip6(ip)) ||
	       ip6_addr_multicast_scope(ip_2_ip6(ip)) <=
		       IP6_MULTICAST_SCOPE_INTERFACE_LOCAL;
}

static bool report_group(const struct net_udp_group *group)
{
	struct netif *netif = net_here()->ports[group->link].netif0;

	if (is_silent(&group->ip))
		return true;
	if (!netif_igmp_data(netif) && igmp_start(netif) != ERR_OK)
		return false; /* lwIP's list begins with that of all hosts */
	return (IP_IS_V6_VAL(group->ip)
			? mld6_joingroup_netif(netif, ip_2_ip6(&group->ip))
			: igmp_joingroup_netif(netif, ip_2_ip4(&group->ip))) ==
	       ERR_OK;
}

static void report_end_of_group(const struct net_udp_group *group)
{
	struct netif *netif = net_here()->ports[group->link].netif0;

	if (is_silent(&group->ip))
		return;
	if (IP_IS_V6_VAL(group->ip))
		mld6_leavegroup_netif(netif, ip_2_ip6(&group->ip));
	else
		igmp_leavegroup_netif(netif, ip_2_ip4(&group->ip));
}

static struct net_udp_group *add_group(unsigned link, const ip_addr_t *ip)
{
	struct net_udp_group **bucket = bucket_of(link, ip);
	struct net_udp_group *group = net_mem_calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	group->link = (uint8_t)link;
	ip_addr_copy(group->ip, *ip);
	if (!report_group(group)) {
		net_mem_free(group);
		return NULL;
	}
	group->next = *bucket;
	*bucket = group;
	net_udps.n_groups[link]++;
	return group;
}

static void drop_group(struct net_udp_group *group)
{
	struct net_udp_group **at = bucket_of(group->link, &group->ip);

	while (*at != group)
		at = &(*at)->next;
	*at = group->next;
	net_udps.n_groups[group->link]--;
	report_end_of_group(group);
	net_mem_free(group);
}

/* Returns whether a new membership would repeat or contradict another one. */
static bool is_member(const struct net_udp *udp,
		      const struct net_udp_group *group,
		      const ip_addr_t *source)
{
	const struct net_udp_member *m;

	for (m = udp->members; m; m = m->udp_next)
		if (m->group == group &&
		    (!source || IP_IS_ANY_TYPE_VAL(m->source) ||
		     is_same(&m->source, source)))
			return true;
	return false;
}

static void add_member(struct net_udp_group *group, struct net_udp *udp,
		       struct net_udp_member *m, const ip_addr_t *source)
{
	m->group = group;
	m->udp = udp;
	m->source = source ? *source : (ip_addr_t)IPADDR_ANY_TYPE_INIT;
	m->delivered = net_udps.group_datagrams;
	m->next = group->members;
	group->members = m;
	group->n++;
	m->udp_next = udp->members;
	udp->members = m;
	udp->n_members++;
	net_udps.group_changes++;
}

int net_udp_group_join(struct net_udp *udp, unsigned link, const ip_addr_t *ip,
		       const ip_addr_t *source)
{
	struct net_udp_group *group = net_udp_group_find(link, ip);
	struct net_udp_member *m;

	if (group && is_member(udp, group, source))
		return -EADDRINUSE;
	if (udp->n_members >= NET_UDP_GROUPS_MAX ||
	    (group ? group->n >= NET_UDP_GROUP_MEMBERS
		   : net_udps.n_groups[link] >= NET_UDP_LINK_GROUPS))
		return -ENOBUFS;
	m = net_mem_calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	if (!group)
		group = add_group(link, ip);
	if (!group) {
		net_mem_free(m);
		return -ENOMEM;
	}
	add_member(group, udp, m, source);
	return 0;
}

/* Ends the membership that *at, in the socket's list, points to. */
static void end_member(struct net_udp *udp, struct net_udp_member **at)
{
	struct net_udp_member *m = *at, **in_group = &m->group->members;

	*at = m->udp_next;
	udp->n_members--;
	while (*in_group != m)
		in_group = &(*in_group)->next;
	*in_group = m->next;
	if (--m->group->n == 0)
		drop_group(m->group);
	net_mem_free(m);
	net_udps.group_changes++;
}

static bool is_membership(const struct net_udp_member *m, int link,
			  const ip_addr_t *ip, const ip_addr_t *source)
{
	if ((link != NET_UDP_ANY_LINK && m->group->link != link) ||
	    !is_same(&m->group->ip, ip))
		return false;
	return source ? is_same(&m->source, source)
		      : IP_IS_ANY_TYPE_VAL(m->source);
}

int net_udp_group_leave(struct net_udp *udp, int link, const ip_addr_t *ip,
			const ip_addr_t *source)
{
	struct net_udp_member **at = &udp->members;

	while (*at && !is_membership(*at, link, ip, source))
		at = &(*at)->udp_next;
	if (!*at)
		return -EADDRNOTAVAIL;
	end_member(udp, at);
	return 0;
}

void net_udp_group_leave_all(struct net_udp *udp)
{
	while (udp->members)
		end_member(udp, &udp->members);
}
