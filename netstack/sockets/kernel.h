/*
 * Calls on descriptors of the kernel, which may block a coroutine.
 */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * In a coroutine, blocks until the kernel's descriptor is ready, unless it is
 * O_NONBLOCK. Returns 0, or an error for the call to return.
 */
long net_kernel_wait(int fd, int events);
/*
 * The same for calls that fail at once if the descriptor is no socket, or does
 * not listen.
 */
long net_kernel_wait_socket(int fd, int events);
long net_kernel_wait_accept(int fd);
/* These set errno, as the calls that they replace. */
ssize_t net_kernel_recv(int fd, void *buf, size_t len, int flags);
ssize_t net_kernel_write(int fd, const void *buf, size_t len);
ssize_t net_kernel_writev(int fd, const struct iovec *iov, int n);
ssize_t net_kernel_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t net_kernel_sendfile(int out, int in, off_t *offset, size_t count);
int net_kernel_connect(int fd, const struct sockaddr *sa, socklen_t len);
