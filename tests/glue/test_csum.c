/* The checksum against the plain algorithm of RFC 1071. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpdk_glue/glue_csum.h"

/* 16 bits at a time, carries folded at once; memory's byte order. */
static uint16_t sum_words(const uint8_t *data, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i += 2) {
		uint16_t word = data[i];

		if (i + 1 < len)
			word |= (uint16_t)(data[i + 1] << 8);
		sum += word;
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return (uint16_t)sum;
}

/* Zero has two forms in ones' complement. */
static void assert_sum(uint16_t got, uint16_t expected)
{
	assert_int_equal(got % 0xffff, expected % 0xffff);
}

static void test_sum_is_right_for_every_length_and_alignment(void **state)
{
	static uint8_t data[9200];

	srand(1);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rand();
	for (size_t off = 0; off < 32; off++)
		for (size_t len = 0; len < 300; len++)
			assert_sum(
				glue_sum_fold(glue_sum_add(0, data + off, len)),
				sum_words(data + off, len));
	for (size_t len = 1400; len < 9100; len += 37)
		assert_sum(glue_sum_fold(glue_sum_add(0, data + 3, len)),
			   sum_words(data + 3, len));
}

static void test_every_sum_method_gives_the_same_result(void **state)
{
	static uint8_t data[2100];

	srand(2);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rand();
	for (int method = GLUE_SUM_WORDS; method <= GLUE_SUM_AVX2; method++) {
		enum glue_sum_method m = (enum glue_sum_method)method;

		if (!glue_sum_can(m)) {
			print_message("not on this machine: %d\n", method);
			continue;
		}
		for (size_t off = 0; off < 33; off++)
			for (size_t len = 0; len < 200; len++)
				assert_sum(glue_sum_fold(glue_sum_with(
						   m, 0, data + off, len)),
					   sum_words(data + off, len));
		for (size_t len = 1400; len < 2048; len++)
			assert_sum(
				glue_sum_fold(glue_sum_with(m, 7, data, len)),
				(uint16_t)((sum_words(data, len) + 7u) %
					   0xffff));
	}
	assert_true(glue_sum_can(GLUE_SUM_WORDS));
	assert_true(glue_sum_can(GLUE_SUM_SSE2));
}

static void test_pieces_of_any_length_sum_up(void **state)
{
	static uint8_t data[3000];

	srand(3);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rand();
	for (unsigned round = 0; round < 2000; round++) {
		size_t len = (size_t)rand() % sizeof(data), at = 0;
		struct glue_sum sum = {0};

		while (at < len) {
			size_t part = (size_t)rand() % (round % 2 ? 9 : 700);

			if (part > len - at)
				part = len - at;
			glue_sum_piece(&sum, data + at, part);
			at += part;
		}
		assert_sum(glue_sum_fold(sum.sum), sum_words(data, len));
	}
}

static void test_carries_are_not_lost(void **state)
{
	static uint8_t ones[9000];

	memset(ones, 0xff, sizeof(ones));
	assert_sum(glue_sum_fold(glue_sum_add(0, ones, sizeof(ones))), 0xffff);
	assert_sum(glue_sum_fold(glue_sum_add(0xffffffffff, ones, 64)),
		   glue_sum_fold(0xffffffffff));
}

static void test_pieces_add_up(void **state)
{
	uint8_t data[100];
	uint64_t sum;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	sum = glue_sum_add(0, data, 40);
	sum = glue_sum_add(sum, data + 40, 59);
	assert_sum(glue_sum_fold(sum), sum_words(data, 99));
}

/* A TCP segment of four bytes worked out by hand from RFC 9293's rules. */
static void test_pseudo_header_matches_a_worked_example(void **state)
{
	const uint8_t addrs[8] = {10, 0, 0, 1, 10, 0, 0, 2};
	/* 0a00 + 0001 + 0a00 + 0002 + 0006 + 0018 = 1421 */
	uint64_t sum = glue_sum_pseudo(addrs, 4, 6, 24);

	assert_int_equal(glue_sum_fold(sum), htons(0x1421));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_sum_is_right_for_every_length_and_alignment),
		cmocka_unit_test(test_every_sum_method_gives_the_same_result),
		cmocka_unit_test(test_pieces_of_any_length_sum_up),
		cmocka_unit_test(test_carries_are_not_lost),
		cmocka_unit_test(test_pieces_add_up),
		cmocka_unit_test(test_pseudo_header_matches_a_worked_example),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
