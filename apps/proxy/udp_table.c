/* A table of UDP sessions by address, in the order of their last use. */
#include "apps/proxy/udp_table.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(((struct udp_table *)0)->key) == crypto_shorthash_KEYBYTES,
	      "the key is that of the hash");

int udp_table_init(struct udp_table *table, unsigned max)
{
	unsigned chains = 16;

	while (chains < max && chains < 1u << 20)
		chains *= 2;
	*table = (struct udp_table){.mask = chains - 1};
	TAILQ_INIT(&table->by_use);
	table->chains = calloc(chains, sizeof(struct udp_entry *));
	if (!table->chains)
		return -ENOMEM;
	if (sodium_init() < 0)
		return -ENOMEM;
	randombytes_buf(table->key, sizeof(table->key));
	return 0;
}

void udp_table_fini(struct udp_table *table)
{
	free(table->chains);
	*table = (struct udp_table){0};
}

static struct udp_entry **chain_of(const struct udp_table *table,
				   const struct net_addr *client,
				   const struct net_addr *local)
{
	uint8_t in[2 * (sizeof(client->ip) + sizeof(client->port))];
	uint64_t hash;

	memcpy(in, client->ip, 16);
	memcpy(in + 16, local->ip, 16);
	memcpy(in + 32, &client->port, 2);
	memcpy(in + 34, &local->port, 2);
	crypto_shorthash((void *)&hash, in, sizeof(in), table->key);
	return &table->chains[hash & table->mask];
}

static bool is_same(const struct net_addr *a, const struct net_addr *b)
{
	return a->family == b->family && a->port == b->port &&
	       memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

struct udp_entry *udp_table_find(const struct udp_table *table,
				 const struct net_addr *client,
				 const struct net_addr *local)
{
	struct udp_entry *entry = *chain_of(table, client, local);

	while (entry && !(is_same(&entry->client, client) &&
			  is_same(&entry->local, local)))
		entry = entry->next;
	return entry;
}

void udp_table_add(struct udp_table *table, struct udp_entry *entry,
		   int64_t now_ns)
{
	struct udp_entry **chain =
		chain_of(table, &entry->client, &entry->local);

	entry->next = *chain;
	*chain = entry;
	entry->used_ns = now_ns;
	TAILQ_INSERT_TAIL(&table->by_use, entry, by_use);
	table->n++;
}

void udp_table_use(struct udp_table *table, struct udp_entry *entry,
		   int64_t now_ns)
{
	entry->used_ns = now_ns;
	TAILQ_REMOVE(&table->by_use, entry, by_use);
	TAILQ_INSERT_TAIL(&table->by_use, entry, by_use);
}

void udp_table_remove(struct udp_table *table, struct udp_entry *entry)
{
	struct udp_entry **at = chain_of(table, &entry->client, &entry->local);

	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	TAILQ_REMOVE(&table->by_use, entry, by_use);
	table->n--;
}
