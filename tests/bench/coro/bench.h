/*
 * bench.h - declarations shared by the files of bench-coro. A contender runs n
 * operations and returns the cost of one; bench_coro.c compares them.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/coro.h>

#define STACK_BYTES 65536
#define MILLION	    1000000

extern struct coro_sched *sched;
extern size_t live_bytes; /* of locals in each body */

int64_t now_ns(void);
void die(const char *what, int err) __attribute__((noreturn));
void *map_stack(size_t bytes);
uint64_t rnd(void);

/* The same locals in every body. */
#define WITH_LOCALS(loop)                                                      \
	volatile char *locals = __builtin_alloca(live_bytes);                  \
	locals[0] = 1;                                                         \
	loop

/* ---- bench_floor.S: a minimal switch ---- */

struct floor_ctx {
	void *sp;
	char *save;
};

struct floor_stack {
	struct floor_ctx *owner;
	char *top;
};

void *floor_switch(void **from_sp, void *to_sp, void *value);
void floor_copy_switch(void **from_sp, struct floor_ctx *to,
		       struct floor_stack *stack);

/* Makes a first frame below top that enters fn; returns its stack pointer. */
void *floor_frame(char *top, void (*fn)(void));
extern void *floor_main_sp;

/* ---- bench_switch.c: private stacks ---- */

double switch_coronet(long n);
double switch_coronet_fp(long n);
double switch_floor(long n);
double switch_boost(long n);
double switch_ucontext(long n);
double switch_pcl(long n);
double switch_pth(long n);

/* ---- bench_copy.c: shared stacks ---- */

double copy_coronet(long n);
double copy_floor(long n);
double many_coronet(long n);
double many_floor(long n);
double many_floor_prefetch(long n);
double yield_64(long n);
double yield_1000(long n);

/* ---- bench_life.c: create, run, destroy; memory of a parked coroutine ---- */

double create_coronet(long n);
double create_spawn(long n);
double create_boost(long n);
double create_boost_fiber(long n); /* bench_boost.cc */
double create_ucontext(long n);
double memory_million(long n);

/* ---- bench_timer.c: a million timers ---- */

double timer_coronet(long n);
double timer_coronet_cycle(long n);
double timer_heap(long n);
double timer_heap_cycle(long n);
double timer_coronet_all(long n);
double timer_heap_all(long n);
double timer_coronet_fire(long n);
double timer_heap_fire(long n);
double timer_floor(long n);
