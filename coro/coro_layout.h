/*
 * coro_layout.h - offsets that coro_fast.S relies on; coro.c asserts them.
 */
#pragma once

/* struct coro, after struct ctx */
#define CORO_FLAGS   32
#define CORO_STATE   33
#define CORO_FLAGS2  34
#define CORO_ERR     36
#define CORO_RESUMER 40
#define CORO_VALUE   48
#define CORO_FN	     96
#define CORO_EXT     112
#define CORO_LAST    120

/* struct coro_sched */
#define CORO_SCHED_CUR	   0
#define CORO_SCHED_NEXT	   32
#define CORO_SCHED_ERRNO_P 40
#define CORO_SCHED_LIVE	   48
#define CORO_SCHED_EH	   56

/* struct coro_eh */
#define CORO_EH_CAUGHT	 0
#define CORO_EH_UNCAUGHT 8

/* struct coro_stack */
#define CORO_STACK_OWNER 32
#define CORO_STACK_INDEX 56
#define CORO_STACK_FRESH 61

/* enum coro_state */
#define CORO_ST_DEAD_	   0
#define CORO_ST_RUNNING_   2
#define CORO_ST_NORMAL_	   3
#define CORO_ST_RESUMABLE_ 6 /* from here on */
#define CORO_ST_SUSPENDED_ 7

/* Flags of the running coroutine that send coro_suspend() to the slow path. */
#define CORO_F_NOT_FAST 0xb0 /* KILLED, MAIN, MEASURE */

/*
 * Flags that make a coroutine's end take the slow path, and the flag that
 * remains after the end.
 */
#define CORO_F_LONG_END 0xb1 /* KILLED, MAIN, MEASURE, FP */
#define CORO_F_HANDLE_	0x40

/* ctx.flags2 */
#define CORO_F2_STARTED_ 32
