/*
 * Choice of backends: round robin, least sessions, and a hash that is stable
 * while other backends come and go.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/proxy/balance.h"

#define CLIENTS 20000

static struct balance b;

static void make_balance(enum balance_kind kind, unsigned n)
{
	char name[32];

	balance_init(&b, kind, 2, 3);
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "10.9.0.%u:80", i);
		assert_int_equal(balance_add(&b, name), (int)i);
	}
	balance_ready(&b);
}

static void take_down(int i)
{
	assert_false(balance_report(&b, i, false));
	assert_false(balance_report(&b, i, false));
	assert_true(balance_report(&b, i, false));
}

static int choose_client(uint32_t client)
{
	return balance_choose(&b, balance_hash(&client, sizeof(client)), 0);
}

static void test_backend_names_are_unique_and_bounded(void **state)
{
	char name[BALANCE_NAME_MAX + 1];

	make_balance(BALANCE_RR, BALANCE_MAX);
	assert_int_equal(balance_add(&b, "10.9.0.3:80"), -EEXIST);
	assert_int_equal(balance_add(&b, "10.9.9.9:80"), -ENOSPC);
	memset(name, 'x', sizeof(name));
	name[BALANCE_NAME_MAX] = '\0';
	assert_int_equal(balance_add(&b, name), -ENAMETOOLONG);
}

static void test_round_robin_skips_backends_that_are_down(void **s)
{
	make_balance(BALANCE_RR, 3);
	for (int i = 0; i < 7; i++)
		assert_int_equal(balance_choose(&b, 0, 0), i % 3);
	take_down(2);
	assert_int_equal(balance_choose(&b, 0, 0), 1);
	assert_int_equal(balance_choose(&b, 0, 0), 0);
	assert_int_equal(balance_choose(&b, 0, 0), 1);
	assert_int_equal(balance_choose(&b, 0, 1 << 0 | 1 << 1), -ENOENT);
}

static void test_least_prefers_the_idle_and_is_fair_among_equals(void **state)
{
	make_balance(BALANCE_LEAST, 3);
	for (int i = 0; i < 6; i++) {
		int chosen = balance_choose(&b, 0, 0);

		assert_int_equal(chosen, i % 3);
		balance_begin(&b, chosen);
	}
	balance_end(&b, 1);
	assert_int_equal(balance_choose(&b, 0, 0), 1);
	assert_int_not_equal(balance_choose(&b, 0, 1 << 1), 1);
	assert_int_equal(b.backends[1].active, 1);
	assert_int_equal(b.backends[1].served, 2);
}

static void test_no_backend_up_is_enoent_for_every_method(void **state)
{
	for (int kind = BALANCE_RR; kind <= BALANCE_HASH; kind++) {
		make_balance((enum balance_kind)kind, 2);
		take_down(0);
		take_down(1);
		assert_int_equal(balance_up(&b), 0);
		assert_int_equal(balance_choose(&b, 12345, 0), -ENOENT);
	}
}

static void test_hash_distributes_evenly(void **state)
{
	unsigned count[10] = {0};

	make_balance(BALANCE_HASH, 10);
	for (uint32_t c = 0; c < CLIENTS; c++)
		count[choose_client(c)]++;
	for (int i = 0; i < 10; i++)
		assert_in_range(count[i], CLIENTS / 10 * 85 / 100,
				CLIENTS / 10 * 115 / 100);
}

static void
test_hash_moves_only_the_clients_of_the_backend_that_goes(void **state)
{
	static int before[CLIENTS];
	unsigned moved = 0, count[10] = {0}, after[10] = {0};

	make_balance(BALANCE_HASH, 10);
	for (uint32_t c = 0; c < CLIENTS; c++) {
		before[c] = choose_client(c);
		count[before[c]]++;
	}
	take_down(4);
	for (uint32_t c = 0; c < CLIENTS; c++) {
		int now = choose_client(c);

		assert_int_not_equal(now, 4);
		after[now]++;
		moved += now != before[c];
	}
	assert_int_equal(moved, count[4]);
	/* The others share them, evenly enough. */
	for (int i = 0; i < 10; i++)
		if (i != 4)
			assert_in_range(after[i] - count[i], count[4] / 9 / 2,
					count[4] / 9 * 2);
	/* It comes back: every key has its backend as before. */
	balance_report(&b, 4, true);
	assert_true(balance_report(&b, 4, true));
	for (uint32_t c = 0; c < CLIENTS; c++)
		assert_int_equal(choose_client(c), before[c]);
}

static void test_hash_gives_another_when_the_first_was_tried(void **state)
{
	make_balance(BALANCE_HASH, 3);
	for (uint32_t c = 0; c < 100; c++) {
		uint64_t h = balance_hash(&c, sizeof(c));
		int first = balance_choose(&b, h, 0);
		int second = balance_choose(&b, h, UINT64_C(1) << first);

		assert_true(first >= 0 && second >= 0 && first != second);
	}
}

static void test_rise_and_fall_count_checks_in_a_row(void **state)
{
	make_balance(BALANCE_RR, 2);
	assert_false(balance_report(&b, 0, false));
	assert_false(balance_report(&b, 0, false));
	assert_false(balance_report(&b, 0, true)); /* restarts the count */
	take_down(0);
	assert_int_equal(balance_up(&b), 1);
	assert_false(balance_report(&b, 0, true));
	assert_false(balance_report(&b, 0, false));
	assert_false(balance_report(&b, 0, true));
	assert_true(balance_report(&b, 0, true));
	assert_int_equal(balance_up(&b), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_backend_names_are_unique_and_bounded),
		cmocka_unit_test(test_round_robin_skips_backends_that_are_down),
		cmocka_unit_test(
			test_least_prefers_the_idle_and_is_fair_among_equals),
		cmocka_unit_test(test_no_backend_up_is_enoent_for_every_method),
		cmocka_unit_test(test_hash_distributes_evenly),
		cmocka_unit_test(
			test_hash_moves_only_the_clients_of_the_backend_that_goes),
		cmocka_unit_test(
			test_hash_gives_another_when_the_first_was_tried),
		cmocka_unit_test(test_rise_and_fall_count_checks_in_a_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
