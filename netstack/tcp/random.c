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

int net_random_init(void)
{
	if (sodium_init() < 0)
		return -EIO;
	ip_ids = calloc(IP_IDS, sizeof(*ip_ids));
	if (!ip_ids)
		return -ENOMEM;
	randombytes_buf(tuple_key, sizeof(tuple_key));
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

/* SipHash-2-4: neither half reveals anything about the other. */
uint64_t net_tuple_hash(const ip_addr_t *local, uint16_t local_port,
			const ip_addr_t *remote, uint16_t remote_port)
{
	/* As short as it may be: the hash takes eight bytes at a time. */
	unsigned len = IP_IS_V6(local) ? 16 : 4;
	uint8_t tuple[2 * 16 + 2 * sizeof(uint16_t)];
	uint64_t hash;

	memcpy(tuple, ip_2_ip6(local)->addr, len);
	memcpy(tuple + len, ip_2_ip6(remote)->addr, len);
	memcpy(tuple + 2 * len, &local_port, sizeof(uint16_t));
	memcpy(tuple + 2 * len + sizeof(uint16_t), &remote_port,
	       sizeof(uint16_t));
	crypto_shorthash((void *)&hash, tuple, 2 * len + 2 * sizeof(uint16_t),
			 tuple_key);
	return hash;
}
static_assert(crypto_shorthash_BYTES == sizeof(uint64_t), "it is the hash");

/*
 * RFC 6528 section 3: ISN = M + F(4-tuple, secret). M ticks every 4 us; F is
 * half of a hash that nobody without the key can predict.
 */
uint32_t net_isn(const ip_addr_t *local_ip, uint16_t local_port,
		 const ip_addr_t *remote_ip, uint16_t remote_port)
{
	if (net_here()->isn_fixed)
		return net_here()->isn;
	return (uint32_t)(glue_now_ns() / 4000) +
	       (uint32_t)net_tuple_hash(local_ip, local_port, remote_ip,
					remote_port);
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
