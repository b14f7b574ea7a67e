/*
 * coro_fast.S - coro_resume() and coro_suspend() in their usual case.
 *
 * This joins the bookkeeping of coro.c and the switch of asm/ctx.S, since the
 * instructions around a switch are half of its cost. Anything unusual (a wrong
 * state, another thread, measured stacks) goes to the same functions in C, or
 * to the switch that copies stacks. The sanitizers do not use this file.
 *
 *	r9   the thread's scheduler     r10  from
 *	r8   the stack of `to`          r11  where errno is
 */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&         \
	!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#include "asm/ctx.h"
#include "asm/ctx_macros.h"
#include "coro_layout.h"

	.intel_syntax noprefix
	.text

/* A coroutine in a C++ catch block takes the slow path, which keeps what the
 * runtime knows of its exceptions. Clobbers rax; rdx is 0 after it, which is what
 * the resumed one gets. A pointer and a count never add up to 0. */
	.macro	IF_IN_CATCH slow
	mov	rax, [r9 + CORO_SCHED_EH]
	mov	edx, [rax + CORO_EH_UNCAUGHT]
	add	rdx, [rax + CORO_EH_CAUGHT]
	jnz	\slow
	.endm

/* \from leaves, which notes its state; \to runs. */
	.macro	NOTE to, state
	mov	r11, [r9 + CORO_SCHED_ERRNO_P]
	mov	byte ptr [r10 + CORO_STATE], \state
	mov	eax, [r11]
	mov	ecx, [\to + CORO_ERR]
	mov	[r10 + CORO_ERR], eax
	mov	[r11], ecx
	mov	[r9 + CORO_SCHED_CUR], \to
	mov	byte ptr [\to + CORO_STATE], CORO_ST_RUNNING_
	.endm

/* FP words out, if from has its own, to where its frame will be (the red zone
 * keeps them until then); in, those of `to` or the defaults, unless the bytes of
 * `to` have yet to be copied in: then the conflict loads them. Both come first,
 * since they take as long as the rest of the switch, which goes on meanwhile. */
	.macro	FP_OUT
	test	byte ptr [r10 + CTX_FLAGS], CTX_FLAG_FP
	jz	8f
	stmxcsr	[rsp - CTX_FRAME_RIP + CTX_FRAME_MXCSR]
	fnstcw	[rsp - CTX_FRAME_RIP + CTX_FRAME_X87CW]
8:
	.endm
	.macro	FP_IN to
	mov	rdx, [\to + CTX_SP]
	lea	rax, [r8 + CTX_STACK_MXCSR]
	test	byte ptr [\to + CTX_FLAGS], CTX_FLAG_FP
	cmovz	rdx, rax
	cmp	[r8 + CTX_STACK_OCCUPANT], \to
	jne	9f
	ldmxcsr	[rdx]
	fldcw	[rdx + 4]
9:
	.endm

/* From here on: note it, switch. out: the register that goes to rax. */
	.macro	SWITCH to, out, state, fp, fresh=0
	.if \fp
	FP_OUT
	FP_IN	\to
	.endif
	NOTE	\to, \state
	CTX_PUSH_FRAME \fp
	mov	[r10 + CTX_SP], rsp
	cmp	[r8 + CTX_STACK_OCCUPANT], \to
	jne	1f
	mov	rsp, [\to + CTX_SP]
	mov	rax, \out
	.if \fp
	xor	edx, edx
	.endif
	.cfi_remember_state
	CTX_POP_FRAME \fp
	jmp	r8
	.cfi_restore_state
	.cfi_def_cfa_offset 64
	.cfi_remember_state
1:
	.if \fresh
	cmp	qword ptr [r8 + CTX_STACK_OCCUPANT], 0
	jne	3f
	test	byte ptr [\to + CORO_FLAGS2], CORO_F2_STARTED_
	jnz	3f
	cmp	byte ptr [r8 + CORO_STACK_FRESH], 0
	jne	coro_enter
3:
	.endif
	mov	rcx, \out
	.ifnc \to, rsi
	mov	rsi, \to
	.endif
	mov	rdi, r10
	xor	edx, edx
	jmp	[rip + ctx_conflict]
	.cfi_restore_state
	.cfi_def_cfa_offset 8
	.irp	reg, rbp, rbx, r12, r13, r14, r15
	.cfi_restore \reg
	.endr
	.endm

/* struct coro_pair coro_resume_pair(struct coro *co rdi, void *in rsi) */
	.balign 64
	.globl	coro_resume_pair
	.type	coro_resume_pair, @function
coro_resume_pair:
	.cfi_startproc
	endbr64
	mov	rax, qword ptr coro_tls_sched@gottpoff[rip]
	mov	r8, [rdi + CTX_STACK]
	mov	r9, fs:[rax]
	cmp	r9, [r8 + CORO_STACK_OWNER]
	jne	coro_resume_slow
	cmp	byte ptr [rdi + CORO_STATE], CORO_ST_RESUMABLE_
	jb	coro_resume_slow
	IF_IN_CATCH coro_resume_slow
	mov	r10, [r9 + CORO_SCHED_CUR]
	movzx	eax, byte ptr [rdi + CORO_FLAGS]
	mov	[rdi + CORO_RESUMER], r10
	or	al, [r10 + CORO_FLAGS]
	test	al, CTX_FLAG_FP
	jnz	2f
	SWITCH	rdi, rsi, CORO_ST_NORMAL_, 0, 1
2:	SWITCH	rdi, rsi, CORO_ST_NORMAL_, 1
	.cfi_endproc
	.size	coro_resume_pair, . - coro_resume_pair

/* struct coro_pair coro_suspend_pair(void *out rdi) */
	.balign 64
	.globl	coro_suspend_pair
	.type	coro_suspend_pair, @function
coro_suspend_pair:
	.cfi_startproc
	endbr64
	mov	rax, qword ptr coro_tls_sched@gottpoff[rip]
	mov	r9, fs:[rax]
	test	r9, r9
	jz	coro_suspend_slow
	IF_IN_CATCH coro_suspend_slow
	mov	r10, [r9 + CORO_SCHED_CUR]
	mov	rsi, [r10 + CORO_RESUMER]
	movzx	eax, byte ptr [r10 + CORO_FLAGS]
	test	al, CORO_F_NOT_FAST
	jnz	coro_suspend_slow
	mov	r8, [rsi + CTX_STACK]
	or	al, [rsi + CORO_FLAGS]
	test	al, CTX_FLAG_FP
	jnz	2f
	SWITCH	rsi, rdi, CORO_ST_SUSPENDED_, 0
2:	SWITCH	rsi, rdi, CORO_ST_SUSPENDED_, 1
	.cfi_endproc
	.size	coro_suspend_pair, . - coro_suspend_pair

/*
 * The short life: rdi begins on r8, a shared stack that is nobody's, with the
 * argument rsi. No first frame is copied in. When the body returns, with
 * nothing to clean up, into a resumer whose bytes are in place, nothing of it
 * is saved; any other end is coro_end()'s. As in ctx_entry, the unwinder stops
 * here and the nop is for its look-up of the return address less one.
 */
	.balign 64
	.type	coro_enter_pad, @function
coro_enter_pad:
	.cfi_startproc
	.cfi_undefined rip
	nop
	.type	coro_enter, @function
coro_enter:
	mov	rsp, [r8 + CTX_STACK_TOP]
	mov	[r8 + CTX_STACK_OCCUPANT], rdi
	or	byte ptr [rdi + CORO_FLAGS2], CORO_F2_STARTED_
	mov	rax, rdi
	mov	rdi, rsi
	xor	ebp, ebp
	call	[rax + CORO_FN]
	mov	rdx, qword ptr coro_tls_sched@gottpoff[rip]
	mov	r9, fs:[rdx]
	mov	rdi, [r9 + CORO_SCHED_CUR]
	mov	rsi, [rdi + CORO_RESUMER]
	mov	rdx, [rdi + CTX_SAVE_CAP]
	mov	r8, [rdi + CTX_STACK]
	shl	rdx, 16
	or	rdx, [rdi + CORO_EXT]
	or	rdx, [rdi + CORO_LAST]
	jnz	1f
	movzx	ecx, byte ptr [rdi + CORO_FLAGS]
	mov	r10, [rsi + CTX_STACK]
	test	cl, CORO_F_LONG_END
	jnz	1f
	test	cl, CORO_F_HANDLE_
	jz	1f
	cmp	byte ptr [rsi + CORO_STATE], CORO_ST_NORMAL_
	jne	1f
	test	byte ptr [rsi + CORO_FLAGS], CTX_FLAG_FP
	jnz	1f
	cmp	[r10 + CTX_STACK_OCCUPANT], rsi
	jne	1f
	mov	r11, [r9 + CORO_SCHED_ERRNO_P]
	mov	edx, [r8 + CORO_STACK_INDEX]
	mov	ecx, [rsi + CORO_ERR]
	mov	byte ptr [rdi + CORO_FLAGS], CORO_F_HANDLE_
	mov	byte ptr [rdi + CORO_STATE], CORO_ST_DEAD_
	mov	[rdi + CORO_VALUE], rax
	mov	qword ptr [r8 + CTX_STACK_OCCUPANT], 0
	mov	[r9 + CORO_SCHED_NEXT], edx	/* warm: the next one's */
	dec	dword ptr [r9 + CORO_SCHED_LIVE]
	mov	[r11], ecx
	mov	[r9 + CORO_SCHED_CUR], rsi
	mov	byte ptr [rsi + CORO_STATE], CORO_ST_RUNNING_
	xor	edx, edx
	.cfi_remember_state
	mov	rsp, [rsi + CTX_SP]
	.cfi_def_cfa_offset 64
	.cfi_offset rip, -8
	.cfi_offset rbp, -16
	.cfi_offset rbx, -24
	.cfi_offset r12, -32
	.cfi_offset r13, -40
	.cfi_offset r14, -48
	.cfi_offset r15, -56
	CTX_POP_FRAME
	jmp	r8
	.cfi_restore_state
	.cfi_def_cfa_offset 8
1:	mov	rdi, rax
	call	coro_end
	ud2
	.cfi_endproc
	.size	coro_enter, . - coro_enter
#endif

	.section .note.GNU-stack, "", @progbits
