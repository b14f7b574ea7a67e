/*
 * Which cache lines several threads touch, and how often: false sharing shows
 * as a line that one thread writes while another uses something else in it.
 *
 * The compiler calls these functions at every load and store of code built with
 * -fsanitize=thread; here they count accesses to lines instead of looking for
 * races. At its end the program prints each line that one thread wrote and
 * another one used, both more than LINES_MIN times (default 1,000), with the
 * program counters of the last accesses. DPDK's library and the C library are
 * not built so: what they touch is not seen.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE	64u
#define SLOTS	(1u << 20) /* lines that are remembered */
#define TRIES	64u
#define THREADS 8u

struct seen {
	uint64_t line; /* address / LINE; 0: free */
	uint32_t reads[THREADS], writes[THREADS];
	void *pc[THREADS];		     /* of the last access */
	uint8_t low[THREADS], high[THREADS]; /* bytes of the line touched */
};

static struct seen *table;
static uint64_t not_kept;
static unsigned threads;
static _Thread_local unsigned self; /* from 1 */

void __tsan_init(void);

void __tsan_init(void)
{
	if (!table)
		table = calloc(SLOTS, sizeof(*table));
}

static struct seen *slot_of(uint64_t line)
{
	uint64_t at = line * 0x9e3779b97f4a7c15u >> 44;

	for (unsigned i = 0; i < TRIES; i++, at = (at + 1) % SLOTS) {
		uint64_t is =
			__atomic_load_n(&table[at].line, __ATOMIC_RELAXED);

		if (is == line)
			return &table[at];
		if (is == 0 && __atomic_compare_exchange_n(
				       &table[at].line, &is, line, false,
				       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return &table[at];
		if (is == line)
			return &table[at];
	}
	return NULL;
}

static void touched(const volatile void *p, unsigned size, bool write, void *pc)
{
	uint64_t at = (uintptr_t)p;
	struct seen *s = table ? slot_of(at / LINE) : NULL;
	unsigned first = at % LINE, last = first + size - 1, t;

	if (!s) {
		__atomic_fetch_add(&not_kept, 1, __ATOMIC_RELAXED);
		return;
	}
	if (!self)
		self = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	t = self - 1;
	if (t >= THREADS)
		return;
	if (!s->reads[t] && !s->writes[t])
		s->low[t] = LINE;
	s->reads[t] += !write;
	s->writes[t] += write;
	s->pc[t] = pc;
	if (first < s->low[t])
		s->low[t] = (uint8_t)first;
	if (last > s->high[t])
		s->high[t] = (uint8_t)(last < LINE ? last : LINE - 1);
}

static void range(const volatile void *p, uint64_t size, bool write, void *pc)
{
	uint64_t at = (uintptr_t)p, end = at + size;

	while (at < end) {
		uint64_t next = (at / LINE + 1) * LINE;

		if (next > end)
			next = end;
		touched((void *)(uintptr_t)at, (unsigned)(next - at), write,
			pc);
		at = next;
	}
}

#define PC __builtin_return_address(0)

#define ACCESS(n)                                                              \
	void __tsan_read##n(void *p);                                          \
	void __tsan_read##n(void *p)                                           \
	{                                                                      \
		touched(p, n, false, PC);                                      \
	}                                                                      \
	void __tsan_write##n(void *p);                                         \
	void __tsan_write##n(void *p)                                          \
	{                                                                      \
		touched(p, n, true, PC);                                       \
	}
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(void *p, uint64_t size);
void __tsan_write_range(void *p, uint64_t size);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);

void __tsan_read_range(void *p, uint64_t size)
{
	range(p, size, false, PC);
}

void __tsan_write_range(void *p, uint64_t size)
{
	range(p, size, true, PC);
}

void __tsan_func_entry(void *pc)
{
	(void)pc;
}

void __tsan_func_exit(void)
{
}

void __tsan_atomic_thread_fence(int order)
{
	(void)order;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order)
{
	(void)order;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#define SEQ __ATOMIC_SEQ_CST

#define FETCH(n, what)                                                         \
	uint##n##_t __tsan_atomic##n##_fetch_##what(volatile uint##n##_t *p,   \
						    uint##n##_t v, int order); \
	uint##n##_t __tsan_atomic##n##_fetch_##what(volatile uint##n##_t *p,   \
						    uint##n##_t v, int order)  \
	{                                                                      \
		(void)order;                                                   \
		touched(p, n / 8, true, PC);                                   \
		return __atomic_fetch_##what(p, v, SEQ);                       \
	}

#define COMPARE(n, how, weak)                                                  \
	int __tsan_atomic##n##_compare_exchange_##how(                         \
		volatile uint##n##_t *p, uint##n##_t *was, uint##n##_t v,      \
		int order, int failed);                                        \
	int __tsan_atomic##n##_compare_exchange_##how(                         \
		volatile uint##n##_t *p, uint##n##_t *was, uint##n##_t v,      \
		int order, int failed)                                         \
	{                                                                      \
		(void)order;                                                   \
		(void)failed;                                                  \
		touched(p, n / 8, true, PC);                                   \
		return __atomic_compare_exchange_n(p, was, v, weak, SEQ, SEQ); \
	}

#define ATOMIC(n)                                                              \
	uint##n##_t __tsan_atomic##n##_load(const volatile uint##n##_t *p,     \
					    int order);                        \
	uint##n##_t __tsan_atomic##n##_load(const volatile uint##n##_t *p,     \
					    int order)                         \
	{                                                                      \
		(void)order;                                                   \
		touched(p, n / 8, false, PC);                                  \
		return __atomic_load_n(p, SEQ);                                \
	}                                                                      \
	void __tsan_atomic##n##_store(volatile uint##n##_t *p, uint##n##_t v,  \
				      int order);                              \
	void __tsan_atomic##n##_store(volatile uint##n##_t *p, uint##n##_t v,  \
				      int order)                               \
	{                                                                      \
		(void)order;                                                   \
		touched(p, n / 8, true, PC);                                   \
		__atomic_store_n(p, v, SEQ);                                   \
	}                                                                      \
	uint##n##_t __tsan_atomic##n##_exchange(volatile uint##n##_t *p,       \
						uint##n##_t v, int order);     \
	uint##n##_t __tsan_atomic##n##_exchange(volatile uint##n##_t *p,       \
						uint##n##_t v, int order)      \
	{                                                                      \
		(void)order;                                                   \
		touched(p, n / 8, true, PC);                                   \
		return __atomic_exchange_n(p, v, SEQ);                         \
	}                                                                      \
	FETCH(n, add)                                                          \
	FETCH(n, sub)                                                          \
	FETCH(n, and)                                                          \
	FETCH(n, or)                                                           \
	FETCH(n, xor)                                                          \
	COMPARE(n, strong, false)                                              \
	COMPARE(n, weak, true)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

/* ---- the report ---- */

static const char *file_of(const void *p, uint64_t *offset)
{
	Dl_info info;

	*offset = (uintptr_t)p;
	if (!dladdr(p, &info) || !info.dli_fname)
		return "-";
	*offset -= (uintptr_t)info.dli_fbase;
	return info.dli_fname;
}

static void say(const struct seen *s)
{
	uint64_t offset;
	const char *file =
		file_of((void *)(uintptr_t)(s->line * LINE), &offset);

	fprintf(stderr, "line %s 0x%llx\n", file, (unsigned long long)offset);
	for (unsigned t = 0; t < THREADS; t++) {
		if (!s->reads[t] && !s->writes[t])
			continue;
		file = file_of(s->pc[t], &offset);
		fprintf(stderr,
			"thread %u bytes %u %u reads %u writes %u "
			"at %s 0x%llx\n",
			t, s->low[t], s->high[t], s->reads[t], s->writes[t],
			file, (unsigned long long)offset - 1);
	}
}

static bool shared(const struct seen *s, uint32_t least)
{
	for (unsigned t = 0; t < THREADS; t++)
		for (unsigned other = 0; other < THREADS; other++)
			if (t != other && s->writes[t] >= least &&
			    (uint64_t)s->reads[other] + s->writes[other] >=
				    least)
				return true;
	return false;
}

__attribute__((destructor)) static void report(void)
{
	const char *text = getenv("LINES_MIN");
	unsigned long least = text ? strtoul(text, NULL, 10) : 1000;
	struct seen *lines = table;
	unsigned n = 0, all = 0;

	table = NULL;
	for (unsigned i = 0; lines && i < SLOTS; i++) {
		all += lines[i].line != 0;
		if (lines[i].line && shared(&lines[i], (uint32_t)least)) {
			n++;
			say(&lines[i]);
		}
	}
	fprintf(stderr,
		"%u of %u lines were shared by %u threads; "
		"%llu accesses were not kept\n",
		n, all, threads, (unsigned long long)not_kept);
}
