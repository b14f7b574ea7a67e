/*
 * The choice of a backend for the next connection of epoll-proxy, and which
 * backends are up; and the table of hashes that coronet-proxy uses as well
 * (pool.h).
 *
 * Plain bookkeeping without sockets; one thread per table. Three ways to
 * choose: round robin        each in turn least connections  the fewest now;
 * among equals, in turn hash               by the client's address: Maglev's
 * lookup table (Eisenbud et al., NSDI 2016, 3.4): every backend gets its share
 * to within a few per cent. The clients of one that is down go to the backends
 * of the next slots, and no other clients move. The table depends only on the
 * names and the weights: proxies with the same list agree.
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
	uint64_t active;	 /* connections now */
	uint64_t served, failed; /* connections made, and not made */
};

struct balance_health {
	bool up;
	unsigned streak; /* consecutive checks that contradict `up` */
};

struct balance {
	enum balance_kind kind;
	unsigned rise, fall; /* consecutive checks that change a state */
	unsigned n, next;
	struct balance_backend backends[BALANCE_MAX];
	uint8_t slots[BALANCE_SLOTS];
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
 * The index of a backend that is up and not in `tried` (a bit each), or
 * -ENOENT. hash: balance_hash() of the client, which only BALANCE_HASH uses.
 */
int balance_choose(struct balance *b, uint64_t hash, uint64_t tried);

/* Report that a connection to a backend was made, has ended, or failed. */
void balance_begin(struct balance *b, int index);
void balance_end(struct balance *b, int index);
void balance_failed(struct balance *b, int index);

/*
 * Reports the result of a health check. Returns whether the backend changed its
 * state.
 */
bool balance_report(struct balance *b, int index, bool well);

bool balance_is_up(const struct balance *b, unsigned index);
unsigned balance_up(const struct balance *b);

/*
 * Fills a table of BALANCE_SLOTS with the indices of n backends: each gets
 * slots in proportion to its weight. If all weights are 0, or there is no
 * backend, every slot is 0xff.
 */
void balance_fill(uint8_t *slots, const char *const *names,
		  const unsigned *weights, unsigned n);

/* FNV-1a, with a final mixing step because its low bits are weak. */
uint64_t balance_hash(const void *bytes, size_t len);
