/*
 * Private to the log: the destination of lines (log_sink.c). Only the writer
 * thread calls these or, before it runs, the thread that logs, except where a
 * comment says "any thread".
 */
#pragma once

#include "netstack/program/log.h"

/* How a line begins. */
enum net_log_style {
	NET_LOG_PLAIN,
	NET_LOG_PRIORITY, /* "<4>", for journald */
	NET_LOG_STAMPED,  /* the time and the level, in a file */
};

/* Opens the destination that net_log_to() has chosen, or requests that. */
void net_log_sink_open(void);
/* Returns to stderr; the file is closed when no write to it is under way. */
void net_log_sink_close(void);
/*
 * Applies requests since the last line: another destination, or a reopened
 * file.
 */
void net_log_sink_settle(void);
/* Returns whether such a request is pending. Any thread. */
bool net_log_sink_is_due(void);
/*
 * Returns whether a line written now would wait for the file's reader. Any
 * thread.
 */
bool net_log_sink_is_full(void);
/*
 * Writes a line (or raw bytes) in one write(2) if possible. Returns false if at
 * least a part was lost. Blocks while the file is a full FIFO.
 */
bool net_log_sink_write(enum net_log_level level, int64_t wall_ns,
			const char *text, size_t len);
/* Returns whether lines get the time at which they were logged. Any thread. */
bool net_log_sink_is_stamped(void);
/* Wakes the writer, if there is one. From a signal handler, too. */
void net_log_wake(void);
