/*
 * A log with a line per event, such as an access log, in a file, a FIFO or
 * syslog, without ever blocking a shard.
 *
 * A shard writes records into a ring of its own, without a system call; a
 * thread checks the rings fifty times a second, formats the records and writes
 * the lines. A pipe whose reader is slow, or a syslog daemon, is waited for
 * while the rings fill. If a ring or a disk is full, nobody reads the FIFO or
 * the daemon is absent, lines are lost: they are counted, and a line with their
 * number precedes the next one that is written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "netstack/options/opt.h"

/* The values of an option whose row has line_log_read(). */
#define LINE_LOG_ARG "FILE|udp:ADDRESS:PORT|unix:PATH"
#define LINE_LOG_EXPECTED                                                      \
	"a file that can be written, udp:ADDRESS:PORT or unix:PATH"

#define LINE_LOG_TIME_BYTES 64

/* The program's part of a log: constant. */
struct line_log_kind {
	const char *program; /* "coronet-proxy" */
	size_t ring_bytes;   /* LINE_LOG_RING() */
	size_t line_max;     /* bytes of a line with its newline */
	/*
	 * Writes a record as a line with its newline, on the log's thread, and
	 * returns its length; 0: there was no memory, and the line is lost.
	 * wall_ns: the at_ns of line_log_end(), since 1970. form: that of
	 * line_log_open().
	 */
	size_t (*format)(const void *record, unsigned form, int64_t wall_ns,
			 char *line);
	/* Returns whether each line of a form is a JSON object. */
	bool (*is_json)(unsigned form);
};

/* A ring for n records of so many bytes. */
#define LINE_LOG_ALIGN		16u
#define LINE_LOG_ROOM(bytes)	(((bytes) + 2 * LINE_LOG_ALIGN - 1) & ~15ul)
#define LINE_LOG_RING(n, bytes) ((n)*LINE_LOG_ROOM(bytes))

struct line_log;

/* An opt_read_fn of a const char *; it makes and opens nothing. */
int line_log_read(const struct opt *opt, const char *text, void *base,
		  struct opt_error *error);

/*
 * Opens a log and starts its thread. where: a file to append to, made with mode
 * 0640, or a FIFO, which need not have a reader yet; "udp:ADDRESS:PORT": each
 * line is sent as a datagram (RFC 5424, local0.info); "unix:PATH": as a
 * datagram to a local daemon, as syslog(3) does, which need not be there yet.
 *
 * shards: how many call line_log_begin(). clock_ns: the clock of the records'
 * times, for any thread. say: called with a line, without newline: on the log's
 * thread, or in this call, when lines begin to be lost because nobody receives
 * them; on that thread when the file cannot be reopened; in line_log_close()
 * when lines were lost that the log itself does not report.
 *
 * Returns 0, -EINVAL (not an address), -ENAMETOOLONG, -ENOTSOCK, -ENOMEM, or an
 * error of open(2), socket(2), connect(2) or pthread_create(3).
 */
int line_log_open(const struct line_log_kind *kind, const char *where,
		  unsigned form, unsigned shards, int64_t (*clock_ns)(void),
		  void (*say)(const char *line), struct line_log **out);

/*
 * Returns room for a record of so many bytes in the shard's ring, aligned to
 * LINE_LOG_ALIGN, on its thread; line_log_end() adds it, with its time. NULL:
 * the ring is full, and the line is counted as lost.
 */
void *line_log_begin(struct line_log *log, unsigned shard, size_t bytes);
void line_log_end(struct line_log *log, unsigned shard, int64_t at_ns);

/*
 * Makes the log's thread reopen the file soon, or connect to the daemon again.
 * From any thread or signal handler.
 */
void line_log_reopen(struct line_log *log);

/* Lines lost so far. Any thread. */
uint64_t line_log_lost(const struct line_log *log);

/*
 * Called when no shard adds records any more: writes the remaining lines, for
 * at most a second, and closes the log. NULL is ignored.
 */
void line_log_close(struct line_log *log);

/* Writes a time in UTC (RFC 3339): "2026-11-23T12:00:00.123Z". */
size_t line_log_time(int64_t wall_ns, char out[LINE_LOG_TIME_BYTES]);
