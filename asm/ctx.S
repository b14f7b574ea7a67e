/*
 * ctx.S - the context switch, x86_64 System V.
 *
 *	rdi  from: saved          rdx  err, returned in rdx to `to`
 *	rsi  to: resumed          rcx  value, returned in rax to `to`
 *
 * Frame of a parked context, the same for all (ctx.h has the offsets):
 *
 *	+56  return address       <- CFA - 8
 *	+48  rbp
 *	+40  rbx
 *	+32  r12
 *	+24  r13
 *	+16  r14
 *	 +8  r15
 *	 +0  mxcsr, x87 word      <- sp
 *
 * The switch ends in pop; jmp: a ret would be predicted by the return stack,
 * which holds the caller of `from`, and miss every time. Nothing runs after it
 * either, because the next ret would miss in turn.
 *
 * The .cfi_def_cfa_offset after each .cfi_restore_state is for clang's
 * assembler, which forgets the offset it adjusts.
 *
 * Since both stacks have this shape, the unwind rules written down for `from`
 * before rsp is loaded are true for `to` after it.
 *
 * Signals: rsp is `from`'s sp until all of a replaced occupant is saved, and
 * `to`'s sp before the first of its bytes comes back. So a handler, which
 * writes below rsp, never meets bytes that count.
 */
#include "ctx.h"
#include "ctx_macros.h"

	.intel_syntax noprefix

	.section .data.rel.local, "aw"
	.balign 8
	.globl	ctx_conflict
	.hidden	ctx_conflict
	.type	ctx_conflict, @object
	.size	ctx_conflict, 8
ctx_conflict:
	.quad	ctx_conflict_sse2

	.text

/* Resume what rsp points to: value in rcx, err in rdx already. */
	.macro	LAND
	CTX_POP_FRAME
	mov	rax, rcx
	jmp	r8
	.endm

/* Load the words of `to`, or the defaults if it has none of its own. rsp: to's,
 * r8: its stack, where the defaults lie as the words do in a frame. */
	.macro	FP_LOAD
	lea	r9, [r8 + CTX_STACK_MXCSR]
	test	byte ptr [rsi + CTX_FLAGS], CTX_FLAG_FP
	cmovnz	r9, rsp
	ldmxcsr	[r9]
	fldcw	[r9 + 4]
	.endm

	.balign 64
	.globl	ctx_switch
	.hidden	ctx_switch
	.type	ctx_switch, @function
ctx_switch:
	.cfi_startproc
	endbr64
	CTX_PUSH_FRAME
	mov	[rdi + CTX_SP], rsp
	movzx	eax, byte ptr [rdi + CTX_FLAGS]
	mov	r8, [rsi + CTX_STACK]
	or	al, [rsi + CTX_FLAGS]
	test	al, CTX_FLAG_FP
	jnz	.Lfp
	cmp	[r8 + CTX_STACK_OCCUPANT], rsi
	jne	.Lconflict
	mov	rsp, [rsi + CTX_SP]
	.cfi_remember_state
	LAND
	.cfi_restore_state
	.cfi_def_cfa_offset 64

.Lconflict:
	jmp	[rip + ctx_conflict]

/* One of the two has its own FP control words. */
.Lfp:
	test	byte ptr [rdi + CTX_FLAGS], CTX_FLAG_FP
	jz	1f
	stmxcsr	[rsp + CTX_FRAME_MXCSR]
	fnstcw	[rsp + CTX_FRAME_X87CW]
1:	cmp	[r8 + CTX_STACK_OCCUPANT], rsi
	jne	.Lconflict
	mov	rsp, [rsi + CTX_SP]
	FP_LOAD
	LAND
	.cfi_endproc
	.size	ctx_switch, . - ctx_switch

# The same code under the types its callers return (ctx.h).
	.globl	ctx_switch_pair
	.hidden	ctx_switch_pair
	.set	ctx_switch_pair, ctx_switch
	.globl	ctx_switch_int
	.hidden	ctx_switch_int
	.set	ctx_switch_int, ctx_switch
/* resize(occupant r9, length r12d, from, to), every argument kept. */
	.macro	CALL_RESIZE
	.irp	reg, rdi, rsi, rdx, rcx, r8, r9
	push	\reg
	.cfi_adjust_cfa_offset 8
	.endr
	mov	rdx, rdi
	mov	rdi, r9
	mov	rcx, rsi
	mov	esi, r12d
	call	[r8 + CTX_STACK_RESIZE]
	.irp	reg, r9, r8, rcx, rdx, rsi, rdi
	pop	\reg
	.cfi_adjust_cfa_offset -8
	.endr
	mov	r10, [r8 + CTX_STACK_TOP]
	.endm

/* For a memory checker: resize() of no context says that bytes will come. */
	.macro	REPORT
	xor	r9d, r9d
	mov	r12d, 0
	CALL_RESIZE
	.endm

/*
 * `to` isn't the occupant of its stack. Here: from's frame is complete at rsp,
 * r8 = to's stack; rbx, rbp, r12-r15 are saved and free.
 *
 *	r9   occupant             r12  bytes to move
 *	r10  top of the stack     r13, r14  source, destination
 *
 * \copy moves [r13, r12 bytes) to r14, downwards, because the
 * lowest bytes were pushed last and a wide load of a narrow store in flight
 * stalls.
 */
	.macro	CONFLICT name, copy, done, before=NOTHING
	.balign 64
	.globl	\name
	.hidden	\name
	.type	\name, @function
\name:
	.cfi_startproc
	.cfi_def_cfa_offset 64
	.cfi_offset rbp, -16
	.cfi_offset rbx, -24
	.cfi_offset r12, -32
	.cfi_offset r13, -40
	.cfi_offset r14, -48
	.cfi_offset r15, -56
	mov	r9, [r8 + CTX_STACK_OCCUPANT]
	mov	r10, [r8 + CTX_STACK_TOP]
	test	r9, r9
	jz	3f
	mov	r13, [r9 + CTX_SP]
	and	r13, -64
	mov	r12, r10
	sub	r12, r13
	mov	eax, [r9 + CTX_SAVE_CAP]
	cmp	eax, r12d
	jne	8f
1:	mov	r14, [r9 + CTX_SAVE]
	\copy
	/* Everything of the occupant is saved. */
3:	\before
	mov	rsp, [rsi + CTX_SP]
	.cfi_remember_state
	.cfi_undefined rip
	mov	[r8 + CTX_STACK_OCCUPANT], rsi
	mov	r14, rsp
	and	r14, -64
	mov	r12, r10
	sub	r12, r14
	mov	r13, [rsi + CTX_SAVE]
	\copy
	\done
	.cfi_restore_state
	.cfi_def_cfa_offset 64
	.cfi_remember_state
	movzx	eax, byte ptr [rdi + CTX_FLAGS]
	or	al, [rsi + CTX_FLAGS]
	test	al, CTX_FLAG_FP
	jnz	7f
4:	LAND
	.cfi_restore_state
	.cfi_def_cfa_offset 64

7:	FP_LOAD
	jmp	4b

8:	mov	ebp, eax
	shr	ebp, 1
	sub	eax, r12d	/* huge if there is too little */
	add	ebp, CTX_SAVE_SLACK
	cmp	eax, ebp
	jbe	1b
	CALL_RESIZE	/* the save buffer doesn't fit */
	test	rax, rax
	jz	1b
	/* Called off: go back to from, whose frame rsp points to. */
	mov	rdx, rax
	mov	rcx, rax
	.cfi_remember_state
	LAND
	.cfi_restore_state
	.cfi_def_cfa_offset 64
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.macro	LOOP512
	test	r12, 64
	jz	5f
	vmovdqa64 zmm16, [r13 + r12 - 64]
	vmovdqa64 [r14 + r12 - 64], zmm16
	sub	r12, 64
	jz	6f
5:	vmovdqa64 zmm16, [r13 + r12 - 64]
	vmovdqa64 zmm17, [r13 + r12 - 128]
	vmovdqa64 [r14 + r12 - 64], zmm16
	vmovdqa64 [r14 + r12 - 128], zmm17
	sub	r12, 128
	jnz	5b
6:
	.endm

	.macro	LOOP256
5:	vmovdqa	ymm0, [r13 + r12 - 32]
	vmovdqa	ymm1, [r13 + r12 - 64]
	vmovdqa	[r14 + r12 - 32], ymm0
	vmovdqa	[r14 + r12 - 64], ymm1
	sub	r12, 64
	jnz	5b
	.endm

	.macro	LOOP128
5:	movdqa	xmm0, [r13 + r12 - 16]
	movdqa	xmm1, [r13 + r12 - 32]
	movdqa	xmm2, [r13 + r12 - 48]
	movdqa	xmm3, [r13 + r12 - 64]
	movdqa	[r14 + r12 - 16], xmm0
	movdqa	[r14 + r12 - 32], xmm1
	movdqa	[r14 + r12 - 48], xmm2
	movdqa	[r14 + r12 - 64], xmm3
	sub	r12, 64
	jnz	5b
	.endm

	.macro	NOTHING
	.endm

	CONFLICT ctx_conflict_sse2, LOOP128, NOTHING
	CONFLICT ctx_conflict_avx2, LOOP256, vzeroupper
	CONFLICT ctx_conflict_checked, LOOP128, NOTHING, REPORT
	CONFLICT ctx_conflict_avx512, LOOP512, NOTHING

/*
 * Where a new context begins: rbx = begin, r12 = end, rax = the value it is
 * resumed with, rsp 64-aligned. The body's own frame comes next: what a
 * trampoline in C would keep here would be copied at every conflict. The unwinder stops here; it looks up the return address less
 * one, so the nop before the label belongs to the function.
 */
	.balign 64
	.type	ctx_entry_pad, @function
ctx_entry_pad:
	.cfi_startproc
	.cfi_undefined rip
	nop
	.globl	ctx_entry
	.hidden	ctx_entry
	.type	ctx_entry, @function
ctx_entry:
	mov	rdi, rax
	xor	ebp, ebp
	call	rbx
	mov	rdi, rdx
	call	rax
	mov	rdi, rax
	call	r12
	ud2
	.cfi_endproc
	.size	ctx_entry, . - ctx_entry

	.section .note.GNU-stack, "", @progbits
