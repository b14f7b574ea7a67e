/*
 * ctx_macros.h - the frame of a parked context (ctx.h), for assembly that
 * contains a switch. Intel syntax. Rules for the unwinder included.
 */
#pragma once

/* Push the frame except the return address, which is on the stack already.
 * Clobbers only the flags. The slot of the FP words gets rax; with words_there
 * it has the words already and is kept. */
	.macro	CTX_PUSH_FRAME words_there=0
	push	rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	push	rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	push	r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0
	push	r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r13, 0
	push	r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r14, 0
	push	r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r15, 0
	.if \words_there
	lea	rsp, [rsp - 8]
	.else
	push	rax
	.endif
	.cfi_adjust_cfa_offset 8
	.endm

/* Pop the frame, with the return address into r8, for a jump. With words_there
 * the FP words are skipped: loading both at once, just after they were stored
 * separately, would wait until they have left the store buffer. */
	.macro	CTX_POP_FRAME words_there=0
	.if \words_there
	lea	rsp, [rsp + 8]
	.else
	pop	r15
	.endif
	.cfi_adjust_cfa_offset -8
	pop	r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore r15
	pop	r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore r14
	pop	r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore r13
	pop	r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	pop	rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	pop	rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbp
	pop	r8
	.cfi_adjust_cfa_offset -8
	.cfi_register rip, r8
	.endm
