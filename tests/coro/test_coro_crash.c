/*
 * A crash or a stack overflow names the coroutine and then kills the process.
 */
#include "child.h"

/* Valgrind handles guard pages and crashes itself. */
#define NOT_UNDER_VALGRIND()                                                   \
	if (RUNNING_ON_VALGRIND)                                               \
	return

static void *park_self(void *arg)
{
	coro_park();
	return NULL;
}

/* ---- overflow ---- */

static void *overflows(void *arg)
{
	recurses(1000000);
	return NULL;
}

static enum coro_stack_kind kind;

static void overflow(void)
{
	struct coro_sched *s;
	const struct coro_attr attr = {.name = "greedy", .stack = kind};

	coro_sched_open(NULL, &s);
	coro_spawn(s, &attr, overflows, NULL, NULL);
	coro_sched_run(s);
}

static void test_overflow_names_the_coroutine(void **state)
{
	for (int i = 0; i < 2; i++) {
		int status;

		kind = i ? CORO_STACK_PRIVATE : CORO_STACK_SHARED;
		status = in_child(overflow);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
		assert_non_null(strstr(said, "'greedy'"));
		assert_non_null(strstr(said, i ? "coro_attr.stack_size"
					       : "coro_sched_attr.stack_size"));
	}
}

/* The lowest byte of an array larger than the stack, as a compiler that does
 * not probe would touch it first: far below the stack. */
__attribute__((noinline)) static void *steps_over(void *arg)
{
	char here;

	*(volatile char *)((uintptr_t)&here - (uintptr_t)arg) = 1;
	return NULL;
}

static size_t step;

static void overstep(void)
{
	const struct coro_attr attr = {.name = "wide", .stack = kind};
	struct coro_sched *s;

	coro_sched_open(NULL, &s);
	for (int i = 0; i < 4; i++) /* neighbours on both sides */
		coro_spawn(s, &attr, park_self, NULL, NULL);
	coro_spawn(s, &attr, steps_over, (void *)step, NULL);
	coro_sched_run(s);
}

static void test_frame_larger_than_the_stack_hits_the_guard(void **state)
{
	NOT_UNDER_VALGRIND();
	for (int i = 0; i < 2; i++) {
		int status;

		kind = i ? CORO_STACK_PRIVATE : CORO_STACK_SHARED;
		step = i ? 110000 : 1000000;
		status = in_child(overstep);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
		assert_non_null(strstr(said, "'wide'"));
		assert_non_null(strstr(said, "overflowed its stack"));
	}
}

/* ---- other crashes ---- */

static int signo;   /* how the body crashes */
static bool really; /* by an instruction, not by raise() */

/* In assembly, so that no sanitizer intercepts it. */
static void crash_here(void)
{
	if (!really)
		raise(signo);
	else if (signo == SIGFPE)
		__asm__ volatile("xor %%edx, %%edx; xor %%ecx, %%ecx; "
				 "mov $1, %%eax; div %%ecx"
				 :
				 :
				 : "eax", "ecx", "edx");
	else if (signo == SIGILL)
		__asm__ volatile("ud2");
	else if (signo == SIGABRT)
		abort();
	else
		__asm__ volatile("movl $1, 16" : : : "memory");
}

static void *crashes(void *arg)
{
	coro_yield();
	crash_here();
	return NULL;
}

static void crash_in_a_coroutine(void)
{
	const struct coro_attr attr = {.name = "clumsy", .stack = kind};
	struct coro_sched *s;

	coro_sched_open(NULL, &s);
	coro_spawn(s, &attr, crashes, NULL, NULL);
	coro_spawn(s, NULL, park_self, NULL, NULL);
	coro_sched_run(s);
}

static const struct {
	int signo;
	bool really;
	const char *name;
} crashes_of[] = {
	{SIGSEGV, true, "SIGSEGV (address 0x10) in"},
	{SIGFPE, true, "SIGFPE in"},
	{SIGILL, true, "SIGILL in"},
	{SIGABRT, true, "SIGABRT in"},
	{SIGSEGV, false, "SIGSEGV in"},
	{SIGBUS, false, "SIGBUS in"},
	{SIGABRT, false, "SIGABRT in"},
};
#define N_CRASHES (sizeof(crashes_of) / sizeof(crashes_of[0]))

static void each_crash(void (*check)(int status, const char *name))
{
	for (size_t i = 0; i < N_CRASHES; i++)
		for (int k = 0; k < 2; k++) {
			int status;

			signo = crashes_of[i].signo;
			really = crashes_of[i].really;
			kind = k ? CORO_STACK_PRIVATE : CORO_STACK_SHARED;
			status = in_child(crash_in_a_coroutine);
			check(status, crashes_of[i].name);
		}
}

static void names_the_coroutine(int status, const char *name)
{
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), signo);
	assert_non_null(strstr(said, name));
	assert_non_null(strstr(said, "coroutine 'clumsy', at "));
	assert_int_equal(strlen(said), strcspn(said, "\n") + 1); /* once */
}

static void test_crash_names_the_coroutine_and_kills(void **state)
{
	NOT_UNDER_VALGRIND();
	each_crash(names_the_coroutine);
}

static void crash_outside(void)
{
	struct coro_sched *s;

	coro_sched_open(NULL, &s);
	coro_spawn(s, NULL, park_self, NULL, NULL);
	coro_sched_round(s);
	crash_here();
}

static void test_crash_outside_coroutines_is_left_alone(void **state)
{
	NOT_UNDER_VALGRIND();
	signo = SIGSEGV;
	really = true;
	assert_int_equal(WTERMSIG(in_child(crash_outside)), SIGSEGV);
	assert_string_equal(said, "");
}

/* ---- previous handlers ---- */

static void exits_with_address(int n, siginfo_t *info, void *context)
{
	_exit(really ? (int)(uintptr_t)info->si_addr : n);
}

static void exit_body(int n)
{
	_exit(n);
}

static bool with_info;

static void crash_with_a_handler(void)
{
	struct sigaction sa = {.sa_flags = with_info ? SA_SIGINFO : 0};

	if (with_info)
		sa.sa_sigaction = exits_with_address;
	else
		sa.sa_handler = exit_body;
	sigaction(signo, &sa, NULL);
	crash_in_a_coroutine();
}

static void test_previous_signal_handlers_are_called(void **state)
{
	NOT_UNDER_VALGRIND();
	kind = CORO_STACK_SHARED;
	for (size_t i = 0; i < N_CRASHES; i++)
		for (int info = 0; info < 2; info++) {
			int status, want;

			signo = crashes_of[i].signo;
			really = crashes_of[i].really;
			with_info = info;
			status = in_child(crash_with_a_handler);
			want = info && really && signo == SIGSEGV ? 16 : signo;
			assert_true(WIFEXITED(status));
			if (signo != SIGFPE && signo != SIGILL &&
			    signo != SIGABRT) /* where si_addr is the code */
				assert_int_equal(WEXITSTATUS(status), want);
			assert_non_null(strstr(said, crashes_of[i].name));
		}
}

static void test_handlers_are_put_back_at_close(void **state)
{
	struct sigaction old[N_CRASHES], now;
	struct coro_sched *s;

	for (size_t i = 0; i < N_CRASHES; i++)
		sigaction(crashes_of[i].signo, NULL, &old[i]);
	coro_sched_open(NULL, &s);
	sigaction(SIGFPE, NULL, &now);
	assert_true(now.sa_sigaction != old[1].sa_sigaction);
	coro_sched_close(s);
	for (size_t i = 0; i < N_CRASHES; i++) {
		sigaction(crashes_of[i].signo, NULL, &now);
		assert_ptr_equal(now.sa_sigaction, old[i].sa_sigaction);
	}
}

/* ---- descriptions of arguments ---- */

static int thing[4];

static bool knows_things(uintptr_t word, char *text, size_t len)
{
	if (word < (uintptr_t)thing || word > (uintptr_t)&thing[3])
		return false;
	snprintf(text, len, "thing %d", (int)((int *)word - thing));
	return true;
}

/* Uses its argument after a call returns, as bodies usually do. */
static void *holds_a_thing(void *arg)
{
	crash_here();
	coro_park();
	++*(volatile int *)arg;
	return NULL;
}

static void crash_with_a_thing(void)
{
	struct coro_sched *s;

	coro_sched_open(NULL, &s);
	coro_sched_recognize(s, knows_things);
	coro_spawn(s, NULL, park_self, &thing[1], NULL);
	coro_spawn(s, NULL, holds_a_thing, &thing[2], NULL);
	coro_sched_run(s);
}

static void test_crash_message_describes_the_argument(void **state)
{
	NOT_UNDER_VALGRIND();
	signo = SIGSEGV;
	really = true;
	assert_int_equal(WTERMSIG(in_child(crash_with_a_thing)), SIGSEGV);
	assert_non_null(strstr(said, "coroutine 'coro' (thing 2), at "));
}

static void *keeps_a_thing(void *arg)
{
	coro_park();
	++*(volatile int *)arg;
	return NULL;
}

/*
 * Parked coroutines too, wherever their bytes are; new and ended ones have no
 * description.
 */
static void test_coroutines_are_described_in_every_state(void **state)
{
	const struct coro_attr attr = {.name = "keeper", .shared_stack = 1};
	char want[64], text[64];
	struct coro *co[4];

	coro_sched_recognize(*state, knows_things);
	for (int i = 0; i < 4; i++) {
		coro_spawn(*state, &attr, keeps_a_thing, &thing[i], &co[i]);
		coro_describe(co[i], NULL, text, sizeof(text));
		assert_string_equal(text, "coroutine 'keeper'");
	}
	assert_null(coro_sched_running(*state));
	run_idle(*state);
	for (int i = 0; i < 4; i++) {
		snprintf(want, sizeof(want), "coroutine 'keeper' (thing %d)",
			 i);
		coro_describe(co[i], NULL, text, sizeof(text));
		assert_string_equal(text, want);
	}
	for (int i = 0; i < 4; i++) {
		coro_unpark(co[i]);
		run_idle(*state);
		coro_describe(co[i], NULL, text, sizeof(text));
		assert_string_equal(text, "coroutine 'keeper'");
		coro_detach(co[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overflow_names_the_coroutine),
		cmocka_unit_test(
			test_frame_larger_than_the_stack_hits_the_guard),
		cmocka_unit_test(test_crash_names_the_coroutine_and_kills),
		cmocka_unit_test(test_crash_outside_coroutines_is_left_alone),
		cmocka_unit_test(test_previous_signal_handlers_are_called),
		cmocka_unit_test(test_handlers_are_put_back_at_close),
		cmocka_unit_test(test_crash_message_describes_the_argument),
		BOTH(test_coroutines_are_described_in_every_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
