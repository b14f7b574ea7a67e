/*
 * Private to the log: what its writer asks of where lines go (log_sink.c). Only
 * one thread at a time calls these: the writer, or who writes for want of one.
 */
#pragma once

#include "netstack/program/log.h"

/* How a line begins. */
enum net_log_style {
	NET_LOG_PLAIN,
	NET_LOG_PRIORITY, /* "<4>", for journald */
	NET_LOG_STAMPED,  /* the time and the level, in a file */
};

/* Begins to write where net_log_to() has said, or does so soon. */
void net_log_sink_open(void);
/* Back to stderr; the file is closed when it is written to no more. */
void net_log_sink_close(void);
/* What was asked for since the last line: another place, a file opened anew. */
void net_log_sink_settle(void);
/* Whether something of that waits. Any thread. */
bool net_log_sink_is_due(void);
/*
 * Writes a line or bytes as they are, in one write where that is possible.
 * False: lost, at least in part. Blocks while the file's reader does.
 */
bool net_log_sink_write(enum net_log_level level, int64_t wall_ns,
			const char *text, size_t len);
/* Whether lines have a time, which is then that of the call. Any thread. */
bool net_log_sink_is_stamped(void);
/* Wakes the writer, if there is one. From a signal handler, too. */
void net_log_wake(void);
