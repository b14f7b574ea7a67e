/*
 * ctx_check.c - layouts the assembly relies on, and the choice of copy loop.
 */
#include "ctx.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static_assert(offsetof(struct ctx, sp) == CTX_SP, "layout");
static_assert(offsetof(struct ctx, stack) == CTX_STACK, "layout");
static_assert(offsetof(struct ctx, save) == CTX_SAVE, "layout");
static_assert(offsetof(struct ctx, save_cap) == CTX_SAVE_CAP, "layout");
static_assert(offsetof(struct ctx, flags) == CTX_FLAGS, "layout");
static_assert(offsetof(struct ctx_stack, occupant) == CTX_STACK_OCCUPANT,
	      "layout");
static_assert(offsetof(struct ctx_stack, top) == CTX_STACK_TOP, "layout");
static_assert(offsetof(struct ctx_stack, resize) == CTX_STACK_RESIZE, "layout");
static_assert(offsetof(struct ctx_stack, mxcsr) == CTX_STACK_MXCSR, "layout");
static_assert(offsetof(struct ctx_stack, x87cw) == CTX_STACK_X87CW, "layout");
static_assert(sizeof(struct ctx_pair) == 16, "returned in rax and rdx");
static_assert(sizeof(struct ctx_start) == 16, "returned in rax and rdx");

/* In ctx.S: a copy loop for each instruction set, and the one in use. */
extern const char ctx_conflict_sse2[], ctx_conflict_avx2[],
	ctx_conflict_avx512[], ctx_conflict_checked[];
extern const void *ctx_conflict;
extern char ctx_entry[];

/* Threads that open at the same time choose the same. */
static _Atomic enum ctx_isa chosen = CTX_ISA_SSE2;

static const void *const loops[] = {
	[CTX_ISA_SSE2] = ctx_conflict_sse2,
	[CTX_ISA_AVX2] = ctx_conflict_avx2,
	[CTX_ISA_AVX512] = ctx_conflict_avx512,
	[CTX_ISA_CHECKED] = ctx_conflict_checked,
};

static int cpu_has(enum ctx_isa isa)
{
	__builtin_cpu_init();
	switch (isa) {
	case CTX_ISA_SSE2:
	case CTX_ISA_CHECKED:
		return 1;
	case CTX_ISA_AVX2:
		return __builtin_cpu_supports("avx2");
	case CTX_ISA_AVX512:
		return __builtin_cpu_supports("avx512f");
	}
	return 0;
}

int ctx_isa_choose(enum ctx_isa isa)
{
	if (!cpu_has(isa))
		return -1;
	chosen = isa;
	__atomic_store_n(&ctx_conflict, loops[isa], __ATOMIC_RELAXED);
	return 0;
}

int ctx_isa_choose_best(void)
{
	if (ctx_isa_choose(CTX_ISA_AVX512) == 0)
		return 0;
	if (ctx_isa_choose(CTX_ISA_AVX2) == 0)
		return 0;
	return ctx_isa_choose(CTX_ISA_SSE2);
}

enum ctx_isa ctx_isa_chosen(void)
{
	return chosen;
}

const char *ctx_isa_name(enum ctx_isa isa)
{
	static const char *const names[] = {"sse2", "avx2", "avx512",
					    "checked"};

	return names[isa];
}

void ctx_frame_init(void *frame, const struct ctx_stack *stack,
		    struct ctx_start (*begin)(void *value),
		    void (*end)(void *result))
{
	char *f = frame;
	uint64_t fp = stack->mxcsr | (uint64_t)stack->x87cw << 32;
	const void *rip = ctx_entry;

	memset(f, 0, CTX_FRAME_SIZE);
	memcpy(f + CTX_FRAME_MXCSR, &fp, sizeof(fp));
	memcpy(f + CTX_FRAME_RBX, &begin, sizeof(begin));
	memcpy(f + CTX_FRAME_R12, &end, sizeof(end));
	memcpy(f + CTX_FRAME_RIP, &rip, sizeof(rip));
}

void ctx_fp_read(struct ctx_stack *stack)
{
	__asm__ volatile("stmxcsr %0" : "=m"(stack->mxcsr));
	__asm__ volatile("fnstcw %0" : "=m"(stack->x87cw));
}
