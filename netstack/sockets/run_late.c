/*
 * A stack in a child process (--in-child): nginx with one worker, gunicorn.
 *
 * The first process binds and listens, and its children serve. So it gets no
 * stack: its sockets are the kernel's, which may be bound to addresses that the
 * kernel does not have. The first call of a child that waits for clients of a
 * listening socket opens the stack there, and makes the stack's all listening
 * sockets that are bound to its addresses. The other processes keep theirs.
 */
#include "netstack/sockets/run.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, Linux 4.15 */
#endif

static struct {
	pid_t parent;
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

static bool listens(int fd)
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
		int err = !net_fds[fd].reserved && listens(fd)
				  ? net_sock_adopt_listener(fd)
				  : 1;

		if (err < 0)
			fprintf(stderr,
				"coronet-run: the listening socket %d stays "
				"the kernel's: %s\n",
				fd, strerror(-err));
	}
	net_whole_step_out();
}

/* The stack's threads, which wait for clients of their own, may call this
 * while it opens. */
static void await_clients(int fd)
{
	int saved = errno;

	if (getpid() != the.parent && listens(fd) &&
	    __atomic_exchange_n(&net_whole.late, NULL, __ATOMIC_ACQ_REL)) {
		net_run_open();
		adopt_listeners();
	}
	errno = saved;
}

void net_run_open_late(void)
{
	static const struct net_late late = {prepare_bind, await_clients};

	the.parent = getpid();
	net_whole.late = &late;
}
