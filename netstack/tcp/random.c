/*
 * Random numbers, IP identifications, and initial sequence numbers as RFC 6528
 * wants them.
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#define IP_IDS 1024u

/* State of the shard; a connection and a destination's counter belong to it. */
static NET_SHARD_VAR uint8_t tuple_key[crypto_shorthash_KEYBYTES];
static NET_SHARD_VAR uint32_t pool[64];
static NET_SHARD_VAR unsigned pool_left;
static NET_SHARD_VAR uint16_t *ip_ids; /* IP_IDS of them; owned */
static NET_SHARD_VAR uint64_t ip_id_key;
#define tuple_key NET_SHARD(tuple_key)
#define pool	  NET_SHARD(pool)
#define pool_left NET_SHARD(pool_left)
#define ip_ids	  NET_SHARD(ip_ids)
#define ip_id_key NET_SHARD(ip_id_key)

/* A connection's addresses and ports, as short as it may be: the hash takes
 * eight bytes at a time. */
struct tuple {
	uint32_t words[4 + 4 + 1]; /* n of them, then zeros */
	unsigned n;
};

/* The last SYN's: its answer has a timestamp of the same hash. */
static NET_SHARD_VAR struct tuple last_tuple;
static NET_SHARD_VAR uint64_t last_hash;
#define last_tuple NET_SHARD(last_tuple)
#define last_hash  NET_SHARD(last_hash)

int net_random_init(void)
{
	if (sodium_init() < 0)
		return -EIO;
	ip_ids = calloc(IP_IDS, sizeof(*ip_ids));
	if (!ip_ids)
		return -ENOMEM;
	randombytes_buf(tuple_key, sizeof(tuple_key));
	last_tuple.n = 0; /* its hash had another key */
	randombytes_buf(net_here()->hash_key, sizeof(net_here()->hash_key));
	net_here()->hash_key[0] |= 1;
	net_here()->hash_key[1] |= 1;
	net_ephemeral_init();
	randombytes_buf(&ip_id_key, sizeof(ip_id_key));
	ip_id_key |= 1;
	net_cookie_init();
	return 0;
}

void net_random_fini(void)
{
	free(ip_ids);
	ip_ids = NULL;
}

uint32_t net_random(void)
{
	if (pool_left == 0) {
		randombytes_buf(pool, sizeof(pool));
		pool_left = sizeof(pool) / sizeof(pool[0]);
	}
	return pool[--pool_left];
}

static inline struct tuple make_tuple(const ip_addr_t *local,
				      uint16_t local_port,
				      const ip_addr_t *remote,
				      uint16_t remote_port)
{
	unsigned len = IP_IS_V6(local) ? 4 : 1;
	struct tuple tuple = {.n = 2 * len + 1};

	for (unsigned i = 0; i < len; i++) {
		tuple.words[i] = ip_2_ip6(local)->addr[i];
		tuple.words[len + i] = ip_2_ip6(remote)->addr[i];
	}
	tuple.words[2 * len] = (uint32_t)remote_port << 16 | local_port;
	return tuple;
}

/* SipHash-2-4: neither half reveals anything about the other. */
static uint64_t hash_tuple(const struct tuple *tuple)
{
	uint64_t hash;

	crypto_shorthash((void *)&hash, (const void *)tuple->words,
			 tuple->n * sizeof(tuple->words[0]), tuple_key);
	return hash;
}
static_assert(crypto_shorthash_BYTES == sizeof(uint64_t), "it is the hash");

uint64_t net_tuple_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port)
{
	struct tuple tuple = make_tuple(local, local_port, remote, remote_port);

	if (memcmp(&tuple, &last_tuple, sizeof(tuple)) == 0)
		return last_hash;
	return hash_tuple(&tuple);
}

/*
 * RFC 6528 section 3: ISN = M + F(4-tuple, secret). M ticks every 4 us; F is
 * half of a hash that nobody without the key can predict.
 */
uint32_t net_isn(const ip_addr_t *local_ip, uint16_t local_port,
		 const ip_addr_t *remote_ip, uint16_t remote_port)
{
	if (net_here()->isn_fixed)
		return net_here()->isn;
	last_tuple = make_tuple(local_ip, local_port, remote_ip, remote_port);
	last_hash = hash_tuple(&last_tuple);
	return (uint32_t)(glue_now_ns() / 4000) + (uint32_t)last_hash;
}

/*
 * An IPv4 identification, network byte order. Without DF (--pmtud off) our
 * datagrams may be fragmented on their way, so RFC 6864 4.3 wants it not to
 * repeat soon for a destination: a counter each, found by a keyed hash that
 * also says where it begins (RFC 7739 5.3's idea), so that one destination
 * learns nothing about another. IPv6 has none without fragments.
 */
uint16_t net_ip_id(const ip4_addr_t *dest)
{
	uint64_t mixed = (dest->addr ^ ip_id_key >> 32) * ip_id_key;
	uint16_t *counter = &ip_ids[mixed >> 54];

	return lwip_htons((uint16_t)(*counter)++ + (uint16_t)(mixed >> 32));
}
static_assert(IP_IDS == 1 << 10, "net_ip_id() keeps ten bits");
