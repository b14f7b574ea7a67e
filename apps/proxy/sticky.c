/*
 * The table of clients' backends.
 *
 * An entry changes in two ways. A use, or another backend of the same client,
 * is a compare-and-swap of its value. When another client takes it over, the
 * value is CLAIMED while the client is replaced. So a reader that finds the
 * same client before and after it has read the value knows that they belong
 * together.
 */
#include "apps/proxy/sticky.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "apps/common/source_rate.h"

#define MS_BITS	  40
#define MS_MASK	  ((UINT64_C(1) << MS_BITS) - 1)
#define NS_PER_MS 1000000
#define CLAIMED	  UINT64_C(1) /* no backend, and a time that is not 0 */
#define TRIES	  8	      /* while shards compete */

struct sticky *sticky_new(void)
{
	/* calloc() leaves pages of this size to the kernel until first use. */
	struct sticky *sticky = calloc(1, sizeof(*sticky));

	if (!sticky ||
	    getrandom(&sticky->secret, sizeof(sticky->secret), 0) < 0) {
		free(sticky);
		return NULL;
	}
	return sticky;
}

uint64_t sticky_client(const struct sticky *sticky, uint8_t family,
		       const void *ip, uint64_t group)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *at = ip;
	uint64_t h;

	if (family == 6 && memcmp(at, mapped, sizeof(mapped)) == 0) {
		family = 4;
		at += sizeof(mapped);
	}
	h = source_hash(sticky->secret + group, family, at,
			family == 4 ? 4 : 8);
	return h ? h : 1;
}

/* ---- entries ---- */

static uint64_t make_value(uint32_t backend, int64_t now_ns)
{
	return (uint64_t)backend << MS_BITS |
	       ((uint64_t)(now_ns / NS_PER_MS) & MS_MASK);
}

static uint32_t backend_of(uint64_t value)
{
	return (uint32_t)(value >> MS_BITS);
}

/* Returns how long ago the entry was used; clocks of shards may differ. */
static int64_t age_ms(uint64_t value, int64_t now_ns)
{
	int64_t age = now_ns / NS_PER_MS - (int64_t)(value & MS_MASK);

	return age > 0 ? age : 0;
}

static bool is_live(uint64_t value, int64_t now_ns, int64_t life_ns)
{
	return backend_of(value) &&
	       age_ms(value, now_ns) <= life_ns / NS_PER_MS;
}

/* Returns the client's entry, and in *value what it has; NULL: none. */
static struct sticky_entry *find_entry(const struct sticky *sticky,
				       uint64_t client, uint64_t *value)
{
	const struct sticky_entry *set =
		sticky->entries[(client >> 32) % STICKY_SETS];

	for (unsigned i = 0; i < STICKY_SLOTS; i++) {
		if (set[i].client != client)
			continue;
		*value = set[i].value;
		if (backend_of(*value) && set[i].client == client)
			return (struct sticky_entry *)(uintptr_t)&set[i];
	}
	return NULL;
}

uint32_t sticky_find(const struct sticky *sticky, uint64_t client,
		     int64_t now_ns, int64_t life_ns)
{
	uint64_t value;

	if (!find_entry(sticky, client, &value) ||
	    !is_live(value, now_ns, life_ns))
		return 0;
	return backend_of(value);
}

/* Returns the slot to take over: a free one, else the one used longest ago. */
static struct sticky_entry *find_victim(struct sticky_entry *set,
					int64_t now_ns, int64_t life_ns,
					uint64_t *value)
{
	struct sticky_entry *oldest = NULL;

	for (unsigned i = 0; i < STICKY_SLOTS; i++) {
		uint64_t v = set[i].value;

		if (v == CLAIMED)
			continue;
		if (!oldest || !is_live(v, now_ns, life_ns) ||
		    age_ms(v, now_ns) > age_ms(*value, now_ns)) {
			oldest = &set[i];
			*value = v;
		}
		if (!is_live(v, now_ns, life_ns))
			break;
	}
	return oldest;
}

bool sticky_put(struct sticky *sticky, uint64_t client, uint32_t backend,
		int64_t now_ns, int64_t life_ns)
{
	struct sticky_entry *set =
		sticky->entries[(client >> 32) % STICKY_SETS];
	uint64_t value = 0, new = make_value(backend, now_ns);

	/* A try fails if another shard has just changed or taken the entry. */
	for (int i = 0; i < TRIES; i++) {
		struct sticky_entry *entry = find_entry(sticky, client, &value);
		bool own = entry != NULL;

		if (!own)
			entry = find_victim(set, now_ns, life_ns, &value);
		if (!entry ||
		    !atomic_compare_exchange_strong(&entry->value, &value,
						    own ? new : CLAIMED))
			continue;
		if (own)
			return false;
		entry->client = client;
		entry->value = new;
		return is_live(value, now_ns, life_ns);
	}
	return false;
}

void sticky_use(struct sticky *sticky, uint64_t client, uint32_t backend,
		int64_t now_ns)
{
	uint64_t value;
	struct sticky_entry *entry = find_entry(sticky, client, &value);

	if (entry && backend_of(value) == backend)
		atomic_compare_exchange_strong(&entry->value, &value,
					       make_value(backend, now_ns));
}

unsigned sticky_count(const struct sticky *sticky, const uint32_t *backends,
		      unsigned n, int64_t now_ns, int64_t life_ns)
{
	const struct sticky_entry *all = sticky->entries[0];
	unsigned count = 0;

	for (unsigned i = 0; i < STICKY_SETS * STICKY_SLOTS; i++) {
		uint64_t value = atomic_load_explicit(&all[i].value,
						      memory_order_relaxed);
		unsigned k = 0;

		if (!is_live(value, now_ns, life_ns))
			continue;
		while (k < n && backends[k] != backend_of(value))
			k++;
		count += k < n;
	}
	return count;
}
