/*
 * bench_timer.c - a million armed timers: the wheel and a binary heap.
 */
#include "bench.h"

#include <sys/mman.h>

struct heap_timer {
	int64_t expires;
	size_t at;
};

static struct heap_timer **heap;
static size_t heap_len;

static void heap_set(size_t i, struct heap_timer *t)
{
	heap[i] = t;
	t->at = i;
}

static void heap_up(size_t i, struct heap_timer *t)
{
	while (i > 0 && heap[(i - 1) / 2]->expires > t->expires) {
		heap_set(i, heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_set(i, t);
}

static void heap_down(size_t i, struct heap_timer *t)
{
	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= heap_len)
			break;
		if (c + 1 < heap_len && heap[c + 1]->expires < heap[c]->expires)
			c++;
		if (heap[c]->expires >= t->expires)
			break;
		heap_set(i, heap[c]);
		i = c;
	}
	heap_set(i, t);
}

static void heap_arm(struct heap_timer *t, int64_t expires)
{
	t->expires = expires;
	heap_up(heap_len++, t);
}

static void heap_cancel(struct heap_timer *t)
{
	struct heap_timer *last = heap[--heap_len];
	size_t i = t->at;

	if (last == t)
		return;
	heap_up(i, last);
	heap_down(last->at, last);
}

/* When: 1 ms .. 10 s, made beforehand, the same for both. */
static int64_t timer_delay(void)
{
	static int64_t delay[4096];
	static unsigned next;

	if (delay[0] == 0)
		for (unsigned i = 0; i < 4096; i++)
			delay[i] = 1000000 + rnd() % 10000000000u;
	return delay[next++ % 4096];
}

static void *calloc_huge(size_t n, size_t size)
{
	size_t bytes = (n * size + (2 << 20) - 1) & -(2ul << 20);
	void *p = aligned_alloc(2 << 20, bytes);

	if (p == NULL)
		die("aligned_alloc", ENOMEM);
	madvise(p, bytes, MADV_HUGEPAGE);
	return memset(p, 0, bytes);
}

/* A million armed, and new ones come and go, which is what a call with a
 * deadline does... */
double timer_heap_cycle(long n)
{
	static struct heap_timer x[64];
	int64_t start, base = now_ns();

	timer_heap(1);
	heap = realloc(heap, (MILLION + 64) * sizeof(struct heap_timer *));
	start = now_ns();
	for (long i = 0; i < n; i += 64) {
		for (int k = 0; k < 64; k++)
			heap_arm(&x[k], base + timer_delay());
		for (int k = 0; k < 64; k++)
			heap_cancel(&x[k]);
	}
	return (double)(now_ns() - start) / n;
}

/* ...or any of the million is cancelled and armed anew: every one a cache
 * miss. */
double timer_heap(long n)
{
	static struct heap_timer *t;
	int64_t start, base = now_ns();

	if (t == NULL) {
		t = calloc_huge(MILLION, sizeof(*t));
		heap = calloc(MILLION, sizeof(struct heap_timer *));
		for (long i = 0; i < MILLION; i++)
			heap_arm(&t[i], base + timer_delay());
	}
	start = now_ns();
	for (long i = 0; i < n; i++) {
		struct heap_timer *x = &t[rnd() % MILLION];

		heap_cancel(x);
		heap_arm(x, base + timer_delay());
	}
	return (double)(now_ns() - start) / n;
}

static void never(struct coro_timer *t)
{
}

double timer_ours(long n)
{
	static struct coro_timer *t;
	int64_t start, base = coro_sched_now(sched);

	if (t == NULL) {
		t = calloc_huge(MILLION, sizeof(*t));
		for (long i = 0; i < MILLION; i++) {
			coro_timer_init(&t[i], never);
			coro_timer_arm(sched, &t[i], base + timer_delay());
		}
	}
	start = now_ns();
	for (long i = 0; i < n; i++) {
		struct coro_timer *x = &t[rnd() % MILLION];

		coro_timer_cancel(sched, x);
		coro_timer_arm(sched, x, base + timer_delay());
	}
	return (double)(now_ns() - start) / n;
}

double timer_ours_cycle(long n)
{
	static struct coro_timer x[64];
	int64_t start, base = coro_sched_now(sched);

	timer_ours(1);
	for (int k = 0; k < 64; k++)
		coro_timer_init(&x[k], never);
	start = now_ns();
	for (long i = 0; i < n; i += 64) {
		for (int k = 0; k < 64; k++)
			coro_timer_arm(sched, &x[k], base + timer_delay());
		for (int k = 0; k < 64; k++)
			coro_timer_cancel(sched, &x[k]);
	}
	return (double)(now_ns() - start) / n;
}
