/*
 * coro_sched.c - the scheduler: run queue, rounds, parking, waking.
 *
 * A coroutine that blocks switches straight to the next one of the round.
 * Nothing follows the switch in any of these functions: it is a tail call, and
 * the code that wakes a coroutine also takes it out of queues and stops its
 * timer.
 */
#include "coro_ring.h"

#include <stdio.h>
#include <stdlib.h>

coro_tls struct coro_sched *coro_tls_sched;

cold void coro_die(const char *what, const struct coro *co)
{
	fprintf(stderr, "coronet: %s%s%s\n", what, co ? ": coroutine " : "",
		co ? coro_name(co) : "");
	abort();
}

cold void coro_die_thread(const char *call)
{
	fprintf(stderr,
		"coronet: %s() was called from a thread that isn't the "
		"scheduler's (coro_post() and coro_wake_post() may be called "
		"from anywhere)\n",
		call);
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
/* ASan does not see that a stack's bytes are exchanged: what it knows about the
 * old frames doesn't hold for the new ones. */
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
	if (co->fiber)
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

/*
 * Switches out of a C++ catch block, or out of a destructor that runs while an
 * exception unwinds. The runtime's record of these exceptions is kept on the
 * coroutine's own stack and restored when it is resumed; `to` begins with none.
 * So a switch tests one side only, and that test is all a coroutine outside any
 * catch block pays.
 */
cold struct coro_pair coro_switch_eh(struct coro_sched *s, struct coro *from,
				     struct coro *to, long value, long err)
{
	struct coro_eh *eh = s->eh, mine = *eh;
	struct coro_pair pair;

	*eh = (struct coro_eh){0};
	if (CORO_ASAN || CORO_TSAN)
		pair = coro_switch_slow(s, from, to, value, err);
	else
		pair = ctx_switch_pair(&from->ctx, &to->ctx, err, value);
	*eh = mine;
	return pair;
}

/* ---- the run queue ---- */

cold bool coro_ring_grow(struct coro_sched *s)
{
	uint32_t cap = s->mask + 1;
	struct coro **ring;

	ring = realloc(NULL, (size_t)cap * 2 * sizeof(*ring));
	if (!ring)
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

unsigned coro_sched_round(struct coro_sched *s)
{
	uint32_t start;

	if (unlikely(s != coro_tls_sched || s->cur != &s->main))
		return 0;
	if (unlikely(atomic_load_explicit(&s->inbox, memory_order_relaxed)))
		coro_inbox_drain(s);
	if (unlikely(s->dump_asked))
		coro_dump_asked(s);
	if (unlikely(s->fd_waiting != 0))
		coro_fds_look(s);
	start = s->head;
	s->round_end = s->tail;
	while (s->head != s->round_end) {
		struct coro *next = ring_next(s);

		coro_switch_int(s, &s->main, next, next->value, next_err(next));
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

	return !co || co->ctx.flags & CORO_F_MAIN ? NULL : co;
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

/* Returns 0, or why the running coroutine may not block now: there is none, or
 * it has been cancelled. */
int coro_may_block(struct coro *co)
{
	if (unlikely(!co))
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

/* Take co out of all that it waits in. */
void coro_stop_waiting(struct coro_sched *s, struct coro *co)
{
	uint8_t f = co->ctx.flags2;

	if (f & CORO_F2_TIMED)
		coro_timer_cancel(s, &co->timer);
	if (f & CORO_F2_LINKED) {
		co->link.prev->next = co->link.next;
		co->link.next->prev = co->link.prev;
		if (unlikely(co->ctx.flags3 & CORO_F3_RWLOCK))
			coro_rwlock_left(co);
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
 * Block for good or until the nearer of two deadlines, the call's and the
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

	if (unlikely(!s))
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

	if (unlikely(!s))
		return -EPERM;
	return park_slow(s, s->cur, deadline_ns, where);
}

const char coro_in_call[] = "coro_park";

int coro_park_in_call(int64_t deadline_ns)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co;

	if (unlikely(!s))
		return -EPERM;
	co = s->cur;
	if (unlikely(co->ctx.flags & CORO_F_SLOW ||
		     deadline_ns != CORO_FOREVER))
		return park_slow(s, co, deadline_ns, coro_in_call);
	co->ctx.state = CORO_ST_PARKED;
	co->where = coro_in_call;
	return switch_next(s, co);
}

int coro_park_until(int64_t deadline_ns)
{
	return coro_park_at("coro_park", deadline_ns);
}

cold void coro_die_foreign(const struct coro *co)
{
	coro_die("used from a thread that isn't its scheduler's "
		 "(coro_post() and coro_wake_post() may be called from "
		 "anywhere)",
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

	if (unlikely(!s))
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
	co->where = "coro_yield";
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

	if (unlikely(!s))
		return -EPERM;
	/* Count from the real time, not the cached one: never too short. */
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

	return co && co->ctx.flags2 & CORO_F2_CANCELLED;
}

int64_t coro_deadline_set(int64_t deadline_ns)
{
	struct coro *co = coro_current();
	int64_t old = coro_deadline();

	if (!co)
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

	if (!co || !(co->ctx.flags & CORO_F_DEADLINE))
		return CORO_FOREVER;
	return co->deadline;
}
