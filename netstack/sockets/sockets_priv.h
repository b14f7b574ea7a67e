/*
 * POSIX sockets on the stack, under the kernel's descriptor numbers.
 *
 * Layers: hook_*.c defines the calls that programs make, and turns results into
 * errno. Each call goes on to a socket of the stack (stream.c, connect.c,
 * listen.c, options.c; UDP: dgram*.c), which returns a negative errno, or to
 * the kernel (kernel.c). poll.c and epoll.c wait for both. All of them use only
 * public calls of the stack.
 *
 * A connection here always has a watch (net_set_watch()), so that no call on it
 * blocks. Only wait.c waits, and only there does it matter whether the caller
 * is a coroutine.
 *
 * A socket belongs to a thread and is used by that thread alone. Threads share
 * the table of descriptors, each entry of which belongs to its owner.
 *
 * In a whole program (whole.c) the sockets belong to all of its threads, which
 * take turns at running the stack (baton.c). run_main.c and run_signals.c make
 * the library that coronet-run preloads.
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <coronet/coro_io.h>
#include <coronet/coro_sync.h>
#include <coronet/net.h>
#include <coronet/net_sockets.h>

#include "netstack/sockets/kernel.h"
#include "netstack/sockets/real.h"
#include "netstack/sockets/touch.h"

#define NET_HOOK __attribute__((visibility("default")))

/* ---- wait.c ---- */

/*
 * A wait queue of coroutines and threads. net_waitq_wake() wakes all of them,
 * and each checks again whether it may go on. A coroutine that left the queue
 * at its deadline may cause one needless check later.
 */
struct net_waitq {
	struct coro_sem sem;
	unsigned waiters; /* coroutines */
	LIST_HEAD(, net_waiter) threads;
};

void net_waiters_wake(struct net_waitq *waitq); /* its threads */

/*
 * Blocks the caller until it is woken or the deadline (ns) has passed;
 * preserves errno. Returns 0, -ETIMEDOUT (this or the coroutine's deadline),
 * -ECANCELED, -EINTR (a signal, in a whole program), -EPERM (no coroutine).
 */
int net_waitq_wait(struct net_waitq *waitq, int64_t deadline_ns);

static inline bool net_waitq_is_used(const struct net_waitq *waitq)
{
	return waitq->waiters || !LIST_EMPTY(&waitq->threads);
}

static inline void net_waitq_wake(struct net_waitq *waitq)
{
	for (; waitq->waiters; waitq->waiters--)
		coro_sem_post(&waitq->sem);
	if (unlikely(!LIST_EMPTY(&waitq->threads)))
		net_waiters_wake(waitq);
}

/*
 * Used around the wait of a call: fn(arg) runs after the wait, or when the
 * coroutine is destroyed in it.
 */
static inline int net_cleanup_push(void (*fn)(void *arg), void *arg)
{
	return coro_self() ? coro_cleanup_push(fn, arg) : 0;
}

static inline void net_cleanup_run(void (*fn)(void *arg), void *arg)
{
	if (coro_self())
		coro_cleanup_pop(true);
	else
		fn(arg);
}

/* A receiver of a socket's events: a poll() call or an epoll set. */
struct net_sock_node {
	struct net_sock_node *next, **pprev; /* pprev NULL: in no list */
	void (*fn)(struct net_sock_node *node, unsigned events);
	unsigned events; /* POLLIN and so on */
};

void net_node_add(struct net_sock_node **list, struct net_sock_node *node);
void net_node_remove(struct net_sock_node *node);

/* A poll() or epoll_wait() that waits; a stack that stops wakes it, too. */
struct net_sleeper {
	struct net_sleeper *next, **pprev;
	struct net_waitq waitq;
};

void net_sleeper_add(struct net_sleeper *sleeper);
void net_sleeper_remove(struct net_sleeper *sleeper);

/* Returns now + ns without overflow; ns below 0: never. */
int64_t net_deadline_in(int64_t ns);
/* Returns the ns until then, 0 if it has passed, or -1 for never. */
int64_t net_time_left(int64_t deadline_ns);
bool net_has_passed(int64_t deadline_ns);

/* ---- sockets ---- */

enum net_sock_state {
	NET_SOCK_BOUND,	     /* to an address of the stack, or to any */
	NET_SOCK_CONNECTING, /* its helper, a coroutine, dials */
	NET_SOCK_CONNECTED,
	NET_SOCK_FAILED, /* connecting failed: err, until it is reported */
	NET_SOCK_LISTENING,
	NET_SOCK_DGRAM,	 /* UDP, connected or not (dgram.h) */
	NET_SOCK_CLOSED, /* no descriptor; a call still waits */
};

/* Options that getsockopt() returns and accepted sockets inherit. */
struct net_sock_opts {
	bool nodelay, cork, keepalive;
	int keep_idle_s, keep_interval_s, keep_count;
	unsigned user_timeout_ms;
	struct {
		int on, seconds;
	} linger;
	int64_t recv_timeout_ns, send_timeout_ns; /* below 0: none */
	bool reuse_port;
	unsigned recv_low;    /* SO_RCVLOWAT in bytes, at least 1 */
	uint64_t pacing_rate; /* bytes a second; 0: no limit */
	char cc[16];	      /* congestion control; "": the stack's */
};

/* Connections that wait for accept(), in addition to the stack's backlog. */
#define NET_SOCK_QUEUE 16u

struct net_sock_port;

struct net_sock_listener {
	struct net_sock *sock;
	struct net_sock_port *port;	     /* NULL: it does not listen */
	TAILQ_ENTRY(net_sock_listener) link; /* of the port's */
	struct net_conn *queue[NET_SOCK_QUEUE];
	unsigned head, n;
};

struct net_sock {
	struct net_watch watch;	       /* first */
	struct net_conn *conn;	       /* owned; NULL: none */
	struct net_sock_listener *lst; /* owned, while it listens */
	struct net_dgram *dgram;       /* owned; NULL: TCP */
	uint8_t state;		       /* enum net_sock_state */
	bool nonblock;		       /* O_NONBLOCK */
	bool v6;		       /* AF_INET6 */
	bool v6_only;
	bool rd_shut, wr_shut;
	bool reported;	      /* a connect() has returned 0 */
	bool err_reported;    /* a call has returned why the connection ended */
	bool aborts;	      /* its connect() is being ended */
	bool no_space;	      /* no room at the last check, or no check yet */
	uint32_t received;    /* watch.received at the last check */
	unsigned fds;	      /* descriptors */
	unsigned uses;	      /* waiting calls and its own coroutines */
	unsigned disconnects; /* connects to AF_UNSPEC while it connected, or
				 was connected */
	struct net_waitq readable, writable;
	struct net_sock_node *nodes;
	struct coro *helper; /* dials, or accepts; or NULL */
	int err;	     /* SO_ERROR, positive */
	struct net_addr local, remote;
	struct net_addr dials_from; /* while it connects */
	struct net_sock_opts opts;
	struct net_sock *next, **pprev; /* in its net_sockets */
};

struct net_sock *net_sock_new(void);
void net_sock_free(struct net_sock *sock);

static inline void net_sock_hold(struct net_sock *sock)
{
	sock->uses++;
}

static inline void net_sock_put(struct net_sock *sock)
{
	if (--sock->uses == 0 && sock->fds == 0)
		net_sock_free(sock);
}

/* ---- table.c ---- */

/* The sockets of a thread. Its address marks the table entries that it owns. */
struct net_sockets {
	struct net_stack *stack; /* NULL: no sockets yet */
	bool stopping;
	struct net_sock *socks;
	struct net_epoll *epolls;
	struct net_sleeper *sleepers;
};
extern _Thread_local struct net_sockets net_sockets_own
	__attribute__((visibility("hidden")));
/* The sockets of a whole program, while this thread holds the baton. */
extern _Thread_local struct net_sockets *net_sockets_given
	__attribute__((visibility("hidden")));

static inline struct net_sockets *net_sockets_here(void)
{
	struct net_sockets *given = net_sockets_given;

	return unlikely(given) ? given : &net_sockets_own;
}

struct net_epoll;

struct net_fd {
	_Atomic(struct net_sockets *) owner; /* NULL: the kernel's */
	struct net_sock *sock;		     /* either this or epoll is set */
	struct net_epoll *epoll;
	bool reserved; /* used by the stack itself: net_whole_keeps() */
};

#define NET_FDS_MAX (1u << 20)
extern struct net_fd *net_fds;
/* One more than the highest number that ever had an entry. */
extern _Atomic unsigned net_fds_end;
void net_fd_has_entry(int fd); /* updates it */

/* Returns where to stop when looking at the entries up to `last`. */
static inline unsigned net_fds_until(unsigned last)
{
	unsigned end = atomic_load_explicit(&net_fds_end, memory_order_acquire);

	return last < end ? last + 1 : end;
}

extern const volatile char *net_is_parent;

/* Returns whether this process is a forked child, with memory of its own. */
static inline bool net_is_child(void)
{
	return !*net_is_parent;
}

/* Logs why a call on fd fails. Returns -ENOTSUP (in a child) or -EPERM. */
int net_fd_refuse(const struct net_fd *entry, int fd, const char *call);

/*
 * Finds the socket of a descriptor. Returns 1 with *out, 0 if the descriptor is
 * the kernel's, or net_fd_refuse() if another thread owns it.
 */
static inline int net_fd_sock(int fd, struct net_sock **out, const char *call)
{
	struct net_fd *entry;

	*out = NULL;
	if (!net_fds || (unsigned)fd >= NET_FDS_MAX)
		return 0;
	entry = &net_fds[fd];
	if (!atomic_load_explicit(&entry->owner, memory_order_acquire))
		return 0;
	if (unlikely(entry->owner != net_sockets_here() || net_is_child()))
		return net_fd_refuse(entry, fd, call);
	*out = entry->sock;
	return entry->sock != NULL;
}

/* The calling thread's own socket; NULL: use net_fd_sock(). */
static inline struct net_sock *net_fd_own(int fd)
{
	struct net_fd *entry = &net_fds[fd];

	if (!net_fds || (unsigned)fd >= NET_FDS_MAX || net_is_child() ||
	    atomic_load_explicit(&entry->owner, memory_order_relaxed) !=
		    net_sockets_here())
		return NULL;
	return entry->sock;
}

/* net_fd_sock() for an epoll set that has sockets of the stack. */
static inline int net_fd_epoll(int fd, struct net_epoll **out, const char *call)
{
	struct net_fd *entry;

	*out = NULL;
	if (!net_fds || (unsigned)fd >= NET_FDS_MAX)
		return 0;
	entry = &net_fds[fd];
	if (!atomic_load_explicit(&entry->owner, memory_order_acquire) ||
	    !entry->epoll)
		return 0;
	if (entry->owner != net_sockets_here() || net_is_child())
		return net_fd_refuse(entry, fd, call);
	*out = entry->epoll;
	return 1;
}

/* Opens the calling thread's sockets on its stack. Returns 0 or -ENOMEM. */
int net_sockets_open(void);
/*
 * Closes all sockets of the thread, but not their descriptors. Called when a
 * whole program ends.
 */
void net_sockets_close_all(void);

/*
 * Enter a descriptor into the table, for the calling thread. Return 0 or
 * -EMFILE (beyond NET_FDS_MAX).
 */
int net_fd_set_sock(int fd, struct net_sock *sock);
int net_fd_set_epoll(int fd, struct net_epoll *epoll);

/* Makes `to` refer to the socket or epoll set of `from`, if it has one. */
void net_fd_copy(int from, int to);
/*
 * Returns whether this is a child of vfork(). Its calls before exec must not
 * change the tables, which it shares with its parent.
 */
bool net_fd_shares_memory(void);

/*
 * Removes descriptors that are about to be closed or overwritten. Returns 0, or
 * -EPERM if another thread owns one. In a child the sockets stay as they are.
 */
int net_fd_forget(int fd, const char *call);
int net_fd_forget_range(unsigned first, unsigned last, const char *call);

/*
 * fd: a number that the kernel has just returned, or -1. Drops an old entry for
 * it, which was closed without a call of this library. Returns fd; keeps errno.
 */
int net_fd_fresh(int fd);
/* net_fd_fresh() for all descriptors that a message brought (SCM_RIGHTS). */
void net_fd_fresh_from(struct msghdr *msg);
/*
 * The part of close() before the kernel closes fd. Returns 1 if fd was the
 * stack's, 0 if it is the kernel's, or -errno if fd must stay open. After 1,
 * the caller calls net_fd_gone(*lingers) once the number is closed, which waits
 * as SO_LINGER demands.
 */
int net_fd_let_go(int fd, struct net_sock **lingers);
void net_fd_gone(struct net_sock *lingers);

/* ---- hook_stdio.c ---- */

/* Writes what streams on sockets have buffered, as exit() does, but before the
 * stack closes. A stream that another thread has locked is left out. */
void net_streams_flush(void);

/* ---- addrs.c ---- */

/*
 * Returns 0, -EAFNOSUPPORT or -EINVAL (len is too short). An IPv4-mapped
 * address becomes IPv4.
 */
int net_addr_from_sockaddr(const struct sockaddr *sa, socklen_t len,
			   struct net_addr *out);
/* Fills *sa as accept() and getsockname() do; v6: as for an IPv6 socket. */
int net_addr_to_sockaddr(const struct net_addr *addr, bool v6,
			 struct sockaddr *sa, socklen_t *len);
bool net_addr_is_any(const struct net_addr *addr);
/*
 * Returns whether a socket that connects or is bound to the address is the
 * stack's.
 */
bool net_ours_to_connect(const struct net_addr *addr);
bool net_ours_to_bind(const struct net_addr *addr);

/* ---- events.c ---- */

/* The events that poll() reports for a socket now. */
unsigned net_sock_events(struct net_sock *sock);
/* Wakes and notifies all that wait for these events, which may have come. */
void net_sock_notify(struct net_sock *sock, unsigned events);
/* The watch of a socket's connection. */
void net_sock_changed(struct net_conn *conn, struct net_watch *watch);

/* ---- connect.c, listen.c ---- */

/* Returns whether fd is a TCP socket that was neither bound nor connected. */
bool net_sock_is_fresh(int fd);
/*
 * Makes a descriptor of the kernel the stack's if `addr` is the stack's to bind
 * or to connect to. Returns 1 with a new socket, 0 if it stays the kernel's, or
 * an error.
 */
int net_sock_adopt(int fd, const struct net_addr *addr, bool to_bind,
		   struct net_sock **out);
/*
 * Makes a socket that is bound to every address the kernel's, with that
 * binding. Returns 0 or an error of the kernel's bind().
 */
int net_sock_release(int fd, struct net_sock *sock);
/*
 * Makes a listening socket of the kernel the stack's, under its number, if it
 * is bound to an address of the stack. Returns 0, 1 (it stays the kernel's) or
 * an error of net_listen() or dup3().
 */
int net_sock_adopt_listener(int fd);
long net_sock_bind(struct net_sock *sock, const struct sockaddr *sa,
		   socklen_t len);
/* sa: the program's argument, for checks that need more than `to`. */
long net_sock_connect(struct net_sock *sock, const struct sockaddr *sa,
		      socklen_t len, const struct net_addr *to);
/* connect() to AF_UNSPEC: makes the socket a new one again. */
long net_sock_disconnect(struct net_sock *sock);
/*
 * Ends a connect() that is under way, which then fails with ECONNRESET. Returns
 * 0, -EBADF (the socket was closed meanwhile) or an error of net_waitq_wait().
 */
long net_sock_abort_connect(struct net_sock *sock);
long net_sock_listen(struct net_sock *sock, int backlog);
long net_sock_accept(struct net_sock *sock, struct sockaddr *sa, socklen_t *len,
		     int flags);
void net_sock_unlisten(struct net_sock *sock);
int net_sock_listener_set_cc(struct net_sock *sock, const char *name);
/* The port of a listening socket may have room for a client now. */
void net_sock_port_wake(struct net_sock *sock);
/* The stack has closed the port's listener and ended its coroutine. */
void net_sock_port_gone(struct net_sock *sock);
/* Chooses a port for a socket that is bound to port 0. */
void net_sock_choose_port(struct net_sock *sock);
/*
 * Returns whether another socket of the thread listens where this one is bound.
 */
bool net_sock_port_in_use(const struct net_sock *sock);
void net_sock_attach(struct net_sock *sock, struct net_conn *conn);
/*
 * Waits in a socket, at most until timeout_ns after the first wait (below 0: no
 * limit). *until, 0 at first, stores that time. Returns 0, -EAGAIN (the time
 * has passed), -EBADF (the socket was closed and freed), -EPIPE (it was
 * disconnected) or another error.
 */
long net_sock_wait(struct net_sock *sock, struct net_waitq *waitq,
		   int64_t timeout_ns, int64_t *until);

/* ---- stream.c ---- */

long net_sock_recv(struct net_sock *sock, const struct iovec *iov, size_t n,
		   int flags);
long net_sock_send(struct net_sock *sock, const struct iovec *iov, size_t n,
		   int flags);
/* net_sock_recv() and net_sock_send() for one buffer, without flags. */
long net_sock_read(struct net_sock *sock, void *buf, size_t len);
long net_sock_write(struct net_sock *sock, const void *buf, size_t len);
long net_sock_sendfile(struct net_sock *sock, int out, int in, off_t *offset,
		       size_t count);
long net_sock_shutdown(struct net_sock *sock, int how);
void net_sock_close(struct net_sock *sock); /* with its last descriptor */
/*
 * close() with SO_LINGER: closes the socket, whose last descriptor is about to
 * be closed. Returns whether close() has to wait: the caller then calls
 * net_sock_await_close() once the number is closed. That waits until the peer
 * has acknowledged everything, the time has passed or a signal has come; the
 * connection goes on closing after that.
 */
bool net_sock_linger(struct net_sock *sock);
void net_sock_await_close(struct net_sock *sock);
long net_sock_name(struct net_sock *sock, bool peer, struct sockaddr *sa,
		   socklen_t *len);

/* ---- options.c ---- */

void net_sock_opts_load(struct net_sock *sock, int fd);
void net_sock_opts_apply(struct net_sock *sock);
long net_sock_setopt(struct net_sock *sock, int fd, int level, int name,
		     const void *value, socklen_t len);
long net_sock_getopt(struct net_sock *sock, int fd, int level, int name,
		     void *value, socklen_t *len);
/* Returns 1 with *result, or 0 if the kernel handles the request. */
int net_sock_ioctl(struct net_sock *sock, unsigned long request, void *arg,
		   long *result);

/* The result of a POSIX call: r, or -1 with errno set. */
static inline long net_result(long r)
{
	if (likely(r >= 0))
		return r;
	errno = (int)-r;
	return -1;
}
