/*
 * C++: exceptions stay with the coroutine that threw them, wherever it blocks.
 */
#include <cerrno>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include <coronet/coro.h>
#include <coronet/coro_chan.h>
#include <coronet/coro_sync.h>

static coro_sched *sched;
static int64_t now_ns = 1000000000;

static int64_t fake_clock(void *)
{
	return now_ns;
}

static int setup_stacks(unsigned count)
{
	coro_sched_attr attr = {};

	attr.clock_ns = fake_clock;
	attr.stack_count = count;
	return coro_sched_open(&attr, &sched);
}

static int setup(void **)
{
	return setup_stacks(0);
}

static int setup_one_stack(void **)
{
	return setup_stacks(1);
}

static int teardown(void **)
{
	coro_sched_close(sched);
	return std::uncaught_exceptions() || std::current_exception();
}

static void run_all()
{
	for (int i = 0; i < 100000 && coro_sched_live(sched); i++) {
		now_ns += 1000000;
		coro_sched_advance(sched, now_ns);
		coro_sched_round(sched);
	}
	assert_int_equal(coro_sched_live(sched), 0);
}

/* Throws its id, blocks in the catch block, and checks the caught id. */
static void *catches(void *arg)
{
	const std::string id = std::to_string((long)arg);

	for (int i = 0; i < 20; i++)
		try {
			throw std::runtime_error(id);
		} catch (const std::exception &) {
			coro_sleep_ns(1000000 * ((long)arg * 7 % 13));
			try {
				throw;
			} catch (const std::exception &e) {
				assert_string_equal(e.what(), id.c_str());
			}
		}
	return nullptr;
}

static void test_rethrow_finds_its_own_exception(void **)
{
	for (long i = 0; i < 100; i++)
		coro_spawn(sched, nullptr, catches, (void *)i, nullptr);
	run_all();
}

static int seen_inside, seen_outside;

struct yields_at_the_end {
	~yields_at_the_end()
	{
		coro_yield();
		seen_inside = std::uncaught_exceptions();
	}
};

static void *unwinds(void *)
{
	try {
		yields_at_the_end guard;

		throw 1;
	} catch (int) {
	}
	assert_int_equal(std::uncaught_exceptions(), 0);
	return nullptr;
}

static void *counts_uncaught(void *)
{
	seen_outside = std::uncaught_exceptions();
	return nullptr;
}

static void test_unwinding_one_is_not_seen_by_others(void **)
{
	seen_inside = seen_outside = -1;
	coro_spawn(sched, nullptr, unwinds, nullptr, nullptr);
	coro_spawn(sched, nullptr, counts_uncaught, nullptr, nullptr);
	run_all();
	assert_int_equal(seen_inside, 1);
	assert_int_equal(seen_outside, 0);
}

static bool has_exception()
{
	return std::current_exception() != nullptr;
}

/* Suspends in a catch block; has no exception before. */
static void *suspends(void *)
{
	assert_false(has_exception());
	try {
		throw 7;
	} catch (int n) {
		assert_int_equal(coro_suspend(nullptr, nullptr), 0);
		assert_true(has_exception());
		assert_int_equal(n, 7);
	}
	assert_false(has_exception());
	return nullptr;
}

static void *resumes(void *arg)
{
	coro *inner = (coro *)arg;

	try {
		throw std::string("mine");
	} catch (const std::string &) {
		assert_int_equal(coro_resume(inner, nullptr, nullptr), 0);
		try {
			throw;
		} catch (const std::string &s) {
			assert_string_equal(s.c_str(), "mine");
		}
		assert_int_equal(coro_resume(inner, nullptr, nullptr), 0);
	}
	assert_false(has_exception());
	return nullptr;
}

static void test_resume_and_suspend_in_catch_blocks(void **)
{
	coro *inner;

	coro_create(sched, nullptr, suspends, &inner);
	coro_spawn(sched, nullptr, resumes, inner, nullptr);
	run_all();
	assert_int_equal(coro_status(inner), CORO_DEAD);
	coro_destroy(inner);
}

/* The thread's own context is one of them. */
static void test_rounds_run_in_a_catch_block_of_the_thread(void **)
{
	for (long i = 0; i < 5; i++)
		coro_spawn(sched, nullptr, catches, (void *)i, nullptr);
	try {
		throw 3;
	} catch (int) {
		run_all();
		assert_true(has_exception());
	}
	assert_false(has_exception());
}

/* Never freed, so that the referenced exceptions are no leak. */
static auto &kept = *new std::vector<std::exception_ptr>;

static void *parks_in_catch(void *)
{
	try {
		throw 1;
	} catch (int) {
		kept.push_back(std::current_exception());
		coro_park();
	}
	return nullptr;
}

/* Its frames are not unwound: its exception stays, but is not visible. */
static void test_destroyed_in_a_catch_block(void **)
{
	coro *co;

	coro_spawn(sched, nullptr, parks_in_catch, nullptr, &co);
	coro_sched_round(sched);
	assert_false(has_exception());
	assert_int_equal(coro_destroy(co), 0);
	assert_false(has_exception());
	coro_spawn(sched, nullptr, catches, (void *)1, nullptr);
	run_all();
}

static coro_mutex mutex;

static void *lock_body(void *arg)
{
	for (int i = 0; i < 10; i++)
		try {
			throw(long) arg;
		} catch (long mine) {
			assert_int_equal(coro_mutex_lock(&mutex), 0);
			coro_yield();
			assert_int_equal(coro_mutex_unlock(&mutex), 0);
			assert_int_equal(mine, (long)arg);
			try {
				throw;
			} catch (long again) {
				assert_int_equal(again, (long)arg);
			}
		}
	return nullptr;
}

static void test_locks_in_catch_blocks(void **)
{
	for (long i = 0; i < 10; i++)
		coro_spawn(sched, nullptr, lock_body, (void *)i, nullptr);
	run_all();
}

#define BOTH(name)                                                             \
	{#name, name, setup, teardown, nullptr},                               \
	{                                                                      \
#name "_on_one_stack", name, setup_one_stack, teardown,        \
			nullptr                                                \
	}

int main()
{
	const CMUnitTest tests[] = {
		BOTH(test_rethrow_finds_its_own_exception),
		BOTH(test_unwinding_one_is_not_seen_by_others),
		BOTH(test_resume_and_suspend_in_catch_blocks),
		BOTH(test_rounds_run_in_a_catch_block_of_the_thread),
		BOTH(test_destroyed_in_a_catch_block),
		BOTH(test_locks_in_catch_blocks),
	};

	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
