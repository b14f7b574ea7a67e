/*
 * ICMP errors that a router returns to the sender of a packet longer than the
 * next link's MTU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/wire/too_big.h"

#define LEN 1514
#define MTU 1000
#define IP  14 /* where the packet begins in a frame */

static uint8_t frame[LEN], answer[WIRE_TOO_BIG_MAX];

/* A TCP segment from 10.9.0.1 to 10.9.0.2, DF. */
static int setup(void **state)
{
	static const uint8_t eth[] = {2, 0, 0, 0, 0, 2,	   2,
				      0, 0, 0, 0, 1, 0x08, 0x00};
	static const uint8_t ip[] = {0x45, 0, 0x05, 0xdc, 0, 7, 0x40, 0, 64, 6,
				     0,	   0, 10,   9,	  0, 1, 10,   9, 0,  2};

	for (unsigned i = 0; i < LEN; i++)
		frame[i] = (uint8_t)(i * 7);
	memcpy(frame, eth, sizeof(eth));
	memcpy(frame + IP, ip, sizeof(ip));
	memset(answer, 0xee, sizeof(answer));
	return 0;
}

/* The same over IPv6. */
static int setup6(void **state)
{
	setup(state);
	frame[12] = 0x86;
	frame[13] = 0xdd;
	memset(frame + IP, 0, 40);
	frame[IP] = 0x60;
	frame[IP + 6] = 6;
	frame[IP + 8] = frame[IP + 24] = 0xfd;
	frame[IP + 23] = 1;
	frame[IP + 39] = 2;
	return 0;
}

static unsigned answer_frame(unsigned len)
{
	/* A copy of exact size, so that ASan sees reads beyond the end. */
	uint8_t *copy = malloc(len ? len : 1);
	unsigned n;

	memcpy(copy, frame, len);
	n = wire_too_big(copy, len, MTU, answer);
	free(copy);
	return n;
}

static unsigned get_u16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/* RFC 1071: the sum over data with its checksum is all ones. */
static unsigned sum_words(unsigned begun, const uint8_t *at, unsigned len)
{
	uint32_t total = begun;

	for (unsigned i = 0; i < len; i++)
		total += i % 2 ? at[i] : (unsigned)at[i] << 8;
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return total;
}

static void test_icmp_reports_the_mtu_to_the_sender(void **state)
{
	unsigned len = answer_frame(LEN);
	const uint8_t *ip = answer + IP, *icmp = ip + 20;

	assert_int_equal(len, 14 + 576 - 20); /* RFC 1812 4.3.2.3 at most */
	assert_memory_equal(answer, frame + 6, 6);
	assert_memory_equal(answer + 6, frame, 6);
	assert_int_equal(get_u16(answer + 12), 0x0800);
	assert_int_equal(get_u16(ip + 2), len - 14);
	assert_int_equal(ip[9], 1);
	assert_memory_equal(ip + 12, frame + IP + 16, 4);
	assert_memory_equal(ip + 16, frame + IP + 12, 4);
	assert_int_equal(sum_words(0, ip, 20), 0xffff);
	assert_int_equal(icmp[0], 3);
	assert_int_equal(icmp[1], 4);
	assert_int_equal(get_u16(icmp + 4), 0);
	assert_int_equal(get_u16(icmp + 6), MTU);
	assert_int_equal(sum_words(0, icmp, len - 34), 0xffff);
	assert_memory_equal(icmp + 8, frame + IP, len - 42);
}

static void test_icmp6_reports_the_mtu_to_the_sender(void **state)
{
	unsigned len = answer_frame(LEN);
	const uint8_t *ip = answer + IP, *icmp = ip + 40;

	assert_int_equal(len, WIRE_TOO_BIG_MAX);
	assert_int_equal(get_u16(ip + 4), len - 54);
	assert_int_equal(ip[0], 0x60);
	assert_int_equal(ip[6], 58);
	assert_memory_equal(ip + 8, frame + IP + 24, 16);
	assert_memory_equal(ip + 24, frame + IP + 8, 16);
	assert_int_equal(icmp[0], 2);
	assert_int_equal(icmp[1], 0);
	assert_int_equal(get_u16(icmp + 4), 0);
	assert_int_equal(get_u16(icmp + 6), MTU);
	assert_int_equal(
		sum_words(sum_words(len - 54 + 58, ip + 8, 32), icmp, len - 54),
		0xffff);
	assert_memory_equal(icmp + 8, frame + IP, len - 62);
}

static void test_odd_number_of_bytes_is_quoted(void **state)
{
	unsigned len = answer_frame(14 + 20 + 9);

	assert_int_equal(len, 14 + 20 + 8 + 29);
	assert_int_equal(sum_words(0, answer + IP + 20, len - 34), 0xffff);
}

static void test_packet_without_df_gets_no_answer(void **state)
{
	frame[IP + 6] = 0;
	assert_int_equal(answer_frame(LEN), 0);
}

static void test_later_fragments_get_no_answer(void **state)
{
	frame[IP + 7] = 1;
	assert_int_equal(answer_frame(LEN), 0);
}

static void test_multicast_packets_get_no_answer(void **state)
{
	frame[IP + 16] = 224;
	assert_int_equal(answer_frame(LEN), 0);
	setup6(state);
	frame[IP + 24] = 0xff;
	assert_int_equal(answer_frame(LEN), 0);
}

static void test_icmp_errors_get_no_answer_but_pings_do(void **state)
{
	frame[IP + 9] = 1;
	frame[IP + 20] = 8; /* echo */
	assert_true(answer_frame(LEN) > 0);
	assert_int_equal(answer_frame(14 + 20), 0); /* unknown */
	frame[IP + 20] = 3;
	assert_int_equal(answer_frame(LEN), 0);
	setup6(state);
	frame[IP + 6] = 58;
	frame[IP + 40] = 128; /* echo */
	assert_true(answer_frame(LEN) > 0);
	assert_int_equal(answer_frame(14 + 40), 0); /* unknown */
	frame[IP + 40] = 2;
	assert_int_equal(answer_frame(LEN), 0);
}

static void test_broken_packets_get_no_answer(void **state)
{
	for (unsigned len = 0; len < 34; len++)
		assert_int_equal(answer_frame(len), 0);
	assert_true(answer_frame(34) > 0);
	frame[IP] = 0x44;
	assert_int_equal(answer_frame(LEN), 0);
	frame[IP] = 0x4f;
	assert_int_equal(answer_frame(14 + 59), 0);
	frame[13] = 6;
	assert_int_equal(answer_frame(LEN), 0);
	setup6(state);
	assert_int_equal(answer_frame(53), 0);
	assert_true(answer_frame(54) > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		TEST(test_icmp_reports_the_mtu_to_the_sender),
		cmocka_unit_test_setup(test_icmp6_reports_the_mtu_to_the_sender,
				       setup6),
		TEST(test_odd_number_of_bytes_is_quoted),
		TEST(test_packet_without_df_gets_no_answer),
		TEST(test_later_fragments_get_no_answer),
		TEST(test_multicast_packets_get_no_answer),
		TEST(test_icmp_errors_get_no_answer_but_pings_do),
		TEST(test_broken_packets_get_no_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
