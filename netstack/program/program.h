/*
 * Parts of the program rather than of a shard: messages about misuse, the
 * watchdog. The log is in log.h; options are in coronet/net.h.
 */
#pragma once

#include "netstack/state.h"

/* ---- route_option.c ---- */
/* Returns whether an address is in 127.0.0.0/8, or ::1. */
bool net_addr_is_loopback(const struct net_addr *addr);
/* Returns whether a host can have an address: not zero, a group or loopback. */
bool net_addr_is_host(const struct net_addr *addr);

/* ---- diagnose.c ---- */
/* Count a stack that was opened, or closed; return how many are open. */
void net_stacks_opened(void);
void net_stacks_closed(void);
unsigned net_stacks_open(void);
/*
 * Writes the symbol of an address, if there is one, and its offset in the file,
 * for addr2line: "serve+0x10 in coronet-httpd+0x1a2b". Returns text.
 */
const char *net_code_name(uintptr_t code, char *text, size_t len);

/*
 * The shard whose coroutines this thread describes: its own, or the one that
 * net_observe() has set for a watchdog thread.
 */
const struct net_stack *net_observed(void);
void net_observe(const struct net_stack *stack);
/* End the program: a call was made by the wrong thread. */
void net_die_foreign(const char *call);
/* net_die_foreign(), unless the connection belongs to this thread. */
void net_die_unless_traced(const struct net_conn *conn, const char *call);
/* Ends the program: `what` lies on a shared stack. */
void net_die_shared(const char *what);

/* Every public call that works on the stack begins with this. */
#define NET_CHECK_THREAD()                                                     \
	do {                                                                   \
		if (unlikely(!net_here()->sched))                              \
			net_die_foreign(__func__);                             \
	} while (0)

/* Checks a call on a shard's stack, which must come from its thread. */
#define NET_CHECK_STACK(stack)                                                 \
	do {                                                                   \
		if (unlikely(!net_here()->sched ||                             \
			     ((stack) && (stack) != net_here())))              \
			net_die_foreign(__func__);                             \
	} while (0)

/* True if a connection is another thread's, is traced, or has TLS. */
#define NET_CONN_IS_FOREIGN_OR_TRACED(conn)                                    \
	unlikely(!net_here()->sched ||                                         \
		 ((conn) && (conn)->shard != net_here()->shard))

#define NET_CHECK_CONN_IN(conn, call)                                          \
	do {                                                                   \
		if (NET_CONN_IS_FOREIGN_OR_TRACED(conn))                       \
			net_die_unless_traced(conn, call);                     \
	} while (0)
#define NET_CHECK_CONN(conn) NET_CHECK_CONN_IN(conn, __func__)

/* Checks that an object to which the stack keeps a pointer is not on a shared
 * coroutine stack. */
static inline void net_check_shared(const void *p, const char *what)
{
	if (unlikely(coro_on_shared_stack(p)))
		net_die_shared(what);
}

/* ---- watchdog.c ---- */
/* Called before DPDK pins this thread. */
void net_watchdog_prepare(void);
/* Starts a thread that logs coroutines which block the loop for limit_ms; 0:
 * it does nothing. Returns 0 or -errno. */
int net_watchdog_start(struct net_stack *stack, unsigned limit_ms);
void net_watchdog_stop(const struct net_stack *stack);
unsigned net_watchdog_looks(void); /* for tests: number of its checks */
