/* The payload: lost, repeated, moved or changed bytes are detected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "apps/load/payload.h"

#define LEN 1000

static unsigned char whole[LEN];
static uint64_t seed;

static int set_up(void **state)
{
	seed = payload_seed(7);
	payload_fill(whole, LEN, seed, 0);
	return 0;
}

static void test_any_piece_is_the_same_bytes(void **state)
{
	unsigned char piece[LEN];
	size_t from, len;

	for (from = 0; from < 40; from++) {
		for (len = 0; len < 40; len++) {
			memset(piece, 0, sizeof(piece));
			payload_fill(piece, len, seed, from);
			assert_memory_equal(piece, whole + from, len);
			assert_int_equal(
				payload_check(whole + from, len, seed, from),
				len);
		}
	}
}

static void test_a_changed_byte_is_found_where_it_is(void **state)
{
	size_t at;

	for (at = 0; at < LEN; at++) {
		whole[at] ^= 0x10;
		assert_int_equal(payload_check(whole, LEN, seed, 0), at);
		whole[at] ^= 0x10;
	}
	assert_int_equal(payload_check(whole, LEN, seed, 0), LEN);
}

static void test_bytes_of_another_offset_are_detected(void **state)
{
	size_t offset;

	/* Eight bytes match at another offset with a chance of 2^-64. */
	for (offset = 1; offset < LEN - 8; offset++)
		assert_true(payload_check(whole + offset, 8, seed, 0) < 8);
}

static void test_bytes_of_another_connection_are_detected(void **state)
{
	uint64_t conn;

	for (conn = 0; conn < 1000; conn++)
		if (conn != 7)
			assert_true(payload_check(whole, 8, payload_seed(conn),
						  0) < 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_any_piece_is_the_same_bytes,
				       set_up),
		cmocka_unit_test_setup(test_a_changed_byte_is_found_where_it_is,
				       set_up),
		cmocka_unit_test_setup(
			test_bytes_of_another_offset_are_detected, set_up),
		cmocka_unit_test_setup(
			test_bytes_of_another_connection_are_detected, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
