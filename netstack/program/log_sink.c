/*
 * The destination of the log: stderr, stderr read by journald, or a file that
 * can be reopened while the program runs.
 *
 * Other threads only store requests: `next`, one word with a descriptor and the
 * style of its lines, and `reopen`. The writing thread (log.c) applies them
 * between two lines, so that no descriptor is closed during a write to it. A
 * request also ends its wait for a reader that has stopped reading: that line
 * is lost, and counted.
 */
#include "netstack/program/log_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "netstack/options/opt.h"

#define PREFIX_MAX 64  /* bytes before a line */
#define LOOK_MS	   100 /* between two looks at what is requested */
#define OTHERS_MAX 8   /* logs of the program's own */
#define REOPEN_MS  1000
#define NS_PER_S   INT64_C(1000000000)

/* Bits of `next`. */
#define NEXT_IS	     (UINT64_C(1) << 63)
#define NEXT_OWNED   (UINT64_C(1) << 62)
#define NEXT_STYLE_0 32

static struct {
	_Atomic uint64_t next; /* 0: nothing */
	atomic_bool reopen;
	_Atomic unsigned asked, done; /* reopenings */
	_Atomic int reopen_err;	      /* of the last */
	atomic_bool stamped;

	/* What net_log_to() has chosen, and logs of the program's own. */
	pthread_mutex_t lock;
	char *path; /* owned; NULL: stderr */
	bool journal;
	int opened_fd; /* path's, until it is written to; -1 */
	int stderr_fd;
	struct net_log_other {
		void (*fn)(void *arg);
		void *arg;
	} others[OTHERS_MAX];
	unsigned n_others;

	_Atomic int fd; /* only the writer changes it */

	/* These are the writer's alone. */
	enum net_log_style style;
	bool owned; /* fd is closed when another takes its place */
	bool torn;  /* the last line has no end */
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER,
	  .opened_fd = -1,
	  .stderr_fd = STDERR_FILENO,
	  .fd = STDERR_FILENO};

/* ---- choosing ---- */

/* Blocks neither here nor later; a FIFO without a reader is refused. */
static int open_file(const char *path)
{
	int fd = open(path,
		      O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY |
			      O_NONBLOCK,
		      0640);

	return fd < 0 ? -errno : fd;
}

static void forget_choice(void)
{
	if (sink.opened_fd >= 0)
		close(sink.opened_fd);
	free(sink.path);
	sink.opened_fd = -1;
	sink.path = NULL;
	sink.journal = false;
}

/* Needs the lock. */
static int choose_file(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open_file(path) : -ENOMEM;

	if (fd < 0) {
		free(copy);
		return fd;
	}
	forget_choice();
	sink.path = copy;
	sink.opened_fd = fd;
	return 0;
}

int net_log_to(const char *where)
{
	int err = 0;

	if (where && !*where)
		return -EINVAL;
	pthread_mutex_lock(&sink.lock);
	if (where && strcmp(where, "stderr") != 0 &&
	    strcmp(where, "journal") != 0) {
		err = choose_file(where);
	} else {
		forget_choice();
		sink.journal = where && strcmp(where, "journal") == 0;
	}
	pthread_mutex_unlock(&sink.lock);
	return err;
}

int net_log_check_to(const char *where)
{
	if (!*where)
		return -EINVAL;
	if (strcmp(where, "stderr") == 0 || strcmp(where, "journal") == 0)
		return 0;
	return opt_check_writable(where);
}

const char *net_log_where(char *text, size_t len)
{
	pthread_mutex_lock(&sink.lock);
	snprintf(text, len, "%s",
		 sink.path	? sink.path
		 : sink.journal ? "journal"
				: "stderr");
	pthread_mutex_unlock(&sink.lock);
	return text;
}

void net_log_set_fd(int fd)
{
	pthread_mutex_lock(&sink.lock);
	sink.stderr_fd = fd;
	pthread_mutex_unlock(&sink.lock);
	net_log_sink_open();
}

/* systemd says in the environment which file the journal's stream is. */
static bool is_journal(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
	       fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

static void use_file(int fd, enum net_log_style style, bool owned)
{
	atomic_store(&sink.stamped, style == NET_LOG_STAMPED);
	atomic_store(&sink.next, NEXT_IS | (owned ? NEXT_OWNED : 0) |
					 (uint64_t)style << NEXT_STYLE_0 |
					 (uint32_t)fd);
}

/* Needs the lock. */
static void use_stderr(void)
{
	bool priority = sink.journal || is_journal(sink.stderr_fd);

	use_file(sink.stderr_fd, priority ? NET_LOG_PRIORITY : NET_LOG_PLAIN,
		 false);
}

void net_log_sink_open(void)
{
	pthread_mutex_lock(&sink.lock);
	if (!sink.path)
		use_stderr();
	else if (sink.opened_fd >= 0)
		use_file(sink.opened_fd, NET_LOG_STAMPED, true);
	sink.opened_fd = -1;
	pthread_mutex_unlock(&sink.lock);
	net_log_wake();
}

void net_log_sink_close(void)
{
	pthread_mutex_lock(&sink.lock);
	if (sink.path) {
		forget_choice();
		use_stderr();
	}
	pthread_mutex_unlock(&sink.lock);
	net_log_wake();
}

bool net_log_sink_is_stamped(void)
{
	return atomic_load_explicit(&sink.stamped, memory_order_relaxed);
}

/* ---- reopening ---- */

int net_log_join(void (*reopen)(void *arg), void *arg)
{
	int err = reopen ? 0 : -EINVAL;

	pthread_mutex_lock(&sink.lock);
	if (err == 0 && sink.n_others == OTHERS_MAX)
		err = -ENOSPC;
	if (err == 0)
		sink.others[sink.n_others++] =
			(struct net_log_other){reopen, arg};
	pthread_mutex_unlock(&sink.lock);
	return err;
}

void net_log_leave(void (*reopen)(void *arg), void *arg)
{
	pthread_mutex_lock(&sink.lock);
	for (unsigned i = 0; i < sink.n_others; i++) {
		if (sink.others[i].fn != reopen || sink.others[i].arg != arg)
			continue;
		sink.others[i] = sink.others[--sink.n_others];
		break;
	}
	pthread_mutex_unlock(&sink.lock);
}

void net_log_reopen(void)
{
	atomic_store(&sink.reopen, true);
	net_log_wake();
}

int net_log_reopen_wait(void)
{
	static const struct timespec pause = {.tv_nsec = 1000000};
	unsigned mine = atomic_fetch_add(&sink.asked, 1) + 1;

	net_log_reopen();
	for (int i = 0; i < REOPEN_MS; i++) {
		if ((int)(atomic_load(&sink.done) - mine) >= 0)
			return atomic_load(&sink.reopen_err);
		nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

/*
 * Runs on the writer. Needs the lock. Copies the path to `path` if the file
 * cannot be opened.
 */
static int reopen_file(char *path, size_t len)
{
	int fd;

	if (!sink.path || !sink.owned)
		return 0;
	fd = open_file(sink.path);
	if (fd < 0) {
		snprintf(path, len, "%s", sink.path);
		return fd;
	}
	close(sink.fd);
	sink.fd = fd;
	sink.torn = false;
	return 0;
}

/*
 * If the new file cannot be opened, the old one is kept: no line is lost. That
 * is logged without the lock, since the old file may be a full FIFO.
 */
static void reopen_all(void)
{
	unsigned asked = atomic_load(&sink.asked);
	char path[300];
	int err;

	pthread_mutex_lock(&sink.lock);
	err = reopen_file(path, sizeof(path));
	for (unsigned i = 0; i < sink.n_others; i++)
		sink.others[i].fn(sink.others[i].arg);
	pthread_mutex_unlock(&sink.lock);
	if (err < 0)
		net_log_line(NET_LOG_ERROR,
			     "coronet: --log-to '%s': %s; the old file is kept",
			     path, strerror(-err));
	atomic_store(&sink.reopen_err, err);
	atomic_store(&sink.done, asked);
}

/* ---- calls of the writing thread ---- */

bool net_log_sink_is_due(void)
{
	return atomic_load_explicit(&sink.next, memory_order_relaxed) ||
	       atomic_load_explicit(&sink.reopen, memory_order_relaxed);
}

bool net_log_sink_is_full(void)
{
	struct pollfd item = {.fd = sink.fd, .events = POLLOUT};

	return poll(&item, 1, 0) == 0;
}

void net_log_sink_settle(void)
{
	uint64_t next;
	bool reopens;

	if (!net_log_sink_is_due())
		return;
	/* First, so that it is for a file that was opened before it. */
	reopens = atomic_exchange(&sink.reopen, false);
	next = atomic_exchange(&sink.next, 0);
	if (next) {
		if (sink.owned)
			close(sink.fd);
		sink.fd = (int)(uint32_t)next;
		sink.style = (enum net_log_style)(next >> NEXT_STYLE_0 & 3);
		sink.owned = next & NEXT_OWNED;
		sink.torn = false;
	}
	if (reopens)
		reopen_all();
}

/* EAGAIN is a full FIFO, or another process's O_NONBLOCK on stderr. */
static bool wait_for_reader(void)
{
	static const struct timespec pause = {.tv_nsec = 1000000};
	struct pollfd item = {.fd = sink.fd, .events = POLLOUT};

	while (poll(&item, 1, LOOK_MS) == 0)
		if (net_log_sink_is_due())
			return false;
	nanosleep(&pause, NULL);
	return true;
}

/*
 * Writes a whole text, however long the reader takes, unless something else is
 * requested, or the descriptor is closed, broken or its disk full.
 */
static bool write_all(const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(sink.fd, text, len);

		if (n > 0) {
			text += n;
			len -= (size_t)n;
			sink.torn = len > 0;
		} else if (n < 0 && errno == EAGAIN) {
			if (!wait_for_reader())
				return false;
		} else if (n == 0 || errno != EINTR) {
			return false;
		}
	}
	return true;
}

/* "2026-11-23T12:00:00.123Z info " */
static size_t format_prefix(enum net_log_level level, int64_t wall_ns,
			    char *out)
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	char text[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	return (size_t)snprintf(out, PREFIX_MAX - 1, "%s.%03dZ %s ", text,
				(int)(wall_ns % NS_PER_S / 1000000),
				net_log_level_name(level));
}

/* Writes the start of a line; syslog(3)'s levels are one less than
 * rte_log's. */
static size_t put_prefix(enum net_log_level level, int64_t wall_ns, char *out)
{
	switch (sink.style) {
	case NET_LOG_PLAIN:
		break;
	case NET_LOG_PRIORITY:
		memcpy(out, "<0>", 3);
		out[1] = (char)('0' + level - NET_LOG_EMERGENCY);
		return 3;
	case NET_LOG_STAMPED:
		return format_prefix(level, wall_ns, out);
	}
	return 0;
}

bool net_log_sink_write(enum net_log_level level, int64_t wall_ns,
			const char *text, size_t len)
{
	char line[PREFIX_MAX + NET_LOG_BYTES];
	size_t n = 0;

	/* Otherwise an unfinished line and this one would become one. */
	if (sink.torn)
		line[n++] = '\n';
	n += put_prefix(level, wall_ns, line + n);
	memcpy(line + n, text, len);
	return write_all(line, n + len);
}
