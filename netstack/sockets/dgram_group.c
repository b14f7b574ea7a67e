/*
 * UDP: options of multicast groups (ip(7), ipv6(7), RFC 3678).
 *
 * A link of the stack is no interface of the kernel, so an address of the stack
 * names it, and numbers of interfaces are ignored, as in IP_PKTINFO.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <netinet/in.h>
#include <string.h>

/* A request: to join, or to leave; family 0: not said. */
struct request {
	bool leaves;
	struct net_addr group, local, source;
};

static void read_address4(struct in_addr from, struct net_addr *out)
{
	if (from.s_addr == INADDR_ANY)
		return;
	out->family = 4;
	memcpy(out->ip, &from, 4);
}

static long read_sockaddr(const struct sockaddr_storage *sa, int family,
			  struct net_addr *out)
{
	if (sa->ss_family != family)
		return -EADDRNOTAVAIL;
	return net_addr_from_sockaddr((const struct sockaddr *)sa, sizeof(*sa),
				      out);
}

/* struct ip_mreq, or struct ip_mreqn, which begins with the same fields. */
static long read_mreq(const void *value, socklen_t len, struct request *out)
{
	struct ip_mreq mreq;

	if (len < sizeof(mreq))
		return -EINVAL;
	memcpy(&mreq, value, sizeof(mreq));
	read_address4(mreq.imr_multiaddr, &out->group);
	read_address4(mreq.imr_interface, &out->local);
	return 0;
}

static long read_mreq_source(const void *value, socklen_t len,
			     struct request *out)
{
	struct ip_mreq_source mreq;

	if (len != sizeof(mreq))
		return -EINVAL;
	memcpy(&mreq, value, sizeof(mreq));
	read_address4(mreq.imr_multiaddr, &out->group);
	read_address4(mreq.imr_interface, &out->local);
	read_address4(mreq.imr_sourceaddr, &out->source);
	return out->source.family ? 0 : -EADDRNOTAVAIL;
}

static long read_mreq6(const void *value, socklen_t len, struct request *out)
{
	struct ipv6_mreq mreq;

	if (len < sizeof(mreq))
		return -EINVAL;
	memcpy(&mreq, value, sizeof(mreq));
	out->group.family = 6;
	memcpy(out->group.ip, &mreq.ipv6mr_multiaddr, 16);
	return 0;
}

static long read_group(const void *value, socklen_t len, int family,
		       struct request *out)
{
	struct group_req req;

	if (len < sizeof(req))
		return -EINVAL;
	memcpy(&req, value, sizeof(req));
	return read_sockaddr(&req.gr_group, family, &out->group);
}

static long read_source_group(const void *value, socklen_t len, int family,
			      struct request *out)
{
	struct group_source_req req;
	long err;

	if (len != sizeof(req))
		return -EINVAL;
	memcpy(&req, value, sizeof(req));
	err = read_sockaddr(&req.gsr_group, family, &out->group);
	return err < 0 ? err
		       : read_sockaddr(&req.gsr_source, family, &out->source);
}

static bool is_leave(int level, int name)
{
	if (name == MCAST_LEAVE_GROUP || name == MCAST_LEAVE_SOURCE_GROUP)
		return true;
	return level == IPPROTO_IPV6
		       ? name == IPV6_LEAVE_GROUP
		       : name == IP_DROP_MEMBERSHIP ||
				 name == IP_DROP_SOURCE_MEMBERSHIP;
}

static long read_request(int level, int name, const void *value, socklen_t len,
			 struct request *out)
{
	int family = level == IPPROTO_IP ? AF_INET : AF_INET6;

	out->leaves = is_leave(level, name);
	if (name == MCAST_JOIN_GROUP || name == MCAST_LEAVE_GROUP)
		return read_group(value, len, family, out);
	if (name == MCAST_JOIN_SOURCE_GROUP || name == MCAST_LEAVE_SOURCE_GROUP)
		return read_source_group(value, len, family, out);
	if (level == IPPROTO_IPV6)
		return name == IPV6_JOIN_GROUP || name == IPV6_LEAVE_GROUP
			       ? read_mreq6(value, len, out)
			       : -ENOPROTOOPT;
	switch (name) {
	case IP_ADD_MEMBERSHIP:
	case IP_DROP_MEMBERSHIP:
		return read_mreq(value, len, out);
	case IP_ADD_SOURCE_MEMBERSHIP:
	case IP_DROP_SOURCE_MEMBERSHIP:
		return read_mreq_source(value, len, out);
	default:
		return -ENOPROTOOPT;
	}
}

/* IP_MULTICAST_IF: an address, or a structure that has it second. */
static long set_link(struct net_sock *sock, const void *value, socklen_t len)
{
	struct net_addr local = {0};
	struct ip_mreq mreq;
	struct in_addr addr;

	if (len < sizeof(addr))
		return -EINVAL;
	memcpy(&addr, value, sizeof(addr));
	if (len >= sizeof(mreq)) {
		memcpy(&mreq, value, sizeof(mreq));
		addr = mreq.imr_interface;
	}
	read_address4(addr, &local);
	if (local.family && !net_is_local(net_stack_here(), &local))
		return -EADDRNOTAVAIL;
	sock->dgram->group_local = local;
	return 0;
}

static long join_or_leave(struct net_sock *sock, struct request *r)
{
	struct net_dgram *d = sock->dgram;
	long err = net_dgram_open(sock);

	if (err < 0)
		return err;
	if (!r->local.family && r->group.family == 4)
		r->local = d->group_local;
	if (r->leaves)
		return net_udp_leave(d->udp, &r->group, &r->local, &r->source);
	err = net_udp_join(d->udp, &r->group, &r->local, &r->source);
	if (err == 0)
		d->has_passed = true; /* the stack's from now on */
	return err == -EADDRNOTAVAIL ? -ENODEV : err;
}

long net_dgram_set_group(struct net_sock *sock, int level, int name,
			 const void *value, socklen_t len)
{
	struct request request = {0};
	long err;

	if (level != IPPROTO_IP && (level != IPPROTO_IPV6 || !sock->v6))
		return -ENOPROTOOPT;
	if (!value || !net_can_read(value, len))
		return -EFAULT;
	if (level == IPPROTO_IP && name == IP_MULTICAST_IF)
		return set_link(sock, value, len);
	err = read_request(level, name, value, len, &request);
	return err < 0 ? err : join_or_leave(sock, &request);
}
