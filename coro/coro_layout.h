/*
 * coro_layout.h - offsets that coro_fast.S relies on; coro.c pins them.
 */
#pragma once

/* struct coro, after struct ctx */
#define CORO_FLAGS   32
#define CORO_STATE   33
#define CORO_ERR     36
#define CORO_RESUMER 40

/* struct coro_sched */
#define CORO_SCHED_CUR	   0
#define CORO_SCHED_ERRNO_P 32

/* struct coro_stack */
#define CORO_STACK_OWNER 32

/* enum coro_state */
#define CORO_ST_RUNNING_   2
#define CORO_ST_NORMAL_	   3
#define CORO_ST_RESUMABLE_ 6 /* from here on */
#define CORO_ST_SUSPENDED_ 7

/* Flags of the running coroutine that coro_suspend() must look at. */
#define CORO_F_NOT_FAST 0xb0 /* KILLED, MAIN, MEASURE */
