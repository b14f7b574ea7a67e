/*
 * bench_timer.c - a million armed timers: the wheel and a binary heap.
 */
#include "bench.h"

#include <sys/mman.h>

struct heap_timer {
	int64_t expires;
	size_t at;
	void (*fn)(struct heap_timer *t); /* as any timer has */
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

/* A call's deadline: 1 ms .. 10 ms. */
static int64_t call_delay(void)
{
	return 1000000 + timer_delay() % 9000000;
}

static struct heap_timer *heap_timers;
static struct coro_timer *our_timers;

static void heap_arm_all(void)
{
	int64_t base = now_ns();

	for (long i = 0; i < MILLION; i++)
		heap_arm(&heap_timers[i], base + timer_delay());
}

static void heap_ready(void)
{
	if (heap_timers != NULL)
		return;
	heap_timers = calloc_huge(MILLION, sizeof(*heap_timers));
	heap = calloc(MILLION + 64, sizeof(*heap));
	if (heap == NULL)
		die("calloc", ENOMEM);
	heap_arm_all();
}

static void never_fires(struct coro_timer *t)
{
}

static void our_arm_all(void)
{
	int64_t base = coro_sched_now(sched);

	for (long i = 0; i < MILLION; i++)
		coro_timer_arm(sched, &our_timers[i], base + timer_delay());
}

static void our_ready(void)
{
	if (our_timers != NULL)
		return;
	our_timers = calloc_huge(MILLION, sizeof(*our_timers));
	for (long i = 0; i < MILLION; i++)
		coro_timer_init(&our_timers[i], never_fires);
	our_arm_all();
}

/*
 * A million are armed, and new ones are armed and cancelled, as by a call with
 * a deadline among connections' timeouts...
 */
double timer_heap_cycle(long n)
{
	static struct heap_timer x[64];
	int64_t start, base = now_ns();

	heap_ready();
	start = now_ns();
	for (long i = 0; i < n; i += 64) {
		for (int k = 0; k < 64; k++)
			heap_arm(&x[k], base + call_delay());
		for (int k = 0; k < 64; k++)
			heap_cancel(&x[k]);
	}
	return (double)(now_ns() - start) / n;
}

double timer_coronet_cycle(long n)
{
	static struct coro_timer x[64];
	int64_t start, base = coro_sched_now(sched);

	our_ready();
	for (int k = 0; k < 64; k++)
		coro_timer_init(&x[k], never_fires);
	start = now_ns();
	for (long i = 0; i < n; i += 64) {
		for (int k = 0; k < 64; k++)
			coro_timer_arm(sched, &x[k], base + call_delay());
		for (int k = 0; k < 64; k++)
			coro_timer_cancel(sched, &x[k]);
	}
	return (double)(now_ns() - start) / n;
}

/* ...or any of the million is cancelled and armed again: every one a cache
 * miss... */
double timer_heap(long n)
{
	int64_t start, base = now_ns();

	heap_ready();
	start = now_ns();
	for (long i = 0; i < n; i++) {
		struct heap_timer *x = &heap_timers[rnd() % MILLION];

		heap_cancel(x);
		heap_arm(x, base + timer_delay());
	}
	return (double)(now_ns() - start) / n;
}

double timer_coronet(long n)
{
	int64_t start, base = coro_sched_now(sched);

	our_ready();
	start = now_ns();
	for (long i = 0; i < n; i++) {
		struct coro_timer *x = &our_timers[rnd() % MILLION];

		coro_timer_cancel(sched, x);
		coro_timer_arm(sched, x, base + timer_delay());
	}
	return (double)(now_ns() - start) / n;
}

/* ...(the minimum: one word of each is changed)... */
double timer_floor(long n)
{
	int64_t start;

	our_ready();
	start = now_ns();
	for (long i = 0; i < n; i++)
		((volatile struct coro_timer *)&our_timers[rnd() % MILLION])
			->fn = never_fires;
	return (double)(now_ns() - start) / n;
}

/* ...or all are cancelled and armed, one after the other... */
double timer_heap_all(long n)
{
	int64_t start;

	heap_ready();
	start = now_ns();
	for (long i = 0; i < MILLION; i++)
		heap_cancel(&heap_timers[i]);
	heap_arm_all();
	return (double)(now_ns() - start) / MILLION;
}

double timer_coronet_all(long n)
{
	int64_t start;

	our_ready();
	start = now_ns();
	for (long i = 0; i < MILLION; i++)
		coro_timer_cancel(sched, &our_timers[i]);
	our_arm_all();
	return (double)(now_ns() - start) / MILLION;
}

/* ...or they all expire, time going on in steps of 100 us. */
double timer_heap_fire(long n)
{
	int64_t start;

	heap_ready();
	start = now_ns();
	while (heap_len > 0)
		heap_cancel(heap[0]);
	start = now_ns() - start;
	heap_arm_all();
	return (double)start / MILLION;
}

double timer_coronet_fire(long n)
{
	int64_t start, now = coro_sched_now(sched), end = now + 20000000000;

	our_ready();
	start = now_ns();
	for (; now < end && coro_sched_next_ns(sched) != CORO_FOREVER;
	     now += 100000)
		coro_sched_advance(sched, now);
	start = now_ns() - start;
	our_arm_all();
	return (double)start / MILLION;
}
