/*
 * Graceful shutdown of an appliance on coronet.
 *
 * The first SIGTERM or SIGINT closes every shard's listeners. Sessions continue
 * until no shard has any left or the time is up; only then the stacks stop,
 * which resets the remaining sessions. The second signal ends the process at
 * once, with status 1. From the first one on, /health answers "draining". The
 * twins on epoll use epoll_threads.h.
 *
 * Code of a shard runs on its thread; messages between shards are posted.
 * Nothing here is on the path of data.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

/* The plan of the program, for all shards; constant. */
struct shutdown_plan {
	const char *program, *what; /* "coronet-proxy", "sessions" */
	int64_t timeout_ns;
	void (*begin)(void *shard);    /* closes listeners; in a coroutine */
	unsigned (*left)(void *shard); /* sessions left on the shard */
	unsigned (*total)(void);       /* left on all shards, for the log */
};

/* A shard's part; in memory that stays until the process ends. Private. */
struct shutdown {
	const struct shutdown_plan *plan;
	struct net_stack *stack;
	void *shard;
	struct coro_sched *sched;
	struct coro_wake wake;
	struct coro *waiter;
	bool begun, gone;
	struct shutdown *next;
};

/*
 * Starts the shard's coroutine that waits for the signal. Called on the shard's
 * thread before net_stack_run(), whose own handlers it replaces. shard: the
 * argument of the plan's calls. All pointers are borrowed until the process
 * ends. Returns 0 or -ENOMEM.
 */
int shutdown_start(struct shutdown *s, const struct shutdown_plan *plan,
		   struct net_stack *stack, void *shard);

/* Returns whether the shard has begun to drain. */
static inline bool shutdown_begun(const struct shutdown *s)
{
	return s->begun;
}

/* Called when a session of the shard, as counted by left(), has ended. */
void shutdown_progress(struct shutdown *s);

/*
 * Makes the listeners (NULL: none) refuse new clients, waits at most a second
 * until those whose handshake has begun are accepted, as long as takes()
 * returns true, and closes the listeners. Called in a coroutine.
 */
void shutdown_close_listeners(struct shutdown *s,
			      struct net_listener **listeners, unsigned n,
			      bool (*takes)(void *shard));

/* A connection that is being closed; on the heap, as a timer is in it. */
struct shutdown_closing {
	struct coro_timer timer;
	struct net_conn *conn;
	int64_t timeout_ns, moved_ns;
	uint32_t left;
};

/* Bytes queued for the peer and not acknowledged; 0: the peer is gone. */
uint32_t shutdown_unacked(const struct net_conn *conn);

/*
 * Closes a connection and blocks until the peer has acknowledged everything, so
 * that the process does not end before that. A peer is reset if it acknowledges
 * no byte for timeout_ns (0: no limit), or if only the FIN is unacknowledged
 * for two seconds. conn is closed on return.
 */
void shutdown_close_conn(struct shutdown_closing *closing,
			 struct net_conn *conn, int64_t timeout_ns);
