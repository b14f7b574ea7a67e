/*
 * bench_coro.c - what coroutines cost, as ratios in one run.
 *
 * Every contender of a row runs in turn, again and again, on one pinned core;
 * its figure is the best of its turns, since whatever else the machine does can
 * only slow a turn down. Contenders that aren't installed are said to be
 * absent.
 *
 * usage: bench-coro [--json FILE] [--quick] [ROW...]
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#if HAVE_PCL
#include <pcl.h>
#endif
#if HAVE_PTH
#include <pth.h>
#endif

#include <coronet/coro.h>

#include "asm/ctx.h"

#define N_ELEMS(a)  (sizeof(a) / sizeof((a)[0]))
#define STACK_BYTES 65536
#define MANY	    100000
#define MILLION	    1000000

static int turns = 15;
static struct coro_sched *sched;

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "bench-coro: %s: %s\n", what, strerror(err));
	exit(1);
}

static void *map_stack(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap", errno);
	return p;
}

/* ---- the floors (bench_coro_floor.S) ---- */

struct floor_ctx {
	void *sp;
	char *save;
};

struct floor_stack {
	struct floor_ctx *owner;
	char *top;
};

void *floor_switch(void **from_sp, void *to_sp, void *value);
void floor_copy_switch(void **from_sp, struct floor_ctx *to,
		       struct floor_stack *stack);

/* A first frame: six registers and where to go. */
static void *floor_frame(char *top, void (*fn)(void))
{
	void **sp = (void **)top;

	*--sp = NULL; /* fn's return address: it has none */
	*--sp = (void *)fn;
	for (int i = 0; i < 6; i++)
		*--sp = NULL;
	return sp;
}

static void *floor_main_sp;
static void *floor_co_sp;

static void floor_body(void)
{
	for (;;)
		floor_switch(&floor_co_sp, floor_main_sp, NULL);
}

static double switch_floor(long n)
{
	static char *stack;
	int64_t t;

	if (stack == NULL)
		stack = map_stack(STACK_BYTES);
	floor_co_sp = floor_frame(stack + STACK_BYTES, floor_body);
	t = now_ns();
	for (long i = 0; i < n; i++)
		floor_switch(&floor_main_sp, floor_co_sp, NULL);
	return (double)(now_ns() - t) / n / 2;
}

/* ---- ours: private stacks ---- */

static void *suspender(void *arg)
{
	while (coro_suspend(NULL, NULL) == 0)
		;
	return NULL;
}

static double switch_private(long n, bool fp)
{
	const struct coro_attr attr = {.stack = CORO_STACK_PRIVATE,
				       .save_fp = fp};
	struct coro *co;
	int64_t t;
	double ns;

	if (coro_create(sched, &attr, suspender, &co) < 0)
		die("coro_create", ENOMEM);
	t = now_ns();
	for (long i = 0; i < n; i++)
		coro_resume(co, NULL, NULL);
	ns = (double)(now_ns() - t) / n / 2;
	coro_destroy(co);
	return ns;
}

static double switch_ours(long n)
{
	return switch_private(n, false);
}

static double switch_ours_fp(long n)
{
	return switch_private(n, true);
}

/* ---- Boost.Context ---- */

#if HAVE_BOOST
struct transfer {
	void *ctx;
	void *data;
};

struct transfer jump_fcontext(void *to, void *data);
void *make_fcontext(void *top, size_t size, void (*fn)(struct transfer));

static void boost_body(struct transfer t)
{
	for (;;)
		t = jump_fcontext(t.ctx, NULL);
}

static double switch_boost(long n)
{
	static char *stack;
	struct transfer t;
	int64_t start;

	if (stack == NULL)
		stack = map_stack(STACK_BYTES);
	t.ctx = make_fcontext(stack + STACK_BYTES, STACK_BYTES, boost_body);
	start = now_ns();
	for (long i = 0; i < n; i++)
		t = jump_fcontext(t.ctx, NULL);
	return (double)(now_ns() - start) / n / 2;
}

static void boost_once(struct transfer t)
{
	jump_fcontext(t.ctx, NULL);
}

/* Stacks from a pool: a list of one, as the last one freed is the next. */
static double create_boost(long n)
{
	static char *pool;
	int64_t start;

	if (pool == NULL) {
		pool = map_stack(STACK_BYTES);
		*(char **)pool = NULL;
	}
	start = now_ns();
	for (long i = 0; i < n; i++) {
		char *stack = pool;
		void *ctx;

		pool = *(char **)stack;
		ctx = make_fcontext(stack + STACK_BYTES, STACK_BYTES,
				    boost_once);
		jump_fcontext(ctx, NULL);
		*(char **)stack = pool;
		pool = stack;
	}
	return (double)(now_ns() - start) / n;
}
#endif

/* ---- ucontext, PCL, Pth ---- */

static ucontext_t uc_main, uc_co;

static void uc_body(void)
{
	for (;;)
		swapcontext(&uc_co, &uc_main);
}

static double switch_ucontext(long n)
{
	static char *stack;
	int64_t t;

	if (stack == NULL)
		stack = map_stack(STACK_BYTES);
	getcontext(&uc_co);
	uc_co.uc_stack.ss_sp = stack;
	uc_co.uc_stack.ss_size = STACK_BYTES;
	makecontext(&uc_co, uc_body, 0);
	t = now_ns();
	for (long i = 0; i < n; i++)
		swapcontext(&uc_main, &uc_co);
	return (double)(now_ns() - t) / n / 2;
}

static void uc_once(void)
{
}

static double create_ucontext(long n)
{
	static char *stack;
	int64_t t;

	if (stack == NULL)
		stack = map_stack(STACK_BYTES);
	t = now_ns();
	for (long i = 0; i < n; i++) {
		getcontext(&uc_co);
		uc_co.uc_stack.ss_sp = stack;
		uc_co.uc_stack.ss_size = STACK_BYTES;
		uc_co.uc_link = &uc_main;
		makecontext(&uc_co, uc_once, 0);
		swapcontext(&uc_main, &uc_co);
	}
	return (double)(now_ns() - t) / n;
}

#if HAVE_PCL
static void pcl_body(void *arg)
{
	for (;;)
		co_resume();
}

static double switch_pcl(long n)
{
	coroutine_t co = co_create(pcl_body, NULL, NULL, STACK_BYTES);
	int64_t t = now_ns();
	double ns;

	for (long i = 0; i < n; i++)
		co_call(co);
	ns = (double)(now_ns() - t) / n / 2;
	co_delete(co);
	return ns;
}
#endif

#if HAVE_PTH
static bool pth_stop;

static void *pth_body(void *arg)
{
	while (!pth_stop)
		pth_yield(NULL);
	return NULL;
}

static double switch_pth(long n)
{
	static bool init;
	pth_t th;
	int64_t t;
	double ns;

	if (!init)
		pth_init();
	init = true;
	pth_stop = false;
	th = pth_spawn(PTH_ATTR_DEFAULT, pth_body, NULL);
	t = now_ns();
	for (long i = 0; i < n; i++)
		pth_yield(NULL);
	ns = (double)(now_ns() - t) / n / 2;
	pth_stop = true;
	pth_join(th, NULL);
	return ns;
}
#endif

/* ---- shared stack, the owner changes on every resume ---- */

static size_t live_bytes; /* of locals in each body */
static struct floor_stack fstack;
static struct floor_ctx fpair[2], *fcur;

/* The same locals in both worlds. */
#define WITH_LOCALS(loop)                                                      \
	volatile char *locals = __builtin_alloca(live_bytes);                  \
	locals[0] = 1;                                                         \
	loop

static void fcopy_body(void)
{
	WITH_LOCALS(for (;;) floor_switch(&fcur->sp, floor_main_sp, NULL);)
}

static void fcopy_init(struct floor_ctx *c, size_t save_bytes)
{
	char *save = aligned_alloc(64, save_bytes);

	if (save == NULL)
		die("aligned_alloc", ENOMEM);
	memset(save, 0, save_bytes);
	c->save = save;
	c->sp = (char *)floor_frame(save + 128, fcopy_body) - save - 128 +
		fstack.top;
}

/* The frame was written at the end of 128 bytes that stand for the top. */
static double copy_floor(long n)
{
	static char *stack;
	int64_t t;
	double ns;

	if (stack == NULL)
		stack = map_stack(STACK_BYTES);
	fstack = (struct floor_stack){NULL, stack + STACK_BYTES};
	for (int i = 0; i < 2; i++) {
		fcopy_init(&fpair[i], live_bytes + 1024);
		/* The first run: straight on the stack, then put aside. */
		memcpy(fstack.top - 128, fpair[i].save, 128);
		fstack.owner = fcur = &fpair[i];
		floor_copy_switch(&floor_main_sp, fcur, &fstack);
		memcpy(fpair[i].save, (char *)((uintptr_t)fpair[i].sp & -64ul),
		       fstack.top - (char *)((uintptr_t)fpair[i].sp & -64ul));
	}
	t = now_ns();
	for (long i = 0; i < n; i++) {
		fcur = &fpair[i & 1];
		floor_copy_switch(&floor_main_sp, fcur, &fstack);
	}
	ns = (double)(now_ns() - t) / n / 2;
	for (int i = 0; i < 2; i++)
		free(fpair[i].save);
	return ns;
}

static void *copy_body(void *arg)
{
	WITH_LOCALS(while (coro_suspend(NULL, NULL) == 0);)
	return NULL;
}

static double copy_ours(long n)
{
	const struct coro_attr attr = {.shared_stack = 1};
	struct coro *co[2];
	int64_t t;
	double ns;

	for (int i = 0; i < 2; i++) {
		if (coro_create(sched, &attr, copy_body, &co[i]) < 0)
			die("coro_create", ENOMEM);
		coro_resume(co[i], NULL, NULL);
	}
	t = now_ns();
	for (long i = 0; i < n; i++)
		coro_resume(co[i & 1], NULL, NULL);
	ns = (double)(now_ns() - t) / n / 2;
	for (int i = 0; i < 2; i++)
		coro_destroy(co[i]);
	return ns;
}

/* ---- many coroutines, random order ---- */

static struct floor_ctx **forder;
static long fat, fcount;
static int fahead;

/* The next in a fixed random order, each switching straight to the next. */
static void fmany_next(struct floor_ctx *self)
{
	struct floor_ctx *next = forder[fat++ % MANY];

	if (fahead) {
		const struct floor_ctx *far = forder[(fat + 2 * fahead) % MANY];
		const struct floor_ctx *near = forder[(fat + fahead) % MANY];
		size_t len = fstack.top - (char *)near->sp;

		__builtin_prefetch(far, 1);
		for (size_t i = 0; i < len; i += 64)
			__builtin_prefetch(near->save + i, 1);
	}
	if (--fcount <= 0)
		floor_switch(&self->sp, floor_main_sp, NULL);
	else
		floor_copy_switch(&self->sp, next, &fstack);
}

static struct floor_ctx *fstarting;

static void fmany_body(void)
{
	struct floor_ctx *self = fstarting;

	WITH_LOCALS(for (;;) fmany_next(self);)
}

static uint64_t seed = 88172645463325252u;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static void shuffle(void **a, size_t n)
{
	for (size_t i = n - 1; i > 0; i--) {
		size_t k = rnd() % (i + 1);
		void *x = a[i];

		a[i] = a[k];
		a[k] = x;
	}
}

static void fmany_init(void)
{
	static struct floor_ctx ctxs[MANY] __attribute__((aligned(64)));
	char *stack = map_stack(STACK_BYTES);
	size_t slot = (live_bytes + 256 + 63) / 64 * 64;
	char *saves =
		mmap(NULL, slot * MANY + (2 << 20), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* Huge pages for the floor as well: coro/ asks for them. */
	saves = (char *)(((uintptr_t)saves + (2 << 20) - 1) & -(2ul << 20));
	madvise(saves, slot * MANY, MADV_HUGEPAGE);
	fstack = (struct floor_stack){NULL, stack + STACK_BYTES};
	forder = calloc(MANY, sizeof(*forder));
	for (int i = 0; i < MANY; i++) {
		struct floor_ctx *c = &ctxs[i];
		char *low;

		forder[i] = c;
		c->save = saves + slot * i;
		c->sp = floor_frame(fstack.top - 64, fmany_body);
		fstack.owner = fstarting = c;
		fcount = 0;
		floor_copy_switch(&floor_main_sp, c, &fstack);
		low = (char *)((uintptr_t)c->sp & -64ul);
		memcpy(c->save, low, fstack.top - low);
	}
	shuffle((void **)forder, MANY);
}

static double many_floor_ahead(long n, int ahead)
{
	int64_t t;

	live_bytes = 320; /* with the frames below them: 448 */
	if (forder == NULL)
		fmany_init();
	fahead = ahead;
	fcount = n;
	t = now_ns();
	floor_copy_switch(&floor_main_sp, forder[fat++ % MANY], &fstack);
	return (double)(now_ns() - t) / n;
}

static double many_floor(long n)
{
	return many_floor_ahead(n, 0);
}

static double many_floor_prefetch(long n)
{
	return many_floor_ahead(n, 4);
}

static bool many_stop;

static void *many_body(void *arg)
{
	WITH_LOCALS(coro_park();)
	while (!many_stop)
		coro_yield();
	return NULL;
}

/* Wake all in a random order; that order stays in the ring. */
static void many_start(struct coro_sched *s, long n)
{
	struct coro **co = calloc(n, sizeof(struct coro *));

	live_bytes = 320;
	many_stop = false;
	for (long i = 0; i < n; i++)
		if (coro_spawn(s, NULL, many_body, NULL, &co[i]) < 0)
			die("coro_spawn", ENOMEM);
	coro_sched_round(s);
	shuffle((void **)co, n);
	for (long i = 0; i < n; i++) {
		coro_unpark(co[i]);
		coro_detach(co[i]);
	}
	free(co);
	coro_sched_round(s);
}

static double rounds(struct coro_sched *s, long n)
{
	int64_t t = now_ns();
	long done = 0;

	while (done < n)
		done += coro_sched_round(s);
	return (double)(now_ns() - t) / done;
}

static double rounds_of(long coros, long n)
{
	double ns;

	many_start(sched, coros);
	ns = rounds(sched, n);
	many_stop = true;
	while (coro_sched_ready(sched))
		coro_sched_round(sched);
	return ns;
}

static double many_ours(long n)
{
	return rounds_of(MANY, n);
}

static double yield_64(long n)
{
	return rounds_of(64, n);
}

static double yield_1000(long n)
{
	return rounds_of(1000, n);
}

/* ---- create, run, destroy ---- */

static void *nothing(void *arg)
{
	return arg;
}

static double create_ours(long n)
{
	int64_t t = now_ns();

	for (long i = 0; i < n; i++) {
		struct coro *co;

		if (coro_create(sched, NULL, nothing, &co) < 0)
			die("coro_create", ENOMEM);
		coro_resume(co, NULL, NULL);
		coro_destroy(co);
	}
	return (double)(now_ns() - t) / n;
}

static double create_spawn(long n)
{
	int64_t t = now_ns();

	for (long i = 0; i < n; i += 16) {
		for (int k = 0; k < 16; k++)
			coro_spawn(sched, NULL, nothing, NULL, NULL);
		coro_sched_round(sched);
	}
	return (double)(now_ns() - t) / n;
}

/* ---- timers ---- */

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
static double timer_heap(long n);

static double timer_heap_cycle(long n)
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
static double timer_heap(long n)
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

static double timer_ours(long n)
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

static double timer_ours_cycle(long n)
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

/* ---- memory ---- */

static long rss_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kb = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "VmRSS: %ld", &kb) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return kb * 1024;
}

static size_t parked_live;

static void *park_body(void *arg)
{
	WITH_LOCALS(;)
	if (parked_live == 0) {
		/* What a park from here leaves: this frame, the return
		 * address and the switch's own 64 bytes. */
		char *sp = (char *)__builtin_frame_address(0) + 16;
		uintptr_t top = ((uintptr_t)sp + 63) & -64ul;

		parked_live = top - ((uintptr_t)locals & -16ul) + 8 + 64;
	}
	coro_park();
	return NULL;
}

/* A million parked coroutines in a process of their own: resident bytes beyond
 * the live ones, each. */
static double memory_million(long n)
{
	int fds[2];
	double bytes = 0;
	pid_t pid = -1;

	if (pipe(fds) < 0 || (pid = fork()) < 0)
		die("fork", errno);
	if (pid == 0) {
		struct coro_sched *s;
		long before;

		coro_sched_close(sched);
		coro_sched_open(NULL, &s);
		live_bytes = 256;
		before = rss_bytes();
		for (long i = 0; i < MILLION; i++)
			if (coro_spawn(s, NULL, park_body, NULL, NULL) < 0)
				die("coro_spawn", ENOMEM);
		coro_sched_round(s);
		bytes = (double)(rss_bytes() - before) / MILLION - parked_live;
		if (write(fds[1], &bytes, sizeof(bytes)) < 0)
			die("write", errno);
		_exit(0);
	}
	if (read(fds[0], &bytes, sizeof(bytes)) < 0)
		die("read", errno);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
	return bytes;
}

/* ---- the table ---- */

struct contender {
	const char *name;
	double (*run)(long n); /* NULL: not installed */
	double best;
};

struct row {
	const char *name;
	const char *unit;
	long n;
	size_t live;
	double goal;   /* at most so much of the reference; 0: none */
	bool absolute; /* goal is in units, not a ratio */
	bool once;
	struct contender c[8]; /* ours first, the reference second */
};

#if HAVE_BOOST
#define BOOST(fn) fn
#else
#define BOOST(fn) NULL
#endif
#if HAVE_FIBER
double create_boost_fiber(long n); /* bench_coro_boost.cc */
#define FIBER(fn) fn
#else
#define FIBER(fn) NULL
#endif
#if HAVE_PCL
#define PCL(fn) fn
#else
#define PCL(fn) NULL
#endif
#if HAVE_PTH
#define PTH(fn) fn
#else
#define PTH(fn) NULL
#endif

#define COPY_ROW(bytes)                                                        \
	{                                                                      \
		.name = "shared-" #bytes, .unit = "ns", .n = 400000,           \
		.live = bytes, .goal = 1.2,                                    \
		.c = {{"coronet", copy_ours}, {"AVX2 floor", copy_floor}},     \
	}

static struct row rows[] = {
	{.name = "switch",
	 .unit = "ns",
	 .n = 2000000,
	 .goal = 0.64,
	 .c = {{"coronet", switch_ours},
	       {"Boost", BOOST(switch_boost)},
	       {"floor", switch_floor},
	       {"PCL", PCL(switch_pcl)}}},
	{.name = "switch-fp",
	 .unit = "ns",
	 .n = 2000000,
	 .goal = 1.0,
	 .c = {{"coronet", switch_ours_fp}, {"Boost", BOOST(switch_boost)}}},
	{.name = "switch-slow",
	 .unit = "ns",
	 .n = 100000,
	 .c = {{"coronet", switch_ours},
	       {"ucontext", switch_ucontext},
	       {"Pth", PTH(switch_pth)}}},
	COPY_ROW(64),
	COPY_ROW(448),
	COPY_ROW(960),
	COPY_ROW(4032),
	{.name = "random-100k",
	 .unit = "ns",
	 .n = 1000000,
	 .goal = 0.25,
	 .c = {{"coronet", many_ours},
	       {"floor", many_floor},
	       {"prefetched", many_floor_prefetch}}},
	{.name = "yield-64",
	 .unit = "ns",
	 .n = 1000000,
	 .c = {{"coronet", yield_64}}},
	{.name = "yield-1000",
	 .unit = "ns",
	 .n = 1000000,
	 .c = {{"coronet", yield_1000}}},
	{.name = "create",
	 .unit = "ns",
	 .n = 500000,
	 .goal = 0.3,
	 .c = {{"coronet", create_ours},
	       {"Boost pooled", FIBER(create_boost_fiber)},
	       {"bare fcontext", BOOST(create_boost)},
	       {"spawned", create_spawn},
	       {"ucontext", create_ucontext}}},
	{.name = "timer-1M",
	 .unit = "ns",
	 .n = 500000,
	 .goal = 0.2,
	 .c = {{"coronet", timer_ours}, {"binary heap", timer_heap}}},
	{.name = "timer-new-1M",
	 .unit = "ns",
	 .n = 512000,
	 .c = {{"coronet", timer_ours_cycle},
	       {"binary heap", timer_heap_cycle}}},
	{.name = "memory-1M",
	 .unit = "B",
	 .n = 1,
	 .goal = 192,
	 .absolute = true,
	 .once = true,
	 .c = {{"coronet", memory_million}}},
};

static unsigned contenders(const struct row *r)
{
	unsigned k = 0;

	while (k < N_ELEMS(r->c) && r->c[k].name != NULL)
		k++;
	return k;
}

static void run_row(struct row *r)
{
	unsigned count = contenders(r);

	live_bytes = r->live;
	for (int turn = 0; turn < (r->once ? 1 : turns); turn++)
		for (unsigned k = 0; k < count; k++) {
			struct contender *c = &r->c[k];
			double v;

			if (c->run == NULL)
				continue;
			v = c->run(r->n);
			if (turn == 0 || v < c->best)
				c->best = v;
		}
}

static double reached(const struct row *r)
{
	if (r->absolute)
		return r->c[0].best;
	return r->c[1].best > 0 ? r->c[0].best / r->c[1].best : 0;
}

static const char *verdict(const struct row *r)
{
	if (r->goal == 0)
		return "-";
	if (reached(r) == 0)
		return "absent";
	return reached(r) <= r->goal ? "PASS" : "MISS";
}

static void print_row(const struct row *r)
{
	printf("%-12s %8.1f %-2s  ", r->name, r->c[0].best, r->unit);
	if (r->goal == 0 && reached(r) > 0)
		printf("%6.2f %6s  %-6s", reached(r), "", verdict(r));
	else if (r->goal == 0)
		printf("%6s %6s  %-6s", "", "", verdict(r));
	else if (r->absolute)
		printf("%6.0f %6.0f  %-6s", reached(r), r->goal, verdict(r));
	else
		printf("%6.2f %6.2f  %-6s", reached(r), r->goal, verdict(r));
	for (unsigned k = 1; k < contenders(r); k++) {
		if (r->c[k].run == NULL)
			printf("  %s: not installed", r->c[k].name);
		else
			printf("  %s %.1f", r->c[k].name, r->c[k].best);
	}
	printf("\n");
	fflush(stdout);
}

static void write_json(const char *path, bool (*wanted)(const char *))
{
	FILE *f = fopen(path, "w");
	const char *sep = "";

	if (f == NULL)
		die(path, errno);
	fprintf(f,
		"{\n  \"bench\": \"coro\",\n  \"isa\": \"%s\",\n"
		"  \"rows\": [",
		ctx_isa_name(ctx_isa_chosen()));
	for (size_t i = 0; i < N_ELEMS(rows); i++) {
		const struct row *r = &rows[i];

		if (!wanted(r->name))
			continue;
		fprintf(f,
			"%s\n    {\"name\": \"%s\", \"unit\": \"%s\", "
			"\"goal\": %g, \"reached\": %.3f, "
			"\"verdict\": \"%s\", \"values\": {",
			sep, r->name, r->unit, r->goal, reached(r), verdict(r));
		sep = ",";
		for (unsigned k = 0; k < contenders(r); k++)
			if (r->c[k].run != NULL)
				fprintf(f, "%s\"%s\": %.2f", k ? ", " : "",
					r->c[k].name, r->c[k].best);
		fprintf(f, "}}");
	}
	fprintf(f, "\n  ]\n}\n");
	fclose(f);
}

static char **only;

static bool wanted(const char *name)
{
	if (only == NULL || *only == NULL)
		return true;
	for (char **p = only; *p != NULL; p++)
		if (strcmp(*p, name) == 0)
			return true;
	return false;
}

static void pin(void)
{
	cpu_set_t set;
	int cpu = sched_getcpu();

	CPU_ZERO(&set);
	CPU_SET(cpu < 0 ? 0 : cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int usage(void)
{
	fprintf(stderr, "usage: bench-coro [--json FILE] [--quick] [ROW...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", required_argument, NULL, 'j'},
		{"quick", no_argument, NULL, 'q'},
		{0},
	};
	const char *json = NULL;
	unsigned missed = 0;
	int opt, err;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'j')
			json = optarg;
		else if (opt == 'q')
			turns = 3;
		else
			return usage();
	}
	only = argv + optind;
	pin();
	err = coro_sched_open(&(struct coro_sched_attr){0}, &sched);
	if (err < 0)
		die("coro_sched_open", -err);
	printf("%-12s %11s  %6s %6s  %-6s  reference and others\n", "row",
	       "coronet", "ratio", "goal", "");
	for (size_t i = 0; i < N_ELEMS(rows); i++) {
		if (!wanted(rows[i].name))
			continue;
		run_row(&rows[i]);
		print_row(&rows[i]);
		missed += strcmp(verdict(&rows[i]), "MISS") == 0;
	}
	printf("best of %d interleaved turns on one core; copy loop: %s; "
	       "%u missed\n",
	       turns, ctx_isa_name(ctx_isa_chosen()), missed);
	if (json != NULL)
		write_json(json, wanted);
	return 0;
}
