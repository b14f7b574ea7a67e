/*
 * coro.h - stackful coroutines, one scheduler a thread.
 *
 * THE RULE. By default coroutines share stacks: while a coroutine is switched
 * out, an address inside its stack belongs to somebody else. So nothing that
 * another coroutine, a timer or another thread touches may live on a
 * coroutine's stack: no mutex, no channel, no timer, no buffer given away.
 * Use the heap, static storage, or a private stack (CORO_STACK_PRIVATE). The
 * calls below that store a pointer refuse one into the shared stacks.
 *
 * Below each stack lies a guard that turns an overflow into a message: 1 MiB
 * below a shared stack, 64 KiB below a private one. Compile coroutines with
 * -fstack-clash-protection (pkg-config's cflags have it), or a larger array in
 * one function can step over the guard into somebody else's stack.
 *
 * Threads: a scheduler, its coroutines and its timers belong to the thread
 * that opened it; a call from another thread is refused (-EPERM, or an abort
 * with a message where nothing can be returned). What may be called from any
 * thread says so: coro_post(), coro_call(), coro_wake_post(), coro_sched_ref()
 * and coro_sched_unref(), and the calls of shared channels (coro_chan.h).
 *
 * Blocking calls block the calling coroutine, never the thread. Each obeys the
 * coroutine's inherited deadline (coro_deadline_set) and coro_cancel(), and
 * returns 0, -ETIMEDOUT or -ECANCELED beside what its own comment names;
 * -ENOMEM if the bytes of a stack could not be put aside, -EPERM outside a
 * coroutine. Times are absolute nanoseconds of the scheduler's clock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define CORO_FOREVER INT64_MAX /* a time that never comes */

struct coro;
struct coro_sched;

typedef void *(*coro_fn)(void *arg); /* what it returns is the join result */

/* ---- attributes ---- */

enum coro_stack_kind {
	CORO_STACK_SHARED = 0, /* copied away when another one needs it */
	CORO_STACK_PRIVATE,    /* its own, never copied */
};

/* A zeroed struct equals the defaults. Wrong values are refused: -EINVAL. */
struct coro_attr {
	const char *name;	    /* copied, 31 bytes kept; NULL: "coro" */
	enum coro_stack_kind stack; /* see above */
	size_t stack_size; /* private only, bytes; 0: 64 KiB; 4 KiB..1 GiB */
	unsigned shared_stack; /* 1 + index of the shared stack; 0: chosen */
	bool save_fp;	       /* mxcsr and the x87 control word are its own */
	bool no_guard;	       /* private only: no guard below the stack */
	bool inherit_deadline; /* start with the spawner's deadline, not none */
};

/* A zeroed struct equals the defaults. Wrong values are refused: -EINVAL. */
struct coro_sched_attr {
	int64_t (*clock_ns)(void *ctx); /* monotonic; NULL: CLOCK_MONOTONIC */
	void *clock_ctx;		/* borrowed, given to clock_ns */
	size_t stack_size;    /* of a shared stack; 0: 256 KiB; 16 KiB..4 MiB */
	unsigned stack_count; /* shared stacks; 0: 64; at most 1024 */
	bool no_crash_report; /* don't handle SIGSEGV, SIGBUS, SIGFPE, SIGILL
				 and SIGABRT to say which coroutine crashed, or
				 overflowed its stack, before it does */
	bool measure_stacks;  /* exact high-water marks; slow, for sizing; also
				 by CORO_MEASURE_STACKS in the environment */
	unsigned post_capacity; /* of the queue of coro_post(); 0: 1024; rounded
				   up to a power of two; at most 1,048,576 */
};

/* ---- scheduler ---- */

/*
 * Open the calling thread's scheduler and make it the thread's own.
 * attr: borrowed for the call. *out: owned by the caller until
 * coro_sched_close(). Returns 0, -EINVAL (a wrong attribute), -EEXIST (the
 * thread has one), -ENOMEM, -ENOTSUP (user shadow stacks are active, which
 * these switches don't maintain).
 */
int coro_sched_open(const struct coro_sched_attr *attr,
		    struct coro_sched **out);

/*
 * coro_sched_shut() first, then destroy every coroutine left (their cleanups
 * run), and free everything. Outside coroutines only. Armed timers are
 * forgotten, not called, and so are wake-ups (coro_wake_post) not yet run.
 */
void coro_sched_close(struct coro_sched *s);

/* The calling thread's scheduler, NULL if it has none. */
struct coro_sched *coro_sched_self(void);

/*
 * At most one round: resume every coroutine that was ready at the call once;
 * those made ready meanwhile wait for the next round. Returns how many were
 * resumed. Outside coroutines only.
 */
unsigned coro_sched_round(struct coro_sched *s);

/* Is anything in the run queue (or posted from outside)? */
bool coro_sched_ready(const struct coro_sched *s);

/*
 * Set the cached time and run every timer due by then (sleeps, deadlines,
 * struct coro_timer). A time before the cached one is taken as the cached one.
 */
void coro_sched_advance(struct coro_sched *s, int64_t now_ns);

/* The cached time: that of the last coro_sched_advance(). */
int64_t coro_sched_now(const struct coro_sched *s);

/* Read the scheduler's clock (not cached). */
int64_t coro_sched_clock(const struct coro_sched *s);

/*
 * A lower bound of when an advance has a timer to fire: may be early (by a
 * timer that was pushed back), is never late.
 * CORO_FOREVER if no timer is armed.
 */
int64_t coro_sched_next_ns(const struct coro_sched *s);

/* ---- coroutines the scheduler runs ---- */

/*
 * Create a coroutine and make it ready. Callable inside and outside
 * coroutines. attr: borrowed for the call, NULL = defaults. arg: borrowed; not
 * a place on a shared stack.
 *
 * Who frees it: with out == NULL the coroutine is detached, and recycled when
 * its body returns. With out != NULL the caller owns a handle that stays valid,
 * even after the body has returned, until exactly one of coro_join(),
 * coro_detach() or coro_destroy() gives it back.
 *
 * Returns 0, -ENOMEM, -EINVAL (a wrong attribute), -EPERM (foreign thread).
 */
int coro_spawn(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
	       void *arg, struct coro **out);

/* The running coroutine; NULL outside. */
struct coro *coro_self(void);

/*
 * Wait until coro_unpark(). An unpark that came first is remembered (one, not
 * a count) and makes the call return at once. Other blocking calls never
 * consume it. Returns 0, -ECANCELED, -ETIMEDOUT.
 */
int coro_park(void);

/* The same with a deadline of its own beside the inherited one. */
int coro_park_until(int64_t deadline_ns);

/* Make a parked coroutine ready, or make its next park return at once. */
void coro_unpark(struct coro *co);

/* Let the others that are ready run first. Returns 0 or -ECANCELED. */
int coro_yield(void);

/* Sleep for so long / until then. Returns 0; -ETIMEDOUT when the inherited
 * deadline came first, -ECANCELED. Never returns early otherwise. */
int coro_sleep_ns(int64_t ns);
int coro_sleep_until(int64_t t_ns);

/*
 * Ask a coroutine to stop: the call it is blocked in, or else its next
 * blocking call, returns -ECANCELED. Told once: after that it may block again,
 * to say goodbye to a peer for instance; coro_cancelled() keeps answering true.
 */
void coro_cancel(struct coro *co);
bool coro_cancelled(void); /* of the running coroutine */

/*
 * Wait for the body to return, store what it returned (result may be NULL),
 * and give the handle back. On an error the handle stays the caller's. From
 * outside coroutines it doesn't wait: -EBUSY unless it has ended.
 * Returns 0, -ECANCELED, -ETIMEDOUT, -EDEADLK (itself), -EBUSY (another one
 * joins it), -EINVAL (detached).
 */
int coro_join(struct coro *co, void **result);
int coro_join_until(struct coro *co, void **result, int64_t deadline_ns);

/* Give the handle back; the coroutine is recycled when its body returns. */
void coro_detach(struct coro *co);

/*
 * Deadline of every blocking call of the running coroutine from now on.
 * Returns the previous one, to be put back. CORO_FOREVER: none.
 */
int64_t coro_deadline_set(int64_t deadline_ns);
int64_t coro_deadline(void);

/* End the running coroutine as if its body had returned result. */
void coro_exit(void *result) __attribute__((noreturn));

/*
 * Run fn(arg) when the coroutine ends, in whatever way; the last pushed first.
 * It runs in the coroutine, may use its locals, and can't block (-ECANCELED).
 * Pop takes the last pushed off, and runs it if asked.
 * Returns 0, -ENOMEM, -EPERM (outside); pop: -ENOENT (there is none).
 */
int coro_cleanup_push(void (*fn)(void *arg), void *arg);
int coro_cleanup_pop(bool run);

/*
 * Coroutine-local storage. A key is the process's; each coroutine has its own
 * value for it, NULL at first. The destructor (or NULL) gets a value that isn't
 * NULL when its coroutine ends, after the cleanups. Delete a key when no
 * coroutine holds a value for it. Returns 0, -EAGAIN (256 keys in use),
 * -ENOMEM, -EINVAL (no such key), -EPERM (outside).
 */
int coro_key_create(void (*destructor)(void *value), unsigned *key);
int coro_key_delete(unsigned key);
int coro_local_set(unsigned key, void *value);
void *coro_local_get(unsigned key);

/* coro_park_until() under a name of the caller's (static storage), which dumps
 * and reports show as the place where the coroutine waits. */
int coro_park_at(const char *where, int64_t deadline_ns);

/* What attr.name said; valid while the coroutine's scheduler is open. */
const char *coro_name(const struct coro *co);

/* ---- the asymmetric core: resuming by hand, values both ways ---- */

enum coro_status {
	CORO_DEAD,	/* its body has returned */
	CORO_READY,	/* may run: not started, or in the run queue */
	CORO_RUNNING,	/* runs, or has resumed another that does */
	CORO_SUSPENDED, /* in coro_suspend() or a blocking call */
};

struct coro_pair { /* private: two registers */
	void *value;
	long err;
};

struct coro_pair coro_resume_pair(struct coro *co, void *in);
struct coro_pair coro_suspend_pair(void *out);

/*
 * Create a coroutine that nobody runs yet: coro_resume() it, or coro_start()
 * it to let the scheduler. As coro_spawn() otherwise. The handle is the
 * caller's: coro_destroy() it.
 */
int coro_create(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
		struct coro **out);

/*
 * Run co until it suspends or ends. in: becomes its body's argument the first
 * time, then what its coro_suspend() gives. *out (may be NULL): what it
 * suspended with, or returned. From anywhere, nested to any depth.
 *
 * If co blocks meanwhile, it waits for the scheduler and the caller waits for
 * it, as if it had blocked itself; but a thread can't: -EAGAIN at once.
 *
 * Returns 0; -EAGAIN also when co was destroyed while it blocked; -ESRCH (it
 * has ended); -EBUSY (it runs, is queued, or blocks); -EPERM (foreign thread);
 * -ENOMEM.
 */
static inline int coro_resume(struct coro *co, void *in, void **out)
{
	struct coro_pair pair = coro_resume_pair(co, in);

	if (pair.err == 0 && out != NULL)
		*out = pair.value;
	return (int)pair.err;
}

/*
 * Go back to the one that resumed us, which gets out; *in (may be NULL) is what
 * the next resume gives. A coroutine the scheduler runs goes back to it.
 * Returns 0, -EPERM (outside), -ECANCELED (in a cleanup), -ENOMEM.
 */
static inline int coro_suspend(void *out, void **in)
{
	struct coro_pair pair = coro_suspend_pair(out);

	if (pair.err == 0 && in != NULL)
		*in = pair.value;
	return (int)pair.err;
}

/* Let the scheduler run a coroutine that coro_create() or coro_reset() made
 * (its argument is arg), or one that suspended (its coro_suspend() gives arg).
 * Returns 0, -EBUSY, -ESRCH, -EPERM. */
int coro_start(struct coro *co, void *arg);

enum coro_status coro_status(const struct coro *co);

/* Make an ended coroutine new again, of the same attributes, to run fn.
 * Returns 0, -EBUSY (it hasn't ended), -EINVAL (no handle), -ENOMEM. */
int coro_reset(struct coro *co, coro_fn fn);

/*
 * End a coroutine wherever it waits and give its handle back, if there is one.
 * Its cleanups and local destructors run, in it, now. A lock it holds, or has
 * been given and not yet returned with, stays locked; a semaphore's count, a
 * signal or a channel's value that it has been given so is lost. Unlock in a
 * cleanup, and coro_cancel() one that waits for such things: it loses none.
 *
 * Returns 0, -EBUSY (it runs, has resumed another, or is being joined), -EPERM
 * (foreign thread), -ENOMEM (no room to run the cleanups; nothing changed).
 */
int coro_destroy(struct coro *co);

/* Is the caller in a coroutine? */
static inline bool coro_inside(void)
{
	return coro_self() != NULL;
}

/* ---- a loop for programs that have none ---- */

/*
 * Run until nothing is left to run or to wait for (0), or coro_sched_stop()
 * (0). The thread sleeps while only timers or other threads can go on. When
 * coroutines are blocked and nothing can wake them, says so on stderr with a
 * dump, and returns -EDEADLK; -EPERM inside a coroutine. Programs that have a
 * loop of their own call coro_sched_advance() and coro_sched_round().
 */
int coro_sched_run(struct coro_sched *s);
void coro_sched_stop(struct coro_sched *s);

/* While the sum of holds is above zero, something outside (another thread, a
 * device) may yet post: coro_sched_run() waits for it. */
void coro_sched_hold(struct coro_sched *s, int n);

/* Sleep the thread until something is ready or posted, or until then. 0, or
 * -errno of the wait. Outside coroutines. */
int coro_sched_wait(struct coro_sched *s, int64_t until_ns);

/* ---- from other threads ---- */

/*
 * Run fn(arg) on the scheduler's thread, in its next coro_sched_round(),
 * outside any coroutine: fn may unpark, spawn and post, not block. Callable
 * from any thread, with a scheduler of its own or without, from inside and
 * outside coroutines, and from signal handlers. Never waits and never
 * allocates: the queue has coro_sched_attr.post_capacity places. What one
 * thread posts runs in the order it was posted. A scheduler that sleeps
 * (coro_sched_run, coro_sched_wait) is woken; one that is polled sees the post
 * in its next round.
 *
 * s: open, or referenced (coro_sched_ref). arg: borrowed until fn has run; not
 * a place on a shared stack. Each fn whose coro_post() returned 0 runs exactly
 * once: what is still queued when the scheduler closes runs then.
 * Returns 0, -EAGAIN (the queue is full), -ESHUTDOWN (it closes or has closed).
 */
int coro_post(struct coro_sched *s, void (*fn)(void *arg), void *arg);

/*
 * Block the calling coroutine until fn(arg) has run on the thread of `to`, as
 * by coro_post() but without its queue's bound; *result (may be NULL) is what
 * fn returned. `to` may be the caller's own scheduler. arg: not a place on a
 * shared stack.
 *
 * Returns 0, or an error, and then fn has not run and never will: -ETIMEDOUT,
 * -ECANCELED, -ESHUTDOWN (`to` closes or has closed), -EAGAIN (1,024 calls of
 * the caller's scheduler were given up and still lie with others that do not
 * come round), -ENOMEM, -EPERM (outside a coroutine). Once fn has begun, the
 * call waits for its end whatever the deadline: it returns 0, and a
 * coro_cancel() is told to the next blocking call. Destroying a coroutine whose
 * fn has begun waits for fn, with its thread.
 */
int coro_call(struct coro_sched *to, coro_fn fn, void *arg, void **result);
int coro_call_until(struct coro_sched *to, coro_fn fn, void *arg, void **result,
		    int64_t deadline_ns);

/*
 * Close the scheduler to others: from now on coro_post() and coro_call() to it
 * return -ESHUTDOWN; what was posted before runs now. For programs that take
 * down other things before coro_sched_close(), which begins with it. Outside
 * coroutines.
 */
void coro_sched_shut(struct coro_sched *s);

/*
 * Keep the struct valid for coro_post(), coro_call() and coro_wake_post() after
 * the scheduler has closed. A thread that posts needs a reference unless it is
 * certain that the scheduler is open during the call (it is the thread's own;
 * its thread is joined later). Take one on the scheduler's thread, or where
 * there is one already. Returns s. Unref: NULL is ignored; not in signal
 * handlers.
 */
struct coro_sched *coro_sched_ref(struct coro_sched *s);
void coro_sched_unref(struct coro_sched *s);

/*
 * A wake-up from another thread or a signal handler: coro_post() for one fixed
 * purpose, with memory of the caller's, which must stay until the callback has
 * begun. Posting is lock-free; the callback runs on the scheduler's thread,
 * outside coroutines, at its next round; it may unpark and spawn. Posting again
 * before it ran adds nothing. One that has not run when the scheduler closes,
 * or is posted later, is forgotten.
 */
struct coro_wake {
	struct coro_wake *next; /* private */
	int posted;		/* private */
	bool own;		/* private */
	void (*fn)(struct coro_wake *w);
};

void coro_wake_init(struct coro_wake *w, void (*fn)(struct coro_wake *w));
void coro_wake_post(struct coro_sched *s, struct coro_wake *w);

/* ---- diagnostics ---- */

/* Every coroutine, its state and where it waits, and the names' sums, to fd. */
void coro_sched_dump(struct coro_sched *s, int fd);

/* What is known of a coroutine. The texts are good while it lives. */
struct coro_info {
	const struct coro *co;
	const char *name, *state;
	const char *where;  /* the call it waits in, NULL: it does not wait */
	size_t stack_bytes; /* coro_stack_high_water() */
	int64_t wakes_ns;   /* CORO_FOREVER: no timer of its own will */
	bool cancelled;
};

/*
 * A walk over a scheduler's coroutines in pieces, between which they may come
 * and go: one that lives from the beginning to the end is told once. Zeroed at
 * first; with `begun` and `left` as an earlier walk had them it goes on there.
 */
struct coro_walk {
	uint64_t left;
	const void *chunk; /* private; NULL when it goes on */
	bool begun, done;
};

/*
 * The next piece: at most max coroutines, and at most `looks` places looked at,
 * which bounds what a call costs. Returns how many out[] were filled; fewer
 * than max is not the end, walk->done is. On the scheduler's thread.
 */
unsigned coro_sched_walk(const struct coro_sched *s, struct coro_walk *walk,
			 struct coro_info *out, unsigned max, unsigned looks);

/* Dump to stderr when the signal comes (SIGQUIT, say): at the next round; at
 * once, if it comes a second time before that. 0, -EINVAL, -EBUSY (another
 * scheduler of the process has it). */
int coro_sched_dump_on_signal(struct coro_sched *s, int signo);

/*
 * What messages about a coroutine say beside its name: whose it is. fn is asked
 * about words from where the coroutine began, its body's argument among them,
 * and from its registers. If it knows one, it writes what it knows, at most len
 * bytes with the NUL, and returns true. It is called in signal handlers: it
 * must be async-signal-safe, and follow no word before it has made sure that it
 * is what it seems.
 */
typedef bool (*coro_recognize_fn)(uintptr_t word, char *text, size_t len);
void coro_sched_recognize(struct coro_sched *s, coro_recognize_fn fn);

/*
 * What comes after a body, for a scheduler whose coroutines share it: fn is
 * called with the argument that the running coroutine gave to coro_set_last(),
 * when its body returns, on its stack; it may block. So a body can be the tail
 * call of what prepared it, and nothing below its frame is kept while it waits.
 * Not for a coroutine that coro_exit() or coro_destroy() ends. arg is borrowed;
 * with NULL, as at the beginning, nothing is called. fn is set first.
 */
void coro_sched_last(struct coro_sched *s, void (*fn)(void *arg));
void coro_set_last(void *arg);

/* Write "coroutine 'NAME'", and in parentheses what is known of it. ucontext:
 * what a signal handler on the scheduler's thread was given, or NULL. */
void coro_describe(const struct coro *co, const void *ucontext, char *text,
		   size_t len);

/* The coroutine that runs, NULL: none. Also from a signal handler or another
 * thread, for whom it is one that ran a moment ago. */
struct coro *coro_sched_running(const struct coro_sched *s);

/* A number that changes whenever the scheduler gives another coroutine its
 * turn: for a watchdog, from any thread. */
unsigned coro_sched_turn(const struct coro_sched *s);

/* Coroutines that have not ended. */
unsigned coro_sched_live(const struct coro_sched *s);

/*
 * Bytes taken from the system for control blocks, saved stacks and timers. They
 * serve again and again, but are given back only when the scheduler closes, so
 * this never falls. Neither the shared stacks themselves nor private ones are
 * counted.
 */
size_t coro_sched_memory(const struct coro_sched *s);

/* Of those bytes, the ones that coroutines and their saved stacks take now. */
size_t coro_sched_memory_live(const struct coro_sched *s);

/*
 * Bounds coro_sched_memory() from where on no coroutine is started that needs
 * more of it: -ENOMEM. SIZE_MAX, the default: no bound. Those that run may
 * still put their stacks aside beyond it: if they could not, none could go on.
 */
void coro_sched_limit_memory(struct coro_sched *s, size_t bytes);

/* The most bytes of stack a coroutine has used: exact with
 * coro_sched_attr.measure_stacks; else of the bytes it had when switched out,
 * if they were put aside, to within a quarter. */
size_t coro_stack_high_water(const struct coro *co);
/* The same over all coroutines of that name, ended ones too; 0: unknown. */
size_t coro_name_high_water(const struct coro_sched *s, const char *name);

/* Does p lie on a shared stack, where it dangles while its coroutine is
 * switched out? The calls that keep pointers ask this themselves. */
bool coro_on_shared_stack(const void *p);

/* ---- timers: usable without coroutines ---- */

/*
 * An intrusive timer; the caller owns the memory, which must stay until the
 * timer has fired or been cancelled, and must not lie on a shared stack. The
 * callback runs inside coro_sched_advance(), on the thread's own stack, with
 * the timer already disarmed: it may arm it again, cancel others and unpark
 * coroutines, not block.
 */
struct coro_timer {
	void (*fn)(struct coro_timer *t);
	uintptr_t *entry; /* private; NULL when not armed */
	int64_t expires_ns;
};

void coro_timer_init(struct coro_timer *t, void (*fn)(struct coro_timer *t));

/* Fire at the first advance to a time at or after expires_ns, never before,
 * at most one tick (16.4 us) of the wheel late. Arming an armed timer moves
 * it. A time past fires at the next advance. */
void coro_timer_arm(struct coro_sched *s, struct coro_timer *t,
		    int64_t expires_ns);

/* True if it was armed. */
bool coro_timer_cancel(struct coro_sched *s, struct coro_timer *t);
bool coro_timer_armed(const struct coro_timer *t);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
