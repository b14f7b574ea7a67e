/*
 * The baton of whole programs, in threads: its own source file, above a stack
 * of three lines. The stack's variables are plain ones, so that an assertion or
 * ThreadSanitizer finds two threads in it at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "netstack/sockets/baton.c"
#include "netstack/sockets/turns.c"

#define CALLS 20000u

/* Any thread may fail. */
#define CHECK(fact)                                                            \
	do {                                                                   \
		if (!(fact)) {                                                 \
			printf("# %s:%d: %s\n", __func__, __LINE__, #fact);    \
			abort();                                               \
		}                                                              \
	} while (0)

/* ---- the stack ---- */

struct net_whole net_whole;
_Thread_local struct net_sockets *net_sockets_given;
_Thread_local struct net_sockets net_sockets_own;
static struct net_sockets sockets;
static const volatile char parent = 1;
const volatile char *net_is_parent = &parent;

static struct {
	unsigned busy; /* threads in a call or a turn */
	uint64_t n_calls, n_turns;
	struct net_waitq queue; /* a waiter of it is woken by each turn */
	struct net_waitq silent;
	sem_t posted;
	_Atomic bool is_slow; /* the next coro_post() reports its begin */
	sem_t begun;
	_Atomic bool is_closed;
} stack;

static _Thread_local bool entered;

int net_stack_enter(struct net_stack *s)
{
	CHECK(!entered);
	entered = true;
	return 0;
}

void net_stack_leave(struct net_stack *s)
{
	CHECK(entered);
	entered = false;
}

static uint64_t count_call(void)
{
	CHECK(entered);
	CHECK(net_sockets_given == net_whole.owner);
	CHECK(stack.busy++ == 0);
	stack.n_calls++;
	CHECK(--stack.busy == 0);
	return stack.n_calls;
}

unsigned net_stack_turn(struct net_stack *s)
{
	CHECK(entered);
	CHECK(stack.busy++ == 0);
	if (++stack.n_turns % 2 == 0)
		net_waiters_wake(&stack.queue);
	CHECK(--stack.busy == 0);
	return 0;
}

/* Sleeps until a thread that wants the baton ends it. */
void net_stack_rest(struct net_stack *s, unsigned work, int64_t until_ns)
{
	if (LIST_EMPTY(&stack.queue.threads))
		sem_wait(&stack.posted);
}

int coro_post(struct coro_sched *s, void (*fn)(void *arg), void *arg)
{
	pthread_testcancel(); /* the real one calls write() */
	if (stack.is_slow) {
		stack.is_slow = false;
		sem_post(&stack.begun);
		usleep(2000);
	}
	CHECK(!stack.is_closed);
	return sem_post(&stack.posted);
}

int64_t coro_sched_clock(const struct coro_sched *s)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static _Atomic int64_t held_ns; /* the time until it is changed; or 0 */

int64_t net_clock_ns(void)
{
	return held_ns ? held_ns : coro_sched_clock(NULL);
}

struct coro *coro_self(void)
{
	return NULL;
}

/* For a signal that ends the program, which no test sends. */
int net_stack_run(struct net_stack *s)
{
	return 0;
}

void net_stack_stop(struct net_stack *s)
{
}

void net_stack_close(struct net_stack *s)
{
	stack.is_closed = true;
}

void net_whole_take_signals(void)
{
}

static bool no_signals(void)
{
	return true;
}

/* ---- calls of threads ---- */

static long count_sum(long a, long b, long c, long d, long e, long f)
{
	return (long)count_call();
}

static long wait_once(long a, long b, long c, long d, long e, long f)
{
	count_call();
	return net_whole_wait(&stack.queue, CORO_FOREVER);
}

/* No turn wakes a waiter of this queue. */
static long wait_in_vain(long a, long b, long c, long d, long e, long f)
{
	int err = net_whole_wait(&stack.silent, CORO_FOREVER);

	errno = -err;
	return err < 0 ? -1 : 0;
}

static long wake_silent(long a, long b, long c, long d, long e, long f)
{
	bool found = !LIST_EMPTY(&stack.silent.threads);

	net_waiters_wake(&stack.silent);
	return found;
}

static long deadline(long a, long b, long c, long d, long e, long f)
{
	count_call();
	return net_whole_wait(&stack.queue, 0);
}

static void make_call(unsigned n)
{
	while (n--)
		net_with_baton(0, 0, 0, 0, 0, 0, count_sum);
}

static bool has_bias(void)
{
	return net_caller.bias && is_biased_to(net_caller.bias);
}

/* The keeper may revoke a bias at any time. */
static void get_bias(void)
{
	do
		make_call(1);
	while (!has_bias());
}

static void *call_often(void *arg)
{
	make_call(CALLS);
	return NULL;
}

static void *call_rarely(void *arg)
{
	static const struct timespec pause = {.tv_nsec = 20000};

	for (unsigned i = 0; i < CALLS / 20; i++) {
		make_call(1);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void *wait_often(void *arg)
{
	for (unsigned i = 0; i < CALLS / 20; i++) {
		CHECK(NET_WITH_BATON(wait_once, 0) == 0);
		CHECK(NET_WITH_BATON(deadline, 0) == -ETIMEDOUT);
		make_call(i % 200);
	}
	return NULL;
}

static void *end_with_bias(void *arg)
{
	get_bias();
	return NULL;
}

static void run_thread(void *(*fn)(void *arg))
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, fn, NULL) == 0);
	pthread_join(thread, NULL);
}

/* Until start_keeper(), the keeper sleeps and draws no ticket. */
static void stop_keeper(void)
{
	static struct net_waiter nobody;

	net_whole_step_in();
	atomic_store(&loop.poller, &nobody);
	net_whole_step_out();
	while (!atomic_load(&loop.keeper_sleeps))
		sched_yield();
}

static void start_keeper(void)
{
	net_whole_step_in();
	atomic_store(&loop.poller, NULL);
	wake_next_poller();
	net_whole_step_out();
}

static uint64_t calls_so_far(void)
{
	return (uint64_t)net_with_baton(0, 0, 0, 0, 0, 0, count_sum) - 1;
}

/* ---- tests ---- */

static void test_threads_take_turns(void **state)
{
	void *(*const fns[])(void *) = {call_often, call_rarely, wait_often,
					call_often, wait_often,	 call_rarely};
	const unsigned n = sizeof(fns) / sizeof(fns[0]);
	uint64_t before = calls_so_far(), wanted = 2 * CALLS;
	pthread_t threads[sizeof(fns) / sizeof(fns[0])];

	wanted += 2 * (CALLS / 20);
	for (unsigned i = 0; i < CALLS / 20; i++)
		wanted += 2 * (2 + i % 200);
	for (unsigned i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, fns[i], NULL);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(calls_so_far() - before, wanted + 1);
}

static void test_thread_alone_gets_a_bias(void **state)
{
	uint32_t drawn;

	stop_keeper();
	get_bias();
	drawn = atomic_load(&baton.drawn);
	make_call(1);
	assert_true(has_bias());
	assert_int_equal(atomic_load(&baton.drawn), drawn);
	run_thread(call_rarely);
	assert_false(has_bias());
	get_bias();
	start_keeper();
}

static void test_no_bias_while_another_thread_wants_the_baton(void **state)
{
	stop_keeper();
	net_whole_step_in();
	drop_bias(net_caller.bias);
	baton.n_last = BIAS_CALLS;
	bias_to_me();
	assert_true(has_bias());
	drop_bias(net_caller.bias);
	atomic_fetch_add(&baton.drawn, 1); /* another thread's ticket */
	bias_to_me();
	assert_false(has_bias());
	drop_bias(net_caller.bias);
	atomic_fetch_sub(&baton.drawn, 1);
	net_whole_step_out();
	start_keeper();
}

static void test_thread_that_ends_passes_the_baton_on(void **state)
{
	for (unsigned i = 0; i < 2 * BIASES; i++) {
		run_thread(end_with_bias);
		make_call(1);
	}
}

static void test_revoked_bias_is_passed_on_at_the_end_of_the_call(void **state)
{
	uint32_t serving;

	stop_keeper();
	get_bias();
	net_whole_step_in();
	serving = atomic_load(&baton.serving);
	atomic_fetch_add(&baton.drawn, 1); /* another thread's ticket */
	revoke_bias();
	assert_int_equal(atomic_load(&baton.serving), serving);
	net_whole_step_out();
	assert_int_not_equal(atomic_load(&baton.serving), serving);
	pass_on(); /* by that thread */
	start_keeper();
}

static void *waits_in_vain(void *arg)
{
	make_call(100);
	sem_post(arg);
	NET_WITH_BATON(wait_in_vain, 0);
	return NULL;
}

static void *waits_uncancelled(void *arg)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	sem_post(arg);
	return (void *)(NET_WITH_BATON(wait_in_vain, 0) + 1);
}

static pthread_t start_thread(void *(*fn)(void *arg))
{
	pthread_t thread;
	sem_t begun;

	sem_init(&begun, 0, 0);
	CHECK(pthread_create(&thread, NULL, fn, &begun) == 0);
	sem_wait(&begun);
	return thread;
}

static void test_cancelled_thread_ends_after_its_call(void **state)
{
	pthread_t first = start_thread(waits_in_vain),
		  second = start_thread(waits_in_vain);
	void *result;

	assert_int_equal(net_whole_cancel(second, pthread_cancel), 0);
	pthread_join(second, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	make_call(1);
	assert_int_equal(net_whole_cancel(first, pthread_cancel), 0);
	pthread_join(first, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

static uint64_t turns_so_far(void)
{
	uint64_t n;

	net_whole_step_in();
	n = stack.n_turns;
	net_whole_step_out();
	return n;
}

static void allow_bias(bool allowed)
{
	net_whole_step_in();
	baton.can_bias = allowed;
	drop_bias(net_caller.bias);
	net_whole_step_out();
}

/* Returns a thread that polls, while the keeper sleeps. */
static pthread_t start_poller(void)
{
	pthread_t thread = start_thread(waits_in_vain);

	while (!atomic_load(&loop.poller) || !atomic_load(&loop.keeper_sleeps))
		sched_yield();
	return thread;
}

static void end_poller(pthread_t thread)
{
	assert_true(NET_WITH_BATON(wake_silent, 0));
	pthread_join(thread, NULL);
}

/* Neither takes the baton from a thread that makes call after call. */
static void test_poller_stands_aside_between_calls(void **state)
{
	pthread_t poller = start_poller();
	uint64_t turns;
	uint32_t drawn;

	held_ns = coro_sched_clock(NULL);
	turns = turns_so_far();
	drawn = net_baton_tickets();
	make_call(CALLS);
	assert_in_range(net_baton_tickets() - drawn, 0, BIAS_CALLS + 1);
	assert_int_equal(turns_so_far(), turns);
	while (!atomic_load(&loop.poller)) {
		held_ns += ASIDE_NS;
		sched_yield();
	}
	held_ns = 0;
	assert_true(turns_so_far() > turns);
	end_poller(poller);
}

/* However often the other thread calls. */
static void test_poller_stands_aside_for_a_limited_time(void **state)
{
	pthread_t poller = start_poller();
	uint64_t turns;

	allow_bias(false); /* so that each call draws a ticket */
	held_ns = coro_sched_clock(NULL);
	turns = turns_so_far();
	while (turns_so_far() == turns)
		held_ns += ASIDE_NS / 2;
	held_ns = 0;
	allow_bias(true);
	end_poller(poller);
}

static void test_another_thread_may_poll_meanwhile(void **state)
{
	pthread_t first = start_poller(), second;
	struct net_waiter *poller = atomic_load(&loop.poller);

	held_ns = coro_sched_clock(NULL);
	second = start_thread(waits_in_vain);
	while (!atomic_load(&loop.poller) ||
	       atomic_load(&loop.poller) == poller)
		sched_yield();
	held_ns = 0;
	end_poller(first); /* wakes both */
	pthread_join(second, NULL);
}

static _Atomic bool is_cancelling, called_while_cancelled;

static void *calls_while_cancelled(void *arg)
{
	make_call(1);
	sem_post(arg);
	while (!is_cancelling)
		sched_yield();
	make_call(1);
	called_while_cancelled = true;
	pthread_testcancel();
	return NULL;
}

/* The thread draws its ticket after it has been cancelled. */
static int cancel_and_wait_for_ticket(pthread_t thread)
{
	int err = pthread_cancel(thread);

	is_cancelling = true;
	while (!net_baton_is_wanted())
		sched_yield();
	return err;
}

static void test_cancelled_thread_loses_no_ticket(void **state)
{
	pthread_t thread = start_thread(calls_while_cancelled);
	void *result;

	assert_int_equal(net_whole_cancel(thread, cancel_and_wait_for_ticket),
			 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	CHECK(called_while_cancelled);
}

static void *call_for_ever(void *arg)
{
	make_call(1);
	net_whole_cancel_type(PTHREAD_CANCEL_ASYNCHRONOUS, NULL,
			      pthread_setcanceltype);
	sem_post(arg);
	for (;;)
		make_call(1);
	return NULL;
}

static void test_asynchronous_cancellation_ends_no_call(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return; /* its own locks would be lost with a thread that ends in it */
#endif
	for (unsigned i = 0; i < 100; i++) {
		pthread_t thread = start_thread(call_for_ever);
		void *result;

		assert_int_equal(net_whole_cancel(thread, pthread_cancel), 0);
		pthread_join(thread, &result);
		assert_ptr_equal(result, PTHREAD_CANCELED);
		make_call(1);
	}
}

static void *call_once(void *arg)
{
	make_call(1);
	return NULL;
}

static void test_stack_is_closed_when_no_thread_wakes_it(void **state)
{
	pthread_t early, late;

	sem_init(&stack.begun, 0, 0);
	net_whole_step_in();
	stack.is_slow = true;
	CHECK(pthread_create(&early, NULL, call_once, NULL) == 0);
	sem_wait(&stack.begun); /* by this thread, or by the keeper */
	net_whole_close();
	CHECK(pthread_create(&late, NULL, call_once, NULL) == 0);
	usleep(2000);
	stack.is_closed = false;
	loop.closing = false;
	net_whole.closed = false;
	net_whole_step_out();
	pthread_join(early, NULL);
	pthread_join(late, NULL);
}

static void test_wait_goes_on_if_cancellation_is_disabled(void **state)
{
	pthread_t thread = start_thread(waits_uncancelled);
	void *result;

	assert_int_equal(net_whole_cancel(thread, pthread_cancel), 0);
	while (!NET_WITH_BATON(wake_silent, 0))
		sched_yield();
	pthread_join(thread, &result);
	assert_ptr_equal(result, 1);
}

static void test_idle_bias_is_revoked_by_the_keeper(void **state)
{
	static const struct timespec pause = {.tv_nsec = 100000};

	get_bias();
	while (has_bias())
		nanosleep(&pause, NULL);
}

static void test_without_membarrier_nobody_is_biased(void **state)
{
	allow_bias(false);
	make_call(3 * BIAS_CALLS);
	assert_false(has_bias());
	allow_bias(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_take_turns),
		cmocka_unit_test(test_thread_alone_gets_a_bias),
		cmocka_unit_test(
			test_no_bias_while_another_thread_wants_the_baton),
		cmocka_unit_test(test_thread_that_ends_passes_the_baton_on),
		cmocka_unit_test(
			test_revoked_bias_is_passed_on_at_the_end_of_the_call),
		cmocka_unit_test(test_poller_stands_aside_between_calls),
		cmocka_unit_test(test_poller_stands_aside_for_a_limited_time),
		cmocka_unit_test(test_another_thread_may_poll_meanwhile),
		cmocka_unit_test(test_cancelled_thread_ends_after_its_call),
		cmocka_unit_test(test_cancelled_thread_loses_no_ticket),
		cmocka_unit_test(test_asynchronous_cancellation_ends_no_call),
		cmocka_unit_test(test_stack_is_closed_when_no_thread_wakes_it),
		cmocka_unit_test(test_wait_goes_on_if_cancellation_is_disabled),
		cmocka_unit_test(test_idle_bias_is_revoked_by_the_keeper),
		cmocka_unit_test(test_without_membarrier_nobody_is_biased),
	};

	net_whole.on = true;
	net_whole.owner = &sockets;
	net_whole.handle_signals = no_signals;
	sem_init(&stack.posted, 0, 0);
	if (net_whole_keeper() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
