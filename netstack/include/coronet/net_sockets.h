/*
 * coronet: the POSIX calls in coroutines, libcoronet-sockets.
 *
 * A program that links this library calls socket(), connect(), read(), poll(),
 * epoll_wait(), sleep() and their kin as ever, and so do the libraries it uses.
 * In a coroutine of a stack's thread such a call blocks the coroutine and not
 * the thread. Everywhere else, in other threads and outside coroutines, it is
 * the C library's own. docs/unchanged.md lists the calls and what differs.
 *
 * TCP sockets (AF_INET, AF_INET6, SOCK_STREAM) whose address is the stack's are
 * connections of the stack; all others, and every other descriptor, are the
 * kernel's. bind() and connect() decide. A descriptor is a number that the
 * kernel has given, so that it is unique, counts against RLIMIT_NOFILE, and is
 * closed by exec if it is marked so.
 *
 * A socket of the stack belongs to the thread that made it. In another thread,
 * each call on it fails with EPERM, and a line in the log tells so; in a child
 * after fork() each fails with ENOTSUP. close() closes the child's copy alone.
 *
 * errno is a coroutine's own: what other coroutines do while a call waits does
 * not show. Besides those of POSIX, a call that blocks can end with
 *   ECANCELED  coro_cancel() was called on the coroutine, or the stack stops
 *   ETIMEDOUT  the coroutine's deadline has passed
 *   EBADF      another coroutine has closed the descriptor meanwhile
 *   EPERM      outside a coroutine, for a socket of the stack that blocks
 * Signal handlers run as ever, but no call ends with EINTR because of them.
 */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Says which addresses are the stack's: prefixes such as
 * "10.9.0.0/16,fd00::/64", separated by commas; "" for none at all. An address
 * that one of them contains is the stack's, be it connected to or bound; so
 * that a server on 0.0.0.0 is the stack's, 0.0.0.0/32 or 0.0.0.0/0 must be
 * among them. NULL, as it begins without the environment variable
 * CORONET_ADDRS: what connects to any unicast address that the stack has a
 * route to, loopback apart, and what is bound to an address of the stack's or
 * listens at 0.0.0.0 or ::.
 *
 * It holds for the whole program and for what is bound and connected from now
 * on. From any thread, as long as no other thread calls it or binds or connects
 * at that time. Returns 0, -EINVAL (not a list of prefixes), -E2BIG (more than
 * NET_SOCKETS_PREFIXES); after an error nothing has changed.
 */
int net_sockets_addrs(const char *prefixes);

#define NET_SOCKETS_PREFIXES 64

/* Whether a descriptor is a socket of the stack, whosever. From any thread. */
bool net_sockets_ours(int fd);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
