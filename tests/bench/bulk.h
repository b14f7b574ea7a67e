/*
 * Both ends of a bulk stream, for bench-bulk and bench-bulk-loop: one writes
 * without waiting and reads what comes back, the other discards or echoes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/net.h>

#define BULK_PORT 7777
#define BULK_MAX  (1u << 20) /* bytes handed over at once */

struct bulk {
	struct net_stack *stack;
	const char *to, *from;	     /* addresses; from: NULL for any */
	const void *block;	     /* BULK_MOST bytes, borrowed */
	size_t size;		     /* of it, at once */
	bool echo, given;	     /* given: net_send_owned() */
	volatile uint64_t *received; /* bytes at the end of their path */
};
extern struct bulk bulk;

/* The handler at BULK_PORT. */
void bulk_serve(struct net_conn *conn, void *arg);

/* A coroutine: dials, and sends until the stack stops. Ends the program if
 * nobody answers. */
void *bulk_send(void *arg);
