/*
 * Private to the files that load zones: records as they are read, from which
 * zone_build.c lays out answers.
 */
#pragma once

#include "apps/dns/zone.h"

/* The data of a record, uncompressed. */
struct zone_record {
	const uint8_t *rdata;
	uint16_t len;
	struct zone_record *next;
};

/* The records of one name and type. */
struct zone_set {
	uint16_t type;
	uint32_t ttl;
	unsigned n;
	size_t least_bytes; /* of an answer with them; names may be pointers */
	struct zone_record *records;
	struct zone_set *next; /* by type */
};

/* A message with the name of the records. */
#define ZONE_TOO_LARGE "%.255s has more records than an answer holds"

struct zone_builder {
	struct zone *zone;
	struct arena arena; /* for sets and records */
	char *error;	    /* ZONE_ERROR_MAX bytes */
};

/* Returns the node of a name. Makes it if necessary, and those above it up to
 * the apex; NULL: no memory. */
struct zone_node *zone_make_node(struct zone *zone,
				 const struct dns_name *name);

/* Returns whether a name is the zone's apex or below it. */
bool zone_has_name(const struct zone *zone, const struct dns_name *name);

/* Returns the node's set of a type, or NULL. */
const struct zone_set *zone_node_set(const struct zone_node *node,
				     uint16_t type);

/*
 * Lays out the answers of all names. Returns 0, -ENOMEM, or -EMSGSIZE with a
 * line in the builder's error.
 */
int zone_build(struct zone_builder *builder);

/* Writes a name as text, for messages. Returns text. */
#define ZONE_NAME_TEXT 1024
const char *zone_name_text(const uint8_t *name, char text[ZONE_NAME_TEXT]);
