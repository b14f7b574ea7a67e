/*
 * coro_stack.c - stacks, shared and private, in few mappings.
 *
 * Guard pages: MADV_GUARD_INSTALL (Linux 6.13) where the kernel has it, since
 * it leaves the mapping whole; mprotect() otherwise, which splits it, so that
 * vm.max_map_count (65,530) bounds the guards: past GUARD_MAX a private stack
 * has none.
 *
 * Colours: stacks a power of two apart would put all their tops, the bytes that
 * a switch touches, into the same cache sets. Each top is moved down by another
 * multiple of a line within a page.
 */
#include "coro_priv.h"

#include <string.h>
#include <sys/mman.h>
#if CORO_VALGRIND
#include <valgrind/memcheck.h>
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define PAGE	   ((size_t)4096)
#define GUARD_MAX  16000
#define LINE_PRIME 7 /* lines between the colours of two neighbours */
#define MAP_BYTES  ((size_t)16 << 20) /* of private stacks at a time */

static size_t guard_bytes(bool shared)
{
	if (unlikely(coro_stack_checked())) /* its leak search reads them all */
		return 4 * PAGE;
	return shared ? CORO_GUARD_SHARED : CORO_GUARD_PRIVATE;
}

/* Bytes a slot has beside the stack: the guard below, the colour above. */
static size_t slot_over(bool shared)
{
	return guard_bytes(shared) + PAGE;
}

static bool guard_install(struct coro_sched *s, char *page, bool shared)
{
	size_t bytes = guard_bytes(shared);

	if (madvise(page, bytes, MADV_GUARD_INSTALL) == 0)
		return true;
	if (s->guards_mprotected >= GUARD_MAX)
		return false;
	if (mprotect(page, bytes, PROT_NONE) != 0)
		return false;
	s->guards_mprotected++;
	return true;
}

static size_t page_up(size_t n)
{
	return (n + PAGE - 1) & -PAGE;
}

static void stack_init(struct coro_sched *s, struct coro_stack *st, char *slot,
		       size_t size, unsigned colour)
{
	st->owner = s;
	st->lo = slot + guard_bytes(st->shared);
	st->ctx.top =
		st->lo + size + PAGE - colour * LINE_PRIME % (PAGE / 64) * 64;
	st->size = st->ctx.top - st->lo;
	st->ctx.resize = coro_resize;
	st->ctx.mxcsr = s->main_stack.ctx.mxcsr;
	st->ctx.x87cw = s->main_stack.ctx.x87cw;
#if CORO_VALGRIND
	st->valgrind_id = VALGRIND_STACK_REGISTER(st->lo, st->ctx.top - 1);
#endif
}

static void *map_stacks(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK,
		       -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* A huge page for the one page a stack uses would waste the rest. */
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

int coro_stacks_init(struct coro_sched *s, size_t size, unsigned count)
{
	size_t slot = page_up(size) + slot_over(true);
	char *base;

	s->stacks = coro_arena_get(&s->arena, count * sizeof(*s->stacks), 64);
	if (!s->stacks)
		return -ENOMEM;
	base = map_stacks(count * slot);
	if (!base)
		return -ENOMEM;
	s->shared_lo = (uintptr_t)base;
	s->shared_len = count * slot;
	s->nstacks = count;
	for (unsigned i = 0; i < count; i++) {
		struct coro_stack *st = &s->stacks[i];

		st->shared = true;
		stack_init(s, st, base + i * slot, page_up(size), i);
		st->guarded = guard_install(s, base + i * slot, true);
		st->index = i;
		st->fresh = !coro_stack_checked();
	}
	return 0;
}

static void map_record(struct coro_sched *s, struct coro_map *m, void *base,
		       size_t bytes)
{
	m->base = base;
	m->bytes = bytes;
	m->next = s->private_maps;
	s->private_maps = m;
}

static unsigned pool_of(size_t size, bool guard)
{
	unsigned k = 0;

	while ((PAGE << k) < size)
		k++;
	return k * 2 + guard;
}

static int pool_refill(struct coro_sched *s, struct coro_pool *pool,
		       size_t size)
{
	size_t slot = size + slot_over(false);
	size_t n = MAP_BYTES / slot ? MAP_BYTES / slot : 1;
	struct coro_map *m = coro_arena_get(&s->arena, sizeof(*m), 8);
	char *base;

	if (!m)
		return -ENOMEM;
	base = map_stacks(n * slot);
	if (!base)
		return -ENOMEM;
	map_record(s, m, base, n * slot);
	pool->cur = base;
	pool->end = base + n * slot;
	return 0;
}

/* A private stack of at least size bytes. *out is owned by the caller. */
int coro_stack_private_get(struct coro_sched *s, size_t size, bool guard,
			   struct coro_stack **out)
{
	unsigned i = pool_of(size, guard);
	struct coro_pool *pool = &s->pools[i];
	struct coro_stack *st = pool->free;
	int err;

	if (likely(st)) {
		pool->free = st->next_free;
		*out = st;
		return 0;
	}
	size = PAGE << i / 2;
	if (pool->cur == pool->end) {
		err = pool_refill(s, pool, size);
		if (err < 0)
			return err;
	}
	st = coro_arena_get(&s->arena, sizeof(*st), 64);
	if (!st)
		return -ENOMEM;
	memset(st, 0, sizeof(*st));
	stack_init(s, st, pool->cur, size, s->private_count++);
	st->guarded = guard && guard_install(s, pool->cur, false);
	st->index = i;
	st->next_all = s->private_all;
	s->private_all = st;
	pool->cur += size + slot_over(false);
	*out = st;
	return 0;
}

bool coro_stack_guards(const struct coro_stack *st, const char *addr)
{
	return addr < st->lo && addr >= st->lo - guard_bytes(st->shared);
}

size_t coro_stack_private_size(const struct coro_stack *st)
{
	return PAGE << st->index / 2;
}

void coro_stack_private_put(struct coro_sched *s, struct coro_stack *st)
{
	st->next_free = s->pools[st->index].free;
	s->pools[st->index].free = st;
}

bool coro_stack_checked(void)
{
#if CORO_VALGRIND
	return RUNNING_ON_VALGRIND;
#else
	return false;
#endif
}

/* Memcheck follows rsp within one stack. A switch from another stack copies
 * bytes below the last rsp: mark them as defined. */
void coro_stack_define(struct coro_stack *st, const char *end)
{
#if CORO_VALGRIND
	VALGRIND_MAKE_MEM_DEFINED(st->lo, end - st->lo);
#endif
}

static void stack_forget(struct coro_stack *st)
{
#if CORO_VALGRIND
	VALGRIND_STACK_DEREGISTER(st->valgrind_id);
#endif
}

void coro_stacks_fini(struct coro_sched *s)
{
	struct coro_map *m, *next;

	for (struct coro_stack *st = s->private_all; st; st = st->next_all)
		stack_forget(st);
	for (unsigned i = 0; i < s->nstacks; i++)
		stack_forget(&s->stacks[i]);
	for (m = s->private_maps; m; m = next) {
		next = m->next;
		munmap(m->base, m->bytes);
	}
	if (s->shared_len != 0)
		munmap((void *)s->shared_lo, s->shared_len);
}
