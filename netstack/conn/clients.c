/*
 * How many clients a listener has, in all and from one source.
 *
 * A source is an IPv4 address, or an IPv6 /64: a host can choose any address of
 * its /64. Each source that has connections to a port has an entry, and each
 * port has one for all sources; an entry goes with the last connection it
 * counts. A connection is found again by its addresses, so it keeps no pointer
 * to its entry.
 */
#include "netstack/conn/conn.h"
#include "netstack/program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS	      65536u
#define SOURCE_MIN    1024u /* default: at least so many a source */
#define HALF_OPEN_MIN 64u

struct source {
	struct source *next;
	struct source *all; /* the port's entry; NULL: this is one */
	uint64_t prefix;
	uint16_t port;
	uint8_t family; /* 4 or 6; 0: every source */
	uint32_t clients, half_open;
};

struct key {
	uint64_t prefix;
	uint16_t port;
	uint8_t family;
};

static _Thread_local struct source **buckets; /* BUCKETS of them; owned */

static struct key key_of(const ip_addr_t *ip, u16_t port)
{
	struct key key = {.port = port, .family = 4};

	if (IP_IS_V6(ip)) {
		key.family = 6;
		memcpy(&key.prefix, ip_2_ip6(ip)->addr, 8);
	} else {
		key.prefix = ip_2_ip4(ip)->addr;
	}
	return key;
}

static struct source **bucket_of(const struct key *key)
{
	uint64_t a = key->prefix ^ net_here()->hash_key[0];
	uint64_t b = ((uint64_t)key->port << 8 | key->family) ^
		     net_here()->hash_key[1];
	unsigned __int128 m = (unsigned __int128)a * (b | 1);

	return &buckets[((uint64_t)m ^ (uint64_t)(m >> 64)) >> 48];
}
static_assert(BUCKETS == 1u << 16, "bucket_of() keeps sixteen bits");

static struct source *find(const struct key *key)
{
	struct source *s = *bucket_of(key);

	while (s && (s->prefix != key->prefix || s->port != key->port ||
		     s->family != key->family))
		s = s->next;
	return s;
}

static struct source *find_or_make(const struct key *key)
{
	struct source *s = find(key), **bucket;

	if (s)
		return s;
	s = net_mem_malloc(sizeof(*s));
	if (!s)
		return NULL;
	bucket = bucket_of(key);
	*s = (struct source){.next = *bucket,
			     .prefix = key->prefix,
			     .port = key->port,
			     .family = key->family};
	*bucket = s;
	return s;
}

static void free_unused(struct source *s)
{
	struct key key = {s->prefix, s->port, s->family};
	struct source **at = bucket_of(&key);

	if (s->clients || s->half_open)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	net_mem_free(s);
}

static struct source *source_of(const struct net_conn *conn)
{
	struct key key = key_of(&conn->pcb.remote_ip, conn->client_port);

	return find(&key);
}

/* ---- limits ---- */

static unsigned or_default(unsigned given, unsigned otherwise)
{
	return given ? given : otherwise;
}

int net_listener_limit(struct net_listener *listener,
		       const struct net_limits *limits)
{
	NET_CHECK_THREAD();
	if (!listener)
		return -EBADF;
	if (!limits)
		return -EINVAL;
	listener->limits = *limits;
	return 0;
}

void net_listener_limits(const struct net_listener *listener,
			 struct net_limits *out)
{
	const struct net_limits *given = &listener->limits;

	out->clients = or_default(given->clients, UINT32_MAX);
	out->clients_per_source =
		or_default(given->clients_per_source,
			   LWIP_MAX(net_here()->max_conns / 2, SOURCE_MIN));
	out->half_open_per_source =
		or_default(given->half_open_per_source,
			   LWIP_MAX(listener->backlog / 2, HALF_OPEN_MIN));
}

enum net_admission net_clients_admit(const struct net_listener *listener,
				     const ip_addr_t *ip)
{
	struct key key = key_of(ip, listener->addr.port);
	const struct source *s = find(&key);
	struct net_limits most;
	const struct source *all;

	net_listener_limits(listener, &most);
	if (!s) {
		key = (struct key){.port = listener->addr.port};
		all = find(&key);
	} else {
		all = s->all;
		if (s->clients + s->half_open >= most.clients_per_source)
			return NET_ADMIT_NOT;
	}
	if (all && all->clients + all->half_open >= most.clients)
		return NET_ADMIT_NOT;
	return s && s->half_open >= most.half_open_per_source ? NET_ADMIT_COOKIE
							      : NET_ADMIT;
}

/* ---- counting ---- */

/* Without memory for an entry the connection is not counted. */
void net_client_half_open(struct net_conn *conn)
{
	struct key key = key_of(&conn->pcb.remote_ip, conn->pcb.local_port);
	struct key every = {.port = conn->pcb.local_port};
	struct source *all = find_or_make(&every), *s;

	if (!all)
		return;
	s = find_or_make(&key);
	if (!s) {
		free_unused(all);
		return;
	}
	s->all = all;
	s->half_open++;
	all->half_open++;
	conn->counted_as = NET_COUNTED_HALF_OPEN;
	conn->client_port = conn->pcb.local_port;
}

void net_client_established(struct net_conn *conn)
{
	struct source *s;

	if (conn->counted_as != NET_COUNTED_HALF_OPEN)
		return;
	s = source_of(conn);
	s->half_open--;
	s->all->half_open--;
	s->clients++;
	s->all->clients++;
	conn->counted_as = NET_COUNTED_CLIENT;
}

void net_client_forget(struct net_conn *conn)
{
	struct source *s = source_of(conn), *all = s->all;
	bool client = conn->counted_as == NET_COUNTED_CLIENT;

	s->clients -= client;
	s->half_open -= !client;
	all->clients -= client;
	all->half_open -= !client;
	conn->counted_as = NET_COUNTED_NOT;
	free_unused(s);
	free_unused(all);
}

unsigned net_listener_clients(const struct net_listener *listener)
{
	struct key key = {.port = listener ? listener->addr.port : 0};
	const struct source *all = find(&key);

	return all ? all->clients : 0;
}

/* The entries lie in slabs that go as a whole. */
int net_clients_init(void)
{
	buckets = calloc(BUCKETS, sizeof(struct source *));
	return buckets ? 0 : -ENOMEM;
}

void net_clients_fini(void)
{
	free(buckets);
	buckets = NULL;
}
