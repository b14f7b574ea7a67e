/*
 * coro_debug.c - high-water marks of stacks, and the dump of all coroutines.
 */
#include "coro_priv.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Measures the exact high-water mark, if the attribute asks for it: finds the
 * lowest byte written since the last call (a stack's memory starts as zeros),
 * and zeroes the stack again below this frame.
 */
__attribute__((no_sanitize("address"), noinline)) void
coro_stack_measure(struct coro_sched *s, struct coro *co)
{
	struct coro_stack *st = coro_stack_of(co);
	char *here = (char *)__builtin_frame_address(0) - 512;
	volatile long *p = (volatile long *)st->lo;
	uint32_t lines;

	coro_stack_define(st, here);
	while ((char *)p < here && *p == 0)
		p++;
	lines = (st->ctx.top - (char *)p + 63) / 64;
	if (lines > UINT16_MAX)
		lines = UINT16_MAX;
	if (co->ctx.hwm_lines < lines)
		co->ctx.hwm_lines = lines;
	for (; (char *)p < here; p++)
		*p = 0;
}

size_t coro_stack_high_water(const struct coro *co)
{
	size_t now = 0;

	if (co->ctx.state != CORO_ST_DEAD && co->ctx.state != CORO_ST_RUNNING)
		now = (co->ctx.stack->top - (char *)co->ctx.sp + 63) & -64ul;
	return now > co->ctx.hwm_lines * 64ul ? now : co->ctx.hwm_lines * 64ul;
}

size_t coro_name_high_water(const struct coro_sched *s, const char *name)
{
	size_t most = 0;
	uint32_t id;

	for (id = 0; id < s->nnames; id++)
		if (strncmp(s->names[id].name, name, 31) == 0)
			break;
	if (id == s->nnames)
		return 0;
	most = s->names[id].hwm_bytes;
	for (struct coro_chunk *c = s->chunks; c; c = c->next)
		for (unsigned i = 0; i < CORO_CHUNK_COROS; i++) {
			const struct coro *co = &c->coros[i];

			if (co->ctx.state == CORO_ST_DEAD || co->ctx.name != id)
				continue;
			if (coro_stack_high_water(co) > most)
				most = coro_stack_high_water(co);
		}
	return most;
}

bool coro_on_shared_stack(const void *p)
{
	const struct coro_sched *s = coro_tls_sched;

	return s && (uintptr_t)p - s->shared_lo < s->shared_len;
}

unsigned coro_sched_live(const struct coro_sched *s)
{
	return s->live;
}

/* ---- the dump ---- */

/* Write a line, or a piece of one. Unlike dprintf() it allocates nothing, so
 * that a signal handler may call it in the midst of malloc(). */
__attribute__((format(printf, 2, 3))) static void
print_line(int fd, const char *format, ...)
{
	char text[256];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (len > (int)sizeof(text) - 1)
		len = sizeof(text) - 1;
	if (len > 0 && write(fd, text, len) < 0) {
		/* there is no reader */
	}
}

static const char *state_name(const struct coro *co)
{
	switch ((enum coro_state)co->ctx.state) {
	case CORO_ST_DEAD:
		return "ended";
	case CORO_ST_NEW:
		return "new";
	case CORO_ST_QUEUED:
		return "ready";
	case CORO_ST_RUNNING:
		return "running";
	case CORO_ST_NORMAL:
		return "resumer";
	case CORO_ST_SUSPENDED:
		return "suspended";
	case CORO_ST_PARKED:
		return "parked";
	case CORO_ST_WAITING:
		return "waiting";
	}
	return "?";
}

static void dump_one(const struct coro_sched *s, const struct coro *co, int fd)
{
	bool blocked = co->ctx.state == CORO_ST_PARKED ||
		       co->ctx.state == CORO_ST_WAITING;

	print_line(fd, "  %-18p %-20s %-10s %-24s %8zu", (const void *)co,
		   coro_name(co), state_name(co), blocked ? co->where : "-",
		   coro_stack_high_water(co));
	if (co->ctx.flags2 & CORO_F2_TIMED)
		print_line(fd, "  for %.3f s more",
			   (double)(co->timer.expires_ns - s->now) / 1e9);
	print_line(fd, "%s\n",
		   co->ctx.flags2 & CORO_F2_CANCELLED ? "  cancelled" : "");
}

void coro_sched_dump(struct coro_sched *s, int fd)
{
	print_line(fd, "coronet: %u coroutines, %u ready, %llu timers\n",
		   s->live, s->tail - s->head,
		   (unsigned long long)s->wheel.armed);
	print_line(fd, "  %-18s %-20s %-10s %-24s %8s\n", "coroutine", "name",
		   "state", "waits in", "stack");
	for (struct coro_chunk *c = s->chunks; c; c = c->next)
		for (unsigned i = 0; i < CORO_CHUNK_COROS; i++)
			if (c->coros[i].ctx.state != CORO_ST_DEAD)
				dump_one(s, &c->coros[i], fd);
	for (uint32_t i = 0; i < s->nnames; i++)
		print_line(fd,
			   "  name %-20s high-water mark of its stacks %zu\n",
			   s->names[i].name,
			   coro_name_high_water(s, s->names[i].name));
}

/* ---- the walk ---- */

/* The chunk the walk is in, at first the newest. NULL: there is none. */
static const struct coro_chunk *walk_begin(const struct coro_sched *s,
					   struct coro_walk *walk)
{
	if (!walk->begun) {
		walk->begun = true;
		walk->left = s->chunks ? (s->chunks->number + 1ull) *
						 CORO_CHUNK_COROS
				       : 0;
	}
	if (!walk->chunk)
		walk->chunk = s->chunks;
	return walk->chunk;
}

static void info_fill(const struct coro *co, struct coro_info *out)
{
	bool blocked = co->ctx.state == CORO_ST_PARKED ||
		       co->ctx.state == CORO_ST_WAITING;

	*out = (struct coro_info){
		.co = co,
		.name = coro_name(co),
		.state = state_name(co),
		.where = blocked ? co->where : NULL,
		.stack_bytes = coro_stack_high_water(co),
		.wakes_ns = co->ctx.flags2 & CORO_F2_TIMED
				    ? co->timer.expires_ns
				    : CORO_FOREVER,
		.cancelled = co->ctx.flags2 & CORO_F2_CANCELLED,
	};
}

unsigned coro_sched_walk(const struct coro_sched *s, struct coro_walk *walk,
			 struct coro_info *out, unsigned max, unsigned looks)
{
	const struct coro_chunk *c = walk_begin(s, walk);
	unsigned n = 0;

	coro_check_thread(s, "coro_sched_walk");
	while (n < max && looks-- && walk->left && c) {
		const struct coro *co;

		if (c->number > (walk->left - 1) / CORO_CHUNK_COROS) {
			c = c->next;
			continue;
		}
		co = &c->coros[--walk->left % CORO_CHUNK_COROS];
		if (co->ctx.state != CORO_ST_DEAD)
			info_fill(co, &out[n++]);
	}
	walk->chunk = c;
	walk->done = walk->left == 0 || !c;
	return n;
}

static _Atomic(struct coro_sched *) dump_sched;
static atomic_uint dumping; /* threads in the handler */
static int dump_signo;
static struct sigaction dump_old;

static void on_dump_signal(int signo)
{
	struct coro_sched *s;
	int saved = errno;

	/* This runs on any thread: see coro_dump_forget(). */
	atomic_fetch_add(&dumping, 1);
	s = dump_sched;
	if (s) {
		if (s->dump_asked) /* the loop did not get to it: dump now */
			coro_sched_dump(s, STDERR_FILENO);
		s->dump_asked = true;
		if (write(s->event_fd, &(uint64_t){1}, 8) < 0) {
			/* full: then it is awake already */
		}
	}
	atomic_fetch_sub(&dumping, 1);
	errno = saved;
}

int coro_sched_dump_on_signal(struct coro_sched *s, int signo)
{
	struct sigaction sa = {.sa_handler = on_dump_signal,
			       .sa_flags = SA_RESTART | SA_ONSTACK};

	struct coro_sched *none = NULL;

	if (!atomic_compare_exchange_strong(&dump_sched, &none, s))
		return -EBUSY;
	if (sigaction(signo, &sa, &dump_old) < 0) {
		dump_sched = NULL;
		return -errno;
	}
	dump_signo = signo;
	return 0;
}

void coro_dump_forget(struct coro_sched *s)
{
	if (dump_sched != s)
		return;
	sigaction(dump_signo, &dump_old, NULL);
	dump_sched = NULL;
	for (unsigned n = 0; atomic_load(&dumping) != 0; n++)
		coro_relax(n);
}

void coro_dump_asked(struct coro_sched *s)
{
	s->dump_asked = false;
	coro_sched_dump(s, STDERR_FILENO);
}
