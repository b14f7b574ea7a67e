/*
 * The DHCP client's parts. Private to link/.
 *
 * One client per link with --addr dhcp runs on shard 0, in the link's tick. It
 * posts a copy of its lease to every shard (dhcp_lease.c), and each shard
 * changes its own tables.
 */
#pragma once

#include "netstack/link/dhcp_msg.h"
#include "netstack/link/lease_file.h"
#include "netstack/link/leased.h"
#include "netstack/link/link_priv.h"

/* A lease, as each shard applies it. */
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
	struct net_lease lease; /* in use if bound; otherwise an offer */
	uint32_t xid;
	uint32_t server;  /* the chosen one; 0: any may answer */
	unsigned tries;	  /* messages sent in this state */
	int64_t due_ns;	  /* when the state does its next step */
	int64_t began_ns; /* when it began to look for a server */
	int64_t asked_ns; /* when it sent the request: a lease begins then */
	int64_t t1_ns, t2_ns, expires_ns; /* of the lease in use */
	bool no_carrier;		  /* as last seen */
	struct net_lease_file *file;	  /* owned; NULL: none */
	bool remembered; /* lease has the file's address, not yet in use */
	uint8_t turn;	 /* version of lease; posted[]: each shard's */
	uint8_t posted[NET_MAX_SHARDS];
};

/* ---- dhcp_lease.c ---- */
/*
 * Fills a lease from an offer or an acknowledgement. Returns 0, or -EINVAL: its
 * address is not a host's on that link, or the stack has it already.
 */
int net_lease_read(const struct net_dhcp *client,
		   const struct net_dhcp_msg *msg, struct net_lease *out);
/*
 * Replaces the link's lease on this shard; one that is not bound ends its use.
 * Owns lease. Returns 0, or an error of net_ifaddr_add(): the address is not in
 * use.
 */
int net_lease_apply(struct net_lease *lease);
/* Frees the leases of this shard. */
void net_leases_close(void);

/* ---- route.c ---- */
/*
 * Replaces the routes of a link's lease by n others, behind those of the
 * options. Keeps as many as the table has room for.
 */
void net_routes_lease(struct net_port *port,
		      const struct net_dhcp_route *routes, unsigned n);

/* ---- dhcp_send.c ---- */
/* Broadcasts a message from an address, which may be 0. */
void net_dhcp_broadcast(const struct net_dhcp *client,
			const struct net_dhcp_out *msg, uint32_t from);
/* Sends a message to the chosen server. */
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
/* On shard 0: runs the steps of the clients that are due. */
void net_dhcp_tick(void);
/*
 * Processes a server's message on a link with a client. Returns whether the
 * frame was one for this host; the caller then frees it.
 */
bool net_dhcp_input(struct net_port *port, const struct glue_frame *frame);
