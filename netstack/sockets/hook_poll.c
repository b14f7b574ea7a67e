/*
 * Hooks of poll(), select() and epoll_*().
 */
#include "netstack/sockets/whole.h"
#include "netstack/sockets/polling.h"

#include <pthread.h>
#include <sys/poll.h>

#define MS INT64_C(1000000)

void __chk_fail(void) __attribute__((noreturn)); /* the C library's */

static int64_t ms_to_ns(int ms)
{
	return ms < 0 ? -1 : ms * MS;
}

/* Reads a time into *ns; ts NULL: -1, no end. False: the time is invalid. */
static bool timespec_ns(const struct timespec *ts, int64_t *ns)
{
	*ns = -1;
	if (!ts)
		return true;
	if (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= 1000 * MS)
		return false;
	*ns = ts->tv_sec > INT64_MAX / (2000 * MS)
		      ? -1
		      : ts->tv_sec * 1000 * MS + ts->tv_nsec;
	return true;
}

/*
 * A thread of a whole program has the mask until the call ends. With other
 * coroutines on the thread it cannot stay: what it lets through comes now.
 */
static void begin_mask(const sigset_t *mask, sigset_t *old)
{
	if (!mask)
		return;
	net_whole_set_mask(mask, old);
	if (!net_calling())
		pthread_sigmask(SIG_SETMASK, old, NULL);
}

static void end_mask(const sigset_t *mask, const sigset_t *old)
{
	if (mask && net_calling())
		net_whole_set_mask(old, NULL);
}

/* ---- poll ---- */

static bool poll_is_own(struct pollfd *fds, nfds_t n)
{
	return net_may_wait() || net_poll_has_own(fds, n);
}

/* Returns whether a descriptor is the stack's: the whole call needs the baton
 * then, also to wait for the kernel's descriptors. */
static bool poll_needs_baton(struct pollfd *fds, nfds_t n)
{
	if (unlikely(net_whole.late))
		for (nfds_t i = 0; i < n; i++)
			net_await_clients(fds[i].fd);
	if (net_needs_baton() && net_can_read(fds, n * sizeof(*fds)))
		for (nfds_t i = 0; i < n; i++)
			if (net_fd_needs_baton(fds[i].fd))
				return true;
	return false;
}

NET_HOOK int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (poll_needs_baton(fds, n))
		return (int)NET_WITH_BATON(poll, (long)fds, (long)n, timeout);
	if (!poll_is_own(fds, n))
		return net_real()->poll(fds, n, timeout);
	return (int)net_result(net_poll_fds(fds, n, ms_to_ns(timeout)));
}

NET_HOOK int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts,
		   const sigset_t *mask)
{
	sigset_t old;
	int64_t ns;
	long ready;

	if (poll_needs_baton(fds, n))
		return (int)NET_WITH_BATON(ppoll, (long)fds, (long)n, (long)ts,
					   (long)mask);
	if (!poll_is_own(fds, n))
		return net_real()->ppoll(fds, n, ts, mask);
	if (!timespec_ns(ts, &ns))
		return (int)net_result(-EINVAL);
	begin_mask(mask, &old);
	ready = net_poll_fds(fds, n, ns);
	end_mask(mask, &old);
	return (int)net_result(ready);
}

NET_HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int timeout,
			size_t bytes);
NET_HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t bytes)
{
	if (bytes / sizeof(*fds) < n)
		__chk_fail();
	return poll(fds, n, timeout);
}

NET_HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n,
			 const struct timespec *ts, const sigset_t *mask,
			 size_t bytes);
NET_HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n,
			 const struct timespec *ts, const sigset_t *mask,
			 size_t bytes)
{
	if (bytes / sizeof(*fds) < n)
		__chk_fail();
	return ppoll(fds, n, ts, mask);
}

NET_HOOK int __poll(struct pollfd *fds, nfds_t n, int timeout);
NET_HOOK int __poll(struct pollfd *fds, nfds_t n, int timeout)
{
	return poll(fds, n, timeout);
}

/* ---- select ---- */

static bool select_needs_baton(int n, const fd_set *in, const fd_set *out)
{
	if (unlikely(net_whole.late) && in)
		for (int fd = 0; fd < n; fd++)
			if (net_fd_is_in(fd, in))
				net_await_clients(fd);
	if (net_needs_baton() &&
	    (!in || net_can_read(in, (size_t)(n + 7) / 8)) &&
	    (!out || net_can_read(out, (size_t)(n + 7) / 8)))
		for (int fd = 0; fd < n; fd++)
			if (net_fd_needs_baton(fd) &&
			    (net_fd_is_in(fd, in) || net_fd_is_in(fd, out)))
				return true;
	return false;
}

NET_HOOK int select(int n, fd_set *in, fd_set *out, fd_set *except,
		    struct timeval *tv)
{
	struct timespec ts = {0};
	int64_t ns, began;
	long ready;

	if (select_needs_baton(n, in, out))
		return (int)NET_WITH_BATON(select, n, (long)in, (long)out,
					   (long)except, (long)tv);
	if (!net_may_wait())
		return net_real()->select(n, in, out, except, tv);
	if (tv) {
		ts.tv_sec = tv->tv_sec + tv->tv_usec / 1000000;
		ts.tv_nsec = tv->tv_usec % 1000000 * 1000;
	}
	if (!timespec_ns(tv ? &ts : NULL, &ns))
		return (int)net_result(-EINVAL);
	began = coro_sched_clock(coro_sched_self());
	ready = net_select_fds(n, in, out, except, ns);
	if (tv && ns >= 0) { /* the time left, as Linux has it */
		ns -= coro_sched_clock(coro_sched_self()) - began;
		ns = ns > 0 ? ns : 0;
		tv->tv_sec = ns / (1000 * MS);
		tv->tv_usec = ns % (1000 * MS) / 1000;
	}
	return (int)net_result(ready);
}

NET_HOOK int pselect(int n, fd_set *in, fd_set *out, fd_set *except,
		     const struct timespec *ts, const sigset_t *mask)
{
	sigset_t old;
	int64_t ns;
	long ready;

	if (select_needs_baton(n, in, out))
		return (int)NET_WITH_BATON(pselect, n, (long)in, (long)out,
					   (long)except, (long)ts, (long)mask);
	if (!net_may_wait())
		return net_real()->pselect(n, in, out, except, ts, mask);
	if (!timespec_ns(ts, &ns))
		return (int)net_result(-EINVAL);
	begin_mask(mask, &old);
	ready = net_select_fds(n, in, out, except, ns);
	end_mask(mask, &old);
	return (int)net_result(ready);
}

NET_HOOK int __select(int n, fd_set *in, fd_set *out, fd_set *except,
		      struct timeval *tv);
NET_HOOK int __select(int n, fd_set *in, fd_set *out, fd_set *except,
		      struct timeval *tv)
{
	return select(n, in, out, except, tv);
}

/* ---- epoll ---- */

static long known_with_baton(long fd);

/* Registers an epoll set when a coroutine or a whole program creates it. */
static int known_fd(int fd)
{
	int err;

	if (fd < 0)
		return fd;
	net_fd_fresh(fd);
	/* DPDK's interrupt thread makes a new set whenever its work changes. */
	if (unlikely(net_whole.on) && net_whole_own_thread())
		net_whole_reserve(fd);
	else if (net_needs_baton())
		return (int)NET_WITH_BATON(known_with_baton, fd);
	if (!net_may_wait())
		return fd;
	err = net_epoll_new(fd);
	if (err < 0)
		net_real()->close(fd);
	return err < 0 ? (int)net_result(err) : fd;
}

static long known_with_baton(long fd)
{
	return known_fd((int)fd);
}

NET_HOOK int epoll_create(int size)
{
	return known_fd(net_real()->epoll_create(size));
}

NET_HOOK int epoll_create1(int flags)
{
	return known_fd(net_real()->epoll_create1(flags));
}

NET_HOOK int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	net_await_clients(fd);
	if (!net_fds)
		return net_real()->epoll_ctl(epfd, op, fd, event);
	if (net_fd_needs_baton(epfd) || net_fd_needs_baton(fd))
		return (int)NET_WITH_BATON(epoll_ctl, epfd, op, fd,
					   (long)event);
	return (int)net_result(net_epoll_control(epfd, op, fd, event));
}

/* Waits in a coroutine, and not in the thread, for a set that is the kernel's.
 */
static long await_kernel(int epfd, struct epoll_event *events, int max,
			 int64_t ns)
{
	int64_t deadline = net_deadline_in(ns);
	long turned = net_turn();

	if (turned < 0)
		return turned;
	for (;;) {
		int saved = errno, err;
		int n = net_real()->epoll_wait(epfd, events, max, 0);

		if (n < 0 && errno == EINTR && !net_handled())
			continue;
		if (n != 0 || ns == 0)
			return n < 0 ? -errno : n;
		net_unrestartable(true);
		err = net_fd_wait(epfd, POLLIN, deadline);
		net_unrestartable(false);
		errno = saved;
		if (err == -ETIMEDOUT && net_has_passed(deadline))
			return 0;
		if (err < 0)
			return err;
	}
}

/* Returns whether the call is done, with its *result. */
static bool await_epoll(int epfd, struct epoll_event *events, int max,
			int64_t ns, const sigset_t *mask, long *result)
{
	struct net_epoll *set;
	sigset_t old;
	int whose = net_fd_epoll(epfd, &set, "epoll_wait");

	if (whose == 0 && !net_in_coroutine())
		return false;
	begin_mask(mask, &old);
	if (whose > 0)
		*result = net_epoll_await(set, epfd, events, max, ns);
	else
		*result =
			whose < 0 ? whose : await_kernel(epfd, events, max, ns);
	end_mask(mask, &old);
	return true;
}

NET_HOOK int epoll_wait(int epfd, struct epoll_event *events, int max,
			int timeout)
{
	long n;

	if (net_fd_needs_baton(epfd))
		return (int)NET_WITH_BATON(epoll_wait, epfd, (long)events, max,
					   timeout);
	if (!await_epoll(epfd, events, max, ms_to_ns(timeout), NULL, &n))
		return net_real()->epoll_wait(epfd, events, max, timeout);
	return (int)net_result(n);
}

NET_HOOK int epoll_pwait(int epfd, struct epoll_event *events, int max,
			 int timeout, const sigset_t *mask)
{
	long n;

	if (net_fd_needs_baton(epfd))
		return (int)NET_WITH_BATON(epoll_pwait, epfd, (long)events, max,
					   timeout, (long)mask);
	if (!await_epoll(epfd, events, max, ms_to_ns(timeout), mask, &n))
		return net_real()->epoll_pwait(epfd, events, max, timeout,
					       mask);
	return (int)net_result(n);
}

NET_HOOK int epoll_pwait2(int epfd, struct epoll_event *events, int max,
			  const struct timespec *ts, const sigset_t *mask)
{
	int64_t ns;
	long n;

	if (net_fd_needs_baton(epfd))
		return (int)NET_WITH_BATON(epoll_pwait2, epfd, (long)events,
					   max, (long)ts, (long)mask);
	if (!timespec_ns(ts, &ns))
		return (int)net_result(-EINVAL);
	if (!await_epoll(epfd, events, max, ns, mask, &n))
		return net_real()->epoll_pwait2(epfd, events, max, ts, mask);
	return (int)net_result(n);
}
