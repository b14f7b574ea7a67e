/*
 * Which backend each client had last, so that its next session gets it again.
 *
 * A client is an IPv4 address or an IPv6 /64, in which a host can choose any
 * address. A backend is a number that pool.h gives it, and another one when it
 * goes down, so that all its entries end at once. An entry also ends some time
 * after its last use.
 *
 * The table has a fixed size: a client has its entry in one of eight slots or
 * takes over the one that was used longest ago. So a flood of clients can
 * displace others, but takes no memory beyond STICKY_BYTES, and each look costs
 * eight slots. The slots of a client depend on a secret. All shards use one
 * table, without locks. It uses no clock: the caller passes the time.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STICKY_SETS  32768u
#define STICKY_SLOTS 8u
#define STICKY_IDS   (1u << 24) /* backends' numbers are 1 to STICKY_IDS - 1 */

struct sticky {
	struct sticky_entry {
		_Atomic uint64_t client; /* a hash of it */
		_Atomic uint64_t value;	 /* the backend, and the last use */
	} entries[STICKY_SETS][STICKY_SLOTS];
	uint64_t secret;
};
#define STICKY_BYTES (STICKY_SETS * STICKY_SLOTS * 16u) /* 4 MiB */

/*
 * Returns an empty table, to be freed by free(3); NULL: no memory, or no random
 * bytes for its secret. Its pages are used only as entries come.
 */
struct sticky *sticky_new(void);

/*
 * The client with this address (ip: 4 or 16 bytes) among those of a group of
 * backends: never 0. An IPv4-mapped address counts as IPv4.
 */
uint64_t sticky_client(const struct sticky *sticky, uint8_t family,
		       const void *ip, uint64_t group);

/* Returns the backend of a client, or 0: none within life_ns. */
uint32_t sticky_find(const struct sticky *sticky, uint64_t client,
		     int64_t now_ns, int64_t life_ns);

/*
 * Sets the backend of a client. Returns whether that has displaced an entry of
 * another client that was used within life_ns.
 */
bool sticky_put(struct sticky *sticky, uint64_t client, uint32_t backend,
		int64_t now_ns, int64_t life_ns);

/* Notes a use of the client's entry, if it is still of that backend. */
void sticky_use(struct sticky *sticky, uint64_t client, uint32_t backend,
		int64_t now_ns);

/* How many clients have one of these backends; reads the whole table. */
unsigned sticky_count(const struct sticky *sticky, const uint32_t *backends,
		      unsigned n, int64_t now_ns, int64_t life_ns);
