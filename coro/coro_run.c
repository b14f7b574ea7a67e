/*
 * coro_run.c - a loop for programs that have none, and how the thread sleeps.
 */
#include "coro_priv.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

int coro_sched_wait(struct coro_sched *s, int64_t until_ns)
{
	struct pollfd pfd[2] = {{.fd = s->event_fd, .events = POLLIN},
				{.fd = coro_fds_epoll(s), .events = POLLIN}};
	int64_t left =
		until_ns == CORO_FOREVER ? 0 : until_ns - coro_sched_clock(s);
	struct timespec ts = {left / 1000000000, left % 1000000000};
	uint64_t drop;
	int err = 0;

	if (coro_sched_ready(s) || (until_ns != CORO_FOREVER && left <= 0))
		return 0;
	coro_fds_look_soon(s);
	atomic_store(&s->asleep, true);
	if (!atomic_load(&s->inbox) && !s->dump_asked &&
	    ppoll(pfd, 2, until_ns == CORO_FOREVER ? NULL : &ts, NULL) < 0 &&
	    errno != EINTR)
		err = -errno;
	atomic_store(&s->asleep, false);
	if (read(s->event_fd, &drop, sizeof(drop)) < 0) {
		/* nothing was posted */
	}
	return err;
}

void coro_sched_stop(struct coro_sched *s)
{
	s->stop = true;
}

void coro_sched_hold(struct coro_sched *s, int n)
{
	s->holds += n;
}

static unsigned count_blocked(const struct coro_sched *s)
{
	unsigned n = 0;

	for (struct coro_chunk *c = s->chunks; c; c = c->next)
		for (unsigned i = 0; i < CORO_CHUNK_COROS; i++)
			n += c->coros[i].ctx.state == CORO_ST_PARKED ||
			     c->coros[i].ctx.state == CORO_ST_WAITING;
	return n;
}

/* Nothing is ready, no timer is armed, nobody outside will post. */
cold static int report_deadlock(struct coro_sched *s)
{
	unsigned n = count_blocked(s);

	if (n == 0)
		return 0;
	fprintf(stderr,
		"coronet: deadlock: %u coroutines parked, nothing can wake "
		"them\n",
		n);
	fflush(stderr);
	coro_sched_dump(s, STDERR_FILENO);
	return -EDEADLK;
}

int coro_sched_run(struct coro_sched *s)
{
	int err = 0;

	if (s != coro_tls_sched || s->cur != &s->main)
		return -EPERM;
	s->stop = false;
	while (!s->stop && err == 0) {
		coro_sched_advance(s, coro_sched_clock(s));
		coro_sched_round(s);
		if (s->stop || coro_sched_ready(s))
			continue;
		if (s->wheel.armed == 0 && s->holds <= 0 && s->outside == 0 &&
		    s->fd_waiting == 0)
			return report_deadlock(s);
		err = coro_sched_wait(s, coro_sched_next_ns(s));
	}
	return err;
}
