/*
 * Finds the C library's own functions.
 */
#include "netstack/sockets/real.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct net_real net_real_calls;

/*
 * The next definition behind ours in the order of libraries: the C library's,
 * or that of a sanitizer, which calls it.
 */
void *net_real_next(const char *name)
{
	void *call = dlsym(RTLD_NEXT, name);

	if (!call) {
		fprintf(stderr,
			"coronet: the C library has no %s(): libcoronet-sockets"
			" needs glibc 2.36, linked dynamically\n",
			name);
		abort();
	}
	return call;
}

#define FIND(name) net_real_calls.name = net_real_next(#name)

/* A constructor, since dlsym() may allocate and a signal may be first. */
__attribute__((constructor)) void net_real_find(void)
{
	FIND(socket), FIND(bind), FIND(listen), FIND(accept4), FIND(connect);
	FIND(shutdown), FIND(close), FIND(close_range);
	FIND(closefrom);
	FIND(dup), FIND(dup2), FIND(dup3);
	FIND(fcntl), FIND(fcntl64), FIND(ioctl);
	FIND(getsockopt), FIND(setsockopt);
	FIND(getsockname), FIND(getpeername);
	FIND(read), FIND(readv), FIND(recv), FIND(recvfrom), FIND(recvmsg);
	FIND(recvmmsg), FIND(sendmmsg);
	FIND(write), FIND(writev), FIND(send), FIND(sendto), FIND(sendmsg);
	FIND(sendfile);
	FIND(poll), FIND(ppoll), FIND(select), FIND(pselect);
	FIND(epoll_create), FIND(epoll_create1), FIND(epoll_ctl);
	FIND(epoll_wait), FIND(epoll_pwait), FIND(epoll_pwait2);
	FIND(sleep), FIND(usleep), FIND(nanosleep), FIND(clock_nanosleep);
	FIND(getaddrinfo), FIND(getnameinfo);
	FIND(gethostbyname), FIND(gethostbyname2);
	net_real_calls.found = true;
}
