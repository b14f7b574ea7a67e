/*
 * Finds the socket of a datagram, in constant time.
 *
 * Connected sockets are in a hash by their 4-tuple, keyed as that of TCP's
 * connections. The others are in a table by port: a port has at most one socket
 * for each address of the stack, one for each family and one for every address.
 */
#include "netstack/udp/udp.h"

#include <errno.h>
#include <string.h>

/* A datagram that was sent longer ago is not what an ICMP error is about. */
#define SENT_MS 10000u

#undef net_udps
NET_SHARD_VAR struct net_udp_sockets net_udps;
#define net_udps NET_SHARD(net_udps)

int net_udp_tables_open(void)
{
	struct net_udp_sockets *here = &net_udps;
	uint32_t mask;

	if (here->ports)
		return 0;
	here->ports = net_mem_map_table(NET_UDP_BUCKETS, &mask);
	if (!here->ports)
		return -ENOMEM;
	here->tuples = net_mem_map_table(NET_UDP_BUCKETS, &mask);
	if (here->tuples)
		return 0;
	net_mem_unmap_table(here->ports, NET_UDP_BUCKETS - 1);
	here->ports = NULL;
	return -ENOMEM;
}

static struct net_udp **bucket_of(const struct net_udp *udp)
{
	if (!udp->remote_port)
		return &net_udps.ports[udp->local_port];
	return &net_udps.tuples[net_demux_hash(&udp->local, udp->local_port,
					       &udp->remote, udp->remote_port) &
				(NET_UDP_BUCKETS - 1)];
}

void net_udp_hash(struct net_udp *udp)
{
	struct net_udp **bucket = bucket_of(udp);

	udp->hash_next = *bucket;
	*bucket = udp;
	net_udps.n++;
	net_udps.n_connected += udp->remote_port != 0;
}

void net_udp_unhash(struct net_udp *udp)
{
	struct net_udp **at = bucket_of(udp);

	while (*at != udp)
		at = &(*at)->hash_next;
	*at = udp->hash_next;
	net_udps.n--;
	net_udps.n_connected -= udp->remote_port != 0;
}

struct net_udp *net_udp_find_connected(const ip_addr_t *local,
				       uint16_t local_port,
				       const ip_addr_t *remote,
				       uint16_t remote_port)
{
	struct net_udp *udp;
	uint32_t hash;

	if (!net_udps.n_connected)
		return NULL;
	hash = net_demux_hash(local, local_port, remote, remote_port);
	udp = net_udps.tuples[hash & (NET_UDP_BUCKETS - 1)];
	for (; udp; udp = udp->hash_next)
		if (udp->local_port == local_port &&
		    udp->remote_port == remote_port &&
		    ip_addr_eq(&udp->remote, remote) &&
		    ip_addr_eq(&udp->local, local))
			break;
	return udp;
}

static bool have_same_local(const struct net_udp *a, const struct net_udp *b)
{
	return IP_GET_TYPE(&a->local) == IP_GET_TYPE(&b->local) &&
	       ip_addr_eq(&a->local, &b->local);
}

/*
 * Chooses a socket among those that share an address and port, by the hash of
 * the 4-tuple. The hash's low bits alone may be the same for consecutive ports,
 * so all of its bits decide (Knuth's multiplicative hashing).
 */
cold static struct net_udp *choose_shared(struct net_udp *first, uint32_t hash)
{
	struct net_udp *udp, *chosen = NULL;
	unsigned n = 0;

	for (udp = first; udp; udp = udp->hash_next)
		n += have_same_local(udp, first);
	n = (unsigned)((uint64_t)(hash * UINT32_C(0x9e3779b1)) * n >> 32);
	for (udp = first; udp; udp = udp->hash_next)
		if (have_same_local(udp, first) && n-- == 0) {
			chosen = udp;
			break;
		}
	return chosen;
}

/* A socket at the very address comes before one of its family or of all. */
static struct net_udp *find_bound(const ip_addr_t *ip, uint16_t port)
{
	struct net_udp *udp = net_udps.ports[port], *any = NULL;

	for (; udp; udp = udp->hash_next)
		if (IP_IS_ANY_TYPE_VAL(udp->local) ||
		    (IP_GET_TYPE(&udp->local) == IP_GET_TYPE(ip) &&
		     ip_addr_isany_val(udp->local)))
			any = any ? any : udp;
		else if (ip_addr_eq(&udp->local, ip))
			return udp;
	return any;
}

struct net_udp *net_udp_find(const ip_addr_t *local, uint16_t local_port,
			     const ip_addr_t *remote, uint16_t remote_port)
{
	struct net_udp *udp;

	if (!net_udps.n)
		return NULL;
	if (net_udps.n_connected) {
		udp = net_udp_find_connected(local, local_port, remote,
					     remote_port);
		if (udp)
			return udp;
	}
	udp = find_bound(local, local_port);
	if (unlikely(udp && udp->shared))
		udp = choose_shared(udp, net_demux_hash(local, local_port,
							remote, remote_port));
	return udp;
}

bool net_udp_is_taken(const ip_addr_t *ip, uint16_t port, bool shared)
{
	const struct net_udp *udp = net_udps.ports[port];

	for (; udp; udp = udp->hash_next) {
		bool all = IP_IS_ANY_TYPE_VAL(udp->local);

		if (shared && udp->shared)
			continue;
		if (!ip	  ? all || ip_addr_isany_val(udp->local)
		    : all ? ip_addr_isany(ip)
			  : ip_addr_eq(&udp->local, ip))
			return true;
	}
	return false;
}

static struct net_udp_sent *sent_slot(uint32_t hash)
{
	return &net_udps.sent[hash % NET_UDP_SENT];
}

void net_udp_note_sent(const ip_addr_t *local, uint16_t local_port,
		       const ip_addr_t *remote, uint16_t remote_port)
{
	uint32_t hash = net_demux_hash(local, local_port, remote, remote_port);

	*sent_slot(hash) = (struct net_udp_sent){hash, net_now_ms()};
}

bool net_udp_was_sent(const ip_addr_t *local, uint16_t local_port,
		      const ip_addr_t *remote, uint16_t remote_port)
{
	uint32_t hash = net_demux_hash(local, local_port, remote, remote_port);
	const struct net_udp_sent *sent = sent_slot(hash);

	return sent->hash == hash && sent->ms &&
	       net_now_ms() - sent->ms <= SENT_MS;
}
