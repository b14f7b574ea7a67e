/*
 * The exception path: what a link brings that the stack has no use for goes to
 * an interface of the kernel, and comes back from there (--exception).
 *
 * program/exception_rule.h has the option; exception.c says which frame goes
 * where and moves it. docs/deploy.md has the table.
 *
 * Threads: an exception is written while shard 0 opens and closes its links,
 * the two due times excepted, which are atomic; any shard gives frames to the
 * kernel, shard 0 alone takes the kernel's.
 */
#pragma once

#include <stdatomic.h>

#include "netstack/link/link_priv.h"
#include "netstack/program/exception_rule.h"

struct net_exception {
	struct net_exception_rule rule;
	int fd;
	_Atomic int64_t in_due_ns; /* one more frame to the kernel may go */
	int64_t out_due_ns;	   /* and from it; shard 0's */
	int64_t next_read_ns;	   /* shard 0's */
};

enum net_way {
	NET_WAY_STACK,
	NET_WAY_KERNEL,
	NET_WAY_BOTH,
	NET_WAY_NONE,
};

/*
 * Where a frame goes that glue_rx() gave, by the rule alone. A TCP segment to
 * an address of ours is the stack's to look at first: net_exception_stranger().
 */
enum net_way net_exception_way(const struct net_port *port,
			       const struct glue_frame *frame);
