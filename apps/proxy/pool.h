/*
 * The backends of coronet-proxy, and which of them the next session goes to.
 *
 * A pool is the list of backends in a configuration: it is built once, never
 * changes, and is reference-counted. A reload builds another and passes it to
 * each shard in turn. A struct backend is the state of one: the state that its
 * operator set, its health, its sessions. Pools that have the same backend at
 * the same address share it, so that a reload forgets nothing, and it lives
 * until its last session has ended.
 *
 * A session gets one of the backends that are ready, up and not ejected;
 * without any, one of the backup servers; without these, one of those ejected,
 * since a backend that failed a while ago is better than none. The choice is
 * round robin, the fewest sessions, or a hash of the client's address
 * (balance.h), all in proportion to the weights. The weight of a backend that
 * has recovered grows from zero during the slow start.
 *
 * It uses no sockets and no clock: the caller passes the time. Any thread may
 * call it, except with a cursor, which is one shard's, and unless a comment
 * says otherwise.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/net_stack.h>

#include "apps/proxy/backend_spec.h"
#include "apps/proxy/balance.h"

#define POOL_ALL UINT64_MAX /* a bit each backend */

/* Why a connection to a backend could not be made. */
enum backend_failure {
	BACKEND_REFUSED,     /* it answered with a RST */
	BACKEND_TIMEOUT,     /* it did not answer in time */
	BACKEND_UNREACHABLE, /* no route, or a router said so */
	BACKEND_NO_PORT,     /* of our own was left */
	BACKEND_NO_MEMORY,   /* the same, or --max-conns */
	BACKEND_OTHER,
	BACKEND_FAILURES
};

/* How long something took, counted by bounds. */
#define BACKEND_BOUNDS 16u
struct backend_times {
	_Atomic uint64_t counts[BACKEND_BOUNDS + 1]; /* the last: beyond all */
	_Atomic uint64_t sum_ns;
};
extern const double backend_bounds_s[BACKEND_BOUNDS];

/* Where it is and what it is called never change. */
struct backend {
	char name[BACKEND_NAME_MAX];
	char host[HOST_BYTES];
	uint16_t port;
	_Atomic unsigned refs;
	unsigned streak;   /* the checking shard's: checks against `up` */
	bool checked;	   /* and whether it does */
	_Atomic int state; /* enum backend_state */
	atomic_bool up;
	_Atomic unsigned failures; /* connects in a row */
	_Atomic int64_t ejected_until_ns;
	_Atomic int64_t since_ns; /* the slow start's begin; 0: none */
	_Alignas(64) _Atomic unsigned active; /* sessions now */
	_Atomic uint64_t served, failed;      /* connections made, and not */
	_Atomic uint64_t ejections;
	_Atomic uint64_t not_made[BACKEND_FAILURES]; /* connects of sessions */
	_Atomic uint64_t bytes_to, bytes_from;	     /* by backend_carried() */
	struct backend_times connect, response;
};

struct pool_rules {
	enum balance_kind kind;
	bool checks;	       /* checks run; else all are up */
	unsigned rise, fall;   /* checks in a row */
	unsigned eject_after;  /* failed connects in a row; 0: never */
	int64_t eject_ns;      /* until it is used again */
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
	bool by_name; /* some backend is for certain server names */
	struct pool_entry entries[BALANCE_MAX];
	uint8_t slots[BALANCE_SLOTS];
};

/*
 * A shard's position in the round robin; zeroed except for `next`, where it
 * begins.
 */
struct pool_cursor {
	unsigned next;
	int64_t turns[BALANCE_MAX];
};

/* The requirements of a session. */
struct pool_wish {
	uint64_t hash;	  /* balance_hash() of its client */
	uint64_t allowed; /* backends, a bit each */
	uint64_t tried;	  /* of those, the ones that failed it */
	int64_t now_ns;
};

/*
 * Builds a pool of n backends, with those of `old` (NULL: none) that are the
 * same; the others begin up, and with a slow start if there was an old pool.
 * A state that the configuration changes is set; else what it is now stays.
 * Owned by the caller: one reference. NULL: no memory.
 */
struct pool *pool_build(const struct backend_spec *specs, unsigned n,
			const struct pool_rules *rules, const struct pool *old,
			int64_t now_ns);

/* A copy of a pool with another address of one backend. NULL: no memory. */
struct pool *pool_readdress(const struct pool *old, unsigned index,
			    const struct net_addr *addr);

struct pool *pool_ref(struct pool *pool);
void pool_unref(struct pool *pool); /* NULL is ignored */
struct backend *backend_ref(struct backend *backend);
void backend_unref(struct backend *backend); /* NULL is ignored */

/* The index of that backend, or of that name, or -ENOENT. */
int pool_find(const struct pool *pool, const struct backend *backend);
int pool_find_name(const struct pool *pool, const char *name);

/* How many of a's backends b does not have. */
unsigned pool_count_missing(const struct pool *a, const struct pool *b);

/*
 * The backends for a server name (in lower case; NULL or empty: none said), a
 * bit each: those that serve it best, or else those that serve no names.
 */
uint64_t pool_for_name(const struct pool *pool, const char *name);

/*
 * Chooses a backend and counts one session more there. Returns its index,
 * -EAGAIN: all that could take it are at their maxconn; or -ENOENT.
 */
int pool_take(const struct pool *pool, struct pool_cursor *cursor,
	      const struct pool_wish *wish);

/* A session has ended, or failed to begin. */
void backend_release(struct backend *backend);

/*
 * A connection to it was made, or failed by no fault of ours. pool_failed()
 * returns whether that ejected it.
 */
void pool_connected(const struct pool *pool, unsigned index);
bool pool_failed(const struct pool *pool, unsigned index, int64_t now_ns);

/*
 * What a health check found; returns whether the backend changed its state. The
 * checks of one backend are one thread's.
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
 * Counts a session's bytes of one direction, which were `before` and are `now`,
 * in whole MiB, so that a call after each piece rarely has something to add,
 * and the remainder when it `ends`. A counter is at most a MiB behind a
 * session.
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
	BACKEND_FAILS,	    /* its checks do */
	BACKEND_UNRESOLVED, /* its name has no address yet */
	BACKEND_HEALTHS
};
enum backend_health pool_health(const struct pool *pool, unsigned index,
				int64_t now_ns);
const char *backend_health_name(enum backend_health health);

/* How much of its weight a backend has by now, in per cent: 1 to 100. */
unsigned pool_ramp_percent(const struct pool *pool, unsigned index,
			   int64_t now_ns);

/* How many may be chosen now, backup servers too. */
unsigned pool_usable(const struct pool *pool, int64_t now_ns);

/*
 * Retries, bounded: each session earns a part of one, and what has not been
 * spent is kept up to a bound. One shard's.
 */
struct retry_budget {
	int64_t millis; /* thousandths of a retry */
};
#define RETRY_BUDGET_MAX 100 /* retries kept */
void retry_budget_init(struct retry_budget *budget);
void retry_budget_earn(struct retry_budget *budget, unsigned percent);
bool retry_budget_spend(struct retry_budget *budget);
