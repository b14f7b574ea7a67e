/*
 * coro_sync.c - mutexes, semaphores and the other objects with which coroutines
 * wait for each other.
 *
 * The releaser hands a lock or count over to the waiter, so a woken coroutine
 * has nothing left to do: locking is a tail call into the switch.
 */
#include <coronet/coro_sync.h>

#include "coro_queue.h"

#include <limits.h>

static void waiter_wake(struct coro *co)
{
	struct coro_sched *s = coro_owner(co);

	if (unlikely(s != coro_tls_sched))
		coro_die_foreign(co);
	coro_ready_with(s, co, 0);
}

static void wake_all(struct coro_link *q)
{
	while (!queue_empty(q))
		waiter_wake(queue_first(q));
}

/* value: what the waker wants to know about this waiter. */
static int queue_wait(struct coro_link *q, long value, int64_t deadline_ns,
		      const char *where)
{
	struct coro *co = coro_current();
	int err = coro_may_block(co);

	if (unlikely(err < 0))
		return err;
	coro_check_shared(coro_tls_sched, q, where);
	co->value = value;
	queue_add(q, co);
	return coro_block(coro_tls_sched, co, CORO_ST_WAITING, deadline_ns,
			  where);
}

/* ---- mutex ---- */

int coro_mutex_trylock(struct coro_mutex *m)
{
	struct coro *co = coro_self();

	if (unlikely(!co))
		return -EPERM;
	if (unlikely(m->owner == co))
		return -EDEADLK;
	if (m->owner)
		return -EBUSY;
	coro_check_shared(coro_tls_sched, m, "coro_mutex_lock: the mutex");
	m->owner = co;
	return 0;
}

int coro_mutex_lock_until(struct coro_mutex *m, int64_t deadline_ns)
{
	int err = coro_mutex_trylock(m);

	if (likely(err != -EBUSY))
		return err;
	return queue_wait(&m->waiters, 0, deadline_ns, "coro_mutex_lock");
}

int coro_mutex_lock(struct coro_mutex *m)
{
	return coro_mutex_lock_until(m, CORO_FOREVER);
}

static void mutex_pass_on(struct coro_mutex *m)
{
	m->owner = queue_empty(&m->waiters) ? NULL : queue_first(&m->waiters);
	if (m->owner)
		waiter_wake(m->owner);
}

int coro_mutex_unlock(struct coro_mutex *m)
{
	struct coro *co = coro_self();

	if (unlikely(!co || m->owner != co))
		return -EPERM;
	mutex_pass_on(m);
	return 0;
}

/* ---- rwlock ---- */

/* One of these is in a waiter's coro.value, beside the lock's address. */
enum { READER, WRITER };

static bool rw_grant_first(struct coro_rwlock *rw)
{
	struct coro *co = queue_first(&rw->waiters);

	if (rw->writer)
		return false;
	if (co->value & WRITER) {
		if (rw->readers != 0)
			return false;
		rw->writer = co;
	} else {
		rw->readers++;
	}
	co->ctx.flags3 &= ~CORO_F3_RWLOCK;
	waiter_wake(co);
	return true;
}

static void rw_grant(struct coro_rwlock *rw)
{
	while (!queue_empty(&rw->waiters) && rw_grant_first(rw))
		;
}

/*
 * A writer that gave up, or was destroyed, may have kept readers behind it
 * waiting: grant them the lock at once, since the writer may never run again.
 */
cold void coro_rwlock_left(struct coro *co)
{
	co->ctx.flags3 &= ~CORO_F3_RWLOCK;
	rw_grant((struct coro_rwlock *)(co->value & ~(long)WRITER));
}

static int rw_wait(struct coro_rwlock *rw, int mode, int64_t deadline_ns,
		   const char *where)
{
	struct coro *co = coro_current();
	int err = coro_may_block(co);

	if (unlikely(err < 0))
		return err;
	co->ctx.flags3 |= CORO_F3_RWLOCK;
	return queue_wait(&rw->waiters, (long)rw | mode, deadline_ns, where);
}

int coro_rwlock_rdlock_until(struct coro_rwlock *rw, int64_t deadline_ns)
{
	struct coro *co = coro_self();

	if (!co)
		return -EPERM;
	if (rw->writer == co)
		return -EDEADLK;
	if (rw->writer || !queue_empty(&rw->waiters))
		return rw_wait(rw, READER, deadline_ns, "coro_rwlock_rdlock");
	coro_check_shared(coro_tls_sched, rw, "coro_rwlock_rdlock: the lock");
	rw->readers++;
	return 0;
}

int coro_rwlock_rdlock(struct coro_rwlock *rw)
{
	return coro_rwlock_rdlock_until(rw, CORO_FOREVER);
}

int coro_rwlock_wrlock_until(struct coro_rwlock *rw, int64_t deadline_ns)
{
	struct coro *co = coro_self();

	if (!co)
		return -EPERM;
	if (rw->writer == co)
		return -EDEADLK;
	if (rw->writer || rw->readers != 0)
		return rw_wait(rw, WRITER, deadline_ns, "coro_rwlock_wrlock");
	coro_check_shared(coro_tls_sched, rw, "coro_rwlock_wrlock: the lock");
	rw->writer = co;
	return 0;
}

int coro_rwlock_wrlock(struct coro_rwlock *rw)
{
	return coro_rwlock_wrlock_until(rw, CORO_FOREVER);
}

int coro_rwlock_unlock(struct coro_rwlock *rw)
{
	struct coro *co = coro_self();

	if (!co)
		return -EPERM;
	if (rw->writer == co)
		rw->writer = NULL;
	else if (rw->readers > 0)
		rw->readers--;
	else
		return -EPERM;
	rw_grant(rw);
	return 0;
}

/* ---- condition variable ---- */

/* Lock m again, even if co was cancelled meanwhile. */
static int cond_relock(struct coro *co, struct coro_mutex *m)
{
	if (m->owner == co)
		return 0;
	if (!m->owner) {
		m->owner = co;
		return 0;
	}
	queue_add(&m->waiters, co);
	co->ctx.flags2 |= CORO_F2_HELD;
	return coro_block_held(coro_tls_sched, co, "coro_cond_wait: mutex");
}

int coro_cond_wait_until(struct coro_cond *c, struct coro_mutex *m,
			 int64_t deadline_ns)
{
	struct coro *co = coro_self();
	int err, relock;

	if (!co || m->owner != co)
		return -EPERM;
	err = coro_may_block(co);
	if (err < 0)
		return err;
	coro_check_shared(coro_tls_sched, c, "coro_cond_wait: the condition");
	mutex_pass_on(m);
	co->value = (long)m;
	queue_add(&c->waiters, co);
	err = coro_block(coro_tls_sched, co, CORO_ST_WAITING, deadline_ns,
			 "coro_cond_wait");
	relock = cond_relock(co, m);
	return relock < 0 ? relock : err;
}

int coro_cond_wait(struct coro_cond *c, struct coro_mutex *m)
{
	return coro_cond_wait_until(c, m, CORO_FOREVER);
}

/*
 * The waiter that is signalled moves to the mutex's queue instead of waking to
 * find it locked. From now on neither deadline nor cancel can lose the signal.
 */
void coro_cond_signal(struct coro_cond *c)
{
	struct coro_mutex *m;
	struct coro *co;

	if (queue_empty(&c->waiters))
		return;
	co = queue_first(&c->waiters);
	m = (struct coro_mutex *)co->value;
	if (!m->owner) {
		m->owner = co;
		waiter_wake(co);
		return;
	}
	if (unlikely(coro_owner(co) != coro_tls_sched))
		coro_die_foreign(co);
	coro_stop_waiting(coro_tls_sched, co);
	queue_add(&m->waiters, co);
	co->ctx.flags2 |= CORO_F2_HELD;
}

void coro_cond_broadcast(struct coro_cond *c)
{
	while (!queue_empty(&c->waiters))
		coro_cond_signal(c);
}

/* ---- semaphore ---- */

void coro_sem_init(struct coro_sem *sem, unsigned count)
{
	*sem = (struct coro_sem){.count = count};
}

int coro_sem_trywait(struct coro_sem *sem)
{
	if (sem->count == 0)
		return -EAGAIN;
	sem->count--;
	return 0;
}

int coro_sem_wait_until(struct coro_sem *sem, int64_t deadline_ns)
{
	if (coro_sem_trywait(sem) == 0)
		return 0;
	return queue_wait(&sem->waiters, 0, deadline_ns, "coro_sem_wait");
}

int coro_sem_wait(struct coro_sem *sem)
{
	return coro_sem_wait_until(sem, CORO_FOREVER);
}

int coro_sem_post(struct coro_sem *sem)
{
	if (!queue_empty(&sem->waiters))
		waiter_wake(queue_first(&sem->waiters));
	else if (sem->count == UINT_MAX)
		return -EOVERFLOW;
	else
		sem->count++;
	return 0;
}

/* ---- wait group ---- */

int coro_wait_group_add(struct coro_wait_group *wg, int n)
{
	if (n < 0 && -(unsigned)n > wg->count)
		return -EINVAL;
	if (n > 0 && (unsigned)n > UINT_MAX - wg->count)
		return -EOVERFLOW;
	wg->count += n;
	if (wg->count == 0)
		wake_all(&wg->waiters);
	return 0;
}

int coro_wait_group_done(struct coro_wait_group *wg)
{
	return coro_wait_group_add(wg, -1);
}

int coro_wait_group_wait_until(struct coro_wait_group *wg, int64_t deadline_ns)
{
	if (wg->count == 0)
		return 0;
	return queue_wait(&wg->waiters, 0, deadline_ns, "coro_wait_group_wait");
}

int coro_wait_group_wait(struct coro_wait_group *wg)
{
	return coro_wait_group_wait_until(wg, CORO_FOREVER);
}

/* ---- barrier ---- */

int coro_barrier_init(struct coro_barrier *b, unsigned parties)
{
	if (parties == 0)
		return -EINVAL;
	*b = (struct coro_barrier){.parties = parties};
	return 0;
}

static unsigned queue_count(const struct coro_link *q)
{
	unsigned n = 0;

	if (q->next)
		for (const struct coro_link *l = q->next; l != q; l = l->next)
			n++;
	return n;
}

int coro_barrier_wait_until(struct coro_barrier *b, int64_t deadline_ns)
{
	if (!coro_self())
		return -EPERM;
	/* Waiters that gave up are still counted: count again when it seems
	 * that all have come. */
	if (b->arrived + 1 >= b->parties)
		b->arrived = queue_count(&b->waiters);
	if (b->arrived + 1 >= b->parties) {
		b->arrived = 0;
		wake_all(&b->waiters);
		return 1;
	}
	b->arrived++;
	return queue_wait(&b->waiters, 0, deadline_ns, "coro_barrier_wait");
}

int coro_barrier_wait(struct coro_barrier *b)
{
	return coro_barrier_wait_until(b, CORO_FOREVER);
}
