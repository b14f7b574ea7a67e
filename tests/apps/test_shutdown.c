/*
 * The graceful shutdown of several shards: threads with a scheduler each, and
 * next to nothing of a stack. Each case is a process of its own, as signals and
 * the list of shards are a process's.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <coronet/net_control.h>

#include "apps/common/coronet_shutdown.h"
#include "tests/apps/in_child.h"

#define SHARDS	4
#define LOOK_NS 200000
#define HOUR_NS INT64_C(3600000000000)

/* ---- the appliance ---- */

struct net_stack {
	struct coro_sched *sched;
};

struct shard {
	struct net_stack stack;
	struct shutdown shutdown;
	pthread_t thread;
	unsigned index, left, begins;
};

static struct shard shards[SHARDS];
static struct shutdown_plan plan;
static unsigned first_left; /* sessions of each shard, at the beginning */
static bool sessions_end, never_run;
static atomic_uint ready, ended, stopped, early, foreign;

/* ---- net.h ---- */

int net_spawn(struct net_stack *stack, const char *name, coro_fn fn, void *arg)
{
	const struct coro_attr attr = {.name = name};

	return coro_spawn(stack->sched, &attr, fn, arg, NULL);
}

void net_stack_stop(struct net_stack *stack)
{
	if (sessions_end && ended < SHARDS * first_left)
		early++;
	foreign += stack->sched != coro_sched_self();
	stopped++;
	coro_sched_stop(stack->sched);
}

int64_t net_now_ns(const struct net_stack *stack)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void net_log(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

/* Not of this test. */
int net_listener_drain(struct net_listener *listener)
{
	return 0;
}

void net_listener_close(struct net_listener *listener)
{
}

int net_conn_stats(const struct net_conn *conn, struct net_conn_stats *out)
{
	return -EBADF;
}

struct net_stack *net_conn_stack(const struct net_conn *conn)
{
	return NULL;
}

void net_abort(struct net_conn *conn)
{
}

static net_health_fn health;
static unsigned healths; /* that were added */

int net_health_add(net_health_fn fn, void *arg)
{
	health = fn;
	healths++;
	return 0;
}

int net_close_wait(struct net_conn *conn, int64_t deadline_ns)
{
	return 0;
}

/* ---- the appliance ---- */

static void begin_session(void *arg)
{
	struct shard *shard = arg;

	foreign += shard->stack.sched != coro_sched_self();
	shard->begins++;
}

static unsigned count_left(void *arg)
{
	return ((struct shard *)arg)->left;
}

static unsigned count_total(void)
{
	return SHARDS * first_left;
}

/* Sessions end in turn: the last shard's when all others have none left. */
static void *session(void *arg)
{
	struct shard *shard = arg;

	while (!shutdown_begun(&shard->shutdown) || !sessions_end ||
	       ended / first_left < shard->index)
		coro_sleep_ns(LOOK_NS);
	early += stopped > 0;
	shard->left--;
	ended++;
	shutdown_progress(&shard->shutdown);
	return NULL;
}

static void *run_shard(void *arg)
{
	struct shard *shard = arg;

	coro_sched_open(NULL, &shard->stack.sched);
	coro_sched_hold(shard->stack.sched, 1);
	shard->left = first_left;
	shutdown_start(&shard->shutdown, &plan, &shard->stack, shard);
	for (unsigned i = 0; i < first_left; i++)
		net_spawn(&shard->stack, "session", session, shard);
	coro_sched_round(shard->stack.sched); /* it waits for the signal now */
	ready++;
	if (!never_run)
		coro_sched_run(shard->stack.sched);
	coro_sched_close(shard->stack.sched);
	return NULL;
}

static void wait_for(atomic_uint *count, unsigned n)
{
	const struct timespec look = {.tv_nsec = LOOK_NS};

	while (*count < n)
		nanosleep(&look, NULL);
}

static void start_shards(void)
{
	for (unsigned i = 0; i < SHARDS; i++) {
		shards[i].index = i;
		pthread_create(&shards[i].thread, NULL, run_shard, &shards[i]);
	}
	wait_for(&ready, SHARDS);
}

/* The exit status: 0 when all went as it should. */
static int run_to_the_end(void *arg)
{
	int bad;

	start_shards();
	bad = healths != 1 || health(NULL) != NULL;
	kill(getpid(), SIGTERM);
	for (unsigned i = 0; i < SHARDS; i++)
		pthread_join(shards[i].thread, NULL);
	bad |= stopped != SHARDS || early || foreign || !health(NULL) ||
	       strcmp(health(NULL), "draining") != 0;
	for (unsigned i = 0; i < SHARDS; i++)
		bad |= shards[i].begins != 1;
	return bad;
}

static int set_up(void **state)
{
	plan = (struct shutdown_plan){.program = "test",
				      .what = "sessions",
				      .timeout_ns = HOUR_NS,
				      .begin = begin_session,
				      .left = count_left,
				      .total = count_total};
	first_left = 2;
	sessions_end = true;
	return 0;
}

static void test_no_shard_stops_before_all_are_done(void **state)
{
	for (int i = 0; i < 20; i++) {
		struct in_child run = in_child_run(run_to_the_end, NULL);

		print_message("%s", run.err);
		assert_int_equal(run.status, 0);
		assert_string_equal(run.out, "test: draining 8 sessions\n");
	}
}

static void test_nothing_left_ends_at_once(void **state)
{
	first_left = 0;
	for (int i = 0; i < 20; i++)
		assert_int_equal(in_child_run(run_to_the_end, NULL).status, 0);
}

static void test_time_is_up_for_all(void **state)
{
	plan.timeout_ns = 20000000;
	sessions_end = false;
	assert_int_equal(in_child_run(run_to_the_end, NULL).status, 0);
}

static int signal_twice(void *arg)
{
	start_shards();
	kill(getpid(), SIGTERM);
	kill(getpid(), SIGINT);
	pthread_join(shards[0].thread, NULL);
	return 77;
}

static void test_second_signal_ends_at_once(void **state)
{
	sessions_end = false;
	assert_int_equal(in_child_run(signal_twice, NULL).status, 1);
}

/* The shards have closed by themselves, as when another could not start. */
static int signal_after_the_end(void *arg)
{
	start_shards();
	for (unsigned i = 0; i < SHARDS; i++)
		pthread_join(shards[i].thread, NULL);
	kill(getpid(), SIGTERM);
	return 77;
}

static void test_signal_after_shards_have_closed(void **state)
{
	never_run = true;
	assert_int_equal(in_child_run(signal_after_the_end, NULL).status, 77);
	never_run = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_no_shard_stops_before_all_are_done,
				       set_up),
		cmocka_unit_test_setup(test_nothing_left_ends_at_once, set_up),
		cmocka_unit_test_setup(test_time_is_up_for_all, set_up),
		cmocka_unit_test_setup(test_second_signal_ends_at_once, set_up),
		cmocka_unit_test_setup(test_signal_after_shards_have_closed,
				       set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
