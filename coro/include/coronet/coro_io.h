/*
 * coro_io.h - coroutines that wait for the kernel: for a file descriptor, or
 * for a function that blocks its thread; and threads that take turns at running
 * a scheduler.
 *
 * Unless its comment says otherwise, a call is made on a scheduler's own
 * thread, as coro.h says. Deadlines are absolute, in ns of the scheduler's
 * clock; CORO_FOREVER: none.
 */
#pragma once

#include <coronet/coro.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Blocks the calling coroutine, and not its thread, until a file descriptor of
 * the kernel's is ready: a pipe, socket, terminal, eventfd, timerfd, signalfd,
 * inotify or anything else that poll(2) can wait for. Regular files and
 * directories are always ready, as with poll(2): use coro_offload() for them.
 *
 * fd: borrowed. It should be non-blocking (O_NONBLOCK), since another thread
 * may have read the bytes meanwhile. events: POLLIN, POLLOUT, POLLPRI,
 * POLLRDHUP, at least one. deadline_ns: one that has passed asks the kernel
 * once and does not block.
 *
 * Returns the events that have come, above 0, which may include POLLERR and
 * POLLHUP even if not asked for, or
 *   -ETIMEDOUT  a deadline has passed
 *   -ECANCELED  coro_cancel() or coro_fd_cancel_all()
 *   -EBADF      fd is not open
 *   -EINVAL     no events, or events other than these
 *   -ENOSPC     fs.epoll.max_user_watches is reached
 *   -ELOOP      fd is an epoll descriptor, nested too deeply
 *   -EMFILE, -ENFILE
 *               no descriptor for epoll is left (first wait of a scheduler)
 *   -ENOMEM
 *   -EPERM      called outside a coroutine
 * As with poll(2), a descriptor that was ready may no longer be when it is
 * used: read or write, and wait again on EAGAIN.
 *
 * Any number of coroutines may wait for one descriptor, and each is woken by
 * the events that it waits for. Closing a descriptor wakes no coroutine: cancel
 * those that wait, or shut the other end down, before. If a descriptor is
 * closed and its number is reused, events of the new file may wake coroutines
 * that still wait for the old one.
 *
 * While other coroutines keep the thread busy, the kernel is asked every
 * CORO_FD_LOOK_NS; a thread that sleeps (coro_sched_run(), coro_sched_wait())
 * is woken at once. A wait costs a system call, and so does each look at the
 * kernel; there are none while nothing waits. The scheduler has an epoll
 * descriptor of its own from the first wait on.
 */
int coro_fd_wait(int fd, int events, int64_t deadline_ns);

#define CORO_FD_LOOK_NS 50000 /* between two looks of a busy thread */

/*
 * A callback in place of a blocked coroutine, to wait for several things at
 * once. fn is called once, on the scheduler's thread and outside coroutines,
 * with the events that have come, which may include POLLERR and POLLHUP; the
 * watch has ended then. fn may make coroutines ready, and must do nothing else.
 * Zeroed at first except for fn.
 */
struct coro_fd_watch {
	void (*fn)(struct coro_fd_watch *watch, int events);
	struct coro_fd_watch *next, **pprev; /* private; zero at first */
	struct coro_sched *sched;
	int events;
};

/*
 * Begins a watch, inside a coroutine or outside. Does not block. watch:
 * borrowed until fn is called, coro_fd_unwatch(), or the scheduler closes; not
 * on a shared stack. fd and events: as in coro_fd_wait(). Returns 0 or
 *   -EPERM  the thread has no scheduler; or epoll cannot wait for fd, which is
 *           always ready
 *   -EBUSY  watch is in use
 *   -EBADF, -EINVAL, -ENOSPC, -ELOOP, -EMFILE, -ENFILE, -ENOMEM
 *           as in coro_fd_wait()
 */
int coro_fd_watch(int fd, int events, struct coro_fd_watch *watch);

/* Ends a watch, whose fn is then not called; one that has ended is ignored. */
void coro_fd_unwatch(struct coro_fd_watch *watch);

/* Returns how many coroutines and watches wait for a descriptor. */
unsigned coro_fd_waiting(const struct coro_sched *s);

/*
 * Makes every coro_fd_wait() that is blocked on this scheduler return
 * -ECANCELED. Watches stay. Does not block.
 */
void coro_fd_cancel_all(struct coro_sched *s);

/*
 * Makes coro_sched_wait() end when a descriptor can be read, such as that of a
 * device that the program polls by other means; on: false undoes it. fd:
 * borrowed until then. Returns 0 or
 *   -EBADF   fd is not open
 *   -EPERM   epoll cannot wait for fd
 *   -EEXIST  it is on for fd already
 *   -ENOENT  it is not on for fd (on is false)
 *   -ELOOP, -ENOSPC, -EMFILE, -ENFILE, -ENOMEM
 *            as in coro_fd_wait()
 */
int coro_sched_wake_on(struct coro_sched *s, int fd, bool on);

/*
 * Blocks the calling coroutine, and not its thread, while fn(arg) runs on one
 * of a few threads that may block: for reading files, fsync(2),
 * getaddrinfo(3), or a database library. *result (result may be NULL) gets what
 * fn returned.
 *
 * The threads are shared by all schedulers of the program, made when they are
 * needed, up to a bound, and kept. Functions that find no free thread wait in a
 * queue, first come, first served. The threads run on any CPU that the program
 * had when it began and coro_offload_spare() has not kept free, take no
 * signals, and have the stack size of ulimit -s. fn has no scheduler there: it
 * may call only those functions of coro/ that any thread may call.
 *
 * arg: borrowed until the call returns; not on a shared stack. errno in fn is
 * that thread's: return it in arg.
 *
 * Once fn has begun, the call waits for its end whatever the deadline, since
 * nothing can end a function that blocks: it returns 0, and the next blocking
 * call reports a coro_cancel(). Destroying a coroutine whose fn has begun, also
 * by closing the scheduler, makes the thread wait for fn.
 *
 * Returns 0, or an error, and then fn has not run and never will:
 *   -ETIMEDOUT, -ECANCELED
 *            while it waited for a thread
 *   -EAGAIN  the queue is full, the system makes no thread, or 1,024 calls that
 *            the scheduler's coroutines have given up are still queued
 *   -ENOMEM
 *   -EPERM   called outside a coroutine
 */
int coro_offload(coro_fn fn, void *arg, void **result);
int coro_offload_until(coro_fn fn, void *arg, void **result,
		       int64_t deadline_ns);

#define CORO_OFFLOAD_THREADS	 4
#define CORO_OFFLOAD_THREADS_MAX 256
#define CORO_OFFLOAD_QUEUE	 1024
#define CORO_OFFLOAD_QUEUE_MAX	 65536

/*
 * Sets how many threads coro_offload() uses, and how many functions may wait
 * for one, in place of CORO_OFFLOAD_THREADS and CORO_OFFLOAD_QUEUE; 0 leaves a
 * bound as it is. From any thread, before the first coro_offload(). Returns 0,
 * -EINVAL (above a _MAX) or -EBUSY (coro_offload() was called already).
 */
int coro_offload_limits(unsigned threads, unsigned queue);

/*
 * Keeps the CPU of the calling thread, which polls there, free of threads that
 * coro_offload() makes from now on, unless the program has no other. Returns 0,
 * -EINVAL (the thread may run on several CPUs), or an error of
 * sched_getaffinity(2).
 */
int coro_offload_spare(void);

/*
 * Move a scheduler to another thread: the thread that runs it calls
 * coro_sched_leave(), then the other one calls coro_sched_enter(). In between,
 * only coro_post() and the other calls that any thread may make are allowed.
 * Both are called outside coroutines.
 *
 * A coroutine that blocks may continue on another thread, so it must not keep
 * the address of a thread-local variable across a call that blocks. Compilers
 * keep the address of errno, so read errno in a separate function.
 *
 * coro_sched_enter() returns 0 or -EEXIST (the thread runs a scheduler). The
 * caller ensures that one thread at a time has entered.
 */
void coro_sched_leave(struct coro_sched *s);
int coro_sched_enter(struct coro_sched *s);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
