/*
 * The C library's own functions, which this library's functions replace and
 * call.
 */
#pragma once

#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct net_real {
	bool found; /* all were found */
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int fd, const struct sockaddr *addr, socklen_t len);
	int (*listen)(int fd, int backlog);
	int (*accept4)(int fd, struct sockaddr *addr, socklen_t *len,
		       int flags);
	int (*connect)(int fd, const struct sockaddr *addr, socklen_t len);
	int (*shutdown)(int fd, int how);
	int (*close)(int fd);
	int (*close_range)(unsigned first, unsigned last, int flags);
	void (*closefrom)(int first);
	int (*dup)(int fd);
	int (*dup2)(int fd, int to);
	int (*dup3)(int fd, int to, int flags);
	int (*fcntl)(int fd, int cmd, ...);
	int (*fcntl64)(int fd, int cmd, ...);
	int (*ioctl)(int fd, unsigned long request, ...);
	int (*getsockopt)(int fd, int level, int name, void *value,
			  socklen_t *len);
	int (*setsockopt)(int fd, int level, int name, const void *value,
			  socklen_t len);
	int (*getsockname)(int fd, struct sockaddr *addr, socklen_t *len);
	int (*getpeername)(int fd, struct sockaddr *addr, socklen_t *len);
	ssize_t (*read)(int fd, void *buf, size_t len);
	ssize_t (*readv)(int fd, const struct iovec *iov, int n);
	ssize_t (*recv)(int fd, void *buf, size_t len, int flags);
	ssize_t (*recvfrom)(int fd, void *buf, size_t len, int flags,
			    struct sockaddr *addr, socklen_t *addr_len);
	ssize_t (*recvmsg)(int fd, struct msghdr *msg, int flags);
	int (*recvmmsg)(int fd, struct mmsghdr *msgs, unsigned n, int flags,
			struct timespec *timeout);
	ssize_t (*write)(int fd, const void *buf, size_t len);
	ssize_t (*writev)(int fd, const struct iovec *iov, int n);
	ssize_t (*send)(int fd, const void *buf, size_t len, int flags);
	ssize_t (*sendto)(int fd, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t addr_len);
	ssize_t (*sendmsg)(int fd, const struct msghdr *msg, int flags);
	int (*sendmmsg)(int fd, struct mmsghdr *msgs, unsigned n, int flags);
	ssize_t (*sendfile)(int out, int in, off_t *offset, size_t count);
	int (*poll)(struct pollfd *fds, nfds_t n, int timeout);
	int (*ppoll)(struct pollfd *fds, nfds_t n, const struct timespec *ts,
		     const sigset_t *mask);
	int (*select)(int n, fd_set *in, fd_set *out, fd_set *except,
		      struct timeval *timeout);
	int (*pselect)(int n, fd_set *in, fd_set *out, fd_set *except,
		       const struct timespec *timeout, const sigset_t *mask);
	int (*epoll_create)(int size);
	int (*epoll_create1)(int flags);
	int (*epoll_ctl)(int epfd, int op, int fd, struct epoll_event *event);
	int (*epoll_wait)(int epfd, struct epoll_event *events, int max,
			  int timeout);
	int (*epoll_pwait)(int epfd, struct epoll_event *events, int max,
			   int timeout, const sigset_t *mask);
	int (*epoll_pwait2)(int epfd, struct epoll_event *events, int max,
			    const struct timespec *timeout,
			    const sigset_t *mask);
	unsigned (*sleep)(unsigned seconds);
	int (*usleep)(useconds_t us);
	int (*nanosleep)(const struct timespec *request, struct timespec *left);
	int (*clock_nanosleep)(clockid_t clock, int flags,
			       const struct timespec *request,
			       struct timespec *left);
	int (*getaddrinfo)(const char *node, const char *service,
			   const struct addrinfo *hints, struct addrinfo **out);
	int (*getnameinfo)(const struct sockaddr *addr, socklen_t len,
			   char *host, socklen_t host_len, char *service,
			   socklen_t service_len, int flags);
	struct hostent *(*gethostbyname)(const char *name);
	struct hostent *(*gethostbyname2)(const char *name, int family);
};

extern struct net_real net_real_calls;
void net_real_find(void);
/* The C library's definition of a call, which must exist. */
void *net_real_next(const char *name);

/* The functions are found at the start; calls before that find them first. */
static inline const struct net_real *net_real(void)
{
	if (__builtin_expect(!net_real_calls.found, 0))
		net_real_find();
	return &net_real_calls;
}
