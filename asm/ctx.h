/*
 * ctx.h - the context switch, and the stack copy that goes with it.
 *
 * A context is a suspended flow of control: a stack pointer into a stack,
 * below which every parked context has the same frame. A stack may be shared by
 * many contexts: its occupant is the one whose bytes it holds now; the others'
 * live bytes, [sp rounded down to 64, top), wait in their save buffers. The
 * switch moves bytes only when the next context isn't the occupant.
 *
 * Memory: contexts, stacks and save buffers are owned by the caller.
 * Threads: everything that shares a stack belongs to one thread.
 * This file is read by C and by the assembler; ctx_check.c pins the offsets.
 */
#pragma once

/* struct ctx */
#define CTX_SP	     0
#define CTX_STACK    8
#define CTX_SAVE     16
#define CTX_SAVE_CAP 24
#define CTX_FLAGS    32

/* struct ctx_stack */
#define CTX_STACK_OCCUPANT 0
#define CTX_STACK_TOP	   8
#define CTX_STACK_RESIZE   16
#define CTX_STACK_MXCSR	   24
#define CTX_STACK_X87CW	   28

/* Bit 0 of ctx.flags: the FP control words are its own. */
#define CTX_FLAG_FP 1

/*
 * The frame at a parked context's sp, one for all:
 *   sp + 0   mxcsr (4 bytes), x87 control word (2), zero (2)
 *   sp + 8   r15
 *   sp + 16  r14
 *   sp + 24  r13
 *   sp + 32  r12
 *   sp + 40  rbx
 *   sp + 48  rbp
 *   sp + 56  return address
 */
#define CTX_FRAME_MXCSR 0
#define CTX_FRAME_X87CW 4
#define CTX_FRAME_R12	32
#define CTX_FRAME_RBX	40
#define CTX_FRAME_RBP	48
#define CTX_FRAME_RIP	56
#define CTX_FRAME_SIZE	64

/* A save buffer is replaced by a smaller one when more of its bytes are unused
 * than half of them and this many. */
#define CTX_SAVE_SLACK 128

#ifndef __ASSEMBLER__
#include <stdint.h>

struct ctx_stack;

struct ctx {
	void *sp;		 /* valid while switched out */
	struct ctx_stack *stack; /* borrowed */
	void *save;		 /* save buffer, 64-byte aligned, or NULL */
	uint32_t save_cap;	 /* its bytes, a multiple of 64 */
	uint16_t hwm_lines;	 /* this and name: for the owner, unused here */
	uint16_t name;
	uint8_t flags; /* CTX_FLAG_FP; other bits are for the owner */
	uint8_t state; /* from here on: for the owner, unused here */
	uint8_t flags2;
	uint8_t flags3;
	int32_t err;
};

struct ctx_stack {
	struct ctx *occupant; /* its bytes are in place; NULL: no context's */
	char *top;	      /* one past the highest byte, 64-aligned */
	/*
	 * Makes ctx's save buffer fit len bytes; its content is not needed any
	 * more. Called on from's stack. If the result is not 0, the switch does
	 * not take place, and returns that value and that error to `from`. With
	 * CTX_ISA_CHECKED also called with ctx == NULL, before to's bytes are
	 * restored.
	 */
	long (*resize)(struct ctx *ctx, uint32_t len, struct ctx *from,
		       struct ctx *to);
	uint32_t mxcsr; /* what contexts without CTX_FLAG_FP run with */
	uint16_t x87cw;
};

/* The result of a switch in the context that it resumes: rax and rdx. */
struct ctx_pair {
	long value;
	long err;
};

enum ctx_isa {
	CTX_ISA_SSE2,
	CTX_ISA_AVX2,
	CTX_ISA_AVX512,
	CTX_ISA_CHECKED, /* SSE2, reporting to resize() */
};

/*
 * Saves the caller in `from` and switches to `to`, where ctx_switch() returns
 * {value, err}. A `from` that occupies no stack is not saved. Callers that
 * declare it to return a long or an int get only the value.
 */
struct ctx_pair ctx_switch(struct ctx *from, struct ctx *to, long err,
			   long value);

/* The result of begin(), which ctx_entry calls next: rax and rdx. */
struct ctx_start {
	void *(*fn)(void *arg);
	void *arg;
};

/*
 * Writes the first frame of a context at `frame` (64 bytes, 64-aligned, or its
 * copy in a save buffer). When the context is resumed with value v, it calls
 * begin(v), then the function that begin() returned, then end() with the result
 * of that function; end() must not return. stack: has the FP control words.
 */
void ctx_frame_init(void *frame, const struct ctx_stack *stack,
		    struct ctx_start (*begin)(void *value),
		    void (*end)(void *result));

/* Read the calling thread's FP control words into the stack's defaults. */
void ctx_fp_read(struct ctx_stack *stack);

/* Choose the copy loop: the best one of the CPU, or (for tests) this one.
 * Return 0, or -1 if the CPU lacks it. Not thread-safe: call once at the start.
 */
int ctx_isa_choose_best(void);
int ctx_isa_choose(enum ctx_isa isa);
enum ctx_isa ctx_isa_chosen(void);
const char *ctx_isa_name(enum ctx_isa isa);
#endif
