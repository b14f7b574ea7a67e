/*
 * bench_floor.S - the least a switch can be: no bookkeeping, no errors,
 * no growing buffers. What coro/ is measured against.
 */
	.intel_syntax noprefix
	.text

/* floor_switch(void **from_sp rdi, void *to_sp rsi, value rdx) */
	.balign 64
	.globl	floor_switch
	.type	floor_switch, @function
floor_switch:
	push	rbp
	push	rbx
	push	r12
	push	r13
	push	r14
	push	r15
	mov	[rdi], rsp
	mov	rsp, rsi
	pop	r15
	pop	r14
	pop	r13
	pop	r12
	pop	rbx
	pop	rbp
	pop	rcx
	mov	rax, rdx
	jmp	rcx
	.size	floor_switch, . - floor_switch

/*
 * floor_copy_switch(void **from_sp rdi, struct floor_ctx *to rsi,
 *		     struct floor_stack *stack rdx)
 * struct floor_ctx { void *sp; char *save; };
 * struct floor_stack { struct floor_ctx *owner; char *top; };
 * If the stack's owner isn't `to`: put the owner's lines aside, bring to's.
 */
	.balign 64
	.globl	floor_copy_switch
	.type	floor_copy_switch, @function
floor_copy_switch:
	push	rbp
	push	rbx
	push	r12
	push	r13
	push	r14
	push	r15
	mov	[rdi], rsp
	mov	r8, [rdx]
	cmp	r8, rsi
	je	3f
	mov	r9, [rdx + 8]
	mov	r10, [r8]
	mov	r11, [r8 + 8]
	and	r10, -64
	mov	rcx, r9
	sub	rcx, r10
1:	vmovdqa	ymm0, [r10 + rcx - 32]
	vmovdqa	ymm1, [r10 + rcx - 64]
	vmovdqa	[r11 + rcx - 32], ymm0
	vmovdqa	[r11 + rcx - 64], ymm1
	sub	rcx, 64
	jnz	1b
	mov	r10, [rsi]
	mov	rsp, r10
	mov	r11, [rsi + 8]
	mov	[rdx], rsi
	and	r10, -64
	mov	rcx, r9
	sub	rcx, r10
2:	vmovdqa	ymm0, [r11 + rcx - 32]
	vmovdqa	ymm1, [r11 + rcx - 64]
	vmovdqa	[r10 + rcx - 32], ymm0
	vmovdqa	[r10 + rcx - 64], ymm1
	sub	rcx, 64
	jnz	2b
	vzeroupper
3:	mov	rsp, [rsi]
	pop	r15
	pop	r14
	pop	r13
	pop	r12
	pop	rbx
	pop	rbp
	pop	rcx
	jmp	rcx
	.size	floor_copy_switch, . - floor_copy_switch

	.section .note.GNU-stack, "", @progbits
