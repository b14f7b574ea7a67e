/*
 * bench_copy.c - coroutines that share stacks: two that replace each other at
 * every resume, and many in a random order.
 */
#include "bench.h"

#include <sys/mman.h>

#define MANY 100000

/* ---- shared stack, the owner changes on every resume ---- */

static struct floor_stack fstack;
static struct floor_ctx fpair[2], *fcur;

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
double copy_floor(long n)
{
	static char *stack;
	int64_t t;
	double ns;

	if (stack == NULL)
		stack = map_stack(STACK_BYTES);
	fstack = (struct floor_stack){NULL, stack + STACK_BYTES};
	for (int i = 0; i < 2; i++) {
		fcopy_init(&fpair[i], live_bytes + 1024);
		/* The first run: straight on the stack, then saved. */
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

double copy_coronet(long n)
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

double many_floor(long n)
{
	return many_floor_ahead(n, 0);
}

double many_floor_prefetch(long n)
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

double many_coronet(long n)
{
	return rounds_of(MANY, n);
}

double yield_64(long n)
{
	return rounds_of(64, n);
}

double yield_1000(long n)
{
	return rounds_of(1000, n);
}
