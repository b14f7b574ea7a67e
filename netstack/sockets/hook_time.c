/*
 * Hooks of sleep() and similar calls: in a coroutine only the coroutine sleeps.
 *
 * coro_cancel() ends a sleep as a signal would: EINTR, with the time left.
 */
#include "netstack/sockets/whole.h"

#include <unistd.h>

#define SECOND INT64_C(1000000000)

/* Sleeps for ns. Returns 0, or the time that was left when it was cancelled. */
static int64_t sleep_ns(int64_t ns)
{
	int64_t until = coro_sched_clock(coro_sched_self()) + ns, left;
	int saved = errno, err;

	if (ns > INT64_MAX / 2)
		until = INT64_MAX / 2;
	err = coro_sleep_until(until);
	if (err == 0) {
		errno = saved;
		return 0;
	}
	left = until - coro_sched_clock(coro_sched_self());
	errno = saved;
	return left > 0 ? left : 1;
}

static int64_t timespec_ns(const struct timespec *ts)
{
	return ts->tv_sec > INT64_MAX / 2 / SECOND
		       ? INT64_MAX
		       : ts->tv_sec * SECOND + ts->tv_nsec;
}

static bool is_time(const struct timespec *ts)
{
	return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < SECOND;
}

NET_HOOK unsigned sleep(unsigned seconds)
{
	if (!net_in_coroutine())
		return net_real()->sleep(seconds);
	return (unsigned)((sleep_ns(seconds * SECOND) + SECOND - 1) / SECOND);
}

NET_HOOK int usleep(useconds_t us)
{
	if (!net_in_coroutine())
		return net_real()->usleep(us);
	return (int)net_result(sleep_ns(us * INT64_C(1000)) ? -EINTR : 0);
}

/* 0 or a positive errno, as clock_nanosleep() has it. */
static int sleep_timespec(const struct timespec *request,
			  struct timespec *left_out)
{
	int64_t left;

	if (!is_time(request))
		return EINVAL;
	left = sleep_ns(timespec_ns(request));
	if (left == 0)
		return 0;
	if (left_out)
		*left_out = (struct timespec){.tv_sec = left / SECOND,
					      .tv_nsec = left % SECOND};
	return EINTR;
}

NET_HOOK int nanosleep(const struct timespec *request, struct timespec *left)
{
	if (!net_in_coroutine())
		return net_real()->nanosleep(request, left);
	return (int)net_result(-sleep_timespec(request, left));
}

NET_HOOK int clock_nanosleep(clockid_t clock, int flags,
			     const struct timespec *request,
			     struct timespec *left)
{
	struct timespec now;
	int64_t ns;

	if (!net_in_coroutine() ||
	    (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC &&
	     clock != CLOCK_BOOTTIME))
		return net_real()->clock_nanosleep(clock, flags, request, left);
	if (!(flags & TIMER_ABSTIME))
		return sleep_timespec(request, left);
	if (!is_time(request))
		return EINVAL;
	clock_gettime(clock, &now);
	ns = timespec_ns(request) - timespec_ns(&now);
	return ns > 0 && sleep_ns(ns) ? EINTR : 0;
}

NET_HOOK int __nanosleep(const struct timespec *request, struct timespec *left);
NET_HOOK int __nanosleep(const struct timespec *request, struct timespec *left)
{
	return nanosleep(request, left);
}
