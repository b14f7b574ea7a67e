/*
 * net_resolve.h - host names: looking them up, and connecting to them.
 *
 * Threads, pointers, blocking calls and their errors (-EPERM, -ECANCELED,
 * -ETIMEDOUT, -ENOMEM) are those of coronet/net.h.
 *
 * The name servers are those of net_opts.resolvers (--resolver), otherwise
 * those that DHCP or routers give (--addr dhcp, --addr auto), otherwise those
 * of resolv.conf(5), whose search list and ndots hold in all cases. They are
 * asked over the stack's own UDP, and over its TCP after a truncated answer
 * (RFC 7766), so they must be reachable through a link: a server at a loopback
 * address is not. If resolv.conf names no others, the servers that
 * systemd-resolved(8) itself asks are used.
 *
 * The servers are not asked for a name that is in /etc/hosts. That file is read
 * again once it has changed; its first NET_HOSTS_BYTES count.
 *
 * Each shard has a cache. An answer stays in it for its TTL, at most a day; "no
 * such name" for as long as its SOA permits (RFC 2308), at most an hour; the
 * failure of all servers for a second (RFC 9520). The cache has
 * NET_RESOLVE_NAMES entries, one for each name and family, of which the one
 * that was not used for the longest time makes room; no entry exceeds 700
 * bytes. Coroutines that look up the same name at the same time share one
 * query.
 *
 * Responses are untrusted: they count only if they come from the address and
 * port that was asked, with the query's random ID and its question. A response
 * has at most 4,096 bytes over UDP and 65,535 over TCP. Only the addresses to
 * which its chain of aliases leads count, NET_RESOLVE_ADDRS at most. DNSSEC is
 * not checked: the path to the name server is trusted.
 */
#pragma once

#include <coronet/net.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define NET_RESOLVE_ADDRS 16u /* of each family; more are ignored */
#define NET_RESOLVE_NAMES 1024u
#define NET_HOSTS_BYTES	  (256u * 1024)
/* Queries of a shard at a time; more: -ENOBUFS. */
#define NET_RESOLVE_QUERIES 256u

/* Zero means the default. */
struct net_resolve_opts {
	/* 4 or 6; 0: those of which the stack has an address that is not
	 * link-local. */
	uint8_t family;
	uint16_t port;	     /* of the addresses that are returned */
	unsigned timeout_ms; /* for the whole call; 0: 10,000 */
	/* Receives for how many seconds the answer holds; UINT_MAX: it does not
	 * expire. NULL: not wanted. */
	unsigned *ttl_s;
};

/*
 * Finds the addresses of a host. Blocks until the name servers have answered,
 * unless name is an address or in /etc/hosts: then it does not block, and can
 * be called outside a coroutine. The servers are not asked for "localhost" (RFC
 * 6761).
 *
 * A name with a dot at its end is asked for as it is. Others are also asked for
 * with each domain of the search list: before, if they have fewer than ndots
 * dots, otherwise after. Each server is asked up to twice, for 2 and 4 seconds.
 * When the call has returned -ETIMEDOUT, the query goes on, so that the cache
 * gets its answer.
 *
 * opts may be NULL. Fills out[] with n addresses at most (n: 1 or more), those
 * of IPv6 first, in the order of the answer. Returns how many, or
 *   -ENOENT        there is no such name
 *   -ENODATA       the name has no address of these families
 *   -EAGAIN        the servers have failed or refused (SERVFAIL, REFUSED), sent
 *                  no valid answer, or could not be reached ("port
 *                  unreachable", no route)
 *   -ETIMEDOUT     no server answered in time
 *   -EHOSTUNREACH  there is no server, except at loopback addresses
 *   -EADDRNOTAVAIL opts->family is 0 and the stack has no address now, except
 *                  link-local ones
 *   -ENOBUFS       NET_RESOLVE_QUERIES names are being asked for
 *   -EINVAL        a pointer is NULL, n is 0, opts->family is wrong, or name is
 *                  not a host name (RFC 1123, with underscores)
 */
int net_resolve(struct net_stack *stack, const char *name,
		const struct net_resolve_opts *opts, struct net_addr *out,
		unsigned n);

/*
 * Connects to a port of a host by its name, as RFC 8305 (Happy Eyeballs)
 * describes. Blocks until a handshake is done. Both families are looked up at
 * the same time. The first attempt is made to an IPv6 address, unless that
 * lookup takes 50 ms longer than the lookup of IPv4; later attempts alternate
 * between the families. The next attempt begins when the last has failed, or
 * after 250 ms. Once one has succeeded, the others are aborted.
 *
 * opts may be NULL. opts->timeout_ms is for the whole call; opts->source gives
 * the address to connect from, without a port, and limits the attempts to its
 * family; opts->local is ignored. *out is owned by the caller, as that of
 * net_dial(). Returns 0 or
 *   -EINVAL  a pointer is NULL, port is 0, opts->source has a port or a wrong
 *            family, or name is not a host name
 * or, if no attempt could be made, an error of net_resolve(), otherwise what
 * the last attempt failed with, an error of net_dial().
 */
int net_dial_name(struct net_stack *stack, const char *name, uint16_t port,
		  const struct net_dial_opts *opts, struct net_conn **out);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
