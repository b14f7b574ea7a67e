/*
 * The rate limit: for each source the time at which its answers so far would
 * have been sent if they were evenly spaced (the generic cell rate algorithm).
 */
#include "apps/dns/rate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAYS	 4 /* slots in which a source may be */
#define BURST_NS INT64_C(1000000000)

struct dns_rate_slot {
	uint64_t source; /* its prefix; 0: nothing yet */
	int64_t due_ns;	 /* when its next answer is due */
	uint32_t n_over; /* answers beyond the limit */
};

int dns_rate_init(struct dns_rate *rate, double per_second, unsigned slip,
		  uint64_t seed)
{
	*rate = (struct dns_rate){
		.slots = calloc(DNS_RATE_SOURCES, sizeof(*rate->slots)),
		.interval_ns = (int64_t)((double)BURST_NS / per_second),
		.slip = slip,
		.seed = seed,
	};
	return rate->slots ? 0 : -ENOMEM;
}

void dns_rate_fini(struct dns_rate *rate)
{
	free(rate->slots);
	rate->slots = NULL;
}

/* The prefix of an address, and in its last byte the family; never 0. */
static uint64_t source_of(const struct net_addr *peer)
{
	uint64_t source = 0;

	memcpy(&source, peer->ip, peer->family == 6 ? 7 : 3);
	return source | (uint64_t)peer->family << 56;
}

/* The slots of a source: which ones cannot be known without the seed. */
static struct dns_rate_slot *slots_of(const struct dns_rate *rate,
				      uint64_t source)
{
	uint64_t hash = (source ^ rate->seed) * 0x9e3779b97f4a7c15u;

	hash = (hash ^ hash >> 32 ^ rate->seed >> 7) * 0xd6e8feb86659fd93u;
	return rate->slots + (hash >> 40) % (DNS_RATE_SOURCES / WAYS) * WAYS;
}

static struct dns_rate_slot *find_slot(const struct dns_rate *rate,
				       uint64_t source)
{
	struct dns_rate_slot *slots = slots_of(rate, source), *least = slots;

	for (unsigned i = 0; i < WAYS; i++) {
		if (slots[i].source == source)
			return &slots[i];
		if (slots[i].due_ns < least->due_ns)
			least = &slots[i];
	}
	*least = (struct dns_rate_slot){.source = source};
	return least;
}

enum dns_rate_verdict dns_rate_check(struct dns_rate *rate,
				     const struct net_addr *peer,
				     int64_t now_ns)
{
	struct dns_rate_slot *slot;

	if (!rate->slots)
		return DNS_RATE_SEND;
	slot = find_slot(rate, source_of(peer));
	if (slot->due_ns < now_ns)
		slot->due_ns = now_ns;
	if (slot->due_ns + rate->interval_ns <= now_ns + BURST_NS) {
		slot->due_ns += rate->interval_ns;
		return DNS_RATE_SEND;
	}
	slot->n_over++;
	if (rate->slip > 0 && slot->n_over % rate->slip == 0)
		return DNS_RATE_SLIP;
	return DNS_RATE_DROP;
}
