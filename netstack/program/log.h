/*
 * Private to netstack/: components of the log and the life of it. What programs
 * call is in coronet/net.h (net_log() and its kin).
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/net.h>

#define NET_LOG_SLOTS 256 /* lines that wait to be written */
#define NET_LOG_BYTES 512 /* of a line, its newline included */

/* ---- log_level.c: components and their levels ---- */

/* Types of rte_log: "coronet.conn" and so on. */
enum net_component {
	NET_COMPONENT_PROGRAM, /* net_log() of the program; net_log_name() */
	NET_COMPONENT_API,     /* misuse of calls */
	NET_COMPONENT_CONN,    /* connections begin and end */
	NET_COMPONENT_LISTEN,  /* listeners, and whom they refuse */
	NET_COMPONENT_DIAL,    /* net_dial() that fails */
	NET_COMPONENT_RECOVERY,
	NET_COMPONENT_NEIGH, /* neighbours that are not asked for */
	NET_COMPONENT_LINK,
	NET_COMPONENT_MEMORY,
	NET_COMPONENT_CONTROL,
	NET_COMPONENT_CAPTURE,
	NET_COMPONENT_STATS,
	NET_COMPONENT_WATCHDOG,
	NET_COMPONENTS
};

/* Their levels, as rte_log has them; written by log_level.c alone. */
extern uint8_t net_log_levels[NET_COMPONENTS]
	__attribute__((visibility("hidden")));

/* Whether a line of that level is wanted. */
static inline bool net_log_on(enum net_component component,
			      enum net_log_level level)
{
	return __builtin_expect(__atomic_load_n(&net_log_levels[component],
						__ATOMIC_RELAXED) >= level,
				0);
}

/* Makes the components log types. 0, -ENOMEM. */
int net_log_levels_open(void);
/* "warning" and so on, or its number; 0: it is none. */
enum net_log_level net_log_level_number(const char *text);
/* NULL: there is no such level. */
const char *net_log_level_name(unsigned level);
/*
 * Whether a text is "[COMPONENT=]LEVEL[,...]", as net_log_set_levels() takes
 * it: 0 or -EINVAL with a clear line in err. Components are not looked for.
 */
int net_log_check_levels(const char *text, char *err, size_t err_len);
/*
 * Sets levels; a component is a shell pattern of log types, DPDK's as well, and
 * none is all of ours. Unless some are still unknown, since EAL does not run, a
 * pattern that fits none is an error. 0, or with a clear line in err -EINVAL
 * (nothing is set) or -ENOENT (what stands before it is set). Any thread.
 */
int net_log_set_levels(const char *text, bool all_known, char *err,
		       size_t err_len);

/* ---- log.c ---- */

/*
 * Starts the thread that writes, once a process, and makes sure that a closed
 * pipe kills nobody: where SIGPIPE has its default action, it is given a
 * handler that does nothing, so that writing returns -EPIPE. (A handler and not
 * SIG_IGN, which programs that this one executes would inherit.) SIGUSR1 with
 * its default action opens the log's file anew. Returns 0 or -errno of
 * pthread_create().
 */
int net_log_open(void);

/* Waits as net_log_flush() does, and gives SIGPIPE and SIGUSR1 back. */
void net_log_close(void);

/*
 * Waits until everything logged so far is written, 200 ms at most. Blocks the
 * thread: for the end of a program.
 */
void net_log_flush(void);

/* Lines that have not been written yet. */
unsigned net_log_waiting(void);

/* Lines that were dropped since the process began, and held back by limits. */
uint64_t net_log_dropped(void);
uint64_t net_log_suppressed(void);

/*
 * A line of a component, if its level is wanted; without the component's name.
 * net_log_line() does not ask, for what ends the program.
 */
__attribute__((format(printf, 3, 4))) void
net_log_of(enum net_component component, enum net_log_level level,
	   const char *format, ...);
__attribute__((format(printf, 2, 3))) void
net_log_line(enum net_log_level level, const char *format, ...);
/* The same within a limit, as a warning. */
__attribute__((format(printf, 3, 4))) void
net_log_limited_of(enum net_component component, struct net_log_limit *limit,
		   const char *format, ...);
#define net_log_seldom_of(component, ...)                                      \
	do {                                                                   \
		static struct net_log_limit net_log_limit_;                    \
		net_log_limited_of(component, &net_log_limit_, __VA_ARGS__);   \
	} while (0)
/* An event: key=value, to which held=N is added. Whoever calls has asked. */
__attribute__((format(printf, 3, 4))) void
net_log_event(enum net_log_level level, struct net_log_limit *limit,
	      const char *format, ...);

/* DPDK's lines, as they are. */
void net_log_dpdk(unsigned level, const char *text, size_t len);

/* ---- log_sink.c: where lines go ---- */

/*
 * Chooses it: NULL or "stderr", where lines have a priority if journald reads
 * that; "journal", where they always have; else a file, opened for appending
 * and made with mode 0640. Takes effect with net_log_open(). 0, -EINVAL (no
 * name), -EISDIR, -ENXIO (a FIFO that nobody reads), or what open(2) says.
 */
int net_log_to(const char *where);
/*
 * Whether it could choose that now, as far as can be told without opening it,
 * which a FIFO's reader would notice: 0 or as net_log_to().
 */
int net_log_check_to(const char *where);
/* Lines go to fd instead of stderr: for tests. */
void net_log_set_fd(int fd);
/* stderr, journal or the file's path: copied to text, which is returned. */
const char *net_log_where(char *text, size_t len);
/*
 * net_log_reopen(), and waits a second at most until it is done. 0,
 * -ETIMEDOUT, or why the file could not be opened: the old one serves on. Not
 * for a polling thread.
 */
int net_log_reopen_wait(void);
