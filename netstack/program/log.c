/*
 * The log: lines for stderr which never stop the thread that says them.
 *
 * A line is formatted into a slot of a bounded ring, and a thread of its own
 * writes it. stderr is often a pipe that other processes share, so that
 * O_NONBLOCK is not ours to set on it, and poll(2) does not promise that the
 * write which follows will not block: only another thread can wait safely. When
 * the ring is full the line is dropped and counted, and the next line that is
 * written tells how many.
 *
 * Any thread may log. A slot's turn says whose it is: in lap n of the ring it
 * is free at 2n and written at 2n + 1. Producers agree on their slots by a
 * compare-and-swap of `head`; the writer is alone at `tail`.
 *
 * Before net_log_open(), and in the child of a fork(2), there is no writer: the
 * caller writes by itself and may block.
 */
#include "netstack/program/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <coronet/net.h>

#include "dpdk_glue/glue.h"

#define CLAIM_TRIES 64	/* against other threads, before a line is dropped */
#define FLUSH_MS    200 /* the end of a program waits for stderr so long */
#define NS_PER_S    INT64_C(1000000000)

struct line {
	uint32_t dropped; /* lines lost just before this one */
	uint16_t len;
	char text[NET_LOG_BYTES];
};

struct slot {
	_Atomic uint64_t turn;
	struct line line;
};

static struct {
	struct slot slots[NET_LOG_SLOTS];
	_Atomic uint64_t head, tail;
	_Atomic uint64_t dropped; /* in all */
	_Atomic uint32_t untold;  /* of those, not yet said on stderr */
	_Atomic bool has_writer;
	_Atomic int fd;
	sem_t wake;
	struct sigaction old_pipe;
	bool holds_pipe; /* SIGPIPE has our handler, and old_pipe is set */
} the_log = {.fd = STDERR_FILENO};

uint64_t net_log_dropped(void)
{
	return atomic_load(&the_log.dropped);
}

void net_log_set_fd(int fd)
{
	atomic_store(&the_log.fd, fd);
}

/* ---- writing ---- */

/*
 * The whole of a text, however long the reader takes. Not when the descriptor
 * is closed or broken: false. EAGAIN is another process's O_NONBLOCK.
 */
static bool write_all(const char *text, size_t len)
{
	static const struct timespec pause = {.tv_nsec = 1000000};
	int fd = atomic_load(&the_log.fd);

	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd item = {.fd = fd, .events = POLLOUT};

			poll(&item, 1, -1);
			nanosleep(&pause, NULL);
		} else if (n > 0) {
			text += n;
			len -= (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			return false;
		}
	}
	return true;
}

static void count_dropped(uint32_t n)
{
	atomic_fetch_add(&the_log.dropped, n);
	atomic_fetch_add(&the_log.untold, n);
}

/* Says that lines were dropped; if that fails, they are to be told later. */
static void tell_dropped(uint32_t n)
{
	char text[96];
	int len;

	if (n == 0)
		return;
	len = snprintf(text, sizeof(text),
		       "coronet: %u lines of the log were dropped here: stderr "
		       "took no more\n",
		       n);
	if (!write_all(text, (size_t)len))
		atomic_fetch_add(&the_log.untold, n);
}

static void write_line(const struct line *line)
{
	tell_dropped(line->dropped);
	if (!write_all(line->text, line->len))
		count_dropped(1);
}

/* Writes what is in the ring, the oldest first; ends when it is empty. */
static void write_ring(void)
{
	for (;;) {
		uint64_t at = atomic_load(&the_log.tail);
		struct slot *slot = &the_log.slots[at % NET_LOG_SLOTS];
		uint64_t lap = at / NET_LOG_SLOTS;
		struct line line;

		if (atomic_load(&slot->turn) != 2 * lap + 1)
			return;
		line.dropped = slot->line.dropped;
		line.len = slot->line.len;
		memcpy(line.text, slot->line.text, line.len);
		atomic_store(&slot->turn, 2 * (lap + 1));
		write_line(&line);
		atomic_store(&the_log.tail, at + 1);
	}
}

static void *writer(void *arg)
{
	for (;;) {
		while (sem_wait(&the_log.wake))
			;
		write_ring();
		tell_dropped(atomic_exchange(&the_log.untold, 0));
	}
	return NULL;
}

/* By the caller, who may block: before there is a writer. */
static void write_directly(const char *text, size_t len)
{
	static const struct timespec at_once;
	sigset_t pipe_set, old, pending;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	if (!write_all(text, len))
		count_dropped(1);
	if (!sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe_set, NULL, &at_once) > 0)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- logging ---- */

/* A slot to fill, its place in *at; NULL when the ring is full. */
static struct slot *claim(uint64_t *at)
{
	*at = atomic_load(&the_log.head);
	for (int i = 0; i < CLAIM_TRIES; i++) {
		struct slot *slot = &the_log.slots[*at % NET_LOG_SLOTS];
		uint64_t lap = *at / NET_LOG_SLOTS;

		if (atomic_load(&slot->turn) < 2 * lap)
			return NULL; /* the line of the last lap is there */
		if (atomic_load(&slot->turn) > 2 * lap)
			*at = atomic_load(&the_log.head);
		else if (atomic_compare_exchange_weak(&the_log.head, at,
						      *at + 1))
			return slot;
	}
	return NULL;
}

void net_log_write(const char *text, size_t len)
{
	struct slot *slot;
	uint64_t at;

	if (len > NET_LOG_BYTES)
		len = NET_LOG_BYTES;
	if (!atomic_load(&the_log.has_writer)) {
		write_directly(text, len);
		return;
	}
	slot = claim(&at);
	if (slot) {
		slot->line.dropped = atomic_exchange(&the_log.untold, 0);
		slot->line.len = (uint16_t)len;
		memcpy(slot->line.text, text, len);
		atomic_store(&slot->turn, 2 * (at / NET_LOG_SLOTS) + 1);
	} else {
		count_dropped(1);
	}
	sem_post(&the_log.wake);
}

/*
 * Ends a line that snprintf() would have made `len` bytes long: nothing a peer
 * put into it moves a terminal's cursor or begins a line of its own.
 */
static size_t end_line(char *line, size_t room, int len)
{
	size_t n = len < 0 ? 0 : (size_t)len;

	if (n > room - 2) {
		n = room - 2;
		memcpy(line + n - 3, "...", 3);
	}
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == '\x7f')
			line[i] = '?';
	line[n] = '\n';
	return n + 1;
}

void net_log(const char *format, ...)
{
	char line[NET_LOG_BYTES + 1];
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	net_log_write(line, end_line(line, sizeof(line), len));
}

void net_log_limited(struct net_log_limit *limit, const char *format, ...)
{
	char line[NET_LOG_BYTES + 1];
	int64_t now_ns = glue_now_ns();
	uint32_t suppressed;
	va_list ap;
	int len;

	if (now_ns < __atomic_load_n(&limit->next_ns, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&limit->suppressed, 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_store_n(&limit->next_ns, now_ns + NS_PER_S, __ATOMIC_RELAXED);
	suppressed =
		__atomic_exchange_n(&limit->suppressed, 0, __ATOMIC_RELAXED);
	va_start(ap, format);
	len = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (suppressed && len >= 0 && (size_t)len < sizeof(line))
		len += snprintf(line + len, sizeof(line) - (size_t)len,
				" (and %u more like it)", suppressed);
	net_log_write(line, end_line(line, sizeof(line), len));
}

/* ---- life ---- */

static void in_child(void)
{
	atomic_store(&the_log.has_writer, false);
}

static int start_writer(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (atomic_load(&the_log.has_writer))
		return 0;
	sem_init(&the_log.wake, 0, 0);
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, writer, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return -err;
	atomic_store(&the_log.has_writer, true);
	return 0;
}

/* What is to be done once a process, even if it forks. */
static void register_once(void)
{
	static bool done;

	if (done)
		return;
	done = true;
	pthread_atfork(NULL, NULL, in_child);
	atexit(net_log_flush);
}

static void on_pipe(int signo)
{
}

static void hold_pipe(void)
{
	struct sigaction action = {.sa_handler = on_pipe,
				   .sa_flags = SA_RESTART};

	sigaction(SIGPIPE, NULL, &the_log.old_pipe);
	the_log.holds_pipe = !(the_log.old_pipe.sa_flags & SA_SIGINFO) &&
			     the_log.old_pipe.sa_handler == SIG_DFL;
	if (the_log.holds_pipe)
		sigaction(SIGPIPE, &action, NULL);
}

int net_log_open(void)
{
	int err = start_writer();

	if (err < 0)
		return err;
	register_once();
	hold_pipe();
	return 0;
}

void net_log_close(void)
{
	net_log_flush();
	if (the_log.holds_pipe)
		sigaction(SIGPIPE, &the_log.old_pipe, NULL);
	the_log.holds_pipe = false;
}

void net_log_flush(void)
{
	static const struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0; i < FLUSH_MS && atomic_load(&the_log.has_writer) &&
			atomic_load(&the_log.tail) < atomic_load(&the_log.head);
	     i++)
		nanosleep(&pause, NULL);
}
