/*
 * A stack in a child process (--in-child): nginx with one worker, gunicorn.
 *
 * The first process binds and listens, and its children serve. So it gets no
 * stack: its sockets are the kernel's, which may be bound to addresses that the
 * kernel does not have. The first call of a child that waits for clients of a
 * listening socket opens the stack there, and makes the stack's all listening
 * sockets that are bound to its addresses. The other processes keep theirs.
 *
 * One child at a time has the stack, since it has the links. Another one that
 * waits for clients, as a server starts it to reload, sleeps until the first
 * has ended.
 */
#include "netstack/sockets/run.h"
#include "netstack/sockets/whole.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, Linux 4.15 */
#endif

#define LOOK_NS 10000000L

static struct {
	pid_t parent;
	_Atomic pid_t *holder; /* in memory that children share; 0 if none */
} the;

static void prepare_bind(int fd)
{
	int one = 1, saved = errno;

	if (net_sock_is_fresh(fd) && /* TCP */
	    net_real()->setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one,
				   sizeof(one)) < 0)
		net_real()->setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one,
				       sizeof(one));
	errno = saved;
}

static bool is_tcp_listener(int fd)
{
	int value = 0, saved = errno;
	socklen_t len = sizeof(value);
	bool is_tcp;

	is_tcp = net_real()->getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value,
					&len) == 0 &&
		 value == IPPROTO_TCP;
	len = sizeof(value);
	value = 0;
	if (is_tcp)
		net_real()->getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value,
				       &len);
	errno = saved;
	return value;
}

static void adopt_listeners(void)
{
	int last = (int)sysconf(_SC_OPEN_MAX);

	net_whole_step_in();
	for (int fd = 0; fd < last && (unsigned)fd < NET_FDS_MAX; fd++) {
		int err = !net_fds[fd].reserved && is_tcp_listener(fd)
				  ? net_sock_adopt_listener(fd)
				  : 1;

		if (err < 0)
			fprintf(stderr,
				"coronet-run: the listening socket %d stays "
				"with the kernel: %s\n",
				fd, strerror(-err));
	}
	net_whole_step_out();
}

static bool take_stack(pid_t *holder)
{
	*holder = 0;
	if (atomic_compare_exchange_strong(the.holder, holder, getpid()))
		return true;
	return kill(*holder, 0) < 0 && errno == ESRCH &&
	       atomic_compare_exchange_strong(the.holder, holder, getpid());
}

/* Returns false after a signal handler has run, since the program may have to
 * react to it; its next call of this kind waits again. */
static bool await_stack(void)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	bool waits = false;
	pid_t holder;

	while (!take_stack(&holder)) {
		if (!waits)
			fprintf(stderr,
				"coronet-run: process %d waits for the end of "
				"process %d, which has the stack\n",
				(int)getpid(), (int)holder);
		waits = true;
		if (net_real()->nanosleep(&pause, NULL) < 0)
			return false;
	}
	return true;
}

/* The stack's threads, which wait for clients of their own, may call this
 * while it opens. */
static void await_clients(int fd)
{
	const struct net_late *late;
	int saved = errno;

	if (getpid() != the.parent && is_tcp_listener(fd) &&
	    (late = __atomic_exchange_n(&net_whole.late, NULL,
					__ATOMIC_ACQ_REL))) {
		if (await_stack()) {
			net_run_open();
			adopt_listeners();
		} else {
			__atomic_store_n(&net_whole.late, late,
					 __ATOMIC_RELEASE);
		}
	}
	errno = saved;
}

int net_run_open_late(void)
{
	static const struct net_late late = {prepare_bind, await_clients};

	the.holder = mmap(NULL, sizeof(*the.holder), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (the.holder == MAP_FAILED)
		return -ENOMEM;
	the.parent = getpid();
	net_whole.late = &late;
	return 0;
}

void net_run_left(void)
{
	if (the.holder)
		atomic_store(the.holder, 0);
}
