/*
 * coro_post.c - what other threads and signal handlers post to a scheduler.
 */
#include "coro_priv.h"

#include <unistd.h>

void coro_wake_init(struct coro_wake *w, void (*fn)(struct coro_wake *w))
{
	*w = (struct coro_wake){.fn = fn};
}

void coro_wake_post(struct coro_sched *s, struct coro_wake *w)
{
	struct coro_wake *head;
	int saved = errno;

	coro_check_shared(s, w, "coro_wake_post: the wake-up");
	if (__atomic_exchange_n(&w->posted, 1, __ATOMIC_ACQ_REL))
		return;
	head = atomic_load_explicit(&s->inbox, memory_order_relaxed);
	do {
		w->next = head;
	} while (!atomic_compare_exchange_weak(&s->inbox, &head, w));
	/* Either we see it asleep, or it sees the inbox before it sleeps. */
	if (atomic_load(&s->asleep) &&
	    write(s->event_fd, &(uint64_t){1}, 8) < 0) {
		/* full: it will wake all the same */
	}
	errno = saved;
}

/* What was posted, in the order it was. */
void coro_inbox_drain(struct coro_sched *s)
{
	struct coro_wake *w = atomic_exchange(&s->inbox, NULL), *list = NULL;

	while (w != NULL) {
		struct coro_wake *next = w->next;

		w->next = list;
		list = w;
		w = next;
	}
	while (list != NULL) {
		w = list;
		list = w->next;
		__atomic_store_n(&w->posted, 0, __ATOMIC_RELEASE);
		w->fn(w);
	}
}
