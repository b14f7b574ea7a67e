/*
 * coronet: the POSIX calls in coroutines, libcoronet-sockets.
 *
 * A program that links this library calls socket(), connect(), read(), poll(),
 * epoll_wait(), sleep() and similar functions as usual, and so do the libraries
 * that it uses. In a coroutine of a stack's thread such a call blocks the
 * coroutine and not the thread. In other threads and outside coroutines it is
 * the C library's own. docs/unchanged.md lists the calls and the differences.
 *
 * TCP and UDP sockets (AF_INET, AF_INET6) whose address is the stack's are the
 * stack's; all others, and every other descriptor, are the kernel's. bind(),
 * connect() and, for UDP, the destination of the first datagram decide. The
 * number of a descriptor comes from the kernel, so it is unique, counts against
 * RLIMIT_NOFILE, and exec closes it if it is marked close-on-exec.
 *
 * A socket of the stack belongs to the thread that made it. In another thread
 * each call on it fails with EPERM, and a line is logged; in a child after
 * fork() each call fails with ENOTSUP, except close(), which closes only the
 * child's copy.
 *
 * errno is private to a coroutine: other coroutines do not change it while a
 * call waits. Besides the errors of POSIX, a call that blocks can fail with
 *   ECANCELED  coro_cancel() was called on the coroutine, or the stack stops
 *   ETIMEDOUT  the coroutine's deadline has passed
 *   EBADF      another coroutine has closed the descriptor meanwhile
 *   EPERM      outside a coroutine, for a socket of the stack that blocks
 * Signal handlers run as usual, but no call ends with EINTR because of them.
 */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Sets which addresses are the stack's: prefixes such as
 * "10.9.0.0/16,fd00::/64", separated by commas; "" for none. A socket that is
 * connected or bound to an address in one of them, or sends its first datagram
 * to one, is the stack's. A server on 0.0.0.0 uses the stack only if the list
 * has 0.0.0.0/32. A prefix has at least one bit, so 0.0.0.0/0 is refused.
 *
 * With NULL, the default without the environment variable CORONET_ADDRS, a
 * socket is the stack's if it is connected to a unicast address, except
 * loopback, that the stack has a route to, or if it is bound to an address of
 * the stack, 0.0.0.0 or ::.
 *
 * The text is copied. The setting holds for the whole program, and for sockets
 * that are bound and connected from now on. It may be called from any thread
 * while no other thread calls it, bind() or connect(). Returns 0, -EINVAL (not
 * a list of prefixes) or -E2BIG (more than NET_SOCKETS_PREFIXES); after an
 * error nothing has changed.
 */
int net_sockets_addrs(const char *prefixes);

#define NET_SOCKETS_PREFIXES 64 /* prefixes that net_sockets_addrs() takes */

/*
 * Returns whether a descriptor is a socket of the stack, of any thread. From
 * any thread.
 */
bool net_sockets_ours(int fd);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
