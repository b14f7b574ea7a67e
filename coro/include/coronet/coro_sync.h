/*
 * coro_sync.h - mutex, rwlock, condition variable, semaphore, wait group and
 * barrier between the coroutines of one thread.
 *
 * All are FIFO-fair: a release goes to the coroutine that has waited longest,
 * and a newcomer never overtakes.
 *
 * Threads: an object is used on one thread only. Calls that wait are made in a
 * coroutine; the others also outside, and from timers, if their comment says
 * so.
 *
 * Every call that waits obeys coro_cancel() and the coroutine's own deadline;
 * the _until forms have a deadline of their own as well: absolute, in ns of the
 * scheduler's clock, CORO_FOREVER for none. Besides the results that its
 * comment names such a call returns 0 or
 *   -ETIMEDOUT  a deadline has passed
 *   -ECANCELED  coro_cancel() was called on the coroutine
 *   -ENOMEM     the coroutine's stack could not be saved
 *   -EPERM      called outside a coroutine
 * A call that need not wait does not return the first three, even if the
 * deadline has passed.
 *
 * Memory: the caller's; all zeros is the initial state, so static storage and
 * calloc() need no init call. An object on a shared stack ends the process with
 * a message (the rule of coro.h). It must stay valid while coroutines wait on
 * it.
 */
#pragma once

#include <coronet/coro.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct coro_link { /* private: of a queue; the queue's head is one too */
	struct coro_link *next;
	struct coro_link *prev;
};

/* ---- mutex ---- */

struct coro_mutex {
	struct coro_link waiters;
	struct coro *owner;
};

/*
 * Locks a mutex; waits while another coroutine owns it. Also returns -EDEADLK:
 * the caller owns it.
 */
int coro_mutex_lock(struct coro_mutex *m);
int coro_mutex_lock_until(struct coro_mutex *m, int64_t deadline_ns);

/*
 * Locks a mutex without waiting. Returns 0, -EBUSY (another coroutine owns it),
 * -EDEADLK (the caller owns it) or -EPERM (called outside a coroutine).
 */
int coro_mutex_trylock(struct coro_mutex *m);

/*
 * Unlocks a mutex, which the coroutine that has waited longest then owns.
 * Returns 0, or -EPERM if the caller does not own it.
 */
int coro_mutex_unlock(struct coro_mutex *m);

/* ---- readers and one writer ---- */

struct coro_rwlock {
	struct coro_link waiters;
	struct coro *writer;
	unsigned readers;
};

/*
 * Locks for reading; waits while there is a writer, or one that has waited
 * longer. Also returns -EDEADLK: the caller is the writer.
 */
int coro_rwlock_rdlock(struct coro_rwlock *rw);
int coro_rwlock_rdlock_until(struct coro_rwlock *rw, int64_t deadline_ns);

/*
 * Locks for writing; waits while there are readers or a writer. Also returns
 * -EDEADLK: the caller is the writer. A caller that is a reader waits for
 * itself.
 */
int coro_rwlock_wrlock(struct coro_rwlock *rw);
int coro_rwlock_wrlock_until(struct coro_rwlock *rw, int64_t deadline_ns);

/*
 * Unlocks, as the writer or as one of the readers. Returns 0, or -EPERM if the
 * lock is free, another coroutine is the writer, or outside a coroutine.
 */
int coro_rwlock_unlock(struct coro_rwlock *rw);

/* ---- condition variable ---- */

struct coro_cond {
	struct coro_link waiters;
};

/*
 * Unlocks m, which the caller owns, waits for a signal, and locks m again. The
 * caller owns m when the call returns, also after an error, except that after
 * -ENOMEM it may not. Returns -EPERM also if it does not own m at first. Always
 * waits, so that a deadline that has passed, or a coro_cancel(), ends it at
 * once. There are no spurious wake-ups, but another coroutine may lock m before
 * the waiter does: check the condition in a loop.
 */
int coro_cond_wait(struct coro_cond *c, struct coro_mutex *m);
int coro_cond_wait_until(struct coro_cond *c, struct coro_mutex *m,
			 int64_t deadline_ns);

/*
 * Wake the coroutine that has waited longest, or all that wait; without any,
 * nothing happens. With or without the mutex; also from timers and outside
 * coroutines.
 */
void coro_cond_signal(struct coro_cond *c);
void coro_cond_broadcast(struct coro_cond *c);

/* ---- semaphore ---- */

struct coro_sem {
	struct coro_link waiters;
	unsigned count;
};

/* Initialises a semaphore with a count. */
void coro_sem_init(struct coro_sem *sem, unsigned count);

/*
 * Decrements the count; waits while it is zero. Outside a coroutine it returns
 * -EPERM only if it would have to wait.
 */
int coro_sem_wait(struct coro_sem *sem);
int coro_sem_wait_until(struct coro_sem *sem, int64_t deadline_ns);

/*
 * Decrements the count without waiting. Also from timers and outside
 * coroutines. Returns 0, or -EAGAIN if the count is zero.
 */
int coro_sem_trywait(struct coro_sem *sem);

/*
 * Wakes the coroutine that has waited longest, or increments the count if none
 * waits. Also from timers and outside coroutines. Returns 0, or -EOVERFLOW if
 * the count is UINT_MAX.
 */
int coro_sem_post(struct coro_sem *sem);

/* ---- wait group ---- */

struct coro_wait_group {
	struct coro_link waiters;
	unsigned count;
};

/*
 * Adds n, which may be negative, to the count of things to wait for; done adds
 * -1. At zero all that wait are woken. Also from timers and outside coroutines.
 * Returns 0, -EINVAL (the count would fall below zero) or -EOVERFLOW (it would
 * exceed UINT_MAX).
 */
int coro_wait_group_add(struct coro_wait_group *wg, int n);
int coro_wait_group_done(struct coro_wait_group *wg);

/*
 * Waits until the count is zero. Outside a coroutine it returns -EPERM only if
 * it would have to wait.
 */
int coro_wait_group_wait(struct coro_wait_group *wg);
int coro_wait_group_wait_until(struct coro_wait_group *wg, int64_t deadline_ns);

/* ---- barrier ---- */

struct coro_barrier {
	struct coro_link waiters;
	unsigned parties;
	unsigned arrived;
};

/*
 * Initialises a barrier for a number of parties. Returns 0, or -EINVAL if that
 * is 0.
 */
int coro_barrier_init(struct coro_barrier *b, unsigned parties);

/*
 * Waits until all parties have arrived; the barrier is then ready for the next
 * time. Returns 1 in the last party to arrive and 0 in the others. A party
 * whose call fails has not arrived.
 */
int coro_barrier_wait(struct coro_barrier *b);
int coro_barrier_wait_until(struct coro_barrier *b, int64_t deadline_ns);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
