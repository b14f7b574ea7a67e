/*
 * Private to coronet-proxy: what its two files share.
 *
 * coronet_proxy.c opens the stack, listens, watches the backends, says the
 * statistics and drains; coronet_proxy_session.c is one client's connection
 * from its first byte to the last. Both sides of a session are one shard's.
 *
 * What a shard changes lies in its struct proxy_shard and is touched by its
 * thread alone, but for what is named there. What lies in struct proxy is the
 * program's, constant once the shards run but for what is atomic.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

#include "apps/common/coronet_shutdown.h"
#include "apps/common/counters.h"
#include "apps/common/pending.h"
#include "apps/proxy/balance.h"
#include "apps/proxy/proxy_opts.h"
#include "apps/proxy/session_limit.h"

struct session;
struct proxy_shard;

/* A listening address and the coroutine that accepts there. */
struct proxy_door {
	struct proxy_shard *shard;
	struct net_listener *listener;
	struct limit_waiter waiter; /* at the limit of clients */
};

/* Of a shard; others read them. */
struct proxy_counters {
	uint64_t sessions;	       /* now */
	uint64_t accepted, over_limit; /* clients; reset at the limit */
	uint64_t no_backend; /* sessions for which no backend was there */
	uint64_t retries;    /* attempts to connect beyond a session's first */
	uint64_t bad_header; /* PROXY headers wrong, late or too long */
	uint64_t idle;	     /* sessions that moved no byte for too long */
	uint64_t broken;     /* sessions that ended by a reset of one side */
	uint64_t displaced;  /* clients whose PROXY header made room */
	uint64_t bytes_to, bytes_from; /* backends */
};

struct proxy_shard {
	struct net_stack *stack;
	struct balance balance; /* joined to the first shard's */
	struct proxy_door doors[PROXY_MAX_LISTENS + 1];
	unsigned n_doors;
	struct session *free;	       /* kept for the next ones */
	struct pending_list half_open; /* their PROXY headers are not whole */
	struct shutdown shutdown;
	struct limit_shard limit;
	_Alignas(64) struct proxy_counters counters;
};

/* A backend's health check: one shard's, for all. */
struct proxy_check {
	struct proxy_shard *shard;
	int backend;
};

struct proxy {
	struct net_opts net;
	struct proxy_opts opts;
	struct net_addr backends[BALANCE_MAX];
	struct proxy_check checks[BALANCE_MAX];
	struct shutdown_plan shutdown;
	struct proxy_shard *shards;
	unsigned n_shards;
	struct session_limit limit;	/* of all shards' sessions */
	struct pending_limit half_open; /* and of their PROXY headers */
	_Atomic int64_t say_ns; /* when to say again that something ran out */
};

extern struct proxy proxy;

/*
 * Serves a client in coroutines of its own. Owns conn from here on, whatever
 * it returns: 0 or -ENOMEM. The client has its place among --max-clients, which
 * is given back when the session has ended, not when this fails.
 */
int session_start(struct proxy_shard *shard, struct net_conn *conn);

/* Resets a client that has to make room: for half_open. */
void session_displace(struct pending *item);

/* Frees what the shard kept of sessions that are over. */
void session_fini(struct proxy_shard *shard);

/* In coronet_proxy.c: a session of the shard has ended. */
void proxy_session_ended(struct proxy_shard *shard);

/* There: connecting to a backend failed; says so if we are why. */
void proxy_dial_failed(struct proxy_shard *shard, int backend, int err);
