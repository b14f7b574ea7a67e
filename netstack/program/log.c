/*
 * The log: writing a line never blocks the thread that logs it.
 *
 * A line is formatted into a slot of a bounded ring, and a separate thread
 * writes it. stderr is often a pipe that other processes share, so O_NONBLOCK
 * must not be set on it, and poll(2) does not guarantee that the following
 * write will not block: only another thread can wait safely. When the ring is
 * full, the line is dropped and counted, and the next line that is written
 * reports how many.
 *
 * Any thread may log. A slot's turn is its state: in lap n of the ring, 2n is
 * free and 2n + 1 is filled. Producers claim slots by a compare-and-swap of
 * `head`; only the writer changes `tail`.
 *
 * Before net_log_open(), and in the child of a fork(2), there is no writer: the
 * caller writes by itself and may block.
 */
#include "netstack/program/log_priv.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpdk_glue/glue.h"

#define CLAIM_TRIES  64	   /* against other threads, before a line is dropped */
#define FLUSH_MS     200   /* how long a program's end waits for a full pipe */
#define FLUSH_MAX_MS 10000 /* and for a writer that does not get a CPU */
#define NS_PER_S     INT64_C(1000000000)

struct line {
	int64_t wall_ns;  /* since 1970; printed where lines have a time */
	uint32_t dropped; /* lines lost just before this one */
	uint16_t len;
	uint8_t level;
	char text[NET_LOG_BYTES];
};

struct slot {
	_Atomic uint64_t turn;
	struct line line;
};

static struct {
	struct slot slots[NET_LOG_SLOTS];
	_Atomic uint64_t head, tail;
	_Atomic uint64_t dropped;    /* in all */
	_Atomic uint64_t suppressed; /* by limits */
	/*
	 * Lines that were dropped and are not reported in the log yet: their
	 * number, and above it the low bits of the head when the last one was
	 * dropped: they are missing before the line that gets this index.
	 */
	_Atomic uint64_t unreported;
	_Atomic bool has_writer;
	sem_t wake;
	struct sigaction old_pipe, old_usr1;
	bool holds_pipe, holds_usr1; /* ours is set, the old one kept */
} the_log;

uint64_t net_log_dropped(void)
{
	return atomic_load(&the_log.dropped);
}

uint64_t net_log_suppressed(void)
{
	return atomic_load(&the_log.suppressed);
}

void net_log_wake(void)
{
	if (atomic_load(&the_log.has_writer))
		sem_post(&the_log.wake);
}

static int64_t wall_now_ns(void)
{
	struct timespec now;

	if (!net_log_sink_is_stamped())
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- writing ---- */

#define COUNT_BITS 32

/* Keeps n dropped lines to be reported. */
static void keep_unreported(uint32_t n)
{
	uint64_t was = atomic_load(&the_log.unreported), now;

	do {
		now = atomic_load(&the_log.head) << COUNT_BITS |
		      (uint32_t)(was + n);
	} while (!atomic_compare_exchange_weak(&the_log.unreported, &was, now));
}

static void count_dropped(uint32_t n)
{
	atomic_fetch_add(&the_log.dropped, n);
	keep_unreported(n);
}

/* Reports that lines were dropped; if that fails, this is done later. */
static void report_dropped(uint32_t n)
{
	char text[96];
	int len;

	if (n == 0)
		return;
	len = snprintf(text, sizeof(text),
		       "coronet: %u lines of the log were dropped here: they "
		       "could not be written in time\n",
		       n);
	if (!net_log_sink_write(NET_LOG_WARNING, wall_now_ns(), text,
				(size_t)len))
		keep_unreported(n);
}

static void write_line(const struct line *line)
{
	report_dropped(line->dropped);
	if (!net_log_sink_write((enum net_log_level)line->level, line->wall_ns,
				line->text, line->len))
		count_dropped(1);
}

/* Writes the oldest line of the ring. Returns false if there is none. */
static bool write_next(void)
{
	uint64_t at = atomic_load(&the_log.tail);
	struct slot *slot = &the_log.slots[at % NET_LOG_SLOTS];
	uint64_t lap = at / NET_LOG_SLOTS;
	struct line line;

	if (atomic_load(&slot->turn) != 2 * lap + 1)
		return false;
	net_log_sink_settle();
	line.wall_ns = slot->line.wall_ns;
	line.dropped = slot->line.dropped;
	line.len = slot->line.len;
	line.level = slot->line.level;
	memcpy(line.text, slot->line.text, line.len);
	atomic_store(&slot->turn, 2 * (lap + 1));
	write_line(&line);
	atomic_store(&the_log.tail, at + 1);
	return true;
}

static bool is_before(uint64_t index, uint64_t unreported)
{
	return (int32_t)((uint32_t)(unreported >> COUNT_BITS) -
			 (uint32_t)index) > 0;
}

/*
 * Writes what is in the ring, the oldest first, until it is empty, and then
 * reports dropped lines that no line follows. While this looked, the ring may
 * have been filled and more lines dropped: those that precede them go first.
 */
static void write_ring(void)
{
	uint64_t unreported;

	while (write_next())
		;
	unreported = atomic_exchange(&the_log.unreported, 0);
	while (is_before(atomic_load(&the_log.tail), unreported) &&
	       write_next())
		;
	report_dropped((uint32_t)unreported);
}

static void *run_log_writer(void *arg)
{
	for (;;) {
		while (sem_wait(&the_log.wake))
			;
		net_log_sink_settle();
		write_ring();
	}
	return NULL;
}

/* Writes on the calling thread, which may block, before there is a writer. */
static void write_directly(enum net_log_level level, const char *text,
			   size_t len)
{
	static const struct timespec at_once;
	sigset_t pipe_set, old, pending;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	net_log_sink_settle();
	if (!net_log_sink_write(level, wall_now_ns(), text, len))
		count_dropped(1);
	if (!sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe_set, NULL, &at_once) > 0)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- logging ---- */

/* Returns a slot to fill, its index in *at; NULL when the ring is full. */
static struct slot *claim_slot(uint64_t *at)
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

static void log_at(enum net_log_level level, const char *text, size_t len)
{
	struct slot *slot;
	uint64_t at;

	if (len > NET_LOG_BYTES)
		len = NET_LOG_BYTES;
	if (!atomic_load(&the_log.has_writer)) {
		write_directly(level, text, len);
		return;
	}
	slot = claim_slot(&at);
	if (slot) {
		slot->line.dropped =
			(uint32_t)atomic_exchange(&the_log.unreported, 0);
		slot->line.len = (uint16_t)len;
		slot->line.level = (uint8_t)level;
		slot->line.wall_ns = wall_now_ns();
		memcpy(slot->line.text, text, len);
		atomic_store(&slot->turn, 2 * (at / NET_LOG_SLOTS) + 1);
	} else {
		count_dropped(1);
	}
	sem_post(&the_log.wake);
}

void net_log_write(const char *text, size_t len)
{
	log_at(NET_LOG_NOTICE, text, len);
}

void net_log_dpdk(unsigned level, const char *text, size_t len)
{
	log_at((enum net_log_level)level, text, len);
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

static void log_line(enum net_log_level level, const char *format, va_list ap)
{
	char line[NET_LOG_BYTES + 1];
	int len = vsnprintf(line, sizeof(line), format, ap);

	log_at(level, line, end_line(line, sizeof(line), len));
}

void net_log(const char *format, ...)
{
	va_list ap;

	if (!net_log_on(NET_COMPONENT_PROGRAM, NET_LOG_NOTICE))
		return;
	va_start(ap, format);
	log_line(NET_LOG_NOTICE, format, ap);
	va_end(ap);
}

void net_log_at(enum net_log_level level, const char *format, ...)
{
	va_list ap;

	if (level < NET_LOG_EMERGENCY || level > NET_LOG_DEBUG ||
	    !net_log_on(NET_COMPONENT_PROGRAM, level))
		return;
	va_start(ap, format);
	log_line(level, format, ap);
	va_end(ap);
}

void net_log_of(enum net_component component, enum net_log_level level,
		const char *format, ...)
{
	va_list ap;

	if (!net_log_on(component, level))
		return;
	va_start(ap, format);
	log_line(level, format, ap);
	va_end(ap);
}

void net_log_line(enum net_log_level level, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_line(level, format, ap);
	va_end(ap);
}

/* ---- limits ---- */

/*
 * May one more line be logged now, and if so, how many were not since the last
 * one? The next may come at next_ns; a second's worth may come at once. Two
 * threads that ask at the same time may both get a yes.
 */
static bool may_log(struct net_log_limit *limit, uint32_t *suppressed)
{
	int64_t each_ns =
		NS_PER_S / (limit->per_second ? limit->per_second : 1);
	int64_t now_ns = glue_now_ns();
	int64_t next_ns = __atomic_load_n(&limit->next_ns, __ATOMIC_RELAXED);

	if (next_ns > now_ns + 2 * NS_PER_S)
		next_ns = 0; /* the clock has started again */
	if (next_ns > now_ns + NS_PER_S - each_ns) {
		__atomic_fetch_add(&limit->suppressed, 1, __ATOMIC_RELAXED);
		atomic_fetch_add_explicit(&the_log.suppressed, 1,
					  memory_order_relaxed);
		return false;
	}
	if (next_ns < now_ns)
		next_ns = now_ns;
	__atomic_store_n(&limit->next_ns, next_ns + each_ns, __ATOMIC_RELAXED);
	*suppressed =
		__atomic_exchange_n(&limit->suppressed, 0, __ATOMIC_RELAXED);
	return true;
}

/* `more` is a format that takes the number of suppressed lines. */
static void log_limited(enum net_log_level level, struct net_log_limit *limit,
			const char *more, const char *format, va_list ap)
{
	char line[NET_LOG_BYTES + 1];
	uint32_t suppressed;
	int len;

	if (!may_log(limit, &suppressed))
		return;
	len = vsnprintf(line, sizeof(line), format, ap);
	if (suppressed && len >= 0 && (size_t)len < sizeof(line))
		len += snprintf(line + len, sizeof(line) - (size_t)len, more,
				suppressed);
	log_at(level, line, end_line(line, sizeof(line), len));
}

#define MORE_LIKE_IT " (and %u more like it)"

void net_log_limited(struct net_log_limit *limit, const char *format, ...)
{
	va_list ap;

	if (!net_log_on(NET_COMPONENT_PROGRAM, NET_LOG_WARNING))
		return;
	va_start(ap, format);
	log_limited(NET_LOG_WARNING, limit, MORE_LIKE_IT, format, ap);
	va_end(ap);
}

void net_log_limited_of(enum net_component component,
			struct net_log_limit *limit, const char *format, ...)
{
	va_list ap;

	if (!net_log_on(component, NET_LOG_WARNING))
		return;
	va_start(ap, format);
	log_limited(NET_LOG_WARNING, limit, MORE_LIKE_IT, format, ap);
	va_end(ap);
}

void net_log_event(enum net_log_level level, struct net_log_limit *limit,
		   const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_limited(level, limit, " held=%u", format, ap);
	va_end(ap);
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
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, run_log_writer, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return -err;
	atomic_store(&the_log.has_writer, true);
	return 0;
}

/* Registers handlers once a process, even if it forks. */
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

static void on_usr1(int signo)
{
	int saved = errno;

	net_log_reopen();
	errno = saved;
}

/* Sets a signal's action if that was the default. Returns whether it did. */
static bool catch_signal(int signo, void (*fn)(int signo),
			 struct sigaction *old)
{
	struct sigaction action = {.sa_handler = fn, .sa_flags = SA_RESTART};

	sigaction(signo, NULL, old);
	if (old->sa_flags & SA_SIGINFO || old->sa_handler != SIG_DFL)
		return false;
	return sigaction(signo, &action, NULL) == 0;
}

static void give_back(int signo, const struct sigaction *old, bool *holds)
{
	if (*holds)
		sigaction(signo, old, NULL);
	*holds = false;
}

int net_log_open(void)
{
	int err = net_log_levels_open();

	if (err == 0)
		err = start_writer();
	if (err < 0)
		return err;
	net_log_sink_open();
	register_once();
	if (!the_log.holds_pipe)
		the_log.holds_pipe =
			catch_signal(SIGPIPE, on_pipe, &the_log.old_pipe);
	if (!the_log.holds_usr1)
		the_log.holds_usr1 =
			catch_signal(SIGUSR1, on_usr1, &the_log.old_usr1);
	return 0;
}

void net_log_close(void)
{
	net_log_flush();
	give_back(SIGPIPE, &the_log.old_pipe, &the_log.holds_pipe);
	give_back(SIGUSR1, &the_log.old_usr1, &the_log.holds_usr1);
	net_log_sink_close();
}

unsigned net_log_waiting(void)
{
	uint64_t tail = atomic_load(&the_log.tail);

	if (!atomic_load(&the_log.has_writer))
		return 0;
	return (unsigned)(atomic_load(&the_log.head) - tail);
}

void net_log_flush(void)
{
	static const struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0, blocked = 0;
	     i < FLUSH_MAX_MS && blocked < FLUSH_MS && net_log_waiting(); i++) {
		nanosleep(&pause, NULL);
		blocked += net_log_sink_is_full();
	}
}
