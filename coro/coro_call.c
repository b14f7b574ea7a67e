/*
 * coro_call.c - a coroutine asks another thread to run a function, and waits
 * for its result. The other thread is a scheduler's or one of coro_offload.c's.
 *
 * A call is a wake-up. It goes to the other scheduler's inbox, which always has
 * room, or to the queue of the offload threads, and then back to the inbox of
 * the caller. Its state decides who owns it:
 *
 *   WAITING  either side may take it: the other to run it, the caller to leave
 *   LEFT     the caller has left: the other side sends it back, not run
 *   RUNNING  the function runs, and the caller waits until it has ended
 *   DONE     it is on its way back, or has arrived
 *
 * So a call that fails has not run and never will, and arg is the caller's
 * again. The memory comes from malloc, since a call that its caller has left
 * may outlive the caller's scheduler; it is kept for the next call. A scheduler
 * that runs no round keeps the calls that were left there: LEFT_MAX bounds
 * their number for each caller.
 */
#include "coro_priv.h"

#include <stdlib.h>

#define LEFT_MAX 1024

enum { WAITING, LEFT, RUNNING, DONE };

struct coro_call {
	struct coro_wake wake; /* first */
	atomic_int state;
	bool back; /* it has come back; used by the caller's thread */
	struct coro_sched *from;
	struct coro_sched *to;
	struct coro *co; /* NULL: destroyed, call_back() frees this */
	coro_fn fn;
	void *arg;
	void *result;
	struct coro_call *next_free;
};

static struct coro_call *call_get(struct coro_sched *s)
{
	struct coro_call *call = s->free_calls;

	if (!call)
		return malloc(sizeof(*call));
	s->free_calls = call->next_free;
	return call;
}

static void call_put(struct coro_sched *s, struct coro_call *call)
{
	call->next_free = s->free_calls;
	s->free_calls = call;
}

void coro_calls_fini(struct coro_sched *s)
{
	struct coro_call *call;

	while ((call = s->free_calls)) {
		s->free_calls = call->next_free;
		free(call);
	}
}

/* Runs on the caller's thread when a call has come back. */
static void call_back(struct coro_wake *w)
{
	struct coro_call *call = (struct coro_call *)w;
	struct coro_sched *s = call->from;
	struct coro *co = call->co;

	call->back = true;
	if (unlikely(!co)) {
		s->wakes_due--;
		call_put(s, call);
	} else if (co->ctx.state == CORO_ST_WAITING) {
		coro_ready_with(s, co, 0);
	} /* else a deadline made it ready: it will see that we are back */
}

/* Runs on the caller's thread when an abandoned call comes back. */
static void call_left(struct coro_wake *w)
{
	struct coro_call *call = (struct coro_call *)w;

	call->from->calls_left--;
	call_put(call->from, call);
}

/* Runs on the thread that is called. */
static void call_run(struct coro_wake *w)
{
	struct coro_call *call = (struct coro_call *)w;
	struct coro_sched *from = call->from;
	int state = WAITING;

	if (!atomic_compare_exchange_strong(&call->state, &state, RUNNING)) {
		call->wake.fn = call_left;
		if (!coro_wake_post_last(from, &call->wake))
			free(call); /* its scheduler has closed meanwhile */
		coro_sched_unref(from);
		return;
	}
	call->result = call->fn(call->arg);
	call->wake.fn = call_back;
	atomic_store(&call->state, DONE);
	coro_wake_post_own(from, &call->wake);
}

/* Abandon a call that has not begun. Returns false if it is too late. */
static bool call_leave(struct coro_sched *s, struct coro_call *call)
{
	int state = WAITING;

	coro_sched_ref(s); /* the call may come back after s has closed */
	s->calls_left++;
	if (atomic_compare_exchange_strong(&call->state, &state, LEFT))
		return true;
	s->calls_left--;
	coro_sched_unref(s);
	return false;
}

/* Block the whole thread until the function has returned; call_back() frees the
 * call later. */
static void call_spin(struct coro_sched *s, struct coro_call *call)
{
	s->wakes_due++;
	call->co = NULL;
	if (call->to == s) /* the called function is destroying us */
		return;
	for (unsigned n = 0; atomic_load(&call->state) != DONE; n++)
		coro_relax(n);
}

cold void coro_call_kill(struct coro_sched *s, struct coro *co)
{
	struct coro_call *call = co->call;

	co->ctx.flags3 &= ~CORO_F3_CALL;
	s->outside--;
	if (call->back)
		call_put(s, call);
	else if (!call_leave(s, call))
		call_spin(s, call);
}

/*
 * The wait has ended early, but the function has begun, so it will return soon:
 * wait for it, and let neither deadlines nor coro_cancel() end this wait.
 * Returns false if there was no memory to wait with; call_back() frees the call
 * then.
 */
cold static bool call_await(struct coro_sched *s, struct coro *co,
			    struct coro_call *call)
{
	while (!call->back) {
		co->ctx.flags2 |= CORO_F2_HELD;
		if (coro_block_held(s, co, co->where) < 0) {
			co->ctx.flags2 &= ~CORO_F2_HELD;
			call_spin(s, call);
			return false;
		}
	}
	return true;
}

static int call_finish(struct coro_sched *s, struct coro *co, void **result,
		       int err)
{
	struct coro_call *call = co->call;
	bool mine = true, left = false;

	if (unlikely(err < 0)) {
		left = call_leave(s, call);
		if (!left)
			mine = call_await(s, co, call);
	}
	co->ctx.flags3 &= ~CORO_F3_CALL;
	s->outside--;
	if (left)
		return err;
	if (err == -ECANCELED) /* reported by the next call */
		co->ctx.flags |= CORO_F_CANCEL;
	if (result)
		*result = call->result;
	if (mine)
		call_put(s, call);
	return 0;
}

int coro_call_with(coro_call_send send, struct coro_sched *to, coro_fn fn,
		   void *arg, void **result, int64_t deadline_ns,
		   const char *where)
{
	struct coro_sched *s = coro_tls_sched;
	struct coro *co = coro_current();
	struct coro_call *call;
	int err = coro_may_block(co);

	if (err < 0)
		return err;
	coro_check_shared(s, arg,
			  "the argument of a function for another "
			  "thread");
	if (s->calls_left >= LEFT_MAX)
		return -EAGAIN;
	call = call_get(s);
	if (!call)
		return -ENOMEM;
	*call = (struct coro_call){
		.from = s, .to = to, .co = co, .fn = fn, .arg = arg};
	coro_wake_init_own(&call->wake, call_run);
	err = send(to, &call->wake);
	if (err < 0) {
		call_put(s, call);
		return err;
	}
	co->call = call;
	co->ctx.flags3 |= CORO_F3_CALL;
	s->outside++;
	err = coro_block(s, co, CORO_ST_WAITING, deadline_ns, where);
	return call_finish(s, co, result, err);
}

int coro_call_until(struct coro_sched *to, coro_fn fn, void *arg, void **result,
		    int64_t deadline_ns)
{
	return coro_call_with(coro_wake_post_open, to, fn, arg, result,
			      deadline_ns, "coro_call");
}

int coro_call(struct coro_sched *to, coro_fn fn, void *arg, void **result)
{
	return coro_call_until(to, fn, arg, result, CORO_FOREVER);
}
