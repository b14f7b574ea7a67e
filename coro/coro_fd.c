/*
 * coro_fd.c - coroutines that wait for the kernel's file descriptors.
 *
 * A scheduler has one epoll set. A descriptor is in it from the first wait on,
 * and each wait arms it for one event (EPOLLONESHOT), so that a descriptor
 * costs nothing while nobody waits for it. Each wait arms it again, even if
 * another coroutine has armed it already: the kernel silently forgets a closed
 * file, and only this call shows that the number belongs to another file by
 * now.
 *
 * The scheduler asks the set between rounds, every CORO_FD_LOOK_NS while the
 * thread is busy, and when it sleeps in coro_sched_wait().
 */
#include "coro_queue.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_EVENTS 64
#define WANTED	    (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI &&
		      EPOLLRDHUP == POLLRDHUP && EPOLLERR == POLLERR &&
		      EPOLLHUP == POLLHUP,
	      "both calls name events alike");

struct fd { /* one descriptor's number */
	struct coro_link waiters;
	struct coro_fd_watch *watches;
	bool known; /* it has been added to the epoll set */
};

struct coro_fds {
	int epoll_fd;
	unsigned watched; /* coro_sched_wake_on() */
	int64_t next_look_ns;
	struct fd **fd; /* by number; NULL: never waited for */
	unsigned n_fds;
};

static int fds_open(struct coro_sched *s)
{
	struct coro_fds *fds = calloc(1, sizeof(*fds));

	if (!fds)
		return -ENOMEM;
	/* The system call: a library that takes epoll_create1()'s place would
	 * take the set for one of the program's. */
	fds->epoll_fd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	if (fds->epoll_fd < 0) {
		int err = -errno;

		free(fds);
		return err;
	}
	s->fds = fds;
	return 0;
}

static void watch_unlink(struct coro_fd_watch *w)
{
	*w->pprev = w->next;
	if (w->next)
		w->next->pprev = w->pprev;
	w->pprev = NULL;
}

void coro_fds_fini(struct coro_sched *s)
{
	struct coro_fds *fds = s->fds;

	if (!fds)
		return;
	s->fds = NULL;
	close(fds->epoll_fd);
	for (unsigned i = 0; i < fds->n_fds; i++) {
		while (fds->fd[i] && fds->fd[i]->watches)
			watch_unlink(fds->fd[i]->watches);
		free(fds->fd[i]);
	}
	free(fds->fd);
	free(fds);
}

int coro_fds_epoll(const struct coro_sched *s)
{
	if (!s->fds || (s->fd_waiting == 0 && s->fds->watched == 0))
		return -1;
	return s->fds->epoll_fd;
}

static int numbers_grow(struct coro_fds *fds, unsigned number)
{
	unsigned n = fds->n_fds ? fds->n_fds : 64;
	struct fd **grown;

	while (n <= number)
		n *= 2;
	grown = realloc(fds->fd, n * sizeof(struct fd *));
	if (!grown)
		return -ENOMEM;
	for (unsigned i = fds->n_fds; i < n; i++)
		grown[i] = NULL;
	fds->fd = grown;
	fds->n_fds = n;
	return 0;
}

/* The entry of an open descriptor: the kernel bounds its number. */
static struct fd *entry_of(struct coro_fds *fds, unsigned number)
{
	if (number >= fds->n_fds && numbers_grow(fds, number) < 0)
		return NULL;
	if (!fds->fd[number])
		fds->fd[number] = calloc(1, sizeof(struct fd));
	return fds->fd[number];
}

static uint32_t wanted_by_all(const struct fd *f)
{
	uint32_t events = 0;

	if (!queue_empty(&f->waiters))
		for (const struct coro_link *l = f->waiters.next;
		     l != &f->waiters; l = l->next)
			events |= (uint32_t)queue_coro(l)->value;
	for (const struct coro_fd_watch *w = f->watches; w; w = w->next)
		events |= (uint32_t)w->events;
	return events;
}

/* Have the kernel report the next of these events or of those waited for. */
static int fd_arm(const struct coro_fds *fds, int number, struct fd *f,
		  uint32_t events)
{
	struct epoll_event ev = {.events = EPOLLONESHOT | wanted_by_all(f) |
					   events,
				 .data.fd = number};
	int op = f->known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (epoll_ctl(fds->epoll_fd, op, number, &ev) < 0) {
		if (errno != (f->known ? ENOENT : EEXIST))
			return -errno;
		op = EPOLL_CTL_ADD + EPOLL_CTL_MOD - op;
		if (epoll_ctl(fds->epoll_fd, op, number, &ev) < 0)
			return -errno;
	}
	f->known = true;
	return 0;
}

static int ask_now(int number, int events)
{
	struct pollfd p = {.fd = number, .events = (short)events};

	if (poll(&p, 1, 0) < 0)
		return -errno;
	return p.revents & POLLNVAL ? -EBADF
	       : p.revents	    ? p.revents
				    : -ETIMEDOUT;
}

static int check_wanted(int number, int events)
{
	if (events == 0 || events & ~WANTED)
		return -EINVAL;
	return number < 0 ? -EBADF : 0;
}

/* Finds the descriptor's entry and arms it for these events as well. */
static int wait_begin(struct coro_sched *s, int number, int events,
		      struct fd **out)
{
	int err = !s->fds ? fds_open(s) : 0;
	struct fd *f;

	if (err < 0)
		return err;
	/* Check the number before it makes the table grow. */
	if ((unsigned)number >= s->fds->n_fds &&
	    ask_now(number, events) == -EBADF)
		return -EBADF;
	f = entry_of(s->fds, (unsigned)number);
	if (!f)
		return -ENOMEM;
	*out = f;
	return fd_arm(s->fds, number, f, (uint32_t)events);
}

int coro_fd_wait(int number, int events, int64_t deadline_ns)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co = coro_current();
	int err = coro_may_block(co);
	struct fd *f;

	if (err == 0)
		err = check_wanted(number, events);
	if (err < 0)
		return err;
	if (deadline_ns <= s->now)
		return ask_now(number, events);
	err = wait_begin(s, number, events, &f);
	if (err == -EPERM) /* a file that epoll considers always ready */
		return ask_now(number, events);
	if (err < 0)
		return err;
	co->value = events;
	co->ctx.flags3 |= CORO_F3_FD;
	s->fd_waiting++;
	queue_add(&f->waiters, co);
	err = coro_block(s, co, CORO_ST_WAITING, deadline_ns, "coro_fd_wait");
	co->ctx.flags3 &= ~CORO_F3_FD;
	s->fd_waiting--;
	return err;
}

int coro_fd_watch(int number, int events, struct coro_fd_watch *w)
{
	struct coro_sched *s = coro_tls_sched;
	int err = check_wanted(number, events);
	struct fd *f;

	if (!s)
		return -EPERM;
	if (err < 0)
		return err;
	coro_check_shared(s, w, "coro_fd_watch");
	if (w->pprev)
		return -EBUSY;
	err = wait_begin(s, number, events, &f);
	if (err < 0)
		return err;
	w->sched = s;
	w->events = events;
	w->next = f->watches;
	w->pprev = &f->watches;
	if (w->next)
		w->next->pprev = &w->next;
	f->watches = w;
	s->fd_waiting++;
	return 0;
}

void coro_fd_unwatch(struct coro_fd_watch *w)
{
	if (!w->pprev)
		return;
	watch_unlink(w);
	w->sched->fd_waiting--;
}

cold void coro_fd_kill(struct coro_sched *s, struct coro *co)
{
	co->ctx.flags3 &= ~CORO_F3_FD;
	s->fd_waiting--;
}

unsigned coro_fd_waiting(const struct coro_sched *s)
{
	return s->fd_waiting;
}

void coro_fd_cancel_all(struct coro_sched *s)
{
	coro_check_thread(s, "coro_fd_cancel_all");
	for (unsigned i = 0; s->fds && i < s->fds->n_fds; i++)
		while (s->fds->fd[i] && !queue_empty(&s->fds->fd[i]->waiters))
			coro_ready_with(s, queue_first(&s->fds->fd[i]->waiters),
					-ECANCELED);
}

int coro_sched_wake_on(struct coro_sched *s, int fd, bool on)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = -1};
	int err = s->fds ? 0 : fds_open(s);

	coro_check_thread(s, "coro_sched_wake_on");
	if (err < 0)
		return err;
	if (epoll_ctl(s->fds->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd,
		      &ev) < 0)
		return -errno;
	s->fds->watched += on ? 1 : -1;
	return 0;
}

/* Wake those that wait for these events; errors and hang-ups wake everybody. */
static void waiters_wake(struct coro_sched *s, struct fd *f, int number,
			 int events)
{
	struct coro_link *l = f->waiters.next, *next;
	struct coro_fd_watch *w = f->watches, *after;

	for (; w; w = after) {
		int its = events & (w->events | POLLERR | POLLHUP);

		after = w->next;
		if (its) {
			coro_fd_unwatch(w);
			w->fn(w, its);
		}
	}
	for (; l && l != &f->waiters; l = next) {
		struct coro *co = queue_coro(l);
		int its = events & ((int)co->value | POLLERR | POLLHUP);

		next = l->next;
		if (its)
			coro_ready_with(s, co, its);
	}
	/* If the number was closed meanwhile, the other waiters wait on. */
	if ((!queue_empty(&f->waiters) || f->watches) &&
	    fd_arm(s->fds, number, f, 0) < 0)
		f->known = false;
}

cold void coro_fds_look(struct coro_sched *s)
{
	struct epoll_event ev[LOOK_EVENTS];
	struct coro_fds *fds = s->fds;
	int n;

	if (s->now < fds->next_look_ns)
		return;
	n = epoll_wait(fds->epoll_fd, ev, LOOK_EVENTS, 0);
	for (int i = 0; i < n; i++)
		if (ev[i].data.fd >= 0)
			waiters_wake(s, fds->fd[ev[i].data.fd], ev[i].data.fd,
				     (int)ev[i].events);
	/* More may be there: look again in the next round. */
	fds->next_look_ns =
		n == LOOK_EVENTS ? s->now : s->now + CORO_FD_LOOK_NS;
}

void coro_fds_look_soon(struct coro_sched *s)
{
	if (s->fds)
		s->fds->next_look_ns = s->now;
}
