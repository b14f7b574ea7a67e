/*
 * coro_sync.h - mutex, rwlock, condition variable, semaphore, wait group and
 * barrier between the coroutines of one thread.
 *
 * All are FIFO-fair: what is released goes to whoever has waited longest, and
 * a newcomer never overtakes. Every waiting call obeys coro_cancel() and the
 * inherited deadline; the _until forms have a deadline of their own as well.
 * They return 0, -ETIMEDOUT, -ECANCELED, -ENOMEM, -EPERM (outside a coroutine)
 * beside what their comments name. A call that needn't wait never fails that
 * way, whatever the deadline.
 *
 * Memory: the caller's; all zeros is the initial state, so static storage and
 * calloc() need no init call. Not on a shared stack (the rule of coro.h). An
 * object on which coroutines wait must not go away.
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

/* Also -EDEADLK: the caller has it. */
int coro_mutex_lock(struct coro_mutex *m);
int coro_mutex_lock_until(struct coro_mutex *m, int64_t deadline_ns);
/* Returns 0, -EBUSY, -EDEADLK, -EPERM. */
int coro_mutex_trylock(struct coro_mutex *m);
/* The one who waited longest owns it at once. -EPERM: not the caller's. */
int coro_mutex_unlock(struct coro_mutex *m);

/* ---- readers and one writer ---- */

struct coro_rwlock {
	struct coro_link waiters;
	struct coro *writer;
	unsigned readers;
};

/* A reader that comes after a waiting writer waits behind it. */
int coro_rwlock_rdlock(struct coro_rwlock *rw);
int coro_rwlock_rdlock_until(struct coro_rwlock *rw, int64_t deadline_ns);
/* Also -EDEADLK: the caller is the writer. */
int coro_rwlock_wrlock(struct coro_rwlock *rw);
int coro_rwlock_wrlock_until(struct coro_rwlock *rw, int64_t deadline_ns);
/* -EPERM: nobody has it, or another writer. */
int coro_rwlock_unlock(struct coro_rwlock *rw);

/* ---- condition variable ---- */

struct coro_cond {
	struct coro_link waiters;
};

/*
 * Release m, which the caller owns, wait for a signal, and own m again, in
 * every case but -ENOMEM. -EPERM also: m isn't the caller's. A signal wakes
 * exactly one waiter and none wakes by itself; yet others may run before it
 * does: check the condition in a loop.
 */
int coro_cond_wait(struct coro_cond *c, struct coro_mutex *m);
int coro_cond_wait_until(struct coro_cond *c, struct coro_mutex *m,
			 int64_t deadline_ns);
/* With or without the mutex; also from timers and outside coroutines. */
void coro_cond_signal(struct coro_cond *c);
void coro_cond_broadcast(struct coro_cond *c);

/* ---- semaphore ---- */

struct coro_sem {
	struct coro_link waiters;
	unsigned count;
};

void coro_sem_init(struct coro_sem *sem, unsigned count);
int coro_sem_wait(struct coro_sem *sem);
int coro_sem_wait_until(struct coro_sem *sem, int64_t deadline_ns);
int coro_sem_trywait(struct coro_sem *sem); /* 0 or -EAGAIN */
/* Also from timers and outside coroutines. -EOVERFLOW: UINT_MAX reached. */
int coro_sem_post(struct coro_sem *sem);

/* ---- wait group ---- */

struct coro_wait_group {
	struct coro_link waiters;
	unsigned count;
};

/* n more (or fewer) things to wait for. -EINVAL: fewer than there are;
 * -EOVERFLOW: more than UINT_MAX. */
int coro_wait_group_add(struct coro_wait_group *wg, int n);
int coro_wait_group_done(struct coro_wait_group *wg);
/* Wait until the count is zero. */
int coro_wait_group_wait(struct coro_wait_group *wg);
int coro_wait_group_wait_until(struct coro_wait_group *wg, int64_t deadline_ns);

/* ---- barrier ---- */

struct coro_barrier {
	struct coro_link waiters;
	unsigned parties;
	unsigned arrived;
};

/* -EINVAL: parties is 0. */
int coro_barrier_init(struct coro_barrier *b, unsigned parties);
/* Wait until all parties have arrived; then it is ready for the next time.
 * Returns 1 to the last one to arrive, 0 to the others. One that gave up
 * (-ETIMEDOUT, -ECANCELED) hasn't arrived. */
int coro_barrier_wait(struct coro_barrier *b);
int coro_barrier_wait_until(struct coro_barrier *b, int64_t deadline_ns);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
