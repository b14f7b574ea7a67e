/*
 * Ephemeral ports, RFC 6056: nobody else can guess where a search for a free
 * port begins, and yet a port to the same destination is reused late.
 *
 * Dialing follows algorithms 4 and 5 (3.3.4, 3.3.5): a keyed hash of the
 * addresses and the destination port, plus a counter that the destinations of
 * one bucket share, which advances by random steps and past ports that were in
 * use. Listening begins anywhere (3.3.1).
 */
#include "netstack/tcp/tcp.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#define COUNTERS 256u
#define STEP	 4u /* at most, beyond what a search moves on by itself */

static NET_SHARD_VAR uint8_t key[crypto_shorthash_KEYBYTES];
static NET_SHARD_VAR uint32_t counters[COUNTERS];
static NET_SHARD_VAR uint32_t listen_counter;
#define key	       NET_SHARD(key)
#define counters       NET_SHARD(counters)
#define listen_counter NET_SHARD(listen_counter)

void net_ephemeral_init(void)
{
	randombytes_buf(key, sizeof(key));
	randombytes_buf(counters, sizeof(counters));
}

struct net_ephemeral net_ephemeral_dial(const ip_addr_t *local,
					const ip_addr_t *remote,
					uint16_t remote_port)
{
	struct {
		ip_addr_t local, remote;
		uint16_t remote_port;
	} what;
	uint32_t words[crypto_shorthash_BYTES / sizeof(uint32_t)];
	struct net_ephemeral search;

	memset(&what, 0, sizeof(what));
	ip_addr_copy(what.local, *local);
	ip_addr_copy(what.remote, *remote);
	what.remote_port = remote_port;
	crypto_shorthash((uint8_t *)words, (const void *)&what, sizeof(what),
			 key);
	search.offset = words[0] % net_port_count();
	search.counter = &counters[words[1] % COUNTERS];
	*search.counter += net_random() % STEP;
	return search;
}
static_assert(crypto_shorthash_BYTES == 8, "two words");

struct net_ephemeral net_ephemeral_listen(void)
{
	return (struct net_ephemeral){net_random() % net_port_count(),
				      &listen_counter};
}

uint16_t net_ephemeral_next(struct net_ephemeral *search)
{
	*search->counter = (*search->counter + 1) % net_port_count();
	return (uint16_t)(NET_PORT_FIRST + (search->offset + *search->counter) %
						   net_port_count());
}
