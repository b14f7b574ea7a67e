/* Writes a log on a thread of its own, so that no shard blocks. */
#include "apps/common/line_log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "apps/common/log_target.h"

#define LOOK_MS	   20 /* between two looks at the rings */
#define NS_PER_S   INT64_C(1000000000)
#define CLOSE_NS   NS_PER_S /* for what is left at the end */
#define BATCH_MIN  65536    /* bytes from which a batch is written */
#define PREFIX_MAX 192	    /* bytes of syslog's header */
#define LOST_MAX   128	    /* and of the line that reports lost ones */

/* What precedes a record in a ring. Both lie at multiples of their size. */
struct item {
	uint64_t room; /* bytes until the next item */
	int64_t at_ns; /* of a record; SKIPPED: there is none */
};
#define SKIPPED INT64_MIN
static_assert(sizeof(struct item) == LINE_LOG_ALIGN &&
		      LINE_LOG_ROOM(1) == 2 * LINE_LOG_ALIGN,
	      "a record is aligned");

/* One shard writes, the thread reads. Positions never wrap. */
struct ring {
	_Alignas(64) _Atomic uint64_t head; /* the shard's */
	uint64_t next;			    /* after line_log_end() */
	struct item *item;		    /* of line_log_begin() */
	_Alignas(64) _Atomic uint64_t tail; /* the thread's */
	_Atomic uint64_t lost;
	_Alignas(64) char bytes[];
};

struct line_log {
	struct line_log_kind kind;
	unsigned form;
	int64_t (*clock_ns)(void);
	void (*say)(const char *line);
	struct log_target target;
	char *where; /* owned */
	pthread_t thread;
	sem_t wake;
	atomic_bool reopen, stop;
	_Atomic uint64_t unwritten; /* lines that could not be written */

	/* The thread's. */
	bool absent; /* that has been logged */
	bool full;   /* a pipe or daemon is waited for */
	bool torn;   /* the batch begins within a line: the rest was written */
	bool reporting, dropped; /* writes a report; it had no room */
	uint64_t reported;	 /* lost lines that have been reported */
	char host[64];
	size_t len; /* bytes of the batch */
	char *batch;

	unsigned n_rings;
	size_t ring_size;
	char *rings;
};

static struct ring *ring_at(const struct line_log *log, unsigned i)
{
	return (struct ring *)(void *)(log->rings + i * log->ring_size);
}

/* ---- lines ---- */

size_t line_log_time(int64_t wall_ns, char out[LINE_LOG_TIME_BYTES])
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	char text[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	return (size_t)snprintf(out, LINE_LOG_TIME_BYTES, "%s.%03dZ", text,
				(int)(wall_ns % NS_PER_S / 1000000));
}

static int64_t wall_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* A syslog server's header, or what syslog(3) writes for the local daemon. */
static size_t format_prefix(const struct line_log *log, int64_t wall_ns,
			    char *out)
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	char text[LINE_LOG_TIME_BYTES];
	struct tm tm;

	if (log->target.kind == LOG_TO_FILE)
		return 0;
	if (log->target.kind == LOG_TO_UNIX) {
		localtime_r(&seconds, &tm);
		strftime(text, sizeof(text), "%b %e %H:%M:%S", &tm);
		return (size_t)snprintf(out, PREFIX_MAX,
					"<134>%s %s[%d]: ", text,
					log->kind.program, (int)getpid());
	}
	line_log_time(wall_ns, text);
	return (size_t)snprintf(out, PREFIX_MAX, "<134>1 %s %s %s %d access - ",
				text, log->host, log->kind.program,
				(int)getpid());
}

/* The line that reports lost ones. */
static size_t format_lost(const struct line_log *log, uint64_t n, char *line)
{
	char time[LINE_LOG_TIME_BYTES];

	line_log_time(wall_now_ns(), time);
	return (size_t)snprintf(line, LOST_MAX,
				log->kind.is_json(log->form)
					? "{\"time\":\"%s\",\"lost\":%llu}\n"
					: "%s lost=%llu\n",
				time, (unsigned long long)n);
}

static void note_absence(struct line_log *log, int err)
{
	char line[512];

	if (log->absent)
		return;
	log->absent = true;
	snprintf(line, sizeof(line),
		 "%s: --access-log '%.300s': %s; lines are lost until that "
		 "changes",
		 log->kind.program, log->where,
		 log->target.kind == LOG_TO_FILE ? "nobody reads it"
						 : strerror(-err));
	log->say(line);
}

/* ---- writing, on the thread ---- */

static void count_unwritten(struct line_log *log, uint64_t lines)
{
	if (log->reporting)
		log->dropped |= lines > 0;
	else
		atomic_fetch_add(&log->unwritten, lines);
}

/* Lines that end among these bytes of the batch; a datagram is one. */
static uint64_t count_lines(const struct line_log *log, const char *data,
			    size_t len)
{
	uint64_t lines = 0;

	if (log->target.kind != LOG_TO_FILE)
		return len > 0;
	for (size_t i = 0; i < len; i++)
		lines += data[i] == '\n';
	return lines;
}

/* Bytes at `at` that end a line whose start the file already has. */
static size_t torn_len(const struct line_log *log, const char *at, size_t len)
{
	const char *end = log->torn ? memchr(at, '\n', len) : NULL;

	return end ? (size_t)(end - at) + 1 : 0;
}

/* Drops bytes of the batch, and counts their lines. */
static void drop_bytes(struct line_log *log, size_t from, size_t to)
{
	count_unwritten(log, count_lines(log, log->batch + from, to - from));
	memmove(log->batch + from, log->batch + to, log->len - to);
	log->len -= to - from;
}

/* Closes a target that is gone, after which open_again() looks for it. */
static void leave_target(struct line_log *log, int err)
{
	log_target_use(&log->target, -1);
	log->torn = false;
	drop_bytes(log, 0, log->len);
	note_absence(log, err);
}

/* Sends a datagram once more, to a daemon that was started again. */
static size_t send_again(struct line_log *log, int *err)
{
	int fd = log_target_open(&log->target, false);

	if (fd < 0)
		return 0;
	log_target_use(&log->target, fd);
	return log_target_write(&log->target, log->batch, log->len, err);
}

/*
 * Writes the batch. A pipe or a daemon that takes no more is waited for, and
 * the rest is kept. Of a file, as on a full disk, only the rest of a line is
 * kept that it has the start of, to be written before any other.
 */
static void flush_batch(struct line_log *log)
{
	size_t done, keep;
	int err;

	log->full = false;
	if (log->len == 0)
		return;
	done = log_target_write(&log->target, log->batch, log->len, &err);
	if (done == 0 && log_target_is_gone(&log->target, err) &&
	    log->target.kind == LOG_TO_UNIX)
		done = send_again(log, &err);
	if (done > 0)
		log->torn = log->target.kind == LOG_TO_FILE &&
			    log->batch[done - 1] != '\n';
	log->len -= done;
	memmove(log->batch, log->batch + done, log->len);
	if (log->len == 0)
		return;
	keep = torn_len(log, log->batch, log->len);
	if (err == -EAGAIN && (!log->reporting || log->torn)) {
		log->full = true;
		return;
	}
	drop_bytes(log, keep, log->len);
	if (log_target_is_gone(&log->target, err))
		leave_target(log, err);
}

/* Makes room for a line; false: what the batch has must be written first. */
static bool make_room(struct line_log *log)
{
	size_t max = log->target.kind == LOG_TO_FILE ? BATCH_MIN : 1;

	if (log->len >= max)
		flush_batch(log);
	return log->len < max;
}

/* Writes a line of n bytes, which follow the prefix in the batch; after
 * make_room(). A datagram has no newline. */
static void put_line(struct line_log *log, size_t n)
{
	log->len += n;
	if (log->target.kind != LOG_TO_FILE) {
		log->len--;
		flush_batch(log);
	}
}

/* Reports lost lines once lines are taken again; the report is none of those
 * that are lost. */
static void write_lost(struct line_log *log)
{
	uint64_t lost = line_log_lost(log);
	size_t n;

	if (lost == log->reported || log->len || log->target.fd < 0)
		return;
	log->reporting = true;
	log->dropped = false;
	n = format_prefix(log, wall_now_ns(), log->batch);
	n += format_lost(log, lost - log->reported, log->batch + n);
	put_line(log, n);
	flush_batch(log);
	log->reporting = false;
	if (!log->dropped) /* written, or at least begun */
		log->reported = lost;
}

static void write_record(struct line_log *log, const struct item *item,
			 int64_t offset_ns)
{
	int64_t wall_ns = item->at_ns + offset_ns;
	char *at = log->batch + log->len;
	size_t prefix = format_prefix(log, wall_ns, at);
	size_t n = log->kind.format(item + 1, log->form, wall_ns, at + prefix);

	assert(n <= log->kind.line_max);
	if (n)
		put_line(log, prefix + n);
	else
		count_unwritten(log, 1);
}

/* Writes what is in a ring now, as long as lines are taken. */
static void write_ring(struct line_log *log, struct ring *ring)
{
	int64_t offset_ns = wall_now_ns() - log->clock_ns();
	uint64_t tail = ring->tail, head = ring->head;

	while (tail < head && make_room(log)) {
		const struct item *item =
			(const void *)(ring->bytes +
				       tail % log->kind.ring_bytes);

		if (item->at_ns != SKIPPED)
			write_record(log, item, offset_ns);
		tail += item->room;
		ring->tail = tail;
	}
}

static void write_rings(struct line_log *log)
{
	flush_batch(log);
	write_lost(log);
	for (unsigned i = 0; i < log->n_rings && !log->full; i++)
		write_ring(log, ring_at(log, i));
	if (!log->full)
		flush_batch(log);
}

/* Replaces the target; of a line that it has the start of, the rest is lost. */
static void use_target(struct line_log *log, int fd)
{
	drop_bytes(log, 0, torn_len(log, log->batch, log->len));
	log->torn = false;
	log_target_use(&log->target, fd);
	log->absent = false;
}

/* If the new file cannot be opened, the old one is kept: no line is lost. */
static void reopen_target(struct line_log *log)
{
	int fd = log_target_open(&log->target, true);
	char line[512];

	if (fd >= 0) {
		use_target(log, fd);
		return;
	}
	if (log->target.fd < 0)
		return;
	snprintf(line, sizeof(line),
		 "%s: --access-log '%.300s': %s; the old %s is kept",
		 log->kind.program, log->where, strerror(-fd),
		 log->target.kind == LOG_TO_FILE ? "file" : "socket");
	log->say(line);
}

/* Looks for a FIFO's reader or a daemon that was not there. */
static void open_again(struct line_log *log)
{
	int fd = log->target.fd < 0 ? log_target_open(&log->target, false) : -1;

	if (fd >= 0)
		use_target(log, fd);
}

static void await_work(struct line_log *log)
{
	struct pollfd item = {.fd = log->target.fd, .events = POLLOUT};
	struct timespec until;

	if (log->full) {
		poll(&item, 1, LOOK_MS);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOOK_MS * 1000000L;
	until.tv_sec += until.tv_nsec / NS_PER_S;
	until.tv_nsec %= NS_PER_S;
	sem_timedwait(&log->wake, &until);
}

/* Records of a shard that are not written yet. */
static uint64_t count_records(const struct line_log *log,
			      const struct ring *ring)
{
	uint64_t n = 0;

	for (uint64_t at = ring->tail; at < ring->head;) {
		const struct item *item =
			(const void *)(ring->bytes + at % log->kind.ring_bytes);

		n += item->at_ns != SKIPPED;
		at += item->room;
	}
	return n;
}

/* Writes what is left when no shard adds records, and counts the rest. */
static void write_remaining(struct line_log *log)
{
	int64_t until_ns = log->clock_ns() + CLOSE_NS;
	bool ends_line;

	write_rings(log);
	while (log->full && log->clock_ns() < until_ns) {
		await_work(log);
		write_rings(log);
	}
	ends_line = !log->full && !log->torn;
	drop_bytes(log, 0, log->len);
	for (unsigned i = 0; i < log->n_rings; i++)
		count_unwritten(log, count_records(log, ring_at(log, i)));
	if (ends_line)
		write_lost(log);
}

static void *run_writer(void *arg)
{
	struct line_log *log = arg;

	while (!log->stop) {
		await_work(log);
		open_again(log);
		write_rings(log);
		if (log->target.kind != LOG_TO_UDP &&
		    atomic_exchange(&log->reopen, false))
			reopen_target(log);
	}
	write_remaining(log);
	return NULL;
}

/* ---- life ---- */

int line_log_read(const struct opt *opt, const char *text, void *base,
		  struct opt_error *error)
{
	if (log_target_check(text) < 0)
		return -EINVAL;
	*(const char **)(void *)((char *)base + opt->at.offset) = text;
	return 0;
}

/* The kernel provides pages for records as they are written. */
static int make_rings(struct line_log *log, unsigned shards)
{
	size_t size = sizeof(struct ring) + log->kind.ring_bytes;

	log->ring_size = (size + 63) / 64 * 64;
	log->rings = aligned_alloc(64, shards * log->ring_size);
	if (!log->rings)
		return -ENOMEM;
	log->n_rings = shards;
	for (unsigned i = 0; i < shards; i++)
		memset(ring_at(log, i), 0, sizeof(struct ring));
	return 0;
}

static struct line_log *make_log(const struct line_log_kind *kind,
				 const char *where, unsigned shards)
{
	struct line_log *log = calloc(1, sizeof(*log));

	if (!log)
		return NULL;
	log->kind = *kind;
	log->where = strdup(where);
	log->batch = malloc(BATCH_MIN + PREFIX_MAX + LOST_MAX + kind->line_max);
	if (!log->where || !log->batch || make_rings(log, shards) < 0) {
		free(log->batch);
		free(log->where);
		free(log);
		return NULL;
	}
	log_target_init(&log->target, log->where);
	if (gethostname(log->host, sizeof(log->host)) < 0)
		strcpy(log->host, "-");
	log->host[sizeof(log->host) - 1] = '\0';
	sem_init(&log->wake, 0, 0);
	return log;
}

static void free_log(struct line_log *log)
{
	log_target_use(&log->target, -1);
	sem_destroy(&log->wake);
	free(log->rings);
	free(log->batch);
	free(log->where);
	free(log);
}

/* Its thread takes none of the program's signals. */
static int start_thread(struct line_log *log)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&log->thread, NULL, run_writer, log);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int line_log_open(const struct line_log_kind *kind, const char *where,
		  unsigned form, unsigned shards, int64_t (*clock_ns)(void),
		  void (*say)(const char *line), struct line_log **out)
{
	struct line_log *log = make_log(kind, where, shards);
	int err;

	if (!log)
		return -ENOMEM;
	log->form = form;
	log->clock_ns = clock_ns;
	log->say = say;
	tzset(); /* for localtime_r() */
	err = log_target_open(&log->target, true);
	log_target_use(&log->target, err < 0 ? -1 : err);
	if (log_target_may_appear(&log->target, err)) {
		note_absence(log, err);
		err = 0;
	}
	if (err >= 0)
		err = start_thread(log);
	if (err < 0) {
		free_log(log);
		return err;
	}
	*out = log;
	return 0;
}

void *line_log_begin(struct line_log *log, unsigned shard, size_t bytes)
{
	struct ring *ring = ring_at(log, shard);
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	size_t size = log->kind.ring_bytes, room = LINE_LOG_ROOM(bytes);
	size_t at = head % size, skip = size - at < room ? size - at : 0;

	if (head + skip + room - tail > size) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
		return NULL;
	}
	if (skip) {
		*(struct item *)(void *)(ring->bytes + at) =
			(struct item){skip, SKIPPED};
		at = 0;
	}
	ring->item = (void *)(ring->bytes + at);
	ring->item->room = room;
	ring->next = head + skip + room;
	return ring->item + 1;
}

void line_log_end(struct line_log *log, unsigned shard, int64_t at_ns)
{
	struct ring *ring = ring_at(log, shard);

	ring->item->at_ns = at_ns;
	atomic_store_explicit(&ring->head, ring->next, memory_order_release);
}

void line_log_reopen(struct line_log *log)
{
	log->reopen = true;
	sem_post(&log->wake);
}

uint64_t line_log_lost(const struct line_log *log)
{
	uint64_t sum = log->unwritten;

	for (unsigned i = 0; i < log->n_rings; i++)
		sum += ring_at(log, i)->lost;
	return sum;
}

static void report_unwritten(struct line_log *log)
{
	uint64_t lost = line_log_lost(log) - log->reported;
	char line[512];

	if (lost == 0)
		return;
	snprintf(line, sizeof(line),
		 "%s: --access-log '%.300s': %llu lines could not be written",
		 log->kind.program, log->where, (unsigned long long)lost);
	log->say(line);
}

void line_log_close(struct line_log *log)
{
	struct timespec until;

	if (!log)
		return;
	log->stop = true;
	sem_post(&log->wake);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 2 * CLOSE_NS / NS_PER_S;
	/* A thread that waits for a disk for ever ends with the process. */
	if (pthread_timedjoin_np(log->thread, NULL, &until))
		return;
	report_unwritten(log);
	free_log(log);
}
