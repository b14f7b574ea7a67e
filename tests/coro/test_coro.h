/* test_coro.h - a scheduler on a fake clock. */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <coronet/coro.h>

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

/* TSan counts each coroutine as a thread, and supports at most 8,128. */
#ifdef __SANITIZE_THREAD__
#define MANY(n) ((n) / 25)
#else
#define MANY(n) (n)
#endif

#define MS   INT64_C(1000000)
#define SEC  (1000 * MS)
#define TICK (INT64_C(1) << 14)

static int64_t fake_now = 1000 * SEC;

static inline int64_t fake_clock(void *ctx)
{
	return fake_now;
}

static inline int sched_setup_with(void **state,
				   const struct coro_sched_attr *base)
{
	struct coro_sched_attr attr = *base;
	struct coro_sched *s;

	fake_now = 1000 * SEC;
	attr.clock_ns = fake_clock;
	if (coro_sched_open(&attr, &s) != 0)
		return -1;
	*state = s;
	return 0;
}

static inline int sched_setup(void **state)
{
	return sched_setup_with(state, &(struct coro_sched_attr){0});
}

/* All coroutines on one stack: every switch copies. */
static inline int sched_setup_one_stack(void **state)
{
	return sched_setup_with(state,
				&(struct coro_sched_attr){.stack_count = 1});
}

static inline int sched_teardown(void **state)
{
	/* A failed assertion in a coroutine has left it by longjmp. */
	if (coro_self() != NULL)
		return -1;
	coro_sched_close(*state);
	return 0;
}

/* Rounds until nothing is ready; bounded, so that a mistake ends. */
static inline unsigned run_idle(struct coro_sched *s)
{
	unsigned n = 0;

	for (int i = 0; i < 1000000 && coro_sched_ready(s); i++)
		n += coro_sched_round(s);
	assert_false(coro_sched_ready(s));
	return n;
}

/* Advances the clock and runs everything that is due. */
static inline void pass_ns(struct coro_sched *s, int64_t ns)
{
	fake_now += ns;
	coro_sched_advance(s, fake_now);
	run_idle(s);
}

/* Each test on many stacks, and on one, where every switch copies. */
#define BOTH(name)                                                             \
	cmocka_unit_test_setup_teardown(name, sched_setup, sched_teardown),    \
	{                                                                      \
#name "_on_one_stack", name, sched_setup_one_stack,            \
			sched_teardown, NULL                                   \
	}

/* A log of small integers that tests compare as text. */
static char test_log[4096];

static inline void log_reset(void)
{
	test_log[0] = '\0';
}

static inline void log_int(long n)
{
	size_t len = strlen(test_log);

	snprintf(test_log + len, sizeof(test_log) - len, "%ld ", n);
}
