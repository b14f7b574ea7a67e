/*
 * Links: between frames and lwIP's interfaces; neighbours.
 */
#pragma once

#include "netstack/udp/udp.h"

/* ---- netif.c ---- */
int net_link_open(struct net_opts *opts);
void net_link_close(void);
/* Runs lwIP's timers for neighbours that are due. */
void net_link_tick(void);

/* ---- input.c ---- */
unsigned net_link_rx(void);

/* ---- exception.c ---- */
/* Sends the kernel's frames on the links. Returns how many it read. */
unsigned net_exception_poll(void);
/* A descriptor that is readable when the kernel has frames; -1: none. */
int net_exception_fd(const struct net_port *port);

/* ---- output.c ---- */
void net_link_tx(void);
/* Whether frames of every port may refer to the program's memory. */
bool net_link_takes_extbufs(void);

/* ---- udp.c ---- */
/* The addresses of a datagram that leaves. */
struct net_udp_path {
	ip_addr_t local, remote; /* local zero: the route's */
	uint16_t local_port, remote_port;
	uint8_t ttl, tos;
	struct net_port *port; /* after -EAGAIN: the one without room */
};

/*
 * Sends a datagram of len bytes, which n buffers hold, to a known neighbour;
 * *path gets the local address. ext: owns the bytes, which a frame may then
 * refer to; or NULL. Returns 0, -EAGAIN (the port has no room) or -EINPROGRESS:
 * the caller must use net_link_route_udp().
 */
int net_link_send_udp(struct net_udp_path *path, const struct iovec *iov,
		      unsigned n, unsigned len, struct net_extbuf *ext);
/*
 * The same by lwIP's IP, which resolves neighbours; the local address is set.
 * Returns 0, -EAGAIN, -ENOMEM or -EHOSTUNREACH.
 */
int net_link_route_udp(struct net_udp_path *path, const struct iovec *iov,
		       unsigned n, unsigned len);

/*
 * Queues a copy of a datagram that was sent to a group, to be received next, if
 * sockets of this shard are members on its link.
 */
void net_link_loop_group(const struct net_udp_path *path,
			 const struct iovec *iov, unsigned n, unsigned len);

/* ---- group.c ---- */
/*
 * The address that datagrams to a group come from unless the program names one.
 * Its link is that of the route to the group or, without one, the first that
 * has an address of this family. NULL: none has.
 */
const struct net_ifaddr *net_group_source(const ip_addr_t *group);
/* Announces the groups of a link again, which has its carrier back. */
void net_group_announce(const struct net_port *port);

/* ---- addrs.c ---- */
/*
 * Adds an address to a link of this shard, with its prefix_len; it is announced
 * and used at once. Returns 0, -EEXIST (the stack has it) or -ENOSPC (the link
 * has seven of IPv6, or the stack NET_MAX_ADDRS).
 */
int net_ifaddr_add(struct net_port *port, const struct net_addr *addr);
/*
 * Removes it. Connections that use it stay; they send again when it is added
 * again, unless they have timed out. Returns 0 or -EADDRNOTAVAIL (the link does
 * not have it, or with another prefix).
 */
int net_ifaddr_remove(struct net_port *port, const struct net_addr *addr);

/* ---- announce.c ---- */
/* On shard 0: announces the addresses of a link, which has its carrier back. */
void net_announce_port(const struct net_port *port);

/* ---- route.c ---- */
/* Where packets to an address go. */
struct net_hop {
	ip_addr_t ip; /* the neighbour: the address itself or a gateway */
	/* one of the stack's, whose network the neighbour is in */
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
 * The address to connect from, after net_route_find(): that of the route, or by
 * RFC 6724 one of the same link; NULL: there is none.
 */
const struct net_ifaddr *net_route_source(const struct net_hop *hop,
					  const ip_addr_t *to);
/* The address through which a route's gateway is reached; NULL: none now. */
const struct net_ifaddr *net_route_near(const struct net_route_entry *route);
/* The address that an interface of the stack has; NULL: none has it. */
struct net_ifaddr *net_ifaddr_of(const ip_addr_t *ip);
/* The same, whatever the zone of a link-local address is. */
const struct net_ifaddr *net_ifaddr_named(const ip_addr_t *ip);

/* ---- loop.c ---- */
/*
 * The interface of a link, or if port is NULL of any link, that has an IPv4
 * address (network byte order); NULL: none has it, or it is 0.0.0.0.
 */
struct netif *net_netif_of4(const struct net_port *port, uint32_t ip);
/*
 * Whether ip is an address of the stack, on any link: packets to it are looped.
 */
bool net_link_owns(const struct netif *netif, const ip_addr_t *ip);
/* Whether such packets wait to be received. */
static inline bool net_link_loops(void)
{
	return net_here()->loop.head != net_here()->loop.tail;
}

/* ---- neighbour.c ---- */
/* Whether the neighbour for an address has answered. */
bool net_neighbour_reachable(const ip_addr_t *ip);
