/*
 * epoll over both kinds of descriptors.
 *
 * A set is an epoll set of the kernel, under its number, with the kernel's
 * descriptors as members. Sockets of the stack are members of a separate list,
 * which the first one creates. Those that may be ready are in a queue: an event
 * of a socket puts it there, and epoll_wait() removes it when it finds nothing,
 * so that the cost of a large set depends on its ready members. The kernel is
 * queried while its set has members.
 *
 * All registrations are stored by number, the kernel's as well: a program may
 * add a socket before connect() makes it a socket of the stack.
 */
#include "netstack/sockets/whole.h"
#include "netstack/sockets/polling.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT &&
		      EPOLLRDHUP == POLLRDHUP && EPOLLERR == POLLERR &&
		      EPOLLHUP == POLLHUP && EPOLLRDNORM == POLLRDNORM &&
		      EPOLLWRNORM == POLLWRNORM,
	      "both calls name events alike");

#define ALWAYS (EPOLLERR | EPOLLHUP)

struct member {
	struct net_sock_node node; /* first; in its socket's list, if ours */
	struct net_epoll *set;
	struct net_sock *sock; /* NULL: the kernel's */
	bool nested; /* the kernel's, and a set that has some of ours */
	struct epoll_event event;
	int fd;
	bool queued;
	bool disabled;		      /* EPOLLONESHOT */
	struct member *next, **pprev; /* in the queue */
};

struct net_epoll {
	unsigned fds;	   /* descriptors */
	unsigned uses;	   /* calls that wait */
	int epfd;	   /* the first descriptor */
	unsigned kernels;  /* members of the kernel's, as far as we know */
	bool unknown;	   /* it had some before we were asked */
	bool kernels_turn; /* ours took all the room last time */
	struct member **by_fd;
	size_t room;
	struct member *head, **tail; /* the queue */
	struct net_sock_node *nodes; /* sets and calls that wait for this one */
	struct net_waitq waitq;
	struct coro_fd_watch kernel;
	struct net_epoll *next, **pprev; /* of the thread */
};

/* ---- the queue ---- */

static void queue_add(struct member *m)
{
	struct net_epoll *set = m->set;

	if (m->queued)
		return;
	m->queued = true;
	m->next = NULL;
	m->pprev = set->tail;
	*set->tail = m;
	set->tail = &m->next;
}

static void queue_remove(struct member *m)
{
	if (!m->queued)
		return;
	m->queued = false;
	*m->pprev = m->next;
	if (m->next)
		m->next->pprev = m->pprev;
	else
		m->set->tail = m->pprev;
}

static void set_wake(struct net_epoll *set)
{
	struct net_sock_node *next;

	net_waitq_wake(&set->waitq);
	for (struct net_sock_node *node = set->nodes; node; node = next) {
		next = node->next;
		node->fn(node, POLLIN);
	}
}

static void on_news(struct net_sock_node *node, unsigned events)
{
	struct member *m = (struct member *)node;

	queue_add(m);
	set_wake(m->set);
}

bool net_epoll_is_node(const struct net_sock_node *node)
{
	return node->fn == on_news;
}

/* ---- members ---- */

static struct member *find_member(const struct net_epoll *set, int fd)
{
	return fd >= 0 && (size_t)fd < set->room ? set->by_fd[fd] : NULL;
}

static int room_for(struct net_epoll *set, int fd)
{
	size_t room = set->room ? set->room : 64;
	struct member **grown;

	while (room <= (size_t)fd)
		room *= 2;
	if (room == set->room)
		return 0;
	grown = realloc(set->by_fd, room * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + set->room, 0, (room - set->room) * sizeof(*grown));
	set->by_fd = grown;
	set->room = room;
	return 0;
}

static void member_free(struct member *m)
{
	queue_remove(m);
	net_node_remove(&m->node);
	m->set->by_fd[m->fd] = NULL;
	m->set->kernels -= !m->sock;
	free(m);
}

void net_epoll_node_gone(struct net_sock_node *node)
{
	member_free((struct member *)node);
}

static void watch_sock(struct member *m)
{
	m->node.fn = on_news;
	m->node.events = m->event.events;
	net_node_remove(&m->node);
	net_node_add(&m->sock->nodes, &m->node);
	if (net_sock_events(m->sock) & (m->event.events | ALWAYS)) {
		queue_add(m);
		set_wake(m->set);
	}
}

static unsigned events_of(const struct member *m)
{
	if (m->nested)
		return net_epoll_is_ready(m->fd) ? EPOLLIN | EPOLLRDNORM : 0;
	return net_sock_events(m->sock);
}

/* Watches a set that has sockets of ours: the kernel knows only its others. */
static void watch_nested(struct member *m)
{
	m->node.fn = on_news;
	m->nested = net_epoll_add_node(m->fd, &m->node);
	if (m->nested)
		on_news(&m->node, POLLIN);
}

static int member_new(struct net_epoll *set, int fd, struct net_sock *sock,
		      const struct epoll_event *event)
{
	struct member *m = find_member(set, fd);
	int err = m ? 0 : room_for(set, fd);

	if (err < 0)
		return err;
	if (m) /* of a number that was closed */
		member_free(m);
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->set = set;
	m->fd = fd;
	m->sock = sock;
	m->event = *event;
	set->by_fd[fd] = m;
	set->kernels += !sock;
	if (sock) {
		watch_sock(m);
	} else {
		watch_nested(m);
		set_wake(set); /* a call that waits has to watch it */
	}
	return 0;
}

/* ---- sets ---- */

static struct net_epoll *set_new(void)
{
	struct net_epoll *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->tail = &set->head;
	set->next = net_sockets_here()->epolls;
	set->pprev = &net_sockets_here()->epolls;
	if (set->next)
		set->next->pprev = &set->next;
	net_sockets_here()->epolls = set;
	return set;
}

static void set_free(struct net_epoll *set)
{
	*set->pprev = set->next;
	if (set->next)
		set->next->pprev = set->pprev;
	free(set);
}

void net_epoll_hold(struct net_epoll *set)
{
	set->fds++;
}

void net_epoll_put(struct net_epoll *set)
{
	if (--set->fds > 0)
		return;
	for (size_t fd = 0; fd < set->room; fd++)
		if (set->by_fd[fd])
			member_free(set->by_fd[fd]);
	while (set->nodes) { /* the kernel drops it from sets, too */
		struct net_sock_node *node = set->nodes;

		net_node_remove(node);
		node->fn(node, POLLNVAL);
	}
	free(set->by_fd);
	set->by_fd = NULL;
	set->room = 0;
	coro_fd_unwatch(&set->kernel);
	net_waitq_wake(&set->waitq);
	if (set->uses == 0)
		set_free(set);
}

struct net_epoll *net_epoll_next(const struct net_epoll *set)
{
	return set->next;
}

void net_epoll_wake(struct net_epoll *set)
{
	net_waitq_wake(&set->waitq);
}

int net_epoll_new(int fd)
{
	int err = net_sockets_open();
	struct net_epoll *set = err == 0 ? set_new() : NULL;

	if (err < 0)
		return err;
	if (!set)
		return -ENOMEM;
	set->epfd = fd;
	err = net_fd_set_epoll(fd, set);
	if (err < 0)
		set_free(set);
	return err;
}

/* Returns the set of a number that was made outside coroutines, when the first
 * socket of ours is added. The kernel says whether it is one. */
static long set_of(int epfd, int fd, struct net_epoll **out)
{
	long err = net_fd_epoll(epfd, out, "epoll_ctl");

	if (err)
		return err < 0 ? err : 0;
	if (net_real()->epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL) == 0)
		return -EINVAL;
	if (errno != ENOENT)
		return -errno;
	err = net_epoll_new(epfd);
	if (err == 0)
		net_fd_epoll(epfd, out, "epoll_ctl");
	if (err == 0)
		(*out)->unknown = true;
	return err;
}

/* ---- epoll_ctl ---- */

static long control_own(struct net_epoll *set, int op, int fd,
			struct net_sock *sock, struct epoll_event *event)
{
	struct member *m = find_member(set, fd);

	if (m && m->sock != sock)
		m = NULL; /* of a number that was closed */
	if (event && event->events & EPOLLEXCLUSIVE &&
	    (op == EPOLL_CTL_MOD || event->events & EPOLLONESHOT))
		return -EINVAL;
	switch (op) {
	case EPOLL_CTL_ADD:
		if (!event)
			return -EFAULT;
		return m ? -EEXIST : member_new(set, fd, sock, event);
	case EPOLL_CTL_MOD:
		if (!event)
			return -EFAULT;
		if (!m)
			return -ENOENT;
		if (m->event.events & EPOLLEXCLUSIVE)
			return -EINVAL;
		m->event = *event;
		m->disabled = false;
		watch_sock(m);
		return 0;
	case EPOLL_CTL_DEL:
		if (!m)
			return -ENOENT;
		member_free(m);
		return 0;
	default:
		return -EINVAL;
	}
}

static long control_kernels(struct net_epoll *set, int epfd, int op, int fd,
			    struct epoll_event *event)
{
	struct member *m = find_member(set, fd);

	if (net_real()->epoll_ctl(epfd, op, fd, event) < 0)
		return -errno;
	if (op == EPOLL_CTL_ADD)
		return member_new(set, fd, NULL, event);
	if (!m || m->sock)
		return 0;
	if (op == EPOLL_CTL_DEL) {
		member_free(m);
		return 0;
	}
	m->event = *event;
	if (m->nested)
		on_news(&m->node, POLLIN);
	return 0;
}

long net_epoll_control(int epfd, int op, int fd, struct epoll_event *event)
{
	struct net_epoll *set = NULL;
	struct net_sock *sock;
	int whose = net_fd_sock(fd, &sock, "epoll_ctl");
	long err;

	if (whose < 0)
		return whose;
	if (event && !net_can_read(event, sizeof(*event)))
		return -EFAULT;
	err = whose ? set_of(epfd, fd, &set)
		    : net_fd_epoll(epfd, &set, "epoll_ctl");
	if (err < 0)
		return err;
	if (whose)
		return control_own(set, op, fd, sock, event);
	if (set)
		return control_kernels(set, epfd, op, fd, event);
	return net_real()->epoll_ctl(epfd, op, fd, event) < 0 ? -errno : 0;
}

/* Is one of ours ready in a set? The kernel is asked about the rest. */
bool net_epoll_is_ready(int fd)
{
	struct net_epoll *set;

	if (net_fd_epoll(fd, &set, "poll") <= 0)
		return false;
	for (struct member *m = set->head; m; m = m->next)
		if (!m->disabled && events_of(m) & (m->event.events | ALWAYS))
			return true;
	return false;
}

bool net_epoll_add_node(int fd, struct net_sock_node *node)
{
	struct net_epoll *set;

	if (net_fd_epoll(fd, &set, "poll") <= 0)
		return false;
	net_node_add(&set->nodes, node);
	return true;
}

void net_epoll_forget(int fd)
{
	for (struct net_epoll *set = net_sockets_here()->epolls; set;
	     set = set->next) {
		struct member *m = find_member(set, fd);

		if (m && !m->sock)
			member_free(m);
	}
}

void net_epoll_adopt(int fd, struct net_sock *sock)
{
	for (struct net_epoll *set = net_sockets_here()->epolls; set;
	     set = set->next) {
		struct member *m = find_member(set, fd);

		if (!m || m->sock)
			continue;
		/* The kernel drops a member that is closed; a new socket may
		 * have got its number. */
		if (net_fds[set->epfd].epoll == set &&
		    net_real()->epoll_ctl(set->epfd, EPOLL_CTL_DEL, fd, NULL) <
			    0) {
			member_free(m);
			continue;
		}
		m->sock = sock;
		set->kernels--;
		watch_sock(m);
	}
}

void net_epoll_release(int fd, struct net_sock *sock)
{
	for (struct net_epoll *set = net_sockets_here()->epolls; set;
	     set = set->next) {
		struct member *m = find_member(set, fd);

		if (!m || m->sock != sock || net_fds[set->epfd].epoll != set)
			continue;
		if (net_real()->epoll_ctl(set->epfd, EPOLL_CTL_ADD, fd,
					  &m->event) < 0)
			continue; /* it goes with the socket */
		queue_remove(m);
		net_node_remove(&m->node);
		m->sock = NULL;
		set->kernels++;
		set_wake(set); /* a call that waits has to watch it */
	}
}

/* ---- epoll_wait ---- */

static int take_own(struct net_epoll *set, struct epoll_event *events, int max)
{
	struct member *last = NULL, *m;
	int n = 0;

	while (n < max && (m = set->head) && m != last) {
		unsigned now = events_of(m) & (m->event.events | ALWAYS);

		queue_remove(m);
		if (m->disabled || !now)
			continue;
		events[n].events = now;
		events[n++].data = m->event.data;
		if (m->event.events & EPOLLONESHOT) {
			m->disabled = true;
		} else if (!(m->event.events & EPOLLET)) {
			if (!last)
				last = m; /* level-triggered: behind the rest */
			queue_add(m);
		}
	}
	return n;
}

static int take_kernels(struct net_epoll *set, int epfd,
			struct epoll_event *events, int max)
{
	int n = 0;

	if ((set->kernels || set->unknown) && max > 0)
		do
			n = net_real()->epoll_wait(epfd, events, max, 0);
		while (n < 0 && errno == EINTR && !net_handled());
	return n < 0 ? -errno : n;
}

/* Whichever kind found no room the last time is asked first. */
static long collect_events(struct net_epoll *set, int epfd,
			   struct epoll_event *events, int max)
{
	int ours = 0, theirs = 0;

	if (set->kernels_turn)
		theirs = take_kernels(set, epfd, events, max);
	if (theirs >= 0)
		ours = take_own(set, events + theirs, max - theirs);
	if (!set->kernels_turn)
		theirs = take_kernels(set, epfd, events + ours, max - ours);
	set->kernels_turn = ours == max;
	if (theirs < 0)
		return ours ? ours : theirs;
	return ours + theirs;
}

static void on_kernels(struct coro_fd_watch *watch, int events)
{
	struct net_epoll *set =
		(void *)((char *)watch - offsetof(struct net_epoll, kernel));

	net_waitq_wake(&set->waitq);
}

static void release_set(void *arg)
{
	struct net_epoll *set = arg;

	if (--set->uses == 0 && set->fds == 0)
		set_free(set);
}

static long sleep_through(struct net_epoll *set, int epfd,
			  struct epoll_event *events, int max, int64_t deadline)
{
	long ready = 0, err = 0;

	while (err == 0 && ready == 0) {
		set->kernel.fn = on_kernels;
		if (set->kernels || set->unknown)
			err = coro_fd_watch(epfd, POLLIN, &set->kernel);
		if (err == 0 || err == -EBUSY)
			err = net_waitq_wait(&set->waitq, deadline);
		if (set->fds == 0) /* it was closed */
			return -EBADF;
		ready = collect_events(set, epfd, events, max);
	}
	if (ready)
		return ready;
	return err == -ETIMEDOUT && net_has_passed(deadline) ? 0 : err;
}

long net_epoll_await(struct net_epoll *set, int epfd,
		     struct epoll_event *events, int max, int64_t ns)
{
	int saved = errno;
	long ready;

	if (max <= 0 || max > (int)(INT32_MAX / sizeof(*events)))
		return -EINVAL;
	if (!net_can_write(events, sizeof(*events)))
		return -EFAULT;
	set->uses++; /* another thread may close it meanwhile */
	ready = net_turn();
	if (ready == 0)
		ready = set->fds ? collect_events(set, epfd, events, max)
				 : -EBADF;
	release_set(set);
	net_batch(ready);
	if (ready || ns == 0)
		return ready;
	if (!net_may_wait())
		return -EPERM;
	ready = net_cleanup_push(release_set, set);
	if (ready < 0)
		return ready;
	set->uses++;
	net_unrestartable(true);
	ready = sleep_through(set, epfd, events, max, net_deadline_in(ns));
	net_unrestartable(false);
	net_cleanup_run(release_set, set);
	net_batch(ready);
	errno = saved;
	return ready;
}
