/*
 * The parts of SLAAC (RFC 4862), which assigns the addresses of --addr auto.
 * Private to link/.
 *
 * One client per link with --addr auto runs on shard 0, in the link's tick. It
 * stores what routers have advertised, probes the addresses that it forms, and
 * posts a copy of the configuration to every shard (slaac_apply.c); each shard
 * changes its own tables.
 *
 * lwIP has code for router advertisements as well. It is not used: it forms
 * addresses from the MAC, accepts any lifetime, keeps routers outside the table
 * of routes, and would run once for each shard.
 */
#pragma once

#include "netstack/link/leased.h"
#include "netstack/link/link_priv.h"
#include "netstack/link/ra_msg.h"
#include "netstack/link/slaac_id.h"

#define NET_SLAAC_PREFIXES 8u /* on the link */
#define NET_SLAAC_ROUTERS  4u
#define NET_SLAAC_SERVERS  4u /* name servers */
#define NET_SLAAC_ROUTES   (NET_SLAAC_PREFIXES + NET_SLAAC_ROUTERS)

enum net_slaac_state {
	NET_SLAAC_FREE,
	NET_SLAAC_WAITING, /* until due_ns, or for a link-local address */
	NET_SLAAC_PROBING, /* duplicate detection, until due_ns */
	NET_SLAAC_USED,
	NET_SLAAC_DUPLICATE, /* other hosts have all addresses tried */
	NET_SLAAC_REFUSED,   /* the stack has no room; retried at due_ns */
};

struct net_slaac_addr {
	enum net_slaac_state state;
	uint8_t ip[16];
	uint8_t counter; /* duplicates before it: RFC 7217's DAD_Counter */
	bool joined;	 /* it is in the solicited-node group, to probe */
	bool logged;	 /* the lack of room was logged */
	int64_t due_ns;
	int64_t preferred_ns, valid_ns; /* ends of these lifetimes */
};

/* A prefix, a router (link-local) or a name server that was advertised. */
struct net_slaac_entry {
	uint8_t ip[16];
	uint8_t bits;	   /* of the prefix; 128: an address */
	int8_t preference; /* of the router */
	int64_t until_ns;  /* 0: the entry is free */
};

/* A network behind a router. */
struct net_slaac_route {
	struct net_addr to;  /* with prefix_len */
	struct net_addr via; /* family 0: the network is on the link */
};

/* The configuration of a link, as each shard applies it. */
struct net_slaac_config {
	unsigned link; /* index */
	uint8_t n_addrs, n_routes, n_servers;
	bool deprecated[NET_SLAAC_ADDRS];
	struct net_addr addrs[NET_SLAAC_ADDRS]; /* family 0: not in use here */
	struct net_slaac_route routes[NET_SLAAC_ROUTES];
	struct net_addr servers[NET_SLAAC_SERVERS];
};

/* A client. */
struct net_slaac {
	struct net_port *port;
	uint8_t secret[NET_SLAAC_SECRET];
	struct net_slaac_addr addrs[NET_SLAAC_ADDRS]; /* [0]: link-local */
	struct net_slaac_entry prefixes[NET_SLAAC_PREFIXES];
	struct net_slaac_entry routers[NET_SLAAC_ROUTERS];
	struct net_slaac_entry servers[NET_SLAAC_SERVERS];
	int64_t ask_ns;	     /* the next solicitation; CORO_FOREVER: none */
	int64_t ask_wait_ns; /* wait after the last one; 0: none was sent */
	bool no_carrier;     /* as last seen */
	int64_t read_due_ns; /* when one more advertisement is read */
	int64_t form_due_ns; /* when one more address may be formed */
	struct net_slaac_config config; /* published last */
	uint8_t turn; /* version of config; posted[]: each shard's */
	uint8_t posted[NET_MAX_SHARDS];
};

static inline unsigned net_slaac_link(const struct net_slaac *client)
{
	return (unsigned)(client->port - net_here()->ports);
}

/* The end of a lifetime that begins now. */
int64_t net_slaac_end_ns(uint32_t lifetime_s);
/* A random time from 0 to a second (RFC 4861's MAX_RTR_SOLICITATION_DELAY). */
int64_t net_slaac_delay_ns(void);
/* An address as text, for the log. */
const char *net_slaac_format(const uint8_t ip[16],
			     char text[NET_ADDR_TEXT_MAX]);

/* ---- slaac_addr.c ---- */
/* Begins to form the link-local address. */
void net_slaac_open_addr(struct net_slaac *client);
/*
 * Forms an address with a prefix of 64 bits, or changes the lifetimes of the
 * address that has this prefix.
 */
void net_slaac_take_prefix(struct net_slaac *client,
			   const struct net_ra_prefix *prefix);
/* Runs the probes that are due, and ends addresses that have expired. */
void net_slaac_tick_addrs(struct net_slaac *client);
/* Called when the carrier has returned: probes unused addresses again. */
void net_slaac_probe_again(struct net_slaac *client);
/* Called when the stack has no room for an address. */
void net_slaac_refuse(struct net_slaac *client, const struct net_addr *addr);
/*
 * Returns whether the client is probing an address. claimed: another host, with
 * this MAC, has it, so it is a duplicate.
 */
bool net_slaac_meets(struct net_slaac *client, const uint8_t ip[16],
		     const uint8_t mac[6], bool claimed);

/* ---- slaac_learn.c ---- */
/* Stores the contents of an advertisement by the router `from`. */
void net_slaac_learn(struct net_slaac *client, const struct net_ra_msg *msg,
		     const uint8_t from[16]);
/* Forgets routers, prefixes and name servers whose lifetime has ended. */
void net_slaac_expire(struct net_slaac *client);
bool net_slaac_has_router(const struct net_slaac *client);
/* Fills in the configuration that is in use now. */
void net_slaac_describe(const struct net_slaac *client,
			struct net_slaac_config *out);

/* ---- slaac_apply.c ---- */
/*
 * Replaces the link's configuration on this shard. Owns config. Returns a bit
 * for each of its addresses that this shard has no room for.
 */
unsigned net_slaac_apply(struct net_slaac_config *config);
/* Appends this shard's name servers to the n of `out`. Returns the new n. */
unsigned net_slaac_servers(struct net_addr out[NET_MAX_RESOLVERS], unsigned n,
			   unsigned *turn);
/* Frees the configurations of this shard. */
void net_slaac_applied_close(void);

/* ---- route.c ---- */
/*
 * Replaces the routes that a link's routers have advertised by n others, behind
 * those of the options. Keeps as many as the table has room for.
 */
void net_routes_slaac(struct net_port *port,
		      const struct net_slaac_route *routes, unsigned n);

/* ---- slaac.c ---- */
/* Opens the clients of a shard's links. Returns 0 or -ENOMEM. */
int net_slaac_open(const struct net_opts *opts);
void net_slaac_close(void);
/* On shard 0: runs the steps of the clients that are due. */
void net_slaac_tick(void);
/*
 * Processes a router advertisement, or a neighbour's message about an address
 * that is being probed, on a link with a client. Returns whether the frame was
 * one of these; the caller then frees it.
 */
bool net_slaac_input(struct net_port *port, const struct glue_frame *frame);
