/*
 * coro_post.c - posts of other threads and signal handlers to a scheduler.
 *
 * All of them arrive in the inbox, a stack to which a poster pushes and from
 * which the scheduler takes everything at once; while it is empty, it costs one
 * load per round. An element is a wake-up (struct coro_wake), which is in the
 * inbox once at most.
 *
 * coro_post() puts a function into a queue of fixed size and posts the queue's
 * own wake-up. A slot of the queue has a turn: 2n means that it is free for the
 * n-th time, 2n + 1 that it is filled. A poster claims a slot by moving the
 * tail, fills it, and then advances its turn, so that posters never wait for
 * each other. The scheduler stops at a slot that is claimed and not yet filled,
 * and continues when the wake-up of its poster arrives (D. Vyukov's bounded
 * queue).
 *
 * Lifetime: a call that posts is counted in `posters` while it uses the
 * scheduler. Closing the scheduler first changes the phase, so that no more
 * posters enter, and then waits until those inside have left, which takes no
 * longer than a push.
 */
#include "coro_priv.h"

#include <stdlib.h>
#include <unistd.h>

#define CAPACITY_DEFAULT 1024
#define CAPACITY_MAX	 (1u << 20)

struct coro_post {
	_Atomic uint64_t turn;
	void (*fn)(void *arg);
	void *arg;
};

/* ---- the count of posting threads ---- */

static bool poster_enter(struct coro_sched *s, enum coro_phase last)
{
	if (atomic_load_explicit(&s->phase, memory_order_relaxed) > last)
		return false;
	atomic_fetch_add(&s->posters, 1);
	if (likely(atomic_load(&s->phase) <= last))
		return true;
	atomic_fetch_sub(&s->posters, 1);
	return false;
}

static void poster_leave(struct coro_sched *s)
{
	atomic_fetch_sub_explicit(&s->posters, 1, memory_order_release);
}

static void wait_for_posters(struct coro_sched *s)
{
	for (unsigned n = 0; atomic_load(&s->posters) != 0; n++)
		coro_relax(n);
}

/* ---- wake-ups ---- */

void coro_wake_init(struct coro_wake *w, void (*fn)(struct coro_wake *w))
{
	*w = (struct coro_wake){.fn = fn};
}

void coro_wake_init_own(struct coro_wake *w, void (*fn)(struct coro_wake *w))
{
	*w = (struct coro_wake){.fn = fn, .own = true};
}

static void inbox_push(struct coro_sched *s, struct coro_wake *w)
{
	struct coro_wake *head;
	int saved = errno;

	if (__atomic_exchange_n(&w->posted, 1, __ATOMIC_ACQ_REL))
		return;
	head = atomic_load_explicit(&s->inbox, memory_order_relaxed);
	do {
		w->next = head;
	} while (!atomic_compare_exchange_weak(&s->inbox, &head, w));
	/* Either we see it asleep, or it sees the inbox before it sleeps. */
	if (atomic_load(&s->asleep) &&
	    write(s->event_fd, &(uint64_t){1}, 8) < 0) {
		/* full: it will wake nevertheless */
	}
	errno = saved;
}

bool coro_wake_post_last(struct coro_sched *s, struct coro_wake *w)
{
	if (!poster_enter(s, CORO_SHUT))
		return false;
	inbox_push(s, w);
	poster_leave(s);
	return true;
}

void coro_wake_post(struct coro_sched *s, struct coro_wake *w)
{
	coro_check_shared(s, w, "coro_wake_post: the wake-up");
	coro_wake_post_last(s, w); /* ignored if s has closed */
}

void coro_wake_post_own(struct coro_sched *s, struct coro_wake *w)
{
	atomic_fetch_add(&s->posters, 1);
	inbox_push(s, w);
	poster_leave(s);
}

int coro_wake_post_open(struct coro_sched *s, struct coro_wake *w)
{
	if (!poster_enter(s, CORO_OPEN))
		return -ESHUTDOWN;
	inbox_push(s, w);
	poster_leave(s);
	return 0;
}

/*
 * Runs what was posted, in order. The exchange sees what a poster has written,
 * even if that poster found the wake-up posted already.
 */
static void inbox_drain(struct coro_sched *s, bool own_alone)
{
	struct coro_wake *w = atomic_exchange(&s->inbox, NULL), *list = NULL;

	while (w) {
		struct coro_wake *next = w->next;

		w->next = list;
		list = w;
		w = next;
	}
	while (list) {
		w = list;
		list = w->next;
		__atomic_exchange_n(&w->posted, 0, __ATOMIC_ACQ_REL);
		if (likely(!own_alone || w->own))
			w->fn(w);
	}
}

void coro_inbox_drain(struct coro_sched *s)
{
	inbox_drain(s, false);
}

/* ---- coro_post ---- */

static int queue_put(struct coro_sched *s, void (*fn)(void *arg), void *arg)
{
	uint64_t at = atomic_load_explicit(&s->post_tail, memory_order_relaxed);
	struct coro_post *p;

	for (;;) {
		uint64_t turn, free = at >> s->post_shift << 1;

		p = &s->posts[at & s->post_mask];
		turn = atomic_load_explicit(&p->turn, memory_order_acquire);
		if (turn < free)
			return -EAGAIN;
		/* A failed exchange reads the tail again. */
		if (turn == free &&
		    atomic_compare_exchange_weak_explicit(
			    &s->post_tail, &at, at + 1, memory_order_relaxed,
			    memory_order_relaxed))
			break;
		if (turn != free)
			at = atomic_load_explicit(&s->post_tail,
						  memory_order_relaxed);
	}
	p->fn = fn;
	p->arg = arg;
	atomic_store_explicit(&p->turn, (at >> s->post_shift << 1) + 1,
			      memory_order_release);
	return 0;
}

/* Run what has been posted by now; what these functions post waits for the next
 * round. */
static void queue_run(struct coro_wake *w)
{
	struct coro_sched *s =
		(struct coro_sched *)((char *)w -
				      offsetof(struct coro_sched, post_wake));
	uint64_t end =
		atomic_load_explicit(&s->post_tail, memory_order_relaxed);

	while (s->post_head != end) {
		uint64_t at = s->post_head;
		uint64_t full = (at >> s->post_shift << 1) + 1;
		struct coro_post *p = &s->posts[at & s->post_mask];
		void (*fn)(void *arg);
		void *arg;

		if (atomic_load_explicit(&p->turn, memory_order_acquire) !=
		    full)
			return; /* its poster's wake-up will come */
		fn = p->fn;
		arg = p->arg;
		s->post_head = at + 1;
		atomic_store_explicit(&p->turn, full + 1, memory_order_release);
		fn(arg);
	}
}

int coro_post(struct coro_sched *s, void (*fn)(void *arg), void *arg)
{
	int err;

	if (coro_tls_sched)
		coro_check_shared(coro_tls_sched, arg,
				  "coro_post: the argument");
	if (unlikely(!poster_enter(s, CORO_OPEN)))
		return -ESHUTDOWN;
	err = queue_put(s, fn, arg);
	if (likely(err == 0))
		inbox_push(s, &s->post_wake);
	poster_leave(s);
	return err;
}

/* ---- opening and closing ---- */

int coro_post_init(struct coro_sched *s, unsigned capacity)
{
	unsigned want = capacity ? capacity : CAPACITY_DEFAULT;

	if (want > CAPACITY_MAX)
		return -EINVAL;
	while (1u << s->post_shift < want)
		s->post_shift++;
	s->post_mask = (1u << s->post_shift) - 1;
	/* calloc() leaves pages untouched until they are used. */
	s->posts = calloc(s->post_mask + 1, sizeof(*s->posts));
	if (!s->posts)
		return -ENOMEM;
	coro_wake_init_own(&s->post_wake, queue_run);
	atomic_init(&s->refs, 1);
	return 0;
}

static void inbox_shut(struct coro_sched *s, bool own_alone)
{
	if (atomic_load(&s->phase) != CORO_OPEN)
		return;
	atomic_store(&s->phase, CORO_SHUT);
	wait_for_posters(s);
	inbox_drain(s, own_alone);
}

void coro_post_shut(struct coro_sched *s)
{
	inbox_shut(s, true);
}

void coro_sched_shut(struct coro_sched *s)
{
	coro_check_thread(s, "coro_sched_shut");
	if (s->cur != &s->main)
		coro_die("coro_sched_shut inside a coroutine", NULL);
	inbox_shut(s, false);
}

void coro_post_close(struct coro_sched *s)
{
	atomic_store(&s->phase, CORO_CLOSED);
	for (unsigned n = 0;; n++) {
		wait_for_posters(s);
		inbox_drain(s, true);
		if (s->wakes_due == 0)
			break;
		coro_relax(n);
	}
	wait_for_posters(s);
}

struct coro_sched *coro_sched_ref(struct coro_sched *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void coro_sched_unref(struct coro_sched *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	free(s->posts);
	free(s);
}
