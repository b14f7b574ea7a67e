/*
 * coro_priv.h - types and functions that the files of coro/ share.
 *
 * struct coro is two cache lines: a switch touches only the first; the second
 * is for waiting with a deadline or in a queue. Control blocks come from chunks
 * that are never freed before the scheduler, so a stale pointer in the run
 * queue's prefetch window is harmless. A scheduler and its coroutines belong to
 * one thread, which alone makes the calls below, except where a comment says
 * otherwise.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <coronet/coro.h>
#include <coronet/coro_io.h>
#include <coronet/coro_sync.h>

#include "asm/ctx.h"

/* gcc defines macros for its sanitizers; clang has features. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define CORO_ASAN 1
#else
#define CORO_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CORO_TSAN 1
#else
#define CORO_TSAN 0
#endif

#if CORO_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if CORO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define cold	    __attribute__((cold, noinline))
/* In a shared library the thread's scheduler is one load away, not a call. */
#define coro_tls __thread __attribute__((tls_model("initial-exec")))

enum coro_state {
	CORO_ST_DEAD,	 /* ended, or recycled */
	CORO_ST_QUEUED,	 /* in the run queue */
	CORO_ST_RUNNING, /* it runs now */
	CORO_ST_NORMAL,	 /* it has resumed another one and waits for it */
	CORO_ST_PARKED,	 /* in coro_park: an unpark wakes it */
	CORO_ST_WAITING, /* in any other blocking call */
	/* coro_resume() may resume coroutines in the states from here on. */
	CORO_ST_NEW,	   /* created, neither resumed nor spawned */
	CORO_ST_SUSPENDED, /* in coro_suspend */
};

/* ctx.flags, above CTX_FLAG_FP. A blocking call takes its slow path if a flag
 * of CORO_F_SLOW is set, so the fast path tests one byte. */
enum {
	CORO_F_FP = CTX_FLAG_FP,
	CORO_F_UNPARKED = 2,  /* an unpark came before the park */
	CORO_F_CANCEL = 4,    /* reported by the next blocking call */
	CORO_F_DEADLINE = 8,  /* has an inherited deadline */
	CORO_F_KILLED = 16,   /* running its cleanups: never blocks again */
	CORO_F_MAIN = 32,     /* the thread's own context */
	CORO_F_HANDLE = 64,   /* the handle is held */
	CORO_F_MEASURE = 128, /* its stack is measured whenever it blocks */
	CORO_F_SLOW = CORO_F_UNPARKED | CORO_F_CANCEL | CORO_F_DEADLINE |
		      CORO_F_KILLED | CORO_F_MAIN | CORO_F_MEASURE,
};

/* ctx.flags2 */
enum {
	CORO_F2_TIMED = 1,     /* coro.timer is armed */
	CORO_F2_LINKED = 2,    /* in a wait queue, by link.prev and link.next */
	CORO_F2_SELECT = 4,    /* .select is valid, linked or done */
	CORO_F2_CANCELLED = 8, /* was ever cancelled */
	CORO_F2_SLEEP = 16,    /* its timer means success */
	CORO_F2_STARTED = 32,  /* the body has begun */
	CORO_F2_JOINING = 64,  /* link.joinee is the coroutine it joins */
	CORO_F2_HELD = 128,    /* signalled already: a cancel must wait */
	CORO_F2_WAITS = CORO_F2_TIMED | CORO_F2_LINKED | CORO_F2_SLEEP |
			CORO_F2_JOINING | CORO_F2_HELD,
};

/* ctx.flags3 */
enum {
	CORO_F3_RWLOCK = 1, /* LINKED into the queue of the rwlock in .value */
	CORO_F3_AGAIN = 2,  /* its coro_resume() returns -EAGAIN */
	CORO_F3_CALL = 4,   /* .call is valid */
	CORO_F3_FD = 8,	    /* waits for a file; .value has the events */
};

struct coro_cleanup {
	struct coro_cleanup *next;
	void (*fn)(void *arg);
	void *arg;
};

struct coro_ext {
	struct coro *joiner;
	struct coro_cleanup *cleanups; /* last pushed first */
	void **locals;
	uint32_t nlocals;
	uint32_t locals_cap; /* bytes of the buffer */
};

struct coro {
	/* coro/ uses the owner's fields of ctx; .err holds errno */
	_Alignas(64) struct ctx ctx;
	struct coro *resumer; /* where coro_suspend() and its end switch to */
	long value;	      /* the result of its next resume: a wake-up code;
				 the argument before the start, the result
				 after the end; while it waits, data of the
				 wait */
	const char *where;    /* name of the call it waits in */
	/* second line */
	struct coro_timer timer;
	int64_t deadline; /* inherited by every blocking call */
	union {
		struct coro_link link;
		struct coro_select *select;
		struct coro *joinee;
		struct coro_call *call;
		struct coro *next_free;
		coro_fn fn; /* until it starts */
	};
	struct coro_ext *ext; /* rarely used state, or NULL */
	void *last;	      /* argument of coro_set_last(), or NULL */
#if CORO_ASAN
	void *fake_stack;
#endif
#if CORO_TSAN
	void *fiber;
#endif
};

static_assert(offsetof(struct coro, timer) == 64,
	      "to park and to wake touches one line");
static_assert(sizeof(struct coro) % 64 == 0, "whole cache lines");
#if !CORO_ASAN && !CORO_TSAN
static_assert(sizeof(struct coro) == 128, "two lines");
#endif

/* How many run-queue entries ahead to prefetch: first the control block, later
 * (once that is in the cache) the bytes to restore. */
#define CORO_AHEAD_BLOCK 10
#define CORO_AHEAD_SAVE	 5
#define CORO_AHEAD_LINES 16 /* at most, of the bytes to restore */

struct coro_stack {
	struct ctx_stack ctx;
	struct coro_sched *owner;
	char *lo;	/* lowest usable byte; the guard page is below */
	size_t size;	/* bytes from lo to ctx.top */
	unsigned index; /* of a shared stack */
	bool shared;
	bool fresh; /* shared, and a first frame need not be copied to it */
	bool guarded;
	unsigned valgrind_id;
	struct coro_stack *next_free;
	struct coro_stack *next_all; /* of the private ones */
};

struct coro_pool { /* of private stacks of one size */
	struct coro_stack *free;
	char *cur; /* address space not yet used */
	char *end;
};

struct coro_map {
	struct coro_map *next;
	void *base;
	size_t bytes;
};

/*
 * The size of the guard below a stack, whose bytes fault. A larger stack frame,
 * in code compiled without -fstack-clash-protection, can step over the guard
 * into the next stack. Shared stacks are few, so their guard is larger than
 * most local arrays; that of a private stack costs page tables for each
 * coroutine.
 */
#define CORO_GUARD_SHARED  ((size_t)1 << 20)
#define CORO_GUARD_PRIVATE ((size_t)64 << 10)

#define CORO_POOLS 40 /* 4 KiB << 0..19, with a guard page and without */

#define CORO_BUF_CLASSES 64
#define CORO_BUF_MAX	 ((size_t)4 << 20)

struct coro_bufs {
	void *free[CORO_BUF_CLASSES];
	char *cur[CORO_BUF_CLASSES]; /* fresh memory, not yet linked */
	char *end[CORO_BUF_CLASSES];
	size_t live_bytes; /* allocated, not yet freed */
};

struct coro_region {
	struct coro_region *next;
	size_t bytes;
};

struct coro_arena { /* memory that is freed only when the scheduler closes */
	struct coro_region *regions;
	char *cur;
	char *end;
	size_t next_bytes;
	size_t total_bytes;
};

#define CORO_WHEEL_TICK_BITS 14 /* 16.4 us */
#define CORO_WHEEL_BITS	     6
#define CORO_WHEEL_SLOTS     (1 << CORO_WHEEL_BITS)
#define CORO_WHEEL_LEVELS    9 /* 54 bits of ticks: all of int64_t */

#define CORO_WHEEL_DUE	   (CORO_WHEEL_LEVELS * CORO_WHEEL_SLOTS)
#define CORO_BLOCK_BYTES   1024
#define CORO_BLOCK_ENTRIES 125

struct coro_timer_block {
	_Alignas(CORO_BLOCK_BYTES) struct coro_timer_block *next;
	struct coro_timer_block *prev;
	size_t slot;			     /* whose block it is */
	uintptr_t entry[CORO_BLOCK_ENTRIES]; /* timers; 0: cancelled */
};

static_assert(sizeof(struct coro_timer_block) == CORO_BLOCK_BYTES,
	      "found by the address of an entry");

struct coro_slot {
	uintptr_t *cur; /* entries not used yet, up to end */
	uintptr_t *end;
	struct coro_timer_block *first;
};

struct coro_wheel {
	int64_t tick; /* every slot up to here has been emptied */
	uint64_t armed;
	uint64_t map[CORO_WHEEL_LEVELS]; /* which slots are occupied */
	unsigned due; /* of the two last slots, the one for times past */
	int turning;  /* the slot being emptied, or -1 */
	/* Timers for which there was no memory; those being armed again. */
	struct coro_timer *spilled, *respilled;
	struct coro_timer_block *free_blocks;
	struct coro_slot slot[CORO_WHEEL_DUE + 2];
};

struct coro_name {
	char name[32];
	uint32_t hwm_bytes;
};

/*
 * The C++ runtime's record of the thread's exceptions, laid out by the Itanium
 * C++ ABI (2.2.2): those in a catch block, and the number of those that are
 * unwinding to one. Each coroutine has its own record: see coro_switch_eh().
 */
struct coro_eh {
	void *caught;
	unsigned uncaught;
};

#define CORO_CHUNK_COROS 256

struct coro_sched {
	/* fields that a switch touches */
	struct coro *cur;
	struct coro **ring;
	uint32_t mask;
	uint32_t head;
	uint32_t tail;
	uint32_t round_end; /* outside a round: equal to head */
	unsigned next_stack;
	int *errno_p;
	uint32_t live;	    /* coroutines not ended */
	struct coro_eh *eh; /* the C++ runtime's, or no_eh */
	int64_t now;
	uintptr_t shared_lo; /* the mapping of the shared stacks */
	size_t shared_len;
	struct coro *free_coros;
	bool measure;
	bool crash_report;
	volatile bool dump_asked;
	unsigned fd_waiting; /* coroutines that wait for a file */

	struct coro_stack *stacks;
	unsigned nstacks;
	unsigned guards_mprotected;
	unsigned private_count;
	struct coro_stack *private_all;
	struct coro_map *private_maps;
	struct coro_pool pools[CORO_POOLS];
	bool stop;
	int holds;
	unsigned outside; /* coroutines that another thread will wake */
	unsigned
		wakes_due; /* wake-ups still to come, of destroyed coroutines */
	unsigned calls_left; /* calls given up that have not returned yet */
	struct coro_call *free_calls;
	struct coro_fds *fds; /* NULL: no wait for a file yet */
	void *altstack;
	coro_recognize_fn recognize; /* or NULL */
	void (*last)(void *arg);     /* coro_sched_last(), or NULL */
	struct coro_chunk *chunks;
	struct coro *chunk_cur;
	struct coro *chunk_end;

	int64_t (*clock_ns)(void *ctx);
	void *clock_ctx;
	struct coro_wheel wheel;
	struct coro_arena arena;
	size_t max_bytes; /* of the arena; beyond it no coroutine starts */
	struct coro_bufs bufs;
	struct coro_name *names;
	uint32_t nnames;
	uint32_t names_cap;
	struct {
		const char *key;
		uint16_t id;
	} name_cache[16];

	struct coro_eh no_eh;
	struct coro_stack main_stack;
	struct coro main;
	_Alignas(64) char first_frame[CTX_FRAME_SIZE];

	/* Fields that other threads write, in separate cache lines
	 * (coro_post.c). The scheduler's thread reads the inbox once a round.
	 */
	_Alignas(64) _Atomic(struct coro_wake *) inbox;
	atomic_bool asleep;
	_Atomic uint8_t phase; /* enum coro_phase */
	atomic_uint posters;   /* calls that are posting just now */
	atomic_uint refs;      /* the open scheduler is one */
	int event_fd;	       /* -1: none yet */
	struct coro_wake post_wake;
	_Atomic uint64_t post_tail; /* of the queue of coro_post() */
	_Alignas(64) struct coro_post *posts;
	uint64_t post_mask;
	unsigned post_shift; /* log2 of its slots */
	uint64_t post_head;
};

enum coro_phase {
	CORO_OPEN,
	CORO_SHUT,   /* takes wake-ups, but no posts or calls */
	CORO_CLOSED, /* takes nothing */
};

struct coro_chunk {
	struct coro_chunk *next; /* the previous one */
	uint32_t number;	 /* of chunks made before */
	_Alignas(64) struct coro coros[CORO_CHUNK_COROS];
};

extern coro_tls struct coro_sched *coro_tls_sched
	__attribute__((visibility("hidden")));

static inline struct coro_stack *coro_stack_of(const struct coro *co)
{
	return (struct coro_stack *)co->ctx.stack;
}

static inline struct coro_sched *coro_owner(const struct coro *co)
{
	return coro_stack_of(co)->owner;
}

/* ---- coro_mem.c ---- */
/* align: a power of two, at most 4096. Returns NULL without memory. */
void *coro_arena_get(struct coro_arena *a, size_t bytes, size_t align);
void coro_arena_fini(struct coro_arena *a);
uint32_t coro_buf_round(uint32_t bytes); /* to the size of its class */
/*
 * A buffer of at least `bytes`, 1 to CORO_BUF_MAX, for the caller to free with
 * coro_buf_put() and *cap, its size. Returns NULL without memory.
 */
void *coro_buf_get(struct coro_sched *s, uint32_t bytes, uint32_t *cap);
void coro_buf_put(struct coro_sched *s, void *buf, uint32_t cap);
extern coro_tls unsigned
	coro_mem_fail_in; /* for tests: the n-th allocation from now fails */

/* ---- coro_stack.c ---- */
/* Makes the shared stacks. Returns 0 or -ENOMEM. */
int coro_stacks_init(struct coro_sched *s, size_t size, unsigned count);
void coro_stacks_fini(struct coro_sched *s);
int coro_stack_private_get(struct coro_sched *s, size_t size, bool guard,
			   struct coro_stack **out);
void coro_stack_private_put(struct coro_sched *s, struct coro_stack *st);
bool coro_stack_checked(void); /* whether Valgrind runs the program */
/* Marks the stack's bytes below end as defined, for Valgrind. */
void coro_stack_define(struct coro_stack *st, const char *end);
/* Updates co's high-water mark by the bytes of its stack that are not zero. */
void coro_stack_measure(struct coro_sched *s, struct coro *co);

size_t coro_stack_private_size(const struct coro_stack *st);
/* Returns whether addr is in the guard below the stack. */
bool coro_stack_guards(const struct coro_stack *st, const char *addr);

/* ---- coro_timer.c ---- */
void coro_wheel_init(struct coro_wheel *w, int64_t now_ns);

/* ---- coro_sched.c, coro_life.c ---- */
bool coro_ring_grow(struct coro_sched *s);
/* Copies a name. Returns its index; 0: no memory, or too many names. */
uint16_t coro_name_add(struct coro_sched *s, const char *name);
/* The first function that runs on a new coroutine's stack. */
struct ctx_start coro_begin(void *arg);
cold void coro_die(const char *what, const struct coro *co)
	__attribute__((noreturn));
cold void coro_die_foreign(const struct coro *co) __attribute__((noreturn));
cold void coro_die_shared(const char *what) __attribute__((noreturn));
cold void coro_die_thread(const char *call) __attribute__((noreturn));
/* Undoes a switch for which there is no memory: `from` continues. */
cold void coro_switch_called_off(struct coro_sched *s, struct coro *from,
				 struct coro *to);
/* Removes a queued coroutine from the run queue; walks it. */
cold void coro_ring_remove(struct coro_sched *s, const struct coro *co);
/* Resets co to the state before its body, fn(arg), begins. */
void coro_rewind(struct coro_sched *s, struct coro *co, coro_fn fn, void *arg);
/* Ends co: frees all that it owns, and without a handle its control block. */
void coro_bury(struct coro_sched *s, struct coro *co);
/* Gives up the handle; frees the control block if the coroutine has ended. */
void coro_handle_drop(struct coro_sched *s, struct coro *co);
/* Removes co from every queue in which it waits, and cancels its timer. */
void coro_stop_waiting(struct coro_sched *s, struct coro *co);
/* The resize() of every stack: see struct ctx_stack. */
long coro_resize(struct ctx *ctx, uint32_t len, struct ctx *from,
		 struct ctx *to);
/* Ends co's wait, if any, with this code, and queues co to run. */
void coro_ready_with(struct coro_sched *s, struct coro *co, long code);
/* Returns 0 if the running coroutine may block, else -EPERM or -ECANCELED. */
int coro_may_block(struct coro *co);
/*
 * Blocks the running coroutine until coro_ready_with(), whose code it returns,
 * or a deadline: this or the inherited one. state: PARKED or WAITING; where:
 * the call's name, static. The caller has called coro_may_block().
 */
int coro_block(struct coro_sched *s, struct coro *co, uint8_t state,
	       int64_t deadline_ns, const char *where);
/* coro_block() in state WAITING without a deadline. */
int coro_block_held(struct coro_sched *s, struct coro *co, const char *where);
/* A body returns to this: the slow path (coro_fast.S has the fast one). */
void coro_end(void *result) __attribute__((noreturn));
/* End the running coroutine. */
void coro_exit_now(struct coro_sched *s, struct coro *co, void *result)
	__attribute__((noreturn));
/* co->ext, which is made if necessary; NULL: no memory. */
struct coro_ext *coro_ext_get(struct coro_sched *s, struct coro *co);

/* The coro.where of coroutines in coro_park_in_call(). */
extern const char coro_in_call[] __attribute__((visibility("hidden")));

/* ---- coro.c ---- */
/* Destroys all coroutines, until none is left. */
void coro_destroy_all(struct coro_sched *s);

/* ---- coro_local.c ---- */
/* Runs the cleanups of a coroutine that ends, then its locals' destructors. */
void coro_ext_run(struct coro_sched *s, struct coro *co);

/* ---- coro_sync.c ---- */
/* Called when a waiter has left the queue of the rwlock in its .value. */
cold void coro_rwlock_left(struct coro *co);

/* ---- coro_chan.c ---- */
/* Removes a select from all queues, if its wait ends for another reason. */
void coro_select_abandon(struct coro_sched *s, struct coro_select *sel);
void coro_select_free(struct coro_sched *s, struct coro *co);

/* ---- coro_post.c ---- */
/* Returns 0, -EINVAL (the capacity is too large) or -ENOMEM. */
int coro_post_init(struct coro_sched *s, unsigned capacity);
void coro_inbox_drain(struct coro_sched *s);
/* Makes a wake-up of coro/ itself, which also arrives during the closing. */
void coro_wake_init_own(struct coro_wake *w, void (*fn)(struct coro_wake *w));
/*
 * Post a wake-up, on any thread: to a scheduler that cannot be freed before it
 * arrives; unless the scheduler has closed (false); if the scheduler takes
 * posts (0, or -ESHUTDOWN).
 */
void coro_wake_post_own(struct coro_sched *s, struct coro_wake *w);
bool coro_wake_post_last(struct coro_sched *s, struct coro_wake *w);
int coro_wake_post_open(struct coro_sched *s, struct coro_wake *w);
/* Stops taking posts, and runs those that were posted. */
void coro_post_shut(struct coro_sched *s);
/* Stops taking wake-ups, and waits until those under way have arrived. */
void coro_post_close(struct coro_sched *s);

/* ---- coro_call.c ---- */
/* Called when a coroutine that waits in coro_call() is destroyed. */
cold void coro_call_kill(struct coro_sched *s, struct coro *co);
void coro_calls_fini(struct coro_sched *s);
/* Sends a call to another scheduler. Returns 0, or -errno: it will not run. */
typedef int (*coro_call_send)(struct coro_sched *to, struct coro_wake *w);
/* coro_call_until() that uses `send`; where: the call's name. */
int coro_call_with(coro_call_send send, struct coro_sched *to, coro_fn fn,
		   void *arg, void **result, int64_t deadline_ns,
		   const char *where);

/* ---- coro_fd.c ---- */
/*
 * Wakes the coroutines whose files are ready, if it is time for a check. Called
 * while s->fd_waiting is not 0.
 */
cold void coro_fds_look(struct coro_sched *s);
/* Makes the next coro_fds_look() check: a file may have ended a sleep. */
void coro_fds_look_soon(struct coro_sched *s);
/* The descriptor that a sleep of the thread must wait for; -1: none. */
int coro_fds_epoll(const struct coro_sched *s);
/* Called when a coroutine that waits for a file is destroyed. */
cold void coro_fd_kill(struct coro_sched *s, struct coro *co);
void coro_fds_fini(struct coro_sched *s);

/* ---- coro_debug.c ---- */
void coro_dump_forget(struct coro_sched *s);
void coro_dump_asked(struct coro_sched *s);

/* ---- coro_crash.c ---- */
void coro_crash_watch(struct coro_sched *s);
void coro_crash_unwatch(struct coro_sched *s);

/* ---- switching, with notes for the sanitizers ---- */

/* Destroys TSan's fiber of a coroutine that ends without running. */
void coro_fiber_end(struct coro *co);

/* ctx_switch_pair() with notes for the sanitizers. */
struct coro_pair coro_switch_slow(struct coro_sched *s, struct coro *from,
				  struct coro *to, long value, long err);

/* A switch that saves and restores the record of C++ exceptions. */
struct coro_pair coro_switch_eh(struct coro_sched *s, struct coro *from,
				struct coro *to, long value, long err);

/*
 * Returns whether the running coroutine is in a C++ catch block, or unwinds to
 * one.
 */
static inline bool coro_in_catch(const struct coro_sched *s)
{
	return s->eh->caught || s->eh->uncaught != 0;
}

/*
 * Other names of ctx_switch() (ctx.S), which return the types that its callers
 * return. With a different type the compiler makes no tail call, and the ret
 * after the switch costs more than the switch.
 */
struct coro_pair ctx_switch_pair(struct ctx *from, struct ctx *to, long err,
				 long value);
int ctx_switch_int(struct ctx *from, struct ctx *to, long err, long value);

/* Ensures that the run queue has room for one more coroutine, so that making
 * one ready never fails. Called before `live` grows; false: no memory. */
static inline bool coro_ring_reserve(struct coro_sched *s)
{
	return likely(s->live < s->mask) || coro_ring_grow(s);
}

/* Frees a control block. */
static inline void coro_block_put(struct coro_sched *s, struct coro *co)
{
	co->next_free = s->free_coros;
	s->free_coros = co;
}

/* Updates errno and the running coroutine for a switch. */
static inline void coro_switch_note(struct coro_sched *s, struct coro *from,
				    struct coro *to)
{
	int *errno_p = s->errno_p;

	from->ctx.err = *errno_p;
	*errno_p = to->ctx.err;
	s->cur = to;
	to->ctx.state = CORO_ST_RUNNING;
}

static inline struct coro_pair coro_switch(struct coro_sched *s,
					   struct coro *from, struct coro *to,
					   long value, long err)
{
	coro_switch_note(s, from, to);
	if (unlikely(coro_in_catch(s)))
		return coro_switch_eh(s, from, to, value, err);
	if (CORO_ASAN || CORO_TSAN)
		return coro_switch_slow(s, from, to, value, err);
	return ctx_switch_pair(&from->ctx, &to->ctx, err, value);
}

static inline int coro_switch_int(struct coro_sched *s, struct coro *from,
				  struct coro *to, long value, long err)
{
	coro_switch_note(s, from, to);
	if (unlikely(coro_in_catch(s)))
		return (int)(long)coro_switch_eh(s, from, to, value, err).value;
	if (CORO_ASAN || CORO_TSAN)
		return (int)(long)coro_switch_slow(s, from, to, value, err)
			.value;
	return ctx_switch_int(&from->ctx, &to->ctx, err, value);
}

/* Ends the program if another thread makes a call that returns no error. */
static inline void coro_check_thread(const struct coro_sched *s,
				     const char *call)
{
	if (unlikely(s != coro_tls_sched))
		coro_die_thread(call);
}

/* Waits a moment for another thread; n counts the turns of the waiting loop. */
static inline void coro_relax(unsigned n)
{
	if (n % 64 == 63)
		sched_yield(); /* that thread may need this core */
	else
		__builtin_ia32_pause();
}

/* Ends the program if an object that others use lies on a shared stack. */
static inline void coro_check_shared(const struct coro_sched *s, const void *p,
				     const char *what)
{
	if (unlikely((uintptr_t)p - s->shared_lo < s->shared_len))
		coro_die_shared(what);
}

/* gcc 12 would remove a function that only calls __builtin_prefetch(), because
 * it considers it to have no effect. */
static inline void coro_prefetch(const void *p)
{
	__asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)p));
}

static inline struct coro *coro_current(void)
{
	return coro_tls_sched ? coro_tls_sched->cur : NULL;
}
