/*
 * Requests that have begun: the oldest makes room for the newest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/common/pending.h"

static struct pending_list list;
static struct pending items[5];
static struct pending *displaced[8];
static unsigned n_displaced;

static void displace(struct pending *item)
{
	assert_null(item->pprev);
	displaced[n_displaced++] = item;
}

static int setup(void **state)
{
	memset(items, 0, sizeof(items));
	n_displaced = 0;
	pending_init(&list, 3, displace);
	return 0;
}

static void test_oldest_makes_room(void **state)
{
	for (unsigned i = 0; i < 5; i++)
		pending_enter(&list, &items[i]);
	assert_int_equal(n_displaced, 2);
	assert_ptr_equal(displaced[0], &items[0]);
	assert_ptr_equal(displaced[1], &items[1]);
	assert_int_equal(list.n, 3);
	assert_int_equal(list.displaced, 2);
}

static void test_staying_does_not_make_it_newer(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	pending_enter(&list, &items[0]);
	assert_int_equal(list.n, 3);
	pending_enter(&list, &items[3]);
	assert_ptr_equal(displaced[0], &items[0]);
}

static void test_who_has_left_is_displaced_by_nobody(void **state)
{
	for (unsigned i = 0; i < 3; i++)
		pending_enter(&list, &items[i]);
	pending_leave(&list, &items[2]); /* the newest, the oldest, again */
	pending_leave(&list, &items[0]);
	pending_leave(&list, &items[0]);
	assert_int_equal(list.n, 1);
	pending_enter(&list, &items[3]);
	pending_enter(&list, &items[4]);
	assert_int_equal(n_displaced, 0);
	pending_enter(&list, &items[0]);
	assert_ptr_equal(displaced[0], &items[1]);
	while (list.oldest)
		pending_leave(&list, list.oldest);
	assert_int_equal(list.n, 0);
	assert_ptr_equal(list.newest, &list.oldest);
}

static void test_none_at_all_may_be_pending(void **state)
{
	list.max = 0;
	pending_enter(&list, &items[0]);
	assert_ptr_equal(displaced[0], &items[0]);
	assert_int_equal(list.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_oldest_makes_room, setup),
		cmocka_unit_test_setup(test_staying_does_not_make_it_newer,
				       setup),
		cmocka_unit_test_setup(test_who_has_left_is_displaced_by_nobody,
				       setup),
		cmocka_unit_test_setup(test_none_at_all_may_be_pending, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
