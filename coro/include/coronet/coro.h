/*
 * coro.h - stackful coroutines, one scheduler per thread.
 *
 * THE RULE. By default coroutines share stacks: while a coroutine is switched
 * out, the memory of its stack belongs to another. So nothing that another
 * coroutine, a timer or another thread touches may live on a coroutine's stack:
 * no mutex, no channel, no timer, no buffer handed over. Use the heap, static
 * storage, or a private stack (CORO_STACK_PRIVATE). The calls below that store
 * a pointer end the process with a message if it points into a shared stack.
 *
 * Below each stack lies a guard that turns an overflow into a message: 1 MiB
 * below a shared stack, 64 KiB below a private one. Compile coroutines with
 * -fstack-clash-protection (it is in pkg-config's cflags), or a larger array in
 * one function can step over the guard into another stack.
 *
 * Threads: a scheduler, its coroutines and its timers belong to the thread that
 * opened it (or coro_sched_enter(), coro_io.h), and unless its comment says
 * otherwise a call is made from that thread, inside a coroutine or outside. A
 * call from another thread returns -EPERM, or ends the process with a message
 * where it cannot return an error. Any thread may call coro_post(),
 * coro_call(), coro_wake_post(), coro_sched_ref(), coro_sched_unref(), the
 * calls that ask about the calling thread (coro_self(), coro_sched_self(),
 * coro_inside()), and the calls of shared channels (coro_chan.h).
 *
 * Blocking calls block the calling coroutine, never the thread. Each obeys the
 * coroutine's own deadline (coro_deadline_set()) and coro_cancel(). Besides the
 * errors that its comment names it can return
 *   -EPERM      called outside a coroutine
 *   -ECANCELED  coro_cancel() was called on the coroutine, or it is being ended
 *   -ETIMEDOUT  the deadline of the coroutine, or of the call, has passed
 *   -ENOMEM     the bytes of a stack could not be saved
 * Times are nanoseconds of the scheduler's clock; deadlines are absolute, and
 * CORO_FOREVER means none.
 *
 * Calls return 0 or a count, or a negative errno. Unless a comment says
 * otherwise, a pointer that is passed in is borrowed until the call returns,
 * and an `out` pointer is written only on success.
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

/* The body of a coroutine; coro_join() stores what it returns. */
typedef void *(*coro_fn)(void *arg);

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
	void *clock_ctx;      /* borrowed until the scheduler closes */
	size_t stack_size;    /* of a shared stack; 0: 256 KiB; 16 KiB..4 MiB */
	unsigned stack_count; /* shared stacks; 0: 64; at most 1024 */
	bool no_crash_report; /* don't handle SIGSEGV, SIGBUS, SIGFPE, SIGILL
				 and SIGABRT to report which coroutine crashed
				 or overflowed its stack */
	bool measure_stacks;  /* exact high-water marks; slow, for sizing; also
				 by CORO_MEASURE_STACKS in the environment */
	unsigned post_capacity; /* of the queue of coro_post(); 0: 1024; rounded
				   up to a power of two; at most 1,048,576 */
};

/* ---- scheduler ---- */

/*
 * Opens a scheduler for the calling thread. attr: NULL means the defaults.
 * *out: owned by the caller until coro_sched_close(). Returns 0 or
 *   -EINVAL   an attribute is wrong
 *   -EEXIST   the thread has a scheduler
 *   -ENOTSUP  user shadow stacks are active, which the switches do not maintain
 *   -ENOMEM
 *   -EMFILE, -ENFILE  no descriptor for an eventfd is left
 */
int coro_sched_open(const struct coro_sched_attr *attr,
		    struct coro_sched **out);

/*
 * Closes a scheduler: coro_sched_shut() first, then destroys the coroutines
 * that are left (their cleanups run), and frees everything. Armed timers and
 * wake-ups that have not run (coro_wake_post()) are dropped without a call. A
 * call inside a coroutine or from another thread, and a lack of memory to run a
 * cleanup, end the process with a message.
 */
void coro_sched_close(struct coro_sched *s);

/* Returns the calling thread's scheduler, NULL if it has none. */
struct coro_sched *coro_sched_self(void);

/*
 * Runs one round: what was posted, then each coroutine that is ready, once.
 * Coroutines that become ready meanwhile wait for the next round. Returns how
 * many were resumed; 0 inside a coroutine or from another thread.
 */
unsigned coro_sched_round(struct coro_sched *s);

/* Returns whether a coroutine is ready, or anything has been posted. */
bool coro_sched_ready(const struct coro_sched *s);

/*
 * Sets the cached time and runs every timer that is due (sleeps, deadlines,
 * struct coro_timer). The cached time never goes back. In a timer's callback it
 * sets the time only.
 */
void coro_sched_advance(struct coro_sched *s, int64_t now_ns);

/* Returns the cached time: that of the last coro_sched_advance(). */
int64_t coro_sched_now(const struct coro_sched *s);

/* Reads the scheduler's clock (not cached). */
int64_t coro_sched_clock(const struct coro_sched *s);

/*
 * Returns when the next timer is due, or earlier (if a timer has been moved to
 * a later time), never later; CORO_FOREVER if no timer is armed.
 */
int64_t coro_sched_next_ns(const struct coro_sched *s);

/* ---- coroutines the scheduler runs ---- */

/*
 * Creates a coroutine that runs fn(arg), and makes it ready. attr: NULL means
 * the defaults. arg: borrowed by fn; not on a shared stack.
 *
 * With out == NULL the coroutine is detached: it is freed when its body
 * returns. Otherwise the caller owns a handle, which stays valid after the body
 * has returned, until exactly one of coro_join(), coro_detach() and
 * coro_destroy() gives it back.
 *
 * Returns 0, -ENOMEM, -EINVAL (an attribute is wrong, or fn is NULL) or -EPERM
 * (s is not the calling thread's scheduler).
 */
int coro_spawn(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
	       void *arg, struct coro **out);

/* Returns the running coroutine; NULL outside a coroutine. */
struct coro *coro_self(void);

/*
 * Blocks until coro_unpark(). An unpark that came first is remembered (one, not
 * a count) and makes the call return at once. Other blocking calls never
 * consume it. Returns 0 or an error of blocking calls.
 */
int coro_park(void);

/* Like coro_park(), but returns -ETIMEDOUT also at deadline_ns. */
int coro_park_until(int64_t deadline_ns);

/*
 * Makes a parked coroutine ready, or makes its next park return at once. A
 * coroutine that has ended is ignored.
 */
void coro_unpark(struct coro *co);

/*
 * Lets the other ready coroutines run first. Returns 0, -ECANCELED, -EPERM or
 * -ENOMEM; deadlines do not matter.
 */
int coro_yield(void);

/*
 * Sleeps for ns, or until t_ns. Never returns 0 early; a time that has passed
 * yields. Returns 0, or an error of blocking calls: -ETIMEDOUT if the
 * coroutine's own deadline came first.
 */
int coro_sleep_ns(int64_t ns);
int coro_sleep_until(int64_t t_ns);

/*
 * Asks a coroutine to stop: the call that it is blocked in, or else its next
 * blocking call, returns -ECANCELED. Only one call does, so that the coroutine
 * may block again, for example to send a last message. Does not block. A
 * coroutine that has ended is ignored.
 */
void coro_cancel(struct coro *co);

/*
 * Returns whether coro_cancel() was ever called on the running coroutine; false
 * outside a coroutine.
 */
bool coro_cancelled(void);

/*
 * Blocks until the body has returned, stores what it returned in *result
 * (result may be NULL), and gives the handle back. After an error the caller
 * still owns the handle. Outside a coroutine it does not wait. Returns 0 or
 *   -EBUSY    another coroutine joins it; outside a coroutine: it has not ended
 *   -EDEADLK  co is the calling coroutine
 *   -EINVAL   co is detached
 *   -EPERM    co belongs to another thread
 *   -ENOMEM
 */
int coro_join(struct coro *co, void **result);
int coro_join_until(struct coro *co, void **result, int64_t deadline_ns);

/*
 * Gives the handle back: the coroutine is freed when its body returns. A
 * coroutine that is detached already is ignored; one that another coroutine
 * joins ends the process with a message.
 */
void coro_detach(struct coro *co);

/*
 * Sets the deadline of every blocking call of the running coroutine from now
 * on; CORO_FOREVER removes it. Returns the previous one, for the caller to
 * restore. Outside a coroutine it sets the deadline that inherit_deadline takes
 * over there.
 */
int64_t coro_deadline_set(int64_t deadline_ns);

/* Returns the deadline that coro_deadline_set() set, CORO_FOREVER if none. */
int64_t coro_deadline(void);

/*
 * Ends the running coroutine as if its body had returned result. Outside a
 * coroutine it ends the process with a message.
 */
void coro_exit(void *result) __attribute__((noreturn));

/*
 * Push has fn(arg) run when the coroutine ends, in whatever way; the function
 * that was pushed last runs first. It runs in the coroutine and may use its
 * locals; blocking calls in it return -ECANCELED. arg: borrowed; it may lie on
 * the coroutine's stack. Pop removes the function that was pushed last, and
 * runs it if `run` is true. Push returns 0, -ENOMEM or -EPERM (outside a
 * coroutine); pop 0, -ENOENT (there is none) or -EPERM.
 */
int coro_cleanup_push(void (*fn)(void *arg), void *arg);
int coro_cleanup_pop(bool run);

/*
 * Coroutine-local storage. A key belongs to the process, and each coroutine has
 * its own value for it, NULL at first. When a coroutine ends, after its
 * cleanups, destructor (may be NULL) is called with each of its values that is
 * not NULL, in at most four turns if destructors set values again. Any thread
 * may create a key, and delete one for which no coroutine has a value. Returns
 * 0, -EAGAIN (create: 256 keys are in use) or -EINVAL (delete: no such key).
 */
int coro_key_create(void (*destructor)(void *value), unsigned *key);
int coro_key_delete(unsigned key);

/*
 * Sets the running coroutine's value of a key; value is borrowed until it is
 * replaced or its destructor is called. Returns 0, -EINVAL (no such key),
 * -ENOMEM or -EPERM (outside a coroutine).
 */
int coro_local_set(unsigned key, void *value);

/*
 * Returns the running coroutine's value of a key; NULL if it has set none, and
 * outside a coroutine.
 */
void *coro_local_get(unsigned key);

/* Like coro_park_until(); dumps show the name (static) as where it waits. */
int coro_park_at(const char *where, int64_t deadline_ns);

/*
 * Like coro_park_until(), but returns -EOWNERDEAD if coro_destroy() ends the
 * coroutine. The caller then undoes its wait and calls coro_exit().
 */
int coro_park_in_call(int64_t deadline_ns);

/*
 * Returns the name of a coroutine (coro_attr.name). Borrowed: valid while its
 * scheduler is open.
 */
const char *coro_name(const struct coro *co);

/* ---- the asymmetric core: resuming by hand, values in both directions ---- */

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

/* The parts of coro_resume() and coro_suspend(): private. */
struct coro_pair coro_resume_pair(struct coro *co, void *in);
struct coro_pair coro_suspend_pair(void *out);

/*
 * Creates a coroutine that does not run until coro_resume(), or until
 * coro_start() gives it to the scheduler. The caller owns the handle, and gives
 * it back with coro_destroy(); if the scheduler runs it, coro_join() or
 * coro_detach() do as well. Errors as in coro_spawn().
 */
int coro_create(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
		struct coro **out);

/*
 * Runs co until it suspends or ends. `in` is the argument of its body the first
 * time, and then the value that its coro_suspend() gives. *out (out may be
 * NULL) gets the value that it suspended with, or returned. May be called
 * inside a coroutine or outside, nested to any depth.
 *
 * If co blocks meanwhile, it waits for the scheduler and the calling coroutine
 * waits for co, as if it had blocked itself. Outside a coroutine the call
 * returns -EAGAIN at once instead.
 *
 * Returns 0 or
 *   -EAGAIN  co has blocked, see above, or was destroyed while it was blocked
 *   -ESRCH   co has ended
 *   -EBUSY   co runs, is in the run queue, or is blocked
 *   -EPERM   co belongs to another thread
 *   -ENOMEM  the bytes of a stack could not be saved
 */
static inline int coro_resume(struct coro *co, void *in, void **out)
{
	struct coro_pair pair = coro_resume_pair(co, in);

	if (pair.err == 0 && out)
		*out = pair.value;
	return (int)pair.err;
}

/*
 * Returns to the coro_resume() that runs this coroutine, whose *out gets `out`.
 * *in (in may be NULL) gets the value that the next resume gives. A coroutine
 * that the scheduler runs returns to it, until coro_resume() or coro_start().
 * Returns 0, -EPERM (outside a coroutine), -ECANCELED (in a cleanup) or -ENOMEM
 * (the bytes of a stack could not be saved).
 */
static inline int coro_suspend(void *out, void **in)
{
	struct coro_pair pair = coro_suspend_pair(out);

	if (pair.err == 0 && in)
		*in = pair.value;
	return (int)pair.err;
}

/*
 * Gives a coroutine to the scheduler: one that coro_create() or coro_reset()
 * has made, whose body gets arg, or one that has suspended, whose
 * coro_suspend() gives arg. arg is borrowed by the coroutine. Returns 0, -EBUSY
 * (it runs, is in the run queue, or is blocked), -ESRCH (it has ended) or
 * -EPERM (it belongs to another thread).
 */
int coro_start(struct coro *co, void *arg);

/* Returns the state of a coroutine. */
enum coro_status coro_status(const struct coro *co);

/*
 * Makes a coroutine that has ended new, with the same attributes, to run fn.
 * The caller keeps its handle. Returns 0, -EBUSY (it has not ended), -EINVAL
 * (co is detached, or fn is NULL), -ENOMEM or -EPERM (it belongs to another
 * thread).
 */
int coro_reset(struct coro *co, coro_fn fn);

/*
 * Ends a coroutine wherever it waits, and gives its handle back, if there is
 * one. Its cleanups and local destructors run now, in the coroutine. A lock
 * that it holds, or that was handed to it while it waited, stays locked; a
 * semaphore's count, a signal or a channel's value that was handed to it is
 * lost. Unlock in a cleanup, and stop a coroutine that waits for such things
 * with coro_cancel(), which loses none.
 *
 * Returns 0, -EBUSY (it runs, has resumed another, or is being joined), -EPERM
 * (it belongs to another thread) or -ENOMEM (no memory to run the cleanups;
 * nothing has changed).
 */
int coro_destroy(struct coro *co);

/* Returns whether the caller is in a coroutine. */
static inline bool coro_inside(void)
{
	return coro_self() != NULL;
}

/* ---- a loop for programs that have none ---- */

/*
 * Runs until no coroutine, timer or hold (coro_sched_hold()) is left to run or
 * wait for, or until coro_sched_stop(). The thread sleeps while there is
 * nothing to do. Programs that have a loop of their own call
 * coro_sched_advance() and coro_sched_round() instead. Returns 0 or
 *   -EDEADLK  coroutines are blocked and nothing can wake them; a message and a
 *             dump go to stderr
 *   -EPERM    called inside a coroutine or from another thread
 * or an error of coro_sched_wait().
 */
int coro_sched_run(struct coro_sched *s);

/* Makes coro_sched_run() return, after its current round. */
void coro_sched_stop(struct coro_sched *s);

/*
 * Adds n, which may be negative, to the number of holds. While that is above
 * zero, something outside (another thread, a device) may still post, and
 * coro_sched_run() waits for it.
 */
void coro_sched_hold(struct coro_sched *s, int n);

/*
 * Sleeps, the whole thread, until a coroutine is ready, something is posted, a
 * descriptor that is waited for is ready, or until_ns; a signal ends the sleep
 * early. Called outside coroutines. Returns 0, or an error of ppoll(2) such as
 * -ENOMEM.
 */
int coro_sched_wait(struct coro_sched *s, int64_t until_ns);

/* ---- from other threads ---- */

/*
 * Runs fn(arg) on the scheduler's thread, in its next coro_sched_round(),
 * outside any coroutine: fn may unpark, spawn and post; it must not block. May
 * be called from any thread, with or without a scheduler of its own, inside and
 * outside coroutines, and from signal handlers. Never waits and never
 * allocates: the queue has coro_sched_attr.post_capacity places. Functions that
 * one thread posts run in the order in which it posted them. A scheduler that
 * sleeps (coro_sched_run(), coro_sched_wait()) is woken; one that is polled
 * sees the post in its next round.
 *
 * s: open, or referenced (coro_sched_ref()). arg: borrowed until fn has run;
 * not on a shared stack. Each function whose coro_post() returned 0 runs
 * exactly once: those still queued when the scheduler closes run then. Returns
 * 0, -EAGAIN (the queue is full) or -ESHUTDOWN (s closes or has closed).
 */
int coro_post(struct coro_sched *s, void (*fn)(void *arg), void *arg);

/*
 * Blocks the calling coroutine until fn(arg) has run on the thread of `to`, as
 * with coro_post() but without the bound of its queue. *result (result may be
 * NULL) gets what fn returned. `to` is open or referenced, and may be the
 * caller's own scheduler. arg: borrowed until the call returns; not on a shared
 * stack.
 *
 * Once fn has begun, the call waits for its end whatever the deadline and
 * returns 0; the next blocking call then reports a coro_cancel(). Destroying a
 * coroutine whose fn has begun makes the thread wait for fn.
 *
 * Returns 0, or an error, and then fn has not run and never will: one of
 * blocking calls, or
 *   -ESHUTDOWN  `to` closes or has closed
 *   -EAGAIN     1,024 calls that coroutines of the caller's scheduler have
 *               given up are still queued at schedulers that do not run
 *   -ENOMEM
 */
int coro_call(struct coro_sched *to, coro_fn fn, void *arg, void **result);
int coro_call_until(struct coro_sched *to, coro_fn fn, void *arg, void **result,
		    int64_t deadline_ns);

/*
 * Closes the scheduler to other threads: from now on coro_post() and
 * coro_call() to it return -ESHUTDOWN; functions that were posted before run
 * now. For programs that take other things down before coro_sched_close(),
 * which begins with it. A call inside a coroutine or from another thread ends
 * the process with a message.
 */
void coro_sched_shut(struct coro_sched *s);

/*
 * Take and give back a reference, which keeps the struct valid for coro_post(),
 * coro_call() and coro_wake_post() after the scheduler has closed. A thread
 * that posts needs one unless it is certain that the scheduler is open during
 * the call (because it is its own, or because the scheduler's thread joins it
 * before closing). Take one on the scheduler's thread, or on a thread that has
 * one already. Unref: any thread, not in a signal handler; NULL is ignored. Ref
 * returns s.
 */
struct coro_sched *coro_sched_ref(struct coro_sched *s);
void coro_sched_unref(struct coro_sched *s);

/*
 * A wake-up from another thread or a signal handler: a coro_post() of one fixed
 * callback, with the caller's memory, which must stay valid until the callback
 * has begun. fn runs on the scheduler's thread, outside coroutines, in its next
 * round; it may unpark and spawn; it must not block. Posting again before it
 * ran adds nothing. A wake-up that has not run when the scheduler closes, or
 * that is posted later, is dropped.
 */
struct coro_wake {
	struct coro_wake *next; /* private */
	int posted;		/* private */
	bool own;		/* private */
	void (*fn)(struct coro_wake *w);
};

/* Initialises a wake-up, before it is posted. From any thread. */
void coro_wake_init(struct coro_wake *w, void (*fn)(struct coro_wake *w));

/*
 * Posts a wake-up, without locks. From any thread or signal handler. s: open,
 * or referenced (coro_sched_ref()). w: not on a shared stack.
 */
void coro_wake_post(struct coro_sched *s, struct coro_wake *w);

/* ---- diagnostics ---- */

/*
 * Writes to the descriptor fd every coroutine, its state and where it waits,
 * and the high-water mark of each name. Allocates nothing: a signal handler on
 * the scheduler's thread may call it.
 */
void coro_sched_dump(struct coro_sched *s, int fd);

/* A description of a coroutine. The texts are borrowed while it lives. */
struct coro_info {
	const struct coro *co;
	const char *name, *state;
	const char *where;  /* the call it waits in, NULL: it does not wait */
	size_t stack_bytes; /* coro_stack_high_water() */
	int64_t wakes_ns;   /* its timer; CORO_FOREVER: it has none */
	bool cancelled;
};

/*
 * The state of a walk over a scheduler's coroutines in pieces, between which
 * coroutines may begin and end; one that lives during the whole walk is
 * reported once. Zeroed at first. A walk whose `begun` and `left` are copied
 * from an earlier one continues it.
 */
struct coro_walk {
	uint64_t left;
	const void *chunk; /* private; NULL to continue another walk */
	bool begun, done;
};

/*
 * Continues the walk by at most max coroutines and at most `looks` control
 * blocks, which bounds the cost of a call. Returns how many out[] were filled.
 * The walk is at its end when walk->done is true, not when fewer than max were
 * filled.
 */
unsigned coro_sched_walk(const struct coro_sched *s, struct coro_walk *walk,
			 struct coro_info *out, unsigned max, unsigned looks);

/*
 * Dumps to stderr when the signal signo (such as SIGQUIT) comes: in the next
 * round, or at once if it comes a second time before that. Closing the
 * scheduler restores the previous action. Returns 0, -EINVAL (signo cannot be
 * handled) or -EBUSY (a scheduler of the process does this already).
 */
int coro_sched_dump_on_signal(struct coro_sched *s, int signo);

/*
 * Describes the object that a coroutine works for. fn is called with words from
 * the first frames of a coroutine, including the argument of its body, and from
 * its registers. If it recognises a word, it writes a description of at most
 * len bytes with the NUL to text and returns true. It is called in signal
 * handlers, so it must be async-signal-safe, and must check that a word is the
 * pointer that it seems before following it.
 */
typedef bool (*coro_recognize_fn)(uintptr_t word, char *text, size_t len);

/* Sets the function that adds to messages about a coroutine; NULL: none. */
void coro_sched_recognize(struct coro_sched *s, coro_recognize_fn fn);

/*
 * Sets a function that is called when a coroutine ends, in whatever way: on its
 * stack, after its cleanups, with the argument that it gave to coro_set_last().
 * fn may block, unless coro_destroy() ends the coroutine. So a wrapper can end
 * with a tail call of the body, and keeps no frame while the body waits.
 */
void coro_sched_last(struct coro_sched *s, void (*fn)(void *arg));

/*
 * Sets the running coroutine's argument for that function: borrowed until it
 * has run. NULL, as at first: it is not called. Outside a coroutine, or before
 * coro_sched_last(), it ends the process with a message.
 */
void coro_set_last(void *arg);

/*
 * Writes "coroutine 'NAME'" to text, at most len bytes with the NUL, and in
 * parentheses what coro_sched_recognize()'s function recognises. ucontext: the
 * argument of a signal handler on the scheduler's thread, or NULL. May be
 * called in signal handlers.
 */
void coro_describe(const struct coro *co, const void *ucontext, char *text,
		   size_t len);

/*
 * Returns the running coroutine, NULL if there is none. Also from a signal
 * handler or another thread, which sees a coroutine that ran a moment ago.
 */
struct coro *coro_sched_running(const struct coro_sched *s);

/*
 * Returns a number that changes whenever the scheduler switches to another
 * coroutine: for a watchdog. From any thread.
 */
unsigned coro_sched_turn(const struct coro_sched *s);

/* Returns how many coroutines have not ended. */
unsigned coro_sched_live(const struct coro_sched *s);

/*
 * Returns how many bytes control blocks, saved stacks and timers have taken
 * from the system. They are reused, but given back only when the scheduler
 * closes, so this never falls. Shared stacks themselves and private stacks are
 * not counted.
 */
size_t coro_sched_memory(const struct coro_sched *s);

/* Returns how many of those bytes coroutines and saved stacks use now. */
size_t coro_sched_memory_live(const struct coro_sched *s);

/*
 * Sets a limit of coro_sched_memory(): beyond it, creating a coroutine that
 * needs more memory fails (-ENOMEM). SIZE_MAX, the default: no limit. Running
 * coroutines may exceed it to save their stacks, since otherwise none could go
 * on.
 */
void coro_sched_limit_memory(struct coro_sched *s, size_t bytes);

/*
 * Returns the largest stack use of a coroutine in bytes. Exact with
 * coro_sched_attr.measure_stacks. Otherwise its use now or when its stack was
 * saved, to within a quarter: deeper calls between its switches are not seen.
 */
size_t coro_stack_high_water(const struct coro *co);

/*
 * Returns the largest stack use in bytes of all coroutines of that name,
 * including those that have ended; 0: unknown.
 */
size_t coro_name_high_water(const struct coro_sched *s, const char *name);

/*
 * Returns whether p lies on a shared stack of the calling thread, where it
 * dangles while its coroutine is switched out. The calls that store pointers
 * check this themselves. From any thread.
 */
bool coro_on_shared_stack(const void *p);

/* ---- timers: usable without coroutines ---- */

/*
 * An intrusive timer. The caller owns the memory, which must stay valid until
 * the timer has fired or been cancelled, and must not lie on a shared stack. fn
 * runs inside coro_sched_advance(), on the thread's own stack, with the timer
 * already disarmed: it may arm it again, cancel others and unpark coroutines;
 * it must not block.
 */
struct coro_timer {
	void (*fn)(struct coro_timer *t);
	uintptr_t *entry; /* private; NULL when not armed */
	int64_t expires_ns;
};

/* Initialises a timer, disarmed. */
void coro_timer_init(struct coro_timer *t, void (*fn)(struct coro_timer *t));

/*
 * Arms a timer, or moves an armed one, to the time expires_ns. It fires in the
 * first coro_sched_advance() to that time or later, never before, and at most
 * one tick (16.4 us) late; if the time has passed, in the next advance.
 */
void coro_timer_arm(struct coro_sched *s, struct coro_timer *t,
		    int64_t expires_ns);

/* Disarms a timer. Returns whether it was armed. */
bool coro_timer_cancel(struct coro_sched *s, struct coro_timer *t);

/* Returns whether a timer is armed. */
bool coro_timer_armed(const struct coro_timer *t);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
