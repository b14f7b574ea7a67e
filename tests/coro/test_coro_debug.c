/*
 * Diagnostics: dumps, deadlock, misuse; also wake-ups from outside, and signals
 * during switches.
 */
#include "child.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>

#include "asm/ctx.h"

static void *park_self(void *arg)
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
		coro_spawn(s, &attr, park_self, NULL, NULL);
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

static void *mutex_on_stack(void *arg)
{
	struct coro_mutex m = {0};

	assert_true(coro_on_shared_stack(&m));
	coro_mutex_lock(&m);
	return NULL;
}

static void *rdlock_on_stack(void *arg)
{
	struct coro_rwlock rw = {0};

	coro_rwlock_rdlock(&rw);
	return NULL;
}

static void *wrlock_on_stack(void *arg)
{
	struct coro_rwlock rw = {0};

	coro_rwlock_wrlock(&rw);
	return NULL;
}

static void *cond_on_stack(void *arg)
{
	static struct coro_mutex m;
	struct coro_cond c = {0};

	coro_mutex_lock(&m);
	coro_cond_wait(&c, &m);
	return NULL;
}

static void *sem_on_stack(void *arg)
{
	struct coro_sem sem = {0};

	coro_sem_wait(&sem);
	return NULL;
}

static void *group_on_stack(void *arg)
{
	struct coro_wait_group wg = {.count = 1};

	coro_wait_group_wait(&wg);
	return NULL;
}

static void *barrier_on_stack(void *arg)
{
	struct coro_barrier b = {.parties = 2};

	coro_barrier_wait(&b);
	return NULL;
}

static void *timer_on_stack(void *arg)
{
	struct coro_timer t;

	coro_timer_init(&t, NULL);
	coro_timer_arm(coro_sched_self(), &t, 0);
	return NULL;
}

static void *wake_on_stack(void *arg)
{
	struct coro_wake w;

	coro_wake_init(&w, NULL);
	coro_wake_post(coro_sched_self(), &w);
	return NULL;
}

static void *watch_on_stack(void *arg)
{
	struct coro_chan_watch w = {0};
	struct coro_chan *ch;

	if (coro_chan_open(0, 1, &ch) == 0)
		coro_chan_watch(ch, &w);
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
	static const coro_fn breakers[] = {
		mutex_on_stack, rdlock_on_stack,  wrlock_on_stack,
		cond_on_stack,	sem_on_stack,	  group_on_stack,
		timer_on_stack, barrier_on_stack, wake_on_stack,
		watch_on_stack,
	};

	for (size_t i = 0; i < sizeof(breakers) / sizeof(breakers[0]); i++) {
		int status;

		rule_breaker = breakers[i];
		status = in_child(break_rule);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGABRT);
		assert_non_null(strstr(said, "shared stack"));
	}
}

static struct coro *victim;

static struct coro_chan *foreign_ch;
static struct coro_sem foreign_sem;
static struct coro_mutex foreign_m;
static struct coro_cond foreign_c;
static coro_fn foreign_call;

static void *unparks(void *arg)
{
	coro_unpark(victim);
	return NULL;
}

static void *cancels(void *arg)
{
	coro_cancel(victim);
	return NULL;
}

static void *detaches(void *arg)
{
	coro_detach(victim);
	return NULL;
}

static void *send_foreign(void *arg)
{
	coro_chan_trysend(foreign_ch, NULL);
	return NULL;
}

static void *sem_posts(void *arg)
{
	coro_sem_post(&foreign_sem);
	return NULL;
}

static void *cond_signals(void *arg)
{
	coro_cond_signal(&foreign_c);
	return NULL;
}

static void *waits_for_all(void *arg)
{
	struct coro_case c = {foreign_ch, CORO_RECV, NULL, 0};

	if (foreign_call == sem_posts)
		coro_sem_wait(&foreign_sem);
	else if (foreign_call == send_foreign)
		coro_select(&c, 1);
	else if (foreign_call == cond_signals &&
		 coro_mutex_lock(&foreign_m) == 0)
		coro_cond_wait(&foreign_c, &foreign_m);
	else
		coro_park();
	return NULL;
}

static void call_from_elsewhere(void)
{
	struct coro_sched *s;
	pthread_t th;

	coro_sched_open(NULL, &s);
	coro_chan_open(0, 0, &foreign_ch);
	coro_spawn(s, NULL, waits_for_all, NULL, &victim);
	coro_sched_round(s);
	pthread_create(&th, NULL, foreign_call, NULL);
	pthread_join(th, NULL);
}

static void test_waking_from_a_foreign_thread_is_refused(void **state)
{
	static const coro_fn them[] = {unparks,	     cancels,	detaches,
				       send_foreign, sem_posts, cond_signals};

	for (size_t i = 0; i < sizeof(them) / sizeof(them[0]); i++) {
		int status;

		foreign_call = them[i];
		status = in_child(call_from_elsewhere);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGABRT);
		assert_non_null(strstr(said, "coro_wake_post"));
	}
}

static void quit_body(void)
{
	struct coro_sched *s;
	const struct coro_attr attr = {.name = "waiter"};

	coro_sched_open(NULL, &s);
	coro_sched_dump_on_signal(s, SIGQUIT);
	coro_spawn(s, &attr, park_self, NULL, NULL);
	coro_sched_round(s);
	raise(SIGQUIT);
	coro_sched_round(s);
	coro_sched_close(s);
}

static void test_sigquit_dumps_at_the_next_round(void **state)
{
	assert_int_equal(in_child(quit_body), 0);
	assert_non_null(strstr(said, "waiter"));
	assert_non_null(strstr(said, "parked"));
}

static int stderr_before, dump_pipe[2];

/* Passes the dump on; the program ends with its line about "dozing". */
static void *awaits_dump(void *arg)
{
	char text[4096] = "";
	size_t len = 0;
	ssize_t n;

	while ((n = read(dump_pipe[0], text + len, sizeof(text) - 1 - len)) >
	       0) {
		const char *line;

		if (write(stderr_before, text + len, (size_t)n) != n)
			break;
		len += (size_t)n;
		line = strstr(text, "dozing");
		if (line && strchr(line, '\n'))
			_exit(0);
	}
	_exit(1);
}

static void *doze_body(void *arg)
{
	coro_sleep_ns(3600000 * MS);
	return NULL;
}

/* Runs when the other sleeps. */
static void *sets_alarm(void *arg)
{
	struct itimerval it = {{0, 0}, {0, 20000}};

	setitimer(ITIMER_REAL, &it, NULL);
	return NULL;
}

static void sleeps_and_quits(void)
{
	struct coro_sched *s;
	const struct coro_attr attr = {.name = "dozing"};
	pthread_t reader;

	stderr_before = dup(STDERR_FILENO);
	assert_int_equal(pipe(dump_pipe), 0);
	dup2(dump_pipe[1], STDERR_FILENO);
	pthread_create(&reader, NULL, awaits_dump, NULL);
	coro_sched_open(NULL, &s);
	coro_sched_dump_on_signal(s, SIGALRM);
	coro_spawn(s, &attr, doze_body, NULL, NULL);
	coro_spawn(s, NULL, sets_alarm, NULL, NULL);
	coro_sched_run(s);
}

/* Nothing else would wake the sleeping thread. */
static void test_dump_signal_wakes_a_sleeping_thread(void **state)
{
	assert_int_equal(in_child(sleeps_and_quits), 0);
	assert_non_null(strstr(said, "dozing"));
	assert_non_null(strstr(said, "coro_sleep"));
}

static void *hang_body(void *arg)
{
	raise(SIGQUIT);
	raise(SIGQUIT);
	_exit(strcmp(arg, "hangs") != 0);
}

static void quits_twice(void)
{
	struct coro_sched *s;
	const struct coro_attr attr = {.name = "culprit"};

	coro_sched_open(NULL, &s);
	coro_sched_dump_on_signal(s, SIGQUIT);
	coro_spawn(s, &attr, hang_body, "hangs", NULL);
	coro_sched_run(s);
}

static void test_second_sigquit_dumps_though_the_loop_hangs(void **state)
{
	assert_int_equal(in_child(quits_twice), 0);
	assert_non_null(strstr(said, "culprit"));
	assert_non_null(strstr(said, "running"));
}

static void test_dump_signal_has_one_scheduler_and_is_restored(void **state)
{
	struct sigaction sa;
	struct coro_sched *s;

	assert_int_equal(coro_sched_open(NULL, &s), 0);
	assert_int_equal(coro_sched_dump_on_signal(s, 9999), -EINVAL);
	assert_int_equal(coro_sched_dump_on_signal(s, SIGUSR2), 0);
	assert_int_equal(coro_sched_dump_on_signal(s, SIGUSR1), -EBUSY);
	coro_sched_close(s);
	sigaction(SIGUSR2, NULL, &sa);
	assert_ptr_equal(sa.sa_handler, SIG_DFL);
}

/* ---- wake-ups from outside ---- */

struct poster {
	struct coro_wake wake; /* first */
	struct coro_sched *s;
	struct coro *co;
	_Atomic unsigned ran;
};

static struct poster poster;

static void on_wake(struct coro_wake *w)
{
	struct poster *p = (struct poster *)w;

	p->ran++;
	coro_unpark(p->co);
}

static void *post_body(void *arg)
{
	struct poster *p = arg;

	/* Any number of wake-ups may coincide. */
	for (unsigned i = 0; p->ran < 20; i++) {
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
	pthread_create(&th, NULL, post_body, &poster);
	assert_int_equal(coro_sched_run(s), 0);
	pthread_join(th, NULL);
	assert_int_equal(coro_join(poster.co, NULL), 0);
	coro_sched_round(s); /* a last post, perhaps */
	coro_sched_close(s);
}

static struct coro_sched *alarmed;

static void posts_wake(int signo)
{
	coro_wake_post(alarmed, &poster.wake);
}

static void *waits_for_the_alarm(void *arg)
{
	while (poster.ran == 0)
		coro_park();
	coro_sched_hold(alarmed, -1);
	return NULL;
}

/* The thread sleeps in coro_sched_run() when the signal comes. */
static void test_signal_handler_wakes_the_scheduler(void **state)
{
	struct itimerval it = {{0, 0}, {0, 20000}};
	struct sigaction sa = {.sa_handler = posts_wake}, old;

	assert_int_equal(coro_sched_open(NULL, &alarmed), 0);
	memset(&poster, 0, sizeof(poster));
	coro_wake_init(&poster.wake, on_wake);
	coro_spawn(alarmed, NULL, waits_for_the_alarm, NULL, &poster.co);
	coro_sched_hold(alarmed, 1);
	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &it, NULL);
	assert_int_equal(coro_sched_run(alarmed), 0);
	assert_int_equal(poster.ran, 1);
	sigaction(SIGALRM, &old, NULL);
	coro_join(poster.co, NULL);
	coro_sched_close(alarmed);
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

/* ---- signals during switches ---- */

#define SIGNALS (RUNNING_ON_VALGRIND ? 50 : 500)

static volatile unsigned signals;

static void on_alarm(int signo)
{
	volatile char frame[300];

	memset((void *)frame, 0xee, sizeof(frame));
	signals++;
}

/*
 * Each suspends at another depth: a handler on the wrong stack pointer would
 * overwrite the bytes of the deeper one.
 */
static void *switches(void *arg)
{
	size_t len = 100 + (long)arg * 200;
	volatile unsigned char *pad = __builtin_alloca(len);
	unsigned char mark = (unsigned char)(long)arg;

	memset((void *)pad, mark, len);
	while (signals < SIGNALS) {
		coro_yield();
		for (size_t i = 0; i < len; i += 32)
			if (pad[i] != mark)
				fail_msg("byte %zu of %zu lost", i, len);
	}
	return NULL;
}

static void signals_with(void **state, enum ctx_isa isa)
{
	struct itimerval it = {{0, 50}, {0, 50}}, off = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = on_alarm};

	sched_setup_one_stack(state);
	if (ctx_isa_choose(isa) != 0) {
		print_message("# this CPU lacks %s\n", ctx_isa_name(isa));
		sched_teardown(state);
		return;
	}
	signals = 0;
	sigaction(SIGALRM, &sa, NULL);
	for (long i = 1; i < 16; i++)
		coro_spawn(*state, NULL, switches, (void *)i, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	while (coro_sched_ready(*state))
		coro_sched_round(*state);
	setitimer(ITIMER_REAL, &off, NULL);
	assert_true(signals >= SIGNALS);
	sched_teardown(state);
}

/* Once with each copy loop. The handlers run on the stacks that are copied. */
static void test_signals_during_switches_harm_nothing(void **state)
{
	enum ctx_isa best;

	sched_setup(state); /* chooses */
	best = ctx_isa_chosen();
	sched_teardown(state);
	signals_with(state, CTX_ISA_CHECKED);
	/* Valgrind knows of this one's copies alone. */
	if (!RUNNING_ON_VALGRIND) {
		signals_with(state, CTX_ISA_SSE2);
		signals_with(state, CTX_ISA_AVX2);
		signals_with(state, CTX_ISA_AVX512);
	}
	ctx_isa_choose(best);
}

/* ---- high-water marks ---- */

static void *dig_body(void *arg)
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
	coro_spawn(*state, &attr, dig_body, (void *)50, &deep);
	coro_spawn(*state, &flat, dig_body, (void *)0, &shallow);
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
		cmocka_unit_test(test_pointer_into_a_shared_stack_is_refused),
		cmocka_unit_test(test_waking_from_a_foreign_thread_is_refused),
		cmocka_unit_test(test_sigquit_dumps_at_the_next_round),
		cmocka_unit_test(test_dump_signal_wakes_a_sleeping_thread),
		cmocka_unit_test(
			test_second_sigquit_dumps_though_the_loop_hangs),
		cmocka_unit_test(
			test_dump_signal_has_one_scheduler_and_is_restored),
		cmocka_unit_test(test_another_thread_wakes_the_scheduler),
		cmocka_unit_test(test_signal_handler_wakes_the_scheduler),
		cmocka_unit_test(test_run_sleeps_until_timers_and_stops),
		cmocka_unit_test(test_signals_during_switches_harm_nothing),
		cmocka_unit_test(test_high_water_is_exact_when_measured),
		cmocka_unit_test(test_stack_is_not_executable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
