/*
 * coro_io.h - coroutines that wait for the kernel: for a file descriptor, or
 * for a function that blocks its thread.
 */
#pragma once

#include <coronet/coro.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Block the calling coroutine, and not its thread, until the kernel's file
 * descriptor is ready: a pipe, socket, terminal, eventfd, timerfd, signalfd,
 * inotify or whatever else poll(2) can wait for. Regular files and directories
 * are always ready, as poll(2) has it; coro_offload() is for them.
 *
 * fd: borrowed; it should not block (O_NONBLOCK), since a thread may find empty
 * what another thread has read meanwhile. events: POLLIN, POLLOUT, POLLPRI,
 * POLLRDHUP, at least one. deadline_ns: by the scheduler's clock, or
 * CORO_FOREVER; one that is past asks the kernel once and does not block.
 *
 * Returns those of the events that have come, above 0, POLLERR and POLLHUP
 * among them whether asked for or not; or -ETIMEDOUT, -ECANCELED, -EBADF (fd is
 * not open), -EINVAL (no events, or others than these), -EMFILE, -ENFILE,
 * -ENOMEM, -ENOSPC (fs.epoll.max_user_watches), -EPERM (outside a coroutine).
 * As with poll(2), what is ready now may not be when it is used: read or write
 * and wait again upon EAGAIN.
 *
 * Any number of coroutines may wait for one descriptor, and each is woken by
 * what it waits for. Closing a descriptor wakes nobody: cancel those that wait,
 * or shut the other end down, before. One that is closed and whose number is
 * given to another file may wake those that still wait for the first.
 *
 * While other coroutines keep the thread busy the kernel is asked once in
 * CORO_FD_LOOK_NS; a thread that sleeps (coro_sched_run, coro_sched_wait) is
 * woken at once. A wait costs a system call, and so does a look while anybody
 * waits; nothing is asked while nobody does. The scheduler has one epoll
 * descriptor of its own from the first wait on.
 */
int coro_fd_wait(int fd, int events, int64_t deadline_ns);

#define CORO_FD_LOOK_NS 50000

/*
 * The same for whoever waits for several things at once, in a coroutine or
 * outside: fn is called once, on the scheduler's thread and outside coroutines,
 * with those of the events that have come (POLLERR, POLLHUP), and the watch is
 * over then. fn makes coroutines ready and does nothing else. Closing the
 * scheduler forgets it.
 */
struct coro_fd_watch {
	void (*fn)(struct coro_fd_watch *watch, int events);
	struct coro_fd_watch *next, **pprev; /* private; zero at first */
	struct coro_sched *sched;
	int events;
};

/*
 * watch: borrowed until fn is called or coro_fd_unwatch(); not on a shared
 * stack. fd and events as coro_fd_wait() takes them. Returns 0; -EPERM outside
 * a scheduler's thread, and for what epoll cannot wait for since it is always
 * ready; -EBUSY (it is watched already), and what coro_fd_wait() returns but
 * -ETIMEDOUT and -ECANCELED.
 */
int coro_fd_watch(int fd, int events, struct coro_fd_watch *watch);

/* Ends a watch; one that is over is ignored. */
void coro_fd_unwatch(struct coro_fd_watch *watch);

/* Coroutines and watches of the scheduler that wait for a descriptor. */
unsigned coro_fd_waiting(const struct coro_sched *s);

/* End all their waits: each returns -ECANCELED. Outside coroutines. */
void coro_fd_cancel_all(struct coro_sched *s);

/*
 * Have coro_sched_wait() end when the descriptor can be read, as a device that
 * the program polls by other means; on: false: no longer. Returns 0, or -EBADF,
 * -EPERM (it cannot be waited for), -EMFILE, -ENFILE, -ENOMEM, -ENOSPC.
 */
int coro_sched_wake_on(struct coro_sched *s, int fd, bool on);

/*
 * Block the calling coroutine, and not its thread, while fn(arg) runs on a
 * thread of its own: for what can only block, as reading files, fsync(2),
 * getaddrinfo(3), a database in a library. *result (may be NULL) is what fn
 * returned.
 *
 * The threads are the program's, shared by all schedulers, made when they are
 * needed up to a bound, and kept; functions that find none free wait in a
 * queue, the first come first served. They run on any CPU that the program had
 * when it began, take no signals, and have the stack that ulimit -s says. fn
 * has no scheduler there: it calls nothing of coro/ but what any thread may.
 *
 * arg: borrowed until the call returns; not a place on a shared stack. errno in
 * fn is that thread's: put it into arg.
 *
 * Returns 0, or an error, and then fn has not run and never will: -ETIMEDOUT or
 * -ECANCELED (while it waited for a thread), -EAGAIN (the queue is full, or the
 * system makes no thread), -ENOMEM, -EPERM (outside a coroutine). Once fn has
 * begun, the call waits for its end whatever the deadline, since nothing can
 * end a function that blocks: it returns 0, and a coro_cancel() is told to the
 * next blocking call. Destroying a coroutine whose fn has begun, closing the
 * scheduler among it, waits for fn, with its thread.
 */
int coro_offload(coro_fn fn, void *arg, void **result);
int coro_offload_until(coro_fn fn, void *arg, void **result,
		       int64_t deadline_ns);

#define CORO_OFFLOAD_THREADS	 4
#define CORO_OFFLOAD_THREADS_MAX 256
#define CORO_OFFLOAD_QUEUE	 1024
#define CORO_OFFLOAD_QUEUE_MAX	 65536

/*
 * Other bounds than the two defaults above: threads at most, and functions that
 * wait for one; 0: as it is. From any thread, before the first coro_offload().
 * Returns 0, -EINVAL (beyond the maximum), -EBUSY (one was made already).
 */
int coro_offload_limits(unsigned threads, unsigned queue);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
