/*
 * Hooks of the calls that open and close streams of stdio.
 *
 * The C library reads and writes a stream by system calls of its own, which
 * would reach the kernel's socket that holds a number of the stack. So fdopen()
 * makes a stream of callbacks for such a number (fopencookie(3)), which calls
 * read(), write() and close() as the program would. It has the number, and so
 * buffers, errors and fclose() are as on the kernel. It has no wide characters,
 * and freopen() returns another FILE.
 *
 * A socket that may still become one of the stack gets such a stream, too. The
 * streams that other calls have opened, such as stdout, remain the C library's:
 * they cannot write to a socket of the stack that dup2() gives their number.
 */
#include "netstack/sockets/dgram.h"
#include "netstack/sockets/whole.h"

#include <stdarg.h>

/* The C library's; fortified programs call the second. */
int __vasprintf_chk(char **out, int flag, const char *format, va_list args);
int __dprintf_chk(int fd, int flag, const char *format, ...);

#define BUCKETS 1024u

/* A stream that fdopen() has made here. */
struct stream {
	FILE *file;
	int fd;
	LIST_ENTRY(stream) link;
};

static struct {
	pthread_mutex_t mutex;
	LIST_HEAD(, stream) buckets[BUCKETS]; /* by number */
	_Atomic unsigned n;
} streams = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void lock_streams(void)
{
	pthread_mutex_lock(&streams.mutex);
}

static void unlock_streams(void)
{
	pthread_mutex_unlock(&streams.mutex);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(lock_streams, unlock_streams, unlock_streams);
}

static void add_stream(struct stream *stream)
{
	lock_streams();
	LIST_INSERT_HEAD(&streams.buckets[(unsigned)stream->fd % BUCKETS],
			 stream, link);
	streams.n++;
	unlock_streams();
}

static void remove_stream(struct stream *stream)
{
	lock_streams();
	LIST_REMOVE(stream, link);
	streams.n--;
	unlock_streams();
}

/* Returns NULL if it is the C library's. */
static struct stream *find_stream(FILE *file)
{
	int fd = fileno_unlocked(file);
	struct stream *found = NULL;

	if (fd < 0 || streams.n == 0)
		return NULL;
	lock_streams();
	LIST_FOREACH(found, &streams.buckets[(unsigned)fd % BUCKETS], link)
	if (found->file == file)
		break;
	unlock_streams();
	return found;
}

/* ---- callbacks ---- */

static ssize_t read_stream(void *cookie, char *buf, size_t len)
{
	const struct stream *stream = cookie;

	return read(stream->fd, buf, len);
}

/* Writes everything, like the C library. Returns fewer bytes after an error. */
static ssize_t write_all(int fd, const char *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(fd, buf + done, len - done);

		if (n < 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t write_stream(void *cookie, const char *buf, size_t len)
{
	const struct stream *stream = cookie;

	return write_all(stream->fd, buf, len);
}

static int seek_stream(void *cookie, off64_t *offset, int whence)
{
	return (int)net_result(-ESPIPE);
}

static int close_stream(void *cookie)
{
	struct stream *stream = cookie;
	int fd = stream->fd;

	remove_stream(stream);
	free(stream);
	return close(fd);
}

/* ---- opening ---- */

static bool needs_callbacks(int fd)
{
	int saved = errno;
	bool needs, v6;

	needs = net_fds && !net_is_child() && !net_fd_shares_memory() &&
		(net_sockets_ours(fd) || net_sock_is_fresh(fd) ||
		 net_dgram_is_fresh(fd, &v6));
	errno = saved;
	return needs;
}

NET_HOOK FILE *fdopen(int fd, const char *mode)
{
	const cookie_io_functions_t calls = {.read = read_stream,
					     .write = write_stream,
					     .seek = seek_stream,
					     .close = close_stream};
	struct stream *stream;

	if (!needs_callbacks(fd))
		return net_real()->fdopen(fd, mode);
	stream = malloc(sizeof(*stream));
	if (!stream)
		return NULL;
	stream->fd = fd;
	stream->file = fopencookie(stream, mode, calls);
	if (!stream->file) {
		free(stream);
		return NULL;
	}
	stream->file->_fileno = fd; /* for fileno() */
	add_stream(stream);
	return stream->file;
}

static FILE *fresh_stream(FILE *file)
{
	if (file)
		net_fd_fresh(fileno_unlocked(file));
	return file;
}

NET_HOOK FILE *fopen(const char *path, const char *mode)
{
	return fresh_stream(net_real()->fopen(path, mode));
}

NET_HOOK FILE *fopen64(const char *path, const char *mode)
{
	return fresh_stream(net_real()->fopen64(path, mode));
}

NET_HOOK FILE *tmpfile(void)
{
	return fresh_stream(net_real()->tmpfile());
}

NET_HOOK FILE *tmpfile64(void)
{
	return fresh_stream(net_real()->tmpfile64());
}

NET_HOOK FILE *popen(const char *command, const char *mode)
{
	return fresh_stream(net_real()->popen(command, mode));
}

/* ---- closing ---- */

/* The C library closes a number by a call of its own. */
static bool let_go_of_stream(FILE *file, struct net_sock **lingers)
{
	int fd = fileno_unlocked(file);

	return fd >= 0 && net_fds && net_sockets_ours(fd) &&
	       net_fd_let_go(fd, lingers) > 0;
}

NET_HOOK int fclose(FILE *file)
{
	struct net_sock *lingers;
	int rc, saved;
	bool ours;

	if (find_stream(file))
		return net_real()->fclose(file);
	if (net_fd_needs_baton(fileno_unlocked(file)))
		return (int)NET_WITH_BATON(fclose, (long)file);
	ours = let_go_of_stream(file, &lingers);
	rc = net_real()->fclose(file);
	saved = errno;
	if (ours)
		net_fd_gone(lingers);
	errno = saved;
	return rc;
}

/* The C library's own crashes with a stream of callbacks (glibc 2.36): the
 * program gets another stream. */
static FILE *replace_stream(const char *path, const char *mode, FILE *file)
{
	fclose(file);
	if (path)
		return fopen(path, mode);
	errno = ENXIO; /* of opening a socket again */
	return NULL;
}

static FILE *reopen_stream(FILE *(*real)(const char *path, const char *mode,
					 FILE *file),
			   const char *path, const char *mode, FILE *file)
{
	struct net_sock *lingers;
	FILE *opened;
	int saved;
	bool ours;

	if (find_stream(file))
		return replace_stream(path, mode, file);
	ours = let_go_of_stream(file, &lingers);
	opened = fresh_stream(real(path, mode, file));
	saved = errno;
	if (ours)
		net_fd_gone(lingers);
	errno = saved;
	return opened;
}

NET_HOOK FILE *freopen(const char *path, const char *mode, FILE *file)
{
	return reopen_stream(net_real()->freopen, path, mode, file);
}

NET_HOOK FILE *freopen64(const char *path, const char *mode, FILE *file)
{
	return reopen_stream(net_real()->freopen64, path, mode, file);
}

void net_streams_flush(void)
{
	struct stream *stream;

	lock_streams();
	for (unsigned i = 0; streams.n && i < BUCKETS; i++)
		LIST_FOREACH(stream, &streams.buckets[i], link)
	if (ftrylockfile(stream->file) == 0) {
		fflush_unlocked(stream->file);
		funlockfile(stream->file);
	}
	unlock_streams();
}

/* ---- dprintf ---- */

/* Prints like the C library: -1 with errno if not everything was written. */
static int print_to(int fd, int flag, const char *format, va_list args)
{
	char *text;
	int len = __vasprintf_chk(&text, flag, format, args);

	if (len < 0)
		return len;
	if (write_all(fd, text, (size_t)len) < len)
		len = -1;
	free(text);
	return len;
}

NET_HOOK int __vdprintf_chk(int fd, int flag, const char *format, va_list args)
{
	return net_sockets_ours(fd)
		       ? print_to(fd, flag, format, args)
		       : net_real()->__vdprintf_chk(fd, flag, format, args);
}

NET_HOOK int vdprintf(int fd, const char *format, va_list args)
{
	return __vdprintf_chk(fd, 0, format, args);
}

NET_HOOK int dprintf(int fd, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = __vdprintf_chk(fd, 0, format, args);
	va_end(args);
	return n;
}

NET_HOOK int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = __vdprintf_chk(fd, flag, format, args);
	va_end(args);
	return n;
}
