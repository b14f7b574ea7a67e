/*
 * coro_mem.c - memory of a scheduler: regions that only grow, and in them the
 * save buffers in size classes. Getting a buffer pops it from a list, and
 * putting it pushes it; a buffer that was put serves the next request of its
 * class and never returns to the system.
 *
 * Regions of 2 MiB and more ask for huge pages: at 100,000 coroutines their
 * bytes are spread over more pages than a TLB holds.
 */
#include "coro_priv.h"

#include <sys/mman.h>

#define HUGE_BYTES   ((size_t)2 << 20)
#define FIRST_BYTES  ((size_t)256 << 10)
#define REGION_MAX   ((size_t)64 << 20)
#define REGION_HEAD  64
#define REFILL_BYTES ((size_t)4 << 10)

coro_tls unsigned coro_mem_fail_in;

static bool fails_on_demand(void)
{
	return unlikely(coro_mem_fail_in) && --coro_mem_fail_in == 0;
}

/* bytes: a multiple of HUGE_BYTES. */
static char *map_huge(size_t bytes)
{
	char *p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t head;

	if (p == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)p & (HUGE_BYTES - 1);
	if (head)
		munmap(p, head);
	if (HUGE_BYTES - head)
		munmap(p + head + bytes, HUGE_BYTES - head);
	madvise(p + head, bytes, MADV_HUGEPAGE);
	return p + head;
}

static char *map_small(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static bool arena_grow(struct coro_arena *a, size_t need)
{
	size_t bytes = a->next_bytes ? a->next_bytes : FIRST_BYTES;
	struct coro_region *r;

	while (bytes < need + REGION_HEAD)
		bytes *= 2;
	r = (void *)(bytes >= HUGE_BYTES ? map_huge(bytes) : map_small(bytes));
	if (!r)
		return false;
	r->next = a->regions;
	r->bytes = bytes;
	a->regions = r;
	a->cur = (char *)r + REGION_HEAD;
	a->end = (char *)r + bytes;
	a->total_bytes += bytes;
	a->next_bytes = bytes < REGION_MAX ? bytes * 2 : bytes;
	return true;
}

static char *align_up(const char *p, size_t align)
{
	return (char *)(((uintptr_t)p + align - 1) & -align);
}

/* Bytes given out, including those left over in full regions. */
static size_t arena_used(const struct coro_arena *a)
{
	return a->total_bytes - (size_t)(a->end - a->cur);
}

size_t coro_sched_memory(const struct coro_sched *s)
{
	return arena_used(&s->arena);
}

size_t coro_sched_memory_live(const struct coro_sched *s)
{
	return s->live * sizeof(struct coro) + s->bufs.live_bytes;
}

void coro_sched_limit_memory(struct coro_sched *s, size_t bytes)
{
	s->max_bytes = bytes;
}

/* align: a power of two, at most 4096. NULL: no memory. */
void *coro_arena_get(struct coro_arena *a, size_t bytes, size_t align)
{
	char *p = align_up(a->cur, align);

	if (fails_on_demand())
		return NULL;
	if (!a->cur || (size_t)(a->end - p) < bytes || p > a->end) {
		if (!arena_grow(a, bytes + align))
			return NULL;
		p = align_up(a->cur, align);
	}
	a->cur = p + bytes;
	return p;
}

void coro_arena_fini(struct coro_arena *a)
{
	struct coro_region *r, *next;

	for (r = a->regions; r; r = next) {
		next = r->next;
		munmap(r, r->bytes);
	}
	a->regions = NULL;
}

/*
 * Classes by lines of 64 bytes: 1..16 exactly, above that four to a doubling.
 * A buffer is thus at most a quarter too large, and exact up to 1 KiB.
 */
static unsigned class_of(uint32_t lines, uint32_t *class_lines)
{
	unsigned k, step, q;

	if (likely(lines <= 16)) {
		*class_lines = lines;
		return lines - 1;
	}
	k = 31 - __builtin_clz(lines - 1);
	step = k - 2;
	q = (lines - 1 - (1u << k)) >> step;
	*class_lines = (1u << k) + ((q + 1) << step);
	return 16 + (k - 4) * 4 + q;
}

uint32_t coro_buf_round(uint32_t bytes)
{
	uint32_t lines;

	class_of((bytes + 63) / 64, &lines);
	return lines * 64;
}

cold static void *buf_refill(struct coro_sched *s, unsigned class,
			     uint32_t bytes)
{
	size_t n = REFILL_BYTES / bytes ? REFILL_BYTES / bytes : 1;
	char *p = coro_arena_get(&s->arena, n * bytes, 64);

	if (!p)
		return NULL;
	s->bufs.cur[class] = p + bytes;
	s->bufs.end[class] = p + n * bytes;
	return p;
}

/* A buffer of at least bytes (1 .. 4 MiB), owned by the caller; *cap is what
 * must be given back with it. NULL: no memory. */
void *coro_buf_get(struct coro_sched *s, uint32_t bytes, uint32_t *cap)
{
	uint32_t lines;
	unsigned class = class_of((bytes + 63) / 64, &lines);
	void *p = s->bufs.free[class];

	assert(class < CORO_BUF_CLASSES);
	*cap = lines * 64;
	if (likely(p)) {
		s->bufs.free[class] = *(void **)p;
	} else if (s->bufs.cur[class] != s->bufs.end[class]) {
		p = s->bufs.cur[class];
		s->bufs.cur[class] += lines * 64;
	} else {
		p = buf_refill(s, class, lines * 64);
		if (!p)
			return NULL;
	}
	s->bufs.live_bytes += lines * 64;
	return p;
}

void coro_buf_put(struct coro_sched *s, void *buf, uint32_t cap)
{
	uint32_t lines;
	unsigned class = class_of(cap / 64, &lines);

	*(void **)buf = s->bufs.free[class];
	s->bufs.free[class] = buf;
	s->bufs.live_bytes -= lines * 64;
}
