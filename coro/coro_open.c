/* coro_open.c - opens and closes a scheduler; a thread has at most one. */
#include "coro_priv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK_SIZE_DEFAULT  ((size_t)256 << 10)
#define STACK_SIZE_MIN	    ((size_t)16 << 10)
#define STACK_SIZE_MAX	    ((size_t)4 << 20)
#define STACK_COUNT_DEFAULT 64
#define STACK_COUNT_MAX	    1024
#define RING_FIRST	    1024

static int64_t clock_monotonic(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static int sched_attr_check(const struct coro_sched_attr *a)
{
	if (a->stack_size != 0 &&
	    (a->stack_size < STACK_SIZE_MIN || a->stack_size > STACK_SIZE_MAX))
		return -EINVAL;
	return a->stack_count > STACK_COUNT_MAX ? -EINVAL : 0;
}

/* Shadow stacks remember return addresses; a switch would look like an attack
 * to them. They aren't switched with the stacks here, so refuse. */
static bool shadow_stack_active(void)
{
	unsigned long features = 0;

	/* ARCH_SHSTK_STATUS fails on kernels without shadow stacks. */
	if (syscall(SYS_arch_prctl, 0x5005, &features) != 0)
		return false;
	return features & 1;
}

/* Defined if the program has a C++ runtime; returns its __cxa_eh_globals. */
extern struct coro_eh *__cxa_get_globals(void) __attribute__((weak));

static struct coro_eh *eh_of_thread(struct coro_sched *s)
{
	return __cxa_get_globals ? __cxa_get_globals() : &s->no_eh;
}

/* Set up what belongs to the thread that runs the scheduler. */
static void thread_init(struct coro_sched *s)
{
	s->errno_p = &errno;
	s->eh = eh_of_thread(s);
#if CORO_ASAN
	{
		static coro_tls void *lo;
		static coro_tls size_t size;
		pthread_attr_t attr;

		if (!lo) {
			pthread_getattr_np(pthread_self(), &attr);
			pthread_attr_getstack(&attr, &lo, &size);
			pthread_attr_destroy(&attr);
		}
		s->main_stack.lo = lo;
		s->main_stack.size = size;
		s->main_stack.ctx.top = (char *)lo + size;
	}
#endif
#if CORO_TSAN
	s->main.fiber = __tsan_get_current_fiber();
#endif
}

static void main_init(struct coro_sched *s)
{
	struct coro *m = &s->main;

	s->main_stack.owner = s;
	s->main_stack.ctx.occupant = &m->ctx;
	ctx_fp_read(&s->main_stack.ctx);
	m->ctx.stack = &s->main_stack.ctx;
	m->ctx.flags = CORO_F_MAIN;
	m->ctx.flags3 = CORO_F3_AGAIN;
	m->ctx.state = CORO_ST_RUNNING;
	m->deadline = CORO_FOREVER;
	s->cur = m;
	thread_init(s);
}

void coro_sched_leave(struct coro_sched *s)
{
	coro_check_thread(s, "coro_sched_leave");
	if (s->cur != &s->main)
		coro_die("coro_sched_leave inside a coroutine", NULL);
	coro_tls_sched = NULL;
}

int coro_sched_enter(struct coro_sched *s)
{
	if (coro_tls_sched)
		return -EEXIST;
	coro_tls_sched = s;
	thread_init(s);
	return 0;
}

int coro_sched_open(const struct coro_sched_attr *attr, struct coro_sched **out)
{
	static const struct coro_sched_attr defaults;
	const struct coro_sched_attr *a = attr ? attr : &defaults;
	struct coro_sched *s;
	int err = sched_attr_check(a);

	if (err < 0)
		return err;
	if (coro_tls_sched)
		return -EEXIST;
	if (shadow_stack_active())
		return -ENOTSUP;
	s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);
	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	if (coro_stack_checked())
		ctx_isa_choose(CTX_ISA_CHECKED);
	else if (ctx_isa_chosen() == CTX_ISA_SSE2)
		ctx_isa_choose_best();
	s->clock_ns = a->clock_ns ? a->clock_ns : clock_monotonic;
	s->clock_ctx = a->clock_ctx;
	s->measure = a->measure_stacks || getenv("CORO_MEASURE_STACKS");
	s->max_bytes = SIZE_MAX;
	main_init(s);
	ctx_frame_init(s->first_frame, &s->main_stack.ctx, coro_begin,
		       coro_end);
	s->ring = malloc(RING_FIRST * sizeof(*s->ring));
	s->mask = RING_FIRST - 1;
	err = coro_post_init(s, a->post_capacity);
	if (err < 0)
		goto free_ring;
	err = -ENOMEM;
	if (!s->ring)
		goto free_ring;
	coro_name_add(s, "coro");
	if (!s->names)
		goto free_ring;
	err = coro_stacks_init(
		s, a->stack_size ? a->stack_size : STACK_SIZE_DEFAULT,
		a->stack_count ? a->stack_count : STACK_COUNT_DEFAULT);
	if (err < 0)
		goto free_arena;
	s->now = coro_sched_clock(s);
	coro_wheel_init(&s->wheel, s->now);
	s->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (s->event_fd < 0) {
		err = -errno;
		coro_stacks_fini(s);
		goto free_arena;
	}
	coro_tls_sched = s;
	s->crash_report = !a->no_crash_report;
	if (s->crash_report)
		coro_crash_watch(s);
	*out = s;
	return 0;

free_arena:
	coro_arena_fini(&s->arena);
free_ring:
	free(s->ring);
	free(s->posts);
	free(s);
	return err;
}

void coro_sched_close(struct coro_sched *s)
{
	if (s != coro_tls_sched || s->cur != &s->main)
		coro_die("coro_sched_close inside a coroutine or from another "
			 "thread",
			 NULL);
	coro_post_shut(s);
	coro_destroy_all(s);
	coro_post_close(s);
	coro_calls_fini(s);
	for (struct coro_chunk *c = s->chunks; c; c = c->next)
		for (unsigned i = 0; i < CORO_CHUNK_COROS; i++)
			coro_fiber_end(&c->coros[i]);
	coro_dump_forget(s);
	if (s->crash_report)
		coro_crash_unwatch(s);
	coro_fds_fini(s);
	close(s->event_fd);
	coro_stacks_fini(s);
	coro_arena_fini(&s->arena);
	free(s->ring);
	s->shared_len = 0;
	coro_tls_sched = NULL;
	coro_sched_unref(s);
}
