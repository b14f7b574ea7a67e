/*
 * What belongs to the program and not to a shard: sentences about misuse, the
 * watchdog. The log is in log.h; options are in coronet/net.h.
 */
#pragma once

#include "netstack/state.h"

/* ---- diagnose.c ---- */
/* A stack is open, or has been closed; how many are. */
void net_stacks_opened(void);
void net_stacks_closed(void);
unsigned net_stacks_open(void);
/* "serve+0x10 in coronet-httpd+0x1a2b": what there is a symbol for, and what
 * addr2line takes. Writes it to text and returns it. */
const char *net_code_name(uintptr_t code, char *text, size_t len);

/* Whose coroutines this thread tells of: its own shard, or one it watches. */
const struct net_stack *net_observed(void);
void net_observe(const struct net_stack *stack);
void net_die_foreign(const char *call);
/* The same unless the connection is merely traced. */
void net_die_unless_traced(const struct net_conn *conn, const char *call);
void net_die_shared(const char *what);

/* Every public call that works on the stack begins with this. */
#define NET_CHECK_THREAD()                                                     \
	do {                                                                   \
		if (__builtin_expect(!net_here()->sched, 0))                   \
			net_die_foreign(__func__);                             \
	} while (0)

/* The same for what belongs to one shard: it is called from that one's thread.
 */
#define NET_CHECK_STACK(stack)                                                 \
	do {                                                                   \
		if (__builtin_expect(                                          \
			    !net_here()->sched ||                              \
				    ((stack) && (stack) != net_here()),        \
			    0))                                                \
			net_die_foreign(__func__);                             \
	} while (0)

/* Whether it is another thread's, or traced. */
#define NET_CONN_IS_ODD(conn)                                                  \
	__builtin_expect(                                                      \
		!net_here()->sched ||                                          \
			((conn) && (conn)->shard != net_here()->shard),        \
		0)

#define NET_CHECK_CONN_IN(conn, call)                                          \
	do {                                                                   \
		if (NET_CONN_IS_ODD(conn))                                     \
			net_die_unless_traced(conn, call);                     \
	} while (0)
#define NET_CHECK_CONN(conn) NET_CHECK_CONN_IN(conn, __func__)

/* Nothing that the stack keeps a pointer to may lie on a shared stack. */
static inline void net_check_shared(const void *p, const char *what)
{
	if (__builtin_expect(coro_on_shared_stack(p), 0))
		net_die_shared(what);
}

/* ---- watchdog.c ---- */
/* Before DPDK pins this thread. */
void net_watchdog_prepare(void);
/* Logs the names of coroutines that block the loop for limit_ms; 0: never.
 * Returns 0 or -errno. */
int net_watchdog_start(struct net_stack *stack, unsigned limit_ms);
void net_watchdog_stop(const struct net_stack *stack);
unsigned net_watchdog_looks(void); /* for tests: how often it has looked */
