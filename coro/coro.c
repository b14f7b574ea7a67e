/*
 * coro.c - the asymmetric core, and destruction.
 */
#include "coro_priv.h"

#include "coro_layout.h"

#include <string.h>
#if CORO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

static_assert(offsetof(struct coro, ctx.flags) == CORO_FLAGS, "layout");
static_assert(offsetof(struct coro, ctx.state) == CORO_STATE, "layout");
static_assert(offsetof(struct coro, ctx.err) == CORO_ERR, "layout");
static_assert(offsetof(struct coro, resumer) == CORO_RESUMER, "layout");
static_assert(offsetof(struct coro_sched, cur) == CORO_SCHED_CUR, "layout");
static_assert(offsetof(struct coro_sched, errno_p) == CORO_SCHED_ERRNO_P,
	      "layout");
static_assert(offsetof(struct coro_stack, owner) == CORO_STACK_OWNER, "layout");
static_assert(offsetof(struct coro_stack, index) == CORO_STACK_INDEX, "layout");
static_assert(offsetof(struct coro_stack, fresh) == CORO_STACK_FRESH, "layout");
static_assert(offsetof(struct coro_sched, next_stack) == CORO_SCHED_NEXT,
	      "layout");
static_assert(offsetof(struct coro_sched, live) == CORO_SCHED_LIVE, "layout");
static_assert(offsetof(struct coro_sched, eh) == CORO_SCHED_EH, "layout");
static_assert(offsetof(struct coro_eh, caught) == CORO_EH_CAUGHT &&
		      offsetof(struct coro_eh, uncaught) == CORO_EH_UNCAUGHT,
	      "layout");
static_assert(offsetof(struct coro, ctx.flags2) == CORO_FLAGS2, "layout");
static_assert(offsetof(struct coro, value) == CORO_VALUE, "layout");
static_assert(offsetof(struct coro, fn) == CORO_FN, "layout");
static_assert(offsetof(struct coro, ext) == CORO_EXT, "layout");
static_assert(offsetof(struct coro, last) == CORO_LAST, "layout");
/* save_cap and hwm_lines are tested with one load, the name shifted out. */
static_assert(offsetof(struct ctx, save_cap) == CTX_SAVE_CAP &&
		      offsetof(struct ctx, hwm_lines) == CTX_SAVE_CAP + 4 &&
		      offsetof(struct ctx, name) == CTX_SAVE_CAP + 6,
	      "layout");
static_assert(CORO_ST_DEAD == CORO_ST_DEAD_, "layout");
static_assert((CORO_F_KILLED | CORO_F_MAIN | CORO_F_MEASURE | CORO_F_FP) ==
		      CORO_F_LONG_END,
	      "layout");
static_assert(CORO_F_HANDLE == CORO_F_HANDLE_, "layout");
static_assert(CORO_F2_STARTED == CORO_F2_STARTED_, "layout");
static_assert(CORO_ST_RUNNING == CORO_ST_RUNNING_, "layout");
static_assert(CORO_ST_NORMAL == CORO_ST_NORMAL_, "layout");
static_assert(CORO_ST_NEW == CORO_ST_RESUMABLE_, "layout");
static_assert(CORO_ST_SUSPENDED == CORO_ST_SUSPENDED_, "layout");
static_assert((CORO_F_KILLED | CORO_F_MAIN | CORO_F_MEASURE) == CORO_F_NOT_FAST,
	      "layout");

/* Under the sanitizers coro_fast.S is empty, and these are the functions. */
#if CORO_ASAN || CORO_TSAN
#define coro_resume_slow  coro_resume_pair
#define coro_suspend_slow coro_suspend_pair
#else
struct coro_pair coro_resume_slow(struct coro *co, void *in)
	__attribute__((visibility("hidden")));
struct coro_pair coro_suspend_slow(void *out)
	__attribute__((visibility("hidden")));
#endif

static inline struct coro_pair pair_err(long err)
{
	return (struct coro_pair){NULL, err};
}

cold static long may_not_resume(const struct coro *co)
{
	return co->ctx.state == CORO_ST_DEAD ? -ESRCH : -EBUSY;
}

struct coro_pair coro_resume_slow(struct coro *co, void *in)
{
	struct coro_sched *s = coro_owner(co);
	struct coro *cur;

	if (unlikely(s != coro_tls_sched))
		return pair_err(-EPERM);
	if (unlikely(co->ctx.state != CORO_ST_SUSPENDED &&
		     co->ctx.state != CORO_ST_NEW))
		return pair_err(may_not_resume(co));
	cur = s->cur;
	co->resumer = cur;
	cur->ctx.state = CORO_ST_NORMAL;
	return coro_switch(s, cur, co, (long)in, 0);
}

struct coro_pair coro_suspend_slow(void *out)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co;

	if (unlikely(!s))
		return pair_err(-EPERM);
	co = s->cur;
	if (unlikely(co->ctx.flags &
		     (CORO_F_MAIN | CORO_F_KILLED | CORO_F_MEASURE))) {
		if (!(co->ctx.flags & CORO_F_MEASURE) ||
		    co->ctx.flags & CORO_F_KILLED)
			return pair_err(co->ctx.flags & CORO_F_MAIN
						? -EPERM
						: -ECANCELED);
		coro_stack_measure(s, co);
	}
	co->ctx.state = CORO_ST_SUSPENDED;
	return coro_switch(s, co, co->resumer, (long)out, 0);
}

int coro_start(struct coro *co, void *arg)
{
	struct coro_sched *s = coro_owner(co);

	if (s != coro_tls_sched)
		return -EPERM;
	if (co->ctx.state != CORO_ST_SUSPENDED && co->ctx.state != CORO_ST_NEW)
		return (int)may_not_resume(co);
	co->resumer = &s->main;
	co->ctx.flags3 &= ~CORO_F3_AGAIN;
	co->where = "coro_start";
	coro_ready_with(s, co, (long)arg);
	return 0;
}

enum coro_status coro_status(const struct coro *co)
{
	switch ((enum coro_state)co->ctx.state) {
	case CORO_ST_DEAD:
		return CORO_DEAD;
	case CORO_ST_NEW:
	case CORO_ST_QUEUED:
		return CORO_READY;
	case CORO_ST_RUNNING:
	case CORO_ST_NORMAL:
		return CORO_RUNNING;
	case CORO_ST_SUSPENDED:
	case CORO_ST_PARKED:
	case CORO_ST_WAITING:
		return CORO_SUSPENDED;
	}
	return CORO_DEAD;
}

int coro_reset(struct coro *co, coro_fn fn)
{
	struct coro_stack *st = coro_stack_of(co);
	struct coro_sched *s = st->owner;
	int err;

	if (s != coro_tls_sched)
		return -EPERM;
	if (!(co->ctx.flags & CORO_F_HANDLE) || !fn)
		return -EINVAL;
	if (co->ctx.state != CORO_ST_DEAD)
		return -EBUSY;
	if (!coro_ring_reserve(s))
		return -ENOMEM;
	if (!st->shared) {
		/* Its stack went back to the pool: get one of the same size. */
		err = coro_stack_private_get(s, coro_stack_private_size(st),
					     st->index & 1, &st);
		if (err < 0)
			return err;
		co->ctx.stack = &st->ctx;
	}
	coro_rewind(s, co, fn, NULL);
	return 0;
}

/* ---- destruction ---- */

/* A destroyed coroutine resumes here, on its stack, below its last frame. */
static struct ctx_start end_here(void *value)
{
	struct coro_sched *s = coro_tls_sched;

#if CORO_ASAN
	__sanitizer_finish_switch_fiber(s->cur->fake_stack, NULL, NULL);
#endif
	coro_exit_now(s, s->cur, NULL);
}

/* Let co resume in end_here(), with its stack as it is. */
static int inject_end(struct coro_sched *s, struct coro *co)
{
	char *top = co->ctx.stack->top;
	char *low = (char *)((uintptr_t)co->ctx.sp & -(uintptr_t)64);
	char *frame = low - CTX_FRAME_SIZE;
	uint32_t cap, len = top - low;
	char *save;

	if (co->ctx.stack->occupant != &co->ctx) {
		save = coro_buf_get(s, len + CTX_FRAME_SIZE, &cap);
		if (!save)
			return -ENOMEM;
		memcpy(save + CTX_FRAME_SIZE, co->ctx.save, len);
		if (co->ctx.save_cap != 0)
			coro_buf_put(s, co->ctx.save, co->ctx.save_cap);
		co->ctx.save = save;
		co->ctx.save_cap = cap;
		frame = save;
	}
	ctx_frame_init(frame, co->ctx.stack, end_here, NULL);
	co->ctx.sp = low - CTX_FRAME_SIZE;
	return 0;
}

/* Let the coroutine that resumed co go on: it would wait in vain. */
static void release_resumer(struct coro_sched *s, struct coro *co)
{
	struct coro *r = co->resumer;

	if (r->ctx.state != CORO_ST_NORMAL || r->ctx.flags & CORO_F_MAIN ||
	    co->ctx.state == CORO_ST_SUSPENDED)
		return;
	r->ctx.flags3 |= CORO_F3_AGAIN;
	r->where = "coro_resume";
	coro_ready_with(s, r, 0);
}

/* What the switch and its callers may push on the running stack, in bytes. */
#define SWITCH_FRAMES 2048

/* Reserves memory to save the occupant of co's stack, so that a switch to co
 * cannot fail. */
static int make_way(struct coro_sched *s, const struct coro *co)
{
	const struct coro_stack *st = coro_stack_of(co);
	struct coro *there = (struct coro *)st->ctx.occupant;
	uintptr_t sp;
	uint32_t cap, len;
	void *save;

	if (!there || there == co)
		return 0;
	sp = (uintptr_t)there->ctx.sp;
	if (there == s->cur)
		sp = (uintptr_t)__builtin_frame_address(0) - SWITCH_FRAMES;
	len = (uintptr_t)st->ctx.top - (sp & -(uintptr_t)64);
	if (there->ctx.save_cap >= len)
		return 0;
	save = coro_buf_get(s, len, &cap);
	if (!save)
		return -ENOMEM;
	if (there->ctx.save_cap != 0)
		coro_buf_put(s, there->ctx.save, there->ctx.save_cap);
	there->ctx.save = save;
	there->ctx.save_cap = cap;
	return 0;
}

/* At close a coroutine is destroyed even while it is being joined. Its joiner,
 * which is destroyed too, must not look for it. */
static void forget_joiner(struct coro *co)
{
	struct coro *joiner = co->ext->joiner;

	if (!joiner)
		return;
	co->ext->joiner = NULL;
	joiner->ctx.flags2 &= ~CORO_F2_JOINING;
}

/* Take co out of all that it waits in, and free what its current call would
 * free. */
static void stop_for_good(struct coro_sched *s, struct coro *co)
{
	coro_stop_waiting(s, co);
	if (co->ctx.flags2 & CORO_F2_SELECT)
		coro_select_free(s, co);
	if (co->ctx.flags3 & CORO_F3_CALL)
		coro_call_kill(s, co);
	if (co->ctx.flags3 & CORO_F3_FD)
		coro_fd_kill(s, co);
}

/*
 * Returns whether co is in coro_park_in_call(), whose caller ends the coroutine
 * itself. One that was woken and has not run since still is.
 */
static bool is_in_call(const struct coro *co)
{
	return co->where == coro_in_call && co->ctx.flags2 & CORO_F2_STARTED &&
	       (co->ctx.state == CORO_ST_PARKED ||
		co->ctx.state == CORO_ST_QUEUED);
}

/* Switches to co, which ends on its own stack and switches back. */
static int end_on_its_stack(struct coro_sched *s, struct coro *co)
{
	struct coro *cur = s->cur;
	int err = make_way(s, co);

	if (err == 0 && !is_in_call(co))
		err = inject_end(s, co);
	if (err < 0)
		return err;
	release_resumer(s, co);
	if (co->ctx.state == CORO_ST_QUEUED)
		coro_ring_remove(s, co);
	stop_for_good(s, co);
	co->ctx.flags &= ~CORO_F_HANDLE;
	co->ctx.flags |= CORO_F_KILLED;
	co->resumer = cur;
	cur->ctx.state = CORO_ST_NORMAL;
	err = (int)coro_switch(s, cur, co, -EOWNERDEAD, 0).err;
	return err;
}

/* Returns whether something must run on its stack when it ends. */
static bool has_cleanups(const struct coro *co)
{
	return co->last || is_in_call(co) ||
	       (co->ext && (co->ext->cleanups || co->ext->locals));
}

static int destroy_coro(struct coro_sched *s, struct coro *co)
{
	if (has_cleanups(co))
		return end_on_its_stack(s, co);
	if (co->ctx.state != CORO_ST_NEW)
		release_resumer(s, co);
	if (co->ctx.state == CORO_ST_QUEUED)
		coro_ring_remove(s, co);
	stop_for_good(s, co);
	if (co->ext)
		forget_joiner(co);
	co->ctx.flags &= ~CORO_F_HANDLE;
	coro_fiber_end(co);
	coro_bury(s, co);
	return 0;
}

int coro_destroy(struct coro *co)
{
	struct coro_sched *s = coro_owner(co);

	if (s != coro_tls_sched)
		return -EPERM;
	if (likely(co->ctx.state == CORO_ST_DEAD &&
		   co->ctx.flags & CORO_F_HANDLE)) {
		co->ctx.flags &= ~CORO_F_HANDLE;
		coro_block_put(s, co);
		return 0;
	}
	switch ((enum coro_state)co->ctx.state) {
	case CORO_ST_DEAD:
		return 0;
	case CORO_ST_RUNNING:
	case CORO_ST_NORMAL:
		return -EBUSY;
	case CORO_ST_NEW:
	case CORO_ST_QUEUED:
	case CORO_ST_SUSPENDED:
	case CORO_ST_PARKED:
	case CORO_ST_WAITING:
		break;
	}
	if (co->ext && co->ext->joiner)
		return -EBUSY;
	return destroy_coro(s, co);
}

/* One pass over all coroutines; true if any was left for the next pass. */
static bool destroy_pass(struct coro_sched *s)
{
	bool left = false;

	for (struct coro_chunk *c = s->chunks; c; c = c->next)
		for (unsigned i = 0; i < CORO_CHUNK_COROS; i++) {
			struct coro *co = &c->coros[i];

			if (co->ctx.state == CORO_ST_DEAD)
				continue;
			if (co->ctx.state == CORO_ST_NORMAL)
				left = true;
			else if (destroy_coro(s, co) < 0)
				coro_die("coro_sched_close: no memory", co);
		}
	return left;
}

/*
 * A coroutine that resumed another one is destroyed after it, so there are at
 * most as many passes as the deepest nesting. Cleanups may spawn: go on until
 * none lives.
 */
void coro_destroy_all(struct coro_sched *s)
{
	while (destroy_pass(s) || s->live != 0)
		;
}
