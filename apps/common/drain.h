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
 * Accepting clients until the doors close: lets whoever accepts from the
 * listener take what is queued there, then closes it. In a coroutine.
 */
void drain_close(struct net_listener *listener, bool (*takes)(void));

/*
 * Blocks until all that was queued for the peer is at least on its way to it,
 * so that a process which ends when nothing is left does not end before that:
 * 0, -ETIMEDOUT when the peer takes no byte for so long (0: never), -ENOTCONN,
 * -ECANCELED. The connection is still to be closed.
 */
int drain_flush(struct net_conn *conn, int64_t patience_ns);
