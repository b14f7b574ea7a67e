/*
 * The DHCP client's parts. Private to link/.
 *
 * One client per link with --addr dhcp runs on shard 0, in the link's tick. It
 * gives every shard a copy of what it has leased (dhcp_lease.c), and each shard
 * changes its own tables.
 */
#pragma once

#include "netstack/link/dhcp_msg.h"
#include "netstack/link/lease_file.h"
#include "netstack/link/leased.h"
#include "netstack/link/link_priv.h"

/* What a lease gives to each shard. */
struct net_lease {
	unsigned link; /* index */
	bool bound;    /* the address is in use */
	struct net_addr addr;
	uint16_t mtu; /* 0: the link's */
	uint8_t n_routes, n_servers;
	struct net_dhcp_route routes[NET_DHCP_ROUTES];
	struct net_addr servers[NET_DHCP_SERVERS]; /* name servers */
};

enum net_dhcp_state {
	NET_DHCP_INIT,
	NET_DHCP_SELECTING,
	NET_DHCP_REQUESTING,
	NET_DHCP_REBOOTING,
	NET_DHCP_BOUND,
	NET_DHCP_RENEWING,
	NET_DHCP_REBINDING,
};

/* A client. */
struct net_dhcp {
	struct net_port *port;
	enum net_dhcp_state state;
	struct net_lease lease; /* in use if it is bound; else: was offered */
	uint32_t xid;
	uint32_t server;  /* that was chosen; 0: any may answer */
	unsigned tries;	  /* messages of this state that were sent */
	int64_t due_ns;	  /* when the state does its next step */
	int64_t began_ns; /* of asking */
	int64_t asked_ns; /* of the request: a lease begins then */
	int64_t t1_ns, t2_ns, expires_ns; /* of the lease in use */
	bool no_carrier;		  /* as last seen */
	struct net_lease_file *file;	  /* owned; NULL: none */
	bool remembered; /* lease has the file's address, not yet in use */
	uint8_t turn;	 /* of lease; posted[]: that a shard has been sent */
	uint8_t posted[NET_MAX_SHARDS];
};

/* ---- dhcp_lease.c ---- */
/*
 * Fills a lease from an offer or an acknowledgement. Returns 0, or -EINVAL: its
 * address is none of a host on that link, or another one of the stack.
 */
int net_lease_read(const struct net_dhcp *client,
		   const struct net_dhcp_msg *msg, struct net_lease *out);
/*
 * Makes this shard use a lease, or no longer, in place of the one before. lease
 * is owned by the call. Returns 0, or why it has no address: an error of
 * net_ifaddr_add().
 */
int net_lease_apply(struct net_lease *lease);
/* Frees the leases of this shard. */
void net_leases_close(void);

/* ---- route.c ---- */
/*
 * Replaces the routes that a link's lease gave, behind those of the options; n
 * 0: there are none. As many as the table has room for are kept.
 */
void net_routes_lease(struct net_port *port,
		      const struct net_dhcp_route *routes, unsigned n);

/* ---- dhcp_send.c ---- */
/* Broadcasts a message from an address, which may be 0. */
void net_dhcp_broadcast(const struct net_dhcp *client,
			const struct net_dhcp_out *msg, uint32_t from);
/* Sends it to the server that was chosen. */
void net_dhcp_unicast(const struct net_dhcp *client,
		      const struct net_dhcp_out *msg);

/* ---- dhcp.c ---- */
/* A bit for each link of this shard that has a client. */
extern NET_SHARD_VAR uint8_t net_dhcp_links
	__attribute__((visibility("hidden")));
#define net_dhcp_links NET_SHARD(net_dhcp_links)

static inline bool net_dhcp_has(const struct net_port *port)
{
	return net_dhcp_links >> (port - net_here()->ports) & 1;
}

/* Opens the clients of a shard's links. Returns 0 or -ENOMEM. */
int net_dhcp_open(const struct net_opts *opts);
void net_dhcp_close(void);
/* Does what is due, on shard 0. */
void net_dhcp_tick(void);
/*
 * Receives a server's message on a link with a client. True: it was one for
 * this host, and the caller frees the frame.
 */
bool net_dhcp_input(struct net_port *port, const struct glue_frame *frame);
