/*
 * Counts the clients of each source. A source is an IPv4 address or an IPv6
 * /64, in which a host can choose any address. Used by one thread; zeroed at
 * first.
 */
#pragma once

#include <stdint.h>
#include <sys/socket.h>

#define SOURCES_BUCKETS 4096

struct source_count;

struct sources {
	struct source_count *buckets[SOURCES_BUCKETS];
};

/* A source. An IPv4-mapped address counts as IPv4. */
struct source_key {
	uint64_t prefix;
	uint8_t family; /* 4 or 6; 0: none, counted nowhere */
};

struct source_key source_key_of(const struct sockaddr_storage *addr);

/* How many clients the source has. */
unsigned sources_count(const struct sources *sources, struct source_key key);

/* Counts one client more. Returns 0 or -ENOMEM. */
int sources_add(struct sources *sources, struct source_key key);

/* Counts one client fewer; the source has one, unless family is 0. */
void sources_remove(struct sources *sources, struct source_key key);
