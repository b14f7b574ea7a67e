/* Private to link/: functions that its files share. */
#pragma once

#include "netstack/link/link.h"
#include "netstack/shard_var.h"

struct nd6_neighbor_cache_entry;

#define NET_ETH_HEADER 14u /* bytes */

static inline struct net_port *net_port_of(const struct netif *netif)
{
	return netif->state;
}

static inline unsigned net_link_of(const struct netif *netif)
{
	return (unsigned)(net_port_of(netif) - net_here()->ports);
}

/* ---- output.c ---- */
/* lwIP's linkoutput: p begins with the Ethernet header. */
err_t net_link_output(struct netif *netif, struct pbuf *p);
/* Sends an IPv4 packet (p begins with its header) to a neighbour. */
err_t net_link_send(struct netif *netif, struct pbuf *p, const uint8_t *mac);

/*
 * Fills the parts of the Ethernet and IPv4 headers that are the same in all
 * packets to a neighbour.
 */
void net_link_header4(uint8_t *header, const struct netif *netif, uint32_t dest,
		      const uint8_t *mac);

/* ---- addrs.c ---- */
/*
 * Adds a link's addresses. Returns 0, -ENOMEM, or -EINVAL with opts->error set.
 */
int net_ifaddrs_open(struct net_port *port, struct net_opts *opts);
/* The table's entry of a link's address, active or not; NULL: none. */
struct net_ifaddr *net_ifaddr_on(const struct net_port *port,
				 const ip_addr_t *ip);
/* Makes an active address inactive. duplicate: another host has it. */
void net_ifaddr_disable(struct net_ifaddr *addr, bool duplicate);

/*
 * Like net_ifaddr_add(), for an IPv6 address that was probed. A link-local one
 * becomes the link's, in place of that formed from the MAC.
 */
int net_ifaddr_add_probed(struct net_port *port, const struct net_addr *addr);

/* ---- arp_nd.c ---- */
#define NET_ARP_FRAME 42u /* bytes */
struct net_arp {
	const uint8_t *to_mac; /* receiver of a reply; NULL: it is a request */
	const uint8_t *own_mac;
	uint32_t sender, target; /* network byte order */
};
/* This and net_nd_send() send nothing if the port has no free frame. */
void net_arp_send(const struct net_port *port, const struct net_arp *arp);

/* A neighbour solicitation without options, or an advertisement. */
struct net_nd {
	const uint8_t *to_mac, *own_mac;
	const uint8_t *src, *dest, *target; /* IPv6 addresses */
	bool solicits;			    /* it is a solicitation */
	uint8_t flags;			    /* of an advertisement */
};
void net_nd_send(const struct net_port *port, const struct net_nd *nd);
/* Probes for a host with this address, from :: (RFC 4862 5.4.2). */
void net_nd_probe(const struct net_port *port, const uint8_t ip[16]);
/* Solicits routers, from the link-local address if there is one. */
void net_rs_send(const struct net_port *port);

/* ---- announce.c ---- */
/* Where an address that comes up was in use before. */
enum net_addr_origin {
	NET_ADDR_OPENED, /* maybe here, before a restart */
	NET_ADDR_MOVED,	 /* maybe at another host */
	NET_ADDR_PROBED, /* nowhere: the caller has probed it */
};

/* On shard 0: announces an address that has come up; probes it if necessary. */
void net_announce_begin(struct net_ifaddr *addr, enum net_addr_origin origin);
/*
 * Called in the first round, which sends what was queued when the links opened:
 * restarts the time that probes wait for answers.
 */
void net_announce_start(void);
/* Sends the announcements that are due. */
void net_announce_tick(void);
/*
 * Called when a packet claims an address of the stack for a MAC: withdraws an
 * address that is being probed, or defends one in use. Ignores its own packets.
 */
void net_announce_conflict(const struct net_port *port, const ip_addr_t *ip,
			   const uint8_t *mac);

/* ---- route.c ---- */
/*
 * Fills the table of routes, after the addresses. Returns 0, or -EINVAL with
 * opts->error set.
 */
int net_routes_open(struct net_opts *opts);
/* The routes of options, in the order of the table. */
struct net_route_list {
	struct net_route_opts routes[NET_ROUTES];
	unsigned n;
};
void net_route_list(const struct net_opts *opts, struct net_route_list *out);
void net_route_fill(struct net_route_entry *route,
		    const struct net_route_opts *opts);
/*
 * Checks that a route can be used now. Returns 0, -ENODEV, -ENOTUNIQ,
 * -ENETUNREACH or -EADDRNOTAVAIL, as net_route_add().
 */
int net_route_check(const struct net_route_opts *route);
/*
 * Checks a --route, which may wait for a leased address. Returns 0, or -EINVAL
 * with opts->error set.
 */
int net_route_check_option(const struct net_route_opts *route,
			   struct net_opts *opts);
/*
 * Returns whether an address is on a link: in one of its networks or on-link
 * routes.
 */
bool net_route_on_link(const struct net_port *port, const ip_addr_t *ip);

/* ---- loop.c ---- */
/* Returns whether an address is this interface's. */
bool net_netif_owns6(const struct netif *netif, const ip6_addr_t *ip);
/*
 * Returns whether an address is the stack's (IPv4: in network byte order). A
 * link-local one must be this interface's.
 */
bool net_loop_owns4(uint32_t ip);
bool net_loop_owns6(const struct netif *netif, const ip6_addr_t *ip);
/*
 * Queues a copy of an IP packet to one of the stack's addresses, for the shard
 * that owns its flow to receive. Returns ERR_OK, or ERR_MEM if the packet must
 * be sent again later.
 */
err_t net_loop_output(struct netif *netif, const struct pbuf *p);
/*
 * Queues a packet, which is in one piece, for this shard; drops and counts it
 * if the queue is full. Owns p.
 */
void net_loop_push(const struct netif *netif, struct pbuf *p);
/* Receives at most a burst of queued packets. Returns how many. */
unsigned net_loop_input(void);
/* Frees the packets that are still queued. */
void net_loop_close(void);

/* ---- loop_shards.c ---- */
/* From now on other shards may hand packets over to this one. */
void net_loop_shards_open(void);
/* Drops what was handed over; later packets are dropped by their senders. */
void net_loop_shards_close(void);
/*
 * If another shard owns the packet's flow, hands a copy over to it, sets *err
 * as net_loop_output() returns it, and returns true. p: borrowed.
 */
bool net_loop_hand_over(const struct netif *netif, const struct pbuf *p,
			err_t *err);
/* Moves the packets that others have handed over into this shard's ring. */
void net_loop_take_over(void);

/* ---- neighbour.c ---- */

/* A neighbour that ARP is resolving. */
struct net_asked4 {
	uint32_t ip;
	int64_t until_ns;
};
#define NET_ASKED4 128u

/* An IPv6 destination whose neighbour was known, or could be solicited. */
struct net_asked6 {
	ip6_addr_t ip;
	ip6_addr_t hop; /* the neighbour: the destination or its gateway */
	const struct netif *netif; /* that sent there */
	int64_t until_ns;
	/* the neighbour's entry; NULL: lwIP looks it up each time */
	struct nd6_neighbor_cache_entry *entry;
	uint8_t mac[6]; /* the entry's; if it differs, the entry was reused */
};
#define NET_ASKED6 256u

extern NET_SHARD_VAR struct net_asked_tables {
	struct net_asked4 ip4[NET_ASKED4];
	struct net_asked6 ip6[NET_ASKED6];
} net_asked __attribute__((visibility("hidden")));
#define net_asked NET_SHARD(net_asked)

/* The neighbour's entry in the cache; NULL: it must be resolved first. */
const struct net_neighbour *net_neighbour_known(const ip4_addr_t *dest);
/* lwIP's entry for an IPv6 destination, while it is reachable; else NULL. */
struct nd6_neighbor_cache_entry *net_neighbour_known6(const ip6_addr_t *dest);
/* lwIP's output functions of every interface. */
err_t net_neighbour_output4(struct netif *netif, struct pbuf *p,
			    const ip4_addr_t *dest);
err_t net_neighbour_output6(struct netif *netif, struct pbuf *p,
			    const ip6_addr_t *dest);
/*
 * Process an ARP packet, or a neighbour solicitation or advertisement, and
 * answer it if necessary. They return whether lwIP must see the frame (ARP: on
 * the interface *out); if not, the caller frees it.
 */
bool net_neighbour_arp(const struct net_port *port, struct glue_frame *frame,
		       struct netif **out);
bool net_neighbour_nd(const struct net_port *port,
		      const struct glue_frame *frame);
/*
 * Called when a message of an IPv6 neighbour has its MAC: another one that was
 * known is replaced, and has to be confirmed (RFC 4861 6.3.4, 7.2.3).
 */
void net_neighbour_moved6(const struct net_port *port, const ip6_addr_t *ip,
			  const uint8_t mac[6]);

/* ---- slaac.c ---- */
/* A bit for each link of this shard that has --addr auto. */
extern NET_SHARD_VAR uint8_t net_slaac_links
	__attribute__((visibility("hidden")));
#define net_slaac_links NET_SHARD(net_slaac_links)

static inline bool net_slaac_has(const struct net_port *port)
{
	return net_slaac_links >> (port - net_here()->ports) & 1;
}

/* ---- group.c ---- */
/*
 * Returns whether lwIP may see a query or report of IGMP or MLD, which
 * dpdk_glue has checked; if not, the caller frees the frame.
 */
bool net_group_message(const struct net_port *port,
		       const struct glue_frame *frame);
/* Returns whether a packet goes to a group; ip: its header. */
bool net_group_is_dest(const uint8_t *ip);

/* ---- exception_set.c ---- */
/*
 * Opens the exception of a link from opts, after its port and addresses.
 * Returns 0, or an error of net_exception_make() with opts->error set.
 */
int net_exception_open(unsigned link, struct net_opts *opts);
/* Ends all exceptions of this shard, before its ports close. */
void net_exception_close(void);
/* ---- exception.c ---- */
/*
 * Passes a frame that is not a TCP segment of the stack to the kernel if the
 * rule of the port's exception says so. Returns whether the stack must not
 * process the frame: the caller frees it.
 */
bool net_exception_input(struct net_port *port, const struct glue_frame *frame);
/* ---- share.c ---- */
/*
 * On shard 0: posts a copy of a configuration (size bytes) to each shard that
 * does not have its version *turn yet; posted[] holds the version of each.
 * apply() runs on the shard and owns the copy, which malloc(3) has made. On
 * shard 0 it runs at once, and may change *config and *turn. A shard without
 * memory or with a full queue gets nothing, and the next call tries again.
 */
void net_share_config(const void *config, size_t size, const uint8_t *turn,
		      uint8_t posted[NET_MAX_SHARDS],
		      void (*apply)(void *copy));

/*
 * On shard 0: passes a copy of a neighbour's frame to the other shards, before
 * lwIP sees the frame.
 */
void net_neighbour_share(const struct net_port *port,
			 const struct glue_frame *frame);

/* On shard 0: calls net_neighbour_moved6() on the other shards. */
void net_neighbour_share_mac(const struct net_port *port, const ip6_addr_t *ip,
			     const uint8_t mac[6]);

/*
 * Called before nd6_tmr(): probes neighbours at once that have solicited this
 * host while packets for them are queued.
 */
void net_neighbour_probe(void);
