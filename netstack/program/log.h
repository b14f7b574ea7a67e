/*
 * Private to netstack/: components of the log, its start and its end. Programs
 * use the calls of coronet/net_stack.h (net_log() and similar).
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/net.h>

#include "dpdk_glue/hint.h"

#define NET_LOG_SLOTS 256 /* lines that wait to be written */
#define NET_LOG_BYTES 512 /* of a line, its newline included */

/* ---- log_level.c: components and their levels ---- */

/* Types of rte_log: "coronet.conn" and so on. */
enum net_component {
	NET_COMPONENT_PROGRAM, /* net_log() of the program; net_log_name() */
	NET_COMPONENT_API,     /* misuse of calls */
	NET_COMPONENT_CONN,    /* connections begin and end */
	NET_COMPONENT_LISTEN,  /* listeners, and clients they refuse */
	NET_COMPONENT_DIAL,    /* calls of net_dial() that fail */
	NET_COMPONENT_RECOVERY,
	NET_COMPONENT_NEIGH, /* neighbours that are not resolved */
	NET_COMPONENT_LINK,
	NET_COMPONENT_MEMORY,
	NET_COMPONENT_CONTROL,
	NET_COMPONENT_CAPTURE,
	NET_COMPONENT_STATS,
	NET_COMPONENT_WATCHDOG,
	NET_COMPONENTS
};

/* Levels of the components, as in rte_log; written by log_level.c alone. */
extern uint8_t net_log_levels[NET_COMPONENTS]
	__attribute__((visibility("hidden")));

/* Returns whether lines of this level are logged. Any thread. */
static inline bool net_log_on(enum net_component component,
			      enum net_log_level level)
{
	return unlikely(__atomic_load_n(&net_log_levels[component],
					__ATOMIC_RELAXED) >= level);
}

/* Registers the components as log types. Returns 0 or -ENOMEM. */
int net_log_levels_open(void);
/* Parses a level's name, such as "warning", or its number; 0: it is neither. */
enum net_log_level net_log_level_number(const char *text);
/* The name of a level; NULL: there is no such level. */
const char *net_log_level_name(unsigned level);
/*
 * Checks that a text is "[COMPONENT=]LEVEL[,...]", as for net_log_set_levels().
 * Returns 0, or -EINVAL with a clear line in err. It does not check that the
 * components exist.
 */
int net_log_check_levels(const char *text, char *err, size_t err_len);
/*
 * Sets levels. A component is a shell pattern of log types, including DPDK's;
 * without one, all of coronet's are set. If all_known is false, because EAL
 * does not run yet, a pattern may match no type. Returns 0, or with a clear
 * line in err -EINVAL, or -ENOENT (no type matches); nothing was set then. Any
 * thread.
 */
int net_log_set_levels(const char *text, bool all_known, char *err,
		       size_t err_len);

/* ---- log.c ---- */

/*
 * Starts the thread that writes, once per process. Ensures that a closed pipe
 * does not kill the process: if SIGPIPE has its default action, it gets a
 * handler that does nothing, so that writing returns -EPIPE. (A handler and not
 * SIG_IGN, which executed programs would inherit.) If SIGUSR1 has its default
 * action, it reopens the log's file from now on. Returns 0 or -errno of
 * pthread_create().
 */
int net_log_open(void);

/*
 * Waits as net_log_flush() does, and restores the actions of SIGPIPE and
 * SIGUSR1.
 */
void net_log_close(void);

/*
 * Waits until all lines logged so far are written: at most 200 ms if stderr is
 * a full pipe, 10 s if the writer gets no CPU. Blocks the thread; meant for the
 * end of a program.
 */
void net_log_flush(void);

/* Returns how many lines have not been written yet. */
unsigned net_log_waiting(void);

/*
 * Returns how many lines were dropped since the process began, and suppressed
 * by limits.
 */
uint64_t net_log_dropped(void);
uint64_t net_log_suppressed(void);

/*
 * Log a line of a component, if its level is enabled; the component's name is
 * not added. net_log_line() logs at any level: for messages that end the
 * program.
 */
__attribute__((format(printf, 3, 4))) void
net_log_of(enum net_component component, enum net_log_level level,
	   const char *format, ...);
__attribute__((format(printf, 2, 3))) void
net_log_line(enum net_log_level level, const char *format, ...);
/* Logs a line of a component as a warning, within a limit. */
__attribute__((format(printf, 3, 4))) void
net_log_limited_of(enum net_component component, struct net_log_limit *limit,
		   const char *format, ...);
#define net_log_seldom_of(component, ...)                                      \
	do {                                                                   \
		static struct net_log_limit net_log_limit_;                    \
		net_log_limited_of(component, &net_log_limit_, __VA_ARGS__);   \
	} while (0)
/*
 * Logs an event of key=value within a limit, and appends held=N, the number of
 * suppressed ones. The caller has checked the level.
 */
__attribute__((format(printf, 3, 4))) void
net_log_event(enum net_log_level level, struct net_log_limit *limit,
	      const char *format, ...);

/* Logs lines of DPDK unchanged. */
void net_log_dpdk(unsigned level, const char *text, size_t len);

/* ---- log_sink.c: where lines go ---- */

/*
 * Chooses where lines go: NULL or "stderr", with priorities if journald reads
 * it; "journal", always with priorities; otherwise a file, opened for appending
 * and created with mode 0640. Takes effect with net_log_open(). Returns 0,
 * -EINVAL (no name), -EISDIR, -ENXIO (a FIFO that nobody reads), or an error of
 * open(2).
 */
int net_log_to(const char *where);
/*
 * Checks whether net_log_to() would succeed, without opening the file, which
 * the reader of a FIFO would notice. Returns 0 or an error of net_log_to().
 */
int net_log_check_to(const char *where);
/* For tests: makes lines go to fd instead of stderr. */
void net_log_set_fd(int fd);
/* Copies "stderr", "journal" or the file's path to text, and returns text. */
const char *net_log_where(char *text, size_t len);
/*
 * Calls net_log_reopen() and waits at most a second until the file is reopened.
 * Returns 0, -ETIMEDOUT, or an error of open(2), in which case the old file
 * stays in use. Not for a polling thread.
 */
int net_log_reopen_wait(void);
