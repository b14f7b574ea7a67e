/*
 * Preloaded: moves the wall clock forwards and backwards by years, to show any
 * dependence on it. Other clocks are unchanged.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long wild_offset(void)
{
	static _Atomic unsigned calls;
	unsigned n = calls++;

	return 1700000000LL +
	       (n % 2 ? -1 : 1) * (long long)(n % 7) * 31536000LL;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, t);

	if (rc == 0 && (clock == CLOCK_REALTIME ||
			clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
		t->tv_sec = wild_offset();
	return rc;
}

int gettimeofday(struct timeval *restrict t,
		 void *restrict zone __attribute__((unused)))
{
	t->tv_sec = wild_offset();
	t->tv_usec = 0;
	return 0;
}

time_t time(time_t *out)
{
	time_t now = wild_offset();

	if (out)
		*out = now;
	return now;
}
