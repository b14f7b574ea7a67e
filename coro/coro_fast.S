/*
 * coro_fast.S - coro_resume() and coro_suspend(), their usual case.
 *
 * The bookkeeping of coro.c and the switch of asm/ctx.S in one, since half of
 * what a switch costs is the instructions around it. Anything unusual goes to
 * the same functions in C: a wrong state, a foreign thread, one with FP control
 * words of its own, a stack to be copied. Not used under the sanitizers.
 *
 *	r9   the thread's scheduler     r10  from
 *	r8   the stack of `to`          r11  where errno is
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "asm/ctx.h"
#include "asm/ctx_macros.h"
#include "coro_layout.h"

	.intel_syntax noprefix
	.text

/* \from leaves, its state told; \to runs. */
	.macro	NOTE to, state
	mov	r11, [r9 + CORO_SCHED_ERRNO_P]
	mov	byte ptr [r10 + CORO_STATE], \state
	mov	eax, [r11]
	mov	edx, [\to + CORO_ERR]
	mov	[r10 + CORO_ERR], eax
	mov	[r11], edx
	mov	[r9 + CORO_SCHED_CUR], \to
	mov	byte ptr [\to + CORO_STATE], CORO_ST_RUNNING_
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
	mov	r10, [r9 + CORO_SCHED_CUR]
	movzx	eax, byte ptr [rdi + CORO_FLAGS]
	or	al, [r10 + CORO_FLAGS]
	test	al, CTX_FLAG_FP
	jnz	coro_resume_slow
	mov	[rdi + CORO_RESUMER], r10
	NOTE	rdi, CORO_ST_NORMAL_
	CTX_PUSH_FRAME
	mov	[r10 + CTX_SP], rsp
	cmp	[r8 + CTX_STACK_OCCUPANT], rdi
	jne	1f
	mov	rsp, [rdi + CTX_SP]
	mov	rax, rsi
	xor	edx, edx
	.cfi_remember_state
	CTX_POP_FRAME
	jmp	r8
	.cfi_restore_state
1:	mov	rcx, rsi
	mov	rsi, rdi
	mov	rdi, r10
	xor	edx, edx
	jmp	[rip + ctx_conflict]
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
	mov	r10, [r9 + CORO_SCHED_CUR]
	mov	rsi, [r10 + CORO_RESUMER]
	test	byte ptr [r10 + CORO_FLAGS], CORO_F_NOT_FAST + CTX_FLAG_FP
	jnz	coro_suspend_slow
	test	byte ptr [rsi + CORO_FLAGS], CTX_FLAG_FP
	jnz	coro_suspend_slow
	mov	r8, [rsi + CTX_STACK]
	NOTE	rsi, CORO_ST_SUSPENDED_
	CTX_PUSH_FRAME
	mov	[r10 + CTX_SP], rsp
	cmp	[r8 + CTX_STACK_OCCUPANT], rsi
	jne	1f
	mov	rsp, [rsi + CTX_SP]
	mov	rax, rdi
	xor	edx, edx
	.cfi_remember_state
	CTX_POP_FRAME
	jmp	r8
	.cfi_restore_state
1:	mov	rcx, rdi
	mov	rdi, r10
	xor	edx, edx
	jmp	[rip + ctx_conflict]
	.cfi_endproc
	.size	coro_suspend_pair, . - coro_suspend_pair
#endif

	.section .note.GNU-stack, "", @progbits
