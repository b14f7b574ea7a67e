/*
 * The exception path (--exception): passes frames that the stack does not use
 * to an interface of the kernel, and sends the frames that the kernel writes to
 * it.
 *
 * program/exception_rule.h parses the option; exception.c decides where a frame
 * goes and moves it. docs/deploy.md has the table.
 *
 * Threads: an exception is made on one thread and then only read, except for
 * its counts and due times; each shard starts and stops using it on its own
 * thread. Any shard passes frames to the kernel; only shard 0 reads the
 * kernel's.
 */
#pragma once

#include <stdatomic.h>

#include "dpdk_glue/kernel_tap.h"
#include "netstack/link/link_priv.h"
#include "netstack/program/exception_rule.h"

/*
 * An interface of the kernel; a rule shares it with the rule that it replaces.
 */
struct net_exception_tap {
	_Atomic unsigned users;
	int fd;
	char name[16];
	bool addr_off;
};

struct net_exception {
	_Atomic unsigned users; /* shards that use it, and its maker */
	struct net_exception_tap *tap;
	struct net_exception_rule rule;
	char text[NET_EXCEPTION_TEXT]; /* as the user wrote it */
	_Atomic int64_t in_due_ns;     /* rate limit of frames to the kernel */
	int64_t out_due_ns;	       /* and from it; used by shard 0 */
	int64_t next_read_ns;	       /* used by shard 0 */
};

enum net_receiver {
	NET_RECEIVER_STACK,
	NET_RECEIVER_KERNEL,
	NET_RECEIVER_BOTH,
	NET_RECEIVER_NONE,
};

/*
 * Returns where a frame from glue_rx() goes, by the rule alone. A TCP segment
 * to one of the stack's addresses goes to the stack first:
 * net_exception_stranger().
 */
enum net_receiver net_exception_receiver(const struct net_port *port,
					 const struct glue_frame *frame);
/*
 * Passes a TCP segment that belongs to no connection to the kernel if the stack
 * has no listener for it. p begins with the TCP header and is borrowed; its
 * first piece is a frame in which the Ethernet and IP headers still precede it.
 * Returns whether the segment is the kernel's.
 */
bool net_exception_stranger(struct pbuf *p);

/* ---- exception_set.c ---- */
/*
 * Reads a rule for a link and opens its interface; if the link's present rule
 * has an interface of that name, they share it. The caller owns *out and passes
 * it to net_exception_settle() or net_exception_put(). Returns 0, or
 * -errno with one clear line in err: -EINVAL (the rule is wrong, or its addr=
 * differs from that of the shared interface), or an error of
 * glue_kernel_tap_open().
 */
int net_exception_make(unsigned link, const char *text,
		       struct net_exception **out, char *err, size_t err_len);
/* Add and remove a user; NULL is ignored. The last one closes the interface. */
struct net_exception *net_exception_get(struct net_exception *exception);
void net_exception_put(struct net_exception *exception);
/* On a shard: makes a link use this exception from now on; NULL: none. */
void net_exception_use(unsigned link, struct net_exception *exception);

/*
 * Called by the control thread, once the links are open: the number of links,
 * and a link's exception (NULL: none), borrowed.
 */
unsigned net_exception_links(void);
struct net_exception *net_exception_now(unsigned link);
/* Owns an exception (NULL: none) for a link, once every shard uses it. */
void net_exception_settle(unsigned link, struct net_exception *exception);
