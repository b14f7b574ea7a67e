/*
 * Links: what lies between frames and lwIP's interfaces; addresses, routes and
 * neighbours. All calls act on the shard of the calling thread.
 */
#pragma once

#include "netstack/udp/udp.h"

/* ---- netif.c ---- */
/*
 * Opens lwIP and this shard's queues of all links, with addresses and routes.
 * Returns 0 or -errno, after which net_link_close() still has to be called;
 * opts->error may be set.
 */
int net_link_open(struct net_opts *opts);
void net_link_close(void);
/* Runs lwIP's neighbour timers that are due. */
void net_link_tick(void);

/* ---- input.c ---- */
/* Receives a burst from each link. Returns the number of frames. */
unsigned net_link_rx(void);

/* ---- exception.c ---- */
/* Sends the kernel's frames on the links. Returns how many it read. */
unsigned net_exception_poll(void);
/* A descriptor that is readable when the kernel has frames; -1: none. */
int net_exception_fd(const struct net_port *port);

/* ---- output.c ---- */
void net_link_tx(void); /* flushes the frames queued on all ports */
/* Returns whether frames of every port may refer to the program's memory. */
bool net_link_takes_extbufs(void);

/* ---- udp.c ---- */
/* The addresses of a datagram that leaves. */
struct net_udp_path {
	ip_addr_t local, remote; /* local zero: the route's source address */
	uint16_t local_port, remote_port;
	uint8_t ttl, tos;
	struct net_port *port; /* after -EAGAIN: the port without room */
};

/*
 * Sends a datagram of len bytes, which n buffers hold, to a known neighbour,
 * and sets path->local. ext: the owner of the bytes, to which a frame may then
 * refer; NULL: they are copied. Returns 0, -EAGAIN (the port has no room) or
 * -EINPROGRESS: the caller must use net_link_route_udp().
 */
int net_link_send_udp(struct net_udp_path *path, const struct iovec *iov,
		      unsigned n, unsigned len, struct net_extbuf *ext);
/*
 * The same in the frame in which the program holds p, a whole datagram, without
 * copying it; p and the program's view of it stay as they are. Returns 0, or
 * -EINPROGRESS: the caller must use net_link_send_udp().
 */
int net_link_send_held(struct net_udp_path *path, const struct pbuf *p);
/*
 * Sends a datagram through lwIP's IP, which resolves neighbours; path->local is
 * set already. Returns 0, -EAGAIN (the port has no room), -ENOMEM or
 * -EHOSTUNREACH.
 */
int net_link_route_udp(struct net_udp_path *path, const struct iovec *iov,
		       unsigned n, unsigned len);

/*
 * Queues a copy of a datagram that was sent to a group, for this shard to
 * receive, if sockets of this shard are members of the group on that link.
 */
void net_link_loop_group(const struct net_udp_path *path,
			 const struct iovec *iov, unsigned n, unsigned len);

/* ---- group.c ---- */
/*
 * The source address of datagrams to a group, unless the program chooses one.
 * Its link is that of the route to the group or, without a route, the first
 * link that has an address of this family. NULL: no link has one.
 */
const struct net_ifaddr *net_group_source(const ip_addr_t *group);
/* Announces the groups of a link again, after its carrier has returned. */
void net_group_announce(const struct net_port *port);

/* ---- addrs.c ---- */
/*
 * Adds an address to a link of this shard, with its prefix_len; it is announced
 * and used at once. Returns 0, -EEXIST (the stack has it) or -ENOSPC (the link
 * has seven of IPv6, or the stack NET_MAX_ADDRS).
 */
int net_ifaddr_add(struct net_port *port, const struct net_addr *addr);
/*
 * Removes an address of a link. Connections that use it stay; they send again
 * once it is added again, unless they have timed out by then. Returns 0 or
 * -EADDRNOTAVAIL (the link does not have it with this prefix).
 */
int net_ifaddr_remove(struct net_port *port, const struct net_addr *addr);

/* ---- announce.c ---- */
/* On shard 0: announces a link's addresses, after its carrier has returned. */
void net_announce_port(const struct net_port *port);

/* ---- route.c ---- */
/* Where packets to an address go. */
struct net_hop {
	ip_addr_t ip; /* the neighbour: the address itself or a gateway */
	/* the stack's address in whose network the neighbour is */
	const struct net_ifaddr *near;
	const struct net_route_entry *route; /* NULL: it is on the link */
};

/*
 * Finds the longest prefix for an address: a network of the stack's addresses,
 * a route or a gateway. port: the link to use; NULL: any. Returns 0 or
 * -EHOSTUNREACH.
 */
int net_route_find(const struct net_port *port, const ip_addr_t *to,
		   struct net_hop *out);
/*
 * The source address for a connection, after net_route_find(): the route's, or
 * one of the same link chosen by RFC 6724; NULL: there is none.
 */
const struct net_ifaddr *net_route_source(const struct net_hop *hop,
					  const ip_addr_t *to);
/* The address through which a route's gateway is reached; NULL: none now. */
const struct net_ifaddr *net_route_near(const struct net_route_entry *route);
/*
 * Adds a route on this shard, behind those that the user has given and before
 * those of leases. Returns 0 or
 *   -ENODEV         there is no such link
 *   -ENOTUNIQ       a link-local gateway needs a link
 *   -ENETUNREACH    no address has a network with the gateway now
 *   -EADDRNOTAVAIL  the source is not an address of the gateway's link
 *   -EEXIST         the prefix has this gateway already
 *   -ENOSPC         there is no room
 */
int net_route_add(const struct net_route_opts *opts);
/*
 * Removes the first of the user's routes on this shard that has the prefix, the
 * gateway and, if they are set, the link and the source. Returns 0 or -ESRCH.
 */
int net_route_remove(const struct net_route_opts *opts);
/* Returns whether options have the same routes and gateways in one order. */
bool net_routes_equal(const struct net_opts *a, const struct net_opts *b);
/*
 * Changes this shard's routes as net_routes_change() says. Returns 0, or
 * -EINVAL or -ENOSPC with to->error set.
 */
int net_routes_replace(const struct net_opts *from, struct net_opts *to);
/*
 * Takes back this shard's last net_routes_replace(from, to): a route that the
 * operator had removed before stays away. Returns 0 or -ENOSPC (the operator
 * has added routes since).
 */
int net_routes_restore(const struct net_opts *from, const struct net_opts *to);
/* The entry of an address that the stack uses; NULL: there is none. */
struct net_ifaddr *net_ifaddr_of(const ip_addr_t *ip);
/* net_ifaddr_of() that ignores the zone of a link-local address. */
const struct net_ifaddr *net_ifaddr_named(const ip_addr_t *ip);

/* ---- loop.c ---- */
/*
 * The interface of a link (port NULL: of any link) that has an IPv4 address, in
 * network byte order; NULL: none has it, or it is 0.0.0.0.
 */
struct netif *net_netif_of4(const struct net_port *port, uint32_t ip);
/*
 * Returns whether ip is an address of the stack, on any link: packets to it are
 * looped.
 */
bool net_link_owns(const struct netif *netif, const ip_addr_t *ip);
/* Returns whether looped packets wait to be received. */
static inline bool net_link_loops(void)
{
	return net_here()->loop.head != net_here()->loop.tail;
}

/* ---- neighbour.c ---- */

/*
 * An ARP entry that is cached for a second so that output need not search for
 * it, with the headers of segments that the interface's address sends there.
 */
struct net_neighbour {
	int64_t expires_ns;
	struct netif *netif;
	uint32_t ip;	    /* network byte order; 0: empty */
	bool by_route;	    /* the routes choose netif's address as well */
	uint8_t header[34]; /* Ethernet's and IPv4's */
};
static_assert(sizeof(struct net_neighbour) <= 64, "a cache line");

#define NET_NEIGHBOURS 1024

/*
 * Returns whether an address is the stack's, or its neighbour has been
 * resolved.
 */
bool net_neighbour_reachable(const ip_addr_t *ip);
