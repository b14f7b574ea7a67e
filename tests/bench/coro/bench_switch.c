/*
 * bench_switch.c - a switch between private stacks: ours, the floor, and other
 * libraries'.
 */
#include "bench.h"

#include <ucontext.h>
#if HAVE_PCL
#include <pcl.h>
#endif
#if HAVE_PTH
#include <pth.h>
#endif

/* ---- the floor ---- */

/* A first frame: six registers and where to go. */
void *floor_frame(char *top, void (*fn)(void))
{
	void **sp = (void **)top;

	*--sp = NULL; /* fn's return address: it has none */
	*--sp = (void *)fn;
	for (int i = 0; i < 6; i++)
		*--sp = NULL;
	return sp;
}

void *floor_main_sp;
static void *floor_co_sp;

static void floor_body(void)
{
	for (;;)
		floor_switch(&floor_co_sp, floor_main_sp, NULL);
}

double switch_floor(long n)
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

double switch_coronet(long n)
{
	return switch_private(n, false);
}

double switch_coronet_fp(long n)
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

double switch_boost(long n)
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
#endif

/* ---- ucontext, PCL, Pth ---- */

static ucontext_t uc_main, uc_co;

static void uc_body(void)
{
	for (;;)
		swapcontext(&uc_co, &uc_main);
}

double switch_ucontext(long n)
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

#if HAVE_PCL
static void pcl_body(void *arg)
{
	for (;;)
		co_resume();
}

double switch_pcl(long n)
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

double switch_pth(long n)
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
