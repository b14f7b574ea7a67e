/*
 * Frames under way leave in the order of their times.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/wire/line.h"

#define MAX 1000

static int items[MAX];
static struct wire_line *line;

static int setup(void **state)
{
	for (int i = 0; i < MAX; i++)
		items[i] = i;
	return wire_line_open(MAX, &line);
}

static int teardown(void **state)
{
	wire_line_close(line);
	return 0;
}

static void push_frame(int64_t leaves_ns, int i)
{
	assert_int_equal(wire_line_push(line, leaves_ns, &items[i]), 0);
}

static void expect_pops(int64_t now_ns, int i)
{
	assert_ptr_equal(wire_line_pop(line, now_ns), &items[i]);
}

static void test_nothing_leaves_an_empty_line(void **state)
{
	assert_null(wire_line_pop(line, INT64_MAX));
	assert_int_equal(wire_line_next_ns(line), INT64_MAX);
	assert_int_equal(wire_line_count(line), 0);
}

static void test_nothing_leaves_before_its_time(void **state)
{
	push_frame(100, 0);
	assert_int_equal(wire_line_next_ns(line), 100);
	assert_null(wire_line_pop(line, 99));
	assert_int_equal(wire_line_count(line), 1);
	expect_pops(100, 0);
	assert_null(wire_line_pop(line, INT64_MAX));
}

static void test_frames_of_equal_times_keep_their_order(void **state)
{
	for (int i = 0; i < MAX; i++)
		push_frame(i % 3, i);
	for (int third = 0; third < 3; third++)
		for (int i = third; i < MAX; i += 3)
			expect_pops(2, i);
}

static int64_t times[MAX];

static void push_at_random(int i, int64_t from)
{
	times[i] = from + rand() % 10000;
	push_frame(times[i], i);
}

/* The next item; never before the one before it. */
static int pop_sorted(int64_t *now)
{
	int *item = wire_line_pop(line, INT64_MAX);

	assert_non_null(item);
	assert_true(times[*item] >= *now);
	*now = times[*item];
	return *item;
}

static void test_times_are_sorted(void **state)
{
	srand(5);
	for (int n = 1; n <= 200; n++) {
		int64_t now = 0;

		for (int i = 0; i < n; i++)
			push_at_random(i, 0);
		for (int i = 0; i < n; i++)
			pop_sorted(&now);
		assert_int_equal(wire_line_count(line), 0);
	}
}

static void test_times_stay_sorted_while_more_come(void **state)
{
	int64_t now = 0;

	srand(6);
	for (int i = 0; i < MAX; i++)
		push_at_random(i, 0);
	for (int i = 0; i < 100 * MAX; i++) {
		int item = pop_sorted(&now);

		push_at_random(item, now);
	}
	assert_int_equal(wire_line_count(line), MAX);
}

static void test_full_line_refuses_more_frames(void **state)
{
	for (int i = 0; i < MAX; i++)
		push_frame(i, i);
	assert_int_equal(wire_line_push(line, 0, &items[0]), -ENOBUFS);
	assert_int_equal(wire_line_count(line), MAX);
	for (int i = 0; i < MAX; i++)
		expect_pops(i, i);
	push_frame(0, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_nothing_leaves_an_empty_line),
		TEST(test_nothing_leaves_before_its_time),
		TEST(test_frames_of_equal_times_keep_their_order),
		TEST(test_times_are_sorted),
		TEST(test_times_stay_sorted_while_more_come),
		TEST(test_full_line_refuses_more_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
