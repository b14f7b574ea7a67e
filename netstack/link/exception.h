/*
 * The exception path: what a link brings that the stack has no use for goes to
 * an interface of the kernel, and comes back from there (--exception).
 *
 * program/exception_rule.h has the option; exception.c says which frame goes
 * where and moves it. docs/deploy.md has the table.
 *
 * Threads: an exception is made on one thread and then only read, but for its
 * counts and due times; each shard takes it up and lets go of it on its own
 * thread. Any shard gives frames to the kernel, shard 0 alone takes the
 * kernel's.
 */
#pragma once

#include <stdatomic.h>

#include "dpdk_glue/kernel_tap.h"
#include "netstack/link/link_priv.h"
#include "netstack/program/exception_rule.h"

/* An interface of the kernel's, which rules that follow each other share. */
struct net_exception_tap {
	_Atomic unsigned users;
	int fd;
	char name[16];
	bool addr_off;
};

struct net_exception {
	_Atomic unsigned users; /* shards that have it, and who made it */
	struct net_exception_tap *tap;
	struct net_exception_rule rule;
	char text[NET_EXCEPTION_TEXT]; /* as it was written */
	_Atomic int64_t in_due_ns;     /* one more frame to the kernel may go */
	int64_t out_due_ns;	       /* and from it; shard 0's */
	int64_t next_read_ns;	       /* shard 0's */
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
/*
 * A segment of no connection of ours, its IP header behind it: the kernel's if
 * nobody listens. p is borrowed; its first piece is a frame that still begins
 * with Ethernet's header.
 */
bool net_exception_stranger(struct pbuf *p);

/* ---- exception_set.c ---- */
/*
 * Reads a rule for a link and opens its interface, or goes on with that of the
 * link's rule of now if it has the same name. *out is the caller's, who gives
 * it to net_exception_settle() or net_exception_put(). Returns 0, or -errno
 * with one clear line in err: -EINVAL (the rule, or addr= differs from that of
 * the same interface), and what glue_kernel_tap_open() says.
 */
int net_exception_make(unsigned link, const char *text,
		       struct net_exception **out, char *err, size_t err_len);
/* One user more, or less; NULL is ignored. The last closes the interface. */
struct net_exception *net_exception_get(struct net_exception *exception);
void net_exception_put(struct net_exception *exception);
/* On a shard: the link goes by this one from now on; NULL: by none. */
void net_exception_use(unsigned link, struct net_exception *exception);

/* The control thread's, once the links are open. */
unsigned net_exception_links(void);
struct net_exception *net_exception_now(unsigned link); /* NULL: none */
/* Every shard has been told to use it; NULL: none. It is owned from now on. */
void net_exception_settle(unsigned link, struct net_exception *exception);
