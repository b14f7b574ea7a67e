/*
 * Hooks of calls that make descriptors of the kernel, or close them inside the
 * C library.
 *
 * A number that such a call returns was not open before. If the table still has
 * a socket of the stack for it, the program has closed it without a hook, and
 * the entry is removed: otherwise the bytes of a file would reach the socket's
 * peer. So the data path needs no system call to check a descriptor.
 */
#include "netstack/sockets/whole.h"

#include <stdarg.h>
#include <sys/syscall.h>

/* The optional last argument of open() and its kin. */
#define MODE(last)                                                             \
	va_list ap;                                                            \
	mode_t mode;                                                           \
                                                                               \
	va_start(ap, last);                                                    \
	mode = va_arg(ap, mode_t);                                             \
	va_end(ap)

/* ---- files ---- */

NET_HOOK int open(const char *path, int flags, ...)
{
	MODE(flags);
	return net_fd_fresh(net_real()->open(path, flags, mode));
}

NET_HOOK int open64(const char *path, int flags, ...)
{
	MODE(flags);
	return net_fd_fresh(net_real()->open64(path, flags, mode));
}

NET_HOOK int openat(int folder, const char *path, int flags, ...)
{
	MODE(flags);
	return net_fd_fresh(net_real()->openat(folder, path, flags, mode));
}

NET_HOOK int openat64(int folder, const char *path, int flags, ...)
{
	MODE(flags);
	return net_fd_fresh(net_real()->openat64(folder, path, flags, mode));
}

NET_HOOK mqd_t mq_open(const char *name, int flags, ...)
{
	va_list ap;
	mode_t mode;
	struct mq_attr *attr;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	attr = va_arg(ap, struct mq_attr *);
	va_end(ap);
	return net_fd_fresh(net_real()->mq_open(name, flags, mode, attr));
}

/* Calls that return a new descriptor. */
#define MAKES(name, parameters, arguments)                                     \
	NET_HOOK int name parameters                                           \
	{                                                                      \
		return net_fd_fresh(net_real()->name arguments);               \
	}

MAKES(__open_2, (const char *path, int flags), (path, flags))
MAKES(__open64_2, (const char *path, int flags), (path, flags))
MAKES(__openat_2, (int folder, const char *path, int flags),
      (folder, path, flags))
MAKES(__openat64_2, (int folder, const char *path, int flags),
      (folder, path, flags))
MAKES(creat, (const char *path, mode_t mode), (path, mode))
MAKES(creat64, (const char *path, mode_t mode), (path, mode))
MAKES(open_by_handle_at, (int mount, struct file_handle *handle, int flags),
      (mount, handle, flags))
MAKES(shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
MAKES(posix_openpt, (int flags), (flags))
MAKES(mkstemp, (char *path), (path))
MAKES(mkstemp64, (char *path), (path))
MAKES(mkostemp, (char *path, int flags), (path, flags))
MAKES(mkostemp64, (char *path, int flags), (path, flags))
MAKES(mkstemps, (char *path, int len), (path, len))
MAKES(mkstemps64, (char *path, int len), (path, len))
MAKES(mkostemps, (char *path, int len, int flags), (path, len, flags))
MAKES(mkostemps64, (char *path, int len, int flags), (path, len, flags))
MAKES(eventfd, (unsigned count, int flags), (count, flags))
MAKES(timerfd_create, (clockid_t clock, int flags), (clock, flags))
MAKES(signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
MAKES(memfd_create, (const char *name, unsigned flags), (name, flags))
MAKES(inotify_init, (void), ())
MAKES(inotify_init1, (int flags), (flags))
MAKES(fanotify_init, (unsigned flags, unsigned event_flags),
      (flags, event_flags))
MAKES(pidfd_open, (pid_t pid, unsigned flags), (pid, flags))
MAKES(pidfd_getfd, (int process, int fd, unsigned flags), (process, fd, flags))

/* ---- two at once ---- */

static int fresh_pair(int rc, const int fds[2])
{
	if (rc == 0) {
		net_fd_fresh(fds[0]);
		net_fd_fresh(fds[1]);
	}
	return rc;
}

NET_HOOK int pipe(int fds[2])
{
	return fresh_pair(net_real()->pipe(fds), fds);
}

NET_HOOK int pipe2(int fds[2], int flags)
{
	return fresh_pair(net_real()->pipe2(fds, flags), fds);
}

NET_HOOK int socketpair(int domain, int type, int protocol, int fds[2])
{
	return fresh_pair(net_real()->socketpair(domain, type, protocol, fds),
			  fds);
}

NET_HOOK int openpty(int *primary, int *terminal, char *name,
		     const struct termios *mode, const struct winsize *size)
{
	int rc = net_real()->openpty(primary, terminal, name, mode, size);

	return fresh_pair(rc, (const int[]){*primary, *terminal});
}

NET_HOOK DIR *opendir(const char *path)
{
	DIR *folder = net_real()->opendir(path);

	if (folder)
		net_fd_fresh(dirfd(folder));
	return folder;
}

/* ---- system calls that a program makes by number ---- */

/* Descriptors that a message brought. */
void net_fd_fresh_from(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR(msg, c)) {
		const int *fds = (const int *)(void *)CMSG_DATA(c);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); n;
		     n--)
			net_fd_fresh(fds[n - 1]);
	}
}

static bool makes_descriptor(long number)
{
	switch (number) {
	case SYS_open:
	case SYS_openat:
	case SYS_openat2:
	case SYS_creat:
	case SYS_open_by_handle_at:
	case SYS_open_tree:
	case SYS_eventfd:
	case SYS_eventfd2:
	case SYS_timerfd_create:
	case SYS_signalfd:
	case SYS_signalfd4:
	case SYS_memfd_create:
	case SYS_inotify_init:
	case SYS_inotify_init1:
	case SYS_fanotify_init:
	case SYS_perf_event_open:
	case SYS_userfaultfd:
	case SYS_pidfd_open:
	case SYS_pidfd_getfd:
	case SYS_mq_open:
		return true;
	default:
		return false;
	}
}

/* Passes a system call to the hook of that name, if there is one. */
static bool by_name(long number, const long a[6], long *result)
{
	int fd = (int)a[0];

	switch (number) {
	case SYS_close:
		*result = close(fd);
		return true;
	case SYS_close_range:
		*result =
			close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
		return true;
	case SYS_dup:
		*result = dup(fd);
		return true;
	case SYS_dup2:
		*result = dup2(fd, (int)a[1]);
		return true;
	case SYS_dup3:
		*result = dup3(fd, (int)a[1], (int)a[2]);
		return true;
	case SYS_fcntl:
		*result = fcntl(fd, (int)a[1], a[2]);
		return true;
	case SYS_ioctl:
		*result = ioctl(fd, (unsigned long)a[1], a[2]);
		return true;
	case SYS_pipe:
		*result = pipe((int *)a[0]);
		return true;
	case SYS_pipe2:
		*result = pipe2((int *)a[0], (int)a[1]);
		return true;
	case SYS_socketpair:
		*result = socketpair(fd, (int)a[1], (int)a[2], (int *)a[3]);
		return true;
	case SYS_socket:
		*result = socket(fd, (int)a[1], (int)a[2]);
		return true;
	case SYS_accept:
		*result = accept(fd, (void *)a[1], (socklen_t *)a[2]);
		return true;
	case SYS_accept4:
		*result =
			accept4(fd, (void *)a[1], (socklen_t *)a[2], (int)a[3]);
		return true;
	case SYS_read:
		*result = read(fd, (void *)a[1], (size_t)a[2]);
		return true;
	case SYS_write:
		*result = write(fd, (void *)a[1], (size_t)a[2]);
		return true;
	case SYS_readv:
		*result = readv(fd, (void *)a[1], (int)a[2]);
		return true;
	case SYS_writev:
		*result = writev(fd, (void *)a[1], (int)a[2]);
		return true;
	case SYS_recvfrom:
		*result = recvfrom(fd, (void *)a[1], (size_t)a[2], (int)a[3],
				   (struct sockaddr *)a[4], (socklen_t *)a[5]);
		return true;
	case SYS_sendto:
		*result = sendto(fd, (void *)a[1], (size_t)a[2], (int)a[3],
				 (struct sockaddr *)a[4], (socklen_t)a[5]);
		return true;
	case SYS_recvmsg:
		*result = recvmsg(fd, (void *)a[1], (int)a[2]);
		return true;
	case SYS_sendmsg:
		*result = sendmsg(fd, (void *)a[1], (int)a[2]);
		return true;
	case SYS_recvmmsg:
		*result = recvmmsg(fd, (struct mmsghdr *)a[1], (unsigned)a[2],
				   (int)a[3], (struct timespec *)a[4]);
		return true;
	case SYS_sendmmsg:
		*result = sendmmsg(fd, (struct mmsghdr *)a[1], (unsigned)a[2],
				   (int)a[3]);
		return true;
	case SYS_execve:
		*result = execve((char *)a[0], (char **)a[1], (char **)a[2]);
		return true;
	case SYS_execveat:
		*result = execveat(fd, (char *)a[1], (char **)a[2],
				   (char **)a[3], (int)a[4]);
		return true;
	default:
		return false;
	}
}

/*
 * Like the C library's, it takes six arguments, the last from the stack, where
 * a caller with fewer has something else.
 */
__attribute__((no_sanitize("address"))) NET_HOOK long syscall(long number, ...)
{
	long a[6], result;
	va_list ap;

	va_start(ap, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (net_fds && number == SYS_io_uring_setup) {
		/* a ring would take the stack's sockets for the kernel's */
		errno = ENOSYS;
		return -1;
	}
	if (net_fds && by_name(number, a, &result))
		return result;
	result =
		net_real()->syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	return net_fds && makes_descriptor(number) ? net_fd_fresh((int)result)
						   : result;
}
