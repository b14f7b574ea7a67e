/*
 * coro_life.c - creates and ends coroutines: names, control blocks, save
 * buffers, spawning, joining.
 *
 * Control blocks and save buffers come from the scheduler's memory and return
 * to it; the system gets nothing back before the scheduler closes.
 */
#include "coro_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIVATE_SIZE_DEFAULT ((size_t)64 << 10)
#define PRIVATE_SIZE_MIN     ((size_t)4 << 10)
#define PRIVATE_SIZE_MAX     ((size_t)1 << 30)
#define NAMES_MAX	     65535

/* ---- names ---- */

uint16_t coro_name_add(struct coro_sched *s, const char *name)
{
	uint32_t cap = s->names_cap ? s->names_cap * 2 : 16;
	struct coro_name *names;

	if (s->nnames == s->names_cap) {
		if (cap > NAMES_MAX)
			return 0;
		/* A watchdog's thread may be reading the old array: keep it. */
		names = coro_arena_get(&s->arena, cap * sizeof(*names), 64);
		if (!names)
			return 0;
		if (s->nnames != 0)
			memcpy(names, s->names, s->nnames * sizeof(*names));
		s->names = names;
		s->names_cap = cap;
	}
	names = &s->names[s->nnames];
	memset(names, 0, sizeof(*names));
	snprintf(names->name, sizeof(names->name), "%s", name);
	return s->nnames++;
}

/* Returns a name's index in s->names, 0 if they are full. A coroutine stores
 * these two bytes; the names hold the high-water marks. */
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
		id = coro_name_add(s, name);
	s->name_cache[slot].key = name;
	s->name_cache[slot].id = id;
	return id;
}

const char *coro_name(const struct coro *co)
{
	return coro_owner(co)->names[co->ctx.name].name;
}

/* ---- control blocks ---- */

cold static struct coro *block_refill(struct coro_sched *s)
{
	struct coro_chunk *c;

	if (coro_sched_memory(s) + sizeof(*c) > s->max_bytes)
		return NULL;
	c = coro_arena_get(&s->arena, sizeof(*c), 64);
	if (!c)
		return NULL;
	c->next = s->chunks;
	c->number = c->next ? c->next->number + 1 : 0;
	s->chunks = c;
	s->chunk_cur = c->coros + 1;
	s->chunk_end = c->coros + CORO_CHUNK_COROS;
	return c->coros;
}

static inline struct coro *block_get(struct coro_sched *s)
{
	struct coro *co = s->free_coros;

	if (likely(co)) {
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

	if (unlikely(!co)) {
		coro_stack_define(coro_stack_of((struct coro *)to),
				  to->stack->top);
		return 0;
	}
	/* Before it begins, its only bytes are the first frame, of which `save`
	 * points to a copy. */
	if (!(co->ctx.flags2 & CORO_F2_STARTED))
		return 0;
	/* Buffers of up to 1 KiB fit exactly, so this sees every new depth;
	 * above that, it misses growth within a size class (a quarter). */
	if (co->ctx.hwm_lines < len / 64)
		co->ctx.hwm_lines =
			len / 64 < UINT16_MAX ? len / 64 : UINT16_MAX;
	save = coro_buf_get(s, len, &cap);
	if (likely(save)) {
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

#if CORO_ASAN
/*
 * Also applies to programs that do not set ASAN_OPTIONS. gcc 13 and clang 15
 * put locals into frames of their own, to find uses after a return: such locals
 * are not on a coroutine's stack, and not copied with it.
 */
__attribute__((used, visibility("default"))) const char *
__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_stack_use_after_return=0";
}
#endif

/* Undo a switch that cannot happen: `from` continues, with an error. */
cold void coro_switch_called_off(struct coro_sched *s, struct coro *from,
				 struct coro *to)
{
	uint8_t was = from->ctx.state;

#if CORO_ASAN
	/* ASan believes that it is on to's stack already. */
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
	__sanitizer_start_switch_fiber(&from->fake_stack,
				       coro_stack_of(from)->lo,
				       coro_stack_of(from)->size);
#endif
	coro_switch_note(s, to, from);
	if (was == CORO_ST_NORMAL) { /* in coro_resume() */
		to->ctx.state = to->ctx.flags2 & CORO_F2_STARTED
					? CORO_ST_SUSPENDED
					: CORO_ST_NEW;
		return;
	}
	if (was == CORO_ST_SUSPENDED) { /* to resumed it, and still waits */
		to->ctx.state = CORO_ST_NORMAL;
		return;
	}
	if (was == CORO_ST_QUEUED)
		coro_ring_remove(s, from);
	coro_stop_waiting(s, from);
	if (was == CORO_ST_DEAD && to == from->resumer) {
		to->value = from->value; /* its coro_resume() gets it later */
		to->ctx.flags3 &= ~CORO_F3_AGAIN;
		to->where = "coro_resume";
	}
	to->ctx.state = CORO_ST_QUEUED;
	ring_push(s, to);
}

/* ---- birth and death ---- */

struct coro_ext *coro_ext_get(struct coro_sched *s, struct coro *co)
{
	uint32_t cap;

	if (!co->ext) {
		co->ext = coro_buf_get(s, sizeof(*co->ext), &cap);
		if (co->ext)
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

/* Free all a coroutine has; its control block only if there is no handle. */
static inline void coro_discard(struct coro_sched *s, struct coro *co)
{
	struct coro_stack *st = coro_stack_of(co);

	co->ctx.state = CORO_ST_DEAD;
	co->ctx.flags &= CORO_F_HANDLE | CORO_F_FP | CORO_F_MEASURE;
	if (unlikely(co->ctx.save_cap != 0))
		save_drop(s, co);
	if (unlikely(co->ext))
		ext_drop(s, co);
	if (st->ctx.occupant == &co->ctx)
		st->ctx.occupant = NULL;
	if (likely(st->shared))
		s->next_stack = st->index; /* warm: the next one uses it */
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
	coro_discard(s, co);
}

/* Runs the cleanups, which may not block. */
cold static void run_cleanups(struct coro_sched *s, struct coro *co)
{
	uint8_t destroyed = co->ctx.flags & CORO_F_KILLED;

	co->ctx.flags |= CORO_F_KILLED;
	coro_ext_run(s, co);
	if (!destroyed)
		co->ctx.flags &= ~CORO_F_KILLED;
}

/* Calls the function of coro_sched_last(), which may block. */
static void run_last(struct coro_sched *s, struct coro *co)
{
	void *last = co->last;

	co->last = NULL;
	s->last(last);
}

/* End the running coroutine. It goes on running on its stack until the switch,
 * which is safe: nothing else runs meanwhile. */
void coro_exit_now(struct coro_sched *s, struct coro *co, void *result)
{
	struct coro *to;

	if (unlikely(co->ext))
		run_cleanups(s, co);
	if (co->last)
		run_last(s, co);
	if (unlikely(co->ext && co->ext->joiner))
		coro_ready_with(s, co->ext->joiner, 0);
	if (unlikely(co->ctx.flags & CORO_F_MEASURE))
		coro_stack_measure(s, co);
	coro_discard(s, co);
	co->value = (long)result;
	to = co->resumer;
	if (likely(to->ctx.state == CORO_ST_NORMAL)) { /* resumed by hand */
		coro_switch(s, co, to, (long)result, 0);
	} else {
		to = ring_next(s);
		coro_switch(s, co, to, to->value, next_err(to));
	}
	/* There is no memory to save the occupant of to's stack. The main
	 * context has a stack of its own, and continues the round. */
	co->ctx.state = CORO_ST_DEAD;
	coro_switch(s, co, &s->main, 0, -EAGAIN);
	__builtin_unreachable();
}

void coro_exit(void *result)
{
	struct coro *co = coro_self();

	if (!co)
		coro_die("coro_exit outside a coroutine", NULL);
	coro_exit_now(coro_tls_sched, co, result);
}

/* Runs first on a new coroutine's stack; the body is next. */
struct ctx_start coro_begin(void *arg)
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
	struct coro_sched *s = coro_tls_sched;

	coro_exit_now(s, s->cur, result);
}

void coro_sched_last(struct coro_sched *s, void (*fn)(void *arg))
{
	s->last = fn;
}

void coro_set_last(void *arg)
{
	struct coro_sched *s = coro_tls_sched;

	if (unlikely(!s || s->cur == &s->main || !s->last))
		coro_die("coro_set_last outside a coroutine, or before "
			 "coro_sched_last",
			 NULL);
	s->cur->last = arg;
}

/* Reset co to the state before its body begins. */
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
	co->last = NULL;
	s->live++;
#if CORO_TSAN
	coro_fiber_end(co); /* of the last run, which couldn't end its own */
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

__attribute__((noinline)) static int
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
	if (a->name)
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

	if (unlikely(!s || s != coro_tls_sched))
		return -EPERM;
	if (unlikely(!fn))
		return -EINVAL;
	if (unlikely(!coro_ring_reserve(s)))
		return -ENOMEM;
	co = block_get(s);
	if (unlikely(!co))
		return -ENOMEM;
	co->ctx.name = 0;
	co->ctx.flags = flags | s->measure * CORO_F_MEASURE;
	if (likely(!attr)) {
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

/*
 * Put co on its stack right away if the stack is free, so that its first switch
 * finds it in place. If another needs the stack before then, nothing has to be
 * saved.
 */
static inline void settle_coro(struct coro_sched *s, struct coro *co)
{
	struct coro_stack *st = coro_stack_of(co);

	/* The first switch clears the stack for AddressSanitizer. */
	if (CORO_ASAN || st->ctx.occupant || !st->fresh || unlikely(s->measure))
		return;
	memcpy(co->ctx.sp, s->first_frame, sizeof(s->first_frame));
	st->ctx.occupant = &co->ctx;
}

int coro_spawn(struct coro_sched *s, const struct coro_attr *attr, coro_fn fn,
	       void *arg, struct coro **out)
{
	struct coro *co;
	int err;

	if (s)
		coro_check_shared(s, arg, "coro_spawn: the argument");
	err = new_co(s, attr, fn, arg, 0, &co);
	if (unlikely(err < 0))
		return err;
	settle_coro(s, co);
	co->ctx.state = CORO_ST_QUEUED;
	ring_push(s, co);
	if (out) {
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
	if (unlikely(co->ext && co->ext->joiner))
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
		if (!ext)
			return -ENOMEM;
		if (ext->joiner)
			return -EBUSY;
		ext->joiner = self;
		self->joinee = co;
		self->ctx.flags2 |= CORO_F2_JOINING;
		err = coro_block(s, self, CORO_ST_WAITING, deadline_ns,
				 "coro_join");
		if (err < 0)
			return err;
	}
	if (result)
		*result = (void *)co->value;
	coro_handle_drop(s, co);
	return 0;
}

int coro_join(struct coro *co, void **result)
{
	return coro_join_until(co, result, CORO_FOREVER);
}
