/*
 * UDP: joining and leaving groups.
 */
#include "netstack/api/api.h"

/* The addresses of a membership; source is NULL or points to from. */
struct membership {
	ip_addr_t group, from;
	const ip_addr_t *source;
};

/* Checks the arguments of joining and leaving. Returns 0 or an error. */
static int read_membership(const struct net_udp *udp,
			   const struct net_addr *group,
			   const struct net_addr *source,
			   struct membership *out)
{
	int err = net_udp_enter(udp);

	if (err < 0)
		return err;
	if (!group || !group->family)
		return -EINVAL;
	net_addr_to_lwip(group, &out->group);
	if (!ip_addr_ismulticast(&out->group))
		return -EINVAL;
	out->source = NULL;
	if (!source || !source->family)
		return 0;
	if (source->family != group->family)
		return -EINVAL;
	net_addr_to_lwip(source, &out->from);
	if (ip_addr_isany_val(out->from) || ip_addr_ismulticast(&out->from))
		return -EINVAL;
	out->source = &out->from;
	return 0;
}

/* The address that names the link, of the call or of the socket; or NULL. */
static const struct net_addr *name_link(const struct net_udp *udp,
					const struct net_addr *local,
					unsigned family)
{
	if (local && local->family)
		return local;
	return udp->group_local.family == family ? &udp->group_local : NULL;
}

/* The link's number, or -EADDRNOTAVAIL. local: NULL: where the group is. */
static int find_link(const struct net_addr *local, const ip_addr_t *group)
{
	const struct net_ifaddr *own;
	ip_addr_t ip;

	if (local) {
		net_addr_to_lwip(local, &ip);
		own = IP_GET_TYPE(&ip) == IP_GET_TYPE(group)
			      ? net_ifaddr_named(&ip)
			      : NULL;
	} else {
		own = net_group_source(group);
	}
	if (!own)
		return -EADDRNOTAVAIL;
	return (int)((struct net_port *)own->netif->state - net_here()->ports);
}

int net_udp_join(struct net_udp *udp, const struct net_addr *group,
		 const struct net_addr *local, const struct net_addr *source)
{
	struct membership m;
	int link, err;

	NET_CHECK_UDP(udp);
	err = read_membership(udp, group, source, &m);
	if (err < 0)
		return err;
	link = find_link(name_link(udp, local, group->family), &m.group);
	return link < 0 ? link
			: net_udp_group_join(udp, (unsigned)link, &m.group,
					     m.source);
}

int net_udp_leave(struct net_udp *udp, const struct net_addr *group,
		  const struct net_addr *local, const struct net_addr *source)
{
	const struct net_addr *named;
	struct membership m;
	int link, err;

	NET_CHECK_UDP(udp);
	err = read_membership(udp, group, source, &m);
	if (err < 0)
		return err;
	named = name_link(udp, local, group->family);
	link = named ? find_link(named, &m.group) : NET_UDP_ANY_LINK;
	return link == -EADDRNOTAVAIL
		       ? link
		       : net_udp_group_leave(udp, link, &m.group, m.source);
}
