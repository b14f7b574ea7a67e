/*
 * What a person is told: dumps, deadlock, overflow, misuse; wake-ups from
 * outside; signals in the midst of switches.
 */
#include "test_coro.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <coronet/coro_sync.h>

static char said[65536];

/* Run fn in a child, its stderr into `said`; how it ended. */
static int in_child(void (*fn)(void))
{
	int fds[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		fn();
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += n;
	said[len] = '\0';
	close(fds[0]);
	waitpid(pid, &status, 0);
	return status;
}

static void *parks(void *arg)
{
	coro_park();
	return NULL;
}

static void deadlocks(void)
{
	struct coro_sched *s;
	const struct coro_attr attr = {.name = "forgotten"};

	coro_sched_open(NULL, &s);
	for (int i = 0; i < 3; i++)
		coro_spawn(s, &attr, parks, NULL, NULL);
	if (coro_sched_run(s) == -EDEADLK)
		_exit(7);
}

static void test_deadlock_is_reported_with_a_dump(void **state)
{
	int status = in_child(deadlocks);

	assert_int_equal(WEXITSTATUS(status), 7);
	assert_non_null(strstr(said, "3 coroutines parked, nothing can wake"));
	assert_non_null(strstr(said, "forgotten"));
	assert_non_null(strstr(said, "coro_park"));
}

static __attribute__((noinline)) int recurses(volatile int n)
{
	volatile char pad[1000];

	pad[0] = (char)n;
	__asm__ volatile("" : : "r"(pad) : "memory");
	return n <= 0 ? pad[0] : recurses(n - 1) + pad[0];
}

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

static void *mutex_on_stack(void *arg)
{
	struct coro_mutex m = {0};

	assert_true(coro_on_shared_stack(&m));
	coro_mutex_lock(&m);
	return NULL;
}

static void *timer_on_stack(void *arg)
{
	struct coro_timer t;

	coro_timer_init(&t, NULL);
	coro_timer_arm(coro_sched_self(), &t, 0);
	return NULL;
}

static coro_fn rule_breaker;

static void break_rule(void)
{
	struct coro_sched *s;

	coro_sched_open(NULL, &s);
	coro_spawn(s, NULL, rule_breaker, NULL, NULL);
	coro_sched_run(s);
}

static void test_pointer_into_a_shared_stack_is_refused(void **state)
{
	rule_breaker = mutex_on_stack;
	assert_int_equal(WTERMSIG(in_child(break_rule)), SIGABRT);
	assert_non_null(strstr(said, "shared stack"));
	rule_breaker = timer_on_stack;
	assert_int_equal(WTERMSIG(in_child(break_rule)), SIGABRT);
	assert_non_null(strstr(said, "shared stack"));
}

static struct coro *victim;

static void *unparks_foreign(void *arg)
{
	coro_unpark(victim);
	return NULL;
}

static void foreign_unpark(void)
{
	struct coro_sched *s;
	pthread_t th;

	coro_sched_open(NULL, &s);
	coro_spawn(s, NULL, parks, NULL, &victim);
	coro_sched_round(s);
	pthread_create(&th, NULL, unparks_foreign, NULL);
	pthread_join(th, NULL);
}

static void test_unpark_from_a_foreign_thread_is_refused(void **state)
{
	assert_int_equal(WTERMSIG(in_child(foreign_unpark)), SIGABRT);
	assert_non_null(strstr(said, "coro_wake_post"));
}

static void quits(void)
{
	struct coro_sched *s;
	const struct coro_attr attr = {.name = "patient"};

	coro_sched_open(NULL, &s);
	coro_sched_dump_on_signal(s, SIGQUIT);
	coro_spawn(s, &attr, parks, NULL, NULL);
	coro_sched_round(s);
	raise(SIGQUIT);
	coro_sched_round(s);
	coro_sched_close(s);
}

static void test_sigquit_dumps_at_the_next_round(void **state)
{
	assert_int_equal(in_child(quits), 0);
	assert_non_null(strstr(said, "patient"));
	assert_non_null(strstr(said, "parked"));
}

/* ---- wake-ups from outside ---- */

struct poster {
	struct coro_wake wake; /* first */
	struct coro_sched *s;
	struct coro *co;
	unsigned ran;
};

static struct poster poster;

static void on_wake(struct coro_wake *w)
{
	struct poster *p = (struct poster *)w;

	p->ran++;
	coro_unpark(p->co);
}

static void *posts(void *arg)
{
	struct poster *p = arg;

	for (int i = 0; i < 2000; i++) {
		coro_wake_post(p->s, &p->wake);
		if (i % 100 == 0)
			usleep(100);
	}
	return NULL;
}

static void *waits_for_posts(void *arg)
{
	unsigned seen = 0;

	while (poster.ran < 20) {
		assert_int_equal(coro_park(), 0);
		seen++;
	}
	assert_true(seen > 0);
	coro_sched_hold(coro_sched_self(), -1);
	return NULL;
}

static void test_another_thread_wakes_the_scheduler(void **state)
{
	struct coro_sched *s;
	pthread_t th;

	assert_int_equal(coro_sched_open(NULL, &s), 0);
	memset(&poster, 0, sizeof(poster));
	coro_wake_init(&poster.wake, on_wake);
	poster.s = s;
	coro_spawn(s, NULL, waits_for_posts, NULL, &poster.co);
	coro_sched_hold(s, 1);
	pthread_create(&th, NULL, posts, &poster);
	assert_int_equal(coro_sched_run(s), 0);
	pthread_join(th, NULL);
	assert_int_equal(coro_join(poster.co, NULL), 0);
	coro_sched_round(s); /* a last post, perhaps */
	coro_sched_close(s);
}

/* ---- real time ---- */

static void *sleeps_5ms(void *arg)
{
	coro_sleep_ns(5 * MS);
	coro_sched_stop(coro_sched_self());
	coro_sleep_ns(CORO_FOREVER);
	return NULL;
}

static void test_run_sleeps_until_timers_and_stops(void **state)
{
	struct coro_sched *s;
	int64_t start;

	assert_int_equal(coro_sched_open(NULL, &s), 0);
	start = coro_sched_clock(s);
	coro_spawn(s, NULL, sleeps_5ms, NULL, NULL);
	assert_int_equal(coro_sched_run(s), 0);
	assert_true(coro_sched_clock(s) - start >= 5 * MS);
	assert_int_equal(coro_sched_live(s), 1);
	coro_sched_close(s);
}

/* ---- signals in the midst of switches ---- */

static volatile unsigned signals;

static void on_alarm(int signo)
{
	volatile char frame[300];

	memset((void *)frame, 0xee, sizeof(frame));
	signals++;
}

static void *switches(void *arg)
{
	volatile unsigned char pad[700];
	unsigned char mark = (unsigned char)(long)arg;

	memset((void *)pad, mark, sizeof(pad) - (long)arg * 8);
	while (signals < 200) {
		coro_yield();
		for (size_t i = 0; i < sizeof(pad) - (long)arg * 8; i++)
			assert_int_equal(pad[i], mark);
	}
	return NULL;
}

static void test_signals_during_switches_harm_nothing(void **state)
{
	struct itimerval it = {{0, 200}, {0, 200}}, off = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = on_alarm};

	sched_setup_one_stack(state);
	signals = 0;
	sigaction(SIGALRM, &sa, NULL);
	for (long i = 1; i < 30; i++)
		coro_spawn(*state, NULL, switches, (void *)i, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	while (coro_sched_ready(*state))
		coro_sched_round(*state);
	setitimer(ITIMER_REAL, &off, NULL);
	assert_true(signals >= 200);
	sched_teardown(state);
}

/* ---- high-water marks ---- */

static void *digs(void *arg)
{
	recurses((int)(long)arg);
	coro_park();
	return NULL;
}

static void test_high_water_is_exact_when_measured(void **state)
{
	const struct coro_sched_attr sa = {.measure_stacks = true};
	const struct coro_attr attr = {.name = "digger"};
	const struct coro_attr flat = {.name = "flat"};
	struct coro *deep, *shallow;

	sched_setup_with(state, &sa);
	coro_spawn(*state, &attr, digs, (void *)50, &deep);
	coro_spawn(*state, &flat, digs, (void *)0, &shallow);
	coro_sched_round(*state);
	assert_true(coro_stack_high_water(deep) > 50000);
	assert_true(coro_stack_high_water(shallow) < 10000);
	coro_unpark(deep);
	run_idle(*state);
	assert_true(coro_name_high_water(*state, "digger") > 50000);
	assert_int_equal(coro_name_high_water(*state, "unknown"), 0);
	coro_detach(deep);
	sched_teardown(state);
}

/* ---- the program's stack stays non-executable ---- */

static void test_stack_is_not_executable(void **state)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	bool seen = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (strstr(line, "[stack]") != NULL) {
			seen = true;
			assert_null(strstr(line, "rwxp"));
		}
	fclose(f);
	assert_true(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadlock_is_reported_with_a_dump),
		cmocka_unit_test(test_overflow_names_the_coroutine),
		cmocka_unit_test(test_pointer_into_a_shared_stack_is_refused),
		cmocka_unit_test(test_unpark_from_a_foreign_thread_is_refused),
		cmocka_unit_test(test_sigquit_dumps_at_the_next_round),
		cmocka_unit_test(test_another_thread_wakes_the_scheduler),
		cmocka_unit_test(test_run_sleeps_until_timers_and_stops),
		cmocka_unit_test(test_signals_during_switches_harm_nothing),
		cmocka_unit_test(test_high_water_is_exact_when_measured),
		cmocka_unit_test(test_stack_is_not_executable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
