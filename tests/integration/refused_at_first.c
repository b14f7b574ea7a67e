/*
 * Preloaded: refuses a program's first three connects of SOCK_SEQPACKET
 * sockets, which memif's client uses.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

typedef int connect_fn(int fd, const struct sockaddr *addr, socklen_t len);

static int is_refused(int fd)
{
	static _Atomic int tries;
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_SEQPACKET && tries++ < 3;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	void *found = dlsym(RTLD_NEXT, "connect");
	connect_fn *connect;

	if (is_refused(fd)) {
		errno = ECONNREFUSED;
		return -1;
	}
	memcpy(&connect, &found, sizeof(connect)); /* ISO C has no such cast */
	return connect(fd, addr, len);
}
