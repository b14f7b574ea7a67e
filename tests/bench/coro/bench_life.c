/*
 * bench_life.c - create, run and destroy; the memory of a million that wait.
 */
#include "bench.h"

#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- create, run, destroy ---- */

static void *nothing(void *arg)
{
	return arg;
}

double create_coronet(long n)
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

double create_spawn(long n)
{
	int64_t t = now_ns();

	for (long i = 0; i < n; i += 16) {
		for (int k = 0; k < 16; k++)
			coro_spawn(sched, NULL, nothing, NULL, NULL);
		coro_sched_round(sched);
	}
	return (double)(now_ns() - t) / n;
}

/* ---- the same elsewhere ---- */

#if HAVE_BOOST
struct transfer {
	void *ctx;
	void *data;
};

struct transfer jump_fcontext(void *to, void *data);
void *make_fcontext(void *top, size_t size, void (*fn)(struct transfer));

static void boost_once(struct transfer t)
{
	jump_fcontext(t.ctx, NULL);
}

/* Stacks from a pool: a list of one, as the last one freed is the next. */
double create_boost(long n)
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

static ucontext_t uc_main, uc_co;

static void uc_once(void)
{
}

double create_ucontext(long n)
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
		/*
		 * A park from here leaves this frame, the return address and
		 * the switch's own 64 bytes.
		 */
		char *sp = (char *)__builtin_frame_address(0) + 16;
		uintptr_t top = ((uintptr_t)sp + 63) & -64ul;

		parked_live = top - ((uintptr_t)locals & -16ul) + 8 + 64;
	}
	coro_park();
	return NULL;
}

/* A million parked coroutines in a process of their own: resident bytes beyond
 * the live ones, each. */
double memory_million(long n)
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
