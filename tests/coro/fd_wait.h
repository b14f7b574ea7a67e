/*
 * Coroutines that wait for descriptors, for tests of coro_fd_wait().
 */
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <coronet/coro_io.h>

#include "peer.h"

struct wait {
	int fd;
	int events;
	int64_t deadline;
	int got;
	bool done;
	struct coro *co;
};

static struct wait waits[200]; /* not on the stacks that coroutines share */

static inline void *waiter(void *arg)
{
	struct wait *w = arg;

	w->got = coro_fd_wait(w->fd, w->events, w->deadline);
	w->done = true;
	return NULL;
}

static inline struct wait *wait_start(struct coro_sched *s, int i, int fd,
				      int events)
{
	struct wait *w = &waits[i];

	*w = (struct wait){
		.fd = fd, .events = events, .deadline = CORO_FOREVER};
	assert_int_equal(coro_spawn(s, NULL, waiter, w, &w->co), 0);
	return w;
}

static inline void wait_end(struct wait *w)
{
	assert_true(w->done);
	assert_int_equal(coro_join(w->co, NULL), 0);
}

/* Rounds at a time at which the kernel is asked. */
static inline void look_for_events(struct coro_sched *s)
{
	for (int i = 0; i < 4; i++) {
		fake_now += CORO_FD_LOOK_NS;
		coro_sched_advance(s, fake_now);
		coro_sched_round(s);
		run_idle(s);
	}
}

static inline void write_byte(int fd)
{
	assert_int_equal(write(fd, "x", 1), 1);
}

static inline void open_pipe(int fds[2])
{
	assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
}

static inline void close_pipe(const int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}
