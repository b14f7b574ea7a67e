/*
 * Zones in memory: the tables, and the lookup of RFC 1034 4.3.2 and RFC 4592.
 */
#include "apps/dns/zone_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (256u << 10)

struct arena_chunk {
	struct arena_chunk *next;
	_Alignas(16) char bytes[];
};

void *arena_alloc(struct arena *arena, size_t bytes)
{
	void *at;

	bytes = (bytes + 7) & ~(size_t)7;
	if (arena->room - arena->used < bytes) {
		size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
		struct arena_chunk *chunk = calloc(1, sizeof(*chunk) + room);

		if (!chunk)
			return NULL;
		chunk->next = arena->chunks;
		*arena = (struct arena){chunk, 0, room};
	}
	at = arena->chunks->bytes + arena->used;
	arena->used += bytes;
	return at;
}

void arena_free(struct arena *arena)
{
	while (arena->chunks) {
		struct arena_chunk *next = arena->chunks->next;

		free(arena->chunks);
		arena->chunks = next;
	}
	*arena = (struct arena){0};
}

/* ---- tables ---- */

struct zone_node *zone_find(const struct zone *zone, uint32_t hash,
			    const uint8_t *name, size_t len)
{
	/* At most half of the slots are in use, so this ends. */
	for (uint32_t i = hash;; i++) {
		struct zone_node *node = zone->slots[i & zone->mask];

		if (!node)
			return NULL;
		if (node->hash == hash && node->name_len == len &&
		    memcmp(node->name, name, len) == 0)
			return node;
	}
}

static struct zone_node *find_suffix(const struct zone *zone,
				     const struct dns_name *name, unsigned i)
{
	unsigned at = name->label_at[i];

	return zone_find(zone, name->hash[i], name->wire + at, name->len - at);
}

static void put_node(struct zone *zone, struct zone_node *node)
{
	uint32_t i = node->hash & zone->mask;

	while (zone->slots[i])
		i = (i + 1) & zone->mask;
	zone->slots[i] = node;
}

static int grow_table(struct zone *zone)
{
	uint32_t size = zone->slots ? zone->mask + 1 : 0;
	struct zone_node **old = zone->slots;

	if (zone->n_nodes < size / 2)
		return 0;
	zone->slots = calloc(size ? 2 * (size_t)size : 64, sizeof(*old));
	if (!zone->slots) {
		zone->slots = old;
		return -ENOMEM;
	}
	zone->mask = size ? 2 * size - 1 : 63;
	for (uint32_t i = 0; i < size; i++)
		if (old[i])
			put_node(zone, old[i]);
	free(old);
	return 0;
}

static struct zone_node *make_suffix(struct zone *zone,
				     const struct dns_name *name, unsigned i)
{
	unsigned at = name->label_at[i], len = name->len - at;
	struct zone_node *node;
	uint8_t *copy;

	if (grow_table(zone) < 0)
		return NULL;
	node = arena_alloc(&zone->arena, sizeof(*node));
	copy = arena_alloc(&zone->arena, len);
	if (!node || !copy)
		return NULL;
	memcpy(copy, name->wire + at, len);
	node->name = copy;
	node->name_len = (uint8_t)len;
	node->n_labels = (uint8_t)(name->n_labels - i);
	node->hash = name->hash[i];
	put_node(zone, node);
	zone->n_nodes++;
	if (node->n_labels > zone->max_labels)
		zone->max_labels = node->n_labels;
	return node;
}

struct zone_node *zone_make_node(struct zone *zone, const struct dns_name *name)
{
	struct zone_node *first = NULL, *node;

	/* RFC 4592 2.2.2: the names between this one and the apex exist. */
	for (unsigned i = 0; i + zone->apex.n_labels <= name->n_labels; i++) {
		node = zone->slots ? find_suffix(zone, name, i) : NULL;
		if (node)
			return first ? first : node;
		node = make_suffix(zone, name, i);
		if (!node)
			return NULL;
		if (!first)
			first = node;
	}
	return first;
}

bool zone_has_name(const struct zone *zone, const struct dns_name *name)
{
	const struct dns_name *apex = &zone->apex;
	unsigned at = name->len - apex->len;

	return name->len >= apex->len && name->n_labels >= apex->n_labels &&
	       name->label_at[name->n_labels - apex->n_labels] == at &&
	       memcmp(name->wire + at, apex->wire, apex->len) == 0;
}

static unsigned slot_of(uint32_t hash)
{
	return hash % (4 * ZONES_MAX);
}

static struct zone *find_apex(const struct zones *zones,
			      const struct dns_name *name, unsigned i)
{
	unsigned at = name->label_at[i], len = name->len - at;

	for (unsigned slot = slot_of(name->hash[i]); zones->slots[slot];
	     slot = slot_of(slot + 1)) {
		struct zone *zone = zones->zone[zones->slots[slot] - 1];

		if (zone->apex.len == len &&
		    memcmp(zone->apex.wire, name->wire + at, len) == 0)
			return zone;
	}
	return NULL;
}

int zones_add(struct zones *zones, struct zone *zone)
{
	unsigned slot = slot_of(zone->apex.hash[0]);

	if (find_apex(zones, &zone->apex, 0))
		return -EEXIST;
	if (zones->n == ZONES_MAX)
		return -ENOSPC;
	while (zones->slots[slot])
		slot = slot_of(slot + 1);
	zones->zone[zones->n++] = zone;
	zones->slots[slot] = (uint16_t)zones->n;
	if (zone->apex.n_labels > zones->max_labels)
		zones->max_labels = zone->apex.n_labels;
	return 0;
}

void zone_free(struct zone *zone)
{
	if (!zone)
		return;
	free(zone->slots);
	arena_free(&zone->arena);
	free(zone);
}

void zones_free(struct zones *zones)
{
	for (unsigned i = 0; zones && i < zones->n; i++)
		zone_free(zones->zone[i]);
	free(zones);
}

/* ---- lookup ---- */

/* The zone with the longest apex of those that have the last n labels. */
static const struct zone *find_zone(const struct zones *zones,
				    const struct dns_name *name, unsigned n)
{
	const struct zone *zone = NULL;

	if (n > zones->max_labels)
		n = zones->max_labels;
	for (unsigned i = name->n_labels - n; !zone && i <= name->n_labels; i++)
		zone = find_apex(zones, name, i);
	return zone;
}

/* The zone that answers; for DS, the one above a zone's apex, if it is here. */
static const struct zone *choose_zone(const struct zones *zones,
				      const struct dns_query *query)
{
	const struct dns_name *name = &query->name;
	const struct zone *zone = find_zone(zones, name, name->n_labels), *up;

	if (query->type != DNS_DS || !zone || name->n_labels == 0 ||
	    zone->apex.n_labels != name->n_labels)
		return zone;
	up = find_zone(zones, name, name->n_labels - 1u);
	return up ? up : zone;
}

static const struct zone_answer *answer_of(const struct zone_node *node,
					   unsigned type)
{
	/* RFC 8482 4.1: one set of records is enough for ANY. */
	if (type == DNS_ANY && node->n_answers > 0)
		return node->answers[0];
	for (unsigned i = 0; i < node->n_answers; i++)
		if (node->answers[i]->type == type)
			return node->answers[i];
	return node->otherwise;
}

const struct zone_answer *zones_find(const struct zones *zones,
				     const struct dns_query *query)
{
	const struct dns_name *name = &query->name;
	const struct zone *zone = choose_zone(zones, query);
	const struct zone_node *node = NULL;
	unsigned i = 0;

	if (!zone)
		return NULL;
	if (name->n_labels > zone->max_labels)
		i = name->n_labels - zone->max_labels;
	while (!node) /* the apex exists */
		node = find_suffix(zone, name, i++);
	i--;
	if (node->cut &&
	    !(query->type == DNS_DS && i == 0 && node->cut == node))
		return node->cut->referral;
	if (i == 0)
		return answer_of(node, query->type);
	if (node->wildcard)
		return answer_of(node->wildcard, query->type);
	return zone->missing;
}
