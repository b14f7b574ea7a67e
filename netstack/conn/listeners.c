/*
 * Listeners: the table by address and port, and their reference counts.
 */
#include "netstack/conn/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/*
 * Listeners by port and address; those of every address are under the zero one.
 * There are twice as many buckets as listeners to be expected, so the chains
 * are short.
 */
#define BUCKETS 16384u

int net_listeners_init(void)
{
	net_here()->listeners_hashed =
		calloc(BUCKETS, sizeof(struct net_listener *));
	return net_here()->listeners_hashed ? 0 : -ENOMEM;
}

void net_listeners_fini(void)
{
	free(net_here()->listeners_hashed);
	net_here()->listeners_hashed = NULL;
}

static unsigned bucket_of(const ip_addr_t *ip, uint16_t port)
{
	uint32_t h = port;

	if (ip && IP_IS_V6(ip))
		for (unsigned i = 0; i < 4; i++)
			h = (h ^ ip_2_ip6(ip)->addr[i]) * 2654435761u;
	else if (ip)
		h ^= ip_2_ip4(ip)->addr;
	h *= 2654435761u;
	return h >> 18;
}
static_assert(BUCKETS == 1u << 14, "bucket_of() keeps fourteen bits");

/* Returns the listener's address; NULL: every one. */
static const ip_addr_t *listener_ip(const struct net_listener *listener)
{
	return listener->addr.family ? &listener->ip : NULL;
}

static struct net_listener *find_in(const struct net_stack *stack,
				    const ip_addr_t *ip, uint16_t port)
{
	struct net_listener *l = stack->listeners_hashed[bucket_of(ip, port)];

	for (; l; l = l->hash_next) {
		const ip_addr_t *own = listener_ip(l);

		if (l->addr.port == port && !own == !ip &&
		    (!ip || ip_addr_eq(own, ip)))
			break;
	}
	return l;
}

struct net_listener *net_listener_find_exact(const ip_addr_t *ip, uint16_t port)
{
	return find_in(net_here(), ip, port);
}

/* Prefers a listener of the very address to one of every address, or of all of
 * its family: only one of these two can exist. */
struct net_listener *net_listener_find_in(const struct net_stack *stack,
					  const ip_addr_t *ip, uint16_t port)
{
	struct net_listener *listener = find_in(stack, ip, port);

	if (!listener)
		listener = find_in(stack, NULL, port);
	if (!listener)
		listener = find_in(stack,
				   IP_IS_V6(ip) ? IP6_ADDR_ANY : IP4_ADDR_ANY,
				   port);
	return listener;
}

struct net_listener *net_listener_find(const ip_addr_t *ip, uint16_t port)
{
	return net_listener_find_in(net_here(), ip, port);
}

void net_listener_hash(struct net_listener *listener)
{
	unsigned b = bucket_of(listener_ip(listener), listener->addr.port);

	listener->hash_next = net_here()->listeners_hashed[b];
	net_here()->listeners_hashed[b] = listener;
}

void net_listener_unhash(struct net_listener *listener)
{
	struct net_listener **at = &net_here()->listeners_hashed[bucket_of(
		listener_ip(listener), listener->addr.port)];

	while (*at != listener)
		at = &(*at)->hash_next;
	*at = listener->hash_next;
}

/* Frees a closed listener when nothing points at it any more. */
void net_listener_put(struct net_listener *listener)
{
	if (listener->closed && !listener->refs && !listener->pending)
		free(listener);
}

/* The connection no longer counts in the backlog. */
void net_listener_forget(struct net_conn *conn)
{
	struct net_listener *listener = conn->listener;

	conn->pending = false;
	listener->pending--;
	net_listener_put(listener);
}
