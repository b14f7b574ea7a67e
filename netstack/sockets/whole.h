/*
 * Whole programs (coronet-run): the program's state (whole.c), and the baton
 * that its threads pass to one another (baton.c, turns.c). Elsewhere than in a
 * whole program the inline functions here cost a test.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "netstack/sockets/sockets_priv.h"

/* State of a whole program (coronet-run); all zeros in any other. */
#define NET_WHOLE_THREADS 64u

struct net_late {
	/* Called before the kernel binds fd, perhaps to the stack's address. */
	void (*prepare_bind)(int fd);
	/* Called before a call waits for clients, if fd listens. */
	void (*await_clients)(int fd);
};

struct net_whole {
	bool on;
	bool closed;  /* in exit(): the other threads wait for the baton */
	bool cancels; /* pthread_cancel() has been called */
	struct net_stack *stack;
	struct net_sockets *owner;
	struct coro_sched *sched;
	/* Runs the handlers of signals that were noted. Returns whether the
	 * interrupted call may go on: all of them have SA_RESTART. */
	bool (*handle_signals)(void);
	void (*default_action)(int signo);
	/* A driver's handler of its signal for frames (net_tap), or NULL. */
	void (*look_for_frames)(int signo);
	/* Logs once why a call in a forked child fails. */
	void (*refuse_child)(const char *call);
	/* With --in-child until the stack is open (run_late.c), else NULL. */
	const struct net_late *late;
	int threads[NET_WHOLE_THREADS]; /* the stack's and DPDK's own */
	unsigned n_threads;
	int keeper; /* its thread, which is not among these */
	int programs_threads[NET_WHOLE_THREADS]; /* before the stack opened */
	unsigned n_programs_threads;
};
extern struct net_whole net_whole __attribute__((visibility("hidden")));

/* What a thread of a whole program is doing. */
enum net_caller_state {
	NET_OUTSIDE, /* in the program's own code */
	NET_CALLING, /* in a call, with the baton */
	NET_TURNING, /* in the loop, with the baton */
};

struct net_bias;

struct net_caller {
	uint8_t state;	       /* enum net_caller_state */
	bool begun;	       /* sem is initialised */
	bool unbiased;	       /* the baton is never biased to this thread */
	bool entered;	       /* between net_stack_enter() and its leaving */
	struct net_bias *bias; /* its record, or NULL */
	bool unrestartable;    /* its call ends at a signal even with
				  SA_RESTART */
	unsigned batch;	       /* writes that may wait for the next turn */
	bool cancelled;	       /* by pthread_cancel() */
	bool cancels_off;      /* cancellation is disabled during the call */
	int cancels;	       /* the cancel state to restore after it */
	/* pthread_setcanceltype(), if the thread is cancelled asynchronously
	 * outside calls; or NULL */
	int (*set_type)(int type, int *old);
	pthread_t thread;
	LIST_ENTRY(net_caller) link; /* of all threads that made a call */
	_Atomic uint64_t noted; /* signals still to be handled: a bit each */
	_Atomic uint64_t held; /* of those, blocked until then by on_signal() */
	sem_t sem;
};
extern _Thread_local struct net_caller net_caller
	__attribute__((visibility("hidden")));

/* A call that waits, in a whole program. */
struct net_waiter {
	struct net_caller *caller;
	bool woken, asleep;
	LIST_ENTRY(net_waiter) queue, sleeping;
};

/*
 * Makes the calling thread's stack that of the whole program, before main()
 * runs. Returns 0 or -ENOMEM.
 */
int net_whole_begin(struct net_stack *stack);
/*
 * Starts the thread that runs the loop while no call waits. Returns 0, -EAGAIN
 * or -ENOMEM.
 */
int net_whole_keeper(void);
/*
 * Closes the stack, whose loop has ended. The calling thread keeps the baton.
 * First waits for threads that are just waking the loop.
 */
void net_whole_close(void);
/*
 * Notes the threads that exist: with `programs`, before the stack opens, those
 * of the program; without it, afterwards, the new ones, which are the stack's.
 */
void net_whole_note_threads(bool programs);
/* Returns whether the program has a thread beside main()'s and the caller. */
bool net_whole_has_threads(void);
/* Returns whether the calling thread is one of the stack's. */
bool net_whole_own_thread(void);
void net_whole_reserve(int fd); /* the stack uses fd itself */
/* Makes the drivers' signals go to the calling thread from now on. */
void net_whole_take_signals(void);
/*
 * Returns whether the program must not close fd, or one of a range. The stack's
 * own close of fd ends its reservation.
 */
bool net_whole_keeps(int fd);
bool net_whole_keeps_any(unsigned first, unsigned last);

/*
 * Calls real_cancel(thread), which is pthread_cancel(). If the thread waits in
 * a call, the call ends, and the thread is cancelled after it.
 */
int net_whole_cancel(pthread_t thread, int (*real_cancel)(pthread_t thread));
/*
 * Calls real_type(type, old), which is pthread_setcanceltype(). A thread that
 * can be cancelled at any time is cancelled only outside its calls.
 */
int net_whole_cancel_type(int type, int *old,
			  int (*real_type)(int type, int *old));

/* Take the baton for a call, and release it. */
void net_whole_step_in(void);
void net_whole_step_out(void);
/* net_waitq_wait() for a thread that holds the baton. */
int net_whole_wait(struct net_waitq *waitq, int64_t deadline_ns);
/*
 * Replaces the thread's mask during a call, and stores the program's in *old
 * unless that is NULL: without the signals that are blocked until they are
 * handled.
 */
void net_whole_set_mask(const sigset_t *mask, sigset_t *old);
/* Runs handlers of noted signals, without the baton. Returns 0 or -EINTR. */
int net_whole_signals(void);
/*
 * Called in a signal handler: notes a signal, which the thread handles later;
 * or makes a signal end the program.
 */
void net_whole_note(int signo);
void net_whole_end_by(int signo);
/*
 * Has the keeper close all connections, before _exit(). Waits at most two
 * seconds for it: the caller may be a signal handler, and hold a lock that the
 * stack needs.
 */
void net_whole_end(void);

/* Returns whether this is a whole program's thread without the baton. */
static inline bool net_needs_baton(void)
{
	return unlikely(net_whole.on) && net_caller.state == NET_OUTSIDE &&
	       !net_is_child();
}

/*
 * Returns whether the caller is a coroutine of a stack, which a call may block.
 */
static inline bool net_in_coroutine(void)
{
	return !net_needs_baton() && coro_self() && net_stack_here() &&
	       !net_is_child();
}

/*
 * Returns whether this thread of a whole program is in a call, with the baton.
 */
static inline bool net_calling(void)
{
	return unlikely(net_whole.on) && net_caller.state == NET_CALLING &&
	       !coro_self();
}

/*
 * Returns whether the socket was closed while the call waited for the baton
 * (`whose`: of net_fd_sock()). The kernel's call could block and keep the
 * baton.
 */
static inline bool net_fd_is_lost(int whose)
{
	return whose == 0 && net_calling();
}

/* Returns whether a call may block its caller. */
static inline bool net_may_wait(void)
{
	return net_in_coroutine() || net_calling();
}

/* Used around a wait that a signal ends even with SA_RESTART. */
static inline void net_unrestartable(bool begins)
{
	net_caller.unrestartable = begins;
}

/*
 * Runs one turn of the loop. Without it, a program that always finds something
 * ready would never send or receive. Returns 0, -EINTR or -ECANCELED.
 */
int net_whole_turn(void);

/* Called before poll() and similar calls check their descriptors. */
static inline int net_turn(void)
{
	return unlikely(net_whole.on) ? net_whole_turn() : 0;
}

/* Returns whether a signal came since the call began. */
static inline bool net_handled(void)
{
	return net_calling() && atomic_load(&net_caller.noted);
}

/* Called before a call that waits until fd can be read. */
static inline void net_await_clients(int fd)
{
	if (unlikely(net_whole.late))
		net_whole.late->await_clients(fd);
}

/* In a whole program net_touch(); otherwise all bytes, without a check. */
static inline size_t net_reachable(const void *memory, size_t bytes, bool write)
{
	return unlikely(net_whole.on)
		       ? net_touch((uintptr_t)memory, bytes, write)
		       : bytes;
}

static inline bool net_can_read(const void *memory, size_t bytes)
{
	return net_reachable(memory, bytes, false) == bytes;
}

static inline bool net_can_write(void *memory, size_t bytes)
{
	return net_reachable(memory, bytes, true) == bytes;
}

/* Returns whether a call can store an address where the program wants it. */
static inline bool net_can_write_name(struct sockaddr *sa, socklen_t *len)
{
	return sa && len && net_can_write(len, sizeof(*len)) &&
	       ((int)*len <= 0 || net_can_write(sa, 1));
}

/* poll() has returned `events`: their writes are sent in one turn. */
static inline void net_batch(long events)
{
	net_caller.batch = events > 1 ? (unsigned)events - 1 : 0;
}

/* Called after a call that queued data or returned -EAGAIN: runs a turn. */
long net_whole_done(long r);

static inline long net_done(long r)
{
	return unlikely(net_whole.on) ? net_whole_done(r) : r;
}

static inline long net_read_done(long r)
{
	return unlikely(r == -EAGAIN) ? net_done(r) : r;
}

typedef long (*net_any_fn)(long a, long b, long c, long d, long e, long f);
long net_with_baton(long a, long b, long c, long d, long e, long f,
		    net_any_fn fn);

/*
 * Returns whether a call on fd, which is the stack's, must take the baton
 * first.
 */
static inline bool net_fd_needs_baton(int fd)
{
	return net_needs_baton() && (unsigned)fd < NET_FDS_MAX &&
	       atomic_load_explicit(&net_fds[fd].owner, memory_order_acquire) ==
		       net_whole.owner;
}

/* Calls fn with up to six arguments while holding the baton. */
#define NET_WITH_BATON(fn, ...) NET_WITH_BATON_(fn, __VA_ARGS__, 0, 0, 0, 0, 0)
#define NET_WITH_BATON_(fn, a, b, c, d, e, f, ...)                             \
	net_with_baton(a, b, c, d, e, f, (net_any_fn)(void *)(fn))
