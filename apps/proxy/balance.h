/*
 * Which backend the next connection goes to, and which backends are up.
 *
 * Plain bookkeeping without sockets, shared by coronet-proxy and epoll-proxy.
 * One thread a table. The tables of one program may be joined: a backend that
 * one finds down is down in all at once, and each counts the connections of
 * all. Three ways to choose: round robin        each in turn least connections
 * the fewest now; among equals, in turn hash               by the client's
 * address: Maglev's lookup table (Eisenbud et al., NSDI 2016, 3.4): every
 * backend gets its share to within a few per cent. The clients of one that is
 * down go to the backends of the next slots, and nobody else's move. The table
 * depends on the names and on nothing else: proxies with the same list agree.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BALANCE_MAX	 64	/* backends, one bit each in a uint64_t */
#define BALANCE_SLOTS	 16381u /* a prime, over 100 x the backends */
#define BALANCE_NAME_MAX 64	/* bytes, NUL included */

enum balance_kind { BALANCE_RR, BALANCE_LEAST, BALANCE_HASH };

struct balance_backend {
	char name[BALANCE_NAME_MAX];
	uint64_t active;	 /* connections now; read by other threads */
	uint64_t served, failed; /* connections made, and not made */
};

struct balance_health {
	bool up;
	unsigned streak; /* checks in a row that speak against `up` */
};

struct balance {
	enum balance_kind kind;
	unsigned rise, fall; /* checks in a row that change a backend's state */
	unsigned n, next;
	struct balance *first, *joined; /* the program's tables: a list */
	struct balance_backend backends[BALANCE_MAX];
	uint8_t slots[BALANCE_SLOTS];
	/* The first table's is for all; apart from what connections write. */
	struct balance_health health[BALANCE_MAX];
};

/* rise, fall: at least 1. Call balance_ready() after the last backend. */
void balance_init(struct balance *b, enum balance_kind kind, unsigned rise,
		  unsigned fall);

/*
 * Adds a backend, up. The name is copied. Returns its index, -EEXIST,
 * -ENOSPC, or -ENAMETOOLONG.
 */
int balance_add(struct balance *b, const char *name);
void balance_ready(struct balance *b);

/*
 * Joins a table to the first one of the program, of the same backends: before
 * any other thread uses either. Both have to stay.
 */
void balance_join(struct balance *b, struct balance *first);

/*
 * The index of a backend that is up and not among those tried (a bit each), or
 * -ENOENT. hash: balance_hash() of the client, used by BALANCE_HASH alone.
 */
int balance_choose(struct balance *b, uint64_t hash, uint64_t tried);

/* A connection to a backend exists, is over, could not be made. */
void balance_begin(struct balance *b, int index);
void balance_end(struct balance *b, int index);
void balance_failed(struct balance *b, int index);

/* How many connections a backend has, those of joined tables too. */
uint64_t balance_active(const struct balance *b, int index);

/*
 * What a health check found. Returns whether the backend changed its state. The
 * checks of one backend are one thread's.
 */
bool balance_report(struct balance *b, int index, bool well);

bool balance_is_up(const struct balance *b, unsigned index);
unsigned balance_up(const struct balance *b);

/* FNV-1a with a finish that spreads its low bits' weakness over all. */
uint64_t balance_hash(const void *bytes, size_t len);
