/*
 * Zones in memory: names by hash, and for each name the answers in wire format,
 * laid out when the zone is loaded, so that a query needs a lookup and a copy.
 *
 * Zones do not change once they are loaded; any number of threads may search
 * them. A reload makes new zones, and frees the old ones when no thread uses
 * them. All memory of a zone lies in an arena, which is freed as a whole.
 */
#pragma once

#include <stdio.h>

#include "apps/dns/query.h"

#define ZONES_MAX	1024
#define ZONE_ERROR_MAX	512
#define ZONE_TARGETS	16    /* links of a chain of CNAMEs that is followed */
#define ZONE_ANSWER_MAX 65000 /* bytes of an answer after its question */

/* ---- memory ---- */

struct arena_chunk;
struct arena {
	struct arena_chunk *chunks;
	size_t used, room; /* of the first chunk */
};

/* Returns zeroed memory for any type, or NULL. */
void *arena_alloc(struct arena *arena, size_t bytes);
void arena_free(struct arena *arena);

/* ---- zones ---- */

/*
 * The part of an answer behind its question. Its compression pointers are
 * correct for a question whose name has base_len bytes. For a longer name, such
 * as one that a wildcard matches or a missing one, the difference is added to
 * the pointers at the offsets in fixups.
 */
struct zone_answer {
	uint16_t type;
	uint16_t flags;	    /* DNS_AA and the rcode */
	uint16_t counts[3]; /* records of answer, authority, additional */
	uint16_t len;
	uint16_t needed_len; /* without records that may be omitted */
	uint16_t needed_additional;
	uint16_t n_fixups;
	uint8_t base_len;
	const uint16_t *fixups;
	const uint8_t *body;
};

struct zone_set; /* while a zone is loaded */

struct zone_node {
	const uint8_t *name; /* in lower case */
	uint32_t hash;
	uint8_t name_len, n_labels;
	uint16_t n_answers, n_sets;
	const struct zone_answer **answers;  /* by type */
	const struct zone_answer *otherwise; /* for all other types */
	const struct zone_node *wildcard;    /* the child "*", or NULL */
	const struct zone_node *cut; /* the delegation at this name or above */
	const struct zone_answer *referral; /* of a delegation */
	struct zone_set *sets;		    /* while the zone is loaded */
};

struct zone {
	struct arena arena;
	struct dns_name apex;
	struct zone_node **slots; /* a hash table, open addressing */
	uint32_t mask;
	uint32_t n_nodes, n_records, serial;
	unsigned max_labels;		   /* of a name in it */
	const struct zone_answer *missing; /* NXDOMAIN */
	const struct zone_answer *no_data;
};

struct zones {
	struct zone *zone[ZONES_MAX];
	unsigned n;
	unsigned max_labels;	       /* of an apex */
	uint16_t slots[4 * ZONES_MAX]; /* index + 1; a hash table */
};

/*
 * Returns the answer to a query for class IN, borrowed from the zones; NULL: no
 * zone is responsible. Does not allocate.
 */
const struct zone_answer *zones_find(const struct zones *zones,
				     const struct dns_query *query);

/* Returns the node of a name with its hash, or NULL. */
struct zone_node *zone_find(const struct zone *zone, uint32_t hash,
			    const uint8_t *name, size_t len);

/* Adds a zone. Returns 0 and owns it, or returns -EEXIST or -ENOSPC. */
int zones_add(struct zones *zones, struct zone *zone);

/* Frees zones and all in them; NULL is ignored. */
void zones_free(struct zones *zones);
void zone_free(struct zone *zone);

/* ---- loading: zone_load.c ---- */

/*
 * Reads a zone in the format of RFC 1035 5. name: of its apex, as text. Returns
 * the zone, owned by the caller, or NULL with a line in error. May block. Any
 * thread.
 */
struct zone *zone_load(const char *name, FILE *file,
		       char error[ZONE_ERROR_MAX]);
