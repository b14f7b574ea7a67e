/*
 * coro_offload.c - threads that run blocking functions for coroutines.
 *
 * A thread runs a call of coro_call.c, which was sent to a queue of all these
 * threads instead of a scheduler's inbox; the call returns by the caller's
 * inbox. A polling thread may neither wait for a lock nor allocate here. So the
 * queue is an array whose slots have turns, like that of coro_post.c, but with
 * many consumers: slot i is free for position p when its turn is p, and filled
 * when it is p + 1. A semaphore counts the filled slots, and the threads sleep
 * on it.
 */
#include "coro_priv.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

struct slot {
	_Atomic uint64_t turn;
	struct coro_wake *w;
};

static struct {
	pthread_mutex_t lock; /* guards set-up and thread creation */
	unsigned max_threads;
	unsigned max_queued;
	atomic_uint threads;
	struct slot *slots; /* NULL: nothing was offloaded yet */
	uint64_t mask;
	sem_t filled;
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) atomic_int queued; /* not taken yet */
	atomic_int idle; /* threads without work, including new ones */
	cpu_set_t cpus;	 /* of the program at its start */
	cpu_set_t taken; /* of them, for threads that poll */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
	  .max_threads = CORO_OFFLOAD_THREADS,
	  .max_queued = CORO_OFFLOAD_QUEUE};

/* A polling thread is pinned, and so would be the threads that it starts. */
__attribute__((constructor)) static void remember_cpus(void)
{
	if (sched_getaffinity(0, sizeof(pool.cpus), &pool.cpus) < 0)
		CPU_ZERO(&pool.cpus);
}

/* ---- the queue ---- */

static void pool_put(struct coro_wake *w)
{
	uint64_t at = atomic_fetch_add(&pool.tail, 1);
	struct slot *p = &pool.slots[at & pool.mask];

	/* Slots outnumber items: at worst a taker is just leaving this one. */
	for (unsigned n = 0;
	     atomic_load_explicit(&p->turn, memory_order_acquire) != at; n++)
		coro_relax(n);
	p->w = w;
	atomic_store_explicit(&p->turn, at + 1, memory_order_release);
	sem_post(&pool.filled);
}

/* The semaphore admits one taker for each filled slot, but the producer of an
 * earlier slot may still be filling it. */
static struct coro_wake *pool_take(void)
{
	uint64_t at = atomic_fetch_add(&pool.head, 1);
	struct slot *p = &pool.slots[at & pool.mask];
	struct coro_wake *w;

	for (unsigned n = 0;
	     atomic_load_explicit(&p->turn, memory_order_acquire) != at + 1;
	     n++)
		coro_relax(n);
	w = p->w;
	atomic_store_explicit(&p->turn, at + pool.mask + 1,
			      memory_order_release);
	atomic_fetch_sub(&pool.idle, 1);
	atomic_fetch_sub(&pool.queued, 1);
	return w;
}

/* ---- the threads ---- */

static void *thread_serve(void *unused)
{
	for (;;) {
		struct coro_wake *w;

		while (sem_wait(&pool.filled) < 0) {
			/* a debugger's signal */
		}
		w = pool_take();
		w->fn(w);
		atomic_fetch_add(&pool.idle, 1);
	}
	return NULL;
}

/* Those on which a thread may run. */
static cpu_set_t cpus_left(void)
{
	cpu_set_t left;

	CPU_XOR(&left, &pool.cpus, &pool.taken);
	return CPU_COUNT(&left) > 0 ? left : pool.cpus;
}

static int thread_make(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t cpus;
	int err = pthread_attr_init(&attr);

	if (err != 0)
		return -err;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	cpus = cpus_left();
	if (CPU_COUNT(&cpus) > 0)
		pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_fetch_add(&pool.idle, 1);
	err = pthread_create(&thread, &attr, thread_serve, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err != 0) {
		atomic_fetch_sub(&pool.idle, 1);
		return -err;
	}
	pthread_setname_np(thread, "coro-offload");
	atomic_fetch_add(&pool.threads, 1);
	return 0;
}

static int slots_make(void)
{
	uint64_t n = 1;
	struct slot *slots;

	while (n <= pool.max_queued + pool.max_threads)
		n *= 2;
	slots = malloc(n * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		atomic_init(&slots[i].turn, i);
	sem_init(&pool.filled, 0, 0);
	pool.mask = n - 1;
	pool.slots = slots;
	return 0;
}

/*
 * Starts another thread if none is free. All callers wait for the first thread,
 * since there must be one; later ones are started by whichever caller gets the
 * lock.
 */
static int thread_reserve(void)
{
	int err = 0;

	if (atomic_load(&pool.threads) == 0)
		pthread_mutex_lock(&pool.lock);
	else if (atomic_load(&pool.queued) < atomic_load(&pool.idle) ||
		 atomic_load(&pool.threads) >= pool.max_threads ||
		 pthread_mutex_trylock(&pool.lock) != 0)
		return 0;
	if (!pool.slots)
		err = slots_make();
	if (err == 0 && atomic_load(&pool.threads) < pool.max_threads)
		err = thread_make();
	if (atomic_load(&pool.threads) > 0)
		err = 0;
	pthread_mutex_unlock(&pool.lock);
	return err;
}

static int queue_call(struct coro_sched *to, struct coro_wake *w)
{
	int err = thread_reserve();

	if (err < 0)
		return err;
	if (atomic_fetch_add(&pool.queued, 1) >=
	    (int)pool.max_queued + atomic_load(&pool.idle)) {
		atomic_fetch_sub(&pool.queued, 1);
		return -EAGAIN;
	}
	pool_put(w);
	return 0;
}

int coro_offload_until(coro_fn fn, void *arg, void **result,
		       int64_t deadline_ns)
{
	return coro_call_with(queue_call, NULL, fn, arg, result, deadline_ns,
			      "coro_offload");
}

int coro_offload(coro_fn fn, void *arg, void **result)
{
	return coro_offload_until(fn, arg, result, CORO_FOREVER);
}

int coro_offload_limits(unsigned threads, unsigned queue)
{
	int err = 0;

	if (threads > CORO_OFFLOAD_THREADS_MAX ||
	    queue > CORO_OFFLOAD_QUEUE_MAX)
		return -EINVAL;
	pthread_mutex_lock(&pool.lock);
	if (pool.slots) {
		err = -EBUSY;
	} else {
		pool.max_threads = threads ? threads : pool.max_threads;
		pool.max_queued = queue ? queue : pool.max_queued;
	}
	pthread_mutex_unlock(&pool.lock);
	return err;
}

int coro_offload_spare(void)
{
	cpu_set_t own;
	int cpu = sched_getcpu();

	if (cpu < 0 || sched_getaffinity(0, sizeof(own), &own) < 0)
		return -errno;
	if (CPU_COUNT(&own) != 1)
		return -EINVAL;
	pthread_mutex_lock(&pool.lock);
	if (CPU_ISSET(cpu, &pool.cpus))
		CPU_SET(cpu, &pool.taken);
	pthread_mutex_unlock(&pool.lock);
	return 0;
}
