/*
 * Calls on descriptors of the kernel, which may block a coroutine.
 */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/*
 * In a coroutine, blocks until the kernel's descriptor is ready for `events`
 * (of poll()), unless it is O_NONBLOCK. Returns 0, or a negative errno that the
 * call must return.
 */
long net_kernel_wait(int fd, int events);
/*
 * net_kernel_wait() for calls that fail at once if the descriptor is no socket,
 * or is not listening.
 */
long net_kernel_wait_socket(int fd, int events);
long net_kernel_wait_accept(int fd);
/* These return -1 and set errno, like the calls that they replace. */
ssize_t net_kernel_recv(int fd, void *buf, size_t len, int flags);
ssize_t net_kernel_write(int fd, const void *buf, size_t len);
ssize_t net_kernel_writev(int fd, const struct iovec *iov, int n);
ssize_t net_kernel_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t net_kernel_sendfile(int out, int in, off_t *offset, size_t count);
int net_kernel_connect(int fd, const struct sockaddr *sa, socklen_t len);
