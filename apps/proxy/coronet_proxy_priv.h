/*
 * Private to coronet-proxy: what its two files share.
 *
 * coronet_proxy.c opens the stack, listens, watches the backends, says the
 * statistics and drains; coronet_proxy_session.c is one client's connection
 * from its first byte to the last. All of it runs on the stack's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

#include "apps/common/pending.h"
#include "apps/proxy/balance.h"
#include "apps/proxy/proxy_opts.h"

struct session;

/* A listening address and the coroutine that accepts there. */
struct proxy_door {
	struct net_listener *listener;
	struct coro *waiting; /* at the limit of clients; else NULL */
};

struct proxy_counters {
	uint64_t accepted, over_limit; /* clients; reset at the limit */
	uint64_t no_backend; /* sessions for which no backend was there */
	uint64_t retries;    /* attempts to connect beyond a session's first */
	uint64_t bad_header; /* PROXY headers wrong, late or too long */
	uint64_t idle;	     /* sessions that moved no byte for too long */
	uint64_t broken;     /* sessions that ended by a reset of one side */
	uint64_t bytes_to, bytes_from; /* backends */
};

struct proxy {
	struct net_opts net;
	struct proxy_opts opts;
	struct net_stack *stack;
	struct balance balance;
	struct net_addr backends[BALANCE_MAX];
	struct proxy_door doors[PROXY_MAX_LISTENS + 1];
	unsigned n_doors;
	unsigned sessions;	       /* now */
	struct session *free;	       /* kept for the next ones */
	struct pending_list half_open; /* their PROXY headers are not whole */
	int64_t say_ns; /* when to say again that something ran out */
	struct proxy_counters counters;
};

extern struct proxy proxy;

/*
 * Serves a client in coroutines of its own. Owns conn from here on, whatever
 * it returns: 0 or -ENOMEM.
 */
int session_start(struct net_conn *conn);

/* Resets a client that has to make room: for proxy.half_open. */
void session_displace(struct pending *item);

/* Frees what was kept of sessions that are over. */
void session_fini(void);

/* In coronet_proxy.c: a session has ended. */
void proxy_session_ended(void);

/* There: connecting to a backend failed; says so if we are why. */
void proxy_dial_failed(int backend, int err);
