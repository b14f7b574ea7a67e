/* Writes the access log on a thread of its own, so that no shard blocks. */
#include "apps/proxy/access_log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "apps/common/opts.h"

#define LOOK_NS	   20000000 /* between two looks at the rings */
#define NS_PER_S   INT64_C(1000000000)
#define CLOSE_S	   1	 /* for what is left at the end */
#define BATCH_MAX  65536 /* bytes of one write */
#define PREFIX_MAX 160	 /* bytes of syslog's header */

/* One shard writes, the thread reads. */
struct ring {
	_Alignas(64) _Atomic uint64_t head; /* the shard's */
	_Alignas(64) _Atomic uint64_t tail; /* the thread's */
	_Atomic uint64_t lost;
	struct access_record records[ACCESS_LOG_RING];
};

struct access_log {
	int64_t (*clock_ns)(void);
	void (*say)(const char *line);
	char *path; /* NULL: UDP */
	enum access_form form;
	int fd;
	pthread_t thread;
	sem_t wake;
	atomic_bool reopen, stop;
	_Atomic uint64_t unwritten; /* lines that could not be written */
	uint64_t reported;	    /* lost lines that have been reported */
	bool reporting, dropped;    /* writes that report; it had no room */
	char host[64];
	size_t len; /* bytes of the batch */
	bool torn;  /* the batch begins within a line: the file has its start */
	char batch[BATCH_MAX];
	unsigned n_rings;
	struct ring rings[];
};

static const char *const end_names[ACCESS_ENDS] = {
	[ACCESS_DONE] = "done",
	[ACCESS_CLIENT_RESET] = "client-reset",
	[ACCESS_SERVER_RESET] = "server-reset",
	[ACCESS_IDLE_TIMEOUT] = "idle-timeout",
	[ACCESS_CLIENT_TIMEOUT] = "client-timeout",
	[ACCESS_SERVER_TIMEOUT] = "server-timeout",
	[ACCESS_HALF_CLOSED_TIMEOUT] = "half-closed-timeout",
	[ACCESS_CONNECT_FAILED] = "connect-failed",
	[ACCESS_NO_BACKEND] = "no-backend",
	[ACCESS_NO_RETRY] = "no-retry",
	[ACCESS_QUEUE_FULL] = "queue-full",
	[ACCESS_QUEUE_TIMEOUT] = "queue-timeout",
	[ACCESS_DENIED] = "denied",
	[ACCESS_RATE] = "rate",
	[ACCESS_BAD_HEADER] = "bad-header",
	[ACCESS_HEADER_TIMEOUT] = "header-timeout",
	[ACCESS_BAD_HELLO] = "bad-hello",
	[ACCESS_TLS_FAILED] = "tls-failed",
	[ACCESS_HELLO_TIMEOUT] = "hello-timeout",
	[ACCESS_DISPLACED] = "displaced",
	[ACCESS_STOPPED] = "stopped",
	[ACCESS_NO_MEMORY] = "no-memory",
};

const char *access_end_name(enum access_end end)
{
	return end_names[end];
}

/* ---- lines ---- */

static size_t format_time(int64_t wall_ns, char *out, size_t len)
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	char text[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	return (size_t)snprintf(out, len, "%s.%03dZ", text,
				(int)(wall_ns % NS_PER_S / 1000000));
}

/* Empty: there is none. */
static const char *format_addr(uint8_t family, const uint8_t *ip, uint16_t port,
			       char *out, size_t len)
{
	char text[INET6_ADDRSTRLEN];

	if (family != 4 && family != 6)
		return "";
	inet_ntop(family == 4 ? AF_INET : AF_INET6, ip, text, sizeof(text));
	snprintf(out, len, family == 4 ? "%s:%u" : "[%s]:%u", text, port);
	return out;
}

static const char *or_none(const char *text)
{
	return *text ? text : "-";
}

/*
 * A name that the client chose, as a word: %XX in place of a blank and of what
 * is not ASCII (RFC 3986 2.1). out has three bytes for each of the text.
 */
static const char *format_name(const char *text, char *out)
{
	char *at = out;

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c <= ' ' || c >= 0x7f || c == '%')
			at += sprintf(at, "%%%02X", c);
		else
			*at++ = (char)c;
	}
	*at = '\0';
	return out;
}

static size_t format_text(const struct access_record *r, int64_t wall_ns,
			  char *line)
{
	char time[64], client[64], listener[64], connect[32] = "-";
	char name[3 * sizeof(r->tls.client)];
	int n;

	format_time(wall_ns, time, sizeof(time));
	if (r->connect_ns >= 0)
		snprintf(connect, sizeof(connect), "%.3f",
			 (double)r->connect_ns / 1e6);
	n = snprintf(
		line, ACCESS_LOG_LINE_MAX,
		"%s client=%s listener=%s backend=%s connect_ms=%s "
		"queue_ms=%.3f to=%llu from=%llu duration_ms=%.3f "
		"retries=%u sni=%s tls=%s cipher=%s tls_client=%s id=%s "
		"end=%s\n",
		time,
		or_none(format_addr(r->addrs.family, r->addrs.src,
				    r->addrs.src_port, client, sizeof(client))),
		or_none(format_addr(r->addrs.family, r->addrs.dst,
				    r->addrs.dst_port, listener,
				    sizeof(listener))),
		or_none(r->backend), connect, (double)r->queue_ns / 1e6,
		(unsigned long long)r->bytes_to,
		(unsigned long long)r->bytes_from,
		(double)(r->end_ns - r->begin_ns) / 1e6, r->retries,
		or_none(r->server_name), or_none(r->tls.version),
		or_none(r->tls.cipher),
		or_none(format_name(r->tls.client, name)), or_none(r->id),
		end_names[r->end]);
	return (size_t)n;
}

/* A text, or null if there is none. */
static void add_text(cJSON *to, const char *name, const char *text)
{
	if (*text)
		cJSON_AddStringToObject(to, name, text);
	else
		cJSON_AddNullToObject(to, name);
}

/* All digits, unlike a double. */
static void add_number(cJSON *to, const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	cJSON_AddRawToObject(to, name, text);
}

/* Milliseconds; null if ns is less than 0. */
static void add_ms(cJSON *to, const char *name, int64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", (double)ns / 1e6);
	if (ns >= 0)
		cJSON_AddRawToObject(to, name, text);
	else
		cJSON_AddNullToObject(to, name);
}

static size_t print_json(cJSON *object, char *line, size_t room)
{
	size_t len = 0;

	if (object && cJSON_PrintPreallocated(object, line, (int)room - 1, 0)) {
		len = strlen(line);
		line[len++] = '\n';
	}
	cJSON_Delete(object);
	return len;
}

static size_t format_json(const struct access_record *r, int64_t wall_ns,
			  char *line)
{
	cJSON *to = cJSON_CreateObject();
	char text[64];

	format_time(wall_ns, text, sizeof(text));
	add_text(to, "time", text);
	add_text(to, "client",
		 format_addr(r->addrs.family, r->addrs.src, r->addrs.src_port,
			     text, sizeof(text)));
	add_text(to, "listener",
		 format_addr(r->addrs.family, r->addrs.dst, r->addrs.dst_port,
			     text, sizeof(text)));
	add_text(to, "backend", r->backend);
	add_ms(to, "connect_ms", r->connect_ns);
	add_ms(to, "queue_ms", r->queue_ns);
	add_number(to, "to", r->bytes_to);
	add_number(to, "from", r->bytes_from);
	add_ms(to, "duration_ms", r->end_ns - r->begin_ns);
	add_number(to, "retries", r->retries);
	add_text(to, "sni", r->server_name);
	add_text(to, "tls", r->tls.version);
	add_text(to, "cipher", r->tls.cipher);
	add_text(to, "tls_client", r->tls.client);
	add_text(to, "id", r->id);
	add_text(to, "end", end_names[r->end]);
	return print_json(to, line, ACCESS_LOG_LINE_MAX);
}

size_t access_log_format(const struct access_record *record,
			 enum access_form form, int64_t wall_ns, char *line)
{
	return form == ACCESS_JSON ? format_json(record, wall_ns, line)
				   : format_text(record, wall_ns, line);
}

/* The line that reports lost ones. */
static size_t format_lost(enum access_form form, const char *time, uint64_t n,
			  char *line, size_t room)
{
	cJSON *to;

	if (form == ACCESS_TEXT)
		return (size_t)snprintf(line, room, "%s lost=%llu\n", time,
					(unsigned long long)n);
	to = cJSON_CreateObject();
	add_text(to, "time", time);
	add_number(to, "lost", n);
	return print_json(to, line, room);
}

/* ---- writing, on the thread ---- */

/* Writes as much as is taken; returns how much. */
static size_t write_max(int fd, const char *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(fd, data + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

static void count_unwritten(struct access_log *log, uint64_t lines)
{
	if (log->reporting)
		log->dropped |= lines > 0;
	else
		atomic_fetch_add(&log->unwritten, lines);
}

static uint64_t count_lines(const char *data, size_t len)
{
	uint64_t lines = 0;

	for (size_t i = 0; i < len; i++)
		lines += data[i] == '\n';
	return lines;
}

/*
 * A file that takes no more, as on a full disk, may have taken a part of a
 * line: the rest of that line is kept, to be written before any other.
 */
static void keep_remaining(struct access_log *log, size_t done)
{
	const char *rest = log->batch + done;
	size_t len = log->len - done, keep = 0;

	if (done ? rest[-1] != '\n' : log->torn)
		keep = (size_t)((const char *)memchr(rest, '\n', len) - rest) +
		       1;
	count_unwritten(log, count_lines(rest + keep, len - keep));
	memmove(log->batch, rest, keep);
	log->len = keep;
	log->torn = keep > 0;
}

static void flush_batch(struct access_log *log)
{
	size_t done = write_max(log->fd, log->batch, log->len);

	if (done < log->len && log->path) {
		keep_remaining(log, done);
		return;
	}
	if (done < log->len)
		count_unwritten(log, 1);
	log->len = 0;
	log->torn = false;
}

static void put_line(struct access_log *log, const char *line, size_t len,
		     const char *time)
{
	if (log->path) {
		if (log->len + len > sizeof(log->batch))
			flush_batch(log); /* leaves less than a line */
		memcpy(log->batch + log->len, line, len);
		log->len += len;
	} else {
		/* A line is a datagram, and ends where that ends. */
		log->len = (size_t)snprintf(log->batch, PREFIX_MAX,
					    "<134>1 %s %s coronet-proxy %d "
					    "access - ",
					    time, log->host, (int)getpid());
		memcpy(log->batch + log->len, line, len - 1);
		log->len += len - 1;
	}
	if (!log->path)
		flush_batch(log);
}

static int64_t wall_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Reports lost lines once the file takes lines again; the report is none of
 * those that are lost. */
static void write_lost(struct access_log *log)
{
	uint64_t lost = access_log_lost(log);
	char line[128], time[64];
	size_t n;

	if (lost == log->reported || log->torn)
		return;
	format_time(wall_now_ns(), time, sizeof(time));
	n = format_lost(log->form, time, lost - log->reported, line,
			sizeof(line));
	if (n == 0)
		return;
	log->reporting = true;
	log->dropped = false;
	put_line(log, line, n, time);
	flush_batch(log);
	log->reporting = false;
	if (!log->dropped) /* written, or at least begun */
		log->reported = lost;
}

/* Writes what is in a ring now. */
static void write_ring(struct access_log *log, struct ring *ring)
{
	int64_t offset_ns = wall_now_ns() - log->clock_ns();
	uint64_t tail = ring->tail, head = ring->head;

	for (; tail < head; tail++) {
		const struct access_record *record =
			&ring->records[tail % ACCESS_LOG_RING];
		char line[ACCESS_LOG_LINE_MAX], time[64];
		size_t n = access_log_format(record, log->form,
					     record->end_ns + offset_ns, line);

		format_time(record->end_ns + offset_ns, time, sizeof(time));
		if (n)
			put_line(log, line, n, time);
		else
			count_unwritten(log, 1);
		ring->tail = tail + 1;
	}
}

static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

	return fd < 0 ? -errno : fd;
}

/* If the new file cannot be opened, the old one is kept: no line is lost. */
static void reopen_log_file(struct access_log *log)
{
	int fd = open_file(log->path);
	char line[512];

	if (fd < 0) {
		snprintf(line, sizeof(line),
			 "coronet-proxy: --access-log '%.300s': %s; the old "
			 "file is kept",
			 log->path, strerror(-fd));
		log->say(line);
		return;
	}
	count_unwritten(log, count_lines(log->batch, log->len)); /* old file */
	log->len = 0;
	log->torn = false;
	close(log->fd);
	log->fd = fd;
}

static void write_rings(struct access_log *log)
{
	for (unsigned i = 0; i < log->n_rings; i++)
		write_ring(log, &log->rings[i]);
	flush_batch(log);
	write_lost(log);
}

static void *run_writer(void *arg)
{
	struct access_log *log = arg;
	struct timespec until;

	while (!log->stop) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		until.tv_sec += until.tv_nsec / NS_PER_S;
		until.tv_nsec %= NS_PER_S;
		sem_timedwait(&log->wake, &until);
		write_rings(log);
		if (log->path && atomic_exchange(&log->reopen, false))
			reopen_log_file(log);
	}
	write_rings(log);
	return NULL;
}

/* ---- life ---- */

static int open_udp(const char *at)
{
	struct opt_endpoint end;
	int fd;

	if (opt_parse_endpoint(at, &end) < 0)
		return -EINVAL;
	fd = socket(end.addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&end.addr, end.addr_len) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* Its thread takes none of the program's signals. */
static int start_thread(struct access_log *log)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&log->thread, NULL, run_writer, log);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int access_log_check(const char *where)
{
	struct opt_endpoint end;
	int fd;

	if (strncmp(where, "udp:", 4) == 0)
		return opt_parse_endpoint(where + 4, &end);
	/* A pipe that nobody reads is refused, and would block. */
	fd = open(where, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int access_log_open(const char *where, enum access_form form, unsigned shards,
		    int64_t (*clock_ns)(void), void (*say)(const char *line),
		    struct access_log **out)
{
	bool udp = strncmp(where, "udp:", 4) == 0;
	size_t size = sizeof(struct access_log) + shards * sizeof(struct ring);
	struct access_log *log = aligned_alloc(64, (size + 63) / 64 * 64);
	int err;

	if (!log)
		return -ENOMEM;
	/* The kernel provides pages for records as they are written. */
	memset(log, 0, sizeof(*log));
	for (unsigned i = 0; i < shards; i++) {
		log->rings[i].head = log->rings[i].tail = 0;
		log->rings[i].lost = 0;
	}
	log->n_rings = shards;
	log->form = form;
	log->clock_ns = clock_ns;
	log->say = say;
	log->path = udp ? NULL : strdup(where);
	if (gethostname(log->host, sizeof(log->host)) < 0)
		strcpy(log->host, "-");
	log->host[sizeof(log->host) - 1] = '\0';
	sem_init(&log->wake, 0, 0);
	err = log->fd = udp	    ? open_udp(where + 4)
			: log->path ? open_file(log->path)
				    : -ENOMEM;
	if (err >= 0)
		err = start_thread(log);
	if (err == 0) {
		*out = log;
		return 0;
	}
	if (log->fd >= 0)
		close(log->fd);
	free(log->path);
	free(log);
	return err;
}

void access_log_add(struct access_log *log, unsigned shard,
		    const struct access_record *record)
{
	struct ring *ring;
	uint64_t head;

	if (!log)
		return;
	ring = &log->rings[shard];
	head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) ==
	    ACCESS_LOG_RING) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
		return;
	}
	ring->records[head % ACCESS_LOG_RING] = *record;
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

void access_log_reopen(struct access_log *log)
{
	log->reopen = true;
	sem_post(&log->wake);
}

uint64_t access_log_lost(const struct access_log *log)
{
	uint64_t sum = log->unwritten;

	for (unsigned i = 0; i < log->n_rings; i++)
		sum += log->rings[i].lost;
	return sum;
}

void access_log_close(struct access_log *log)
{
	struct timespec until;

	if (!log)
		return;
	log->stop = true;
	sem_post(&log->wake);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += CLOSE_S;
	/* A thread that waits for a file for ever ends with the process. */
	if (pthread_timedjoin_np(log->thread, NULL, &until))
		return;
	close(log->fd);
	sem_destroy(&log->wake);
	free(log->path);
	free(log);
}
