/*
 * Several shards in one program: opening, posting, calling, stopping, and one
 * that fails. Each thread has a fake port of its own, so no frame passes from
 * one to another here; tests/integration/test_shards.py does that over links.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <coronet/net.h>

#include "netstack/link/link_priv.h"
#include "netstack/program/log.h"
#include "netstack/shard/shard.h"
#include "tests/apps/in_child.h"
#include "tests/net/fake_glue.h"

#define MOST 8u

static struct net_opts opts;
static unsigned n_shards;

/* Recorded by the start functions, by shard. */
static pthread_t threads[MOST];
static struct net_stack *stacks[MOST];
static _Atomic unsigned started, counted;
static uint64_t opts_memory;

static int reset_shards(void **state)
{
	memset(threads, 0, sizeof(threads));
	memset(stacks, 0, sizeof(stacks));
	started = counted = 0;
	fake_broken_shard = 0;
	opts_memory = UINT64_C(1) << 32;
	return 0;
}

static int run_shards(unsigned shards, net_start start, void *arg)
{
	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:fake";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.poll = NET_POLL_ADAPTIVE;
	opts.memory_bytes = opts_memory;
	opts.shards = n_shards = shards;
	return net_run(&opts, start, arg);
}

static void wait_for_all(void)
{
	while (atomic_load(&started) < n_shards)
		coro_yield();
}

/* ---- opening and closing ---- */

static int note_shard(struct net_stack *stack, void *arg)
{
	unsigned shard = net_stack_shard(stack);

	assert_ptr_equal(stack, net_stack_here());
	assert_int_equal(net_stack_shards(stack), n_shards);
	threads[shard] = pthread_self();
	stacks[shard] = stack;
	atomic_fetch_add(&started, 1);
	wait_for_all();
	net_stack_stop(stack);
	return 0;
}

static void test_each_shard_has_its_own_thread_and_stack(void **state)
{
	for (unsigned n = 1; n <= MOST; n *= 2) {
		reset_shards(NULL);
		assert_int_equal(run_shards(n, note_shard, NULL), 0);
		assert_int_equal(started, n);
		assert_true(pthread_equal(threads[0], pthread_self()));
		for (unsigned i = 0; i < n; i++)
			for (unsigned k = 0; k < i; k++) {
				assert_ptr_not_equal(stacks[i], stacks[k]);
				assert_false(
					pthread_equal(threads[i], threads[k]));
			}
		assert_null(net_stack_here());
	}
}

static int fail_on_two(struct net_stack *stack, void *arg)
{
	return net_stack_shard(stack) == 2 ? -ENOTSUP : 0;
}

static void test_a_start_that_fails_stops_the_program(void **state)
{
	assert_int_equal(run_shards(4, fail_on_two, NULL), -ENOTSUP);
	assert_string_equal(opts.error, strerror(ENOTSUP));
	assert_int_equal(run_shards(2, note_shard, NULL), 0);
}

static void test_a_shard_that_cannot_open_closes_the_others(void **state)
{
	fake_broken_shard = 2;
	assert_int_equal(run_shards(4, note_shard, NULL), -ENODEV);
	assert_string_equal(opts.error, "no port for shard 2");
	assert_int_equal(started, 0);
	assert_null(net_stack_here());
	fake_broken_shard = 0;
	assert_int_equal(run_shards(4, note_shard, NULL), 0);
}

static int accept_until_the_end(struct net_stack *stack, void *arg)
{
	struct net_listener *listener;
	struct net_conn *conn;

	assert_int_equal(net_listen(stack, &net_addr_any(7), 0, &listener), 0);
	atomic_fetch_add(&started, 1);
	wait_for_all();
	if (net_stack_shard(stack) == 0)
		raise(SIGTERM);
	assert_true(net_accept(listener, &conn) < 0);
	atomic_fetch_add(&counted, 1);
	return 0;
}

static void test_signal_ends_every_shard(void **state)
{
	assert_int_equal(run_shards(4, accept_until_the_end, NULL), 0);
	assert_int_equal(counted, 4);
}

/* ---- posting ---- */

static void count_post(void *arg)
{
	assert_int_equal(net_stack_shard(net_stack_here()), (uintptr_t)arg);
	atomic_fetch_add(&counted, 1);
}

static int post_to_all(struct net_stack *stack, void *arg)
{
	for (uintptr_t i = 0; i < n_shards; i++)
		for (unsigned k = 0; k < 100; k++)
			while (net_post((unsigned)i, count_post, (void *)i) ==
			       -EAGAIN)
				coro_yield();
	assert_int_equal(net_post(n_shards, count_post, NULL), -EINVAL);
	assert_int_equal(net_post(0, NULL, NULL), -EINVAL);
	atomic_fetch_add(&started, 1);
	while (atomic_load(&counted) < n_shards * n_shards * 100)
		coro_yield();
	wait_for_all();
	net_stack_stop(stack);
	return 0;
}

static void test_posts_run_on_their_shard(void **state)
{
	assert_int_equal(run_shards(4, post_to_all, NULL), 0);
	assert_int_equal(counted, 4 * 4 * 100);
}

/* ---- calling ---- */

static void *shard_here(void *arg)
{
	return (void *)(uintptr_t)(net_stack_shard(net_stack_here()) + 1);
}

static int call_all(struct net_stack *stack, void *arg)
{
	void *result;

	for (unsigned k = 0; k < 50; k++)
		for (unsigned i = 0; i < n_shards; i++) {
			assert_int_equal(net_call(i, shard_here, NULL, &result),
					 0);
			assert_int_equal((uintptr_t)result, i + 1);
		}
	assert_int_equal(net_call(n_shards, shard_here, NULL, NULL), -EINVAL);
	atomic_fetch_add(&started, 1);
	wait_for_all();
	net_stack_stop(stack);
	return 0;
}

static void test_calls_return_the_result_of_their_function(void **state)
{
	assert_int_equal(run_shards(4, call_all, NULL), 0);
}

static void do_nothing(void *arg)
{
}

/* ---- statistics ---- */

static int sum_up(struct net_stack *stack, void *arg)
{
	struct net_stats all;

	atomic_fetch_add(&started, 1);
	wait_for_all();
	assert_int_equal(net_program_stats(&all), 0);
	assert_true(all.memory_max_bytes > 0);
	assert_true(all.memory_max_bytes < opts.memory_bytes); /* of all */
	atomic_fetch_add(&counted, 1);
	while (atomic_load(&counted) < n_shards)
		coro_yield();
	net_stack_stop(stack);
	return 0;
}

static void test_statistics_are_summed_up(void **state)
{
	assert_int_equal(run_shards(3, sum_up, NULL), 0);
}

static _Atomic bool answered;

static void note_answer(void *arg)
{
	atomic_store(&answered, true);
}

/* The other shard's figures arrive while shard 0 has no room for posts. */
static int log_twice(struct net_stack *stack, void *arg)
{
	int log = *(int *)arg;
	char text[4096];

	atomic_fetch_add(&started, 1);
	wait_for_all();
	if (net_stack_shard(stack) != 0)
		return 0;
	while (net_post(0, do_nothing, NULL) == 0)
		; /* until the queue is full */
	net_shards_say_stats(stack);
	assert_int_equal(net_post(1, note_answer, NULL), 0);
	while (!atomic_load(&answered))
		usleep(1000);
	while (read(log, text, sizeof(text)) < 0) {
		coro_yield();
		net_shards_say_stats(stack);
	}
	net_stack_stop(stack);
	return 0;
}

static void test_statistics_go_on_after_a_full_queue(void **state)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	answered = false;
	net_log_set_fd(fds[1]);
	assert_int_equal(run_shards(2, log_twice, &fds[0]), 0);
	net_log_set_fd(STDERR_FILENO);
	close(fds[0]);
	close(fds[1]);
}

static void test_too_little_memory_for_the_shards_is_refused(void **state)
{
	opts_memory = UINT64_C(20) << 20;
	assert_int_equal(run_shards(8, note_shard, NULL), -ENOMEM);
	assert_non_null(strstr(opts.error, "--memory 20M: too little"));
	assert_int_equal(started, 0);
}

/* ---- addresses ---- */

static _Atomic bool blocked, withdrawn;

static bool has_address(struct net_stack *stack)
{
	return net_is_local(stack, &opts.addrs[0]);
}

/* Finds a duplicate address while shard 1 has no room for posts. */
static void withdraw_address(struct net_stack *stack)
{
	static const uint8_t other_mac[6] = {2, 0, 0, 0, 0, 9};
	const ip_addr_t ip = IPADDR4_INIT_BYTES(10, 0, 0, 1);

	while (!atomic_load(&blocked))
		coro_yield();
	while (net_post(1, do_nothing, NULL) == 0)
		; /* until its queue is full */
	net_announce_conflict(&net_here()->ports[0], &ip, other_mac);
	assert_false(has_address(stack));
	atomic_store(&withdrawn, true);
	while (!atomic_load(&counted)) {
		fake_now_ns += 1000000;
		coro_yield();
	}
}

static int withdraw_and_wait(struct net_stack *stack, void *arg)
{
	atomic_fetch_add(&started, 1);
	wait_for_all();
	if (net_stack_shard(stack) == 0) {
		withdraw_address(stack);
	} else {
		atomic_store(&blocked, true);
		while (!atomic_load(&withdrawn))
			usleep(1000); /* keeps the shard from its posts */
		while (has_address(stack))
			coro_yield();
		atomic_fetch_add(&counted, 1);
	}
	net_stack_stop(stack);
	return 0;
}

static void test_withdrawal_waits_for_room_in_a_shards_queue(void **state)
{
	assert_int_equal(run_shards(2, withdraw_and_wait, NULL), 0);
	assert_int_equal(counted, 1);
}

/* ---- wrong use ---- */

static int listen_on_another(struct net_stack *stack, void *arg)
{
	struct net_listener *listener;

	stacks[net_stack_shard(stack)] = stack;
	atomic_fetch_add(&started, 1);
	wait_for_all();
	if (net_stack_shard(stack) == 1)
		net_listen(stacks[0], &net_addr_any(7), 0, &listener);
	return 0;
}

static int run_two(void *start)
{
	return run_shards(2, listen_on_another, NULL);
}

static void
test_calls_on_another_shards_stack_abort_with_a_message(void **state)
{
	struct in_child child = in_child_run(run_two, NULL);

	assert_int_not_equal(child.status, 0);
	assert_non_null(strstr(child.err,
			       "net_listen() was called from a thread that "
			       "isn't its shard's"));
}

static void test_too_many_shards_are_refused(void **state)
{
	struct net_stack *stack;

	net_opts_init(&opts);
	opts.links[opts.n_links++] = "ring:fake";
	net_addr_parse_prefix("10.0.0.1/24", &opts.addrs[opts.n_addrs++]);
	opts.n_lcores = 2;
	opts.lcores[1] = 1;
	assert_int_equal(net_stack_open(&opts, &stack), -EINVAL);
	assert_non_null(strstr(opts.error, "2 shards"));
	opts.shards = 3;
	assert_int_equal(net_run(&opts, note_shard, NULL), -EINVAL);
	assert_non_null(strstr(opts.error, "--shards 3: --lcores names 2"));
	assert_int_equal(net_run(&opts, NULL, NULL), -EINVAL);
	assert_non_null(strstr(opts.error, "no function"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			test_each_shard_has_its_own_thread_and_stack,
			reset_shards),
		cmocka_unit_test_setup(
			test_a_start_that_fails_stops_the_program,
			reset_shards),
		cmocka_unit_test_setup(
			test_a_shard_that_cannot_open_closes_the_others,
			reset_shards),
		cmocka_unit_test_setup(test_signal_ends_every_shard,
				       reset_shards),
		cmocka_unit_test_setup(test_posts_run_on_their_shard,
				       reset_shards),
		cmocka_unit_test_setup(
			test_calls_return_the_result_of_their_function,
			reset_shards),
		cmocka_unit_test_setup(test_statistics_are_summed_up,
				       reset_shards),
		cmocka_unit_test_setup(test_statistics_go_on_after_a_full_queue,
				       reset_shards),
		cmocka_unit_test_setup(
			test_too_little_memory_for_the_shards_is_refused,
			reset_shards),
		cmocka_unit_test_setup(
			test_withdrawal_waits_for_room_in_a_shards_queue,
			reset_shards),
		cmocka_unit_test_setup(
			test_calls_on_another_shards_stack_abort_with_a_message,
			reset_shards),
		cmocka_unit_test_setup(test_too_many_shards_are_refused,
				       reset_shards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
