/*
 * The C library's own functions, which this library's functions replace and
 * call.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "dpdk_glue/hint.h"

/* Called by fortified programs; headers declare them only in such programs. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
int __vdprintf_chk(int fd, int flag, const char *format, va_list args);

/* clang-format off */
#define NET_REAL_CALLS(X)                                                      \
	/* sockets */                                                          \
	X(socket) X(bind) X(listen) X(accept4) X(connect) X(shutdown)          \
	X(getsockopt) X(setsockopt) X(getsockname) X(getpeername)              \
	X(socketpair)                                                          \
	/* descriptors */                                                      \
	X(close) X(close_range) X(closefrom) X(dup) X(dup2) X(dup3)            \
	X(fcntl) X(fcntl64) X(ioctl) X(pipe) X(pipe2) X(eventfd)               \
	X(timerfd_create) X(signalfd) X(memfd_create) X(inotify_init)          \
	X(inotify_init1) X(fanotify_init) X(pidfd_open) X(pidfd_getfd)         \
	X(syscall) X(munmap)                                                   \
	/* bytes */                                                            \
	X(read) X(readv) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg)            \
	X(write) X(writev) X(send) X(sendto) X(sendmsg) X(sendmmsg)            \
	X(sendfile)                                                            \
	/* files */                                                            \
	X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2)      \
	X(__openat_2) X(__openat64_2) X(creat) X(creat64)                      \
	X(open_by_handle_at) X(shm_open) X(mq_open) X(posix_openpt) X(openpty) \
	X(mkstemp) X(mkstemp64) X(mkostemp) X(mkostemp64) X(mkstemps)          \
	X(mkstemps64) X(mkostemps) X(mkostemps64)                              \
	X(fopen) X(fopen64) X(freopen) X(freopen64) X(tmpfile) X(tmpfile64)    \
	X(popen) X(fclose) X(opendir) X(fdopen) X(__vdprintf_chk)              \
	/* waiting */                                                          \
	X(poll) X(ppoll) X(select) X(pselect) X(epoll_create)                  \
	X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait)             \
	X(epoll_pwait2) X(sleep) X(usleep) X(nanosleep) X(clock_nanosleep)     \
	/* programs */                                                         \
	X(execve) X(execvpe) X(fexecve) X(execveat)                            \
	X(pthread_cancel) X(pthread_setcanceltype) X(pthread_create) X(_exit)  \
	/* names */                                                            \
	X(getaddrinfo) X(getnameinfo) X(gethostbyname) X(gethostbyname2)
/* clang-format on */

struct net_real {
	bool found; /* all functions were looked up */
#define NET_REAL_FIELD(name) __typeof__(&name) name;
	NET_REAL_CALLS(NET_REAL_FIELD)
#undef NET_REAL_FIELD
};

extern struct net_real net_real_calls;
void net_real_find(void);

/* The functions, which are looked up at the start, or by an earlier call. */
static inline const struct net_real *net_real(void)
{
	if (unlikely(!net_real_calls.found))
		net_real_find();
	return &net_real_calls;
}
