/*
 * Names that were asked for, with their addresses or the reason why they have
 * none. An entry that is in use (a query, a call) is never removed.
 */
#include "netstack/resolve/resolve_priv.h"

#include <errno.h>
#include <string.h>

#include "netstack/mem/mem.h"

#define NS_PER_S INT64_C(1000000000)

/* Keyed, since clients may choose the names that a program looks up. */
static uint64_t hash_name(const char *text, uint8_t family)
{
	uint64_t h = net_here()->hash_key[0] ^ family;

	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ (h >> 32);
}

static struct net_name **bucket_of(struct net_name_cache *cache, uint64_t hash)
{
	return &cache->buckets[hash % NET_NAME_BUCKETS];
}

static void unlink_use(struct net_name_cache *cache, struct net_name *name)
{
	*(name->older ? &name->older->newer : &cache->oldest) = name->newer;
	*(name->newer ? &name->newer->older : &cache->newest) = name->older;
}

static void link_newest(struct net_name_cache *cache, struct net_name *name)
{
	name->older = cache->newest;
	name->newer = NULL;
	*(name->older ? &name->older->newer : &cache->oldest) = name;
	cache->newest = name;
}

static void remove_name(struct net_name_cache *cache, struct net_name *name)
{
	struct net_name **link = bucket_of(cache, name->hash);

	while (*link != name)
		link = &(*link)->hash_next;
	*link = name->hash_next;
	unlink_use(cache, name);
	cache->n--;
	net_mem_free(name);
}

static bool is_in_use(const struct net_name *name)
{
	return name->asked || name->refs;
}

/* Removes the entry that was not used for the longest time. */
static bool make_room(struct net_name_cache *cache)
{
	for (struct net_name *name = cache->oldest; name; name = name->newer)
		if (!is_in_use(name)) {
			remove_name(cache, name);
			return true;
		}
	return false;
}

static struct net_name *add_name(struct net_name_cache *cache, const char *text,
				 uint8_t family, uint64_t hash)
{
	size_t len = strlen(text) + 1;
	struct net_name *name = net_mem_malloc(sizeof(*name) + len);
	struct net_name **bucket = bucket_of(cache, hash);

	if (!name)
		return NULL;
	memset(name, 0, sizeof(*name));
	memcpy(name->text, text, len);
	name->hash = hash;
	name->family = family;
	name->hash_next = *bucket;
	*bucket = name;
	link_newest(cache, name);
	cache->n++;
	return name;
}

int net_name_get(struct net_name_cache *cache, const char *text, uint8_t family,
		 struct net_name **out)
{
	uint64_t hash = hash_name(text, family);
	struct net_name *name = *bucket_of(cache, hash);

	while (name && (name->hash != hash || name->family != family ||
			strcmp(name->text, text) != 0))
		name = name->hash_next;
	if (name) {
		unlink_use(cache, name);
		link_newest(cache, name);
	} else {
		if (cache->n >= NET_RESOLVE_NAMES && !make_room(cache))
			return -ENOBUFS;
		name = add_name(cache, text, family, hash);
		if (!name)
			return -ENOMEM;
	}
	name->refs++;
	*out = name;
	return 0;
}

void net_name_put(void *arg)
{
	((struct net_name *)arg)->refs--;
}

void net_name_answer(struct net_name *name, int err, int64_t ttl_s)
{
	name->asked = false;
	name->err = (int16_t)err;
	name->answers++;
	name->expires_ns = net_here()->now_ns + ttl_s * NS_PER_S;
	for (unsigned i = 0; i < name->refs; i++)
		coro_sem_post(&name->answered);
}

void net_name_cache_clear(struct net_name_cache *cache)
{
	while (cache->oldest)
		remove_name(cache, cache->oldest);
}
