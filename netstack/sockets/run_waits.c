/*
 * Waits of a whole program's main() for its threads and children.
 *
 * While main() is in the kernel for them nobody turns the loop: its connections
 * wait, and so does a thread whose call was posted to it, for ever if main()
 * waits for that thread. Therefore main() looks again and again, and
 * sleeps as a coroutine in between. How long it sleeps doubles up to a
 * millisecond, which is what such a wait may take longer than the kernel's.
 *
 * Whether a condition variable was signalled cannot be asked. main() waits for
 * it in the C library, a slice at a time, and lets the loop turn in between
 * without the mutex. A signal in between is lost, so behind that the call
 * returns as if there had been one, which POSIX allows. Where the time ends
 * soon it goes on: Python's wait for its interpreter lock must time out, or a
 * thread that computes would keep the lock.
 */
#include "netstack/sockets/run.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>

#define NAP_FIRST_NS INT64_C(20000)
#define NAP_LAST_NS  INT64_C(1000000)

static bool in_main(void)
{
	return net_is_main() && !net_forked;
}

/* Twice as long as before. 0, or -EINTR as a signal's handler has it. */
static int nap(int64_t *ns)
{
	struct net_waitq never = {0};
	int err, saved = errno;

	*ns = *ns == 0 ? NAP_FIRST_NS : *ns * 2;
	if (*ns > NAP_LAST_NS)
		*ns = NAP_LAST_NS;
	err = net_waitq_wait(&never, net_deadline_in(*ns));
	errno = saved;
	return err == -EINTR ? err : 0;
}

/* ---- semaphores ---- */

static bool has_passed(clockid_t clock, const struct timespec *until)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec > until->tv_sec ||
	       (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

/* until NULL: without end. */
static int wait_for_sem(sem_t *sem, clockid_t clock,
			const struct timespec *until)
{
	int saved = errno;
	int64_t ns = 0;
	int err = 0;

	while (sem_trywait(sem) < 0) {
		if (errno != EAGAIN)
			return -1;
		if (err == 0 && until &&
		    (until->tv_nsec < 0 || until->tv_nsec >= 1000000000))
			err = -EINVAL;
		if (err == 0 && until && has_passed(clock, until))
			err = -ETIMEDOUT;
		if (err < 0)
			return (int)net_result(err);
		err = nap(&ns);
	}
	errno = saved;
	return 0;
}

NET_HOOK int sem_wait(sem_t *sem)
{
	static int (*real)(sem_t *);

	if (in_main())
		return wait_for_sem(sem, CLOCK_REALTIME, NULL);
	if (!real)
		real = (int (*)(sem_t *))dlsym(RTLD_NEXT, "sem_wait");
	return real(sem);
}

NET_HOOK int sem_timedwait(sem_t *sem, const struct timespec *until)
{
	static int (*real)(sem_t *, const struct timespec *);

	if (in_main())
		return wait_for_sem(sem, CLOCK_REALTIME, until);
	if (!real)
		real = (int (*)(sem_t *, const struct timespec *))dlsym(
			RTLD_NEXT, "sem_timedwait");
	return real(sem, until);
}

NET_HOOK int sem_clockwait(sem_t *sem, clockid_t clock,
			   const struct timespec *until)
{
	static int (*real)(sem_t *, clockid_t, const struct timespec *);

	if (in_main() && (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC))
		return wait_for_sem(sem, clock, until);
	if (!real)
		real = (int (*)(sem_t *, clockid_t,
				const struct timespec *))dlsym(RTLD_NEXT,
							       "sem_clockwait");
	return real(sem, clock, until);
}

/* ---- threads ---- */

NET_HOOK int pthread_join(pthread_t thread, void **result)
{
	static int (*real)(pthread_t, void **);
	int64_t ns = 0;
	int err;

	if (in_main()) {
		while ((err = pthread_tryjoin_np(thread, result)) == EBUSY)
			nap(&ns); /* no signal ends it */
		return err;
	}
	if (!real)
		real = (int (*)(pthread_t, void **))dlsym(RTLD_NEXT,
							  "pthread_join");
	return real(thread, result);
}

/* ---- condition variables ---- */

#define SLICE_NS       INT64_C(1000000)
#define SHORT_SLICE_NS INT64_C(200000)
#define SOON_NS	       INT64_C(10000000)

typedef int (*clockwait_fn)(pthread_cond_t *cond, pthread_mutex_t *mutex,
			    clockid_t clock, const struct timespec *until);

static clockwait_fn clockwait(void)
{
	static clockwait_fn real;

	if (!real)
		real = (clockwait_fn)dlsym(RTLD_NEXT, "pthread_cond_clockwait");
	return real;
}

static int64_t ns_of(const struct timespec *ts)
{
	return ts->tv_sec > INT64_MAX / 2000000000
		       ? INT64_MAX / 2
		       : ts->tv_sec * INT64_C(1000000000) + ts->tv_nsec;
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return ns_of(&now);
}

static void turn_without(pthread_mutex_t *mutex)
{
	pthread_mutex_unlock(mutex);
	net_whole_turn();
	pthread_mutex_lock(mutex);
}

/* until_ns INT64_MAX: without end. */
static int wait_for_cond(pthread_cond_t *cond, pthread_mutex_t *mutex,
			 clockid_t clock, int64_t until_ns)
{
	bool soon = until_ns - now_ns(clock) <= SOON_NS;
	int64_t slice = soon ? SHORT_SLICE_NS : SLICE_NS;

	for (;;) {
		int64_t now = now_ns(clock);
		bool last = until_ns - now <= slice;
		int64_t end = last ? until_ns : now + slice;
		const struct timespec ts = {.tv_sec = end / 1000000000,
					    .tv_nsec = end % 1000000000};
		int err = clockwait()(cond, mutex, clock, &ts);

		if (err != ETIMEDOUT)
			return err;
		turn_without(mutex);
		if (last || !soon)
			return last ? ETIMEDOUT : 0;
	}
}

NET_HOOK int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	static int (*real)(pthread_cond_t *, pthread_mutex_t *);

	if (in_main())
		return wait_for_cond(cond, mutex, CLOCK_MONOTONIC, INT64_MAX);
	if (!real)
		real = (int (*)(pthread_cond_t *, pthread_mutex_t *))dlsym(
			RTLD_NEXT, "pthread_cond_wait");
	return real(cond, mutex);
}

static bool is_time(const struct timespec *ts)
{
	return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < 1000000000;
}

NET_HOOK int pthread_cond_clockwait(pthread_cond_t *cond,
				    pthread_mutex_t *mutex, clockid_t clock,
				    const struct timespec *until)
{
	if (!in_main() || !is_time(until) ||
	    (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
		return clockwait()(cond, mutex, clock, until);
	return wait_for_cond(cond, mutex, clock, ns_of(until));
}

/*
 * The clock is the variable's attribute, which nobody can ask for. A time of
 * CLOCK_MONOTONIC, counted from the machine's start, is decades behind the
 * other clock's.
 */
NET_HOOK int pthread_cond_timedwait(pthread_cond_t *cond,
				    pthread_mutex_t *mutex,
				    const struct timespec *until)
{
	static int (*real)(pthread_cond_t *, pthread_mutex_t *,
			   const struct timespec *);
	clockid_t clock = CLOCK_REALTIME;

	if (in_main() && is_time(until)) {
		if (ns_of(until) < now_ns(CLOCK_REALTIME) / 2)
			clock = CLOCK_MONOTONIC;
		return wait_for_cond(cond, mutex, clock, ns_of(until));
	}
	if (!real)
		real = (int (*)(pthread_cond_t *, pthread_mutex_t *,
				const struct timespec *))
			dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	return real(cond, mutex, until);
}

/* ---- children ---- */

NET_HOOK pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	static pid_t (*real)(pid_t, int *, int, struct rusage *);
	int64_t ns = 0;
	pid_t got;
	int err = 0;

	if (!real)
		real = (pid_t(*)(pid_t, int *, int, struct rusage *))dlsym(
			RTLD_NEXT, "wait4");
	if (!in_main() || options & WNOHANG)
		return real(pid, status, options, usage);
	while ((got = real(pid, status, options | WNOHANG, usage)) == 0) {
		if (err < 0)
			return (pid_t)net_result(err);
		err = nap(&ns);
	}
	return got;
}

NET_HOOK pid_t wait3(int *status, int options, struct rusage *usage)
{
	return wait4(-1, status, options, usage);
}

NET_HOOK pid_t waitpid(pid_t pid, int *status, int options)
{
	return wait4(pid, status, options, NULL);
}

NET_HOOK pid_t wait(int *status)
{
	return wait4(-1, status, 0, NULL);
}
