/*
 * mxcsr and the x87 control word stay with the coroutines that asked for their
 * own, for every pair of resumer and resumed, on every kind of stack.
 */
#include "test_coro.h"

#include <fenv.h>

#include "asm/ctx.h"

static struct coro_sched *the_sched;

static int setup(void **state)
{
	int err = sched_setup(state);

	the_sched = *state;
	return err;
}

static int setup_one_stack(void **state)
{
	int err = sched_setup_one_stack(state);

	the_sched = *state;
	return err;
}

static struct coro *new_coro(const struct coro_attr *attr, coro_fn fn)
{
	struct coro *co = NULL;

	assert_int_equal(coro_create(the_sched, attr, fn, &co), 0);
	return co;
}

static void resume(struct coro *co, void *in)
{
	assert_int_equal(coro_resume(co, in, NULL), 0);
}

static int sse_round(void)
{
	return (__builtin_ia32_stmxcsr() & 0x6000) >> 3;
}

static void check_round(int mode)
{
	assert_int_equal(fegetround(), mode); /* of the x87 word */
	assert_int_equal(sse_round(), mode);
}

static void *rounds_up(void *arg)
{
	check_round(FE_TONEAREST);
	fesetround(FE_UPWARD);
	coro_suspend(NULL, NULL);
	check_round(FE_UPWARD);
	return NULL;
}

static void *rounds_nearest(void *arg)
{
	check_round(FE_TONEAREST);
	coro_suspend(NULL, NULL);
	check_round(FE_TONEAREST);
	return NULL;
}

struct both {
	struct coro_attr attr;
	coro_fn body;
	bool ends_here;
	struct coro *co;
};

/* Runs another in its own mode, whole or up to its suspend. */
static void *rounds_down_around(void *arg)
{
	struct both *b = arg;

	fesetround(FE_DOWNWARD);
	b->co = new_coro(&b->attr, b->body);
	resume(b->co, NULL);
	check_round(FE_DOWNWARD);
	if (b->ends_here) {
		resume(b->co, NULL);
		check_round(FE_DOWNWARD);
	}
	return NULL;
}

static void every_pair(void)
{
	const struct coro_attr fp = {.save_fp = true, .shared_stack = 1};

	for (int i = 0; i < 8; i++) {
		struct both b = {
			.attr = {.save_fp = i & 1,
				 .stack = i & 4 ? CORO_STACK_PRIVATE
						: CORO_STACK_SHARED,
				 .shared_stack = !(i & 4)},
			.body = i & 1 ? rounds_up : rounds_nearest,
			.ends_here = i & 2,
		};
		static struct both heap; /* not on a stack: the rule */
		struct coro *outer = new_coro(&fp, rounds_down_around);

		heap = b;
		resume(outer, &heap);
		check_round(FE_TONEAREST);
		if (!b.ends_here) /* is ended by another */
			resume(heap.co, NULL);
		check_round(FE_TONEAREST);
		assert_int_equal(coro_status(heap.co), CORO_DEAD);
		coro_destroy(heap.co);
		coro_destroy(outer);
	}
}

/* With each copy loop. */
static void test_fp_words_are_kept_across_every_pair_of_switches(void **state)
{
	static const enum ctx_isa isas[] = {CTX_ISA_SSE2, CTX_ISA_AVX2,
					    CTX_ISA_AVX512, CTX_ISA_CHECKED};
	enum ctx_isa best = ctx_isa_chosen();

	for (int i = 0; i < 4; i++)
		/* Valgrind knows of the last one's copies alone. */
		if ((i == 3 || !RUNNING_ON_VALGRIND) &&
		    ctx_isa_choose(isas[i]) == 0)
			every_pair();
	ctx_isa_choose(best);
}

static struct coro *plain;

static void *ends_another(void *arg)
{
	fesetround(FE_DOWNWARD);
	resume(plain, NULL);
	check_round(FE_DOWNWARD);
	return NULL;
}

/* A coroutine begun by a plain resumer ends into one with its own words. */
static void test_end_into_a_resumer_with_fp_words(void **state)
{
	const struct coro_attr fp = {.save_fp = true};
	struct coro *co = new_coro(&fp, ends_another);

	plain = new_coro(NULL, rounds_nearest);
	resume(plain, NULL);
	resume(co, NULL);
	check_round(FE_TONEAREST);
	coro_destroy(plain);
	coro_destroy(co);
}

/* ---- asked for at creation, and resumed in turn ---- */

static void *rounds_up_and_down(void *arg)
{
	fesetround(FE_UPWARD);
	coro_suspend(NULL, NULL);
	assert_int_equal(fegetround(), FE_UPWARD);
	assert_int_equal(sse_round(), FE_UPWARD);
	fesetround(FE_DOWNWARD);
	coro_suspend(NULL, NULL);
	assert_int_equal(fegetround(), FE_DOWNWARD);
	assert_int_equal(sse_round(), FE_DOWNWARD);
	return NULL;
}

static void *stays_nearest(void *arg)
{
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fegetround(), FE_TONEAREST);
		assert_int_equal(sse_round(), FE_TONEAREST);
		coro_suspend(NULL, NULL);
	}
	return NULL;
}

static unsigned short x87_control_word(void)
{
	unsigned short cw;

	__asm__("fnstcw %0" : "=m"(cw));
	return cw;
}

static void test_fp_words_stay_with_their_coroutine(void **state)
{
	const struct coro_attr fp = {.save_fp = true};
	unsigned short cw = x87_control_word();
	struct coro *a, *b;

	coro_create(*state, &fp, rounds_up_and_down, &a);
	coro_create(*state, NULL, stays_nearest, &b);
	for (int i = 0; i < 3; i++) {
		coro_resume(a, NULL, NULL);
		assert_int_equal(sse_round(), FE_TONEAREST);
		assert_int_equal(x87_control_word(), cw);
		coro_resume(b, NULL, NULL);
	}
	assert_int_equal(coro_status(a), CORO_DEAD);
	coro_destroy(a);
	coro_destroy(b);
}

#define T(name, up) cmocka_unit_test_setup_teardown(name, up, sched_teardown)
#define EACH(name)                                                             \
	T(name, setup),                                                        \
	{                                                                      \
#name "_on_one_stack", name, setup_one_stack, sched_teardown,  \
			NULL                                                   \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_fp_words_are_kept_across_every_pair_of_switches),
		EACH(test_end_into_a_resumer_with_fp_words),
		EACH(test_fp_words_stay_with_their_coroutine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
