/*
 * The end of an appliance on coronet, in good order.
 *
 * The first SIGTERM or SIGINT closes its doors; what runs goes on until it is
 * done or the time is up; only then the stack stops, which resets what is left.
 * The second signal ends the process at once, with status 1. All of it on the
 * stack's thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <coronet/net.h>

struct drain_plan {
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
int drain_start(const struct drain_plan *plan);

/* Whether the first signal has come. */
bool drain_begun(void);

/* Something that left() counted has ended. */
void drain_progress(void);

/*
 * Takes no new clients at the listeners (NULL: none), waits up to a second for
 * those whose handshake has begun to be accepted, as long as `takes` says that
 * they are, and closes the listeners. In a coroutine.
 */
void drain_close(struct net_listener **listeners, unsigned n,
		 bool (*takes)(void));

/* A connection that is being closed; on the heap, as a timer is in it. */
struct drain_closing {
	struct coro_timer timer;
	struct net_conn *conn;
	int64_t patience_ns, moved_ns;
	uint32_t left;
};

/* Bytes queued for the peer that it has not acknowledged; 0 when it is gone. */
uint32_t drain_unacked(const struct net_conn *conn);

/*
 * Closes a connection and blocks until the peer has acknowledged everything,
 * however long that takes, so that a process which ends when nothing is left
 * does not end before that. A peer that acknowledges no byte for patience_ns
 * (0: never mind), or the FIN alone for two seconds, is reset. conn is gone.
 */
void drain_conn(struct drain_closing *closing, struct net_conn *conn,
		int64_t patience_ns);
