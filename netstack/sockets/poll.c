/*
 * poll() and select() over both kinds of descriptors.
 *
 * One system call queries all descriptors of the kernel. A call that has to
 * wait allocates one block with a node for each socket of the stack and a watch
 * for each descriptor of the kernel; any event wakes it, and it checks again.
 */
#include "netstack/sockets/whole.h"
#include "netstack/sockets/polling.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>

struct call;

struct poll_item {
	struct net_sock_node node;   /* of ours */
	struct coro_fd_watch kernel; /* or of the kernel's */
	struct call *call;
};

struct call {
	struct net_sleeper sleeper;
	size_t n;
	struct poll_item items[];
};

/* ---- reading events ---- */

/* Value of revents while the kernel has to be asked: no event has all bits. */
#define KERNELS ((short)-1)

static short wanted_events(const struct pollfd *p, unsigned events)
{
	return (short)(events & ((unsigned short)p->events | POLLERR | POLLHUP |
				 POLLNVAL));
}

bool net_poll_has_own(struct pollfd *fds, size_t n)
{
	struct net_sock *sock;

	if (!net_fds || !net_can_read(fds, n * sizeof(*fds)))
		return false;
	for (size_t i = 0; i < n; i++)
		if (net_fd_sock(fds[i].fd, &sock, "poll"))
			return true;
	return false;
}

/* A signal that does not concern the program does not end this. */
static long look_at(struct pollfd *fds, size_t n)
{
	int ready;

	do
		ready = net_real()->poll(fds, n, 0);
	while (ready < 0 && errno == EINTR && !net_handled());
	return ready < 0 ? -errno : ready;
}

/* Looks at the kernel's descriptors among them, in one call. */
static long look_kernels(struct pollfd *fds, size_t n, size_t kernels)
{
	struct pollfd few[16], *list = few;
	size_t at = 0;
	long ready;

	if (kernels == n)
		return look_at(fds, n);
	if (kernels > sizeof(few) / sizeof(few[0]))
		list = malloc(kernels * sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (fds[i].revents == KERNELS)
			list[at++] = fds[i];
	ready = look_at(list, kernels);
	at = 0;
	for (size_t i = 0; i < n; i++)
		if (fds[i].revents == KERNELS)
			fds[i].revents = ready < 0 ? 0 : list[at++].revents;
	if (list != few)
		free(list);
	return ready;
}

/* Returns how many are ready now, of both kinds. */
static long collect_events(struct pollfd *fds, size_t n)
{
	size_t kernels = 0;
	long ours = 0, theirs = 0;

	for (size_t i = 0; i < n; i++) {
		struct net_sock *sock;
		int whose = net_fd_sock(fds[i].fd, &sock, "poll");

		if (whose == 0 && fds[i].events & POLLIN &&
		    net_epoll_is_ready(fds[i].fd)) {
			fds[i].revents = POLLIN;
			ours++;
			continue;
		}
		if (whose == 0) {
			fds[i].revents = fds[i].fd < 0 ? 0 : KERNELS;
			kernels += fds[i].fd >= 0;
			continue;
		}
		fds[i].revents =
			whose < 0
				? POLLNVAL
				: wanted_events(&fds[i], net_sock_events(sock));
		ours += fds[i].revents != 0;
	}
	if (kernels)
		theirs = look_kernels(fds, n, kernels);
	return theirs < 0 ? theirs : ours + theirs;
}

/* ---- waiting ---- */

static void on_own(struct net_sock_node *node, unsigned events)
{
	struct poll_item *item = (struct poll_item *)node;

	net_waitq_wake(&item->call->sleeper.waitq);
}

static void on_kernels(struct coro_fd_watch *watch, int events)
{
	struct poll_item *item =
		(void *)((char *)watch - offsetof(struct poll_item, kernel));

	net_waitq_wake(&item->call->sleeper.waitq);
}

/* A cleanup of the coroutine, so that its end removes the nodes, too. */
static void call_end(void *arg)
{
	struct call *call = arg;

	for (size_t i = 0; i < call->n; i++) {
		net_node_remove(&call->items[i].node);
		coro_fd_unwatch(&call->items[i].kernel);
	}
	net_sleeper_remove(&call->sleeper);
	free(call);
}

static int watch_one(struct poll_item *item, const struct pollfd *p)
{
	struct net_sock *sock;
	int whose = net_fd_sock(p->fd, &sock, "poll"), events, err;

	if (whose < 0 || p->fd < 0)
		return 0;
	if (whose > 0) {
		if (item->node.pprev)
			return 0;
		item->node.fn = on_own;
		item->node.events = (unsigned short)p->events;
		net_node_add(&sock->nodes, &item->node);
		return 0;
	}
	if (!item->node.pprev) {
		item->node.fn = on_own;
		item->node.events = (unsigned short)p->events;
		net_epoll_add_node(p->fd, &item->node);
	}
	events = p->events & (POLLIN | POLLOUT | POLLPRI | POLLRDHUP);
	item->kernel.fn = on_kernels;
	err = coro_fd_watch(p->fd, events ? events : POLLPRI, &item->kernel);
	/* No error: it is watched already, or always ready and was asked. */
	return err == -EBUSY || err == -EPERM || err == -EBADF ? 0 : err;
}

static long wait_until(struct call *call, struct pollfd *fds, int64_t deadline)
{
	long ready = 0, err = 0;

	do {
		for (size_t i = 0; err == 0 && i < call->n; i++)
			err = watch_one(&call->items[i], &fds[i]);
		if (err == 0)
			err = net_waitq_wait(&call->sleeper.waitq, deadline);
		ready = collect_events(fds, call->n);
	} while (err == 0 && ready == 0);
	if (ready)
		return ready;
	return err == -ETIMEDOUT && net_has_passed(deadline) ? 0 : err;
}

static long sleep_through(struct pollfd *fds, size_t n, int64_t ns)
{
	struct call *call =
		calloc(1, sizeof(*call) + n * sizeof(call->items[0]));
	int saved = errno, err = call ? net_sockets_open() : -ENOMEM;
	long ready;

	if (err == 0)
		err = net_cleanup_push(call_end, call);
	if (err < 0) {
		free(call);
		return err;
	}
	call->n = n;
	for (size_t i = 0; i < n; i++)
		call->items[i].call = call;
	net_sleeper_add(&call->sleeper);
	net_unrestartable(true);
	ready = wait_until(call, fds, net_deadline_in(ns));
	net_unrestartable(false);
	net_cleanup_run(call_end, call);
	errno = saved;
	return ready;
}

long net_poll_fds(struct pollfd *fds, size_t n, int64_t ns)
{
	long ready;

	if (n > NET_FDS_MAX)
		return -EINVAL;
	if (!net_can_write(fds, n * sizeof(*fds)))
		return -EFAULT;
	ready = net_turn();
	if (ready == 0)
		ready = collect_events(fds, n);
	if (ready == 0 && ns != 0)
		ready = net_may_wait() ? sleep_through(fds, n, ns) : -EPERM;
	net_batch(ready);
	return ready;
}

/* ---- select ---- */

/* The kernel's layout of a set, whose length only the caller knows. */
#define WORD_BITS (8 * sizeof(long))

bool net_fd_is_in(int fd, const fd_set *set)
{
	const unsigned long *words = (const void *)set;

	return set &&
	       (words[(size_t)fd / WORD_BITS] >> (size_t)fd % WORD_BITS & 1);
}

static bool can_use(fd_set *set, int n)
{
	return !set || net_can_write(set, ((size_t)n + 7) / 8);
}

static void bit_set(fd_set *set, int fd)
{
	unsigned long *words = (void *)set;

	words[(size_t)fd / WORD_BITS] |= 1ul << (size_t)fd % WORD_BITS;
}

static void bits_clear(fd_set *set, int n)
{
	if (set)
		memset(set, 0,
		       ((size_t)n + WORD_BITS - 1) / WORD_BITS * sizeof(long));
}

static size_t to_poll(int n, const fd_set *in, const fd_set *out,
		      const fd_set *except, struct pollfd *fds)
{
	size_t count = 0;

	for (int fd = 0; fd < n; fd++) {
		short events =
			(short)((net_fd_is_in(fd, in) ? POLLIN : 0) |
				(net_fd_is_in(fd, out) ? POLLOUT : 0) |
				(net_fd_is_in(fd, except) ? POLLPRI : 0));

		if (events) {
			if (fds)
				fds[count] = (struct pollfd){.fd = fd,
							     .events = events};
			count++;
		}
	}
	return count;
}

/* Returns for which of its sets a descriptor is ready, as POLLIN and so on. */
static short ready_sets(const struct pollfd *p)
{
	short sets = 0;

	if (p->revents & (POLLIN | POLLHUP | POLLERR))
		sets |= POLLIN;
	if (p->revents & (POLLOUT | POLLERR))
		sets |= POLLOUT;
	if (p->revents & POLLPRI)
		sets |= POLLPRI;
	return (short)(sets & p->events);
}

/*
 * poll() returns when a descriptor has hung up, but select() only if it is in
 * the right set: any other is left out of the wait. Returns whether select()
 * may return.
 */
static bool leave_out_unasked(struct pollfd *fds, size_t count)
{
	bool returns = false;

	for (size_t i = 0; i < count; i++)
		if (fds[i].revents & POLLNVAL || ready_sets(&fds[i]))
			returns = true;
		else if (fds[i].revents)
			fds[i].fd = -1;
	return returns;
}

static long from_poll(const struct pollfd *fds, size_t count, int n, fd_set *in,
		      fd_set *out, fd_set *except)
{
	long bits = 0;

	for (size_t i = 0; i < count; i++)
		if (fds[i].revents & POLLNVAL)
			return -EBADF;
	bits_clear(in, n);
	bits_clear(out, n);
	bits_clear(except, n);
	for (size_t i = 0; i < count; i++) {
		short sets = ready_sets(&fds[i]);

		if (sets & POLLIN)
			bit_set(in, fds[i].fd), bits++;
		if (sets & POLLOUT)
			bit_set(out, fds[i].fd), bits++;
		if (sets & POLLPRI)
			bit_set(except, fds[i].fd), bits++;
	}
	return bits;
}

long net_select_fds(int n, fd_set *in, fd_set *out, fd_set *except, int64_t ns)
{
	int64_t until = net_deadline_in(ns);
	struct pollfd *fds;
	size_t count;
	long ready;

	if (n < 0 || (unsigned)n > NET_FDS_MAX)
		return -EINVAL;
	if (!can_use(in, n) || !can_use(out, n) || !can_use(except, n))
		return -EFAULT;
	count = to_poll(n, in, out, except, NULL);
	fds = calloc(count ? count : 1, sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	to_poll(n, in, out, except, fds);
	while ((ready = net_poll_fds(fds, count, ns)) > 0 &&
	       !leave_out_unasked(fds, count) && ns != 0)
		ns = net_time_left(until);
	if (ready >= 0)
		ready = from_poll(fds, count, n, in, out, except);
	free(fds);
	return ready;
}
