/*
 * Counts the clients of a port, in all and per source, over all shards.
 *
 * A source is an IPv4 address, or an IPv6 /64: a host can choose any address of
 * its /64. Each shard that has connections from a source to a port has an entry
 * for them. The entry lies in the shard's memory, is changed by its thread
 * alone, and is freed with the last connection that it counts. The entries of
 * all shards are in one table, those of one source in one list, so that their
 * sum is the program's count. An array has the sums per port. A connection's
 * addresses find its entry, so it keeps no pointer to it.
 *
 * Locks and atomics are used when a connection opens, is established and ends,
 * and not at all with one shard. A client is counted before its connection
 * exists, so two shards never both admit the last client.
 */
#include "netstack/conn/conn.h"
#include "netstack/conn/spin_priv.h"
#include "netstack/program/program.h"
#include "netstack/shard_var.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#define BUCKETS	      65536u
#define LOCKS	      1024u /* each for BUCKETS / LOCKS buckets */
#define PORTS	      65536u
#define SOURCE_MIN    1024u /* default: at least this many a source */
#define HALF_OPEN_MIN 64u

/* The clients of one source at one port. */
struct source_key {
	uint64_t prefix; /* an IPv4 address, or the first half of an IPv6 one */
	uint64_t where;	 /* port << 8 | 4 or 6, the version of IP; 0: none */
};

static uint16_t port_of(const struct source_key *key)
{
	return (uint16_t)(key->where >> 8);
}

#undef net_client_entries
NET_SHARD_VAR unsigned net_client_entries;
#define net_client_entries NET_SHARD(net_client_entries)

/* Counted for the segment that is being received; not held yet. */
static NET_SHARD_VAR struct source_key admitted;
#define admitted NET_SHARD(admitted)

/* What one shard has of a source; under the lock of its bucket. */
struct source {
	struct source *next;
	struct source_key key;
	uint8_t shard;
	uint32_t clients, half_open;
};

struct port {
	_Atomic uint32_t taken; /* taken: clients and half open */
	_Atomic uint32_t clients;
};

/* The program's table. Its fields change only before the shards open and after
 * they have closed. */
static struct {
	struct source **buckets; /* BUCKETS of them; owned */
	struct port *ports;	 /* PORTS of them; owned */
	struct net_spin *locks;	 /* LOCKS of them; owned; NULL: one shard */
	unsigned n_shards, max_conns;
	uint64_t hash_key[2];
} table;

/* ---- the table ---- */

static struct source_key key_of(const ip_addr_t *ip, uint16_t port)
{
	struct source_key key = {.prefix = ip_2_ip4(ip)->addr,
				 .where = (uint64_t)port << 8 | 4};

	if (IP_IS_V6(ip)) {
		memcpy(&key.prefix, ip_2_ip6(ip)->addr, 8);
		key.where = (uint64_t)port << 8 | 6;
	}
	return key;
}

static unsigned bucket_of(const struct source_key *key)
{
	uint64_t a = key->prefix ^ table.hash_key[0];
	uint64_t b = key->where ^ table.hash_key[1];
	unsigned __int128 m = (unsigned __int128)a * (b | 1);

	return (unsigned)(((uint64_t)m ^ (uint64_t)(m >> 64)) >> 48);
}
static_assert(BUCKETS == 1u << 16, "bucket_of() keeps sixteen bits");

unsigned net_clients_hash(const ip_addr_t *ip)
{
	struct source_key key = key_of(ip, 0);

	return bucket_of(&key);
}

static void lock_bucket(unsigned bucket)
{
	if (table.locks)
		net_spin_lock(&table.locks[bucket % LOCKS]);
}

static void unlock_bucket(unsigned bucket)
{
	if (table.locks)
		net_spin_unlock(&table.locks[bucket % LOCKS]);
}

static bool has_key(const struct source *s, const struct source_key *key)
{
	return s->key.prefix == key->prefix && s->key.where == key->where;
}

/* Returns where a source's row begins, or its chain's end. Needs the lock. */
static struct source **row_of(unsigned bucket, const struct source_key *key)
{
	struct source **at = &table.buckets[bucket];

	while (*at && !has_key(*at, key))
		at = &(*at)->next;
	return at;
}

/* Returns this shard's entry of the row, which is there. Needs the lock. */
static struct source **own_of(unsigned bucket, const struct source_key *key)
{
	struct source **at = &table.buckets[bucket];
	unsigned shard = net_here()->shard;

	while (!has_key(*at, key) || (*at)->shard != shard)
		at = &(*at)->next;
	return at;
}

/* ---- a port's sums ---- */

static void add_count(_Atomic uint32_t *sum, uint32_t n)
{
	if (table.locks)
		atomic_fetch_add_explicit(sum, n, memory_order_relaxed);
	else
		atomic_store_explicit(
			sum,
			atomic_load_explicit(sum, memory_order_relaxed) + n,
			memory_order_relaxed);
}

static bool is_full(const struct port *port, unsigned most)
{
	return atomic_load_explicit(&port->taken, memory_order_relaxed) >= most;
}

/* Takes a place, false if `most` are taken. Bounded by the other shards. */
static bool take_slot(struct port *port, unsigned most)
{
	uint32_t n = atomic_load_explicit(&port->taken, memory_order_relaxed);

	if (!table.locks) {
		if (n < most)
			add_count(&port->taken, 1);
		return n < most;
	}
	do {
		if (n >= most)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&port->taken, &n, n + 1,
							memory_order_relaxed,
							memory_order_relaxed));
	return true;
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
	uint64_t backlogs = (uint64_t)listener->backlog * table.n_shards;

	out->clients = or_default(given->clients, UINT32_MAX);
	out->clients_per_source =
		or_default(given->clients_per_source,
			   LWIP_MAX(table.max_conns / 2, SOURCE_MIN));
	out->half_open_per_source = or_default(
		given->half_open_per_source,
		(unsigned)LWIP_MIN(LWIP_MAX(backlogs / 2, HALF_OPEN_MIN),
				   UINT32_MAX));
}

/* ---- counting ---- */

/* Counts one connection less, half open or established. */
static void uncount_conn(const struct source_key *key, bool client)
{
	unsigned bucket = bucket_of(key);
	struct source **at, *s;

	lock_bucket(bucket);
	at = own_of(bucket, key);
	s = *at;
	s->clients -= client;
	s->half_open -= !client;
	if (s->clients || s->half_open)
		s = NULL;
	else
		*at = s->next;
	unlock_bucket(bucket);
	if (!s)
		return;
	net_client_entries--;
	net_mem_free(s);
}

/* May this source have one more? Needs the lock. */
static enum net_admission judge_source(struct source *const *row,
				       const struct source_key *key,
				       const struct net_limits *most,
				       enum net_asks asks, struct source **own)
{
	uint64_t clients = 0, half_open = 0;

	*own = NULL;
	for (struct source *s = *row; s && has_key(s, key); s = s->next) {
		clients += s->clients;
		half_open += s->half_open;
		if (s->shard == net_here()->shard)
			*own = s;
	}
	if (clients + half_open >= most->clients_per_source)
		return NET_ADMIT_NOT;
	if (asks != NET_ASKS_WITH_COOKIE &&
	    half_open >= most->half_open_per_source)
		return NET_ADMIT_COOKIE;
	return NET_ADMIT;
}

static struct source *new_entry(void)
{
	return net_mem_malloc(sizeof(struct source));
}

/*
 * Counts one more half-open connection of the source if it may have one.
 * `spare` becomes this shard's entry if there is none yet; without locks the
 * entry is made now. *counted is false if an entry is missing, or none is
 * admitted.
 */
static enum net_admission count_half_open(const struct source_key *key,
					  const struct net_limits *most,
					  enum net_asks asks,
					  struct source *spare, bool *counted)
{
	unsigned bucket = bucket_of(key);
	struct source **row, *own;
	enum net_admission admission;

	lock_bucket(bucket);
	row = row_of(bucket, key);
	admission = judge_source(row, key, most, asks, &own);
	if (admission == NET_ADMIT && !own) {
		own = table.locks ? spare : new_entry();
		if (own) {
			*own = (struct source){
				.next = *row,
				.key = *key,
				.shard = (uint8_t)net_here()->shard};
			*row = own;
			net_client_entries++;
		}
	}
	*counted = admission == NET_ADMIT && own;
	if (*counted)
		own->half_open++;
	unlock_bucket(bucket);
	return admission;
}
static_assert(NET_MAX_SHARDS <= 256, "a shard's number is a byte");

/* Like count_half_open(), with memory if it is needed. */
static enum net_admission count_source(const struct source_key *key,
				       const struct net_limits *most,
				       enum net_asks asks, bool *counted)
{
	enum net_admission admission =
		count_half_open(key, most, asks, NULL, counted);
	struct source *spare;

	if (admission != NET_ADMIT || *counted || !table.locks)
		return admission;
	spare = new_entry();
	if (!spare)
		return NET_ADMIT;
	admission = count_half_open(key, most, asks, spare, counted);
	if (!*counted)
		net_mem_free(spare);
	return admission;
}

/* Like count_source(), but counts nothing. */
static enum net_admission peek_source(const struct source_key *key,
				      const struct net_limits *most)
{
	unsigned bucket = bucket_of(key);
	enum net_admission admission;
	struct source *own;

	lock_bucket(bucket);
	admission = judge_source(row_of(bucket, key), key, most,
				 NET_ASKS_COOKIE, &own);
	unlock_bucket(bucket);
	return admission;
}

/*
 * Checks the source's limit first: a source beyond it must not take a place of
 * the port's, not even for a moment.
 */
enum net_admission net_clients_admit(const struct net_listener *listener,
				     const ip_addr_t *ip, enum net_asks asks)
{
	struct source_key key = key_of(ip, listener->addr.port);
	struct port *port = &table.ports[port_of(&key)];
	enum net_admission admission;
	struct net_limits most;
	bool counted;

	net_listener_limits(listener, &most);
	if (is_full(port, most.clients))
		return NET_ADMIT_NOT;
	if (asks == NET_ASKS_COOKIE)
		return peek_source(&key, &most);
	admission = count_source(&key, &most, asks, &counted);
	if (!counted)
		return admission;
	if (!take_slot(port, most.clients)) {
		uncount_conn(&key, false);
		return NET_ADMIT_NOT;
	}
	admitted = key;
	return NET_ADMIT;
}

void net_clients_unadmit(void)
{
	struct source_key key = admitted;

	if (!key.where)
		return;
	admitted.where = 0;
	uncount_conn(&key, false);
	add_count(&table.ports[port_of(&key)].taken, -1u);
}

bool net_clients_hold(void)
{
	bool counted = admitted.where;

	admitted.where = 0;
	return counted;
}

void net_clients_resume(const ip_addr_t *ip, uint16_t port)
{
	admitted = key_of(ip, port);
}

void net_client_half_open(struct net_conn *conn)
{
	if (!admitted.where)
		return;
	conn->pcb.own_port = port_of(&admitted);
	conn->counted_as = NET_COUNTED_HALF_OPEN;
	admitted.where = 0;
}

void net_client_established(struct net_conn *conn)
{
	struct source_key key;
	unsigned bucket;
	struct source *s;

	if (conn->counted_as != NET_COUNTED_HALF_OPEN)
		return;
	key = key_of(&conn->pcb.remote_ip, conn->pcb.own_port);
	bucket = bucket_of(&key);
	lock_bucket(bucket);
	s = *own_of(bucket, &key);
	s->half_open--;
	s->clients++;
	unlock_bucket(bucket);
	add_count(&table.ports[port_of(&key)].clients, 1);
	conn->counted_as = NET_COUNTED_CLIENT;
}

void net_client_forget(struct net_conn *conn)
{
	struct source_key key =
		key_of(&conn->pcb.remote_ip, conn->pcb.own_port);
	bool client = conn->counted_as == NET_COUNTED_CLIENT;

	uncount_conn(&key, client);
	if (client)
		add_count(&table.ports[port_of(&key)].clients, -1u);
	add_count(&table.ports[port_of(&key)].taken, -1u);
	conn->counted_as = NET_COUNTED_NOT;
}

unsigned net_listener_clients(const struct net_listener *listener)
{
	return listener ? atomic_load_explicit(
				  &table.ports[listener->addr.port].clients,
				  memory_order_relaxed)
			: 0;
}

/* ---- the program, and a shard, begin and end ---- */

int net_clients_open(unsigned n_shards, unsigned max_conns)
{
	if (sodium_init() < 0)
		return -EIO;
	randombytes_buf(table.hash_key, sizeof(table.hash_key));
	table.n_shards = n_shards;
	table.max_conns = max_conns;
	table.buckets = calloc(BUCKETS, sizeof(*table.buckets));
	table.ports = calloc(PORTS, sizeof(*table.ports));
	if (n_shards > 1)
		table.locks = aligned_alloc(_Alignof(struct net_spin),
					    LOCKS * sizeof(*table.locks));
	if (table.locks)
		memset(table.locks, 0, LOCKS * sizeof(*table.locks));
	if (table.buckets && table.ports && (n_shards == 1 || table.locks))
		return 0;
	net_clients_close();
	return -ENOMEM;
}

void net_clients_close(void)
{
	free(table.buckets);
	free(table.ports);
	free(table.locks);
	table.buckets = NULL;
	table.ports = NULL;
	table.locks = NULL;
}

/* Removes this shard's entries from a bucket. Needs the lock. */
static void remove_entries(struct source **at)
{
	while (*at) {
		const struct source *s = *at;
		struct port *port = &table.ports[port_of(&s->key)];

		if (s->shard != net_here()->shard) {
			at = &(*at)->next;
			continue;
		}
		add_count(&port->taken, -(s->clients + s->half_open));
		add_count(&port->clients, -s->clients);
		*at = s->next;
		net_client_entries--;
	}
}

/* The entries' memory is in slabs, which are freed as a whole. */
void net_clients_leave(void)
{
	for (unsigned i = 0; i < BUCKETS && net_client_entries; i++) {
		lock_bucket(i);
		remove_entries(&table.buckets[i]);
		unlock_bucket(i);
	}
}
