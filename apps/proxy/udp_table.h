/*
 * The UDP sessions of a shard: found by the addresses and ports of the client
 * and of the listener, and ordered by their last use.
 *
 * Chains in a table of fixed size. Its hash has a random key, so that nobody
 * can choose addresses that meet in one chain. It uses no sockets and no clock,
 * and belongs to one thread. An entry is part of the caller's session.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include <coronet/net_stack.h>

struct udp_entry {
	struct udp_entry *next; /* of the chain */
	TAILQ_ENTRY(udp_entry) by_use;
	struct net_addr client, local; /* prefix_len is ignored */
	int64_t used_ns;
};

struct udp_table {
	unsigned n, mask;
	struct udp_entry **chains;
	TAILQ_HEAD(udp_entries, udp_entry) by_use; /* oldest first */
	uint8_t key[16];
};

/*
 * Makes an empty table for about `max` entries (1 or more; further ones make
 * chains longer). Returns 0 or -ENOMEM.
 */
int udp_table_init(struct udp_table *table, unsigned max);

/* Frees the table, whose entries stay the caller's; a zeroed one is ignored. */
void udp_table_fini(struct udp_table *table);

/* Returns the entry of these addresses, or NULL. */
struct udp_entry *udp_table_find(const struct udp_table *table,
				 const struct net_addr *client,
				 const struct net_addr *local);

/* Adds an entry whose addresses are set, as the newest. None is the same. */
void udp_table_add(struct udp_table *table, struct udp_entry *entry,
		   int64_t now_ns);

/* Makes an entry the newest. */
void udp_table_use(struct udp_table *table, struct udp_entry *entry,
		   int64_t now_ns);

void udp_table_remove(struct udp_table *table, struct udp_entry *entry);
