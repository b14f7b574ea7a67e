/* Chooses the backend of a connection, and tracks which backends are up. */
#include "apps/proxy/balance.h"

#include <errno.h>
#include <string.h>

#define NOBODY 0xff

uint64_t balance_hash(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ at[i]) * 0x100000001b3u;
	h = (h ^ (h >> 32)) * 0x9e3779b97f4a7c15u;
	h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
	return h ^ (h >> 32);
}

void balance_init(struct balance *b, enum balance_kind kind, unsigned rise,
		  unsigned fall)
{
	memset(b, 0, sizeof(*b));
	b->kind = kind;
	b->rise = rise;
	b->fall = fall;
	memset(b->slots, NOBODY, sizeof(b->slots));
}

int balance_add(struct balance *b, const char *name)
{
	struct balance_backend *backend = &b->backends[b->n];

	if (strlen(name) >= sizeof(backend->name))
		return -ENAMETOOLONG;
	for (unsigned i = 0; i < b->n; i++)
		if (strcmp(b->backends[i].name, name) == 0)
			return -EEXIST;
	if (b->n == BALANCE_MAX)
		return -ENOSPC;
	strcpy(backend->name, name);
	b->health[b->n].up = true;
	return (int)b->n++;
}

/*
 * Maglev: each backend has a permutation of all slots, made from two halves of
 * a hash of its name. Backends take their next free slot in turn, the heaviest
 * one in each round. Bounded: a permutation of a prime number of slots visits
 * each once, and some backend takes one in each round.
 */
void balance_fill(uint8_t *slots, const char *const *names,
		  const unsigned *weights, unsigned n)
{
	uint32_t at[BALANCE_MAX], step[BALANCE_MAX];
	unsigned filled = 0, heaviest = 0, gained[BALANCE_MAX] = {0};

	memset(slots, NOBODY, BALANCE_SLOTS);
	for (unsigned i = 0; i < n; i++) {
		uint64_t h = balance_hash(names[i], strlen(names[i]));

		at[i] = (uint32_t)((h >> 32) % BALANCE_SLOTS);
		step[i] = (uint32_t)(h & 0xffffffff) % (BALANCE_SLOTS - 1) + 1;
		if (weights[i] > heaviest)
			heaviest = weights[i];
	}
	while (filled < BALANCE_SLOTS && heaviest) {
		for (unsigned i = 0; i < n && filled < BALANCE_SLOTS; i++) {
			gained[i] += weights[i];
			if (gained[i] < heaviest)
				continue;
			gained[i] -= heaviest;
			while (slots[at[i]] != NOBODY)
				at[i] = (at[i] + step[i]) % BALANCE_SLOTS;
			slots[at[i]] = (uint8_t)i;
			filled++;
		}
	}
}

void balance_ready(struct balance *b)
{
	const char *names[BALANCE_MAX];
	unsigned weights[BALANCE_MAX];

	for (unsigned i = 0; i < b->n; i++) {
		names[i] = b->backends[i].name;
		weights[i] = 1;
	}
	if (b->kind == BALANCE_HASH)
		balance_fill(b->slots, names, weights, b->n);
}

bool balance_is_up(const struct balance *b, unsigned index)
{
	return b->health[index].up;
}

static bool may_take(const struct balance *b, unsigned i, uint64_t tried)
{
	return balance_is_up(b, i) && !(tried >> i & 1);
}

static int choose_in_turn(struct balance *b, uint64_t tried)
{
	for (unsigned k = 0; k < b->n; k++) {
		unsigned i = b->next;

		b->next = (b->next + 1) % b->n;
		if (may_take(b, i, tried))
			return (int)i;
	}
	return -ENOENT;
}

static int choose_least(struct balance *b, uint64_t tried)
{
	uint64_t fewest = UINT64_MAX;
	int best = -ENOENT;

	for (unsigned k = 0; k < b->n; k++) {
		unsigned i = (b->next + k) % b->n;
		uint64_t active = b->backends[i].active;

		if (may_take(b, i, tried) && active < fewest) {
			fewest = active;
			best = (int)i;
		}
	}
	if (best >= 0)
		b->next = ((unsigned)best + 1) % b->n;
	return best;
}

/* Backends that are down or tried are skipped: the next slot may be any's. */
static int choose_by_hash(const struct balance *b, uint64_t hash,
			  uint64_t tried)
{
	for (unsigned k = 0; k < BALANCE_SLOTS; k++) {
		uint8_t i = b->slots[(hash + k) % BALANCE_SLOTS];

		if (i == NOBODY)
			break;
		if (may_take(b, i, tried))
			return i;
	}
	return -ENOENT;
}

int balance_choose(struct balance *b, uint64_t hash, uint64_t tried)
{
	switch (b->kind) {
	case BALANCE_RR:
		return choose_in_turn(b, tried);
	case BALANCE_LEAST:
		return choose_least(b, tried);
	case BALANCE_HASH:
		return choose_by_hash(b, hash % BALANCE_SLOTS, tried);
	}
	return -ENOENT;
}

void balance_begin(struct balance *b, int index)
{
	b->backends[index].active++;
	b->backends[index].served++;
}

void balance_end(struct balance *b, int index)
{
	b->backends[index].active--;
}

void balance_failed(struct balance *b, int index)
{
	b->backends[index].failed++;
}

bool balance_report(struct balance *b, int index, bool well)
{
	struct balance_health *health = &b->health[index];

	if (well == health->up) {
		health->streak = 0;
		return false;
	}
	if (++health->streak < (well ? b->rise : b->fall))
		return false;
	health->streak = 0;
	health->up = well;
	return true;
}

unsigned balance_up(const struct balance *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < b->n; i++)
		n += balance_is_up(b, i);
	return n;
}
