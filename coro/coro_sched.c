/*
 * coro_sched.c - the scheduler: run queue, rounds, parking, waking, ending.
 *
 * The run queue is an array, so that what comes next can be prefetched; it has
 * room for every coroutine, so that waking can't fail. A coroutine that blocks
 * switches straight to the next one of the round. Nothing follows the switch in
 * any of these functions: it is a tail call, and whoever wakes a coroutine also
 * takes it out of queues and stops its timer.
 */
#include "coro_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if CORO_ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if CORO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_SIZE_DEFAULT   ((size_t)256 << 10)
#define STACK_SIZE_MIN	     ((size_t)16 << 10)
#define STACK_SIZE_MAX	     ((size_t)4 << 20)
#define STACK_COUNT_DEFAULT  64
#define STACK_COUNT_MAX	     1024
#define PRIVATE_SIZE_DEFAULT ((size_t)64 << 10)
#define PRIVATE_SIZE_MIN     ((size_t)4 << 10)
#define PRIVATE_SIZE_MAX     ((size_t)1 << 30)
#define RING_FIRST	     1024
#define NAMES_MAX	     65535

coro_tls struct coro_sched *coro_tls_sched;

cold void coro_die(const char *what, const struct coro *co)
{
	fprintf(stderr, "coronet: %s%s%s\n", what, co ? ": coroutine " : "",
		co ? coro_name(co) : "");
	abort();
}

cold void coro_die_shared(const char *what)
{
	fprintf(stderr,
		"coronet: %s lies on a shared stack, where it dangles while "
		"its coroutine is switched out; use the heap, static storage "
		"or a private stack\n",
		what);
	abort();
}

/* ---- the switch as the checkers see it ---- */

#if CORO_ASAN
/* A stack's bytes are exchanged under ASan's eyes: what it knows about the
 * frames that were there doesn't hold for those that come. */
static void asan_before(struct coro *from, struct coro *to)
{
	struct coro_stack *st = coro_stack_of(to);
	bool ends = from->ctx.state == CORO_ST_DEAD;

	if (!(to->ctx.flags & CORO_F_MAIN) && st->ctx.occupant != &to->ctx)
		ASAN_UNPOISON_MEMORY_REGION(st->lo, st->size);
	__sanitizer_start_switch_fiber(ends ? NULL : &from->fake_stack, st->lo,
				       st->size);
}
#endif

void coro_fiber_end(struct coro *co)
{
#if CORO_TSAN
	if (co->fiber != NULL)
		__tsan_destroy_fiber(co->fiber);
	co->fiber = NULL;
#endif
}

struct coro_pair coro_switch_slow(struct coro_sched *s, struct coro *from,
				  struct coro *to, long value, long err)
{
	struct coro_pair pair;

#if CORO_ASAN
	asan_before(from, to);
#endif
#if CORO_TSAN
	__tsan_switch_to_fiber(to->fiber, 0);
#endif
	pair = ctx_switch_pair(&from->ctx, &to->ctx, err, value);
#if CORO_ASAN
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
	return pair;
}

/* ---- the run queue ---- */

static inline void ring_push(struct coro_sched *s, struct coro *co)
{
	s->ring[s->tail++ & s->mask] = co;
}

cold static bool ring_grow(struct coro_sched *s)
{
	uint32_t cap = s->mask + 1;
	struct coro **ring;

	ring = realloc(NULL, (size_t)cap * 2 * sizeof(*ring));
	if (ring == NULL)
		return false;
	for (uint32_t i = s->head; i != s->tail; i++)
		ring[i & (cap * 2 - 1)] = s->ring[i & s->mask];
	free(s->ring);
	s->ring = ring;
	s->mask = cap * 2 - 1;
	return true;
}

/* Take a queued coroutine out; those behind it move up. */
cold void coro_ring_remove(struct coro_sched *s, const struct coro *co)
{
	uint32_t i = s->head;

	while (s->ring[i & s->mask] != co)
		i++;
	if ((int32_t)(s->round_end - i) > 0)
		s->round_end--;
	for (s->tail--; i != s->tail; i++)
		s->ring[i & s->mask] = s->ring[(i + 1) & s->mask];
}

static inline void ring_prefetch(const struct coro_sched *s, uint32_t head)
{
	uint32_t left = s->round_end - head;
	const struct coro *co;
	const char *save;
	size_t bytes;

	if (left > CORO_AHEAD_BLOCK)
		coro_prefetch(s->ring[(head + CORO_AHEAD_BLOCK) & s->mask]);
	if (left <= CORO_AHEAD_SAVE)
		return;
	co = s->ring[(head + CORO_AHEAD_SAVE) & s->mask];
	if (co->ctx.stack->occupant == &co->ctx)
		return;
	save = co->ctx.save;
	bytes = co->ctx.stack->top - (char *)co->ctx.sp;
	if (bytes > CORO_AHEAD_LINES * 64)
		bytes = CORO_AHEAD_LINES * 64;
	for (size_t i = 0; i < bytes; i += 64)
		coro_prefetch(save + i);
}

/* Next of the round, or the thread itself at its end. */
static inline struct coro *ring_next(struct coro_sched *s)
{
	uint32_t head = s->head;

	if (head == s->round_end)
		return &s->main;
	ring_prefetch(s, head);
	s->head = head + 1;
	return s->ring[head & s->mask];
}

/* What a coro_resume() or coro_suspend() in `next` returns. -EAGAIN is for a
 * thread that resumed somebody, who went to wait for the scheduler. */
static inline long next_err(const struct coro_sched *s, const struct coro *next)
{
	return next == &s->main ? -EAGAIN : 0;
}

/* Leave co, whose state says why; returns what wakes it. */
static inline int switch_next(struct coro_sched *s, struct coro *co)
{
	struct coro *next = ring_next(s);

	return coro_switch_int(s, co, next, next->value, next_err(s, next));
}

unsigned coro_sched_round(struct coro_sched *s)
{
	uint32_t start;

	if (unlikely(s != coro_tls_sched || s->cur != &s->main))
		return 0;
	if (unlikely(atomic_load_explicit(&s->inbox, memory_order_relaxed)))
		coro_inbox_drain(s);
	if (unlikely(s->dump_asked))
		coro_dump_asked(s);
	start = s->head;
	s->round_end = s->tail;
	while (s->head != s->round_end) {
		struct coro *next = ring_next(s);

		coro_switch_int(s, &s->main, next, next->value, 0);
	}
	return s->round_end - start;
}

bool coro_sched_ready(const struct coro_sched *s)
{
	return s->head != s->tail ||
	       atomic_load_explicit(&s->inbox, memory_order_relaxed) != NULL;
}

struct coro_sched *coro_sched_self(void)
{
	return coro_tls_sched;
}

int64_t coro_sched_now(const struct coro_sched *s)
{
	return s->now;
}

int64_t coro_sched_clock(const struct coro_sched *s)
{
	return s->clock_ns(s->clock_ctx);
}

/* ---- blocking and waking ---- */

struct coro *coro_self(void)
{
	struct coro *co = coro_current();

	return co == NULL || co->ctx.flags & CORO_F_MAIN ? NULL : co;
}

cold static int may_not_block(struct coro *co)
{
	if (co->ctx.flags & CORO_F_MAIN)
		return -EPERM;
	if (co->ctx.flags & (CORO_F_KILLED | CORO_F_CANCEL)) {
		co->ctx.flags &= ~CORO_F_CANCEL;
		return -ECANCELED;
	}
	return 0;
}

/* 0, or why the running coroutine may not block now: it is none, or has been
 * cancelled. */
int coro_may_block(struct coro *co)
{
	if (unlikely(co == NULL))
		return -EPERM;
	if (likely(!(co->ctx.flags &
		     (CORO_F_MAIN | CORO_F_KILLED | CORO_F_CANCEL))))
		return 0;
	return may_not_block(co);
}

static void timed_out(struct coro_timer *t)
{
	struct coro *co =
		(struct coro *)((char *)t - offsetof(struct coro, timer));
	long code = co->ctx.flags2 & CORO_F2_SLEEP ? 0 : -ETIMEDOUT;

	co->ctx.flags2 &= ~CORO_F2_TIMED;
	coro_ready_with(coro_owner(co), co, code);
}

/* What else a woken coroutine must be taken out of. */
void coro_stop_waiting(struct coro_sched *s, struct coro *co)
{
	uint8_t f = co->ctx.flags2;

	if (f & CORO_F2_TIMED)
		coro_timer_cancel(s, &co->timer);
	if (f & CORO_F2_LINKED) {
		co->link.prev->next = co->link.next;
		co->link.next->prev = co->link.prev;
	}
	if (unlikely(f & CORO_F2_SELECT))
		coro_select_abandon(s, co->select);
	if (unlikely(f & CORO_F2_JOINING))
		co->joinee->ext->joiner = NULL;
	co->ctx.flags2 = f & ~CORO_F2_WAITS;
}

void coro_ready_with(struct coro_sched *s, struct coro *co, long code)
{
	if (co->ctx.flags2 & (CORO_F2_WAITS | CORO_F2_SELECT))
		coro_stop_waiting(s, co);
	co->value = code;
	co->ctx.state = CORO_ST_QUEUED;
	ring_push(s, co);
}

/*
 * Block for good or until a deadline, the nearer of the call's and the
 * inherited one. The caller has asked coro_may_block() and linked co where its
 * waker finds it.
 */
int coro_block(struct coro_sched *s, struct coro *co, uint8_t state,
	       int64_t deadline_ns, const char *where)
{
	int64_t deadline = deadline_ns;

	if (unlikely(co->ctx.flags & CORO_F_DEADLINE) &&
	    co->deadline < deadline) {
		deadline = co->deadline;
		co->ctx.flags2 &= ~CORO_F2_SLEEP;
	}
	if (unlikely(co->ctx.flags & CORO_F_MEASURE))
		coro_stack_measure(s, co);
	co->ctx.state = state;
	co->where = where;
	if (deadline != CORO_FOREVER) {
		if (unlikely(deadline <= s->now)) {
			long code =
				co->ctx.flags2 & CORO_F2_SLEEP ? 0 : -ETIMEDOUT;

			coro_stop_waiting(s, co);
			co->ctx.state = CORO_ST_RUNNING;
			return code;
		}
		co->ctx.flags2 |= CORO_F2_TIMED;
		co->timer.fn = timed_out;
		coro_timer_arm(s, &co->timer, deadline);
	}
	return switch_next(s, co);
}

int coro_block_held(struct coro_sched *s, struct coro *co, const char *where)
{
	co->ctx.state = CORO_ST_WAITING;
	co->where = where;
	return switch_next(s, co);
}

cold static int park_slow(struct coro_sched *s, struct coro *co,
			  int64_t deadline_ns, const char *where)
{
	int err = coro_may_block(co);

	if (err < 0)
		return err;
	if (co->ctx.flags & CORO_F_UNPARKED) {
		co->ctx.flags &= ~CORO_F_UNPARKED;
		return 0;
	}
	return coro_block(s, co, CORO_ST_PARKED, deadline_ns, where);
}

int coro_park(void)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co;

	if (unlikely(s == NULL))
		return -EPERM;
	co = s->cur;
	if (unlikely(co->ctx.flags & CORO_F_SLOW))
		return park_slow(s, co, CORO_FOREVER, "coro_park");
	co->ctx.state = CORO_ST_PARKED;
	co->where = "coro_park";
	return switch_next(s, co);
}

int coro_park_at(const char *where, int64_t deadline_ns)
{
	struct coro_sched *s = coro_tls_sched;

	if (unlikely(s == NULL))
		return -EPERM;
	return park_slow(s, s->cur, deadline_ns, where);
}

int coro_park_until(int64_t deadline_ns)
{
	return coro_park_at("coro_park", deadline_ns);
}

cold void coro_die_foreign(const struct coro *co)
{
	coro_die("used from a thread that isn't its scheduler's "
		 "(coro_wake_post() may be called from anywhere)",
		 co);
}

void coro_unpark(struct coro *co)
{
	struct coro_sched *s = coro_owner(co);

	if (unlikely(s != coro_tls_sched))
		coro_die_foreign(co);
	if (unlikely(co->ctx.state != CORO_ST_PARKED)) {
		if (co->ctx.state != CORO_ST_DEAD)
			co->ctx.flags |= CORO_F_UNPARKED;
		return;
	}
	coro_ready_with(s, co, 0);
}

int coro_yield(void)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co;

	if (unlikely(s == NULL))
		return -EPERM;
	co = s->cur;
	if (unlikely(co->ctx.flags & CORO_F_SLOW)) {
		int err = coro_may_block(co);

		if (err < 0)
			return err;
		if (co->ctx.flags & CORO_F_MEASURE)
			coro_stack_measure(s, co);
	}
	co->ctx.state = CORO_ST_QUEUED;
	co->value = 0;
	ring_push(s, co);
	return switch_next(s, co);
}

int coro_sleep_until(int64_t t_ns)
{
	struct coro *co = coro_current();
	int err = coro_may_block(co);

	if (err < 0)
		return err;
	if (unlikely(t_ns <= coro_tls_sched->now))
		return coro_yield();
	co->ctx.flags2 |= CORO_F2_SLEEP;
	return coro_block(coro_tls_sched, co, CORO_ST_WAITING, t_ns,
			  "coro_sleep");
}

int coro_sleep_ns(int64_t ns)
{
	struct coro_sched *s = coro_tls_sched;
	int64_t t;

	if (unlikely(s == NULL))
		return -EPERM;
	/* From the real time, not the cached one: never shorter than asked. */
	if (__builtin_add_overflow(coro_sched_clock(s), ns, &t))
		t = ns < 0 ? 0 : CORO_FOREVER;
	return coro_sleep_until(t);
}

void coro_cancel(struct coro *co)
{
	struct coro_sched *s = coro_owner(co);

	if (unlikely(s != coro_tls_sched))
		coro_die_foreign(co);
	if (co->ctx.state == CORO_ST_DEAD)
		return;
	co->ctx.flags2 |= CORO_F2_CANCELLED;
	if (co->ctx.state == CORO_ST_PARKED ||
	    (co->ctx.state == CORO_ST_WAITING &&
	     !(co->ctx.flags2 & CORO_F2_HELD)))
		coro_ready_with(s, co, -ECANCELED);
	else
		co->ctx.flags |= CORO_F_CANCEL;
}

bool coro_cancelled(void)
{
	struct coro *co = coro_current();

	return co != NULL && co->ctx.flags2 & CORO_F2_CANCELLED;
}

int64_t coro_deadline_set(int64_t deadline_ns)
{
	struct coro *co = coro_current();
	int64_t old = coro_deadline();

	if (co == NULL)
		return old;
	co->deadline = deadline_ns;
	if (deadline_ns == CORO_FOREVER)
		co->ctx.flags &= ~CORO_F_DEADLINE;
	else
		co->ctx.flags |= CORO_F_DEADLINE;
	return old;
}

int64_t coro_deadline(void)
{
	struct coro *co = coro_current();

	if (co == NULL || !(co->ctx.flags & CORO_F_DEADLINE))
		return CORO_FOREVER;
	return co->deadline;
}

/* ---- names ---- */

static uint16_t name_add(struct coro_sched *s, const char *name)
{
	uint32_t cap = s->names_cap ? s->names_cap * 2 : 16;
	struct coro_name *names;

	if (s->nnames == s->names_cap) {
		if (cap > NAMES_MAX)
			return 0;
		names = realloc(s->names, cap * sizeof(*names));
		if (names == NULL)
			return 0;
		s->names = names;
		s->names_cap = cap;
	}
	names = &s->names[s->nnames];
	memset(names, 0, sizeof(*names));
	snprintf(names->name, sizeof(names->name), "%s", name);
	return s->nnames++;
}

/* A coroutine's name is an index: two bytes, and a place for the sums. */
static uint16_t name_find(struct coro_sched *s, const char *name)
{
	unsigned slot = (uintptr_t)name / 8 % 16;
	uint16_t id = s->name_cache[slot].id;

	if (likely(s->name_cache[slot].key == name &&
		   strncmp(s->names[id].name, name, 31) == 0))
		return id;
	for (id = 0; id < s->nnames; id++)
		if (strncmp(s->names[id].name, name, 31) == 0)
			break;
	if (id == s->nnames)
		id = name_add(s, name);
	s->name_cache[slot].key = name;
	s->name_cache[slot].id = id;
	return id;
}

const char *coro_name(const struct coro *co)
{
	return coro_owner(co)->names[co->ctx.name].name;
}

/* ---- control blocks ---- */

static cold struct coro *block_refill(struct coro_sched *s)
{
	struct coro_chunk *c = coro_arena_get(&s->arena, sizeof(*c), 64);

	if (c == NULL)
		return NULL;
	c->next = s->chunks;
	s->chunks = c;
	s->chunk_cur = c->coros + 1;
	s->chunk_end = c->coros + CORO_CHUNK_COROS;
	return c->coros;
}

static inline struct coro *block_get(struct coro_sched *s)
{
	struct coro *co = s->free_coros;

	if (likely(co != NULL)) {
		s->free_coros = co->next_free;
		return co;
	}
	if (s->chunk_cur != s->chunk_end)
		return s->chunk_cur++;
	return block_refill(s);
}

static void save_drop(struct coro_sched *s, struct coro *co)
{
	if (co->ctx.save_cap != 0)
		coro_buf_put(s, co->ctx.save, co->ctx.save_cap);
	co->ctx.save_cap = 0;
}

/*
 * Called by ctx_switch() when an occupant's bytes don't fit its buffer. The
 * buffer's content is dead: those bytes are on the stack.
 */
long coro_resize(struct ctx *ctx, uint32_t len, struct ctx *from,
		 struct ctx *to)
{
	struct coro *co = (struct coro *)ctx;
	struct coro_sched *s = coro_tls_sched;
	uint32_t cap;
	void *save;

	if (unlikely(co == NULL)) {
		coro_stack_tell(coro_stack_of((struct coro *)to),
				to->stack->top);
		return 0;
	}
	/* Buffers of up to 1 KiB fit exactly, so this sees every new depth;
	 * beyond, within the quarter a class may be too large. */
	if (co->ctx.hwm_lines < len / 64)
		co->ctx.hwm_lines =
			len / 64 < UINT16_MAX ? len / 64 : UINT16_MAX;
	save = coro_buf_get(s, len, &cap);
	if (likely(save != NULL)) {
		save_drop(s, co);
		co->ctx.save = save;
		co->ctx.save_cap = cap;
		return 0;
	}
	if (co->ctx.save_cap >= len)
		return 0;
	coro_switch_called_off(s, (struct coro *)from, (struct coro *)to);
	return -ENOMEM;
}

/* The switch from -> to can't be: from goes on, with an error. */
cold void coro_switch_called_off(struct coro_sched *s, struct coro *from,
				 struct coro *to)
{
	uint8_t was = from->ctx.state;

	coro_switch_note(s, to, from);
	if (was == CORO_ST_NORMAL) { /* in coro_resume() */
		to->ctx.state = to->ctx.flags2 & CORO_F2_STARTED
					? CORO_ST_SUSPENDED
					: CORO_ST_NEW;
	} else {
		if (was == CORO_ST_QUEUED)
			coro_ring_remove(s, from);
		coro_stop_waiting(s, from);
		to->ctx.state = CORO_ST_QUEUED;
		ring_push(s, to);
	}
}

/* ---- birth and death ---- */

struct coro_ext *coro_ext_get(struct coro_sched *s, struct coro *co)
{
	uint32_t cap;

	if (co->ext == NULL) {
		co->ext = coro_buf_get(s, sizeof(*co->ext), &cap);
		if (co->ext != NULL)
			memset(co->ext, 0, sizeof(*co->ext));
	}
	return co->ext;
}

cold static void ext_drop(struct coro_sched *s, struct coro *co)
{
	coro_buf_put(s, co->ext, coro_buf_round(sizeof(*co->ext)));
	co->ext = NULL;
}

static void name_hwm(struct coro_sched *s, const struct coro *co)
{
	struct coro_name *n = &s->names[co->ctx.name];
	uint32_t hwm = co->ctx.hwm_lines * 64u;

	if (n->hwm_bytes < hwm)
		n->hwm_bytes = hwm;
}

/* The end of everything a coroutine had but its control block. */
static inline void bury(struct coro_sched *s, struct coro *co)
{
	struct coro_stack *st = coro_stack_of(co);

	co->ctx.state = CORO_ST_DEAD;
	co->ctx.flags &= CORO_F_HANDLE | CORO_F_FP | CORO_F_MEASURE;
	if (unlikely(co->ctx.save_cap != 0))
		save_drop(s, co);
	if (unlikely(co->ext != NULL))
		ext_drop(s, co);
	if (st->ctx.occupant == &co->ctx)
		st->ctx.occupant = NULL;
	if (likely(st->shared))
		s->next_stack = st->index; /* warm: the next one's */
	else
		coro_stack_private_put(s, st);
	if (unlikely(co->ctx.hwm_lines != 0))
		name_hwm(s, co);
	s->live--;
	if (!(co->ctx.flags & CORO_F_HANDLE))
		coro_block_put(s, co);
}

void coro_bury(struct coro_sched *s, struct coro *co)
{
	bury(s, co);
}

/* End the running coroutine. It goes on running on its stack until the switch,
 * which is safe: nothing else runs meanwhile. */
void coro_exit_now(struct coro_sched *s, struct coro *co, void *result)
{
	struct coro *joiner, *to = co->resumer;

	if (unlikely(co->ext != NULL)) {
		co->ctx.flags |= CORO_F_KILLED;
		coro_ext_run(s, co);
		co->ctx.flags &= ~CORO_F_KILLED;
		joiner = co->ext->joiner;
		if (joiner != NULL)
			coro_ready_with(s, joiner, 0);
	}
	if (unlikely(co->ctx.flags & CORO_F_MEASURE))
		coro_stack_measure(s, co);
	bury(s, co);
	co->value = (long)result;
	if (likely(to->ctx.state == CORO_ST_NORMAL)) { /* resumed by hand */
		coro_switch(s, co, to, (long)result, 0);
	} else {
		to = ring_next(s);
		coro_switch(s, co, to, to->value, next_err(s, to));
	}
	/* Called off: no memory to put aside whoever is on to's stack. The
	 * thread has a stack of its own, and goes on with the round. */
	co->ctx.state = CORO_ST_DEAD;
	coro_switch(s, co, &s->main, 0, -EAGAIN);
	__builtin_unreachable();
}

void coro_exit(void *result)
{
	struct coro *co = coro_self();

	if (co == NULL)
		coro_die("coro_exit outside a coroutine", NULL);
	coro_exit_now(coro_tls_sched, co, result);
}

/* The first that runs on a new coroutine's stack; the body is next. */
static struct ctx_start begin(void *arg)
{
	struct coro *co = coro_tls_sched->cur;

#if CORO_ASAN
	__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
	co->ctx.flags2 |= CORO_F2_STARTED;
	return (struct ctx_start){co->fn, arg};
}

void coro_end(void *result)
{
	coro_exit_now(coro_tls_sched, coro_tls_sched->cur, result);
}

/* Put co before its beginning. */
static inline void rewind_co(struct coro_sched *s, struct coro *co, coro_fn fn,
			     void *arg)
{
	co->ctx.sp = co->ctx.stack->top - CTX_FRAME_SIZE;
	co->ctx.save = s->first_frame;
	co->ctx.save_cap = 0;
	co->ctx.hwm_lines = 0;
	co->ctx.state = CORO_ST_NEW;
	co->ctx.flags2 = 0;
	co->ctx.flags3 = 0;
	co->ctx.err = 0;
	co->resumer = &s->main;
	co->value = (long)arg;
	co->timer.entry = NULL;
	co->fn = fn;
	co->ext = NULL;
	s->live++;
#if CORO_TSAN
	coro_fiber_end(co); /* of the one before: it couldn't end its own */
	co->fiber = __tsan_create_fiber(0);
#endif
}

void coro_rewind(struct coro_sched *s, struct coro *co, coro_fn fn, void *arg)
{
	rewind_co(s, co, fn, arg);
}

static int attr_check(const struct coro_sched *s, const struct coro_attr *a)
{
	if (a->stack != CORO_STACK_SHARED && a->stack != CORO_STACK_PRIVATE)
		return -EINVAL;
	if (a->stack == CORO_STACK_SHARED &&
	    (a->stack_size != 0 || a->no_guard || a->shared_stack > s->nstacks))
		return -EINVAL;
	if (a->stack == CORO_STACK_PRIVATE && a->shared_stack != 0)
		return -EINVAL;
	if (a->stack_size != 0 && (a->stack_size < PRIVATE_SIZE_MIN ||
				   a->stack_size > PRIVATE_SIZE_MAX))
		return -EINVAL;
	return 0;
}

static struct coro_stack *shared_next(struct coro_sched *s)
{
	struct coro_stack *st = &s->stacks[s->next_stack];

	if (++s->next_stack == s->nstacks)
		s->next_stack = 0;
	return st;
}

static __attribute__((noinline)) int
attr_apply(struct coro_sched *s, const struct coro_attr *a, struct coro *co)
{
	struct coro_stack *st = NULL;
	size_t size = a->stack_size ? a->stack_size : PRIVATE_SIZE_DEFAULT;
	int err = attr_check(s, a);

	if (err < 0)
		return err;
	if (a->stack == CORO_STACK_PRIVATE)
		err = coro_stack_private_get(s, size, !a->no_guard, &st);
	else if (a->shared_stack != 0)
		st = &s->stacks[a->shared_stack - 1];
	else
		st = shared_next(s);
	if (err < 0)
		return err;
	co->ctx.stack = &st->ctx;
	if (a->name != NULL)
		co->ctx.name = name_find(s, a->name);
	if (a->save_fp)
		co->ctx.flags |= CORO_F_FP;
	if (a->inherit_deadline && s->cur->ctx.flags & CORO_F_DEADLINE) {
		co->deadline = s->cur->deadline;
		co->ctx.flags |= CORO_F_DEADLINE;
	}
	return 0;
}

static inline __attribute__((always_inline)) int
new_co(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
       void *arg, uint8_t flags, struct coro **out)
{
	struct coro *co;
	int err;

	if (unlikely(s == NULL || s != coro_tls_sched))
		return -EPERM;
	if (unlikely(fn == NULL))
		return -EINVAL;
	/* Room for one more coroutine than there are. */
	if (unlikely(s->live >= s->mask) && !ring_grow(s))
		return -ENOMEM;
	co = block_get(s);
	if (unlikely(co == NULL))
		return -ENOMEM;
	co->ctx.name = 0;
	co->ctx.flags = flags | s->measure * CORO_F_MEASURE;
	if (likely(attr == NULL)) {
		co->ctx.stack = &shared_next(s)->ctx;
	} else {
		err = attr_apply(s, attr, co);
		if (unlikely(err < 0)) {
			co->ctx.state = CORO_ST_DEAD;
			coro_block_put(s, co);
			return err;
		}
	}
	rewind_co(s, co, fn, arg);
	*out = co;
	return 0;
}

int coro_create(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
		struct coro **out)
{
	return new_co(s, attr, fn, NULL, CORO_F_HANDLE, out);
}

int coro_spawn(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
	       void *arg, struct coro **out)
{
	struct coro *co;
	int err = new_co(s, attr, fn, arg, 0, &co);

	if (unlikely(err < 0))
		return err;
	co->ctx.state = CORO_ST_QUEUED;
	ring_push(s, co);
	if (out != NULL) {
		co->ctx.flags |= CORO_F_HANDLE;
		*out = co;
	}
	return 0;
}

void coro_handle_drop(struct coro_sched *s, struct coro *co)
{
	co->ctx.flags &= ~CORO_F_HANDLE;
	if (co->ctx.state == CORO_ST_DEAD)
		coro_block_put(s, co);
}

void coro_detach(struct coro *co)
{
	struct coro_sched *s = coro_owner(co);

	if (unlikely(s != coro_tls_sched))
		coro_die_foreign(co);
	if (unlikely(co->ext != NULL && co->ext->joiner != NULL))
		coro_die("coro_detach while another one joins it", co);
	if (co->ctx.flags & CORO_F_HANDLE)
		coro_handle_drop(s, co);
}

int coro_join_until(struct coro *co, void **result, int64_t deadline_ns)
{
	struct coro_sched *s = coro_owner(co);
	struct coro *self;
	struct coro_ext *ext;
	int err;

	if (unlikely(s != coro_tls_sched))
		return -EPERM;
	self = s->cur;
	if (unlikely(!(co->ctx.flags & CORO_F_HANDLE)))
		return -EINVAL;
	if (unlikely(co == self))
		return -EDEADLK;
	if (co->ctx.state != CORO_ST_DEAD) {
		if (self == &s->main)
			return -EBUSY;
		err = coro_may_block(self);
		if (err < 0)
			return err;
		ext = coro_ext_get(s, co);
		if (ext == NULL)
			return -ENOMEM;
		if (ext->joiner != NULL)
			return -EBUSY;
		ext->joiner = self;
		self->joinee = co;
		self->ctx.flags2 |= CORO_F2_JOINING;
		err = coro_block(s, self, CORO_ST_WAITING, deadline_ns,
				 "coro_join");
		if (err < 0)
			return err;
	}
	if (result != NULL)
		*result = (void *)co->value;
	coro_handle_drop(s, co);
	return 0;
}

int coro_join(struct coro *co, void **result)
{
	return coro_join_until(co, result, CORO_FOREVER);
}

/* ---- opening and closing ---- */

static int64_t clock_monotonic(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static int sched_attr_check(const struct coro_sched_attr *a)
{
	if (a->stack_size != 0 &&
	    (a->stack_size < STACK_SIZE_MIN || a->stack_size > STACK_SIZE_MAX))
		return -EINVAL;
	return a->stack_count > STACK_COUNT_MAX ? -EINVAL : 0;
}

/* Shadow stacks remember return addresses; a switch would look like an attack
 * to them. They aren't switched with the stacks here, so refuse. */
static bool shadow_stack_active(void)
{
	unsigned long features = 0;

	/* ARCH_SHSTK_STATUS; an older kernel knows neither. */
	if (syscall(SYS_arch_prctl, 0x5005, &features) != 0)
		return false;
	return features & 1;
}

static void main_init(struct coro_sched *s)
{
	struct coro *m = &s->main;

	s->main_stack.owner = s;
	s->main_stack.ctx.occupant = &m->ctx;
	ctx_fp_read(&s->main_stack.ctx);
	m->ctx.stack = &s->main_stack.ctx;
	m->ctx.flags = CORO_F_MAIN;
	m->ctx.state = CORO_ST_RUNNING;
	m->deadline = CORO_FOREVER;
	s->cur = m;
#if CORO_ASAN
	{
		pthread_attr_t attr;
		void *lo;
		size_t size;

		pthread_getattr_np(pthread_self(), &attr);
		pthread_attr_getstack(&attr, &lo, &size);
		pthread_attr_destroy(&attr);
		s->main_stack.lo = lo;
		s->main_stack.size = size;
		s->main_stack.ctx.top = (char *)lo + size;
	}
#endif
#if CORO_TSAN
	m->fiber = __tsan_get_current_fiber();
#endif
}

int coro_sched_open(const struct coro_sched_attr *attr, struct coro_sched **out)
{
	static const struct coro_sched_attr defaults;
	const struct coro_sched_attr *a = attr ? attr : &defaults;
	struct coro_sched *s;
	int err = sched_attr_check(a);

	if (err < 0)
		return err;
	if (coro_tls_sched != NULL)
		return -EEXIST;
	if (shadow_stack_active())
		return -ENOTSUP;
	s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);
	if (s == NULL)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	if (coro_stack_checked())
		ctx_isa_choose(CTX_ISA_CHECKED);
	else if (ctx_isa_chosen() == CTX_ISA_SSE2)
		ctx_isa_choose_best();
	s->clock_ns = a->clock_ns ? a->clock_ns : clock_monotonic;
	s->clock_ctx = a->clock_ctx;
	s->measure = a->measure_stacks;
	s->errno_p = &errno;
	main_init(s);
	ctx_frame_init(s->first_frame, &s->main_stack.ctx, begin, coro_end);
	s->ring = malloc(RING_FIRST * sizeof(*s->ring));
	s->mask = RING_FIRST - 1;
	err = -ENOMEM;
	if (s->ring == NULL)
		goto free_sched;
	name_add(s, "coro");
	if (s->names == NULL)
		goto free_ring;
	err = coro_stacks_init(
		s, a->stack_size ? a->stack_size : STACK_SIZE_DEFAULT,
		a->stack_count ? a->stack_count : STACK_COUNT_DEFAULT);
	if (err < 0)
		goto free_arena;
	s->now = coro_sched_clock(s);
	coro_wheel_init(&s->wheel, s->now);
	s->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (s->event_fd < 0) {
		err = -errno;
		coro_stacks_fini(s);
		goto free_arena;
	}
	coro_tls_sched = s;
	s->overflow_report = !a->no_overflow_report;
	if (s->overflow_report)
		coro_overflow_watch(s);
	*out = s;
	return 0;

free_arena:
	coro_arena_fini(&s->arena);
	free(s->names);
free_ring:
	free(s->ring);
free_sched:
	free(s);
	return err;
}

void coro_sched_close(struct coro_sched *s)
{
	if (s != coro_tls_sched || s->cur != &s->main)
		coro_die("coro_sched_close inside a coroutine or from another "
			 "thread",
			 NULL);
	coro_destroy_all(s);
	for (struct coro_chunk *c = s->chunks; c != NULL; c = c->next)
		for (unsigned i = 0; i < CORO_CHUNK_COROS; i++)
			coro_fiber_end(&c->coros[i]);
	coro_dump_forget(s);
	if (s->overflow_report)
		coro_overflow_unwatch(s);
	close(s->event_fd);
	coro_stacks_fini(s);
	coro_arena_fini(&s->arena);
	free(s->names);
	free(s->ring);
	free(s);
	coro_tls_sched = NULL;
}
