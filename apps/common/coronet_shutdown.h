/*
 * Graceful shutdown of an appliance on coronet.
 *
 * The first SIGTERM or SIGINT closes its listeners; sessions go on until they
 * are done or the time is up; only then the stack stops, which resets what is
 * left. The second signal ends the process at once, with status 1. All of it
 * runs on the stack's thread. The twins' is epoll_shutdown.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

struct shutdown_plan {
	struct net_stack *stack;
	const char *program, *what; /* "coronet-proxy", "sessions" */
	int64_t timeout_ns;
	void (*begin)(void);	/* closes the doors; in a coroutine */
	unsigned (*left)(void); /* how much still runs */
};

/*
 * Starts the coroutine that waits for the signal: before net_stack_run(), whose
 * own handlers it replaces. plan is borrowed for good. 0 or -ENOMEM.
 */
int shutdown_start(const struct shutdown_plan *plan);

/* Whether the first signal has come. */
bool shutdown_begun(void);

/* Something that left() counted has ended. */
void shutdown_progress(void);

/*
 * Takes no new clients at the listeners (NULL: none), waits up to a second for
 * those whose handshake has begun to be accepted, as long as `takes` says that
 * they are, and closes the listeners. In a coroutine.
 */
void shutdown_close_listeners(struct net_listener **listeners, unsigned n,
			      bool (*takes)(void));

/* A connection that is being closed; on the heap, as a timer is in it. */
struct shutdown_closing {
	struct coro_timer timer;
	struct net_conn *conn;
	int64_t patience_ns, moved_ns;
	uint32_t left;
};

/* Bytes queued for the peer that it has not acknowledged; 0 when it is gone. */
uint32_t shutdown_unacked(const struct net_conn *conn);

/*
 * Closes a connection and blocks until the peer has acknowledged everything,
 * however long that takes, so that a process which ends when nothing is left
 * does not end before that. A peer that acknowledges no byte for patience_ns
 * (0: never mind), or the FIN alone for two seconds, is reset. conn is gone.
 */
void shutdown_close_conn(struct shutdown_closing *closing,
			 struct net_conn *conn, int64_t patience_ns);
