/*
 * The table of descriptors, the sockets behind them, and how both are freed.
 *
 * The table is indexed by number and lies in one mapping whose pages are
 * allocated when they are touched. Its owner writes an entry's `owner` last
 * when it is made and first when it is removed; other threads read no other
 * field.
 *
 * A program can close a number without a hook, by a system call of its own. The
 * next call that gets this number from the kernel then drops the entry
 * (net_fd_fresh()).
 */
#include "netstack/sockets/whole.h"
#include "netstack/sockets/polling.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

_Thread_local struct net_sockets net_sockets_own;
_Thread_local struct net_sockets *net_sockets_given;
struct net_fd *net_fds;
_Atomic unsigned net_fds_end;

static const char always = 1, never;
const volatile char *net_is_parent = &always;

static pid_t program_pid;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* A child that was forked before there was a stack is an ordinary program. */
static void in_child(void)
{
	if (net_fds || net_stack_here())
		net_is_parent = &never;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* Recognizes a child however it is made, since no handler sees clone(): the
 * page is zero there, unless it shares our memory. */
static void mark_parent(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	char *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	*page = 1;
	if (madvise(page, bytes, MADV_WIPEONFORK) == 0)
		net_is_parent = page;
}

static int make_table(void)
{
	struct net_fd *made;
	int err = 0;

	pthread_mutex_lock(&making);
	if (!net_fds) {
		made = mmap(NULL, NET_FDS_MAX * sizeof(*made),
			    PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (made == MAP_FAILED) {
			err = -ENOMEM;
		} else {
			program_pid = getpid();
			mark_parent();
			__atomic_store_n(&net_fds, made, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&making);
	return err;
}

/* ---- tables of threads ---- */

static void each_sock(void (*fn)(struct net_sock *sock))
{
	struct net_sock *next;

	for (struct net_sock *s = net_sockets_here()->socks; s; s = next) {
		next = s->next;
		fn(s);
	}
}

int net_whole_begin(struct net_stack *stack)
{
	static struct net_sockets sockets;
	int err = make_table();

	net_sockets_given = &sockets;
	if (err == 0)
		err = net_sockets_open();
	if (err < 0)
		return err;
	net_whole.stack = stack;
	net_whole.owner = net_sockets_given;
	net_whole.sched = coro_sched_self();
	net_whole.on = true;
	return 0;
}

void net_sockets_close_all(void)
{
	net_sockets_here()->stopping = true;
	each_sock(net_sock_close);
}

static void wake_waiters(struct net_sock *sock)
{
	net_waitq_wake(&sock->readable);
	net_waitq_wake(&sock->writable);
	net_sock_port_wake(sock);
}

static void wake_all(void)
{
	net_sockets_here()->stopping = true;
	each_sock(wake_waiters);
	for (struct net_sleeper *s = net_sockets_here()->sleepers; s;
	     s = s->next)
		net_waitq_wake(&s->waitq);
	for (struct net_epoll *e = net_sockets_here()->epolls; e;
	     e = net_epoll_next(e))
		net_epoll_wake(e);
}

/* Called when the stack closes: the sockets go, the numbers stay. */
static void end_sock(struct net_sock *sock)
{
	net_sock_port_gone(sock);
	net_sock_close(sock);
	sock->helper = NULL;
	sock->uses = 0; /* coroutines are destroyed; none will come back */
	if (sock->fds == 0) {
		sock->uses = 1;
		net_sock_put(sock);
	}
}

static void end_all(void *arg)
{
	each_sock(end_sock);
	net_sockets_here()->stopping = false;
	net_sockets_here()->stack = NULL;
}

/*
 * Waits for the stack to stop, and then to be closed: the calls of a watched
 * connection do not learn that by themselves.
 */
static void *guard_stack(void *arg)
{
	if (coro_cleanup_push(end_all, NULL) < 0)
		return NULL;
	while (net_poll(NULL, 0, CORO_FOREVER) != -ECANCELED) {
		/* nothing else ends it */
	}
	if (net_whole.on)
		net_sockets_close_all(); /* as the kernel does at a program's
					    end */
	else
		wake_all();
	for (;;)
		coro_park();
	return NULL;
}

int net_sockets_open(void)
{
	struct net_stack *stack = net_stack_here();
	int err = 0;

	if (net_sockets_here()->stack == stack)
		return 0;
	if (!net_fds)
		err = make_table();
	if (err == 0)
		err = net_spawn(stack, "sockets", guard_stack, NULL);
	if (err == 0)
		net_sockets_here()->stack = stack;
	return err;
}

/* ---- sockets ---- */

struct net_sock *net_sock_new(void)
{
	struct net_sock *sock = calloc(1, sizeof(*sock));

	if (!sock)
		return NULL;
	sock->watch.fn = net_sock_changed;
	sock->no_space = true;
	sock->opts.recv_timeout_ns = sock->opts.send_timeout_ns = -1;
	sock->opts.recv_low = 1;
	sock->next = net_sockets_here()->socks;
	sock->pprev = &net_sockets_here()->socks;
	if (sock->next)
		sock->next->pprev = &sock->next;
	net_sockets_here()->socks = sock;
	return sock;
}

void net_sock_free(struct net_sock *sock)
{
	*sock->pprev = sock->next;
	if (sock->next)
		sock->next->pprev = sock->pprev;
	free(sock->lst);
	free(sock->dgram);
	free(sock);
}

/* ---- entries ---- */

static void entry_clear(struct net_fd *entry)
{
	struct net_sock *sock = entry->sock;
	struct net_epoll *epoll = entry->epoll;

	atomic_store_explicit(&entry->owner, NULL, memory_order_release);
	entry->sock = NULL;
	entry->epoll = NULL;
	if (epoll)
		net_epoll_put(epoll);
	if (!sock || --sock->fds)
		return;
	net_sock_hold(sock);
	net_sock_close(sock);
	net_sock_put(sock);
}

static struct net_fd *entry_for(int fd)
{
	struct net_fd *entry;

	if ((unsigned)fd >= NET_FDS_MAX)
		return NULL;
	entry = &net_fds[fd];
	/* Its file was closed behind our back. */
	if (entry->owner == net_sockets_here())
		entry_clear(entry);
	return entry;
}

void net_fd_has_entry(int fd)
{
	unsigned end = atomic_load(&net_fds_end), needed = (unsigned)fd + 1;

	while (end < needed &&
	       !atomic_compare_exchange_weak(&net_fds_end, &end, needed)) {
		/* another thread's is less */
	}
}

static void entry_own(struct net_fd *entry)
{
	net_fd_has_entry((int)(entry - net_fds));
	atomic_store_explicit(&entry->owner, net_sockets_here(),
			      memory_order_release);
}

int net_fd_set_sock(int fd, struct net_sock *sock)
{
	struct net_fd *entry = entry_for(fd);

	if (!entry)
		return -EMFILE;
	entry->sock = sock;
	entry->epoll = NULL;
	sock->fds++;
	entry_own(entry);
	return 0;
}

int net_fd_set_epoll(int fd, struct net_epoll *epoll)
{
	struct net_fd *entry = entry_for(fd);

	if (!entry)
		return -EMFILE;
	entry->sock = NULL;
	entry->epoll = epoll;
	net_epoll_hold(epoll);
	entry_own(entry);
	return 0;
}

bool net_fd_shares_memory(void)
{
	return net_fds && !net_is_child() && getpid() != program_pid;
}

void net_fd_copy(int from, int to)
{
	struct net_fd *entry;

	if (!net_fds || from == to || (unsigned)from >= NET_FDS_MAX)
		return;
	entry = &net_fds[from];
	if (entry->owner != net_sockets_here() || net_is_child() ||
	    net_fd_shares_memory())
		return;
	if (entry->sock)
		net_fd_set_sock(to, entry->sock);
	else if (entry->epoll)
		net_fd_set_epoll(to, entry->epoll);
}

bool net_sockets_ours(int fd)
{
	return net_fds && (unsigned)fd < NET_FDS_MAX && net_fds[fd].owner &&
	       net_fds[fd].sock;
}

/* Cold: refuses a call of a child, or of another thread. */
int net_fd_refuse(const struct net_fd *entry, int fd, const char *call)
{
	if (net_is_child()) {
		if (net_whole.on)
			net_whole.refuse_child(call);
		return -ENOTSUP;
	}
	if (net_needs_baton()) /* the caller takes it and tries again */
		return -EPERM;
	net_log_seldom("coronet: %s(%d) by another thread than the one that "
		       "made the socket: only that thread may use a socket of "
		       "the stack; the call fails with EPERM",
		       call, fd);
	return -EPERM;
}

/* After fork() the table is the child's own, and the sockets are not: a number
 * that it has closed is the kernel's from then on. */
static void entry_leave(struct net_fd *entry)
{
	atomic_store_explicit(&entry->owner, NULL, memory_order_release);
	entry->sock = NULL;
	entry->epoll = NULL;
}

int net_fd_forget(int fd, const char *call)
{
	struct net_fd *entry;

	if (!net_fds || (unsigned)fd >= NET_FDS_MAX)
		return 0;
	entry = &net_fds[fd];
	if (!entry->owner || net_fd_shares_memory())
		return 0;
	if (net_is_child()) {
		entry_leave(entry);
		return 0;
	}
	if (entry->owner != net_sockets_here())
		return net_fd_refuse(entry, fd, call);
	entry_clear(entry);
	return 0;
}

static long forget_fd(long fd)
{
	return net_fd_forget((int)fd, "");
}

int net_fd_fresh(int fd)
{
	struct net_fd *entry;
	struct net_sockets *owner;
	int saved = errno;

	if (!net_fds || (unsigned)fd >= NET_FDS_MAX)
		return fd;
	if (net_sockets_here()->epolls && !net_fd_shares_memory())
		net_epoll_forget(fd);
	entry = &net_fds[fd];
	owner = atomic_load_explicit(&entry->owner, memory_order_acquire);
	if (likely(!owner))
		return fd;
	if (net_fd_needs_baton(fd))
		NET_WITH_BATON(forget_fd, fd);
	else if (net_is_child() || owner == net_sockets_here())
		net_fd_forget(fd, "");
	else /* only its owner may close the socket, and cannot know */
		atomic_store_explicit(&entry->owner, NULL,
				      memory_order_release);
	errno = saved;
	return fd;
}

int net_fd_forget_range(unsigned first, unsigned last, const char *call)
{
	unsigned end = net_fds_until(last);
	int err = 0;

	if (!net_fds || net_fd_shares_memory())
		return 0;
	for (unsigned fd = first; net_is_child() && fd < end; fd++)
		if (net_fds[fd].owner)
			entry_leave(&net_fds[fd]);
	for (unsigned fd = first; fd < end; fd++)
		if (net_fds[fd].owner &&
		    net_fds[fd].owner != net_sockets_here())
			err = net_fd_refuse(&net_fds[fd], (int)fd, call);
	for (unsigned fd = first; err == 0 && fd < end; fd++)
		if (net_fds[fd].owner)
			entry_clear(&net_fds[fd]);
	return err;
}
