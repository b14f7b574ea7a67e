/*
 * The backends of coronet-proxy, and the choice of one for each session.
 *
 * A pool is the list of backends in a configuration: it is built once, never
 * changes, and is reference-counted. A reload builds another and passes it to
 * each shard in turn. A struct backend is the state of one backend: the state
 * that its operator set, its health, its sessions. Pools that have the same
 * backend at the same address share it, so that a reload keeps its state; it
 * exists until its last session has ended.
 *
 * A session gets one of the backends that are ready, up and not ejected, and
 * whose weight is not 0;
 * without any, one of the backup servers; without these, one of those ejected,
 * since a backend that failed a while ago is better than none. The choice is
 * round robin, the fewest sessions, or a hash of the client's address
 * (balance.h), all in proportion to the weights. The weight of a backend that
 * has recovered grows from zero during the slow start.
 *
 * It uses no sockets and no clock: the caller passes the time. Any thread may
 * call it, unless a comment says otherwise; a cursor belongs to one shard.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/net_stack.h>

#include "apps/proxy/backend_spec.h"
#include "apps/proxy/balance.h"
#include "apps/proxy/sticky.h"

#define POOL_ALL UINT64_MAX /* a bit for each backend */

/* Why a connection to a backend could not be made. */
enum backend_failure {
	BACKEND_REFUSED,     /* it answered with a RST */
	BACKEND_TIMEOUT,     /* it did not answer in time */
	BACKEND_UNREACHABLE, /* no route, or a router said so */
	BACKEND_NO_PORT,     /* no local port was free */
	BACKEND_NO_MEMORY,   /* no memory, or --max-conns reached */
	BACKEND_BAD_TLS,     /* its handshake or certificate */
	BACKEND_OTHER,
	BACKEND_FAILURES
};

/* A histogram of durations, with fixed bounds. */
#define BACKEND_BOUNDS 16u
struct backend_times {
	_Atomic uint64_t
		counts[BACKEND_BOUNDS + 1]; /* [16]: above all bounds */
	_Atomic uint64_t sum_ns;
};
extern const double backend_bounds_s[BACKEND_BOUNDS];

/* A backend, whose name and address never change. */
struct backend {
	char name[BACKEND_NAME_MAX];
	char host[HOST_BYTES];
	uint16_t port;
	_Atomic unsigned refs;
	unsigned streak;   /* the checking shard's: checks that contradict up */
	bool checked;	   /* the checking shard's: it has begun to check */
	_Atomic int state; /* enum backend_state */
	atomic_bool up;
	_Atomic unsigned failures; /* consecutive failed connects */
	_Atomic int64_t ejected_until_ns;
	_Atomic int64_t since_ns; /* start of the slow start; 0: none */
	_Atomic int64_t gone_ns;  /* when it left the pool; 0: it has not */
	_Atomic uint32_t number;  /* for sticky.h: a new one when it goes down,
				     is drained or gets weight 0 */
	_Alignas(64) _Atomic unsigned active; /* sessions now */
	_Atomic uint64_t served, failed;      /* connections made, and not */
	_Atomic uint64_t ejections;
	_Atomic uint64_t not_made[BACKEND_FAILURES]; /* failed, by reason */
	_Atomic uint64_t bytes_to, bytes_from;	     /* by backend_carried() */
	struct backend_times connect, response;
};

struct pool_rules {
	enum balance_kind kind;
	unsigned rise, fall;   /* consecutive checks that change `up` */
	unsigned eject_after;  /* consecutive failed connects; 0: never */
	int64_t eject_ns;      /* duration of an ejection */
	int64_t slow_start_ns; /* 0: none */
};

struct pool_entry {
	struct backend *backend; /* owned: a reference */
	struct backend_spec spec;
	struct net_addr addr; /* family 0: not resolved yet */
};

struct pool {
	_Atomic unsigned refs;
	struct pool_rules rules;
	unsigned n;
	bool by_name; /* a backend serves only certain server names */
	struct pool_entry entries[BALANCE_MAX];
	uint8_t slots[BALANCE_SLOTS];
};

/*
 * A shard's position in the round robin. Zeroed, except for `next`, the backend
 * to begin with.
 */
struct pool_cursor {
	unsigned next;
	int64_t turns[BALANCE_MAX];
};

/* The requirements of a session. */
struct pool_wish {
	uint64_t hash;	  /* balance_hash() of its client */
	uint64_t allowed; /* backends, a bit each */
	uint64_t tried;	  /* allowed backends that have failed it already */
	int64_t now_ns;
	uint32_t kept; /* the number of its client's backend; 0: none */
};

/*
 * Builds a pool of n backends. Backends that are also in `old` (NULL: none) are
 * shared with it, and stay as they are until pool_replace(); others begin up,
 * with a slow start if there was an old pool. The caller owns one reference.
 * Returns NULL without memory.
 */
struct pool *pool_build(const struct backend_spec *specs, unsigned n,
			const struct pool_rules *rules, const struct pool *old,
			int64_t now_ns);

/* Copies a pool, with another address of one backend. NULL: no memory. */
struct pool *pool_readdress(const struct pool *old, unsigned index,
			    const struct net_addr *addr);

struct pool *pool_ref(struct pool *pool);
void pool_unref(struct pool *pool); /* NULL is ignored */
struct backend *backend_ref(struct backend *backend);
void backend_unref(struct backend *backend); /* NULL is ignored */

/* The index of a backend, or of the one with a name; or -ENOENT. */
int pool_find(const struct pool *pool, const struct backend *backend);
int pool_find_name(const struct pool *pool, const char *name);

/* How many of a's backends b does not have. */
unsigned pool_count_missing(const struct pool *a, const struct pool *b);

/*
 * Called just before `pool`, which was built or readdressed from `old`, takes
 * its place. Backends of both get the state that the new configuration changes;
 * those that `pool` lacks get the time as gone_ns.
 */
void pool_replace(const struct pool *old, const struct pool *pool,
		  int64_t now_ns);

/*
 * The backends for a server name (in lower case; NULL or empty: none given), a
 * bit each: those that match it best or, without a match, those that are not
 * restricted to names.
 */
uint64_t pool_for_name(const struct pool *pool, const char *name);

/*
 * Returns the index of the backend that the client keeps, or -ENOENT: none that
 * it may have now. It is no other while it is up, even if it is full.
 */
int pool_kept(const struct pool *pool, const struct pool_wish *wish);

/*
 * A number for those backends of the pool that serve the same server names,
 * some of which are `allowed`: for the clients' backends of each such group.
 */
uint64_t pool_group(const struct pool *pool, uint64_t allowed);

/*
 * Chooses a backend, the one that the client keeps if there is one, and counts
 * one more session for it. Returns its index, -EAGAIN (all suitable ones are at
 * their maxconn) or -ENOENT (there is none).
 */
int pool_take(const struct pool *pool, struct pool_cursor *cursor,
	      const struct pool_wish *wish);

/* Called when a session has ended, or has failed to begin. */
void backend_release(struct backend *backend);

/*
 * Called when a connection to a backend was made, or has failed for a reason
 * that is not local. pool_failed() returns whether that ejects the backend.
 */
void pool_connected(const struct pool *pool, unsigned index);
bool pool_failed(const struct pool *pool, unsigned index, int64_t now_ns);

/*
 * Reports the result of a health check. Returns whether `up` has changed. One
 * thread does all checks of a backend.
 */
bool pool_report(const struct pool *pool, unsigned index, bool well,
		 int64_t now_ns);

/* Sets the operator's state. BACKEND_READY begins a slow start. */
void backend_set_state(struct backend *backend, enum backend_state state,
		       int64_t now_ns);

/* Counts a failed connection; err: the error of net_dial(). */
void backend_count_failure(struct backend *backend, int err);
const char *backend_failure_name(enum backend_failure failure);

void backend_count_time(struct backend_times *times, int64_t ns);

/*
 * Adds a session's bytes in one direction, which have grown from `before` to
 * `now`, to a counter: in whole MiB, so that a call after each piece rarely has
 * something to add, and the remainder when the session `ends`. The counter is
 * at most a MiB behind the session.
 */
#define BACKEND_STEP (UINT64_C(1) << 20)
static inline void backend_carried(_Atomic uint64_t *counter, uint64_t before,
				   uint64_t now, bool ends)
{
	uint64_t counted = before & ~(BACKEND_STEP - 1);
	uint64_t due = ends ? now : now & ~(BACKEND_STEP - 1);

	if (due != counted)
		atomic_fetch_add_explicit(counter, due - counted,
					  memory_order_relaxed);
}

/* Why a backend gets no new sessions, apart from the operator's state. */
enum backend_health {
	BACKEND_UP,
	BACKEND_WARMING,    /* in its slow start */
	BACKEND_EJECTED,    /* after failed connects */
	BACKEND_FAILS,	    /* its health checks fail */
	BACKEND_UNRESOLVED, /* its name has no address yet */
	BACKEND_HEALTHS
};
enum backend_health pool_health(const struct pool *pool, unsigned index,
				int64_t now_ns);
const char *backend_health_name(enum backend_health health);

/* The part of its weight that a backend has now, in per cent: 1 to 100. */
unsigned pool_ramp_percent(const struct pool *pool, unsigned index,
			   int64_t now_ns);

/* How many backends may be chosen now, including backup servers. */
unsigned pool_usable(const struct pool *pool, int64_t now_ns);

/*
 * A bound on retries: each session earns a part of one, and unspent ones are
 * kept up to a limit. Used by one shard.
 */
struct retry_budget {
	int64_t millis; /* thousandths of a retry */
};
#define RETRY_BUDGET_MAX 100 /* retries kept */
void retry_budget_init(struct retry_budget *budget);
void retry_budget_earn(struct retry_budget *budget, unsigned percent);
bool retry_budget_spend(struct retry_budget *budget);
